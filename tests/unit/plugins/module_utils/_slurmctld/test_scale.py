# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node sets that shrink, against a slurmctld of paper: what it costs where nothing shrinks, and that nothing goes where slurmctld cannot be believed."""

from __future__ import annotations

import io
import json
import tarfile
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import scale, slurmctld, workers

from .conftest import CONNECTION, UNREACHABLE, Fake, pod, refusal

CONFIG = """NodeName=cpu-[0-2] NodeAddr=demo-cpu-[0-2].w CPUs=1 State=UNKNOWN
NodeName=old-[0-1] NodeAddr=demo-old-[0-1].w CPUs=1 State=UNKNOWN
PartitionName=main Nodes=cpu-[0-2],old-[0-1] Default=YES State=UP
"""
WITHOUT_CPU_2 = CONFIG.replace("cpu-[0-2]", "cpu-[0-1]")
DATE = Output(0, "2000000000\n", "")


def stateful_set(name: str, replicas: int) -> dict[str, Any]:
    labels = {"corral.hpc/node-set": name, "x": "y"}
    owned = {"f:metadata": {"f:labels": {"f:x": {}, "f:corral.hpc/node-set": {}}}, "f:spec": {"f:replicas": {}, "f:serviceName": {}}}
    return {
        "metadata": {
            "name": f"demo-{name}", "namespace": "demo", "uid": name, "labels": labels,
            "managedFields": [{"manager": "corral", "operation": "Apply", "fieldsV1": owned}],
        },
        "spec": {"replicas": replicas, "serviceName": "demo-worker", "revisionHistoryLimit": 10},
        "status": {"replicas": replicas},
    }  # fmt: skip


@pytest.fixture
def world(fake: Fake) -> Fake:
    """cpu-[0-2] and old-[0-1], all idle; the document has two of cpu."""
    fake.stateful_sets = [stateful_set("cpu", 3), stateful_set("old", 2)]
    fake.config_map = {"data": {"slurm.conf": CONFIG}}
    row = fake.nodes["nodes"][0]
    names = ("cpu-0", "cpu-1", "cpu-2", "old-0", "old-1")
    fake.nodes["nodes"] = [{**row, "name": name, "state": ["IDLE"], "reason": ""} for name in names]
    fake.jobs["jobs"] = []
    return fake


def busy(world: Fake, node: str, number: int = 7, **more: Any) -> None:
    world.state(node, "MIXED")
    world.jobs["jobs"].append({"job_id": number, "name": "train", "user_name": "ada", "job_state": ["RUNNING"], "nodes": node, **more})


def given(cpu: int = 2, old: int | None = 2, **options: Any) -> dict[str, Any]:
    sets = [{"name": "cpu", "replicas": cpu, "policy": "Wait", "deadline": 60, "jobs": []}]
    if old is not None:
        sets.append({"name": "old", "replicas": old, "policy": "Wait", "deadline": 60, "jobs": []})
    params = {"selector": "s", "config_map": "demo-controller-config", "node_sets": sets, "policy": "Wait", "deadline": 60, "jobs": []}
    params |= {"wait": False, "wait_timeout": 1, "end_timeout": 0, "must_finish": False}
    return {**CONNECTION, **params, **options}


def decide(cpu: int = 2, old: int | None = 2, *, check: bool = False, **options: Any) -> dict[str, Any]:
    """What a pass decides when it begins."""
    with scale.connected({}) as client:
        return scale.decide(client, given(cpu, old, **options), check=check)


def run(cpu: int = 2, old: int | None = 2, *, check: bool = False, **options: Any) -> dict[str, Any]:
    """What a pass orders, and the next one decides."""
    ordered = scale.order(given(cpu, old, **options), check=check, diff=True)
    with scale.connected({}) as client:
        live = {one["metadata"]["name"]: one["spec"]["replicas"] for one in client.stateful_sets}
    return {**decide(cpu, old, check=check, **options), **ordered, "live": live}


SIDE = CONFIG + "PartitionName=side Nodes=cpu-[1-2],old-0 Default=NO State=UP PriorityTier=3\n"


@pytest.fixture
def side(world: Fake) -> Fake:
    """The same with a partition that the document no longer has."""
    world.config_map = {"data": {"slurm.conf": SIDE}}
    row = world.partitions["partitions"][0]
    world.partitions["partitions"] = [{**row, "name": name, "partition": {"state": ["UP"]}} for name in ("main", "side")]
    return world


def inside(world: Fake, where: str = "side", *state: str) -> None:
    world.jobs["jobs"].append(
        {"job_id": 9, "name": "tune", "user_name": "ada", "job_state": list(state or ["PENDING"]), "nodes": "", "partition": where}
    )


@pytest.mark.parametrize("where", ["side", "main,side"])
def test_a_partition_that_leaves_is_closed_and_stays_while_a_job_waits_in_it(side: Fake, where: str) -> None:
    inside(side, where)
    result = run(3, partitions=["main"])
    assert side.told == [["scontrol", "update", "partitionname=side", "state=DRAIN"]]
    assert (result["changed"], result["shrinks"]) == (True, True)
    [retained_config] = result["retained_config"]["partitions"]
    assert (retained_config["name"], retained_config["nodes"], dict(retained_config["line"])["PriorityTier"]) == (
        "side",
        "cpu-[1-2],old-0",
        "3",
    )
    assert (result["retained_config"]["nodes"], result["retained_config"]["replicas"]) == ([], {})
    assert result["retained"]["partitions"] == ["side"]


def test_the_jobs_of_a_partition_that_leaves_keep_their_jail(side: Fake) -> None:
    inside(side)
    side.config_map["data"]["plugstack.conf"] = "required /opt/x.so jail=/mnt/jail jail.other=/mnt/other partition.side=other\n"
    [retained_config] = run(3, partitions=["main"])["retained_config"]["partitions"]
    assert retained_config["jail"] == [["partition.side", "other"], ["jail.other", "/mnt/other"]]


def test_a_partition_goes_when_the_last_job_in_it_has_ended(side: Fake) -> None:
    result = run(3, partitions=["main"], wait=True)
    assert (result["retained"]["partitions"], result["retained_config"], "warnings" in result) == ([], {}, False)
    assert [command[0] for command in side.execs].index("scontrol") < [command[0] for command in side.execs].index("squeue")
    assert side.execs[-1][:1] == ["squeue"], "it goes without a look after it was closed"


def test_a_job_in_a_partition_that_leaves_is_named(side: Fake) -> None:
    inside(side)
    [words] = run(3, partitions=["main"], wait=True, wait_timeout=0)["warnings"]
    assert "waiting for job 9 (tune of ada) in partition side. They stay closed for new jobs" in words


def test_a_partition_and_nodes_that_leave_together(side: Fake) -> None:
    """cpu-2 is free, the partition is not: it keeps the nodes that stay, and cpu-2 goes."""
    inside(side)
    result = run(2, partitions=["main"])
    assert (replicas(result), result["retained_config"]["partitions"][0]["nodes"]) == ({"demo-cpu": 2}, "cpu-1,old-0")
    busy(side, "cpu-2")
    assert run(2, partitions=["main"])["retained_config"]["partitions"][-1]["nodes"] == "cpu-[1-2],old-0"


def test_a_partition_stays_when_slurmctld_can_not_be_asked(side: Fake) -> None:
    side.answers["scontrol", "show"] = UNREACHABLE
    result = run(3, partitions=["main"])
    assert [one["name"] for one in result["retained_config"]["partitions"]] == ["side"]
    assert "so no partition was taken away, and partition side stay as they are" in result["warnings"][0]


def test_check_mode_closes_no_partition(side: Fake) -> None:
    inside(side)
    result = run(3, partitions=["main"], check=True)
    assert (side.told, result["changed"]) == ([], True)
    assert result["diff"][0]["after"] == {"partition side": {"state": "DRAIN"}}


@pytest.mark.usefixtures("side")
@pytest.mark.parametrize("partitions", [["main", "side"], None])
def test_a_partition_of_the_document_is_left_alone(partitions: list[str] | None) -> None:
    assert decide(3, partitions=partitions)["shrinks"] is False


def replicas(result: dict[str, Any]) -> dict[str, int]:
    """The pods of sets that can be smaller than they are."""
    pods = {f"demo-{name}": count for name, count in result["retained"]["pods"].items()}
    return {name: count for name, count in pods.items() if count < result["live"][name]}


def retired(result: dict[str, Any]) -> dict[str, int]:
    return {one["metadata"]["name"]: one["spec"]["replicas"] for one in result["retired"]}


@pytest.mark.parametrize("cpu", [3, 5])
def test_where_nothing_shrinks_slurmctld_is_not_asked(world: Fake, cpu: int) -> None:
    result = decide(cpu, partitions=["main"])
    assert (result["shrinks"], result["retained_config"], result["retired"], result["retained"]["pods"]) == (False, {}, [], {})
    assert (world.execs, world.requests) == ([], 2)


def test_an_idle_node_is_drained_looked_at_again_and_may_go(world: Fake) -> None:
    result = run()
    assert [command[:3] for command in world.told] == [["scontrol", "update", "nodename=cpu-2"]]
    assert (result["changed"], replicas(result), result["retained_config"], result["retired"]) == (True, {"demo-cpu": 2}, {}, [])


def test_a_pass_decides_nothing_by_what_it_has_not_ordered_yet(world: Fake) -> None:
    result = decide()
    assert (result["retained"]["pods"], result["retained"]["lines"], world.told) == ({"cpu": 3}, ["cpu-2"], [])
    assert decide(check=True)["retained"]["pods"] == {"cpu": 2}, "in check mode it counts as drained"


def of_set(world: Fake, name: str, node_set: str) -> None:
    """A pod of a node set."""
    found = pod(name)
    found["metadata"]["labels"]["corral.hpc/node-set"] = node_set
    world.pods.append(found)


def test_the_line_of_a_node_outlives_its_pod(world: Fake) -> None:
    of_set(world, "demo-cpu-2", "cpu")
    first = run(slurm_conf=WITHOUT_CPU_2)
    assert (replicas(first), first["retained"]["lines"]) == ({"demo-cpu": 2}, ["cpu-2"])
    assert (first["retained_config"]["replicas"], [dict(one)["NodeName"] for one in first["retained_config"]["nodes"]]) == ({}, ["cpu-2"])
    # That pass has made the set smaller, and its pod has ended.
    world.stateful_sets[0] = stateful_set("cpu", 2)
    again = decide(slurm_conf=WITHOUT_CPU_2)
    assert again["shrinks"] and again["retained"]["lines"] == ["cpu-2"], "its pod is there"
    world.pods.pop()
    last = decide(slurm_conf=WITHOUT_CPU_2)
    assert (last["retained"]["lines"], last["retained_config"]) == ([], {})
    assert scale.is_less(last["retained"], again["retained"]) and not scale.is_less(again["retained"], last["retained"])
    world.config_map = {"data": {"slurm.conf": WITHOUT_CPU_2}}
    assert decide(slurm_conf=WITHOUT_CPU_2)["shrinks"] is False


def test_a_job_that_names_a_node_without_a_pod_keeps_its_line(world: Fake) -> None:
    """It was submitted between two passes."""
    world.stateful_sets[0] = stateful_set("cpu", 2)
    world.state("cpu-2", "IDLE", "DRAIN", reason="corral: scale: the document has fewer nodes in this set")
    naming(world, "PENDING", required_nodes="cpu-2")
    result = decide(slurm_conf=WITHOUT_CPU_2)
    assert (result["retained"]["lines"], result["retained"]["pods"], result["retained_config"]["replicas"]) == (["cpu-2"], {"cpu": 2}, {})


def test_a_set_that_left_the_document_stays_until_its_pods_have_ended(world: Fake) -> None:
    of_set(world, "demo-old-0", "old")
    result = run(3, None)
    assert (retired(result), result["retained"]["lines"]) == ({"demo-old": 0}, ["old-0"])
    world.pods.pop()
    assert (decide(3, None)["retired"], decide(3, None)["retained_config"]) == ([], {})


def test_the_wait_ends_when_more_may_go_than_was_decided_and_not_before_pods_have_ended(
    world: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(world, "cpu-1")
    of_set(world, "demo-cpu-2", "cpu")
    before = decide(1)["retained"]
    ordered = scale.order(given(1, wait=True, wait_timeout=60), check=False, diff=False, decided=before)
    assert "warnings" not in ordered, "cpu-2 may go, while cpu-1 has a job"
    world.stateful_sets[0] = stateful_set("cpu", 2)
    gone = iter(range(3))
    list_pods = workers.pods

    def later(*given: Any) -> Any:
        if next(gone, None) is None:
            world.pods[:] = [one for one in world.pods if one["metadata"]["name"] != "demo-cpu-2"]
        return list_pods(*given)

    monkeypatch.setattr(workers, "pods", later)
    before = decide(1)["retained"]
    scale.order(given(1, wait=True, wait_timeout=0, end_timeout=60), check=False, diff=False, decided=before)
    assert "cpu-2" not in decide(1)["retained"]["lines"]


def test_the_object_of_a_set_that_stays_is_what_was_applied_and_nothing_else(world: Fake) -> None:
    busy(world, "old-0")
    assert run(3, None)["retired"] == [
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "demo-old", "namespace": "demo", "labels": {"corral.hpc/node-set": "old", "x": "y"}},
            "spec": {"replicas": 1, "serviceName": "demo-worker"},
        }
    ]


def test_a_busy_node_stays_with_its_lines(world: Fake) -> None:
    busy(world, "cpu-2")
    result = run()
    assert (replicas(result), result["retained_config"]["replicas"]) == ({}, {"cpu": 3})
    assert result["waiting"] == [{"node": "cpu-2", "jobs": [{"id": "7", "name": "train", "user": "ada"}]}]
    again = run()
    assert (again["changed"], again["retained_config"]) == (False, result["retained_config"]), "a second run changes something"


def test_a_job_that_comes_before_the_drain_is_seen(world: Fake) -> None:
    """The first look finds the node idle; slurmctld gives it a job before it takes the drain."""

    def update(words: dict[str, str]) -> None:
        busy(world, "cpu-2")
        Fake._update(world, words)

    world._update = update  # type: ignore[method-assign]
    assert replicas(run()) == {}


def test_a_set_that_left_the_document_keeps_what_is_busy(world: Fake) -> None:
    busy(world, "old-0")
    result = run(3, None)
    assert (replicas(result), retired(result)) == ({"demo-old": 1}, {"demo-old": 1})
    assert (result["retained_config"]["replicas"], [dict(one)["NodeName"] for one in result["retained_config"]["nodes"]]) == ({}, ["old-0"])


@pytest.mark.usefixtures("world")
def test_a_set_that_left_the_document_and_is_free_ends() -> None:
    result = run(3, None)
    assert (replicas(result), result["retired"], result["retained_config"]) == ({"demo-old": 0}, [], {})


def test_check_mode_tells_nothing_and_says_the_same(world: Fake) -> None:
    busy(world, "old-1")
    plan = run(2, None, check=True)
    assert world.told == []
    assert (plan["changed"], replicas(plan)) == (True, {"demo-cpu": 2})
    assert "old-[0-1] would be drained; waiting for job 7 (train of ada) on old-1" in plan["warnings"][0]
    done = run(2, None)
    assert (done["diff"], replicas(done), done["retained_config"]) == (plan["diff"], replicas(plan), plan["retained_config"])


NONSENSE = {
    "not reachable": UNREACHABLE,
    "an error": refusal("slurm_load_node error: Unable to contact slurm controller (connect failure)"),
    "nothing": Output(0, "", ""),
    "no json": Output(0, "slurm_load", ""),
    "another json": Output(0, '{"nodes": 3}', ""),
    "no nodes": Output(0, '{"nodes": []}', ""),
    "nodes without state": Output(0, json.dumps({"nodes": [{"name": f"cpu-{number}"} for number in range(3)]}), ""),
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize("what", [("scontrol", "show"), ("squeue",)])
def test_whoever_can_not_be_believed_takes_no_node_away(world: Fake, what: tuple[str, ...], answer: Any) -> None:
    world.answers[what] = answer
    result = run(0, None)
    assert (result["changed"], replicas(result), world.told) == (False, {}, [])
    assert (result["retained_config"]["replicas"], retired(result)) == ({"cpu": 3}, {"demo-old": 2})
    assert "so no node was taken away, and cpu-[0-2],old-[0-1] stay as they are" in result["warnings"][0]
    with pytest.raises(KubeError, match="so no node was taken away"):
        run(0, None, wait=True, wait_timeout=0)


def test_jobs_that_squeue_does_not_show_of_nodes_that_are_busy_count(world: Fake) -> None:
    world.state("cpu-2", "ALLOCATED")
    result = run()
    assert (replicas(result), result["waiting"]) == ({}, [{"node": "cpu-2", "jobs": []}])


def test_a_drain_that_slurmctld_refuses_takes_nothing_away(world: Fake) -> None:
    world.answers["scontrol", "update"] = refusal("slurm_update error: Access/permission denied")
    result = run()
    assert (result["changed"], replicas(result)) == (False, {})
    assert "Access/permission denied" in result["warnings"][0]


def test_the_wait_ends_with_a_warning_or_fails_as_asked(world: Fake) -> None:
    busy(world, "cpu-2")
    result = run(wait=True)
    assert (
        "Not all nodes that go could go within 1 s: waiting for job 7 (train of ada) on cpu-2. They stay drained." in result["warnings"][0]
    )
    with pytest.raises(WaitTimeout, match="job 7"):
        run(wait=True, must_finish=True)


def test_the_wait_ends_when_the_job_does(world: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    busy(world, "cpu-2")
    answers = iter(range(100))
    ask = world.run_in_pod

    def later(client: Any, **more: Any) -> Output:
        if more["command"][0] == "squeue" and next(answers) == 6:
            world.state("cpu-2", "IDLE", "DRAIN")
            world.jobs["jobs"].clear()
        return ask(client, **more)

    monkeypatch.setattr(slurmctld, "run_in_pod", later)
    result = run(wait=True, wait_timeout=5)
    assert (replicas(result), result["retained_config"], "warnings" in result) == ({"demo-cpu": 2}, {}, False)


def overdue(policy: str) -> list[dict[str, Any]]:
    return [
        {"name": "cpu", "replicas": 2, "policy": policy, "deadline": 60, "jobs": []},
        {"name": "old", "replicas": 2, "policy": "Wait", "deadline": 60, "jobs": []},
    ]


def drained_long_ago(world: Fake) -> None:
    busy(world, "cpu-2")
    row = world.nodes["nodes"][2]
    row.update(state=["MIXED", "DRAIN"], reason="corral: scale: the document has fewer nodes in this set")
    row["reason_changed_at"] = {"set": True, "infinite": False, "number": 1_999_999_000}
    world.answers["date",] = DATE


@pytest.mark.parametrize(("policy", "command"), [("Requeue", ["scontrol", "requeue", "7"]), ("Cancel", ["scancel", "7"])])
def test_after_the_deadline_jobs_are_told_by_slurmctlds_clock(world: Fake, policy: str, command: list[str]) -> None:
    drained_long_ago(world)
    result = run(node_sets=overdue(policy))
    assert ([one for one in world.told if one[0] != "date"], result["changed"]) == ([command], True)


def test_where_only_some_jobs_have_a_deadline_slurmctld_is_asked_for_its_time_too(world: Fake) -> None:
    drained_long_ago(world)
    sets = overdue("Wait")
    sets[0]["jobs"] = [{"partitions": ["main"], "qos": [], "policy": "Cancel", "deadline": 60}]
    world.jobs["jobs"][0]["partition"] = "main"
    assert run(node_sets=sets)["changed"]
    assert [one for one in world.told if one[0] != "date"] == [["scancel", "7"]]


def test_a_job_that_can_not_be_requeued_is_waited_for_and_asked_once(world: Fake) -> None:
    drained_long_ago(world)
    world.answers["scontrol", "requeue"] = refusal("Requested operation is presently disabled for job 7")
    result = run(node_sets=overdue("Requeue"), wait=True)
    assert (world.told.count(["scontrol", "requeue", "7"]), result["changed"], replicas(result)) == (1, False, {})
    assert "presently disabled for job 7. It is waited for." in result["warnings"][0]


def test_a_clock_that_says_nothing_is_no_answer(world: Fake) -> None:
    drained_long_ago(world)
    world.answers["date",] = Output(0, "", "")
    assert "clock" in run(node_sets=overdue("Cancel"))["warnings"][0]


def test_a_scale_down_that_is_half_taken_back(world: Fake) -> None:
    for name in ("cpu-1", "cpu-2"):
        world.state(name, "IDLE", "DRAIN", reason="corral: scale: the document has fewer nodes in this set")
    result = run(2)
    assert world.told == [["scontrol", "update", "nodename=cpu-1", "state=resume"]]
    assert replicas(result) == {"demo-cpu": 2}


def naming(world: Fake, state: str = "RUNNING", number: int = 12, **more: Any) -> None:
    """A job that is not on the node that goes, and names it."""
    nodes = "" if state == "PENDING" else "cpu-0"
    world.jobs["jobs"].append({"job_id": number, "name": "train", "user_name": "ada", "job_state": [state], "nodes": nodes, **more})


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED", "PENDING", "SPECIAL_EXIT"])
def test_a_job_elsewhere_that_requires_a_node_keeps_it(world: Fake, state: str) -> None:
    naming(world, state, required_nodes="cpu-[0,2]")
    result = run(wait=True, wait_timeout=0)
    assert (replicas(result), result["retained_config"]["replicas"]) == ({}, {"cpu": 3})
    assert result["waiting"] == [{"node": "cpu-2", "jobs": [{"id": "12", "name": "train", "user": "ada"}]}]
    assert "waiting for job 12 (train of ada), which names cpu-2 (--nodelist). They stay drained" in result["warnings"][0]
    assert [command[2] for command in world.told] == ["nodename=cpu-2"], "it is told nothing before a deadline"
    assert run()["changed"] is False
    world.jobs["jobs"].clear()
    assert replicas(run()) == {"demo-cpu": 2}


def test_a_job_that_requires_a_node_may_have_a_name_that_looks_like_other_jobs(world: Fake) -> None:
    naming(world, required_nodes="cpu-2", name="a|b\n13|cpu-[0-1]|||RUNNING|bob|main|normal|x")
    naming(world, number=14, required_nodes="cpu-[0-1]")
    assert [one["jobs"][0]["id"] for one in run()["waiting"]] == ["12"]
    assert len(run()["waiting"][0]["jobs"]) == 1


def test_a_job_that_waits_and_excludes_a_node_is_told_before_it_goes_and_keeps_the_rest(world: Fake) -> None:
    naming(world, "PENDING", excluded_nodes="cpu-[1-2]")
    naming(world, "PENDING", 13, excluded_nodes="cpu-2")
    plan = run(check=True)
    assert (plan["changed"], replicas(plan), world.told) == (True, {"demo-cpu": 2}, [])
    result = run()
    assert [command[2:] for command in world.told[1:]] == [["excnodelist=cpu-1", "jobid=12"], ["excnodelist=", "jobid=13"]]
    assert (replicas(result), result["retained_config"], result["waiting"]) == ({"demo-cpu": 2}, {}, [])


def test_a_job_that_runs_and_excludes_a_node_loses_nothing_by_its_end(world: Fake) -> None:
    naming(world, excluded_nodes="cpu-2")
    assert replicas(run()) == {"demo-cpu": 2}
    assert [command[2] for command in world.told] == ["nodename=cpu-2"]


def test_a_node_that_has_a_job_yet_stays_excluded(world: Fake) -> None:
    """The document may be put back before that has ended."""
    naming(world, "PENDING", excluded_nodes="cpu-2")
    busy(world, "cpu-2")
    run()
    assert [command[2] for command in world.told] == ["nodename=cpu-2"]


@pytest.mark.parametrize(
    ("policy", "state", "told"),
    [
        ("Requeue", "RUNNING", ["scontrol", "requeue", "12"]),
        ("Requeue", "PENDING", ["scontrol", "update", "reqnodelist=cpu-0", "jobid=12"]),
        ("Cancel", "RUNNING", ["scancel", "12"]),
        ("Cancel", "PENDING", ["scancel", "12"]),
        ("Wait", "PENDING", None),
    ],
)
def test_after_the_deadline_jobs_that_require_a_node_are_told_too(world: Fake, policy: str, state: str, told: list[str] | None) -> None:
    drained_long_ago(world)
    world.jobs["jobs"].clear()
    world.state("cpu-2", "IDLE", "DRAIN")
    naming(world, state, required_nodes="cpu-[0,2]")
    result = run(node_sets=overdue(policy))
    assert [one for one in world.told if one[0] != "date"] == ([told] if told else [])
    assert replicas(result) == ({"demo-cpu": 2} if told and "reqnodelist=cpu-0" in told else {})


def test_in_maintenance_names_do_no_harm_since_the_lines_stay(world: Fake) -> None:
    naming(world, required_nodes="cpu-2")
    assert replicas(run(maintenance=True)) == {"demo-cpu": 2}
    assert not [command for command in world.execs if "--array" in command]


@pytest.mark.parametrize(
    "answer", [UNREACHABLE, refusal("slurm_load_jobs error"), Output(0, "slurm_load", ""), Output(0, '{"jobs": []}', "")]
)
def test_where_it_is_not_known_which_nodes_are_named_none_goes(world: Fake, answer: Any) -> None:
    world.answers["squeue", "--array"] = answer
    result = run()
    assert (result["changed"], replicas(result), world.told) == (False, {}, [])
    assert "so no node was taken away, and cpu-2 stay as they are" in result["warnings"][0]


def by_hand(world: Fake) -> None:
    """Somebody has scaled the set by hand: a pod runs of which neither slurmctld nor its configuration knows."""
    world.stateful_sets[0] = stateful_set("cpu", 4)


def test_a_pod_that_was_never_a_node_goes_at_once(world: Fake) -> None:
    by_hand(world)
    result = run(3)
    assert (replicas(result), result["retained_config"], world.told) == ({"demo-cpu": 3}, {}, [])


def test_a_node_that_never_registered_is_drained_and_goes(world: Fake) -> None:
    """Its pod did not come up, or has fewer CPUs than the document said."""
    world.state("cpu-2", "FUTURE")
    result = run()
    assert [command[:4] for command in world.told] == [["scontrol", "update", "nodename=cpu-2", "state=drain"]]
    assert (replicas(result), result["retained_config"]) == ({"demo-cpu": 2}, {})


def test_a_job_that_slurmctld_remembers_on_a_hidden_node_is_waited_for(world: Fake) -> None:
    busy(world, "cpu-2")
    world.state("cpu-2", "FUTURE")
    result = run()
    assert result["retained_config"]["replicas"] == {"cpu": 3}
    assert [(one["node"], one["jobs"][0]["id"]) for one in result["waiting"]] == [("cpu-2", "7")]


def test_without_the_live_configuration_what_slurmctld_does_not_know_stays(world: Fake) -> None:
    by_hand(world)
    world.config_map = {}
    result = run(3)
    assert (replicas(result), result["retained_config"]["replicas"]) == ({}, {"cpu": 4})


def test_a_live_configuration_that_is_gone_is_an_error_before_anything_is_lost(world: Fake) -> None:
    busy(world, "cpu-2")
    world.config_map = {}
    with pytest.raises(CorralError, match="no line of cpu-2"):
        decide()
    assert not world.told


def test_a_slurm_conf_that_is_served_already_costs_nothing(world: Fake) -> None:
    assert decide(3, partitions=["main"], slurm_conf=CONFIG)["shrinks"] is False
    assert (world.execs, world.requests) == ([], 2)


@pytest.mark.parametrize(
    ("code", "said", "words"),
    [
        # As scontrol 24.11.5 says it.
        (
            4,
            "scontrol: error: MinJobAge value (abc) is not a valid number\nscontrol: fatal: Unable to process configuration file\n",
            "MinJobAge value (abc) is not a valid number. slurmctld, nodes and jobs were left",
        ),
        (
            4,
            "scontrol: error: _parse_next_key: Parsing error at unrecognized key: NoSuchKey\n",
            "that the document makes: Parsing error at unrecognized key: NoSuchKey.",
        ),
        (4, "scontrol: error: x\nscontrol: error: x\nscontrol: fatal: PrologFlags invalid: Nope\n", "makes: x; PrologFlags invalid: Nope."),
        # As slurmd 24.11.5 says it.
        (
            6,
            'slurmd: error: "maybe" is not a valid option for "ConstrainCores"\nslurmd: fatal: Could not open/read/parse cgroup.conf file /tmp/x/cgroup.conf\n',
            'Slurm itself refuses the cgroup.conf that the document makes: "maybe" is not a valid option for "ConstrainCores". slurmctld',
        ),
        (3, "priority_nope.so\n", "makes: PriorityType=priority/nope is a plugin that the image does not have."),
        # As glibc says it.
        (
            5,
            "priority_nope.so\nslurmctld: symbol lookup error: /opt/corral/lib/slurm/priority_nope.so: undefined symbol: conf\n",
            "PriorityType=priority/nope is a plugin that slurmctld cannot load (slurmctld: symbol lookup error: /opt/corral/lib/slurm/priority_nope.so:",
        ),
    ],
)
def test_a_slurm_conf_that_slurms_parser_refuses_is_told_before_anything_is_done(world: Fake, code: int, said: str, words: str) -> None:
    new = CONFIG + "MinJobAge=abc\nPriorityType=priority/nope\nTaskPlugin=task/none\n"
    world.answers["sh",] = Output(code, said, "")
    with pytest.raises(CorralError) as caught:
        decide(1, slurm_conf=new)
    assert words in str(caught.value), caught.value
    assert [command[0] for command in world.execs] == ["sh"], "a node was drained before the file was read"
    assert world.execs[0][4:] == ["priority_nope.so"] and unpacked(world) == {"slurm.conf": new}


@pytest.mark.parametrize(("was", "wanted"), [("munge", "slurm"), ("slurm", "munge")])
def test_another_way_to_authenticate_waits_until_no_pod_is_left_that_has_the_former(world: Fake, was: str, wanted: str) -> None:
    world.config_map["data"] = {"slurm.conf": f"{CONFIG}AuthType=auth/{was}\n"}
    new = f"{CONFIG}AuthType=auth/{wanted}\n"
    with pytest.raises(
        CorralError, match=f"spec.slurm.auth is {wanted}, but pods run with {was} .*Nothing was changed; set auth: {was} and maintenance"
    ):
        decide(3, slurm_conf=new, users_of_auth="workers")
    assert not world.execs
    world.pods.clear()
    decide(3, slurm_conf=new, users_of_auth="workers")


def unpacked(world: Fake) -> dict[str, str]:
    """The files that the last command was given."""
    with tarfile.open(fileobj=io.BytesIO(world.stdin[-1] or b"")) as archive:
        files = {name: archive.extractfile(name) for name in archive.getnames()}
        return {name: file.read().decode() for name, file in files.items() if file}


def test_all_files_are_read_where_one_of_them_differs(world: Fake) -> None:
    """A file that is taken away counts as well; the hash of them all does not."""
    live = world.config_map["data"] = {"slurm.conf": CONFIG, "cgroup.conf": "A=1\n", "gres.conf": "B=1\n", "config.hash": "x"}
    files = {**live, "config.hash": "y"}
    decide(3, slurm_conf=CONFIG, files=files)
    assert not world.execs
    decide(3, slurm_conf=CONFIG, files={**files, "cgroup.conf": "A=2\n"})
    assert unpacked(world) == {"slurm.conf": CONFIG, "cgroup.conf": "A=2\n", "gres.conf": "B=1\n"}
    del files["gres.conf"]
    decide(3, slurm_conf=CONFIG, files=files)
    assert unpacked(world) == {"slurm.conf": CONFIG, "cgroup.conf": "A=1\n"}


@pytest.mark.parametrize(("image", "read"), [("slurm:24.11", True), ("slurm:26.05", False)])
def test_a_slurm_conf_for_another_release_is_not_read_by_this_one(world: Fake, image: str, read: bool) -> None:
    world.pods[0]["spec"]["containers"] = [{"name": "munged", "image": "slurm:26.05"}, {"name": "slurmctld", "image": "slurm:24.11"}]
    decide(3, slurm_conf=CONFIG + "MinJobAge=300\n", image=image)
    assert bool(world.execs) is read
    world.execs.clear()
    world.pods.clear()
    decide(3, slurm_conf=CONFIG + "MinJobAge=300\n", image=image)
    assert not world.execs, "there is no pod"


@pytest.mark.parametrize("answer", [UNREACHABLE, Output(0, "", ""), Output(127, "", "sh: scontrol: not found")])
def test_where_nobody_can_be_asked_a_slurm_conf_is_not_refused(world: Fake, answer: Output | Exception) -> None:
    world.answers["sh",] = answer
    assert decide(3, slurm_conf=CONFIG + "MinJobAge=300\n")["shrinks"] is False
    world.config_map = {}
    world.execs.clear()
    decide(3, slurm_conf=CONFIG)
    assert not world.execs, "before the first run there is nobody to ask"
