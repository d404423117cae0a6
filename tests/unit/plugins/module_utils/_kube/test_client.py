# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is tried again, when, and what is not; against a scripted server."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import client as module
from ansible_collections.corral.slurm.plugins.module_utils._kube.auth import Access
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client, Retry, Stop
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import Discovery
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ApiError, Conflict, KubeError, NotFound, Unreachable
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import run_in_pod

from .....server import Handler, Server, serving

OBJECT = {"apiVersion": "v1", "kind": "Echo"}


class Scripted(Server):
    """Answers from a list: a code, (code, body) or "reset"; then 200."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.script: list[Any] = []
        self.seen: list[tuple[str, str, str]] = []
        self.lines: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"{super().url}/prefix"


class _Handler(Handler):
    server: Scripted

    def _next(self) -> None:
        body = self.body()
        self.server.seen.append((self.command, self.path, self.headers.get("Authorization") or ""))
        step = self.server.script.pop(0) if self.server.script else 200
        if step == "reset":
            self.cut()
            return
        code, document, headers = (*step, {}, {})[:3] if isinstance(step, tuple) else (step, {**OBJECT, "echo": body.decode()}, {})
        if "watch=1" in self.path and code == 200:
            document = b"".join(json.dumps(line).encode() + b"\n" for line in self.server.lines)
        self.answer(code, document, headers, kind="")

    do_GET = do_PATCH = do_POST = do_DELETE = _next


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving(Scripted()) as started:
        yield started


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(server: Scripted, pauses: list[float]) -> Iterator[Client]:
    made = Client(Access(server=server.url, source="a test"), retry=Retry(attempts=4), sleep=pauses.append)
    yield made
    made.close()


RACE = (409, {"reason": "Conflict", "message": "the object has been modified"})
FIELDS = (
    409,
    {"reason": "Conflict", "details": {"causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "x"', "field": ".a"}]}},
)
EXISTS = (409, {"reason": "AlreadyExists"})
OTHER_UID = (409, {"reason": "Conflict", "message": "the UID in the precondition (a) does not match"})
SCHEMA = (500, {"message": "failed to create typed patch object (a): .b: field not declared in schema"})


@pytest.mark.parametrize("step", [429, 500, 502, 503, 504, RACE, "reset"])
def test_what_is_tried_again(server: Scripted, client: Client, step: Any) -> None:
    server.script = [step, step]
    assert client.request("PATCH", "/x", what="do", body={"a": 1}).data == {**OBJECT, "echo": '{"a": 1}'}
    assert len(server.seen) == 3 and client.requests == 3 and server.seen[0][1] == "/prefix/x"


@pytest.mark.parametrize("step", [400, 401, 403, 404, 405, 422, FIELDS, EXISTS, OTHER_UID, SCHEMA])
def test_what_is_not_tried_again(server: Scripted, client: Client, step: Any) -> None:
    server.script = [step]
    with pytest.raises(ApiError):
        client.request("PATCH", "/x", what="do", body={})
    assert len(server.seen) == 1


@pytest.fixture
def clocked(server: Scripted, pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client as all are, whose pauses take no time; its clock has them all the same."""
    monkeypatch.setattr(module.time, "monotonic", lambda: sum(pauses))
    made = Client(Access(server=server.url, source="a test"), sleep=pauses.append)
    yield made
    made.close()


def test_a_server_that_is_broken_is_asked_for_ten_seconds(server: Scripted, clocked: Client, pauses: list[float]) -> None:
    server.script = [500] * 20
    with pytest.raises(ApiError, match="answered 500"):
        clocked.request("PATCH", "/x", what="do", body={})
    assert 6 <= len(server.seen) <= 9 and len(pauses) == len(server.seen) - 1, "as many that what passes can have passed"
    assert 3 <= sum(pauses) <= 10 and pauses[0] <= 0.1 and pauses[4] >= 0.8, "growing"


def test_the_ten_seconds_are_of_nothing_but_500(server: Scripted, clocked: Client, pauses: list[float]) -> None:
    server.script = [(429, {}, {"Retry-After": "20"}), 500, (503, {}, {"Retry-After": "20"}), 500, 500]
    assert clocked.request("PATCH", "/x", what="do", body={}).code == 200
    assert sum(pauses) > 40
    server.script = [500, (429, {}, {"Retry-After": "50"}), *[500] * 9]
    del pauses[:], server.seen[:]
    with pytest.raises(ApiError, match="answered 500"):
        clocked.request("PATCH", "/x", what="do", body={})
    assert sum(pauses) <= 60, "nor longer than any other"


STATUS = {"apiVersion": "v1", "kind": "Status", "status": "Success"}


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
@pytest.mark.parametrize("answer", [[1], "text", None, b"", b"<html>", {}, {"error": "login"}, {"kind": "x"}, {"apiVersion": "v1"}, STATUS])
def test_an_answer_that_is_no_object_is_told(server: Scripted, client: Client, method: str, answer: Any) -> None:
    server.script = [(200, answer)]
    if (method, answer) == ("DELETE", STATUS):
        assert client.request(method, "/x", what="do").data == STATUS
        return
    with pytest.raises(
        Unreachable,
        match=r"answered 200 with something \(no content type\) that is no Kubernetes object; is it an API server, or a proxy's page",
    ):
        client.request(method, "/x", what="do")
    assert len(server.seen) == 1


def test_discovery_of_the_core_group_says_no_version(server: Scripted, client: Client) -> None:
    """As Kubernetes keeps it since 1.1 (k8s.io/apiserver, pkg/endpoints/discovery, keepUnversioned)."""
    server.script = [(200, {"kind": "APIResourceList", "groupVersion": "v1", "resources": []})]
    with pytest.raises(NotFound, match="The API server has no kind Thing in v1"):
        Discovery(client).resource("v1", "Thing")


def test_a_race_is_not_tried_again_when_the_caller_names_a_version(server: Scripted, client: Client) -> None:
    server.script = [RACE]
    with pytest.raises(Conflict):
        client.request("PATCH", "/x", what="do", body={}, retry_conflict=False)
    assert len(server.seen) == 1


def test_patience_ends(server: Scripted, client: Client, pauses: list[float]) -> None:
    server.script = [503] * 9
    with pytest.raises(ApiError, match="answered 503"):
        client.get("/x", what="do")
    assert len(server.seen) == 4 and len(pauses) == 3
    assert pauses == sorted(pauses) and 0.05 <= pauses[0] <= 0.1 and 0.2 <= pauses[2] <= 0.4, "doubled, with a random half"


def test_retry_after_is_obeyed_but_not_for_ever(server: Scripted, client: Client, pauses: list[float]) -> None:
    server.script = [(429, {}, {"Retry-After": "7"})]
    client.get("/x", what="do")
    assert 7 <= pauses[0] < 7.1
    server.script = [(429, {}, {"Retry-After": "3600"})]
    with pytest.raises(ApiError):
        client.get("/x", what="do")


def test_a_server_that_never_answered_is_given_up_soon(pauses: list[float]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    client = Client(Access(server=url, source="kubeconfig /x, context y"), sleep=pauses.append)
    with pytest.raises(
        Unreachable, match=rf"Could not do: the API server {url} \(kubeconfig /x, context y\) does not answer: connection refused"
    ):
        client.get("/x", what="do")
    assert client.requests == 3 and sum(pauses) < 1


def test_credentials_that_ran_out_are_read_again_once(server: Scripted) -> None:
    tokens = iter(["old", "new", "new"])
    client = Client(Access(server=server.url, source="a test", authorization=lambda: {"Authorization": next(tokens)}))
    server.script = [401]
    client.get("/x", what="do")
    assert [seen[2] for seen in server.seen] == ["old", "new"]
    server.script = [401, 401]
    with pytest.raises(ApiError, match="does not accept the credentials"):
        client.get("/x", what="do")
    client.close()


def test_who_is_asked_before_requests_is_asked_before_each_try_and_each_command_in_a_pod(
    server: Scripted, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_before_request", None)
    asked: list[tuple[int, bool]] = []

    def ask(writes: bool) -> None:
        asked.append((len(server.seen), writes))
        if writes and len(asked) > 2:
            raise CorralError("No more.")

    module.ask_before_requests(ask)
    server.script = [503, 503, 503]
    with pytest.raises(CorralError, match="No more"):
        client.request("PATCH", "/a", what="write a", body={})
    assert (asked, len(server.seen), client.requests) == ([(0, True), (1, True), (2, True)], 2, 2)
    with pytest.raises(CorralError, match="No more"):
        run_in_pod(client, namespace="n", pod="p", container="c", command=["scontrol", "ping"])
    assert (client.requests, asked[-1]) == (2, (2, True)), "nobody can see what a command does"
    server.script.clear()
    assert client.get("/a", what="read a").code == 200
    assert asked[-1] == (2, False)


def test_pages(server: Scripted, client: Client) -> None:
    server.script = [
        (200, {**OBJECT, "items": [1, 2], "metadata": {"continue": "to ken"}}),
        (200, {**OBJECT, "items": [3], "metadata": {}}),
    ]
    assert client.items("/x", what="do", query={"labelSelector": "a=b"}) == [1, 2, 3]
    assert [seen[1] for seen in server.seen] == [
        "/prefix/x?labelSelector=a%3Db&limit=500",
        "/prefix/x?labelSelector=a%3Db&limit=500&continue=to%20ken",
    ]


def test_what_is_no_json_is_told(client: Client) -> None:
    for bad in ({"a": float("nan")}, {"a": "\ud800"}, {"a": {1, 2}}):
        with pytest.raises(KubeError, match=r"Could not do: the object cannot be sent as JSON"):
            client.request("PATCH", "/x", what="do", body=bad)


def test_a_watch_yields_its_lines_and_survives_a_cut(server: Scripted, client: Client) -> None:
    server.lines = [{"type": "ADDED", "object": {"n": "é" * 9000}}, {"type": "DELETED", "object": {}}]
    events = list(client.watch("/x", what="watch", query={}, seconds=5, stop=Stop()))
    assert events == server.lines and "timeoutSeconds=5" in server.seen[0][1]
    server.script = ["reset"]
    assert list(client.watch("/x", what="watch", query={}, seconds=5, stop=Stop())) == []
    server.script = [403]
    with pytest.raises(ApiError):
        list(client.watch("/x", what="watch", query={}, seconds=5, stop=Stop()))
