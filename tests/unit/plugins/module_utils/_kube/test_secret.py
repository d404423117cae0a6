# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which keys of a Secret are made, and which are lost; that the API server takes them is in tests/integration/kube/test_secret.py."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import lost_keys, secret
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Response
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Conflict, NotFound, Status

from .test_lost_keys import pod

Json = dict[str, Any]
KINDS: Json = {f"ssh_host_{kind}_key": {"ssh_host_key": kind} for kind in ("ed25519", "ecdsa")}
MUNGE: Json = {"munge.key": {"random_bytes": 32}}


class Server:
    """Stands for the client of an API server with one Secret and some pods."""

    def __init__(self) -> None:
        self.access = type("Access", (), {"namespace": "slurm"})()
        self.live: Json | None = None
        self.pods: list[Json] = []
        self.requests = 0

    def get(self, path: str, *, what: str) -> Response:
        self.requests += 1
        if self.live is None:
            raise NotFound(f"Could not {what}: {path} is not there.", Status(404, "NotFound"))
        return Response(200, self.live)

    def items(self, _path: str, **_more: Any) -> list[Json]:
        return self.pods

    def request(self, method: str, _path: str, *, query: Json, body: Json, **_more: Any) -> None:
        self.requests += 1
        assert query["fieldManager"] == "corral"
        old = self.live if method == "PATCH" and self.live else {"metadata": {}, "data": {}}
        metadata = {**old["metadata"], **body["metadata"], "resourceVersion": "1"}
        for field in ("labels", "annotations"):
            metadata[field] = {**(old["metadata"].get(field) or {}), **(body["metadata"].get(field) or {})}
        self.live = {**old, "metadata": metadata, "data": {**(old.get("data") or {}), **body["data"]}}

    def close(self) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    monkeypatch.setattr(secret.auth, "resolve", lambda _params: None)
    monkeypatch.setattr(secret, "Client", lambda _access: found)
    return found


def make(data: Json) -> str:
    wanted = {"name": "lab-munge", "namespace": "slurm", "labels": {"a": "b"}, "data": data}
    return str(secret.run({"secrets": [wanted]}, check=False, diff=False)["secrets"][0]["result"])


def test_a_second_run_is_one_request(server: Server) -> None:
    assert make(KINDS) == "created"
    server.requests = 0
    assert (make(KINDS), server.requests) == ("unchanged", 1)


@pytest.mark.parametrize("value", ["", None])
def test_an_empty_key_is_a_lost_one(server: Server, value: str | None) -> None:
    make(MUNGE)
    assert server.live is not None
    server.live["data"]["munge.key"] = value
    server.pods = [pod()]
    with pytest.raises(Conflict, match=r"has lost munge\.key, while pods run with it"):
        make(MUNGE)
    server.pods = []
    assert make(MUNGE) == "configured"
    assert len(base64.b64decode(server.live["data"]["munge.key"])) == 32


def test_one_lost_key_of_several_is_not_made_anew_and_another_kind_is_made(server: Server) -> None:
    make(KINDS)
    assert server.live is not None
    server.pods = [pod()]
    more = {**KINDS, "new": {"random_bytes": 8}}
    assert make(more) == "configured", "no pod can hold what was never there"
    del server.live["data"]["ssh_host_ed25519_key"]
    with pytest.raises(Conflict, match=r"has lost ssh_host_ed25519_key, while") as caught:
        make(more)
    applied = "create secret generic lab-munge --from-file=ssh_host_ed25519_key --dry-run=client -o yaml | kubectl -n slurm apply -f -'"
    assert f"'kubectl -n slurm {applied}" in str(caught.value)


def test_one_of_an_older_release_is_completed_and_known_from_then_on(server: Server) -> None:
    make(KINDS)
    assert server.live is not None
    server.pods = [pod()]
    del server.live["metadata"]["annotations"]
    assert [make(KINDS), make(KINDS)] == ["configured", "unchanged"]
    assert server.live["metadata"]["annotations"] == {lost_keys.KEYS: "ssh_host_ecdsa_key,ssh_host_ed25519_key"}
    del server.live["data"]["ssh_host_ecdsa_key"]
    with pytest.raises(Conflict, match="has lost ssh_host_ecdsa_key"):
        make(KINDS)
