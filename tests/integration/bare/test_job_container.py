# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Beside Slurm's own private /tmp (job_container/tmpfs), which moves tasks to another mount namespace: steps fail then, and run nowhere else."""

from __future__ import annotations

from .hosts import CONTROLLER, NODES, PLUGIN, cluster, eventually

LINES = "JobContainerType=job_container/tmpfs\nPrologFlags=Contain\n"
LOOK = "echo $SLURMD_NODENAME; test -e /etc/corral-jail && echo jail; touch /tmp/mine && ls /tmp"


def test_a_step_fails_and_runs_nowhere_else() -> None:
    files = {"job_container.conf": "AutoBasePath=true\nBasePath=/var/spool/containers Dirs=/tmp,/dev/shm\n"}
    with cluster(dict.fromkeys((CONTROLLER, *NODES), PLUGIN), LINES, files) as made:
        for node in NODES:
            done = made.head.run("srun", "-Q", "-w", node, "sh", "-c", LOOK, user="ada", check=False)
            assert done.returncode != 0 and done.stdout == ""
            assert "mine" not in made.machines[node].sh("ls /tmp /dev/shm")
        eventually(lambda: made.states() == ["idle"], "the nodes stay in service")
