# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of a cluster: the same facts give the same status, and tools read it right."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from corral_operator.reconcile import conditions
from corral_operator.reconcile.children import KINDS, Child
from corral_operator.reconcile.conditions import Activity, Facts, Failure, Fingerprints

Json = dict[str, Any]
KIND = {kind.name: kind for kind in KINDS}
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"


def well() -> Facts:
    parts = [Child("StatefulSet", f"a-{part}", part, "1") for part in ("controller", "worker", "login")]
    nodes = {"total": 2, "inService": 2, "drained": 0, "down": 0}
    return Facts(generation=4, observed=4, fingerprints=Fingerprints("h", revision="r"), nodes=nodes, children=parts)


def told(facts: Facts, before: Json | None = None) -> dict[str, tuple[str, str, int]]:
    found = conditions.build(facts, before or {}, NOW)["conditions"]
    return {one["type"]: (one["status"], one["reason"], one["observedGeneration"]) for one in found}


def test_the_same_facts_are_no_write() -> None:
    first = conditions.build(well(), {}, NOW)
    again = conditions.build(well(), copy.deepcopy(first), LATER)
    assert conditions.patch(again, first) == {}
    assert not {key for key in first if "time" in key.lower() or "seconds" in key.lower()}


def test_the_last_repair_stays_and_names_ten_changes_at_most() -> None:
    changes = [f"Service a-{number} configured" for number in range(12)]
    facts = replace(well(), drift=conditions.Drift(last=conditions.drift([*changes, changes[0]], NOW)))
    first = conditions.build(facts, {}, NOW)
    assert first["lastDrift"] == {"repairedAt": NOW, "changes": [*changes[:10], "and 2 more"]}
    assert Facts.of(first).drift.last == first["lastDrift"], "an operator that has just started knows it"
    assert conditions.patch(conditions.build(replace(well(), drift=Facts.of(first).drift), first, LATER), first) == {}
    assert "lastDrift" not in conditions.build(well(), {}, NOW)


def test_only_what_changed_gets_a_new_time() -> None:
    before = conditions.build(well(), {}, NOW)
    after = conditions.build(replace(well(), paused=True, failure=Failure("RunFailed", "Why.", 2)), before, LATER)
    times = {one["type"]: one["lastTransitionTime"] for one in after["conditions"]}
    assert times["Ready"] == times["Degraded"] == LATER
    assert times["WorkersReady"] == times["Stalled"] == NOW


def test_conditions_of_others_are_retained_and_old_ones_removed() -> None:
    before = conditions.build(replace(well(), failure=Failure("RunFailed", "Why.", 2)), {}, NOW)
    foreign = {"type": "Seen", "status": "True"}
    before["conditions"].append(foreign)
    before["extra"] = 1
    after = conditions.build(well(), before, LATER)
    assert foreign in after["conditions"]
    assert after["extra"] == 1
    assert conditions.patch(after, before)["lastFailure"] is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"Ready": ("True", "InService", 4), "Reconciling": ("False", "Done", 4), "Degraded": ("False", "AsExpected", 4)}),
        ({"observed": 3}, {"Ready": ("True", "InService", 3), "Reconciling": ("True", "Queued", 4)}),
        ({"observed": 0, "children": []}, {"Ready": ("False", "NotReconciled", 4)}),
        ({"activity": Activity(running=True)}, {"Ready": ("True", "InService", 4), "Reconciling": ("True", "Running", 4)}),
        ({"failure": Failure("RunFailed", "Why.", 1)}, {"Ready": ("True", "InService", 4)}),
        ({"failure": Failure("RunFailed", "Why.", 2)}, {"Ready": ("False", "RunFailed", 4), "Degraded": ("True", "RunFailed", 4)}),
        ({"failure": Failure("RunFailed", "Why.", 1), "observed": 3}, {"Ready": ("False", "RunFailed", 4)}),
        ({"stalled": ("DocumentInvalid", "Why.")}, {"Ready": ("False", "DocumentInvalid", 4), "Stalled": ("True", "DocumentInvalid", 4)}),
        ({"paused": True}, {"Reconciling": ("False", "Paused", 4)}),
        ({"deleting": True}, {"Ready": ("False", "Deleting", 4), "Reconciling": ("True", "Deleting", 4)}),
        ({"activity": Activity(waiting=["cpu-1"])}, {"Ready": ("True", "InService", 4), "Reconciling": ("True", "WaitingForJobs", 4)}),
        (
            {"nodes": {"total": 2, "inService": 1, "drained": 1, "down": 0}},
            {"Ready": ("True", "InService", 4), "Degraded": ("True", "NodesOutOfService", 4)},
        ),
        (
            {
                "nodes": {"total": 0, "inService": 0, "drained": 0, "down": 0},
                "children": [one for one in well().children or () if one.component != "worker"],
            },
            {"Ready": ("True", "InService", 4), "Degraded": ("False", "AsExpected", 4)},
        ),
        (
            {"children": [Child("StatefulSet", "a-worker", "worker", "1", ready=False, message="0 of 1 pods of a-worker are ready")]},
            {"Ready": ("False", "NotReady", 4), "WorkersReady": ("False", "NotReady", 4), "LoginReady": ("False", "Missing", 4)},
        ),
        (
            {"children": [*(well().children or ()), Child("MariaDB", "a-mariadb", "mariadb", "1", ready=False, message="it is not ready")]},
            {"Ready": ("False", "NotReady", 4), "DatabaseReady": ("False", "NotReady", 4)},
        ),
        (
            {
                "children": [
                    *(well().children or ()),
                    Child("MariaDB", "a-mariadb", "mariadb", "1"),
                    Child("StatefulSet", "a-database", "database", "1", ready=False, message="one takes the other's place"),
                ]
            },
            {"DatabaseReady": ("False", "NotReady", 4)},
        ),
        (
            {"children": [*(well().children or ()), Child("CronJob", "a-backup", "backup", "1", ready=False, message="it has failed")]},
            {"Ready": ("True", "InService", 4), "BackupReady": ("False", "NotReady", 4), "Degraded": ("True", "NotReady", 4)},
        ),
    ],
)
def test_conditions(changes: Json, expected: Json) -> None:
    found = told(replace(well(), **changes))
    assert {name: found[name] for name in expected} == expected


def kstatus(resource: Json) -> str:
    """How Flux, Argo CD and `kubectl` of kpt read any resource: sigs.k8s.io/cli-utils/pkg/kstatus, the part for kinds that it does not know."""
    metadata, found = resource["metadata"], resource.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    if found.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    by = {one["type"]: one["status"] for one in found.get("conditions") or ()}
    if by.get("Reconciling") == "True":
        return "InProgress"
    if by.get("Stalled") == "True":
        return "Failed"
    return "Current" if by.get("Ready", "True") == "True" else "InProgress"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "Current"),
        ({"observed": 3}, "InProgress"),
        ({"activity": Activity(running=True)}, "InProgress"),
        ({"activity": Activity(waiting=["cpu-1"])}, "InProgress"),
        ({"failure": Failure("RunFailed", "Why.", 2)}, "InProgress"),
        ({"stalled": ("DocumentInvalid", "Why.")}, "Failed"),
        ({"stalled": ("DocumentInvalid", "Why."), "observed": 3}, "Failed"),
        (
            {
                "stalled": ("NotPermitted", "Why."),
                "observed": 0,
                "fingerprints": Fingerprints(revision="r"),
                "nodes": None,
                "children": None,
            },
            "Failed",
        ),
        ({"observed": 0, "fingerprints": Fingerprints(revision="r"), "children": []}, "InProgress"),
        ({"nodes": {"total": 2, "inService": 1, "drained": 1, "down": 0}}, "Current"),
    ],
)
def test_tools_that_know_kstatus_read_it_right(changes: Json, expected: str) -> None:
    found = conditions.build(replace(well(), **changes), {}, NOW)
    assert kstatus({"metadata": {"generation": 4}, "status": found}) == expected
    again = replace(Facts.of(found), generation=4, children=changes.get("children", well().children), stalled=changes.get("stalled"))
    assert again.observed != 4 or not changes.get("stalled"), "a new operator does not take it for made"


def test_a_new_operator_knows_from_the_status_what_the_last_one_knew() -> None:
    facts = replace(well(), failure=Failure("RunFailed", "Why.", 3))
    before = conditions.build(facts, {}, NOW)
    again = replace(Facts.of(before), generation=4, children=facts.children)
    assert conditions.patch(conditions.build(again, before, LATER), before) == {}


def test_objects_that_were_not_listed_yet_change_nothing() -> None:
    before = conditions.build(well(), {}, NOW)
    assert conditions.patch(conditions.build(replace(well(), children=None), before, LATER), before) == {}


def test_the_three_old_conditions_only_when_asked_for() -> None:
    assert not {"Running", "Successful", "Failure"} & set(told(well()))
    found = {one["type"]: one["status"] for one in conditions.build(well(), {}, NOW, legacy=True)["conditions"]}
    assert (found["Running"], found["Successful"], found["Failure"]) == ("True", "True", "False")
