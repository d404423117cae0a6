# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the prolog and the epilog cost a user's `srun true`: two nodes of one Slurm on this machine that differ in these alone, asked in turn.

Both have the flag of slurm.conf by which slurmctld waits for a prolog, if only for the extern step of each job; without it, Slurm's own part of any prolog
takes 15 ms of an srun's 38. The hooks have the settings that a document without a word has. An srun does not wait for its epilog, so that is timed by itself,
as slurmd starts it.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import job_hooks
from ansible_collections.corral.slurm.tests.bench.clock import Comparison, pairs, undisturbed
from ansible_collections.corral.slurm.tests.bench.steps import WARM, Shell
from ansible_collections.corral.slurm.tests.integration.bare.hosts import NODES, PLUGIN, cluster, eventually

ENTRY = Path(__file__).resolve().parents[2] / "images" / "slurm" / "entry"
PAIRS = 60
RUNS = 30
# What spec.health is without a word, as far as hooks are concerned.
HEALTH: dict[str, Any] = {
    "enabled": True,
    "prolog": {"checks": [], "scripts": []},
    "epilog": {"checks": [], "scripts": [], "killLeftovers": True},
}


@dataclass(frozen=True)
class Cost:
    """``srun``: with both hooks against without; ``epilog``: the median of its own runs, in seconds."""

    srun: Comparison
    epilog: float


def measure() -> Cost:
    """The programs are the checkout's, whatever image the machines have."""
    with undisturbed(), cluster(dict.fromkeys(NODES, PLUGIN), "PrologFlags=Contain\n") as made:
        ours, plain = NODES
        machine = made.machines[ours]
        machine.write(job_hooks.PROGRAM, (ENTRY / "job_hook.sh").read_text(), 0o755)
        for name, text in job_hooks.files(HEALTH).items():
            machine.write(f"{job_hooks.FOLDER}/{name}", text)
        for name, text in job_hooks.programs(HEALTH).items():
            machine.write(f"/etc/slurm/{name}", text, 0o755)
        lines = "".join(f"{key}=/etc/slurm/{name}\n" for key, name in job_hooks.slurm_conf(HEALTH).items())
        machine.write("/etc/slurm/slurm.conf", lines + machine.read("/etc/slurm/slurm.conf"))
        machine.sh("kill $(cat /var/spool/slurmd/slurmd.pid); while pgrep -x slurmd; do sleep 0.1; done; touch /run/began")
        machine.sh(f"slurmd -N {ours} -d /opt/corral/sbin/slurmstepd")
        shells = [Shell(made.machines[name], "--partition=main") for name in (ours, plain)]

        def took(shell: Shell) -> float:
            # A job before it has not left its node when its srun ends, and a new one would wait for that.
            eventually(lambda: made.states() == ["idle"], "all nodes idle")
            return shell.seconds("true")

        # The hooks run there, or this measures nothing.
        machine.write(f"{job_hooks.FOLDER}/prolog.conf", "script mark 5 log /run/mark\n")
        machine.write("/run/mark", "#!/bin/sh\ntouch /run/marked\n", 0o755)
        took(shells[0])
        machine.sh("[ -e /run/marked ]")
        machine.write(f"{job_hooks.FOLDER}/prolog.conf", job_hooks.files(HEALTH)["prolog.conf"])
        found = pairs(partial(took, shells[0]), partial(took, shells[1]), PAIRS, WARM)
        for shell in shells:
            shell.close()
        script = f"for i in $(seq {RUNS}); do s=$EPOCHREALTIME; {job_hooks.PROGRAM} epilog; e=$EPOCHREALTIME; echo $((${{e/./}} - ${{s/./}})); done"
        alone = machine.run("env", "SLURM_JOB_ID=1", "SLURM_JOB_UID=10001", "bash", "-ec", script).stdout.split()
        return Cost(found, statistics.median(int(one) for one in alone) / 1e6)


if __name__ == "__main__":
    began = time.monotonic()
    print(measure(), f"in {time.monotonic() - began:.0f} s")
