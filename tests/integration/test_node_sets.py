# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the pods of node sets land on the lab's two machines, and limits of partitions, which a real slurmctld enforces."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Cluster, eventually
from .jobs import nodes, state, submit
from .scenarios import scenario

pytestmark = pytest.mark.lab

HOST = "kubernetes.io/hostname"
# All sets would rather be here.
PREFERRED = {
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "preference": {"matchExpressions": [{"key": HOST, "operator": "In", "values": ["node1"]}]}}
    ]
}
# Jobs that the tests leave to run, by what they are for.
JOBS: dict[str, str] = {}


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster("sets", 30730)
    cpu, extra = made.spec["nodeSets"]
    cpu.update(onePodPerNode=True, affinity={"nodeAffinity": PREFERRED})
    spread = {"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    extra.update(name="spread", replicas=4, topologySpread=[spread], affinity={"nodeAffinity": PREFERRED})
    required: dict[str, Any] = {"nodeSelectorTerms": [{"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": ["node1"]}]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    made.spec["nodeSets"].append({"name": "away", "replicas": 2, "resources": cpu["resources"], "affinity": affinity})
    made.spec["slurm"]["extraConfig"] = ["EnforcePartLimits=ALL", "PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE"]
    made.spec["partitions"] += [
        {"name": "short", "nodeSets": ["spread"], "maxTime": "00:01:00", "maxNodes": 2, "maxMemPerNode": "128Mi", "defMemPerNode": "64Mi"},
        {"name": "low", "nodeSets": ["cpu"], "priorityTier": 1},
        {"name": "high", "nodeSets": ["cpu"], "priorityTier": 10, "preemptMode": "OFF"},
    ]
    run = made.site()
    assert run.rc == 0, run.output
    return made


def machines(cluster: Cluster, node_set: str) -> dict[str, str]:
    """The machine of each pod."""
    found = cluster.kubectl.items("pods", "-n", cluster.namespace, "-l", f"corral.hpc/node-set={node_set}")
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in found}


def test_pods_land_where_the_document_says(cluster: Cluster) -> None:
    # Ends by its partition's limit while the other tests go on.
    JOBS["limited"] = cluster.ssh("sbatch --parsable -o /dev/null -p short --wrap 'sleep 600'").stdout.strip()
    assert Counter(machines(cluster, "cpu").values()) == {"node1": 1, "node2": 1}, "one a machine"
    assert Counter(machines(cluster, "spread").values()) == {"node1": 2, "node2": 2}, "as many on each"
    assert Counter(machines(cluster, "away").values()) == {"node2": 2}, "not where the affinity keeps them from"


def test_with_one_pod_a_machine_a_node_that_is_made_anew_is_where_it_was(cluster: Cluster) -> None:
    before, uids = machines(cluster, "cpu"), cluster.kubectl.uids(cluster.namespace, "corral.hpc/node-set=cpu")
    cluster.kubectl("delete", "pod", "-n", cluster.namespace, "sets-cpu-0", "--timeout=120s")
    cluster.kubectl.await_pod(cluster.namespace, "sets-cpu-0", "condition=Ready", 180)
    assert machines(cluster, "cpu") == before
    assert cluster.kubectl.uids(cluster.namespace, "corral.hpc/node-set=cpu")["sets-cpu-0"] != uids["sets-cpu-0"]
    eventually(lambda: nodes(cluster)["cpu-0"].startswith("idle"), "Slurm has it under its name")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("-p short -t 2", "time limit"),
        ("-p short -N 3", "node count|Node count"),
        ("-p short --mem=200M", "[Mm]emory"),
    ],
)
def test_what_a_partition_does_not_allow_is_refused(cluster: Cluster, flags: str, words: str) -> None:
    done = cluster.ssh(f"sbatch -o /dev/null {flags} --wrap true", check=False)
    assert done.returncode and re.search(words, done.stderr), done
    assert "PartitionName=short" in cluster.slurm("scontrol", "show", "partition", "short")


def test_what_a_job_does_not_say_is_its_partitions(cluster: Cluster) -> None:
    shown = cluster.slurm("scontrol", "show", "job", JOBS["limited"])
    assert "TimeLimit=00:01:00" in shown and "MinMemoryNode=64M" in shown, shown


def test_a_job_of_a_higher_tier_takes_the_node_and_the_other_is_begun_anew(cluster: Cluster) -> None:
    low = submit(cluster, "-p low -w cpu-1", "end")
    with scenario(cluster, "a job of a partition with a higher `priorityTier` takes the node", [low], anew=1):
        high = cluster.ssh("sbatch --parsable -o /dev/null -p high -w cpu-1 --wrap 'until test -e enough; do sleep 1; done'").stdout.strip()
        eventually(lambda: state(cluster, high) == ["RUNNING"], "the job of the higher tier runs")
        eventually(lambda: state(cluster, low) == ["PENDING"], "the other waits again")
        third = cluster.ssh("sbatch --parsable -o /dev/null -p high -w cpu-1 --wrap true").stdout.strip()
        assert state(cluster, high) == ["RUNNING"], "its own tier does not take it away"
    cluster.ssh("touch enough")
    eventually(lambda: state(cluster, third) == ["COMPLETED"], "the next of its tier comes first")
    cluster.slurm("scancel", low)


def test_a_job_ends_at_its_partitions_limit(cluster: Cluster) -> None:
    eventually(lambda: "TIMEOUT" in state(cluster, JOBS["limited"]), "the job has come to its limit", 120)


# A node of the lab has two CPUs.
MANY = "8"


def test_nodes_that_never_registered_go_again_and_come_when_their_document_is_corrected(cluster: Cluster) -> None:
    # Beside the node sets that work; slurmctld shows neither of the two, for it has no address of the one and refused the other.
    good = list(cluster.spec["nodeSets"])
    small = {"requests": {"cpu": "5m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}
    nowhere = {"name": "nowhere", "resources": small, "nodeSelector": {"corral.test/none": "x"}}
    wide = {"name": "wide", "resources": {**small, "limits": {"cpu": MANY, "memory": "256Mi"}}}
    short = ("-e", "slurm_workers_wait_timeout=15", "-e", "slurm_workers_register_timeout=15")

    def fail() -> None:
        cluster.spec["nodeSets"] = [*good, nowhere, wide]
        run = cluster.site(*short)
        assert run.rc != 0 and "didn't match Pod's node affinity/selector" in run.output, run.output
        eventually(lambda: "INVALID_REG" in cluster.slurm("scontrol", "show", "node", "wide-0", "--future"), "slurmctld refuses it")
        assert not {"nowhere-0", "wide-0"} & set(nodes(cluster))

    fail()
    cluster.spec["nodeSets"] = good
    run = cluster.site()
    assert run.rc == 0, run.output
    assert machines(cluster, "nowhere") == machines(cluster, "wide") == {}
    assert "not found" in cluster.slurm("scontrol", "show", "node", "wide-0", "--future", check=False)

    fail()
    # Without their mistakes.
    cluster.spec["nodeSets"] = [*good, {"name": "nowhere", "resources": small}, {"name": "wide", "resources": small}]
    run = cluster.site()
    assert run.rc == 0, run.output
    eventually(lambda: all(nodes(cluster)[name].startswith("idle") for name in ("nowhere-0", "wide-0")), "both are in service")
    assert sorted(cluster.ssh("srun -w nowhere-0,wide-0 printenv SLURMD_NODENAME").stdout.split()) == ["nowhere-0", "wide-0"]
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output
