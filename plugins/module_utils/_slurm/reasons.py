# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a node is out of service, by its reason: who owns the reason, what it means, what to do next. Pure.

A drain belongs to the owner that its reason names: ``corral: <owner>: <text>``. Slurm's own texts are those of slurmctld and slurmd 24.11; a worker's
pod that ends sets its node down with a reason of ours (images/slurm/entry/worker_stop.sh), which goes by itself as Slurm's own does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm.output import printable

_OURS = re.compile(r"corral: ([a-z0-9-]+): ?(.*)", re.DOTALL)
_OWNER = re.compile(r"[a-z][a-z0-9-]*")
# How a node began; over once slurmd has registered.
_BEGINNINGS = frozenset({"no-address", "pod"})
# Whose drains are taken back by whoever made them, at any time: the health check, ready.sh, and the next pod's registration.
PASSING = frozenset({"health", "jail", "pod", "start"})
# In slurmctld's own words (validate_node_specs and gres.c of 24.11.5 and 26.05.5), why it refuses a registration and drains the node. A good one leaves the
# drain as it is, and the health check (images/slurm/corral_health/scheduler.py), which knows the same words, takes it back.
_REFUSAL = (
    r"(?:Low socket\*core\*thread count|Low CPUs|Low TmpDisk|Low RealMemory \(reported:[^()]*\)"
    r"|[^ ,]+ count (?:reported lower than configured|too low) \([^()]*\))"
)
_REFUSED = re.compile(rf"{_REFUSAL}(?:, {_REFUSAL})*(?: : .*)?", re.DOTALL)
# slurmctld puts what happened to a node later behind the reason that it had: "disk swap : Not responding".
_LATER = " : "


@dataclass(frozen=True)
class Kind:
    """A class of reasons. ``next`` may hold {node}, {set}, {pod}, {namespace}, {cluster} and {text} (what stands behind the owner)."""

    key: str
    pattern: re.Pattern[str]
    explanation: str
    next: str


def write(owner: str, text: str) -> str:
    """Return the reason of a drain by ``owner``. Raises CorralError for what cannot be one."""
    if not _OWNER.fullmatch(owner):
        raise CorralError(
            f"The owner {owner!r} of a drain cannot be written into a reason; it has small letters, digits and hyphens, such as admin."
        )
    prefix = f"corral: {owner}:"
    text = printable(text, "reason").removeprefix(prefix).strip()
    if not text:
        raise CorralError("A node is drained or set down with a reason, for those who find it drained; give one in 'reason'.")
    return f"{prefix} {text}"


def owner(reason: str) -> str:
    """Return whose drain this is; "" for one that is not of this collection."""
    match = _OURS.match(reason)
    return match[1] if match else ""


def says(reason: str, wanted: str) -> bool:
    """True when ``reason`` is the wanted one, or was before slurmctld put something behind it."""
    return reason == wanted or reason.startswith(wanted + _LATER)


def standing(reason: str, drained: bool) -> str:
    """Return that part of a reason which keeps the node out.

    A node that came back keeps its reason, and when it falls silent weeks later slurmctld writes ``fan : Not responding``. So of a node that is
    only down, what Slurm said last counts; behind a reason of Slurm's own only where that was about how the node began.
    """
    last = reason.rsplit(_LATER, 1)[-1]
    if drained or last == reason or not slurms_own(last):
        return reason
    return last if not slurms_own(reason) or is_over(reason) else reason


def is_over(reason: str) -> bool:
    """True for a reason that says nothing more once slurmd has registered."""
    return classify(reason).key in _BEGINNINGS


def slurms_own(reason: str) -> bool:
    """True for a reason that Slurm, or the node's own pod, gave by itself, and nobody before."""
    name = owner(reason)
    return name == "pod" or (not name and any(kind.pattern.match(reason) for kind in SLURM))


def passing(reason: str) -> bool:
    """True for a drain that ends by itself, when what it is about is well again."""
    key = classify(reason).key
    return key in PASSING if owner(reason) else key == "no-address" or is_refusal(reason)


def is_refusal(reason: str) -> bool:
    """True for what slurmctld says of a registration that it refuses. It writes that over the reason of a node that is drained already."""
    return _REFUSED.fullmatch(reason) is not None


def classify(reason: str) -> Kind:
    """Return the class of a reason; PERSON for a person's own text."""
    name = owner(reason)
    if name:
        return next((kind for kind in OURS if kind.key == name), OWNED)
    return next((kind for kind in SLURM if kind.pattern.match(reason)), PERSON)


def text(reason: str) -> str:
    """Return the reason without its owner."""
    match = _OURS.match(reason)
    return match[2] if match else reason


def _kind(key: str, pattern: str, explanation: str, following: str) -> Kind:
    return Kind(key, re.compile(pattern, re.IGNORECASE), explanation, following)


_CLUSTER = "-e slurm_namespace={namespace} -e slurm_name={cluster}"
# How a run of the document is named, whose file only its owner knows.
SITE = "'ansible-playbook corral.slurm.site -e slurm_cluster_file=…' (the document of {namespace}/{cluster})"
_RESUME = f"resume it with 'ansible-playbook corral.slurm.drain {_CLUSTER} -e node={{node}} -e resume=true -e force=true'"
_LOG = "'kubectl logs -n {namespace} {pod} -c slurmd'"

OURS = (
    _kind(
        "jail",
        "",
        "its health check could not enter the jail ({text})",
        "repair the jail's volume; the health check resumes the node within a minute, so do not resume it by hand",
    ),
    _kind(
        "health",
        "",
        "its health check found a fault ({text})",
        f"repair that; the health check resumes the node within a minute; only after an Xid {_RESUME}",
    ),
    _kind(
        "prolog",
        "",
        "a script that runs before jobs failed ({text}), and the job was requeued",
        f"{_LOG} has its output; fix that, then {_RESUME}",
    ),
    _kind(
        "epilog",
        "",
        "a script that runs after jobs failed ({text})",
        f"{_LOG} has its output; fix that, then {_RESUME}",
    ),
    _kind(
        "start",
        "",
        "its pod could not be made ready ({text})",
        f"fix that ({_LOG} has more); the pod tries again and resumes the node by itself, so do not resume it by hand",
    ),
    _kind(
        "admin",
        "",
        "{text}",
        f"when that is done, run 'ansible-playbook corral.slurm.drain {_CLUSTER} -e node={{node}} -e resume=true'",
    ),
    _kind(
        "pod",
        "",
        "its pod ended, and the next one has not registered yet",
        "check that pod {pod} runs; the node comes back by itself when slurmd registers",
    ),
    _kind(
        "rollout",
        "",
        "{text}",
        f"run {SITE} to have its pod replaced once it is free; it takes the node back when the new pod is in service",
    ),
    _kind(
        "scale",
        "",
        "{text}, and it is removed when its last job has ended",
        f"run {SITE} to have it taken away once it is free; to keep it, raise replicas of node set {{set}} again before",
    ),
    _kind(
        "sync",
        "",
        "{text}",
        f"after that ('kubectl uncordon' ends a cordon), 'ansible-playbook corral.slurm.sync {_CLUSTER}' takes the node back, or the operator does",
    ),
)
OWNED = _kind(
    "owned",
    "",
    "{text}",
    f"it takes the node back when it is done; run {SITE} again if it seems to have been interrupted",
)
# The first that fits counts.
SLURM = (
    _kind(
        "no-address",
        r"NO NETWORK ADDRESS FOUND",
        "slurmctld found no address for its name, so no pod had come up under it",
        "check that pod {pod} runs; slurmd reports its address and the node comes back by itself",
    ),
    _kind(
        "unkillable",
        r"Kill task failed",
        "processes of a job did not end when they were killed, mostly because they hang in a file system or a driver",
        f"look for them with 'kubectl exec -n {{namespace}} {{pod}} -c slurmd -- ps axo pid,stat,wchan:30,args' (state D); when they are gone {_RESUME}, "
        "else restart the pod, or the Kubernetes node if they stay",
    ),
    _kind(
        "batch-failure",
        r"batch job complete failure",
        "slurmd could not start or finish a batch job, mostly because the job could not enter the jail or the spool directory is full",
        f"read {_LOG} around that time, fix what it reports, then {_RESUME}",
    ),
    _kind(
        "prolog",
        r"Prolog error",
        "the prolog ended with an error",
        f"read {_LOG} for its output, fix that, then {_RESUME}",
    ),
    _kind(
        "epilog",
        r"Epilog error",
        "the epilog ended with an error",
        f"read {_LOG} for its output, fix that, then {_RESUME}",
    ),
    _kind(
        "memory",
        r"Low Real ?Memory",
        "slurmd sees less memory than slurm.conf promises",
        f"raise resources.limits.memory of node set {{set}} to what the document promises, or lower the promise, and run {SITE}; "
        "a node that registers rightly comes back by itself",
    ),
    _kind(
        "cpus",
        r"Low (socket|CPU|core|thread)",
        "slurmd sees fewer CPUs than slurm.conf promises",
        f"lower the CPUs of node set {{set}} to what its Kubernetes nodes have and run {SITE}",
    ),
    _kind(
        "disk",
        r"Low TmpDisk",
        "slurmd sees less room for temporary files than slurm.conf promises",
        "free space on the Kubernetes node of pod {pod}, or lower TmpDisk",
    ),
    _kind(
        "spool-full",
        r"SlurmdSpoolDir is full",
        "the directory in which slurmd keeps its jobs is full",
        f"free space on the Kubernetes node of pod {{pod}}, then {_RESUME}",
    ),
    _kind(
        "gres",
        r"(gres/|gpu:)\S+ .*(lower than configured|too low|differs|invalid)",
        "slurmd sees fewer devices than slurm.conf promises",
        "see with 'kubectl exec -n {namespace} {pod} -c slurmd -- nvidia-smi -L' which device is lost; a Kubernetes node with a "
        "lost GPU needs a reset or a repair, "
        f"a wrong count in the document an edit and {SITE}",
    ),
    _kind(
        "rebooted",
        r"Node unexpectedly rebooted",
        "its pod or Kubernetes node restarted while Slurm thought that it was running",
        f"see why with 'kubectl describe pod -n {{namespace}} {{pod}}'; if it is well now, {_RESUME}",
    ),
    _kind(
        "duplicate",
        r"Duplicate jobid",
        "slurmd has a job that slurmctld holds for another",
        f"restart the pod with 'kubectl delete pod -n {{namespace}} {{pod}}', then {_RESUME}",
    ),
    _kind(
        "resume-timeout",
        r"ResumeTimeout reached",
        "it was powered up and did not register in time",
        "see with 'kubectl describe pod -n {namespace} {pod}' why its pod did not come, and raise ResumeTimeout if it only needs longer",
    ),
    _kind(
        "reboot",
        r"(Reboot (ASAP|requested|issued)|reboot)",
        "a reboot of it was asked for",
        "wait for it; 'scontrol cancel_reboot {node}' in the controller's pod takes the request back",
    ),
    _kind(
        "silent",
        r"(Not responding|Node not responding|Communication error)",
        "slurmd has not answered slurmctld for longer than SlurmdTimeout",
        "check that pod {pod} runs and its Kubernetes node is reachable; the node comes back by itself when slurmd answers",
    ),
)
PERSON = _kind(
    "person",
    "",
    "{text}",
    f"ask whoever did; if it is well again, {_RESUME}",
)
