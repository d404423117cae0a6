# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""health.sh of many nodes, against a scheduler of a few lines that keeps what it is told. The real one is asked in the lab, with two nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "images" / "slurm" / "entry" / "health.sh"
OUTAGE = "corral-jail-outage"

# scontrol and sinfo as far as the script uses them; anything else is an error.
SCHEDULER = f"""\
#!{sys.executable}
import json, os, sys
path = {{path!r}}
with open(path) as file: state = json.load(file)
verb, *words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
given = dict(word.split("=", 1) for word in words if "=" in word)
if verb == "sinfo":
    assert words == ["-h", "-N", "-o", "%N %T %E"], words
    for name, node in state["nodes"].items():
        for partition in range(2):
            print(name, "drained" if node["drain"] else "maint" if state["held"] else "idle", node["reason"] or "none")
elif words[:2] == ["show", "node"]:
    node = state["nodes"][words[2]]
    flags = "+DRAIN" * node["drain"] + "+INVALID_REG" * node.get("refused", False) + "+MAINTENANCE" * state["held"]
    flags += "+FAIL" * node.get("fail", False)
    print(f"NodeName={{words[2]}} State={{node.get('base', 'IDLE')}}{{flags}} " + (f"Reason={{node['reason']}}" if node["reason"] else ""))
elif words[:2] == ["show", "reservation"]:
    sys.exit(0 if state["held"] else 1)
elif words[0] == "update" and "reservation" in given:
    sys.exit(0 if state["held"] else 1)
elif words[0] == "create":
    assert given["nodes"] == "ALL" and given["reservationname"] == {OUTAGE!r} and not state["held"], words
    state["held"] = True
elif words[0] == "delete":
    state["held"] = False
elif words[0] == "update":
    node = state["nodes"][given["nodename"]]
    node["drain"] = given["state"] == "drain"
    node["reason"] = given.get("reason", node["reason"])
    if given["state"] == "resume":
        node.update(base="IDLE", fail=False)
else:
    sys.exit(f"not known here: {{words}}")
with open(path, "w") as file: json.dump(state, file)
"""


class Nodes:
    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.path = folder / "state.json"
        self.names = [f"n{number:03}" for number in range(count)]
        self.save({"held": False, "nodes": {name: {"drain": False, "reason": ""} for name in self.names}})
        for name in ("scontrol", "sinfo"):
            self._program(name, SCHEDULER.replace("{path!r}", repr(str(self.path))).replace("{{", "{").replace("}}", "}"))
        conf = folder / "plugstack.conf"
        conf.write_text("required /opt/corral/lib/corral/spank_corral_jail.so jail=/mnt/jail\n")
        text = SCRIPT.read_text()
        for old, new in (
            ("/run/corral-node", folder / "node"),
            ("/opt/corral/bin/jail-exec", folder / "jail-exec"),
            ("/run/slurm/conf/plugstack.conf", conf),
        ):
            assert old in text
            text = text.replace(old, str(new))
        self._program("health.sh", text)
        self.jail(True)

    def _program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)

    def save(self, state: dict[str, Any]) -> None:
        self.path.write_text(json.dumps(state))

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.read_text())
        return found

    def jail(self, there: bool) -> None:
        said = "" if there else "echo 'jail-exec: /mnt/jail has no marker file' >&2; exit 125"
        # A program of the jail is root's there, and its status would be an answer of whoever that is.
        nothing_run = 'case " $* " in *" -- "*) exit 125 ;; *" --try "*) ;; *) exit 125 ;; esac'
        self._program("jail-exec", f"#!/bin/sh\n{nothing_run}\n{said}\n")

    def check(self, *names: str) -> None:
        for name in names or self.names:
            (self.folder / "node").write_text(name + "\n")
            path = f"{self.folder}:{os.environ['PATH']}"
            subprocess.run([self.folder / "health.sh"], env={"PATH": path}, check=True, capture_output=True, text=True)

    def out(self) -> list[str]:
        return [name for name, node in self.state()["nodes"].items() if node["drain"]]


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
        assert nodes.state()["nodes"]["n000"] == taken


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
