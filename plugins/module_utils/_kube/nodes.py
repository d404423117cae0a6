# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a Kubernetes node is to be emptied: it is cordoned, has a taint that announces its removal, or a bad condition. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# What `kubectl cordon` sets, in both its forms.
CORDON = "node.kubernetes.io/unschedulable"
# Those that announce the removal of a Kubernetes node: a cordon, the cluster autoscaler, Karpenter, and a node that somebody has declared to be off.
TAINTS = (
    CORDON,
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "node.kubernetes.io/out-of-service",
)
# A taint that only asks to be avoided keeps nobody away.
_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


# The annotation with the reason of a cordon, for people who read Slurm's state.
NOTE = "corral.hpc/reason"
_LONGEST = 200


def cause(node: dict[str, Any], keys: Iterable[str], conditions: Iterable[str] = ()) -> str:
    """Return why a node is to be emptied; "" when it is not. ``keys`` are those of taints, ``conditions`` types that are true: the first that it has counts.

    What others wrote is in it as one line of text that can be shown, cut to a length that Slurm keeps.
    """
    spec, metadata = node.get("spec") or {}, node.get("metadata") or {}
    name, note = metadata.get("name", ""), _line((metadata.get("annotations") or {}).get(NOTE))
    taints = {str(taint.get("key")) for taint in spec.get("taints") or () if taint.get("effect") in _EFFECTS}
    for key in keys:
        if key == CORDON and (spec.get("unschedulable") or key in taints):
            return f"Kubernetes node {name} is cordoned{note}"
        if key in taints:
            return f"Kubernetes node {name} has the taint {key}{note}"
    for kind in conditions:
        for condition in (node.get("status") or {}).get("conditions") or ():
            if condition.get("type") == kind and condition.get("status") == "True":
                return f"Kubernetes node {name} has the condition {kind}{note or _line(condition.get('message'))}"
    return ""


def _line(text: object) -> str:
    """Return what follows on a cause, "" for nothing."""
    shown = " ".join("".join(one if one.isprintable() else " " for one in str(text or "")).split())
    return f": {shown[:_LONGEST]}" if shown else ""
