# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of the claims of a pod that no node takes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import evidence
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
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
            "PersistentVolumeClaim ns/homes has lost its volume pv1: bring the volume back, or create the claim again",
        ),
        (
            {"scratch": "Bound", "homes": "secret"},
            "its volumes (scratch, homes) cannot be used on any node that it may run on: choose nodes that reach them, or volumes",
        ),
    ],
)
def test_claims_are_told_with_what_to_do(found: dict[str, Any], words: str) -> None:
    assert evidence.of_claims(cast(Client, Fake(found)), POD).startswith(words)


class Told:
    """A client of an API server with these events: reason, message and whether each is a warning, a second after one another."""

    def __init__(self, *events: tuple[str, str, bool]) -> None:
        self.items = [
            {
                "metadata": {},
                "reason": reason,
                "message": words,
                "type": "Warning" if bad else "Normal",
                "lastTimestamp": f"2026-01-01T00:00:0{at}Z",
            }
            for at, (reason, words, bad) in enumerate(events)
        ]

    def get(self, path: str, **_more: Any) -> Any:
        return type("Response", (), {"data": {"items": self.items}})()


NO_PLACE = ("FailedScheduling", "0/3 nodes are available", True)
NO_SECRET = ("FailedMount", 'MountVolume.SetUp failed for volume "k" : secret "k" not found', True)
DENIED = ("FailedMount", "access denied by server", True)
PULLS = ("Pulling", "Pulling image x", False)
REF = Ref(BUILTIN["", "Pod"], "ns", "p-0")


@pytest.mark.parametrize(
    ("events", "since", "said"),
    [
        ((NO_PLACE, DENIED), None, ("", "FailedMount: access denied by server")),
        ((NO_SECRET, DENIED), None, (NO_SECRET[1], "FailedMount: access denied by server")),
        ((NO_SECRET, DENIED), "2026-01-01T00:00:01Z", ("", "FailedMount: access denied by server")),
        ((NO_PLACE, PULLS), None, ("", "")),  # it has a place now
        ((), None, ("", "")),
    ],
)
def test_what_a_pod_that_waits_for_its_volumes_says(events: Any, since: str | None, said: tuple[str, str]) -> None:
    assert evidence.of_mounts(cast(Client, Told(*events)), REF, POD, since=since) == said


def refused(name: str) -> tuple[str, str, bool]:
    return "FailedCreate", f'create Pod {name} in StatefulSet web failed error: pods "{name}" is forbidden: exceeded quota', True


@pytest.mark.parametrize(
    ("events", "since", "pod", "found"),
    [
        ((refused("web-1"),), None, "", True),
        ((refused("web-1"),), None, "web-1", True),
        ((refused("web-10"),), None, "web-1", False),
        ((refused("web-1"), ("SuccessfulCreate", "create Pod web-2 in StatefulSet web successful", False)), None, "web-1", True),
        ((refused("web-1"), ("SuccessfulCreate", "create Pod web-1 in StatefulSet web successful", False)), None, "web-1", False),
        ((refused("web-1"),), "2026-01-01T00:00:01Z", "web-1", False),
        ((), None, "", False),
    ],
)
def test_which_pods_are_refused(events: Any, since: str | None, pod: str, found: bool) -> None:
    event = evidence.refusal(cast(Client, Told(*events)), REF, {"metadata": {"uid": "u"}}, since=since, pod=pod)
    assert (event is not None) is found


def test_what_other_workloads_say_of_refused_pods() -> None:
    condition = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    event = evidence.refusal(cast(Client, Told()), REF, {"metadata": {}, "status": {"conditions": [condition]}}, since=None)
    assert event is not None and event.message == "exceeded quota"
