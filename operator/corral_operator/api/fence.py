# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Until when this operator may write: one moment, in memory that the controller shares with its runs, looked at before each write.

The election moves it with each renewal of the Lease. So a run whose controller is frozen stops by itself, and so does a controller that was frozen or
suspended, before it can know of that.

A run's process imports this before Ansible has set up how collections are found, so what is used of the collection is imported where it is used.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

# Names the shared memory to a run's process.
VARIABLE = "CORRAL_FENCE"
_SIZE = 8


def now() -> float:
    """Return the time by the clock of election and fence: it is the same in all processes, and goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Fence:
    """Nobody may write before the first ``move``. A run opens the controller's by its ``path``, and can not move it."""

    def __init__(self, path: str | None = None, clock: Callable[[], float] = now) -> None:
        self._clock = clock
        if path is None:
            descriptor = os.memfd_create("corral-fence")
            os.truncate(descriptor, _SIZE)
            self.path = f"/proc/{os.getpid()}/fd/{descriptor}"
            shared = mmap.mmap(descriptor, _SIZE)
        else:
            self.path = path
            with Path(path).open("rb") as file:
                shared = mmap.mmap(file.fileno(), _SIZE, access=mmap.ACCESS_READ)
        # As one number, so that it is read and written in one piece.
        self._until = memoryview(shared).cast("d")

    def move(self, until: float) -> None:
        """Let writes pass until a moment of the clock; 0: none."""
        self._until[0] = until

    @property
    def open(self) -> bool:
        """True while this operator may write."""
        return self._clock() < self._until[0]

    def check(self) -> None:
        """Let a write pass. Raises CorralError where it may not."""
        if not self.open:
            from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

            raise CorralError(
                "Nothing more is written by this pod of the operator: it has not renewed its Lease in time, so that another pod may lead by now; "
                "the next run of the pod that leads goes on."
            )
