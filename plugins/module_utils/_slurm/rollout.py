# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods of an older template: which node is drained for it, which pod may go, which node comes back. Pure.

A pod is deleted when its node is drained and two commands agree that no job is left on it. All that is known of how far a roll-out has come is in the drains'
reasons and in the pods' revisions, so any run continues what another began. What is out of service for any reason counts, and so
do nodes whose new pod does not come up: a template that does not work never costs more than ``max_unavailable`` nodes that did. Nor does a moment in
which no pod is ready (a file server that hangs): only a pod whose slurmd does not run at all is deleted whatever else is out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ansible_collections.corral.slurm.plugins.module_utils._slurm import draining, hostlist, node_plan, output, reasons, sync
from ansible_collections.corral.slurm.plugins.module_utils._slurm.draining import Action, Rule, Task
from ansible_collections.corral.slurm.plugins.module_utils._slurm.nodes import Node

OWNER = "rollout"
# The same whatever the template is: another text would be another drain, and its deadline would restart.
REASON = reasons.write(OWNER, "its pod is replaced by one of the new template when no job is left")

# slurmctld's flag of a node that a reservation with the flag MAINT holds now.
_MAINTENANCE = "MAINTENANCE"
# Made with that flag by the workers' health check (images/slurm/health.py), on all nodes: nobody's window.
_JAIL_OUTAGE = "corral-jail-outage"
_NEVER = 2**63
# Seconds for which a node that slurmctld refuses is one that will be taken.
_REFUSED_FOR = 60
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
    """A node's pod as Kubernetes has it. ``stale``: of an older template; ``ending``: it is being deleted; ``started``: when slurmd's container
    was, in seconds since 1970 by the clock of the pod's Kubernetes node, 0 where it was not; ``born``: when the pod was made. ``runs`` is False where slurmd's
    container does not run, so that nothing on the node can work. ``former``: the node's line in slurm.conf is that of a pod before this one."""

    stale: bool
    ready: bool
    ending: bool = False
    started: float = 0
    born: float = 0
    runs: bool = True
    former: bool = False


@dataclass
class Progress:
    """How far a set is. ``stale`` has the nodes whose pod is of an older template, and ``why`` the reasons for which some of these are not begun with;
    ``blocked`` are those of them that wait for somebody. ``starting`` are nodes whose pod is gone, ending, or new and has not come into service; ``lost``
    those that nobody took out of service, and that hold up others by being out of it; ``former`` those with a new pod and the line of the one before."""

    name: str
    nodes: int
    stale: list[str] = field(default_factory=list)
    starting: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    former: list[str] = field(default_factory=list)
    why: dict[str, str] = field(default_factory=dict)

    @property
    def replaced(self) -> int:
        """How many nodes have come into service with the new template, whatever became of them since, or were taken out by others with it."""
        return self.nodes - len({*self.stale, *self.starting})

    @property
    def summary(self) -> str:
        """Describe how far it is: ``2 of 8 nodes of gpu have the new template; gpu-1: starting``."""
        parts = [f"{self.replaced} of {self.nodes} nodes of {self.name} have the new template"]
        by_reason: dict[str, list[str]] = {}
        for name in self.starting:
            by_reason.setdefault("starting", []).append(name)
        for name, why in self.why.items():
            by_reason.setdefault(why, []).append(name)
        return "; ".join([*parts, *(f"{hostlist.compress(names)}: {why}" for why, names in by_reason.items())])


@dataclass
class Step:
    """The result of one observation. ``drain`` and ``resume`` are plans, ``replace`` has the nodes whose pods may be deleted now, ``actions`` are on jobs.
    ``waiting`` has the tasks on each drained node that is not free. ``config_updates`` are the nodes whose line in slurm.conf may be that of their pod now."""

    drain: node_plan.Plan
    resume: node_plan.Plan
    replace: list[str] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    waiting: dict[str, list[Task]] = field(default_factory=dict)
    sets: list[Progress] = field(default_factory=list)
    config_updates: list[str] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """True when nothing is to be done and nothing is under way: what is left waits for somebody else, and not for a node that may come back."""
        begun = self.drain.changed or self.resume.changed or self.replace or self.waiting
        return not begun and not any(one.starting or one.lost for one in self.sets)

    @property
    def summary(self) -> str:
        """Describe how far all sets are that have something left, and what is waited for; "" when all is done."""
        parts = [one.summary for one in self.sets if one.stale or one.starting or one.former]
        waits = draining.summary(self.waiting)
        return "; ".join([*parts, *([waits] if waits else [])])


def step(
    sets: Iterable[NodeSet],
    pods: Mapping[str, Pod],
    nodes: Iterable[Node],
    found: Iterable[Task],
    *,
    now: float,
    stopped: Collection[str] = (),
) -> Step:
    """Decide what is to be done next. ``pods`` are by node; ``found`` are the tasks on all nodes whose pods are stale; ``now`` is slurmctld's time;
    of sets that are ``stopped`` no further node is begun with.

    Raises OutputError for implausible output.
    """
    sets, known = list(sets), {node.name: node for node in nodes}
    if not known:
        raise output.OutputError("slurmctld reports no nodes at all, which is impossible while their pods run.")
    on = draining.by_node(found)
    observations = [_Observation(one, pods, known, on, now, stopped=one.name in stopped) for one in sets]
    drain = _begin(observations)
    result = Step(
        drain=node_plan.plan([known[name] for name in drain], _DRAINED),
        resume=node_plan.plan([known[name] for observation in observations for name in observation.resume], _RESUMED),
        replace=[name for observation in observations for name in observation.replace],
        waiting={name: tasks for observation in observations for name, tasks in observation.waiting.items()},
        actions=draining.actions(overdue for observation in observations for overdue in observation.overdue),
        sets=[observation.progress for observation in observations],
        config_updates=[name for observation in observations for name in observation.config_updates],
    )
    for observation in observations:
        observation.explain(set(drain))
    return result


class _Observation:
    """One set at one moment: what is to be done whatever other sets do, and what could be begun."""

    def __init__(
        self,
        node_set: NodeSet,
        pods: Mapping[str, Pod],
        known: Mapping[str, Node],
        on: Mapping[str, list[Task]],
        now: float,
        *,
        stopped: bool,
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
        self.config_updates: list[str] = []
        self._pods, self._known, self._on, self._now, self._stopped = pods, known, on, now, stopped
        self.unavailable: list[str] = []
        self.room = 0
        self._full_up: list[str] = []
        """Nodes that wait for there to be room."""
        if node_set.type == "OnDelete":
            self._block_all()
        else:
            self._sort()

    def _block_all(self) -> None:
        """Another policy may have begun with them."""
        for name in self.set.nodes:
            if self._is_stale(name):
                self.progress.stale.append(name)
                self._block(name, "waits until somebody deletes the pod (OnDelete)")
            if self._config_update(name):
                self._block(name, "has the CPUs, memory and GPUs of its former pod until somebody drains it and it is free")
            elif self._ours(name):
                self.resume.append(name)
        # Nobody has asked for these, so nobody is waited for.
        self.out.clear()
        self.waiting.clear()

    def _sort(self) -> None:
        """Find out for each node what is to be done, or could be begun."""
        away: list[str] = []
        for name in self.set.nodes:
            pod = self._pods.get(name)
            if pod is not None and pod.stale:
                self.progress.stale.append(name)
            if pod is None or (pod.stale and pod.ending):
                self.progress.starting.append(name)
                away.append(name)
            elif not pod.stale and not self._config_update(name) and self._is_away(name, pod):
                away.append(name)
        stale = [name for name in self.progress.stale if name not in away]
        ours = [name for name in self.set.nodes if self._ours(name) and name not in self.resume]
        if self.set.type == "Maintenance":
            # All of them are out of service by the reservation.
            self.unavailable = [*away, *(name for name in (*stale, *self.progress.former) if name in ours)]
        else:
            self.unavailable = [name for name in self.set.nodes if not self._in_service(name)]
        most = self.set.max_unavailable
        self.room = 0 if self._stopped else max(0, most - len(self.unavailable))
        self._room_to_replace = max(0, most - len(away))
        self._room_for_untaken = max(0, most - len({*away, *ours}))
        # A pod that does not work loses nothing by going, and its successor may work.
        for name in sorted(stale, key=lambda one: (self._pods[one].runs, self._pods[one].ready)):
            self._stale(name, self._pods[name])
        for name in self.progress.former:
            self._begin_config_update(name)
        self.busy.sort(key=self._last_end)
        held = [name for name in ours if name not in self.resume]
        self._give_back([name for name in held if name in stale], len(held) - most)
        for name in self.waiting:
            if name in ours:
                self.overdue += draining.overdue(
                    self._known[name],
                    self._on.get(name, []),
                    now=self._now,
                    policy=self.set.policy,
                    deadline=self.set.deadline,
                    rules=self.set.jobs,
                )

    def _config_update(self, name: str) -> bool:
        """True for a node with a new pod and the line of the one before that can be helped; what is to be done with it, or what it waits for, is noted."""
        node, pod = self._known.get(name), self._pods.get(name)
        if node is None or pod is None or not pod.former or pod.ending:
            return False
        tasks = self._on.get(name, [])
        if node_plan.lasting(node) and (node.busy or tasks):
            self.waiting[name] = tasks
        elif not (node.busy or tasks) and (node_plan.lasting(node) or node.never_taken):
            # One that slurmctld refuses, as it has fewer CPUs than its line, gets no job.
            self.config_updates.append(name)
        elif not self._in_service(name):
            if not node.drained and node_plan.plan([node], _DRAINED).foreign:
                return False
            self.out.append(name)
        self.progress.former.append(name)
        return True

    def _begin_config_update(self, name: str) -> None:
        """Put a node that takes jobs beside those whose pods are replaced: it has to be free for a moment, too."""
        node = self._known[name]
        if not self._in_service(name):
            return
        if self.set.type == "Maintenance" and not _in_window(node):
            self._block(name, "waits for a reservation with the flag MAINT")
        elif node.busy or self._on.get(name):
            self.busy.append(name)
        else:
            self.idle.append(name)

    def _is_away(self, name: str, pod: Pod) -> bool:
        """True for a node with a pod of the new template that is not in service; what this roll-out has to do with it is noted."""
        node = self._known.get(name)
        if node is not None and pod.ready and not pod.ending and _registered(node, pod):
            if self._ours(name) or node_plan.accepted(node):
                self.resume.append(name)
            return False
        # Any other one was in service before it fell ill, or is somebody else's: not this template's fault, nor a reason to stop.
        if self._ours(name) or (any(map(self._is_stale, self.set.nodes)) and (_is_new(node, pod) or self._is_refused(node, pod))):
            self.progress.starting.append(name)
        return True

    def _is_refused(self, node: Node | None, pod: Pod) -> bool:
        """True for a node whose new pod slurmctld refuses, or has refused, a moment ago: with the line of the former one, or the slurmd of the new one
        with it. That ends with its own line. One that is refused for longer has a Kubernetes node with less than the document says."""
        return node is not None and node.drained and reasons.is_refusal(node.reason) and self._now - pod.born < _REFUSED_FOR

    def _stale(self, name: str, pod: Pod) -> None:
        node, tasks = self._known.get(name), self._on.get(name, [])
        if node is None:
            self._block(name, "not known to slurmctld, so what runs there is not known")
        elif self.set.type == "Maintenance" and pod.runs and not _in_window(node):
            self._block(name, "waits for a reservation with the flag MAINT")
            if self._ours(name):
                self.resume.append(name)
        elif draining.drained_by(node, sync.OWNER) and pod.runs:
            self._block(name, "waits until its Kubernetes node is schedulable again: a new pod would find no place there")
        elif "FUTURE" in node.state and not (pod.runs or tasks):
            # Nothing of it can run a job, and the pod goes as it was seen here or not at all. (26.05 wipes the reason of a drain when such a node registers.)
            self.replace.append(name)
        elif node_plan.lasting(node):
            self._drained(name, node, pod, tasks)
        elif node_plan.plan([node], _DRAINED).foreign:
            self._block(name, "set down by somebody, so the pod stays until it is resumed, or drained instead")
        elif not pod.runs:
            self.out.append(name)
        elif name in self.unavailable:
            self._out(name, node)
        elif node.busy or tasks:
            self.busy.append(name)
        else:
            self.idle.append(name)

    def _out(self, name: str, node: Node) -> None:
        """Begin with a node that is out of service already, where that leaves no more of them out than may be when the others are back."""
        if self._stopped:
            self._full_up.append(name)
        elif len(self.unavailable) <= self.set.max_unavailable:
            self.out.append(name)
        elif node.never_taken and self._room_for_untaken:
            # It never comes back without a new pod, so to wait for that would be to wait for ever.
            self._room_for_untaken -= 1
            self.out.append(name)
        else:
            self._full_up.append(name)

    def _drained(self, name: str, node: Node, pod: Pod, tasks: list[Task]) -> None:
        if node.busy or tasks:
            self.waiting[name] = tasks
        elif not pod.runs:
            self.replace.append(name)
        elif self._room_to_replace:
            self._room_to_replace -= 1
            self.replace.append(name)
        else:
            self._full_up.append(name)

    def _give_back(self, begun: list[str], surplus: int) -> None:
        """Resume nodes that are well again and were drained beyond the limit: those with jobs first, and of these the ones that would end last.

        As many drains of ours stay as there may be, so there is no room in which these would be drained again.
        """
        well = [name for name in begun if name not in self.replace and self._is_well(name)]
        well.sort(key=lambda name: (name in self.waiting, self._last_end(name), self.set.nodes.index(name)), reverse=True)
        for name in well[: max(0, surplus)]:
            self.resume.append(name)
            if self.waiting.pop(name, None) is not None:
                self._full_up.append(name)

    def explain(self, drained: set[str]) -> None:
        """Explain for nodes that could be begun with why they are not."""
        for name in (*self._full_up, *self.idle, *self.busy):
            if name not in drained:
                self.progress.why[name] = "next" if self.room and name not in self._full_up else self._full()
        if any(why == self._full() for why in self.progress.why.values()):
            self.progress.lost = [name for name in self.unavailable if name not in self.progress.starting and self._is_lost(name)]

    def _block(self, name: str, why: str) -> None:
        self.progress.blocked.append(name)
        self.progress.why[name] = why

    def _full(self) -> str:
        if self._stopped:
            return "left, since a new pod of the set does not come up"
        return f"left while {hostlist.compress(self.unavailable)} is out of service (maxUnavailable {self.set.max_unavailable})"

    def _is_stale(self, name: str) -> bool:
        pod = self._pods.get(name)
        return pod is not None and pod.stale

    def _ours(self, name: str) -> bool:
        return name in self._known and draining.drained_by(self._known[name], OWNER)

    def _in_service(self, name: str) -> bool:
        return self._is_well(name) and not self._known[name].out

    def _is_well(self, name: str) -> bool:
        """True when only a drain or a state set by somebody can keep the node out of service."""
        node, pod = self._known.get(name), self._pods.get(name)
        return node is not None and pod is not None and pod.ready and not pod.ending and _registered(node, pod)

    def _is_lost(self, name: str) -> bool:
        node = self._known.get(name)
        return node is None or not (node.drained or node_plan.plan([node], _DRAINED).foreign)

    def _last_end(self, name: str) -> int:
        return max((task.end or _NEVER for task in self._on.get(name, ())), default=0)


def _begin(observations: list[_Observation]) -> list[str]:
    """Return the nodes to be drained now: place after place, idle ones before those whose jobs end soonest, as many as each set has room for.

    A place in which only jobs are waited for does not hold up the next one.
    """
    found = [name for observation in observations for name in observation.out]
    for place in dict.fromkeys(observation.set.place for observation in observations):
        here = [observation for observation in observations if observation.set.place == place]
        moves = any(observation.progress.starting or observation.replace or observation.out for observation in here)
        for observation in here:
            take = [*observation.idle, *observation.busy][: observation.room]
            moves |= any(name in observation.idle for name in take)
            found.extend(take)
        if moves:
            break
    return found


def _registered(node: Node, pod: Pod) -> bool:
    """True when slurmctld's state is that of the slurmd in this pod: until it registers, a drained node is as its last pod left it."""
    if not node.answers:
        return False
    began = _began(node)
    return began is None or began >= pod.started


def _began(node: Node) -> float | None:
    """When the slurmd began that registered last; None where slurmctld does not report it."""
    try:
        return datetime.fromisoformat(node.slurmd_start_time).timestamp()
    except ValueError:
        return None


def _is_new(node: Node | None, pod: Pod) -> bool:
    """True for a pod of a roll-out that has not come into service yet, though the node has no drain of ours.

    slurmctld forgets drains of nodes that it hides, and pods are replaced on nodes that others have drained, too.
    """
    if node is None or "FUTURE" in node.state:
        return True
    began = _began(node)
    return node.drained and not draining.drained_by(node, sync.OWNER) and (began is None or began < pod.born)


def _in_window(node: Node) -> bool:
    return _MAINTENANCE in node.state and node.reservation != _JAIL_OUTAGE
