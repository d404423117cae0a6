# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of the operator that find nothing to do: by the zygote's forks, and by ansible-runner's own start for comparison.

By itself: ``tools/run --lab python tests/bench/operator_runs.py DOCUMENT``, for a cluster that is up and at rest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from corral_operator.api.client import MERGE, Client, list_all
from corral_operator.reconcile.children import INSTANCE, KINDS
from corral_operator.runs.engine import Cold, Engine, Warm
from corral_operator.runs.outcome import Outcome
from corral_operator.runs.playbook import Request
from corral_operator.runs.run import Run

WARM, COLD = 40, 3


def measure(document: Path, scratch: Path, warm: int = WARM, cold: int = COLD) -> dict[str, Any]:
    """Return the seconds of warm runs, of cold ones and of bare PATCHes, what warm runs cost, and the zygote's memory in MiB."""
    home = scratch / "operator"
    for name in ("env", "project"):
        (home / name).mkdir(parents=True)
    cluster = yaml.safe_load(document.read_text())
    (home / "cluster.json").write_text(json.dumps(cluster))
    variables = {
        "slurm_cluster_file": str(home / "cluster.json"),
        "corral_force": True,
        "cluster_base_create_namespace": False,
        "slurm_workers_scale_timeout": 0,
        "slurm_workers_rollout_timeout": 0,
    }
    (home / "env" / "extravars").write_text(json.dumps(variables))
    found = asyncio.run(_measure(home, warm, cold))
    bare = asyncio.run(_patches(cluster["metadata"]["name"], cluster["metadata"].get("namespace", "default"), warm))
    return {**found, "bare": statistics.median(bare)}


async def _measure(home: Path, warm: int, cold: int) -> dict[str, Any]:
    engine = Warm()
    await engine.open()
    try:
        await _run(engine, home, "first")  # waits until the zygote is warm
        before = _cpu(engine)
        quick = [await _run(engine, home, f"warm-{number}") for number in range(warm)]
        spent = _cpu(engine) - before
        memory = engine.memory
    finally:
        await engine.close()
    slow = [await _run(Cold(), home, f"cold-{number}") for number in range(cold)]
    seconds = sorted(outcome.seconds for outcome in quick)
    return {
        "p50": statistics.median(seconds),
        "p99": seconds[-1],  # of so few the longest
        "cpu": spent / warm,
        "cold": statistics.median(outcome.seconds for outcome in slow) if slow else None,
        "memory": memory,
        **_asked(home / "runs" / f"warm-{warm - 1}" / "job_events"),
        "tasks": {name: round(took * 1000, 1) for name, took in quick[-1].progress.seconds.items()},
    }


async def _patches(name: str, namespace: str, turns: int) -> list[float]:
    """Return the seconds that a PATCH of each of the cluster's objects takes, which changes nothing: one after another, on one connection."""
    async with Client(auth.resolve({})) as client:
        found = []
        for kind in KINDS:
            if kind.name in ("Secret", "Pod"):  # Secrets are only read by a run, and pods are the StatefulSets' own
                continue
            path = kind.path(namespace)
            query = {"labelSelector": f"{kind.selector},{INSTANCE}={name}"}
            found += [f"{path}/{one['metadata']['name']}" for one in (await list_all(client, path, what="list", query=query))[0]]
        times = []
        for _turn in range(turns):
            began = time.perf_counter()
            for path in found:
                await client.request("PATCH", path, what=f"patch {path}", body={}, content_type=MERGE)
            times.append(time.perf_counter() - began)
        return times


async def _run(engine: Engine, home: Path, ident: str) -> Outcome:
    asked = Request(ident, "corral.slurm.site", str(home), str(home / "runs"))
    outcome = await Run(engine, asked, timeout=300, grace=5).execute()
    if not outcome.successful or outcome.changes.count:
        sys.exit(f"bench: the operator's run did not find the cluster at rest: {outcome.failure or outcome.changes.objects}")
    return outcome


def _cpu(engine: Warm) -> float:
    """Return the CPU-seconds of all runs that have ended, their own processes included."""
    assert engine._process is not None
    fields = Path(f"/proc/{engine._process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def _asked(events: Path) -> dict[str, int]:
    """Count what a run asked the API server for, by the results of its tasks."""
    results = [(json.loads(path.read_text()).get("event_data") or {}).get("res") or {} for path in events.glob("*.json")]
    return {name: sum(int(one.get(name) or 0) for one in results) for name in ("requests", "writes")}


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("document", type=Path)
    arguments.add_argument("--warm", type=int, default=WARM)
    arguments.add_argument("--cold", type=int, default=COLD)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(options.document, Path(folder), options.warm, options.cold), indent=1))
