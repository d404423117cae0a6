# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health check of many nodes, against a scheduler of a few lines that keeps what it is told. The real one is asked in the lab."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from health_nodes import Nodes


@pytest.mark.parametrize(("count", "most"), [(1, 1), (2, 1), (8, 2), (12, 3)])
def test_a_quarter_goes_out_and_then_jobs_are_held(tmp_path: Path, count: int, most: int) -> None:
    nodes = Nodes(tmp_path, count)
    nodes.check()
    assert nodes.out() == [] and not nodes.state()["held"]
    nodes.jail(False)
    nodes.check()
    assert nodes.out() == nodes.names[:most]
    assert nodes.state()["nodes"]["n000"]["reason"] == "corral: jail: /mnt/jail has no marker file"
    # The breaker needs somebody whom it spares.
    assert nodes.state()["held"] == (count > most)
    nodes.check()
    assert nodes.out() == nodes.names[:most]
    nodes.jail(True)
    nodes.check()
    assert nodes.out() == [] and not nodes.state()["held"]


def test_nodes_that_looked_at_the_same_time(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 4)
    nodes.jail(False)
    state = nodes.state()
    for node in state["nodes"].values():
        node |= {"drain": True, "reason": "corral: jail: x"}
    nodes.save(state)
    nodes.check()
    assert nodes.out() == ["n000"] and nodes.state()["held"]


def test_a_single_node_is_a_single_nodes_matter(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 4)
    nodes.jail(False)
    nodes.check("n002", "n002")
    nodes.jail(True)
    nodes.check("n000", "n001", "n003")
    assert nodes.out() == ["n002"] and not nodes.state()["held"]


def test_what_others_drained_is_left_alone_and_what_slurm_drained_is_ours(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 4)
    state = nodes.state()
    state["nodes"]["n001"] = {"drain": True, "reason": "broken fan"}
    state["nodes"]["n003"] = {"drain": True, "reason": "batch job complete failure [root@2026]"}
    nodes.save(state)
    nodes.jail(False)
    nodes.check("n001", "n003")
    assert nodes.state()["nodes"]["n001"]["reason"] == "broken fan"
    assert nodes.state()["nodes"]["n003"]["reason"].startswith("corral: jail:")
    nodes.jail(True)
    nodes.check()
    assert nodes.out() == ["n001"]


@pytest.mark.parametrize(
    "reason", ["broken fan [ada@2026]", "corral: scale: fewer", "corral: sync: cordoned", "corral: rollout: new", "corral: admin: x"]
)
@pytest.mark.parametrize("state", [{"drain": True}, {"base": "DOWN"}, {"base": "DOWN*", "drain": True}, {"fail": True}])
def test_what_others_did_outlives_a_broken_jail_and_its_repair(tmp_path: Path, reason: str, state: dict[str, Any]) -> None:
    nodes = Nodes(tmp_path, 1)
    taken = {"drain": False, **state, "reason": reason}
    nodes.save({"held": False, "nodes": {"n000": taken}})
    for there in (False, True):
        nodes.jail(there)
        nodes.check()
        found = nodes.state()["nodes"]["n000"]
        assert found.pop("comment", "") == ("" if there else "corral: health: jail: /mnt/jail has no marker file")
        assert found == taken


@pytest.mark.parametrize(
    "reason", ["Not responding [slurm@2026]", "fan : Not responding [slurm@2026]", "Node unexpectedly rebooted [slurm@2026]",
               "NO NETWORK ADDRESS FOUND", "corral: pod: it ended, and the next one has not registered yet", "corral: start: x"],
)  # fmt: skip
def test_what_is_down_by_itself_does_not_come_back_to_a_broken_jail(tmp_path: Path, reason: str) -> None:
    nodes = Nodes(tmp_path, 1)
    nodes.save({"held": False, "nodes": {"n000": {"base": "DOWN*", "drain": False, "reason": reason}}})
    nodes.jail(False)
    nodes.check()
    assert nodes.state()["nodes"]["n000"]["reason"].startswith("corral: jail:")
    nodes.jail(True)
    nodes.check()
    assert nodes.out() == []


def test_a_drain_that_was_taken_over_and_given_back_is_made_again(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 2)
    nodes.jail(False)
    nodes.check("n000")
    state = nodes.state()
    state["nodes"]["n000"] = {"drain": True, "reason": "corral: sync: machine w1 is cordoned"}
    nodes.save(state)
    nodes.check("n000")
    assert nodes.state()["nodes"]["n000"]["reason"] == "corral: sync: machine w1 is cordoned"
    state["nodes"]["n000"]["drain"] = False  # resumed: the reason stays
    nodes.save(state)
    nodes.check("n000")
    assert nodes.out() == ["n000"] and nodes.state()["nodes"]["n000"]["reason"].startswith("corral: jail:")


LEFT = [
    "NO NETWORK ADDRESS FOUND [slurm@2026-11-22T20:00:00]",
    "corral: pod: it ended, and the next one has not registered yet",
    "Low socket*core*thread count, Low CPUs [slurm@2026-11-23T06:17:38]",
    "Low RealMemory (reported:24105 < 90.00% of configured:999000) [slurm@2026-11-23T06:17:38]",
    "gres/gpu count reported lower than configured (1 < 2), Low TmpDisk [slurm@2026-11-23T06:17:38] Comment=rack 4",
    "gpu:h100 count too low (1 < 2) [slurm@2026-11-23T06:17:38]",
]
PERSONS = [
    "corral: admin: NO NETWORK ADDRESS FOUND in its bay",
    "Low CPUs [root@2026-11-23T06:17:38]",
    "Low CPUs, ask ada [slurm@2026-11-23T06:17:38]",
    "the fan, Low CPUs [slurm@2026-11-23T06:17:38]",
]


def test_a_refused_registration_leaves_no_drain_behind(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, len(LEFT) + len(PERSONS))
    state = nodes.state()
    for name, reason in zip(nodes.names, LEFT, strict=False):
        state["nodes"][name] = {"drain": True, "refused": True, "reason": reason}
    for name, reason in zip(reversed(nodes.names), PERSONS, strict=False):
        state["nodes"][name] = {"drain": True, "reason": reason}
    nodes.save(state)
    nodes.check()
    assert nodes.out() == nodes.names
    for node in state["nodes"].values():
        node["refused"] = False
    nodes.save(state)
    nodes.check()
    assert nodes.out() == nodes.names[len(LEFT) :]


def test_the_scheduler_of_this_test_knows_nothing_else(tmp_path: Path) -> None:
    Nodes(tmp_path, 1)
    done = subprocess.run([tmp_path / "scontrol", "reboot"], capture_output=True, text=True, check=False)
    assert done.returncode and "not known here" in done.stderr
