# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast this operator may send requests: a token bucket, in memory that the controller shares with its runs.

It is far above what clusters need that are made, edited and looked at, and is there for what nobody has thought of: an operator that has run wild is a load
that the API server can carry. The election's requests and those of watches are not counted, for a leader must not lose its Lease to its own haste.

The bucket is one number, the time at which it would be full if nothing were taken (the generic cell rate algorithm). A run's process imports this before
Ansible has set up how collections are found.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

# Names the shared memory to a run's process.
VARIABLE = "CORRAL_RATE_LIMIT"
_SIZE = 24


class RateLimiter:
    """``rate`` requests a second in the long run, and ``burst`` at once when none was sent for long; a rate of 0: no limit.

    A run opens the controller's by its ``path``.
    """

    def __init__(
        self, path: str | None = None, *, rate: float = 0.0, burst: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        if path is None:
            self._file = os.memfd_create("corral-rate-limit")
            os.truncate(self._file, _SIZE)
            self.path = f"/proc/{os.getpid()}/fd/{self._file}"
        else:
            self.path = path
            self._file = os.open(Path(path), os.O_RDWR | os.O_CLOEXEC)
        self._full, self._rate, self._burst = 0, 1, 2
        self._numbers = memoryview(mmap.mmap(self._file, _SIZE)).cast("d")
        # A lock of the file is between processes; this one is between the threads of one.
        self._lock = threading.Lock()
        if path is None:
            self._numbers[self._rate], self._numbers[self._burst] = rate, max(1.0, burst)

    def reserve(self) -> float:
        """Take one request out of the bucket, and return in how many seconds it may be sent."""
        rate, burst = self._numbers[self._rate], self._numbers[self._burst]
        if not rate:
            return 0.0
        with self._lock:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                now = self._clock()
                full = max(self._numbers[self._full], now) + 1.0 / rate
                self._numbers[self._full] = full
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)
        return max(0.0, full - now - burst / rate)
