# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose an object is; that nothing of it is written is shown in tests/integration/kube/test_prune.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import belonging, run
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Response
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Conflict
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import Item

LABEL = "applyset.kubernetes.io/part-of"


def item(**labels: str) -> Item:
    return Item(Ref(BUILTIN["apps", "StatefulSet"], "slurm", "m-n-x"), {"metadata": {"labels": labels}})


def of(cluster: str) -> dict[str, str]:
    return {belonging.INSTANCE: cluster, belonging.MANAGED_BY: "corral"}


@pytest.mark.parametrize(
    ("live", "wanted", "words"),
    [
        (of("m"), of("m-n"), "StatefulSet slurm/m-n-x belongs to the cluster m "),
        (of("m"), of("m"), None),
        ({}, of("m"), None),
        ({belonging.INSTANCE: "m", belonging.MANAGED_BY: "Helm"}, of("m-n"), None),
        ({LABEL: "other"}, {}, "is a member of another set"),
        ({LABEL: "mine"}, {}, None),
        ({**of("m"), LABEL: "other"}, of("m"), None),  # an object that went from one part of the cluster to another
    ],
)
def test_what_is_somebody_elses_is_refused(live: dict[str, str], wanted: dict[str, str], words: str | None) -> None:
    if words is None:
        belonging.check(item(**wanted), live, set_label=LABEL, set_id="mine")
        return
    with pytest.raises(Conflict, match=words):
        belonging.check(item(**wanted), live, set_label=LABEL, set_id="mine")


def volume(labels: dict[str, str], claim: str | None = None) -> dict[str, Any]:
    namespace, _slash, name = (claim or "").partition("/")
    return {
        "metadata": {"name": "op1-b-c-jail", "labels": labels},
        **({"spec": {"claimRef": {"namespace": namespace, "name": name}}} if claim else {}),
    }


@pytest.mark.parametrize(
    ("live", "wanted", "words"),
    [
        (volume(of("b-c"), "op1/b-c-jail"), volume(of("c"), "op1-b/c-jail"), "belongs to the cluster b-c "),
        (volume(of("c"), "op1-b/c-jail"), volume(of("c"), "op1-b/c-jail"), ""),
        (volume({}, "op1-b/c-jail"), volume(of("c"), "op1-b/c-jail"), ""),  # somebody took the labels off
        (volume({}, "op1/other"), volume(of("c"), "op1-b/c-jail"), "kept for the claim op1/other, not for op1-b/c-jail"),
        (volume(of("c"), "op1/c-jail"), volume(of("c"), "op1-b/c-jail"), "kept for the claim op1/c-jail"),  # a namesake elsewhere
        (volume({}), volume(of("c"), "op1-b/c-jail"), "kept for no claim"),
        (volume(of("c")), volume({}), ""),
    ],
)
def test_whose_a_volume_is(live: dict[str, Any], wanted: dict[str, Any], words: str) -> None:
    said = belonging.another_owner(wanted, live)
    assert words in said and bool(said) == bool(words)


class Server:
    """Volumes by name; it notes what is deleted."""

    requests = 0

    def __init__(self, **volumes: dict[str, Any]) -> None:
        self.volumes = volumes
        self.deleted: list[str] = []
        self.access = SimpleNamespace(namespace="n")

    def get(self, path: str, *, what: str) -> Response:
        return Response(200, self.volumes[path.rpartition("/")[2]])

    def request(self, verb: str, path: str, **_options: Any) -> Response:
        assert verb == "DELETE"
        self.deleted.append(path.rpartition("/")[2])
        return Response(200, {})

    def close(self) -> None:
        pass


def test_a_volume_of_another_cluster_is_not_deleted_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def live(name: str, cluster: str, claim: str) -> dict[str, Any]:
        found = volume(of(cluster), claim)
        return {**found, "metadata": {**found["metadata"], "name": name, "uid": "1"}}

    server = Server(ours=live("ours", "c", "op1-b/c-state"), theirs=live("theirs", "b-c", "op1/b-c-jail"))
    monkeypatch.setattr(run, "Client", lambda _access: server)
    monkeypatch.setattr(run.auth, "resolve", lambda _params: None)
    wanted = [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": of("c")}, "spec": {"claimRef": claim}}
        for name, claim in (("ours", {"namespace": "op1-b", "name": "c-state"}), ("theirs", {"namespace": "op1-b", "name": "c-jail"}))
    ]
    result = run.run({"state": "absent", "objects": wanted}, check=False, diff=False)
    assert server.deleted == ["ours"]
    assert result["warnings"] == [
        "PersistentVolume theirs stays: it belongs to the cluster b-c (its label app.kubernetes.io/instance). Delete it by hand if nobody wants it."
    ]
