# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the container may do at once."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

from corral_operator import limits
from corral_operator.reconcile.children import KINDS

Json = dict[str, Any]
KIND = {kind.name: kind for kind in KINDS}
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000", "memory.max": "1073741824"}, (1.5, 1 << 30)),
        ({"cpu.max": "max 100000", "memory.max": "max"}, (None, None)),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000", "memory/memory.limit_in_bytes": "536870912"}, (0.5, 1 << 29)),
        (
            {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000", "memory/memory.limit_in_bytes": "9223372036854771712"},
            (None, None),
        ),
        ({}, (None, None)),
    ],
)
def test_the_limits_are_the_cgroups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: tuple[float | None, int | None]
) -> None:
    monkeypatch.setattr(limits.os, "sched_getaffinity", lambda _pid: set(range(128)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    cpus, memory = expected
    assert limits.cpus(tmp_path) == (cpus or 128)
    assert limits.memory(tmp_path) == memory


@pytest.mark.parametrize(
    ("wanted", "cpus", "memory", "expected"),
    [(0, 0.5, None, (1, 64)), (0, 1.5, None, (2, 64)), (0, 128, 1 << 30, (16, 16)), (3, 8, None, (3, 64)), (0, 2, 100 << 20, (1, 1))],
)
def test_how_many_runs_fit(wanted: int, cpus: float, memory: int | None, expected: tuple[int, int]) -> None:
    assert limits.runs(wanted, cpus, memory) == expected


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred namespaces have a thousand watches, and systemd's soft limit is 1024."""
    for given, wanted in [
        ((1024, 524288), (65536, 524288)),
        ((1024, 4096), (4096, 4096)),
        ((1024, resource.RLIM_INFINITY), (65536, resource.RLIM_INFINITY)),
        ((1048576, 1048576), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ]:
        told: list[tuple[int, int]] = []
        monkeypatch.setattr(limits.resource, "getrlimit", lambda _what, given=given: given)
        monkeypatch.setattr(limits.resource, "setrlimit", lambda _what, pair, told=told: told.append(pair))
        limits.raise_descriptors()
        assert told == ([wanted] if wanted else [])
