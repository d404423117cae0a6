# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gauges, which are updated for each scrape."""

from __future__ import annotations

from corral_operator.api.watch import Watch
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.metadata import Json


def refresh(context: Context, documents: list[Watch], *, zygote_restarts: int) -> None:
    """Update all gauges."""
    metrics, cache, queue = context.metrics, context.cache, context.queue
    leads = context.leadership.active
    # The queue of a standby pod is not worked on, so nothing in it counts as due.
    waiting, working = (queue.waiting, queue.at_work) if leads else ({}, {})
    metrics.depth.set(queue.depth if leads else 0)
    metrics.open.set(queue.open)
    own = {key: cluster for key, cluster in cache.clusters.items() if not context.foreign(cluster.document)}
    ready = [_is_ready(cluster.document) for cluster in own.values()]
    metrics.clusters.labels("true").set(sum(ready))
    metrics.clusters.labels("false").set(len(ready) - sum(ready))
    for gauge in (metrics.waiting, metrics.working, metrics.ready, metrics.orphans):
        gauge.clear()  # drop series of deleted clusters
    for key, is_ready in zip(own, ready, strict=True):
        metrics.waiting.labels(*key).set(waiting.get(key, 0.0))
        metrics.working.labels(*key).set(working.get(key, 0.0))
        metrics.ready.labels(*key).set(is_ready)
    for namespace in cache.namespaces.values():
        for name, count in namespace.children.counts().items():
            if (namespace.name, name) not in cache.clusters:
                metrics.orphans.labels(namespace.name, name).set(count)
    metrics.children.set(sum(len(namespace.children) for namespace in cache.namespaces.values()))
    watches = [*documents, *(watch for namespace in cache.namespaces.values() for watch in namespace.watches.values())]
    metrics.watch_restarts.set(sum(watch.restarts for watch in watches))
    metrics.zygote_restarts.set(zygote_restarts)
    for kind, count in context.api.sent.items():
        metrics.requests.labels(kind).set(count)


def _is_ready(document: Json) -> bool:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
