# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of a node's health checks costs: the set of a node without GPUs, on this machine, with commands of Slurm and of the jail that respond at once.

So it is the checks themselves that are measured. Memory is counted once where processes share it (PSS), summed up over all that run at a time.
"""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

PROGRAM = Path(__file__).resolve().parents[2] / "images" / "slurm" / "health.py"
RUNS = 15
PROGRAMS = {
    "scontrol": 'case "$1" in show) echo "NodeName=n1 State=IDLE RealMemory=1" ;; esac',
    "sinfo": "echo '(null)'",
    "munge": "true",
    "jail-exec": "true",
}


@dataclass(frozen=True)
class Cost:
    """The median of the runs; memory is the most of all."""

    seconds: float
    cpu_seconds: float
    mebibytes: float


def _kibibytes(pid: int) -> int:
    """Of a process and all below it; those that end meanwhile count as nothing."""
    total = 0
    with contextlib.suppress(OSError, ValueError):
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        total += sum(_kibibytes(int(child)) for child in children)
    return total


def measure(runs: int = RUNS) -> Cost:
    """Run the checks as slurmd does. The first run, which compiles them, does not count."""
    seconds, cpu, most = [], [], 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "node").write_text("n1\n")
        for name, script in PROGRAMS.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        options = [f"--node-file={folder}/node", f"--folder={folder}/run", f"--jail-exec={folder}/jail-exec", f"--settings={folder}/none"]
        for number in range(runs + 1):
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            command = [sys.executable, "-Es", str(PROGRAM), *options]
            with subprocess.Popen(command, env={"PATH": f"{folder}:/usr/bin:/bin"}, stdout=subprocess.DEVNULL) as process:
                # Every second run is sampled for memory, and not timed: sampling takes time.
                while number % 2 and process.poll() is None:
                    most = max(most, _kibibytes(process.pid))
            if process.returncode:
                raise RuntimeError(f"the health check ended with status {process.returncode}")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if number and not number % 2:
                seconds.append(time.monotonic() - began)
                cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return Cost(median(seconds), median(cpu), most / 1024)


if __name__ == "__main__":
    print(measure())
