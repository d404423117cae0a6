# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that end when a test says so, and what Slurm shows of them and of the nodes meanwhile."""

from __future__ import annotations

import json

from .conftest import Cluster, eventually


def submit(cluster: Cluster, flags: str, end: str) -> str:
    """Start a job before all that wait, and return its number when it runs. It ends when alice has a file ``end``."""
    script = f"until test -e {end}; do sleep 1; done; echo $SLURM_JOB_ID $SLURM_RESTART_COUNT >> done"
    number = cluster.ssh(f"sbatch --parsable -o /dev/null {flags} --wrap '{script}'").stdout.strip()
    cluster.slurm("scontrol", "update", f"jobid={number}", "priority=4294967293")
    eventually(lambda: state(cluster, number) == ["RUNNING"], f"job {number} runs ({flags})", 30)
    return number


def state(cluster: Cluster, number: str) -> list[str]:
    found: list[str] = json.loads(cluster.slurm("squeue", "--json", f"--jobs={number}", "--states=all"))["jobs"][0]["job_state"]
    return found


def nodes(cluster: Cluster) -> dict[str, str]:
    """State and reason by node, as sinfo shows them."""
    lines = cluster.slurm("sinfo", "-h", "-N", "-o", "%N|%T|%E").splitlines()
    return {line.split("|")[0]: line.split("|", 1)[1] for line in lines}
