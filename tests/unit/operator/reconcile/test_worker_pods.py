# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where workers run, and which Kubernetes nodes must be drained."""

from __future__ import annotations

from corral_operator.reconcile.worker_pods import KubernetesNodes, WorkerPods, fingerprint

from ..world import Json


def test_only_what_matters_changes_the_fingerprint() -> None:
    pod: Json = {
        "metadata": {"name": "a-cpu-0", "uid": "1", "labels": {"app.kubernetes.io/instance": "a", "app.kubernetes.io/component": "worker"}},
        "spec": {"nodeName": "n1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    node: Json = {"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}}
    nodes, pods = KubernetesNodes(), WorkerPods()
    unknown = fingerprint(pods.of("a"), nodes, (["mine"], []))
    assert nodes.cause("n1", ["mine"]) is None
    assert nodes.replace([node]) == {"n1"}
    assert nodes.apply_event("MODIFIED", {**node, "status": {"images": []}}) == set()
    assert [pod.name for pod in pods.replace([pod, {"metadata": {"name": "a-login-0"}}])] == ["a-cpu-0"]
    assert pods.apply_event("MODIFIED", {**pod, "metadata": {**pod["metadata"], "annotations": {"a": "b"}}}) == []
    one = fingerprint(pods.of("a"), nodes, (["mine"], []))
    assert one not in (unknown, fingerprint(pods.of("a"), nodes, (["other"], [])))
    assert (nodes.cause("n1", ["mine"]), nodes.cause("n1", ["other"])) == ("Kubernetes node n1 has the taint mine", "")
    assert pods.apply_event("MODIFIED", {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "now"}})[0].ready is False
    assert fingerprint(pods.of("a"), nodes, (["mine"], [])) != one
    assert pods.on({"n1"}) == {"a"}
    assert [pod.name for pod in pods.apply_event("DELETED", pod)] == ["a-cpu-0"]
    assert pods.of("a") == []
