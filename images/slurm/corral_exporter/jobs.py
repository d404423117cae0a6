# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Jobs: one record of squeue each, added up as they come. Pure.

Users choose the text of some fields: without accounting, any text is an account. So fields and records end with a mark that nobody can know before, else a
newline in an account would make a record of the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from corral_exporter import metrics
from corral_exporter.metrics import Samples, add
from corral_exporter.nodes import NodeSet

_FIELDS = (
    "State", "Partition", "QOS", "Reason", "NumNodes", "NumTasks", "tres-alloc", "tres-per-job", "tres-per-node", "EligibleTime", "ArrayTaskID", "Feature",
    "Account",
)  # fmt: skip
# Accepted reasons of a job that could start if nodes were free. "None": it has not been considered yet.
_FOR_NODES = frozenset({"None", "Resources", "Priority", "ReqNodeNotAvail", "NodesUnavailable", "NodeDown"})
# What slurmctld writes in words. One of them stands for jobs whose nodes are all out of service.
_IN_WORDS = {"Nodes required for job are DOWN": "NodesUnavailable", "Node ": "NodeDown"}
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{1,47}")
_NAMES_AND = re.compile(r"[A-Za-z0-9_.&-]+")
_TRES = re.compile(r"(?:^|,)(cpu|mem|node)=([0-9.]+)([KMGTP]?)")
# gpu:2, gpu:h100:2, gpu=2, gpu:h100=2, and without a number, which is 1. A type may be digits where a number follows.
_GPU_TRES = re.compile(r"(?:^|,)(?:gres[/:])?gpu(?::([^:=,]*[^:=,0-9][^:=,]*|[^:=,]+(?=[:=])))?(?:[:=](\d+))?(?=,|$)")
_UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_STATES = frozenset({"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STAGE_OUT", "STOPPED", "RESIZING", "SIGNALING"})
# Values of the label "state" of jobs.
STATES = tuple(sorted({*(state.lower() for state in _STATES), "other"}))


def command(mark: str) -> list[str]:
    """Return squeue's command. ``mark`` is what fields end with; a newline follows the last one of a record."""
    return ["squeue", "--noheader", "--all", "--Format", ",".join(f"{name}:{mark}" for name in _FIELDS)]


@dataclass(frozen=True, slots=True)
class Job:
    """A job, or ``tasks`` of an array that do not run yet. Of these, ``at_once`` may run at the same time. Amounts are of one task."""

    state: str
    partitions: tuple[str, ...]
    qos: str
    account: str
    reason: str
    nodes: int
    cpus: int
    memory: int
    gpus: int
    eligible: int | None
    tasks: int
    at_once: int
    features: str


def parse(record: str, mark: str) -> Job | None:
    """Return the job of a record, which ends with ``mark``; None where it is none."""
    found = record.removeprefix("\n").split(mark)
    if len(found) != len(_FIELDS):
        return None
    state, partitions, qos, reason, nodes, _tasks, tres, per_job, per_node, eligible, array, features, account = found
    amounts = {name: _amount(name, number, unit) for name, number, unit in _TRES.findall(tres)}
    count = amounts.get("node") or _first_number(nodes)
    if not count:
        return None
    tasks, at_once = _array(array) if state == "PENDING" else (1, 1)
    return Job(
        state=state.lower() if state in _STATES else "other",
        partitions=tuple(partitions.split(",")),
        qos=_value(qos),
        account=_value(account),
        reason=_reason(reason),
        nodes=count,
        cpus=amounts.get("cpu", 0),
        memory=amounts.get("mem", 0),
        gpus=_gpus(tres) or _gpus(per_job) or _gpus(per_node) * count,
        eligible=int(eligible) if eligible.isdecimal() else None,
        tasks=tasks,
        at_once=at_once,
        features=_value(features),
    )


def _value(text: str) -> str:
    return "" if text in ("(null)", "N/A") else text


def _amount(name: str, number: str, unit: str) -> int:
    return int(float(number) * (_UNITS[unit] if name == "mem" else {"": 1, "K": 1000, "M": 1_000_000}.get(unit, 1)))


def _first_number(text: str) -> int:
    match = _RANGE.match(text)
    return int(match[1]) if match else 0


def _gpus(text: str) -> int:
    """Return the GPUs of a TRES list. The sum over types is one of the entries where it has types."""
    found = [(kind, int(number or 1)) for kind, number in _GPU_TRES.findall(text)]
    whole = [number for kind, number in found if not kind]
    return whole[0] if whole else sum(number for _kind, number in found)


def _array(text: str) -> tuple[int, int]:
    """Return how many tasks a list such as 5-200,300%4 has, and how many of them may run at once; 1 for what is no list."""
    listed, _percent, most = text.partition("%")
    total = 0
    for part in listed.split(","):
        match = _RANGE.fullmatch(part)
        if match:
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            total += max(0, last - first) // max(1, step) + 1
    total = max(1, total)
    return total, min(total, int(most)) if most.isdecimal() and int(most) else total


def _reason(text: str) -> str:
    word = text.partition(",")[0]
    if _WORD.fullmatch(word):
        return word
    return next((found for words, found in _IN_WORDS.items() if text.startswith(words)), metrics.OTHER)


@dataclass(slots=True)
class _Queue:
    jobs: int = 0
    startable: int = 0
    cpus: int = 0
    memory: int = 0
    gpus: int = 0
    largest: int = 0


@dataclass(slots=True)
class Queues:
    """What waits for nodes, by node set. Jobs are as many as there are, and kinds of jobs few: the sets that fit are remembered."""

    sets: Mapping[str, NodeSet]
    found: dict[str, _Queue] = field(default_factory=dict)
    _fits: dict[tuple[object, ...], list[str]] = field(default_factory=dict)

    def add(self, job: Job) -> None:
        """Add a pending job."""
        cpus, memory, gpus = (-(-amount // job.nodes) for amount in (job.cpus, job.memory, job.gpus))
        key = (job.partitions, cpus, memory, gpus, job.features)
        names = self._fits.get(key)
        if names is None:
            if len(self._fits) > 10_000:
                self._fits.clear()
            names = self._fits[key] = [name for name, one in self.sets.items() if _fits(job, one, cpus, memory, gpus)]
        for name in names:
            queue = self.found.setdefault(name, _Queue())
            queue.jobs += job.tasks
            queue.startable += job.tasks if job.nodes <= self.sets[name].idle else 0
            queue.cpus += job.cpus * job.at_once
            queue.memory += job.memory * job.at_once
            queue.gpus += job.gpus * job.at_once
            # A job of several nodes has none of them twice.
            queue.largest = max(queue.largest, job.nodes)

    def samples(self) -> Samples:
        """Return the samples of all node sets, with 0 for those that nobody waits for."""
        result: Samples = {}
        for name, one in self.sets.items():
            queue = self.found.get(name, _Queue())
            shares = ((queue.cpus, one.cpus), (queue.memory, one.memory), (queue.gpus, one.gpus))
            packed = max((-(-amount // size) for amount, size in shares if size), default=0)
            nodes = max(packed, queue.largest)
            for metric, value in (
                (metrics.QUEUE_JOBS, queue.jobs),
                (metrics.QUEUE_NODES, nodes),
                (metrics.QUEUE_CPUS, queue.cpus),
                (metrics.QUEUE_GPUS, queue.gpus),
                (metrics.STARTABLE, queue.startable),
                (metrics.WANTED, one.busy + nodes),
            ):
                result.setdefault(metric, {})[name,] = value
        return result


def _fits(job: Job, one: NodeSet, cpus: int, memory: int, gpus: int) -> bool:
    if cpus > one.cpus or memory > one.memory or gpus > one.gpus or not one.partitions.intersection(job.partitions):
        return False
    # Other expressions than names that all have to be there are taken as met.
    return not job.features or not _NAMES_AND.fullmatch(job.features) or one.features.issuperset(job.features.split("&"))


@dataclass(frozen=True, slots=True)
class Limits:
    """How many values of a label have series of their own."""

    accounts: int
    qos: int = 50
    reasons: int = 40


def collect(jobs: Iterable[Job | None], sets: Mapping[str, NodeSet], limits: Limits, now: float) -> tuple[Samples, dict[str, int], int]:
    """Return the samples, how many values of each label were folded, and the number of records that are no jobs."""
    samples: Samples = {metrics.JOBS: {(state,): 0 for state in ("pending", "running")}}
    queues = Queues(sets)
    invalid = 0
    # Partitions without jobs have an idle queue, and not none.
    for partition in sorted(set().union(*(one.partitions for one in sets.values()))):
        samples.setdefault(metrics.LONGEST, {})[partition,] = 0
        for state in ("pending", "running"):
            add(samples, metrics.PARTITION_JOBS, (partition, state), 0)
    for job in jobs:
        if job is None:
            invalid += 1
            continue
        add(samples, metrics.JOBS, (job.state,), job.tasks)
        add(samples, metrics.ACCOUNT_JOBS, (job.account, job.state), job.tasks)
        add(samples, metrics.QOS_JOBS, (job.qos, job.state), job.tasks)
        for partition in job.partitions:
            add(samples, metrics.PARTITION_JOBS, (partition, job.state), job.tasks)
        if job.state == "pending":
            _add_pending(samples, queues, job, now)
        else:
            add(samples, metrics.ACCOUNT_CPUS, (job.account,), job.cpus)
            add(samples, metrics.ACCOUNT_GPUS, (job.account,), job.gpus)
    folds = {
        "account": metrics.folded(samples, (metrics.ACCOUNT_JOBS, metrics.ACCOUNT_CPUS, metrics.ACCOUNT_GPUS), limits.accounts),
        "qos": metrics.folded(samples, (metrics.QOS_JOBS,), limits.qos),
        "reason": metrics.folded(samples, (metrics.PENDING,), limits.reasons),
    }
    return {**samples, **queues.samples()}, folds, invalid


def _add_pending(samples: Samples, queues: Queues, job: Job, now: float) -> None:
    add(samples, metrics.PENDING, (job.reason,), job.tasks)
    if job.reason not in _FOR_NODES:
        return
    queues.add(job)
    if job.eligible is not None:
        longest = samples.setdefault(metrics.LONGEST, {})
        for partition in job.partitions:
            longest[partition,] = max(longest.get((partition,), 0), now - job.eligible, 0)
