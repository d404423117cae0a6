# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of clusters: what of them has changed is drift, or shows in the status. Each namespace with a document is watched."""

from __future__ import annotations

import asyncio
import functools

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

# Kinds whose objects come and go by themselves while a run waits for them.
_MOVING = ("Pod", "Job", "PersistentVolumeClaim")
# Collections that are listed at the same time.
_LISTS = 12


class ObjectTriggers:
    """Watches namespaces."""

    def __init__(self, context: Context, status: StatusWriter, machines: NodeTriggers) -> None:
        self._context = context
        self._status = status
        self._machines = machines
        # The first documents of an operator that starts are many; one that is written meanwhile does not wait behind them.
        self._turns = {first: asyncio.Semaphore(_LISTS) for first in (True, False)}

    def watch(self, name: str, *, first: bool) -> None:
        """Watch a namespace; ``first``: of a document that was there when this process began."""
        if name in self._context.cache.namespaces:
            return
        namespace = self._context.cache.namespaces[name] = Namespace(name)
        for kind in KINDS:
            # While the first kind is refused, which all operators may see where they may see anything, it is asked for and the others are not.
            watch = Watch(
                self._context.api,
                Collection(kind.path(name), f"{kind.plural} in namespace {name}", kind.selector, kind.whole, kind.optional),
                replace=functools.partial(self._listed, namespace, kind),
                seen=functools.partial(self._seen, namespace, kind),
                refused=functools.partial(self._refused, namespace, kind),
                relist=self._context.settings.relist,
                turns=self._turns[first],
                hopeless=functools.partial(_hopeless, namespace, kind),
            )
            namespace.watches[kind.name] = watch
            namespace.tasks.append(asyncio.create_task(watch.run()))

    def unwatch(self, name: str) -> None:
        """Watch a namespace no more."""
        for task in self._context.cache.namespaces.pop(name).tasks:
            task.cancel()

    def _refused(self, namespace: Namespace, kind: Kind, error: CorralError) -> None:
        first = kind.name not in namespace.refused
        namespace.refused[kind.name] = (
            f"Nothing is done: {error} An administrator lets the operator work in this namespace by a RoleBinding to the ClusterRole "
            "corral-operator:namespace; the variable operator_namespaces of the role corral.slurm.operator makes it."
        )
        # Also of a kind that need not be watched: it may have been the last that was waited for.
        if first:
            self._requeue_all(namespace)

    def _requeue_all(self, namespace: Namespace) -> None:
        for cluster in self._context.cache.within(namespace):
            self._context.queue.add(cluster.key, cluster.requests.deferred)

    def _listed(self, namespace: Namespace, kind: Kind, found: list[Json]) -> None:
        self._changed(namespace, kind, namespace.children.replace(kind, found))
        if kind.name == "Pod":
            self._machines.places_changed(namespace, namespace.places.replace(found))

    def _seen(self, namespace: Namespace, kind: Kind, event: str, found: Json) -> None:
        name = str(found["metadata"]["name"])
        self._changed(namespace, kind, namespace.children.seen(kind, event, found), name)
        if kind.name == "Pod":
            self._machines.places_changed(namespace, namespace.places.seen(event, found))

    def _changed(self, namespace: Namespace, kind: Kind, instances: dict[str, Change], name: str = "") -> None:
        """Handle a change of the clusters of some objects, which is one object where there is a name."""
        if namespace.refused.pop(kind.name, None) is not None:
            namespace.known = False
            for watch in namespace.watches.values():
                watch.retry()
        if not namespace.synced:
            return
        if not namespace.known:  # only now is there anything to compare with
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
        # What goes by the garbage collector's hand while the cluster is taken away is what the run waits for.
        if applying and foreign and not moving and not cluster.deleting:
            self._overtaken(cluster, name, again=not backoff)
        # Also by a name that runs have: a playbook that a person runs with another document.
        if backoff and (foreign or (change is Change.SET and not applying)) and not moving:
            cluster.facts.contested |= {name}
        if not applying and not self._left_to_retry(cluster, foreign=foreign):
            if not backoff:
                settings = self._context.settings
                self._context.queue.add(cluster.key, Trigger.DRIFT, settings.debounce, settings.debounce_most)
            elif convergence.backoff is None:  # beside the queue, where it would hold up what else is asked for
                convergence.backoff = asyncio.get_running_loop().call_later(backoff, self._backoff_over, cluster)

    def _overtaken(self, cluster: Cluster, name: str, *, again: bool) -> None:
        """Somebody else has set an object while a run sets the same; ``again``: the run has to begin anew for it."""
        execution, conflicts = cluster.execution, cluster.convergence.conflicts
        execution.overtaken.add(name)
        conflicts.note([name])
        if conflicts.count(name) == CONFLICT:
            self._context.tasks.spawn(report_conflict(self._context.events, cluster.document, name))
        if again:
            execution.outdated = True  # a run that only waits might wait for what was undone: it begins again
            if execution.parked:
                execution.end("superseded")

    def _left_to_retry(self, cluster: Cluster, *, foreign: bool) -> bool:
        """Whether a change of an object is left to the run that comes after a pause.

        What runs that fail leave behind, and what fails again and again, does not cut the pause short; what somebody else has set does, and that all is
        well now which was not. But once: for clusters that stay broken, the pauses are what keeps the requests few.
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


def _hopeless(namespace: Namespace, kind: Kind) -> bool:
    return kind is not KINDS[0] and KINDS[0].name in namespace.refused
