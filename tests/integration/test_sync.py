# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Kubernetes does to machines and pods, while jobs run: cordons, evictions, `kubectl drain`, a pod that is deleted, a machine that dies.

The tests go on from one another. node2 has one of the two workers, and nothing else of the cluster. They cordon and kill a machine that others use
too, so no other test runs beside them.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from .conftest import REPOSITORY, Cluster, Run, eventually, playbook
from .machine import Machine
from .scenarios import scenario

pytestmark = [pytest.mark.lab, pytest.mark.alone]

READY = "corral.hpc/SlurmNodeReady"
DRAINED = "corral.hpc/SlurmNodeDrained"
# Seconds; two minutes by default.
SLURMD_TIMEOUT = 30
OFF = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Iterator[Cluster]:
    made = make_cluster("sync", 31200)
    del made.spec["nodeSets"][1]
    made.spec["nodeSets"][0].update(replicas=2, onePodPerNode=True)
    made.spec["partitions"].append({"name": "side", "nodeSets": ["cpu"]})
    made.spec["slurm"]["extraConfig"] = [f"SlurmdTimeout={SLURMD_TIMEOUT}"]
    for part in ("controller", "login"):
        made.spec[part]["nodeSelector"] = {"kubernetes.io/hostname": "node1"}
    run = made.site()
    assert run.rc == 0, run.output
    yield made
    made.kubectl("uncordon", "node2")
    made.kubectl("taint", "node", "node2", OFF.partition("=")[0] + "-", check=False)


def sync(cluster: Cluster, *args: str) -> Run:
    run = playbook("sync", cluster.write(), *args)
    assert run.rc == 0, run.output
    return run


def workers(cluster: Cluster) -> str:
    return f"app.kubernetes.io/instance={cluster.name},app.kubernetes.io/component=worker"


def drain(cluster: Cluster) -> str:
    """Empty node2 of the cluster's workers, as an administrator does, who waits until it has gone through; return what was said."""
    words = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
    return cluster.kubectl("drain", "node2", f"--pod-selector={workers(cluster)}", *words)


def pods(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """The workers' pods by their machine; one that has none yet by ""."""
    found = cluster.kubectl.items("pods", "-n", cluster.namespace, "-l", workers(cluster))
    return {one["spec"].get("nodeName", ""): one for one in found}


def node_on(cluster: Cluster, machine: str) -> str:
    return str(pods(cluster)[machine]["metadata"]["name"]).removeprefix(f"{cluster.name}-")


def nodes(cluster: Cluster) -> dict[str, str]:
    """State and reason by node, as sinfo shows them."""
    lines = cluster.slurm("sinfo", "-h", "-N", "-p", "main", "-o", "%N|%T|%E").splitlines()
    return {line.split("|")[0]: line.split("|", 1)[1] for line in lines}


def state(cluster: Cluster, number: str) -> str:
    return str(json.loads(cluster.slurm("squeue", "--json", f"--jobs={number}", "--states=all"))["jobs"][0]["job_state"][0])


def condition(pod: dict[str, Any], kind: str) -> tuple[str, str, str]:
    found = next(one for one in pod["status"]["conditions"] if one["type"] == kind)
    return found["status"], found["reason"], found.get("message", "")


def submit(cluster: Cluster, flags: str, end: str) -> str:
    """Start a job, and return its number when it runs. It ends when alice has a file ``end``."""
    number = cluster.ssh(f"sbatch --parsable -o /dev/null {flags} --wrap 'until test -e {end}; do sleep 1; done'").stdout.strip()
    eventually(lambda: state(cluster, number) == "RUNNING", f"job {number} runs ({flags})", 30)
    return number


def evict(cluster: Cluster, pod: str) -> str:
    """Ask for a pod's eviction; return the refusal, "" where it is evicted."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": cluster.namespace}}
    done = subprocess.run(
        [str(REPOSITORY / "lab" / "kubectl"), "create", "--raw", f"/api/v1/namespaces/{cluster.namespace}/pods/{pod}/eviction", "-f", "-"],
        input=json.dumps(body), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 or "disruption budget" in done.stderr, done.stderr
    return done.stderr


def in_service(cluster: Cluster) -> None:
    """A resumed one is `idle*` until it has answered the next ping, and is left alone for so long."""

    def well(shown: str) -> bool:
        condition = shown.split("|")[0]
        return not condition.startswith(("d", "unk")) and not condition.endswith("*")

    eventually(lambda: all(map(well, nodes(cluster).values())), "both nodes are in service", 90)


def comes_again(cluster: Cluster, uid: str) -> None:
    """Wait until another pod than this one works on node2."""
    eventually(lambda: pods(cluster).get("node2", {}).get("metadata", {}).get("uid") not in (None, uid), "a new pod comes", 60)
    cluster.kubectl(
        "wait", "--for=condition=Ready", f"pod/{pods(cluster)['node2']['metadata']['name']}", "-n", cluster.namespace, "--timeout=90s"
    )


def test_a_cordon_drains_and_comes_back(cluster: Cluster) -> None:
    name = node_on(cluster, "node2")
    with scenario(cluster, "a machine is cordoned, and uncordoned again", [submit(cluster, f"-w {name}", "first")]):
        sync(cluster)
        assert condition(pods(cluster)["node2"], READY)[:2] in [("True", "Allocated"), ("True", "Mixed")]
        cluster.kubectl("cordon", "node2")
        plan = sync(cluster, "--check", "--diff")
        assert "corral: sync: Kubernetes node node2 is cordoned" in plan.output and not nodes(cluster)[name].startswith("d")
        sync(cluster)
        assert nodes(cluster)[name] == "draining|corral: sync: Kubernetes node node2 is cordoned"
        assert condition(pods(cluster)["node2"], DRAINED)[:2] == ("False", "Draining")
        versions = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in pods(cluster).values()}
        again = sync(cluster)
        assert again.changed == 0, again.output
        assert {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in pods(cluster).values()} == versions
        cluster.kubectl("uncordon", "node2")
        sync(cluster)
        assert not nodes(cluster)[name].startswith("d")
    cluster.ssh("touch first")


def test_a_drain_of_an_administrator_is_not_touched(cluster: Cluster) -> None:
    name = node_on(cluster, "node2")
    cluster.slurm("scontrol", "update", f"nodename={name}", "state=drain", "reason=ask bob")
    for word in ("cordon", "uncordon"):
        cluster.kubectl(word, "node2")
        sync(cluster)
        assert nodes(cluster)[name].endswith("|ask bob")
    cluster.slurm("scontrol", "update", f"nodename={name}", "state=resume")


def test_kubectl_drain_waits_for_the_job_and_then_goes_through(cluster: Cluster) -> None:
    pod = pods(cluster)["node2"]["metadata"]
    number = submit(cluster, f"-w {node_on(cluster, 'node2')}", "second")
    with scenario(cluster, "`kubectl drain` of a machine whose worker has a job", [number]), ThreadPoolExecutor() as pool:
        following = pool.submit(sync, cluster, "-e", "duration=40", "-e", "interval=2")
        draining = pool.submit(drain, cluster)
        eventually(
            lambda: nodes(cluster)[pod["name"].removeprefix(f"{cluster.name}-")].startswith("draining|corral: sync:"),
            "the node is drained",
            30,
        )
        assert "disruption budget" in evict(cluster, pod["name"]), "the pod of a running job was evicted"
        time.sleep(10)
        assert (draining.done(), state(cluster, number)) == (False, "RUNNING")
        cluster.ssh("touch second")
        said = draining.result()
        assert state(cluster, number) == "COMPLETED"
        assert f"pod/{pod['name']} evicted" in said and "drained" in said, said
        following.result()
        cluster.kubectl("uncordon", "node2")
        comes_again(cluster, pod["uid"])
        sync(cluster)
        in_service(cluster)


def test_pods_of_idle_nodes_may_be_evicted_where_the_document_says_so(cluster: Cluster) -> None:
    idle, busy = (pods(cluster)[machine]["metadata"] for machine in ("node2", "node1"))
    assert "disruption budget" in evict(cluster, idle["name"]), "without a drain a job may come at any moment"
    number = submit(cluster, f"-w {node_on(cluster, 'node1')}", "third")
    with scenario(cluster, "eviction of a worker that has a job, and of one that has none (`eviction: WhenIdle`)", [number]):
        cluster.spec["workers"] = {"sync": {"eviction": "WhenIdle"}}
        sync(cluster)
        assert "disruption budget" in evict(cluster, busy["name"])
        assert evict(cluster, idle["name"]) == ""
        comes_again(cluster, idle["uid"])
        del cluster.spec["workers"]
        sync(cluster)
        assert "disruption budget" in evict(cluster, pods(cluster)["node2"]["metadata"]["name"])
        in_service(cluster)
    cluster.ssh("touch third")


def test_without_the_right_to_read_machines_a_sentence_tells_so(cluster: Cluster, tmp_path: Path) -> None:
    from .test_bad_days import connection

    role = next(one for one in (REPOSITORY / "examples" / "rights.yml").read_text().split("\n---\n") if "kind: Role\n" in one)
    cluster.kubectl("apply", "-n", cluster.namespace, "-f", "-", stdin=role)
    cluster.kubectl("create", "serviceaccount", "push", "-n", cluster.namespace)
    cluster.kubectl(
        "create", "rolebinding", "push", "-n", cluster.namespace, "--role=corral-push", f"--serviceaccount={cluster.namespace}:push"
    )
    token = cluster.kubectl("create", "token", "push", "-n", cluster.namespace).strip()
    run = playbook("sync", cluster.write(), env={"K8S_AUTH_API_KEY": token, **connection(cluster.kubectl, tmp_path)})
    words = " ".join(run.output.split())
    assert run.rc == 0 and "so cordons and taints are not observed" in words and "nodes" in words, run.output


def test_a_partition_leaves_while_its_nodes_stay(cluster: Cluster) -> None:
    running = submit(cluster, "-p side", "fourth")
    waiting = cluster.ssh(f"sbatch --parsable -o /dev/null -p side -d afterok:{running} --wrap true").stdout.strip()
    side = cluster.spec["partitions"].pop()
    with scenario(cluster, "a partition leaves the document, its nodes stay", [running, waiting]):
        run = cluster.site("-e", "slurm_workers_scale_timeout=0")
        assert run.rc == 0, run.output
        assert f"job {running} (wrap of alice) in partition {side['name']}" in " ".join(run.output.split()), run.output
        assert "State=DRAIN" in cluster.slurm("scontrol", "show", "partition", "side")
        refused = cluster.ssh("sbatch -o /dev/null -p side --wrap true", check=False)
        assert refused.returncode != 0
        again = cluster.site("-e", "slurm_workers_scale_timeout=0")
        assert (again.rc, again.changed) == (0, 0), again.output
        cluster.ssh("touch fourth")
        run = cluster.site("-e", "slurm_workers_scale_timeout=100")
        assert run.rc == 0, run.output
        assert (state(cluster, running), state(cluster, waiting)) == ("COMPLETED", "COMPLETED")
    assert "side" not in cluster.slurm("scontrol", "show", "partitions")
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output


def test_a_node_set_leaves_a_partition_that_stays(cluster: Cluster) -> None:
    """The document had cpu in main, and main goes on with other nodes."""
    number = submit(cluster, "-p main", "fifth")
    cluster.spec["partitions"].append(side := {"name": "other", "nodeSets": ["cpu"]})
    cluster.spec["partitions"][0]["nodeSets"] = []
    with scenario(cluster, "a node set leaves a partition that stays", [number]):
        run = cluster.site("-e", "slurm_workers_scale_timeout=0")
        assert run.rc == 0, run.output
        assert state(cluster, number) == "RUNNING"
    cluster.spec["partitions"].remove(side)
    del cluster.spec["partitions"][0]["nodeSets"]
    cluster.ssh("touch fifth")
    eventually(lambda: state(cluster, number) == "COMPLETED", "the job ends", 30)
    run = cluster.site("-e", "slurm_workers_scale_timeout=100")
    assert run.rc == 0, run.output


@pytest.mark.long
def test_a_workers_pod_that_is_deleted_by_force(cluster: Cluster) -> None:
    pod = pods(cluster)["node2"]["metadata"]
    number = submit(cluster, f"-w {node_on(cluster, 'node2')}", "sixth")
    with scenario(cluster, "a worker's pod is deleted by force", [number], anew=1):
        cluster.kubectl("delete", "pod", pod["name"], "-n", cluster.namespace, "--force", "--grace-period=0")
        eventually(lambda: state(cluster, number) != "RUNNING", "slurmctld sees that it is gone", 60)
        in_service(cluster)
        # Slurm holds a job that was requeued back for two minutes.
        eventually(lambda: state(cluster, number) == "RUNNING", "the job is begun anew", 150)
    cluster.ssh("touch sixth")


def test_kubelet_and_containerd_die_and_jobs_go_on(cluster: Cluster) -> None:
    number = submit(cluster, f"-w {node_on(cluster, 'node2')}", "seventh")
    machine = Machine("node2", cluster.kubectl)
    with scenario(cluster, "kubelet and containerd of a machine are killed, and started again", [number]):
        machine.kill()
        try:
            time.sleep(SLURMD_TIMEOUT * 1.5)
            assert state(cluster, number) == "RUNNING", "Slurm has nothing to do with either"
            assert not nodes(cluster)[node_on(cluster, "node2")].startswith("d")
        finally:
            machine.start()
        in_service(cluster)
    cluster.ssh("touch seventh")


@pytest.mark.parametrize("declared", [pytest.param(False, id="comes-back", marks=pytest.mark.long), pytest.param(True, id="declared-off")])
def test_a_machine_dies(cluster: Cluster, declared: bool) -> None:
    """Its jobs are begun anew elsewhere, and it comes back into service by itself; its pod goes when somebody declares the machine to be off."""
    in_service(cluster)
    pod = pods(cluster)["node2"]
    name, end = node_on(cluster, "node2"), f"eighth-{declared}"
    # Not by -w: it would be bound to the node that dies.
    cluster.slurm("scontrol", "update", f"nodename={node_on(cluster, 'node1')}", "state=drain", "reason=for a moment")
    number = submit(cluster, "", end)
    cluster.slurm("scontrol", "update", f"nodename={node_on(cluster, 'node1')}", "state=resume")
    what = "a machine dies, and is declared to be off (`out-of-service`)" if declared else "a machine dies, and comes back"
    machine = Machine("node2", cluster.kubectl)
    began = time.monotonic()
    with scenario(cluster, what, [number], anew=1):
        machine.kill()
        machine.end([pod])
        try:
            eventually(lambda: nodes(cluster)[name].startswith("down"), "slurmctld sees that it is gone", 60)
            print(f"MEASURED down: {time.monotonic() - began:.1f} s")
            eventually(lambda: state(cluster, number) == "PENDING", "the job is back in the queue", 30)
            if declared:
                cluster.kubectl("wait", "--for=condition=Ready=Unknown", "node/node2", "--timeout=120s")
                cluster.kubectl("taint", "node", "node2", OFF)
                eventually(
                    lambda: pod["metadata"]["uid"] not in cluster.kubectl.uids(cluster.namespace, workers(cluster)).values(),
                    "its pod goes without its kubelet", 120,
                )  # fmt: skip
                print(f"MEASURED pod gone: {time.monotonic() - began:.1f} s")
                sync(cluster)
            else:
                eventually(lambda: state(cluster, number) == "RUNNING", "the job is begun anew on the other node", 150)
                print(f"MEASURED begun anew: {time.monotonic() - began:.1f} s")
        finally:
            machine.start()
            cluster.kubectl("taint", "node", "node2", OFF.partition("=")[0] + "-", check=False)
        began = time.monotonic()
        eventually(lambda: "node2" in pods(cluster), "a pod is on the machine", 60)
        in_service(cluster)
        print(f"MEASURED back: {time.monotonic() - began:.1f} s")
    cluster.ssh(f"touch {end}")
    sync(cluster)
    assert condition(pods(cluster)["node2"], READY)[0] == "True"


def test_nothing_is_left_to_do(cluster: Cluster) -> None:
    eventually(lambda: not cluster.slurm("squeue", "-h"), "all jobs have ended", 60)
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output
