# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server's addresses, as it tells them itself."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import api_server
from ansible_collections.corral.slurm.plugins.module_utils._kube.auth import Access
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Response
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, api_error, parse_status

SERVICE = "/api/v1/namespaces/default/services/kubernetes"
SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"


class Server:
    """Answers by path: an object, or the code of a refusal."""

    def __init__(self, answers: dict[str, Any], server: str) -> None:
        self.answers = answers
        self.requests = 0
        self.access = Access(server=server, source="s")

    def get(self, path: str, *, what: str) -> Response:
        self.requests += 1
        answer = self.answers.get(path, 404)
        if isinstance(answer, int):
            raise api_error(parse_status(answer, b"{}", None), what, server="s")
        return Response(200, answer)

    def close(self) -> None:
        """Nothing is open."""


POLICY = "/apis/networking.k8s.io/v1/namespaces/ns/networkpolicies/demo-base"
SERVICE_THERE = {"spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00:0:0::1"]}}


def ask(
    answers: dict[str, Any],
    *,
    server: str = "https://127.0.0.1:6443",
    record: str | None = None,
    addresses: Sequence[str] = (),
    networks: Sequence[str] = (),
) -> dict[str, Any]:
    """What a run finds, for which an earlier one has left a record, by a connection that tells nothing unless it is said."""
    if record is not None:
        answers[POLICY] = {"metadata": {"annotations": {api_server.ANNOTATION: record}}}
    client: Any = Server(answers, server)
    return {**api_server.read(client, "ns", "demo-base", list(addresses), list(networks)), "requests": client.requests}


def endpoints(*addresses: str) -> dict[str, Any]:
    return {"addressType": "IPv4", "endpoints": [{"addresses": [address]} for address in addresses]}


def test_addresses_of_the_service_and_those_behind_it_in_an_order_that_lasts() -> None:
    answers = {SERVICE: SERVICE_THERE, SLICE: endpoints("192.0.2.9", "192.0.2.10", "192.0.2.9", "api.example.com")}
    assert ask(answers) == {
        "ipv4": ["10.96.0.1/32", "192.0.2.10/32", "192.0.2.9/32"],
        "ipv6": ["fd00::1/128"],
        "within": {},
        "record": "EndpointSlice/kubernetes=192.0.2.10/32 EndpointSlice/kubernetes=192.0.2.9/32 "
        "Service/kubernetes=10.96.0.1/32 Service/kubernetes=fd00::1/128",
        "requests": 3,
    }


@pytest.mark.parametrize("code", [401, 403, 404])
@pytest.mark.parametrize(("refused", "lost", "left"), [(SERVICE, "10.96.0.1/32", "192.0.2.9/32"), (SLICE, "192.0.2.9/32", "10.96.0.1/32")])
def test_a_run_that_may_not_read_one_of_them_keeps_what_it_read_and_what_runs_before_it_had_read(
    refused: str, lost: str, left: str, code: int
) -> None:
    both = {SERVICE: {"spec": {"clusterIPs": ["10.96.0.1"]}}, SLICE: endpoints("192.0.2.9")}
    alone = ask({**both, refused: code})
    assert alone["ipv4"] == [left]
    [warning] = alone["warnings"]
    assert warning.startswith("Could not read the ")
    assert "spec.network.egress.apiServer" in warning
    assert "docs/rights.md" in warning
    assert warning.count(". ") == 0, "it is one sentence"
    record = ask(both)["record"]
    later = ask({**both, refused: code}, record=record)
    assert later["ipv4"] == sorted([lost, left])
    assert later["record"] == record
    assert "warnings" not in later


@pytest.mark.parametrize("answers", [{SERVICE: {"spec": {}}, SLICE: {"endpoints": None}}, {}, {SERVICE: 403, SLICE: 403}])
def test_none_at_all_are_none_only_where_no_run_has_read_any(answers: dict[str, Any]) -> None:
    nothing = ask(dict(answers))
    assert (nothing["ipv4"], nothing["ipv6"], nothing["record"], len(nothing["warnings"])) == ([], [], "", 1)
    record = "EndpointSlice/kubernetes=192.0.2.9/32 Service/kubernetes=10.96.0.1/32 Service/kubernetes=fd00::1/128"
    kept = ask(dict(answers), record=record)
    assert (kept["ipv4"], kept["ipv6"], kept["record"]) == (["10.96.0.1/32", "192.0.2.9/32"], ["fd00::1/128"], record)
    assert "warnings" not in kept


def test_what_has_moved_is_closed_where_it_is_and_open_where_it_was() -> None:
    record = "EndpointSlice/kubernetes=192.0.2.9/32 Service/kubernetes=10.96.0.1/32"
    moved = ask({SERVICE: {"spec": {"clusterIPs": ["10.97.0.1"]}}, SLICE: endpoints("192.0.2.8")}, record=record)
    assert moved["ipv4"] == ["10.97.0.1/32", "192.0.2.8/32"]


@pytest.mark.parametrize(
    "policy", [404, {"metadata": {}}, {"metadata": {"annotations": {api_server.ANNOTATION: "who knows=what =10.0.0.1/8"}}}]
)
def test_a_record_that_is_none_is_none(policy: Any) -> None:
    answers = {SERVICE: SERVICE_THERE, SLICE: endpoints("192.0.2.9"), POLICY: policy}
    found = ask(answers)
    assert (found["ipv4"], found["ipv6"], found["requests"]) == (["10.96.0.1/32", "192.0.2.9/32"], ["fd00::1/128"], 3)


def test_a_record_that_may_not_be_read_ends_the_run() -> None:
    """To go on as if there were none would open what it names."""
    with pytest.raises(KubeError, match="read NetworkPolicy ns/demo-base"):
        ask({POLICY: 403})


@pytest.mark.parametrize(
    ("server", "resolved", "closed"),
    [
        ("https://198.51.100.4:6443", None, ["198.51.100.4/32"]),
        ("https://[2001:db8::4]", None, ["2001:db8::4/128"]),
        ("https://[::ffff:198.51.100.4]:6443", None, ["198.51.100.4/32"]),
        ("https://api.example.com/k8s/clusters/c-1", ["198.51.100.5", "198.51.100.4", "2001:db8::4"], None),
        ("https://127.0.0.1:6443", None, []),
        ("https://[::1]:6443", None, []),
        ("https://[::ffff:127.0.0.1]:6443", None, []),
        ("https://0.0.0.0:6443", None, []),
        ("https://localhost:6443", ["127.0.0.1", "::1"], []),
        ("https://api.example.com", socket.gaierror(socket.EAI_NONAME, "no such name"), []),
        ("https://" + "a" * 64 + ".example.com", None, []),
    ],
)
def test_the_server_of_the_connection_is_closed_too(
    monkeypatch: pytest.MonkeyPatch, server: str, resolved: Any, closed: list[str] | None
) -> None:
    """It may be a load balancer, of which no object tells. Never this machine by itself: the end of a tunnel is an address of every machine."""
    if resolved is not None:
        monkeypatch.setattr(api_server.socket, "getaddrinfo", Names(resolved))
    found = ask({SERVICE: SERVICE_THERE, SLICE: endpoints("192.0.2.9")}, server=server)
    wanted = resolved if closed is None else [text.partition("/")[0] for text in closed]
    assert {*found["ipv4"], *found["ipv6"]} == {"10.96.0.1/32", "192.0.2.9/32", "fd00::1/128"} | {
        f"{text}/{128 if ':' in text else 32}" for text in wanted
    }


class Names:
    """DNS that has one answer."""

    def __init__(self, answer: list[str] | OSError) -> None:
        self.answer = answer

    def __call__(self, host: str, port: None, *, type: socket.SocketKind) -> list[Any]:  # noqa: A002  # the library's own word
        if isinstance(self.answer, OSError):
            raise self.answer
        return [(socket.AF_INET6 if ":" in text else socket.AF_INET, type, 6, "", (text, 0)) for text in self.answer]


def test_who_comes_another_way_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does DNS that tells some of the addresses at a time."""
    answers = {SERVICE: SERVICE_THERE, SLICE: endpoints("192.0.2.9")}
    record = ""
    for told in (["198.51.100.4"], ["198.51.100.5", "198.51.100.4"], ["198.51.100.5"]):
        monkeypatch.setattr(api_server.socket, "getaddrinfo", Names(told))
        record = ask(dict(answers), server="https://api.example.com", record=record)["record"]
    monkeypatch.undo()
    found = ask(dict(answers), server="https://10.96.0.1", record=record)
    assert found["ipv4"] == ["10.96.0.1/32", "192.0.2.9/32", "198.51.100.4/32", "198.51.100.5/32"]
    again = ask(dict(answers), server="https://10.96.0.1", record=found["record"])
    assert again == found


def test_addresses_that_are_named_are_all_and_the_record_stays() -> None:
    record = "Service/kubernetes=10.96.0.1/32"
    found = ask({}, server="https://198.51.100.4", record=record, addresses=["192.0.2.0/24", "2001:db8::6/128"])
    assert (found["ipv4"], found["ipv6"], found["record"], found["requests"]) == (["192.0.2.0/24"], ["2001:db8::6/128"], record, 1)
    assert "warnings" not in found


def test_which_of_them_lie_within_a_network_and_are_not_all_of_it() -> None:
    networks = ["0.0.0.0/0", "::/0", "10.0.0.0/8", "10.96.0.1/32", "198.51.100.0/24"]
    answers = {SERVICE: SERVICE_THERE, SLICE: endpoints("192.0.2.9")}
    assert ask(answers, networks=networks)["within"] == {
        "0.0.0.0/0": ["10.96.0.1/32", "192.0.2.9/32"],
        "::/0": ["fd00::1/128"],
        "10.0.0.0/8": ["10.96.0.1/32"],
        "10.96.0.1/32": [],
        "198.51.100.0/24": [],
    }


def test_another_refusal_ends_the_run() -> None:
    with pytest.raises(KubeError, match="read the Service default/kubernetes"):
        ask({SERVICE: 400})
