# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last observed state: clusters, the objects in their namespaces, and Kubernetes nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from corral_operator.api.watch import Watch
from corral_operator.reconcile.children import KINDS, Child, Children
from corral_operator.reconcile.cluster import Cluster
from corral_operator.reconcile.metadata import Json, Key
from corral_operator.reconcile.worker_pods import KubernetesNodes, WorkerPods

_OPTIONAL = frozenset(kind.name for kind in KINDS if kind.optional)


@dataclass
class Namespace:
    """The watched objects of the clusters in one namespace."""

    name: str
    children: Children = field(default_factory=Children)
    worker_pods: WorkerPods = field(default_factory=WorkerPods)
    watches: dict[str, Watch] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    # By kind: the error of its watch, without permission.
    refused: dict[str, str] = field(default_factory=dict)
    # All kinds have been listed once, so that later events are changes.
    known: bool = False

    @property
    def synced(self) -> bool:
        """True if all kinds have been listed, except those without permission."""
        return all(watch.synced for name, watch in self.watches.items() if name not in self.refused)

    @property
    def refusal(self) -> str:
        """Why the operator cannot work in the namespace; "" if it can."""
        return next((message for name, message in self.refused.items() if name not in _OPTIONAL), "")


@dataclass(frozen=True)
class TenantsObject:
    """What is retained of a SlurmTenants object; runs read its spec by themselves."""

    namespace: str
    name: str
    uid: str
    generation: int
    cluster: str
    conditions: list[Json] = field(compare=False)

    @classmethod
    def of(cls, found: Json) -> TenantsObject:
        """Return what is retained of an object."""
        metadata, status = found["metadata"], found.get("status") or {}
        return cls(
            str(metadata["namespace"]),
            str(metadata["name"]),
            str(metadata["uid"]),
            int(metadata.get("generation") or 0),
            str((found.get("spec") or {}).get("cluster", "")),
            list(status.get("conditions") or ()),
        )

    @property
    def version(self) -> tuple[str, str, int, str]:
        """What changes with its spec."""
        return self.name, self.uid, self.generation, self.cluster

    @property
    def reference(self) -> Json:
        """The object, for an event."""
        return {"kind": "SlurmTenants", "metadata": {"namespace": self.namespace, "name": self.name, "uid": self.uid}}

    def named_in(self, sentence: str) -> bool:
        """True if an error is about it."""
        return f"SlurmTenants {self.name} " in sentence


class Cache:
    """``kubernetes_nodes_refused`` is the error of the watch of Kubernetes nodes, "" if there is none."""

    def __init__(self) -> None:
        self.clusters: dict[Key, Cluster] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.kubernetes_nodes = KubernetesNodes()
        self.kubernetes_nodes_refused = ""
        # The SlurmTenants by namespace and name, and whether all have been listed or refused.
        self.tenants: dict[Key, TenantsObject] = {}
        self.tenants_known = False

    def has(self, cluster: Cluster) -> bool:
        """True if a cluster still exists, and was not replaced by another one of its name."""
        return self.clusters.get(cluster.key) is cluster

    def tenants_of(self, cluster: Cluster) -> list[TenantsObject]:
        """Return the SlurmTenants of a cluster, by name."""
        return [one for key, one in sorted(self.tenants.items()) if (key[0], one.cluster) == cluster.key]

    def within(self, namespace: Namespace) -> Iterator[Cluster]:
        """Yield the clusters in a namespace."""
        return (cluster for key, cluster in self.clusters.items() if key[0] == namespace.name)

    def namespace(self, cluster: Cluster) -> Namespace:
        """Return a cluster's namespace."""
        return self.namespaces[cluster.key[0]]

    def children(self, cluster: Cluster) -> list[Child] | None:
        """Return a cluster's objects; None until all kinds have been listed."""
        namespace = self.namespaces.get(cluster.key[0])
        return None if namespace is None or not namespace.synced else namespace.children.of(cluster.key[1])

    def all_ready(self, cluster: Cluster) -> bool:
        """True if none of its objects is known to be not ready."""
        return all(child.ready for child in self.children(cluster) or ())
