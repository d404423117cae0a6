# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that found nothing to do stands for the next one only as long as everything is as it was; with anything else the playbook is run."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Response
from corral_operator import replay
from corral_operator.engine import Run, Warm
from corral_operator.fence import Fence
from corral_operator.known import Known
from corral_operator.outcome import Outcome
from corral_operator.play import Request
from corral_operator.replay import Call, Recorder, Replay

from ...server import Handler, Server, kubeconfig, serving

Json = dict[str, Any]

PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Make the first
      corral.slurm.k8s_secret: {secrets: [{name: first, namespace: n, data: {key: {random_bytes: 4}}}]}
      register: first
    - name: Count
      ansible.builtin.set_fact: {found: "{{ first.secrets | length }}"}
    - name: Make the second
      corral.slurm.k8s_secret: {secrets: [{name: second, namespace: n, labels: {found: "{{ found }}"}, data: {key: {random_bytes: 4}}}]}
"""
ELSEWHERE = """
    - name: A process of its own
      ansible.builtin.command: "true"
      changed_when: false
"""
IGNORED = """
    - name: Fail all the same
      ansible.builtin.fail: {msg: no}
      ignore_errors: true
"""


class Secrets(Server):
    """An API server that has Secrets, and no pods."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.secrets: dict[str, Json] = {}
        self.asked: list[str] = []
        self.refuses = ""
        self.hangs = threading.Event()
        self.hangs.set()


class _Handler(Handler):
    server: Secrets

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].rpartition("/")[2]
        self.server.asked.append(f"GET {name}")
        self.server.hangs.wait(60)
        if name == "pods":
            self.answer(200, {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []})
        elif name == self.server.refuses:
            self.answer(403, {"kind": "Status", "code": 403, "message": "You may not."})
        elif name in self.server.secrets:
            self.answer(200, self.server.secrets[name])
        else:
            self.answer(404, {"kind": "Status", "code": 404, "reason": "NotFound"})

    def do_POST(self) -> None:
        body = json.loads(self.body())
        name = body["metadata"]["name"]
        self.server.asked.append(f"POST {name}")
        self.server.secrets[name] = {**body, "data": {"key": "AAAA"}}
        self.answer(201, self.server.secrets[name])


class Place:
    """Where runs are made: a server, an engine, and a count of runs."""

    def __init__(self, server: Secrets, folder: Path, engine: Warm) -> None:
        self.server, self._folder, self._engine = server, folder, engine
        self.number = 0

    async def run(
        self, word: str = "word", *, replayed: bool = True, play: str = PLAY, until: Callable[[], bool] | None = None, timeout: float = 60.0
    ) -> Outcome:
        self.number += 1
        home = self._folder / "private"
        (home / "env").mkdir(parents=True, exist_ok=True)
        (home / "env" / "extravars").write_text("{}")
        (home / "play.yml").write_text(play)
        self.server.asked.clear()
        asked = Request(str(self.number), str(home / "play.yml"), str(home), str(self._folder / "runs"), word, replayed)
        run = Run(self._engine, asked, timeout=timeout, grace=5.0)
        work = asyncio.create_task(run.go())
        if until is not None:
            deadline = time.monotonic() + 60
            while not until():
                assert time.monotonic() < deadline and not work.done(), "the run never came so far"
                await asyncio.sleep(0.02)
            run.end("superseded")
        return await work

    @property
    def calls(self) -> Path:
        return self._folder / "private" / "calls-play.yml"

    def said(self) -> str:
        return (self._folder / "runs" / str(self.number) / "stdout").read_text()

    def left(self, name: str) -> str:
        return (self._folder / "runs" / str(self.number) / name).read_text()


def tell(folder: Path, monkeypatch: pytest.MonkeyPatch, story: Callable[[Place], Coroutine[Any, Any, None]], fence: str = "") -> None:
    with serving(Secrets()) as server:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(folder / "kubeconfig", server.url)))

        async def go() -> None:
            engine = Warm(fence)
            await engine.open()
            try:
                await story(Place(server, folder, engine))
            finally:
                server.hangs.set()
                await engine.close()

        try:
            asyncio.run(go())
        finally:
            server.shutdown()


def test_a_run_that_found_nothing_stands_for_the_next_until_something_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(place: Place) -> None:
        server = place.server
        made = await place.run()
        assert (made.successful, made.changed, made.replayed) == (True, 2, None)
        assert not place.calls.exists(), "what changed something is no measure"
        quiet = await place.run()
        assert (quiet.successful, quiet.changed, quiet.replayed) == (True, 0, None)
        assert place.calls.stat().st_mode & 0o077 == 0
        played = list(server.asked)

        again = await place.run()
        assert (again.successful, again.code, again.changed, again.replayed, again.failure) == (True, 0, 0, True, "")
        assert sorted(server.asked) == played == ["GET first", "GET second"]
        assert set(again.tasks) == {"Make the first", "Make the second"}
        assert again.planned == 2
        assert (place.left("status"), place.left("rc")) == ("successful", "0")
        assert place.said().startswith("The calls of run 2, which found nothing to do, are made again without the playbook")
        assert "Make the second: as before." in place.said() and "PLAY" not in place.said()
        events = [json.loads(path.read_text()) for path in (tmp_path / "runs" / "3" / "job_events").iterdir()]
        assert {event["event"] for event in events} == {"verbose"} and all(event["runner_ident"] == "3" for event in events)

        # Somebody takes away what the last call looks at: it is made as the playbook would make it, once, and the playbook has the last word.
        del server.secrets["second"]
        drifted = await place.run()
        assert (drifted.successful, drifted.changed, drifted.changed_tasks, drifted.replayed) == (True, 1, ["Make the second"], False)
        assert sorted(server.asked[:2]) == played
        assert server.asked[2:] == ["GET second", "GET pods", "POST second", *played], (
            "what is missing is looked for once more, in its turn"
        )
        assert "Make the second: changed." in place.said() and "The playbook is run." in place.said() and "PLAY RECAP" in place.said()
        assert server.secrets["second"]["metadata"]["labels"] == {"found": "1"}
        assert (await place.run()).replayed is True

        # Another document, another wish, a failure before: the playbook.
        assert (await place.run("other", replayed=False)).replayed is None
        assert (await place.run()).replayed is None, "the calls are those of the other word by now"
        assert (await place.run()).replayed is True

        # The API server refuses: it is the playbook that says so.
        server.refuses = "second"
        refused = await place.run()
        assert (refused.successful, refused.replayed) == (False, False)
        assert refused.failure.startswith("Make the second: ") and "You may not" in refused.failure
        assert place.left("status") == "failed"
        server.refuses = ""
        assert (await place.run()).replayed is True

        # A file that was cut off, or is another version's.
        place.calls.write_bytes(place.calls.read_bytes()[:20])
        assert (await place.run()).replayed is None
        assert (await place.run()).replayed is True

        # What was done elsewhere, or failed, can not be made again.
        for more in (ELSEWHERE, IGNORED):
            place.calls.unlink(missing_ok=True)
            unlike = await place.run(play=PLAY + more)
            assert (unlike.successful, unlike.changed) == (True, 0)
            assert not place.calls.exists(), more

    tell(tmp_path, monkeypatch, story)


def test_it_is_ended_as_a_run_of_the_playbook_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fence = Fence()
    fence.move(math.inf)

    async def story(place: Place) -> None:
        server = place.server
        await place.run()
        await place.run()
        server.hangs.clear()
        ended = await place.run(until=lambda: bool(server.asked))
        assert (ended.ended, ended.code, ended.failure, ended.replayed) == ("superseded", 99, "", None)
        assert ended.seconds < 30
        assert (place.left("status"), place.left("rc")) == ("canceled", "99")
        assert set(server.asked) <= {"GET first", "GET second"} and "PLAY" not in place.said()
        late = await place.run(timeout=2.0)
        assert (late.ended, late.replayed) == ("timeout", None)

        # The lease is lost in the middle: nothing is written, by neither way.
        del server.secrets["second"]
        lost = asyncio.create_task(place.run())
        while not server.asked:
            await asyncio.sleep(0.02)
        fence.move(0.0)
        server.hangs.set()
        refused = await lost
        assert (refused.successful, refused.replayed) == (False, False)
        assert "has not renewed its Lease in time" in refused.failure
        assert not [one for one in server.asked if one.startswith("POST")]
        fence.move(math.inf)
        assert ((await place.run()).changed, "second" in server.secrets) == (1, True)

    tell(tmp_path, monkeypatch, story, fence.path)


CALL = {"role": "base", "check": False, "diff": False}


def call(action: str, returned: Json, **params: Any) -> Call:
    return Call(task=f"Do {action}", action=action, params=params, returned=replay._lasting(returned), **CALL)


def test_calls_wait_for_nothing_and_those_that_only_look_are_made_beside_the_others() -> None:
    given: list[tuple[str, Json]] = []
    asked = threading.Event()
    counts = {"total": 1, "in_service": 1, "drained": 0, "down": 0}
    busy = {"changed": False, "requests": 1, "nodes": [{"name": "cpu-0", "allocated_cpus": 4}], "counts": counts, "drained": ""}

    def apply(params: Json, **_modes: bool) -> Json:
        assert asked.wait(10), "the other call has been made by now"
        given.append(("apply", params))
        return {"changed": False, "requests": 7, "writes": 0}

    def look(params: Json, **_modes: bool) -> Json:
        given.append(("look", params))
        asked.set()
        return busy

    calls = [
        call("k8s_apply", {"changed": False, "requests": 9, "writes": 0}, wait=True, wait_timeout=300, objects=[]),
        call("slurm_node_info", {**busy, "nodes": [], "counts": {}, "requests": 2}, wait=True, wait_timeout=60),
    ]
    outcome, said = Outcome(), []
    held = Replay("1", calls, Known()).go({"k8s_apply": apply, "slurm_node_info": look}, lambda line: outcome.add(line or {}), said.append)
    assert held and outcome.replayed
    assert [name for name, _params in given] == ["look", "apply"]
    assert all(0 < params["wait_timeout"] < 0.01 for _name, params in given)
    assert outcome.nodes == {"total": 1, "inService": 1, "drained": 0, "down": 0}, "as they are now"
    assert calls[0].params["wait_timeout"] == 300
    assert threading.active_count() == 1


@pytest.mark.parametrize("early", [{"drained": "cpu-0"}, CorralError("Not all nodes are in service.")])
def test_what_only_looks_and_finds_something_else_has_the_playbook_run(early: Json | CorralError) -> None:
    made: list[str] = []

    def look(_params: Json, **_modes: bool) -> Json:
        if isinstance(early, CorralError):
            raise early
        return {"changed": False, "nodes": [], **early}

    def apply(_params: Json, **_modes: bool) -> Json:
        made.append("apply")
        return {"changed": False}

    calls = [call("k8s_apply", {"changed": False}), call("slurm_node_info", {"changed": False, "drained": ""}), call("k8s_apply", {})]
    outcome = Outcome()
    assert not Replay("1", calls, Known()).go(
        {"k8s_apply": apply, "slurm_node_info": look}, lambda line: outcome.add(line or {}), lambda _line: None
    )
    assert outcome.replayed is False
    assert made == ["apply"], "nothing is done after what is not as it was"
    assert outcome.changed == 0 and threading.active_count() == 1


def test_a_mistake_of_ours_is_not_taken_for_an_answer() -> None:
    def fails(_params: Json, **_modes: bool) -> Json:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Replay("1", [call("slurm_node_info", {})], Known()).go({"slurm_node_info": fails}, lambda _line: None, lambda _line: None)
    assert threading.active_count() == 1


def test_what_a_failing_call_has_changed_is_counted() -> None:
    def apply(_params: Json, **_modes: bool) -> Json:
        rows = [{"kind": "ConfigMap", "namespace": "n", "name": "a", "result": "configured"}]
        raise CorralError("Not ready.", data={"changed": True, "objects": rows})

    outcome = Outcome()
    assert not Replay("1", [call("k8s_apply", {"changed": False})], Known()).go(
        {"k8s_apply": apply}, lambda line: outcome.add(line or {}), str
    )
    assert (outcome.changed, outcome.changes) == (1, ["ConfigMap a configured"])


@pytest.fixture
def actions() -> tuple[Any, Any]:
    class Made:
        __module__ = "x.y.k8s_apply"

        @staticmethod
        def argument_spec() -> Json:
            return {"api_key": {"type": "str", "no_log": True}, "objects": {}}

        @staticmethod
        def backend(_params: Json, **_modes: bool) -> Json:
            return {"changed": False}

    class Computing:
        __module__ = "x.y.slurm_cluster_model"
        argument_spec = Made.argument_spec
        backend = Made.backend

    return Made, Computing


@pytest.mark.parametrize("given", [{"api_key": "secret"}, {"objects": [(1, 2)]}, {"objects": {1: 2}}, {"objects": object()}])
def test_what_can_not_be_written_down_is_not(given: Json, actions: tuple[Any, Any], tmp_path: Path) -> None:
    made, computing = actions
    recorder = Recorder()
    recorder.listen(actions)
    assert made.backend({"objects": []}, check=False, diff=False) == {"changed": False}
    computing.backend({}, check=False, diff=False)
    recorder.keep(tmp_path / "calls", "word", "1")
    found = replay.read(tmp_path / "calls", "word")
    assert found is not None and [one.action for one in found.calls] == ["k8s_apply"], "what only computes is not asked again"
    made.backend(given, check=False, diff=False)
    recorder.keep(tmp_path / "more", "word", "1")
    assert not (tmp_path / "more").exists()


def test_once_a_day_the_playbook_itself_looks(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    Replay("1", [], Known()).write(path, "word")
    assert replay.read(path, "word") is not None
    for made in (time.time() - 86500, time.time() + 1000):
        Replay("1", [], Known(), made).write(path, "word")
        assert replay.read(path, "word") is None


def test_a_run_that_found_something_is_not_written_down(actions: tuple[Any, Any], tmp_path: Path) -> None:
    made, _computing = actions
    for line in (
        {"kind": "ok", "changed": True},
        {"kind": "failed", "ignored": True},
        {"kind": "stats", "changed": 1},
        {"kind": "error", "text": "x"},
    ):
        recorder = Recorder()
        recorder.listen([made])
        made.backend({"objects": []}, check=False, diff=False)
        recorder.hear(line)
        recorder.keep(tmp_path / "calls", "word", "1")
        assert not (tmp_path / "calls").exists(), line
    assert replay.read(tmp_path / "calls", "word") is None


class Real:
    """An API server's objects, and what it is asked."""

    def __init__(self, *names: str) -> None:
        self.objects = {
            f"{COLLECTION}/{name}": {"metadata": {"name": name, "uid": name, "resourceVersion": "5", "labels": {INSTANCE: "c"}}}
            for name in names
        }
        self.asked: list[str] = []

    def get(self, where: str, *, what: str) -> Response:
        self.asked.append(where)
        path = where.partition("?")[0]
        if path in self.objects:
            return Response(200, self.objects[path])
        if path != COLLECTION:
            raise CorralError("There is none.")
        head = {"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "9"}}
        return Response(200, {**head, "items": list(self.objects.values())})


COLLECTION = "/api/v1/namespaces/n/configmaps"
INSTANCE = "app.kubernetes.io/instance"
QUESTION = "?fieldManager=corral&force=true"


def noted(real: Real) -> Known:
    """What a run has asked that applied all objects, and read one, and a Secret."""
    known = Known()
    for name in ("a", "b"):
        found = real.objects[f"{COLLECTION}/{name}"]
        known.note("s", "GET", f"{COLLECTION}?fieldSelector=metadata.name%3D{name}&limit=1", None, Response(200, {"items": [found]}))
        known.note("s", "PATCH", f"{COLLECTION}/{name}{QUESTION}", {"data": name}, Response(200, found))
    known.note("s", "GET", "/api/v1/namespaces/n/secrets/key", None, Response(200, {}))
    known.note("s", "GET", f"{COLLECTION}?resourceVersion=5&resourceVersionMatch=Exact", None, Response(200, {}))
    known.note("other", "GET", "/api/v1/namespaces/n/secrets/other", None, Response(200, {}))
    return Known(**json.loads(json.dumps(known.to_json())))


def test_an_apply_is_known_to_change_nothing_while_the_object_has_the_version_that_it_was_answered_with() -> None:
    real = Real("a", "b")
    known = noted(real)
    assert known.recall("s", "PATCH", f"{COLLECTION}/a{QUESTION}", {"data": "a"}) is None, "before anything was read nothing is known"
    known.look(real)
    assert sorted(real.asked) == [f"{COLLECTION}?labelSelector=app.kubernetes.io%2Finstance%3Dc", "/api/v1/namespaces/n/secrets/key"]
    found = known.recall("s", "GET", f"{COLLECTION}?fieldSelector=metadata.name%3Da&limit=1", None)
    assert found is not None and (found["metadata"]["resourceVersion"], [one["metadata"]["name"] for one in found["items"]]) == ("9", ["a"])
    assert known.recall("s", "GET", f"{COLLECTION}?fieldSelector=metadata.name%3Da&limit=1", None) is None, "an answer is used once"
    assert known.recall("s", "GET", "/api/v1/namespaces/n/secrets/key", None) is None, "there is none: it is asked for"
    assert known.recall("s", "PATCH", f"{COLLECTION}/a{QUESTION}", {"data": "a"}) == real.objects[f"{COLLECTION}/a"]
    assert known.recall("s", "PATCH", f"{COLLECTION}/a{QUESTION}", {"data": "other"}) is None
    assert known.recall("s", "PATCH", f"{COLLECTION}/a?fieldManager=other", {"data": "a"}) is None
    assert known.recall("other", "PATCH", f"{COLLECTION}/a{QUESTION}", {"data": "a"}) is None
    assert known.recall("s", "DELETE", f"{COLLECTION}/a", None) is None
    assert not known.changed


def test_what_a_list_has_is_not_asked_for_beside_it() -> None:
    real = Real("a", "b")
    real.objects[f"{COLLECTION}/b"]["metadata"]["labels"]["part"] = "x"
    whole = {path: {"apiVersion": "v1", "kind": "ConfigMap", **found} for path, found in real.objects.items()}
    known = noted(real)
    mine, others = f"{INSTANCE.replace('/', '%2F')}%3Dc", f"{INSTANCE.replace('/', '%2F')}%3Dd"
    listed = [f"{COLLECTION}?labelSelector={mine}%2Cpart%3D{part}&limit=500" for part in ("x", "y")]
    foreign = [
        f"{COLLECTION}?labelSelector={others}&limit=500",
        f"{COLLECTION}?labelSelector={mine}%2Cpart%21%3Dx&limit=500",
        f"{COLLECTION}?labelSelector={mine}%2Cpart+in+%28x%2Cy%29&limit=500",
        f"{COLLECTION}?labelSelector={mine}&fieldSelector=metadata.name%3Da&limit=500",
        f"{COLLECTION}?fieldSelector=metadata.name%21%3Da&limit=1",
        COLLECTION,
    ]
    for path, found in whole.items():
        known.note("s", "GET", path, None, Response(200, found))
    for where in (*listed, *foreign):
        known.note("s", "GET", where, None, Response(200, {"items": []}))
    known.note("s", "GET", f"{COLLECTION}/strange", None, Response(200, {"metadata": {"name": "strange"}}))
    known = Known(**json.loads(json.dumps(known.to_json())))
    known.look(real)
    secret, whole_list = "/api/v1/namespaces/n/secrets/key", f"{COLLECTION}?labelSelector={mine}"
    assert sorted(real.asked) == sorted([whole_list, secret, f"{COLLECTION}/strange", *foreign])
    assert {path: known.recall("s", "GET", path, None) for path in whole} == whole
    assert [[one["metadata"]["name"] for one in (known.recall("s", "GET", where, None) or {})["items"]] for where in listed] == [["b"], []]
    # One that is not there any more is asked for, and not taken for one that never was.
    gone = Known(**json.loads(json.dumps(known.to_json())))
    del real.objects[f"{COLLECTION}/a"]
    gone.look(real)
    assert gone.recall("s", "GET", f"{COLLECTION}/a", None) is None and gone.recall("s", "GET", f"{COLLECTION}/b", None) is not None


@pytest.mark.parametrize("change", [{"resourceVersion": "6"}, {"uid": "another"}, None])
def test_an_object_that_was_touched_is_applied(change: dict[str, str] | None) -> None:
    real = Real("a", "b")
    known = noted(real)
    if change is None:
        del real.objects[f"{COLLECTION}/a"]
    else:
        real.objects[f"{COLLECTION}/a"]["metadata"].update(change)
    known.look(real)
    assert known.recall("s", "PATCH", f"{COLLECTION}/a{QUESTION}", {"data": "a"}) is None
    assert known.recall("s", "PATCH", f"{COLLECTION}/b{QUESTION}", {"data": "b"}) is not None


def test_nothing_is_known_any_more_when_something_was_written() -> None:
    real = Real("a", "b")
    known = noted(real)
    real.objects[f"{COLLECTION}/a"]["metadata"]["resourceVersion"] = "6"
    known.look(real)
    # Its status alone was written: the apply is answered with the version that was read, and goes on being known.
    known.note("s", "PATCH", f"{COLLECTION}/a{QUESTION}", {"data": "a"}, Response(200, real.objects[f"{COLLECTION}/a"]))
    assert known.changed and known.recall("s", "PATCH", f"{COLLECTION}/a{QUESTION}", {"data": "a"}) is not None
    written = {"metadata": {"name": "a", "uid": "a", "resourceVersion": "7", "labels": {INSTANCE: "c"}}}
    known.note("s", "PATCH", f"{COLLECTION}/a{QUESTION}", {"data": "new"}, Response(200, written))
    assert known.recall("s", "PATCH", f"{COLLECTION}/b{QUESTION}", {"data": "b"}) is None
    assert known.recall("s", "GET", f"{COLLECTION}?fieldSelector=metadata.name%3Db&limit=1", None) is None
    known.look(real)
    known.note("s", "DELETE", f"{COLLECTION}/b", None, Response(200, {}))
    assert known.recall("s", "PATCH", f"{COLLECTION}/b{QUESTION}", {"data": "b"}) is None


def test_a_list_that_may_not_be_read_leaves_all_to_be_asked() -> None:
    real = Real("a", "b")
    known = noted(real)

    def refuse(_where: str, **_words: str) -> Response:
        raise CorralError("You may not.")

    real.get = refuse  # type: ignore[method-assign]
    known.look(real)
    assert known.recall("s", "PATCH", f"{COLLECTION}/a{QUESTION}", {"data": "a"}) is None
