# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``scontrol show nodes --json`` says of nodes (Slurm 24.11, data parser v0.0.42 and its neighbours). Pure: text in, nodes out."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

# A node with one of these can not run jobs, whatever else its state says (slurm/slurm.h: NODE_STATE_FLAGS).
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
_IN_SERVICE = frozenset({"ALLOCATED", "COMPLETING", "IDLE", "MIXED"})


class NodesError(CorralError):
    """scontrol's answer is not what its data parser promises."""


@dataclass(frozen=True)
class Node:
    """One node as slurmctld sees it; ``real_memory`` is MiB, ``state`` the base state and its flags."""

    name: str
    state: list[str]
    reason: str
    address: str
    cpus: int
    real_memory: int
    features: list[str]
    partitions: list[str]

    @property
    def answers(self) -> bool:
        """True when its slurmd has registered and can be reached; it may be drained."""
        return bool(_IN_SERVICE & set(self.state)) and not _AWAY & set(self.state)

    @property
    def drained(self) -> bool:
        """True when it takes no new jobs because somebody said so."""
        return "DRAIN" in self.state

    @property
    def words(self) -> str:
        """Say what keeps it out of service: ``cpu-1 is DOWN+NOT_RESPONDING (reason)``."""
        return f"{self.name} is {'+'.join(self.state)}" + (f" ({self.reason})" if self.reason else "")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with the two verdicts."""
        return {**asdict(self), "in_service": self.answers and not self.drained, "drained": self.drained}


def parse(text: str) -> list[Node]:
    """Return the nodes of scontrol's JSON in its order. Raises NodesError."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise NodesError(
            f"scontrol's answer is not JSON ({error}): {text.strip()[:200]!r}; is its Slurm built with the JSON plugin?"
        ) from error
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(nodes, list):
        raise NodesError("scontrol's JSON has no list of nodes; Slurm 23.02 or later has one.")
    return [_node(node) for node in nodes]


def _node(node: dict[str, Any]) -> Node:
    return Node(
        name=str(node["name"]),
        state=_words(node.get("state")),
        reason=str(node.get("reason") or ""),
        address=str(node.get("address") or ""),
        cpus=_number(node.get("cpus")),
        real_memory=_number(node.get("real_memory")),
        features=_words(node.get("features")),
        partitions=_words(node.get("partitions")),
    )


def _words(value: Any) -> list[str]:
    """Return a list of words: newer parsers give lists, older ones text joined by commas."""
    if isinstance(value, list):
        return [str(item) for item in value]
    return [part for part in str(value or "").split(",") if part]


def _number(value: Any) -> int:
    """Return a count: a number, or ``{"set": true, "infinite": false, "number": 3}``."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else 0
    return int(value or 0)
