# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs on nodes that shall be free: which they are, in words, and what they are told after a deadline. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._slurm import answer, hostlist, reasons
from ansible_collections.corral.slurm.plugins.module_utils._slurm.nodes import Node

_GOES_ALREADY = frozenset({"COMPLETING", "PENDING", "REQUEUED"})
_SHOWN = 5

Deed = tuple[list[str], str]
"""A command, and what it does in words that complete "Could not"."""


@dataclass(frozen=True)
class Task:
    """A job that has nodes, or one task of an array: ``number`` is what scancel and scontrol requeue take for just this one. ``end`` is when its time
    limit ends it, in seconds since 1970, 0 where that is not known."""

    number: str
    name: str
    user: str
    state: frozenset[str]
    nodes: frozenset[str]
    partitions: frozenset[str] = frozenset()
    end: int = 0
    qos: str = ""

    @property
    def words(self) -> str:
        """Say which it is: ``job 12_3 (train of ada)``."""
        return f"job {self.number} ({self.name} of {self.user})"

    def to_dict(self) -> dict[str, str]:
        """Return plain JSON types."""
        return {"id": self.number, "name": self.name, "user": self.user}


@dataclass(frozen=True)
class Rule:
    """What becomes of jobs of some partitions or QoS: ``policy`` is Wait, Requeue or Cancel, ``deadline`` in seconds. With both, a job must be of both."""

    policy: str
    deadline: int
    partitions: frozenset[str] = frozenset()
    qos: frozenset[str] = frozenset()

    @classmethod
    def all_of(cls, given: Iterable[Mapping[str, Any]]) -> tuple[Rule, ...]:
        """Return them as a module's options have them."""
        return tuple(
            cls(str(one["policy"]), int(one["deadline"]), frozenset(one.get("partitions") or ()), frozenset(one.get("qos") or ()))
            for one in given
        )

    def fits(self, task: Task) -> bool:
        """True for jobs that it is about."""
        return (not self.partitions or bool(self.partitions & task.partitions)) and (not self.qos or task.qos in self.qos)


def order(task: Task, waited: float, policy: str, deadline: float, rules: Iterable[Rule] = ()) -> str:
    """Return what a task is told for which nodes have waited so many seconds: Requeue, Cancel, or "" while it is waited for.

    The first rule that fits it counts, and where none does ``policy`` and ``deadline``.
    """
    for rule in rules:
        if rule.fits(task):
            policy, deadline = rule.policy, rule.deadline
            break
    return policy if policy != "Wait" and waited >= deadline else ""


def overdue(
    node: Node, found: Iterable[Task], *, now: float, policy: str, deadline: float, rules: Iterable[Rule] = ()
) -> list[tuple[Task, str]]:
    """Return what tasks on a drained node are told, those that are told anything; ``now`` is slurmctld's time in seconds since 1970."""
    waited, rules = now - since(node), tuple(rules)
    told = ((task, order(task, waited, policy, deadline, rules)) for task in found)
    return [(task, word) for task, word in told if word]


def tasks(text: str) -> list[Task]:
    """Return the jobs of squeue's JSON, each task of an array for itself. Raises AnswerError."""
    return [_task(row) for row in answer.rows(text, "jobs", "squeue", "job_id")]


def by_node(found: Iterable[Task]) -> dict[str, list[Task]]:
    """Return the tasks on each node that has any."""
    on: dict[str, list[Task]] = {}
    for task in found:
        for name in task.nodes:
            on.setdefault(name, []).append(task)
    return on


def deeds(told: Iterable[tuple[Task, str]]) -> list[Deed]:
    """Return what tasks are told whose time on a node is over, by their policies, Requeue or Cancel; each once, and none that goes already."""
    found: dict[str, Deed] = {}
    for task, policy in told:
        if not _GOES_ALREADY & task.state:
            program = ["scancel"] if policy == "Cancel" else ["scontrol", "requeue"]
            found[task.number] = ([*program, task.number], f"{policy.lower()} {task.words}")
    return list(found.values())


def pressed(nodes: Iterable[Node], found: Iterable[Task], *, owner: str, policy: str, deadline: float, now: float) -> list[Deed]:
    """Return what is done to jobs on nodes that ``owner`` has drained ``deadline`` seconds ago or longer."""
    due = {node.name for node in nodes if drained_by(node, owner) and now - since(node) >= deadline}
    return deeds((task, policy) for task in found if policy != "Wait" and task.nodes & due)


def words(waiting: dict[str, list[Task]], partitions: dict[str, list[Task]] | None = None) -> str:
    """Say what is waited for, by the tasks on each node that is not free, and in each partition that goes; "" for nothing."""
    found = {task.number: f"{task.words} on {hostlist.compress(task.nodes)}" for on in waiting.values() for task in on}
    for name, inside in (partitions or {}).items():
        found = {**{task.number: f"{task.words} in partition {name}" for task in inside}, **found}
    parts = list(found.values())[:_SHOWN]
    if len(found) > _SHOWN:
        parts.append(f"{len(found) - _SHOWN} more jobs")
    quiet = [name for name, on in waiting.items() if not on]
    if quiet:
        parts.append(f"{hostlist.compress(quiet)}, which is not idle yet")
    return f"waiting for {'; '.join(parts)}" if parts else ""


def drained_by(node: Node, owner: str) -> bool:
    """True for a drain of this owner."""
    return node.drained and reasons.owner(node.reason) == owner


def since(node: Node) -> float:
    """When its drain began; the end of time where slurmctld does not say, so that no deadline is ever over."""
    try:
        return datetime.fromisoformat(node.reason_time).timestamp()
    except ValueError:
        return float("inf")


def _task(row: answer.Row) -> Task:
    number = str(answer.number(row["job_id"]))
    array, task = answer.number(row.get("array_job_id")), row.get("array_task_id")
    if array and isinstance(task, dict) and task.get("set"):
        number = f"{array}_{answer.number(task)}"
    states = answer.words(row.get("job_state"))
    if not states:
        raise answer.AnswerError(f"squeue's JSON has job {number} without a state; see what 'squeue --json' prints.")
    return Task(
        number=number,
        name=str(row.get("name") or ""),
        user=str(row.get("user_name") or row.get("user_id") or ""),
        state=frozenset(states),
        nodes=frozenset(hostlist.expand(str(row.get("nodes") or ""))),
        partitions=frozenset(str(row.get("partition") or "").split(",")) - {""},
        end=answer.number(row.get("end_time")),
        qos=str(row.get("qos") or ""),
    )
