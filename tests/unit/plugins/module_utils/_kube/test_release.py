# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Letting go of objects: one finalizer and no other, whoever writes meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import release as module
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Response
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Forbidden, api_error, parse_status

OURS = "corral.hpc/destroy"
OWNER = "corral.hpc/operator"
API = "/apis/corral.hpc/v1alpha1"


class Server:
    """SlurmClusters by name; ``races`` are writes of somebody else that come before ours."""

    def __init__(self, **finalizers: list[str]) -> None:
        self.finalizers = finalizers
        self.versions = dict.fromkeys(finalizers, 1)
        self.owners: dict[str, str] = {}
        self.refuse: dict[str, int] = {}
        self.races: list[tuple[str, list[str]]] = []
        self.lists: list[tuple[str, dict[str, str]]] = []
        self.requests = 0

    def _object(self, name: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "n", "resourceVersion": str(self.versions[name]), "finalizers": self.finalizers[name]}
        return {"metadata": {**metadata, **({"annotations": {OWNER: self.owners[name]}} if name in self.owners else {})}}

    def _may(self, verb: str, what: str) -> None:
        if verb in self.refuse:
            raise api_error(parse_status(self.refuse[verb], b"{}", None), what, server="s")

    def get(self, path: str, *, what: str) -> Response:
        self._may("GET", what)
        if path == API:
            return Response(200, {"resources": [{"kind": "SlurmCluster", "name": "slurmclusters", "namespaced": True}]})
        return Response(200, self._object(path.rpartition("/")[2]))

    def items(self, path: str, *, query: dict[str, str], **_options: Any) -> list[dict[str, Any]]:
        self.lists.append((path, query))
        return [self._object(name) for name in self.finalizers]

    def request(self, verb: str, path: str, *, what: str, query: Any, body: Any, **_options: Any) -> Response:
        self._may(verb, what)
        name = path.rpartition("/")[2]
        if self.races:
            raced, now = self.races.pop()
            self.finalizers[raced], self.versions[raced] = now, self.versions[raced] + 1
        if body["metadata"]["resourceVersion"] != str(self.versions[name]):
            raise api_error(parse_status(409, b"{}", None), what, server="s")
        if not query:
            self.finalizers[name] = body["metadata"]["finalizers"]
            if body["metadata"].get("annotations") == {OWNER: None}:
                del self.owners[name]
        return Response(200, self._object(name))

    def close(self) -> None:
        """Nothing is open."""


def release(server: Server, monkeypatch: pytest.MonkeyPatch, *, check: bool = False, **more: Any) -> dict[str, Any]:
    monkeypatch.setattr(module.auth, "resolve", lambda _params: None)
    monkeypatch.setattr(module, "Client", lambda _access: server)
    params = {"api_version": "corral.hpc/v1alpha1", "kind": "SlurmCluster", "finalizer": OURS, "namespaces": [], "selector": "", **more}
    return module.release(params, check=check, diff=True)


def test_only_one_finalizer_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(a=[OURS, "other/one"], b=["other/one"], c=[])
    found = release(server, monkeypatch)
    assert server.finalizers == {"a": ["other/one"], "b": ["other/one"], "c": []}
    assert (found["changed"], found["writes"], [row["name"] for row in found["objects"]]) == (True, 1, ["a"])
    assert [entry["after"] for entry in found["diff"]] == [{"finalizers": ["other/one"]}]
    again = release(server, monkeypatch)
    assert (again["changed"], again["writes"], again["diff"]) == (False, 0, [])


def test_only_of_objects_of_one_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(a=[OURS], b=[OURS], c=[OURS], d=[])
    server.owners = {"a": "x/one", "b": "x/two", "d": "x/one"}
    found = release(server, monkeypatch, annotation=OWNER, owner="x/one")
    assert [row["name"] for row in found["objects"]] == ["a", "d"]
    assert (server.finalizers, server.owners) == ({"a": [], "b": [OURS], "c": [OURS], "d": []}, {"b": "x/two"})
    release(server, monkeypatch, annotation=OWNER)
    assert server.finalizers["b"] == [OURS], "without a name is not with another one"
    assert server.finalizers["c"] == []


def test_a_check_says_so_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(a=[OURS])
    found = release(server, monkeypatch, check=True)
    assert (found["changed"], found["writes"]) == (True, 0)
    assert server.finalizers == {"a": [OURS]}


def test_a_finalizer_that_comes_meanwhile_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(a=[OURS])
    server.races = [("a", [OURS, "other/one"])]
    assert release(server, monkeypatch)["changed"]
    assert server.finalizers == {"a": ["other/one"]}


def test_in_the_namespaces_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    release(server, monkeypatch, namespaces=["one", "two"], selector="team=a")
    assert server.lists == [(f"{API}/namespaces/{name}/slurmclusters", {"labelSelector": "team=a"}) for name in ("one", "two")]
    release(server, monkeypatch)
    assert server.lists[2:] == [(f"{API}/slurmclusters", {})]


def test_without_the_kind_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(a=[OURS])
    server.refuse = {"GET": 404}
    assert not release(server, monkeypatch)["changed"]


def test_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(a=[OURS])
    server.refuse = {"PATCH": 403}
    with pytest.raises(Forbidden) as told:
        release(server, monkeypatch)
    assert told.value.data["changed"] is False
