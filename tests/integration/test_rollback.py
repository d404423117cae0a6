# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster gets a document again that it had, while a job runs: the one before, and the last one whose run did not fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Cluster, Run, eventually, playbook
from .jobs import nodes, state, submit
from .scenarios import scenario

pytestmark = pytest.mark.lab

NAME = "back"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster(NAME, 30750)
    made.spec["nodeSets"] = made.spec["nodeSets"][:1]
    run = made.site()
    assert run.rc == 0, run.output
    return made


def rollback(cluster: Cluster, *args: str) -> Run:
    return playbook("rollback", None, "-e", f"slurm_namespace={cluster.namespace}", "-e", f"slurm_name={NAME}", *args)


def words(run: Run) -> str:
    return " ".join(run.output.split())


def environment(cluster: Cluster) -> list[str]:
    path = "{range .items[*]}{.spec.containers[0].env[?(@.name=='CHANGE')].value},{end}"
    said = cluster.kubectl("get", "pods", "-n", cluster.namespace, "-l", "corral.hpc/node-set=cpu", "-o", f"jsonpath={path}")
    return said.split(",")[:-1]


def test_without_one_before_nothing_is_changed(cluster: Cluster) -> None:
    before = cluster.objects()
    run = rollback(cluster)
    assert run.rc == 2 and "no document of back before the one that it has (kept: 1)" in words(run), run.output
    again = cluster.site()
    assert (again.rc, again.changed, cluster.objects()) == (0, 0, before), again.output


def test_back_to_the_document_before_and_forth_again(cluster: Cluster) -> None:
    cluster.spec["nodeSets"][0].update(features=["other"], environment=[{"name": "CHANGE", "value": "one"}], replicas=3)
    cluster.spec["users"].append({"name": "bob", "uid": 10002, "sshKeys": cluster.spec["users"][0]["sshKeys"]})
    run = cluster.site()
    assert run.rc == 0 and environment(cluster) == ["one"] * 3, run.output
    job = submit(cluster, "-w cpu-0", "end")
    with scenario(cluster, "the whole cluster goes back to the document before", [job]):
        plan = rollback(cluster, "--check", "--diff")
        assert plan.rc == 0 and environment(cluster) == ["one"] * 3, plan.output
        run = rollback(cluster, "-e", "slurm_workers_rollout_timeout=5")
        assert run.rc == 0 and f"waiting for job {job}" in words(run), run.output
    assert set(nodes(cluster)) == {"cpu-0", "cpu-1"}
    assert sorted(environment(cluster)) == ["", "one"] or environment(cluster) == ["one"], "only the pod with the job is as it was"
    assert cluster.slurm("scontrol", "show", "node", "cpu-1").count("AvailableFeatures=plain") == 1
    assert cluster.ssh("true", user="bob", check=False).returncode == 255, "the user is no more"
    cluster.ssh("touch end")
    eventually(lambda: state(cluster, job) == ["COMPLETED"], "the job has ended")
    shown = rollback(cluster, "-e", "show=true")
    assert shown.rc == 0 and shown.changed == 0 and words(shown).count('"revision":') == 2, shown.output
    run = rollback(cluster)
    assert run.rc == 0 and "back gets document 2 again" in words(run), run.output
    assert set(nodes(cluster)) == {"cpu-0", "cpu-1", "cpu-2"} and environment(cluster) == ["one"] * 3


def test_back_from_a_document_whose_run_has_failed(cluster: Cluster) -> None:
    image = cluster.spec["images"]["slurm"]
    job = submit(cluster, "-w cpu-0", "late")
    cluster.spec["images"]["slurm"] = "localhost/corral/slurm:there-is-none"
    run = cluster.site()
    assert run.rc == 2 and "there-is-none" in run.output, run.output
    run = rollback(cluster)
    assert run.rc == 0 and "back gets document" in words(run), run.output
    cluster.spec["images"]["slurm"] = image
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output
    assert state(cluster, job) == ["RUNNING"]
    cluster.ssh("touch late")
    eventually(lambda: state(cluster, job) == ["COMPLETED"], "the job has ended")
