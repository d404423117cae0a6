# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurmstepd's own root, while a user with sudo moves the jail's directories from another node."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import Cluster, eventually
from .conftest import Script
from .planted import EVIL, LIBRARIES, SYS_ADMIN

pytestmark = pytest.mark.lab

# /usr and a directory of links to what it has change places, some hundred times a second.
EXCHANGE = """
import ctypes, os, sys, time
kernel = ctypes.CDLL(None, use_errno=True)
while os.path.exists("/disk/exchange"):
    if kernel.syscall(316, -100, b"/planted-usr", -100, b"/usr", 2) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    time.sleep(0.003)
"""
STEPS = 3


@pytest.fixture(name="plant")
def planted(script: Script, root: Path) -> Iterator[None]:
    """What slurmstepd would load and wait for. Taken away by the machine, since programs of the jail wait for that pipe, too."""
    links = "for n in /usr/*; do ln -s /planted-usr/$(basename $n) /planted-usr/; done"
    script(
        f"cat >evil.c <<'END'{EVIL}END\ngcc -shared -fPIC -o evil.so evil.c; cat >exchange.py <<'END'{EXCHANGE}END\n"
        f"sudo mkdir -p /planted-usr {LIBRARIES}/hwloc; sudo sh -c '{links}'; sudo cp evil.so {LIBRARIES}/hwloc/hwloc_evil.so\n"
        "sudo sh -c 'umask 0; : >/planted'; touch /disk/exchange"
    )
    localtime = root / "etc" / "localtime"
    saved = os.readlink(localtime) if localtime.is_symlink() else None
    try:
        yield
    finally:
        localtime.unlink(missing_ok=True)
        if saved:
            localtime.symlink_to(saved)
        script("rm -f /disk/exchange moved-*.txt", check=False)
        eventually(lambda: not script("squeue -h -n exchange", check=False), "the job that exchanges ended")
        if (root / "usr" / "bin").is_symlink():
            usr, other = str(root / "usr").encode(), str(root / "planted-usr").encode()
            assert ctypes.CDLL(None).syscall(316, -100, other, -100, usr, 2) == 0
        shutil.rmtree(root / "planted-usr")
        for path in ("planted", f"{LIBRARIES}/hwloc/hwloc_evil.so", "home/alice/evil.so", "home/alice/evil.c", "home/alice/exchange.py"):
            with contextlib.suppress(FileNotFoundError):
                (root / path.lstrip("/")).unlink()


@pytest.mark.usefixtures("plant")
def test_what_a_sudo_user_renames_and_plants_reaches_no_slurmstepd(cluster: Cluster, script: Script, root: Path) -> None:
    """The steps that begin meanwhile were asked for before: the user's own programs would wait for the jail's time zone, too."""
    exchange = script("sbatch --parsable -J exchange -w two-0 -o exchange.txt --wrap 'sudo python3 exchange.py'")
    eventually(lambda: script(f"squeue -h -j {exchange} -o %T") == "RUNNING", "the exchange")
    jobs = script(f"for i in $(seq {STEPS}); do sbatch --parsable -H -w one-0 -o moved-%j.txt --wrap 'echo ran'; done").split()
    (root / "etc" / "localtime").unlink()
    os.mkfifo(root / "etc" / "localtime")
    for job in jobs:
        cluster.slurm("scontrol", "release", job)
        eventually(lambda job=job: not cluster.slurm("squeue", "-h", "-j", job, "-t", "PD,R,CG,CF"), f"the end of {job}", timeout=30)  # type: ignore[misc]
    assert cluster.slurm("squeue", "-h", "-j", exchange, "-o", "%T").strip() == "RUNNING", (root / "home/alice/exchange.txt").read_text()
    assert [(root / f"home/alice/moved-{job}.txt").read_text() for job in jobs] == ["ran\n"] * STEPS
    loaded = [line.split() for line in (root / "planted").read_text().splitlines()]
    assert [line for line in loaded if int(line[1], 16) & SYS_ADMIN] == []


def test_files_of_jobs_lie_where_users_say(script: Script) -> None:
    """Below a name that only this jail's root has, by a link there, in /opt and /var, and a directory that was just made."""
    script("sudo install -d -o alice /data-of-ours /opt/of-ours /var/of-ours; sudo ln -s /data-of-ours /link-of-ours")
    places = ("/data-of-ours", "/link-of-ours", "/opt/of-ours", "/var/of-ours", "/var/tmp")
    step = "sbatch -Q --wait --mem=64M -w one-0 -D $p -o $p/out-$n.txt -e err-$n.txt --wrap 'pwd; echo x >&2'"
    try:
        said = script(
            f"n=0; for p in {' '.join(places)}; do n=$((n+1)); {step} & done; wait\n"
            f"n=0; for p in {' '.join(places)}; do n=$((n+1)); cat $p/out-$n.txt $p/err-$n.txt; rm $p/out-$n.txt $p/err-$n.txt; done"
        )
        assert said.split() == [word for place in places for word in (place.replace("link", "data"), "x")], said
    finally:
        script("sudo rm -r /data-of-ours /opt/of-ours /var/of-ours /link-of-ours")


def test_a_working_directory_that_only_the_jail_has(script: Script) -> None:
    script("sudo mkdir /usr/share/of-ours")
    try:
        assert script("srun -Q -w one-0 -D /usr/share/of-ours pwd").splitlines()[-1] == "/usr/share/of-ours"
    finally:
        script("sudo rmdir /usr/share/of-ours")
