# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf, keys


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("KillWait", "30"),
        ("killwait", "0x1e"),
        ("KillWait", "65535"),
        ("SlurmdTimeout", "INFINITE"),
        ("DefMemPerCPU", "unlimited"),
        ("TrackWCKey", "Yes"),
        ("TrackWCKey", "0"),
        ("SchedulerParameters", "anything,at=all"),
        # A later Slurm's.
        ("MetricsType", "metrics/openmetrics"),
    ],
)
def test_what_slurm_takes(key: str, value: str) -> None:
    assert keys.SLURM.problem(key, value) is None


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("killwait", "-1", "killwait to '-1'; it must be a whole number."),
        ("KillWait", "65536", "KillWait to '65536'; 65535 is the most."),
        ("MinJobAge", "4294967296", "4294967295 is the most."),
        ("KillWait", "\u0663", "it must be a whole number."),
        ("TrackWCKey", "maybe", "it must be YES or NO."),
        ("SlurmdTimeOuts", "1", "SlurmdTimeOuts, which is no key of slurm.conf; did you mean SlurmdTimeout?"),
        ("Wibble", "1", "Wibble, which is no key of slurm.conf; remove it."),
    ],
)
def test_what_slurm_would_refuse(key: str, value: str, words: str) -> None:
    assert words in (keys.SLURM.problem(key, value) or "")


def test_settings_that_go_together() -> None:
    assert not list(keys.conflicts({}))
    assert not list(keys.conflicts({"preempttype": "preempt/partition_prio", "preemptmode": "SUSPEND,GANG"}))
    assert not list(keys.conflicts({"preemptmode": "GANG"}))
    assert not list(keys.conflicts({"prologflags": "Contain,X11", "proctracktype": "proctrack/cgroup"}))


def test_a_line_of_several_pairs() -> None:
    assert conf.parse_pairs(' Name=gpu  File="/dev/a b" Count=2 ') == [("Name", "gpu"), ("File", "/dev/a b"), ("Count", "2")]


@pytest.mark.parametrize("line", ["", "Name", "Name=gpu Count", "Name= gpu", 'Name="a"b', "Name=a#b", 'A="b', "A=b\\"])
def test_what_is_no_line_of_several_pairs(line: str) -> None:
    with pytest.raises(conf.ConfError):
        conf.parse_pairs(line)
