# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Usage: what the command in the pod makes of sacct's records, time zones, prices, and how a report looks."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from collections.abc import Callable
from datetime import UTC
from fractions import Fraction
from pathlib import Path

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import usage
from ansible_collections.corral.slurm.plugins.module_utils._slurm.usage import Cell, Period, Prices

START = 1790812800  # 2026-10-01
DAY = 86400
# What sacct of Slurm 24.11.5 printed for jobs of these kinds. Start and End are cut to the day, ElapsedRaw is without the time of suspension.
DAYS = {
    START: [
        f"physics|alice|normal|main|{START}|{START + DAY}|86400|billing=1,cpu=1,node=1",  # from before the period until behind it
        f"physics|alice|normal|main|{START + 86390}|{START + DAY}|10|billing=1,cpu=1,node=1",  # ends with the day, and is requeued
        f"physics|alice|normal|main|{START + 86000}|{START + DAY}|100|billing=1,cpu=1,node=1",  # suspended at the end of the day
        f"physics|alice|normal|gpu|{START + DAY + 3}|{START + DAY}|0|billing=9,cpu=8,gres/gpu=1,mem=1024M,node=1",  # eligible, begins the next day
        f"chemistry|bob|high|gpu|{START}|{START}|0|billing=9,cpu=8,gres/gpu=1,mem=1024M,node=1",  # over when the period begins
        f"chemistry|bob|high|gpu|{START + 5}|{START + 15}|10|billing=9,cpu=8,gres/gpu:a100=2,gres/gpu:h100=1,gres/gpumem=5G,node=2",
        f"chemistry|bob|high|gpu|{START + 5}|{START + 15}|10|billing=9,cpu=8,gres/gpu=2,gres/gpu:a100=2,node=2",
        f"chemistry|bob|high|main|{START + DAY}|{START + DAY}|0|",  # pending
    ],
    START + DAY: [
        f"physics|alice|normal|main|{START + DAY}|{START + DAY + 1000}|1000|billing=1,cpu=1,node=1",  # now is 1000 s behind midnight
        f"physics|alice|normal|main|{START + DAY}|{START + DAY}|0|billing=1,cpu=1,node=1",
        f"physics|alice|normal|main|{START + DAY + 20}|{START + DAY + 30}|10|billing=1,cpu=1,node=1",  # the second run of the one that was requeued
        f"physics|alice|normal|main|{START + DAY}|{START + DAY + 900}|700|billing=1,cpu=1,node=1",
        f"physics|alice|normal|gpu|{START + DAY + 3}|{START + DAY + 1000}|997|billing=9,cpu=8,gres/gpu=1,mem=1024M,node=1",
    ],
}
CELLS = [
    Cell("chemistry", "bob", "high", "gpu", 2, 160, 50, 40, 180),
    Cell("physics", "alice", "normal", "gpu", 1, 7976, 997, 997, 8973),
    Cell("physics", "alice", "normal", "main", 4, 88220, 0, 88220, 88220),
]


def ask(folder: Path, *periods: Period, sacct: str = 'cat "$0.$(echo "$*" | sed -n "s/.*--starttime=uts\\([0-9]*\\).*/\\1/p")"') -> str:
    """Run the command, with a sacct that has these records and a clock that stands still."""
    for name, script in (("sacct", sacct), ("date", f"echo {START + DAY + 1000}")):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    for day, lines in DAYS.items():
        (folder / f"sacct.{day}").write_text("\n".join([*lines, ""]))
    run = subprocess.run(
        usage.command(periods), capture_output=True, text=True, check=False, env={"PATH": f"{folder}:{os.environ['PATH']}"}
    )
    if run.returncode:
        raise OSError(run.stderr)
    return run.stdout


def test_seconds_are_added_up_across_days_and_each_run_counts_once(tmp_path: Path) -> None:
    ((period, cells),) = usage.parse(ask(tmp_path, Period(START, START + 31 * DAY)))
    assert period == Period(START, START + DAY + 1000), "it ends now"
    assert sorted(cells, key=lambda cell: (cell.account, cell.partition)) == CELLS


def test_several_periods_are_one_command(tmp_path: Path) -> None:
    first, second, later = usage.parse(
        ask(tmp_path, Period(START, START + DAY), Period(START + DAY, START + 2 * DAY), Period(START + 9 * DAY, START + 10 * DAY))
    )
    both = [usage.total(cells, Prices()).seconds for _period, cells in (first, second)]
    assert {name: both[0][name] + both[1][name] for name in both[0]} == usage.total(CELLS, Prices()).seconds
    assert usage.total(second[1], Prices()).jobs == 4, "one was over when the day began"
    assert later[1] == []


def test_an_error_of_sacct_is_one(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Connection refused"):
        ask(tmp_path, Period(START, START + DAY), sacct="echo Connection refused >&2; exit 1")


def test_unknown_lines_are_an_error() -> None:
    with pytest.raises(CorralError, match="have an unknown line"):
        usage.parse("== corral range 1 2\nawk: cannot open\n")


def test_rows_are_by_what_is_asked_for() -> None:
    (account,) = usage.rows(CELLS[1:], ["account"], Prices())
    assert account["account"] == "physics" and (account["jobs"], account["cpu_seconds"], account["cpu_hours"]) == (5, 96196, 26.72)
    assert "cost" not in account
    assert [(row["partition"], row["qos"]) for row in usage.rows(CELLS, ["partition", "qos"], Prices())] == [
        ("gpu", "high"),
        ("gpu", "normal"),
        ("main", "normal"),
    ]
    (cluster,) = usage.rows(CELLS, [], Prices())
    assert cluster == usage.total(CELLS, Prices()).to_dict(Prices())


def test_prices_are_of_the_qos_then_of_the_partition_then_general() -> None:
    prices = usage.prices_of(
        {"cpu": 0.1, "gpu": "1.5", "partitions": {"gpu": {"gpu": 36}}, "qos": {"high": {"gpu": 72, "cpu": 0}}, "currency": "EUR"}
    )
    assert [prices.cost(cell) for cell in CELLS] == [
        Fraction(72 * 50, 3600),
        Fraction(36 * 997, 3600) + Fraction(7976, 36000),
        Fraction(88220, 36000),
    ]
    assert usage.total(CELLS, prices).to_dict(prices)["cost"] == 13.64
    assert not usage.prices_of(None) and prices.currency == "EUR"


@pytest.mark.parametrize(
    ("prices", "sentence"),
    [
        ({"tpu": 1}, "prices has 'tpu', which has no price; it can have cpu, gpu, node, billing, currency, partitions, qos"),
        ({"cpu": -1}, "prices.cpu is '-1'; it must be the price of an hour, a number from 0 on"),
        ({"partitions": {"gpu": {"gpu": "much"}}}, "prices.partitions.gpu.gpu is 'much'"),
        ({"partitions": ["gpu"]}, "prices.partitions is not a mapping"),
        ({"qos": {"high": 3}}, "prices.qos.high is not a mapping"),
    ],
)
def test_what_is_no_price_is_refused(prices: dict[str, object], sentence: str) -> None:
    with pytest.raises(CorralError) as caught:
        usage.prices_of(prices)
    assert str(caught.value).startswith(sentence)


def test_months_begin_in_the_time_zone() -> None:
    assert usage.month("2026-10", UTC) == Period(START, START + 31 * DAY)
    berlin = usage.zone("Europe/Berlin")
    assert usage.month("2026-10", berlin) == Period(START - 7200, START + 31 * DAY - 3600), "summer time ends in it"
    assert usage.month_of(START, berlin) == usage.month("2026-10", berlin)
    assert usage.month("2026-12", UTC).end == usage.month("2027-01", UTC).start
    assert usage.moment("2026-10-01", "start", berlin) == START - 7200
    assert usage.moment("2026-10-01T02:00:00+02:00", "start", UTC) == START == usage.moment("2026-10-01 00:00:00", "start", UTC)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: usage.month("October", UTC), "month is 'October'"),
        (lambda: usage.moment("yesterday", "budgets[0].start", UTC), "budgets[0].start is 'yesterday'"),
        (lambda: usage.zone("Europe/Nowhere"), "timezone is 'Europe/Nowhere'"),
    ],
)
def test_what_is_no_time_is_refused(wrong: Callable[[], object], sentence: str) -> None:
    with pytest.raises(CorralError) as caught:
        wrong()
    assert str(caught.value).startswith(sentence)


def test_a_report_is_a_table_or_csv_or_json() -> None:
    prices, period, by = usage.prices_of({"cpu": 1}), Period(START, START + DAY), ["account", "user"]
    rows, totals = usage.rows(CELLS, by, prices), usage.total(CELLS, prices).to_dict(prices)
    budget = {"name": "account physics", "period": "month", "limit": 10.0, "used": 26.72, "share": 267.2, "held": True}
    assert usage.render("table", period, by, rows, totals, [budget]) == (
        "2026-10-01T00:00:00Z to 2026-10-02T00:00:00Z\n\n"
        "account    user   jobs  cpu_hours  gpu_hours  node_hours  billing_hours   cost\n"
        "chemistry  bob       2       0.04       0.01        0.01           0.05   0.04\n"
        "physics    alice     5      26.72       0.28       24.78          27.00  26.72\n"
        "total                7      26.77       0.29       24.79          27.05  26.77\n\n"
        "budget           period  limit   used    share  held\n"
        "account physics  month   10.00  26.72  267.2 %   yes\n"
    )
    read = list(csv.DictReader(io.StringIO(usage.render("csv", period, by, rows, totals, []))))
    assert [(row["account"], row["user"], row["cpu_seconds"]) for row in read] == [
        ("chemistry", "bob", "160"),
        ("physics", "alice", "96196"),
    ]
    report = json.loads(usage.render("json", period, by, rows, totals, [budget]))
    assert (report["rows"], report["totals"], report["budgets"], report["end"]) == (rows, totals, [budget], "2026-10-02T00:00:00Z")
