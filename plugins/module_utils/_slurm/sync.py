# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm nodes on Kubernetes nodes that are to be emptied: which are drained, which are resumed, and which pods may be evicted. Pure.

What is not known changes nothing: a node without a Kubernetes node, and one whose Kubernetes node cannot be read, stay as they are. A node is free when
the two commands agree (see scaling.py), and, unless an idle one will do, when it is drained besides, for longer than until its own health check
finds it well: else a job may come in the next moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ansible_collections.corral.slurm.plugins.module_utils._slurm import node_plan, output, reasons
from ansible_collections.corral.slurm.plugins.module_utils._slurm.draining import Task
from ansible_collections.corral.slurm.plugins.module_utils._slurm.nodes import Node

OWNER = "sync"


@dataclass(frozen=True)
class Place:
    """Where a node is. ``cause`` is why its ``kubernetes_node`` is to be emptied: "" for none, None where that is not known.

    ``settled``: the node's pod works there, so that jobs may come again.
    """

    node: str
    kubernetes_node: str
    cause: str | None
    settled: bool

    @property
    def must_drain(self) -> bool:
        """True when its Kubernetes node is to be emptied."""
        return bool(self.cause)


@dataclass
class Step:
    """The commands to slurmctld: a plan for each cause, and one for the nodes to be resumed."""

    drains: list[node_plan.Plan] = field(default_factory=list)
    resume: node_plan.Plan = field(default_factory=node_plan.Plan)

    @property
    def plans(self) -> list[node_plan.Plan]:
        """All plans, drains first."""
        return [*self.drains, self.resume]


def step(places: Iterable[Place], nodes: Iterable[Node]) -> Step:
    """Decide which nodes are drained and which are resumed. Raises OutputError for implausible output."""
    known = {node.name: node for node in nodes}
    if not known:
        raise output.OutputError("slurmctld reports no nodes at all, which is impossible while their pods are there.")
    causes: dict[str, list[Node]] = {}
    back: list[Node] = []
    for place in places:
        node = known.get(place.node)
        if node is None:
            continue
        if place.cause:
            causes.setdefault(place.cause, []).append(node)
        elif place.cause is not None and place.settled and ours(node):
            back.append(node)
    return Step(
        drains=[
            node_plan.plan(found, node_plan.Wanted(state="drained", reason=reasons.write(OWNER, cause), owner=OWNER))
            for cause, found in causes.items()
        ],
        resume=node_plan.plan(back, node_plan.Wanted(state="resumed", owner=OWNER)),
    )


def unneeded(places: Iterable[Place], nodes: Iterable[Node], *, idle: bool) -> set[str]:
    """Return the nodes whose pods may go if no job is on them: drained ones on a Kubernetes node that is to be emptied, with ``idle`` all that are
    drained or respond. What is on one that is only down is not known, nor when it is in service again."""
    draining = {place.node: place.must_drain for place in places}

    def unneeded(node: Node) -> bool:
        return (idle and node.answers) or ((idle or draining[node.name]) and node_plan.lasting(node))

    return {node.name for node in nodes if node.name in draining and not node.busy and unneeded(node)}


def free(names: Iterable[str], tasks: Iterable[Task]) -> set[str]:
    """Return those of the nodes that no job is on."""
    taken = {name for task in tasks for name in task.nodes}
    return {name for name in names if name not in taken}


def ours(node: Node) -> bool:
    """True for a node that was drained here."""
    return node.drained and reasons.owner(node.reason) == OWNER
