# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""How health checks are run and what becomes of a node: time-outs, checks that break, the fleet's guard, what others drained."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
from corral_health import decide, processes, records, settings
from corral_health.catalogue import CHECKS, of_site
from corral_health.checks import Broken, Check, Facts, Output, Result, failed, ok, skipped
from corral_health.others import own
from corral_health.processes import Stuck, Work
from corral_health.scheduler import Fleet, Node
from health_nodes import Nodes

from ansible_collections.corral.slurm.plugins.module_utils._cluster import health, schema

JAIL = next(check for check in CHECKS if check.name == "jail")
DISK = next(check for check in CHECKS if check.name == "disk-full")
COUNT = next(check for check in CHECKS if check.name == "gpu-count")
PYTHON = sys.executable


def all_of(work: dict[str, Work], **more: Any) -> dict[str, Output]:
    return {name: output for name, output, _hangs in processes.run(work, **more)}


def test_commands_and_functions_run_side_by_side(tmp_path: pathlib.Path) -> None:
    # None ends before all have begun.
    script = f"touch {tmp_path}/$0; until [ $(ls {tmp_path} | wc -l) = 5 ]; do sleep 0.05; done"
    work = {f"s{number}": Work(30, ("sh", "-c", script, str(number))) for number in range(5)}
    work |= {"says": Work(30, ("sh", "-c", "echo out; echo err >&2; exit 3")), "counts": Work(30, function=lambda: {"pid": os.getpid()})}
    found = all_of(work)
    assert found["says"] == Output(3, "out\n", "err\n")
    assert json.loads(found["counts"].stdout)["pid"] != os.getpid()
    assert all(found[f"s{number}"] == Output() for number in range(5))


def test_who_is_late_is_killed_with_all_that_it_started(tmp_path: pathlib.Path) -> None:
    mark = tmp_path / "pid"
    # The child holds the pipe, and ignores a request to end.
    script = f"trap '' TERM; (trap '' TERM; sleep 60) & echo $! >{mark}; wait"
    began = time.monotonic()
    found = all_of({"hangs": Work(0.5, ("sh", "-c", script)), "well": Work(5, ("true",))})
    assert time.monotonic() - began < 30  # and not the minute of what it started
    assert found["hangs"].problem == "it took longer than 0.5 s" and found["well"] == Output()
    until = time.monotonic() + 20
    pid = int(mark.read_text())
    while pathlib.Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_what_a_process_leaves_behind_holds_nobody_up() -> None:
    began = time.monotonic()
    assert all_of({"left": Work(20, ("sh", "-c", "sleep 30 & echo done"))})["left"].stdout == "done\n"
    assert time.monotonic() - began < 15


def test_how_a_process_can_fail() -> None:
    def raises() -> None:
        raise ValueError("what")

    found = all_of(
        {
            "missing": Work(5, ("/no/such/tool",)),
            "killed": Work(5, ("sh", "-c", "kill -SEGV $$")),
            "raises": Work(5, function=raises),
            "prints": Work(20, (PYTHON, "-c", "print('x' * (9 << 20))")),
            "nonsense": Work(5, ("printf", "\\377\\376")),
        }
    )
    assert found["missing"].problem == "/no/such/tool is not there"
    assert found["killed"].problem == "it was ended by signal 11"
    assert found["raises"].status == processes._NOT_STARTED and found["raises"].stderr == "ValueError: what"
    assert found["prints"].problem == "it printed more than 8 MiB"
    assert found["nonsense"].stdout == "��"


def test_the_run_as_a_whole_has_an_end() -> None:
    work = {f"s{number}": Work(20, ("sleep", "20")) for number in range(8)}
    began = time.monotonic()
    found = all_of(work, until=time.monotonic() + 0.5)
    assert time.monotonic() - began < 15
    assert sorted(one.problem for one in found.values())[-1] == "there was no time left for it" and all(
        one.problem for one in found.values()
    )


def test_what_hangs_since_an_earlier_run_is_not_started_again() -> None:
    me = os.getpid()
    hangs = Stuck(me, processes._started(me))
    found = list(processes.run({"smi": Work(5, ("true",))}, stuck={"smi": hangs}))
    assert found == [("smi", Output(problem=f"it hangs since an earlier run (process {me})"), hangs)]
    other = Stuck(me, "1")
    assert list(processes.run({"smi": Work(5, ("true",))}, stuck={"smi": other})) == [("smi", Output(), None)]


@pytest.mark.parametrize(
    ("output", "status", "warning", "words"),
    [
        (Output(0, "fine\n"), "ok", False, "fine"),
        (Output(1, "slow disk\n"), "failed", True, "slow disk"),
        (Output(2, "\ndisk is lost\nmore\n"), "failed", False, "disk is lost"),
    ],
)
def test_a_check_of_the_site(output: Output, status: str, warning: bool, words: str) -> None:
    found = own("disk")(Facts(settings.Settings(), outputs={"own disk": output}))
    assert (found.status, found.warning, found.detail) == (status, warning, words)


@pytest.mark.parametrize(
    "output",
    [
        Output(1, "", "Traceback (most recent call last):"),
        Output(2, "", "bash: syntax error"),
        Output(3, "UNKNOWN\n"),
        Output(127, "x"),
        Output(problem="it took longer than 5 s"),
    ],
)
def test_a_check_of_the_site_that_breaks(output: Output) -> None:
    with pytest.raises(Broken, match=r"\S"):
        own("disk")(Facts(settings.Settings(), outputs={"own disk": output}))


def debounced(check: Check, *results: Result) -> list[bool]:
    last: list[int] = []
    found = []
    for result in results:
        counts, last = decide.failing(check, result, last)
        found.append(counts)
    return found


def test_counts_of_failures() -> None:
    bad, good, none = failed("x"), ok(), Result("broken", "y")
    assert debounced(DISK, bad, good) == [True, False]
    twice = replace(DISK, failures=2, window=3)
    assert debounced(twice, bad, good, bad, good, good) == [False, False, True, False, False]
    # What says nothing changes nothing; nor does a warning count.
    assert debounced(twice, bad, none, bad, none, good) == [False, False, True, True, True]
    assert debounced(DISK, failed("x", warning=True)) == [False]
    assert debounced(DISK, bad, skipped("no disk")) == [True, False]


def fleet(*out: tuple[str, str], count: int = 8) -> Fleet:
    reasons = dict(out)
    return Fleet(frozenset((f"n{number}", f"n{number}" in reasons, reasons.get(f"n{number}", "")) for number in range(count)))


def plan(node: Node, failures: dict[str, str], nodes: Fleet | None = None, unknown: frozenset[str] = frozenset()) -> decide.Plan:
    return decide.plan(node, [JAIL, DISK, COUNT], failures, unknown, lambda: nodes or fleet(), 25)


FULL = "corral: health: disk-full: /tmp is 99 % full"


@pytest.mark.parametrize(
    ("node", "failures", "state", "reason"),
    [
        (Node("n5", "IDLE"), {}, "", ""),
        (Node("n5", "IDLE"), {"disk-full": "/tmp is 99 % full"}, "drain", FULL),
        (Node("n5", "IDLE"), {"disk-full": "a", "gpu-count": "b"}, "drain", "corral: health: disk-full: a (and 1 more)"),
        (Node("n5", "IDLE+DRAIN", FULL), {"disk-full": "/tmp is 98 % full"}, "", ""),
        (Node("n5", "IDLE+DRAIN", FULL), {}, "resume", ""),
        (Node("n5", "IDLE+DRAIN", FULL), {"gpu-count": "7 of 8"}, "drain", "corral: health: gpu-count: 7 of 8"),
        (Node("n5", "IDLE+DRAIN", "fan [ada@1]"), {"disk-full": "a"}, "", ""),
        (Node("n5", "IDLE+DRAIN", "fan [ada@1]"), {}, "", ""),
        (Node("n5", "IDLE+DRAIN", "batch job complete failure [slurm@1]"), {"disk-full": "a"}, "", ""),
        (Node("n5", "IDLE+DRAIN", "batch job complete failure [slurm@1]"), {"jail": "a"}, "drain", "corral: jail: a"),
        (Node("n5", "DOWN", "fan [ada@1]"), {"disk-full": "a"}, "", ""),
        # Of a check that is switched off now, or was one of the site's.
        (Node("n5", "IDLE+DRAIN", "corral: health: gone: x"), {}, "resume", ""),
        (Node("n5", "IDLE+DRAIN", "corral: health: gone: x"), {"disk-full": "a"}, "drain", "corral: health: disk-full: a"),
        (Node("n5", "IDLE+DRAIN", "corral: sync: x"), {"disk-full": "a"}, "", ""),
    ],
)
def test_what_becomes_of_a_node(node: Node, failures: dict[str, str], state: str, reason: str) -> None:
    found = plan(node, failures)
    assert (found.state, found.reason) == (state, reason)


def test_a_check_that_can_not_tell_leaves_its_drain() -> None:
    drained = Node("n5", "IDLE+DRAIN", FULL)
    assert plan(drained, {}, unknown=frozenset({"disk-full"})).state == ""
    assert plan(drained, {}, unknown=frozenset({"gpu-count"})).state == "resume"


def test_the_guard_spares_the_next_nodes_and_holds_jobs_for_the_jail_alone() -> None:
    two = fleet(("n0", FULL), ("n1", FULL))
    found = plan(Node("n5", "IDLE"), {"disk-full": "a"}, two)
    assert (found.state, found.guarded, found.hold) == ("", ["disk-full"], [])
    # Another check's nodes do not count, and a second fault takes the node out all the same.
    assert plan(Node("n5", "IDLE"), {"gpu-count": "a"}, two).state == "drain"
    found = plan(Node("n5", "IDLE"), {"disk-full": "a", "gpu-count": "b"}, two)
    assert (found.reason, found.guarded) == ("corral: health: gpu-count: b (and 1 more)", ["disk-full"])
    # Nodes that checked at the same time: the first by name stay out.
    assert plan(Node("n5", "IDLE+DRAIN", FULL), {"disk-full": "a"}, two).state == "resume"
    assert plan(Node("n0", "IDLE+DRAIN", FULL), {"disk-full": "a"}, two).state == ""
    jails = fleet(("n0", "corral: jail: x"), ("n1", "corral: jail: x"))
    assert plan(Node("n5", "IDLE"), {"jail": "a"}, jails).hold == ["corral-jail-outage"]
    assert plan(Node("n5", "IDLE+MAINTENANCE"), {}, jails).release == {"corral-jail-outage": "corral: jail:"}
    assert plan(Node("n5", "IDLE+MAINTENANCE"), {"jail": "a"}, jails).release == {}


def test_reasons_and_comments_are_one_line_of_bounded_length() -> None:
    text = decide.reason(DISK, "a\nb\x1b[0m " + "x" * 1000, 3)
    assert text.startswith("corral: health: disk-full: a b?[0m x") and text.endswith(" (and 3 more)") and len(text) <= 240
    results = {"jail": Result("broken", "late"), "gpu-count": Result("broken", "late"), "disk-full": failed("full", warning=True)}
    found = decide.comment([JAIL, DISK, COUNT], results, {}, [])
    assert found == "corral: health: disk-full: full; no result of jail, gpu-count: late"
    assert "not drained" in decide.comment([DISK], {"disk-full": failed("x")}, {"disk-full": "x"}, ["disk-full"])
    assert decide.comment([JAIL], {"jail": ok()}, {}, []) == ""


def test_metrics_are_in_the_text_format() -> None:
    results = {"a": ok(), "b": failed("x"), "c": Result("broken", "y"), "d": skipped("z")}
    text = records.metrics("n1", results, {"b": "x"}, 0.25, 1000.0)
    assert 'corral_health_check_failed{node="n1",check="b"} 1' in text and 'corral_health_check_broken{node="n1",check="c"} 1' in text
    assert 'check="d"' not in text and 'corral_health_run_duration_seconds{node="n1"} 0.250' in text
    assert text.count("# TYPE") == 5 and text.endswith("\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not what this version of the image reads"),
        ("[]", "is not what this version"),
        ('{"nodeSets": {"n": {"vendor": "intel"}}}', "unknown vendor intel"),
        ('{"thresholds": {"warmth": 1}}', "unknown threshold warmth"),
        ('{"checks": [{"name": "a", "command": []}]}', "no command"),
        ('{"checks": [{"name": "a", "command": ["x"], "onFailure": "explode"}]}', "onFailure explode"),
    ],
)
def test_settings_that_can_not_be_read(tmp_path: pathlib.Path, text: str, words: str) -> None:
    path = tmp_path / "health.json"
    path.write_text(text)
    with pytest.raises(settings.SettingsError, match=words):
        settings.read(path, "n-0")


def test_settings_of_a_node_set(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "health.json"
    sets = {"h100": {"vendor": "nvidia", "gpus": 8, "thresholds": {"gpuNvlinks": 18}}}
    path.write_text(json.dumps({"off": ["raid"], "thresholds": {"diskPercent": 90}, "nodeSets": sets}))
    found = settings.read(path, "h100-12")
    assert (found.platform, found.gpus, found.threshold("gpuNvlinks"), found.threshold("diskPercent")) == ("nvidia", 8, 18, 90)
    other = settings.read(path, "cpu-0")
    assert (other.platform, other.threshold("gpuNvlinks"), other.off) == ("cpu", None, {"raid"})
    assert settings.read(tmp_path / "none", "cpu-0") == settings.Settings()


def test_a_row_of_the_catalogue_is_complete() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    for check in (*CHECKS, of_site(settings.Own("a", ("x",)))):
        assert check.failures <= check.window and check.on_failure in settings.ACTIONS and check.states in ("any", "idle")
        assert set(check.contexts) <= {"start", "interval"} and check.contexts and set(check.platforms) <= {"cpu", "nvidia", "amd"}
        assert not (check.files and check.needs), "a check in a process of its own has no outputs"


def rows() -> str:
    lines = ["| check | finds that | nodes with | state | counts | on failure |", "|---|---|---|---|---|---|"]
    for check in CHECKS:
        nodes = (
            "any" if len(check.platforms) == 3 else ", ".join({"nvidia": "NVIDIA", "amd": "AMD"}[one] for one in check.platforms) + " GPUs"
        )
        counts = "at once" if check.window == 1 else f"{check.failures} of {check.window}"
        when = check.states if len(check.contexts) == 2 else "start"
        lines.append(f"| `{check.name}` | {check.finds} | {nodes} | {when} | {counts} | {check.on_failure} |")
    return "\n".join(lines)


def test_the_page_has_the_catalogue() -> None:
    page = pathlib.Path(__file__).resolve().parents[3] / "docs" / "health.md"
    begin, end = "catalogue.py -->\n", "<!-- end of the catalogue -->"
    before, _begin, rest = page.read_text().partition(begin)
    text = f"{before}{begin}\n{rows()}\n\n{end}{rest.partition(end)[2]}"
    if os.environ.get("CORRAL_WRITE_DOCS"):
        page.write_text(text)
    assert page.read_text() == text, "run this test with CORRAL_WRITE_DOCS=1"


def test_the_document_knows_the_same_checks_and_thresholds() -> None:
    assert [check.name for check in CHECKS] == list(health.CHECKS)
    given = {*schema.spec()["properties"]["health"]["properties"]["thresholds"]["properties"], *health._GPU_THRESHOLDS.values()}
    assert given == set(settings.DEFAULTS)


OFF = {"off": ["clock", "munge"]}


def site(name: str, script: str, **more: Any) -> dict[str, Any]:
    return {**OFF, "checks": [{"name": name, "command": ["sh", "-c", script], **more}]}


def test_a_whole_run_with_a_check_of_the_site(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 1)
    nodes.settings(site("lamp", "echo the lamp is off; exit 2"))
    nodes.check()
    assert nodes.state()["nodes"]["n000"]["reason"] == "corral: health: lamp: the lamp is off"
    assert nodes.state()["nodes"]["n000"]["comment"] == "corral: health: lamp: the lamp is off"
    assert nodes.last("n000")["action"] == "drain" and nodes.last("n000")["context"] == "start"
    # Broken, late, gone: the drain stays, and the comment says why.
    for script, why in (("exit 7", "status 7"), ("sleep 9", "took longer than 1 s")):
        nodes.settings(site("lamp", script, timeout=1))
        nodes.check()
        assert nodes.out() == ["n000"] and why in nodes.state()["nodes"]["n000"]["comment"]
    nodes.settings(site("lamp", "exit 0"))
    nodes.check()
    assert nodes.out() == [] and nodes.state()["nodes"]["n000"]["comment"] == ""
    # What is broken from the beginning takes nothing out.
    nodes.settings(site("lamp", "exit 7"))
    nodes.check()
    assert nodes.out() == []


@pytest.mark.parametrize("action", ["comment", "log"])
def test_what_only_tells(tmp_path: pathlib.Path, action: str) -> None:
    nodes = Nodes(tmp_path, 1)
    nodes.settings(site("lamp", "echo off; exit 2", onFailure=action))
    nodes.check()
    assert nodes.out() == [] and nodes.last("n000")["failed"] == {"lamp": "off"}
    assert nodes.state()["nodes"]["n000"].get("comment", "") == ("corral: health: lamp: off" if action == "comment" else "")


def test_a_comment_of_somebody_else_stays(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 1)
    state = nodes.state()
    state["nodes"]["n000"]["comment"] = "rack 4"
    nodes.save(state)
    nodes.jail(False)
    nodes.check()
    assert nodes.out() == ["n000"] and nodes.state()["nodes"]["n000"]["comment"] == "rack 4"


def test_an_xid_stays_until_somebody_resumes_the_node(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 1)
    xml = (pathlib.Path(__file__).parent / "recorded_health" / "nvidia-smi.xml").read_text()
    (tmp_path / "smi.xml").write_text(xml)
    nodes.program("nvidia-smi", f'#!/bin/sh\n[ "$1" = nvlink ] || cat {tmp_path}/smi.xml\n')
    nodes.settings({**OFF, "nodeSets": {"": {"vendor": "nvidia", "gpus": 2}}})
    kmsg = nodes.system / "dev/kmsg"
    kmsg.parent.mkdir()
    kmsg.write_text("6,1,10,-;booted\n")
    nodes.check()
    assert nodes.out() == []
    kmsg.write_text("6,1,10,-;booted\n3,2,11,-;NVRM: Xid (PCI:0000:19:00): 119, pid=1, Timeout\n")
    for _turn in range(2):
        nodes.check()
        assert nodes.state()["nodes"]["n000"]["reason"] == "corral: health: gpu-xid: Xid 119 of 0000:19:00 (reset the GPU)"
        assert nodes.out() == ["n000"]
    # Taken over and given back by another owner, it goes out again.
    state = nodes.state()
    state["nodes"]["n000"] |= {"drain": False, "reason": "corral: sync: cordoned"}
    nodes.save(state)
    nodes.check()
    assert nodes.out() == ["n000"]
    state = nodes.state()
    state["nodes"]["n000"]["drain"] = False
    nodes.save(state)
    for _turn in range(2):
        nodes.check()
        assert nodes.out() == []


def test_settings_of_another_release_are_told_and_the_jail_is_checked_all_the_same(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 1)
    (tmp_path / "health.json").write_text("{")
    nodes.jail(False)
    nodes.check()
    assert nodes.out() == ["n000"] and "is not what this version" in nodes.last("n000")["notes"][0]


def test_where_nothing_can_be_kept_the_jail_is_checked_all_the_same(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 1)
    nodes.jail(False)
    (tmp_path / "run").write_text("a file where the folder should be")
    nodes.check()
    assert nodes.out() == ["n000"]
    nodes.jail(True)
    nodes.check()
    assert nodes.out() == []
