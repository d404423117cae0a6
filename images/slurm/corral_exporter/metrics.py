# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""The metrics, each declared once, and their text: version 0.0.4 of Prometheus' exposition format. docs/monitoring.md is generated from the declarations.

Written here in forty lines, since all values are replaced at once and nothing is counted in this process; so the image needs no Python package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

# What is not among the values of a label that have series of their own. No account of Slurm can be named so by accident: names of Slurm's are not in brackets.
OTHER = "[other]"
_LONGEST = 120
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


@dataclass(frozen=True)
class Metric:
    """A family: ``kind`` is ``gauge`` or ``counter``; ``labels`` are in the order in which samples give their values."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


# The values of a sample's labels, and its value.
Samples = dict[Metric, dict[tuple[str, ...], float]]


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "gauge", text, labels)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "counter", text, labels)


NODES = _gauge("slurm_nodes", "Nodes of a node set by their state; each node counts once.", "node_set", "state")
NOT_RESPONDING = _gauge("slurm_nodes_not_responding", "Nodes of a node set that do not respond to slurmctld.", "node_set")
CPUS = _gauge("slurm_cpus", "CPUs of a node set: allocated, idle, or unavailable for new jobs.", "node_set", "state")
MEMORY = _gauge("slurm_memory_bytes", "Memory of a node set: allocated, idle, or unavailable for new jobs.", "node_set", "state")
GPUS = _gauge("slurm_gpus", "GPUs of a node set: allocated, idle, or unavailable for new jobs.", "node_set", "state")
UNAVAILABLE = _gauge(
    "slurm_node_unavailable",
    "1 for each node that takes no new jobs, with the reason that Slurm shows. There are as many as the limit allows.",
    "node",
    "node_set",
    "state",
    "reason",
)
UNAVAILABLE_OMITTED = _gauge("slurm_node_unavailable_omitted", "Nodes that take no new jobs and are beyond the limit.")
BY_OWNER = _gauge(
    "slurm_nodes_unavailable_by_owner",
    f'Nodes that take no new jobs, by the owner that their reason names, for "health" with the check. "{OTHER}": Slurm, a person, or beyond the limit.',
    "owner",
    "node_set",
)
PARTITION_NODES = _gauge("slurm_partition_nodes", "Nodes of a partition by their state.", "partition", "state")
PARTITION_CPUS = _gauge(
    "slurm_partition_cpus", "CPUs of a partition's nodes: allocated, idle, or unavailable for new jobs.", "partition", "state"
)
PARTITION_MEMORY = _gauge(
    "slurm_partition_memory_bytes", "Memory of a partition's nodes: allocated, idle, or unavailable for new jobs.", "partition", "state"
)
PARTITION_GPUS = _gauge(
    "slurm_partition_gpus", "GPUs of a partition's nodes: allocated, idle, or unavailable for new jobs.", "partition", "state"
)

JOBS = _gauge("slurm_jobs", "Jobs by their state. Each task of an array is a job.", "state")
PARTITION_JOBS = _gauge(
    "slurm_partition_jobs",
    "Jobs of a partition by their state. A pending job counts in each partition that it names.",
    "partition",
    "state",
)
ACCOUNT_JOBS = _gauge("slurm_account_jobs", "Jobs of an account by their state.", "account", "state")
QOS_JOBS = _gauge("slurm_qos_jobs", "Jobs of a QoS by their state.", "qos", "state")
ACCOUNT_CPUS = _gauge("slurm_account_cpus", "CPUs that jobs of an account have.", "account")
ACCOUNT_GPUS = _gauge("slurm_account_gpus", "GPUs that jobs of an account have.", "account")
PENDING = _gauge("slurm_jobs_pending", "Pending jobs by the reason that Slurm shows.", "reason")
LONGEST = _gauge(
    "slurm_partition_longest_wait_seconds",
    "How long the job has waited that has waited longest in a partition, of those that only wait for free nodes.",
    "partition",
)
QUEUE_JOBS = _gauge(
    "slurm_node_set_pending_jobs",
    "Jobs that only wait for free nodes and that fit nodes of the node set. A job counts in each set that it fits.",
    "node_set",
)
QUEUE_NODES = _gauge(
    "slurm_node_set_pending_nodes",
    "Nodes that these jobs need if they are packed, and at least what the largest of them needs.",
    "node_set",
)
QUEUE_CPUS = _gauge("slurm_node_set_pending_cpus", "CPUs that these jobs request.", "node_set")
QUEUE_GPUS = _gauge("slurm_node_set_pending_gpus", "GPUs that these jobs request.", "node_set")
WANTED = _gauge(
    "slurm_node_set_wanted_nodes", "Nodes with jobs, and slurm_node_set_pending_nodes: the size that an autoscaler may aim at.", "node_set"
)
STARTABLE = _gauge(
    "slurm_node_set_startable_jobs", "Of slurm_node_set_pending_jobs those that need no more nodes than are idle.", "node_set"
)

INFO = _gauge("slurm_info", "1, with the version of Slurm's commands.", "version")
THREADS = _gauge("slurm_scheduler_threads", "Threads of slurmctld that work on RPCs; at 256 RPCs wait.")
AGENTS = _gauge("slurm_scheduler_agent_queue", "Messages of slurmctld to nodes that wait.")
DATABASE_QUEUE = _gauge("slurm_slurmdbd_queue", "Messages that slurmctld keeps for slurmdbd.")
CYCLE = _gauge("slurm_scheduler_cycle_seconds", "Duration of the last cycle of a scheduler.", "scheduler")
CYCLE_MEAN = _gauge(
    "slurm_scheduler_cycle_mean_seconds", "Mean duration of a scheduler's cycles since the statistics were reset.", "scheduler"
)
CYCLES = _counter(
    "slurm_scheduler_cycles_total", "Cycles of a scheduler. Slurm resets this and the next counters at midnight UTC.", "scheduler"
)
SCHEDULER_QUEUE = _gauge("slurm_scheduler_queue", "Jobs in the queue of a scheduler at its last cycle.", "scheduler")
EVENTS = _counter("slurm_scheduler_jobs_total", "Jobs submitted, started, completed, canceled, failed, or started by backfill.", "event")
RPCS = _counter("slurm_rpcs_total", "RPCs that slurmctld received, by type.", "type")
RPC_SECONDS = _counter("slurm_rpc_seconds_total", "Time that slurmctld spent on RPCs, by type.", "type")
USER_RPCS = _counter("slurm_user_rpcs_total", "RPCs that slurmctld received, by user.", "user")
USER_RPC_SECONDS = _counter("slurm_user_rpc_seconds_total", "Time that slurmctld spent on RPCs, by user.", "user")

SUCCESS = _gauge(
    "slurm_exporter_success", "1 if the last query of a source succeeded. If not, its metrics have the last good values.", "source"
)
AGE = _gauge(
    "slurm_exporter_age_seconds", "Time since a source was last queried with success; since the start where it never was.", "source"
)
DURATION = _gauge("slurm_exporter_duration_seconds", "Duration of the last query of a source.", "source")
QUERIES = _counter("slurm_exporter_queries_total", "Queries of a source.", "source")
FAILURES = _counter("slurm_exporter_failures_total", "Failed queries of a source.", "source")
FOLDED = _gauge("slurm_exporter_folded", f'Values of a label beyond its limit, which count together as "{OTHER}".', "label")
INVALID = _gauge(
    "slurm_exporter_invalid_records", "Records in the last output of a source that could not be read and do not count.", "source"
)

CATALOGUE: tuple[Metric, ...] = tuple(value for value in globals().values() if isinstance(value, Metric))


def add(samples: Samples, metric: Metric, values: tuple[str, ...], amount: float) -> None:
    """Add to the value of a sample, which begins with 0."""
    found = samples.setdefault(metric, {})
    found[values] = found.get(values, 0) + amount


def fold(counts: Mapping[str, float], limit: int, kept: Sequence[str] = ()) -> dict[str, str]:
    """Return the label value for each name: its own for those that are ``kept`` and for the largest up to ``limit``, and OTHER for the rest."""
    own = [name for name in kept if name in counts][:limit]
    known = set(own)
    own += [name for name, _count in sorted(counts.items(), key=lambda one: (-one[1], one[0])) if name not in known][: limit - len(own)]
    known = set(own)
    return {name: name if name in known else OTHER for name in counts}


def folded(samples: Samples, metrics: Iterable[Metric], limit: int) -> int:
    """Fold the first label of these metrics, which have it in common, in place; return how many values of it were folded."""
    metrics = [metric for metric in metrics if metric in samples]
    # By their sum: what matters is that none of the large ones is folded.
    counts: dict[str, float] = {}
    for metric in metrics:
        for values, amount in samples[metric].items():
            counts[values[0]] = counts.get(values[0], 0) + amount
    names = fold(counts, limit)
    for metric in metrics:
        before, samples[metric] = samples[metric], {}
        for values, amount in before.items():
            add(samples, metric, (names[values[0]], *values[1:]), amount)
    return sum(own == OTHER != name for name, own in names.items())


def render(samples: Samples, constant: Mapping[str, str]) -> Iterator[str]:
    """Yield the text of the families, with ``constant`` labels on each sample."""
    common = [f'{label}="{_escaped(value)}"' for label, value in constant.items()]
    for metric, found in samples.items():
        yield f"# HELP {metric.name} {metric.help.translate({10: ' ', 92: chr(92) * 2})}\n# TYPE {metric.name} {metric.kind}\n"
        for values, value in found.items():
            labels = ",".join((*common, *(f'{label}="{_escaped(text)}"' for label, text in zip(metric.labels, values, strict=True))))
            yield f"{metric.name}{{{labels}}} {_number(value)}\n"


def _escaped(text: str) -> str:
    return (text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…").translate(_ESCAPES)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
