# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches the objects of clusters, in each namespace with a document: a change is drift, or shows in the status."""

from __future__ import annotations

import asyncio
import functools

from ansible_collections.corral.slurm.plugins.module_utils._cluster.components import has_field
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.api.client import Json
from corral_operator.api.watch import Collection, Watch
from corral_operator.reconcile.cache import Namespace
from corral_operator.reconcile.children import KINDS, Change, Kind
from corral_operator.reconcile.cluster import Cluster
from corral_operator.reconcile.conflicts import report_conflict
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.decisions import CONFLICT
from corral_operator.reconcile.queue import Trigger
from corral_operator.reconcile.status import StatusWriter
from corral_operator.reconcile.triggers.nodes import NodeTriggers

# Kinds whose objects controllers create and delete while a run waits for them.
_MOVING = ("Pod", "Job", "PersistentVolumeClaim")
# Maximum of lists at the same time.
_LISTS = 12


class ObjectTriggers:
    """Watches the objects in namespaces."""

    def __init__(self, context: Context, status: StatusWriter, node_triggers: NodeTriggers) -> None:
        self._context = context
        self._status = status
        self._node_triggers = node_triggers
        # Separate limits, so that a new document does not wait behind the many documents of a starting operator.
        self._list_slots = {first: asyncio.Semaphore(_LISTS) for first in (True, False)}

    def watch(self, document: Json, *, first: bool) -> None:
        """Watch the namespace of a document, as far as it is not watched yet; ``first``: the document existed when this process started."""
        name = str(document["metadata"]["namespace"])
        namespace = self._context.cache.namespaces.setdefault(name, Namespace(name))
        for kind in KINDS:
            if kind.name in namespace.watches or not has_field(document.get("spec"), kind.field):
                continue
            # Only the first kind is retried often without permission: an operator that can read anything in a namespace can read that kind.
            watch = Watch(
                self._context.api,
                Collection(kind.path(name), f"{kind.plural} in namespace {name}", kind.selector, kind.whole, kind.optional),
                replace=functools.partial(self._listed, namespace, kind),
                on_event=functools.partial(self._on_event, namespace, kind),
                refused=functools.partial(self._refused, namespace, kind),
                relist=self._context.settings.relist,
                list_slots=self._list_slots[first],
                denied=functools.partial(_denied, namespace, kind),
            )
            namespace.watches[kind.name] = watch
            namespace.tasks.append(asyncio.create_task(watch.run()))

    def unwatch(self, name: str) -> None:
        """Stop watching a namespace."""
        for task in self._context.cache.namespaces.pop(name).tasks:
            task.cancel()

    def _refused(self, namespace: Namespace, kind: Kind, error: CorralError) -> None:
        first = kind.name not in namespace.refused
        namespace.refused[kind.name] = (
            f"The cluster is not changed: {error} An administrator permits the operator to work in this namespace by a RoleBinding to the ClusterRole "
            "corral-operator:namespace; the variable operator_namespaces of the role corral.slurm.operator creates it."
        )
        # Also for an optional kind: it may have been the last one that was not listed yet.
        if first:
            self._requeue_all(namespace)

    def _requeue_all(self, namespace: Namespace) -> None:
        for cluster in self._context.cache.within(namespace):
            self._context.queue.add(cluster.key, cluster.requests.deferred)

    def _listed(self, namespace: Namespace, kind: Kind, found: list[Json]) -> None:
        self._changed(namespace, kind, namespace.children.replace(kind, found))
        if kind.name == "Pod":
            self._node_triggers.worker_pods_changed(namespace, namespace.worker_pods.replace(found))

    def _on_event(self, namespace: Namespace, kind: Kind, event: str, found: Json) -> None:
        name = str(found["metadata"]["name"])
        self._changed(namespace, kind, namespace.children.apply_event(kind, event, found), name)
        if kind.name == "Pod":
            self._node_triggers.worker_pods_changed(namespace, namespace.worker_pods.apply_event(event, found))

    def _changed(self, namespace: Namespace, kind: Kind, instances: dict[str, Change], name: str = "") -> None:
        """Handle changes of clusters' objects; ``name`` is the object of an event, "" for a list."""
        if namespace.refused.pop(kind.name, None) is not None:
            namespace.known = False
            for watch in namespace.watches.values():
                watch.retry()
        if not namespace.synced:
            return
        if not namespace.known:  # the first complete list: there are no changes yet
            namespace.known = True
            self._requeue_all(namespace)
            return
        for instance, change in instances.items():
            cluster = self._context.cache.clusters.get((namespace.name, instance))
            if cluster is not None:
                self._changed_of(cluster, kind, f"{kind.name} {name}", change)

    def _changed_of(self, cluster: Cluster, kind: Kind, name: str, change: Change) -> None:
        """Handle the change of one object."""
        foreign, moving = change is Change.FOREIGN, kind.name in _MOVING
        execution, convergence = cluster.execution, cluster.convergence
        self._status.write_soon(cluster)
        applying = execution.applying
        backoff = convergence.conflicts.backoff(name)
        # While the cluster is being destroyed, the run waits for what the garbage collector deletes.
        if applying and foreign and not moving and not cluster.deleting:
            self._overwritten_during_run(cluster, name, again=not backoff)
        # Also a change under the field manager of runs: a person may run a playbook with another document.
        if backoff and (foreign or (change is Change.SET and not applying)) and not moving:
            cluster.facts.drift.conflicts |= {name}
        if not applying and not self._left_to_retry(cluster, foreign=foreign):
            if not backoff:
                settings = self._context.settings
                self._context.queue.add(cluster.key, Trigger.DRIFT, settings.debounce, settings.debounce_most)
            elif convergence.backoff is None:  # not in the queue, where it would delay other requests
                convergence.backoff = asyncio.get_running_loop().call_later(backoff, self._backoff_over, cluster)

    def _overwritten_during_run(self, cluster: Cluster, name: str, *, again: bool) -> None:
        """Handle a change by another writer during a run that writes the same object; ``again``: the run must restart."""
        execution, conflicts = cluster.execution, cluster.convergence.conflicts
        execution.overwritten.add(name)
        conflicts.note([name])
        if conflicts.count(name) == CONFLICT:
            self._context.tasks.spawn(report_conflict(self._context.events, cluster.document, name))
        if again:
            execution.outdated = True  # a run that only waits might wait for what was undone, so it restarts
            if execution.parked:
                execution.end("superseded")

    def _left_to_retry(self, cluster: Cluster, *, foreign: bool) -> bool:
        """True if a change of an object is left to the retry after a back-off.

        Changes by failed runs do not cut the pause short. A change by another writer does, and so does the recovery of all objects; but only once in a row
        of failures, because the pauses keep the requests of broken clusters few.
        """
        requests, context = cluster.requests, self._context
        if not (context.backoff.count(cluster.key) and context.queue.pending(cluster.key)):
            return False
        if requests.backoff_cut or not (foreign or (not requests.was_ready and context.cache.all_ready(cluster))):
            return True
        requests.backoff_cut = True
        return False

    def _backoff_over(self, cluster: Cluster) -> None:
        cluster.convergence.backoff = None
        if self._context.cache.has(cluster):
            self._context.queue.add(cluster.key, Trigger.DRIFT)


def _denied(namespace: Namespace, kind: Kind) -> bool:
    return kind is not KINDS[0] and KINDS[0].name in namespace.refused
