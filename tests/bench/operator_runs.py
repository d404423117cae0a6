# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of the operator that find nothing to do: by the zygote's forks, and by ansible-runner's own start for comparison."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import yaml

from corral_operator.engine import Cold, Engine, Run, Warm
from corral_operator.play import Request

WARM, COLD = 40, 5


def measure(document: Path, scratch: Path) -> dict[str, Any]:
    """Return the seconds of warm and of cold runs, and the zygote's memory in MiB."""
    home = scratch / "operator"
    (home / "env").mkdir(parents=True)
    (home / "project").mkdir()
    (home / "cluster.json").write_text(json.dumps(yaml.safe_load(document.read_text())))
    variables = {"slurm_cluster_file": str(home / "cluster.json"), "cluster_base_create_namespace": False, "slurm_workers_scale_timeout": 0}
    (home / "env" / "extravars").write_text(json.dumps(variables))
    return asyncio.run(_measure(home))


async def _measure(home: Path) -> dict[str, Any]:
    warm = Warm()
    await warm.open()
    try:
        await _seconds(warm, home, 2)  # the first wait until the zygote is warm
        quick = await _seconds(warm, home, WARM)
        memory = warm.memory
    finally:
        await warm.close()
    slow = await _seconds(Cold(), home, COLD)
    return {
        "p50": statistics.median(quick),
        "p99": sorted(quick)[-1],  # of so few the longest
        "cold": statistics.median(slow),
        "memory": memory,
    }


async def _seconds(engine: Engine, home: Path, count: int) -> list[float]:
    found = []
    for number in range(count):
        request = Request(f"{type(engine).__name__}-{count}-{number}", "corral.slurm.site", str(home), str(home / "runs"))
        outcome = await Run(engine, request, timeout=300, grace=5).go()
        if not outcome.successful or outcome.changed:
            sys.exit(f"bench: the operator's run did not find the cluster at rest: {outcome.failure or outcome.changes}")
        found.append(outcome.seconds)
    return found
