# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurmd.sh leaves of a pod's directories to users, for whom slurmd writes there (sbcast)."""

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
mkdir -m 0777 /run/munge /run/slurm
mkdir -m 1777 /run/lock
mkdir /tmp/roots
as_user() { setpriv --reuid=10001 --regid=10001 --clear-groups "$@"; }
as_user touch /dev/shm/corral /var/tmp/left /var/spool/corral-overlay/7
rooms="/tmp /var/tmp /dev/shm /run/lock /run/munge /run/slurm /var/spool/corral-overlay"
for room in $rooms; do as_user touch $room/before && echo before; rm -f $room/before; done
close_to_users
for room in $rooms; do as_user touch $room/after 2>/dev/null && echo "after: $room"; done
ls -d /dev/shm/* /var/tmp/* /var/spool/corral-overlay/* /tmp/* 2>/dev/null || true
setpriv --reuid=64031 --regid=64031 --clear-groups touch /run/munge/munge.socket.2 && echo munged
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts, so it needs root")
def test_no_directory_of_the_pod_is_for_users() -> None:
    found = re.search(r"(?ms)^close_to_users\(\) \{.*?^\}", SCRIPT.read_text())
    assert found
    done = subprocess.run(["unshare", "-m", "bash", "-c", found[0] + POD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == [*["before"] * 7, "/tmp/roots", "munged", ""], done.stdout
