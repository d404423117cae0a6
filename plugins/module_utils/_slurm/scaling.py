# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node sets that shrink: which nodes are removed, which of them have no job left, and the commands to slurmctld meanwhile. Pure.

A node is free when two commands agree: scontrol shows it out of service and not busy, and squeue shows no job on it. Where they differ, or where
slurmctld does not know the node, it stays. It stays, too, while a job elsewhere or in the queue requires it by name.
A StatefulSet ends its highest ordinals first, so a free node below a busy one waits for that.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf, draining, hostlist, node_plan, output, reasons
from ansible_collections.corral.slurm.plugins.module_utils._slurm.draining import Action, Named, Rule, Task
from ansible_collections.corral.slurm.plugins.module_utils._slurm.nodes import Node
from ansible_collections.corral.slurm.plugins.module_utils._slurm.partitions import Partition

OWNER = "scale"
# The same whatever the numbers are: another text would be another drain, and its deadline would restart.
REASON = reasons.write(OWNER, "the document has fewer nodes in this set")
MAINTENANCE = reasons.write(OWNER, "the document declares maintenance")


@dataclass(frozen=True)
class Size:
    """A node set: ``live`` nodes now, ``wanted`` by the document (0: it has no such set). ``replicas`` are those of its StatefulSet, which may be fewer than
    ``live``: a node may have its line and no pod any more. ``policy`` is Wait, Requeue or Cancel, ``deadline`` in seconds; ``jobs`` are those with a policy
    of their own."""

    name: str
    live: int
    wanted: int
    policy: str
    deadline: int
    jobs: tuple[Rule, ...] = ()
    replicas: int = 0

    @property
    def victims(self) -> list[str]:
        """The nodes to be removed."""
        return [f"{self.name}-{number}" for number in range(self.wanted, self.live)]

    @property
    def stays(self) -> list[str]:
        """The nodes that the document keeps."""
        return [f"{self.name}-{number}" for number in range(min(self.wanted, self.live))]


@dataclass
class Step:
    """The result of one query of slurmctld. ``drain`` and ``resume`` are plans; ``stay`` says for each set that
    shrinks how many nodes it must keep now; ``waiting`` has the tasks on each node that cannot be removed yet, and ``unknown`` the nodes that slurmctld lacks.
    Of removed partitions, ``close`` are those that still take jobs, and ``partitions`` has the tasks in each that cannot be removed yet."""

    drain: node_plan.Plan
    resume: node_plan.Plan
    actions: list[Action] = field(default_factory=list)
    stay: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, list[Task]] = field(default_factory=dict)
    close: list[Partition] = field(default_factory=list)
    partitions: dict[str, list[Task]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """Describe what is waited for; "" when everything can be removed."""
        text = draining.summary(self.waiting, self.partitions)
        if self.unknown:
            text += f"{'; ' if text else ''}slurmctld does not know {hostlist.compress(self.unknown)}, so what runs there is not known"
        return text


def step(
    sizes: Iterable[Size],
    nodes: Iterable[Node],
    found: Iterable[Task],
    *,
    now: float,
    taken: bool = False,
    lines: Container[str] | None = None,
    reason: str = REASON,
    named: Iterable[Named] = (),
) -> Step:
    """Decide what is to be done next.

    ``now`` is slurmctld's time in seconds since 1970. ``named`` are the jobs that name victims. With ``taken`` victims count as out of service, as
    they are once the drains are made: for check mode. ``lines`` are the nodes of the live slurm.conf, None where there is none: a victim that neither
    it nor slurmctld has was never a node, and goes; that is what a StatefulSet has more that somebody has scaled by hand.
    Raises OutputError for answers that cannot be.
    """
    sizes, known = list(sizes), {node.name: node for node in nodes}
    if not known:
        raise output.OutputError("slurmctld reports no nodes at all, which is impossible while their pods run.")
    on, named = draining.by_node(found), list(named)
    required_by = _required_by_name(on, named, {name for size in sizes for name in size.victims})
    victims = [known[name] for size in sizes for name in size.victims if name in known]
    stays = [known[name] for size in sizes for name in size.stays if name in known]
    result = Step(
        drain=node_plan.plan(victims, node_plan.Wanted(state="drained", reason=reason, owner=OWNER)),
        resume=node_plan.plan([node for node in stays if draining.drained_by(node, OWNER)], node_plan.Wanted(state="resumed", owner=OWNER)),
    )
    # A drain that ends by itself, as that of the jail's check, is taken over first: else a job could start before the pod ends.
    by_others = {node.name for node in result.drain.foreign}
    overdue: list[tuple[Task, str]] = []
    removable: set[str] = set()
    for size in sizes:
        retain = waited = size.wanted
        for number, name in enumerate(size.victims, size.wanted):
            node = known.get(name)
            if node is None and lines is not None and name not in lines:
                continue
            there = [*on.get(name, []), *required_by.get(name, [])]
            if node is None:
                result.unknown.append(name)
            elif node.busy or there or not (taken or node_plan.lasting(node) or (node.out and name in by_others)):
                result.waiting[name] = there
                if draining.drained_by(node, OWNER):
                    overdue += draining.overdue(node, there, now=now, policy=size.policy, deadline=size.deadline, rules=size.jobs)
            else:
                continue
            retain = number + 1
            if node is None or node.busy or there:
                waited = retain
        if size.victims:
            result.stay[size.name] = retain
        removable |= set(size.victims[waited - size.wanted :])
    removed = [node.name for node in victims]
    # A job gets one action a call, and one that requires a removed node gets that first.
    free = [one for one in named if not one.required & set(removed)]
    result.actions = [*draining.actions(overdue), *draining.freed(overdue, named, removed), *draining.spared(free, removable, removed)]
    return result


def _required_by_name(on: dict[str, list[Task]], named: Iterable[Named], victims: set[str]) -> dict[str, list[Task]]:
    """Return the jobs that require each victim without being on it."""
    there = {task.number: task for name in victims for task in on.get(name, [])}
    required_by: dict[str, list[Task]] = {}
    for one in named:
        names = one.required & victims
        # One that is on a victim is waited for there, and reported with its nodes.
        task = there.get(one.task.number) or replace(one.task, names=hostlist.compress(names))
        for name in names:
            if task not in on.get(name, []):
                required_by.setdefault(name, []).append(task)
    return required_by


def removed_partitions(text: str, sizes: Iterable[Size], wanted: Iterable[str]) -> list[str]:
    """Return the partitions of the live slurm.conf that the document (``wanted``) no longer has, of those with nodes that it keeps.

    Those whose nodes all go are held for as long as these are.
    """
    names, retained = set(wanted), {name for size in sizes for name in size.stays}
    lines = [dict(conf.parse_pairs(line)) for line in text.splitlines() if line.startswith("PartitionName=")]
    return [
        pairs["PartitionName"] for pairs in lines if pairs["PartitionName"] not in names and retained & set(hostlist.expand(pairs["Nodes"]))
    ]


def inside(names: Iterable[str], found: Iterable[Task]) -> dict[str, list[Task]]:
    """Return the tasks in each of these partitions that has some, those that wait among them."""
    all_of: dict[str, list[Task]] = {name: [] for name in names}
    for task in found:
        for name in task.partitions & all_of.keys():
            all_of[name].append(task)
    return {name: tasks for name, tasks in all_of.items() if tasks}


def retained_config(
    text: str,
    sizes: Iterable[Size],
    stay: dict[str, int],
    unknown: Iterable[str] = (),
    gres: str = "",
    retain: Iterable[str] = (),
    plugstack: str = "",
    ending: Iterable[str] = (),
) -> dict[str, Any]:
    """Return what has to be retained of the live configuration ``text`` (slurm.conf): ``{"nodes", "partitions"}``, {} where nothing has to.

    ``stay`` has for each set that shrinks how many nodes it keeps; ``ending`` are others whose pods have not ended yet. ``nodes`` are lines as lists of
    pairs, narrowed to the nodes that go but cannot yet. ``partitions`` have ``name``, ``nodes`` (those nodes in it) and ``line`` as it was; those of
    ``retain`` have the nodes that stay, too. ``gres`` (gres.conf) adds ``gres``, the lines of such nodes. ``plugstack`` (plugstack.conf) adds ``jail`` to a
    partition whose jobs have a jail of their own: the words that lead them there. ``unknown`` are nodes that slurmctld does not know, so that they need
    no line.
    Raises CorralError where another has none, and ConfError for a line that Slurm would not read.
    """
    sizes, retain = list(sizes), set(retain)
    busy = {f"{size.name}-{number}" for size in sizes for number in range(size.wanted, stay.get(size.name, 0))}
    names = busy | set(ending)
    if not names and not retain:
        return {}
    stays = {name for size in sizes for name in size.stays}
    nodes: list[list[list[str]]] = []
    partitions: list[dict[str, Any]] = []
    for line in text.splitlines():
        if line.startswith("NodeName="):
            retained = conf.narrowed(dict(conf.parse_pairs(line)), names.__contains__)
            if retained:
                nodes.append([list(pair) for pair in retained.items()])
        elif line.startswith("PartitionName="):
            pairs = dict(conf.parse_pairs(line))
            there = names | stays if pairs["PartitionName"] in retain else names
            among = [name for name in hostlist.expand(pairs["Nodes"]) if name in there]
            if among:
                line_was = [list(pair) for pair in pairs.items()]
                jail = _jail_of(pairs["PartitionName"], plugstack)
                found = {"name": pairs["PartitionName"], "nodes": hostlist.compress(among), "line": line_was}
                partitions.append({**found, **({"jail": jail} if jail else {})})
    lost = busy - set(unknown) - {name for pairs in nodes for name in hostlist.expand(dict(pairs)["NodeName"])}
    if lost:
        raise CorralError(
            f"The live slurm.conf has no line of {hostlist.compress(lost)}, so it cannot be retained until it is free, and nothing was changed there; "
            "see who has edited the ConfigMap, or raise replicas again until a run has written it again."
        )
    resources = resources_of(names, gres)
    return {"nodes": nodes, "partitions": partitions, **({"gres": resources} if resources else {})}


def _jail_of(partition: str, plugstack: str) -> list[list[str]]:
    """Return the words of plugstack.conf that lead the steps of a partition into a jail of their own, as pairs."""
    words = {key: value for key, _equals, value in (word.partition("=") for word in plugstack.split())}
    jail = words.get(f"partition.{partition}", "")
    keys = [f"partition.{partition}", f"jail.{jail}"] if jail else []
    return [[key, words[key]] for key in keys if key in words]


def resources_of(names: set[str], gres: str) -> list[list[list[str]]]:
    """Return the lines of gres.conf that name some of these nodes, narrowed to them. A line without nodes is the whole cluster's, and stays anyway."""
    inside = (conf.narrowed(pairs, names.__contains__) for pairs in conf.node_lines(gres) if names)
    return [[list(pair) for pair in pairs.items()] for pairs in inside if pairs]
