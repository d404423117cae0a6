# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics of a real cluster: nodes, jobs and the queue; what stays while slurmctld is away; the objects for the Prometheus operator."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from .conftest import Cluster, eventually

pytestmark = pytest.mark.lab

NAME = "watched"
NODE_PORT = 31340
INTERVAL = 10
SPEC = {"intervalSeconds": INTERVAL, "resources": {"requests": {"cpu": "5m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}}
KINDS = {"servicemonitors": "ServiceMonitor", "prometheusrules": "PrometheusRule"}


def definition(plural: str, kind: str) -> dict[str, Any]:
    """A CustomResourceDefinition as open as it can be, of the Prometheus operator's kind."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster(NAME, NODE_PORT)
    del made.spec["nodeSets"][1]
    made.spec["monitoring"] = SPEC
    run = made.site()
    assert run.rc == 0, run.output
    return made


@pytest.fixture(name="definitions")
def kinds_of_the_prometheus_operator(cluster: Cluster) -> Iterator[None]:
    for plural, kind in KINDS.items():
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(definition(plural, kind)))
    cluster.kubectl("wait", "--for=condition=Established", *(f"crd/{plural}.monitoring.coreos.com" for plural in KINDS), "--timeout=60s")
    yield
    cluster.kubectl("delete", "crd", *(f"{plural}.monitoring.coreos.com" for plural in KINDS))


def text(cluster: Cluster) -> str:
    """What Prometheus would scrape: by the Service, from the login pod of the same cluster."""
    address = f"http://{cluster.name}-monitoring.{cluster.namespace}:9341/metrics"
    code = f"import urllib.request; print(urllib.request.urlopen('{address}', timeout=10).read().decode(), end='')"
    return cluster.kubectl("exec", "-n", cluster.namespace, f"{cluster.name}-login-0", "-c", "sshd", "--", "python3", "-c", code)


def metrics(cluster: Cluster) -> dict[tuple[str, ...], float]:
    """Values by name and labels' values."""
    found = {}
    for family in text_string_to_metric_families(text(cluster)):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("cluster") == cluster.name
            found[sample.name, *labels.values()] = sample.value
    return found


def test_prometheus_accepts_the_metrics(cluster: Cluster) -> None:
    eventually(lambda: metrics(cluster).get(("slurm_nodes", "cpu", "idle")) == 2, "both nodes are idle", 60)
    done = subprocess.run(["promtool", "check", "metrics"], input=text(cluster), capture_output=True, text=True, check=False)
    # 3: it would name something otherwise.
    assert done.returncode in (0, 3) and "error" not in done.stderr, done.stdout + done.stderr


def test_a_queue_is_what_an_autoscaler_needs(cluster: Cluster) -> None:
    for more in ("", "", "--hold"):
        cluster.ssh(f"sbatch -o /dev/null --exclusive -N2 {more} --wrap 'sleep 600'")
    try:

        def queued() -> bool:
            found = metrics(cluster)
            return (found.get(("slurm_jobs", "running")), found.get(("slurm_jobs", "pending"))) == (1, 2)

        eventually(queued, "one job runs and two wait", 60)
        found = metrics(cluster)
        assert found["slurm_node_set_pending_jobs", "cpu"] == 1, "the held job waits for no node"
        assert found["slurm_node_set_pending_nodes", "cpu"] == 2
        assert found["slurm_node_set_wanted_nodes", "cpu"] == 4
        assert found["slurm_jobs_pending", "JobHeldUser"] == 1
        assert found["slurm_partition_jobs", "main", "running"] == 1
        assert found["slurm_nodes", "cpu", "allocated"] == 2
    finally:
        cluster.cancel_jobs()


def test_a_drained_node_has_its_reason(cluster: Cluster) -> None:
    cluster.slurm("scontrol", "update", "nodename=cpu-1", "state=drain", 'reason=say "hi" \\ there')
    try:
        eventually(
            lambda: any(key[0] == "slurm_node_unavailable" and key[1] == "cpu-1" for key in metrics(cluster)),
            "the drained node has its series",
            60,
        )
        (key,) = [key for key in metrics(cluster) if key[0] == "slurm_node_unavailable"]
        assert key[1:4] == ("cpu-1", "cpu", "drained") and key[4].startswith("say ")
    finally:
        cluster.slurm("scontrol", "update", "nodename=cpu-1", "state=resume")


def test_without_slurmctld_the_last_good_values_stay_with_their_age(cluster: Cluster) -> None:
    before = metrics(cluster)
    assert before["slurm_exporter_success", "scheduler"] == 1
    scale = ("scale", "-n", cluster.namespace, f"statefulset/{cluster.name}-controller")
    cluster.kubectl(*scale, "--replicas=0")
    try:
        eventually(lambda: metrics(cluster)["slurm_exporter_success", "scheduler"] == 0, "a query of slurmctld fails", 120)
        eventually(lambda: metrics(cluster)["slurm_exporter_age_seconds", "scheduler"] > 2 * INTERVAL, "the values are old", 120)
        now = metrics(cluster)
        assert {key: value for key, value in now.items() if key[0] == "slurm_nodes"} == {
            key: value for key, value in before.items() if key[0] == "slurm_nodes"
        }
        pods = cluster.kubectl("get", "pods", "-n", cluster.namespace, f"{cluster.name}-monitoring-0", "-o", "json")
        assert all(one["ready"] for one in json.loads(pods)["status"]["containerStatuses"]), "a restart would give no values back"
    finally:
        cluster.kubectl(*scale, "--replicas=1")
    eventually(lambda: metrics(cluster)["slurm_exporter_success", "scheduler"] == 1, "slurmctld is queried again", 180)


def test_the_exporter_is_a_user_without_rights(cluster: Cluster) -> None:
    inside = ("exec", "-n", cluster.namespace, f"{cluster.name}-monitoring-0", "-c", "exporter", "--", "sh", "-c")
    assert cluster.kubectl(*inside, "id -u; touch /usr/x 2>/dev/null || echo refused").split() == ["64035", "refused"]
    refused = cluster.kubectl(*inside, "scontrol update nodename=cpu-0 state=drain reason=x 2>&1 || true")
    assert "Invalid user id" in refused or "permission denied" in refused.lower(), refused


@pytest.mark.usefixtures("definitions")
def test_objects_for_prometheus_are_made_as_soon_as_their_kinds_are_there(cluster: Cluster) -> None:
    run = cluster.site()
    assert run.rc == 0, run.output
    for plural in KINDS:
        name = f"{cluster.name}-monitoring"
        cluster.kubectl("get", f"{plural}.monitoring.coreos.com", name, "-n", cluster.namespace)
    again = cluster.site()
    assert again.rc == 0 and again.changed == 0, again.output


def test_it_goes_when_it_is_switched_off(cluster: Cluster) -> None:
    cluster.spec["monitoring"] = {"enabled": False}
    run = cluster.site()
    assert run.rc == 0, run.output
    left = cluster.kubectl(
        "get", "all,configmaps", "-n", cluster.namespace, "-l", "app.kubernetes.io/component=monitoring", "-o", "name"
    ).split()
    assert [one for one in left if not one.startswith("configmap/") or one.endswith("-config")] == []
