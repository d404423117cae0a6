# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Prometheus is told. Times are here and in events, and not in the status."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

# The times at which counters were made would double their number. (prometheus_client gives this function no types.)
disable_created_metrics()  # type: ignore[no-untyped-call]

_SECONDS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """All of them, in a registry of their own: tests have several."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.runs = Counter("corral_operator_runs", "Runs of a playbook.", ("playbook", "result"), registry=registry)
        self.run_seconds = Histogram(
            "corral_operator_run_seconds", "How long runs took.", ("playbook", "result"), buckets=_SECONDS, registry=registry
        )
        self.task_seconds = Histogram(
            "corral_operator_task_seconds", "How long tasks took.", ("task",), buckets=_SECONDS, registry=registry
        )
        self.tasks = Counter(
            "corral_operator_tasks",
            "Tasks by Ansible's own count, of all hosts; dark: the host was not reached.",
            ("result",),
            registry=registry,
        )
        self.wait_seconds = Histogram(
            "corral_operator_queue_wait_seconds", "How long clusters waited for their turn.", ("why",), buckets=_SECONDS, registry=registry
        )
        self.work_seconds = Histogram(
            "corral_operator_queue_work_seconds",
            "How long the work on what was taken from the queue went on, runs included.",
            ("why",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.adds = Counter("corral_operator_queue_adds", "How often a cluster was queued.", ("why",), registry=registry)
        self.skipped = Counter(
            "corral_operator_runs_skipped", "Times that a cluster was reconciled without a run.", ("why",), registry=registry
        )
        self.drift = Counter("corral_operator_drift", "Changes of a cluster's objects that a run was made for.", registry=registry)
        self.retries = Counter("corral_operator_retries", "Runs that failed and are repeated.", registry=registry)
        self.status_writes = Counter("corral_operator_status_writes", "Writes of a status.", registry=registry)
        self.depth = Gauge("corral_operator_queue_depth", "Clusters that are due.", registry=registry)
        cluster = ("namespace", "cluster")
        self.waiting = Gauge(
            "corral_operator_cluster_waiting_seconds", "For how long a cluster has been due; 0: it is not.", cluster, registry=registry
        )
        self.working = Gauge(
            "corral_operator_cluster_working_seconds",
            "For how long the work on a cluster has gone on; 0: there is none.",
            cluster,
            registry=registry,
        )
        self.ready = Gauge("corral_operator_cluster_ready", "1 while a cluster is Ready.", cluster, registry=registry)
        self.orphans = Gauge(
            "corral_operator_objects_without_document",
            "Objects of a cluster whose namespace has no such document: a playbook made it, or its document went without its finalizer.",
            cluster,
            registry=registry,
        )
        self.open = Gauge("corral_operator_runs_open", "Runs under way, those that only wait included.", registry=registry)
        self.leader = Gauge("corral_operator_leader", "1 while this process may write.", registry=registry)
        self.clusters = Gauge("corral_operator_clusters", "SlurmClusters.", ("ready",), registry=registry)
        self.children = Gauge("corral_operator_children", "Objects of clusters that are watched.", registry=registry)
        self.watch_restarts = Gauge("corral_operator_watch_restarts", "Watches that had to list anew.", registry=registry)
        self.zygote_restarts = Gauge(
            "corral_operator_zygote_restarts", "Times that the process which starts runs was started again.", registry=registry
        )
        self.requests = Gauge(
            "corral_operator_requests",
            "Requests of the controller itself, without those of runs and of the election.",
            ("kind",),
            registry=registry,
        )
