# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs corral.slurm.sync when Kubernetes nodes or workers' pods have changed, and to poll the states of Slurm's nodes."""

from __future__ import annotations

import logging
import math

from corral_operator.reconcile import decisions
from corral_operator.reconcile.cluster import Cluster
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.documents import Documents
from corral_operator.reconcile.metadata import REQUESTED, annotation, paused
from corral_operator.reconcile.queue import Trigger
from corral_operator.reconcile.runner import Runner
from corral_operator.reconcile.status import StatusWriter
from corral_operator.reconcile.validation import Validator
from corral_operator.reconcile.worker_pods import fingerprint
from corral_operator.runs.outcome import Outcome

log = logging.getLogger(__name__)

# Changes of pods are gathered for this long before a run, unless a Kubernetes node is draining.
_GATHER = 2.0
# Minimum interval between probes, over all clusters; a cold run takes seconds of CPU time.
_PROBES = {"warm": 0.5, "cold": 30.0}
# The failure in a row from which a failing probe is reported: slurmctld may just be restarting.
_SILENT = 5


class NodeSync:
    """One run reports everything to Slurm; the next one follows a change of what it depends on, or a due probe."""

    def __init__(self, context: Context, validator: Validator, documents: Documents, status: StatusWriter, runner: Runner) -> None:
        self._context = context
        self._validator = validator
        self._documents = documents
        self._status = status
        self._runner = runner

    def request(self, cluster: Cluster, *, urgent: bool) -> None:
        """Queue a run; ``urgent``: at once, because a Kubernetes node is draining or is back."""
        queue, settings, execution = self._context.queue, self._context.settings, cluster.execution
        if not urgent:
            queue.add(cluster.sync_key, Trigger.RESYNC, _GATHER)
            return
        self._context.backoff.reset(cluster.sync_key)
        queue.add(cluster.sync_key, Trigger.DRIFT, settings.debounce, settings.debounce_most)
        execution.yield_soon()

    async def reconcile(self, cluster: Cluster) -> None:
        """Run corral.slurm.sync if workers' pods or their Kubernetes nodes have changed since its last run, or if a probe is due."""
        context, key, document, facts = self._context, cluster.sync_key, cluster.document, cluster.facts
        context.queue.absorb(key)
        namespace, checked = context.cache.namespace(cluster), await self._validator.validate(cluster)
        # A cluster that has not been created has no slurmctld; its creation requests this again.
        if (
            context.foreign(document)
            or not facts.observed
            or cluster.deleting
            or paused(document)
            or namespace.refusal
            or checked.errors
            or not namespace.synced
        ):
            return
        # A run of the site playbook that is due goes first.
        if cluster.convergence.settling and context.queue.pending(cluster.key) and not cluster.execution.yielding:
            context.queue.add(key, Trigger.RESYNC, _GATHER)
            return
        pods, nodes = namespace.worker_pods.of(cluster.key[1]), context.cache.kubernetes_nodes
        if not pods or not (nodes.known or context.cache.kubernetes_nodes_refused):
            return
        drain_causes, rest = checked.drain_causes, (checked.eviction, context.content, annotation(document, REQUESTED))
        observed = fingerprint(pods, nodes, drain_causes, *rest)
        draining, idle = any(nodes.cause(pod.node, *drain_causes) for pod in pods), checked.eviction == "WhenIdle"
        probe = observed == facts.fingerprints.sync
        if probe:
            if cluster.probe.due is None:  # this process has just started
                self._schedule(cluster, draining=draining, busy=True, idle=idle)
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
        facts.fingerprints.sync, facts.nodes = observed, outcome.nodes or facts.nodes
        drained = list(outcome.draining.get("nodes") or ())
        changed, cluster.probe.draining = drained != cluster.probe.draining, drained
        self._schedule(cluster, draining=draining, busy=bool(outcome.draining.get("busy")), idle=idle)
        if fingerprint(namespace.worker_pods.of(cluster.key[1]), nodes, drain_causes, *rest) != observed:
            context.queue.add(key, Trigger.DRIFT, context.settings.debounce)
        await self._status.write(cluster)
        for warning in () if probe else outcome.messages.warnings:  # a probe repeats the warnings of the last run
            await context.events.write(document, "Warning", "SyncWarning", warning)
        if changed:
            message = (
                f"Slurm nodes drained because of their Kubernetes nodes: {', '.join(drained)}."
                if drained
                else "No Slurm node is drained because of its Kubernetes node any more."
            )
            await context.events.write(document, "Normal", "NodesDraining" if drained else "NodesResumed", message)

    async def _failed(self, cluster: Cluster, outcome: Outcome, *, probe: bool) -> None:
        context, key = self._context, cluster.sync_key
        message = outcome.failure or f"The run was ended in the task {outcome.progress.task!r}, because it took too long; it is repeated."
        pause, count = context.backoff.failed(key), context.backoff.count(key)
        every = self._every(cluster)
        if probe and every:  # it costs no more than a successful probe, and the end of the failure is noticed as soon
            pause = min(pause, every)
        report = count == (_SILENT if probe else 2)  # not for a slurmctld that is just being replaced
        log.log(
            logging.WARNING if report or not probe else logging.DEBUG,
            "node sync failed",
            extra={"cluster": cluster.name, "error": message, "again_in": pause},
        )
        context.queue.add(key, Trigger.RETRY, pause)
        if report:
            await context.events.write(cluster.document, "Warning", "SyncFailed", message)

    def _every(self, cluster: Cluster) -> float:
        """Return the interval between two probes of a cluster, 0 for none. A cluster whose runs fail is probed no more often than they are repeated."""
        every, settings = self._context.settings.sync_every, self._context.settings
        return every and max(every, _PROBES[settings.engine] * len(self._context.cache.clusters), self._context.backoff.pause(cluster.key))

    def _schedule(self, cluster: Cluster, *, draining: bool, busy: bool, idle: bool) -> None:
        """Schedule the next probe, if one is needed."""
        again = self._context.settings.sync_again
        pause = decisions.next_probe(draining=draining, busy=busy, idle=idle, again=again, every=self._every(cluster))
        cluster.probe.due = math.inf if pause is None else self._context.clock() + pause
        if pause is not None:
            self._context.queue.add(cluster.sync_key, Trigger.RETRY, pause)
