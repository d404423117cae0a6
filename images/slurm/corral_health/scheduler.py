# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""What Slurm says of nodes, read from scontrol's and sinfo's output; who took a node out of service. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

# A registration that slurmctld refuses drains the node, with why, or first with the reason that it had before, if it had one. A good one leaves the drain as
# it is (24.11.5), so the node would stay out for ever by a message on how it began, or on what it lacked then. The messages are slurmctld's: see
# _slurm/reasons.py of the collection, which knows the same.
_REFUSAL = (
    r"(?:Low socket\*core\*thread count|Low CPUs|Low TmpDisk|Low RealMemory \(reported:[^()]*\)"
    r"|[^ ,]+ count (?:reported lower than configured|too low) \([^()]*\))"
)
_REFUSED = re.compile(rf"{_REFUSAL}(?:, {_REFUSAL})* \[slurm@[^\]\[]*\](?: .*)?")
# Down by Slurm's own doing, or its pod's: slurmd has responded since, so it is in service in a moment (ReturnToService=2).
_BY_ITSELF = ("Not responding", "Node unexpectedly rebooted", "ResumeTimeout reached", "Communication error")
_OURS = ("NO NETWORK ADDRESS FOUND", "corral: pod:", "corral: start:", "corral: jail:", "corral: health:")
BATCH_FAILURE = "batch job complete failure"


@dataclass(frozen=True)
class Node:
    """A node as slurmctld shows it. ``reason`` is as scontrol prints it, with who set it when."""

    name: str
    state: str
    reason: str = ""
    memory: int = 0

    @property
    def drained(self) -> bool:
        """Whether it takes no new jobs."""
        return "DRAIN" in self.state

    @property
    def idle(self) -> bool:
        """Whether it has no job."""
        return not any(word in self.state for word in ("ALLOCATED", "MIXED", "COMPLETING"))

    @property
    def taken(self) -> bool:
        """Whether others have set it down or failing: "resume" would take that back, and a drain would hide it."""
        return "+FAIL" in self.state or (self.state.startswith("DOWN") and not self._comes_back())

    @property
    def left_over(self) -> bool:
        """Whether it is out by a message on how it began, or on what it lacked at a registration before this one."""
        if "INVALID_REG" in self.state:
            return False
        return self.reason.startswith(("NO NETWORK ADDRESS FOUND", "corral: pod:")) or _REFUSED.fullmatch(self.reason) is not None

    def _comes_back(self) -> bool:
        # What slurmctld printed last counts.
        return self.reason.rsplit(" : ", 1)[-1].startswith(_BY_ITSELF) or self.reason.startswith(_OURS)


def node(name: str, text: str) -> Node | None:
    """Return the node of ``scontrol show node --oneliner``; None when slurmctld does not show it: a drain that is not visible may belong to somebody."""
    for line in text.splitlines():
        if not line.startswith(f"NodeName={name} "):
            continue
        state = re.search(r" State=(\S+)", line)
        reason = re.search(r" Reason=(.*)", line)
        memory = re.search(r" RealMemory=(\d+)", line)
        return Node(name, state[1] if state else "", reason[1].strip() if reason else "", int(memory[1]) if memory else 0)
    return None


@dataclass(frozen=True)
class Fleet:
    """All nodes, by ``sinfo -h -N -o '%N %T %E'``, one line for each partition of each: (name, whether drained, reason)."""

    nodes: frozenset[tuple[str, bool, str]] = frozenset()

    @classmethod
    def read(cls, text: str) -> Fleet:
        """Return what sinfo printed."""
        rows = (line.split(" ", 2) for line in text.splitlines() if line.count(" ") >= 2)
        return cls(frozenset((name, state.startswith("drain"), reason) for name, state, reason in rows))

    def out(self, prefix: str, but: str) -> list[str]:
        """Return the names of the other nodes that are drained with a reason of this prefix."""
        return sorted({name for name, drained, reason in self.nodes if name != but and drained and prefix in reason})

    def most(self, percent: int) -> int:
        """Return how many nodes one check may take out of service."""
        return max(1, len({name for name, _drained, _reason in self.nodes}) * percent // 100)
