# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long something takes, alone and beside another."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

PAIRS = 5


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep other work of this machine out of the measurement: on a busy one the quartiles are ten times as far apart without this."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def timed(action: Callable[[], object]) -> Callable[[], float]:
    """Return what tells its seconds each time that it is called."""
    return partial(seconds, action)


@dataclass(frozen=True)
class Comparison:
    """Seconds of ours and of a baseline, pair by pair."""

    pairs: list[tuple[float, float]]

    @property
    def ours(self) -> float:
        return statistics.median(ours for ours, _base in self.pairs)

    @property
    def base(self) -> float:
        return statistics.median(base for _ours, base in self.pairs)

    @property
    def ratio(self) -> float:
        return statistics.median(ours / base for ours, base in self.pairs)

    def __str__(self) -> str:
        low, _median, high = statistics.quantiles([ours / base for ours, base in self.pairs], n=4)
        return f"{_words(self.ours)} against {_words(self.base)}; half of {len(self.pairs)} pairs in {low:.2f} … {high:.2f}"


def pairs(ours: Callable[[], float], baseline: Callable[[], float], count: int = PAIRS, warm: int = 1) -> Comparison:
    """What both tell in seconds, taken in turn so that a drift of the machine meets both, each first in every second pair. The first ``warm`` only warm."""
    measured = []
    for number in range(warm + count):
        if number % 2:
            took = ours()
            measured.append((took, baseline()))
        else:
            base = baseline()
            measured.append((ours(), base))
    return Comparison(measured[warm:])


def _words(took: float) -> str:
    return f"{took:.3g} s" if took >= 1 else f"{took * 1000:.3g} ms"
