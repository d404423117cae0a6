# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm is told of machines and pods that have changed, and asked how its nodes do, by runs of corral.slurm.sync."""

from __future__ import annotations

import logging
import math

from corral_operator.reconcile import decisions
from corral_operator.reconcile.cluster import Cluster
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.documents import Documents
from corral_operator.reconcile.metadata import REQUESTED, annotation, paused
from corral_operator.reconcile.places import fingerprint
from corral_operator.reconcile.queue import Trigger
from corral_operator.reconcile.runner import Runner
from corral_operator.reconcile.status import StatusWriter
from corral_operator.reconcile.validation import Validator
from corral_operator.runs.outcome import Outcome

log = logging.getLogger(__name__)

# Pods that come and go are gathered so long before Slurm is told, where no machine goes.
_GATHER = 2.0
# Of all clusters together one is probed once in so long; a cold run takes seconds of the processor.
_PROBES = {"warm": 0.5, "cold": 30.0}
# A probe that fails is told of from this one on: slurmctld may just be starting again.
_SILENT = 5


class NodeSync:
    """One run tells Slurm all; the next one comes when something is as it was not then, or for a probe when its time has come."""

    def __init__(self, context: Context, validator: Validator, documents: Documents, status: StatusWriter, runner: Runner) -> None:
        self._context = context
        self._validator = validator
        self._documents = documents
        self._status = status
        self._runner = runner

    def request(self, cluster: Cluster, *, urgent: bool) -> None:
        """Have Slurm told of machines and pods that have changed: at once where machines go or come back."""
        queue, settings, execution = self._context.queue, self._context.settings, cluster.execution
        if not urgent:
            queue.add(cluster.sync_key, Trigger.RESYNC, _GATHER)
            return
        self._context.backoff.reset(cluster.sync_key)
        queue.add(cluster.sync_key, Trigger.DRIFT, settings.debounce, settings.debounce_most)
        execution.yielding = True
        if execution.parked and execution.applying:
            execution.end("preempted")

    async def reconcile(self, cluster: Cluster) -> None:
        """Run corral.slurm.sync where the workers' pods or their machines are not as it saw them last, or its time has come."""
        context, key, document, facts = self._context, cluster.sync_key, cluster.document, cluster.facts
        context.queue.absorb(key)
        namespace, checked = context.cache.namespace(cluster), await self._validator.validate(cluster)
        # A cluster that has not been made has nobody to be told; when it is, this is asked for.
        if (
            context.foreign(document)
            or not facts.observed
            or cluster.deleting
            or paused(document)
            or namespace.refusal
            or checked.mistakes
            or not namespace.synced
        ):
            return
        # What is just being made is made first.
        if cluster.convergence.settling and context.queue.pending(cluster.key) and not cluster.execution.yielding:
            context.queue.add(key, Trigger.RESYNC, _GATHER)
            return
        places, machines = namespace.places.of(cluster.key[1]), context.cache.machines
        if not places or not (machines.known or context.cache.machines_refused):
            return
        signs, rest = checked.signs, (checked.eviction, context.content, annotation(document, REQUESTED))
        seen = fingerprint(places, machines, signs, *rest)
        leaving, idle = any(machines.cause(place.machine, *signs) for place in places), checked.eviction == "WhenIdle"
        probe = seen == facts.fingerprints.sync
        if probe:
            if cluster.probe.due is None:  # this process has just begun
                self._schedule(cluster, leaving=leaving, busy=True, idle=idle)
                return
            if context.clock() < cluster.probe.due:
                context.queue.add(key, Trigger.RETRY, cluster.probe.due - context.clock())
                return
        if not await self._documents.unchanged(cluster, document):
            context.queue.add(key, Trigger.RESYNC, _GATHER)
            return
        outcome = await self._runner.run(cluster, "sync", {}, probe=probe)
        if outcome is None:
            return
        if not outcome.successful:
            await self._failed(cluster, outcome, probe=probe)
            return
        context.backoff.reset(key)
        facts.fingerprints.sync, facts.nodes = seen, outcome.nodes or facts.nodes
        nodes = list(outcome.leaving.get("nodes") or ())
        news, cluster.probe.leaving = nodes != cluster.probe.leaving, nodes
        self._schedule(cluster, leaving=leaving, busy=bool(outcome.leaving.get("busy")), idle=idle)
        if fingerprint(namespace.places.of(cluster.key[1]), machines, signs, *rest) != seen:
            context.queue.add(key, Trigger.DRIFT, context.settings.debounce)
        await self._status.write(cluster)
        for warning in () if probe else outcome.warnings:  # it was told before
            await context.events.write(document, "Warning", "Withheld", warning)
        if news:
            message = (
                f"Drained for their machines: {', '.join(nodes)}." if nodes else "No node is drained for its Kubernetes node any more."
            )
            await context.events.write(document, "Normal", "NodesDraining" if nodes else "NodesResumed", message)

    async def _failed(self, cluster: Cluster, outcome: Outcome, *, probe: bool) -> None:
        context, key = self._context, cluster.sync_key
        message = outcome.failure or f"The run was ended in the task {outcome.progress.task!r}, since it took too long; it is repeated."
        pause, count = context.backoff.failed(key), context.backoff.count(key)
        every = self._every(cluster)
        if probe and every:  # it costs no more than one that finds it well, and its end is seen as soon
            pause = min(pause, every)
        news = count == (_SILENT if probe else 2)  # a slurmctld that is just being replaced is none
        log.log(
            logging.WARNING if news or not probe else logging.DEBUG,
            "Slurm was not told of machines",
            extra={"cluster": cluster.name, "error": message, "again_in": pause},
        )
        context.queue.add(key, Trigger.RETRY, pause)
        if news:
            await context.events.write(cluster.document, "Warning", "SyncFailed", message)

    def _every(self, cluster: Cluster) -> float:
        """Between two probes of a cluster; 0: there are none. One whose runs fail is probed no more often than they are repeated."""
        every, settings = self._context.settings.sync_every, self._context.settings
        return every and max(every, _PROBES[settings.engine] * len(self._context.cache.clusters), self._context.backoff.pause(cluster.key))

    def _schedule(self, cluster: Cluster, *, leaving: bool, busy: bool, idle: bool) -> None:
        """Have a probe come in time, where one is needed."""
        again = self._context.settings.sync_again
        pause = decisions.next_probe(leaving=leaving, busy=busy, idle=idle, again=again, every=self._every(cluster))
        cluster.probe.due = math.inf if pause is None else self._context.clock() + pause
        if pause is not None:
            self._context.queue.add(cluster.sync_key, Trigger.RETRY, pause)
