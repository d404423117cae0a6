# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work queue of clusters. Pure: the clock is injected.

A key is queued at most once; its trigger decides its priority. A key is not taken while its cluster is worked on: one run per cluster at a time. Edits go
before drift, and drift before retries and resyncs; but a key that has waited for long goes first. One slot more is available to edits alone.
The first two elements of a key are the cluster; a third one stands for corral.slurm.sync or corral.slurm.tenants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from corral_operator.reconcile.metadata import Key

# A key that has been due for this long goes before all others.
PATIENCE = 30.0


def owner(key: Key) -> Key:
    """Return the cluster of a key."""
    return key[:2]


class Trigger(IntEnum):
    """Why a cluster is queued; a smaller value is more urgent."""

    EDIT = 0
    DRIFT = 1
    RETRY = 2
    RESYNC = 3


@dataclass
class _Entry:
    trigger: Trigger
    first: float
    due: float


@dataclass(frozen=True)
class Taken:
    """A key taken from the queue; ``waited`` is for how long it was due."""

    key: Key
    trigger: Trigger
    waited: float


class WorkQueue:
    """``working`` limits the clusters that use the CPU, ``open_limit`` all that were taken and are not done, including parked ones, which only wait."""

    def __init__(
        self, clock: Callable[[], float], *, working: int, open_limit: int, added: Callable[[Trigger], None] = lambda _trigger: None
    ) -> None:
        self._clock = clock
        # Called for each request.
        self._added = added
        self._working = working
        self._open_limit = max(working, open_limit)
        self._entries: dict[Key, _Entry] = {}
        self._open: dict[Key, bool] = {}
        self._taken: dict[Key, float] = {}

    def add(self, key: Key, trigger: Trigger, delay: float = 0.0, most: float | None = None) -> None:
        """Queue ``key``, due in ``delay`` seconds. With ``most`` a new request delays an earlier one, up to ``most`` seconds after the first: a debounce."""
        self._added(trigger)
        now = self._clock()
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = _Entry(trigger, now, now + delay)
            return
        if most is not None and entry.due > now + most:  # a request that is due much later is not part of this burst
            entry.first, entry.due = now, now + delay
        elif most is not None and trigger >= entry.trigger and entry.due > now:
            entry.due = max(entry.due, min(now + delay, entry.first + most))
        else:
            entry.due = min(entry.due, now + delay)
        entry.trigger = min(entry.trigger, trigger)

    def take(self) -> Taken | None:
        """Return the next key, which counts as working until ``done``; None if no key is due or no slot is free."""
        now = self._clock()
        working = self._at_work()
        ready = [key for key, entry in self._entries.items() if entry.due <= now and self._may(key, entry, working)]
        if not ready:
            return None
        key = min(ready, key=lambda one: self._rank(self._entries[one], now))
        entry = self._entries.pop(key)
        self._open[owner(key)] = False
        self._taken[owner(key)] = now
        return Taken(key, entry.trigger, now - entry.due)

    def _at_work(self) -> int:
        return sum(not parked for parked in self._open.values())

    def _may(self, key: Key, entry: _Entry, working: int) -> bool:
        """True if a slot is free for the key beside ``working`` clusters."""
        room = working < self._working or (working == self._working and entry.trigger is Trigger.EDIT)
        return room and len(self._open) < self._open_limit and owner(key) not in self._open

    @staticmethod
    def _rank(entry: _Entry, now: float) -> tuple[int, float]:
        return (-1 if now - entry.due > PATIENCE else int(entry.trigger), entry.due)

    def done(self, key: Key) -> float:
        """Record that the work on a key has ended. Returns how long it took."""
        self._open.pop(owner(key), None)
        now = self._clock()
        return now - self._taken.pop(owner(key), now)

    def park(self, key: Key, parked: bool = True) -> None:
        """Record whether the work on a cluster only waits; a parked cluster frees its slot."""
        if owner(key) in self._open:
            self._open[owner(key)] = parked

    def forget(self, key: Key) -> None:
        """Remove a key from the queue; current work continues."""
        self._entries.pop(key, None)

    def absorb(self, key: Key) -> None:
        """Remove a key that is due: the work that starts now reads the current state."""
        entry = self._entries.get(key)
        if entry is not None and entry.due <= self._clock():
            del self._entries[key]

    def pending(self, key: Key) -> bool:
        """True if the key is queued."""
        return key in self._entries

    def next_due(self) -> float | None:
        """Return the time at which a key can be taken; None if only ``add`` or ``done`` can make one available."""
        now = self._clock()
        working = self._at_work()
        waiting = [
            entry.due
            for key, entry in self._entries.items()
            if self._may(key, entry, working) or (entry.due > now and owner(key) not in self._open)
        ]
        return min(waiting) if waiting else None

    def preemptible(self) -> Key | None:
        """Return a parked key to preempt: all slots are taken, another key is due, and a parked run can continue later."""
        now = self._clock()
        if len(self._open) < self._open_limit or not any(e.due <= now for k, e in self._entries.items() if owner(k) not in self._open):
            return None
        return next((key for key, parked in self._open.items() if parked), None)

    @property
    def depth(self) -> int:
        """The number of keys that are due and not taken."""
        now = self._clock()
        return sum(entry.due <= now for entry in self._entries.values())

    @property
    def waiting(self) -> dict[Key, float]:
        """For how long each cluster has been due that is not worked on."""
        now = self._clock()
        found: dict[Key, float] = {}
        for key, entry in self._entries.items():
            if entry.due <= now and owner(key) not in self._open:
                found[owner(key)] = max(found.get(owner(key), 0.0), now - entry.due)
        return found

    @property
    def at_work(self) -> dict[Key, float]:
        """For how long each cluster has been worked on, including parked ones."""
        now = self._clock()
        return {key: now - since for key, since in self._taken.items()}

    @property
    def open(self) -> int:
        """The number of clusters that are worked on, including parked ones."""
        return len(self._open)


class Backoff:
    """The back-off of keys after failures: 1, 2, 4… times ``base``, at most ``most``."""

    def __init__(self, base: float, most: float) -> None:
        self._base = base
        self._most = most
        self._failures: dict[Key, int] = {}

    def failed(self, key: Key) -> float:
        """Count a failure and return the pause."""
        self._failures[key] = self._failures.get(key, 0) + 1
        return self.pause(key)

    def pause(self, key: Key) -> float:
        """Return the pause after the last failure; 0 if there was none since the last success."""
        count = self._failures.get(key, 0)
        return min(self._most, self._base * 2.0 ** min(count - 1, 30)) if count else 0.0

    def count(self, key: Key) -> int:
        """Failures since the last success."""
        return self._failures.get(key, 0)

    def reset(self, key: Key) -> None:
        """Forget the failures: after a success or an edit."""
        self._failures.pop(key, None)
