# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster can be taken away whatever its document says by now."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve, rules, teardown
from ansible_collections.corral.slurm.plugins.module_utils._cluster.validate import InvalidDocument
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

from .documents import REMOVE, edited, good


def data(document: dict[str, Any]) -> set[tuple[str, str]]:
    found = teardown.model(document).to_dict()
    assert (found["name"], found["namespace"]) == ("demo", "ns")
    return {(one["kind"], one["metadata"]["name"]) for one in found["teardown"]["data"]}


def test_a_right_document_says_all_itself() -> None:
    assert teardown.model(good()) == resolve.model(good())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.partitions", [{"name": "main", "nodeSets": ["gone"]}]),
        ("spec.users[0].sshKeys", ["ssh-ed25519 … ada"]),
        ("spec.nodeSets", 7),
        ("spec.unknown", {"a": 1}),
        ("spec.images", REMOVE),
        ("spec.controller.resources", {"limits": {"memory": "nothing"}}),
    ],
)
def test_mistakes_elsewhere_change_nothing(path: str, value: Any) -> None:
    document = edited(path, value)
    with pytest.raises(InvalidDocument):
        resolve.model(document)
    found, right = teardown.model(document).to_dict()["teardown"], resolve.model(good()).to_dict()["teardown"]
    assert found["applysets"] == right["applysets"]
    assert found["data"] == right["data"]
    assert "The claim shared in namespace ns is yours and stays, with its files." in found["left_behind"]


def test_each_volume_counts_that_is_right() -> None:
    document = edited("spec.jail.subMounts", [{"path": "/a", "storageClassName": "x", "size": "1Gi"}, {"path": "/b", "wrong": 1}, 7])
    document["spec"]["jails"] = [{"name": "old", "volume": {"storageClassName": "x", "size": "1Gi"}}, {"name": "new", "volume": 3}]
    document["spec"]["controller"] = None
    names = {name for kind, name in data(document) if kind == "PersistentVolumeClaim"}
    assert {"demo-controller-state", "demo-jail-old"} < names
    assert len([name for name in names if name.startswith("demo-jail-mount-")]) == 1
    assert "demo-jail-new" not in names


@pytest.mark.parametrize("spec", [None, 7, [], {}, {"jail": 3, "controller": [], "jails": {}, "sssd": 4}])
def test_of_nothing_the_claims_are_those_of_the_clusters_name(spec: Any) -> None:
    assert ("PersistentVolumeClaim", "demo-jail") in data({**good(), "spec": spec})


@pytest.mark.parametrize("document", [None, {}, {**good(), "kind": "Pod"}, {**good(), "metadata": {}}])
def test_what_names_no_cluster_is_refused(document: Any) -> None:
    with pytest.raises(InvalidDocument):
        teardown.model(document)


def test_a_defect_of_a_check_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the whole document's, nor of a part's."""
    right = resolve.model(good()).to_dict()["teardown"]
    whole = rules.errors

    def broken(metadata: dict[str, Any], spec: dict[str, Any], written: dict[str, Any]) -> Any:
        if spec["nodeSets"] or spec["jail"]["subMounts"]:
            raise KeyError("key")
        return whole(metadata, spec, written)

    monkeypatch.setattr(rules, "errors", broken)
    document = edited("spec.jail.subMounts", [{"path": "/a", "storageClassName": "x", "size": "1Gi"}])
    with pytest.raises(CorralError, match=r"KeyError: 'key'.* a defect of corral\.slurm"):
        resolve.model(document)
    assert teardown.model(document).to_dict()["teardown"]["data"] == right["data"]
