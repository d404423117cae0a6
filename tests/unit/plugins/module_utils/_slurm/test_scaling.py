# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes go and which stay, by what slurmctld says of nodes and of jobs; and that doubt keeps a node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import draining, hostlist, nodes, scaling

NOW = 1_800_000_000.0
OURS = scaling.REASON
FOUR_TO_TWO = scaling.Size("cpu", 4, 2, "Wait", 60)


def node(name: str, *state: str, reason: str = "", since: float = 0) -> nodes.Node:
    row = {"name": name, "state": list(state), "reason": reason, "reason_changed_at": {"set": True, "number": int(since)}}
    return nodes.parse(json.dumps({"nodes": [row]}))[0]


def job(number: int, on: str, *state: str, **more: Any) -> draining.Task:
    row = {"job_id": number, "name": "train", "user_name": "ada", "job_state": list(state or ("RUNNING",)), "nodes": on, **more}
    return draining.tasks(json.dumps({"jobs": [row]}))[0]


def gone(number: int, **more: Any) -> nodes.Node:
    """A victim that was drained and is free."""
    return node(f"cpu-{number}", "IDLE", "DRAIN", reason=OURS, **more)


KEPT = [node("cpu-0", "IDLE"), node("cpu-1", "ALLOCATED")]


def step(*live: nodes.Node, size: scaling.Size = FOUR_TO_TWO, jobs: list[draining.Task] | None = None, **more: Any) -> scaling.Step:
    return scaling.step([size], [*KEPT, *live], jobs or [], now=NOW, **more)


def commands(found: scaling.Step) -> list[list[str]]:
    return [*found.resume.commands(), *found.drain.commands(), *(command for command, _what in found.actions)]


def test_victims_are_the_highest_numbers_and_are_drained_before_any_goes() -> None:
    found = step(node("cpu-2", "IDLE"), node("cpu-3", "IDLE"))
    assert commands(found) == [["scontrol", "update", "nodename=cpu-[2-3]", "state=drain", f"reason={OURS}"]]
    assert found.stay == {"cpu": 4}, "a node that is not drained yet may get a job at any moment"


def test_drained_and_free_ones_go() -> None:
    found = step(gone(2), gone(3))
    assert (commands(found), found.stay, found.summary) == ([], {"cpu": 2}, "")


def test_check_mode_sees_idle_victims_go_and_busy_ones_stay() -> None:
    found = step(node("cpu-2", "MIXED"), node("cpu-3", "IDLE"), jobs=[job(7, "cpu-2")], taken=True)
    assert (found.stay, found.summary) == ({"cpu": 3}, "waiting for job 7 (train of ada) on cpu-2")


def test_a_free_node_below_a_busy_one_waits_for_it() -> None:
    assert step(gone(2), node("cpu-3", "ALLOCATED", "DRAIN", reason=OURS), jobs=[job(7, "cpu-3")]).stay == {"cpu": 4}


@pytest.mark.parametrize(
    ("state", "jobs"),
    [
        (("IDLE", "COMPLETING", "DRAIN"), []),
        (("ALLOCATED", "DRAIN"), []),
        (("MIXED", "DRAIN"), []),
        (("IDLE", "DRAIN"), [job(7, "cpu-[1-3]")]),
        (("IDLE", "DRAIN"), [job(7, "cpu-3", "SUSPENDED")]),
        (("IDLE", "DRAIN"), [job(7, "cpu-3", "COMPLETED", "COMPLETING")]),
        (("DOWN", "NOT_RESPONDING", "DRAIN"), [job(7, "cpu-3")]),
    ],
)
def test_one_of_two_answers_is_enough_to_keep_a_node(state: tuple[str, ...], jobs: list[draining.Task]) -> None:
    found = step(gone(2), node("cpu-3", *state, reason=OURS), jobs=jobs)
    assert found.stay == {"cpu": 4}
    assert found.summary


@pytest.mark.parametrize("state", [("DOWN",), ("IDLE", "DRAIN"), ("DOWN", "DRAIN", "NOT_RESPONDING")])
def test_a_drain_of_others_is_not_touched_and_its_node_goes_when_it_is_free(state: tuple[str, ...]) -> None:
    found = step(gone(2), node("cpu-3", *state, reason="ask bob"))
    assert (commands(found), found.stay) == ([], {"cpu": 2})


def test_a_node_that_slurm_itself_set_down_is_drained_so_that_it_does_not_come_back() -> None:
    found = step(gone(2), node("cpu-3", "DOWN", "NOT_RESPONDING", reason="Not responding"))
    assert commands(found)[0][2] == "nodename=cpu-3"


def test_a_scale_down_that_is_taken_back_gives_ours_back_and_only_ours() -> None:
    live = [gone(1), node("cpu-2", "IDLE", "DRAIN", reason="corral: admin: fan"), node("cpu-3", "IDLE", "DRAIN", reason="ask bob")]
    found = scaling.step([scaling.Size("cpu", 4, 4, "Wait", 60)], [KEPT[0], *live], [], now=NOW)
    assert (commands(found), found.stay) == ([["scontrol", "update", "nodename=cpu-1", "state=resume"]], {})


def test_half_of_it_taken_back() -> None:
    found = scaling.step([scaling.Size("cpu", 4, 3, "Wait", 60)], [*KEPT, gone(2), gone(3)], [], now=NOW)
    assert (commands(found), found.stay) == ([["scontrol", "update", "nodename=cpu-2", "state=resume"]], {"cpu": 3})


def test_a_second_look_has_nothing_to_tell() -> None:
    busy = node("cpu-3", "ALLOCATED", "DRAIN", reason=OURS)
    assert commands(step(gone(2), busy, jobs=[job(7, "cpu-3")])) == []


@pytest.mark.parametrize(
    ("policy", "since", "told"),
    [
        ("Wait", 0, []),
        ("Requeue", NOW - 59, []),
        ("Requeue", NOW - 60, [["scontrol", "requeue", "7"]]),
        ("Cancel", NOW - 3600, [["scancel", "7"]]),
        ("Cancel", 0, []),
    ],
)
def test_the_deadline_counts_from_the_drain(policy: str, since: float, told: list[list[str]]) -> None:
    """A drain whose time is not known has no deadline."""
    size = scaling.Size("cpu", 4, 2, policy, 60)
    found = step(gone(2, since=since), node("cpu-3", "MIXED", "DRAIN", reason=OURS, since=since), size=size, jobs=[job(7, "cpu-[2-3]")])
    assert commands(found) == told


SPOT = draining.Rule("Requeue", 60, partitions=frozenset({"spot"}))
SCAVENGER = draining.Rule("Cancel", 0, qos=frozenset({"scavenger", "idle"}))
BOTH = draining.Rule("Wait", 0, partitions=frozenset({"spot"}), qos=frozenset({"paid"}))


@pytest.mark.parametrize(
    ("partition", "qos", "told"),
    [
        ("main", "normal", []),
        ("spot", "normal", [["scontrol", "requeue", "7"]]),
        ("main", "idle", [["scancel", "7"]]),
        ("spot", "idle", [["scontrol", "requeue", "7"]]),
        ("spot", "paid", []),
        ("main", "paid", []),
    ],
)
def test_jobs_of_a_partition_or_qos_have_a_policy_of_their_own_and_the_first_that_fits_counts(
    partition: str, qos: str, told: list[list[str]]
) -> None:
    size = scaling.Size("cpu", 4, 2, "Wait", 0, (BOTH, SPOT, SCAVENGER))
    busy = node("cpu-3", "MIXED", "DRAIN", reason=OURS, since=NOW - 60)
    assert commands(step(gone(2), busy, size=size, jobs=[job(7, "cpu-3", partition=partition, qos=qos)])) == told


def test_a_policy_of_their_own_has_a_deadline_of_its_own() -> None:
    size = scaling.Size("cpu", 4, 2, "Cancel", 10, (SPOT,))
    busy = node("cpu-3", "MIXED", "DRAIN", reason=OURS, since=NOW - 59)
    jobs = [job(7, "cpu-3", partition="spot"), job(8, "cpu-3", partition="main")]
    assert commands(step(gone(2), busy, size=size, jobs=jobs)) == [["scancel", "8"]]


def test_jobs_on_a_node_that_others_drained_are_waited_for_whatever_the_policy() -> None:
    size = scaling.Size("cpu", 4, 2, "Cancel", 0)
    found = step(gone(2), node("cpu-3", "MIXED", "DRAIN", reason="ask bob", since=1), size=size, jobs=[job(7, "cpu-3")])
    assert commands(found) == []


def test_a_job_that_ends_already_is_not_told_again() -> None:
    size = scaling.Size("cpu", 4, 2, "Requeue", 0)
    busy = node("cpu-3", "IDLE", "COMPLETING", "DRAIN", reason=OURS, since=1)
    assert commands(step(gone(2), busy, size=size, jobs=[job(7, "cpu-3", "PENDING", "COMPLETING")])) == []


def test_a_task_of_an_array_is_named_alone() -> None:
    """The number of an array's last task is that of the whole array too."""
    size = scaling.Size("cpu", 4, 2, "Cancel", 0)
    task = job(40, "cpu-3", array_job_id={"set": True, "number": 40}, array_task_id={"set": True, "number": 9})
    assert commands(step(gone(2), node("cpu-3", "MIXED", "DRAIN", reason=OURS, since=1), size=size, jobs=[task])) == [["scancel", "40_9"]]


def test_a_node_that_slurmctld_does_not_know_stays() -> None:
    found = step(gone(2))
    assert found.stay == {"cpu": 4}
    assert found.summary == "slurmctld does not know cpu-3, so what runs there is not known"


@pytest.mark.parametrize(("lines", "stays"), [(("cpu-0", "cpu-1", "cpu-2", "cpu-3"), 4), (("cpu-0", "cpu-1", "cpu-2"), 2)])
def test_it_goes_only_when_the_configuration_never_had_it_either(lines: tuple[str, ...], stays: int) -> None:
    found = step(gone(2), lines=lines)
    assert (found.stay, bool(found.unknown)) == ({"cpu": stays}, stays == 4)


def test_no_nodes_at_all_is_no_answer() -> None:
    with pytest.raises(CorralError, match="no nodes at all"):
        scaling.step([FOUR_TO_TWO], [], [], now=NOW)


@pytest.mark.parametrize(
    "rows", ["", "{}", '{"jobs": [{"job_id": 1}]}', '{"jobs": [{"job_id": 1, "job_state": ["RUNNING"], "nodes": "cpu-["}]}']
)
def test_nonsense_of_squeue_is_an_error(rows: str) -> None:
    with pytest.raises(CorralError):
        draining.tasks(rows)


def test_a_victim_without_a_state_is_an_error() -> None:
    with pytest.raises(CorralError, match="no state"):
        step(gone(2), node("cpu-3"))


def test_many_jobs_are_told_shortly() -> None:
    found = step(gone(2), node("cpu-3", "MIXED", "DRAIN", reason=OURS), jobs=[job(number, "cpu-3") for number in range(1, 9)])
    assert found.summary.endswith("job 5 (train of ada) on cpu-3; 3 more jobs")


def named(number: str, required: str = "", excluded: str = "", state: str = "PENDING", on: str = "", name: str = "train") -> str:
    return f"M|{number}|{required}|{excluded}|{on}|{state}|ada|main,spot|normal|{name}\n"


def naming(*lines: str, nodes: tuple[str, ...] = ("cpu-2", "cpu-3")) -> list[draining.Named]:
    return draining.naming("".join(lines), "M", nodes)


def test_the_jobs_that_name_nodes_that_go() -> None:
    found = naming(
        named("1"),
        named("2", "(null)", "(null)"),
        named("3", "cpu-[0-1]"),
        named("4_7", "cpu-[1-2]", "cpu-0", "RUNNING", "cpu-1"),
        named("5+1", "", "cpu-3"),
    )
    assert [(one.task.number, one.required, one.excluded) for one in found] == [
        ("4_7", {"cpu-1", "cpu-2"}, {"cpu-0"}),
        ("5+1", frozenset(), {"cpu-3"}),
    ]
    first = found[0].task
    assert (first.name, first.user, first.state, first.nodes, first.partitions, first.qos) == (
        "train", "ada", {"RUNNING"}, {"cpu-1"}, {"main", "spot"}, "normal",
    )  # fmt: skip


@pytest.mark.parametrize("text", ["x", "squeue: error\nM|1|||||\n", "M|1|||||\n", named("1", state=""), named("x"), named("1", "cpu-[")])
def test_nonsense_of_squeues_lines_is_an_error(text: str) -> None:
    with pytest.raises(CorralError):
        naming(text)


def test_a_name_of_several_lines_is_no_other_job() -> None:
    """What a job is called, its user says: the next line would be an order about somebody else's job."""
    [one] = naming(named("1", "cpu-2", name="a|b\n2|cpu-3|||PENDING|bob|main|normal|x"))
    assert (one.task.number, one.task.name) == ("1", "a|b 2|cpu-3|||PENDING|bob|main|normal|x")
    assert naming("") == []


def test_a_job_that_requires_one_victim_and_is_on_another_keeps_both() -> None:
    busy = node("cpu-2", "MIXED", "DRAIN", reason=OURS)
    found = step(busy, gone(3), jobs=[job(7, "cpu-2")], named=naming(named("7", "cpu-[2-3]", state="RUNNING", on="cpu-2")))
    assert (found.stay, {name: len(tasks) for name, tasks in found.waiting.items()}) == ({"cpu": 4}, {"cpu-2": 1, "cpu-3": 1})
    assert found.summary == "waiting for job 7 (train of ada) on cpu-2"


def test_jobs_that_require_nodes_are_named_with_these() -> None:
    found = step(gone(2), gone(3), named=naming(named("7", "cpu-[0-3]"), named("8", "cpu-2", state="RUNNING", on="cpu-0")))
    assert found.stay == {"cpu": 4}
    assert found.summary == (
        "waiting for job 7 (train of ada), which names cpu-[2-3] (--nodelist); job 8 (train of ada), which names cpu-2 (--nodelist)"
    )


@pytest.mark.parametrize(
    ("policy", "state", "since", "told"),
    [
        ("Wait", "PENDING", 60, []),
        ("Requeue", "PENDING", 59, []),
        ("Requeue", "PENDING", 60, [["scontrol", "update", "reqnodelist=cpu-0", "jobid=7"]]),
        ("Requeue", "SPECIAL_EXIT", 60, [["scontrol", "update", "reqnodelist=cpu-0", "jobid=7"]]),
        ("Requeue", "RUNNING", 60, [["scontrol", "requeue", "7"]]),
        ("Requeue", "COMPLETING", 60, []),
        ("Cancel", "PENDING", 60, [["scancel", "7"]]),
        ("Cancel", "RUNNING", 60, [["scancel", "7"]]),
    ],
)
def test_the_deadline_of_jobs_that_require_nodes(policy: str, state: str, since: float, told: list[list[str]]) -> None:
    """That it excludes another node is not told besides: a job is told one thing a call."""
    live = [gone(number, since=NOW - since) for number in (2, 3)]
    size = scaling.Size("cpu", 4, 2, policy, 60)
    found = step(*live, size=size, named=naming(named("7", "cpu-[0,2]", "cpu-3", state)))
    assert (commands(found), found.stay) == (told, {"cpu": 3})


def test_a_pending_job_that_requires_only_nodes_that_go_may_run_anywhere() -> None:
    size = scaling.Size("cpu", 4, 2, "Wait", 0, (SPOT,))
    found = step(gone(2, since=NOW - 60), gone(3, since=NOW - 60), size=size, named=naming(named("7_1", "cpu-[2-3]")))
    assert found.actions == [
        (["scontrol", "update", "reqnodelist=", "jobid=7_1"], "let job 7_1 (train of ada) run without cpu-[2-3]"),
    ]


def test_a_job_that_excludes_a_node_does_not_keep_it_and_tasks_of_an_array_are_told_together() -> None:
    lines = [named(f"7_{number}", "", "cpu-[1-3]") for number in (1, 2, 3, 9)]
    found = step(gone(2), node("cpu-3", "IDLE"), named=naming(*lines, named("8", "", "cpu-2"), named("9", "", "cpu-2", "RUNNING", "cpu-0")))
    assert [command for command, _what in found.actions] == [
        ["scontrol", "update", "excnodelist=cpu-1", "jobid=7_[1-3,9]"],
        ["scontrol", "update", "excnodelist=", "jobid=8"],
    ]
    assert found.summary == "waiting for cpu-3, which is not idle yet", "not drained yet"
    assert step(gone(2), gone(3), named=naming(*lines)).stay == {"cpu": 2}


def test_what_a_job_excludes_is_told_when_nothing_is_waited_for() -> None:
    lines = naming(named("7", "", "cpu-2"), named("8", "", "cpu-3"))
    found = step(gone(2), node("cpu-3", "MIXED", "DRAIN", reason=OURS), jobs=[job(9, "cpu-3")], named=lines)
    assert found.actions == []
    assert len(step(node("cpu-2", "MIXED", "DRAIN", reason=OURS), gone(3), jobs=[job(9, "cpu-2")], named=lines).actions) == 1


CONFIG = """# a comment
ClusterName=demo
NodeName=cpu-[0-3] NodeAddr=demo-cpu-[0-3].w.svc CPUs=2 RealMemory=896 Feature=a,b State=UNKNOWN
NodeName=big-0 NodeAddr=demo-big-0.w.svc CPUs=4 State=UNKNOWN
PartitionName=main Nodes=cpu-[0-3],big-0 Default=YES MaxTime=INFINITE State=UP
PartitionName=big Nodes=big-0 Default=NO State=UP
PartitionName=none Nodes="" Default=NO State=UP
"""


def test_what_must_stay_of_the_configuration() -> None:
    sizes = [FOUR_TO_TWO, scaling.Size("big", 1, 0, "Wait", 0)]
    kept = scaling.retained_config(CONFIG, sizes, {"cpu": 3, "big": 1})
    assert [dict(pairs) for pairs in kept["nodes"]] == [
        {"NodeName": "cpu-2", "NodeAddr": "demo-cpu-2.w.svc", "CPUs": "2", "RealMemory": "896", "Feature": "a,b", "State": "UNKNOWN"},
        {"NodeName": "big-0", "NodeAddr": "demo-big-0.w.svc", "CPUs": "4", "State": "UNKNOWN"},
    ]
    assert [(one["name"], one["nodes"]) for one in kept["partitions"]] == [("main", "big-0,cpu-2"), ("big", "big-0")]


def test_the_gpus_of_a_node_that_must_stay_stay_with_it() -> None:
    gres = "AutoDetect=off\nNodeName=cpu-[0-3] AutoDetect=off Name=gpu File=/dev/corral-gpu/[0-1]\nNodeName=big-0 Name=tape Count=2\n"
    kept = scaling.retained_config(CONFIG, [FOUR_TO_TWO], {"cpu": 3}, gres=gres)
    assert [dict(pairs) for pairs in kept["gres"]] == [
        {"NodeName": "cpu-2", "AutoDetect": "off", "Name": "gpu", "File": "/dev/corral-gpu/[0-1]"}
    ]


def test_the_jail_of_a_partition_that_must_stay_stays_with_it() -> None:
    plugstack = "# by corral\nrequired /opt/x.so jail=/mnt/jail jail.other=/mnt/jails/other jail.free=/mnt/jails/free partition.big=other\n"
    kept = scaling.retained_config(CONFIG, [scaling.Size("big", 1, 0, "Wait", 0)], {"big": 1}, plugstack=plugstack)
    assert [(one["name"], one.get("jail")) for one in kept["partitions"]] == [
        ("main", None),
        ("big", [["partition.big", "other"], ["jail.other", "/mnt/jails/other"]]),
    ]


def test_a_node_that_must_stay_and_has_no_line_is_an_error() -> None:
    with pytest.raises(CorralError, match="no line of cpu-2"):
        scaling.retained_config("ClusterName=demo\n", [FOUR_TO_TWO], {"cpu": 3})
    assert scaling.retained_config("ClusterName=demo\n", [FOUR_TO_TWO], {"cpu": 3}, ["cpu-2"]) == {
        "nodes": [],
        "partitions": [],
    }


def test_the_line_of_a_node_whose_pod_ends_stays_and_needs_none() -> None:
    kept = scaling.retained_config(CONFIG, [FOUR_TO_TWO], {"cpu": 2}, ending=["cpu-3", "cpu-9"])
    assert [dict(pairs)["NodeName"] for pairs in kept["nodes"]] == ["cpu-3"]
    assert [(one["name"], one["nodes"]) for one in kept["partitions"]] == [("main", "cpu-3")]


def test_nothing_stays_when_all_can_go() -> None:
    assert scaling.retained_config(CONFIG, [FOUR_TO_TWO], {"cpu": 2}) == {}


def test_names_and_addresses_stay_side_by_side() -> None:
    """Of a hundred nodes, ninety must stay: the ranges are in one order."""
    text = "NodeName=n-[0-99] NodeAddr=c-n-[0-99].w CPUs=1\n"
    pairs = dict(scaling.retained_config(text, [scaling.Size("n", 100, 5, "Wait", 0)], {"n": 95})["nodes"][0])
    assert hostlist.expand(pairs["NodeAddr"]) == [f"c-{name}.w" for name in hostlist.expand(pairs["NodeName"])]
    assert pairs["NodeName"] == "n-[5-94]"


@pytest.mark.parametrize(
    "live",
    [
        node("cpu-3", "IDLE", "DRAIN", reason="corral: jail: it cannot be entered"),
        node("cpu-3", "IDLE", "DRAIN", "INVALID_REG", reason="Low RealMemory (reported:1 < 100.00% of configured:2)"),
        node("cpu-3", "DOWN", "NOT_RESPONDING", reason="Not responding"),
    ],
)
def test_what_may_end_by_itself_is_drained_for_good_before_the_node_goes(live: nodes.Node) -> None:
    """Else a job could start there between the look and the pod's end."""
    found = step(gone(2), live)
    assert commands(found) == [["scontrol", "update", "nodename=cpu-3", "state=drain", f"reason={OURS}"]]
    assert found.stay == {"cpu": 4}


def test_a_node_that_somebody_has_set_down_goes_as_it_is() -> None:
    assert step(gone(2), node("cpu-3", "DOWN", reason="fan")).stay == {"cpu": 2}
