# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backends against a slurmctld of paper: how often it is asked, what it is told, and that nonsense changes nothing."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import lost_keys
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import job, node, partition, reservation, why

from .conftest import CONNECTION, UNREACHABLE, Fake, pod, refusal

READ = ["scontrol", "show", "nodes", "--json"]
NODE = {**CONNECTION, "state": None, "reason": "x", "owner": "admin", "force": False, "features": None, "weight": None, "comment": None}
JOB = {
    **CONNECTION, "state": "present", "name": "hello", "user": "alice", "job_id": None, "script": None, "command": "hostname", "options": {}, "chdir": None,
    "comment": None, "resubmit": "never", "wait": False, "wait_timeout": 5, "must_succeed": True, "submit_pod": None, "submit_container": "sshd",
}  # fmt: skip


def set_node(check: bool = False, **options: Any) -> dict[str, Any]:
    return node.run({**NODE, "wait": False, "wait_timeout": 5, "policy": "Wait", "deadline": 60, **options}, check=check, diff=True)


def set_job(check: bool = False, **options: Any) -> dict[str, Any]:
    return job.run({**JOB, **options}, check=check, diff=True)


def set_reservation(check: bool = False, **options: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("nodes", "node_count", "users", "accounts", "start", "end", "duration", "flags", "partition", "features"))
    return reservation.run({**CONNECTION, "state": "present", **empty, **options}, check=check, diff=True)


def test_many_nodes_are_one_read_one_command_and_one_look_at_the_outcome(fake: Fake) -> None:
    rows = fake.nodes["nodes"]
    fake.nodes["nodes"] = [{**rows[0], "name": f"cpu-{number}", "state": ["IDLE"]} for number in range(500)]
    result = set_node(nodes="cpu-[0-499]", state="drained")
    assert result["changed"]
    assert fake.execs == [READ, ["scontrol", "update", "nodename=cpu-[0-499]", "state=drain", "reason=corral: admin: x"], READ]


def test_nothing_to_do_is_one_read(fake: Fake) -> None:
    result = set_node(nodes="cpu-0", state="drained", reason="disk swap")
    assert (result["changed"], fake.execs) == (False, [READ])
    assert "diff" not in result


def test_a_second_run_changes_nothing(fake: Fake) -> None:
    fake.state("cpu-1", "IDLE", reason="")
    assert set_node(nodes="cpu-1", state="drained")["changed"]
    assert not set_node(nodes="cpu-1", state="drained")["changed"]
    assert set_node(nodes="cpu-1", state="resumed")["changed"]
    assert not set_node(nodes="cpu-1", state="resumed")["changed"]


def test_down_twice_and_back(fake: Fake) -> None:
    fake.state("cpu-1", "MIXED", reason="")
    result = set_node(nodes="cpu-1", state="down")
    assert (result["changed"], result["nodes"][0]["state"], len(fake.told)) == (True, ["DOWN", "DRAIN"], 2)
    assert not set_node(nodes="cpu-1", state="down")["changed"]
    fake.state("cpu-1", "IDLE", "DRAIN")  # its slurmd has answered
    assert not set_node(nodes="cpu-1", state="down")["changed"]
    assert set_node(nodes="cpu-1", state="resumed")["nodes"][0]["in_service"]


def test_check_mode_reads_and_tells_the_same(fake: Fake) -> None:
    fake.state("cpu-1", "IDLE", reason="")
    plan = set_node(check=True, nodes="cpu-1", state="drained")
    assert (plan["changed"], fake.execs) == (True, [READ])
    assert set_node(nodes="cpu-1", state="drained")["diff"] == plan["diff"]


def test_drains_of_others_are_told_as_a_warning(fake: Fake) -> None:
    result = set_node(nodes="cpu-1", state="resumed")
    assert (result["changed"], fake.told) == (False, [])
    assert result["foreign"] == [
        {"name": "cpu-1", "state": "DOWN", "reason": "bad fan", "by": "slurm", "since": result["foreign"][0]["since"]}
    ]
    assert "cpu-1 is DOWN (bad fan), since 2026-11-21T" in result["warnings"][0]
    assert "force: true" in result["warnings"][0]


def test_a_node_that_slurm_takes_out_again_is_told(fake: Fake) -> None:
    fake.answers["scontrol", "update"] = Output(0, "", "")  # taken, and of no effect: slurmd still registers with too little memory
    warning = set_node(nodes="big-0", state="resumed", force=True)["warnings"][0]
    assert "big-0 is IDLE+DRAIN+INVALID_REG" in warning and "slurm_why" in warning


@pytest.mark.parametrize(
    "answer", ["", "{}", '{"nodes": [3]}', '{"nodes": [{"name": "cpu-0", "weight": []}]}', '{"nodes": [{"name": "cpu-0"}]}']
)
def test_nonsense_changes_nothing(fake: Fake, answer: str) -> None:
    fake.answers["scontrol", "show"] = Output(0, answer, "")
    with pytest.raises(CorralError) as caught:
        set_node(nodes="cpu-0", state="down")
    assert fake.told == []
    assert not caught.value.data.get("changed")


def test_an_unknown_name_changes_nothing(fake: Fake) -> None:
    with pytest.raises(CorralError, match=r"knows no node cpu-\[7-8\]; it has big-0,cpu-\[0-1\],gone-0,gpu-0\. Nothing was changed"):
        set_node(nodes="cpu-[0,7-8]", state="drained")
    assert fake.told == []


def test_slurmctld_that_can_not_be_asked(fake: Fake) -> None:
    fake.pods[0]["status"] = {"phase": "Pending"}
    fake.answers[("scontrol",)] = UNREACHABLE
    with pytest.raises(KubeError, match=r"cannot be asked for its nodes: .* Now pod demo-controller-0 is Pending"):
        set_node(nodes="cpu-0", state="drained")
    fake.answers[("scontrol",)] = refusal("slurm_load_node error: Unable to contact slurm controller (connect failure)")
    with pytest.raises(KubeError, match="Unable to contact slurm controller"):
        set_node(nodes="cpu-0", state="drained")


def test_a_refused_update_tells_whether_something_changed(fake: Fake) -> None:
    fake.answers["scontrol", "update"] = refusal("slurm_update error: Invalid node state specified")
    with pytest.raises(
        KubeError, match="Could not change nodes cpu-0: slurmctld in Pod demo/demo-controller-0 refuses: slurm_update error"
    ) as caught:
        set_node(nodes="cpu-0", state="resumed")
    assert caught.value.data["changed"] is False


def test_the_wait_says_which_jobs_on_which_nodes(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    fake.state("cpu-1", "IDLE", reason="")
    fake.jobs["jobs"] = [row for row in fake.jobs["jobs"] if row["job_id"] == 18]
    caplog.set_level(logging.INFO, "corral.slurm.progress")
    with pytest.raises(
        WaitTimeout, match=r"Nodes of cpu-\[0-1\] have jobs left after 0.05 s: waiting for job 18 \(long of alice\) on cpu-0; run"
    ) as caught:
        set_node(nodes="cpu-[0-1]", state="drained", reason="disk swap", wait=True, wait_timeout=0.05)
    assert caught.value.data["changed"] is True
    assert "waiting for job 18 (long of alice) on cpu-0" in caplog.text
    assert next(command for command in fake.execs if command[0] == "squeue")[2] == "--nodelist=cpu-0"


@pytest.mark.parametrize(("policy", "command"), [("Requeue", ["scontrol", "requeue", "18"]), ("Cancel", ["scancel", "18"])])
@pytest.mark.parametrize(("since", "due"), [(1_999_999_900, True), (1_999_999_990, False)])
def test_after_the_deadline_jobs_are_requeued_or_cancelled(fake: Fake, policy: str, command: list[str], since: int, due: bool) -> None:
    fake.state("cpu-0", "ALLOCATED", "DRAIN", reason="corral: admin: disk swap")
    next(row for row in fake.nodes["nodes"] if row["name"] == "cpu-0")["reason_changed_at"] = {"set": True, "number": since}
    fake.answers["date",] = Output(0, "2000000000\n", "")
    with pytest.raises(WaitTimeout) as caught:
        set_node(nodes="cpu-0", state="drained", reason="disk swap", wait=True, wait_timeout=0, policy=policy)
    assert (command in fake.told, caught.value.data["changed"]) == (due, due)


def test_a_drain_of_others_has_no_deadline(fake: Fake) -> None:
    fake.state("cpu-0", "ALLOCATED", "DRAIN", reason="ask bob")
    fake.answers["date",] = Output(0, "2000000000\n", "")
    with pytest.raises(WaitTimeout):
        set_node(nodes="cpu-0", state="drained", reason="disk swap", wait=True, wait_timeout=0, policy="Cancel")
    assert ["scancel", "18"] not in fake.told


def test_the_wait_for_idle_nodes_asks_for_no_jobs(fake: Fake) -> None:
    fake.state("cpu-0", "IDLE", "DRAIN")
    assert not set_node(nodes="cpu-0", state="drained", reason="disk swap", wait=True)["changed"]
    assert fake.execs == [READ, READ]


@pytest.mark.usefixtures("fake")
def test_the_wait_for_resumed_nodes_does_not_wait_for_those_of_others() -> None:
    assert set_node(nodes="cpu-[0-1]", state="resumed", wait=True)["changed"]
    with pytest.raises(WaitTimeout, match="gone-0 is NOT_RESPONDING"):
        set_node(nodes="gone-0", state="resumed", force=True, wait=True, wait_timeout=0.05)


def test_partitions(fake: Fake) -> None:
    params = {**CONNECTION, "name": ["side", "main"], "state": "DOWN"}
    fake.partitions["partitions"][0]["partition"]["state"] = ["DOWN"]
    plan = partition.run(params, check=True, diff=True)
    assert (plan["changed"], fake.told) == (True, [])
    assert plan["diff"][0]["before"] == {"side": {"state": "UP"}}
    done = partition.run(params, check=False, diff=True)
    assert fake.told == [["scontrol", "update", "partitionname=side", "state=DOWN"]]
    assert [(one["name"], one["state"]) for one in done["partitions"]] == [("side", "DOWN"), ("main", "DOWN")]
    assert done["diff"] == plan["diff"]
    assert [one["name"] for one in partition.info({**CONNECTION, "name": []}, check=False, diff=False)["partitions"]] == ["main", "side"]


def test_reservations(fake: Fake) -> None:
    plan = set_reservation(check=True, name="new", nodes="cpu-0", users=["alice"], start="now", duration="60")
    assert (plan["changed"], plan["reservation"], fake.told) == (True, {}, [])
    set_reservation(name="m1", state="absent")
    set_reservation(name="nope", state="absent")
    assert fake.told == [["scontrol", "delete", "reservationname=m1"]]
    assert not set_reservation(name="m1", nodes="cpu-0")["changed"]
    fake.answers["scontrol", "update"] = refusal("slurm_update error: Requested reservation overlaps with another reservation")
    with pytest.raises(KubeError, match=r"Could not update reservation m1: .*overlaps"):
        set_reservation(name="m1", nodes="cpu-1")
    assert [one["name"] for one in reservation.info({**CONNECTION, "name": ["m1"]}, check=False, diff=False)["reservations"]] == ["m1"]


def test_a_job_is_submitted_in_a_login_pod_by_its_user(fake: Fake) -> None:
    fake.jobs["jobs"] = [row for row in fake.jobs["jobs"] if row["job_id"] == 18]
    fake.answers["squeue", "--json", "--name=hello"] = Output(0, '{"jobs": []}', "")
    fake.answers["sh", "-c"] = Output(0, "18\n", "")
    plan = set_job(check=True)
    assert (plan["changed"], plan["job"], len(fake.execs)) == (True, {}, 1)
    result = set_job()
    assert (result["changed"], result["job"]["id"]) == (True, 18)
    submitted = fake.execs[2]
    assert submitted[3:] == ["sh", "alice", "", "sbatch", "--parsable", "--job-name=hello"]
    assert fake.stdin[2] == b"#!/bin/sh\nhostname\n"
    assert result["diff"] == plan["diff"]


def test_a_job_that_is_there_is_not_submitted_again(fake: Fake) -> None:
    result = set_job(name="long")
    assert (result["changed"], result["job"]["id"], len(fake.execs)) == (False, 18, 1)


def test_a_worker_takes_a_job_where_no_login_pod_is_ready(fake: Fake) -> None:
    fake.pods[1]["status"] = {"phase": "Pending"}
    fake.answers["sh", "-c"] = refusal("the cluster has no user nobody")
    with pytest.raises(KubeError, match="Could not submit job hello as alice: the cluster has no user nobody"):
        set_job(resubmit="always")
    fake.pods = [pod("demo-controller-0", "controller")]
    with pytest.raises(KubeError, match="No login pod and no worker pod"):
        set_job(resubmit="always")


def test_a_failed_job_fails_the_task_with_its_last_lines(fake: Fake) -> None:
    fake.jobs["jobs"] = [row for row in fake.jobs["jobs"] if row["job_id"] == 11]
    fake.answers["sh", "-c"] = Output(0, "one\ntwo\n", "")
    with pytest.raises(
        CorralError,
        match=r"^Job 11 \(bad of alice\) is FAILED on cpu-1 with exit code 3; its last lines: one \| two; it was submitted before",
    ) as caught:
        set_job(name="bad", wait=True)
    assert caught.value.data["job"]["exit_code"] == 3
    assert set_job(name="bad", wait=True, must_succeed=False)["output"] == "one\ntwo\n"


def test_waiting_for_a_job_that_does_not_end(fake: Fake) -> None:
    fake.jobs["jobs"] = [row for row in fake.jobs["jobs"] if row["job_id"] == 18]
    with pytest.raises(WaitTimeout, match=r"After 0.05 s job 18 \(long of alice\) is RUNNING on cpu-0; run again"):
        set_job(name="long", wait=True, wait_timeout=0.05)


def test_jobs_that_slurmctld_has_forgotten(fake: Fake) -> None:
    fake.answers[("squeue",)] = refusal("slurm_load_jobs error: Invalid job id specified")
    assert not set_job(state="absent", name=None, user=None, job_id=3)["changed"]
    with pytest.raises(CorralError, match="knows no such job"):
        set_job(state="released", name=None, user=None, job_id=3)
    assert job.info({**CONNECTION, "job_id": [3]}, check=False, diff=False)["jobs"] == []


def leavers(*users: str) -> list[str]:
    result = job.info({**CONNECTION, "user": list(users), "removed_users": True}, check=True, diff=False)
    found: list[str] = result.get("warnings", [])
    return found


def test_jobs_of_users_whom_the_document_no_longer_has_are_a_warning(fake: Fake) -> None:
    running = next(row for row in fake.jobs["jobs"] if row["job_id"] == 18)
    fake.jobs["jobs"] += [{**running, "job_id": 20, "job_state": ["PENDING"]}, {**running, "job_id": 21, "job_state": ["COMPLETED"]}]
    (told,) = leavers("alice", "zoe")
    assert told.startswith(
        "The document no longer has alice, whose jobs 18, 20 have not ended. What runs goes on, but its next srun fails with "
    )
    assert ["squeue", "--json", "--user=alice,zoe", "--states=all"] in fake.execs
    fake.jobs["jobs"] = []
    assert leavers("alice") == []


def test_that_nobody_could_be_asked_for_their_jobs_is_a_warning_too(fake: Fake) -> None:
    fake.answers[("squeue",)] = refusal("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    (told,) = leavers("alice", "bob")
    assert told.startswith(
        "It is not known which jobs are of alice, bob, whom the document no longer has: slurmctld in Pod demo/demo-controller-0 cannot be"
    )
    with pytest.raises(KubeError):
        job.info({**CONNECTION, "user": ["alice"]}, check=False, diff=False)


def test_cancelling(fake: Fake) -> None:
    plan = set_job(check=True, state="absent", name=None)
    assert (plan["changed"], fake.told) == (True, [])
    assert plan["diff"][0]["before"] == {"18": "RUNNING"}
    set_job(state="absent", name=None)
    assert fake.told == [["scancel", "18"]]


def explain(nodes: str = "", **more: Any) -> dict[str, Any]:
    return why.run({**CONNECTION, "nodes": nodes, **more}, check=False, diff=False)


def test_why_asks_each_of_them_once(fake: Fake) -> None:
    answer = explain()
    assert [one["node"] for one in answer["nodes"]] == ["big-0", "cpu-0", "cpu-1", "gone-0", "gpu-0"]
    assert [command[2] for command in fake.execs] == ["nodes", "partitions"]
    assert "pod demo-gone-0 does not exist" in answer["lines"][3]


def test_why_of_a_node_in_service_and_of_a_cluster_in_service(fake: Fake) -> None:
    for row in fake.nodes["nodes"]:
        row["state"] = ["IDLE"]
    assert explain("cpu-1")["lines"] == ["cpu-1 is in service (IDLE)."]
    assert explain()["lines"] == ["All nodes are in service."]


def test_why_asks_for_nodes_that_have_never_registered_and_answers_for_names_that_are_none(fake: Fake) -> None:
    fake.state("gone-0", "FUTURE", reason="NO NETWORK ADDRESS FOUND")
    fake.pods.append(pod("demo-gone-0", status={"phase": "Pending"}))
    answer = explain("gone-[0,7]")
    assert "--future" in fake.execs[0], "slurmctld shows them to nobody who does not ask"
    assert [one["cause"] for one in answer["nodes"]] == ["pod", "unknown"]
    assert "pod demo-gone-0 is Pending" in answer["lines"][0]


def test_why_finds_nodes_whose_partitions_are_closed(fake: Fake) -> None:
    for row in fake.nodes["nodes"]:
        row["state"] = ["IDLE"]
    for row in fake.partitions["partitions"]:
        row["partition"]["state"] = ["DOWN"]
    assert {one["cause"] for one in explain()["nodes"]} == {"partition"}


def test_why_names_a_key_that_is_lost(fake: Fake) -> None:
    """Pods that run have it still, so nothing else shows it before one of them is replaced."""
    for row in fake.nodes["nodes"]:
        row["state"] = ["IDLE"]
    for one in fake.pods:
        one["spec"]["volumes"] = [
            {"name": "key", "secret": {"secretName": "demo-base-munge-key"}},
            {"name": "own", "secret": {"secretName": "own", "optional": True}},
        ]
    fake.secrets["demo-base-munge-key"] = {"metadata": {"annotations": {lost_keys.KEYS: "munge.key"}}, "data": {"munge.key": "eA=="}}
    assert explain()["lines"] == ["All nodes are in service."]
    fake.secrets["demo-base-munge-key"]["data"] = {"munge.key": ""}
    (words,) = explain("cpu-1")["lines"][1:]
    assert words.startswith(
        "Secret demo/demo-base-munge-key has lost munge.key, while pods run with it (demo-controller-0, demo-login-0, demo-cpu-0 and 1 "
    )
    assert words.endswith("Next: run 'ansible-playbook corral.slurm.site', which explains how to restore it.")
    del fake.secrets["demo-base-munge-key"]
    assert "Secret demo/demo-base-munge-key is gone, while pods run with it" in explain()["lines"][1]
    fake.forbidden.add("secrets")
    assert explain()["lines"] == ["All nodes are in service."]


def test_why_names_the_machine(fake: Fake) -> None:
    fake.state("cpu-1", "DOWN", "NOT_RESPONDING", reason="Not responding")
    condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped\nposting"}
    fake.machines["n1"] = {"status": {"conditions": [condition]}, "spec": {"unschedulable": True}}
    answer = explain("cpu-1")
    assert answer["nodes"][0]["cause"] == "kubernetes-node"
    assert "Kubernetes node n1 is not ready (NodeStatusUnknown: Kubelet stopped posting)" in answer["lines"][0]
    assert "Also: Kubernetes node n1 is cordoned." in answer["lines"][0]


def test_the_only_controller_of_a_namespace_is_found(fake: Fake) -> None:
    fake.pods = [pod("demo-controller-0", "controller")]
    assert partition.info({**CONNECTION, "pod": None, "name": []}, check=False, diff=False)["partitions"]
    fake.pods.append(pod("other-controller-0", "controller"))
    with pytest.raises(KubeError, match=r"holds the clusters demo/demo, demo/other: name one of them in 'namespace' and 'cluster' \(of a"):
        partition.info({**CONNECTION, "pod": None, "name": []}, check=False, diff=False)
    fake.pods[1]["metadata"]["labels"]["app.kubernetes.io/instance"] = "other"
    assert explain(pod=None, cluster="other")["cluster"] == "other"
    with pytest.raises(KubeError, match="holds none called third; give the cluster's namespace in 'namespace'"):
        partition.info({**CONNECTION, "pod": None, "name": [], "cluster": "third"}, check=False, diff=False)
    fake.pods = []
    with pytest.raises(KubeError, match="holds none; give the cluster's namespace in 'namespace'"):
        partition.info({**CONNECTION, "pod": None, "name": []}, check=False, diff=False)


def test_the_only_cluster_is_found_by_nothing_and_the_commands_name_it(fake: Fake) -> None:
    fake.state("cpu-1", "IDLE", "DRAIN", reason="corral: admin: fans")
    fake.access.namespace = "default"
    found = explain("cpu-1", pod=None, namespace=None)
    assert (found["namespace"], found["cluster"]) == ("demo", "demo")
    assert (
        "'ansible-playbook corral.slurm.drain -e slurm_namespace=demo -e slurm_name=demo -e node=cpu-1 -e resume=true'" in found["lines"][0]
    )
    fake.forbidden = {"/api/v1/pods"}
    with pytest.raises(
        KubeError,
        match="Namespace default should hold one pod that runs slurmctld and holds none; give the cluster's namespace in 'namespace'",
    ):
        explain("cpu-1", pod=None, namespace=None)
    with pytest.raises(KubeError, match="Namespace default should"):
        explain("cpu-1", pod=None, namespace="default")


@pytest.mark.usefixtures("fake")
def test_results_are_plain_json() -> None:
    json.dumps([set_node(nodes="cpu-0"), set_job(name="long"), explain(), set_reservation(name="m1")])


def test_why_tells_a_full_state_volume(fake: Fake) -> None:
    fake.room = "67108864 0"
    answer = explain("cpu-1")
    assert len(answer["nodes"]) == 1
    assert answer["lines"][-1].startswith(
        "The state volume of slurmctld in Pod demo/demo-controller-0 is full (100 % of 64.0 MiB, 0.0 MiB left)"
    )


def test_where_the_primary_is_gone_the_backup_is_asked_and_stays_the_one(fake: Fake) -> None:
    fake.pods = [pod("demo-controller-1", "controller"), *fake.pods[1:]]
    fake.away = {"demo-controller-0"}
    fake.state("cpu-1", "IDLE", reason="")
    result = set_node(nodes="cpu-1", state="drained")
    assert result["changed"]
    assert fake.where == ["demo-controller-0", "demo-controller-1", "demo-controller-1", "demo-controller-1"]
    assert explain("gone-0")["nodes"][0]["cause"] == "no-pod", "the pods are found by the backup's labels"


def test_a_command_that_may_have_begun_is_not_run_again(fake: Fake) -> None:
    fake.answers["scontrol", "update"] = UNREACHABLE
    with pytest.raises(KubeError, match="demo-controller-0"):
        set_node(nodes="cpu-1", state="resumed", force=True)
    assert set(fake.where) == {"demo-controller-0"}


def test_with_both_controllers_gone_the_named_one_is_told(fake: Fake) -> None:
    fake.away = {"demo-controller-0", "demo-controller-1"}
    with pytest.raises(KubeError, match="Pod demo/demo-controller-0 cannot be asked"):
        set_node(nodes="cpu-1", state="drained")


def test_of_two_controllers_a_ready_one_is_found(fake: Fake) -> None:
    away = {"phase": "Pending", "conditions": []}
    fake.pods = [pod("demo-controller-0", "controller", away), pod("demo-controller-1", "controller")]
    fake.state("cpu-1", "IDLE", reason="")
    assert set_node(pod=None, nodes="cpu-1", state="drained")["changed"]
    assert set(fake.where) == {"demo-controller-1"}


def test_two_clusters_are_told_apart(fake: Fake) -> None:
    fake.pods = [pod("demo-controller-0", "controller"), pod("other-controller-0", "controller")]
    with pytest.raises(KubeError, match="the clusters demo/demo, demo/other: name one of them in 'namespace' and 'cluster'"):
        set_node(pod=None, nodes="cpu-1", state="drained")
