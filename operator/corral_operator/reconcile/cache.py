# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was seen last: the clusters, the objects in their namespaces, and the machines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from corral_operator.api.watch import Watch
from corral_operator.reconcile.children import KINDS, Child, Children
from corral_operator.reconcile.cluster import Cluster
from corral_operator.reconcile.metadata import Key
from corral_operator.reconcile.places import Machines, Places

_OPTIONAL = frozenset(kind.name for kind in KINDS if kind.optional)


@dataclass
class Namespace:
    """The watched objects of the clusters in one namespace."""

    name: str
    children: Children = field(default_factory=Children)
    places: Places = field(default_factory=Places)
    watches: dict[str, Watch] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    # By kind: why it may not be watched.
    refused: dict[str, str] = field(default_factory=dict)
    # All of it has been seen, so that there is something to compare with.
    known: bool = False

    @property
    def synced(self) -> bool:
        """True when everything that must be seen has been."""
        return all(watch.synced for name, watch in self.watches.items() if name not in self.refused)

    @property
    def refusal(self) -> str:
        """Why nothing may be done in the namespace; "" when it may."""
        return next((message for name, message in self.refused.items() if name not in _OPTIONAL), "")


class Cache:
    """``machines_refused`` says why machines are not seen; "" while that is not known."""

    def __init__(self) -> None:
        self.clusters: dict[Key, Cluster] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.machines = Machines()
        self.machines_refused = ""

    def has(self, cluster: Cluster) -> bool:
        """Whether a cluster is still there, and was not replaced by another one of its name."""
        return self.clusters.get(cluster.key) is cluster

    def within(self, namespace: Namespace) -> Iterator[Cluster]:
        """Yield the clusters in a namespace."""
        return (cluster for key, cluster in self.clusters.items() if key[0] == namespace.name)

    def namespace(self, cluster: Cluster) -> Namespace:
        """Return a cluster's namespace."""
        return self.namespaces[cluster.key[0]]

    def children(self, cluster: Cluster) -> list[Child] | None:
        """Return a cluster's objects; None while not all have been seen."""
        namespace = self.namespaces.get(cluster.key[0])
        return None if namespace is None or not namespace.synced else namespace.children.of(cluster.key[1])

    def all_ready(self, cluster: Cluster) -> bool:
        """True when none of its objects is known to be not ready."""
        return all(child.ready for child in self.children(cluster) or ())
