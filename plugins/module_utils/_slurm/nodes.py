# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `scontrol show nodes --json` says, as typed rows, and which of its states count as being in service.

The states are those of Slurm's node_state_base and its flags, upper case, in a list: `["IDLE"]`, `["MIXED", "DRAIN"]`,
`["DOWN", "NOT_RESPONDING"]` (data_parser, Slurm 23.11 and later; older releases gave one string joined by "+").
"""
from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

_WORKING = frozenset({"IDLE", "ALLOCATED", "MIXED", "COMPLETING"})
# A node with one of these has not answered, whatever its base state says.
_ABSENT = frozenset({"DOWN", "UNKNOWN", "FUTURE", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "REBOOT_ISSUED", "INVALID_REG"})


class SlurmError(CorralError):
    """Slurm answered with something that can not be used, or not at all."""


@dataclass(frozen=True)
class Node:
    """One Slurm node: memory in MiB, states as Slurm lists them, reason empty when there is none."""

    name: str
    state: tuple[str, ...]
    reason: str
    reason_set_by: str
    cpus: int
    real_memory: int
    features: tuple[str, ...]
    partitions: tuple[str, ...]

    @property
    def in_service(self) -> bool:
        """Slurm has heard from the node. A drain does not count against it: that is somebody's wish, not an absence."""
        states = set(self.state)
        return bool(states & _WORKING) and not states & _ABSENT

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, for a task's result."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def parse(text: str) -> list[Node]:
    """Return the nodes in a reply of scontrol, in its order. Raises SlurmError for anything that is not one."""
    try:
        rows = json.loads(text)["nodes"]
        return [_node(row) for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        start = " ".join(text.split())[:120]
        raise SlurmError(
            f"scontrol's list of nodes can not be read ({type(error).__name__}: {error}); it began with {start!r}. Look at slurmctld's log."
        ) from error


def _node(row: dict[str, Any]) -> Node:
    state = row["state"]
    return Node(
        name=str(row["name"]),
        state=tuple(state.upper().split("+")) if isinstance(state, str) else tuple(str(part).upper() for part in state),
        reason=str(row.get("reason") or ""),
        reason_set_by=str(row.get("reason_set_by_user") or ""),
        cpus=int(row.get("cpus") or 0),
        real_memory=int(row.get("real_memory") or 0),
        features=tuple(row.get("features") or ()),
        partitions=tuple(row.get("partitions") or ()),
    )


def missing(nodes: Iterable[Node], wanted: Iterable[str]) -> dict[str, str]:
    """Return the wanted names that are not in service, each with what Slurm says of it."""
    known = {node.name: node for node in nodes}
    lacking = {}
    for name in wanted:
        node = known.get(name)
        if node is None:
            lacking[name] = "not known to slurmctld"
        elif not node.in_service:
            lacking[name] = "+".join(node.state) + (f" ({node.reason})" if node.reason else "")
    return lacking
