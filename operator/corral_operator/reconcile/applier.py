# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies or destroys a cluster by a run of the site or the destroy playbook, and evaluates the outcome."""

from __future__ import annotations

import asyncio
import logging

from corral_operator.api.events import Reason
from corral_operator.reconcile import conditions, decisions
from corral_operator.reconcile.cluster import Cluster
from corral_operator.reconcile.conditions import Failure
from corral_operator.reconcile.conflicts import report_conflict
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.decisions import CONFLICT
from corral_operator.reconcile.documents import Documents
from corral_operator.reconcile.metadata import Json
from corral_operator.reconcile.node_sync import NodeSync
from corral_operator.reconcile.queue import Trigger
from corral_operator.reconcile.runner import OVERDUE, Runner
from corral_operator.reconcile.status import StatusWriter, timestamp
from corral_operator.reconcile.tenants import Tenants
from corral_operator.runs.outcome import Outcome

log = logging.getLogger(__name__)

# Kinds whose objects change with the size of a node set.
_SCALING = ("StatefulSet", "SlurmNodeSet")
# Of the site playbook: the operator forces conflicts, and does not wait for jobs, because a later run continues. Tenants have runs of their own.
_VARIABLES = {
    "corral_force": True,
    "cluster_base_create_namespace": False,
    "slurm_controller_tenants": False,
    "slurm_workers_scale_timeout": 0,
    "slurm_workers_rollout_timeout": 0,
}


class Applier:
    """In all methods ``decided`` is the document that the decision was based on."""

    def __init__(
        self, context: Context, documents: Documents, status: StatusWriter, runner: Runner, sync: NodeSync, tenants: Tenants
    ) -> None:
        self._context = context
        self._documents = documents
        self._status = status
        self._runner = runner
        self._sync = sync
        self._tenants = tenants

    async def apply(self, cluster: Cluster, trigger: Trigger, decided: Json) -> None:
        """Run the site playbook."""
        context, facts, execution = self._context, cluster.facts, cluster.execution
        cluster.convergence.settling = False
        if trigger is Trigger.DRIFT and facts.fingerprints.site:
            context.metrics.drift.inc()
        await self._documents.claim(cluster)
        document = cluster.document
        if context.foreign(document):
            return
        before = self._observed(cluster)
        requested = [child.spec for child in context.cache.children(cluster) or () if child.kind == "SlurmNodeSet"]
        scaled, cluster.convergence.requested = cluster.convergence.requested not in (None, requested), requested
        if facts.observed != cluster.generation:
            facts.activity.running = True
        if facts.fingerprints.site and (facts.observed, facts.fingerprints.revision) != (cluster.generation, context.content):
            # An interrupted run may leave something that shows in no object (a drained node), so going back to the former document needs a run too.
            facts.fingerprints.site = ""
            await self._status.write(cluster)
        if not await self._documents.unchanged(cluster, decided):
            facts.activity.running = False
            return
        outcome = await self._runner.run(cluster, "site", _VARIABLES)
        if outcome is None:
            return
        if not outcome.successful:
            await self._failed(cluster, outcome)
            return
        recovered, first = facts.failure is not None, facts.observed != execution.generation
        self._note_success(cluster, outcome)
        await asyncio.sleep(0)  # let the watches deliver their events
        self._settle(cluster, trigger, outcome, before, scaled=scaled)
        if self._unsettled(cluster, outcome) == CONFLICT:
            await report_conflict(context.events, document, ", ".join(sorted(set(outcome.changes.tasks))))
        self._sync.request(cluster, urgent=False)
        self._tenants.request(cluster)
        news: Reason | None = "Recovered" if recovered else "Created" if first else None
        repaired = [] if news or scaled else self._repaired(cluster, trigger, outcome)
        if repaired or (outcome.changes.foreign and not news):
            facts.drift.last = conditions.drift([*repaired, *outcome.changes.foreign], timestamp())
        await self._status.write(cluster)
        await self._report(cluster, document, trigger, outcome, news=news, scaled=scaled)

    def _observed(self, cluster: Cluster) -> str:
        return decisions.observed(cluster.document, self._context.content, self._context.cache.children(cluster) or [])

    def _note_success(self, cluster: Cluster, outcome: Outcome) -> None:
        facts, requests = cluster.facts, cluster.requests
        self._context.backoff.reset(cluster.key)
        requests.forced, requests.errors, requests.backoff_cut = False, 0, False
        if facts.failure is not None:
            cluster.probe.due = self._context.clock()
        facts.failure = None
        facts.observed, facts.fingerprints.revision, facts.nodes = cluster.execution.generation, self._context.content, outcome.nodes
        facts.activity.waiting, facts.activity.lines = outcome.pending.waiting, outcome.pending.lines
        facts.drift.conflicts &= cluster.execution.overwritten

    def _settle(self, cluster: Cluster, trigger: Trigger, outcome: Outcome, before: str, *, scaled: bool) -> None:
        """Decide whether the cluster matches its document, and queue it for what is left."""
        context, convergence, pending = self._context, cluster.convergence, outcome.pending
        convergence.unsettled = convergence.unsettled + 1 if outcome.changes.count else 0
        if trigger is Trigger.DRIFT:
            # Scaling by a person or an autoscaler and a roll-out are no conflict.
            moves = _SCALING if scaled or pending.waiting or pending.left else ()
            convergence.conflicts.note(one.rpartition(" ")[0] for one in outcome.changes.objects if one.partition(" ")[0] not in moves)
        unsettled = self._unsettled(cluster, outcome)
        settled = decisions.settle(
            changed=outcome.changes.count,
            waiting=bool(pending.waiting),
            left=pending.left,
            before=before,
            after=self._observed(cluster),
            unsettled=unsettled,
            scale_again=context.settings.scale_again,
            backoff_most=context.settings.backoff_most,
        )
        cluster.facts.fingerprints.site = settled.hash
        convergence.settling = bool(settled.again and not pending.waiting and not pending.left and unsettled < CONFLICT)
        if settled.again is not None:
            context.queue.add(cluster.key, Trigger.RETRY if pending.waiting or pending.left else Trigger.DRIFT, settled.again)
        if not all(convergence.conflicts.backoff(name) for name in cluster.execution.overwritten):
            context.queue.add(cluster.key, Trigger.DRIFT, context.settings.debounce)

    @staticmethod
    def _unsettled(cluster: Cluster, outcome: Outcome) -> int:
        """Return how often in a row runs changed something or one object was repaired."""
        return max(cluster.convergence.unsettled, cluster.convergence.conflicts.most) if outcome.changes.count else 0

    @staticmethod
    def _repaired(cluster: Cluster, trigger: Trigger, outcome: Outcome) -> list[str]:
        """Return the objects that differed from the document, since somebody else had changed them, and what was done with each."""
        done = [one for one in outcome.changes.objects if one.rpartition(" ")[0] not in cluster.execution.overwritten]
        return done if trigger is Trigger.DRIFT else []

    async def _report(
        self, cluster: Cluster, document: Json, trigger: Trigger, outcome: Outcome, *, news: Reason | None, scaled: bool
    ) -> None:
        """Write the events of a successful run."""
        write, changes, waiting = self._context.events.write, outcome.changes, outcome.pending.waiting
        done = self._repaired(cluster, trigger, outcome)
        if news:
            nodes = outcome.nodes or {}
            serving = f"{nodes.get('inService', 0)} of {nodes.get('total', 0)} nodes are in service."
            await write(document, "Normal", news, f"The cluster matches its document: {serving}")
        elif done:
            reason: Reason = "Scaled" if scaled else "Repaired"
            await write(document, "Normal", reason, f"{reason}: {', '.join(done[:10])}.")
        if changes.foreign:
            fields = "; ".join(sorted(set(changes.foreign))[:10])
            message = f"Removed fields of other managers: {fields}. List fields that should stay in spec.foreignFields."
            await write(document, "Warning", "ForeignFieldsRemoved", message)
        if waiting:
            message = f"Nodes are removed or get a new pod when their jobs have ended: {', '.join(waiting)}."
            await write(document, "Normal", "WaitingForJobs", message)

    async def destroy(self, cluster: Cluster, decided: Json, specs: list[object]) -> None:
        """Run the destroy playbook for each spec with the data policy of the document, and remove the finalizer."""
        keep = ((decided.get("spec") or {}).get("deletion") or {}).get("data", "Keep") != "Delete"
        cluster.facts.activity.running = True
        await self._status.write(cluster)
        variables = {"keep_data": True} if keep else {"keep_data": False, "confirm": cluster.key[1]}
        for spec in specs:
            if not await self._documents.unchanged(cluster, decided):
                cluster.facts.activity.running = False
                return
            outcome = await self._runner.run(cluster, "destroy", variables, spec)
            if outcome is None:
                return
            if not outcome.successful:
                await self._failed(cluster, outcome)
                return
        message = "The cluster was deleted; its data was " + ("kept." if keep else "deleted too.")
        await self._context.events.write(decided, "Normal", "Deleted", message)
        await self._documents.release(cluster)

    async def _failed(self, cluster: Cluster, outcome: Outcome) -> None:
        context, settings = self._context, self._context.settings
        reason: Reason
        if outcome.ended in OVERDUE:
            idle = f"because it had reported nothing for {settings.idle_timeout:g} s"
            after = f"after {settings.run_timeout:g} s" if outcome.ended == "timeout" else idle
            reason, message = "TimedOut", f"The run was ended {after}, in the task {outcome.progress.task!r}; it is repeated."
        else:
            reason, message = "RunFailed", outcome.failure
        pause = context.backoff.failed(cluster.key)
        cluster.requests.was_ready = context.cache.all_ready(cluster)
        context.metrics.retries.inc()
        cluster.facts.failure = Failure(reason, message, context.backoff.count(cluster.key))
        cluster.facts.fingerprints.site = ""
        log.warning("run failed", extra={"cluster": cluster.name, "error": message, "again_in": pause})
        context.queue.add(cluster.key, Trigger.RETRY, pause)
        await self._status.try_write(cluster)
        where = f"Its output: {outcome.output_dir}/stdout in pod {settings.identity.partition('_')[0]}."
        await context.events.write(cluster.document, "Warning", reason, message, where)
