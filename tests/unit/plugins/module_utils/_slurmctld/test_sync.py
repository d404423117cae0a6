# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_sync against a slurmctld and an API server of paper: what a cordon does and undoes, which pods may be evicted, and what is written."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import schema
from ansible_collections.corral.slurm.plugins.module_utils._kube import nodes as kubernetes_nodes
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Forbidden, KubeError
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import conditions, sync

from .conftest import CONNECTION, UNREACHABLE, Fake, pod

CORDONED = "corral: sync: Kubernetes node n1 is cordoned"
READY, DRAINED = conditions.READY, conditions.DRAINED


@pytest.fixture
def world(fake: Fake) -> Fake:
    """cpu-0 on n1 and cpu-1 on n2, both idle."""
    row = fake.nodes["nodes"][0]
    fake.nodes["nodes"] = [{**row, "name": name, "state": ["IDLE"], "reason": ""} for name in ("cpu-0", "cpu-1")]
    fake.pods = [pod("demo-controller-0", "controller"), pod("demo-cpu-0"), pod("demo-cpu-1", machine="n2")]
    fake.pods = copy.deepcopy(fake.pods)
    fake.machines = {name: {"metadata": {"name": name}, "spec": {}} for name in ("n1", "n2")}
    fake.jobs["jobs"] = []
    run()
    forget(fake)
    return fake


def forget(world: Fake) -> None:
    world.patches.clear()
    world.execs.clear()
    world.requests = 0


def run(*, check: bool = False, **options: Any) -> dict[str, Any]:
    given = {
        "taints": list(kubernetes_nodes.TAINTS),
        "kubernetes_node_conditions": [],
        "eviction": "WhenDrained",
        "conditions": True,
        "duration": 0,
        "interval": 10,
    }
    return sync.run({**CONNECTION, **given, **options}, check=check, diff=True)


def cordon(world: Fake, *, on: bool = True) -> None:
    world.machines["n1"]["spec"]["unschedulable"] = on


def taint(world: Fake, key: str, effect: str = "NoSchedule") -> None:
    world.machines["n1"]["spec"]["taints"] = [{"key": key, "effect": effect}]


def busy(world: Fake, node: str) -> None:
    world.state(node, "MIXED")
    world.jobs["jobs"].append({"job_id": 7, "name": "train", "user_name": "ada", "job_state": ["RUNNING"], "nodes": node})


def reason(world: Fake, node: str = "cpu-0") -> str:
    row = next(row for row in world.nodes["nodes"] if row["name"] == node)
    return str(row["reason"]) if "DRAIN" in row["state"] else ""


def evictable(world: Fake) -> list[str]:
    return [one["metadata"]["name"] for one in world.pods if one["metadata"]["labels"].get(sync.EVICTABLE) == "true"]


def shown(world: Fake, kind: str, name: str = "demo-cpu-0") -> tuple[str, str, str]:
    live = next(one for one in world.pods if one["metadata"]["name"] == name)["status"]["conditions"]
    found = next(one for one in live if one["type"] == kind)
    return found["status"], found["reason"], found["message"]


def test_where_nothing_differs_nothing_is_written(world: Fake) -> None:
    result = run()
    assert (result["changed"], world.told, world.patches, world.requests) == (False, [], [], 3)
    assert (result["draining"], "warnings" in result) == ([], False)


@pytest.mark.parametrize(
    ("names", "counts"),
    [
        ("", {"total": 2, "in_service": 1, "drained": 1, "down": 0}),
        ("cpu-0", {"total": 1, "in_service": 0, "drained": 1, "down": 0}),
        ("cpu-[0-3]", {"total": 4, "in_service": 1, "drained": 1, "down": 2}),
    ],
)
def test_nodes_are_counted_hidden_ones_as_down(world: Fake, names: str, counts: dict[str, int]) -> None:
    world.state("cpu-0", "IDLE", "DRAIN")
    assert run(nodes=names)["counts"] == counts


def test_without_workers_nothing_is_counted(world: Fake) -> None:
    del world.pods[1:]
    assert "counts" not in run()


def test_a_cordon_drains_and_a_free_node_may_be_evicted(world: Fake) -> None:
    cordon(world)
    result = run()
    assert world.told == [["scontrol", "update", "nodename=cpu-0", "state=drain", f"reason={CORDONED}"]]
    assert (result["changed"], evictable(world)) == (True, ["demo-cpu-0"])
    assert result["draining"] == [
        {"node": "cpu-0", "kubernetes_node": "n1", "cause": "Kubernetes node n1 is cordoned", "state": "IDLE+DRAIN", "free": True}
    ]
    assert shown(world, DRAINED) == ("True", "Drained", CORDONED)
    assert shown(world, READY) == ("False", "Drain", f"IDLE+DRAIN: {CORDONED}")
    forget(world)
    again = run()
    assert (again["changed"], world.told, world.patches) == (False, [], [])


def test_whoever_cordons_says_why(world: Fake) -> None:
    cordon(world)
    world.machines["n1"]["metadata"]["annotations"] = {kubernetes_nodes.NOTE: "fan 2\nis loud\x07 " + "!" * 300}
    run()
    assert reason(world) == f"{CORDONED}: fan 2 is loud " + "!" * 186
    assert run()["changed"] is False


def test_a_bad_condition_drains_and_comes_back(world: Fake) -> None:
    bad = {"type": "KernelDeadlock", "status": "True", "message": "task hung\nfor 120 s"}
    world.machines["n1"]["status"] = {"conditions": [{"type": "Ready", "status": "True"}, bad]}
    assert run()["changed"] is False, "nobody has called it bad"
    run(kubernetes_node_conditions=["KernelDeadlock"])
    assert reason(world) == "corral: sync: Kubernetes node n1 has the condition KernelDeadlock: task hung for 120 s"
    bad["status"] = "False"
    run(kubernetes_node_conditions=["KernelDeadlock"])
    assert reason(world) == ""


def test_a_busy_node_stays_protected_until_its_job_has_ended(world: Fake) -> None:
    cordon(world)
    busy(world, "cpu-0")
    run()
    assert (reason(world), evictable(world), shown(world, DRAINED)[:2]) == (CORDONED, [], ("False", "Draining"))
    world.state("cpu-0", "IDLE", "DRAIN")
    run()
    assert evictable(world) == [], "squeue still shows a job there"
    world.jobs["jobs"].clear()
    run()
    assert evictable(world) == ["demo-cpu-0"]


def test_the_label_goes_before_the_node_comes_back(world: Fake) -> None:
    cordon(world)
    run()
    cordon(world, on=False)
    forget(world)

    def update(words: dict[str, str]) -> None:
        assert evictable(world) == [], "a job may come to a pod that may be evicted"
        Fake._update(world, words)

    world._update = update  # type: ignore[method-assign]
    run()
    assert world.told == [["scontrol", "update", "nodename=cpu-0", "state=resume"]]
    assert shown(world, READY) == ("True", "Idle", "IDLE")


def test_a_pod_that_is_not_ready_keeps_its_node_drained(world: Fake) -> None:
    cordon(world)
    run()
    world.machines["n1"]["spec"] = {}
    world.pods[1]["status"] = {"phase": "Pending", "conditions": []}
    run()
    assert reason(world) == CORDONED, "jobs are sent to where no slurmd is"


@pytest.mark.parametrize("key", kubernetes_nodes.TAINTS[1:])
def test_a_taint_that_announces_the_end_drains(world: Fake, key: str) -> None:
    taint(world, key)
    run()
    assert reason(world) == f"corral: sync: Kubernetes node n1 has the taint {key}"


@pytest.mark.parametrize(("key", "effect"), [("nvidia.com/gpu", "NoSchedule"), ("karpenter.sh/disrupted", "PreferNoSchedule")])
def test_other_taints_do_not(world: Fake, key: str, effect: str) -> None:
    taint(world, key, effect)
    assert run()["changed"] is False


def test_a_drain_of_others_is_left_alone_both_ways(world: Fake) -> None:
    world.state("cpu-0", "IDLE", "DRAIN", reason="ask bob")
    cordon(world)
    run()
    assert (world.told, evictable(world)) == ([], ["demo-cpu-0"]), "a machine with a node that bob has drained could never be drained"
    cordon(world, on=False)
    run()
    assert (world.told, evictable(world)) == ([], [])


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (("IDLE", "DRAIN"), "corral: jail: the marker is missing"),
        (("DOWN", "DRAIN"), "corral: start: its GPUs took longer than 60 s"),
        (("IDLE", "DRAIN", "INVALID_REG"), "Low RealMemory (reported:1 < 90.00% of configured:2)"),
    ],
)
def test_a_drain_that_ends_by_itself_is_no_leave_to_evict(world: Fake, state: tuple[str, ...], words: str) -> None:
    world.state("cpu-0", *state, reason=words)
    run(eviction="WhenDrained")
    assert (world.told, evictable(world)) == ([], [])
    cordon(world)
    world.answers["scontrol", "update"] = Output(0, "", "")  # taken, and of no effect
    run()
    assert evictable(world) == [], "the node comes back when its check is well, and a job with it"
    del world.answers["scontrol", "update"]
    run()
    assert (reason(world), evictable(world)) == (CORDONED, ["demo-cpu-0"])


def test_a_node_that_is_only_down_comes_back_at_any_time(world: Fake) -> None:
    world.state("cpu-0", "DOWN", "NOT_RESPONDING", reason="Not responding")
    world.state("cpu-1", "DOWN", reason="bad fan")
    run(eviction="WhenIdle")
    assert evictable(world) == []
    world.machines["n2"]["spec"]["unschedulable"] = True
    run()
    assert (world.told, evictable(world)) == ([], [])
    cordon(world)
    run()
    assert (reason(world), evictable(world)) == (CORDONED, ["demo-cpu-0"])


def test_what_others_have_drained_on_a_good_machine_is_protected(world: Fake) -> None:
    world.state("cpu-0", "IDLE", "DRAIN", reason="ask bob")
    run()
    assert (evictable(world), shown(world, DRAINED)) == ([], ("True", "Drained", "ask bob"))


def test_idle_nodes_may_be_evicted_where_the_document_says_so(world: Fake) -> None:
    busy(world, "cpu-1")
    run(eviction="WhenIdle")
    assert evictable(world) == ["demo-cpu-0"]
    run(eviction="Always")
    assert evictable(world) == []


def test_without_the_right_to_see_machines_nothing_is_guessed(world: Fake) -> None:
    cordon(world)
    run()
    world.forbidden.add("/api/v1/nodes")
    forget(world)
    result = run()
    assert (world.told, reason(world)) == ([], CORDONED)
    assert evictable(world) == [], "unknown is protected"
    assert "docs/rights.md" in result["warnings"][0] and len(result["warnings"]) == 1


def test_without_the_right_to_write_conditions_the_rest_is_done(world: Fake) -> None:
    cordon(world)
    world.forbidden.add("/status")
    result = run()
    assert (evictable(world), len(result["warnings"])) == (["demo-cpu-0"], 1)


def test_a_slurmctld_that_does_not_answer_changes_nothing(world: Fake) -> None:
    cordon(world)
    world.answers["scontrol", "show"] = UNREACHABLE
    with pytest.raises(KubeError, match="cannot be asked for its nodes"):
        run()
    assert world.patches == []


def test_check_mode_tells_and_does_nothing(world: Fake) -> None:
    cordon(world)
    result = run(check=True, duration=60)
    assert (result["changed"], world.told, reason(world), evictable(world)) == (True, [], "", [])
    assert result["diff"][0]["after"]["node cpu-0"]["reason"] == CORDONED


def test_check_mode_foretells_what_the_run_then_does(world: Fake, caplog: pytest.LogCaptureFixture) -> None:
    """An idle node that a run would drain has no job on it in the plan either, and its pod may be evicted."""
    cordon(world)
    with caplog.at_level("INFO", "corral.slurm.progress"):
        plan = run(check=True)
    assert caplog.messages == ["cpu-0 is drained for its Kubernetes node; no job is left there"]
    assert plan["draining"][0]["free"]
    assert (world.told, evictable(world)) == ([], [])
    forget(world)
    deed = run()
    assert plan["diff"] == deed["diff"]
    assert plan["draining"] == deed["draining"]


def test_several_looks_go_on_after_one_that_failed(world: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(sync.time, "monotonic", lambda: clock[0])

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        world.answers.clear()

    monkeypatch.setattr(sync.time, "sleep", sleep)
    cordon(world)
    world.answers["scontrol", "show"] = UNREACHABLE
    assert run(duration=25)["changed"]
    assert clock[0] == 20.0


def test_a_node_that_slurmctld_does_not_know_shows_so_and_is_protected(world: Fake) -> None:
    del world.nodes["nodes"][0]
    cordon(world)
    run(eviction="WhenIdle")
    assert evictable(world) == ["demo-cpu-1"]
    assert shown(world, READY)[:2] == ("Unknown", "NotInSlurm")


def test_a_pod_that_was_replaced_meanwhile_is_not_marked(world: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    cordon(world)
    seen = copy.deepcopy(world.pods)
    world.pods[1]["metadata"]["uid"] = "another"
    monkeypatch.setattr(world, "items", lambda path, **_more: list(world.machines.values()) if path == "/api/v1/nodes" else seen[1:])
    run()
    assert evictable(world) == []


def test_a_missing_right_to_mark_pods_ends_the_run(world: Fake) -> None:
    cordon(world)
    world.forbidden.add("/demo-cpu-0")
    with pytest.raises(Forbidden):
        run()


def test_conditions_keep_their_time_while_the_status_is_the_same() -> None:
    live = [{"type": READY, "status": "True", "reason": "Idle", "message": "IDLE", "lastTransitionTime": "then"}]
    one = {"type": READY, "status": "True", "reason": "Mixed", "message": "MIXED"}
    assert conditions.differing([one], live, "now") == [{**one, "lastTransitionTime": "then"}]
    assert conditions.differing([{**one, "status": "False"}], live, "now")[0]["lastTransitionTime"] == "now"
    assert conditions.differing([{**one, "reason": "Idle", "message": "IDLE"}], live, "now") == []


def test_the_taints_of_the_document_are_those_of_the_module() -> None:
    assert schema.syncing()["properties"]["taints"]["default"] == list(kubernetes_nodes.TAINTS)
