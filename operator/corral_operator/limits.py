# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much this container may do at once: the CPUs and the memory of its cgroup (v2, or v1), not of the machine; and its open files."""

from __future__ import annotations

import math
import os
import resource
from pathlib import Path

# The controller, the zygote and the processes of checks, and what a run needs beside what it shares with the zygote (both measured; docs/operator.md).
_BASE = 256 << 20
_RUN = 48 << 20
_MOST = 64
# Of one run's process, what it shares with the zygote included. The largest document (1.1 MB) takes 81 MiB. What counts are data and not
# addresses (RLIMIT_AS), of which each thread sets aside 72 MiB that it does not use.
RUN_DATA = 512 << 20
_UNLIMITED = 1 << 60
# A namespace has a dozen watches, each a connection.
_DESCRIPTORS = 1 << 16


def cpus(root: Path = Path("/sys/fs/cgroup")) -> float:
    """Return the CPUs that the cgroup may use."""
    machine = float(len(os.sched_getaffinity(0)))
    quota = _words(root / "cpu.max") or [*_words(root / "cpu" / "cpu.cfs_quota_us"), *_words(root / "cpu" / "cpu.cfs_period_us")]
    if len(quota) == 2 and quota[0].isdigit() and int(quota[1]):
        return min(machine, int(quota[0]) / int(quota[1]))
    return machine


def memory(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the cgroup's limit in bytes; None: there is none."""
    words = _words(root / "memory.max") or _words(root / "memory" / "memory.limit_in_bytes")
    if words and words[0].isdigit() and int(words[0]) < _UNLIMITED:
        return int(words[0])
    return None


def runs(wanted: int, cpu: float, limit: int | None) -> tuple[int, int]:
    """Return how many runs may work at once, and how many may be there, those that only wait included."""
    room = _MOST if limit is None else max(1, min(_MOST, (limit - _BASE) // _RUN))
    working = wanted or max(1, math.ceil(cpu))
    return min(working, room), room


def bound_run() -> None:
    """Let this process and those that it starts have no more memory than a run may need: one document can not end all that is in the container."""
    resource.setrlimit(resource.RLIMIT_DATA, (RUN_DATA, RUN_DATA))


def raise_descriptors() -> None:
    """Let this process have as many open files as it may: container runtimes leave the soft limit at 1024, since programs in Go raise it themselves."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
