# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Beside Slurm's own private /tmp (job_container/tmpfs), which moves tasks to another mount namespace: in the jail, or not at all."""

from __future__ import annotations

import pytest

from .machines import CONTROLLER, NODES, PLUGIN, cluster, eventually

LINES = "JobContainerType=job_container/tmpfs\nPrologFlags=Contain\n"
LOOK = "echo $SLURMD_NODENAME; test -e /etc/corral-jail && echo jail; touch /tmp/mine && ls /tmp"


@pytest.mark.parametrize("whole_step", [False, True], ids=["default", "EntireStepInNS"])
def test_a_step_is_in_the_jail_or_fails(whole_step: bool) -> None:
    files = {
        "job_container.conf": f"AutoBasePath=true\nBasePath=/var/spool/containers Dirs=/tmp,/dev/shm EntireStepInNS={str(whole_step).lower()}\n"
    }
    with cluster(dict.fromkeys((CONTROLLER, *NODES), PLUGIN), LINES, files) as made:
        done = made.head.run("srun", "-Q", "-w", "n1", "sh", "-c", LOOK, user="ada", check=False)
        script = f"{LOOK}; srun sh -c 'ls /tmp'"
        batch = ("sbatch", "-Q", "-w", "n2", "--wait", "-D", "/home/ada", "-o", "out", f"--wrap={script}")
        written = made.head.run(*batch, user="ada", check=False)
        output = made.head.read("/mnt/jail/home/ada/out")
        if whole_step:
            assert (done.returncode, done.stdout.split()) == (0, ["n1", "jail", "mine"])
            assert (written.returncode, output.split()) == (0, ["n2", "jail", "mine", "mine"])
        else:
            assert (done.returncode, done.stdout) == (1, "") and "container_p_join" in done.stderr
            assert written.returncode != 0 and "container_p_join" in output and "n2\n" not in output
        for node in NODES:
            assert "mine" not in made.machines[node].sh("ls /tmp /dev/shm")
        eventually(lambda: made.states() == ["idle"], "the nodes stay in service")
