# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of slurm_usage against a slurmdbd of paper: what budgets hold and release, and that slurm_tenants leaves holds alone."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import slurmctld, tenants, usage

from .slurmdbd import Slurmdbd

CONNECTION = {"namespace": "demo", "pod": "demo-controller-0", "container": "slurmctld"}
OPTIONS = {
    **CONNECTION, "month": None, "start": None, "end": None, "timezone": "UTC", "by": ["account"], "format": "table", "prices": None, "budgets": [],
    "marks": [50, 80, 100], "hold": False,
}  # fmt: skip
DOCUMENT: dict[str, Any] = {
    "accounts": [{"name": "science"}, {"name": "physics", "parent": "science", "limits": {"GrpJobs": 200}}, {"name": "chemistry"}],
    "users": [
        {"name": "alice", "associations": [{"account": "physics"}, {"account": "chemistry"}]},
        {"name": "bob", "associations": [{"account": "chemistry"}]},
    ],
}
NOW = 1795608000  # 2026-11-25T12:00:00Z


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Slurmdbd:
    paper = Slurmdbd()
    for module in (tenants, usage):
        monkeypatch.setattr(module, "connected", paper.connected)
    monkeypatch.setattr(slurmctld, "run_in_pod", paper.run_in_pod)
    monkeypatch.setattr(time, "time", lambda: float(NOW))
    converge(paper)
    # 10 CPU-hours of alice in each account, and 4 GPU-hours of bob.
    paper.usage = [
        "physics|alice|normal|main|3|36000|0|7200|36000",
        "chemistry|alice|normal|main|1|36000|0|3600|36000",
        "chemistry|bob|normal|gpu|1|3600|14400|3600|3600",
    ]
    return paper


def converge(database: Slurmdbd, document: dict[str, Any] | None = None, *, prune: bool = True) -> list[str]:
    """Apply a document, and return the lines that took."""
    database.lines.clear()
    options = {"tenants": document or DOCUMENT, "prune": prune, "objects": False, "path": "", "wait_timeout": 0}
    tenants.tenants({**CONNECTION, **options}, check=False, diff=True)
    return list(database.lines)


def run(*budgets: dict[str, Any], check: bool = False, **options: Any) -> dict[str, Any]:
    return usage.run({**OPTIONS, "budgets": list(budgets), **options}, check=check, diff=True)


def test_a_report_is_one_exec_and_needs_no_accounts(database: Slurmdbd) -> None:
    reads = database.reads
    result = run()
    assert database.periods == [[1793491200, 1796083200]], "November"
    assert [(row["account"], row["cpu_seconds"], row["gpu_hours"]) for row in result["rows"]] == [
        ("chemistry", 39600, 4.0),
        ("physics", 36000, 0.0),
    ]
    assert (result["totals"]["jobs"], result["changed"], result["budgets"], database.reads - reads) == (5, False, [], 0)
    assert "warnings" not in result and "total" in result["text"]


def test_periods_that_are_the_same_are_asked_for_once(database: Slurmdbd) -> None:
    run(
        {"account": "physics", "cpu_hours": 1},
        {"user": "bob", "gpu_hours": 1},
        {"user": "alice", "cpu_hours": 1, "start": "2026-01-01"},
        month="2026-11",
    )
    assert database.periods == [[1793491200, 1796083200, 1767225600, 1796083200]]
    run({"account": "physics", "cpu_hours": 1}, start="2026-10-20", end="2026-11-01")
    assert database.periods[1] == [1792454400, 1793491200, 1790812800, 1793491200], "the budget is that of October"


@pytest.mark.parametrize(
    ("budget", "used", "share", "mark"),
    [
        ({"account": "physics", "cpu_hours": 100}, 10.0, 10.0, 0),
        ({"account": "science", "cpu_hours": 20}, 10.0, 50.0, 50),  # physics is below it
        ({"user": "alice", "cpu_hours": 24}, 20.0, 83.3, 80),
        ({"user": "alice", "account": "chemistry", "cpu_hours": 10}, 10.0, 100.0, 100),
        ({"account": "chemistry", "gpu_hours": "4.0001"}, 4.0, 99.9, 80),
        ({"account": "chemistry", "cost": 6}, 9.3, 155.0, 100),
        ({"account": "physics", "node_hours": 4}, 2.0, 50.0, 50),
    ],
)
@pytest.mark.usefixtures("database")
def test_the_share_of_a_budget(budget: dict[str, Any], used: float, share: float, mark: int) -> None:
    result = run(budget, prices={"cpu": 0.3, "gpu": 1.5, "currency": "EUR"})
    (found,) = result["budgets"]
    assert (found["used"], found["share"], found["mark"], found["held"]) == (used, share, mark, False)
    assert len(result.get("warnings", [])) == bool(mark)


@pytest.mark.usefixtures("database")
def test_a_warning_is_a_sentence() -> None:
    result = run(
        {"user": "alice", "cpu_hours": 24},
        {"account": "chemistry", "cost": 10, "start": "2026-01-01"},
        prices={"gpu": 2, "currency": "EUR"},
    )
    assert result["warnings"] == [
        "budgets[0]: user alice has used 83.3 % of its 24.00 cpu-hours in 2026-11, 20.00.",
        "budgets[1]: account chemistry has used 80.0 % of its 10.00 EUR since 2026-01-01, 8.00.",
    ]


def test_an_exhausted_budget_is_held_and_released_and_the_former_limit_comes_back(database: Slurmdbd) -> None:
    physics, alice = {"account": "physics", "cpu_hours": 10}, {"user": "alice", "cpu_hours": 20}
    database.lines.clear()
    planned = run(physics, alice, hold=True, check=True)
    assert (planned["changed"], database.lines) == (True, [])
    result = run(physics, alice, hold=True)
    assert (result["changed"], result["writes"], result["diff"]) == (True, 3, planned["diff"])
    assert [one["held"] for one in result["budgets"]] == [True, True]
    assert sorted(database.lines) == [
        'modify account where name=physics cluster=demo set GrpJobs=0 Comment="corral [corral hold 200]"',
        'modify user where name=alice account=chemistry cluster=demo partition= set GrpJobs=0 Comment="corral [corral hold]"',
        'modify user where name=alice account=physics cluster=demo partition= set GrpJobs=0 Comment="corral [corral hold]"',
    ]
    database.lines.clear()
    again = run(physics, alice, hold=True)
    assert (again["changed"], database.lines) == (False, [])
    run(physics, {**alice, "cpu_hours": 21}, hold=True)
    assert all(line.startswith("modify user") and line.endswith('set GrpJobs=-1 Comment="corral"') for line in database.lines)
    database.lines.clear()
    released = run(hold=True)
    assert (released["changed"], database.lines) == (
        True,
        ['modify account where name=physics cluster=demo set GrpJobs=200 Comment="corral"'],
    )
    assert not run(hold=True)["changed"]


def test_what_is_below_a_held_account_is_held(database: Slurmdbd) -> None:
    alice = {"account": "physics", "user": "alice", "cpu_hours": 1000}
    result = run(
        {"account": "science", "cpu_hours": 10},
        {"account": "physics", "cpu_hours": 1000},
        alice,
        {"user": "alice", "cpu_hours": 1000},
        hold=True,
    )
    assert [one["held"] for one in result["budgets"]] == [True, True, True, False], "alice has another account"
    assert [line.split()[3] for line in database.lines[-1:]] == ["name=science"] and result["writes"] == 1


def test_the_first_second_of_a_month_is_of_that_month(database: Slurmdbd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1793491200.0)
    run({"account": "physics", "cpu_hours": 1})
    assert database.periods == [[1793491200, 1796083200]]


def test_without_hold_nothing_is_changed(database: Slurmdbd) -> None:
    run({"account": "physics", "cpu_hours": 1}, hold=True)
    database.lines.clear()
    (budget,) = run({"account": "physics", "cpu_hours": 100})["budgets"]
    assert (budget["held"], database.lines) == (True, [])


def test_tenants_leave_a_hold_and_change_what_comes_back(database: Slurmdbd) -> None:
    run({"account": "physics", "cpu_hours": 1}, hold=True)
    assert converge(database) == []
    changed = {
        **DOCUMENT,
        "accounts": [DOCUMENT["accounts"][0], {**DOCUMENT["accounts"][1], "limits": {"GrpJobs": 300}}, DOCUMENT["accounts"][2]],
    }
    assert converge(database, changed) == ['modify account where name=physics cluster=demo set Comment="corral [corral hold 300]"']
    assert database.associations["physics", "", ""]["GrpJobs"] == "0" and converge(database, changed) == []
    (physics,) = tenants.account_info({**CONNECTION, "name": ["physics"]}, check=False, diff=False)["accounts"]
    assert (physics["held"], physics["managed"], physics["limits"]) == (True, True, {"GrpJobs": 300})
    run(hold=True)
    assert database.associations["physics", "", ""]["GrpJobs"] == "300"


def test_what_others_do_with_the_limit_stays(database: Slurmdbd) -> None:
    database.by_hand("modify account where name=chemistry cluster=demo set GrpJobs=0")
    assert not run({"account": "chemistry", "cpu_hours": 1}, hold=True)["changed"], "somebody else holds it"
    run(hold=True)
    assert database.associations["chemistry", "", ""]["GrpJobs"] == "0"
    run({"account": "physics", "cpu_hours": 1}, hold=True)
    database.by_hand("modify account where name=physics cluster=demo set GrpJobs=7")
    run(hold=True)
    assert (database.associations["physics", "", ""]["GrpJobs"], database.associations["physics", "", ""]["Comment"]) == ("7", "corral")


def test_a_qos_that_supersedes_a_hold_is_named(database: Slurmdbd) -> None:
    database.by_hand("add qos name=loose GrpJobs=10")
    assert len(run({"account": "physics", "cpu_hours": 100}, hold=True).get("warnings", [])) == 0
    result = run({"account": "physics", "cpu_hours": 1}, hold=True)
    assert result["warnings"][1].startswith("QoS loose has the limit GrpJobs, which supersedes")


def test_a_hold_needs_limits_to_be_enforced(database: Slurmdbd) -> None:
    database.enforced = "associations"
    database.lines.clear()
    with pytest.raises(CorralError, match=r"add associations and limits to spec\.accounting\.enforce"):
        run({"account": "physics", "cpu_hours": 1}, hold=True)
    assert database.lines == [] and not run({"account": "physics", "cpu_hours": 100}, hold=True)["changed"]


@pytest.mark.parametrize(
    ("budget", "sentence"),
    [
        ({"account": "phsics", "cpu_hours": 1}, "budgets[0].account is phsics, and there is no account of that name"),
        ({"user": "zoe", "cpu_hours": 1}, "budgets[0].user is zoe, and there is no user of that name;"),
        (
            {"user": "bob", "account": "physics", "cpu_hours": 1},
            "budgets[0].user is bob, and there is no user of that name in account physics",
        ),
        ({"account": "root", "cpu_hours": 1}, "budgets[0] is for root"),
        ({"cpu_hours": 1}, "budgets[0] has neither account nor user"),
        ({"account": "physics"}, "budgets[0] has no limit; give it one of cpu_hours"),
        ({"account": "physics", "cpu_hours": 1, "gpu_hours": 1}, "budgets[0] has cpu_hours and gpu_hours; give it one of"),
        ({"account": "physics", "cost": 1}, "budgets[0].cost needs prices"),
        ({"account": "physics", "cpu_hours": 0}, "budgets[0].cpu_hours is 0"),
        ({"account": "physics", "cpu_hours": "many"}, "budgets[0].cpu_hours is 'many'"),
        ({"account": "physics", "cpu_hour": 1}, "budgets[0] has 'cpu_hour', which no budget has; cpu_hours may be meant"),
        ({"account": "physics", "cpu_hours": 1, "period": "year"}, "budgets[0].period is 'year'; it must be month or total"),
        ({"account": "physics", "cpu_hours": 1, "period": "total"}, "budgets[0].start goes with the period total"),
    ],
)
def test_what_is_no_budget_is_refused(database: Slurmdbd, budget: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CorralError) as caught:
        run(budget)
    assert str(caught.value).startswith(sentence) and database.periods == []


@pytest.mark.usefixtures("database")
def test_a_budget_occurs_once() -> None:
    with pytest.raises(CorralError, match=r"budgets\[1\] is for account physics again, as budgets\[0\] is"):
        run({"account": "physics", "cpu_hours": 1}, {"account": "physics", "cpu_hours": 2})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"start": "2026-11-01", "end": "2026-10-01"}, "end is not after start"),
        ({"start": "2027-01-01"}, "The period has not begun"),
        ({"month": "2026-10", "hold": True}, "hold needs usage until now"),
    ],
)
def test_a_period_that_can_not_be_is_refused(database: Slurmdbd, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CorralError, match=sentence):
        run(**options)
    assert database.periods == []


@pytest.mark.usefixtures("database")
def test_a_cluster_without_accounting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurmctld, "run_in_pod", lambda *_args, **_more: Output(1, "", "Slurm accounting storage is disabled"))
    with pytest.raises(CorralError, match=r"has no accounting, .*add spec\.accounting"):
        run()
