# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run reports to the controller, and its outcome."""

from __future__ import annotations

from typing import Any

import pytest

from corral_operator.reconcile.children import KINDS
from corral_operator.runs import report
from corral_operator.runs.outcome import Outcome, Progress

Json = dict[str, Any]
KIND = {kind.name: kind for kind in KINDS}
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"


def event(kind: str, **data: Any) -> Json:
    return {"event": kind, "event_data": {"task": "Apply", "role": "workers", "resolved_action": "corral.slurm.k8s_apply", **data}}


def test_a_report_names_the_task_and_the_reason_and_nothing_else() -> None:
    failed = report.line(event("runner_on_failed", res={"msg": "StatefulSet x\n was refused.", "secret": "s3cret"}))
    assert failed == {
        "kind": "failed", "task": "Apply", "role": "workers", "changed": False, "objects": [], "ignored": False,
        "message": "StatefulSet x was refused.",
    }  # fmt: skip


@pytest.mark.parametrize("module", ["slurm_reconcile", "slurm_sync"])
def test_a_report_has_the_counts_of_nodes_and_not_how_busy_they_are(module: str) -> None:
    counts = {"total": 4, "in_service": 2, "drained": 1, "down": 1}
    answer = {"nodes": [{"in_service": True, "state": ["ALLOCATED"]}], "counts": counts}
    line = report.line(event("runner_on_ok", resolved_action=f"corral.slurm.{module}", res=answer))
    assert line is not None
    assert line["nodes"] == {"total": 4, "inService": 2, "drained": 1, "down": 1}


@pytest.mark.parametrize("left", [False, True])
def test_a_report_has_whether_a_later_run_is_needed(left: bool) -> None:
    line = report.line(event("runner_on_ok", resolved_action="corral.slurm.slurm_reconcile", res={"left": left}))
    assert line is not None and line["left"] is left


def test_a_report_has_the_jobs_that_are_waited_for() -> None:
    """The last pass's word counts."""
    outcome = Outcome()
    goes = [{"node": "cpu-3", "jobs": [{"id": "12", "name": "x", "user": "ada"}]}, {"node": "cpu-4", "jobs": []}]
    for waiting in (goes, goes[:1]):
        line = report.line(event("runner_on_ok", resolved_action="corral.slurm.slurm_reconcile", res={"left": True, "waiting": waiting}))
        outcome.add(line or {})
    assert outcome.pending.waiting == ["cpu-3 (job 12 of ada)"]
    outcome.add(report.line(event("runner_on_ok", resolved_action="corral.slurm.k8s_apply", res={"waiting": goes})) or {})
    assert outcome.pending.waiting == ["cpu-3 (job 12 of ada)"]


@pytest.mark.parametrize("kind", ["playbook_on_start", "runner_on_start", "runner_on_skipped", "EOF", ""])
def test_other_events_are_not_reported(kind: str) -> None:
    assert report.line(event(kind)) is None


def test_an_outcome_has_the_failure_that_ended_the_run() -> None:
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
    assert outcome.changes.count == 1
    assert outcome.counts == {"ok": 3, "changed": 1, "failures": 1, "dark": 2, "rescued": 1}
    outcome.ended = "superseded"
    assert outcome.failure == ""


def test_an_outcome_has_the_number_of_the_current_task() -> None:
    outcome = Outcome()
    assert outcome.progress.doing == ""
    said = []
    for line in (
        {"kind": "task", "task": "First", "role": ""},
        {"kind": "plan", "tasks": 2},
        *[{"kind": "task", "task": "Next", "role": "x"}] * 2,
    ):
        outcome.add(line)
        said.append(outcome.progress.doing)
    assert said == ["First (task 1)", "First (task 1 of 2)", "Next (task 2 of 2)", "Next (task 3)"]


def test_an_outcome_without_a_message_still_has_a_reason() -> None:
    outcome = Outcome(code=-9, progress=Progress(task="Apply"))
    assert outcome.failure == "The run ended by signal 9 in the task 'Apply'; its output is in the operator's pod, and the run is repeated."


def test_a_failure_that_was_rescued_is_none() -> None:
    outcome = Outcome()
    outcome.add({"kind": "failed", "task": "Try", "changed": False, "message": "No.", "ignored": False})
    outcome.code = 0
    assert outcome.successful
    assert outcome.failure == ""


def test_what_tenants_were_refused_or_kept_reaches_the_outcome() -> None:
    outcome = Outcome()
    sentences = ["SlurmTenants a spec.accounts[0].parent is b.", "SlurmTenants a spec.users is not a list."]
    result = {"msg": "\n".join([*sentences, "Nothing was changed."]), "problems": sentences}
    outcome.add(report.line(event("runner_on_failed", resolved_action="corral.slurm.slurm_tenants", res=result)) or {})
    assert outcome.messages.problems == sentences
    outcome.add(report.line(event("runner_on_ok", resolved_action="corral.slurm.slurm_tenants", res={"kept": ["a stays."]})) or {})
    assert outcome.messages.kept == ["a stays."]


def test_the_draining_nodes_of_a_run_reach_the_outcome() -> None:
    rows = [
        {"node": "cpu-0", "cause": "Kubernetes node n1 is cordoned", "free": True},
        {"node": "cpu-1", "cause": "Kubernetes node n1 is cordoned", "free": False},
    ]
    event = {
        "event": "runner_on_ok",
        "event_data": {"task": "Tell", "resolved_action": "corral.slurm.slurm_sync", "res": {"draining": rows}},
    }
    line = report.line(event)
    assert line is not None
    outcome = Outcome()
    outcome.add(line)
    assert outcome.draining == {"nodes": ["cpu-0 (Kubernetes node n1 is cordoned)", "cpu-1 (Kubernetes node n1 is cordoned)"], "busy": True}
