# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects that a cluster is made of, as they are: what of them shows drift, and what of them shows how the cluster does. Pure.

Of most kinds only metadata is watched. Of each object a fingerprint is kept, and not the object: its identity, what people and controllers may set,
and of workloads whether they are ready. Where nothing but a run or a person ever writes a kind, its resourceVersion says all.
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
    """What has changed of an object: how it does, what a run may have set, or what somebody else has."""

    STATE = 0
    SET = 1
    FOREIGN = 2


@dataclass(frozen=True)
class Kind:
    """``whole``: its status matters. ``optional``: the right to watch it may be withheld, and then its drift is found by the next run only."""

    name: str
    api: str
    plural: str
    selector: str = SELECTOR
    whole: bool = False
    optional: bool = False

    def path(self, namespace: str) -> str:
        """Return the path of its list in a namespace."""
        return f"/{'api' if self.api == 'v1' else 'apis'}/{self.api}/namespaces/{namespace}/{self.plural}"


_WHOLE = ("Service", "StatefulSet", "Job", "SlurmNodeSet")
# Of node sets the API server need not know.
_OPTIONAL = ("Secret", "SlurmNodeSet")
KINDS = (
    *(Kind(name, *place, whole=name in _WHOLE, optional=name in _OPTIONAL) for name, place in components.KINDS.items()),
    Kind("Pod", "v1", "pods", whole=True),  # where workers are and whether they work, see places.py
)


@dataclass(frozen=True)
class Child:
    """One object. ``spec`` changes when somebody sets something, ``state`` when it does better or worse; ``foreign``: the last to set it was not a run.

    ``own``: when a run set it last, and how many fields are the runs'.
    ``size`` is the number of pods that a StatefulSet has, and that a SlurmNodeSet tells; it is no drift.
    """

    kind: str
    name: str
    component: str
    spec: str
    state: str = ""
    ready: bool = True
    words: str = ""
    address: str = ""
    foreign: bool = field(default=False, compare=False)
    own: tuple[str, int] = field(default=("", 0), compare=False)
    size: int = field(default=0, compare=False)


def child(kind: Kind, found: Json) -> Child:
    """Return what is kept of an object."""
    metadata = found.get("metadata") or {}
    return replace(_child(kind, found), foreign=_is_foreign(metadata), own=_own(metadata))


def _child(kind: Kind, found: Json) -> Child:
    metadata = found.get("metadata") or {}
    labels = metadata.get("labels") or {}
    common = (kind.name, str(metadata.get("name", "")), str(labels.get(COMPONENT, "")))
    uid = str(metadata.get("uid", ""))
    if kind.name == "Pod":
        return Child(*common, spec=uid)  # its annotations are written by runs, its spec by its controller
    if kind.name in ("StatefulSet", "Job", "NetworkPolicy", "PodDisruptionBudget"):
        spec = _digest([uid, metadata.get("generation"), labels, metadata.get("annotations"), bool(metadata.get("deletionTimestamp"))])
    elif kind.name == "SlurmNodeSet":
        spec = _digest([uid, found.get("spec"), labels, bool(metadata.get("deletionTimestamp"))])
    elif kind.name == "Service":
        spec = _digest([uid, found.get("spec"), labels, metadata.get("annotations"), bool(metadata.get("deletionTimestamp"))])
    elif kind.name == "PersistentVolumeClaim":
        spec = _digest([uid, labels, bool(metadata.get("deletionTimestamp"))])  # binding it is a controller's business
    else:
        spec = f"{uid}/{metadata.get('resourceVersion')}"
    if kind.name == "StatefulSet":
        ready, words = _stateful_set(found)
        size = int((found.get("spec") or {}).get("replicas", 1))
        return Child(*common, spec=spec, state="ready" if ready else words, ready=ready, words=words, size=size)
    if kind.name == "SlurmNodeSet":
        return Child(*common, spec=spec, size=int((found.get("status") or {}).get("replicas", 0)))
    if kind.name == "Job":
        ready, words = _job(found)
        return Child(*common, spec=spec, state=words, ready=ready, words=words)
    if kind.name == "Service":
        return Child(*common, spec=spec, address=_address(found))
    return Child(*common, spec=spec)


def _is_foreign(metadata: Json) -> bool:
    """Return whether the newest of the object's field managers is not a run. Its status is its controller's, and does not count."""
    entries = [(str(one.get("time")), _is_runs(one)) for one in _entries(metadata)]
    newest = max((time for time, _runs in entries), default="")
    return not entries or any(time == newest and not runs for time, runs in entries)


def _own(metadata: Json) -> tuple[str, int]:
    """Return when a run set the object last, and how many of its fields are the runs'.

    Who takes a field away owns nothing by that and is in no entry. The one whose field it was has one less, and the time of before. But so it is with what
    a run writes and takes away within a second, which it does in its notes alone: the record of a set, and the documents that the cluster has had.
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


def _address(found: Json) -> str:
    """Return where a Service of type LoadBalancer or NodePort is reached from outside, in words where Kubernetes does not say."""
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
        """Take over a whole list; return the clusters of which something changed, and what at the most."""
        old = self._kinds.get(kind.name, {})
        new = {name: self._entry(kind, found, old.get(name)) for found in objects for name in (str(found["metadata"]["name"]),)}
        self._kinds[kind.name] = new
        changed: dict[str, Change] = {}
        for name in {*old, *new}:
            for instance, change in _difference(old.get(name), new.get(name)).items():
                changed[instance] = max(changed.get(instance, Change.STATE), change)
        return changed

    def seen(self, kind: Kind, event: str, found: Json) -> dict[str, Change]:
        """Take over one event; return the clusters of which something changed, and what: an object that is given another's label is of two."""
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
            new = replace(
                new, own=old[1].own
            )  # fields of others that a run makes its own to drop them (_kube/foreign_fields.py) are no loss
        return str(((found.get("metadata") or {}).get("labels") or {}).get(INSTANCE, "")), new

    def __len__(self) -> int:
        return sum(len(table) for table in self._kinds.values())

    def counts(self) -> Counter[str]:
        """Return of how many objects each cluster consists."""
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
    if new is None or (old is not None and old[0] != new[0]):  # gone, or somebody has taken off or changed the label that says whose it is
        return {**(_difference(None, new) if new else {}), **({old[0]: Change.FOREIGN} if old else {})}
    if old is not None and old[1].spec == new[1].spec:
        return {new[0]: Change.STATE}
    return {new[0]: Change.FOREIGN if new[1].foreign else Change.SET}


def resized(children: Iterable[Child]) -> dict[str, int]:
    """Return the SlurmNodeSets that tell another number of nodes than there are, with that number."""
    sizes = {(one.kind, one.name): one.size for one in children}
    return {
        name: sizes["StatefulSet", name]
        for (kind, name), size in sizes.items()
        if kind == "SlurmNodeSet" and sizes.get(("StatefulSet", name), size) != size
    }


def fingerprint(children: Iterable[Child]) -> str:
    """Return the fingerprint of all that was observed."""
    return _digest([[one.kind, one.name, one.spec, one.state] for one in children])
