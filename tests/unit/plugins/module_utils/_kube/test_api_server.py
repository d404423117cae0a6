# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server's addresses, as it tells them itself."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import api_server
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Response
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, api_error, parse_status

SERVICE = "/api/v1/namespaces/default/services/kubernetes"
SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"


class Server:
    """Answers by path: an object, or the code of a refusal."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.requests = 0

    def get(self, path: str, *, what: str) -> Response:
        self.requests += 1
        answer = self.answers.get(path, 404)
        if isinstance(answer, int):
            raise api_error(parse_status(answer, b"{}", None), what, server="s")
        return Response(200, answer)

    def close(self) -> None:
        """Nothing is open."""


def ask(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]) -> dict[str, Any]:
    monkeypatch.setattr(api_server.auth, "resolve", lambda _params: None)
    monkeypatch.setattr(api_server, "Client", lambda _access: Server(answers))
    return api_server.run({}, check=False, diff=False)


def endpoints(*addresses: str) -> dict[str, Any]:
    return {"addressType": "IPv4", "endpoints": [{"addresses": [address]} for address in addresses]}


def test_addresses_of_the_service_and_those_behind_it_in_an_order_that_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    service = {"spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00:0:0::1"]}}
    found = ask(monkeypatch, {SERVICE: service, SLICE: endpoints("192.0.2.9", "192.0.2.10", "192.0.2.9", "api.example.com")})
    assert found == {
        "changed": False,
        "ipv4": ["10.96.0.1/32", "192.0.2.10/32", "192.0.2.9/32"],
        "ipv6": ["fd00::1/128"],
        "requests": 2,
    }


@pytest.mark.parametrize("answers", [{SERVICE: {"spec": {}}, SLICE: {"endpoints": None}}, {}])
def test_none_where_there_are_none(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]) -> None:
    assert ask(monkeypatch, answers) == {"changed": False, "ipv4": [], "ipv6": [], "requests": 2}


@pytest.mark.parametrize("refused", [SERVICE, SLICE])
def test_who_may_not_read_them_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    """None at all then: a policy that changes with the rights of who runs is none."""
    both = {SERVICE: {"spec": {"clusterIPs": ["10.96.0.1"]}}, SLICE: endpoints("192.0.2.9")}
    found = ask(monkeypatch, {**both, refused: 403})
    assert (found["ipv4"], found["ipv6"]) == ([], [])
    [warning] = found["warnings"]
    assert "spec.network.egress.apiServer" in warning
    assert "docs/rights.md" in warning


def test_another_refusal_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KubeError, match="read the Service default/kubernetes"):
        ask(monkeypatch, {SERVICE: 400})
