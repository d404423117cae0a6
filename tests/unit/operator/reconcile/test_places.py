# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where workers are, and which machines go."""

from __future__ import annotations

from corral_operator.reconcile.places import Machines, Places, fingerprint

from ..world import Json


def test_only_what_matters_changes_the_fingerprint() -> None:
    pod: Json = {
        "metadata": {"name": "a-cpu-0", "uid": "1", "labels": {"app.kubernetes.io/instance": "a", "app.kubernetes.io/component": "worker"}},
        "spec": {"nodeName": "n1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    machine: Json = {"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}}
    machines, places = Machines(), Places()
    unknown = fingerprint(places.of("a"), machines, (["mine"], []))
    assert machines.cause("n1", ["mine"]) is None
    assert machines.replace([machine]) == {"n1"}
    assert machines.seen("MODIFIED", {**machine, "status": {"images": []}}) == set()
    assert [place.pod for place in places.replace([pod, {"metadata": {"name": "a-login-0"}}])] == ["a-cpu-0"]
    assert places.seen("MODIFIED", {**pod, "metadata": {**pod["metadata"], "annotations": {"a": "b"}}}) == []
    one = fingerprint(places.of("a"), machines, (["mine"], []))
    assert one not in (unknown, fingerprint(places.of("a"), machines, (["other"], [])))
    assert (machines.cause("n1", ["mine"]), machines.cause("n1", ["other"])) == ("Kubernetes node n1 has the taint mine", "")
    assert places.seen("MODIFIED", {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "now"}})[0].settled is False
    assert fingerprint(places.of("a"), machines, (["mine"], [])) != one
    assert places.on({"n1"}) == {"a"}
    assert [place.pod for place in places.seen("DELETED", pod)] == ["a-cpu-0"]
    assert places.of("a") == []
