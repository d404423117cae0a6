# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs as real processes: what they leave, what they report, and that none outlives its end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from corral_operator.runs import engine as engine_module
from corral_operator.runs import zygote
from corral_operator.runs.engine import Cold, Engine, Warm
from corral_operator.runs.outcome import Outcome
from corral_operator.runs.playbook import Request
from corral_operator.runs.processes import descendants
from corral_operator.runs.run import Run, clear

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "minimal.yml"
GOOD = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Show what was given
      ansible.builtin.debug:
        msg: "{{ word }}"
    - name: Change
      ansible.builtin.set_fact:
        x: 1
      changed_when: true
"""
BAD = (
    GOOD
    + """
    - name: Refuse
      ansible.builtin.fail:
        msg: ConfigMap x was refused.
"""
)
# The worker does not know SIGINT.
LONG = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Take long
      ansible.builtin.shell: "{{ how }} echo $$ >{{ pid }}; exec sleep 300"
"""
# What a task of a fork leaves behind for the next one: its result, and nothing of its templates' values.
RICH = """
- hosts: localhost
  connection: local
  gather_facts: false
  vars:
    turn: "{{ counted.x | default(0) }}"
  tasks:
    - name: Show turn {{ turn }}
      ansible.builtin.debug: {msg: "turn {{ turn }} {{ word }}"}
    - name: Say nothing of a secret
      ansible.builtin.debug: {msg: "secret-{{ word }}"}
      no_log: true
    - name: Skip
      ansible.builtin.fail: {msg: never}
      when: word == 'other'
    - name: Not yet
      ansible.builtin.debug: {msg: "{{ ansible_facts }}"}
      when: counted is defined
    - name: Try
      vars: {kept: "turn {{ turn }}"}
      block:
        - name: Count
          ansible.builtin.set_fact: {counted: {x: 7}}
        - name: Now
          ansible.builtin.debug: {msg: "{{ ansible_facts.counted }}"}
          when: counted is defined
        - name: Show what the block has kept
          ansible.builtin.debug: {msg: "{{ kept }}"}
          register: shown
        - name: Include
          ansible.builtin.include_tasks: more.yml
        - name: Refuse {{ turn }}
          ansible.builtin.assert: {that: turn == 0, fail_msg: "{{ '{{' }} {{ shown.msg }}"}
      rescue:
        - name: Rescue
          ansible.builtin.debug: {msg: "{{ ansible_failed_task.name }}: {{ ansible_failed_result.msg }}"}
    - name: Each
      ansible.builtin.debug: {msg: "{{ item }}"}
      loop: [1, 2]
    - name: Fail all the same
      ansible.builtin.fail: {msg: "turn {{ turn }}"}
      ignore_errors: true
    - name: Miss
      ansible.builtin.debug: {msg: "{{ nothing }}"}
      ignore_errors: true
    - name: A process of its own
      ansible.builtin.command: echo {{ word }}
      changed_when: true
"""
MORE = """
- name: Included
  ansible.builtin.debug: {var: counted}
"""
# Results that are too large to store for each run.
BULK = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Make a model
      corral.slurm.slurm_cluster_model: {document: "{{ lookup('ansible.builtin.file', '%s') | from_yaml | combine({'metadata': {'name': 'secret-word'}}) }}"}
      register: corral
    - name: Have it
      ansible.builtin.assert: {that: corral.name == 'secret-word'}
    - name: Return a lot
      ansible.builtin.debug: {msg: "{{ ['many'] * 4000 }}"}
    - name: Say a lot
      ansible.builtin.debug: {msg: "{{ 'long ' * 4000 }}"}
    - name: Say little
      ansible.builtin.debug: {msg: little}
"""
LARGE = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.assert: {that: "('x' * 700000000) | length > 1"}
"""
WAITS = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Wait
      ansible.builtin.debug: {msg: "{{ lookup('ansible.builtin.pipe', 'echo $$ >' + pid + '; exec sleep 300') }}"}
"""
WHERE = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.debug: {msg: "by={{ lookup('ansible.builtin.pipe', 'echo $PPID') }}"}
    - ansible.builtin.debug: {msg: "by={{ lookup('ansible.builtin.pipe', 'echo $PPID') }}"}
"""


def request(folder: Path, playbook: str, ident: str = "1", **variables: Any) -> Request:
    home = folder / "private"
    (home / "env").mkdir(parents=True, exist_ok=True)
    (home / "project").mkdir(exist_ok=True)
    (home / "play.yml").write_text(playbook)
    (home / "env" / "extravars").write_text(json.dumps({"word": "given", **variables}))
    return Request(ident, str(home / "play.yml"), str(home), str(folder / "runs"))


async def play(engine: Engine, asked: Request, end_after: Callable[[], bool] | None = None, **options: float) -> Outcome:
    run = Run(engine, asked, **{"timeout": 60.0, "grace": 3.0, **options})
    work = asyncio.create_task(run.execute())
    if end_after is not None:
        deadline = time.monotonic() + 60
        while not end_after() and not work.done():
            assert time.monotonic() < deadline, "the run never came so far"
            await asyncio.sleep(0.05)
        run.end("superseded")
    return await work


def with_engine(make: Callable[[], Engine], story: Callable[[Engine], Coroutine[Any, Any, None]]) -> None:
    async def go() -> None:
        engine = make()
        await engine.open()
        try:
            await story(engine)
        finally:
            await engine.close()
            assert descendants(os.getpid()) == {}, "a process was left behind"

    asyncio.run(go())


def runs(pid: int) -> bool:
    """A process that has ended may wait for an init that collects it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


ENGINES = pytest.mark.parametrize("make", [Warm, Cold])


@ENGINES
def test_a_run_leaves_what_ansible_runner_leaves_and_reports_the_same(make: Callable[[], Engine], tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        outcome = await play(engine, request(tmp_path, GOOD))
        assert outcome.successful, outcome.failure
        assert (outcome.changes.count, outcome.changes.tasks) == (1, ["Change"])
        left = tmp_path / "runs" / "1"
        assert (left / "status").read_text() == "successful"
        assert (left / "rc").read_text() == "0"
        assert '"msg": "given"' in (left / "stdout").read_text()
        events = [json.loads(path.read_text()) for path in (left / "job_events").iterdir()]
        assert {"playbook_on_start", "playbook_on_task_start", "runner_on_ok", "playbook_on_stats"} <= {event["event"] for event in events}
        assert all(event["runner_ident"] == "1" for event in events)
        assert left.stat().st_mode & 0o077 == 0
        bad = await play(engine, request(tmp_path, BAD, "2"))
        assert bad.failure == "Refuse: ConfigMap x was refused."
        assert (bad.code, bad.changes.count) == (2, 1)
        assert (tmp_path / "runs" / "2" / "status").read_text() == "failed"

    with_engine(make, story)


def told(folder: Path) -> list[dict[str, Any]]:
    """The events of a run in their order, without what differs from run to run."""
    events = sorted((json.loads(path.read_text()) for path in folder.glob("job_events/*.json")), key=lambda event: int(event["counter"]))
    for event in events:
        for key in ("uuid", "parent_uuid", "pid", "created", "runner_ident"):
            event.pop(key, None)
        data = event["event_data"]
        for key in (
            "uuid",
            "playbook_uuid",
            "play_uuid",
            "task_uuid",
            "start",
            "end",
            "duration",
            "playbook",
            "task_path",
            "included_file",
            "remote_addr",
        ):
            data.pop(key, None)
        for key in ("start", "end", "delta"):
            (data.get("res") or {}).pop(key, None)
        # A terminal's ends of lines; and the times of the last task's own result.
        event["stdout"] = "" if "A process of its own" in str(data.get("task")) else event["stdout"].replace("\r\n", "\n")
    return events


def test_a_warm_run_reports_what_a_cold_one_reports(tmp_path: Path) -> None:
    found: dict[str, list[dict[str, Any]]] = {}

    async def story(engine: Engine) -> None:
        name = type(engine).__name__
        asked = request(tmp_path / "same", RICH, name)
        (tmp_path / "same" / "private" / "more.yml").write_text(MORE)
        outcome = await play(engine, asked)
        assert outcome.successful, outcome.failure
        found[name] = told(tmp_path / "same" / "runs" / name)

    with_engine(Warm, story)
    with_engine(Cold, story)
    assert "secret-" not in json.dumps(found)
    assert "turn 7" in json.dumps(found)
    assert [event["event"] for event in found["Warm"]] == [event["event"] for event in found["Cold"]]
    for warm, cold in zip(found["Warm"], found["Cold"], strict=True):
        assert json.dumps(warm, indent=1, sort_keys=True) == json.dumps(cold, indent=1, sort_keys=True)


@ENGINES
def test_large_parts_of_a_result_are_not_stored(make: Callable[[], Engine], tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        outcome = await play(engine, request(tmp_path, BULK % EXAMPLE, "1"))
        assert outcome.successful, outcome.failure

    with_engine(make, story)
    results = {
        event["event_data"]["task"]: event["event_data"]["res"]
        for event in told(tmp_path / "runs" / "1")
        if event["event"] == "runner_on_ok"
    }
    assert results["Make a model"] == {"changed": False}
    assert results["Return a lot"]["msg"] == "32000 characters, not stored"
    assert results["Say a lot"]["msg"] == "long " * 2000 + "…"
    assert results["Say little"]["msg"] == "little"
    left = "".join(path.read_text() for path in (tmp_path / "runs" / "1" / "job_events").iterdir())
    assert "secret-word" not in left


@ENGINES
def test_a_run_that_wants_more_memory_than_it_may_have_fails_alone(make: Callable[[], Engine], tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        outcome = await play(engine, request(tmp_path, LARGE, "large"))
        assert (outcome.code, outcome.progress.task) == (2, "ansible.builtin.assert")
        assert (await play(engine, request(tmp_path, GOOD, "good"))).successful

    with_engine(make, story)


def test_tasks_that_only_compute_are_done_by_the_process_of_the_run(tmp_path: Path) -> None:
    processes: dict[str, set[str]] = {}

    async def story(engine: Engine) -> None:
        name = type(engine).__name__
        outcome = await play(engine, request(tmp_path, WHERE, name))
        assert outcome.successful, outcome.failure
        processes[name] = set(re.findall(r"by=(\d+)", (tmp_path / "runs" / name / "stdout").read_text()))

    with_engine(Warm, story)
    with_engine(Cold, story)
    assert {name: len(found) for name, found in processes.items()} == {"Warm": 1, "Cold": 2}


def test_the_warm_up_runs_all_playbooks_and_leaves_nothing_of_its_document() -> None:
    script = """
import os
from corral_operator.runs import playbook
from corral_operator.runs import zygote
os.environ.update(playbook.ENVIRONMENT)
later = zygote._warm_up()
from corral_operator.runs import preload
# It is ready now, and makes clusters; how others are taken away it rehearses when it has the time.
# With those that are skipped.
assert preload.plan("corral.slurm.site")["tasks"] == 25, preload.plan("corral.slurm.site")
assert preload.plan("corral.slurm.destroy") is None
for playbook in later:
    zygote._warm_up_playbook(playbook)
    assert preload.plan(playbook)["tasks"] > 1
    assert preload._made["variables"].extra_vars == {}
assert set(preload._made["warmed_up"]) == set(preload.PLAYBOOKS) and len(preload._made["playbooks"]) == 4
assert set(preload._made["warmed_up"].values()) == {0}
assert preload.in_process._compiled and preload.plan("other") is None
# Whatever a module documents it can be rehearsed with.
for action in preload._made["actions"]:
    assert set(preload._returned(action.__module__.rpartition(".")[2]).values()) <= set(preload._NOTHING)
assert preload._nothing_to_do("slurm_revision_info", {}, check=False) == {"changed": False, "revisions": [], "tried": False, "requests": 0}
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=zygote.environment())
    assert done.returncode == 0, done.stdout + done.stderr


@ENGINES
def test_runs_of_several_clusters_have_the_same_name_where_they_begin_in_the_same_second(
    make: Callable[[], Engine], tmp_path: Path
) -> None:
    async def story(engine: Engine) -> None:
        asked = [request(tmp_path / name, GOOD, word=name) for name in ("a", "b", "c")]
        outcomes = await asyncio.wait_for(asyncio.gather(*(play(engine, one) for one in asked)), 60)
        assert [outcome.successful for outcome in outcomes] == [True] * 3
        for name in ("a", "b", "c"):
            assert f'"msg": "{name}"' in (tmp_path / name / "runs" / "1" / "stdout").read_text()

    with_engine(make, story)


@ENGINES
def test_a_run_is_ended_with_all_its_processes(make: Callable[[], Engine], tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        for how in ("", "trap '' INT TERM;"):
            note = tmp_path / f"pid{len(how)}"
            asked = request(tmp_path, LONG, ident=f"e{len(how)}", pid=str(note), how=how)
            outcome = await play(engine, asked, lambda note=note: note.exists() and bool(note.read_text()))  # type: ignore[misc]
            assert outcome.ended == "superseded"
            assert outcome.failure == ""
            await asyncio.sleep(0.2)
            assert not runs(int(note.read_text())), how
        assert outcome.seconds < 30
        late = await play(engine, request(tmp_path, LONG, ident="t", pid=str(tmp_path / "late"), how=""), timeout=3.0)
        assert late.ended == "timeout"

    with_engine(make, story)


@ENGINES
def test_a_run_is_ended_at_once_in_a_task_that_it_does_itself(make: Callable[[], Engine], tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        note = tmp_path / "pid"
        asked = request(tmp_path, WAITS, "w", pid=str(note))
        outcome = await play(engine, asked, lambda: note.exists() and bool(note.read_text()), grace=60.0)
        assert outcome.ended == "superseded"
        await asyncio.sleep(0.2)
        assert not runs(int(note.read_text()))
        if isinstance(engine, Warm):
            assert outcome.code == 99
            assert (tmp_path / "runs" / "w" / "status").read_text() == "canceled"
            assert "TASK [Wait]" in (tmp_path / "runs" / "w" / "stdout").read_text()

    with_engine(make, story)


def test_a_zygote_that_dies_takes_its_runs_along_and_comes_back(tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        assert isinstance(engine, Warm)
        note = tmp_path / "pid"
        work = asyncio.create_task(play(engine, request(tmp_path, LONG, pid=str(note), how="")))
        while not (note.exists() and note.read_text()):
            await asyncio.sleep(0.05)
        assert engine._process is not None
        os.kill(engine._process.pid, signal.SIGKILL)
        outcome = await asyncio.wait_for(work, 10)
        assert outcome.code == -signal.SIGKILL
        assert "signal 9" in outcome.failure
        again = await play(engine, request(tmp_path, GOOD, "2"))
        assert again.successful
        assert engine.restarts == 1

    with_engine(Warm, story)


def test_several_runs_at_once_do_not_mix(tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        asked = [request(tmp_path / str(n), GOOD, str(n), word=f"word{n}") for n in range(4)]
        outcomes = await asyncio.gather(*(play(engine, one) for one in asked))
        assert all(outcome.successful and outcome.changes.count == 1 for outcome in outcomes)
        for n in range(4):
            said = (tmp_path / str(n) / "runs" / str(n) / "stdout").read_text()
            assert [f"word{other}" in said for other in range(4)] == [other == n for other in range(4)]

    with_engine(Warm, story)


def test_the_last_runs_and_the_last_failed_one_are_retained(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}-site").mkdir()
        (tmp_path / f"{number}-site" / "status").write_text("failed" if number in (1, 3) else "successful")
        (tmp_path / f"{number}-sync").mkdir()
    clear(tmp_path, "site", 4)
    assert sorted(path.name for path in tmp_path.glob("*-site")) == ["3-site", "5-site", "6-site", "7-site", "8-site"]
    assert len(list(tmp_path.glob("*-sync"))) == 9, "those of another playbook have a count of their own"
    clear(tmp_path / "nothing", "site", 4)


def test_a_cancelled_run_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked was ended while the zygote was busy: its run would have no time-out, and go on beside the next one's."""

    async def story() -> None:
        killed: list[int] = []
        monkeypatch.setattr(engine_module, "kill_tree", killed.append)
        warm = Warm()
        warm._ready.set()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        warm._control = ours
        try:
            asked = Request("1-site", "corral.slurm.site", "/nowhere", "/nowhere")
            task = asyncio.create_task(warm.start(asked, 1))
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            warm._receive({"kind": "started", "artifact_dir": str(asked.artifact_dir), "pid": 4321})
            assert killed == [4321]
        finally:
            ours.close()
            theirs.close()

    asyncio.run(story())
