# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reconciles one cluster: what is to be done is decided, done, and told."""

from __future__ import annotations

import logging

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.reconcile import decisions
from corral_operator.reconcile.applier import Applier
from corral_operator.reconcile.cache import Namespace
from corral_operator.reconcile.cluster import Cluster
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.decisions import Action, Decision
from corral_operator.reconcile.documents import Documents
from corral_operator.reconcile.metadata import OWNER, Json, held, owner, paused
from corral_operator.reconcile.node_sync import NodeSync
from corral_operator.reconcile.queue import Trigger
from corral_operator.reconcile.status import StatusWriter
from corral_operator.reconcile.validation import Validator

log = logging.getLogger(__name__)

# The reason of what went wrong in the operator itself.
OPERATOR_ERROR = "OperatorError"
# A document that nobody looks after yet is left so long to an operator that may, before one that may not says so.
_UNCLAIMED = 10.0


class Reconciler:
    """Whatever is done for a document begins here."""

    def __init__(
        self, context: Context, validator: Validator, documents: Documents, status: StatusWriter, applier: Applier, sync: NodeSync
    ) -> None:
        self._context = context
        self._validator = validator
        self._documents = documents
        self._status = status
        self._applier = applier
        self._sync = sync

    async def reconcile(self, cluster: Cluster, trigger: Trigger) -> None:
        """Have a cluster be as its document says, as far as one run goes."""
        self._context.queue.absorb(cluster.key)
        document, namespace = cluster.document, self._context.cache.namespace(cluster)
        if self._context.foreign(document):
            await self._leave(cluster, namespace)
            return
        if cluster.deleting and held(document) and await self._documents.namespace_terminates(namespace.name):
            log.info("the document is let go: its namespace goes with all that is in it", extra={"cluster": cluster.name})
            await self._documents.release(cluster)
            return
        decision = decisions.decide(
            document,
            mistakes=await self._mistakes(cluster),
            children=self._context.cache.children(cluster),
            refused=namespace.refusal,
            content=self._context.content,
            last=cluster.facts.fingerprints.site,
            touched=held(document),
            forced=cluster.requests.forced,
        )
        if decision.action is Action.WAIT:  # until the objects have been seen; then it has the same place in the queue
            cluster.requests.deferred = min(cluster.requests.deferred, trigger)
            return
        if decision.reason == "NotPermitted" and not owner(document):
            await self._unclaimed(cluster, decision)
            return
        if decision.action in (Action.STALL, Action.KEEP, Action.DESTROY) or (decision.action is Action.REST and not cluster.deleting):
            await self._documents.hold(cluster, finalizer=False)
            if self._context.foreign(cluster.document):
                return
        await self._do(cluster, trigger, document, decision)

    async def _mistakes(self, cluster: Cluster) -> str:
        try:
            mistakes = (await self._validator.validate(cluster)).mistakes
            return mistakes or ("" if cluster.deleting else await self._validator.name_conflict(cluster))
        except CorralError as error:
            if not cluster.deleting:
                raise
            return str(error)  # going away waits for no check

    async def _do(self, cluster: Cluster, trigger: Trigger, document: Json, decision: Decision) -> None:
        """Do what was decided for a document."""
        action, facts = decision.action, cluster.facts
        specs = [document.get("spec")]
        if action is Action.DESTROY and decision.message:
            # Without any, by what of the document is right: going away waits for nobody's correction.
            specs = await self._documents.made_by(cluster, self._validator.check) or specs
        # A run that was forced still is when it does not come to its end.
        cluster.requests.deferred = Trigger.RESYNC
        cluster.requests.forced = cluster.requests.forced and action is Action.APPLY
        if cluster.ownership.unknown != cluster.ownership.told:
            cluster.ownership.told = cluster.ownership.unknown
            await self._report_unknown(cluster)
        facts.paused, facts.deleting = paused(document), cluster.deleting
        facts.stalled = (decision.reason, decision.message) if action is Action.STALL else None
        if action in (Action.REST, Action.KEEP):
            self._context.metrics.skipped.labels(trigger.name.lower()).inc()
            self._sync.request(cluster, urgent=False)  # it may have been kept back by a pause
        if action in (Action.REST, Action.KEEP, Action.STALL) and facts.failure is not None and facts.failure.reason == OPERATOR_ERROR:
            facts.failure = None
        if action is Action.KEEP:  # also a newer generation, that went back to what was made: whoever waits for it is told
            facts.observed = cluster.generation
        if action is Action.STALL:
            log.warning("nothing is done", extra={"cluster": cluster.name, "reason": decision.reason, "error": decision.message})
            if await self._status.write(cluster):
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
            f"The CustomResourceDefinition is of a newer version than this operator, which leaves out what it does not know and what has its default "
            f"({', '.join(fields)}). Upgrade operator {self._context.settings.owner}, or give these fields no other value until then."
        )
        log.warning("the definition is newer than this operator", extra={"cluster": cluster.name, "fields": fields})
        await self._context.events.write(cluster.document, "Warning", "NewerDefinition", message)

    async def _leave(self, cluster: Cluster, namespace: Namespace) -> None:
        """Write nothing of a document that another operator looks after. Where this one could, it says who does: that one may be gone."""
        cluster.facts.activity.running = False
        other = owner(cluster.document)
        if cluster.ownership.other == other or namespace.refusal or not namespace.synced:
            return
        cluster.ownership.other = other
        log.info("another operator looks after it", extra={"cluster": cluster.name, "owner": other})
        await self._context.events.write(
            cluster.document,
            "Normal",
            "OtherOperator",
            f"Operator {self._context.settings.owner} leaves it to operator {other}, which its annotation {OWNER} names. If that one is gone, "
            f"kubectl annotate slurmcluster {cluster.key[1]} -n {cluster.key[0]} {OWNER}- has another one take over.",
        )

    async def _unclaimed(self, cluster: Cluster, decision: Decision) -> None:
        """Say of a document that nobody looks after why this operator does not, when none that may has come and none has said it."""
        left = cluster.seen_at + _UNCLAIMED - self._context.clock()
        if left > 0:
            self._context.queue.add(cluster.key, Trigger.RESYNC, left)
            return
        cluster.facts.stalled = (decision.reason, decision.message)
        said = {one["type"]: one for one in (cluster.document.get("status") or {}).get("conditions") or ()}.get("Stalled", {})
        if said.get("reason") == decision.reason and said.get("observedGeneration") == cluster.generation:
            return
        if await self._status.write(cluster, unclaimed=True):
            log.warning("nothing is done", extra={"cluster": cluster.name, "error": decision.message})
            await self._context.events.write(cluster.document, "Warning", decision.reason, decision.message)
