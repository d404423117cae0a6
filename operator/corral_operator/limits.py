# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of this container: the CPUs and the memory of its cgroup (v2 or v1), not of the host; and open files."""

from __future__ import annotations

import math
import os
import resource
from pathlib import Path

# Memory of the controller, the zygote and the checkers; and of a run, without what it shares with the zygote (both measured; docs/operator.md).
_BASE = 256 << 20
_RUN = 48 << 20
_MOST = 64
# Of one run's process, including what it shares with the zygote. The largest document (1.1 MB) takes 81 MiB. The limit is on data, not on the
# address space (RLIMIT_AS), of which each thread reserves 72 MiB that it does not use.
RUN_DATA = 512 << 20
_UNLIMITED = 1 << 60
# Each namespace has a dozen watches, each of which is a connection.
_DESCRIPTORS = 1 << 16


def cpus(root: Path = Path("/sys/fs/cgroup")) -> float:
    """Return the CPUs that the cgroup may use."""
    host = float(len(os.sched_getaffinity(0)))
    quota = _fields(root / "cpu.max") or [*_fields(root / "cpu" / "cpu.cfs_quota_us"), *_fields(root / "cpu" / "cpu.cfs_period_us")]
    if len(quota) == 2 and quota[0].isdigit() and int(quota[1]):
        return min(host, int(quota[0]) / int(quota[1]))
    return host


def memory(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the cgroup's memory limit in bytes, None if there is none."""
    fields = _fields(root / "memory.max") or _fields(root / "memory" / "memory.limit_in_bytes")
    if fields and fields[0].isdigit() and int(fields[0]) < _UNLIMITED:
        return int(fields[0])
    return None


def runs(wanted: int, cpu: float, limit: int | None) -> tuple[int, int]:
    """Return how many runs may use the CPU at once, and how many may exist, including those that only wait."""
    room = _MOST if limit is None else max(1, min(_MOST, (limit - _BASE) // _RUN))
    working = wanted or max(1, math.ceil(cpu))
    return min(working, room), room


def bound_run() -> None:
    """Limit the memory of this process and its children to what a run may need, so that no document makes the kernel kill other processes."""
    resource.setrlimit(resource.RLIMIT_DATA, (RUN_DATA, RUN_DATA))


def raise_descriptors() -> None:
    """Raise the soft limit of open files: container runtimes leave it at 1024, because programs in Go raise it themselves."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _fields(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
