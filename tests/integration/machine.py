# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine of the lab that dies and comes back: its kubelet and containerd are killed, and with them the processes of a test's own pods there."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .conftest import REPOSITORY
from .kubectl import Kubectl

# The lab's package lies beside its program.
sys.path.insert(0, str(REPOSITORY / "lab"))

from corral_lab import lifecycle, processes
from corral_lab.state import Paths


class Machine:
    """One node of the lab."""

    def __init__(self, name: str, kubectl: Kubectl) -> None:
        self.name = name
        self._kubectl = kubectl
        self._paths = Paths.from_environment(dict(os.environ))
        parts = lifecycle.LabParts(self._paths, lifecycle.load_lab(self._paths))
        self._parts = [part for part in parts.all() if part.name in (f"{name}-containerd", f"{name}-kubelet")]

    def kill(self) -> None:
        """End kubelet and containerd at once; containers go on."""
        for part in reversed(self._parts):
            identity = processes.running(self._paths, part.name)
            if identity:
                processes.send(identity, signal.SIGKILL)

    def end(self, pods: Iterable[dict[str, Any]]) -> None:
        """End all processes of these pods, as a power cut does."""
        marks = [str(pod["metadata"]["uid"]) for pod in pods if pod["spec"].get("nodeName") == self.name]
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    if any(mark in (folder / "cgroup").read_text() for mark in marks):
                        os.kill(int(folder.name), signal.SIGKILL)

    def start(self) -> None:
        """Bring it back, and wait until Kubernetes has it. A kubelet ends that finds a containerd which is not ready yet."""
        deadline = time.monotonic() + 120
        for part in self._parts:
            while processes.running(self._paths, part.name) is None or part.health():
                if time.monotonic() > deadline:
                    raise AssertionError(f"{part.name} does not come back; see {self._paths.log}/{part.name}.log")
                if processes.running(self._paths, part.name) is None:
                    processes.start(self._paths, part)
                time.sleep(1)
        self._kubectl("wait", "--for=condition=Ready", f"node/{self.name}", "--timeout=120s")
