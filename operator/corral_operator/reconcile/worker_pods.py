# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workers' pods, the Kubernetes nodes that they run on, and which of these nodes must be drained: what a run of corral.slurm.sync depends on. Pure.

Of a Kubernetes node only cordon, taints, conditions and the reason for a cordon are retained; of a pod its node and whether it is ready.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import nodes as kubernetes_nodes
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import describe
from corral_operator.reconcile.children import COMPONENT, INSTANCE

Json = dict[str, Any]


@dataclass(frozen=True)
class WorkerPod:
    """A worker's pod. ``ready``: it is ready and not being deleted, so that Slurm may start jobs there."""

    cluster: str
    name: str
    uid: str
    node: str
    ready: bool


class KubernetesNodes:
    """The Kubernetes nodes by name. ``known`` is False until they have been listed, and while the right to list them is missing."""

    def __init__(self) -> None:
        self._nodes: dict[str, Json] = {}
        self.known = False

    def replace(self, objects: Iterable[Json]) -> set[str]:
        """Take over a complete list; return the names of the nodes that changed."""
        new = {str(found["metadata"]["name"]): _of_interest(found) for found in objects}
        old, self._nodes, self.known = self._nodes, new, True
        return {name for name in {*old, *new} if old.get(name) != new.get(name)}

    def apply_event(self, event: str, found: Json) -> set[str]:
        """Apply a watch event; return the name of the node if anything relevant changed."""
        name = str(found["metadata"]["name"])
        old = self._nodes.pop(name, None)
        if event != "DELETED":
            self._nodes[name] = _of_interest(found)
        return {name} if old != self._nodes.get(name) else set()

    def forget(self) -> None:
        """Forget all nodes: the right to list them is gone."""
        self._nodes, self.known = {}, False

    def cause(self, node: str, taints: Iterable[str], conditions: Iterable[str] = ()) -> str | None:
        """Return why a node must be drained: "" if it need not be, None while the nodes are not known."""
        return kubernetes_nodes.cause(self._nodes.get(node, {}), taints, conditions) if self.known else None


class WorkerPods:
    """The workers' pods of one namespace. Methods that change them return the pods that are new, changed or gone."""

    def __init__(self) -> None:
        self._pods: dict[str, WorkerPod] = {}

    def replace(self, objects: Iterable[Json]) -> list[WorkerPod]:
        """Take over a complete list of pods."""
        old = self._pods
        self._pods = {pod.name: pod for pod in map(_worker_pod, objects) if pod is not None}
        new = self._pods
        return [new.get(name) or old[name] for name in {*old, *new} if new.get(name) != old.get(name)]

    def apply_event(self, event: str, found: Json) -> list[WorkerPod]:
        """Apply a watch event."""
        old = self._pods.pop(str(found["metadata"]["name"]), None)
        new = _worker_pod(found) if event != "DELETED" else None
        if new is not None:
            self._pods[new.name] = new
        changed = new or old
        return [changed] if changed is not None and new != old else []

    def of(self, cluster: str) -> list[WorkerPod]:
        """Return a cluster's pods in a fixed order."""
        return sorted((pod for pod in self._pods.values() if pod.cluster == cluster), key=lambda pod: pod.name)

    def on(self, nodes: set[str]) -> set[str]:
        """Return the clusters that have workers on these nodes."""
        return {pod.cluster for pod in self._pods.values() if pod.node in nodes}


def fingerprint(pods: Iterable[WorkerPod], nodes: KubernetesNodes, drain_causes: tuple[Iterable[str], Iterable[str]], *rest: object) -> str:
    """Return the fingerprint of everything in Kubernetes that a run of corral.slurm.sync depends on.

    ``drain_causes`` are the taints and the conditions for which a node is drained, ``rest`` is anything else that a run depends on.
    """
    rows = [[pod.name, pod.uid, pod.node, nodes.cause(pod.node, *drain_causes), pod.ready] for pod in pods]
    return hashlib.sha256(json.dumps([rows, *map(list, drain_causes), *rest], separators=(",", ":")).encode()).hexdigest()[:32]


def _of_interest(node: Json) -> Json:
    spec = node.get("spec") or {}
    taints = [{"key": taint.get("key"), "effect": taint.get("effect")} for taint in spec.get("taints") or ()]
    # The document says which true conditions are bad. Ready is left to Slurm, which knows whether slurmd responds.
    conditions = [
        {key: one.get(key) for key in ("type", "status", "message")}
        for one in (node.get("status") or {}).get("conditions") or ()
        if one.get("status") == "True" and one.get("type") != "Ready"
    ]
    note = (node["metadata"].get("annotations") or {}).get(kubernetes_nodes.NOTE)
    return {
        "metadata": {"name": node["metadata"]["name"], "annotations": {kubernetes_nodes.NOTE: note}},
        "spec": {"unschedulable": bool(spec.get("unschedulable")), "taints": taints},
        "status": {"conditions": conditions},
    }


def _worker_pod(pod: Json) -> WorkerPod | None:
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    if labels.get(COMPONENT) != "worker":
        return None
    ready = not describe(pod) and not metadata.get("deletionTimestamp")
    node = str((pod.get("spec") or {}).get("nodeName") or "")
    return WorkerPod(str(labels.get(INSTANCE, "")), str(metadata["name"]), str(metadata.get("uid", "")), node, ready)
