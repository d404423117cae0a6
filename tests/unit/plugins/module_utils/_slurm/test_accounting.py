# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a real Slurm 24.11.5 said of the document in docs/tenants.md, with some that was made by hand beside it, and how values are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import accounting

RECORDED = Path(__file__).with_name("recorded")


def recorded() -> str:
    return (RECORDED / "tenants.txt").read_text()


def test_what_a_real_slurm_says() -> None:
    live = accounting.parse(recorded())
    assert live.cluster == "demo"
    assert {"cpu", "mem", "gres/gpu", "fs/disk"} <= live.tres
    science = live.account("science")
    assert science is not None and (science.parent, science.ours) == ("root", True)
    assert science.fields == {
        "Fairshare": 100,
        "QOS": ("high", "normal", "scavenger"),
        "DefaultQOS": "normal",
        "GrpTRES": {"cpu": 2048, "gres/gpu": 64, "mem": 16 << 20},
        "GrpTRESMins": {"gres/gpu": 5000000},
    }
    assert live.associations["chemistry", "", ""].fields == {"Fairshare": 40, "GrpTRES": {"mem": 1536}, "GrpWall": 100}
    assert live.associations["physics", "alice", ""].fields == {"Fairshare": "parent", "MaxJobs": 100}
    assert live.associations["physics", "bob", "debug"].fields == {"MaxJobs": 1}
    assert not live.associations["hand", "zoe", ""].ours
    assert [one.account for one in live.by_user["alice"]] == ["chemistry", "physics"]
    assert live.accounts["physics"].coordinators == ("alice",)
    assert live.accounts["hand"].coordinators == (), "what it inherits is not its own"
    assert live.accounts["hand"].description == "by hand|x"
    assert live.users["alice"] == accounting.User("alice", "Operator", "physics")
    high = live.qos["high"]
    assert (high.description, high.ours) == ("before all others", True)
    assert high.fields == {
        "Flags": ("DenyOnLimit",),
        "Preempt": ("scavenger",),
        "Priority": 1000,
        "MaxTRESPerUser": {"gres/gpu": 2},
        "MaxWall": 1440,
    }
    assert live.qos["scavenger"].fields == {"GraceTime": 120, "PreemptMode": "requeue", "UsageFactor": 0.1}
    assert (live.qos["normal"].ours, live.qos["normal"].fields) == (False, {})


def test_columns_say_what_json_says() -> None:
    rows = json.loads((RECORDED / "associations.json").read_text())["associations"]
    said = {(one["account"], one["user"], one["partition"]): one for one in rows}
    live = accounting.parse(recorded())
    for key, one in said.items():
        fields = live.associations[key].fields
        jobs, wall = one["max"]["jobs"], one["max"]["jobs"]["per"]["wall_clock"]
        assert fields.get("MaxWall") == (wall["number"] if wall["set"] else None)
        assert fields.get("MaxSubmit") == (jobs["total"]["number"] if jobs["total"]["set"] else None)
        assert fields.get("MaxJobs") == (jobs["active"]["number"] if jobs["active"]["set"] else None)
        assert fields.get("DefaultQOS", "") == one["default"].get("qos", "")
        assert live.associations[key].ours == (one["comment"] == "corral")
    assert len(said) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("== corral cluster\ndemo\n", "in an unknown way"),
        (recorded().replace("bob|None|physics", "b|ob|None|physics"), "has 4 columns and not 3"),
        (recorded().replace("mem=1.50G", "mem=much"), "'mem=much' is no TRES with a number"),
        (recorded().replace("root|||||1|normal", "gone|||||1|normal"), "knows no cluster demo yet"),
    ],
)
def test_what_is_no_answer_is_refused(text: str, message: str) -> None:
    with pytest.raises(CorralError, match=message):
        accounting.parse(text)


@pytest.mark.parametrize(
    ("kind", "said", "value"),
    [
        (accounting.COUNT, 7, 7),
        (accounting.MINUTES, 90, 90),
        (accounting.MINUTES, "90", 90),
        (accounting.SECONDS, "90", 90),
        (accounting.MINUTES, "1-12", 36 * 60),
        (accounting.MINUTES, "01:30:00", 90),
        (accounting.MINUTES, "90:00", 90),
        (accounting.SECONDS, "00:05:00", 300),
        (accounting.TRES, {"mem": "1536G", "cpu": 4}, {"cpu": 4, "mem": 1536 << 10}),
        (accounting.TRES, {"mem": "1.5T", "gres/gpu": 0}, {"gres/gpu": 0, "mem": 3 << 19}),
        (accounting.SHARE, "parent", "parent"),
        (accounting.FRACTION, 2, 2.0),
    ],
)
def test_values(kind: str, said: Any, value: Any) -> None:
    assert accounting.value(kind, said) == value


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (accounting.COUNT, -1),
        (accounting.COUNT, True),
        (accounting.COUNT, "7"),
        (accounting.COUNT, 2**31),
        (accounting.MINUTES, True),
        (accounting.MINUTES, "1.5"),
        (accounting.MINUTES, "soon"),
        (accounting.MINUTES, -5),
        (accounting.TRES, "cpu=4"),
        (accounting.TRES, {"cpu": -1}),
        (accounting.TRES, {"cpu": "4G"}),
        (accounting.TRES, {"mem": "4K"}),
        (accounting.SHARE, "parents"),
        (accounting.FRACTION, -0.5),
    ],
)
def test_values_that_are_none(kind: str, said: Any) -> None:
    with pytest.raises(ValueError):
        accounting.value(kind, said)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({}, {"MaxJobs": 5}, ["MaxJobs=5"]),
        ({"MaxJobs": 5}, {"MaxJobs": 5}, []),
        ({"MaxJobs": 5}, {"MaxJobs": None}, ["MaxJobs=-1"]),
        ({"Fairshare": 5}, {"Fairshare": None}, ["Fairshare=1"]),
        ({"QOS": ("a",)}, {"QOS": None}, ["QOS="]),
        ({"DefaultQOS": "a"}, {"DefaultQOS": None}, ["DefaultQOS=-1"]),
        ({"GrpTRES": {"cpu": 1, "mem": 2, "node": 3}}, {"GrpTRES": {"cpu": 1, "mem": 4}}, ["GrpTRES=mem=4,node=-1"]),
        ({"GrpTRES": {"cpu": 1}}, {"GrpTRES": None}, ["GrpTRES=cpu=-1"]),
    ],
)
def test_only_what_differs_is_set(before: accounting.Fields, after: accounting.Fields, words: list[str]) -> None:
    assert accounting.assignments(accounting.ASSOCIATION_FIELDS, before, after) == words


def test_a_qos_without_anything_is_what_slurm_has_by_itself() -> None:
    before: accounting.Fields = {"Flags": ("NoDecay",), "PreemptMode": "requeue", "PreemptExemptTime": 60, "UsageFactor": 2.0}
    after = dict.fromkeys(before)
    assert accounting.assignments(accounting.QOS_FIELDS, before, after) == [
        "Flags=-1",
        "PreemptMode=cluster",
        "PreemptExemptTime=-1",
        "UsageFactor=-1",
    ]
    assert accounting.assignments(accounting.QOS_FIELDS, {}, {"PreemptExemptTime": 90061}) == ["PreemptExemptTime=1-01:01:01"]
