# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of the claims of a pod that no node takes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import evidence
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, NotFound, Status

CLAIMS = "/api/v1/namespaces/ns/persistentvolumeclaims/"
POD = {
    "metadata": {"name": "p-0", "namespace": "ns"},
    "spec": {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("scratch", "homes")]},
}
NO_VOLUME = "no persistent volumes available for this claim and no storage class is set"


class Fake:
    """A client that knows claims by their names and one event of each."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found

    def get(self, path: str, **_more: Any) -> Any:
        if path.endswith("/events"):
            event = {"metadata": {}, "reason": "FailedBinding", "message": NO_VOLUME, "type": "Normal"}
            return type("Response", (), {"data": {"items": [event]}})()
        claim = self.found.get(path.removeprefix(CLAIMS))
        if claim is None:
            raise NotFound("there is none", Status(404))
        if claim == "secret":
            raise KubeError("may not be read")
        return type("Response", (), {"data": {"metadata": {"uid": "u"}, "spec": {"volumeName": "pv1"}, "status": {"phase": claim}}})()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"scratch": "Bound"}, "PersistentVolumeClaim ns/homes does not exist: make it, or correct its name in the document"),
        (
            {"scratch": "Bound", "homes": "Pending"},
            f"PersistentVolumeClaim ns/homes is not bound (FailedBinding: {NO_VOLUME}): give it a storage class that makes volumes, or make",
        ),
        (
            {"scratch": "Bound", "homes": "Lost"},
            "PersistentVolumeClaim ns/homes has lost its volume pv1: bring the volume back, or make the claim anew",
        ),
        (
            {"scratch": "Bound", "homes": "secret"},
            "its volumes (scratch, homes) can not be used on any node that it may run on: choose nodes that reach them, or volumes",
        ),
    ],
)
def test_claims_are_told_with_what_to_do(found: dict[str, Any], words: str) -> None:
    assert evidence.of_claims(cast(Client, Fake(found)), POD).startswith(words)
