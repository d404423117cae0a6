# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""The statistics of slurmctld: the JSON of sdiag. Pure, but that it remembers which names have series of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corral_exporter import SourceError, metrics
from corral_exporter.metrics import OTHER, Metric, Samples, add

COMMAND = ("sdiag", "--json")
_EVENTS = {
    "submitted": "jobs_submitted", "started": "jobs_started", "completed": "jobs_completed", "canceled": "jobs_canceled", "failed": "jobs_failed",
    "backfilled": "bf_backfilled_jobs",
}  # fmt: skip
_MICROSECONDS = 1e6
# Slurm has about 150 types that clients send.
_TYPES = 200


class Names:
    """Which names have series of their own: the first ones up to ``limit``, the most frequent first, for as long as this process lives.

    A name that changed between its own series and OTHER's would make a counter fall and rise again, which Prometheus takes for events.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[str] = []

    def fold(self, counts: Mapping[str, float]) -> dict[str, str]:
        """Return the label value for each name."""
        names = metrics.fold(counts, self._limit, self._kept)
        known = set(self._kept)
        new = [name for name, own in names.items() if own != OTHER and name not in known]
        # Room that a kept name without a count has left is still its own.
        for name in new:
            if len(self._kept) < self._limit:
                self._kept.append(name)
            else:
                names[name] = OTHER
        return names


class Scheduler:
    """Reads sdiag's JSON. ``users`` is how many users have series of their own."""

    def __init__(self, users: int) -> None:
        self._types = Names(_TYPES)
        self._users = Names(users)

    def collect(self, found: Any, accounts: Mapping[int, str]) -> tuple[Samples, int]:
        """Return the samples, and how many users were folded. ``accounts`` has users' names by their ids. Raises SourceError."""
        try:
            statistics, version = found["statistics"], str(found["meta"]["slurm"]["release"])
            samples = _statistics(statistics)
            types = {str(one["message_type"]): one for one in statistics["rpcs_by_message_type"]}
            users = {accounts.get(one["user_id"]) or str(one["user"] or one["user_id"]): one for one in statistics["rpcs_by_user"]}
            _add_rpcs(samples, (metrics.RPCS, metrics.RPC_SECONDS), types, self._types)
            folded = _add_rpcs(samples, (metrics.USER_RPCS, metrics.USER_RPC_SECONDS), users, self._users)
        except (KeyError, TypeError, ValueError) as error:
            raise SourceError(f"sdiag's JSON has another form than known: {type(error).__name__} {error}") from error
        return {**samples, metrics.INFO: {(version,): 1}}, folded


def _add_rpcs(samples: Samples, pair: tuple[Metric, Metric], found: Mapping[str, Any], names: Names) -> int:
    counts, seconds = pair
    own = names.fold({name: float(one["count"]) for name, one in found.items()})
    for name, one in found.items():
        add(samples, counts, (own[name],), float(one["count"]))
        add(samples, seconds, (own[name],), float(one["total_time"]) / _MICROSECONDS)
    return sum(value == OTHER for value in own.values())


def _statistics(found: Any) -> Samples:
    samples: Samples = {
        metrics.THREADS: {(): _number(found, "server_thread_count")},
        metrics.AGENTS: {(): _number(found, "agent_queue_size")},
        metrics.DATABASE_QUEUE: {(): _number(found, "dbd_agent_queue_size")},
        metrics.EVENTS: {(event,): _number(found, key) for event, key in _EVENTS.items()},
    }
    for name, (last, mean, total, queue) in {
        "main": ("schedule_cycle_last", "schedule_cycle_mean", "schedule_cycle_total", "schedule_queue_length"),
        "backfill": ("bf_cycle_last", "bf_cycle_mean", "bf_cycle_counter", "bf_queue_len"),
    }.items():
        add(samples, metrics.CYCLE, (name,), _number(found, last) / _MICROSECONDS)
        add(samples, metrics.CYCLE_MEAN, (name,), _number(found, mean) / _MICROSECONDS)
        add(samples, metrics.CYCLES, (name,), _number(found, total))
        add(samples, metrics.SCHEDULER_QUEUE, (name,), _number(found, queue))
    return samples


def _number(found: Any, key: str) -> float:
    """Return a number, also one that may be unset or infinite in Slurm's JSON."""
    value = found[key]
    return float(value["number"] if isinstance(value, dict) else value)
