# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the jail costs a user's `srun`: two nodes of one Slurm on this machine that differ in plugstack.conf alone, asked in turn.

No Kubernetes is needed, so nothing of it is measured. The clock is read on the node itself, around the command, by a shell that is there already.
"""

from __future__ import annotations

import subprocess
from functools import partial

from ansible_collections.corral.slurm.tests.bench.clock import Comparison, pairs, undisturbed
from ansible_collections.corral.slurm.tests.integration.bare.hosts import (
    ENVIRONMENT,
    NODES,
    PLAIN,
    PLUGIN,
    Cluster,
    Machine,
    cluster,
    eventually,
)

PAIRS = 120
# How many pairs only warm.
WARM = 3


class Shell:
    """A shell on a machine that times what it is told."""

    def __init__(self, machine: Machine, job: str) -> None:
        self.machine = machine
        self.options = f"-Q --nodelist={machine.name} {job}"
        self._process = subprocess.Popen(machine.enter("bash"), env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, command: str) -> float:
        assert self._process.stdin and self._process.stdout
        timed = f"s=$EPOCHREALTIME; srun {self.options} {command} >/dev/null 2>&1 </dev/null; echo $? $s $EPOCHREALTIME\n"
        self._process.stdin.write(timed)
        self._process.stdin.flush()
        status, start, end = self._process.stdout.readline().split()
        if status != "0":
            raise RuntimeError(f"'srun {self.options} {command}' ended {status} on {self.machine.name}")
        return float(end) - float(start)

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _compare(made: Cluster, command: str, jobs: dict[str, str], count: int) -> Comparison:
    """``jobs``: an allocation that the steps are to run in, by machine; without one, each srun is a job of its own."""
    ours, plain = (
        Shell(made.machines[name], jobs.get(name, f"--partition={partition}")) for name, partition in ((NODES[0], "main"), (PLAIN, "plain"))
    )

    def took(shell: Shell) -> float:
        if not jobs:
            # A job before it has not left its node when its srun ends, and a new one would wait for that.
            eventually(lambda: made.states() == ["idle"], "all nodes idle")
        return shell.seconds(command)

    found = pairs(partial(took, ours), partial(took, plain), count, WARM)
    ours.close()
    plain.close()
    return found


def _allocate(made: Cluster, name: str, partition: str) -> str:
    machine = made.machines[name]
    machine.sh(f"salloc -Q --no-shell --partition={partition} --nodelist={name}")
    return f"--jobid={machine.sh(f'squeue -h -w {name} -o %i')}"


def compare() -> dict[str, Comparison]:
    """A job of one task, one of 50, and steps of the same in an allocation that is there."""
    commands = {"srun true": ("true", PAIRS), "srun -n50 --overcommit true": ("-n50 --overcommit true", PAIRS // 6)}
    with undisturbed(), cluster({NODES[0]: PLUGIN}) as made:
        found = {name: _compare(made, command, {}, count) for name, (command, count) in commands.items()}
        jobs = {NODES[0]: _allocate(made, NODES[0], "main"), PLAIN: _allocate(made, PLAIN, "plain")}
        return {
            **found,
            **{f"{name} in an allocation": _compare(made, command, jobs, count) for name, (command, count) in commands.items()},
        }
