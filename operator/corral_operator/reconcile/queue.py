# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cluster is next. Pure: the clock is given.

A key is in the queue once, however often it was asked for; what it is asked for decides its place. A key whose run is under way is kept until
that has ended: one run a cluster at a time. What people have just written goes before what was seen by itself, and that before looks at clusters
that are thought to be well; but nothing waits for ever. One place more than the others have is kept for what people have just written.
The first two words of a key name the cluster; a third one is another errand for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from corral_operator.reconcile.metadata import Key

# After so long in the queue a key goes before all younger ones.
PATIENCE = 30.0


def owner(key: Key) -> Key:
    """Return the cluster of a key, which is the key of its usual errand."""
    return key[:2]


class Trigger(IntEnum):
    """Why a cluster is requeued, the more urgent the smaller."""

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
    """A key that is to be worked on now; ``waited`` is how long it was due."""

    key: Key
    trigger: Trigger
    waited: float


class WorkQueue:
    """``working`` limits the keys that use the processor, ``open_limit`` all that were taken and are not done: one that only waits is parked."""

    def __init__(
        self, clock: Callable[[], float], *, working: int, open_limit: int, added: Callable[[Trigger], None] = lambda _trigger: None
    ) -> None:
        self._clock = clock
        # Is told of each request.
        self._added = added
        self._working = working
        self._open_limit = max(working, open_limit)
        self._entries: dict[Key, _Entry] = {}
        self._open: dict[Key, bool] = {}
        self._taken: dict[Key, float] = {}

    def add(self, key: Key, trigger: Trigger, delay: float = 0.0, most: float | None = None) -> None:
        """Ask for ``key``, in ``delay`` seconds. With ``most`` a new request puts an earlier one off, up to so long after the first: a debounce."""
        self._added(trigger)
        now = self._clock()
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = _Entry(trigger, now, now + delay)
            return
        if most is not None and entry.due > now + most:  # what is due much later is no burst that goes on
            entry.first, entry.due = now, now + delay
        elif most is not None and trigger >= entry.trigger and entry.due > now:
            entry.due = max(entry.due, min(now + delay, entry.first + most))
        else:
            entry.due = min(entry.due, now + delay)
        entry.trigger = min(entry.trigger, trigger)

    def take(self) -> Taken | None:
        """Return the next key and count it as working until ``done``; None when there is none, or no room."""
        now = self._clock()
        working = self._at_work()
        ready = [key for key, entry in self._entries.items() if entry.due <= now and self._may(key, entry, working)]
        if not ready:
            return None
        key = min(ready, key=lambda one: self._place(self._entries[one], now))
        entry = self._entries.pop(key)
        self._open[owner(key)] = False
        self._taken[owner(key)] = now
        return Taken(key, entry.trigger, now - entry.due)

    def _at_work(self) -> int:
        return sum(not parked for parked in self._open.values())

    def _may(self, key: Key, entry: _Entry, working: int) -> bool:
        """Whether there is room for it beside so many that work."""
        room = working < self._working or (working == self._working and entry.trigger is Trigger.EDIT)
        return room and len(self._open) < self._open_limit and owner(key) not in self._open

    @staticmethod
    def _place(entry: _Entry, now: float) -> tuple[int, float]:
        return (-1 if now - entry.due > PATIENCE else int(entry.trigger), entry.due)

    def done(self, key: Key) -> float:
        """The work on a key has ended. Returns how long it took."""
        self._open.pop(owner(key), None)
        now = self._clock()
        return now - self._taken.pop(owner(key), now)

    def park(self, key: Key, parked: bool = True) -> None:
        """Say whether the work on a cluster only waits: then others may work meanwhile."""
        if owner(key) in self._open:
            self._open[owner(key)] = parked

    def forget(self, key: Key) -> None:
        """Drop what is asked for; work under way goes on."""
        self._entries.pop(key, None)

    def absorb(self, key: Key) -> None:
        """The work on a key reads the world now: what is due is answered by it."""
        entry = self._entries.get(key)
        if entry is not None and entry.due <= self._clock():
            del self._entries[key]

    def pending(self, key: Key) -> bool:
        """True when the key is in the queue."""
        return key in self._entries

    def next_due(self) -> float | None:
        """Return the time at which something may be taken that can not be now; None when nothing but ``add`` or ``done`` can change that."""
        now = self._clock()
        working = self._at_work()
        waiting = [
            entry.due
            for key, entry in self._entries.items()
            if self._may(key, entry, working) or (entry.due > now and owner(key) not in self._open)
        ]
        return min(waiting) if waiting else None

    def preemptible(self) -> Key | None:
        """Return a parked key that stands in the way of others: all places are taken, one is due, and waiting can be gone on with later."""
        now = self._clock()
        if len(self._open) < self._open_limit or not any(e.due <= now for k, e in self._entries.items() if owner(k) not in self._open):
            return None
        return next((key for key, parked in self._open.items() if parked), None)

    @property
    def depth(self) -> int:
        """How many keys are due and not taken."""
        now = self._clock()
        return sum(entry.due <= now for entry in self._entries.values())

    @property
    def waiting(self) -> dict[Key, float]:
        """For how long each cluster has been due that nothing is done about yet."""
        now = self._clock()
        found: dict[Key, float] = {}
        for key, entry in self._entries.items():
            if entry.due <= now and owner(key) not in self._open:
                found[owner(key)] = max(found.get(owner(key), 0.0), now - entry.due)
        return found

    @property
    def at_work(self) -> dict[Key, float]:
        """For how long the work on each cluster has gone on, one that only waits included."""
        now = self._clock()
        return {key: now - since for key, since in self._taken.items()}

    @property
    def open(self) -> int:
        """How many keys are worked on, parked ones too."""
        return len(self._open)


class Backoff:
    """How long to leave a key alone after its failures: 1, 2, 4… times ``base``, ``most`` at the most."""

    def __init__(self, base: float, most: float) -> None:
        self._base = base
        self._most = most
        self._failures: dict[Key, int] = {}

    def failed(self, key: Key) -> float:
        """Count a failure and return the pause."""
        self._failures[key] = self._failures.get(key, 0) + 1
        return self.pause(key)

    def pause(self, key: Key) -> float:
        """Return the pause after the last failure; 0 where there was none since the last success."""
        count = self._failures.get(key, 0)
        return min(self._most, self._base * 2.0 ** min(count - 1, 30)) if count else 0.0

    def count(self, key: Key) -> int:
        """Failures since the last success."""
        return self._failures.get(key, 0)

    def reset(self, key: Key) -> None:
        """It went well, or is another matter now."""
        self._failures.pop(key, None)
