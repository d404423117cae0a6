# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Functions of Linux that make sure that no process of a run outlives its parent."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
# ansible-playbook's own exit status after SIGINT.
INTERRUPTED = 99


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, for whatever reason."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def descendants(pid: int) -> dict[int, int]:
    """Return the descendants of ``pid`` with their start times, which distinguish them from later processes with the same pid.

    Ansible's workers have sessions of their own, so a process group does not contain all of them.
    """
    children: dict[int, list[tuple[int, int]]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _fields(int(entry.name))
            if fields:
                children.setdefault(int(fields[1]), []).append((int(entry.name), int(fields[19])))
    found: dict[int, int] = {}
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += [child for child, _start in below]
    return found


def kill_tree(pid: int) -> None:
    """Kill a process and its descendants. They are stopped first, so that they start no more processes meanwhile."""
    _send(pid, signal.SIGSTOP)
    for victim in descendants(pid):
        _send(victim, signal.SIGSTOP)
    kill_left(descendants(pid))
    _send(pid, signal.SIGKILL)


def kill_left(processes: dict[int, int]) -> None:
    """Kill those of ``descendants`` that still exist."""
    for pid, start in processes.items():
        fields = _fields(pid)
        if fields and int(fields[19]) == start:
            _send(pid, signal.SIGKILL)


def resident(pid: int) -> float:
    """Return the resident memory of a process in MiB, 0 if it is gone."""
    fields = _fields(pid)
    return int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20) if fields else 0.0


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat from the third on; none if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has ended
