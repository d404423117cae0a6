# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import reservations

from .records import reservation, text

M1 = reservation("m1")  # cpu-0, DAILY,FLEX,IGNORE_JOBS, accounts=root, 15 minutes from 1795340100
CNT = reservation("cnt")  # one node of partition side for alice
NEW = {"nodes": "cpu-[0-1]", "users": ["alice"], "start": "now", "duration": "60"}


def wanted(**options: Any) -> reservations.Wanted:
    return reservations.wanted({"name": "m1", "state": "present", **options})


def test_what_a_real_slurm_says() -> None:
    assert [one.name for one in reservations.parse(text("reservations"))] == ["m1", "now1", "cnt"]
    assert (M1.nodes, M1.accounts, M1.users, M1.end - M1.start) == ("cpu-0", ["root"], [], 900)
    assert M1.asked_flags == {"DAILY", "FLEX", "IGNORE_JOBS"}
    shown = M1.to_dict(M1.start)
    assert (shown["start_time"], shown["active"]) == ("2026-11-22T09:35:00Z", True)
    assert not M1.to_dict(M1.end)["active"]


def test_a_new_one() -> None:
    desired = wanted(**{**NEW, "flags": ["maint", "IGNORE_JOBS", "SPEC_NODES"]})
    assert reservations.commands(None, desired) == [
        ["scontrol", "create", "reservation", "reservationname=m1", "starttime=now", "duration=60", "nodes=cpu-[0-1]", "users=alice",
         "flags=IGNORE_JOBS,MAINT"],
    ]  # fmt: skip
    assert reservations.difference(None, desired)[1]["duration"] == "60 min"


@pytest.mark.parametrize(
    ("start", "seconds"),
    [
        ("2026-11-22T09:35:00", 1795340100),
        ("2026-11-22T09:35:00Z", 1795340100),
        ("2026-11-22T10:35:00+01:00", 1795340100),
        ("2026-11-22", 1795305600),
    ],
)
def test_times_go_as_seconds_so_that_no_zone_counts(start: str, seconds: int) -> None:
    words = reservations.commands(None, wanted(**{**NEW, "start": start, "duration": None, "end": "2026-12-01T00:00:00Z"}))[0]
    assert f"starttime=uts{seconds}" in words
    assert "endtime=uts1796083200" in words


@pytest.mark.parametrize(
    ("duration", "minutes"),
    [
        ("90", 90),
        ("90:59", 90),
        ("1:30:00", 90),
        ("2-12", 3600),
        ("2-12:30", 3630),
        ("2-12:30:00", 3630),
        ("UNLIMITED", 525600),
        ("infinite", 525600),
    ],
)
def test_durations_as_slurm_reads_them(duration: str, minutes: int) -> None:
    assert wanted(duration=duration).minutes == minutes


def test_one_that_is_as_it_shall_be_is_told_to_nobody() -> None:
    same = wanted(
        nodes="cpu-[0]",
        accounts=["root"],
        start="2026-11-22T09:35:00Z",
        duration="15",
        flags=["flex", "daily", "ignore_jobs"],
    )
    assert reservations.commands(M1, same) == []
    assert reservations.difference(M1, same) == ({}, {})
    assert reservations.commands(M1, wanted()) == []
    # What slurmctld has made of "now" is not asked for again, and the length is what is compared.
    assert reservations.commands(M1, wanted(start="now+1hour", duration="0:15:00")) == []
    assert reservations.commands(CNT, wanted(node_count=1, partition="side", users=["alice"], duration="UNLIMITED")) == []


def test_only_what_differs_is_told() -> None:
    assert reservations.commands(M1, wanted(nodes="cpu-[0-1]")) == [["scontrol", "update", "reservationname=m1", "nodes=cpu-[0-1]"]]
    assert reservations.commands(M1, wanted(users=["bob", "alice"], accounts=[]))[0][3:] == ["users=alice,bob", "accounts="]
    assert reservations.commands(M1, wanted(duration="30"))[0][3:] == [f"endtime=uts{M1.start + 1800}"]
    once = replace(M1, flags=["FLEX"])
    assert reservations.commands(once, wanted(start="2026-11-22T09:36:00Z", duration="15"))[0][3:] == [
        "starttime=uts1795340160",
        "endtime=uts1795341060",
    ]
    assert reservations.commands(CNT, wanted(node_count=2))[0][3:] == ["nodecnt=2"]


def test_flags_of_two_signs_are_two_updates() -> None:
    """Those that go first: slurmctld refuses WEEKLY beside DAILY, and STATIC beside REPLACE."""
    update = ["scontrol", "update", "reservationname=m1"]
    assert reservations.commands(M1, wanted(flags=["MAINT", "FLEX"])) == [[*update, "flags-=DAILY,IGNORE_JOBS"], [*update, "flags+=MAINT"]]
    assert reservations.commands(M1, wanted(users=["bob"], flags=["MAINT", "FLEX"]))[1][3:] == ["users=bob", "flags+=MAINT"]
    assert reservations.commands(M1, wanted(flags=["FLEX"])) == [[*update, "flags-=DAILY,IGNORE_JOBS"]]


DAY = 86400
SATURDAY = "2026-01-31T08:00:00+01:00"


def recurring(flag: str, start: str, hours: int = 4) -> reservations.Reservation:
    begin = wanted(start=start).start
    assert isinstance(begin, int)
    return replace(M1, flags=["MAINT", "SPEC_NODES", flag], start=begin, end=begin + 3600 * hours)


@pytest.mark.parametrize(
    ("flag", "moved", "same"),
    [
        ("WEEKLY", "2026-11-28T07:00:00Z", True),
        ("WEEKLY", "2026-11-27T07:00:00Z", False),
        ("DAILY", "2026-11-27T07:00:00Z", True),
        ("DAILY", "2026-11-27T08:00:00Z", False),
        ("WEEKDAY", "2026-11-27T07:00:00Z", True),
        ("WEEKDAY", "2026-11-27T07:05:00Z", False),
        ("WEEKEND", "2026-11-28T07:00:00Z", True),
        ("HOURLY", "2026-11-28T19:00:00Z", True),
        ("HOURLY", "2026-11-28T19:01:00Z", False),
    ],
)
def test_one_that_recurs_is_as_it_shall_be_wherever_slurmctld_has_moved_it(flag: str, moved: str, same: bool) -> None:
    live = recurring(flag, moved)
    for more in ({"duration": "4:00:00"}, {"end": "2026-01-31T12:00:00+01:00"}, {}):
        for flags in (["maintenance", flag], None):
            assert (reservations.difference(live, wanted(start=SATURDAY, flags=flags, **more)) == ({}, {})) is same
    assert reservations.difference(live, wanted(duration="240", end=None)) == ({}, {})


def test_one_that_recurs_is_moved_from_its_next_time_on() -> None:
    live = recurring("WEEKLY", "2026-11-28T07:00:00Z")
    week = wanted(start="2026-01-30T08:00:00Z", duration="60")  # a Friday
    friday = live.start + 6 * DAY + 3600
    assert reservations.commands(live, week)[0][3:] == [f"starttime=uts{friday}", f"endtime=uts{friday + 3600}"]
    assert reservations.difference(live, week)[1] == {"start": "2026-12-04T08:00:00Z", "end": "2026-12-04T09:00:00Z"}
    # Its length is kept where nobody says one.
    assert reservations.commands(live, wanted(start="2026-01-30T08:00:00Z"))[0][3:] == [
        f"starttime=uts{friday}",
        f"endtime=uts{friday + 14400}",
    ]
    assert reservations.commands(live, wanted(duration="60"))[0][3:] == [f"endtime=uts{live.start + 3600}"]
    # What lies further ahead is meant as it is said.
    assert "start" in reservations.difference(live, wanted(start="2027-01-01T08:00:00Z"))[1]
    assert reservations.commands(live, wanted(start="2027-01-01T08:00:00Z"))[0][3] == "starttime=uts1798790400"


def test_days_of_the_week_are_kept_when_the_time_of_day_is_another() -> None:
    friday = recurring("WEEKDAY", "2026-11-27T07:00:00Z")
    assert reservations.difference(friday, wanted(start="2026-01-30T06:00:00Z"))[1]["start"] == "2026-11-30T06:00:00Z"
    saturday = recurring("WEEKEND", "2026-11-28T07:00:00Z")
    assert reservations.difference(saturday, wanted(start="2026-01-31T06:00:00Z"))[1]["start"] == "2026-11-29T06:00:00Z"


def test_one_that_shall_recur_no_more_has_the_time_that_is_said() -> None:
    live = recurring("WEEKLY", "2026-11-28T07:00:00Z")
    assert "start" in reservations.difference(live, wanted(start=SATURDAY, flags=["MAINT"]))[1]


def test_the_start_of_one_that_floats_moves_by_itself() -> None:
    live = replace(M1, flags=["TIME_FLOAT"])
    assert reservations.difference(live, wanted(start=SATURDAY, duration="15", flags=["TIME_FLOAT"])) == ({}, {})


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("MAINTENANCE", "MAINT"), ("maint", "MAINT"), ("STATIC_ALLOC", "STATIC"), ("static", "STATIC"), ("LICENSE_ONLY", "ANY_NODES"),
        ("Any_Nodes", "ANY_NODES"), ("PROMISCUOUS", "MAGNETIC"), ("magnetic", "MAGNETIC"), ("PART_NODES", "PART_NODES"), ("IGNORE", "IGNORE_JOBS"),
        ("REPLACE", "REPLACE"), ("USER_DELETE", "USER_DELETE"), ("PURGE_COMP", "PURGE_COMP"), ("NO_HOLD_JOBS_AFTER_END", "NO_HOLD_JOBS_AFTER_END"),
        ("FORCE_START", "FORCE_START"), ("TIME_FLOAT", "TIME_FLOAT"), ("OVERLAP", "OVERLAP"), ("WEEK", "WEEKDAY"), ("hourly", "HOURLY"),
    ],
)  # fmt: skip
def test_flags_are_known_by_every_name_that_scontrol_takes(asked: str, shown: str) -> None:
    live = replace(M1, flags=[shown, "SPEC_NODES"])
    assert reservations.commands(live, wanted(flags=[asked])) == []
    assert f"flags={shown}" in reservations.commands(None, wanted(**{**NEW, "flags": [asked]}))[0]


def test_a_flag_that_the_json_does_not_show_is_told_once() -> None:
    assert "flags=REPLACE_DOWN" in reservations.commands(None, wanted(**{**NEW, "flags": ["REPLACE_DOWN"]}))[0]
    for shown in ([], ["REPLACE_DOWN"]):
        assert reservations.commands(replace(M1, flags=shown), wanted(flags=["replace_down"])) == []


def test_a_flag_that_nobody_here_knows_is_slurms_to_judge() -> None:
    assert reservations.commands(M1, wanted(flags=["DAILY", "FLEX", "IGNORE_JOBS", "NEW_ONE"]))[0][3:] == ["flags+=NEW_ONE"]


def test_all_nodes() -> None:
    of_partition = replace(M1, nodes="cpu-[0-9]", flags=["SPEC_NODES", "PART_NODES"])
    assert reservations.commands(of_partition, wanted(nodes="ALL", flags=["PART_NODES"])) == []
    whole = replace(M1, nodes="cpu-[0-9]", flags=["SPEC_NODES", "ALL_NODES"])
    assert reservations.commands(whole, wanted(nodes="all")) == []
    assert reservations.commands(M1, wanted(nodes="ALL"))[0][3:] == ["nodes=ALL"]


@pytest.mark.parametrize(
    ("left_out", "words"),
    [("start", "give its start"), ("duration", "its end or duration"), ("nodes", "nodes or node_count"), ("users", "users or accounts")],
)
def test_a_new_one_needs_to_be_whole(left_out: str, words: str) -> None:
    with pytest.raises(CorralError, match=f"There is no reservation m1 yet; .*{words}"):
        reservations.commands(None, wanted(**{**NEW, left_out: None}))


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("name", "a b", "other characters"),
        ("nodes", "cpu-[0", "brackets"),
        ("start", "soon", "write it like"),
        ("end", "now", "no time"),
        ("duration", "1h", "none that Slurm knows"),
        ("duration", "0:30", "shorter than a minute"),
        ("users", ["a,b"], "no name"),
        ("users", [""], "no name"),
        ("flags", ["MAINT=1"], "not a flag that Slurm could know"),
    ],
)
def test_mistakes_are_told_before_anything_is_done(option: str, value: Any, words: str) -> None:
    with pytest.raises(CorralError, match=words):
        wanted(**{option: value})
