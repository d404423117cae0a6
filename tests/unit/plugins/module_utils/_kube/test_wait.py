# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much a wait looks at; what it says is in tests/integration/kube/test_wait.py."""

from __future__ import annotations

import time

from ansible_collections.corral.slurm.plugins.module_utils._kube import wait
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import Item


class Busy(wait._Wait):
    """A wait with an event each millisecond and so many pods that a look at them takes ten."""

    looks = 0

    def _start(self) -> None:
        self.until = time.monotonic() + 0.6

    def _read(self, seconds: float) -> None:
        time.sleep(0.001)
        if time.monotonic() > self.until:
            self.pending.clear()

    def _judge(self) -> None:
        self.looks += 1
        time.sleep(0.01)


def test_a_look_at_a_thousand_pods_does_not_follow_each_of_their_events() -> None:
    ref = Ref(BUILTIN["apps", "StatefulSet"], "ns", "web")
    live = {"metadata": {"name": "web", "namespace": "ns", "generation": 1}, "spec": {"replicas": 2}, "status": {}}
    item = Item(ref=ref, body=live)
    item.after = live
    waits = Busy(None, [item], 5.0, False)  # type: ignore[arg-type]
    assert waits.pending
    waits.run()
    assert 2 <= waits.looks <= 8, "a tenth of the time at most, and yet again and again"
