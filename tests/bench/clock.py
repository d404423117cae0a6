# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long something takes, alone and beside another."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

PAIRS = 5


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def pairs(ours: Callable[[], object], baseline: Callable[[], object], count: int = PAIRS) -> tuple[float, float, float]:
    """Medians of both and of their ratio, taken in turn so that a drift of the machine meets both. The first pair only warms."""
    measured = [(seconds(ours), seconds(baseline)) for dummy in range(count + 1)][1:]
    return (
        statistics.median(a for a, dummy in measured),
        statistics.median(b for dummy, b in measured),
        statistics.median(a / b for a, b in measured),
    )
