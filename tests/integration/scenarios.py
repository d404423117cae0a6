# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs, counted before and after something happens to their cluster. Each scenario is a row of docs/scenarios.md.

A test fails when a job is lost, when another number than it says is begun anew or ended, and when the page has no row for it; CORRAL_WRITE_DOCS=1
writes the page. How many jobs run at that moment, and how many wait, is not the same each time.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from .conftest import REPOSITORY, Cluster

PAGE = REPOSITORY / "docs" / "scenarios.md"
_GOES_ON = {"RUNNING", "PENDING", "CONFIGURING", "COMPLETING", "COMPLETED", "SUSPENDED", "REQUEUED"}
_HEAD = """# What becomes of jobs

Written by the tests in the lab (`tests/integration`), which do all of it to a real Slurm on a real Kubernetes while jobs run. Each job is counted before and
after: it goes on or has come to its own end, it was begun anew, it was ended because the document or the administrator says so, or it is lost.

| what happens | running | waiting | go on | begun anew | ended as asked | lost | test |
|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Seen:
    """A job at one moment."""

    states: frozenset[str]
    restarts: int


@contextmanager
def scenario(cluster: Cluster, what: str, jobs: Iterable[str | int], *, anew: int = 0, asked: int = 0) -> Iterator[None]:
    """Count ``jobs`` around a block. ``anew`` of them must be started anew, and ``asked`` be ended because somebody asks for that."""
    numbers = [str(number) for number in jobs]
    before = _look(cluster, numbers)
    assert len(before) == len(numbers), f"not all of {numbers} are there"
    yield
    after = _look(cluster, numbers)
    begun = [number for number, was in before.items() if number in after and after[number].restarts > was.restarts]
    gone = [number for number in before if number not in begun and (number not in after or not after[number].states & _GOES_ON)]
    ended = [number for number in gone if number in after and "CANCELLED" in after[number].states][:asked]
    lost = len(gone) - len(ended)
    running = sum("RUNNING" in was.states for was in before.values())
    counts = (running, len(before) - running, len(before) - len(begun) - len(gone), len(begun), len(ended), lost)
    assert (lost, len(begun), len(ended)) == (0, anew, asked), f"{what}: {before} became {after}"
    test = os.environ["PYTEST_CURRENT_TEST"].split("::")[0].rpartition("/")[2]
    _compare(f"| {what} |", f"| {what} | {' | '.join(map(str, counts))} | `{test}` |")


def _look(cluster: Cluster, numbers: list[str]) -> dict[str, Seen]:
    rows: list[dict[str, Any]] = json.loads(_squeue(cluster))["jobs"]
    return {
        str(row["job_id"]): Seen(frozenset(row["job_state"]), int(row.get("restart_cnt") or 0))
        for row in rows
        if str(row["job_id"]) in numbers
    }


def _squeue(cluster: Cluster) -> str:
    """What either controller says: a scenario may have taken one away."""
    for number in (0, 1):
        pod = f"{cluster.name}-controller-{number}"
        command = ("squeue", "--json", "--states=all")
        said = cluster.kubectl("exec", "-n", cluster.namespace, pod, "-c", "slurmctld", "--", *command, check=False)
        if said:
            return said
    raise AssertionError("no controller says which jobs there are")


def _compare(key: str, row: str) -> None:
    """See that the page has the row, or put it there."""
    if os.environ.get("CORRAL_WRITE_DOCS"):
        folder = os.open(PAGE.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # tests run side by side
            lines = PAGE.read_text().splitlines()[_HEAD.count("\n") :] if PAGE.exists() else []
            rows = [row if line.startswith(key) else line for line in lines]
            PAGE.write_text(_HEAD + "\n".join(rows if row in rows else [*rows, row]) + "\n")
        finally:
            os.close(folder)
        return
    if not any(line.startswith(key) for line in (PAGE.read_text() if PAGE.exists() else "").splitlines()):
        pytest.fail(f"docs/scenarios.md has no row for {row!r}; CORRAL_WRITE_DOCS=1 writes it")
