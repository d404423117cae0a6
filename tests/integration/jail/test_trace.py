# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What processes with capabilities, or with an identity of the pod, touch on the jail's volume while a cluster works: nothing that is not explained here."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from ..conftest import Cluster, eventually
from ..watch import ASK_IN_JAIL, ASKED, OF_PODS, OF_STEPS, Explained, Watch, unexplained
from .conftest import Script, enter_by, submit
from .test_failure import in_service

pytestmark = pytest.mark.lab


# The document's script, which each pod runs before its daemon (see conftest).
SCRIPT = Explained("cat", "pod", "open", "/etc/corral-jail", "an administrator's own script")
# What MPI programs do first: by PMIx they connect to slurmstepd.
MPI = "import ctypes; l = ctypes.CDLL('libmpi.so.40'); l.MPI_Init(None, None); l.MPI_Finalize()"


def test_who_has_rights_touches_nothing_that_is_not_explained(cluster: Cluster, script: Script, root: Path, mpi: str) -> None:
    """Steps, sbcast, MPI, a session in a job, a login by either way that makes the key for workers, a worker and a login node that begin, users that come and
    go, and a health check, which is made each five seconds here."""
    enter_by(cluster, "Pivot")
    script("rm -f .ssh/corral .ssh/corral.pub", user="bob")
    with Watch(root) as watch:
        cluster.kubectl("exec", "-n", cluster.namespace, "jail-one-0", "-c", "slurmd", "--", "python3", "-c", ASK_IN_JAIL)
        script("test -e .ssh/corral.pub", user="bob")
        script("srun -N2 --mpi=pmi2 true; sbatch -Q --wait -w one-0 -o t.txt --wrap 'srun --task-epilog=/usr/bin/true true'; rm t.txt")
        script("salloc -Q -w one-0 sbcast -f /etc/hostname /home/alice/cast; rm cast")
        if mpi == "pmix":
            script(f"srun -N2 --mpi=pmix python3 -c {shlex.quote(MPI)}")
        job = submit(script, "-w one-0")
        script("ssh one-0 true")
        script(f"scancel {job}")
        cluster.kubectl("delete", "pod", "-n", cluster.namespace, "jail-two-0", "--wait=true")
        eventually(lambda: in_service(cluster), "the worker to be back")
        cluster.spec["users"].append({"name": "dora", "uid": 10009, "sshKeys": cluster.spec["users"][0]["sshKeys"]})
        cluster.spec["login"]["entry"] = "Chroot"
        try:
            assert cluster.site().rc == 0
        finally:
            cluster.spec["users"].pop()
            assert cluster.site().rc == 0
        eventually(lambda: cluster.ssh("true", check=False).returncode == 0, "ssh after the roll")
        script("rm -f .ssh/corral .ssh/corral.pub", user="bob")
        script("test -e .ssh/corral.pub", user="bob")
    shutil.rmtree(root / "home" / "dora", ignore_errors=True)
    assert [touch for touch in watch.touched if ASKED.covers(touch)], "it does not see connections"
    assert unexplained(watch.touched, (*OF_STEPS, *OF_PODS, ASKED, SCRIPT)) == []
