# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller's decisions are made of: children, plans, status, reports, limits, settings."""

from __future__ import annotations

import copy
import re
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator import content, limits, plan, report, settings, status
from corral_operator.children import COMPONENT, INSTANCE, KINDS, Change, Child, Children, Kind, fingerprint, resized
from corral_operator.outcome import Outcome
from corral_operator.plan import Do
from corral_operator.status import Facts

from .world import document

Json = dict[str, Any]
KIND = {kind.name: kind for kind in KINDS}
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"


def made(kind: str = "StatefulSet", **changes: Any) -> Json:
    found: Json = {
        "metadata": {
            "name": "a-cpu",
            "uid": "1",
            "generation": 3,
            "resourceVersion": "7",
            "labels": {INSTANCE: "a", COMPONENT: "worker"},
        },
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 3, "readyReplicas": 2, "currentRevision": "r", "updateRevision": "r"},
    }
    for path, value in changes.items():
        part = found
        *above, last = path.split("__")
        for name in above:
            part = part[name]
        part[last] = value
    del kind
    return found


def one(kind: Kind, found: Json) -> list[Child]:
    children = Children()
    children.replace(kind, [found])
    return children.of("a")


@pytest.mark.parametrize(
    ("kind", "change", "differs"),
    [
        ("StatefulSet", {"metadata__resourceVersion": "8"}, False),
        ("StatefulSet", {"metadata__generation": 4}, True),
        ("StatefulSet", {"metadata__annotations": {"x": "y"}}, True),
        ("StatefulSet", {"status__readyReplicas": 1}, True),
        ("StatefulSet", {"metadata__uid": "2"}, True),
        ("ConfigMap", {"metadata__resourceVersion": "8"}, True),
        ("Secret", {"metadata__resourceVersion": "8"}, True),
        ("Service", {"metadata__resourceVersion": "8", "status": {"loadBalancer": {}}}, False),
        ("Service", {"spec__ports": []}, True),
        ("NetworkPolicy", {"metadata__generation": 4}, True),
        ("PersistentVolumeClaim", {"metadata__resourceVersion": "8"}, False),
        ("PersistentVolumeClaim", {"metadata__uid": "2"}, True),
        ("SlurmNodeSet", {"spec__replicas": 3}, True),
        ("SlurmNodeSet", {"status": {"replicas": 2}, "metadata__resourceVersion": "8"}, False),
        ("Pod", {"metadata__annotations": {"x": "y"}, "metadata__resourceVersion": "8"}, False),
        ("Pod", {"metadata__uid": "2"}, True),
    ],
)
def test_what_counts_as_drift(kind: str, change: Json, differs: bool) -> None:
    before, after = one(KIND[kind], made()), one(KIND[kind], made(**change))
    assert (fingerprint(before) != fingerprint(after)) is differs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"status__readyReplicas": 1}, "1 of 2 pods of a-cpu are ready"),
        ({"status__observedGeneration": 2}, "2 of 2 pods of a-cpu are ready"),
        ({"status__updateRevision": "s", "status__updatedReplicas": 1}, "pods of a-cpu are being replaced"),
        ({"spec__replicas": 0, "status": {"observedGeneration": 3}}, ""),
    ],
)
def test_whether_a_stateful_set_is_ready(change: Json, words: str) -> None:
    assert one(KIND["StatefulSet"], made(**change))[0].words == words


@pytest.mark.parametrize(
    ("spec", "state", "address"),
    [
        ({"type": "ClusterIP", "ports": [{"port": 22}]}, {}, "a-cpu.ns:22"),
        ({"type": "NodePort", "ports": [{"port": 22, "nodePort": 30022}]}, {}, "<any node>:30022"),
        ({"type": "LoadBalancer", "ports": [{"port": 22}]}, {}, ""),
        ({"type": "LoadBalancer", "ports": [{"port": 22}]}, {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}, "192.0.2.1:22"),
        ({"clusterIP": "None", "ports": [{"port": 22}]}, {}, ""),
    ],
)
def test_where_users_log_in(spec: Json, state: Json, address: str) -> None:
    assert one(KIND["Service"], made(metadata__namespace="ns", spec=spec, status=state))[0].address == address


def test_sizes_are_told_where_they_differ() -> None:
    children = Children()
    children.replace(KIND["StatefulSet"], [made(spec__replicas=3)])
    assert resized(children.of("a")) == {}, "nobody asks"
    children.replace(KIND["SlurmNodeSet"], [made(status={}), made(metadata__name="a-gone", status={"replicas": 4})])
    assert resized(children.of("a")) == {"a-cpu": 3}
    children.replace(KIND["SlurmNodeSet"], [made(status={"replicas": 3})])
    assert resized(children.of("a")) == {}


def test_whose_children_changed() -> None:
    children = Children()
    other = made(metadata__name="b-cpu", metadata__labels={INSTANCE: "b"})
    assert children.replace(KIND["ConfigMap"], [made(), other]) == {"a": Change.FOREIGN, "b": Change.FOREIGN}
    assert children.replace(KIND["ConfigMap"], [made(), other]) == {}
    assert children.seen(KIND["ConfigMap"], "MODIFIED", made(metadata__resourceVersion="9")) == {"a": Change.FOREIGN}
    assert children.seen(KIND["ConfigMap"], "MODIFIED", made(metadata__resourceVersion="9")) == {}
    assert children.seen(KIND["ConfigMap"], "DELETED", other) == {"b": Change.FOREIGN}
    assert children.replace(KIND["ConfigMap"], []) == {"a": Change.FOREIGN}
    assert len(children) == 0


def test_a_workload_that_does_worse_was_set_by_nobody() -> None:
    children = Children()
    assert children.seen(KIND["StatefulSet"], "ADDED", made()) == {"a": Change.FOREIGN}
    assert children.seen(KIND["StatefulSet"], "MODIFIED", made(status__readyReplicas=0)) == {"a": Change.STATE}
    assert children.seen(KIND["StatefulSet"], "MODIFIED", made(status__readyReplicas=0, metadata__generation=4)) == {"a": Change.FOREIGN}


def owned(*fields: str, time: str = NOW, manager: str = "corral", **changes: Any) -> Json:
    """A ConfigMap with these keys, set by a run."""
    entry = {"manager": manager, "operation": "Apply", "time": time, "fieldsV1": {"f:data": {f"f:{name}": {} for name in fields}}}
    return made(metadata__managedFields=[entry], **changes)


def test_who_takes_a_field_away_is_somebody_else_though_nobody_else_owns_a_field() -> None:
    children, kind = Children(), KIND["ConfigMap"]
    both = owned("slurm.conf", "gres.conf")
    assert children.seen(kind, "ADDED", both) == {"a": Change.SET}
    assert children.seen(kind, "MODIFIED", owned("gres.conf", metadata__resourceVersion="8")) == {"a": Change.FOREIGN}
    assert children.seen(kind, "MODIFIED", owned("slurm.conf", "gres.conf", time=LATER, metadata__resourceVersion="9")) == {"a": Change.SET}
    assert children.seen(kind, "MODIFIED", owned("gres.conf", time="2026-01-01T00:01:00Z", metadata__resourceVersion="10")) == {
        "a": Change.SET
    }, "a run that takes a field away has a newer entry"
    left = made(metadata__managedFields=[], metadata__resourceVersion="11")
    assert children.seen(kind, "MODIFIED", left) == {"a": Change.FOREIGN}
    assert children.replace(kind, [owned("slurm.conf", metadata__resourceVersion="12")]) == {"a": Change.SET}
    assert children.replace(kind, [owned(metadata__resourceVersion="13")]) == {"a": Change.FOREIGN}, "by a list, too"


def test_fields_of_others_that_a_run_makes_its_own_to_drop_them_are_no_loss() -> None:
    children, kind = Children(), KIND["ConfigMap"]
    children.seen(kind, "ADDED", owned("slurm.conf"))
    assert children.seen(kind, "MODIFIED", owned("slurm.conf", "more", metadata__resourceVersion="8")) == {"a": Change.SET}
    assert children.seen(kind, "MODIFIED", owned("slurm.conf", metadata__resourceVersion="9")) == {"a": Change.SET}


@pytest.mark.parametrize(
    "notes",
    [{"metadata__labels": {INSTANCE: "a", "applyset.kubernetes.io/id": "x"}}, {"metadata__name": "a-base-revisions"}],
    ids=["record of a set", "documents"],
)
def test_what_a_run_writes_into_its_notes_and_takes_away_within_a_second_is_its_own(notes: Json) -> None:
    children, kind = Children(), KIND["ConfigMap"]
    children.seen(kind, "ADDED", owned("members", **notes))
    assert children.seen(kind, "MODIFIED", owned("members", "pending", time=LATER, metadata__resourceVersion="8", **notes)) == {
        "a": Change.SET
    }
    assert children.seen(kind, "MODIFIED", owned("members", time=LATER, metadata__resourceVersion="9", **notes)) == {"a": Change.SET}


def test_an_object_whose_label_was_taken_off_or_changed_is_drift_of_the_cluster_that_it_was_of() -> None:
    children, kind = Children(), KIND["ConfigMap"]
    children.seen(kind, "ADDED", owned("slurm.conf"))
    assert children.seen(kind, "MODIFIED", owned("slurm.conf", metadata__labels={}))["a"] is Change.FOREIGN
    assert children.seen(kind, "MODIFIED", owned("slurm.conf"))["a"] is Change.SET
    assert children.replace(kind, [owned("slurm.conf", metadata__labels={INSTANCE: "b"})]) == {"a": Change.FOREIGN, "b": Change.SET}
    assert len(children.of("a")) == 0 and len(children.of("b")) == 1


def ask(given: Json, **changes: Any) -> plan.Decision:
    children: list[Child] = [Child("ConfigMap", "a-config", "base", "1")]
    usual: Json = {"children": children, "refused": "", "mistakes": "", "content": "c", "hashed": "", "touched": True, "again": False}
    return plan.decide(given, **{**usual, **changes})


@pytest.mark.parametrize(
    ("wish", "seconds"),
    [("", 500), ("100", 100), ("1", 60), ("0", 0), ("-5", 500), ("soon", 500), ("inf", 500), ("nan", 500), ("1e400", 500)],
)
def test_how_often_a_cluster_is_looked_at_by_time_alone(wish: str, seconds: float) -> None:
    given = document()
    given["metadata"]["annotations"] = {plan.RESYNC: wish}
    assert plan.resync(given, 500) == seconds


def gone(*finalizers: str) -> Json:
    given = document()
    given["metadata"].update(deletionTimestamp=NOW, finalizers=list(finalizers))
    return given


def held(**annotations: str) -> Json:
    given = document()
    given["metadata"]["annotations"] = {f"corral.hpc/{key}": value for key, value in annotations.items()}
    return given


@pytest.mark.parametrize(
    ("given", "changes", "deed"),
    [
        (document(), {}, Do.MAKE),
        (document(), {"children": None}, Do.WAIT),
        (document(), {"refused": "No right."}, Do.STALL),
        (document(), {"mistakes": "Wrong."}, Do.STALL),
        (held(paused="true"), {}, Do.REST),
        (held(paused="false"), {}, Do.MAKE),
        (gone(plan.FINALIZER), {}, Do.DESTROY),
        (gone("others"), {}, Do.REST),
        (gone(plan.FINALIZER), {"refused": "No right."}, Do.STALL),
        (gone(plan.FINALIZER), {"refused": "No right.", "touched": False}, Do.RELEASE),
        (gone(plan.FINALIZER), {"mistakes": "Wrong.", "children": []}, Do.RELEASE),
        (gone(plan.FINALIZER), {"mistakes": "Wrong."}, Do.DESTROY),
        (gone(plan.FINALIZER), {"children": None}, Do.WAIT),
    ],
)
def test_what_is_done(given: Json, changes: Json, deed: Do) -> None:
    assert ask(given, **changes).do is deed


def test_what_is_as_it_was_is_left_alone() -> None:
    children = [Child("ConfigMap", "a-config", "base", "1")]
    word = plan.observed(document(), "c", children)
    assert ask(document(), hashed=word).do is Do.KEEP
    assert ask(document(), hashed=word, again=True).do is Do.MAKE
    assert ask(document(), hashed=word, touched=False).do is Do.MAKE, "an operator that was taken away has let it go"
    assert ask(document(), hashed=word, content="d").do is Do.MAKE
    assert ask(document(partitions=[]), hashed=word).do is Do.MAKE
    assert ask(held(**{"requested-at": "now"}), hashed=word).do is Do.MAKE
    assert ask(document(), hashed=word, children=[]).do is Do.MAKE


@pytest.mark.parametrize(
    ("changes", "hashed", "again"),
    [
        ({}, "h", None),
        ({"changed": 1}, "", 0.3),
        ({"after": "i"}, "", 0.3),
        ({"waiting": True}, "", 15.0),
        ({"left": True}, "", 60.0),
        ({"left": True, "waiting": True, "changed": 1}, "", 15.0),
        ({"left": True, "changed": 1}, "", 0.3),
        ({"changed": 1, "unsettled": 6}, "", 64.0),
        ({"changed": 1, "unsettled": 60}, "", 300.0),
    ],
)
def test_only_a_run_that_found_nothing_to_do_proves_it(changes: Json, hashed: str, again: float | None) -> None:
    usual: Json = {
        "changed": 0,
        "waiting": False,
        "left": False,
        "before": "h",
        "after": "h",
        "unsettled": 0,
        "scale_again": 15.0,
        "backoff_most": 300.0,
    }
    assert plan.settle(**{**usual, **changes}) == plan.Settled(hashed, again)


def well() -> Facts:
    parts = [Child("StatefulSet", f"a-{part}", part, "1") for part in ("controller", "worker", "login")]
    nodes = {"total": 2, "inService": 2, "drained": 0, "down": 0}
    return Facts(generation=4, observed=4, hash="h", revision="r", nodes=nodes, children=parts)


def conditions(facts: Facts, before: Json | None = None) -> dict[str, tuple[str, str, int]]:
    found = status.build(facts, before or {}, NOW)["conditions"]
    return {one["type"]: (one["status"], one["reason"], one["observedGeneration"]) for one in found}


def test_the_same_facts_are_no_write() -> None:
    first = status.build(well(), {}, NOW)
    again = status.build(well(), copy.deepcopy(first), LATER)
    assert status.patch(again, first) == {}
    assert not {key for key in first if "time" in key.lower() or "seconds" in key.lower()}


def test_only_what_changed_gets_a_new_time() -> None:
    before = status.build(well(), {}, NOW)
    after = status.build(replace(well(), paused=True, failure=("RunFailed", "Why."), failures=2), before, LATER)
    times = {one["type"]: one["lastTransitionTime"] for one in after["conditions"]}
    assert times["Ready"] == times["Degraded"] == LATER
    assert times["WorkersReady"] == times["Stalled"] == NOW


def test_what_others_wrote_is_kept_and_what_is_over_goes() -> None:
    before = status.build(replace(well(), failure=("RunFailed", "Why."), failures=2), {}, NOW)
    foreign = {"type": "Seen", "status": "True"}
    before["conditions"].append(foreign)
    before["extra"] = 1
    after = status.build(well(), before, LATER)
    assert foreign in after["conditions"]
    assert after["extra"] == 1
    assert status.patch(after, before)["lastFailure"] is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"Ready": ("True", "InService", 4), "Reconciling": ("False", "Done", 4), "Degraded": ("False", "AsExpected", 4)}),
        ({"observed": 3}, {"Ready": ("True", "InService", 3), "Reconciling": ("True", "Queued", 4)}),
        ({"observed": 0, "children": []}, {"Ready": ("False", "NotMade", 4)}),
        ({"running": True}, {"Ready": ("True", "InService", 4), "Reconciling": ("True", "Running", 4)}),
        ({"failure": ("RunFailed", "Why."), "failures": 1}, {"Ready": ("True", "InService", 4)}),
        ({"failure": ("RunFailed", "Why."), "failures": 2}, {"Ready": ("False", "RunFailed", 4), "Degraded": ("True", "RunFailed", 4)}),
        ({"failure": ("RunFailed", "Why."), "failures": 1, "observed": 3}, {"Ready": ("False", "RunFailed", 4)}),
        ({"stalled": ("DocumentInvalid", "Why.")}, {"Ready": ("False", "DocumentInvalid", 4), "Stalled": ("True", "DocumentInvalid", 4)}),
        ({"paused": True}, {"Reconciling": ("False", "Paused", 4)}),
        ({"deleting": True}, {"Ready": ("False", "Deleting", 4), "Reconciling": ("True", "Deleting", 4)}),
        ({"waiting": ["cpu-1"]}, {"Ready": ("True", "InService", 4), "Reconciling": ("True", "WaitingForJobs", 4)}),
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
            {"children": [Child("StatefulSet", "a-worker", "worker", "1", ready=False, words="0 of 1 pods of a-worker are ready")]},
            {"Ready": ("False", "NotReady", 4), "WorkersReady": ("False", "NotReady", 4), "LoginReady": ("False", "Missing", 4)},
        ),
    ],
)
def test_conditions(changes: Json, expected: Json) -> None:
    found = conditions(replace(well(), **changes))
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
        ({"running": True}, "InProgress"),
        ({"waiting": ["cpu-1"]}, "InProgress"),
        ({"failure": ("RunFailed", "Why."), "failures": 2}, "InProgress"),
        ({"stalled": ("DocumentInvalid", "Why.")}, "Failed"),
        ({"stalled": ("DocumentInvalid", "Why."), "observed": 3}, "Failed"),
        ({"stalled": ("NotPermitted", "Why."), "observed": 0, "hash": "", "nodes": None, "children": None}, "Failed"),
        ({"observed": 0, "hash": "", "children": []}, "InProgress"),
        ({"nodes": {"total": 2, "inService": 1, "drained": 1, "down": 0}}, "Current"),
    ],
)
def test_tools_that_know_kstatus_read_it_right(changes: Json, expected: str) -> None:
    found = status.build(replace(well(), **changes), {}, NOW)
    assert kstatus({"metadata": {"generation": 4}, "status": found}) == expected
    again = replace(Facts.of(found), generation=4, children=changes.get("children", well().children), stalled=changes.get("stalled"))
    assert again.observed != 4 or not changes.get("stalled"), "a new operator does not take it for made"


def test_a_new_operator_knows_from_the_status_what_the_last_one_knew() -> None:
    facts = replace(well(), failure=("RunFailed", "Why."), failures=3)
    before = status.build(facts, {}, NOW)
    again = replace(Facts.of(before), generation=4, children=facts.children)
    assert status.patch(status.build(again, before, LATER), before) == {}


def test_objects_that_were_not_seen_yet_change_nothing() -> None:
    before = status.build(well(), {}, NOW)
    assert status.patch(status.build(replace(well(), children=None), before, LATER), before) == {}


def test_the_three_old_conditions_only_when_asked_for() -> None:
    assert not {"Running", "Successful", "Failure"} & set(conditions(well()))
    found = {one["type"]: one["status"] for one in status.build(well(), {}, NOW, legacy=True)["conditions"]}
    assert (found["Running"], found["Successful"], found["Failure"]) == ("True", "True", "False")


def event(kind: str, **data: Any) -> Json:
    return {"event": kind, "event_data": {"task": "Apply", "role": "workers", "resolved_action": "corral.slurm.k8s_apply", **data}}


def test_a_report_names_the_task_and_the_reason_and_nothing_else() -> None:
    failed = report.line(event("runner_on_failed", res={"msg": "StatefulSet x\n was refused.", "secret": "s3cret"}))
    assert failed == {
        "kind": "failed", "task": "Apply", "role": "workers", "changed": False, "objects": [], "ignored": False,
        "message": "StatefulSet x was refused.",
    }  # fmt: skip


@pytest.mark.parametrize("module", ["slurm_reconcile", "slurm_sync"])
def test_a_report_tells_how_many_nodes_there_are_and_not_how_busy_they_are(module: str) -> None:
    counts = {"total": 4, "in_service": 2, "drained": 1, "down": 1}
    answer = {"nodes": [{"in_service": True, "state": ["ALLOCATED"]}], "counts": counts}
    line = report.line(event("runner_on_ok", resolved_action=f"corral.slurm.{module}", res=answer))
    assert line is not None
    assert line["nodes"] == {"total": 4, "inService": 2, "drained": 1, "down": 1}


@pytest.mark.parametrize("left", [False, True])
def test_a_report_says_whether_a_later_run_goes_on(left: bool) -> None:
    line = report.line(event("runner_on_ok", resolved_action="corral.slurm.slurm_reconcile", res={"left": left}))
    assert line is not None and line["left"] is left


def test_a_report_says_who_is_waited_for() -> None:
    """The last pass's word counts."""
    outcome = Outcome()
    goes = [{"node": "cpu-3", "jobs": [{"id": "12", "name": "x", "user": "ada"}]}, {"node": "cpu-4", "jobs": []}]
    for waiting in (goes, goes[:1]):
        line = report.line(event("runner_on_ok", resolved_action="corral.slurm.slurm_reconcile", res={"left": True, "waiting": waiting}))
        assert line is not None
        outcome.add(line)
    assert outcome.waiting == ["cpu-3 (job 12 of ada)"]
    other = report.line(event("runner_on_ok", resolved_action="corral.slurm.k8s_apply", res={"waiting": goes}))
    outcome.add(other or {})
    assert outcome.waiting == ["cpu-3 (job 12 of ada)"]


@pytest.mark.parametrize("kind", ["playbook_on_start", "runner_on_start", "runner_on_skipped", "EOF", ""])
def test_other_events_are_not_reported(kind: str) -> None:
    assert report.line(event(kind)) is None


def test_an_outcome_tells_the_failure_that_ended_the_run() -> None:
    outcome = Outcome()
    for line in (
        {"kind": "task", "task": "First", "role": ""},
        {"kind": "failed", "task": "First", "changed": True, "message": "Ignored.", "ignored": True},
        {"kind": "failed", "task": "Second", "changed": False, "message": "It was refused", "ignored": False},
        {"kind": "stats", "ok": 3, "changed": 1, "failures": 1, "dark": 2, "rescued": 1},
    ):
        outcome.add(line)
    outcome.code = 2
    assert outcome.failure == "Second: It was refused."
    assert outcome.changed == 1
    assert outcome.counts == {"ok": 3, "changed": 1, "failures": 1, "dark": 2, "rescued": 1}
    outcome.ended = "superseded"
    assert outcome.failure == ""


def test_an_outcome_says_which_of_how_many_tasks_is_done() -> None:
    outcome = Outcome()
    assert outcome.doing == ""
    said = []
    for line in (
        {"kind": "task", "task": "First", "role": ""},
        {"kind": "plan", "tasks": 2},
        *[{"kind": "task", "task": "Next", "role": "x"}] * 2,
    ):
        outcome.add(line)
        said.append(outcome.doing)
    assert said == ["First (task 1)", "First (task 1 of 2)", "Next (task 2 of 2)", "Next (task 3)"]


def test_an_outcome_without_a_word_still_says_something() -> None:
    outcome = Outcome(code=-9, task="Apply")
    assert (
        outcome.failure
        == "The run ended by signal 9 in the task 'Apply'; its output is kept in the operator's pod, and the run is repeated."
    )


def test_a_failure_that_was_rescued_is_none() -> None:
    outcome = Outcome()
    outcome.add({"kind": "failed", "task": "Try", "changed": False, "message": "No.", "ignored": False})
    outcome.code = 0
    assert outcome.successful
    assert outcome.failure == ""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000", "memory.max": "1073741824"}, (1.5, 1 << 30)),
        ({"cpu.max": "max 100000", "memory.max": "max"}, (None, None)),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000", "memory/memory.limit_in_bytes": "536870912"}, (0.5, 1 << 29)),
        (
            {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000", "memory/memory.limit_in_bytes": "9223372036854771712"},
            (None, None),
        ),
        ({}, (None, None)),
    ],
)
def test_the_limits_are_the_cgroups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: tuple[float | None, int | None]
) -> None:
    monkeypatch.setattr(limits.os, "sched_getaffinity", lambda _pid: set(range(128)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    cpus, memory = expected
    assert limits.cpus(tmp_path) == (cpus or 128)
    assert limits.memory(tmp_path) == memory


@pytest.mark.parametrize(
    ("wanted", "cpus", "memory", "expected"),
    [(0, 0.5, None, (1, 64)), (0, 1.5, None, (2, 64)), (0, 128, 1 << 30, (16, 16)), (3, 8, None, (3, 64)), (0, 2, 100 << 20, (1, 1))],
)
def test_how_many_runs_fit(wanted: int, cpus: float, memory: int | None, expected: tuple[int, int]) -> None:
    assert limits.runs(wanted, cpus, memory) == expected


def test_settings_are_the_environments() -> None:
    given = {"CORRAL_NAMESPACES": "a, b", "CORRAL_ELECT": "false", "CORRAL_RESYNC": "60", "CORRAL_SCRATCH": "/x", "CORRAL_KEEP_RUNS": "3"}
    found = settings.read(given)
    assert (found.namespaces, found.elect, found.resync, found.scratch, found.keep_runs) == (("a", "b"), False, 60.0, Path("/x"), 3)
    assert found.identity and not found.variables
    assert settings.read({"CORRAL_VARIABLES": '{"slurm_workers_wait_timeout": 3600}'}).variables == {"slurm_workers_wait_timeout": 3600}


def test_other_variables_are_other_content() -> None:
    none, some, others = (content.revision(variables) for variables in ({}, {"a": 1}, {"a": 2}))
    assert len({none, some, others}) == 3 and none == content.revision({})


def test_the_page_has_every_setting() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "operator.md").read_text()
    names = {f"CORRAL_{name.upper()}" for name in vars(settings.Settings())}
    rows = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `CORRAL_")]
    assert names ^ set(re.findall(r"CORRAL_\w+", " ".join(rows))) == set()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CORRAL_ENGINE", "hot"),
        ("CORRAL_RESYNC", "soon"),
        ("CORRAL_KEEP_RUNS", "-1"),
        ("CORRAL_ELECT", "maybe"),
        ("CORRAL_RENEW_DEADLINE", "20"),
        ("CORRAL_VARIABLES", "[1]"),
        ("CORRAL_VARIABLES", "a=b"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(CorralError, match=name):
        settings.read({name: value})


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred namespaces have a thousand watches, and systemd's soft limit is 1024."""
    for given, wanted in [
        ((1024, 524288), (65536, 524288)),
        ((1024, 4096), (4096, 4096)),
        ((1024, resource.RLIM_INFINITY), (65536, resource.RLIM_INFINITY)),
        ((1048576, 1048576), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ]:
        told: list[tuple[int, int]] = []
        monkeypatch.setattr(limits.resource, "getrlimit", lambda _what, given=given: given)
        monkeypatch.setattr(limits.resource, "setrlimit", lambda _what, pair, told=told: told.append(pair))
        limits.raise_descriptors()
        assert told == ([wanted] if wanted else [])
