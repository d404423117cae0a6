# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of a SlurmCluster. Pure: the same facts give the same status, so that the status of an idle cluster is never written.

It has no times except those of conditions' transitions and of the last repair. The conditions are those that tools know: Ready; Reconciling and Stalled,
for kstatus; Degraded; and one for each component of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import components
from corral_operator.reconcile.children import WORKLOADS, Child

Json = dict[str, Any]

COMPONENTS = {part.name: part.condition for part in components.COMPONENTS if part.condition}
# Those that a document need not have, and those that need no workload: a jail of the image's own has none.
_OPTIONAL = frozenset({"jail", *(part.name for part in components.COMPONENTS if part.field)})
# The condition about spec.accounting.tenants.
TENANTS = "TenantsApplied"
_LONGEST = 1024
# The most changes of one repair in the status.
_MOST = 10


@dataclass
class Fingerprints:
    """Fingerprints of the inputs of the last site run that changed nothing, of the last good corral.slurm.sync and of the last good corral.slurm.tenants;
    and the content's revision."""

    site: str = ""
    sync: str = ""
    tenants: str = ""
    revision: str = ""


@dataclass
class Activity:
    """The current run and its task, the nodes whose jobs are waited for, and the progress of a roll-out."""

    running: bool = False
    doing: str = ""
    waiting: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


@dataclass
class Drift:
    """Objects in ``conflicts`` with another writer, which are left alone for a while, and what the ``last`` run that repaired something changed, and when."""

    conflicts: frozenset[str] = frozenset()
    last: Json | None = None


@dataclass(frozen=True)
class Failure:
    """The last of ``count`` failures in a row."""

    reason: str
    message: str
    count: int = 1


@dataclass
class Facts:
    """What is known of a cluster. ``observed`` is the generation of the last successful run; ``stalled`` is (reason, message)."""

    generation: int = 0
    observed: int = 0
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    activity: Activity = field(default_factory=Activity)
    failure: Failure | None = None
    stalled: tuple[str, str] | None = None
    paused: bool = False
    deleting: bool = False
    nodes: Json | None = None
    children: list[Child] | None = None
    # Whether the database has the accounts, users and QoS (status, reason, message); None without spec.accounting.tenants.
    tenants: tuple[str, str, str] | None = None
    drift: Drift = field(default_factory=Drift)

    @classmethod
    def of(cls, status: Json) -> Facts:
        """Return the facts in a status, for an operator that has just started."""
        facts = cls(
            observed=int(status.get("observedGeneration") or 0),
            fingerprints=Fingerprints(*(str(status.get(key) or "") for key in ("observedHash", "syncedHash", "tenantsHash", "revision"))),
            nodes=status.get("nodes"),
            drift=Drift(last=status.get("lastDrift")),
        )
        for condition in status.get("conditions") or ():
            if condition.get("type") == "Stalled" and condition.get("status") == "True":
                facts.observed = max(0, facts.observed - 1)  # this generation was not applied
            if condition.get("type") == TENANTS:
                facts.tenants = str(condition.get("status")), str(condition.get("reason")), str(condition.get("message") or "")
            if condition.get("type") == "Degraded" and condition.get("status") == "True" and status.get("lastFailure"):
                facts.failure = Failure(str(condition.get("reason")), str(status["lastFailure"]), 2)
        return facts


def build(facts: Facts, before: Json, now: str, *, legacy: bool = False) -> Json:
    """Return the new status; ``now`` becomes the time of conditions that changed since ``before``."""
    wanted = _conditions(facts, before)
    if legacy:
        wanted += _legacy(facts)
    ours = {condition["type"] for condition in wanted}
    old = {condition.get("type"): condition for condition in before.get("conditions") or ()}
    for condition in wanted:
        earlier = old.get(condition["type"], {})
        same = earlier.get("status") == condition["status"] and earlier.get("lastTransitionTime")
        condition["lastTransitionTime"] = earlier["lastTransitionTime"] if same else now
    status: Json = {
        **{key: value for key, value in before.items() if key not in _OURS},
        "conditions": [*wanted, *(condition for kind, condition in old.items() if kind not in ours and kind not in (*_LEGACY, TENANTS))],
    }
    optional = {
        # A refused generation counts as observed: otherwise kstatus would wait for it.
        "observedGeneration": facts.generation if facts.stalled else facts.observed,
        "observedHash": facts.fingerprints.site,
        "syncedHash": facts.fingerprints.sync,
        "tenantsHash": facts.fingerprints.tenants,
        "revision": facts.fingerprints.revision,
        "nodes": facts.nodes,
        "login": _login(facts.children, before),
        "waitingFor": _cut(_waiting_for(facts)),
        "lastFailure": _cut(facts.failure.message) if facts.failure else "",
        "lastDrift": facts.drift.last,
    }
    status.update({key: value for key, value in optional.items() if value})
    return status


_OURS = (
    "conditions",
    "observedGeneration",
    "observedHash",
    "syncedHash",
    "tenantsHash",
    "revision",
    "nodes",
    "login",
    "waitingFor",
    "lastFailure",
    "lastDrift",
)
_LEGACY = ("Running", "Successful", "Failure")


def patch(status: Json, before: Json) -> Json:
    """Return the merge patch from ``before`` to ``status``, empty if they are equal."""
    change = {key: value for key, value in status.items() if before.get(key) != value}
    return {**change, **{key: None for key in before if key not in status}}


def _conditions(facts: Facts, before: Json) -> list[Json]:
    parts = _components(facts, before)
    missing = [part["message"] for part in parts if part["status"] == "False"]
    # Without a backup the cluster serves on, degraded.
    serving = [part["message"] for part in parts if part["status"] == "False" and part["type"] != COMPONENTS["backup"]]
    unknown = any(part["status"] == "Unknown" for part in parts)
    current = facts.observed == facts.generation
    # The first failed run of a healthy cluster may be due to a short outage of the API server, so it is not reported.
    failure = facts.failure if facts.failure is not None and (facts.failure.count > 1 or not current) else None
    if facts.stalled:
        ready = ("False", *facts.stalled)
    elif facts.deleting:
        ready = ("False", "Deleting", "The cluster is being deleted.")
    elif failure:
        ready = ("False", failure.reason, failure.message)
    elif facts.drift.conflicts:
        ready = ("False", "ReconcileConflict", _conflicts(facts))
    elif serving:
        ready = ("False", "NotReady", _sentence(serving))
    elif no_node_serves(facts.nodes, facts.children):
        ready = ("False", "NoNodeInService", f"{_in_service(facts)[:-1]}; corral.slurm.why gives the reasons.")
    elif not facts.observed:
        ready = ("False", "NotReconciled", "The cluster has not been created yet.")
    elif unknown:
        ready = ("Unknown", "NotObserved", "The cluster's objects have not been listed yet.")
    else:
        ready = ("True", "InService", _in_service(facts))
    generation = facts.observed if ready[0] == "True" else facts.generation
    return [
        condition("Ready", *ready, generation),
        condition("Reconciling", *_reconciling(facts), facts.generation),
        condition("Stalled", *(("True", *facts.stalled) if facts.stalled else ("False", "NotStalled", "")), facts.generation),
        condition("Degraded", *_degraded(facts, missing, failure), facts.generation),
        *parts,
        *([condition(TENANTS, *facts.tenants, facts.generation)] if facts.tenants else []),
    ]


def _reconciling(facts: Facts) -> tuple[str, str, str]:
    if facts.paused:
        return "False", "Paused", "The annotation corral.hpc/paused is true, so the cluster is not changed."
    if facts.deleting:
        return "True", "Deleting", "The cluster is being deleted."
    if facts.stalled:
        return "False", facts.stalled[0], ""
    if facts.activity.running:
        return "True", "Running", "A run applies the document."
    if facts.activity.waiting:
        return "True", "WaitingForJobs", _sentence([_waiting_for(facts)])
    if facts.failure:
        return "False", facts.failure.reason, "The last run failed; it is repeated."
    if facts.observed != facts.generation:
        return "True", "Queued", "The document has changed."
    return "False", "Done", ""


def _degraded(facts: Facts, missing: list[str], failure: Failure | None) -> tuple[str, str, str]:
    if facts.stalled:
        return "True", *facts.stalled
    if failure:
        return "True", failure.reason, failure.message
    if facts.drift.conflicts and not facts.deleting:
        return "True", "ReconcileConflict", _conflicts(facts)
    if missing and facts.observed and not facts.activity.running and not facts.deleting:
        return "True", "NotReady", _sentence(missing)
    out = {name: int((facts.nodes or {}).get(name) or 0) for name in ("drained", "down")}
    if any(out.values()):
        counts = " and ".join(f"{count} {name}" for name, count in out.items() if count)
        return "True", "NodesOutOfService", f"Of {(facts.nodes or {}).get('total')} nodes {counts}; corral.slurm.why gives the reasons."
    return "False", "AsExpected", ""


def _conflicts(facts: Facts) -> str:
    return (
        f"Another writer changes {', '.join(sorted(facts.drift.conflicts)[:5])} after each repair, so it differs from the document and is repaired less and "
        "less often; kubectl get -o yaml --show-managed-fields names the writer."
    )


def _in_service(facts: Facts) -> str:
    nodes = facts.nodes or {}
    return f"{nodes.get('inService', 0)} of {nodes['total']} nodes are in service." if nodes.get("total") else "The cluster is in service."


def _components(facts: Facts, before: Json) -> list[Json]:
    if facts.children is None:  # not listed yet: the last written conditions remain valid
        return [condition for condition in before.get("conditions") or () if condition.get("type") in COMPONENTS.values()]
    found: list[Json] = []
    for kind in dict.fromkeys(COMPONENTS.values()):
        # A database is one of several components, and of two while one takes the other's place.
        names = {name for name, its in COMPONENTS.items() if its == kind}
        workloads = [one for one in facts.children if one.component in names and one.kind in WORKLOADS]
        messages = [one.message for one in workloads if not one.ready]
        if messages:
            found.append(condition(kind, "False", "NotReady", _sentence(messages), facts.generation))
        elif workloads:
            found.append(condition(kind, "True", "Ready", "", facts.generation))
        elif facts.observed and not names & _OPTIONAL and not (names == {"worker"} and _no_nodes(facts)):
            found.append(condition(kind, "False", "Missing", f"There are no workloads of the {', '.join(names)}.", facts.generation))
    return found


def _no_nodes(facts: Facts) -> bool:
    """True if the document has no nodes."""
    return facts.nodes is not None and not facts.nodes.get("total")


def _legacy(facts: Facts) -> list[Json]:
    """The three conditions of the Go ansible-operator, for tools that wait for them."""
    bad = (facts.failure and facts.failure.message) or (facts.stalled and facts.stalled[1])
    return [
        condition("Running", "True", "Running" if facts.activity.running else "Successful", "", facts.generation),
        condition(
            "Successful",
            "True" if facts.observed == facts.generation and not bad else "False",
            "Successful" if not bad else "Failed",
            "",
            facts.generation,
        ),
        condition("Failure", "True" if bad else "False", "Failed" if bad else "None", bad or "", facts.generation),
    ]


def drift(changes: Iterable[str], now: str) -> Json:
    """Return what the status says of a repair."""
    found = list(dict.fromkeys(changes))
    more = [f"and {len(found) - _MOST} more"] if len(found) > _MOST else []
    return {"repairedAt": now, "changes": [_cut(one) for one in found[:_MOST]] + more}


def condition(kind: str, status: str, reason: str, message: str, generation: int) -> Json:
    """Return a condition without the time of its transition."""
    return {"type": kind, "status": status, "reason": reason, "message": _cut(message), "observedGeneration": generation}


def no_node_serves(nodes: Json | None, children: list[Child] | None) -> bool:
    """True if workers run but none of their nodes accepts jobs. Nodes that Slurm starts on demand are no pods of a StatefulSet."""
    workers = any(one.size for one in children or () if one.kind == "StatefulSet" and one.component == "worker")
    return workers and bool((nodes or {}).get("total")) and not (nodes or {}).get("inService")


def _login(children: list[Child] | None, before: Json) -> str:
    if children is None:
        return str(before.get("login") or "")
    return next((one.address for one in children if one.kind == "Service" and one.component == "login" and one.address), "")


def _waiting_for(facts: Facts) -> str:
    activity = facts.activity
    if activity.running and activity.doing:
        return activity.doing
    jobs = ["jobs on draining nodes: " + ", ".join(activity.waiting)] if activity.waiting else []
    return "; ".join([*activity.lines, *jobs])


def _sentence(parts: Iterable[str]) -> str:
    text = "; ".join(part.rstrip(".") for part in parts if part)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
