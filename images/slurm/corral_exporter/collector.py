# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Queries the sources in turn, once per interval, and keeps the last good values of each."""

from __future__ import annotations

import json
import secrets
import string
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from corral_exporter import SourceError, jobs, metrics, nodes, scheduler
from corral_exporter.metrics import Samples
from corral_exporter.scheduler import Scheduler

SOURCES = ("nodes", "jobs", "scheduler")
Records = Callable[[Sequence[str], str, float], Iterator[str]]
# Of sdiag's output: 200 types and some hundred users.
_LARGEST = 16 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """Names of the cluster, limits, and the longest time in seconds that a command may take."""

    cluster: str
    accounts: int
    users: int
    nodes: int
    timeout: float
    passwd: Path


@dataclass(slots=True)
class _Source:
    samples: Samples = field(default_factory=dict)
    success: bool = False
    since: float = 0.0
    duration: float = 0.0
    queries: int = 0
    failures: int = 0
    invalid: int = 0
    folded: dict[str, int] = field(default_factory=dict)
    error: str = ""


class Collector:
    """``clock`` does not jump; ``now`` is the time of day, which jobs' times are compared with."""

    def __init__(
        self, settings: Settings, records: Records, clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._records = records
        self._clock = clock
        self._now = now
        self._sets: dict[str, nodes.NodeSet] = {}
        self._scheduler = Scheduler(settings.users)
        self._sources = {name: _Source(since=clock()) for name in SOURCES}
        self._text = b""
        self._render()

    def collect(self) -> None:
        """Query all sources; the failure of one concerns its metrics alone."""
        for name, query in zip(SOURCES, (self._nodes, self._jobs, self._statistics), strict=True):
            source, began = self._sources[name], self._clock()
            source.queries += 1
            try:
                query(source)
            except SourceError as error:
                source.success = False
                source.failures += 1
                if source.error != str(error):
                    print(f"exporter.py: {name}: {error}; its metrics keep the last good values", file=sys.stderr, flush=True)
                source.error = str(error)
            else:
                if source.error:
                    print(f"exporter.py: {name}: queried again with success", file=sys.stderr, flush=True)
                source.success, source.since, source.error = True, self._clock(), ""
            source.duration = self._clock() - began
            # Without slurmctld each query takes until its time-out.
            self._render()

    def text(self) -> bytes:
        """Return the metrics. Only their ages are computed at each scrape."""
        age: Samples = {metrics.AGE: {(name,): round(self._clock() - one.since, 3) for name, one in self._sources.items()}}
        return self._text + "".join(metrics.render(age, self._labels())).encode()

    def _labels(self) -> Mapping[str, str]:
        return {"cluster": self._settings.cluster}

    def _render(self) -> None:
        merged: Samples = {}
        for one in self._sources.values():
            merged.update(one.samples)
        by_source = self._sources.items()
        merged[metrics.SUCCESS] = {(name,): one.success for name, one in by_source}
        merged[metrics.DURATION] = {(name,): round(one.duration, 6) for name, one in by_source}
        merged[metrics.QUERIES] = {(name,): one.queries for name, one in by_source}
        merged[metrics.FAILURES] = {(name,): one.failures for name, one in by_source}
        merged[metrics.INVALID] = {(name,): one.invalid for name, one in by_source}
        merged[metrics.FOLDED] = {(label,): count for one in self._sources.values() for label, count in one.folded.items()}
        self._text = "".join(metrics.render(merged, self._labels())).encode()

    def _nodes(self, source: _Source) -> None:
        lines = (line for line in self._records(nodes.COMMAND, "\n", self._settings.timeout) if line.strip())
        # Slurm's only output that is no line of a node: there are none.
        found = (nodes.parse(line) for line in lines if line != "No nodes in the system")
        source.samples, self._sets, source.folded, source.invalid = nodes.collect(found, self._settings.nodes)

    def _jobs(self, source: _Source) -> None:
        # Control characters need no escape in squeue's format, and no user knows the letters.
        mark = "\x1f" + "".join(secrets.choice(string.ascii_lowercase) for _ in range(8))
        found = (jobs.parse(record, mark) for record in self._records(jobs.command(mark), mark + "\n", self._settings.timeout))
        limits = jobs.Limits(accounts=self._settings.accounts)
        source.samples, source.folded, source.invalid = jobs.collect(found, self._sets, limits, self._now())

    def _statistics(self, source: _Source) -> None:
        text, size = [], 0
        for line in self._records(scheduler.COMMAND, "\n", self._settings.timeout):
            size += len(line)
            if size > _LARGEST:
                raise SourceError(f"sdiag printed more than {_LARGEST} bytes")
            text.append(line)
        try:
            found = json.loads("\n".join(text))
        except ValueError as error:
            raise SourceError(f"sdiag printed no JSON: {error}") from error
        source.samples, folded = self._scheduler.collect(found, read_accounts(self._settings.passwd))
        source.folded = {"user": folded}


def read_accounts(path: Path) -> dict[int, str]:
    """Return users' names by their ids; none where there is no such file."""
    found = {0: "root", 64030: "slurm"}
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        name, _, uid, *_rest = [*line.split(":"), "", "", ""]
        if uid.isdecimal():
            found[int(uid)] = name
    return found
