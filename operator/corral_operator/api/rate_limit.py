# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rate limit of requests: a token bucket, in memory shared by the controller and its runs.

It is far above what normal operation needs, and keeps a malfunctioning operator a load that the API server can carry. Requests of the election and of
watches are not counted, so that a leader does not lose its Lease to its own rate limit.

The bucket is one number, the time at which it would be full if nothing were taken (the generic cell rate algorithm). A run's process imports this
module before Ansible has set up its collection loader.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

# The environment variable with the path of the shared memory.
VARIABLE = "CORRAL_RATE_LIMIT"
_SIZE = 24


class RateLimiter:
    """``rate`` sustained requests per second, and ``burst`` requests at once; a rate of 0: no limit.

    A run opens the controller's bucket by its ``path``.
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
        # The file's lock is between processes; this one is between the threads of a process.
        self._lock = threading.Lock()
        if path is None:
            self._numbers[self._rate], self._numbers[self._burst] = rate, max(1.0, burst)

    def reserve(self) -> float:
        """Reserve one request, and return in how many seconds it may be sent."""
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
