# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurmd.sh leaves of a pod's directories and devices to users, for whom slurmd writes there (sbcast)."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "images" / "slurm" / "entry" / "slurmd.sh"
# As container runtimes and the kubelet make them; a user's file is in the place of a directory of the jail's, from an earlier life of the pod.
POD = """
set -eu
mount --make-rprivate /
mount -t tmpfs none /var/spool
mkdir /var/spool/corral-overlay
for directory in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o mode=1777 none $directory; done
mount -t tmpfs -o mode=0777 none /var/spool/corral-overlay
mount -t tmpfs -o mode=0755 none /run
mkdir -m 0777 /run/munge /run/sack /run/slurm /run/slurm-key
mkdir -m 1777 /run/lock
mkdir /tmp/roots
mkdir -m 0777 /run/own
as_user() { setpriv --reuid=10001 --regid=10001 --clear-groups "$@"; }
as_user touch /dev/shm/corral /var/tmp/left /var/spool/corral-overlay/7
CORRAL_CLOSED=/run/own
rooms="/run/own /tmp /var/tmp /dev/shm /run/lock /run/munge /run/sack /run/slurm /run/slurm-key /var/spool/corral-overlay"
for room in $rooms; do as_user touch $room/before && echo before; rm -f $room/before; done
close_to_users
for room in $rooms; do as_user touch $room/after 2>/dev/null && echo "after: $room"; done
ls -d /dev/shm/* /var/tmp/* /var/spool/corral-overlay/* /tmp/* 2>/dev/null || true
setpriv --reuid=64031 --regid=64031 --clear-groups touch /run/munge/munge.socket.2 && echo munged
setpriv --reuid=64030 --regid=64030 --clear-groups touch /run/sack/sack.socket /run/slurm-key/slurm.key && echo sackd
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts, so it needs root")
def test_no_directory_of_the_pod_is_for_users() -> None:
    found = re.search(r"(?ms)^close_to_users\(\) \{.*?^\}", SCRIPT.read_text())
    assert found
    done = subprocess.run(["unshare", "-m", "bash", "-c", found[0] + POD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == [*["before"] * 10, "/tmp/roots", "munged", "sackd", ""], done.stdout


# A /dev as runtimes make it, and a device over a file of /proc. What is opened there as the user gets another mode by root, as slurmd does for sbcast.
DEVICES = """
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=0755 none /mnt
mkdir /mnt/dev /mnt/submounts
mount -t tmpfs -o mode=0755,nosuid none /mnt/dev
mkdir /mnt/dev/pts
ln -s pts/ptmx /mnt/dev/ptmx
mknod -m 0666 /mnt/dev/null c 1 3
mknod -m 0666 /mnt/dev/zero c 1 5
: >/mnt/dev/log
mount -t tmpfs none /mnt/submounts
: >/mnt/submounts/termination-log
chmod 0666 /mnt/submounts/termination-log
mount --bind /mnt/submounts/termination-log /mnt/dev/log
mount -t devpts -o newinstance,ptmxmode=0666 none /mnt/dev/pts
mount --move /mnt/dev /dev
mount --bind /dev/null /proc/version
mkdir -p /mnt/submounts/0 && : >/mnt/submounts/0/shared && chmod 0666 /mnt/submounts/0/shared
mount --bind /mnt/submounts/0/shared /mnt/submounts/0/shared
cat >/mnt/sbcast.py <<'END'
import os, sys
os.setresgid(10001, 10001, 0), os.setresuid(10001, 10001, 0)
try:
    fd = os.open(sys.argv[1], os.O_WRONLY)
    os.setresuid(0, 0, 0), os.setresgid(0, 0, 0)
    os.fchmod(fd, 0o666)
    print("changed", sys.argv[1])
except OSError as error:
    print(error.strerror, sys.argv[1])
END
files="/dev/null /dev/zero /dev/pts/ptmx /proc/version /dev/log /mnt/submounts/0/shared"
for file in $files; do python3 /mnt/sbcast.py $file; done
close_devices
for file in $files; do python3 /mnt/sbcast.py $file; done
: >/dev/null
head -c 1 /dev/zero | wc -c
script -qec tty /dev/null </dev/null
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts, so it needs root")
def test_nobody_gets_a_device_of_the_pod() -> None:
    found = re.search(r"(?ms)^close_devices\(\) \{.*?^\}", SCRIPT.read_text())
    assert found
    done = subprocess.run(["unshare", "-m", "bash", "-c", found[0] + DEVICES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = ("/dev/null", "/dev/zero", "/dev/pts/ptmx", "/proc/version", "/dev/log", "/mnt/submounts/0/shared")
    before, after = done.stdout.splitlines()[:6], done.stdout.splitlines()[6:]
    assert before == [f"changed {file}" for file in files]
    assert after == [*(f"Read-only file system {file}" for file in files[:5]), f"changed {files[5]}", "1", "/dev/pts/0"]
