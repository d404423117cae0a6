# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a worker that goes tells slurmctld: nothing, where somebody has said more already."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

MUNGE, SLURM = "socket=/run/munge/munge.socket.2", "disable_sack"


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("IDLE", True),
        ("MIXED+PLANNED", True),
        ("IDLE+POWERING_DOWN", True),
        ("IDLE+DRAIN", False),
        ("DOWN", False),
        ("DOWN*+NOT_RESPONDING", False),
        ("", False),
    ],
)
def test_a_node_that_goes_is_down_unless_somebody_took_it_out(tmp_path: Path, script: Callable[..., str], state: str, told: bool) -> None:
    words = stopped(tmp_path, script, state, MUNGE)
    assert words[:3] == (["update", "nodename=cpu-0", "state=down"] if told else [])
    assert not told or f"AuthInfo={MUNGE},ttl=5" in words, "an order that nobody waits for any more is carried out"


# Its socket is there while it runs, and what it was begun with is noted.
SACKD = """\
#!/bin/bash
echo "$SLURM_SACK_JWKS" >{folder}/sackd-said
cat "$3" >>{folder}/sackd-said
exec python3 -c '
import socket, time
socket.socket(socket.AF_UNIX).bind("{folder}/run/slurm/sack.socket")
time.sleep(60)
'
"""


def test_slurms_own_credential_expires_too_and_is_a_sackds_of_its_own(tmp_path: Path, script: Callable[..., str]) -> None:
    """The container sack may have ended: its socket is not used, and its key is in a volume."""
    words = stopped(tmp_path, script, "IDLE", SLURM)
    assert words[:3] == ["update", "nodename=cpu-0", "state=down"]
    assert (tmp_path / "sackd-said").read_text().split() == [f"{tmp_path}/run/slurm-key/slurm.jwks", "ClusterName=demo", "AuthInfo=ttl=5"]
    assert (tmp_path / "view").read_text().split()[:3] == ["--mount", "mount", "tmpfs"], "the socket of the pod's commands stays"
    assert subprocess.run(["pgrep", "-f", f"{tmp_path}/run/slurm/sack.socket"], check=False).returncode == 1, "it has ended"


@pytest.mark.parametrize("trouble", ["key", "unshare", "mount", "sackd"])
def test_without_a_credential_that_expires_nothing_is_ordered(tmp_path: Path, script: Callable[..., str], trouble: str) -> None:
    assert stopped(tmp_path, script, "IDLE", SLURM, trouble) == []


def stopped(tmp_path: Path, script: Callable[..., str], state: str, auth: str, trouble: str = "") -> list[str]:
    """Run the script; return the words of the order and the slurm.conf that it was given with."""
    said = tmp_path / "said"
    (tmp_path / "node").write_text("cpu-0\n")
    show = f"echo 'NodeName=cpu-0 State={state} Reason=x'" if state else "exit 1"
    (tmp_path / "scontrol").write_text(
        f'#!/bin/sh\ncase $1 in show) {show} ;; *) printf "%s\\n" "$@" >>{said}; cat "$SLURM_CONF" >>{said} ;; esac\n'
    )
    (tmp_path / "slurm.conf").write_text(f"ClusterName=demo\nAuthInfo={auth}\n")
    (tmp_path / "run/slurm").mkdir(parents=True)
    (tmp_path / "run/slurm-key").mkdir()
    if trouble != "key":
        (tmp_path / "run/slurm-key/sackd.conf").write_text("ClusterName=demo\n")
    programs = {
        "unshare": f'echo "$1" >>{tmp_path}/view\nshift 2\nexec "$@"',
        "mount": f'echo "mount $2" >>{tmp_path}/view',
        "setpriv": 'shift 5\nexec "$@"',
        "sackd": SACKD.format(folder=tmp_path),
    }
    for name, text in programs.items():
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n" if name == trouble else text if text[0] == "#" else f"#!/bin/sh\n{text}\n")
    moved = {
        "/run/corral-node": f"{tmp_path}/node",
        "/run/slurm/conf/slurm.conf": f"{tmp_path}/slurm.conf",
        "sackd_conf=/run": f"sackd_conf={tmp_path}/run",
        "sockets=/run": f"sockets={tmp_path}/run",
        "/usr/sbin/sackd": f"{tmp_path}/sackd",
    }
    (tmp_path / "stop.sh").write_text(script("worker_stop.sh", moved))
    for name in ("scontrol", "stop.sh", *programs):
        (tmp_path / name).chmod(0o755)
    subprocess.run([tmp_path / "stop.sh"], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=True)
    return said.read_text().splitlines() if said.exists() else []
