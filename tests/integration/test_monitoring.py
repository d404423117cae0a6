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
SOURCES = ("nodes", "jobs", "scheduler")
GROUP = "monitoring.coreos.com"
KINDS = {"servicemonitors": "ServiceMonitor", "prometheusrules": "PrometheusRule"}


def definition(plural: str, kind: str) -> dict[str, Any]:
    """A CustomResourceDefinition of the Prometheus operator's kind that accepts every object."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
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
    names = [f"{plural}.{GROUP}" for plural in KINDS]
    for plural, kind in KINDS.items():
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(definition(plural, kind)))
    eventually(lambda: all(map(cluster.kubectl.serves, names)), "the API server serves the kinds")
    # It says so a moment before each of its requests is served.
    eventually(
        lambda: all(plural in cluster.kubectl("api-resources", f"--api-group={GROUP}", "-o", "name") for plural in KINDS), "both listed"
    )
    yield
    cluster.kubectl("delete", "crd", *names)


def text(cluster: Cluster) -> str:
    """What Prometheus would scrape: by the Service, from the login pod of the same cluster. Empty where that is not reached."""
    address = f"http://{cluster.name}-monitoring.{cluster.namespace}:9341/metrics"
    code = f"import urllib.request; print(urllib.request.urlopen('{address}', timeout=10).read().decode(), end='')"
    login = ("exec", "-n", cluster.namespace, f"{cluster.name}-login-0", "-c", "sshd", "--", "python3", "-c", code)
    return cluster.kubectl(*login, check=False)


def metrics(cluster: Cluster) -> dict[tuple[str, ...], float]:
    """Values by name and labels' values."""
    found = {}
    for family in text_string_to_metric_families(text(cluster)):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("cluster") == cluster.name
            found[sample.name, *labels.values()] = sample.value
    return found


@pytest.fixture(scope="module", name="queue")
def one_job_runs_and_two_wait(cluster: Cluster) -> dict[tuple[str, ...], float]:
    """The metrics of a cluster where a job has all nodes, one waits for them, and one is held. The jobs stay: another query finds the same."""
    for more in ("", "", "--hold"):
        cluster.ssh(f"sbatch -o /dev/null --exclusive -N2 {more} --wrap 'sleep 1200'")
    found: dict[tuple[str, ...], float] = {}

    def queued() -> bool:
        found.clear()
        found.update(metrics(cluster))
        wanted = {("slurm_jobs", "running"): 1, ("slurm_jobs", "pending"): 2, ("slurm_nodes", "cpu", "allocated"): 2}
        return all(found.get(key) == value for key, value in wanted.items())

    eventually(queued, "one job runs and two wait", 60)
    return found


def test_a_drained_node_has_its_reason_and_prometheus_accepts_it(cluster: Cluster) -> None:
    eventually(lambda: ("slurm_nodes", "cpu", "idle") in metrics(cluster), "the nodes have metrics", 60)
    cluster.slurm("scontrol", "update", "nodename=cpu-1", "state=drain", 'reason=say "hi" \\ there')
    try:
        series = ("slurm_node_unavailable", "cpu-1", "cpu", "drained", 'say "hi" \\ there')
        eventually(lambda: metrics(cluster).get(series) == 1, "the drained node has its series", 60)
        done = subprocess.run(["promtool", "check", "metrics"], input=text(cluster), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        cluster.slurm("scontrol", "update", "nodename=cpu-1", "state=resume")


def test_a_queue_is_what_an_autoscaler_needs(queue: dict[tuple[str, ...], float]) -> None:
    assert queue["slurm_node_set_pending_jobs", "cpu"] == 1, "the held job waits for no node"
    assert queue["slurm_node_set_pending_nodes", "cpu"] == 2
    assert queue["slurm_node_set_wanted_nodes", "cpu"] == 4
    assert queue["slurm_jobs_pending", "JobHeldUser"] == 1
    assert queue["slurm_partition_jobs", "main", "running"] == 1


def test_without_slurmctld_the_last_good_values_stay_with_their_age(cluster: Cluster, queue: dict[tuple[str, ...], float]) -> None:
    def successes() -> set[float | None]:
        found = metrics(cluster)
        return {found.get(("slurm_exporter_success", source)) for source in SOURCES}

    scale = ("scale", "-n", cluster.namespace, f"statefulset/{cluster.name}-controller")
    cluster.kubectl(*scale, "--replicas=0")
    try:
        eventually(lambda: 0 in successes(), "a query of slurmctld fails", 60)
        now = metrics(cluster)
        failed = [source for source in SOURCES if now["slurm_exporter_success", source] == 0]
        assert all(now["slurm_exporter_age_seconds", source] > INTERVAL / 2 for source in failed)
        kept = ("slurm_nodes", "slurm_jobs", "slurm_partition_jobs", "slurm_cpus")
        assert {key: value for key, value in now.items() if key[0] in kept} == {
            key: value for key, value in queue.items() if key[0] in kept
        }
        pod = cluster.kubectl.json("get", "pod", f"{cluster.name}-monitoring-0", "-n", cluster.namespace)
        assert all(one["ready"] for one in pod["status"]["containerStatuses"]), "a restart would give no values back"
    finally:
        cluster.kubectl(*scale, "--replicas=1")
    eventually(lambda: successes() == {1}, "slurmctld is queried again", 120)


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
        cluster.kubectl("get", f"{plural}.{GROUP}", f"{cluster.name}-monitoring", "-n", cluster.namespace)
    again = cluster.site()
    assert again.rc == 0 and again.changed == 0, again.output


def test_it_goes_when_it_is_switched_off_and_takes_no_job_along(cluster: Cluster) -> None:
    """Although the kinds of two of its objects have gone since."""
    before = cluster.slurm("squeue", "-h", "-o", "%A %T")
    cluster.spec["monitoring"] = {"enabled": False}
    run = cluster.site()
    assert run.rc == 0, run.output
    assert not [name for name in cluster.objects() if f"/{cluster.name}-monitoring" in name]
    label = f"app.kubernetes.io/instance={cluster.name},app.kubernetes.io/component=monitoring"
    eventually(lambda: not cluster.kubectl.items("pods", "-n", cluster.namespace, "-l", label), "the pod is gone")
    assert cluster.slurm("squeue", "-h", "-o", "%A %T") == before
