# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of Kubernetes nodes and of workers' pods, each of which requests a run of corral.slurm.sync."""

from __future__ import annotations

import asyncio
import logging

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.api.client import Json
from corral_operator.api.watch import Collection, Watch
from corral_operator.reconcile.cache import Namespace
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.node_sync import NodeSync
from corral_operator.reconcile.queue import Trigger
from corral_operator.reconcile.worker_pods import WorkerPod

log = logging.getLogger(__name__)


class NodeTriggers:
    """Watches Kubernetes nodes."""

    def __init__(self, context: Context, sync: NodeSync) -> None:
        self._context = context
        self._sync = sync

    def watch(self) -> asyncio.Task[None]:
        """Start watching."""
        nodes = self._context.cache.kubernetes_nodes
        watch = Watch(
            self._context.api,
            Collection("/api/v1/nodes", "Kubernetes nodes", optional=True),
            replace=self._listed,
            on_event=lambda event, found: self._changed(nodes.apply_event(event, found)),
            refused=self._refused,
            relist=self._context.settings.relist,
        )
        return asyncio.create_task(watch.run())

    def _refused(self, error: CorralError) -> None:
        cache = self._context.cache
        first, cache.kubernetes_nodes_refused = not cache.kubernetes_nodes_refused, str(error)
        if first:
            log.warning(
                "Kubernetes nodes cannot be listed: cordons reach Slurm only by corral.slurm.sync with another account",
                extra={"error": str(error)},
            )
        if first or cache.kubernetes_nodes.known:
            cache.kubernetes_nodes.forget()
            self._changed(set(), first=True)

    def _listed(self, found: list[Json]) -> None:
        nodes = self._context.cache.kubernetes_nodes
        first = not nodes.known
        self._changed(nodes.replace(found), first=first)

    def _changed(self, names: set[str], *, first: bool = False) -> None:
        """Queue the clusters with workers on these nodes; ``first``: all clusters, because the right to list nodes was gained or lost."""
        cache = self._context.cache
        if cache.kubernetes_nodes.known:
            cache.kubernetes_nodes_refused = ""
        for cluster in cache.clusters.values():
            if first:
                self._context.queue.add(cluster.sync_key, Trigger.RESYNC)
            elif names and cluster.key[1] in cache.namespace(cluster).worker_pods.on(names):
                self._sync.request(cluster, urgent=True)

    def worker_pods_changed(self, namespace: Namespace, pods: list[WorkerPod]) -> None:
        """Queue the clusters that these workers belong to."""
        cache = self._context.cache
        for pod in pods:
            cluster = cache.clusters.get((namespace.name, pod.cluster))
            if cluster is not None:
                drain_causes = cluster.validation.checked.drain_causes
                self._sync.request(cluster, urgent=bool(cluster.probe.draining or cache.kubernetes_nodes.cause(pod.node, *drain_causes)))
