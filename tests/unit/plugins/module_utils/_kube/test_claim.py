# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which claims pods on several nodes can mount; tests/integration/test_ha.py asks of a real one."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth, claim
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, NotFound, Status

PARAMS = {"namespace": "ns", "name": "state", "access_mode": "ReadWriteMany", "must_exist": True}


class Fake:
    """A client that knows one claim, or none."""

    def __init__(self, live: dict[str, Any] | None) -> None:
        self.live = live
        self.requests = 0

    def get(self, path: str, **_more: Any) -> Any:
        self.requests += 1
        assert path == "/api/v1/namespaces/ns/persistentvolumeclaims/state"
        if self.live is None:
            raise NotFound("there is none", Status(404))
        return type("Response", (), {"data": self.live})()

    def close(self) -> None:
        """Nothing is open."""


def look(monkeypatch: pytest.MonkeyPatch, live: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    monkeypatch.setattr(claim, "Client", lambda _access: Fake(live))
    monkeypatch.setattr(auth, "resolve", dict)
    return claim.check_claim({**PARAMS, **more}, check=False, diff=False)


@pytest.mark.parametrize(
    "live",
    [
        {"spec": {"accessModes": ["ReadWriteMany"]}},
        {"spec": {"accessModes": ["ReadWriteOnce"]}, "status": {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}},
    ],
)
def test_a_claim_that_fits(monkeypatch: pytest.MonkeyPatch, live: dict[str, Any]) -> None:
    found = look(monkeypatch, live)
    assert (found["changed"], found["exists"], found["requests"]) == (False, True, 1)


@pytest.mark.parametrize(
    "live",
    [
        {"spec": {"accessModes": ["ReadWriteOnce"]}, "status": {"accessModes": ["ReadWriteOnce"]}},
        {"spec": {"accessModes": ["ReadWriteMany"]}, "status": {"accessModes": ["ReadWriteOnce"]}},
    ],
)
def test_a_claim_that_does_not_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch, live: dict[str, Any]) -> None:
    with pytest.raises(
        KubeError, match=r"^PersistentVolumeClaim ns/state is ReadWriteOnce, but .* takes ReadWriteMany; .* Nothing was changed\.$"
    ):
        look(monkeypatch, live)


def test_a_claim_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(monkeypatch, None, must_exist=False)["exists"] is False
    with pytest.raises(KubeError, match="PersistentVolumeClaim ns/state does not exist"):
        look(monkeypatch, None)
