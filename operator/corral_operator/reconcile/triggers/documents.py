# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches documents: queues new and changed ones, forgets deleted ones, and restores metadata and status that others overwrite."""

from __future__ import annotations

import asyncio
import functools
import logging
import shutil

from ansible_collections.corral.slurm.plugins.module_utils._cluster import unknown_fields
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.api.client import Json, status_code
from corral_operator.api.watch import Collection, Watch
from corral_operator.reconcile import conditions, metadata
from corral_operator.reconcile.children import Child
from corral_operator.reconcile.cluster import Cluster, Convergence, Requests
from corral_operator.reconcile.conditions import Facts
from corral_operator.reconcile.conflicts import Conflicts
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.documents import Documents
from corral_operator.reconcile.metadata import API, FINALIZER, Key
from corral_operator.reconcile.queue import Trigger
from corral_operator.reconcile.status import GATHER, StatusWriter
from corral_operator.reconcile.triggers.objects import ObjectTriggers
from corral_operator.reconcile.validation import Validator

log = logging.getLogger(__name__)

_DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/slurmclusters.corral.hpc"
# Edits at shorter intervals are debounced, for this long at most.
_BURST = 3.0
# The name under which conflicts about the document itself are counted.
_DOCUMENT = "SlurmCluster document"


class DocumentTriggers:
    """Watches documents."""

    def __init__(self, context: Context, documents: Documents, status: StatusWriter, validator: Validator, objects: ObjectTriggers) -> None:
        self._context = context
        self._documents = documents
        self._status = status
        self._validator = validator
        self._objects = objects
        # Fields of the API server's CustomResourceDefinition that this version does not know.
        self._newer = unknown_fields.Additions()
        self.watches: list[Watch] = []

    def watch(self) -> list[asyncio.Task[None]]:
        """Start watching."""
        settings = self._context.settings
        for namespace in settings.namespaces or ("",):
            path = f"{API}/namespaces/{namespace}/slurmclusters" if namespace else f"{API}/slurmclusters"
            watch = Watch(
                self._context.api,
                Collection(path, "SlurmClusters", settings.selector, defined=True),
                replace=functools.partial(self._listed, namespace),
                on_event=self._on_event,
                refused=lambda error: log.error("SlurmClusters cannot be watched", extra={"error": str(error)}),
                relist=settings.relist,
                before=self._read_definition,
            )
            self.watches.append(watch)
        return [asyncio.create_task(watch.run()) for watch in self.watches]

    async def _read_definition(self) -> None:
        """Read the definition's defaults, before each list: a change of the definition ends the watch, so documents are listed again."""
        try:
            found = await self._context.api.request("GET", _DEFINITION, what="read the CustomResourceDefinition of SlurmClusters")
        except CorralError as error:
            if status_code(error) not in (401, 403, 404):
                raise
            found = {}  # without permission, unknown fields are errors
        self._newer = unknown_fields.additions(found) if found else unknown_fields.Additions()

    def without_unknown_fields(self, document: Json) -> Json:
        """Return a document without fields that a newer definition has added by default."""
        return {**document, "spec": unknown_fields.without(document.get("spec"), self._newer)[0]} if self._newer else document

    def _listed(self, scope: str, found: list[Json]) -> None:
        keys = {metadata.key(document) for document in found}
        for key in [key for key in self._context.cache.clusters if key not in keys and (not scope or key[0] == scope)]:
            self._gone(key)
        for document in found:
            self.observe(document, Trigger.RESYNC)

    def _on_event(self, event: str, document: Json) -> None:
        if event == "DELETED":
            self._gone(metadata.key(document))
        else:
            self.observe(document)

    def observe(self, document: Json, trigger: Trigger = Trigger.EDIT) -> None:
        """Process the current state of a document."""
        document["metadata"].pop("managedFields", None)
        key, clusters = metadata.key(document), self._context.cache.clusters
        document["spec"], unknown = unknown_fields.without(document.get("spec"), self._newer)
        cluster = clusters.get(key)
        if cluster is None or cluster.document["metadata"]["uid"] != document["metadata"]["uid"]:
            if cluster is not None:
                self._gone(key)
            self._new(key, document, trigger)
        else:
            self._changed(cluster, document)
        if key in clusters:
            clusters[key].ownership.unknown = unknown

    def _new(self, key: Key, document: Json, trigger: Trigger) -> None:
        context = self._context
        now = context.clock()
        context.cache.clusters[key] = Cluster(
            key,
            document,
            Facts.of(document.get("status") or {}),
            seen_at=now,
            convergence=Convergence(Conflicts(context.clock, context.settings.backoff_most)),
            requests=Requests(resynced=now),
        )
        self._objects.watch(document, first=trigger is Trigger.RESYNC)
        context.queue.add(key, trigger)

    def _changed(self, cluster: Cluster, document: Json) -> None:
        if metadata.older(document, cluster.document):
            return  # from a lagging cache of the API server
        context, us = self._context, self._context.settings.owner
        before, cluster.document = cluster.document, document
        if metadata.desired_state(before, us) == metadata.desired_state(document, us):
            document["spec"] = before.get("spec")  # share the object with the last check
            self._overwritten(cluster, before)
            return
        self._objects.watch(document, first=False)  # also the kind of a field that it did not have
        if context.foreign(before):  # its status has the facts of the previous operator
            cluster.facts, cluster.seen_at = Facts.of(document.get("status") or {}), context.clock()
        context.backoff.reset(cluster.key)
        cluster.convergence.unsettled, cluster.requests.backoff_cut = 0, False
        cluster.convergence.conflicts.clear()
        # The first edit is applied at once; edits that follow it closely are debounced.
        burst, cluster.requests.edited = context.clock() < cluster.requests.edited + _BURST, context.clock()
        context.queue.add(cluster.key, Trigger.EDIT, context.settings.debounce if burst else 0.0, _BURST if burst else None)
        self._validator.requeue_waiting(cluster.key)
        if metadata.paused(document):
            cluster.execution.end("paused")
        elif (
            cluster.generation > cluster.execution.generation
            or (cluster.deleting and not metadata.deleting(before))
            or context.foreign(document)
        ):
            cluster.execution.end("superseded")

    def _overwritten(self, cluster: Cluster, before: Json) -> None:
        """Restore what another writer has changed in a document of this operator: finalizer, owner, status."""
        document, context, conflicts = cluster.document, self._context, cluster.convergence.conflicts
        own = metadata.owner(before) == context.settings.owner and not context.foreign(document)
        if not context.leadership.active or not own or metadata.paused(document) or cluster.ownership.released:
            return
        lost = not cluster.deleting and metadata.has_finalizer(before) and not metadata.has_finalizer(document)
        if lost or not metadata.owner(document):
            context.tasks.spawn(self._claim_again(cluster))
        written = document.get("status")
        if written not in (before.get("status"), cluster.writes.last):
            self._status.write_soon(cluster, max(GATHER, conflicts.backoff(_DOCUMENT)))
            if cluster.writes.last is not None and conditions.patch(cluster.writes.last, written or {}):
                conflicts.note([_DOCUMENT])

    async def _claim_again(self, cluster: Cluster) -> None:
        """Restore owner and finalizer, at once; with a growing back-off if another writer removes them repeatedly."""
        context, conflicts = self._context, cluster.convergence.conflicts
        await asyncio.sleep(conflicts.backoff(_DOCUMENT))
        if not context.leadership.active or not context.cache.has(cluster) or cluster.deleting or metadata.paused(cluster.document):
            return
        conflicts.note([_DOCUMENT])
        try:
            await self._documents.claim(cluster, finalizer=bool(cluster.facts.observed) or cluster.execution.run is not None)
        except CorralError as error:
            log.warning("finalizer not restored", extra={"cluster": cluster.name, "error": str(error)})
            context.queue.add(cluster.key, Trigger.RETRY, context.backoff.failed(cluster.key))

    def _gone(self, key: Key) -> None:
        context = self._context
        cluster = context.cache.clusters.pop(key, None)
        if cluster is None:
            return
        self._validator.requeue_waiting(key)
        if context.leadership.active and not context.foreign(cluster.document):
            children = context.cache.children(cluster) or []  # read now: without documents the namespace is not watched any more
            if context.settings.selector:
                context.tasks.spawn(self._hand_over(cluster, children))
            else:
                self._orphaned(cluster, children)
        for queued in (key, cluster.sync_key, cluster.tenants_key):
            context.queue.forget(queued)
            context.backoff.reset(queued)
        cluster.execution.end("gone")
        if cluster.writes.timer is not None:
            cluster.writes.timer.cancel()
        for folder in (context.settings.scratch, context.settings.runs):
            shutil.rmtree(folder / key[0] / key[1], ignore_errors=True)
        if not any(other[0] == key[0] for other in context.cache.clusters):
            self._objects.unwatch(key[0])

    async def _hand_over(self, cluster: Cluster, children: list[Child]) -> None:
        """Release a document that may have got other labels, when the current run has ended: another operator may manage it then."""
        while cluster.execution.run is not None:
            await asyncio.sleep(0.1)
        try:
            if not await self._documents.hand_over(cluster):
                self._orphaned(cluster, children)
        except CorralError as error:
            log.warning("document not handed over", extra={"cluster": cluster.name, "error": str(error)})

    def _orphaned(self, cluster: Cluster, children: list[Child]) -> None:
        """Report the objects of a document that was deleted although this operator has not destroyed the cluster."""
        if cluster.ownership.released or not children or self._context.foreign(cluster.document):
            return
        namespace, name = cluster.key
        names = ", ".join(f"{one.kind} {one.name}" for one in children[:5])
        message = (
            f"The document was deleted after its finalizer {FINALIZER} had been removed, so {len(children)} objects remain without it "
            f"({names}{', …' if len(children) > 5 else ''}). Apply the document again to manage them, or delete them with "
            f"ansible-playbook corral.slurm.destroy -e slurm_cluster_file=…; kubectl get all,cm,secret,pvc -n {namespace} "
            f"-l app.kubernetes.io/instance={name} lists them."
        )
        log.warning("objects without a document", extra={"cluster": cluster.name, "objects": len(children)})
        self._context.tasks.spawn(self._context.events.write(cluster.document, "Warning", "Orphaned", message))
