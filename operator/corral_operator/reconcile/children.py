# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The observed objects of a cluster: what shows drift, and what shows readiness. Pure.

Of most kinds only metadata is watched. Of each object only a fingerprint is retained: its identity, what people and controllers may set, and whether
a workload is ready. For kinds that only runs and people write, the resourceVersion is sufficient.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import components, revisions

Json = dict[str, Any]

SELECTOR = "app.kubernetes.io/managed-by=corral,app.kubernetes.io/part-of=corral"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
_SET = "applyset.kubernetes.io/id"


class Change(IntEnum):
    """What has changed of an object: its state, its spec by a run, or its spec by another writer."""

    STATE = 0
    SET = 1
    FOREIGN = 2


@dataclass(frozen=True)
class Kind:
    """``whole``: its status matters. ``optional``: the permission to watch it may be missing; then only the next run finds its drift.
    ``field``: only namespaces with a document that has this field are watched."""

    name: str
    api: str
    plural: str
    selector: str = SELECTOR
    whole: bool = False
    optional: bool = False
    field: str = ""

    def path(self, namespace: str) -> str:
        """Return the path of its list in a namespace."""
        return f"/{'api' if self.api == 'v1' else 'apis'}/{self.api}/namespaces/{namespace}/{self.plural}"


# Kinds of other operators, by whose condition an object is ready.
_OPERATED = {"Certificate": "cert-manager", "MariaDB": "mariadb-operator"}
# Those by whose state a component is ready.
WORKLOADS = ("StatefulSet", "Job", "CronJob", *_OPERATED)
_WHOLE = (*WORKLOADS, "Service", "SlurmNodeSet")
# CustomResourceDefinitions may be missing.
_OPTIONAL = ("Secret", "SlurmNodeSet", *components.FOREIGN_KINDS)
KINDS = (
    *(
        Kind(name, *place, whole=name in _WHOLE, optional=name in _OPTIONAL, field=components.FOREIGN_KINDS.get(name, ""))
        for name, place in components.KINDS.items()
    ),
    Kind("Pod", "v1", "pods", whole=True),  # see worker_pods.py
)


@dataclass(frozen=True)
class Child:
    """One object. ``spec`` is a fingerprint of what can be set, ``state`` of its readiness; ``foreign``: the last writer was not a run.

    ``own``: when a run last wrote it, and how many fields runs own.
    ``size`` is the number of pods of a StatefulSet or in a SlurmNodeSet's status; its change is no drift.
    """

    kind: str
    name: str
    component: str
    spec: str
    state: str = ""
    ready: bool = True
    message: str = ""
    address: str = ""
    foreign: bool = field(default=False, compare=False)
    own: tuple[str, int] = field(default=("", 0), compare=False)
    size: int = field(default=0, compare=False)


def child(kind: Kind, found: Json) -> Child:
    """Return what is retained of an object."""
    metadata = found.get("metadata") or {}
    return replace(_child(kind, found), foreign=_is_foreign(metadata), own=_own(metadata))


def _child(kind: Kind, found: Json) -> Child:
    metadata = found.get("metadata") or {}
    labels = metadata.get("labels") or {}
    common = (kind.name, str(metadata.get("name", "")), str(labels.get(COMPONENT, "")))
    uid = str(metadata.get("uid", ""))
    if kind.name == "Pod":
        return Child(*common, spec=uid)  # runs write its annotations, its controller the spec
    if kind.name in (*WORKLOADS, "NetworkPolicy", "PodDisruptionBudget"):
        spec = _digest([uid, metadata.get("generation"), labels, metadata.get("annotations"), bool(metadata.get("deletionTimestamp"))])
    elif kind.name == "SlurmNodeSet":
        spec = _digest([uid, found.get("spec"), labels, bool(metadata.get("deletionTimestamp"))])
    elif kind.name == "Service":
        spec = _digest([uid, found.get("spec"), labels, metadata.get("annotations"), bool(metadata.get("deletionTimestamp"))])
    elif kind.name == "PersistentVolumeClaim":
        spec = _digest([uid, labels, bool(metadata.get("deletionTimestamp"))])  # a controller binds it
    else:
        spec = f"{uid}/{metadata.get('resourceVersion')}"
    if kind.name == "StatefulSet":
        ready, message = _stateful_set(found)
        size = int((found.get("spec") or {}).get("replicas", 1))
        return Child(*common, spec=spec, state="ready" if ready else message, ready=ready, message=message, size=size)
    if kind.name == "SlurmNodeSet":
        return Child(*common, spec=spec, size=int((found.get("status") or {}).get("replicas", 0)))
    readiness = {"Job": _job, "CronJob": _cron_job}.get(kind.name)
    if readiness is not None or kind.name in _OPERATED:
        ready, message = readiness(found) if readiness else _operated(kind.name, found)
        return Child(*common, spec=spec, state=message, ready=ready, message=message)
    if kind.name == "Service":
        return Child(*common, spec=spec, address=_address(found))
    return Child(*common, spec=spec)


def _is_foreign(metadata: Json) -> bool:
    """True if the most recent field manager of the object is not a run. Managers of the status do not count."""
    entries = [(str(one.get("time")), _is_runs(one)) for one in _entries(metadata)]
    newest = max((time for time, _runs in entries), default="")
    return not entries or any(time == newest and not runs for time, runs in entries)


def _own(metadata: Json) -> tuple[str, int]:
    """Return when a run last wrote the object, and how many of its fields runs own.

    Removing a field adds no entry for who removes it: the former owner has one field less, at an unchanged time. The same holds for what a run writes
    and removes within a second, which it does only in its own records: the applyset, and the history of the cluster's documents.
    """
    labels = metadata.get("labels") or {}
    if _SET in labels or metadata.get("name") == revisions.name(str(labels.get(INSTANCE))):
        return "", 0
    entries = [one for one in _entries(metadata) if _is_runs(one)]
    return max((str(one.get("time")) for one in entries), default=""), sum(json.dumps(one.get("fieldsV1")).count("{") for one in entries)


def _entries(metadata: Json) -> list[Json]:
    return [one for one in metadata.get("managedFields") or () if one.get("subresource") != "status"]


def _is_runs(entry: Json) -> bool:
    return str(entry.get("manager")).startswith("corral")


def _stateful_set(found: Json) -> tuple[bool, str]:
    spec, status, metadata = found.get("spec") or {}, found.get("status") or {}, found.get("metadata") or {}
    wanted = int(spec.get("replicas", 1))
    ready = int(status.get("readyReplicas") or 0)
    current = status.get("observedGeneration") == metadata.get("generation")
    rolled = status.get("currentRevision") == status.get("updateRevision") or int(status.get("updatedReplicas") or 0) >= wanted
    name = metadata.get("name")
    if ready < wanted or not current:
        return False, f"{ready} of {wanted} pods of {name} are ready"
    if not rolled:
        return False, f"pods of {name} are being replaced"
    return True, ""


def _job(found: Json) -> tuple[bool, str]:
    metadata = found.get("metadata") or {}
    for condition in (found.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") == "Complete":
            return True, ""
        if condition.get("status") == "True" and condition.get("type") == "Failed":
            return False, f"job {metadata.get('name')} has failed"
    return False, f"job {metadata.get('name')} has not ended"


def _cron_job(found: Json) -> tuple[bool, str]:
    """Its last Job counts, when it has ended."""
    metadata, status = found.get("metadata") or {}, found.get("status") or {}
    last = str(status.get("lastScheduleTime") or "")
    if status.get("active") or str(status.get("lastSuccessfulTime") or "") >= last:
        return True, ""
    return False, f"the job of {metadata.get('name')} of {last} has failed; the log of its pod states why"


def _operated(kind: str, found: Json) -> tuple[bool, str]:
    """Its own operator says whether it is ready."""
    name = (found.get("metadata") or {}).get("name")
    for condition in (found.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            ready = condition.get("status") == "True"
            return ready, "" if ready else f"{kind} {name} is not ready: {condition.get('message')}"
    return False, f"{_OPERATED[kind]} has not reported on {kind} {name}"


def _address(found: Json) -> str:
    """Return the address of a Service, outside the cluster for the types LoadBalancer and NodePort."""
    spec, metadata = found.get("spec") or {}, found.get("metadata") or {}
    if spec.get("clusterIP") == "None":
        return ""
    port: Json = next(iter(spec.get("ports") or ()), {})
    for ingress in ((found.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
        return f"{ingress.get('hostname') or ingress.get('ip')}:{port.get('port')}"
    if spec.get("type") == "LoadBalancer":
        return ""
    if spec.get("type") == "NodePort":
        return f"<any node>:{port.get('nodePort')}"
    return f"{metadata.get('name')}.{metadata.get('namespace')}:{port.get('port')}"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()).hexdigest()[:24]


class Children:
    """All children of one namespace, by cluster. Says whose changed."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, tuple[str, Child]]] = {}

    def replace(self, kind: Kind, objects: Iterable[Json]) -> dict[str, Change]:
        """Take over a complete list; return the clusters with changes, and the most important change of each."""
        old = self._kinds.get(kind.name, {})
        new = {name: self._entry(kind, found, old.get(name)) for found in objects for name in (str(found["metadata"]["name"]),)}
        self._kinds[kind.name] = new
        changed: dict[str, Change] = {}
        for name in {*old, *new}:
            for instance, change in _difference(old.get(name), new.get(name)).items():
                changed[instance] = max(changed.get(instance, Change.STATE), change)
        return changed

    def apply_event(self, kind: Kind, event: str, found: Json) -> dict[str, Change]:
        """Apply a watch event; return the clusters with changes: two, if the label of an object now names another cluster."""
        table = self._kinds.setdefault(kind.name, {})
        name = str(found["metadata"]["name"])
        old = table.pop(name, None)
        if event != "DELETED":
            table[name] = self._entry(kind, found, old)
        return _difference(old, table.get(name))

    @staticmethod
    def _entry(kind: Kind, found: Json, old: tuple[str, Child] | None) -> tuple[str, Child]:
        new = child(kind, found)
        if old is not None and new.own < old[1].own:
            new = replace(new, foreign=True)
        elif old is not None and new.own[0] == old[1].own[0]:
            new = replace(new, own=old[1].own)  # not counting fields that a run takes over to remove them (_kube/foreign_fields.py)
        return str(((found.get("metadata") or {}).get("labels") or {}).get(INSTANCE, "")), new

    def __len__(self) -> int:
        return sum(len(table) for table in self._kinds.values())

    def counts(self) -> Counter[str]:
        """Return the number of objects of each cluster."""
        return Counter(owner for table in self._kinds.values() for owner, _child in table.values() if owner)

    def of(self, cluster: str) -> list[Child]:
        """Return a cluster's children in a fixed order."""
        return [
            entry
            for kind in sorted(self._kinds)
            for name in sorted(self._kinds[kind])
            for owner, entry in (self._kinds[kind][name],)
            if owner == cluster
        ]


def _difference(old: tuple[str, Child] | None, new: tuple[str, Child] | None) -> dict[str, Change]:
    if old == new:
        return {}
    if new is None or (old is not None and old[0] != new[0]):  # deleted, or the label with the cluster's name was removed or changed
        return {**(_difference(None, new) if new else {}), **({old[0]: Change.FOREIGN} if old else {})}
    if old is not None and old[1].spec == new[1].spec:
        return {new[0]: Change.STATE}
    return {new[0]: Change.FOREIGN if new[1].foreign else Change.SET}


def resized(children: Iterable[Child]) -> dict[str, int]:
    """Return the SlurmNodeSets whose status has another size than their StatefulSet, with the right size."""
    sizes = {(one.kind, one.name): one.size for one in children}
    return {
        name: sizes["StatefulSet", name]
        for (kind, name), size in sizes.items()
        if kind == "SlurmNodeSet" and sizes.get(("StatefulSet", name), size) != size
    }


def fingerprint(children: Iterable[Child]) -> str:
    """Return the fingerprint of the observed objects."""
    return _digest([[one.kind, one.name, one.spec, one.state] for one in children])
