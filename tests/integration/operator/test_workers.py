# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node sets under the operator while jobs run: what a deadline does, what the status shows of a roll-out, and the way back. Each test continues where the last
one ended."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from ..conftest import eventually, make_spec, playbook
from ..jobs import nodes, state, submit
from ..scenarios import scenario
from .conftest import NAME, PORT, Operator, Served, sentence

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def cluster(operator: Operator, cluster: Served) -> Served:
    """The folder's, whatever other tests have made of its document."""
    assert operator.led()
    cluster.spec = make_spec(NAME, Path(f"{cluster.key}.pub").read_text().strip(), PORT)
    cluster.spec["nodeSets"][0]["replicas"] = 3
    cluster.spec["nodeSets"][1]["replicas"] = 2
    cluster.spec["partitions"].append({"name": "spot", "nodeSets": ["cpu"]})
    cluster.apply()
    cluster.wait_ready()
    return cluster


def waits_for(cluster: Served, *words: str) -> bool:
    """Whether the status shows it at rest, for kubectl wait and people."""
    said = cluster.resource()["status"].get("waitingFor", "")
    return all(word in said for word in words) and cluster.condition("Reconciling").get("reason") == "WaitingForJobs"


def at_rest(cluster: Served) -> bool:
    return cluster.settled and "waitingFor" not in cluster.resource()["status"]


def test_after_the_deadline_jobs_on_draining_nodes_get_the_policy_of_their_set(cluster: Served) -> None:
    cpu, extra = cluster.spec["nodeSets"]
    requeued, cancelled = submit(cluster, "-x cpu-[0-1],extra-[0-1]", "never"), submit(cluster, "-w extra-1", "never")
    deadline = "nodes go whose sets say `Requeue` and `Cancel`, after the deadline, under the operator"
    with scenario(cluster, deadline, [requeued, cancelled], anew=1, asked=1):
        cpu["replicas"], extra["replicas"] = 2, 1
        cluster.apply()
        words = f"jobs on draining nodes: cpu-2 (job {requeued} of alice), extra-1 (job {cancelled} of alice)"
        eventually(lambda: waits_for(cluster, words), "the status shows what is waited for")
        assert (state(cluster, requeued), state(cluster, cancelled)) == (["RUNNING"], ["RUNNING"])
        # A change of the document applies to a current drain too.
        cpu["drain"], extra["drain"] = ({"policy": policy, "deadlineSeconds": 1} for policy in ("Requeue", "Cancel"))
        cluster.apply()
        eventually(lambda: sorted(nodes(cluster)) == ["cpu-0", "cpu-1", "extra-0"], "the nodes have gone")
        eventually(lambda: at_rest(cluster), "the cluster is at rest")
        assert (state(cluster, requeued), state(cluster, cancelled)) == (["PENDING"], ["CANCELLED"])
    cluster.slurm("scancel", requeued)


def test_a_roll_out_reports_its_progress_and_jobs_of_a_partition_are_preempted(cluster: Served) -> None:
    kept, put_back = submit(cluster, "-w cpu-0", "kept"), submit(cluster, "-p spot -w cpu-1", "never")
    before = cluster.kubectl.uids(cluster.namespace, "corral.hpc/node-set=cpu")
    jobs = [{"partitions": ["spot"], "policy": "Requeue", "deadlineSeconds": 1}]
    cluster.spec["nodeSets"][0].update(
        updateStrategy={"maxUnavailable": "100%", "drain": {"jobs": jobs}}, environment=[{"name": "CHANGE", "value": "one"}]
    )
    progress = "another pod template: jobs of one partition make way, those of another are waited for, under the operator"
    with scenario(cluster, progress, [kept, put_back], anew=1):
        cluster.apply()
        words = ("1 of 2 nodes of cpu have the new template", f"jobs on draining nodes: cpu-0 (job {kept} of alice)")
        eventually(lambda: waits_for(cluster, *words), "the status shows the progress of the roll-out", 90)
        now = cluster.kubectl.uids(cluster.namespace, "corral.hpc/node-set=cpu")
        assert {name for name in before if now[name] == before[name]} == {f"{NAME}-cpu-0"}
        assert state(cluster, kept) == ["RUNNING"]
        cluster.ssh("touch kept")
        eventually(lambda: at_rest(cluster), "the roll-out has come to its end", 90)
    assert state(cluster, kept) == ["COMPLETED"]
    cluster.slurm("scancel", put_back)


def test_the_document_before_comes_back_without_a_job_lost(cluster: Served) -> None:
    good = copy.deepcopy(cluster.spec)
    job = submit(cluster, "-w cpu-0", "third")
    with scenario(cluster, "the whole cluster goes back to the document before, under the operator", [job]):
        cluster.spec["nodeSets"][0].update(replicas=3, features=["other"])
        cluster.apply()
        eventually(lambda: at_rest(cluster) and "cpu-2" in nodes(cluster), "the cluster is larger")
        run = playbook("rollback", None, "-e", f"slurm_namespace={cluster.namespace}", "-e", f"slurm_name={NAME}")
        assert run.rc == 0 and "the operator applies it" in sentence(run.output), run.output
        eventually(lambda: at_rest(cluster) and "cpu-2" not in nodes(cluster), "it is as it was")
        assert "AvailableFeatures=plain" in cluster.slurm("scontrol", "show", "node", "cpu-0")
        assert state(cluster, job) == ["RUNNING"]
    before = cluster.resource()["metadata"]["generation"]
    cluster.spec = good
    cluster.apply()
    assert cluster.resource()["metadata"]["generation"] == before, "it is the very document"
    cluster.ssh("touch third")
