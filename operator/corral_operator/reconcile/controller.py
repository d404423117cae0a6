# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller: watches feed the queue, queued clusters are reconciled, and long runs are supervised."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.api.client import Api
from corral_operator.api.events import Events, Reason
from corral_operator.reconcile import gauges, metadata
from corral_operator.reconcile.applier import Applier
from corral_operator.reconcile.cache import Cache
from corral_operator.reconcile.cluster import Cluster
from corral_operator.reconcile.conditions import Facts, Failure
from corral_operator.reconcile.context import Context, Leadership, Tasks
from corral_operator.reconcile.documents import Documents
from corral_operator.reconcile.metadata import Json, Key
from corral_operator.reconcile.node_sync import NodeSync
from corral_operator.reconcile.queue import Backoff, Taken, Trigger, WorkQueue, owner
from corral_operator.reconcile.reconciler import OPERATOR_ERROR, Reconciler
from corral_operator.reconcile.runner import Runner
from corral_operator.reconcile.status import StatusWriter
from corral_operator.reconcile.tenants import Tenants
from corral_operator.reconcile.triggers.documents import DocumentTriggers
from corral_operator.reconcile.triggers.nodes import NodeTriggers
from corral_operator.reconcile.triggers.objects import ObjectTriggers
from corral_operator.reconcile.triggers.tenants import TenantsTriggers
from corral_operator.reconcile.validation import Validator
from corral_operator.runs.checker import Checked
from corral_operator.runs.engine import Engine
from corral_operator.serving.metrics import Metrics
from corral_operator.settings import Settings

log = logging.getLogger(__name__)

# A run that has reported nothing for this long only waits, for pods or for jobs, and is parked.
_PARKED = 1.5
# A run shows in the status when it takes longer than this, or at once if the document has changed.
_VISIBLE = 2.0
# A resync queues all clusters within this time.
_SPREAD = 5.0


class Controller:
    """It watches from ``start`` on, so that it can take over at once, and acts from ``lead`` to ``halt``."""

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
        self._engine = engine
        self._settings = settings
        self._metrics = metrics
        self._clock = asyncio.get_running_loop().time
        self._wake = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._next_resync = 0.0
        self.tasks = Tasks()
        self.cache = Cache()
        self._leadership = Leadership(may_write)
        self._queue = WorkQueue(self._clock, working=limits[0], open_limit=limits[1], added=self._added)
        self._backoff = Backoff(settings.backoff, settings.backoff_most)
        self._context = context = Context(
            settings=settings,
            content=content,
            api=client,
            metrics=metrics,
            events=Events(client, settings.identity),
            cache=self.cache,
            queue=self._queue,
            backoff=self._backoff,
            leadership=self._leadership,
            tasks=self.tasks,
            clock=self._clock,
        )
        documents = Documents(context, lambda document: self._documents.observe(document))
        validator = Validator(context, check)
        self._status = StatusWriter(context, documents)
        runner = Runner(context, engine, self._status)
        self._sync = NodeSync(context, validator, documents, self._status, runner)
        self._tenants = Tenants(context, validator, documents, self._status, runner)
        applier = Applier(context, documents, self._status, runner, self._sync, self._tenants)
        self._reconciler = Reconciler(context, validator, documents, self._status, applier, self._sync, self._tenants)
        self._tenants_triggers = TenantsTriggers(context)
        self._node_triggers = NodeTriggers(context, self._sync)
        objects = ObjectTriggers(context, self._status, self._node_triggers)
        self._documents = DocumentTriggers(context, documents, self._status, validator, objects)

    def _added(self, trigger: Trigger) -> None:
        self._metrics.adds.labels(trigger.name.lower()).inc()
        self._wake.set()

    # --- lifecycle ---

    def start(self) -> None:
        """Start watching; the work starts with ``lead``."""
        self._loops += self._documents.watch()
        self._loops += self._tenants_triggers.watch()
        self._loops.append(self._node_triggers.watch())
        self._loops.append(asyncio.create_task(self._dispatch()))
        self._loops.append(asyncio.create_task(self._supervise()))

    def lead(self) -> None:
        """Start to act as the leader: queue every cluster."""
        self._leadership.elected = True
        self._next_resync = self._clock() + self._settings.resync
        self._metrics.leader.set(1)
        for cluster in self.cache.clusters.values():
            cluster.facts = Facts.of(cluster.document.get("status") or {})
            cluster.requests.resynced = self._clock()
            self._queue.add(cluster.key, Trigger.RESYNC)
            self._queue.add(cluster.sync_key, Trigger.RESYNC)
            self._tenants.request(cluster, Trigger.RESYNC)
        self._wake.set()

    async def halt(self, reason: str, grace: float) -> None:
        """Stop writing: end all runs, and kill those that have not ended after ``grace``. When this returns no run is left."""
        self._leadership.elected = False
        self._metrics.leader.set(0)
        for cluster in self.cache.clusters.values():
            cluster.execution.end(reason)
        await self.tasks.end(grace)

    async def stop(self) -> None:
        """End the watches."""
        tasks = [*self._loops, *(task for namespace in self.cache.namespaces.values() for task in namespace.tasks)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- health and metrics ---

    @property
    def unhealthy(self) -> str:
        """Return a problem that only a restart can solve."""
        dead = [task for task in self._loops if task.done()]
        if dead:
            return f"A loop of the controller has ended: {dead[0]!r}"
        return "The zygote, which starts runs, does not become ready." if self._engine.stuck else ""

    @property
    def unready(self) -> str:
        """Return what is missing to start work."""
        if not all(watch.synced for watch in self._documents.watches):
            return "The SlurmClusters have not been listed yet."
        if not self._engine.ready:
            return "No run can be started yet."
        return ""

    def refresh_metrics(self) -> None:
        """Bring the gauges up to date."""
        gauges.refresh(self._context, self._documents.watches, zygote_restarts=getattr(self._engine, "restarts", 0))

    def without_unknown_fields(self, document: Json) -> Json:
        """Return a document without fields that a newer definition has added by default."""
        return self._documents.without_unknown_fields(document)

    # --- work ---

    async def _dispatch(self) -> None:
        leadership = self._leadership
        while True:
            self._wake.clear()
            if leadership.active:
                for taken in iter(self._queue.take, None):
                    self.tasks.spawn(self._work(taken))
                preemptible = self._queue.preemptible()
                if preemptible is not None and preemptible in self.cache.clusters:
                    self.cache.clusters[preemptible].execution.end("preempted")
            due = self._queue.next_due() if leadership.active else None
            timeout = None if due is None else max(0.01, due - self._clock())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(timeout, 5.0) if timeout is not None else 5.0):
                    await self._wake.wait()

    async def _work(self, taken: Taken) -> None:
        self._metrics.wait_seconds.labels(taken.trigger.name.lower()).observe(max(0.0, taken.waited))
        cluster = self.cache.clusters.get(owner(taken.key))
        try:
            if cluster is not None and taken.key == cluster.key:
                await self._reconciler.reconcile(cluster, taken.trigger)
            elif cluster is not None and taken.key == cluster.tenants_key:
                await self._tenants.reconcile(cluster)
            elif cluster is not None:
                await self._sync.reconcile(cluster)
        except CorralError as error:
            log.warning("a cluster could not be reconciled", extra={"cluster": "/".join(taken.key), "error": str(error)})
            await self._failed(cluster, taken.key, str(error))
        except Exception as error:  # such as a full disk or a defect: report it, and continue with other clusters
            log.exception("unexpected error", extra={"cluster": "/".join(taken.key)})
            await self._failed(cluster, taken.key, f"The operator could not continue ({type(error).__name__}: {error}); it tries again.")
        finally:
            self._metrics.work_seconds.labels(taken.trigger.name.lower()).observe(self._queue.done(taken.key))
            self._wake.set()

    async def _failed(self, cluster: Cluster | None, key: Key, message: str) -> None:
        """Retry after a failure outside of a playbook, and report it from the second time on."""
        self._queue.add(key, Trigger.RETRY, self._backoff.failed(key))
        if cluster is None or not self._leadership.active:
            return
        reason: Reason = "TenantsFailed" if key == cluster.tenants_key else "SyncFailed"
        count, facts = self._backoff.count(key), cluster.facts
        if key == cluster.key:
            cluster.requests.errors += 1
            count, reason = cluster.requests.errors, OPERATOR_ERROR
            facts.activity.running = False
            # The failure of a run is more useful than the failure to report it.
            if count > 1 and (facts.failure is None or facts.failure.reason == OPERATOR_ERROR):
                facts.failure = Failure(reason, message, count)
                self._status.write_soon(cluster)
        if count == 2:
            await self._context.events.write(cluster.document, "Warning", reason, message)

    async def _supervise(self) -> None:
        """Park runs that only wait, show long runs in the status, and resync clusters at their intervals."""
        while True:
            await asyncio.sleep(0.5)
            now, leads = self._clock(), self._leadership.active
            for cluster in self.cache.clusters.values():
                interval = metadata.resync(cluster.document, 0.0)
                if interval and leads and now >= cluster.requests.resynced + interval:
                    self.resync(cluster)
                if cluster.execution.run is not None:
                    self._supervise_run(cluster, now)
            if self._settings.resync and leads and now >= self._next_resync:
                self._next_resync = now + self._settings.resync
                self._resync_all()

    def _supervise_run(self, cluster: Cluster, now: float) -> None:
        execution, activity = cluster.execution, cluster.facts.activity
        run = execution.run
        assert run is not None
        execution.parked = now - max(run.last_line, execution.began) > _PARKED
        self._queue.park(cluster.key, execution.parked)
        if self._settings.idle_timeout and now - max(run.last_line, execution.began) > self._settings.idle_timeout:
            run.end("idle")
        if execution.parked:
            self._wake.set()
            if execution.outdated:
                run.end("superseded")
            elif execution.yielding and execution.applying:
                run.end("preempted")
        if execution.aside:
            return
        if not activity.running and now - execution.began > _VISIBLE:
            activity.running = True
            self._status.write_soon(cluster)
        doing = run.outcome.progress.doing if execution.parked else ""
        if activity.running and doing and doing != activity.doing:
            activity.doing = doing
            self._status.write_soon(cluster)

    def _resync_all(self) -> None:
        pause = min(0.5, _SPREAD / max(1, len(self.cache.clusters)))
        for index, cluster in enumerate(self.cache.clusters.values()):
            if metadata.resync(cluster.document, self._settings.resync) == self._settings.resync:
                self.resync(cluster, index * pause)

    def resync(self, cluster: Cluster, delay: float = 0.0) -> None:
        """Request a run for a cluster, even if nothing has changed."""
        cluster.requests.forced, cluster.probe.due, cluster.requests.resynced = True, self._clock(), self._clock()
        self._queue.add(cluster.key, Trigger.RESYNC, delay)
        cluster.facts.fingerprints.tenants = ""
        self._tenants.request(cluster, Trigger.RESYNC)
