# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the workers' pods are, and which of these machines (nodes of Kubernetes) are to be left: what a run of corral.slurm.sync depends on. Pure.

Of a machine only what is said of its going is kept, of a pod its machine and whether it works there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import nodes as kubernetes_nodes
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import describe
from corral_operator.reconcile.children import COMPONENT, INSTANCE

Json = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A worker's pod. ``settled``: it works, so that jobs may come to its node."""

    cluster: str
    pod: str
    uid: str
    machine: str
    settled: bool


class Machines:
    """The machines by name. ``known`` is False until they have been listed, and where they may not be."""

    def __init__(self) -> None:
        self._found: dict[str, Json] = {}
        self.known = False

    def replace(self, objects: Iterable[Json]) -> set[str]:
        """Take over a whole list; return those of which something changed."""
        new = {str(found["metadata"]["name"]): _of_interest(found) for found in objects}
        old, self._found, self.known = self._found, new, True
        return {name for name in {*old, *new} if old.get(name) != new.get(name)}

    def seen(self, event: str, found: Json) -> set[str]:
        """Take over one event; return the machine when something of it changed that matters."""
        name = str(found["metadata"]["name"])
        old = self._found.pop(name, None)
        if event != "DELETED":
            self._found[name] = _of_interest(found)
        return {name} if old != self._found.get(name) else set()

    def forget(self) -> None:
        """They may not be looked at any more."""
        self._found, self.known = {}, False

    def cause(self, machine: str, taints: Iterable[str], conditions: Iterable[str] = ()) -> str | None:
        """Return why a machine is to be left: "" for one that is not, None where nobody knows."""
        return kubernetes_nodes.cause(self._found.get(machine, {}), taints, conditions) if self.known else None


class Places:
    """The worker pods of one namespace. What changes returns the places that are new, or other than before."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}

    def replace(self, objects: Iterable[Json]) -> list[Place]:
        """Take over a whole list of pods."""
        old = self._places
        self._places = {place.pod: place for place in map(_place, objects) if place is not None}
        new = self._places
        return [new.get(name) or old[name] for name in {*old, *new} if new.get(name) != old.get(name)]

    def seen(self, event: str, found: Json) -> list[Place]:
        """Take over one event."""
        old = self._places.pop(str(found["metadata"]["name"]), None)
        new = _place(found) if event != "DELETED" else None
        if new is not None:
            self._places[new.pod] = new
        changed = new or old
        return [changed] if changed is not None and new != old else []

    def of(self, cluster: str) -> list[Place]:
        """Return a cluster's places in a fixed order."""
        return sorted((place for place in self._places.values() if place.cluster == cluster), key=lambda place: place.pod)

    def on(self, names: set[str]) -> set[str]:
        """Return the clusters that have workers on these machines."""
        return {place.cluster for place in self._places.values() if place.machine in names}


def fingerprint(places: Iterable[Place], known: Machines, signs: tuple[Iterable[str], Iterable[str]], *rest: object) -> str:
    """Return the fingerprint of all that a run of corral.slurm.sync depends on and Kubernetes knows.

    ``signs`` are the taints and the conditions of machines that go, ``rest`` is what else counts.
    """
    rows = [[place.pod, place.uid, place.machine, known.cause(place.machine, *signs), place.settled] for place in places]
    return hashlib.sha256(json.dumps([rows, *map(list, signs), *rest], separators=(",", ":")).encode()).hexdigest()[:32]


def _of_interest(machine: Json) -> Json:
    spec = machine.get("spec") or {}
    taints = [{"key": taint.get("key"), "effect": taint.get("effect")} for taint in spec.get("taints") or ()]
    # Which of those that are true are bad is the document's business; Ready is Slurm's to judge.
    conditions = [
        {key: one.get(key) for key in ("type", "status", "message")}
        for one in (machine.get("status") or {}).get("conditions") or ()
        if one.get("status") == "True" and one.get("type") != "Ready"
    ]
    note = (machine["metadata"].get("annotations") or {}).get(kubernetes_nodes.NOTE)
    return {
        "metadata": {"name": machine["metadata"]["name"], "annotations": {kubernetes_nodes.NOTE: note}},
        "spec": {"unschedulable": bool(spec.get("unschedulable")), "taints": taints},
        "status": {"conditions": conditions},
    }


def _place(pod: Json) -> Place | None:
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    if labels.get(COMPONENT) != "worker":
        return None
    settled = not describe(pod) and not metadata.get("deletionTimestamp")
    machine = str((pod.get("spec") or {}).get("nodeName") or "")
    return Place(str(labels.get(INSTANCE, "")), str(metadata["name"]), str(metadata.get("uid", "")), machine, settled)
