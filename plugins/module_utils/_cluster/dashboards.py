# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Grafana's dashboards of a cluster, of the metrics that its exporter has. Pure.

Panels are declared once, as data; their places, ids and Grafana's JSON follow. In a query, ``@`` stands for what selects the cluster's series.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

# Grafana's grid has 24 columns; two panels stand in a row.
_WIDTH, _HEIGHT = 12, 8
# As Grafana names its variable of the data source.
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Of Grafana 10.4; later ones convert it.
_SCHEMA_VERSION = 39
RATE = "$__rate_interval"


@dataclass(frozen=True)
class Panel:
    """``queries`` by the legend of their series. A ``table`` has the labels of the series that are there now; ``stacked`` areas add up to a whole."""

    title: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    stacked: bool = False
    text: str = ""


@dataclass(frozen=True)
class Dashboard:
    """``key`` is the last part of its file's name, its uid and its title."""

    key: str
    panels: tuple[Panel, ...] = field(default=())


def _shares(metric: str, label: str) -> dict[str, str]:
    """Return the query for the allocated share of each value of ``label``; 0 of nothing has no share."""
    whole = f"sum by ({label}) ({metric}{{@}})"
    return {f"{{{{{label}}}}}": f'sum by ({label}) ({metric}{{@,state="allocated"}}) / ({whole} > 0)'}


DASHBOARDS = (
    Dashboard(
        "overview",
        (
            Panel("Nodes by state", {"{{state}}": "sum by (state) (slurm_nodes{@})"}, stacked=True),
            Panel("Jobs by state", {"{{state}}": "sum by (state) (slurm_jobs{@})"}, stacked=True),
            Panel("Allocated CPUs", _shares("slurm_cpus", "node_set"), "percentunit"),
            Panel("Allocated memory", _shares("slurm_memory_bytes", "node_set"), "percentunit"),
            Panel("Pending jobs by reason", {"{{reason}}": "sum by (reason) (slurm_jobs_pending{@})"}, stacked=True),
            Panel("Jobs started and ended", {"{{event}}": f"sum by (event) (rate(slurm_scheduler_jobs_total{{@}}[{RATE}]))"}, "ops"),
            Panel("Age of the metrics", {"{{source}}": "max by (source) (slurm_exporter_age_seconds{@})"}, "s"),
            Panel("Version of Slurm", {"{{version}}": "max by (version) (slurm_info{@})"}, kind="table"),
        ),
    ),
    Dashboard(
        "nodes",
        (
            Panel("Nodes by node set and state", {"{{node_set}} {{state}}": "sum by (node_set, state) (slurm_nodes{@})"}, stacked=True),
            Panel("Nodes that do not respond", {"{{node_set}}": "sum by (node_set) (slurm_nodes_not_responding{@})"}),
            Panel(
                "Nodes that take no new jobs",
                {"": "max by (node, node_set, state, reason) (slurm_node_unavailable{@})"},
                kind="table",
                text="Beyond the limit of the document, nodes are not listed; the next panel has their number.",
            ),
            Panel("Nodes beyond the limit of the list", {"nodes": "max(slurm_node_unavailable_omitted{@})"}),
            Panel(
                "Nodes that take no new jobs, by the owner of the reason",
                {"{{owner}}": "sum by (owner) (slurm_nodes_unavailable_by_owner{@})"},
                stacked=True,
                text="jail: the jail's health check. health: a check of the node. [other]: Slurm or a person.",
            ),
            Panel("Unavailable CPUs", {"{{node_set}}": 'sum by (node_set) (slurm_cpus{@,state="unavailable"})'}, stacked=True),
            Panel("Nodes of partitions by state", {"{{partition}} {{state}}": "sum by (partition, state) (slurm_partition_nodes{@})"}),
        ),
    ),
    Dashboard(
        "gpus",
        (
            Panel("GPUs by state", {"{{state}}": "sum by (state) (slurm_gpus{@})"}, stacked=True),
            Panel("Allocated GPUs by node set", _shares("slurm_gpus", "node_set"), "percentunit"),
            Panel("Allocated GPUs by partition", _shares("slurm_partition_gpus", "partition"), "percentunit"),
            Panel("GPUs of accounts", {"{{account}}": "topk(20, sum by (account) (slurm_account_gpus{@}))"}, stacked=True),
            Panel("GPUs that pending jobs request", {"{{node_set}}": "sum by (node_set) (slurm_node_set_pending_gpus{@})"}),
        ),
    ),
    Dashboard(
        "queue",
        (
            Panel("Longest wait for free nodes", {"{{partition}}": "max by (partition) (slurm_partition_longest_wait_seconds{@})"}, "s"),
            Panel("Jobs of partitions", {"{{partition}} {{state}}": "sum by (partition, state) (slurm_partition_jobs{@})"}),
            Panel("Jobs that wait for free nodes", {"{{node_set}}": "sum by (node_set) (slurm_node_set_pending_jobs{@})"}),
            Panel(
                "Jobs that wait although enough nodes are idle",
                {"{{node_set}}": "sum by (node_set) (slurm_node_set_startable_jobs{@})"},
                text="Jobs that the next cycle of the scheduler starts are among them.",
            ),
            Panel("CPUs that pending jobs request", {"{{node_set}}": "sum by (node_set) (slurm_node_set_pending_cpus{@})"}),
            Panel(
                "Wanted nodes",
                {
                    "{{node_set}} wanted": "sum by (node_set) (slurm_node_set_wanted_nodes{@})",
                    "{{node_set}} there": "sum by (node_set) (slurm_nodes{@})",
                },
            ),
        ),
    ),
    Dashboard(
        "accounts",
        (
            Panel("Running jobs of accounts", {"{{account}}": 'topk(20, sum by (account) (slurm_account_jobs{@,state="running"}))'}),
            Panel("Pending jobs of accounts", {"{{account}}": 'topk(20, sum by (account) (slurm_account_jobs{@,state="pending"}))'}),
            Panel("CPUs of accounts", {"{{account}}": "topk(20, sum by (account) (slurm_account_cpus{@}))"}, stacked=True),
            Panel("Jobs by QoS", {"{{qos}} {{state}}": "sum by (qos, state) (slurm_qos_jobs{@})"}),
            Panel("RPCs of users", {"{{user}}": f"topk(10, sum by (user) (rate(slurm_user_rpcs_total{{@}}[{RATE}])))"}, "ops"),
            Panel(
                "Time of slurmctld for users",
                {"{{user}}": f"topk(10, sum by (user) (rate(slurm_user_rpc_seconds_total{{@}}[{RATE}])))"},
                "percentunit",
            ),
        ),
    ),
    Dashboard(
        "scheduler",
        (
            Panel("Duration of the last cycle", {"{{scheduler}}": "max by (scheduler) (slurm_scheduler_cycle_seconds{@})"}, "s"),
            Panel("Cycles", {"{{scheduler}}": f"sum by (scheduler) (rate(slurm_scheduler_cycles_total{{@}}[{RATE}]))"}, "ops"),
            Panel("Jobs in the schedulers' queues", {"{{scheduler}}": "max by (scheduler) (slurm_scheduler_queue{@})"}),
            Panel(
                "Threads and queues of slurmctld",
                {
                    "threads": "max(slurm_scheduler_threads{@})",
                    "messages to nodes": "max(slurm_scheduler_agent_queue{@})",
                    "records for slurmdbd": "max(slurm_slurmdbd_queue{@})",
                },
                text="At 256 threads, RPCs wait.",
            ),
            Panel("RPCs by type", {"{{type}}": f"topk(10, sum by (type) (rate(slurm_rpcs_total{{@}}[{RATE}])))"}, "ops"),
            Panel(
                "Time of slurmctld by type",
                {"{{type}}": f"topk(10, sum by (type) (rate(slurm_rpc_seconds_total{{@}}[{RATE}])))"},
                "percentunit",
            ),
            Panel("Duration of the exporter's queries", {"{{source}}": "max by (source) (slurm_exporter_duration_seconds{@})"}, "s"),
            Panel("Failed queries", {"{{source}}": f"sum by (source) (rate(slurm_exporter_failures_total{{@}}[{RATE}]))"}, "ops"),
        ),
    ),
)


def files(name: str, namespace: str, series: str) -> dict[str, str]:
    """Return Grafana's JSON by the names of files. ``name`` and ``namespace`` are the cluster's; ``series`` selects its series.

    File names and uids are the cluster's own: Grafana has one folder for the files of all, and one dashboard of a uid.
    """
    return {
        f"slurm-{namespace}-{name}-{one.key}.json": json.dumps(_grafana(one, name, namespace, series), separators=(",", ":"))
        for one in DASHBOARDS
    }


def _grafana(dashboard: Dashboard, name: str, namespace: str, series: str) -> Json:
    return {
        "uid": hashlib.sha256(f"{namespace}/{name}/{dashboard.key}".encode()).hexdigest()[:32],
        "title": f"Slurm {namespace}/{name}: {dashboard.key}",
        "tags": ["slurm", "corral"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": False,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]},
        "panels": list(_panels(dashboard, series)),
    }


def _panels(dashboard: Dashboard, series: str) -> Iterator[Json]:
    for number, panel in enumerate(dashboard.panels):
        row, column = divmod(number, 24 // _WIDTH)
        table = panel.kind == "table"
        yield {
            "id": number + 1,
            "title": panel.title,
            "description": panel.text,
            "type": panel.kind,
            "datasource": _SOURCE,
            "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
            "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
            "options": {} if table else {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
            "transformations": [{"id": "organize", "options": {"excludeByName": {"Time": True, "Value": True}}}] if table else [],
            "targets": [
                {
                    "refId": chr(ord("A") + place),
                    "datasource": _SOURCE,
                    "expr": query.replace("@", series),
                    "legendFormat": legend,
                    **({"format": "table", "instant": True} if table else {}),
                }
                for place, (legend, query) in enumerate(panel.queries.items())
            ],
        }


def _defaults(panel: Panel) -> Json:
    found: Json = {"unit": panel.unit}
    if panel.kind == "timeseries":
        found["min"] = 0
        found["custom"] = {"fillOpacity": 30, "stacking": {"mode": "normal"}} if panel.stacked else {"fillOpacity": 0}
    return found
