# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurmctld is told for nodes, and whose drains stay as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import node_plan
from ansible_collections.corral.slurm.plugins.module_utils._slurm.nodes import Node

from .records import node

IDLE = replace(node("cpu-1"), state=["IDLE"], reason="")
BUSY = replace(IDLE, name="cpu-2", state=["MIXED"])
OURS = node("cpu-0")  # MIXED+DRAIN, corral: admin: disk swap
PERSONS = node("cpu-1")  # DOWN, bad fan
SILENT = node("gone-0")  # DOWN+NOT_RESPONDING by Slurm itself
GONE = replace(IDLE, name="cpu-5", state=["DOWN"], reason="corral: pod: it ended, and the next one has not registered yet")
MEMORY = node("big-0")  # IDLE+DRAIN+INVALID_REG by Slurm itself
ACCEPTED = replace(MEMORY, state=["IDLE", "DRAIN"])
JAIL = replace(IDLE, name="cpu-3", state=["IDLE", "DRAIN"], reason="corral: jail: marker is missing")
UNSTARTED = replace(
    JAIL, state=["DOWN", "DRAIN", "NOT_RESPONDING"], reason="corral: start: init script gpus ended with status 1 : Not responding"
)
SCALES = replace(JAIL, reason="corral: scale: the document has fewer nodes in this set")
UNKILLABLE = replace(JAIL, reason="Kill task failed")
NO_ADDRESS = replace(JAIL, reason="NO NETWORK ADDRESS FOUND")
# A person's words that read like Slurm's: no registration was refused.
PERSONS_MEMORY = replace(JAIL, reason="Low RealMemory, ask ada")
FAILING = replace(JAIL, state=["IDLE", "FAIL"], reason="bad fan")
# Back in service, an idle node keeps the reason that it had.
STALE = replace(IDLE, name="cpu-4", reason="bad fan")


def plan(*nodes: Node, **desired: Any) -> node_plan.Plan:
    params = {"state": None, "reason": "disk swap", "owner": "admin", "force": False, **desired}
    return node_plan.plan(nodes, node_plan.wanted(params))


@pytest.mark.parametrize(
    ("node", "state", "force", "told", "foreign"),
    [
        (IDLE, "drained", False, True, False),
        (BUSY, "drained", False, True, False),
        (STALE, "drained", False, True, False),
        (OURS, "drained", False, False, False),
        (PERSONS, "drained", False, False, True),
        (PERSONS, "drained", True, True, False),
        (JAIL, "drained", False, True, False),
        (JAIL, "drained", True, True, False),
        (UNSTARTED, "drained", False, True, False),
        (MEMORY, "drained", False, True, False),
        (NO_ADDRESS, "drained", False, True, False),
        (PERSONS_MEMORY, "drained", False, False, True),
        (UNKILLABLE, "drained", False, False, True),
        (SCALES, "drained", False, False, True),
        (FAILING, "drained", False, False, True),
        (SILENT, "drained", False, True, False),
        (GONE, "drained", False, True, False),
        (IDLE, "down", False, True, False),
        (OURS, "down", False, True, False),
        (PERSONS, "down", False, False, True),
        (JAIL, "down", False, True, False),
        (UNKILLABLE, "down", False, False, True),
        (SILENT, "down", False, True, False),
        (IDLE, "resumed", False, False, False),
        (STALE, "resumed", False, False, False),
        (STALE, "resumed", True, False, False),
        (OURS, "resumed", False, True, False),
        (PERSONS, "resumed", False, False, True),
        (PERSONS, "resumed", True, True, False),
        (JAIL, "resumed", False, False, True),
        (SILENT, "resumed", False, False, True),
        (GONE, "resumed", False, False, True),
        (MEMORY, "resumed", False, False, True),
        (MEMORY, "resumed", True, True, False),
        (ACCEPTED, "resumed", False, True, False),
        (PERSONS_MEMORY, "resumed", False, False, True),
    ],
)
def test_whose_drain_it_is_decides(node: Node, state: str, force: bool, told: bool, foreign: bool) -> None:
    found = plan(node, state=state, force=force)
    assert (found.changed, [one.name for one in found.foreign]) == (told, [node.name] if foreign else [])
    assert set(found.after) == set(found.before) == ({node.name} if told else set())


def test_another_owner_takes_its_own_back_and_no_more() -> None:
    found = plan(JAIL, OURS, state="resumed", owner="jail")
    assert found.commands() == [["scontrol", "update", "nodename=cpu-3", "state=resume"]]
    assert [one.name for one in found.foreign] == ["cpu-0"]


def test_a_drain_that_ends_by_itself_is_taken_over_so_that_it_lasts() -> None:
    found = plan(JAIL, state="drained", reason="Kubernetes node n1 is cordoned", owner="sync")
    assert found.commands() == [
        ["scontrol", "update", "nodename=cpu-3", "state=drain", "reason=corral: sync: Kubernetes node n1 is cordoned"]
    ]
    assert found.before == {"cpu-3": {"state": "IDLE+DRAIN", "reason": JAIL.reason}}
    assert found.after == {"cpu-3": {"state": "IDLE+DRAIN", "reason": "corral: sync: Kubernetes node n1 is cordoned"}}
    taken = replace(JAIL, reason="corral: sync: Kubernetes node n1 is cordoned")
    assert [one.name for one in plan(taken, state="resumed").foreign] == ["cpu-3"]
    assert plan(taken, state="resumed", owner="sync").changed


def test_a_check_takes_over_nothing() -> None:
    assert [one.name for one in plan(UNSTARTED, MEMORY, state="drained", owner="jail").foreign] == ["cpu-3", "big-0"]


@pytest.mark.parametrize(
    ("node", "lasting"),
    [
        (OURS, True), (SCALES, True), (UNKILLABLE, True), (PERSONS_MEMORY, True), (replace(JAIL, reason="ask bob"), True),
        (JAIL, False), (UNSTARTED, False), (MEMORY, False), (NO_ADDRESS, False), (GONE, False), (SILENT, False), (PERSONS, False), (IDLE, False),
    ],
)  # fmt: skip
def test_which_drains_last(node: Node, lasting: bool) -> None:
    assert node_plan.lasting(node) is lasting


def test_down_lasts_since_it_is_a_drain_too() -> None:
    """ReturnToService=2: what is only down is idle again with the next answer of its slurmd."""
    tell = ["scontrol", "update", "nodename=cpu-2"]
    reason = "reason=corral: admin: disk swap"
    assert plan(BUSY, state="down").commands() == [[*tell, "state=drain", reason], [*tell, "state=down", reason]]
    down = replace(BUSY, state=["DOWN", "DRAIN"], reason="corral: admin: disk swap")
    assert not plan(down, state="down").changed
    # It has answered since, and no job is on it, nor can one come.
    answered = replace(down, state=["IDLE", "DRAIN"])
    assert not plan(answered, state="down").changed
    assert not plan(replace(down, state=["IDLE", "COMPLETING", "DRAIN"]), state="down").changed
    # A drain lets jobs go on.
    assert plan(replace(down, state=["MIXED", "DRAIN"]), state="down").commands()[1] == [*tell, "state=down", reason]
    assert plan(replace(down, state=["DOWN"]), state="down").commands() == [[*tell, "state=drain", reason]]
    assert plan(down, state="resumed").after == {"cpu-2": {"state": "IDLE", "reason": ""}}
    assert plan(answered, state="resumed").after == {"cpu-2": {"state": "IDLE", "reason": ""}}


def test_nodes_are_drained_before_they_are_set_down() -> None:
    found = plan(replace(BUSY, name="cpu-0", state=["DOWN"], reason="Not responding"), BUSY, state="down")
    assert [command[2:4] for command in found.commands()] == [["nodename=cpu-[0,2]", "state=drain"], ["nodename=cpu-2", "state=down"]]


def test_nodes_of_one_change_are_one_command_and_the_words_are_whole_arguments() -> None:
    many = [replace(IDLE, name=f"cpu-{number}") for number in range(1000)]
    found = plan(*many, state="drained", reason='disk = "swap", x; rm')
    assert found.commands() == [
        ["scontrol", "update", "nodename=cpu-[0-999]", "state=drain", 'reason=corral: admin: disk = "swap", x; rm'],
    ]


def test_another_text_of_the_same_owner_takes_the_place_of_the_one_before() -> None:
    found = plan(OURS, state="drained", reason="new disk")
    assert found.before == {"cpu-0": {"state": "MIXED+DRAIN", "reason": "corral: admin: disk swap"}}
    assert found.after == {"cpu-0": {"state": "MIXED+DRAIN", "reason": "corral: admin: new disk"}}


def test_our_drain_of_a_node_that_then_fell_silent_is_still_ours() -> None:
    fallen = replace(OURS, state=["DOWN", "DRAIN", "NOT_RESPONDING"], reason="corral: admin: disk swap : Not responding")
    assert not plan(fallen, state="drained").changed
    assert plan(fallen, state="resumed").after == {"cpu-0": {"state": "IDLE+NOT_RESPONDING", "reason": ""}}


def test_an_old_reason_of_a_node_that_fell_silent_is_no_drain() -> None:
    silent = replace(IDLE, state=["DOWN", "NOT_RESPONDING"], reason="corral: admin: disk swap : Not responding")
    assert [one.name for one in plan(silent, state="resumed").foreign] == ["cpu-1"]
    assert plan(replace(silent, reason="bad fan : Not responding"), state="drained").changed


def test_the_diff_foretells_the_state() -> None:
    assert plan(BUSY, state="drained").after["cpu-2"]["state"] == "MIXED+DRAIN"
    assert plan(BUSY, state="down").after["cpu-2"]["state"] == "DOWN+DRAIN"
    assert plan(OURS, state="down").after["cpu-0"]["state"] == "DOWN+DRAIN"
    assert plan(OURS, state="resumed").after["cpu-0"] == {"state": "MIXED", "reason": ""}
    assert plan(STALE, state="drained").before["cpu-4"] == {"state": "IDLE", "reason": ""}


def test_attributes_apart_from_states() -> None:
    found = plan(IDLE, state="drained", features=["a", "b"], weight=7, comment="new kernel")
    assert [command[3:] for command in found.commands()] == [
        ["state=drain", "reason=corral: admin: disk swap"],
        ["availablefeatures=a,b", "activefeatures=a,b", "weight=7", "comment=new kernel"],
    ]
    assert found.before["cpu-1"] == {"state": "IDLE", "reason": "", "features": ["plain"], "weight": 1, "comment": ""}


def test_features_of_others_stay_where_a_prefix_says_whose_they_are() -> None:
    one = replace(IDLE, features=["a", "site-old", "b"], active_features=["a", "site-old"])
    desired = node_plan.wanted({"owner": "admin", "force": False, "features": ["site-new"], "features_prefix": "site-"})
    assert list(node_plan.plan([one], desired).updates) == [("availablefeatures=a,b,site-new", "activefeatures=a,site-new")]
    assert not node_plan.plan([replace(one, features=["a", "site-new"], active_features=["site-new"])], desired).changed
    none = replace(desired, features=[])
    assert list(node_plan.plan([one], none).updates) == [("availablefeatures=a,b", "activefeatures=a")]
    with pytest.raises(CorralError, match="'new' does not begin with 'site-'"):
        node_plan.wanted({"owner": "admin", "force": False, "features": ["new"], "features_prefix": "site-"})


def test_attributes_as_they_are_are_told_to_nobody() -> None:
    live = replace(IDLE, features=["b", "a"], active_features=["a", "b"], weight=7, comment="x")
    assert not plan(live, features=["a", "b"], weight=7, comment="x").changed
    assert plan(live, features=[], comment="").commands()[0][3:] == ["availablefeatures=", "activefeatures=", "comment="]
    assert plan(replace(live, active_features=["a"]), features=["a", "b"]).changed


@pytest.mark.parametrize("feature", ["", "a b", "a,b", 'a"', "a#b"])
def test_a_feature_that_slurm_can_not_hold_is_refused(feature: str) -> None:
    with pytest.raises(CorralError, match="The feature"):
        plan(IDLE, features=[feature])
