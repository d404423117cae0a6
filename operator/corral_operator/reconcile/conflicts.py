# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Conflicts with other writers of one cluster's objects: how often in a row each object was repaired soon after the last repair."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from corral_operator.api.events import Events
from corral_operator.reconcile.decisions import conflict_backoff

# A repair this soon after the last one indicates another writer.
_SOON = 60.0


class Conflicts:
    """``longest`` is the longest back-off before the next repair."""

    def __init__(self, clock: Callable[[], float], longest: float) -> None:
        self._clock = clock
        self._longest = longest
        # By object: the number of repairs in a row, and the time of the last one.
        self._repairs: dict[str, tuple[int, float]] = {}

    @property
    def recent(self) -> dict[str, int]:
        """Return the number of repairs in a row of each object whose last repair is recent."""
        now = self._clock()
        self._repairs = {
            name: (count, last)
            for name, (count, last) in self._repairs.items()
            if now - last < _SOON + conflict_backoff(count, self._longest)
        }
        return {name: count for name, (count, _last) in self._repairs.items()}

    def note(self, names: Iterable[str]) -> None:
        """Count objects that were repaired, or overwritten during a run."""
        recent = self.recent
        for name in set(names):
            self._repairs[name] = recent.get(name, 0) + 1, self._clock()

    def count(self, name: str) -> int:
        """Return the number of repairs in a row of an object."""
        return self.recent.get(name, 0)

    @property
    def most(self) -> int:
        """Return the highest number of repairs in a row."""
        return max(self.recent.values(), default=0)

    def backoff(self, name: str) -> float:
        """Return for how long an object in conflict is left alone."""
        return conflict_backoff(self.count(name), self._longest)

    def clear(self) -> None:
        """Forget all repairs: an edit of the document starts anew."""
        self._repairs.clear()


async def report_conflict(events: Events, document: dict[str, Any], what: str) -> None:
    """Write the event for a conflict with another writer."""
    message = f"What runs repair is changed again and again ({what}), probably by another writer; kubectl get -o yaml --show-managed-fields names it."
    await events.write(document, "Warning", "ReconcileConflict", message)
