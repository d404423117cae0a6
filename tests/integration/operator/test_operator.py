# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of one cluster under the operator, in order: made, left alone, edited, spoilt, handed to and fro, taken away.

Each test continues where the last one ended.
"""

from __future__ import annotations

import copy
import datetime
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from prometheus_client.parser import text_string_to_metric_families

from ..conftest import REPOSITORY, VOLUMES, eventually
from .conftest import DOCUMENTS, NAME, NAMESPACE, Operator, Served, sentence

pytestmark = pytest.mark.lab
LAB = VOLUMES.parent


def test_a_second_run_of_the_installation_changes_nothing(operator: Operator) -> None:
    run = operator.install()
    assert (run.rc, run.changed) == (0, 0), run.output
    run = operator.install("--check", "--diff")
    assert (run.rc, run.changed) == (0, 0), run.output
    assert len(operator.pods()) == 2


def test_a_document_without_rights_has_that_in_its_status_and_can_be_deleted(operator: Operator, cluster: Served) -> None:
    kubectl = operator.kubectl
    other = Served(**{**vars(cluster), "name": "unserved", "namespace": "test-unserved"})
    kubectl("create", "namespace", other.namespace)
    try:
        other.apply()
        eventually(lambda: other.is_("Ready", "False"), "the status has the missing rights", 20)
        message = other.condition("Ready")["message"]
        assert other.namespace in message
        assert "RoleBinding" in message or "operator_namespaces" in message
        assert kubectl("get", "statefulsets,secrets,services,jobs", "-n", other.namespace, "-o", "name") == ""
        kubectl("delete", DOCUMENTS, other.name, "-n", other.namespace, "--timeout=30s")
    finally:
        kubectl("delete", "namespace", other.namespace, "--timeout=120s")


def test_apply_makes_a_cluster_and_kubectl_can_wait_for_it(cluster: Served) -> None:
    began = time.monotonic()
    cluster.apply()
    cluster.wait_ready()
    print(f"MEASURED kubectl apply → Ready: {time.monotonic() - began:.1f} s")
    assert cluster.ssh("srun -N2 sh -c 'echo $SLURMD_NODENAME'").stdout.split() != []
    row = cluster.kubectl("get", "slc", cluster.name, "-n", cluster.namespace)
    assert "True" in row


def test_a_cluster_at_rest_is_left_alone_also_by_an_operator_that_starts(operator: Operator, cluster: Served) -> None:
    eventually(lambda: cluster.settled, "the cluster is at rest")
    before, version = cluster.objects(), cluster.resource()["metadata"]["resourceVersion"]
    operator.kubectl("rollout", "restart", "deployment/corral-operator", "-n", NAMESPACE)
    operator.kubectl("rollout", "status", "deployment/corral-operator", "-n", NAMESPACE, "--timeout=120s")
    operator.led()
    time.sleep(5)
    assert operator.runs() == 0, operator.log("--tail=50")
    assert cluster.objects() == before
    assert cluster.resource()["metadata"]["resourceVersion"] == version


def test_an_edit_is_made_real_and_changes_nothing_else(cluster: Served) -> None:
    before = cluster.objects()
    cluster.spec["nodeSets"][0]["features"] = ["plain", "edited"]
    began = time.monotonic()
    cluster.apply()
    eventually(lambda: "edited" in cluster.slurm("sinfo", "-h", "-n", "cpu-0", "-o", "%f"), "slurmctld serves the edit", 30)
    print(f"MEASURED kubectl apply → served by slurmctld: {time.monotonic() - began:.1f} s")
    cluster.wait_ready()
    after = cluster.objects()
    assert {name for name in after if after[name] != before.get(name)} == {f"ConfigMap/{NAME}-controller-config"}


def test_a_node_set_that_scales_is_scaled_by_its_subresource_and_by_nothing_else(operator: Operator, cluster: Served) -> None:
    kubectl, where, there = operator.kubectl, f"slurmnodesets/{NAME}-cpu", ("-n", cluster.namespace)

    def scale() -> tuple[int, int, str]:
        """As an autoscaler reads it: what is asked for, what is there, and the selector of the pods."""
        found = json.loads(kubectl("get", "--raw", f"/apis/corral.hpc/v1alpha1/namespaces/{cluster.namespace}/{where}/scale"))
        return found["spec"].get("replicas", 0), found["status"].get("replicas", 0), found["status"].get("selector", "")

    def nodes() -> list[str]:
        return cluster.slurm("sinfo", "-h", "-N", "-o", "%N").split()

    cluster.spec["nodeSets"][0]["scale"] = {"minReplicas": 1, "maxReplicas": 3}
    cluster.apply()
    eventually(lambda: kubectl("get", where, *there, "--ignore-not-found", "-o", "name") != "", "there is something to scale", 30)
    eventually(lambda: cluster.settled, "the cluster is at rest")
    assert scale()[:2] == (2, 2)
    assert len(kubectl.items("pods", *there, "-l", scale()[2])) == 2
    generation = cluster.resource()["metadata"]["generation"]
    began = time.monotonic()
    kubectl("scale", where, *there, "--replicas=3")
    eventually(lambda: len(nodes()) == 3, "slurmctld has the third node", 30)
    print(f"MEASURED kubectl scale → served by slurmctld: {time.monotonic() - began:.1f} s")
    eventually(lambda: cluster.settled and scale()[:2] == (3, 3), "the third node is in service")
    # The document has not changed, and whoever runs the playbook with it changes nothing.
    assert cluster.resource()["metadata"]["generation"] == generation
    run = cluster.site()
    assert (run.rc, run.changed) == (0, 0), run.output
    # A real autoscaler, which has no metrics here, but bounds of its own.
    kubectl("apply", "-f", "-", stdin=json.dumps(autoscaler(cluster, minReplicas=1, maxReplicas=2)))
    eventually(lambda: scale()[:2] == (2, 2), "the autoscaler has brought the set within its bounds", 60)
    kubectl("delete", "horizontalpodautoscaler", f"{NAME}-cpu", *there)
    eventually(lambda: nodes() == ["cpu-0", "cpu-1"] and cluster.settled, "slurmctld has let the third node go", 60)
    # Fewer than the document lets go is as many as it lets go. What has a job is drained, and waited for.
    job = cluster.ssh("sbatch --parsable -w cpu-1 --wrap 'sleep 600'").stdout.strip()
    eventually(lambda: "RUNNING" in cluster.slurm("squeue", "-h", "-j", job, "-o", "%T"), "the job runs")
    kubectl("scale", where, *there, "--replicas=0")
    eventually(lambda: "DRAIN" in cluster.slurm("scontrol", "show", "node", "cpu-1"), "the node drains", 60)
    assert nodes() == ["cpu-0", "cpu-1"]
    assert "RUNNING" in cluster.slurm("squeue", "-h", "-j", job, "-o", "%T")
    eventually(lambda: scale()[:2] == (0, 2), "an autoscaler gets both")
    cluster.slurm("scancel", job)
    cluster.annotate("corral.hpc/requested-at=job-cancelled")
    eventually(lambda: nodes() == ["cpu-0"], "it has gone when its job had", 60)
    eventually(lambda: cluster.settled and scale()[:2] == (0, 1), "the cluster is at rest")
    reasons = kubectl("get", "events", *there, "-o", "jsonpath={.items[*].reason}")
    assert "Scaled" in reasons
    # Without `scale` the document has the last word again.
    del cluster.spec["nodeSets"][0]["scale"]
    cluster.apply()
    eventually(lambda: cluster.settled and sorted(nodes()) == ["cpu-0", "cpu-1"], "the set is as large as the document says")
    assert kubectl("get", where, *there, "--ignore-not-found", "-o", "name") == ""


def autoscaler(cluster: Served, **bounds: int) -> dict[str, Any]:
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    target = {"apiVersion": "corral.hpc/v1alpha1", "kind": "SlurmNodeSet", "name": f"{NAME}-cpu"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"{NAME}-cpu", "namespace": cluster.namespace},
        "spec": {"scaleTargetRef": target, **bounds, "metrics": [metric]},
    }


def patch(kind: str, name: str, what: str, *flags: str) -> tuple[str, ...]:
    return "patch", kind, f"{NAME}-{name}", *flags, "-p", what


# Each kind that a cluster is made of, deleted or edited. Of claims and Pods, which Kubernetes keeps or makes anew by itself, what can be harmed.
DRIFTS: dict[str, tuple[str, ...]] = {
    "ConfigMap deleted": ("delete", "configmap", f"{NAME}-controller-config"),
    "ConfigMap edited": patch("configmap", "controller-config", '{"data": {"slurm.conf": "ClusterName=other\\n"}}'),
    "StatefulSet deleted": ("delete", "statefulset", f"{NAME}-login"),
    "StatefulSet scaled": ("scale", "statefulset", f"{NAME}-cpu", "--replicas=3"),
    "ConfigMap without its cluster's label": ("label", "configmap", f"{NAME}-controller-config", "app.kubernetes.io/instance-"),
    "ConfigMap without one of its keys": patch(
        "configmap", "controller-config", '[{"op": "remove", "path": "/data/slurm.conf"}]', "--type=json"
    ),
    "StatefulSet without its cluster's label": ("label", "statefulset", f"{NAME}-cpu", "app.kubernetes.io/instance-"),
    "StatefulSet without a label": ("label", "statefulset", f"{NAME}-cpu", "app.kubernetes.io/component-"),
    "Service deleted": ("delete", "service", f"{NAME}-login"),
    "Service edited": patch("service", "login", '{"spec": {"selector": {"nobody": "here"}}}'),
    "NetworkPolicy deleted": ("delete", "networkpolicy", f"{NAME}-base"),
    "NetworkPolicy edited": patch("networkpolicy", "base", '{"spec": {"podSelector": {"matchLabels": {"nobody": "here"}}}}'),
    "PodDisruptionBudget deleted": ("delete", "poddisruptionbudget", f"{NAME}-worker"),
    "PodDisruptionBudget edited": patch("poddisruptionbudget", "worker", '{"spec": {"maxUnavailable": 5}}', "--type=merge"),
    "ServiceAccount deleted": ("delete", "serviceaccount", f"{NAME}-worker"),
    "ServiceAccount edited": patch("serviceaccount", "worker", '{"automountServiceAccountToken": true}'),
    "PersistentVolumeClaim without a label": ("label", "persistentvolumeclaim", f"{NAME}-jail", "app.kubernetes.io/component-"),
    "Job deleted": ("delete", "job", "-l", f"app.kubernetes.io/instance={NAME},app.kubernetes.io/component=jail"),
}
# How long each repair took, as far as kubectl can see it; what is promised is measured by tests/bench.
REPAIRS = REPOSITORY / "build" / "operator-drift.json"


@pytest.mark.parametrize("what", DRIFTS)
def test_drift_is_repaired(cluster: Served, what: str) -> None:
    wanted = alike(cluster.contents())
    verb, *rest = DRIFTS[what]
    began = time.monotonic()
    cluster.kubectl(verb, *rest, "-n", cluster.namespace)
    eventually(lambda: alike(cluster.contents()) == wanted, f"{what}: it is as it was", 20)
    seconds = time.monotonic() - began
    print(f"MEASURED {what} → repaired: {seconds:.1f} s")
    record(what, seconds)
    eventually(lambda: cluster.settled, "the cluster is at rest")
    assert alike(cluster.contents()) == wanted
    kind = what.partition(" ")[0]
    eventually(lambda: f'"{kind} ' in json.dumps(cluster.resource()["status"].get("lastDrift")), "the status names the repair")
    assert cluster.ssh("srun -N2 true", check=False).returncode == 0


# Additions to an object that change no field of the cluster: the object, the field, and the patch.
ADDED: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "a container": (
        f"StatefulSet {NAME}-cpu",
        "statefulset",
        '.spec.template.spec.containers[name="spy"]',
        {"template": {"spec": {"containers": [{"name": "spy", "image": "localhost/none"}]}}},
    ),
    "a rule for egress": (f"NetworkPolicy {NAME}-base", "networkpolicy", ".spec.egress", {"egress": [{}]}),
}


@pytest.mark.parametrize("what", ADDED)
def test_additions_of_others_are_removed_and_reported_with_field_and_manager(cluster: Served, what: str) -> None:
    wanted, there = alike(cluster.contents()), ("-n", cluster.namespace)
    which, kind, field, spec = ADDED[what]
    began = time.monotonic()
    cluster.kubectl("patch", kind, which.rpartition(" ")[2], *there, "--field-manager=intruder", "-p", json.dumps({"spec": spec}))

    def told() -> list[str]:
        return [one["message"] for one in cluster.kubectl.items("events", *there) if one["reason"] == "ForeignFieldsRemoved"]

    eventually(lambda: alike(cluster.contents()) == wanted, f"{what} is removed", 20)
    print(f"MEASURED {what} added → removed: {time.monotonic() - began:.1f} s")
    eventually(lambda: any(f"{field} of {which}, by intruder" in one for one in told()), "an event names field and manager", 20)
    eventually(lambda: cluster.settled, "the cluster is at rest")
    assert alike(cluster.contents()) == wanted


def alike(contents: dict[str, Any]) -> dict[str, Any]:
    """Of Secrets only which keys they have: one that was lost is another one when it is back."""
    return {
        name: {**one, "data": sorted(one["data"])} if name.startswith("Secret/") and "data" in one else one
        for name, one in contents.items()
    }


def record(what: str, seconds: float) -> None:
    REPAIRS.parent.mkdir(exist_ok=True)
    known = json.loads(REPAIRS.read_text()) if REPAIRS.exists() else {}
    REPAIRS.write_text(json.dumps({**known, what: round(seconds, 2)}, indent=1) + "\n")


def test_a_lost_worker_pod_is_back_and_the_status_shows_it(cluster: Served) -> None:
    """Its StatefulSet creates it; the operator reports that, and that Slurm has the node again."""
    began = time.monotonic()
    cluster.kubectl("delete", "pod", f"{NAME}-cpu-1", "-n", cluster.namespace, "--wait=false")
    eventually(lambda: cluster.is_("WorkersReady", "False") or not cluster.settled, "the status shows it", 30)
    eventually(lambda: cluster.settled and cluster.is_("WorkersReady", "True"), "the cluster is at rest again")
    record("Pod deleted", time.monotonic() - began)
    assert cluster.ssh("srun -N2 true", check=False).returncode == 0


def test_the_status_follows_an_administrators_changes_in_slurm(operator: Operator, cluster: Served) -> None:
    """Kubernetes does not show them, so the operator probes."""
    eventually(lambda: cluster.settled, "the cluster is at rest", 60)

    def tell(state: str, *words: str) -> float:
        command = ("scontrol", "update", "nodename=cpu-0", f"state={state}", *words)
        cluster.kubectl("exec", "-n", cluster.namespace, f"{NAME}-controller-0", "-c", "slurmctld", "--", *command)
        return time.monotonic()

    def drained() -> int:
        return int(cluster.resource()["status"]["nodes"].get("drained", 0))

    runs, slowest = operator.runs(), 0.0
    for state, reason, count in 2 * [("drain", ["reason=new fans"], 1), ("resume", [], 0)]:
        began = tell(state, *reason)
        eventually(lambda count=count: drained() == count, f"the status shows {state}", 15)
        slowest = max(slowest, time.monotonic() - began)
        assert cluster.is_("Degraded", "True" if count else "False")
        assert cluster.is_("Ready", "True")
    record("Node drained or resumed by `scontrol`, until `status.nodes` tells", slowest)
    assert operator.runs() == runs, "nothing is to be made"


def test_only_authorized_readers_get_metrics(operator: Operator, cluster: Served) -> None:
    del cluster  # it is there, and has something to hide
    pod, (account, role) = operator.led(), ("test-scraper", operator.reader)
    operator.kubectl("create", "serviceaccount", account, "-n", NAMESPACE)
    token = operator.kubectl("create", "token", account, "-n", NAMESPACE).strip()
    assert [operator.scrape(pod, one)[0] for one in ("", "nobody", token)] == [401, 401, 403]
    assert "may not get /metrics" in operator.scrape(pod, token)[1]
    operator.kubectl("create", "clusterrolebinding", account, f"--clusterrole={role}", f"--serviceaccount={NAMESPACE}:{account}")
    try:
        eventually(lambda: operator.scrape(pod, token)[0] == 200, "the right that was given is seen", 30)
        assert "corral_operator_leader 1.0" in operator.scrape(pod, token)[1]
    finally:
        operator.kubectl("delete", "clusterrolebinding", account)


def test_metrics_count_what_was_done(operator: Operator, cluster: Served) -> None:
    """After a cluster was created, edited and repaired, each metric of the documentation has a value."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(operator.metrics(operator.led())):
        for sample in family.samples:
            if sample.name.endswith(("_bucket", "_sum")):
                continue
            found[sample.name] = found.get(sample.name, 0) + sample.value
            if sample.labels.get("playbook") == "site" and sample.labels.get("result") == "successful":
                found[f"{sample.name} site"] = sample.value
    counted = ("runs_total", "run_seconds_count", "task_seconds_count", "queue_wait_seconds_count", "drift_total")
    for name in (*counted, "status_writes_total", "watched_objects", "requests", "runs_total site", "run_seconds_count site"):
        assert found[f"corral_operator_{name}"] > 0, (name, found)
    assert (found["corral_operator_leader"], found["corral_operator_clusters"]) == (1, 1)
    for name in ("retries_total", "queue_depth", "runs_in_progress", "watch_restarts", "zygote_restarts"):
        assert f"corral_operator_{name}" in found
    # A cluster at rest moves no counter.
    eventually(lambda: cluster.settled, "the cluster is at rest")
    time.sleep(3)
    before = operator.runs()
    time.sleep(5)
    assert operator.runs() == before


def test_nothing_is_done_while_it_is_paused_and_all_of_it_afterwards(operator: Operator, cluster: Served) -> None:
    wanted = cluster.contents()
    cluster.annotate("corral.hpc/paused=true")
    time.sleep(2)
    runs = operator.runs()
    cluster.kubectl("delete", "networkpolicy", f"{NAME}-base", "-n", cluster.namespace)
    cluster.spec["nodeSets"][0]["features"] = ["plain", "paused"]
    cluster.apply()
    time.sleep(6)
    assert operator.runs() == runs
    assert "paused" not in cluster.slurm("sinfo", "-h", "-n", "cpu-0", "-o", "%f")
    assert f"NetworkPolicy/{NAME}-base" not in cluster.objects()
    cluster.annotate("corral.hpc/paused-")
    eventually(lambda: cluster.settled, "what was left is done", 60)
    assert cluster.contents().keys() == wanted.keys()
    assert "paused" in cluster.slurm("sinfo", "-h", "-n", "cpu-0", "-o", "%f")


def test_one_run_can_be_asked_for(operator: Operator, cluster: Served) -> None:
    runs, before = operator.runs(), cluster.objects()
    cluster.annotate("corral.hpc/requested-at=once")
    eventually(lambda: operator.runs() == runs + 1, "the run was started", 20)
    eventually(lambda: cluster.settled, "the cluster is at rest")
    assert cluster.objects() == before


def test_an_invalid_document_changes_nothing_and_the_error_has_its_path(cluster: Served) -> None:
    before, spec = cluster.objects(), copy.deepcopy(cluster.spec)
    cluster.spec["partitions"] = [{"name": "main", "default": True, "nodeSets": ["nowhere"]}]
    cluster.spec["nodeSets"][0]["features"] = ["not-seen"]
    cluster.apply()
    eventually(lambda: cluster.is_("Ready", "False") or cluster.is_("Degraded", "True"), "the status has the error", 20)
    said = json.dumps(cluster.resource()["status"])
    assert "spec.partitions[0].nodeSets[0]" in said, said
    assert cluster.objects() == before
    cluster.spec = spec
    cluster.apply()
    cluster.wait_ready(60)
    assert cluster.objects() == before


def test_text_of_a_document_stays_text(operator: Operator, cluster: Served) -> None:
    """Free text that the schema accepts arrives as it was written, and is never executed."""
    attacks = {
        "corral.hpc/a": "{{ lookup('ansible.builtin.pipe', 'touch /tmp/injected') }}",
        "corral.hpc/b": "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
        "corral.hpc/c": "!unsafe {{ corral }} # {# \" ' \\ \u2028",
    }
    cluster.spec["login"]["service"]["annotations"] = attacks
    cluster.apply()
    cluster.wait_ready(60)
    live = cluster.kubectl.json("get", "service", f"{NAME}-login", "-n", cluster.namespace)["metadata"]["annotations"]
    assert {key: live.get(key) for key in attacks} == attacks
    for pod in operator.pods():
        assert "injected" not in operator.kubectl("exec", "-n", NAMESPACE, pod, "--", "ls", "/tmp")
    # And what the schema does not let through is refused in full.
    bad = copy.deepcopy(cluster.spec)
    bad["nodeSets"][0]["features"] = ["{{ 1 }}"]
    done = Served(**{**vars(cluster), "spec": bad})
    with pytest.raises(AssertionError, match="features"):
        done.apply()
    del cluster.spec["login"]["service"]["annotations"]
    cluster.apply()
    cluster.wait_ready(60)


def test_a_cluster_is_handed_from_the_operator_to_a_playbook_and_back_without_a_change(operator: Operator, cluster: Served) -> None:
    before, contents = cluster.objects(), cluster.contents()
    cluster.annotate("corral.hpc/paused=true")
    run = cluster.site()
    assert (run.rc, run.changed) == (0, 0), run.output
    assert cluster.objects() == before
    cluster.annotate("corral.hpc/paused-", "corral.hpc/requested-at=handed-back")
    runs = operator.runs()
    eventually(lambda: operator.runs() > runs or cluster.settled, "the operator reconciles it", 20)
    eventually(lambda: cluster.settled, "the cluster is at rest")
    assert cluster.objects() == before
    assert cluster.contents() == contents


def test_the_leader_is_killed_in_mid_run_and_the_other_continues(operator: Operator, cluster: Served) -> None:
    job = cluster.ssh("sbatch --parsable -N1 --wrap 'sleep 600'").stdout.strip()
    eventually(lambda: "RUNNING" in cluster.slurm("squeue", "-h", "-j", job, "-o", "%T"), "the job runs")
    leader = operator.led()
    cluster.spec["nodeSets"][0]["replicas"] = 3
    cluster.apply()
    eventually(lambda: cluster.is_("Reconciling", "True"), "the run is under way", 20)
    began = time.monotonic()
    operator.kill(leader)
    eventually(lambda: operator.leader() not in ("", leader), "the other one leads", 20)
    print(f"MEASURED leader killed → another one leads: {time.monotonic() - began:.1f} s")
    cluster.wait_ready(120)
    print(f"MEASURED leader killed in mid-run → Ready: {time.monotonic() - began:.1f} s")
    assert cluster.slurm("sinfo", "-h", "-n", "cpu-2", "-o", "%t").strip() in {"idle", "mix", "alloc"}
    assert "RUNNING" in cluster.slurm("squeue", "-h", "-j", job, "-o", "%T")
    cluster.ssh(f"scancel {job}")


def test_a_leader_that_is_shut_down_hands_over_at_once(operator: Operator) -> None:
    leader = operator.led()
    began = time.monotonic()
    operator.kubectl("delete", "pod", leader, "-n", NAMESPACE, "--wait=false")
    eventually(lambda: operator.leader() not in ("", leader), "the other one leads", 10)
    print(f"MEASURED leader stopped → another one leads: {time.monotonic() - began:.1f} s")
    eventually(lambda: len(operator.pods()) == 2, "there are two again")


@contextmanager
def without_api_server(operator: Operator, pods: list[str]) -> Iterator[None]:
    """As these pods see it, the API server is gone: their connections are reset, new ones refused. Others of the lab do not notice."""
    rule = ["OUTPUT", "-p", "tcp", "--dport", "443", "-j", "REJECT", "--reject-with", "tcp-reset"]
    inside = [["nsenter", "-t", str(operator.processes(pod)[0]), "-n", "iptables"] for pod in pods]
    for words in inside:
        subprocess.run([*words, "-I", *rule], check=True)
    try:
        yield
    finally:
        for words in inside:
            subprocess.run([*words, "-D", *rule], check=False)


def test_an_outage_of_the_api_server(operator: Operator, cluster: Served) -> None:
    wanted = cluster.contents()
    restarts = pods_restarts(operator)
    with without_api_server(operator, operator.pods()):
        time.sleep(3)
        cluster.kubectl("delete", "networkpolicy", f"{NAME}-base", "-n", cluster.namespace)
        time.sleep(15)
        assert operator_has_no_lease(operator)
    began = time.monotonic()
    eventually(lambda: cluster.contents() == wanted, "what happened meanwhile is repaired", 60)
    print(f"MEASURED API server back → drift of its absence repaired: {time.monotonic() - began:.1f} s")
    eventually(lambda: cluster.settled, "the cluster is at rest")
    assert pods_restarts(operator) == restarts, "liveness does not hang on the API server"


def pods_restarts(operator: Operator) -> dict[str, int]:
    found = operator.kubectl.items("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=corral-operator")
    return {pod["metadata"]["name"]: sum(c["restartCount"] for c in pod["status"].get("containerStatuses", ())) for pod in found}


def operator_has_no_lease(operator: Operator) -> bool:
    """The lease has not been renewed for longer than it lasts."""
    spec = operator.kubectl.json("get", "lease", "corral-operator", "-n", NAMESPACE)["spec"]
    renewed = datetime.datetime.fromisoformat(spec["renewTime"])
    return (datetime.datetime.now(datetime.UTC) - renewed).total_seconds() > spec["leaseDurationSeconds"]


def own_certificate(name: str) -> tuple[bytes, bytes]:
    """A certificate that is its own CA, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM), key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_with_a_webhook_wrong_documents_are_refused_as_they_are_written(operator: Operator, cluster: Served, tmp_path: Path) -> None:
    certificate, key = own_certificate(f"corral-operator.{NAMESPACE}.svc")
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(key)
    operator.kubectl(
        *("create", "secret", "tls", "corral-operator-webhook", "-n", NAMESPACE),
        *(f"--cert={tmp_path}/tls.crt", f"--key={tmp_path}/tls.key"),
    )
    before = cluster.objects()
    run = operator.install(webhook="Secret", webhook_ca=certificate.decode())
    assert run.rc == 0, run.output
    operator.led()
    wrong = copy.deepcopy(cluster.spec)
    wrong["partitions"] = [{"name": "main", "default": True, "nodeSets": ["nowhere"]}]
    with pytest.raises(AssertionError, match=r"spec\.partitions\[0\]\.nodeSets\[0\]"):
        Served(**{**vars(cluster), "spec": wrong}).apply()
    cluster.apply()  # the right one passes
    assert cluster.objects() == before, "an upgrade of the operator leaves clusters alone"
    run = operator.install(webhook="absent", webhook_ca="")
    assert run.rc == 0, run.output
    assert operator.kubectl("get", "validatingwebhookconfigurations", "-o", "name").count("corral-operator") == 0


def test_the_cluster_runs_on_without_the_operator_and_is_taken_up_again(operator: Operator, cluster: Served) -> None:
    before = cluster.objects()
    job = cluster.ssh("sbatch --parsable -N1 --wrap 'sleep 600'").stdout.strip()
    plan = operator.install("--check", state="absent")
    assert plan.rc == 0 and plan.changed > 0, plan.output
    assert len(operator.pods()) == 2
    run = operator.install(state="absent")
    assert run.rc == 0, run.output
    left = operator.kubectl("get", "all,configmaps,roles,rolebindings,networkpolicies,leases", "-n", NAMESPACE, "-o", "name").split()
    assert [name for name in left if "kube-root-ca" not in name and "lease" not in name] == []
    everywhere = operator.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")
    assert "corral-operator" not in everywhere
    assert cluster.resource()["metadata"].get("finalizers", []) == []
    assert cluster.objects() == before
    assert "RUNNING" in cluster.slurm("squeue", "-h", "-j", job, "-o", "%T")
    run = operator.install(state="present")
    assert run.rc == 0, run.output
    operator.led()
    eventually(lambda: cluster.resource()["metadata"].get("finalizers", []) != [], "it has taken the document up", 30)
    eventually(lambda: cluster.settled, "the cluster is at rest")
    assert cluster.objects() == before
    assert "RUNNING" in cluster.slurm("squeue", "-h", "-j", job, "-o", "%T")
    cluster.ssh(f"scancel {job}")


def test_deleting_the_documents_question_is_asked(operator: Operator, cluster: Served) -> None:
    run = operator.install(state="absent", remove_documents=True)
    assert run.rc != 0
    assert "confirm=slurmclusters" in sentence(run.output)
    assert len(operator.pods()) == 2
    assert cluster.settled
    operator.variables |= {"operator_state": "present", "operator_remove_documents": False}


def test_deleting_the_document_takes_the_cluster_away_and_keeps_its_data(cluster: Served) -> None:
    cluster.ssh("echo kept > kept.txt")
    keys = {s["metadata"]["name"]: s["data"] for s in cluster.kubectl.items("secrets", "-n", cluster.namespace)}
    assert keys
    began = time.monotonic()
    cluster.kubectl("delete", DOCUMENTS, cluster.name, "-n", cluster.namespace, "--timeout=180s")
    print(f"MEASURED kubectl delete → gone: {time.monotonic() - began:.1f} s")
    assert {name.split("/")[0] for name in cluster.objects()} == {"PersistentVolumeClaim", "Secret"}
    assert {s["metadata"]["name"]: s["data"] for s in cluster.kubectl.items("secrets", "-n", cluster.namespace)} == keys


def test_a_cluster_is_handed_from_a_playbook_to_the_operator_and_back_without_a_change(operator: Operator, cluster: Served) -> None:
    """It starts with the playbook, as for users who install the operator later, on the retained data."""
    run = cluster.site()
    assert run.rc == 0, run.output
    assert not cluster.kubectl("get", DOCUMENTS, cluster.name, "-n", cluster.namespace, "--ignore-not-found", "-o", "name")
    before, contents, runs = cluster.objects(), cluster.contents(), operator.runs()
    cluster.apply()
    cluster.wait_ready()
    eventually(lambda: cluster.settled, "the cluster is at rest")
    assert operator.runs() > runs, "the operator has reconciled it"
    assert cluster.objects() == before
    cluster.annotate("corral.hpc/paused=true")
    run = cluster.site()
    assert (run.rc, run.changed) == (0, 0), run.output
    assert cluster.objects() == before
    assert cluster.contents() == contents
    assert cluster.ssh("cat kept.txt").stdout.strip() == "kept"
    cluster.annotate("corral.hpc/paused-")
    cluster.kubectl("delete", DOCUMENTS, cluster.name, "-n", cluster.namespace, "--timeout=180s")


def writes(offset: int) -> int:
    """How many objects of the cluster's namespace the operator has written since the audit log had this size."""
    user, count = f"system:serviceaccount:{NAMESPACE}:corral-operator", 0
    with (LAB / "log" / "audit.log").open(encoding="utf-8") as file:
        file.seek(offset)
        for line in file:
            try:
                event: dict[str, Any] = json.loads(line)
            except ValueError:  # a line that is being written
                continue
            reference = event.get("objectRef", {})
            if (
                event.get("user", {}).get("username") == user
                and event.get("verb") in {"create", "update", "patch", "delete"}
                and reference.get("namespace") == f"test-{NAME}"
                and reference.get("resource") not in {"events", "slurmclusters", "pods"}
            ):
                count += 1
    return count


@pytest.mark.long
def test_killed_after_any_write_the_next_leader_comes_to_the_same_end(operator: Operator, cluster: Served) -> None:
    """The cluster is made again, on the retained data, by an operator that is killed after the first, the fourth, … write."""
    audit = LAB / "log" / "audit.log"
    steps = (1, 4, 9, 16)
    killed = 0
    cluster.apply()
    for step in steps:
        begin = audit.stat().st_size
        leader = operator.led()
        deadline = time.monotonic() + 60
        while writes(begin) < step and time.monotonic() < deadline and not cluster.settled:
            time.sleep(0.02)
        if cluster.settled:
            break
        operator.kill(leader)
        killed += 1
    assert killed >= 2, "the operator was too quick to be killed"
    cluster.wait_ready()
    assert cluster.ssh("cat kept.txt").stdout.strip() == "kept"
    assert cluster.ssh("srun -N3 true").returncode == 0
    # The same bytes as of a run from end to end: the playbook finds nothing to do.
    cluster.annotate("corral.hpc/paused=true")
    run = cluster.site()
    assert (run.rc, run.changed) == (0, 0), run.output
    cluster.annotate("corral.hpc/paused-")


def test_a_document_that_is_deleted_during_its_run_is_deleted_with_its_data_if_it_says_so(cluster: Served) -> None:
    cluster.spec["deletion"] = {"data": "Delete"}
    cluster.spec["nodeSets"][0]["replicas"] = 4
    cluster.apply()
    eventually(lambda: cluster.is_("Reconciling", "True"), "the run is under way", 20)
    cluster.kubectl("delete", DOCUMENTS, cluster.name, "-n", cluster.namespace, "--timeout=180s")
    assert cluster.objects() == {}
    volumes = cluster.kubectl.items("pv")
    assert [v["metadata"]["name"] for v in volumes if f"-{NAME}-" in v["metadata"]["name"]] == []


Right = tuple[str, str, str]
CHANGES = ("get", "create", "patch", "delete")
# Rights that these tests do not happen to need: (group, resource, verb) and what for.
SELDOM: dict[Right, str] = {
    ("", "secrets", "patch"): "a key that a newer version adds",
    ("", "events", "patch"): "the same event once more",
    ("", "events", "list"): "why something is not ready for long",
    ("", "pods", "delete"): "a roll-out of another template, and pods that cannot start: test_rollout.py, test_rights.py",
    ("", "pods/log", "get"): "why a pod does not start: kube/test_wait.py",
    ("", "pods/status", "patch"): "corral.slurm.sync: test_sync.py",
    **{("batch", "cronjobs", verb): "dumps of the accounting database by a schedule: test_accounting_backup.py" for verb in CHANGES},
    **{
        ("k8s.mariadb.com", "mariadbs", verb): "a database of mariadb-operator's: kube/test_mariadb.py"
        for verb in (*CHANGES, "list", "watch")
    },
    **{
        ("cert-manager.io", "certificates", verb): "a certificate of cert-manager's: kube/test_certificate.py"
        for verb in (*CHANGES, "list", "watch")
    },
    **{
        ("monitoring.coreos.com", plural, verb): "objects for the Prometheus operator, where it is installed: test_monitoring.py"
        for plural in ("prometheusrules", "servicemonitors")
        for verb in (*CHANGES, "list", "watch")
    },
    ("corral.hpc", "slurmtenants/status", "patch"): "the outcome of an object: test_tenants.py",
    ("", "pods/exec", "create"): "Kubernetes from 1.35 on asks for it where get was enough",
}


def asked(operator: Operator) -> tuple[set[Right], set[tuple[Right, str]]]:
    """What the operator asked the API server for since it was installed: what it was given, and what it was refused, with the namespace."""
    given, refused = set(), set()
    for file in sorted((LAB / "log").glob("audit*.log")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if operator.account not in line:
                continue
            event: dict[str, Any] = json.loads(line)
            reference = event.get("objectRef")
            if event["user"]["username"] != operator.account or not reference or event["requestReceivedTimestamp"] < operator.since:
                continue
            resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
            right = (reference.get("apiGroup", ""), resource, event["verb"])
            if event["responseStatus"]["code"] == 403:
                refused.add((right, reference.get("namespace", "")))
            else:
                given.add(right)
                if right[2] == "patch" and event["responseStatus"]["code"] == 201:  # an apply that makes the object needs both
                    given.add((*right[:2], "create"))
    return given, refused


def test_no_right_was_given_in_vain_and_none_was_missing(operator: Operator) -> None:
    found = operator.kubectl.json("get", "roles,clusterroles", "-A", "-l", "app.kubernetes.io/name=corral-operator")["items"]
    ours = [
        one
        for one in found
        if NAMESPACE in (one["metadata"].get("namespace"), one["metadata"]["name"].split("corral-operator-")[-1][: len(NAMESPACE)])
    ]
    rules = [rule for role in ours for rule in role["rules"]]
    granted = {
        (group, resource, verb)
        for rule in rules
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    }
    assert len(ours) >= 4
    assert not [right for right in granted if "*" in "".join(right)]
    used, refused = asked(operator)
    assert granted - used - SELDOM.keys() == set()
    # Secrets cannot be listed, on purpose; and in a namespace without rights it has none.
    assert {right for right, namespace in refused if namespace != "test-unserved"} <= {("", "secrets", "list")}


def test_a_namespace_that_is_deleted_takes_its_cluster_along_but_for_its_data(operator: Operator, cluster: Served) -> None:
    """The operator's RoleBinding is deleted with it, so nothing may wait for a run."""
    cluster.apply()
    volume = f"{cluster.namespace}-{cluster.name}-jail"

    def said(what: str) -> str:
        return cluster.kubectl("get", "pv", volume, "--ignore-not-found", "-o", f"jsonpath={{{what}}}")

    eventually(lambda: cluster.is_("Reconciling", "True") and said(".status.phase") == "Bound", "the cluster is being made", 30)
    made = said(".metadata.uid")
    cluster.kubectl("delete", "namespace", cluster.namespace, "--timeout=120s")
    eventually(lambda: said(".status.phase") == "Released", "its volume is retained without its claim")
    # A cluster of the same name in a new namespace of that name gets it.
    cluster.kubectl("create", "namespace", cluster.namespace)
    run = operator.install()
    assert run.rc == 0, run.output
    cluster.apply()
    cluster.wait_ready()
    assert (said(".status.phase"), said(".metadata.uid")) == ("Bound", made)
    assert cluster.ssh("srun -N1 echo runs").stdout.strip() == "runs"
    eventually(lambda: cluster.settled, "the cluster is at rest")
    assert "lastFailure" not in cluster.resource()["status"]
