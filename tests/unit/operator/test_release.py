# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Letting go of documents: the operator's finalizer and no other, whoever writes meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Forbidden, api_error, parse_status
from corral_operator.release import release

OURS = "corral.hpc/destroy"
LIST = "/apis/corral.hpc/v1alpha1/slurmclusters"


class Server:
    """SlurmClusters by name; ``races`` are writes of somebody else that come before ours."""

    def __init__(self, **finalizers: list[str]) -> None:
        self.finalizers = finalizers
        self.versions = dict.fromkeys(finalizers, 1)
        self.refuse: dict[str, int] = {}
        self.races: list[tuple[str, list[str]]] = []
        self.paths: list[str] = []

    def document(self, name: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "n", "resourceVersion": str(self.versions[name]), "finalizers": self.finalizers[name]}
        return {"metadata": metadata}

    async def request(self, method: str, path: str, *, what: str, body: Any = None, **_options: Any) -> dict[str, Any]:
        self.paths.append(path)
        if method in self.refuse:
            raise api_error(parse_status(self.refuse[method], b"{}", None), what, server="s")
        name = path.rpartition("/")[2]
        if name == "slurmclusters":
            return {"items": [self.document(one) for one in self.finalizers], "metadata": {}}
        if method == "PATCH":
            if self.races:
                raced, now = self.races.pop()
                self.finalizers[raced], self.versions[raced] = now, self.versions[raced] + 1
            if body["metadata"]["resourceVersion"] != str(self.versions[name]):
                raise api_error(parse_status(409, b"{}", None), what, server="s")
            self.finalizers[name] = body["metadata"]["finalizers"]
        return self.document(name)

    def watch(self, *_args: Any, **_options: Any) -> Any:
        raise AssertionError("it watches nothing")


def test_only_the_operators_finalizer_goes() -> None:
    server = Server(a=[OURS, "other/one"], b=["other/one"], c=[])
    assert asyncio.run(release(server, ())) == 1
    assert server.finalizers == {"a": ["other/one"], "b": ["other/one"], "c": []}


def test_a_finalizer_that_comes_meanwhile_is_kept() -> None:
    server = Server(a=[OURS])
    server.races = [("a", [OURS, "other/one"])]
    assert asyncio.run(release(server, ())) == 1
    assert server.finalizers == {"a": ["other/one"]}


def test_in_the_namespaces_that_it_looks_after() -> None:
    server = Server()
    asyncio.run(release(server, ("one", "two")))
    assert server.paths == [f"/apis/corral.hpc/v1alpha1/namespaces/{name}/slurmclusters" for name in ("one", "two")]


def test_without_the_definition_there_is_nothing_to_do() -> None:
    server = Server()
    server.refuse = {"GET": 404}
    assert asyncio.run(release(server, ())) == 0


def test_a_refusal_is_told() -> None:
    server = Server(a=[OURS])
    server.refuse = {"PATCH": 403}
    with pytest.raises(Forbidden):
        asyncio.run(release(server, ()))
