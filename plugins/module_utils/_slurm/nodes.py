# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of ``scontrol show nodes --json``. Pure: text in, nodes out."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._slurm import output

# A node with one of these cannot run jobs, whatever else its state says (slurm/slurm.h: NODE_STATE_FLAGS).
_AWAY = frozenset(
    {
        "DOWN",
        "ERROR",
        "FUTURE",
        "INVALID_REG",
        "NOT_RESPONDING",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "REBOOT_ISSUED",
        "UNKNOWN",
    }
)
# What can be no name of a pod: those end with the cluster's domain.
_ADDRESS = re.compile(r"[0-9.]+|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*")
_IN_SERVICE = frozenset({"ALLOCATED", "COMPLETING", "IDLE", "MIXED"})
_BUSY = frozenset({"ALLOCATED", "COMPLETING", "MIXED"})
_NEVER_TAKEN = frozenset({"FUTURE", "INVALID_REG"})
# What "resume" takes from a node.
OUT = frozenset({"DOWN", "DRAIN", "ERROR", "FAIL"})


@dataclass(frozen=True)
class Node:
    """One node as slurmctld sees it; ``real_memory`` is MiB, ``state`` the base state and its flags.

    ``reason`` counts only while the node is out of service: an idle node keeps the reason that it had.
    """

    name: str
    state: list[str]
    reason: str
    address: str
    cpus: int
    real_memory: int
    features: list[str]
    partitions: list[str]
    active_features: list[str] = field(default_factory=list)
    weight: int = 1
    comment: str = ""
    reason_user: str = ""
    reason_time: str = ""
    reservation: str = ""
    gres: str = ""
    gres_used: str = ""
    allocated_cpus: int = 0
    version: str = ""
    boot_time: str = ""
    slurmd_start_time: str = ""

    @property
    def answers(self) -> bool:
        """True when its slurmd has registered and can be reached; it may be drained."""
        return bool(_IN_SERVICE & set(self.state)) and not _AWAY & set(self.state)

    @property
    def drained(self) -> bool:
        """True when it takes no new jobs because somebody drained it."""
        return "DRAIN" in self.state

    @property
    def in_service(self) -> bool:
        """True when it takes new jobs, or will when those that it has have ended."""
        return self.answers and not self.drained

    @property
    def out(self) -> bool:
        """True when somebody, or Slurm itself, has taken it out of service."""
        return bool(OUT & set(self.state))

    @property
    def never_taken(self) -> bool:
        """True when slurmctld does not take it as slurm.conf has it: it has never registered, or with less. It gets no job, and no
        moment of outage makes a node one of these."""
        return bool(_NEVER_TAKEN & set(self.state))

    @property
    def refused(self) -> bool:
        """True when slurmctld refuses its registration now: slurmd has less than slurm.conf says."""
        return "INVALID_REG" in self.state

    @property
    def busy(self) -> bool:
        """True when a job is on it, or has not quite left it."""
        return bool(_BUSY & set(self.state))

    @property
    def named_only(self) -> bool:
        """True when it does not respond, and slurmctld has no address for it but what its name in slurm.conf led to."""
        return "NOT_RESPONDING" in self.state and bool(self.address) and not _ADDRESS.fullmatch(self.address)

    @property
    def summary(self) -> str:
        """Describe what keeps it out of service: ``cpu-1 is DOWN+NOT_RESPONDING (reason)``."""
        return f"{self.name} is {'+'.join(self.state)}" + (f" ({self.reason})" if self.reason else "")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with the two verdicts."""
        return {**asdict(self), "in_service": self.in_service, "drained": self.drained}


def named(found: list[Node], names: list[str]) -> list[Node]:
    """Return the named nodes, or all when none is named."""
    wanted = set(names)
    return [node for node in found if not wanted or node.name in wanted]


def counts(found: list[Node], names: list[str]) -> dict[str, int]:
    """Count each of the named nodes once, or of all when none is named: ``total``, ``in_service``, ``drained`` and ``down``.

    Those that slurmctld hides have never come, or it has forgotten them: they are down.
    """
    counted = named(found, names)
    drained = sum(node.drained for node in counted)
    serving = sum(node.in_service for node in counted)
    total = len(set(names)) or len(counted)
    return {"total": total, "in_service": serving, "drained": drained, "down": total - drained - serving}


def parse(text: str) -> list[Node]:
    """Return the nodes of scontrol's JSON in its order. Raises OutputError."""
    return [_node(row) for row in output.rows(text, "nodes")]


def _node(row: output.Row) -> Node:
    return Node(
        name=str(row["name"]),
        state=output.strings(row.get("state")),
        reason=str(row.get("reason") or ""),
        address=str(row.get("address") or ""),
        cpus=output.number(row.get("cpus")),
        real_memory=output.number(row.get("real_memory")),
        features=output.strings(row.get("features")),
        partitions=output.strings(row.get("partitions")),
        active_features=output.strings(row.get("active_features")),
        weight=output.number(row.get("weight")),
        comment=str(row.get("comment") or ""),
        reason_user=str(row.get("reason_set_by_user") or ""),
        reason_time=output.moment(row.get("reason_changed_at")),
        reservation=str(row.get("reservation") or ""),
        gres=str(row.get("gres") or ""),
        gres_used=str(row.get("gres_used") or ""),
        allocated_cpus=output.number(row.get("alloc_cpus")),
        version=str(row.get("version") or ""),
        boot_time=output.moment(row.get("boot_time")),
        slurmd_start_time=output.moment(row.get("slurmd_start_time")),
    )
