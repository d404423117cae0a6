# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Slurm node's state as conditions of its pod. Pure.

Neither a time nor anything else that changes by itself is in a condition, but for lastTransitionTime, which changes with the status.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._slurm.nodes import Node

READY = "corral.hpc/SlurmNodeReady"
DRAINED = "corral.hpc/SlurmNodeDrained"

Condition = dict[str, str]

# The first that a node has is the reason of its condition.
_BY_PRIORITY = (
    "INVALID_REG", "FUTURE", "POWERING_UP", "POWERING_DOWN", "POWERED_DOWN", "REBOOT_ISSUED", "NOT_RESPONDING", "DOWN", "ERROR", "FAIL",
    "UNKNOWN", "DRAIN", "REBOOT_REQUESTED", "MAINTENANCE", "RESERVED", "COMPLETING", "ALLOCATED", "MIXED", "IDLE",
)  # fmt: skip
# What comes and goes with each poll of the scheduler, or says only how the node was made.
_NOISE = frozenset({"PLANNED", "BLOCKED", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})


def wanted(node: Node | None, *, free: bool) -> list[Condition]:
    """Return the conditions of a node's pod, without times; ``node`` is None when slurmctld does not know it, ``free`` when no job is on it."""
    if node is None:
        message = "slurmctld does not know this node."
        return [_condition(kind, "Unknown", "NotInSlurm", message) for kind in (READY, DRAINED)]
    flags = [flag for flag in node.state if flag not in _NOISE]
    message = "+".join(flags) + (f": {node.reason}" if node.out and node.reason else "")
    main = next((flag for flag in _BY_PRIORITY if flag in flags), flags[0] if flags else "UNKNOWN")
    ready = "True" if node.in_service else "False"
    if not node.drained:
        drained = _condition(DRAINED, "False", "InService" if ready == "True" else "NotDrained", "")
    elif free and not node.busy:
        drained = _condition(DRAINED, "True", "Drained", node.reason)
    else:
        drained = _condition(DRAINED, "False", "Draining", f"Jobs are on it: {node.reason}")
    return [_condition(READY, ready, main.title().replace("_", ""), message), drained]


def differing(desired: list[Condition], live: list[dict[str, Any]], now: str) -> list[Condition]:
    """Return those conditions that are to be written, each with its lastTransitionTime: ``now`` where the status is another."""
    seen = {str(one.get("type")): one for one in live}
    found: list[Condition] = []
    for one in desired:
        was = seen.get(one["type"], {})
        if any(was.get(key, "") != value for key, value in one.items()):
            since = str(was.get("lastTransitionTime") or now) if was.get("status") == one["status"] else now
            found.append({**one, "lastTransitionTime": since})
    return found


def _condition(kind: str, status: str, reason: str, message: str) -> Condition:
    return {"type": kind, "status": status, "reason": reason, "message": message}
