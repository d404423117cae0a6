# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods of an older template: which node is drained for it, which pod may go, which node comes back. Pure.

A pod goes when its node is drained and two answers agree that no job is left on it. All that is known of how far a roll-out has come is in the drains'
reasons and in the pods' revisions, so any run goes on with what another began. What is out of service for any reason counts, and so
do nodes whose new pod does not come up: a template that does not work never costs more than ``max_unavailable`` nodes that did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ansible_collections.corral.slurm.plugins.module_utils._slurm import answer, hostlist, leavers, node_plan, reasons, sync
from ansible_collections.corral.slurm.plugins.module_utils._slurm.leavers import Deed, Rule, Task
from ansible_collections.corral.slurm.plugins.module_utils._slurm.nodes import Node

OWNER = "rollout"
# The same whatever the template is: another text would be another drain, and its deadline would begin anew.
REASON = reasons.write(OWNER, "its pod is replaced by one of the new template when no job is left")

# slurmctld's word for a node that a reservation with the flag MAINT holds now.
_MAINTENANCE = "MAINTENANCE"
_NEVER = 2**63
_DRAINED = node_plan.Wanted(state="drained", reason=REASON, owner=OWNER)
_RESUMED = node_plan.Wanted(state="resumed", owner=OWNER)


@dataclass(frozen=True)
class NodeSet:
    """How a set's pods are replaced: ``type`` is RollingUpdate, Maintenance or OnDelete, ``policy`` Wait, Requeue or Cancel, ``deadline`` in seconds
    from the drain, ``jobs`` those with a policy of their own; ``place`` is the switch or block that the nodes are at, "" without one."""

    name: str
    replicas: int
    type: str
    max_unavailable: int
    policy: str = "Wait"
    deadline: int = 3600
    place: str = ""
    jobs: tuple[Rule, ...] = ()

    @property
    def nodes(self) -> list[str]:
        """The set's nodes, the highest numbers first: Slurm gives jobs the lowest ones, so these are free sooner."""
        return [f"{self.name}-{number}" for number in range(self.replicas - 1, -1, -1)]


@dataclass(frozen=True)
class Pod:
    """A node's pod as Kubernetes has it. ``stale``: of an older template; ``going``: it is being deleted; ``started``: when slurmd's container
    was, in seconds since 1970 by the clock of the pod's machine, 0 where it was not."""

    stale: bool
    ready: bool
    going: bool = False
    started: float = 0


@dataclass
class Progress:
    """How far a set is. ``stale`` has the nodes whose pod is of an older template, and ``why`` the reasons for which some of these are not begun with;
    ``kept`` are those of them that wait for somebody. ``starting`` are nodes whose pod is gone, ending, or new and not in service."""

    name: str
    nodes: int
    stale: list[str] = field(default_factory=list)
    starting: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    why: dict[str, str] = field(default_factory=dict)

    @property
    def replaced(self) -> int:
        """How many nodes are in service with the new template, or were taken out by others with it."""
        return self.nodes - len({*self.stale, *self.starting})

    @property
    def words(self) -> str:
        """Say how far it is: ``2 of 8 nodes of gpu have the new template; gpu-1: starting``."""
        parts = [f"{self.replaced} of {self.nodes} nodes of {self.name} have the new template"]
        by_reason: dict[str, list[str]] = {}
        for name in self.starting:
            by_reason.setdefault("starting", []).append(name)
        for name, why in self.why.items():
            by_reason.setdefault(why, []).append(name)
        return "; ".join([*parts, *(f"{hostlist.compress(names)}: {why}" for why, names in by_reason.items())])


@dataclass
class Step:
    """What one look leads to. ``drain`` and ``resume`` are plans, ``replace`` has the nodes whose pods may go now, ``deeds`` are told to jobs.
    ``waiting`` has the tasks on each drained node that is not free."""

    drain: node_plan.Plan
    resume: node_plan.Plan
    replace: list[str] = field(default_factory=list)
    deeds: list[Deed] = field(default_factory=list)
    waiting: dict[str, list[Task]] = field(default_factory=dict)
    sets: list[Progress] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """True when nothing is to be done and nothing is under way: what is left waits for somebody else."""
        begun = self.drain.changed or self.resume.changed or self.replace or self.waiting
        return not begun and not any(one.starting for one in self.sets)

    @property
    def words(self) -> str:
        """Say how far all sets are that have something left, and what is waited for; "" when all is done."""
        parts = [one.words for one in self.sets if one.stale or one.starting]
        waits = leavers.words(self.waiting)
        return "; ".join([*parts, *([waits] if waits else [])])


def step(
    sets: Iterable[NodeSet],
    pods: Mapping[str, Pod],
    nodes: Iterable[Node],
    found: Iterable[Task],
    *,
    now: float,
) -> Step:
    """Decide what is to be done next. ``pods`` are by node; ``found`` are the tasks on all nodes whose pods are stale; ``now`` is slurmctld's time.

    Raises AnswerError for answers that can not be.
    """
    sets, known = list(sets), {node.name: node for node in nodes}
    if not known:
        raise answer.AnswerError("slurmctld says that it has no nodes at all, which can not be while their pods run.")
    on = leavers.by_node(found)
    looks = [_Look(one, pods, known, on, now) for one in sets]
    drain = _begin(looks)
    result = Step(
        drain=node_plan.plan([known[name] for name in drain], _DRAINED),
        resume=node_plan.plan([known[name] for look in looks for name in look.resume], _RESUMED),
        replace=[name for look in looks for name in look.replace],
        waiting={name: tasks for look in looks for name, tasks in look.waiting.items()},
        deeds=leavers.deeds(overdue for look in looks for overdue in look.overdue),
        sets=[look.progress for look in looks],
    )
    for look in looks:
        look.tell(set(drain))
    return result


class _Look:
    """One set at one moment: what is to be done whatever other sets do, and what could be begun."""

    def __init__(
        self, node_set: NodeSet, pods: Mapping[str, Pod], known: Mapping[str, Node], on: Mapping[str, list[Task]], now: float
    ) -> None:
        self.set = node_set
        self.progress = Progress(node_set.name, node_set.replicas)
        self.resume: list[str] = []
        self.replace: list[str] = []
        self.waiting: dict[str, list[Task]] = {}
        self.overdue: list[tuple[Task, str]] = []
        self.out: list[str] = []
        """Nodes that are to be drained now, and cost nothing by it: they are out of service already."""
        self.idle: list[str] = []
        self.busy: list[str] = []
        self._pods, self._known, self._on, self._now = pods, known, on, now
        self.unavailable: list[str] = []
        self.room = 0
        if node_set.type == "OnDelete":
            self._leave_all()
        else:
            self._sort()

    def _leave_all(self) -> None:
        """Another policy may have begun with them."""
        for name in self.set.nodes:
            if self._is_stale(name):
                self.progress.stale.append(name)
                self._keep(name, "left until somebody deletes the pod (OnDelete)")
            if self._ours(name):
                self.resume.append(name)

    def _sort(self) -> None:
        """Find out for each node what is to be done, or could be begun."""
        for name in self.set.nodes:
            pod = self._pods.get(name)
            if pod is not None and pod.stale:
                self.progress.stale.append(name)
            if pod is None or pod.going:
                self.progress.starting.append(name)
            elif not pod.stale:
                self._current(name, pod)
        away, stale = self.progress.starting, self.progress.stale
        if self.set.type == "Maintenance":
            # All of them are out of service by the reservation.
            self.unavailable = [*away, *(name for name in stale if name not in away and self._ours(name))]
        else:
            self.unavailable = [name for name in self.set.nodes if not self._in_service(name)]
        self.room = max(0, self.set.max_unavailable - len(self.unavailable))
        self._room_to_replace = max(0, self.set.max_unavailable - len(away))
        # A pod that does not work loses nothing by going, and its successor may work.
        for name in sorted((name for name in stale if name not in away), key=lambda one: self._pods[one].ready):
            self._stale(name, self._pods[name])
        self.busy.sort(key=lambda name: max((task.end or _NEVER for task in self._on.get(name, ())), default=0))

    def _current(self, name: str, pod: Pod) -> None:
        node = self._known.get(name)
        if not (pod.ready and node is not None and _registered(node, pod)):
            # Without a drain of ours, and with nothing left to be replaced, a node that is away is not this roll-out's.
            if self._ours(name) or any(map(self._is_stale, self.set.nodes)):
                self.progress.starting.append(name)
        elif self._ours(name):
            self.resume.append(name)

    def _stale(self, name: str, pod: Pod) -> None:
        node, tasks = self._known.get(name), self._on.get(name, [])
        if node is None:
            self._keep(name, "not known to slurmctld, so what runs there is not known")
        elif self.set.type == "Maintenance" and pod.ready and _MAINTENANCE not in node.state:
            self._keep(name, "left until a reservation with the flag MAINT holds it")
            if self._ours(name):
                self.resume.append(name)
        elif leavers.drained_by(node, sync.OWNER) and pod.ready:
            self._keep(name, "left until its machine is stayed on: a new pod would have no place there")
        elif node.drained:
            self._drained(name, node, pod, tasks)
        elif node_plan.plan([node], _DRAINED).foreign:
            self._keep(name, "set down by somebody, so the pod stays until it is resumed, or drained instead")
        elif not pod.ready or not self._in_service(name):
            self.out.append(name)
        elif node.busy or tasks:
            self.busy.append(name)
        else:
            self.idle.append(name)

    def _drained(self, name: str, node: Node, pod: Pod, tasks: list[Task]) -> None:
        if node.busy or tasks:
            self.waiting[name] = tasks
            if self._ours(name):
                self.overdue += leavers.overdue(
                    node, tasks, now=self._now, policy=self.set.policy, deadline=self.set.deadline, rules=self.set.jobs
                )
        elif not pod.ready:
            self.replace.append(name)
        elif self._room_to_replace:
            self._room_to_replace -= 1
            self.replace.append(name)
        else:
            self.progress.why[name] = self._full()

    def tell(self, drained: set[str]) -> None:
        """Say of nodes that could be begun with and are not why that is."""
        for name in (*self.idle, *self.busy):
            if name not in drained:
                self.progress.why[name] = "next" if self.room else self._full()

    def _keep(self, name: str, why: str) -> None:
        self.progress.kept.append(name)
        self.progress.why[name] = why

    def _full(self) -> str:
        return f"left while {hostlist.compress(self.unavailable)} is out of service (maxUnavailable {self.set.max_unavailable})"

    def _is_stale(self, name: str) -> bool:
        pod = self._pods.get(name)
        return pod is not None and pod.stale

    def _ours(self, name: str) -> bool:
        return name in self._known and leavers.drained_by(self._known[name], OWNER)

    def _in_service(self, name: str) -> bool:
        node, pod = self._known.get(name), self._pods.get(name)
        return node is not None and pod is not None and pod.ready and not pod.going and _registered(node, pod) and not node.out


def _begin(looks: list[_Look]) -> list[str]:
    """Return the nodes to be drained now: place after place, idle ones before those whose jobs end soonest, as many as each set has room for.

    A place in which only jobs are waited for does not hold up the next one.
    """
    found = [name for look in looks for name in look.out]
    for place in dict.fromkeys(look.set.place for look in looks):
        here = [look for look in looks if look.set.place == place]
        moves = any(look.progress.starting or look.replace or look.out for look in here)
        for look in here:
            take = [*look.idle, *look.busy][: look.room]
            moves |= any(name in look.idle for name in take)
            found.extend(take)
        if moves:
            break
    return found


def _registered(node: Node, pod: Pod) -> bool:
    """True when slurmctld speaks of the slurmd in this pod: until it registers, a drained node is as its last pod left it."""
    if not node.answers:
        return False
    try:
        began = datetime.fromisoformat(node.slurmd_start_time).timestamp()
    except ValueError:
        return True
    return began >= pod.started
