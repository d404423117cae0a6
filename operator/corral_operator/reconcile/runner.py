# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a playbook for a cluster: what it reads is written, how it ended is counted, and one that was ended on purpose is queued again."""

from __future__ import annotations

import datetime
import json
import logging
import os
from pathlib import Path

from corral_operator.reconcile.cluster import Cluster
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.metadata import Json
from corral_operator.reconcile.queue import Trigger
from corral_operator.reconcile.status import StatusWriter
from corral_operator.runs.engine import Engine
from corral_operator.runs.outcome import Outcome
from corral_operator.runs.playbook import Request
from corral_operator.runs.run import Run, clear

log = logging.getLogger(__name__)

_PREEMPTED = 2.0
# Runs that were ended for these reasons count as failed.
OVERDUE = ("timeout", "idle")


class Runner:
    """Starts runs by ``engine``, and records their outcome."""

    def __init__(self, context: Context, engine: Engine, status: StatusWriter) -> None:
        self._context = context
        self._engine = engine
        self._status = status

    async def run(self, cluster: Cluster, playbook: str, variables: Json, spec: object = ..., *, probe: bool = False) -> Outcome | None:
        """Run a playbook, with another spec than the document's if one is given; ``probe``: a periodic run, which is not logged if nothing changed.

        Returns None if it was ended for a reason that is no failure; then the cluster is queued again.
        """
        context, execution = self._context, cluster.execution
        key = {"sync": cluster.sync_key, "tenants": cluster.tenants_key}.get(playbook, cluster.key)
        name, level = ("probe", logging.DEBUG) if probe else (playbook, logging.INFO)
        request = self._prepare(cluster, playbook, variables, cluster.document.get("spec") if spec is ... else spec, name)
        execution.parked = execution.outdated = execution.yielding = False
        execution.overwritten.clear()
        execution.playbook, execution.generation, execution.began = playbook, cluster.generation, context.clock()
        execution.run = Run(self._engine, request, timeout=context.settings.run_timeout, grace=context.settings.grace)
        if cluster.facts.activity.running:
            self._status.write_soon(cluster)
        where = {"cluster": cluster.name, "run": request.ident}
        log.log(level, "run started", extra={**where, "playbook": playbook, "generation": execution.generation})
        execution.run.outcome.output_dir = str(request.artifact_dir)
        try:
            outcome = await execution.run.execute()
        finally:
            execution.run = None
            if key == cluster.key:
                cluster.facts.activity.running, cluster.facts.activity.doing = False, ""
        if not context.leadership.active and outcome.ended in ("", *OVERDUE):
            # It failed because its writes were refused; the next leader evaluates its results.
            outcome.ended = "lost the lease"
        self._record(playbook, outcome, where, quiet=level)
        clear(request.artifact_dir.parent, name, context.settings.keep_runs)
        if outcome.ended in ("", *OVERDUE):
            return outcome
        if outcome.ended == "preempted":
            context.queue.add(key, Trigger.RETRY, _PREEMPTED)
        elif outcome.ended in ("superseded", "paused") and not context.queue.pending(key):
            context.queue.add(key, Trigger.EDIT)
        return None

    def _record(self, playbook: str, outcome: Outcome, where: Json, quiet: int) -> None:
        """Count and log a run, at the level ``quiet`` if it succeeded and changed nothing."""
        metrics, changes = self._context.metrics, outcome.changes
        result = outcome.ended or ("successful" if outcome.successful else "failed")
        metrics.runs.labels(playbook, result).inc()
        metrics.run_seconds.labels(playbook, result).observe(outcome.seconds)
        for kind, count in outcome.counts.items():
            metrics.tasks.labels(kind).inc(count)
        for task, seconds in outcome.progress.seconds.items():
            metrics.task_seconds.labels(task).observe(seconds)
        log.log(
            quiet if outcome.successful and not changes.count else logging.INFO,
            "run ended",
            extra={
                **where,
                "result": result,
                "seconds": round(outcome.seconds, 3),
                "changed": changes.count,
                "changes": changes.objects[:20],
                "counts": outcome.counts,
            },
        )

    def _prepare(self, cluster: Cluster, playbook: str, variables: Json, spec: object, suffix: str) -> Request:
        """Write the private input files of the run. ``suffix`` ends the name of its output directory."""
        namespace, name = cluster.key
        settings = self._context.settings
        directory, artifacts = settings.scratch / namespace / name, settings.runs / namespace / name
        for folder in (directory / "env", directory / "project", artifacts):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        kind = {key: cluster.document[key] for key in ("apiVersion", "kind")}
        write_private(directory / "cluster.json", {**kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec})
        file = {"slurm_cluster_file": str(directory / "cluster.json")}
        write_private(directory / "env" / "extravars", {**settings.variables, **file, **variables})
        cluster.execution.count += 1
        # Names sort by time, also over restarts.
        ident = f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}-{cluster.execution.count:06d}-{suffix}"
        return Request(ident, f"corral.slurm.{playbook}", str(directory), str(artifacts))


def write_private(path: Path, content: Json) -> None:
    """Write JSON that only this user may read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        # As compact as in the API server: a run refuses a file that exceeds the maximum size of a document.
        json.dump(content, file, ensure_ascii=False, separators=(",", ":"))
