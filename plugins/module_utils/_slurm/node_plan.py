# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that bring nodes to their wanted state, and what is left alone because somebody else did it. Pure.

slurmctld applies a part of an update that it refuses, and refuses to resume a node that is in service ("Invalid node state specified"); so
the commands change only what differs, states and attributes apart, nodes of one change together.

A drain that ends by itself (the jail's check, a refused registration) would bring jobs back to a node that somebody else wants free. So it is taken
over by whoever drains the node for longer. What made it makes it again where that is still due when the new owner resumes the node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist, reasons
from ansible_collections.corral.slurm.plugins.module_utils._slurm.conf import refusal
from ansible_collections.corral.slurm.plugins.module_utils._slurm.nodes import OUT, Node
from ansible_collections.corral.slurm.plugins.module_utils._slurm.output import OutputError, printable

_WITH_JOBS = frozenset({"ALLOCATED", "MIXED"})


@dataclass(frozen=True)
class Wanted:
    """The wanted state of nodes; what is None stays as it is. ``state`` is drained, down or resumed, ``reason`` what write() made. Features that do not
    begin with ``prefix`` stay as they are."""

    state: str | None = None
    reason: str = ""
    owner: str = "admin"
    force: bool = False
    features: list[str] | None = None
    prefix: str = ""
    weight: int | None = None
    comment: str | None = None


@dataclass
class Plan:
    """Commands by their nodes, what they change by node, and the nodes that somebody else keeps out of service."""

    updates: dict[tuple[str, ...], list[str]] = field(default_factory=dict)
    before: dict[str, dict[str, Any]] = field(default_factory=dict)
    after: dict[str, dict[str, Any]] = field(default_factory=dict)
    foreign: list[Node] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """True when there is any command."""
        return bool(self.updates)

    def commands(self) -> list[list[str]]:
        """Return the commands, one for all nodes that need the same."""
        return [["scontrol", "update", f"nodename={hostlist.compress(names)}", *arguments] for arguments, names in self.updates.items()]

    def foretold(self, node: Node) -> Node:
        """Return a node with its future state and reason."""
        after = self.after.get(node.name, {})
        return replace(node, state=after["state"].split("+"), reason=after["reason"]) if "state" in after else node

    def add(self, node: Node, update: tuple[str, ...], before: dict[str, Any], after: dict[str, Any]) -> None:
        """Note a change of one node."""
        self.updates.setdefault(update, []).append(node.name)
        self.before.setdefault(node.name, {}).update(before)
        self.after.setdefault(node.name, {}).update(after)


def wanted(params: dict[str, Any]) -> Wanted:
    """Return what a task asks for; the parameters are those of the module slurm_node. Raises CorralError."""
    state, owner = params.get("state"), str(params["owner"])
    reason = reasons.write(owner, str(params.get("reason") or "")) if state in ("drained", "down") else ""
    features = params.get("features")
    prefix = str(params.get("features_prefix") or "")
    for feature in features or ():
        why = (
            "is empty"
            if not feature
            else "has white space or a comma"
            if any(c.isspace() or c == "," for c in feature)
            else refusal(feature)
        )
        if why:
            raise CorralError(f"The feature {feature!r} {why}; use letters, digits and the characters _ . : - in it.")
        if not feature.startswith(prefix):
            raise CorralError(
                f"The feature {feature!r} does not begin with {prefix!r}, which features_prefix says; add it there, or leave that out."
            )
    comment = params.get("comment")
    return Wanted(
        state=state,
        reason=reason,
        owner=owner,
        force=bool(params["force"]),
        features=None if features is None else [str(feature) for feature in features],
        prefix=prefix,
        weight=params.get("weight"),
        comment=None if comment is None else printable(str(comment), "comment"),
    )


def plan(nodes: Iterable[Node], desired: Wanted) -> Plan:
    """Compare nodes with their wanted state."""
    found = Plan()
    for node in nodes:
        if not node.state:
            raise OutputError(
                f"slurmctld reports no state of node {node.name}, so nothing was changed; see what 'scontrol show node {node.name} --json' prints."
            )
        _state(node, desired, found)
        _attributes(node, desired, found)
    return found


def lasting(node: Node) -> bool:
    """True for a node that is drained until somebody takes that back. One that is only down is in service again with slurmd's next response
    (ReturnToService=2)."""
    return node.drained and not reasons.passing(node.reason)


def _state(node: Node, desired: Wanted, found: Plan) -> None:
    if desired.state is None:
        return
    if desired.state == "resumed":
        if not node.out:
            return
        if not _owned(node, desired):
            found.foreign.append(node)
            return
        found.add(node, ("state=resume",), _seen(node), {"state": _resumed(node), "reason": ""})
        return
    ends_jobs = desired.state == "down" and "DOWN" not in node.state
    # A drain keeps out what is down, too, once slurmd has responded. So down is in its wanted state where no job can be.
    if node.drained and reasons.says(node.reason, desired.reason) and not (ends_jobs and _WITH_JOBS & set(node.state)):
        return
    if node.out and not _owned(node, desired) and not _may_take(node, desired):
        found.foreign.append(node)
        return
    after = node.state if node.drained else [*node.state, "DRAIN"]
    shown = {"state": "+".join(["DOWN", *after[1:]] if ends_jobs else after), "reason": desired.reason}
    found.add(node, ("state=drain", f"reason={desired.reason}"), _seen(node), shown)
    if ends_jobs:  # drained before, so that none comes in between
        found.add(node, ("state=down", f"reason={desired.reason}"), _seen(node), shown)


def accepted(node: Node) -> bool:
    """True for a node that is drained for a registration that slurmctld has refused, and that it takes by now: the drain is about nothing any more."""
    return node.drained and not node.refused and reasons.is_refusal(node.reason)


def _owned(node: Node, desired: Wanted) -> bool:
    """True where what keeps the node out is this owner's, or counts as that, or has no cause any more."""
    if desired.force or (desired.state == "resumed" and accepted(node)):
        return True
    return reasons.owner(reasons.standing(node.reason, node.drained)) == desired.owner


def _may_take(node: Node, desired: Wanted) -> bool:
    """True where nothing is lost when the reason becomes this owner's."""
    if not node.drained and reasons.slurms_own(reasons.standing(node.reason, node.drained)):
        return True
    return desired.owner not in reasons.PASSING and reasons.passing(node.reason)


def _seen(node: Node) -> dict[str, Any]:
    return {"state": "+".join(node.state), "reason": node.reason if node.out else ""}


def _resumed(node: Node) -> str:
    left = [flag for flag in node.state if flag not in OUT]
    return "+".join(["IDLE", *left] if node.state and node.state[0] in OUT else left)


def _features(of: list[str], desired: Wanted) -> list[str]:
    """Return the wanted features of a node: those of others, where there are such, and the wanted ones."""
    others = [feature for feature in of if desired.prefix and not feature.startswith(desired.prefix)]
    return [*others, *(desired.features or ())]


def _attributes(node: Node, desired: Wanted, found: Plan) -> None:
    update: list[str] = []
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    if desired.features is not None:
        available, active = (_features(of, desired) for of in (node.features, node.active_features))
        if set(node.features) != set(available) or set(node.active_features) != set(active):
            # Both at once: active features have to be among the available ones at any time.
            update += [f"availablefeatures={','.join(available)}", f"activefeatures={','.join(active)}"]
            before["features"], after["features"] = node.features, available
    if desired.weight is not None and node.weight != desired.weight:
        update.append(f"weight={desired.weight}")
        before["weight"], after["weight"] = node.weight, desired.weight
    if desired.comment is not None and node.comment != desired.comment:
        update.append(f"comment={desired.comment}")
        before["comment"], after["comment"] = node.comment, desired.comment
    if update:
        found.add(node, tuple(update), before, after)
