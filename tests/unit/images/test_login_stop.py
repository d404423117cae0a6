# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a login pod ends: nobody new is let in, users are told on their terminals, and it goes when they have left."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "images" / "slurm" / "entry" / "login_stop.sh"
# In mount namespaces of its own: the terminals of this machine are not told, and its nologin is left alone. A terminal is opened, and what came of it printed.
POD = """
set -eu
mount --make-rprivate /
mount -t tmpfs none /mnt
touch /mnt/used
mkdir /mnt/upper /mnt/work
mount -t overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work none /etc
mount -t devpts -o newinstance,ptmxmode=0666 none /dev/pts
python3 - "$@" <<'END'
import ctypes, os, select, subprocess, sys, threading, time
libc = ctypes.CDLL(None)
libc.ptsname.restype = ctypes.c_char_p
master = os.open("/dev/pts/ptmx", os.O_RDWR | os.O_NOCTTY)
assert libc.unlockpt(master) == 0
slave = os.open(libc.ptsname(master), os.O_RDWR | os.O_NOCTTY)
script, seconds, leaves = sys.argv[1:]
if leaves == "0":
    os.unlink("/mnt/used")
elif leaves:
    threading.Timer(float(leaves), os.unlink, ["/mnt/used"]).start()
began = time.monotonic()
subprocess.run([script, seconds, "sh", "-c", "! test -e /mnt/used"], check=True)
print(f"{time.monotonic() - began:.1f}")
print(os.path.exists("/etc/nologin"))
said = b""
while select.select([master], [], [], 0.1)[0]:
    said += os.read(master, 65536)
print(said.decode())
END
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, so it needs root")


def stop(seconds: int, leaves: str) -> tuple[float, bool, list[str]]:
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", POD, "_", str(SCRIPT), str(seconds), leaves], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    took, nologin, *said = done.stdout.splitlines()
    return float(took), nologin == "True", [line.strip("\a") for line in said if line]


def test_users_are_told_and_the_pod_goes_when_they_have_left() -> None:
    took, nologin, said = stop(600, "1.5")
    assert took < 60, "not the deadline"
    assert nologin
    assert len(said) == 1 and said[0].startswith(f"*** The login node {os.uname().nodename} ends at "), said
    assert said[0].endswith(" UTC, and everything that runs on it: save your work and log out. Jobs in Slurm continue. ***")


def test_at_the_deadline_it_goes_all_the_same_and_says_when_little_is_left() -> None:
    began = time.monotonic()
    took, _nologin, said = stop(11, "")
    assert 10 <= took <= time.monotonic() - began
    assert len(said) == 2, said


def test_a_pod_that_nobody_uses_goes_at_once() -> None:
    took, _nologin, said = stop(600, "0")
    assert took < 60
    assert said == []
