# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that go or come back, and workers' pods that move: Slurm is told of both."""

from __future__ import annotations

import asyncio
import logging

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.api.client import Json
from corral_operator.api.watch import Collection, Watch
from corral_operator.reconcile.cache import Namespace
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.node_sync import NodeSync
from corral_operator.reconcile.places import Place
from corral_operator.reconcile.queue import Trigger

log = logging.getLogger(__name__)


class NodeTriggers:
    """Watches the nodes of Kubernetes."""

    def __init__(self, context: Context, sync: NodeSync) -> None:
        self._context = context
        self._sync = sync

    def watch(self) -> asyncio.Task[None]:
        """Begin to watch."""
        machines = self._context.cache.machines
        watch = Watch(
            self._context.api,
            Collection("/api/v1/nodes", "machines (nodes of Kubernetes)", optional=True),
            replace=self._listed,
            seen=lambda event, found: self._changed(machines.seen(event, found)),
            refused=self._refused,
            relist=self._context.settings.relist,
        )
        return asyncio.create_task(watch.run())

    def _refused(self, error: CorralError) -> None:
        cache = self._context.cache
        first, cache.machines_refused = not cache.machines_refused, str(error)
        if first:
            log.warning(
                "machines are not seen: cordons reach Slurm only where a person runs corral.slurm.sync", extra={"error": str(error)}
            )
        if first or cache.machines.known:
            cache.machines.forget()
            self._changed(set(), first=True)

    def _listed(self, found: list[Json]) -> None:
        machines = self._context.cache.machines
        first = not machines.known
        self._changed(machines.replace(found), first=first)

    def _changed(self, names: set[str], *, first: bool = False) -> None:
        """Queue the clusters with workers on these machines; all of them when machines can be seen, or not, from now on."""
        cache = self._context.cache
        if cache.machines.known:
            cache.machines_refused = ""
        for cluster in cache.clusters.values():
            if first:
                self._context.queue.add(cluster.sync_key, Trigger.RESYNC)
            elif names and cluster.key[1] in cache.namespace(cluster).places.on(names):
                self._sync.request(cluster, urgent=True)

    def places_changed(self, namespace: Namespace, places: list[Place]) -> None:
        """Queue the clusters whose workers these are."""
        cache = self._context.cache
        for place in places:
            cluster = cache.clusters.get((namespace.name, place.cluster))
            if cluster is not None:
                signs = cluster.validation.checked.signs
                self._sync.request(cluster, urgent=bool(cluster.probe.leaving or cache.machines.cause(place.machine, *signs)))
