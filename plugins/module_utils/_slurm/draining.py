# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs on draining nodes: messages about them, and the actions on them after a deadline. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist, jobs, output, reasons
from ansible_collections.corral.slurm.plugins.module_utils._slurm.nodes import Node

_ENDING = frozenset({"COMPLETING", "REQUEUED"}) | jobs.QUEUED
_SHOWN = 5
_NUMBER = re.compile(r"[0-9]+([_+][0-9]+)?")
# What squeue prints for nothing.
_NONE = frozenset({"", "(null)", "N/A"})

Action = tuple[list[str], str]
"""A command, and a text about what it does that completes "Could not"."""


@dataclass(frozen=True)
class Task:
    """A job that has nodes, or one task of an array: ``number`` is what scancel and scontrol requeue take for just this one. ``end`` is when its time
    limit ends it, in seconds since 1970, 0 where that is not known. ``names`` are nodes that it holds by naming them and not by being there."""

    number: str
    name: str
    user: str
    state: frozenset[str]
    nodes: frozenset[str]
    partitions: frozenset[str] = frozenset()
    end: int = 0
    qos: str = ""
    names: str = ""

    @property
    def summary(self) -> str:
        """Name it: ``job 12_3 (train of ada)``."""
        return f"job {self.number} ({self.name} of {self.user})"

    @property
    def place(self) -> str:
        """Name it with the nodes that it is on, or that it names."""
        return (
            f"{self.summary}, which names {self.names} (--nodelist)" if self.names else f"{self.summary} on {hostlist.compress(self.nodes)}"
        )

    @property
    def queued(self) -> bool:
        """True for a pending one, whose named nodes can be changed."""
        return bool(self.state & jobs.QUEUED)

    def to_dict(self) -> dict[str, str]:
        """Return plain JSON types."""
        return {"id": self.number, "name": self.name, "user": self.user}


@dataclass(frozen=True)
class Named:
    """A job that names nodes, by --nodelist or by --exclude.

    slurmctld fails every job, one that runs elsewhere too, when its configuration loses a node that it requires; it bears the loss of one that it excludes,
    but then refuses to release or change it while it waits (24.11 and 26.05).
    """

    task: Task
    required: frozenset[str]
    excluded: frozenset[str]


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
    """Return the action on a task after its nodes have waited for so many seconds: Requeue, Cancel, or "" for none yet.

    The first rule that fits it counts, otherwise ``policy`` and ``deadline``.
    """
    for rule in rules:
        if rule.fits(task):
            policy, deadline = rule.policy, rule.deadline
            break
    return policy if policy != "Wait" and waited >= deadline else ""


def overdue(
    node: Node, found: Iterable[Task], *, now: float, policy: str, deadline: float, rules: Iterable[Rule] = ()
) -> list[tuple[Task, str]]:
    """Return the tasks on a drained node that are due, each with its action; ``now`` is slurmctld's time in seconds since 1970."""
    waited, rules = now - since(node), tuple(rules)
    due = ((task, order(task, waited, policy, deadline, rules)) for task in found)
    return [(task, policy) for task, policy in due if policy]


def tasks(text: str) -> list[Task]:
    """Return the jobs of squeue's JSON, each task of an array for itself. Raises OutputError."""
    return [_task(row) for row in output.rows(text, "jobs", "squeue", "job_id")]


def naming(text: str, mark: str, nodes: Collection[str]) -> list[Named]:
    """Return the jobs that name some of ``nodes``, of squeue's lines in the format jobs.NAMES. Raises OutputError.

    Each line begins with ``mark``, which users cannot know: their jobs' names may have line breaks, and would else be lines of their own.
    """
    before, *lines = f"\n{text}".split(f"\n{mark}|")
    if before.strip():
        raise output.OutputError(f"squeue's output begins with {before.strip()[:200]!r} and not with a job; see what 'squeue' prints.")
    wanted, known = frozenset(nodes), dict.fromkeys(_NONE, frozenset[str]())
    found: list[Named] = []
    for line in lines:
        fields = line.split("|", jobs.NAMES.count("|"))
        if len(fields) <= jobs.NAMES.count("|") or not _NUMBER.fullmatch(fields[0]) or fields[4] in _NONE:
            raise output.OutputError(
                f"squeue's line {line.strip()[:200]!r} describes no job; nothing was changed, so see what 'squeue' prints."
            )
        for names in fields[1:3]:
            if names not in known:  # many jobs name the same
                known[names] = frozenset(hostlist.expand(names))
        required, excluded = known[fields[1]], known[fields[2]]
        if wanted & (required | excluded):
            found.append(Named(_named(fields), required, excluded))
    return found


def spared(found: Iterable[Named], nodes: Collection[str], others: Collection[str]) -> list[Action]:
    """Return the actions on pending jobs that exclude one of ``nodes``, which are removed now: to exclude these and ``others`` no more. That changes nothing
    for them, since no job gets a drained node. Tasks of an array that exclude the same share a command."""
    groups: dict[tuple[str, frozenset[str]], list[Task]] = {}
    for one in found:
        if one.task.queued and one.excluded & set(nodes):
            groups.setdefault((one.task.number.partition("_")[0], one.excluded), []).append(one.task)
    result: list[Action] = []
    for (_array, excluded), due in groups.items():
        number = hostlist.compress(task.number for task in due)
        rest = hostlist.compress(excluded - set(nodes) - set(others))
        what = f"let {replace(due[0], number=number).summary} no more exclude {hostlist.compress(excluded & set(nodes))}"
        result.append((["scontrol", "update", f"excnodelist={rest}", f"jobid={number}"], what))
    return result


def freed(due: Iterable[tuple[Task, str]], found: Iterable[Named], nodes: Collection[str]) -> list[Action]:
    """Return the actions on due pending jobs that require some of ``nodes``: to run without them, or to end; each once.

    A job that runs would be resized by the first, but none can have begun meanwhile: the nodes are drained.
    """
    required, result = {one.task.number: one.required for one in found}, dict[str, Action]()
    for task, policy in due:
        if not task.queued or task.number not in required:
            continue
        if policy == "Cancel":
            result[task.number] = (["scancel", task.number], f"cancel {task.summary}")
            continue
        rest, gone = required[task.number] - set(nodes), required[task.number] & set(nodes)
        # scontrol takes one task of an array here, and not several.
        command = ["scontrol", "update", f"reqnodelist={hostlist.compress(rest)}", f"jobid={task.number}"]
        result[task.number] = (command, f"let {task.summary} run without {hostlist.compress(gone)}")
    return list(result.values())


def by_node(found: Iterable[Task]) -> dict[str, list[Task]]:
    """Return the tasks on each node that has any."""
    on: dict[str, list[Task]] = {}
    for task in found:
        for name in task.nodes:
            on.setdefault(name, []).append(task)
    return on


def actions(due: Iterable[tuple[Task, str]]) -> list[Action]:
    """Return the actions on due tasks, by their policies, Requeue or Cancel; each once, and none for a task that is ending."""
    found: dict[str, Action] = {}
    for task, policy in due:
        if not _ENDING & task.state:
            program = ["scancel"] if policy == "Cancel" else ["scontrol", "requeue"]
            found[task.number] = ([*program, task.number], f"{policy.lower()} {task.summary}")
    return list(found.values())


def overdue_actions(nodes: Iterable[Node], found: Iterable[Task], *, owner: str, policy: str, deadline: float, now: float) -> list[Action]:
    """Return the actions on jobs on nodes that ``owner`` has drained ``deadline`` seconds ago or longer."""
    due = {node.name for node in nodes if drained_by(node, owner) and now - since(node) >= deadline}
    return actions((task, policy) for task in found if policy != "Wait" and task.nodes & due)


def summary(waiting: dict[str, list[Task]], partitions: dict[str, list[Task]] | None = None) -> str:
    """Describe what is waited for, by the tasks on each node that is not free, and in each removed partition; "" for nothing."""
    found = {task.number: task.place for on in waiting.values() for task in on}
    for name, inside in (partitions or {}).items():
        found = {**{task.number: f"{task.summary} in partition {name}" for task in inside}, **found}
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


def _named(fields: list[str]) -> Task:
    """Return the job of a line of squeue's, by its fields."""
    number, _required, _excluded, nodes, state, user, partition, qos, name = ("" if field in _NONE else field for field in fields)
    return Task(
        number=number,
        name=" ".join(name.split()),
        user=user,
        state=frozenset({state}),
        nodes=frozenset(hostlist.expand(nodes)),
        partitions=frozenset(partition.split(",")) - {""},
        qos=qos,
    )


def _task(row: output.Row) -> Task:
    number = str(output.number(row["job_id"]))
    array, task = output.number(row.get("array_job_id")), row.get("array_task_id")
    if array and isinstance(task, dict) and task.get("set"):
        number = f"{array}_{output.number(task)}"
    states = output.strings(row.get("job_state"))
    if not states:
        raise output.OutputError(f"squeue's JSON has job {number} without a state; see what 'squeue --json' prints.")
    return Task(
        number=number,
        name=str(row.get("name") or ""),
        user=str(row.get("user_name") or row.get("user_id") or ""),
        state=frozenset(states),
        nodes=frozenset(hostlist.expand(str(row.get("nodes") or ""))),
        partitions=frozenset(str(row.get("partition") or "").split(",")) - {""},
        end=output.number(row.get("end_time")),
        qos=str(row.get("qos") or ""),
    )
