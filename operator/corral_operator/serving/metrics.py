# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics for Prometheus. Times are here and in events, and not in the status."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

# The creation times of counters would double the number of series. (prometheus_client gives this function no types.)
disable_created_metrics()  # type: ignore[no-untyped-call]

_SECONDS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """All metrics, in a registry of their own: tests have several."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.runs = Counter("corral_operator_runs", "Runs of a playbook.", ("playbook", "result"), registry=registry)
        self.run_seconds = Histogram(
            "corral_operator_run_seconds", "Duration of runs.", ("playbook", "result"), buckets=_SECONDS, registry=registry
        )
        self.task_seconds = Histogram("corral_operator_task_seconds", "Duration of tasks.", ("task",), buckets=_SECONDS, registry=registry)
        self.tasks = Counter(
            "corral_operator_tasks",
            "Tasks by result, as Ansible counts them over all hosts; dark: unreachable.",
            ("result",),
            registry=registry,
        )
        self.wait_seconds = Histogram(
            "corral_operator_queue_wait_seconds",
            "Time for which due clusters waited in the queue.",
            ("trigger",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.work_seconds = Histogram(
            "corral_operator_queue_work_seconds",
            "Time for which clusters were worked on, including runs.",
            ("trigger",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.adds = Counter("corral_operator_queue_adds", "Times that a cluster was queued.", ("trigger",), registry=registry)
        self.skipped = Counter("corral_operator_runs_skipped", "Reconciliations that needed no run.", ("trigger",), registry=registry)
        self.drift = Counter("corral_operator_drift", "Runs because of changes of a cluster's objects.", registry=registry)
        self.retries = Counter("corral_operator_retries", "Failed runs that are repeated.", registry=registry)
        self.status_writes = Counter("corral_operator_status_writes", "Status writes.", registry=registry)
        self.depth = Gauge("corral_operator_queue_depth", "Clusters that are due in the queue.", registry=registry)
        cluster = ("namespace", "cluster")
        self.waiting = Gauge(
            "corral_operator_cluster_waiting_seconds", "Time since a cluster became due; 0: it is not due.", cluster, registry=registry
        )
        self.working = Gauge(
            "corral_operator_cluster_working_seconds",
            "Time since work on a cluster started; 0: there is none.",
            cluster,
            registry=registry,
        )
        self.ready = Gauge("corral_operator_cluster_ready", "1 if a cluster is Ready.", cluster, registry=registry)
        self.orphans = Gauge(
            "corral_operator_objects_without_document",
            "Objects of a cluster without a document: a playbook created it, or its document was deleted without the finalizer.",
            cluster,
            registry=registry,
        )
        self.open = Gauge("corral_operator_runs_in_progress", "Runs in progress, including those that only wait.", registry=registry)
        self.leader = Gauge("corral_operator_leader", "1 if this process may write.", registry=registry)
        self.clusters = Gauge("corral_operator_clusters", "SlurmClusters by whether they are Ready.", ("ready",), registry=registry)
        self.children = Gauge("corral_operator_watched_objects", "Watched objects of clusters.", registry=registry)
        self.watch_restarts = Gauge(
            "corral_operator_watch_restarts", "Times that a watch had to list its objects again.", registry=registry
        )
        self.zygote_restarts = Gauge(
            "corral_operator_zygote_restarts", "Times that the zygote, which starts runs, was restarted.", registry=registry
        )
        self.requests = Gauge(
            "corral_operator_requests",
            "Requests of the controller itself, without runs and the election.",
            ("kind",),
            registry=registry,
        )
