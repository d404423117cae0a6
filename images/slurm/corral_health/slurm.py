# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Slurm's commands."""

from __future__ import annotations

import subprocess


class Silent(Exception):
    """slurmctld does not respond, or does not do what it is asked."""


def slurm(*words: str) -> str:
    """Return what a command of Slurm's prints. Raises Silent."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Silent(f"{words[0]}: {error}") from None
    if done.returncode:
        raise Silent(f"{' '.join(words[:3])}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
