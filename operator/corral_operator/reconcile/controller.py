# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller: what was seen goes into the queue, what comes out of it is decided by ``plan`` and done by a run, what came of it goes into the status."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import json
import logging
import math
import os
import shutil
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import names, newer, revisions
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.api.client import MERGE, Api, status_code
from corral_operator.api.events import Events
from corral_operator.api.watch import Collection, Watch
from corral_operator.reconcile import conditions, decisions
from corral_operator.reconcile.children import KINDS, Change, Child, Children, Kind, resized
from corral_operator.reconcile.decisions import Do
from corral_operator.reconcile.places import Machines, Place, Places, word
from corral_operator.reconcile.queue import Backoff, Key, Taken, Why, WorkQueue, owner
from corral_operator.runs.checker import Checked
from corral_operator.runs.engine import Engine
from corral_operator.runs.outcome import Outcome
from corral_operator.runs.playbook import Request
from corral_operator.runs.run import Run, clear
from corral_operator.serving.metrics import Metrics
from corral_operator.settings import Settings

Json = dict[str, Any]

log = logging.getLogger(__name__)

_API = "/apis/corral.hpc/v1alpha1"
_DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/slurmclusters.corral.hpc"
# A run that has reported nothing for so long only waits, for pods or for jobs, and lets others work.
_PARKED = 1.5
# A run is told of in the status when it takes longer than this, or at once when the document has changed.
_VISIBLE = 2.0
# Changes of children are gathered so long before the status is written.
_GATHER = 0.3
# How often a status is written anew since the document has changed meanwhile.
_TRIES = 5
# A status that was refused is written again after this.
_REFUSED = 10.0
_PREEMPTED = 2.0
# Edits that follow one another within this are one; a run comes all the same when they have gone on for so long.
_BURST = 3.0
# Of all clusters together nodes are looked at by time alone once in so long; a cold run takes seconds of the processor.
_LOOKS = {"warm": 0.5, "cold": 30.0}
# A look by time alone that fails is told of from this one on: slurmctld may just be starting again.
_SILENT = 5
# Runs that were ended for these have failed.
_OVERDUE = ("timeout", "idle")
# Pods that come and go are gathered so long before they are looked at, where no machine goes.
_CALM = 2.0
# Kinds whose objects come and go by themselves while a run waits for them.
_MOVING = ("Pod", "Job", "PersistentVolumeClaim")
# An object that is set back this soon after the last time is in somebody's hands.
_SOON = 60.0
# Kinds whose objects change with the size of a node set.
_SCALING = ("StatefulSet", "SlurmNodeSet")
# The reason of what went wrong in the operator itself.
_OURS = "OperatorError"
# All clusters are asked for within so long when they are looked at again; the queue has them wait for one another.
_SPREAD = 5.0
# A document that nobody looks after yet is left so long to an operator that may, before one that may not says so.
_UNCLAIMED = 10.0
# Under this name somebody else's writing of the document itself is counted.
_DOCUMENT = "SlurmCluster document"
# The names of another cluster are waited for so long, as long as they are not known at all.
_COURTESY = 2.0
# Collections that are listed at the same time.
_LISTS = 12


@dataclass
class Cluster:
    """One SlurmCluster as it was last seen, and what this process knows of it."""

    key: Key
    document: Json
    facts: conditions.Facts
    run: Run | None = None
    run_generation: int = 0
    run_began: float = 0.0
    runs: int = 0
    unsettled: int = 0
    # By object: how often in a row it was set back soon after the last time, and when that was.
    repairs: dict[str, tuple[int, float]] = field(default_factory=dict)
    # The next run comes at once, to prove that nothing is left to do.
    settling: bool = False
    waits: Why = Why.RESYNC
    parked: bool = False
    # What somebody else has set during the run; whether the run shall begin anew for it.
    overtaken: set[str] = field(default_factory=set)
    outdated: bool = False
    # The pause after failures was cut short by a change of an object; one that fails again is cut short by an edit only.
    cut_short: bool = False
    # All was ready when the last run failed.
    well: bool = False
    again: bool = False
    # When it was looked at last by time alone, or first seen.
    looked: float = 0.0
    checked: Checked = field(default_factory=Checked)
    checking: asyncio.Task[Checked] | None = None
    # The older one whose names it meets, for which it waits.
    met: Key | None = None
    # The run is one of corral.slurm.sync; when the next of these is due by time alone; the nodes on machines that go, as the last one told them.
    syncing: bool = False
    look_at: float | None = None
    leaving: list[str] = field(default_factory=list)
    # Machines go or come back: a run that only waits makes way.
    yielding: bool = False
    # What was asked of its node sets, when it was looked at last.
    asked: list[str] | None = None
    showing: asyncio.TimerHandle | None = None
    # Until then an object is left to somebody else who writes it, too.
    calming: asyncio.TimerHandle | None = None
    # How often in a row the operator itself could not go on.
    stumbles: int = 0
    # The finalizer was taken off by this operator; the status that it wrote last.
    released: bool = False
    shown: Json | None = None
    # When somebody edited it last.
    edited: float = -math.inf
    # When it was seen first; the other operator that was told of as the one who looks after it.
    began: float = 0.0
    elsewhere: str = ""
    # What a newer definition has given it that this operator does not know; what of that was told.
    newer: list[str] = field(default_factory=list)
    newer_told: list[str] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def generation(self) -> int:
        """The document's generation."""
        return int(self.document["metadata"].get("generation") or 0)

    @property
    def sync_key(self) -> Key:
        """The queue's key of corral.slurm.sync."""
        return (*self.key, "sync")

    @property
    def deleting(self) -> bool:
        """True when the document shall go."""
        return bool(self.document["metadata"].get("deletionTimestamp"))


@dataclass
class Namespace:
    """The watched children of the clusters in one namespace."""

    name: str
    children: Children
    places: Places
    watches: dict[str, Watch]
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    known: bool = False

    @property
    def synced(self) -> bool:
        """True when everything that must be seen has been."""
        return all(watch.synced for name, watch in self.watches.items() if name not in self.refused)

    @property
    def words(self) -> str:
        """Why the namespace may not be looked at; "" when it may."""
        return next((words for name, words in self.refused.items() if not _KINDS[name].optional), "")


_KINDS: dict[str, Kind] = {kind.name: kind for kind in KINDS}


class Controller:
    """Everything between the watches and the runs. ``leading`` says whether it may act; it watches either way, to be ready."""

    def __init__(
        self,
        client: Api,
        engine: Engine,
        settings: Settings,
        metrics: Metrics,
        *,
        content: str,
        limits: tuple[int, int],
        may_write: Callable[[], bool],
        check: Callable[[Json], Awaitable[Checked]],
    ) -> None:
        self._api = client
        self._checker = check
        self._engine = engine
        self._settings = settings
        self._metrics = metrics
        self._content = content
        self._events = Events(client, settings.identity)
        self._clusters: dict[Key, Cluster] = {}
        self._namespaces: dict[str, Namespace] = {}
        self._documents: dict[str, Watch] = {}
        self._machines = Machines()
        # What the definition that the API server has gives documents more than this version knows.
        self._newer = newer.Additions()
        # Why they are not seen; "" while that is not known.
        self._unseen = ""
        self._clock = asyncio.get_running_loop().time
        self._queue = WorkQueue(self._clock, working=limits[0], open_limit=limits[1])
        self._backoff = Backoff(settings.backoff, settings.backoff_most)
        self._wake = asyncio.Event()
        self._turns, self._turns_of_new = asyncio.Semaphore(_LISTS), asyncio.Semaphore(_LISTS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._may_write = may_write
        self._owner = settings.owner
        self._elected = False
        self._next_resync = 0.0

    # --- life ---

    def start(self) -> None:
        """Begin to watch, and to work once ``lead`` was called."""
        scopes = self._settings.namespaces or ("",)
        for namespace in scopes:
            path = f"{_API}/namespaces/{namespace}/slurmclusters" if namespace else f"{_API}/slurmclusters"
            watch = Watch(
                self._api,
                Collection(path, "SlurmClusters", self._settings.selector, defined=True),
                replace=functools.partial(self._documents_listed, namespace),
                seen=self._document_seen,
                refused=lambda error: log.error("SlurmClusters can not be watched", extra={"error": str(error)}),
                relist=self._settings.relist,
                before=self._read_definition,
            )
            self._documents[namespace] = watch
            self._loops.append(asyncio.create_task(watch.run()))
        machines = Watch(
            self._api,
            Collection("/api/v1/nodes", "machines (nodes of Kubernetes)", optional=True),
            replace=self._machines_listed,
            seen=lambda event, found: self._machines_changed(self._machines.seen(event, found)),
            refused=self._machines_refused,
            relist=self._settings.relist,
        )
        self._loops.append(asyncio.create_task(machines.run()))
        self._loops.append(asyncio.create_task(self._dispatch()))
        self._loops.append(asyncio.create_task(self._look_after()))

    def lead(self) -> None:
        """This process may write from now on: look at every cluster."""
        self._elected = True
        self._next_resync = self._clock() + self._settings.resync
        self._metrics.leader.set(1)
        for key, cluster in self._clusters.items():
            cluster.facts = conditions.Facts.of(cluster.document.get("status") or {})
            cluster.looked = self._clock()
            self._ask(key, Why.RESYNC)
            self._ask(cluster.sync_key, Why.RESYNC)
        self._wake.set()

    async def halt(self, reason: str, grace: float) -> None:
        """Write nothing from now on: end all runs, kill those that have not ended after ``grace``. When this returns none is left."""
        self._elected = False
        self._metrics.leader.set(0)
        for cluster in self._clusters.values():
            if cluster.run is not None:
                cluster.run.end(reason)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)

    async def stop(self) -> None:
        """End the watches."""
        tasks = [*self._loops, *(task for namespace in self._namespaces.values() for task in namespace.tasks)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def leading(self) -> bool:
        """True while this process may act: after a freeze it may not, though nobody has told it so yet."""
        return self._elected and self._may_write()

    # --- health ---

    @property
    def unhealthy(self) -> str:
        """Return what only a restart can mend."""
        dead = [task for task in self._loops if task.done()]
        if dead:
            return f"A loop of the controller has ended: {dead[0]!r}"
        return "The process that starts runs does not come up." if self._engine.stuck else ""

    @property
    def unready(self) -> str:
        """Return what is missing for work."""
        if not all(watch.synced for watch in self._documents.values()):
            return "The SlurmClusters have not been listed yet."
        if not self._engine.well:
            return "No run can be started yet."
        return ""

    def refresh_metrics(self) -> None:
        """Bring the gauges up to date."""
        metrics = self._metrics
        # What piles up in the queue of one that only stands by is not due to anybody.
        waiting, working = (self._queue.waiting, self._queue.at_work) if self.leading else ({}, {})
        metrics.depth.set(self._queue.depth if self.leading else 0)
        metrics.open.set(self._queue.open)
        own = {key: cluster for key, cluster in self._clusters.items() if not self._foreign(cluster.document)}
        ready = [_is_ready(cluster.document) for cluster in own.values()]
        metrics.clusters.labels("true").set(sum(ready))
        metrics.clusters.labels("false").set(len(ready) - sum(ready))
        for gauge in (metrics.waiting, metrics.working, metrics.ready, metrics.orphans):
            gauge.clear()  # of clusters that are gone
        for key, is_ready in zip(own, ready, strict=True):
            metrics.waiting.labels(*key).set(waiting.get(key, 0.0))
            metrics.working.labels(*key).set(working.get(key, 0.0))
            metrics.ready.labels(*key).set(is_ready)
        for namespace in self._namespaces.values():
            for name, count in namespace.children.counts().items():
                if (namespace.name, name) not in self._clusters:
                    metrics.orphans.labels(namespace.name, name).set(count)
        metrics.children.set(sum(len(namespace.children) for namespace in self._namespaces.values()))
        watches = [*self._documents.values(), *(watch for namespace in self._namespaces.values() for watch in namespace.watches.values())]
        metrics.watch_restarts.set(sum(watch.restarts for watch in watches))
        metrics.zygote_restarts.set(getattr(self._engine, "restarts", 0))
        for kind, count in self._api.sent.items():
            metrics.requests.labels(kind).set(count)

    # --- what is seen ---

    async def _read_definition(self) -> None:
        """See what documents have by default. A change of the definition ends the watch of documents, so this comes before their new list."""
        try:
            found = await self._api.request("GET", _DEFINITION, what="read the CustomResourceDefinition of SlurmClusters")
        except CorralError as error:
            if status_code(error) not in (401, 403, 404):
                raise
            found = {}  # without the right, what is not known is a mistake
        self._newer = newer.additions(found) if found else newer.Additions()

    def known(self, document: Json) -> Json:
        """Return a document without what a newer definition has given it by default."""
        return {**document, "spec": newer.without(document.get("spec"), self._newer)[0]} if self._newer else document

    def _documents_listed(self, scope: str, found: list[Json]) -> None:
        keys = {_key(document) for document in found}
        for key in [key for key in self._clusters if key not in keys and (not scope or key[0] == scope)]:
            self._gone(key)
        for document in found:
            self._document(document, Why.RESYNC)

    def _document_seen(self, event: str, document: Json) -> None:
        if event == "DELETED":
            self._gone(_key(document))
        else:
            self._document(document, Why.EDIT)

    def _document(self, document: Json, why: Why) -> None:
        document["metadata"].pop("managedFields", None)
        key = _key(document)
        document["spec"], unknown = newer.without(document.get("spec"), self._newer)
        self._seen(key, document, why)
        if key in self._clusters:
            self._clusters[key].newer = unknown

    def _seen(self, key: Key, document: Json, why: Why) -> None:
        cluster = self._clusters.get(key)
        if cluster is None or cluster.document["metadata"]["uid"] != document["metadata"]["uid"]:
            if cluster is not None:
                self._gone(key)
            now = self._clock()
            self._clusters[key] = Cluster(key, document, conditions.Facts.of(document.get("status") or {}), looked=now, began=now)
            # The first documents of an operator that starts are many; one that is written meanwhile does not wait behind them.
            self._watch_namespace(key[0], self._turns if why is Why.RESYNC else self._turns_of_new)
            self._ask(key, why)
            return
        if _older(document, cluster.document):
            return  # a watch that was restarted from a cache that lags
        before, cluster.document = cluster.document, document
        if self._wish(before) == self._wish(document):
            document["spec"] = before.get("spec")  # kept once, also as the one that was checked
            self._overwritten(cluster, before)
            return
        if self._foreign(before):  # its status is the memory of whoever looked after it until now
            cluster.facts, cluster.began = conditions.Facts.of(document.get("status") or {}), self._clock()
        self._backoff.reset(key)
        cluster.unsettled, cluster.cut_short = 0, False
        cluster.repairs.clear()
        # The first edit counts at once; of those that follow it closely the last one.
        burst, cluster.edited = self._clock() < cluster.edited + _BURST, self._clock()
        self._ask(key, Why.EDIT, self._settings.debounce if burst else 0.0, _BURST if burst else None)
        self._wake_those_that_met(key)
        if cluster.run is not None:
            if decisions.paused(document):
                cluster.run.end("paused")
            elif (
                cluster.generation > cluster.run_generation
                or (cluster.deleting and not before["metadata"].get("deletionTimestamp"))
                or self._foreign(document)
            ):
                cluster.run.end("superseded")

    def _overwritten(self, cluster: Cluster, before: Json) -> None:
        """Set back what somebody else has written into a document that this operator looks after: finalizer, owner, status."""
        document = cluster.document
        if (
            not self.leading
            or decisions.owner(before) != self._owner
            or self._foreign(document)
            or decisions.paused(document)
            or cluster.released
        ):
            return
        lost = not cluster.deleting and decisions.held(before) and not decisions.held(document)
        if lost or not decisions.owner(document):
            self._later(cluster, self._hold_again)
        shown = document.get("status")
        if shown not in (before.get("status"), cluster.shown):
            self._show_soon(cluster, max(_GATHER, self._calm(cluster, _DOCUMENT)))
            if cluster.shown is not None and conditions.patch(cluster.shown, shown or {}):
                self._note_repairs(cluster, [f"{_DOCUMENT} configured"])

    def _later(self, cluster: Cluster, work: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(work(cluster))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hold_again(self, cluster: Cluster) -> None:
        """What keeps the document from going without its objects comes back at once; where somebody takes it off again and again, ever later."""
        await asyncio.sleep(self._calm(cluster, _DOCUMENT))
        document = cluster.document
        if not self.leading or self._clusters.get(cluster.key) is not cluster or cluster.deleting or decisions.paused(document):
            return
        self._note_repairs(cluster, [f"{_DOCUMENT} configured"])
        try:
            await self._hold(cluster, finalizer=bool(cluster.facts.observed) or cluster.run is not None)
        except CorralError as error:
            log.warning("finalizer not set back", extra={"cluster": "/".join(cluster.key), "error": str(error)})
            self._ask(cluster.key, Why.RETRY, self._backoff.failed(cluster.key))

    def _foreign(self, document: Json) -> bool:
        """True for a document that another operator looks after."""
        return decisions.owner(document) not in ("", self._owner)

    def _wish(self, document: Json) -> tuple[object, ...]:
        return (*_wish(document), self._foreign(document))

    async def _hand_over(self, cluster: Cluster, children: list[Child]) -> None:
        """A document that is seen no more is there still, with other labels: another operator may look after it when our run has ended."""
        while cluster.run is not None:
            await asyncio.sleep(0.1)
        what = f"hand over SlurmCluster {'/'.join(cluster.key)}"
        try:
            found = await self._api.request("GET", _path(cluster.key), what=what)
            metadata = found["metadata"]
            if self.leading and cluster.key not in self._clusters and decisions.owner(found) == self._owner:
                body = {"metadata": {"annotations": {decisions.OWNER: None}, "resourceVersion": metadata["resourceVersion"]}}
                await self._api.request("PATCH", _path(cluster.key), what=what, body=body, content_type=MERGE)
        except CorralError as error:
            if status_code(error) == 404:
                self._orphaned(cluster, children)
            else:
                log.warning("document not handed over", extra={"cluster": "/".join(cluster.key), "error": str(error)})

    def _orphaned(self, cluster: Cluster, children: list[Child]) -> None:
        """Tell of the objects of a document that went without this operator's having taken the cluster away."""
        if cluster.released or not children or self._foreign(cluster.document):
            return
        name, namespace = cluster.key[1], cluster.key[0]
        names = ", ".join(f"{one.kind} {one.name}" for one in children[:5])
        message = (
            f"The document is gone and its finalizer {decisions.FINALIZER} was taken off before, so {len(children)} objects run on without it "
            f"({names}{', …' if len(children) > 5 else ''}). Apply the document again to have them looked after, or take them away with "
            f"ansible-playbook corral.slurm.destroy -e slurm_cluster_file=…; kubectl get all,cm,secret,pvc -n {namespace} "
            f"-l app.kubernetes.io/instance={name} shows them."
        )
        log.warning("orphans", extra={"cluster": "/".join(cluster.key), "objects": len(children)})
        self._later(cluster, lambda gone: self._events.write(gone.document, "Warning", "Orphaned", message))

    def _gone(self, key: Key) -> None:
        cluster = self._clusters.pop(key, None)
        if cluster is None:
            return
        self._wake_those_that_met(key)
        if self.leading and not self._foreign(cluster.document):
            children = self._children(cluster) or []  # now, for with its last document the namespace is seen no more
            if self._settings.selector:
                self._later(cluster, functools.partial(self._hand_over, children=children))
            else:
                self._orphaned(cluster, children)
        for errand in (key, cluster.sync_key):
            self._queue.forget(errand)
            self._backoff.reset(errand)
        if cluster.run is not None:
            cluster.run.end("gone")
        if cluster.showing is not None:
            cluster.showing.cancel()
        for folder in (self._settings.scratch, self._settings.runs):
            shutil.rmtree(folder / key[0] / key[1], ignore_errors=True)
        if not any(other[0] == key[0] for other in self._clusters):
            namespace = self._namespaces.pop(key[0])
            for task in namespace.tasks:
                task.cancel()

    def _watch_namespace(self, name: str, turns: asyncio.Semaphore) -> None:
        if name in self._namespaces:
            return
        namespace = self._namespaces[name] = Namespace(name, Children(), Places(), {})
        for kind in KINDS:
            # While the first kind is refused, which all operators may see where they may see anything, it is asked for and the others are not.
            watch = Watch(
                self._api,
                Collection(kind.path(name), f"{kind.plural} in namespace {name}", kind.selector, kind.whole, kind.optional),
                replace=functools.partial(self._children_listed, namespace, kind),
                seen=functools.partial(self._child_seen, namespace, kind),
                refused=functools.partial(self._refused, namespace, kind),
                relist=self._settings.relist,
                turns=turns,
                hopeless=functools.partial(_hopeless, namespace, kind),
            )
            namespace.watches[kind.name] = watch
            namespace.tasks.append(asyncio.create_task(watch.run()))

    def _refused(self, namespace: Namespace, kind: Kind, error: CorralError) -> None:
        first = kind.name not in namespace.refused
        namespace.refused[kind.name] = (
            f"Nothing is done: {error} An administrator lets the operator work in this namespace by a RoleBinding to the ClusterRole "
            "corral-operator-namespace; the variable operator_namespaces of the role corral.slurm.operator makes it."
        )
        # Also of a kind that need not be watched: it may have been the last that was waited for.
        if first:
            self._ask_all(namespace)

    def _children_listed(self, namespace: Namespace, kind: Kind, found: list[Json]) -> None:
        self._children_changed(namespace, kind, namespace.children.replace(kind, found))
        if kind.name == "Pod":
            self._places_changed(namespace, namespace.places.replace(found))

    def _child_seen(self, namespace: Namespace, kind: Kind, event: str, found: Json) -> None:
        name = str(found["metadata"]["name"])
        self._children_changed(namespace, kind, namespace.children.seen(kind, event, found), name)
        if kind.name == "Pod":
            self._places_changed(namespace, namespace.places.seen(event, found))

    def _children_changed(self, namespace: Namespace, kind: Kind, instances: dict[str, Change], name: str = "") -> None:
        """Look at the clusters of what has changed, which is one object where there is a name."""
        if namespace.refused.pop(kind.name, None) is not None:
            namespace.known = False
            for watch in namespace.watches.values():
                watch.look()
        if not namespace.synced:
            return
        if not namespace.known:  # only now is there anything to compare with
            namespace.known = True
            self._ask_all(namespace)
            return
        for instance, change in instances.items():
            cluster = self._clusters.get((namespace.name, instance))
            if cluster is None:
                continue
            foreign = change is Change.FOREIGN
            self._show_soon(cluster)
            making = cluster.run is not None and not cluster.syncing
            # What goes by the garbage collector's hand while the cluster is taken away is what the run waits for.
            calm = self._calm(cluster, f"{kind.name} {name}")
            if making and foreign and kind.name not in _MOVING and not cluster.deleting:
                cluster.overtaken.add(f"{kind.name} {name}")
                self._note_repairs(cluster, [f"{kind.name} {name} overwritten"])
                if self._feud(cluster, f"{kind.name} {name}") == decisions.FEUD:
                    self._later(cluster, functools.partial(self._does_not_settle, what=f"{kind.name} {name}"))
                if not calm:
                    cluster.outdated = True  # a run that only waits might wait for what was undone: it begins again
                    if cluster.run is not None and cluster.parked:
                        cluster.run.end("superseded")
            # Also by a name that runs have: a playbook that a person runs with another document.
            if calm and (foreign or (change is Change.SET and not making)) and kind.name not in _MOVING:
                cluster.facts.contested |= {f"{kind.name} {name}"}
            if not making and not self._pauses(cluster, foreign=foreign):
                if not calm:
                    self._ask(cluster.key, Why.DRIFT, self._settings.debounce, self._settings.debounce_most)
                elif cluster.calming is None:  # beside the queue, where it would hold up what else is asked for
                    cluster.calming = asyncio.get_running_loop().call_later(calm, self._calmed, cluster)

    def _pauses(self, cluster: Cluster, *, foreign: bool) -> bool:
        """Whether a change of an object is left to the run that comes after a pause.

        What runs that fail leave behind, and what fails again and again, does not cut the pause short; what somebody else has set does, and that all is
        well now which was not. But once: for clusters that stay broken, the pauses are what keeps the requests few.
        """
        if not (self._backoff.count(cluster.key) and self._queue.asked(cluster.key)):
            return False
        if cluster.cut_short or not (foreign or (not cluster.well and self._all_ready(cluster))):
            return True
        cluster.cut_short = True
        return False

    def _calmed(self, cluster: Cluster) -> None:
        cluster.calming = None
        if self._clusters.get(cluster.key) is cluster:
            self._ask(cluster.key, Why.DRIFT)

    def _calm(self, cluster: Cluster, name: str) -> float:
        """Return for how long an object is left to somebody else who writes it, too."""
        return decisions.calm(self._feud(cluster, name), self._settings.backoff_most)

    def _feud(self, cluster: Cluster, name: str = "") -> int:
        """Return how often in a row an object was set back, each time soon after the last: this one, or that which is worst."""
        return max((count for one, (count, _last) in self._repairs(cluster).items() if name in ("", one)), default=0)

    def _note_repairs(self, cluster: Cluster, changes: list[str]) -> None:
        cluster.repairs = repairs = self._repairs(cluster)
        for name in {change.rpartition(" ")[0] for change in changes}:
            repairs[name] = (repairs.get(name, (0, 0.0))[0] + 1, self._clock())

    def _repairs(self, cluster: Cluster) -> dict[str, tuple[int, float]]:
        """Return those that another one would follow soon."""
        now, most = self._clock(), self._settings.backoff_most
        return {name: (count, last) for name, (count, last) in cluster.repairs.items() if now - last < _SOON + decisions.calm(count, most)}

    def _machines_refused(self, error: CorralError) -> None:
        if not self._unseen:
            log.warning(
                "machines are not seen: cordons reach Slurm only where a person runs corral.slurm.sync", extra={"error": str(error)}
            )
        first, self._unseen = not self._unseen, str(error)
        if first or self._machines.known:
            self._machines.forget()
            self._machines_changed(set(), first=True)

    def _machines_listed(self, found: list[Json]) -> None:
        first = not self._machines.known
        self._machines_changed(self._machines.replace(found), first=first)

    def _machines_changed(self, names: set[str], *, first: bool = False) -> None:
        """Ask for a look at the clusters with workers on these machines; at all of them when machines can be seen, or not, from now on."""
        if self._machines.known:
            self._unseen = ""
        for key, cluster in self._clusters.items():
            if first:
                self._ask(cluster.sync_key, Why.RESYNC)
            elif names and key[1] in self._namespaces[key[0]].places.on(names):
                self._ask_sync(cluster, urgent=True)

    def _places_changed(self, namespace: Namespace, places: list[Place]) -> None:
        for place in places:
            cluster = self._clusters.get((namespace.name, place.cluster))
            if cluster is not None:
                self._ask_sync(cluster, urgent=bool(cluster.leaving or self._machines.cause(place.machine, *cluster.checked.signs)))

    def _ask_sync(self, cluster: Cluster, *, urgent: bool) -> None:
        """Have Slurm told of machines and pods that have changed: at once where machines go or come back."""
        if not urgent:
            self._ask(cluster.sync_key, Why.RESYNC, _CALM)
            return
        self._backoff.reset(cluster.sync_key)
        self._ask(cluster.sync_key, Why.DRIFT, self._settings.debounce, self._settings.debounce_most)
        cluster.yielding = True
        if cluster.run is not None and cluster.parked and not cluster.syncing:
            cluster.run.end("preempted")

    def _all_ready(self, cluster: Cluster) -> bool:
        return all(child.ready for child in self._children(cluster) or ())

    def _ask_all(self, namespace: Namespace) -> None:
        for key, cluster in self._clusters.items():
            if key[0] == namespace.name:
                self._ask(key, cluster.waits)

    def _ask(self, key: Key, why: Why, delay: float = 0.0, most: float | None = None) -> None:
        self._metrics.adds.labels(why.name.lower()).inc()
        self._queue.add(key, why, delay, most)
        self._wake.set()

    def _children(self, cluster: Cluster) -> list[Child] | None:
        namespace = self._namespaces.get(cluster.key[0])
        if namespace is None or not namespace.synced:
            return None
        return namespace.children.of(cluster.key[1])

    # --- work ---

    async def _dispatch(self) -> None:
        while True:
            self._wake.clear()
            if self.leading:
                for taken in iter(self._queue.take, None):
                    task = asyncio.create_task(self._work(taken))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                in_the_way = self._queue.parked_for()
                if in_the_way is not None and in_the_way in self._clusters:
                    run = self._clusters[in_the_way].run
                    if run is not None:
                        run.end("preempted")
            due = self._queue.next_due() if self.leading else None
            timeout = None if due is None else max(0.01, due - self._clock())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(timeout, 5.0) if timeout is not None else 5.0):
                    await self._wake.wait()

    async def _look_after(self) -> None:
        """Park runs that only wait, show those that take long, and look at all clusters now and then."""
        while True:
            await asyncio.sleep(0.5)
            now = self._clock()
            for key, cluster in self._clusters.items():
                own = decisions.resync(cluster.document, 0.0)
                if own and self.leading and now >= cluster.looked + own:
                    self._resync(cluster, 0.0)
                if cluster.run is None:
                    continue
                parked = now - cluster.run.last_line > _PARKED and now - cluster.run_began > _PARKED
                self._queue.park(key, parked)
                cluster.parked = parked
                if self._settings.idle_timeout and now - max(cluster.run.last_line, cluster.run_began) > self._settings.idle_timeout:
                    cluster.run.end("idle")
                if parked:
                    self._wake.set()
                    if cluster.outdated:
                        cluster.run.end("superseded")
                    elif cluster.yielding and not cluster.syncing:
                        cluster.run.end("preempted")
                if cluster.syncing:
                    continue
                if not cluster.facts.running and now - cluster.run_began > _VISIBLE:
                    cluster.facts.running = True
                    self._show_soon(cluster)
                doing = cluster.run.outcome.doing if parked else ""
                if cluster.facts.running and doing and doing != cluster.facts.doing:
                    cluster.facts.doing = doing
                    self._show_soon(cluster)
            if self._settings.resync and self.leading and now >= self._next_resync:
                self._next_resync = now + self._settings.resync
                self._spread_resync()

    def _spread_resync(self) -> None:
        pause = min(0.5, _SPREAD / max(1, len(self._clusters)))
        for index, cluster in enumerate(self._clusters.values()):
            if decisions.resync(cluster.document, self._settings.resync) == self._settings.resync:
                self._resync(cluster, index * pause)

    def _resync(self, cluster: Cluster, delay: float) -> None:
        """Have a cluster looked at that may be as it was."""
        cluster.again, cluster.look_at, cluster.looked = True, self._clock(), self._clock()
        self._ask(cluster.key, Why.RESYNC, delay)

    async def _work(self, taken: Taken) -> None:
        self._metrics.wait_seconds.labels(taken.why.name.lower()).observe(max(0.0, taken.waited))
        cluster = self._clusters.get(owner(taken.key))
        try:
            if cluster is not None:
                await (self._reconcile(cluster, taken.why) if taken.key == cluster.key else self._sync(cluster))
        except CorralError as error:
            log.warning("a cluster could not be looked after", extra={"cluster": "/".join(taken.key), "error": str(error)})
            await self._stumbled(cluster, taken.key, str(error))
        except Exception as error:  # a full disk, or a mistake of ours, about one cluster: it is told, and the others go on
            log.exception("unexpected error", extra={"cluster": "/".join(taken.key)})
            await self._stumbled(cluster, taken.key, f"The operator could not go on ({type(error).__name__}: {error}); it tries again.")
        finally:
            self._metrics.work_seconds.labels(taken.why.name.lower()).observe(self._queue.done(taken.key))
            self._wake.set()

    async def _stumbled(self, cluster: Cluster | None, key: Key, words: str) -> None:
        """Something else than a playbook failed: it is done again, and told of when it was not the first time."""
        self._ask(key, Why.RETRY, self._backoff.failed(key))
        if cluster is None or not self.leading or key not in (cluster.key, cluster.sync_key):
            return
        count, reason, facts = self._backoff.count(key), "SyncFailed", cluster.facts
        if key == cluster.key:
            cluster.stumbles += 1
            count, reason = cluster.stumbles, _OURS
            facts.running = False
            # What a run failed of says more than that its failure could not be told.
            if count > 1 and (facts.failure is None or facts.failure[0] == _OURS):
                facts.failure, facts.failures = (reason, words), count
                self._show_soon(cluster)
        if count == 2:
            await self._events.write(cluster.document, "Warning", reason, words)

    async def _reconcile(self, cluster: Cluster, why: Why) -> None:
        self._queue.looking(cluster.key)
        document, facts = cluster.document, cluster.facts
        namespace = self._namespaces[cluster.key[0]]
        if self._foreign(document):
            await self._leave(cluster, namespace)
            return
        if cluster.deleting and decisions.held(document) and await self._goes(namespace):
            log.info("the document is let go: its namespace goes with all that is in it", extra={"cluster": "/".join(cluster.key)})
            await self._release(cluster)
            return
        try:
            mistakes = (await self._check(cluster)).mistakes or ("" if cluster.deleting else await self._meets(cluster))
        except CorralError as error:
            if not cluster.deleting:
                raise
            mistakes = str(error)  # going away waits for no check
        decision = decisions.decide(
            document,
            children=self._children(cluster),
            refused=namespace.words,
            mistakes=mistakes,
            content=self._content,
            hashed=facts.hash,
            touched=decisions.held(document),
            again=cluster.again,
        )
        if decision.do is Do.WAIT:  # until the objects have been seen; then it has the same place in the queue
            cluster.waits = min(cluster.waits, why)
            return
        if decision.reason == "NotPermitted" and not decisions.owner(document):
            await self._unclaimed(cluster, decision)
            return
        if decision.do in (Do.STALL, Do.KEEP, Do.DESTROY) or (decision.do is Do.REST and not cluster.deleting):
            await self._hold(cluster, finalizer=False)
            if self._foreign(cluster.document):
                return
        specs = [document.get("spec")]
        if decision.do is Do.DESTROY and decision.message:
            # Without any, by what of the document is right: going away waits for nobody's correction.
            specs = await self._made_by(cluster) or specs
        # One that is made again is looked at when a run has come to its end.
        cluster.waits, cluster.again = Why.RESYNC, cluster.again and decision.do is Do.MAKE
        if cluster.newer != cluster.newer_told:
            cluster.newer_told = cluster.newer
            await self._tell_newer(cluster)
        facts.paused = decisions.paused(document)
        facts.stalled = (decision.reason, decision.message) if decision.do is Do.STALL else None
        facts.deleting = cluster.deleting
        if decision.do in (Do.REST, Do.KEEP):
            self._metrics.skipped.labels(why.name.lower()).inc()
            self._ask_sync(cluster, urgent=False)  # it may have been kept back by a pause
        if decision.do in (Do.REST, Do.KEEP, Do.STALL) and facts.failure is not None and facts.failure[0] == _OURS:
            facts.failure, facts.failures = None, 0
        if decision.do is Do.KEEP:  # also a newer generation, that went back to what was made: whoever waits for it is told
            facts.observed = cluster.generation
        if decision.do is Do.STALL:
            log.warning("nothing is done", extra={"cluster": "/".join(cluster.key), "reason": decision.reason, "error": decision.message})
            if await self._show(cluster):
                await self._events.write(document, "Warning", decision.reason, decision.message)
        elif decision.do is Do.RELEASE:
            await self._release(cluster)
        elif decision.do is Do.MAKE:
            await self._make(cluster, why, document)
        elif decision.do is Do.DESTROY:
            await self._destroy(cluster, document, specs)
        else:
            await self._show(cluster)
            self._backoff.reset(cluster.key)
            cluster.stumbles = 0

    async def _tell_newer(self, cluster: Cluster) -> None:
        if cluster.newer:
            what = ", ".join(cluster.newer[:10])
            message = (
                f"The CustomResourceDefinition is of a newer version than this operator, which leaves out what it does not know and what has its default "
                f"({what}). Upgrade operator {self._owner}, or give these fields no other value until then."
            )
            log.warning(
                "the definition is newer than this operator", extra={"cluster": "/".join(cluster.key), "fields": cluster.newer[:10]}
            )
            await self._events.write(cluster.document, "Warning", "NewerDefinition", message)

    async def _leave(self, cluster: Cluster, namespace: Namespace) -> None:
        """Write nothing of a document that another operator looks after. Where this one could, it says who does: that one may be gone."""
        cluster.facts.running = False
        owner = decisions.owner(cluster.document)
        if cluster.elsewhere == owner or namespace.words or not namespace.synced:
            return
        cluster.elsewhere = owner
        log.info("another operator looks after it", extra={"cluster": "/".join(cluster.key), "owner": owner})
        await self._events.write(
            cluster.document,
            "Normal",
            "OtherOperator",
            f"Operator {self._owner} leaves it to operator {owner}, which its annotation {decisions.OWNER} names. If that one is gone, "
            f"kubectl annotate slurmcluster {cluster.key[1]} -n {cluster.key[0]} {decisions.OWNER}- has another one take over.",
        )

    async def _unclaimed(self, cluster: Cluster, decision: decisions.Decision) -> None:
        """Say of a document that nobody looks after why this operator does not, when none that may has come and none has said it."""
        left = cluster.began + _UNCLAIMED - self._clock()
        if left > 0:
            self._ask(cluster.key, Why.RESYNC, left)
            return
        cluster.facts.stalled = (decision.reason, decision.message)
        said = {one["type"]: one for one in (cluster.document.get("status") or {}).get("conditions") or ()}.get("Stalled", {})
        if said.get("reason") == decision.reason and said.get("observedGeneration") == cluster.generation:
            return
        if await self._show(cluster, unclaimed=True):
            log.warning("nothing is done", extra={"cluster": "/".join(cluster.key), "error": decision.message})
            await self._events.write(cluster.document, "Warning", decision.reason, decision.message)

    async def _made_by(self, cluster: Cluster) -> list[object]:
        """Return the specs that the cluster was made by, as they are kept beside it: that of a run that did not come to its end, and the last that
        did, as far as this version understands them."""
        namespace, name = cluster.key
        path = f"/api/v1/namespaces/{namespace}/configmaps/{revisions.name(name)}"
        try:
            found = await self._api.request("GET", path, what=f"read the documents that {namespace}/{name} was made by")
        except CorralError as error:
            if status_code(error) != 404:
                raise
            return []
        history = revisions.parse(found.get("data") or {})
        tried = [history.tried] if history.tried else []
        done = [one.document for one in reversed(history.known)]
        whole = {"metadata": {"name": name, "namespace": namespace}}
        good: list[object] = []
        for documents in (tried, done):
            for one in documents:
                with contextlib.suppress(CorralError):
                    if not (await self._checker({**one, **whole})).mistakes:
                        good.append(one["spec"])
                        break
        return good

    async def _still(self, cluster: Cluster, decided: Json) -> bool:
        """Whether what was decided for a document holds: it is read once more, for a watch that is cut off without a word tells of no edit."""
        fresh = await self._read(cluster)
        if fresh is None:  # that it is gone is for the watch to say: an API server that has just started says so of all
            if self._clusters.get(cluster.key) is cluster:
                self._ask(cluster.key, Why.RETRY, self._backoff.failed(cluster.key))
            return False
        self._answered(cluster, fresh)
        return self.leading and self._clusters.get(cluster.key) is cluster and self._wish(cluster.document) == self._wish(decided)

    async def _read(self, cluster: Cluster) -> Json | None:
        """Return the document as it is now; None where it is not, or is not ours to look after any more."""
        what, selector = f"read SlurmCluster {'/'.join(cluster.key)}", self._settings.selector
        try:
            if not selector:
                return await self._api.request("GET", _path(cluster.key), what=what)
            query = {"fieldSelector": f"metadata.name={cluster.key[1]}", "labelSelector": selector}
            path = _path(cluster.key).rpartition("/")[0]
            found = (await self._api.request("GET", path, what=what, query=query)).get("items") or ()
            # The items of a list do not say of which kind they are.
            kind = {key: cluster.document[key] for key in ("apiVersion", "kind")}
            return next(({**kind, **one} for one in found if _key(one) == cluster.key), None)
        except CorralError as error:
            if status_code(error) != 404:
                raise
            return None

    def _answered(self, cluster: Cluster, document: Json) -> None:
        """Take a document that the API server has answered with: older than what was seen meanwhile, or gone since, it is no news."""
        if self._clusters.get(cluster.key) is cluster and not _older(document, cluster.document):
            self._document(document, Why.EDIT)

    async def _goes(self, namespace: Namespace) -> bool:
        """Whether a namespace is being deleted. The RoleBinding that the operator works by is deleted with it, so no run would come to its end."""
        try:
            found = await self._api.request("GET", f"/api/v1/namespaces/{namespace.name}", what=f"look at namespace {namespace.name}")
        except CorralError as error:
            if status_code(error) in (403, 404):  # an older ClusterRole: the document is destroyed as any other
                return False
            raise
        return bool(found["metadata"].get("deletionTimestamp"))

    async def _check(self, cluster: Cluster) -> Checked:
        """Return what is to be said of the document, of which one check goes on at a time, whoever waits for it."""
        document = cluster.document
        while cluster.checked.spec != document.get("spec"):
            if cluster.checking is None:
                cluster.checking = asyncio.create_task(self._have_checked(cluster, document))
            found = await asyncio.shield(cluster.checking)
            if found.spec == document.get("spec"):
                return found
        return cluster.checked

    async def _have_checked(self, cluster: Cluster, document: Json) -> Checked:
        try:
            found = await self._checker(document)
            cluster.checked = found
            return found
        finally:
            cluster.checking = None

    async def _meets(self, cluster: Cluster) -> str:
        """Return a sentence where a document that is older wants an object of the same name, "" where none does. Objects of the first are never written."""
        own = (await self._check(cluster)).names
        for other in list(self._clusters.values()):
            if other is cluster or _age(other.document) >= _age(cluster.document):
                continue
            if other.checked.spec is ...:  # what is known of it already is waited for by nobody else, however often it is edited
                with contextlib.suppress(CorralError, TimeoutError):
                    async with asyncio.timeout(_COURTESY):
                        await self._check(other)
            said = names.meeting(own, other.checked.names, "/".join(other.key))
            if said:
                cluster.met = other.key
                return said
        cluster.met = None
        return ""

    def _wake_those_that_met(self, key: Key) -> None:
        for other in self._clusters.values():
            if other.met == key:
                self._ask(other.key, Why.EDIT)

    async def _sync(self, cluster: Cluster) -> None:
        """Run corral.slurm.sync where the workers' pods or their machines are not as it saw them last, or its time has come."""
        key, document, facts = cluster.sync_key, cluster.document, cluster.facts
        self._queue.looking(key)
        namespace, checked = self._namespaces[key[0]], await self._check(cluster)
        # A cluster that has not been made has nobody to be told; when it is, this is asked for.
        if (
            self._foreign(document)
            or not facts.observed
            or cluster.deleting
            or decisions.paused(document)
            or namespace.words
            or checked.mistakes
            or not namespace.synced
        ):
            return
        # What is just being made is made first.
        if cluster.settling and self._queue.asked(cluster.key) and not cluster.yielding:
            self._ask(key, Why.RESYNC, _CALM)
            return
        places = namespace.places.of(key[1])
        if not places or not (self._machines.known or self._unseen):
            return
        signs, rest = checked.signs, (checked.eviction, self._content, decisions.annotation(document, decisions.REQUESTED))
        seen = word(places, self._machines, signs, *rest)
        leaving, idle = any(self._machines.cause(place.machine, *signs) for place in places), checked.eviction == "WhenIdle"
        now = self._clock()
        by_time = seen == facts.synced
        if by_time:
            if cluster.look_at is None:  # this process has just begun
                self._look_again(cluster, leaving=leaving, busy=True, idle=idle)
                return
            if now < cluster.look_at:
                self._ask(key, Why.RETRY, cluster.look_at - now)
                return
        if not await self._still(cluster, document):
            self._ask(key, Why.RESYNC, _CALM)
            return
        outcome = await self._run(cluster, "sync", {}, look=by_time)
        if outcome is None:
            return
        if not outcome.successful:
            words = outcome.failure or f"The run was ended in the task {outcome.task!r}, since it took too long; it is repeated."
            pause, count = self._backoff.failed(key), self._backoff.count(key)
            every = self._every(cluster)
            if by_time and every:  # it costs no more than one that finds it well, and its end is seen as soon
                pause = min(pause, every)
            news = count == (_SILENT if by_time else 2)  # a slurmctld that is just being replaced is none
            log.log(
                logging.WARNING if news or not by_time else logging.DEBUG,
                "Slurm was not told of machines",
                extra={"cluster": "/".join(key[:2]), "error": words, "again_in": pause},
            )
            self._ask(key, Why.RETRY, pause)
            if news:
                await self._events.write(document, "Warning", "SyncFailed", words)
            return
        self._backoff.reset(key)
        facts.synced, facts.nodes = seen, outcome.nodes or facts.nodes
        nodes = list(outcome.leaving.get("nodes") or ())
        told, cluster.leaving = nodes != cluster.leaving, nodes
        self._look_again(cluster, leaving=leaving, busy=bool(outcome.leaving.get("busy")), idle=idle)
        if word(namespace.places.of(key[1]), self._machines, signs, *rest) != seen:
            self._ask(key, Why.DRIFT, self._settings.debounce)
        await self._show(cluster)
        for warning in () if by_time else outcome.warnings:  # it was told before
            await self._events.write(document, "Warning", "Withheld", warning)
        if told:
            message = f"Drained for their machines: {', '.join(nodes)}." if nodes else "No node is drained for its machine any more."
            await self._events.write(document, "Normal", "MachinesGo" if nodes else "MachinesBack", message)

    def _every(self, cluster: Cluster) -> float:
        """Between two looks at a cluster by time alone; 0: there are none. One whose runs fail is looked at no more often than they are repeated."""
        every = self._settings.sync_every
        return every and max(every, _LOOKS[self._settings.engine] * len(self._clusters), self._backoff.pause(cluster.key))

    def _look_again(self, cluster: Cluster, *, leaving: bool, busy: bool, idle: bool) -> None:
        """Have corral.slurm.sync run again by time alone, where that is needed."""
        pause = decisions.next_look(leaving=leaving, busy=busy, idle=idle, again=self._settings.sync_again, every=self._every(cluster))
        cluster.look_at = math.inf if pause is None else self._clock() + pause
        if pause is not None:
            self._ask(cluster.sync_key, Why.RETRY, pause)

    async def _make(self, cluster: Cluster, why: Why, decided: Json) -> None:
        """Run the site playbook, and settle what came of it. ``decided``: the document as it was when that was decided."""
        facts, key = cluster.facts, cluster.key
        cluster.settling = False
        if why is Why.DRIFT and facts.hash:
            self._metrics.drift.inc()
        await self._hold(cluster)
        document = cluster.document
        if self._foreign(document):
            return
        before = decisions.observed(document, self._content, self._children(cluster) or [])
        asked = [child.spec for child in self._children(cluster) or () if child.kind == "SlurmNodeSet"]
        scaled, cluster.asked = cluster.asked not in (None, asked), asked
        if facts.observed != cluster.generation:
            facts.running = True
        if facts.hash and (facts.observed, facts.revision) != (cluster.generation, self._content):
            # What a run leaves that is cut off need not show in any object (a node that it drained): going back to the former document takes a run then.
            facts.hash = ""
            await self._show(cluster)
        if not await self._still(cluster, decided):
            facts.running = False
            return
        # What waits for jobs is gone on with by the next run.
        patience = {"slurm_workers_scale_timeout": 0, "slurm_workers_rollout_timeout": 0}
        variables = {"corral_force": True, "cluster_base_create_namespace": False, **patience}
        outcome = await self._run(cluster, "site", variables)
        if outcome is None:
            return
        if not outcome.successful:
            await self._failed(cluster, outcome)
            return
        recovered = facts.failure is not None
        first = facts.observed != cluster.run_generation
        self._backoff.reset(key)
        cluster.again, cluster.stumbles, cluster.cut_short = False, 0, False
        facts.failure, facts.failures = None, 0
        if recovered:
            cluster.look_at = self._clock()
        facts.observed, facts.revision, facts.nodes = cluster.run_generation, self._content, outcome.nodes
        facts.waiting, facts.lines = outcome.waiting, outcome.lines
        facts.contested &= cluster.overtaken
        await asyncio.sleep(0)
        after = decisions.observed(cluster.document, self._content, self._children(cluster) or [])
        cluster.unsettled = cluster.unsettled + 1 if outcome.changed else 0
        if why is Why.DRIFT:
            # What a person or an autoscaler has scaled, and what is replaced in turn, is nobody's work against ours.
            moves = _SCALING if scaled or outcome.waiting or outcome.left else ()
            self._note_repairs(cluster, [change for change in outcome.changes if change.partition(" ")[0] not in moves])
        unsettled = max(cluster.unsettled, self._feud(cluster)) if outcome.changed else 0
        settled = decisions.settle(
            changed=outcome.changed,
            waiting=bool(outcome.waiting),
            left=outcome.left,
            before=before,
            after=after,
            unsettled=unsettled,
            scale_again=self._settings.scale_again,
            backoff_most=self._settings.backoff_most,
        )
        facts.hash = settled.hash
        cluster.settling = bool(settled.again and not outcome.waiting and not outcome.left and unsettled < decisions.FEUD)
        if settled.again is not None:
            self._ask(key, Why.RETRY if outcome.waiting or outcome.left else Why.DRIFT, settled.again)
        if not all(self._calm(cluster, name) for name in cluster.overtaken):  # the others are told of
            self._ask(key, Why.DRIFT, self._settings.debounce)
        if unsettled == decisions.FEUD:
            await self._does_not_settle(cluster, what=", ".join(sorted(set(outcome.changed_tasks))))
        self._ask_sync(cluster, urgent=False)
        await self._show(cluster)
        if first or recovered:
            await self._events.write(document, "Normal", "Recovered" if recovered else "Made", _made(outcome))
        elif why is Why.DRIFT and (done := [one for one in outcome.changes if one.rpartition(" ")[0] not in cluster.overtaken]):
            reason = "Scaled" if scaled else "Repaired"
            await self._events.write(document, "Normal", reason, f"{reason}: {', '.join(done[:10])}.")
        if outcome.foreign:
            what = "; ".join(sorted(set(outcome.foreign))[:10])
            message = f"What others had added was taken back: {what}. Fields that may stay are named in spec.foreignFields."
            await self._events.write(document, "Warning", "TakenBack", message)
        if outcome.waiting:
            await self._events.write(
                document,
                "Normal",
                "WaitingForJobs",
                f"Nodes go, or get another pod, when their jobs have ended: {', '.join(outcome.waiting)}.",
            )

    async def _does_not_settle(self, cluster: Cluster, *, what: str) -> None:
        message = f"The cluster does not settle: what was set right is changed again and again ({what}). Does somebody else write the same objects?"
        await self._events.write(cluster.document, "Warning", "DoesNotSettle", message)

    async def _destroy(self, cluster: Cluster, document: Json, specs: list[object]) -> None:
        """Run the destroy playbook for each spec with the data policy of the document, and let the document go."""
        keep = ((document.get("spec") or {}).get("deletion") or {}).get("data", "Keep") != "Delete"
        cluster.facts.running = True
        await self._show(cluster)
        variables = {"keep_data": True} if keep else {"keep_data": False, "confirm": cluster.key[1]}
        for spec in specs:
            if not await self._still(cluster, document):
                cluster.facts.running = False
                return
            outcome = await self._run(cluster, "destroy", variables, spec)
            if outcome is None:
                return
            if not outcome.successful:
                await self._failed(cluster, outcome)
                return
        await self._events.write(
            document, "Normal", "Removed", "The cluster was taken away; its data " + ("is kept." if keep else "is gone, too.")
        )
        await self._release(cluster)

    async def _failed(self, cluster: Cluster, outcome: Outcome) -> None:
        facts = cluster.facts
        if outcome.ended in _OVERDUE:
            settings = self._settings
            long = (
                f"after {settings.run_timeout:g} s"
                if outcome.ended == "timeout"
                else f"when it had said nothing for {settings.idle_timeout:g} s"
            )
            reason, words = "TimedOut", f"The run was ended {long}, in the task {outcome.task!r}; it is repeated."
        else:
            reason, words = "RunFailed", outcome.failure
        pause = self._backoff.failed(cluster.key)
        cluster.well = self._all_ready(cluster)
        self._metrics.retries.inc()
        facts.failure, facts.failures, facts.hash = (reason, words), self._backoff.count(cluster.key), ""
        log.warning("run failed", extra={"cluster": "/".join(cluster.key), "error": words, "again_in": pause})
        self._ask(cluster.key, Why.RETRY, pause)
        await self._show_quietly(cluster)
        where = f"Its output: {outcome.kept}/stdout in pod {self._settings.identity.partition('_')[0]}."
        await self._events.write(cluster.document, "Warning", reason, words, where)

    async def _run(self, cluster: Cluster, playbook: str, variables: Json, spec: object = ..., *, look: bool = False) -> Outcome | None:
        """Run a playbook, for another spec than the document's where one is given; ``look``: by time alone, of which there are many.

        Returns None when it was ended for a reason that is no failure; the next look is asked for then.
        """
        key, facts, errand = cluster.key, cluster.facts, cluster.sync_key if playbook == "sync" else cluster.key
        name, level = ("look", logging.DEBUG) if look else (playbook, logging.INFO)
        request = self._prepare(cluster, playbook, variables, cluster.document.get("spec") if spec is ... else spec, name)
        cluster.parked = cluster.outdated = cluster.yielding = False
        cluster.overtaken.clear()
        cluster.syncing = playbook == "sync"
        cluster.run_generation, cluster.run_began = cluster.generation, self._clock()
        cluster.run = Run(self._engine, request, timeout=self._settings.run_timeout, grace=self._settings.grace)
        if facts.running:
            self._show_soon(cluster)
        where = {"cluster": "/".join(key), "run": request.ident}
        log.log(level, "run started", extra={**where, "playbook": playbook, "generation": cluster.run_generation})
        cluster.run.outcome.kept = str(request.artifact_dir)
        try:
            outcome = await cluster.run.go()
        finally:
            cluster.run = None
            if errand == key:
                facts.running, facts.doing = False, ""
            cluster.syncing = False
        if not self.leading and outcome.ended in ("", *_OVERDUE):
            # What it failed in is that it was not let write, and what it has done is the next leader's to judge.
            outcome.ended = "lost the lease"
        result = outcome.ended or ("successful" if outcome.successful else "failed")
        self._metrics.runs.labels(playbook, result).inc()
        self._metrics.run_seconds.labels(playbook, result).observe(outcome.seconds)
        for kind, count in outcome.counts.items():
            self._metrics.tasks.labels(kind).inc(count)
        for task, seconds in outcome.tasks.items():
            self._metrics.task_seconds.labels(task).observe(seconds)
        log.log(
            level if outcome.successful and not outcome.changed else logging.INFO,
            "run ended",
            extra={
                **where,
                "result": result,
                "seconds": round(outcome.seconds, 3),
                "changed": outcome.changed,
                "changes": outcome.changes[:20],
                "counts": outcome.counts,
            },
        )
        clear(request.artifact_dir.parent, name, self._settings.keep_runs)
        if outcome.ended in ("", *_OVERDUE):
            return outcome
        if outcome.ended == "preempted":
            self._ask(errand, Why.RETRY, _PREEMPTED)
        elif outcome.ended in ("superseded", "paused") and not self._queue.asked(errand):
            self._ask(errand, Why.EDIT)
        return None

    def _prepare(self, cluster: Cluster, playbook: str, variables: Json, spec: object, errand: str) -> Request:
        """Write what the run reads, for nobody else's eyes. ``errand`` ends the name of its output."""
        namespace, name = cluster.key
        directory = self._settings.scratch / namespace / name
        artifacts = self._settings.runs / namespace / name
        for path in (directory / "env", directory / "project", artifacts):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        document = {
            "apiVersion": cluster.document["apiVersion"],
            "kind": cluster.document["kind"],
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }
        _write(directory / "cluster.json", document)
        _write(
            directory / "env" / "extravars",
            {**self._settings.variables, "slurm_cluster_file": str(directory / "cluster.json"), **variables},
        )
        cluster.runs += 1
        # In the order of time by name, over restarts too.
        ident = f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}-{cluster.runs:06d}-{errand}"
        return Request(ident, f"corral.slurm.{playbook}", str(directory), str(artifacts))

    async def _hold(self, cluster: Cluster, *, finalizer: bool = True) -> None:
        """Put this operator's name on the document before anything is written of it, and the finalizer before anything is made of it."""
        metadata = cluster.document["metadata"]
        change: Json = {}
        if not decisions.owner(cluster.document):
            change["annotations"] = {decisions.OWNER: self._owner}
        if finalizer and not decisions.held(cluster.document):
            change["finalizers"] = [*(metadata.get("finalizers") or ()), decisions.FINALIZER]
        if change:
            await self._write(cluster, change)

    async def _release(self, cluster: Cluster) -> None:
        cluster.released = True
        await self._write(
            cluster, {"finalizers": [one for one in cluster.document["metadata"].get("finalizers") or () if one != decisions.FINALIZER]}
        )

    async def _write(self, cluster: Cluster, change: Json) -> None:
        """Change the document's metadata, if it is as it was seen: who looks after it is decided by the API server."""
        if self._foreign(cluster.document):
            return
        body = {"metadata": {**change, "resourceVersion": cluster.document["metadata"]["resourceVersion"]}}
        what = f"write the finalizer of SlurmCluster {'/'.join(cluster.key)}"
        try:
            answer = await self._api.request("PATCH", _path(cluster.key), what=what, body=body, content_type=MERGE)
        except CorralError as error:
            if status_code(error) == 404:
                return
            if status_code(error) != 409:
                raise
            self._answered(cluster, await self._api.request("GET", _path(cluster.key), what=what))
            raise
        self._answered(cluster, answer)

    # --- status ---

    def _show_soon(self, cluster: Cluster, pause: float = _GATHER) -> None:
        if cluster.showing is None and self.leading:
            cluster.showing = asyncio.get_running_loop().call_later(pause, self._show_now, cluster)

    def _show_now(self, cluster: Cluster) -> None:
        cluster.showing = None
        if cluster.key in self._clusters:
            self._later(cluster, self._show_quietly)

    async def _show_quietly(self, cluster: Cluster) -> None:
        try:
            await self._show(cluster)
        except CorralError as error:
            log.warning("status not written", extra={"cluster": "/".join(cluster.key), "error": str(error)})
            self._show_soon(cluster, _REFUSED)

    async def _show(self, cluster: Cluster, *, unclaimed: bool = False) -> bool:
        """Write the status when it says something else than before; True when it was written. ``unclaimed``: also where nobody looks after the document."""
        async with cluster.lock:
            facts = cluster.facts
            facts.generation = cluster.generation
            facts.children = self._children(cluster)
            if decisions.owner(cluster.document) == self._owner:
                await self._tell_sizes(cluster, facts.children or [])
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            for _try in range(_TRIES):
                before = cluster.document.get("status") or {}
                wanted = conditions.build(facts, before, now, legacy=self._settings.legacy_conditions)
                change = conditions.patch(wanted, before)
                # Where its name can not be written, that is told all the same.
                own = decisions.owner(cluster.document) in (self._owner, "" if unclaimed or cluster.stumbles else self._owner)
                if not change or not self.leading or not own:
                    return False
                what = f"write the status of SlurmCluster {'/'.join(cluster.key)}"
                # If it is as it was seen: it may be another operator's by now.
                body = {"metadata": {"resourceVersion": cluster.document["metadata"]["resourceVersion"]}, "status": change}
                cluster.shown = wanted  # the watch may tell of it before the answer does, and of one whose answer is lost: both are ours
                try:
                    path = f"{_path(cluster.key)}/status"
                    answer = await self._api.request("PATCH", path, what=what, body=body, content_type=MERGE)
                except CorralError as error:
                    if status_code(error) == 404:
                        return False
                    if status_code(error) != 409:
                        raise
                    self._answered(cluster, await self._api.request("GET", _path(cluster.key), what=what))
                    continue
                cluster.shown = answer.get("status")
                self._metrics.status_writes.inc()
                self._answered(cluster, answer)
                return True
            self._show_soon(cluster, _REFUSED)
            return False

    async def _tell_sizes(self, cluster: Cluster, children: list[Child]) -> None:
        """Have the scale subresources tell how many nodes there are, which autoscalers count with."""
        for name, size in resized(children).items():
            if self.leading:
                try:
                    await self._api.request(
                        "PATCH",
                        f"{_API}/namespaces/{cluster.key[0]}/slurmnodesets/{name}/status",
                        what=f"write the status of SlurmNodeSet {cluster.key[0]}/{name}",
                        body={"status": {"replicas": size}},
                        content_type=MERGE,
                    )
                except CorralError as error:
                    if status_code(error) not in (403, 404):
                        raise
                    if status_code(error) == 403:  # the cluster's own status is written all the same
                        log.warning("size of a node set not told", extra={"cluster": "/".join(cluster.key), "error": str(error)})
                    continue
                self._metrics.status_writes.inc()


def _hopeless(namespace: Namespace, kind: Kind) -> bool:
    return kind is not KINDS[0] and KINDS[0].name in namespace.refused


def _key(document: Json) -> Key:
    return str(document["metadata"]["namespace"]), str(document["metadata"]["name"])


def _path(key: Key) -> str:
    return f"{_API}/namespaces/{key[0]}/slurmclusters/{key[1]}"


def _older(document: Json, than: Json) -> bool:
    """True for an object that was written before another; versions of the API server's store only grow."""
    version, other = str(document["metadata"].get("resourceVersion", "")), str(than["metadata"].get("resourceVersion", ""))
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


def _age(document: Json) -> tuple[str, str]:
    """Order documents by when they were made, and those of one second by what never changes."""
    metadata = document["metadata"]
    return str(metadata.get("creationTimestamp", "")), str(metadata.get("uid", ""))


def _wish(document: Json) -> tuple[object, ...]:
    """Return what of a document is somebody's wish; a change of anything else is our own writing.

    The generation does not tell all: with another definition the same document has other fields, those that it prunes or gives a default.
    """
    metadata = document["metadata"]
    return (
        metadata.get("generation"),
        document.get("spec"),
        bool(metadata.get("deletionTimestamp")),
        decisions.paused(document),
        decisions.annotation(document, decisions.REQUESTED),
    )


def _made(outcome: Outcome) -> str:
    nodes = outcome.nodes or {}
    return f"The cluster is as the document says: {nodes.get('inService', 0)} of {nodes.get('total', 0)} nodes are in service."


def _is_ready(document: Json) -> bool:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _write(path: Path, content: Json) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file)
