# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who took a node out of service, since when, why, and what to do next. Pure: what slurmctld and Kubernetes say goes in, sentences come out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._slurm import output, reasons
from ansible_collections.corral.slurm.plugins.module_utils._slurm.nodes import Node
from ansible_collections.corral.slurm.plugins.module_utils._slurm.partitions import Partition
from ansible_collections.corral.slurm.plugins.module_utils._slurm.reservations import Reservation

# slurmctld's flags that say why a node takes no jobs though nobody has taken it out; the first that a node has counts.
_FLAGS: tuple[tuple[str, str, str, str], ...] = (
    ("POWERING_UP", "powering", "it is being powered up", "wait until its pod has come up and slurmd has registered"),
    ("POWERING_DOWN", "powering", "it is being powered down", "wait; Slurm powers it up again when a job needs it"),
    ("POWERED_DOWN", "powering", "it is powered down to save power", "nothing: Slurm powers it up when a job needs it"),
    ("REBOOT_ISSUED", "reboot", "it is being rebooted", "wait until slurmd has registered again"),
    ("REBOOT_REQUESTED", "reboot", "a reboot of it waits for its jobs to end", "wait, or take it back with 'scontrol cancel_reboot {node}'"),
    ("MAINTENANCE", "maintenance", "the maintenance reservation {reservation} holds it",
     "wait for the reservation's end{until}, or delete it with slurm_reservation"),
    ("RESERVED", "reservation", "the reservation {reservation} holds it", "submit with --reservation={reservation} if you may, or wait for its end{until}"),
    ("INVALID_REG", "registration", "slurmd registered with less than slurm.conf promises",
     "compare the node set in the document with the hardware of its Kubernetes nodes"),
    ("FUTURE", "future", "it has not registered since slurmctld knows it", "check that pod {pod} runs; it comes into service when slurmd registers"),
    ("NOT_RESPONDING", "silent", "slurmd does not answer slurmctld",
     "check that pod {pod} runs and its Kubernetes node is reachable; it comes back by itself when slurmd answers"),
    ("UNKNOWN", "unregistered", "slurmd has not registered since slurmctld started", "check that pod {pod} runs; it comes into service when slurmd registers"),
)  # fmt: skip
# Made by the workers' health check (images/slurm/health.py) instead of draining the whole cluster.
_JAIL_OUTAGE = "corral-jail-outage"
_OPEN = (
    f"if the document says so, set its state to UP there and run {reasons.SITE}, else open it with slurm_partition "
    "or 'scontrol update partitionname=… state=up'"
)
# Classes of reasons that a pod which does not run explains better than Slurm can.
_SILENCE = frozenset({"pod", "no-address", "silent", "rebooted", "unregistered", "resume-timeout", "powering", "future"})


@dataclass(frozen=True)
class Pod:
    """A node's pod: its name, and what is wrong with it or with its Kubernetes node in words of Kubernetes; ``trouble`` is "" for none.

    ``there`` is False when it does not exist, None when it could not be asked for; ``note`` is what else is to be known.
    """

    name: str
    there: bool | None = None
    trouble: str = ""
    kubernetes_node: str = ""
    note: str = ""


@dataclass(frozen=True)
class Verdict:
    """The response for one node; ``cause`` is a word for programs, ``summary`` one sentence for people."""

    node: str
    state: str
    in_service: bool
    cause: str
    who: str
    since: str
    reason: str
    why: str
    next: str
    evidence: list[str]
    summary: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def explain(
    node: Node,
    *,
    namespace: str = "",
    cluster: str = "",
    pod: Pod | None = None,
    partitions: Mapping[str, Partition] | None = None,
    reservations: Mapping[str, Reservation] | None = None,
    now: float,
) -> Verdict:
    """Report who took ``node`` out, since when, why and what to do next."""
    pod = pod or Pod(node.name)
    reservation = (reservations or {}).get(node.reservation)
    # Of a node whose name had no address slurmctld says so in the reason, though it is not out.
    counts = node.out or "FUTURE" in node.state
    standing = reasons.standing(node.reason, node.drained) if counts else ""
    if node.refused and reasons.is_over(standing):
        standing = ""  # Slurm keeps a reason that is there when it drains such a node; the flag says more
    shut = closed(node, partitions or {})
    places = {
        "node": node.name,
        "set": node.name.rsplit("-", 1)[0],
        "pod": pod.name,
        "namespace": namespace or "NAMESPACE",
        "cluster": cluster or "CLUSTER",
        "text": reasons.text(standing),
        "reservation": node.reservation or "of another",
        "until": f" ({output.stamp(reservation.end)})" if reservation else "",
        "shut": ", ".join(shut),
    }
    cause, who, explanation, todo = _cause(node, standing)
    if cause == "none" and shut:
        cause, who, explanation, todo = "partition", "the document or an administrator", "no partition of it takes jobs ({shut})", _OPEN
    # Only our own sentences hold places; what others wrote is added as it is.
    why, following = explanation.format(**places), todo.format(**places)
    if pod.there is False and cause in _SILENCE:
        cause, why = "no-pod", f"{why}: pod {pod.name} does not exist"
        following = f"run {reasons.SITE.format(**places)} again, which makes it, or see whether its StatefulSet was scaled down"
    elif pod.trouble and cause in _SILENCE:
        cause, why = "pod", f"{why}: {pod.trouble.rstrip('.')}"
        following = (
            f"fix that (see 'kubectl describe pod -n {places['namespace']} {pod.name}'); the node comes back by itself when slurmd answers"
        )
    elif pod.kubernetes_node and cause in _SILENCE:
        cause, why = "kubernetes-node", f"{why}: {pod.kubernetes_node.rstrip('.')}"
        following = "repair the Kubernetes node, or move the pod by deleting it; the node comes back by itself when slurmd answers"
    since = (
        node.reason_time
        if counts and node.reason
        else output.stamp(reservation.start)
        if cause in ("maintenance", "reservation") and reservation
        else ""
    )
    evidence = _evidence(node, pod, cause, partitions or {})
    return Verdict(
        node=node.name,
        state="+".join(node.state),
        in_service=node.in_service and cause == "none",
        cause=cause,
        who=who,
        since=since,
        reason=node.reason if counts else "",
        why=why,
        next=following,
        evidence=evidence,
        summary=_summary(node, cause, who, since, why, following, evidence, now),
    )


def unknown(name: str, *, pod: Pod, known: str, namespace: str = "", cluster: str = "") -> Verdict:
    """Answer for a name that slurmctld does not know: it takes no jobs, whoever asks for it."""
    why = f"slurm.conf has no such node; it has {known or 'none'}"
    site = reasons.SITE.format(namespace=namespace or "NAMESPACE", cluster=cluster or "CLUSTER")
    following = f"correct the name, or raise replicas of its node set in the document and run {site}"
    if pod.there:
        why += f", though pod {pod.name} is there"
        following = f"run {site} again, which brings slurm.conf and the pods together"
    summary = f"{name} is not known to Slurm: {why}. Next: {following}."
    return Verdict(name, "", False, "unknown", "", "", "", why, following, [], summary)


def closed(node: Node, partitions: Mapping[str, Partition]) -> list[str]:
    """Return in which states the partitions of a node are, when none of them takes jobs: ``main is DOWN``."""
    states = {name: partitions[name].state for name in node.partitions if name in partitions}
    return [f"{name} is {state}" for name, state in states.items()] if "UP" not in states.values() else []


def _cause(node: Node, standing: str) -> tuple[str, str, str, str]:
    """Return the word for the cause, who, why, and what to do next."""
    if standing:
        kind = reasons.classify(standing)
        following = kind.next
        if kind.key in ("admin", "person", "owned") and "NOT_RESPONDING" in node.state:
            following += "; slurmd does not answer either, so check that pod {pod} runs"
        return kind.key, _who(node, standing, kind), kind.explanation, following
    if node.reservation == _JAIL_OUTAGE:
        return (
            "jail",
            "the jail's health check",
            "too many nodes could not enter the jail, so the reservation {reservation} keeps jobs waiting",
            "repair the jail's volume; the health check deletes the reservation by itself",
        )
    for flag, cause, why, following in _FLAGS:
        if flag in node.state:
            return cause, "Slurm itself" if cause not in ("maintenance", "reservation") else "a reservation", why, following
    if node.out:
        return "unexplained", "somebody", "no reason was given", reasons.PERSON.next
    if not node.answers:
        return "unexplained", "Slurm itself", "its state is none in which jobs run", "see slurmctld's log"
    return "none", "", "", ""


def _who(node: Node, standing: str, kind: reasons.Kind) -> str:
    name = reasons.owner(standing)
    if name:
        names = {
            "jail": "the jail's health check",
            "health": "its health check",
            "start": "its pod's start",
            "admin": "an administrator",
            "pod": "its pod",
        }
        return names.get(name, f"corral ({name})")
    if kind is not reasons.PERSON:
        return "Slurm itself"
    return f"user {node.reason_user}" if node.reason_user not in ("", "slurm") else "somebody as user slurm"


def _evidence(node: Node, pod: Pod, cause: str, partitions: Mapping[str, Partition]) -> list[str]:
    found: list[str] = []
    if pod.trouble and cause != "pod":
        found.append(pod.trouble)
    if pod.kubernetes_node and cause != "kubernetes-node":
        found.append(pod.kubernetes_node)
    if pod.note:
        found.append(pod.note)
    shut = [f"{name} is {partitions[name].state}" for name in node.partitions if name in partitions and partitions[name].state != "UP"]
    if shut and cause != "partition":
        found.append("of its partitions " + ", ".join(shut))
    if not node.partitions:
        found.append("it is in no partition, so no job can ask for it")
    if node.drained and node.busy:
        found.append("jobs still run on it")
    return found


def _summary(node: Node, cause: str, who: str, since: str, why: str, following: str, evidence: list[str], now: float) -> str:
    state = "+".join(node.state)
    more = "".join(f" Also: {item.rstrip('.')}." for item in evidence)
    if cause == "none":
        return f"{node.name} is in service ({state}).{more}"
    when = f" since {since}{_age(since, now)}" if since else ""
    return f"{node.name} is {state}{when}, by {who}: {why}. Next: {following}.{more}"


def _age(since: str, now: float) -> str:
    seconds = now - datetime.strptime(since, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    if seconds < 0:
        return ""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f" ({int(seconds // size)} {unit})"
    return f" ({int(seconds)} s)"
