# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What processes with capabilities, or with an identity of the pod, touch on the jail's volume while a cluster works: nothing that is not explained here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ..conftest import Cluster, eventually
from ..watch import OF_STEPS, Explained, Watch, unexplained
from .conftest import Script, submit
from .test_failure import in_service

pytestmark = pytest.mark.lab


NAMES = "users' names, by nss_corral.c: a plain file, by descriptor, without waiting, and none with an id or a name of the pod's own"
USERS = "the job that writes users, without a capability that leads out: by descriptors from the jail's root on, and through no link"
FIRST_LOGIN = "what a user lacks at the first login: by descriptors from the jail's root on, and through no link; in the home with the user's own rights"
EXPLAINED = (
    Explained(
        "slurmctld-wlm|slurmd-wlm|slurmd|scontrol|squeue|sinfo|sacctmgr|sacct|scancel|getent|id"
        r"|python3\.\d+ first_login\.py",
        "pod",
        "open",
        "/etc/(passwd|group)",
        NAMES,
    ),
    Explained("sshd(-session)?|sshd-auth", "pod|jail", "open", "/etc/(passwd|group)", NAMES),
    Explained("sshd(-session)?", "pod", "open", "/etc/corral-jail", "a session enters as a step does"),
    Explained("sshd(-session)?", "jail", "open", "/|/opt|/var|/var/spool", "a session enters as a step does"),
    Explained(r"python3\.\d+ users\.py", "pod", "open", "/|/(disk|fast|scratch|home)(/.*)?|/etc(/.*)?", USERS),
    Explained(r"python3\.\d+ users\.py", "-", "make|remove", "/(home|etc)/.*", USERS),
    Explained(r"python3\.\d+ first_login\.py", "pod", "open", r"/|/home(/[^/]+)?|/etc(/\.pwd\.lock|/ssh(/ssh_config\.d)?)?", FIRST_LOGIN),
    Explained(r"python3\.\d+ first_login\.py", "-", "make|remove", r"/home/[^/]+|/etc/\.pwd\.lock", FIRST_LOGIN),
)


def test_who_has_rights_touches_nothing_that_is_not_explained(cluster: Cluster, script: Script, root: Path) -> None:
    """Steps, a session in a job, a login that makes the key for workers, a worker that begins, users that come and go, and a health check, which is made each
    five seconds here."""
    script("rm -f .ssh/corral .ssh/corral.pub", user="bob")
    with Watch(root) as watch:
        script("test -e .ssh/corral.pub", user="bob")
        script("srun -N2 --mpi=pmi2 true; sbatch -Q --wait -w one-0 -o t.txt --wrap 'srun --task-epilog=/usr/bin/true true'; rm t.txt")
        job = submit(script, "-w one-0")
        script("ssh one-0 true")
        script(f"scancel {job}")
        cluster.kubectl("delete", "pod", "-n", cluster.namespace, "jail-two-0", "--wait=true")
        eventually(lambda: in_service(cluster), "the worker to be back")
        cluster.spec["users"].append({"name": "dora", "uid": 10009, "sshKeys": cluster.spec["users"][0]["sshKeys"]})
        try:
            assert cluster.site().rc == 0
        finally:
            cluster.spec["users"].pop()
            assert cluster.site().rc == 0
    shutil.rmtree(root / "home" / "dora", ignore_errors=True)
    assert unexplained(watch.touched, (*OF_STEPS, *EXPLAINED)) == []
