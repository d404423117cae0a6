# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sizes that are asked for of SlurmNodeSets: read, begun with where they are missing, and never changed."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import sizes
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Response
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Forbidden, api_error, parse_status

PATH = "/apis/corral.hpc/v1alpha1/namespaces/ns/slurmnodesets"


class Server:
    """SlurmNodeSets by name; ``refuse`` is the code for lists, ``raced`` is what somebody else makes just before us."""

    def __init__(self, **replicas: int) -> None:
        self.objects: dict[str, dict[str, Any]] = {
            name: {"metadata": {"name": name}, "spec": {"replicas": count}} for name, count in replicas.items()
        }
        self.refuse = 0
        self.raced: dict[str, dict[str, Any]] = {}
        self.posted: list[tuple[Any, dict[str, Any]]] = []
        self.requests = 0

    def items(self, path: str, *, what: str, query: dict[str, str]) -> list[dict[str, Any]]:
        assert path == PATH
        if self.refuse:
            raise api_error(parse_status(self.refuse, b"{}", None), what, server="s")
        return list(self.objects.values())

    def get(self, path: str, *, what: str) -> Response:
        return Response(200, self.objects[path.removeprefix(f"{PATH}/")])

    def request(self, verb: str, path: str, *, what: str, query: Any, body: dict[str, Any], retry_conflict: bool) -> Response:
        assert (verb, path, retry_conflict) == ("POST", PATH, False)
        self.posted.append((query, body))
        self.objects.update(self.raced)
        name = body["metadata"]["name"]
        if name in self.objects:
            raise api_error(parse_status(409, b'{"reason": "AlreadyExists"}', None), what, server="s")
        self.objects[name] = body
        return Response(201, body)

    def close(self) -> None:
        """Nothing is open."""


def ask(server: Server, monkeypatch: pytest.MonkeyPatch, *, check: bool = False) -> dict[str, Any]:
    monkeypatch.setattr(sizes.auth, "resolve", lambda _params: None)
    monkeypatch.setattr(sizes, "Client", lambda _access: server)
    node_sets = [
        {"name": "cpu", "object": "lab-cpu", "replicas": 2, "labels": {"a": "b"}},
        {"name": "gpu", "object": "lab-gpu", "replicas": 1, "labels": {}},
    ]
    return sizes.run({"namespace": "ns", "node_sets": node_sets}, check=check, diff=True)


def test_what_is_asked_for_counts_and_what_is_missing_begins_with_the_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(**{"lab-cpu": 7, "other-cpu": 3})
    found = ask(server, monkeypatch)
    assert found["sizes"] == {"cpu": 7, "gpu": 1}
    assert found["changed"] and [one["after"] for one in found["diff"]] == [{"spec": {"replicas": 1}}]
    [(query, body)] = server.posted
    assert query == {"fieldManager": "corral-scale"}, "who applies the rest does not own the number"
    assert (body["metadata"]["name"], body["spec"]) == ("lab-gpu", {"replicas": 1})
    again = ask(server, monkeypatch)
    assert (again["changed"], again["sizes"], len(server.posted)) == (False, found["sizes"], 1)


def test_a_check_makes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    found = ask(server, monkeypatch, check=True)
    assert (found["changed"], found["sizes"], server.posted) == (True, {"cpu": 2, "gpu": 1}, [])


def test_an_api_server_that_does_not_know_them_is_no_fault_and_one_that_refuses_is(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    server.refuse = 404
    assert ask(server, monkeypatch)["sizes"] is None
    server.refuse = 403
    with pytest.raises(Forbidden, match="SlurmNodeSets in ns"):
        ask(server, monkeypatch)


def test_one_that_another_run_makes_at_the_same_time_is_as_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(**{"lab-gpu": 1})
    server.raced = {"lab-cpu": {"metadata": {"name": "lab-cpu"}, "spec": {"replicas": 5}}}
    assert ask(server, monkeypatch)["sizes"] == {"cpu": 5, "gpu": 1}


def test_one_without_a_number_is_none_to_go_by(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(**{"lab-gpu": 1})
    server.objects["lab-cpu"] = {"metadata": {"name": "lab-cpu"}, "spec": {}}
    assert ask(server, monkeypatch)["sizes"] == {"cpu": 2, "gpu": 1}
