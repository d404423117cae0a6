# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a machine (a Kubernetes node) is to be left: it is cordoned, or has a taint by which others announce that. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# What `kubectl cordon` sets, in both its forms.
CORDON = "node.kubernetes.io/unschedulable"
# Those by which machines are announced to go: a cordon, the cluster autoscaler, Karpenter, and a machine that somebody has declared to be off.
TAINTS = (
    CORDON,
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "node.kubernetes.io/out-of-service",
)
# A taint that only asks to be avoided keeps nobody away.
_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})


def cause(machine: dict[str, Any], keys: Iterable[str]) -> str:
    """Say why a machine is to be left; "" when it is not. ``keys`` are those of taints, the first that it has counts."""
    spec = machine.get("spec") or {}
    name = (machine.get("metadata") or {}).get("name", "")
    taints = {str(taint.get("key")) for taint in spec.get("taints") or () if taint.get("effect") in _KEEPS_AWAY}
    for key in keys:
        if key == CORDON and (spec.get("unschedulable") or key in taints):
            return f"machine {name} is cordoned"
        if key in taints:
            return f"machine {name} has the taint {key}"
    return ""
