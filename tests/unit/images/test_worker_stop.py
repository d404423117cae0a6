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


def test_without_a_credential_that_expires_nothing_is_ordered(tmp_path: Path, script: Callable[..., str]) -> None:
    assert stopped(tmp_path, script, "IDLE", SLURM) == []


def stopped(tmp_path: Path, script: Callable[..., str], state: str, auth: str) -> list[str]:
    """Run the script; return the words of the order and the slurm.conf that it was given with."""
    said = tmp_path / "said"
    (tmp_path / "node").write_text("cpu-0\n")
    show = f"echo 'NodeName=cpu-0 State={state} Reason=x'" if state else "exit 1"
    (tmp_path / "scontrol").write_text(
        f'#!/bin/sh\ncase $1 in show) {show} ;; *) printf "%s\\n" "$@" >>{said}; cat "$SLURM_CONF" >>{said} ;; esac\n'
    )
    (tmp_path / "slurm.conf").write_text(f"ClusterName=demo\nAuthInfo={auth}\n")
    moved = {"/run/corral-node": f"{tmp_path}/node", "/run/slurm/conf/slurm.conf": f"{tmp_path}/slurm.conf"}
    (tmp_path / "stop.sh").write_text(script("worker_stop.sh", moved))
    for name in ("scontrol", "stop.sh"):
        (tmp_path / name).chmod(0o755)
    subprocess.run([tmp_path / "stop.sh"], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=True)
    return said.read_text().splitlines() if said.exists() else []
