# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run reports to the controller: one line of JSON for each relevant event of ansible-runner, of limited size.

Both engines report the same lines, since both have ansible-runner's events. Of a result only the parts named here are passed on:
it may be as large as the model of a cluster.
"""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]

_LONGEST = 2000
_MOST = 50
# The longest part of a result that is stored on disk, in characters of JSON.
_LONGEST_STORED = 10_000
# Counts of nodes for the status: only states that do not change with every job.
_COUNTS = {"total": "total", "inService": "in_service", "drained": "drained", "down": "down"}
_CHANGES = ("created", "configured", "pruned", "absent", "replaced")


def line(event: Json) -> Json | None:
    """Return the line for an event of ansible-runner; None for an irrelevant one."""
    kind = str(event.get("event", ""))
    data = event.get("event_data") or {}
    if kind == "playbook_on_task_start":
        return {"kind": "task", **_task(data)}
    if kind == "runner_on_ok":
        return {"kind": "ok", **_task(data), **_result(data)}
    if kind in ("runner_on_failed", "runner_on_unreachable"):
        result = data.get("res") or {}
        return {
            "kind": "failed",
            **_task(data),
            **_result(data),
            "ignored": bool(data.get("ignore_errors")),
            "message": _message(result),
        }
    if kind == "playbook_on_stats":
        return {
            "kind": "stats",
            **{name: sum((data.get(name) or {}).values()) for name in ("ok", "changed", "failures", "dark", "rescued")},
        }
    if kind in ("verbose", "error"):
        text = str(event.get("stdout", "")).strip()
        if text.startswith("corral.slurm: "):
            return {"kind": "progress", "text": text.removeprefix("corral.slurm: ")[:_LONGEST]}
        if kind == "error" and text:
            return {"kind": "error", "text": text[:_LONGEST]}
    return None


def computes(data: Json) -> bool:
    """True for a task whose result is the model of the cluster."""
    return str(data.get("resolved_action") or data.get("task_action") or "").endswith("slurm_cluster_model")


def without_bulk(data: Json) -> Json:
    """Return a task's result as it is stored: without the model of the cluster, the task's arguments and other large values."""
    result: Json = data["res"]
    if computes(data) and "config" in result:
        return {"changed": False}
    stored = {key: value for key, value in result.items() if key not in ("ansible_facts", "invocation")}
    for key, value in stored.items():
        size = len(value if isinstance(value, str) else json.dumps(value, default=str)) if isinstance(value, (str, list, dict)) else 0
        if size > _LONGEST_STORED:
            stored[key] = f"{value[:_LONGEST_STORED]}…" if isinstance(value, str) else f"{size} characters, not stored"
    return stored


def _task(data: Json) -> Json:
    return {"task": str(data.get("task") or ""), "role": str(data.get("resolved_role") or data.get("role") or "")}


def _result(data: Json) -> Json:
    """Return the parts of a result that the status is built from."""
    result = data.get("res") or {}
    action = str(data.get("resolved_action") or data.get("task_action") or "").rpartition(".")[2]
    found: Json = {"changed": bool(result.get("changed"))}
    warnings = [str(one)[:_LONGEST] for one in result.get("warnings") or ()]
    if warnings:
        found["warnings"] = warnings[:_MOST]
    if action in ("slurm_reconcile", "slurm_sync") and "counts" in result:
        found["nodes"] = {key: int(result["counts"].get(name, 0)) for key, name in _COUNTS.items()}
    if action == "k8s_apply":
        found["objects"] = [
            {"kind": str(row.get("kind")), "name": str(row.get("name")), "result": str(row.get("result"))}
            for row in result.get("objects") or ()
            if row.get("result") in _CHANGES
        ][:_MOST]
        others = [
            f"{row.get('field')} of {row.get('kind')} {row.get('name')}, by {row.get('manager')}" for row in result.get("foreign") or ()
        ]
        if others:
            found["foreign"] = [one[:_LONGEST] for one in others][:_MOST]
    elif action == "slurm_tenants":
        found |= {name: [str(one)[:_LONGEST] for one in result.get(name) or ()][:_MOST] for name in ("kept", "problems")}
    elif action == "slurm_sync":
        draining = result.get("draining") or ()
        found["draining"] = {
            "nodes": [f"{row.get('node')} ({row.get('cause')})" for row in draining][:_MOST],
            "busy": not all(row.get("free") for row in draining),
        }
    elif action == "slurm_reconcile" and "left" in result:
        found["waiting"] = [_waiting(row) for row in (result.get("waiting") or ())][:_MOST]
        # Whether a later run is needed even without a change in Kubernetes: for a maintenance window, a repaired node, a partition's last job.
        found["left"] = bool(result["left"])
        found["lines"] = [str(one)[:_LONGEST] for one in (result.get("lines") or ())][:_MOST]
    return found


def _waiting(row: Json) -> str:
    jobs = ", ".join(f"job {job.get('id')} of {job.get('user')}" for job in (row.get("jobs") or ())[:5])
    return f"{row.get('node')} ({jobs})" if jobs else str(row.get("node"))


def _message(result: Json) -> str:
    text = result.get("msg") or result.get("exception") or result.get("censored") or "no reason given"
    return " ".join(str(text).split())[:_LONGEST]
