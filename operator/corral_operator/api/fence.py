# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fence: the time until which this operator may write, in memory shared by the controller and its runs, checked before each write.

The election moves it with each renewal of the Lease. So a run whose controller is frozen stops writing, and so does a controller that was frozen or
suspended, before it notices.

A run's process imports this module before Ansible has set up its collection loader, so it imports from the collection only inside functions.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

# The environment variable with the path of the shared memory.
VARIABLE = "CORRAL_FENCE"
_SIZE = 8


def now() -> float:
    """Return the time of the clock of election and fence: it is the same in all processes, and advances while the host is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Fence:
    """Closed until the first ``move``. A run opens the controller's fence by its ``path``, read-only."""

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
        # A single number, so that it is read and written atomically.
        self._until = memoryview(shared).cast("d")

    def move(self, until: float) -> None:
        """Allow writes until a time of the clock; 0: no writes."""
        self._until[0] = until

    @property
    def open(self) -> bool:
        """True while this operator may write."""
        return self._clock() < self._until[0]

    def check(self) -> None:
        """Check that writes are allowed. Raises CorralError if they are not."""
        if not self.open:
            from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

            raise CorralError(
                "This pod of the operator has stopped writing: it has not renewed its Lease in time, so another pod may lead by now; "
                "the leader's next run continues."
            )
