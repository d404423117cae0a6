# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs corral.slurm.tenants when accounts, users or QoS have changed, in the cluster's document or in its SlurmTenants, and reports the outcome on these.

Their errors are theirs: the cluster itself is applied without them.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.api.client import MERGE, status_code
from corral_operator.api.events import Reason
from corral_operator.reconcile import conditions
from corral_operator.reconcile.cache import TenantsObject
from corral_operator.reconcile.cluster import Cluster
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.documents import Documents
from corral_operator.reconcile.metadata import API, REQUESTED, Json, annotation, paused
from corral_operator.reconcile.queue import Trigger
from corral_operator.reconcile.runner import Runner
from corral_operator.reconcile.status import StatusWriter
from corral_operator.reconcile.validation import Validator
from corral_operator.runs.outcome import Outcome

log = logging.getLogger(__name__)

# The condition of a SlurmTenants object.
APPLIED = "Applied"
# A run that finds no slurmdbd is repeated later, instead of waiting.
_VARIABLES = {"slurm_controller_wait_timeout": 0}
# The pause before a decision about a document that has changed meanwhile.
_GATHER = 2.0
_IGNORED = "SlurmCluster {} does not take SlurmTenants; set spec.accounting.tenants.objects to true there."


class Tenants:
    """One run applies all of a cluster: what its document has, and its SlurmTenants."""

    def __init__(self, context: Context, validator: Validator, documents: Documents, status: StatusWriter, runner: Runner) -> None:
        self._context = context
        self._validator = validator
        self._documents = documents
        self._status = status
        self._runner = runner

    def request(self, cluster: Cluster, trigger: Trigger = Trigger.EDIT) -> None:
        """Queue a check of whether a run is needed, if the cluster has tenants or has had some. Only an edit shortens the pause after a failure."""
        queue, key = self._context.queue, cluster.tenants_key
        if _wanted(cluster.document) is None and cluster.facts.tenants is None and not self._context.cache.tenants_of(cluster):
            return
        if trigger is Trigger.EDIT:
            self._context.backoff.reset(key)
        elif queue.pending(key):
            return
        queue.add(key, trigger)

    async def reconcile(self, cluster: Cluster) -> None:
        """Run corral.slurm.tenants if something has changed since its last good run."""
        context, document, facts = self._context, cluster.document, cluster.facts
        context.queue.absorb(cluster.tenants_key)
        checked = await self._validator.validate(cluster)
        # A cluster that has not been created has no database; its creation requests this again.
        if (
            context.foreign(document)
            or not facts.observed
            or cluster.deleting
            or paused(document)
            or context.cache.namespace(cluster).refusal
            or checked.errors
            or not context.cache.tenants_known
        ):
            return
        wanted, objects = _wanted(document), context.cache.tenants_of(cluster)
        if wanted is None or not wanted.get("objects"):
            for one in objects:
                await self._report_on(one, "False", "NotTaken", _IGNORED.format(cluster.key[1]))
            objects = []
        if wanted is not None:
            await self._apply(cluster, wanted, objects)
        elif facts.tenants is not None:
            facts.tenants, facts.fingerprints.tenants = None, ""
            await self._status.write(cluster)

    async def _apply(self, cluster: Cluster, wanted: Json, objects: list[TenantsObject]) -> None:
        context, key, document, facts = self._context, cluster.tenants_key, cluster.document, cluster.facts
        inputs = wanted, [one.version for one in objects], annotation(document, REQUESTED), context.content
        observed = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]
        if observed != facts.fingerprints.tenants:
            if not await self._documents.unchanged(cluster, document):
                context.queue.add(key, Trigger.RESYNC, _GATHER)
                return
            facts.fingerprints.tenants = ""
            outcome = await self._runner.run(cluster, "tenants", _VARIABLES)
            if outcome is None:
                return
            if not outcome.successful:
                await self._failed(cluster, objects, outcome)
                return
            context.backoff.reset(key)
            facts.fingerprints.tenants, facts.tenants = observed, ("True", APPLIED, " ".join(outcome.messages.kept))
            await self._status.write(cluster)
            if outcome.changes.count:
                names = "".join(f", {one.name}" for one in objects[:10])
                message = f"The database has been changed to the accounts, users and QoS of the document{names}."
                await context.events.write(document, "Normal", "TenantsApplied", message)
        for one in objects:
            await self._report_on(one, *(facts.tenants or ("True", APPLIED, "")))

    async def _failed(self, cluster: Cluster, objects: list[TenantsObject], outcome: Outcome) -> None:
        context, key, facts, problems = self._context, cluster.tenants_key, cluster.facts, outcome.messages.problems
        message = " ".join(problems) or outcome.failure
        message = message or f"The run was ended in the task {outcome.progress.task!r}, because it took too long; it is repeated."
        pause = context.backoff.failed(key)
        context.queue.add(key, Trigger.RETRY, pause)
        log.warning("tenants not applied", extra={"cluster": cluster.name, "error": message, "again_in": pause})
        if not problems and context.backoff.count(key) < 2:  # slurmdbd may just be restarting
            return
        reason: Reason = "TenantsInvalid" if problems else "TenantsFailed"
        before, facts.tenants = facts.tenants, ("False", reason, message)
        await self._status.write(cluster)
        named = [one for one in problems if any(each.named_in(one) for each in objects)]
        if facts.tenants != before and (not problems or named != problems):
            await context.events.write(cluster.document, "Warning", reason, message)
        for one in objects:
            own = " ".join(sentence for sentence in problems if one.named_in(sentence))
            blocked = "Blocked", f"Not applied, because of an error elsewhere: {problems[0]}" if problems else message
            if await self._report_on(one, "False", *((reason, own or message) if own or not problems else blocked)) and own:
                await context.events.write(one.reference, "Warning", reason, own)

    async def _report_on(self, one: TenantsObject, status: str, reason: str, message: str) -> bool:
        """Write the condition of an object, if it has changed; True if it was written."""
        wanted = conditions.condition(APPLIED, status, reason, message, one.generation)
        others = [each for each in one.conditions if each.get("type") != APPLIED]
        before = next((each for each in one.conditions if each.get("type") == APPLIED), {})
        if wanted.items() <= before.items() or not self._context.leadership.active:
            return False
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        wanted["lastTransitionTime"] = before.get("lastTransitionTime") if before.get("status") == status else now
        try:
            await self._context.api.request(
                "PATCH",
                f"{API}/namespaces/{one.namespace}/slurmtenants/{one.name}/status",
                what=f"write the status of SlurmTenants {one.namespace}/{one.name}",
                body={"status": {"observedGeneration": one.generation, "conditions": [*others, wanted]}},
                content_type=MERGE,
            )
        except CorralError as error:
            if status_code(error) != 404:
                raise
            return False
        self._context.metrics.status_writes.inc()
        return True


def _wanted(document: Json) -> Json | None:
    found: Json | None = ((document.get("spec") or {}).get("accounting") or {}).get("tenants")
    return found
