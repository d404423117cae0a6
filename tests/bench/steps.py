# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the jail costs a user's `srun`: two nodes of one Slurm on this machine that differ in plugstack.conf alone, asked in turn.

No Kubernetes is needed, so nothing of it is measured. The clock is read on the node itself, around the command, by a shell that is there already.
"""

from __future__ import annotations

import os
import statistics
import subprocess
from dataclasses import dataclass

from ansible_collections.corral.slurm.tests.integration.bare.machines import (
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


@dataclass(frozen=True)
class Comparison:
    """Seconds with the plugin and without, pair by pair."""

    command: str
    pairs: list[tuple[float, float]]

    @property
    def ratio(self) -> float:
        return statistics.median(with_jail / without for with_jail, without in self.pairs)

    def __str__(self) -> str:
        ours, base = (statistics.median(side) * 1000 for side in zip(*self.pairs, strict=True))
        low, _median, high = statistics.quantiles([a / b for a, b in self.pairs], n=4)
        return f"{ours:.1f} ms against {base:.1f} ms; half of {len(self.pairs)} pairs in {low:.2f} … {high:.2f}"


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


def _compare(made: Cluster, command: str, jobs: dict[str, str], pairs: int) -> Comparison:
    """``jobs``: an allocation that the steps are to run in, by machine; without one, each srun is a job of its own."""
    shells = [
        Shell(made.machines[name], jobs.get(name, f"--partition={partition}")) for name, partition in ((NODES[0], "main"), (PLAIN, "plain"))
    ]
    measured = []
    for number in range(WARM + pairs):
        took = {}
        # Each side is first in every second pair.
        for shell in shells if number % 2 else reversed(shells):
            if not jobs:
                # A job before it has not left its node when its srun ends, and a new one would wait for that.
                eventually(lambda: made.states() == ["idle"], "all nodes idle")
            took[shell.machine.name] = shell.seconds(command)
        measured.append((took[NODES[0]], took[PLAIN]))
    for shell in shells:
        shell.close()
    return Comparison(f"srun {command}" + (" in an allocation" if jobs else ""), measured[WARM:])


def _allocate(made: Cluster, name: str, partition: str) -> str:
    machine = made.machines[name]
    machine.sh(f"salloc -Q --no-shell --partition={partition} --nodelist={name}")
    return f"--jobid={machine.sh(f'squeue -h -w {name} -o %i')}"


def compare() -> list[Comparison]:
    """A job of one task, one of 50, and steps of the same in an allocation that is there."""
    one, many = "true", "-n50 --overcommit true"
    # What else this machine does shall not be measured: on a busy one the quartiles are ten times as far apart without this.
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        with cluster({NODES[0]: PLUGIN}) as made:
            found = [_compare(made, one, {}, PAIRS), _compare(made, many, {}, PAIRS // 6)]
            jobs = {NODES[0]: _allocate(made, NODES[0], "main"), PLAIN: _allocate(made, PLAIN, "plain")}
            return [*found, _compare(made, one, jobs, PAIRS), _compare(made, many, jobs, PAIRS // 6)]
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
