# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""ssh to a worker: into one's job there, and not at all without one."""

from __future__ import annotations

import re

import pytest

from ..conftest import Cluster, eventually
from .conftest import Script, submit

pytestmark = pytest.mark.lab


def test_without_a_job_there_is_no_way(script: Script) -> None:
    said = script("ssh one-0 true || echo status $?", check=False)
    assert "Access denied by pam_slurm_adopt: you have no active jobs on this node" in said, said
    assert said.endswith("status 255"), said


def test_a_job_opens_its_nodes_to_its_user_alone(script: Script) -> None:
    job = submit(script, "-w one-0")
    try:
        seen = script("ssh one-0 'echo $SLURM_JOB_ID; hostname; cat /etc/corral-jail; id -un; pwd'")
        assert seen.split()[0] == job and "jail-one-0" in seen and '"version": 1' in seen and seen.endswith("alice\n/home/alice"), seen
        assert "no active jobs" in script("ssh two-0 true", check=False)
        assert "no active jobs" in script("ssh one-0 true", user="bob", check=False)
    finally:
        script(f"scancel {job}")


def test_a_session_is_where_its_job_is(script: Script) -> None:
    """The job's /tmp, the job's jail, in its mode; not the pod, and no way out of it."""
    job = submit(script, "-w one-0", "--jail-overlay", command='srun bash -c "echo mine >/tmp/mine; echo here >laid-over; sleep 120"')
    try:
        eventually(lambda: script("ssh one-0 cat /tmp/mine", check=False).endswith("mine"), "the job's own /tmp")
        assert script("ssh one-0 cat laid-over").endswith("here")
        assert script("ls laid-over || echo not here", check=False).endswith("not here")
        ways = ("sudo cat /proc/1/root/etc/hostname", "sudo chroot / true", "sudo unshare -m true", "ls /run/munge-key", "ls /mnt/jail/etc")
        said = script(f"ssh one-0 '{'; '.join(f'{way} && echo led out' for way in ways)}'", check=False)
        assert "led out" not in said, said
        assert len(re.findall("Permission denied|Operation not permitted|No such file", said)) == len(ways), said
    finally:
        script(f"scancel {job}")


def test_the_session_goes_with_its_job(script: Script) -> None:
    job = submit(script, "-w one-0")
    said = script(f"(sleep 3; scancel {job}) & ssh one-0 'sleep 77' || echo status $?; wait", check=False)
    assert said.endswith("status 255"), said
    other = submit(script, "-w one-0")
    try:
        left = script("ssh one-0 'ps -eo args' | grep -c '^sleep 77' || true")
        assert left == "0", left
    finally:
        script(f"scancel {other}")


def test_a_job_reaches_its_other_nodes(script: Script) -> None:
    """As launchers by ssh do."""
    seen = script("cat >hop.sh <<'X'\n#!/bin/bash\nssh two-0 hostname\nX\nsbatch --wait -N2 -w one-0,two-0 -o hop.out hop.sh; cat hop.out")
    assert seen.endswith("jail-two-0"), seen


def test_x11_is_forwarded_to_login_and_on_to_a_job(cluster: Cluster, script: Script) -> None:
    """A display that is not there is enough to see that both ends made theirs; the X server is the user's own matter."""
    job = submit(script, "-w one-0")
    try:
        seen = cluster.ssh(
            "echo $DISPLAY; xauth list $DISPLAY | wc -l; ssh -Y one-0 'echo $DISPLAY; xauth list $DISPLAY | wc -l'",
            "-Y",
            env={"DISPLAY": ":77"},
        )
        login, cookies, worker, further = seen.stdout.split()
        assert login.startswith("localhost:") and worker.startswith("localhost:"), seen
        assert int(cookies) >= 1 and int(further) >= 1, seen
    finally:
        script(f"scancel {job}")
