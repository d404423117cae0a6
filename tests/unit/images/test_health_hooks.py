# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""health.py for the prolog and the epilog of a job: when a job is refused, what its user reads, the guard, and processes that users left behind."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from corral_health import hooks, scheduler
from health_nodes import REFUSED, Nodes

LAMP = {"name": "lamp", "command": ["/bin/false"]}


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    made = Nodes(tmp_path, 8)
    made.settings({"off": ["clock", "munge"], "checks": [{**LAMP, "command": [str(tmp_path / "lamp")]}], "guardPercent": 25})
    lamp(made, "exit 0")
    return made


def lamp(nodes: Nodes, script: str) -> None:
    nodes.program("lamp", f"#!/bin/sh\n{script}\n")


def prolog(nodes: Nodes, name: str, *more: str, hook: str = "prolog", text: str = "", job: str = "7") -> int:
    return nodes.hook(name, "--job", hook, *more, text=text, SLURM_JOB_ID=job, SLURM_JOB_UID="0")


def failed(nodes: Nodes, name: str) -> str:
    return (nodes.folder / "run" / name / "failed").read_text()


def test_what_a_run_found_is_there_for_the_next_prolog(nodes: Nodes) -> None:
    nodes.check("n000")
    assert failed(nodes, "n000") == ""
    lamp(nodes, "echo off; exit 2")
    nodes.check("n000")
    assert failed(nodes, "n000") == "corral: health: lamp: off"
    assert prolog(nodes, "n000") == REFUSED
    state = nodes.state()
    text = "corral: health: lamp: off (on n000, where the job did not begin)"
    assert state["comments"] == {"7": text} and state["notified"] == [["7", text]]
    assert nodes.out() == ["n000"]


def test_a_node_that_is_well_again_takes_the_job_and_comes_back(nodes: Nodes) -> None:
    lamp(nodes, "echo off; exit 2")
    nodes.check("n000")
    lamp(nodes, "exit 0")
    assert prolog(nodes, "n000") == 0 and nodes.out() == [] and failed(nodes, "n000") == ""


def test_checks_before_each_job_find_what_the_last_run_did_not(nodes: Nodes) -> None:
    nodes.check("n000")
    lamp(nodes, "echo off; exit 2")
    assert prolog(nodes, "n000") == 0, "it was well, and is not checked"
    assert prolog(nodes, "n000", "--checks", "lamp,of-another-platform") == REFUSED
    assert nodes.state()["nodes"]["n000"]["reason"] == "corral: health: lamp: off"
    last = nodes.last("n000")
    assert last["context"] == "prolog" and list(last["results"]) == ["lamp"]


def test_after_a_job_the_node_is_drained_and_nothing_is_refused(nodes: Nodes) -> None:
    nodes.check("n000")
    lamp(nodes, "echo off; exit 2")
    assert prolog(nodes, "n000", "--checks", "lamp", hook="epilog") == 0
    assert nodes.out() == ["n000"] and "notified" not in nodes.state()


@pytest.mark.parametrize("script", ["exit 9", "exit 2", "kill -SEGV $$", "sleep 60"])
def test_a_check_that_breaks_refuses_nothing(nodes: Nodes, script: str) -> None:
    nodes.settings({"off": ["clock", "munge"], "checks": [{**LAMP, "command": [str(nodes.folder / "lamp")], "timeout": 1}]})
    nodes.check("n000")
    lamp(nodes, script)
    assert prolog(nodes, "n000", "--checks", "lamp") == 0 and nodes.out() == []


def test_a_job_on_a_node_that_the_guard_spared_begins(nodes: Nodes) -> None:
    lamp(nodes, "echo off; exit 2")
    nodes.check()
    assert nodes.out() == ["n000", "n001"]
    assert prolog(nodes, "n005") == 0 and failed(nodes, "n005") == ""
    assert prolog(nodes, "n001") == REFUSED


def test_what_is_not_run_takes_no_drain_back_and_keeps_the_comment(nodes: Nodes) -> None:
    """Nor one of a run before the container's, whose state is lost."""
    nodes.jail(False)
    nodes.check("n000")
    comment = nodes.state()["nodes"]["n000"]["comment"]
    for path in (nodes.folder / "run" / "n000").iterdir():
        path.unlink()
    assert prolog(nodes, "n000", "--checks", "lamp", hook="epilog") == 0
    node = nodes.state()["nodes"]["n000"]
    assert node["drain"] and node["reason"].startswith("corral: jail:") and node["comment"] == comment


def test_a_fault_that_stays_until_somebody_resumes_the_node(nodes: Nodes) -> None:
    nodes.check("n000")
    path = nodes.folder / "run" / "n000" / "state.json"
    state: dict[str, Any] = json.loads(path.read_text())
    state["checks"]["lamp"].update(latched=True, last=[0])
    path.write_text(json.dumps(state))
    world = nodes.state()
    world["nodes"]["n000"].update(drain=True, reason="corral: health: lamp: off")
    nodes.save(world)
    prolog(nodes, "n000", "--checks", "raid", hook="epilog")
    assert "lamp" in nodes.last("n000")["results"], "it is run, so that it is judged"


def test_without_slurmctld_nothing_is_refused_and_the_next_prolog_asks(nodes: Nodes) -> None:
    lamp(nodes, "echo off; exit 2")
    nodes.program("scontrol", "#!/bin/sh\nexit 1\n")
    nodes.check("n000")
    assert failed(nodes, "n000") == "off"
    assert prolog(nodes, "n000") == 0
    assert prolog(nodes, "n000", "--failed", "x", text="gone\n") == 0


def test_metrics_are_those_of_the_last_whole_run(nodes: Nodes) -> None:
    nodes.check("n000")
    before = (nodes.folder / "run/n000/health.prom").read_text()
    prolog(nodes, "n000", "--checks", "lamp")
    assert (nodes.folder / "run/n000/health.prom").read_text() == before


def test_a_script_that_failed_drains_its_node(nodes: Nodes) -> None:
    assert prolog(nodes, "n003", "--failed", "scratch", text="/scratch is \x1b[31mfull\n") == REFUSED
    state = nodes.state()
    reason = "corral: prolog: scratch: /scratch is ?[31mfull"
    assert state["nodes"]["n003"] == {"drain": True, "reason": reason}
    assert state["comments"]["7"].startswith(reason)
    nodes.check("n003")
    assert nodes.out() == ["n003"], "the health check leaves it"


def test_a_comment_of_somebody_else_stays(nodes: Nodes) -> None:
    world = nodes.state()
    world["comments"] = {"7": "ask Eve"}
    nodes.save(world)
    assert prolog(nodes, "n003", "--failed", "scratch", text="full") == REFUSED
    state = nodes.state()
    assert state["comments"] == {"7": "ask Eve"} and state["notified"][0][0] == "7"


def test_a_drain_of_somebody_else_stays(nodes: Nodes) -> None:
    world = nodes.state()
    world["nodes"]["n003"] = {"drain": True, "reason": "fan"}
    nodes.save(world)
    assert prolog(nodes, "n003", "--failed", "scratch", text="full") == REFUSED
    assert nodes.state()["nodes"]["n003"] == {"drain": True, "reason": "fan"}


def test_a_script_that_fails_everywhere_takes_a_share_out(nodes: Nodes) -> None:
    found = [prolog(nodes, name, "--failed", "scratch", text="full") for name in reversed(nodes.names)]
    assert found.count(REFUSED) == 2 and len(nodes.out()) == 2
    assert prolog(nodes, "n000", "--failed", "scratch", "--action", "always", text="full") == REFUSED and len(nodes.out()) == 3
    assert prolog(nodes, "n001", "--failed", "scratch", text="full", hook="epilog") == REFUSED, "epilogs are counted by themselves"


def test_nodes_of_one_job_that_fail_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sees none out before its own drain, and all out after it."""
    names = [f"n{number}" for number in range(8)]
    drained: dict[str, str] = {}

    def slurm(*words: str) -> str:
        if words[:3] == ("scontrol", "show", "node"):
            return f"NodeName={words[3]} State=ALLOCATED Reason=none"
        assert words[:2] == ("scontrol", "update"), words
        given = dict(word.split("=", 1) for word in words[2:])
        if given["state"] == "drain":
            drained[given["nodename"]] = given["reason"]
        else:
            drained.pop(given["nodename"])
        return ""

    seen = {"before": True}

    def fleet() -> scheduler.Fleet:
        return scheduler.Fleet(
            frozenset((name, not seen["before"], "corral: prolog: x: full" if not seen["before"] else "") for name in names)
        )

    monkeypatch.setattr(hooks, "slurm", slurm)
    refused = []
    for name in names:
        calls = iter((True, False))

        def looked() -> scheduler.Fleet:
            seen["before"] = next(calls)  # noqa: B023 - called before the next turn
            return fleet()

        monkeypatch.setattr(hooks, "_fleet", looked)
        if hooks.script_failed("prolog", name, "x", "full", 25, always=False):
            refused.append(name)
    assert refused == ["n0", "n1"] and sorted(drained) == ["n0", "n1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize(("jobs", "ended"), [(["7"], True), ([], True), (["7", "8"], False)])
def test_leftovers_are_killed_unless_the_user_has_another_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jobs: list[str], ended: bool
) -> None:
    uid = 23457

    def slurm(*words: str) -> str:
        assert words == ("squeue", "-h", "-w", "n1", "-u", str(uid), "-o", "%A")
        return "\n".join(jobs)

    monkeypatch.setattr(hooks, "slurm", slurm)
    command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "sleep", "100"]
    (tmp_path / "slurmstepd").symlink_to("/bin/bash")
    stepd = [tmp_path / "slurmstepd", "-c", f"{' '.join(command)} & echo $!; wait"]
    with subprocess.Popen(command) as left, subprocess.Popen(stepd, stdout=subprocess.PIPE, text=True) as step:
        assert step.stdout
        below = int(step.stdout.readline())
        until = time.monotonic() + 20
        while {os.stat(f"/proc/{pid}").st_uid for pid in (left.pid, below)} != {uid}:
            assert time.monotonic() < until
        try:
            assert hooks.end_leftovers(Path("/"), "n1", uid, "7") == int(ended)
            assert (left.wait(20) == -9) if ended else (left.poll() is None)
            assert Path(f"/proc/{below}").exists(), "it is one of a step"
        finally:
            left.kill()
            os.kill(below, 9)


@pytest.mark.parametrize("uid", [0, 999, 64031, 65534])
def test_processes_of_the_system_are_no_leftovers(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    def slurm(*words: str) -> str:
        raise AssertionError(words)

    monkeypatch.setattr(hooks, "slurm", slurm)
    assert hooks.end_leftovers(Path("/"), "n1", uid, "7") == 0
