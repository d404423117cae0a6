# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of a wait, logged while it lasts: each change, and every now and then that nothing has changed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_PROGRESS = logging.getLogger("corral.slurm.progress")
# A line is logged at least this often, and changes no more often than that (a thousand pods become ready one by one). Seconds.
_SILENCE = 15.0
_REST = 2.0


class ProgressLog:
    """Logs the progress of one wait."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._logged = ""
        self._at = self._began - _REST

    def log(self, text: str) -> None:
        """Log ``text`` if it is new, or if nothing was logged for a while. A wait that ends within the first second logs nothing."""
        now = self._clock()
        quiet = now - self._at
        if now - self._began < 1.0 or not (quiet >= _SILENCE or (text != self._logged and quiet >= _REST)):
            return
        _PROGRESS.info("%s (for %d s)", text, round(now - self._began))
        self._logged, self._at = text, now
