# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Nodes: one line of `scontrol --oneliner --detail show nodes` each. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from corral_exporter import metrics
from corral_exporter.metrics import Samples, add

COMMAND = ("scontrol", "--all", "--oneliner", "--detail", "show", "nodes")
# Free text, which may look like a field; it comes last.
_TEXT = re.compile(r"\s(?:Comment|Extra|Reason)=")
_FIELD = re.compile(r"(?:^|\s)(NodeName|CPUAlloc|CPUTot|CPUEfctv|ActiveFeatures|Gres|GresUsed|RealMemory|AllocMem|State|Partitions)=(\S*)")
_REASON = re.compile(r"\sReason=(.*?)(?: \[[^\[\]]*@[^\[\]]*\])?\s*$", re.DOTALL)
# Reasons that corral writes begin with their owner: docs/nodes.md.
_OWNER = re.compile(r"corral: ((?:health: )?[a-z0-9][a-z0-9_-]{0,40}):")
# Parts of corral, and checks; whoever may drain nodes may invent more.
_OWNERS = 50
_GPU = re.compile(r"(?:^|,)gpu(?::[^:(,]+)?:(\d+)")
_IN_PARENTHESES = re.compile(r"\([^()]*\)")
_MEBIBYTE = 1 << 20
# The first that a node has is its state here.
_FLAGS = {
    "POWERED_DOWN": "powered_down", "POWERING_DOWN": "powering_down", "POWERING_UP": "powering_up", "FAIL": "failing", "INVALID_REG": "invalid",
    "MAINTENANCE": "maintenance", "RESERVED": "reserved", "COMPLETING": "completing", "PLANNED": "planned", "BLOCKED": "blocked",
}  # fmt: skip
_BASES = {
    "ALLOCATED": "allocated", "MIXED": "mixed", "IDLE": "idle", "DOWN": "down", "ERROR": "error", "FUTURE": "future", "UNKNOWN": "unknown",
}  # fmt: skip
_OUT = frozenset(
    {"down", "error", "future", "unknown", "powered_down", "powering_down", "powering_up", "failing", "invalid", "drained", "draining"}
)
_AWAY = frozenset({"DOWN", "ERROR", "FUTURE", "UNKNOWN"})
_WITH_JOBS = frozenset({"ALLOCATED", "MIXED"})
# All values of the label "state" of nodes.
STATES = tuple(sorted({*_FLAGS.values(), *_BASES.values(), "drained", "draining", "other"}))


@dataclass(frozen=True, slots=True)
class Node:
    """A node: ``state`` is one word of STATES, ``out``: it takes no new jobs; ``busy``: it has jobs. Memory is in bytes."""

    name: str
    node_set: str
    state: str
    out: bool
    busy: bool
    responds: bool
    cpus: tuple[int, int]
    memory: tuple[int, int]
    gpus: tuple[int, int]
    features: frozenset[str]
    partitions: tuple[str, ...]
    reason: str


@dataclass(slots=True)
class NodeSet:
    """What queue metrics need of a node set: the size of its largest node, its numbers of nodes, and who may use it."""

    cpus: int = 0
    memory: int = 0
    gpus: int = 0
    idle: int = 0
    busy: int = 0
    features: set[str] = field(default_factory=set)
    partitions: set[str] = field(default_factory=set)


def parse(line: str) -> Node | None:
    """Return the node of a line; None where it is none."""
    found: dict[str, str] = dict(_FIELD.findall(_TEXT.split(line, maxsplit=1)[0]))
    reason = _REASON.search(line)
    try:
        name, state = found["NodeName"], found["State"]
        cpus = int(found["CPUAlloc"]), int(found.get("CPUEfctv", found["CPUTot"]))
        memory = int(found["AllocMem"]) * _MEBIBYTE, int(found["RealMemory"]) * _MEBIBYTE
    except (KeyError, ValueError):
        return None
    base, *flags = state.rstrip("*$#~!%@^-").split("+")
    busy = base in _WITH_JOBS or "COMPLETING" in flags
    word = _state(base, flags, busy)
    return Node(
        name=name,
        # Nodes of other tools have no number at the end, and are a set of their own.
        node_set=name.rpartition("-")[0] or name,
        state=word,
        out=word in _OUT or "DRAIN" in flags or "NOT_RESPONDING" in flags,
        busy=busy,
        responds="NOT_RESPONDING" not in flags,
        cpus=cpus,
        memory=memory,
        gpus=(_gpus(found.get("GresUsed", "")), _gpus(found.get("Gres", ""))),
        features=frozenset(_words(found.get("ActiveFeatures", ""))),
        partitions=tuple(_words(found.get("Partitions", ""))),
        reason=reason[1] if reason else "",
    )


def _state(base: str, flags: list[str], busy: bool) -> str:
    if base in _AWAY:
        # With power saving, a node that is down may be one that is meant to be.
        return next((_FLAGS[one] for one in flags if one.startswith("POWER") and one in _FLAGS), _BASES[base])
    if "DRAIN" in flags:
        return "draining" if busy else "drained"
    return next((word for flag, word in _FLAGS.items() if flag in flags), _BASES.get(base, "other"))


def _words(text: str) -> list[str]:
    return [] if text in ("", "(null)", "N/A") else text.split(",")


def _gpus(text: str) -> int:
    return sum(int(number) for number in _GPU.findall(_IN_PARENTHESES.sub("", text)))


def collect(nodes: Iterable[Node | None], limit: int) -> tuple[Samples, dict[str, NodeSet], dict[str, int], int]:
    """Return the samples, the node sets, how many owners were folded, and the number of lines that are no nodes.

    ``limit`` is how many unavailable nodes have samples.
    """
    samples: Samples = {}
    sets: dict[str, NodeSet] = {}
    invalid = out = 0
    for node in nodes:
        if node is None:
            invalid += 1
            continue
        _add_node(samples, node)
        _add_to_set(sets.setdefault(node.node_set, NodeSet()), node)
        if node.out:
            out += 1
            owner = _OWNER.match(node.reason)
            add(samples, metrics.BY_OWNER, (owner[1] if owner else metrics.OTHER, node.node_set), 1)
            if out <= limit:
                samples.setdefault(metrics.UNAVAILABLE, {})[node.name, node.node_set, node.state, node.reason] = 1
    samples[metrics.UNAVAILABLE_OMITTED] = {(): max(0, out - limit)}
    return samples, sets, {"owner": metrics.folded(samples, (metrics.BY_OWNER,), _OWNERS)}, invalid


def _add_node(samples: Samples, node: Node) -> None:
    add(samples, metrics.NODES, (node.node_set, node.state), 1)
    add(samples, metrics.NOT_RESPONDING, (node.node_set,), not node.responds)
    amounts = ((metrics.CPUS, node.cpus), (metrics.MEMORY, node.memory), (metrics.GPUS, node.gpus))
    for metric, (used, whole) in amounts:
        _add_amount(samples, metric, node.node_set, used, whole, node.out)
    for partition in node.partitions:
        add(samples, metrics.PARTITION_NODES, (partition, node.state), 1)
        of_partition = (metrics.PARTITION_CPUS, metrics.PARTITION_MEMORY, metrics.PARTITION_GPUS)
        for metric, (_metric, (used, whole)) in zip(of_partition, amounts, strict=True):
            _add_amount(samples, metric, partition, used, whole, node.out)


def _add_amount(samples: Samples, metric: metrics.Metric, name: str, used: int, whole: int, out: bool) -> None:
    free = max(0, whole - used)
    for state, amount in (("allocated", used), ("idle", 0 if out else free), ("unavailable", free if out else 0)):
        add(samples, metric, (name, state), amount)


def _add_to_set(found: NodeSet, node: Node) -> None:
    found.cpus = max(found.cpus, node.cpus[1])
    found.memory = max(found.memory, node.memory[1])
    found.gpus = max(found.gpus, node.gpus[1])
    found.idle += node.state == "idle" and not node.out
    found.busy += node.busy
    found.features.update(node.features)
    found.partitions.update(node.partitions)
