# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes are drained for a new template, which pods go, which nodes come back; and that no template costs a job, or more nodes than it may."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import draining, hostlist, nodes, rollout

NOW = 1_800_000_000.0
OURS = rollout.REASON
OLD, NEW = rollout.Pod(stale=True, ready=True), rollout.Pod(stale=False, ready=True)
BROKEN_OLD, BROKEN_NEW = rollout.Pod(stale=True, ready=False), rollout.Pod(stale=False, ready=False)
DEAD_OLD = rollout.Pod(stale=True, ready=False, runs=False)


def node(name: str, *state: str, reason: str = "", since: float = 0, started: float = 0) -> nodes.Node:
    row: dict[str, Any] = {"name": name, "state": list(state or ("IDLE",)), "reason": reason}
    row["reason_changed_at"] = {"set": True, "number": int(since)}
    row["slurmd_start_time"] = {"set": True, "number": int(started)}
    return nodes.parse(json.dumps({"nodes": [row]}))[0]


def ours(name: str, *state: str, since: float = 0, started: float = 0) -> nodes.Node:
    return node(name, *(state or ("IDLE",)), "DRAIN", reason=OURS, since=since, started=started)


def job(number: int, on: str, end: int = 0) -> draining.Task:
    row = {"job_id": number, "name": "train", "user_name": "ada", "job_state": ["RUNNING"], "nodes": on, "end_time": end}
    return draining.tasks(json.dumps({"jobs": [row]}))[0]


def cpu(replicas: int = 3, most: int = 1, **more: Any) -> rollout.NodeSet:
    return rollout.NodeSet(**{"name": "cpu", "replicas": replicas, "type": "RollingUpdate", "max_unavailable": most, **more})


def step(
    pods: list[rollout.Pod | None],
    *live: nodes.Node,
    jobs: list[draining.Task] | None = None,
    rules: tuple[draining.Rule, ...] = (),
    **more: Any,
) -> rollout.Step:
    """One probe of a set; nodes that are not given are idle."""
    one = cpu(len(pods), jobs=rules, **more)
    given_ones = {found.name: found for found in live}
    known = [given_ones.get(name) or node(name) for name in one.nodes]
    there = {f"cpu-{number}": pod for number, pod in enumerate(pods) if pod is not None}
    return rollout.step([one], there, known, jobs or [], now=NOW)


def drained(found: rollout.Step) -> str:
    return hostlist.compress(found.drain.after)


def resumed(found: rollout.Step) -> str:
    return hostlist.compress(found.resume.after)


def test_where_no_pod_is_stale_nothing_is_to_be_done() -> None:
    found = step([NEW, NEW, NEW], node("cpu-1", "DOWN", "NOT_RESPONDING"), node("cpu-2", "IDLE", "DRAIN", reason="ask bob"))
    assert (found.done, found.summary, found.drain.changed, found.resume.changed) == (True, "", False, False)


@pytest.mark.parametrize(("most", "names"), [(1, "cpu-2"), (2, "cpu-[1-2]"), (9, "cpu-[0-2]")])
def test_idle_nodes_are_drained_first_as_many_as_may_be_away(most: int, names: str) -> None:
    found = step([OLD, OLD, OLD], most=most)
    assert found.drain.commands() == [["scontrol", "update", f"nodename={names}", "state=drain", f"reason={OURS}"]]
    assert found.replace == [], "a node that is not drained yet may get a job at any moment"


def test_busy_ones_come_last_and_of_these_the_one_whose_jobs_end_first() -> None:
    busy = [node(name, "ALLOCATED") for name in ("cpu-1", "cpu-2", "cpu-3")]
    jobs = [job(1, "cpu-3", 900), job(2, "cpu-2", 500), job(3, "cpu-2", 700), job(4, "cpu-1")]
    assert drained(step([OLD] * 4, *busy, jobs=jobs)) == "cpu-0"
    assert drained(step([NEW, OLD, OLD, OLD], *busy, jobs=jobs)) == "cpu-2"


@pytest.mark.parametrize(
    ("live", "jobs"),
    [
        (ours("cpu-2", "MIXED"), []),
        (ours("cpu-2", "IDLE", "COMPLETING"), []),
        (ours("cpu-2"), [job(7, "cpu-2")]),
        (ours("cpu-2", "DOWN", "NOT_RESPONDING"), [job(7, "cpu-2")]),
    ],
)
@pytest.mark.parametrize("pod", [OLD, BROKEN_OLD, DEAD_OLD])
def test_one_of_two_answers_is_enough_to_keep_a_pod(live: nodes.Node, jobs: list[draining.Task], pod: rollout.Pod) -> None:
    found = step([NEW, NEW, pod], live, jobs=jobs)
    assert (found.replace, list(found.waiting), found.done) == ([], ["cpu-2"], False)


def test_a_drained_and_free_one_goes() -> None:
    assert step([OLD, OLD, OLD], ours("cpu-2")).replace == ["cpu-2"]
    assert drained(step([OLD, OLD, OLD], ours("cpu-2"))) == "", "two would be away"


@pytest.mark.parametrize(
    "away",
    [
        (OLD, node("cpu-2", "DOWN", reason="fan")),
        (NEW, node("cpu-2", "IDLE", "DRAIN", reason="ask bob")),
        (NEW, node("cpu-2", "DOWN", "NOT_RESPONDING", reason="Not responding")),
        (BROKEN_NEW, node("cpu-2")),
        (rollout.Pod(stale=False, ready=True, started=NOW), node("cpu-2", started=NOW - 5)),
        (rollout.Pod(stale=True, ready=True, ending=True), ours("cpu-2")),
        (None, ours("cpu-2")),
    ],
)
def test_what_is_away_for_any_reason_counts(away: tuple[rollout.Pod | None, nodes.Node]) -> None:
    assert drained(step([OLD, OLD, away[0]], away[1])) == ""
    assert drained(step([OLD, OLD, away[0]], away[1], most=2)) == "cpu-1"


def test_the_new_pods_that_do_not_come_up_hold_the_others_back() -> None:
    found = step([OLD, OLD, BROKEN_NEW], ours("cpu-2"))
    assert (drained(found), found.replace, found.done) == ("", [], False)
    assert found.summary == (
        "0 of 3 nodes of cpu have the new template; cpu-2: starting; cpu-[0-1]: left while cpu-2 is out of service (maxUnavailable 1)"
    )


def test_free_nodes_that_others_drained_are_replaced_and_stay_drained() -> None:
    bobs = [node(name, "IDLE", "DRAIN", reason="ask bob") for name in ("cpu-1", "cpu-2")]
    found = step([OLD, OLD, OLD], *bobs)
    assert (found.replace, found.drain.changed, found.resume.changed) == (["cpu-2"], False, False), "at most so many at once"
    assert step([OLD, NEW, NEW], *bobs).resume.changed is False


@pytest.mark.parametrize("broken", [("IDLE",), ("DOWN", "NOT_RESPONDING")])
def test_pods_that_do_not_work_are_replaced_first_and_all_at_once(broken: tuple[str, ...]) -> None:
    live = [node(name, *broken, reason="Not responding") for name in ("cpu-0", "cpu-1")]
    assert drained(step([DEAD_OLD, DEAD_OLD, OLD], *live)) == "cpu-[0-1]"
    found = step([DEAD_OLD, DEAD_OLD, OLD], ours("cpu-0", *broken), ours("cpu-1", *broken))
    assert (sorted(found.replace), drained(found)) == (["cpu-0", "cpu-1"], "")


@pytest.mark.parametrize("pod", [BROKEN_OLD, DEAD_OLD])
def test_a_pod_that_does_not_work_is_not_killed_with_its_jobs(pod: rollout.Pod) -> None:
    found = step([pod, NEW, NEW], node("cpu-0", "ALLOCATED"), jobs=[job(7, "cpu-0")])
    assert (drained(found), found.replace) == ("cpu-0", [])


@pytest.mark.parametrize(
    ("pod", "state"), [(BROKEN_OLD, ("IDLE",)), (OLD, ("IDLE", "NOT_RESPONDING")), (BROKEN_OLD, ("DOWN", "NOT_RESPONDING"))]
)
def test_a_moment_in_which_all_are_out_of_service_ends_no_pod(pod: rollout.Pod, state: tuple[str, ...]) -> None:
    """A file server that hangs makes all pods unready, and a machine without its network leaves all nodes silent."""
    live = [node(f"cpu-{number}", *state, reason="Not responding") for number in range(8)]
    found = step([pod] * 8, *live)
    assert (drained(found), found.replace, found.done) == ("", [], False), "they may come back, so the run waits a while"
    assert found.summary.endswith("cpu-[0-7]: left while cpu-[0-7] is out of service (maxUnavailable 1)")
    back = [ours("cpu-7", *state), *live[:7]]
    assert step([pod] * 8, *back).replace == ["cpu-7"], "what was drained for it before costs nothing"


def test_a_node_that_is_out_of_service_is_the_first_and_takes_the_room() -> None:
    found = step([BROKEN_OLD, OLD, OLD], most=2)
    assert drained(found) == "cpu-[0,2]"
    assert drained(step([BROKEN_OLD, BROKEN_OLD, OLD], most=2)) == "cpu-[0-1]"
    assert drained(step([BROKEN_OLD, NEW, NEW], node("cpu-1", "DOWN", reason="fan"))) == "", "that one may be back before this one is"


def test_nodes_that_slurmctld_never_took_do_not_wait_for_each_other() -> None:
    """With fewer CPUs than the document says, none of them ever comes back without a new pod."""
    live = [node(f"cpu-{number}", "FUTURE", "INVALID_REG") for number in range(4)]
    assert drained(step([OLD] * 4, *live, most=2)) == "cpu-[2-3]"
    assert drained(step([OLD] * 4, ours("cpu-3", "FUTURE"), *live[:3], most=2)) == "cpu-2"
    assert drained(step([OLD] * 3 + [None], *live, most=1)) == ""


def test_drains_beyond_the_limit_are_given_back_when_the_pods_are_well() -> None:
    """The limit is a smaller one now, or the pods did not run when they were drained."""
    busy = [ours(name, "MIXED") for name in ("cpu-0", "cpu-1")]
    jobs = [job(1, "cpu-0", 500), job(2, "cpu-1", 900)]
    live = [*busy, ours("cpu-2"), ours("cpu-3")]
    found = step([OLD] * 5, *live, jobs=jobs, policy="Cancel", deadline=0)
    assert (found.replace, resumed(found), drained(found), found.actions) == (["cpu-3"], "cpu-[0-2]", "", [])
    found = step([OLD] * 5, *live, jobs=jobs, most=3)
    assert (found.replace, resumed(found), list(found.waiting)) == (["cpu-3", "cpu-2"], "cpu-1", ["cpu-0"]), "that one's jobs end last"
    found = step([OLD, OLD, BROKEN_OLD, BROKEN_NEW], *live, jobs=jobs)
    assert (found.replace, resumed(found), drained(found)) == ([], "cpu-[0-1]", ""), "a pod that is not ready has nothing to give back"
    found = step([OLD] * 5, busy[0], node("cpu-4", "DOWN", reason="fan"), jobs=jobs)
    assert (resumed(found), list(found.waiting)) == ("", ["cpu-0"]), "others that are away make no drain of ours one too many"


def test_a_node_that_a_person_set_down_keeps_its_pod() -> None:
    """With ReturnToService=2 a new pod would bring it back."""
    found = step([NEW, NEW, OLD], node("cpu-2", "DOWN", reason="fan"))
    assert (found.replace, found.drain.changed, found.done) == ([], False, True)
    assert "set down by somebody" in found.summary


def test_a_node_whose_machine_is_cordoned_keeps_its_pod() -> None:
    """The new one would have to go elsewhere, or wait, and look like a template that does not work."""
    cordoned = node("cpu-2", "IDLE", "DRAIN", reason="corral: sync: its machine is cordoned")
    found = step([NEW, OLD, OLD], cordoned, most=2)
    assert (found.replace, drained(found)) == ([], "cpu-1")
    assert "cpu-2: waits until its Kubernetes node" in found.summary
    assert step([NEW, NEW, BROKEN_OLD], cordoned).replace == [], "its jail may only be away for a moment"
    assert step([NEW, NEW, DEAD_OLD], cordoned).replace == ["cpu-2"]


def test_a_node_that_slurmctld_does_not_know_is_left() -> None:
    found = rollout.step([cpu(2)], {"cpu-0": NEW, "cpu-1": OLD}, [node("cpu-0")], [], now=NOW)
    assert (found.replace, found.drain.changed, found.done) == ([], False, True)


def test_it_comes_back_when_its_new_slurmd_has_registered() -> None:
    pod = rollout.Pod(stale=False, ready=True, started=NOW)
    assert resumed(step([OLD, OLD, pod], ours("cpu-2", started=NOW - 100))) == "", "slurmctld still speaks of the pod before"
    assert resumed(step([OLD, OLD, pod], ours("cpu-2", "DOWN", started=NOW + 1))) == ""
    assert resumed(step([OLD, OLD, pod], ours("cpu-2", started=NOW))) == "cpu-2"


@pytest.mark.parametrize(
    ("pod", "state", "reason"),
    [
        (BROKEN_NEW, ("DOWN", "NOT_RESPONDING"), "Not responding"),
        (rollout.Pod(stale=False, ready=False, ending=True), ("DOWN", "NOT_RESPONDING"), "Not responding"),
        (rollout.Pod(stale=False, ready=False, born=NOW - 100), ("IDLE", "DRAIN"), "ask bob"),
        (BROKEN_NEW, ("IDLE", "DRAIN"), "corral: sync: its machine is cordoned"),
    ],
)
def test_one_that_falls_ill_with_its_new_pod_is_no_reason_to_stop(pod: rollout.Pod, state: tuple[str, ...], reason: str) -> None:
    ill = node("cpu-0", *state, reason=reason, started=NOW - 50)
    found = step([pod, OLD, OLD], ill, most=2)
    assert (found.sets[0].starting, drained(found)) == ([], "cpu-2"), "it takes its place in the budget"
    found = step([pod, OLD, OLD], ill)
    assert (found.sets[0].starting, drained(found)) == ([], "")
    assert "cpu-[1-2]: left while cpu-0 is out of service (maxUnavailable 1)" in found.summary
    assert step([pod, OLD, OLD], ill, ours("cpu-2")).replace == [], "another template may not work either"


@pytest.mark.parametrize(
    ("pod", "live"),
    [
        (BROKEN_NEW, ours("cpu-0", "DOWN", "NOT_RESPONDING")),
        (BROKEN_NEW, node("cpu-0", "FUTURE", "NOT_RESPONDING")),
        (rollout.Pod(stale=False, ready=False, born=NOW), node("cpu-0", "IDLE", "DRAIN", reason="ask bob", started=NOW - 50)),
    ],
)
def test_one_that_never_came_into_service_with_its_new_pod_is_waited_for(pod: rollout.Pod, live: nodes.Node) -> None:
    assert step([pod, OLD, OLD], live, most=2).sets[0].starting == ["cpu-0"]


def test_of_a_set_that_has_stopped_no_further_node_is_begun_with() -> None:
    there = {"cpu-0": BROKEN_OLD, "cpu-1": OLD, "cpu-2": OLD, "cpu-3": BROKEN_NEW}
    live = [node("cpu-0"), node("cpu-1"), ours("cpu-2"), ours("cpu-3")]
    found = rollout.step([cpu(4, 4)], there, live, [], now=NOW, stopped=["cpu"])
    assert (drained(found), found.replace) == ("", ["cpu-2"]), "what was begun with goes on"
    assert "cpu-[0-1]: left, since a new pod of the set does not come up" in found.summary


def test_a_rollout_that_is_taken_back_gives_ours_back_and_only_ours() -> None:
    live = [
        ours("cpu-0", "ALLOCATED"),
        node("cpu-1", "IDLE", "DRAIN", reason="corral: scale: x"),
        node("cpu-2", "IDLE", "DRAIN", reason="ask bob"),
    ]
    assert resumed(step([NEW, NEW, NEW], *live, jobs=[job(7, "cpu-0")])) == "cpu-0"


def test_a_set_for_others_is_told_and_left_alone() -> None:
    found = step([OLD, OLD, BROKEN_NEW], ours("cpu-0"), type="OnDelete")
    assert (drained(found), resumed(found), found.replace) == ("", "cpu-0", [])
    assert "cpu-[0-1]: waits until somebody deletes the pod (OnDelete)" in found.summary
    assert step([OLD, OLD, BROKEN_NEW], type="OnDelete").done


def test_maintenance_waits_for_its_window_and_gives_back_what_was_drained_after_it() -> None:
    found = step([OLD, OLD, OLD], ours("cpu-2", "ALLOCATED"), type="Maintenance", jobs=[job(7, "cpu-2")])
    assert (drained(found), resumed(found), found.replace) == ("", "cpu-2", [])
    assert "waits for a reservation with the flag MAINT" in found.summary


def test_in_the_window_so_many_pods_are_replaced_at_once() -> None:
    inside = [node(f"cpu-{number}", "IDLE", "MAINTENANCE") for number in range(3)]
    assert drained(step([OLD, OLD, OLD], *inside, type="Maintenance", most=2)) == "cpu-[1-2]"
    assert drained(step([OLD, OLD, None], *inside, type="Maintenance", most=2)) == "cpu-1"
    assert drained(step([OLD, OLD, OLD], *inside[:1], type="Maintenance", most=2)) == "cpu-0", "only those in the window"


def test_a_pod_that_is_not_ready_waits_for_the_window_and_one_that_does_not_run_does_not() -> None:
    found = step([BROKEN_OLD, OLD, OLD], ours("cpu-0"), type="Maintenance")
    assert (drained(found), resumed(found), found.replace) == ("", "cpu-0", [])
    assert drained(step([BROKEN_OLD, DEAD_OLD, OLD], type="Maintenance")) == "cpu-1"
    assert step([BROKEN_OLD, DEAD_OLD, OLD], ours("cpu-1"), type="Maintenance").replace == ["cpu-1"]
    inside = [node(f"cpu-{number}", "IDLE", "MAINTENANCE") for number in range(3)]
    assert drained(step([BROKEN_OLD] * 3, *inside, type="Maintenance")) == "cpu-2", "not all that are not ready at once"


def test_what_the_health_check_reserves_is_no_window() -> None:
    window, outage = (
        [dataclasses.replace(node(f"cpu-{number}", "IDLE", "MAINTENANCE"), reservation=name) for number in range(3)]
        for name in ("window", "corral-jail-outage")
    )
    assert drained(step([OLD, OLD, OLD], *window, type="Maintenance")) == "cpu-2"
    assert drained(step([OLD, OLD, OLD], *outage, type="Maintenance")) == ""


@pytest.mark.parametrize(
    ("policy", "since", "told"),
    [
        ("Wait", 1, []),
        ("Requeue", NOW - 59, []),
        ("Requeue", NOW - 60, [["scontrol", "requeue", "7"]]),
        ("Cancel", NOW - 60, [["scancel", "7"]]),
        ("Cancel", 0, []),
    ],
)
def test_the_deadline_counts_from_the_drain(policy: str, since: float, told: list[list[str]]) -> None:
    found = step([NEW, OLD, OLD], ours("cpu-2", "MIXED", since=since), jobs=[job(7, "cpu-[1-2]")], policy=policy, deadline=60)
    assert [command for command, _what in found.actions] == told


def test_jobs_of_a_partition_have_a_policy_of_their_own() -> None:
    spot = draining.Rule("Requeue", 60, partitions=frozenset({"spot"}))
    jobs = [dataclasses.replace(job(7, "cpu-2"), partitions=frozenset({"spot"})), job(8, "cpu-2")]
    for since, told in ((NOW - 60, [["scontrol", "requeue", "7"]]), (NOW - 59, [])):
        found = step([NEW, OLD, OLD], ours("cpu-2", "MIXED", since=since), jobs=jobs, rules=(spot,))
        assert [command for command, _what in found.actions] == told


def test_jobs_on_a_node_that_others_drained_are_waited_for_whatever_the_policy() -> None:
    live = node("cpu-2", "MIXED", "DRAIN", reason="ask bob", since=1)
    assert step([NEW, NEW, OLD], live, jobs=[job(7, "cpu-2")], policy="Cancel", deadline=0).actions == []


def two_places(first: list[rollout.Pod], second: list[rollout.Pod], *live: nodes.Node, jobs: list[draining.Task] | None = None) -> str:
    sets = [cpu(len(first), 2, name="a", place="leaf1"), cpu(len(second), 2, name="b", place="leaf2")]
    there = {f"a-{number}": pod for number, pod in enumerate(first)} | {f"b-{number}": pod for number, pod in enumerate(second)}
    given_ones = {found.name: found for found in live}
    return drained(rollout.step(sets, there, [given_ones.get(name) or node(name) for name in there], jobs or [], now=NOW))


def test_one_place_comes_after_the_other() -> None:
    assert two_places([OLD, OLD], [OLD, OLD]) == "a-[0-1]"
    assert two_places([BROKEN_NEW, OLD], [OLD, OLD], ours("a-0")) == "a-1"
    assert two_places([NEW, NEW], [OLD, OLD]) == "b-[0-1]"


def test_a_place_that_only_waits_for_jobs_does_not_hold_up_the_next() -> None:
    jobs = [job(7, "a-[0-1]")]
    assert two_places([OLD, OLD], [OLD, OLD], ours("a-0", "ALLOCATED"), ours("a-1", "ALLOCATED"), jobs=jobs) == "b-[0-1]"


def test_no_nodes_at_all_is_no_answer() -> None:
    with pytest.raises(CorralError, match="no nodes at all"):
        rollout.step([cpu()], {}, [], [], now=NOW)


STATES = st.sampled_from(
    [("IDLE",), ("MIXED",), ("ALLOCATED",), ("IDLE", "COMPLETING"), ("DOWN",), ("DOWN", "NOT_RESPONDING"), ("IDLE", "DRAIN"), ("MIXED", "DRAIN"),
     ("IDLE", "MAINTENANCE"), ("DOWN", "DRAIN"), ("UNKNOWN",)]
)  # fmt: skip
REASONS = st.sampled_from([OURS, "ask bob", "corral: scale: x", "Not responding", ""])
PODS = st.sampled_from([None, OLD, NEW, BROKEN_OLD, BROKEN_NEW, DEAD_OLD, rollout.Pod(stale=True, ready=False, ending=True)])


@given(
    world=st.lists(st.tuples(PODS, STATES, REASONS, st.booleans()), min_size=1, max_size=6),
    most=st.integers(1, 4),
    kind=st.sampled_from(["RollingUpdate", "Maintenance", "OnDelete"]),
)
def test_whatever_the_world_is_like(world: list[tuple[rollout.Pod | None, tuple[str, ...], str, bool]], most: int, kind: str) -> None:
    live = {f"cpu-{number}": node(f"cpu-{number}", *state, reason=reason) for number, (_pod, state, reason, _job) in enumerate(world)}
    jobs = [job(number, f"cpu-{number}") for number, (*_more, has_job) in enumerate(world, 1) if has_job and number < len(world)]
    pods = [pod for pod, *_more in world]
    found = step(pods, *live.values(), jobs=jobs, most=most, type=kind)
    there = dict(zip(live, pods, strict=True))
    has_job = {name for task in jobs for name in task.nodes}
    for name in found.replace:
        assert live[name].drained and not live[name].busy and name not in has_job, "a pod goes that may have a job"
        assert there[name] in (OLD, BROKEN_OLD, DEAD_OLD), "a pod goes for nothing"
    for name in [*found.drain.after, *found.resume.after]:
        assert not (live[name].drained and live[name].reason != OURS), "somebody else's drain is touched"
    for name in found.drain.after:
        assert there[name] in (OLD, BROKEN_OLD, DEAD_OLD), "a node is drained for nothing"
        assert name not in found.resume.after, "a node is given back and drained again"
    well = [name for name, pod in there.items() if pod in (OLD, NEW) and live[name].answers and not live[name].out]
    taken = [name for name in found.drain.after if name in well]
    if taken and kind == "RollingUpdate":
        assert len(live) - len(well) + len(taken) <= most, "more nodes are taken out than may be"
    if any(there[name] == BROKEN_OLD for name in found.drain.after) and kind == "RollingUpdate":
        # Those that slurmctld does not speak of as FUTURE are not in this world.
        assert len(live) - len(well) <= most, "a node that may come back is taken out, with too many others"
    running = [name for name in found.replace if there[name] != DEAD_OLD]
    away = [name for name, pod in there.items() if pod is None or pod.ending]
    assert not running or len(away) + len(running) <= most, "more pods go at once than may"
    drains = [name for name, one in live.items() if one.drained and one.reason == OURS and name not in found.resume.after]
    begun = [name for name in drains if there[name] == OLD and live[name].answers and name not in found.replace]
    assert kind == "OnDelete" or not begun or len(drains) <= most, "more nodes that are well stay drained than may"
    assert kind != "OnDelete" or not (found.replace or found.drain.changed)


@settings(max_examples=60)
@given(
    size=st.integers(1, 8),
    most=st.integers(1, 4),
    works=st.booleans(),
    busy=st.sets(st.integers(0, 7)),
    bobs=st.sets(st.integers(0, 7)),
    data=st.data(),
)
def test_any_order_of_events_ends_with_all_replaced_or_with_few_lost(
    size: int, most: int, works: bool, busy: set[int], bobs: set[int], data: st.DataObject
) -> None:
    """A world that moves: jobs end, pods come up or never do, runs look when they like. A template that works reaches all; another costs at most so many."""
    names = [f"cpu-{number}" for number in range(size)]
    pods: dict[str, rollout.Pod | None] = dict.fromkeys(names, OLD)
    jobs = {names[number] for number in busy if number < size}
    drains = {names[number]: "ask bob" for number in bobs if number < size}
    theirs = dict(drains)
    for moment in range(8 * size):
        moves = moment >= 3 * size  # in the end all that is to come does
        live = [
            node(name, "ALLOCATED" if name in jobs else "IDLE", *(["DRAIN"] if name in drains else []), reason=drains.get(name, ""))
            for name in names
        ]
        found = step(
            [pods[name] for name in names],
            *live,
            jobs=[job(number, name) for number, name in enumerate(names, 1) if name in jobs],
            most=most,
        )
        drains |= dict.fromkeys(found.drain.after, OURS)
        for name in found.resume.after:
            del drains[name]
        for name in found.replace:
            assert name not in jobs, "a job was lost"
            pods[name] = None
        for name, pod in pods.items():
            if pod is None and (moves or data.draw(st.booleans())):
                pods[name] = BROKEN_NEW
            elif pod == BROKEN_NEW and works:
                pods[name] = NEW
        if jobs and (moves or data.draw(st.booleans())):
            jobs.discard(min(jobs))
    lost = [name for name in names if pods[name] not in (OLD, NEW)]
    assert {name: reason for name, reason in drains.items() if reason == "ask bob"} == theirs
    if works:
        assert not lost
        # Nodes that others keep out may leave no room for those in service.
        assert all(pods[name] == NEW for name in names) or len(theirs) >= most
    else:
        assert len(lost) <= most


FORMER = rollout.Pod(stale=False, ready=True, former=True)


def test_a_node_with_the_line_of_its_former_pod_is_drained_within_the_limit() -> None:
    found = step([FORMER, FORMER, OLD], most=1)
    assert drained(found) == "cpu-2"
    found = step([FORMER, FORMER, NEW], most=1)
    assert (drained(found), found.config_updates, found.done) == ("cpu-1", [], False)
    found = step([FORMER, FORMER, NEW], node("cpu-0", "MIXED"), ours("cpu-1"), jobs=[job(1, "cpu-0")], most=1)
    assert (drained(found), resumed(found), found.config_updates) == ("", "", ["cpu-1"])
    found = step([FORMER, NEW, NEW], ours("cpu-0", "MIXED"), jobs=[job(1, "cpu-0")], most=1)
    assert (found.config_updates, list(found.waiting), resumed(found)) == ([], ["cpu-0"], "")


@pytest.mark.parametrize("pod", [FORMER, dataclasses.replace(FORMER, ready=False)])
def test_it_needs_not_come_up_first(pod: rollout.Pod) -> None:
    """One with fewer CPUs than its line says is refused by slurmctld until the line is another one."""
    found = step([pod, NEW], ours("cpu-0", "IDLE", "INVALID_REG"))
    assert (found.config_updates, found.sets[0].starting) == (["cpu-0"], [])


def test_where_somebody_deletes_the_pods_the_line_waits_for_somebody_who_drains() -> None:
    found = step([FORMER, FORMER], node("cpu-1", "IDLE", "DRAIN", reason="ask bob"), type="OnDelete")
    assert (drained(found), found.config_updates) == ("", ["cpu-1"])
    assert "cpu-[0-1]: has the CPUs, memory and GPUs of its former pod until somebody drains it and it is free" in found.summary


def test_in_no_window_it_waits_for_one() -> None:
    found = step([FORMER, FORMER], node("cpu-1", "IDLE", "MAINTENANCE"), type="Maintenance", most=2)
    assert drained(found) == "cpu-1"


@pytest.mark.parametrize("pod", [FORMER, OLD])
def test_a_drain_that_ends_by_itself_is_taken_over_before_anything_is_done(pod: rollout.Pod) -> None:
    """Else a job could start on the node between the look and the deed."""
    found = step([pod, NEW], node("cpu-0", "IDLE", "DRAIN", reason="corral: jail: it cannot be entered"))
    assert (drained(found), found.config_updates, found.replace) == ("cpu-0", [], [])


@pytest.mark.parametrize("kind", ["RollingUpdate", "OnDelete"])
@pytest.mark.parametrize("state", [("DOWN", "INVALID_REG"), ("IDLE", "DRAIN", "INVALID_REG"), ("FUTURE",), ("FUTURE", "INVALID_REG")])
def test_one_that_slurmctld_refuses_for_its_former_line_gets_the_new_one_at_once(state: tuple[str, ...], kind: str) -> None:
    """Its pod was made anew by itself and has fewer CPUs: without another line it never comes into service, nor is it drained by anybody."""
    found = step([dataclasses.replace(FORMER, ready=False), OLD], node("cpu-0", *state, reason="Low CPUs"), type=kind)
    assert (found.config_updates, drained(found)) == (["cpu-0"], "")


def test_one_that_is_down_is_drained_before_its_line_changes_but_for_one_that_somebody_set_down() -> None:
    found = step([FORMER, NEW], node("cpu-0", "DOWN", "NOT_RESPONDING", reason="Not responding"))
    assert (drained(found), found.config_updates) == ("cpu-0", [])
    found = step([FORMER, NEW], node("cpu-0", "DOWN", reason="fan"))
    assert (drained(found), found.config_updates) == ("", [])


@pytest.mark.parametrize(
    ("age", "state", "pods", "waits", "back"),
    [
        (9, ("IDLE", "DRAIN", "INVALID_REG"), [NEW, OLD], True, ""),
        (9, ("IDLE", "DRAIN", "INVALID_REG"), [NEW, FORMER], False, ""),
        (999, ("IDLE", "DRAIN", "INVALID_REG"), [NEW, OLD], False, ""),
        (9, ("IDLE", "DRAIN"), [NEW, OLD], False, "cpu-0"),
        (999, ("IDLE", "DRAIN"), [NEW, NEW], False, "cpu-0"),
        (9, ("IDLE", "DRAIN", "NOT_RESPONDING"), [NEW, OLD], True, ""),
    ],
)
def test_slurmctld_refuses_a_new_pod_for_a_moment_and_forgets_whose_the_drain_was(
    age: int, state: tuple[str, ...], pods: list[rollout.Pod], waits: bool, back: str
) -> None:
    """It registers between its new line and its own knowing it: "gres/gpu count reported lower than configured" stands where our reason stood."""
    reason = "gres/gpu count reported lower than configured (0 < 2)"
    born = [dataclasses.replace(pod, born=NOW - age, started=NOW - age) for pod in pods]
    found = step([*born], node("cpu-0", *state, reason=reason, started=NOW - age + 1))
    assert (found.sets[0].starting, resumed(found)) == (["cpu-0"] if waits else [], back)
    assert found.done is not (waits or bool(back) or bool(found.drain.changed))


def test_what_never_registered_and_runs_nothing_goes_without_a_drain() -> None:
    assert step([DEAD_OLD, OLD], node("cpu-0", "FUTURE")).replace == ["cpu-0"]
    assert drained(step([DEAD_OLD, NEW], node("cpu-0", "FUTURE"))) == ""
    for pod, live, jobs in (
        (BROKEN_OLD, node("cpu-0", "FUTURE"), []),
        (DEAD_OLD, node("cpu-0", "FUTURE"), [job(1, "cpu-0")]),
        (DEAD_OLD, node("cpu-0", "IDLE", "INVALID_REG"), []),
        (DEAD_OLD, node("cpu-0", "DOWN", "NOT_RESPONDING", reason="Not responding"), []),
    ):
        found = step([pod, NEW], live, jobs=jobs)
        assert (drained(found), found.replace) == ("cpu-0", []), "a job may be there"


def test_where_somebody_deletes_the_pods_nobody_waits_for_the_jobs_of_a_drained_one() -> None:
    found = step([FORMER, NEW], node("cpu-0", "MIXED", "DRAIN", reason="ask bob"), jobs=[job(1, "cpu-0")], type="OnDelete")
    assert (found.done, found.waiting, found.config_updates) == (True, {}, [])
