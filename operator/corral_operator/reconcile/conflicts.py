# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of one cluster that somebody else writes, too: how often in a row each was set back soon after the last time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from corral_operator.api.events import Events
from corral_operator.reconcile.decisions import conflict_backoff

# An object that is set back this soon after the last time is in somebody's hands.
_SOON = 60.0


class Conflicts:
    """``longest`` is the longest pause before the next repair."""

    def __init__(self, clock: Callable[[], float], longest: float) -> None:
        self._clock = clock
        self._longest = longest
        # By object: how often in a row, and when last.
        self._repairs: dict[str, tuple[int, float]] = {}

    @property
    def recent(self) -> dict[str, int]:
        """Return of each object how often in a row it was set back, as long as another time would follow soon."""
        now = self._clock()
        self._repairs = {
            name: (count, last)
            for name, (count, last) in self._repairs.items()
            if now - last < _SOON + conflict_backoff(count, self._longest)
        }
        return {name: count for name, (count, _last) in self._repairs.items()}

    def note(self, names: Iterable[str]) -> None:
        """Objects were set back, or overwritten in front of a run that sets them."""
        recent = self.recent
        for name in set(names):
            self._repairs[name] = recent.get(name, 0) + 1, self._clock()

    def count(self, name: str) -> int:
        """Return how often in a row an object was set back."""
        return self.recent.get(name, 0)

    @property
    def most(self) -> int:
        """Return how often that object was which is worst."""
        return max(self.recent.values(), default=0)

    def backoff(self, name: str) -> float:
        """Return for how long an object is left to somebody else who writes it, too."""
        return conflict_backoff(self.count(name), self._longest)

    def clear(self) -> None:
        """An edit: what was before it does not count."""
        self._repairs.clear()


async def report_conflict(events: Events, document: dict[str, Any], what: str) -> None:
    """Say that somebody else writes what runs set right."""
    message = (
        f"The cluster does not settle: what was set right is changed again and again ({what}). Does somebody else write the same objects?"
    )
    await events.write(document, "Warning", "ReconcileConflict", message)
