# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reconciles one cluster: decides what to do, does it, and reports it."""

from __future__ import annotations

import logging
from typing import Final

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.reconcile import decisions
from corral_operator.reconcile.applier import Applier
from corral_operator.reconcile.cache import Namespace
from corral_operator.reconcile.cluster import Cluster
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.decisions import Action, Decision
from corral_operator.reconcile.documents import Documents
from corral_operator.reconcile.metadata import OWNER, Json, has_finalizer, owner, paused
from corral_operator.reconcile.node_sync import NodeSync
from corral_operator.reconcile.queue import Trigger
from corral_operator.reconcile.status import StatusWriter
from corral_operator.reconcile.tenants import Tenants
from corral_operator.reconcile.validation import Validator

log = logging.getLogger(__name__)

# The reason of failures of the operator itself.
OPERATOR_ERROR: Final = "OperatorError"
# An operator without permission waits this long for one with permission to claim a document, before it reports NotPermitted.
_UNCLAIMED = 10.0


class Reconciler:
    """The entry point of all work on a document."""

    def __init__(
        self,
        context: Context,
        validator: Validator,
        documents: Documents,
        status: StatusWriter,
        applier: Applier,
        sync: NodeSync,
        tenants: Tenants,
    ) -> None:
        self._context = context
        self._validator = validator
        self._documents = documents
        self._status = status
        self._applier = applier
        self._sync = sync
        self._tenants = tenants

    async def reconcile(self, cluster: Cluster, trigger: Trigger) -> None:
        """Bring a cluster closer to its document, by one run at most."""
        self._context.queue.absorb(cluster.key)
        document, namespace = cluster.document, self._context.cache.namespace(cluster)
        if self._context.foreign(document):
            await self._report_other_operator(cluster, namespace)
            return
        if cluster.deleting and has_finalizer(document) and await self._documents.namespace_terminates(namespace.name):
            log.info("finalizer removed: the namespace is being deleted with everything in it", extra={"cluster": cluster.name})
            await self._documents.release(cluster)
            return
        decision = decisions.decide(
            document,
            errors=await self._errors(cluster),
            children=self._context.cache.children(cluster),
            refused=namespace.refusal,
            content=self._context.content,
            last=cluster.facts.fingerprints.site,
            touched=has_finalizer(document),
            forced=cluster.requests.forced,
        )
        if decision.action is Action.WAIT:  # until the objects have been listed; then it is queued with the same trigger
            cluster.requests.deferred = min(cluster.requests.deferred, trigger)
            return
        if decision.reason == "NotPermitted" and not owner(document):
            await self._unclaimed(cluster, decision)
            return
        if decision.action in (Action.STALL, Action.KEEP, Action.DESTROY) or (decision.action is Action.REST and not cluster.deleting):
            await self._documents.claim(cluster, finalizer=False)
            if self._context.foreign(cluster.document):
                return
        await self._execute(cluster, trigger, document, decision)

    async def _errors(self, cluster: Cluster) -> str:
        try:
            errors = (await self._validator.validate(cluster)).errors
            return errors or ("" if cluster.deleting else await self._validator.name_conflict(cluster))
        except CorralError as error:
            if not cluster.deleting:
                raise
            return str(error)  # no check may delay a deletion

    async def _execute(self, cluster: Cluster, trigger: Trigger, document: Json, decision: Decision) -> None:
        """Execute the decision for a document."""
        action, facts = decision.action, cluster.facts
        specs = [document.get("spec")]
        if action is Action.DESTROY and decision.message:
            # Without a history, use the valid parts of the document: no error may delay a deletion.
            specs = await self._documents.applied_specs(cluster, self._validator.check) or specs
        # A forced run remains forced until it has finished.
        cluster.requests.deferred = Trigger.RESYNC
        cluster.requests.forced = cluster.requests.forced and action is Action.APPLY
        if cluster.ownership.unknown != cluster.ownership.reported:
            cluster.ownership.reported = cluster.ownership.unknown
            await self._report_unknown(cluster)
        facts.paused, facts.deleting = paused(document), cluster.deleting
        facts.stalled = (decision.reason, decision.message) if action is Action.STALL else None
        if action in (Action.REST, Action.KEEP):
            self._context.metrics.skipped.labels(trigger.name.lower()).inc()
            self._sync.request(cluster, urgent=False)  # a pause may have suppressed it
            self._tenants.request(cluster, Trigger.RESYNC)
        if action in (Action.REST, Action.KEEP, Action.STALL) and facts.failure is not None and facts.failure.reason == OPERATOR_ERROR:
            facts.failure = None
        if action is Action.KEEP:  # also of a newer generation that went back to the applied spec, so that clients need not wait for it
            facts.observed = cluster.generation
        if action is Action.STALL:
            log.warning("cluster not reconciled", extra={"cluster": cluster.name, "reason": decision.reason, "error": decision.message})
            if await self._status.write(cluster) and decision.reason:
                await self._context.events.write(document, "Warning", decision.reason, decision.message)
        elif action is Action.RELEASE:
            await self._documents.release(cluster)
        elif action is Action.APPLY:
            await self._applier.apply(cluster, trigger, document)
        elif action is Action.DESTROY:
            await self._applier.destroy(cluster, document, specs)
        else:
            await self._status.write(cluster)
            self._context.backoff.reset(cluster.key)
            cluster.requests.errors = 0

    async def _report_unknown(self, cluster: Cluster) -> None:
        fields = cluster.ownership.unknown[:10]
        if not fields:
            return
        message = (
            f"The CustomResourceDefinition is of a newer version than this operator, which ignores unknown fields with default values "
            f"({', '.join(fields)}). Upgrade operator {self._context.settings.owner}, and set these fields to no other value until then."
        )
        log.warning("the definition is newer than this operator", extra={"cluster": cluster.name, "fields": fields})
        await self._context.events.write(cluster.document, "Warning", "NewerDefinition", message)

    async def _report_other_operator(self, cluster: Cluster, namespace: Namespace) -> None:
        """Report once that another operator manages a document that this one could manage: that operator may be gone."""
        cluster.facts.activity.running = False
        other = owner(cluster.document)
        if cluster.ownership.other == other or namespace.refusal or not namespace.synced:
            return
        cluster.ownership.other = other
        log.info("managed by another operator", extra={"cluster": cluster.name, "owner": other})
        await self._context.events.write(
            cluster.document,
            "Normal",
            "ManagedByOtherOperator",
            f"Operator {self._context.settings.owner} does not manage it, because its annotation {OWNER} names operator {other}. If that one is gone, "
            f"kubectl annotate slurmcluster {cluster.key[1]} -n {cluster.key[0]} {OWNER}- lets another one take over.",
        )

    async def _unclaimed(self, cluster: Cluster, decision: Decision) -> None:
        """Report why this operator does not manage an unclaimed document, if no other operator has claimed it or reported that."""
        left = cluster.seen_at + _UNCLAIMED - self._context.clock()
        if left > 0:
            self._context.queue.add(cluster.key, Trigger.RESYNC, left)
            return
        cluster.facts.stalled = (decision.reason, decision.message)
        stalled = {one["type"]: one for one in (cluster.document.get("status") or {}).get("conditions") or ()}.get("Stalled", {})
        if stalled.get("reason") == decision.reason and stalled.get("observedGeneration") == cluster.generation:
            return
        if await self._status.write(cluster, unclaimed=True) and decision.reason:
            log.warning("cluster not reconciled", extra={"cluster": cluster.name, "error": decision.message})
            await self._context.events.write(cluster.document, "Warning", decision.reason, decision.message)
