# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf

VALUES: list[tuple[Any, str]] = [
    ("plain", "plain"),
    ("two words", '"two words"'),
    ("", '""'),
    ("tab\u00a0x", '"tab\u00a0x"'),
    (True, "YES"),
    (False, "NO"),
    (7, "7"),
    (["a", "b"], "a,b"),
    ("a=b", "a=b"),
    ("n[0-3]", "n[0-3]"),
    ("ünïcode", "ünïcode"),
]
REFUSED: list[Any] = [
    "a\nNodeName=x",
    "a\rb",
    "a\x00b",
    "a\tb",
    "a#b",
    'a"b',
    "a\\",
    "\\b",
    "a\x7f",
    "a\u2028b",
    "a\x85b",
    ["a,b"],
    ["a", ""],
]


@pytest.mark.parametrize(("raw", "text"), VALUES)
def test_values(raw: Any, text: str) -> None:
    assert conf.value(raw) == text


@pytest.mark.parametrize("raw", REFUSED)
def test_values_that_could_break_out_are_refused(raw: Any) -> None:
    with pytest.raises(conf.ConfError):
        conf.value(raw)


def test_a_line_keeps_its_order_and_leaves_out_what_is_none() -> None:
    assert conf.line([("B", 1), ("A", None), ("C", "x y")]) == 'B=1 C="x y"'


@pytest.mark.parametrize("key", ["", "1a", "a b", "a=b", "a\n", "a#"])
def test_keys(key: str) -> None:
    with pytest.raises(conf.ConfError):
        conf.line([(key, 1)])


PAIRS = [
    ("A=b", ("A", "b")),
    (" A = b ", ("A", "b")),
    ('A="b c"', ("A", "b c")),
    ("A=b=c", ("A", "b=c")),
    ('A=""', ("A", "")),
]


@pytest.mark.parametrize(("text", "pair"), PAIRS)
def test_pairs(text: str, pair: tuple[str, str]) -> None:
    assert conf.parse_pair(text) == pair


@pytest.mark.parametrize("text", ["", "A", "=b", "A=", "A=b c", "A=b # c", "A=b\\", 'A="b" c', "A b=c", 'A="b', "A=b\nC=d"])
def test_lines_that_are_no_pair(text: str) -> None:
    with pytest.raises(conf.ConfError):
        conf.parse_pair(text)


@given(st.text(max_size=30))
def test_a_value_is_one_line_and_reads_back_or_is_refused(raw: str) -> None:
    try:
        written = conf.line([("Key", raw)])
    except conf.ConfError:
        return
    assert len(written.splitlines()) == 1
    assert conf.parse_pair(written) == ("Key", raw)


def test_plugin_lines_have_no_white_space_in_their_words() -> None:
    assert conf.plugin_line(True, "/x.so", [("jail", "/mnt/jail")]) == "required /x.so jail=/mnt/jail"
    with pytest.raises(conf.ConfError):
        conf.plugin_line(True, "/x.so", [("jail", "/mnt /jail")])


def test_a_line_without_some_nodes() -> None:
    pairs = {"NodeName": "cpu-[0-3]", "NodeAddr": "a-[0-3]", "CPUs": "2"}
    assert conf.narrowed(pairs, lambda name: name != "cpu-1") == {"NodeName": "cpu-[0,2-3]", "NodeAddr": "a-[0,2-3]", "CPUs": "2"}
    assert conf.narrowed(pairs, lambda _name: False) == {}
    assert conf.narrowed({"NodeName": "cpu-[0-3]", "Name": "gpu"}, lambda name: name == "cpu-1") == {"NodeName": "cpu-1", "Name": "gpu"}


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("PriorityType=priority/multifactor", ["priority_multifactor.so"]),
        ("prioritytype=priority/multifactor", ["priority_multifactor.so"]),
        ("JobSubmitPlugins=all_partitions,job_submit/throttle", ["job_submit_all_partitions.so", "job_submit_throttle.so"]),
        ("CliFilterPlugins=user_defaults", ["cli_filter_user_defaults.so"]),
        ("MpiDefault=pmix", ["mpi_pmix.so"]),
        ("MpiDefault=none", []),
        ("PreemptType=preempt/none", []),
        ("GresTypes=gpu", []),
        ("TopologyPlugin=topology/tree", ["topology_tree.so"]),
        ("AuthAltTypes=auth/jwt", ["auth_jwt.so"]),
        ("CredType=cred/munge", ["cred_munge.so"]),
        ("CredType=cred/slurm", ["auth_slurm.so"]),
        ("PrEpPlugins=script,prep/mine", ["prep_script.so", "prep_mine.so"]),
    ],
)
def test_plugins_of_a_file(line: str, files: list[str]) -> None:
    assert list(conf.plugins(f"A=b\n{line}\nC=d\n").values()) == files


@pytest.mark.parametrize("read", [conf.parse_pair, conf.parse_pairs, conf.parse_plugin])
def test_no_private_key_is_shown(read: Callable[[str], object]) -> None:
    with pytest.raises(conf.ConfError) as raised:
        read("-----BEGIN OPENSSH PRIVATE KEY----- b3BlbnNzaC1rZXkt")
    assert "a private key, which must not be here" in str(raised.value)
    assert "b3Bl" not in str(raised.value)


def test_a_line_whose_nodes_all_stay_is_as_it_was() -> None:
    pairs = {"NodeName": "cpu-1,cpu-0", "Name": "gpu"}
    assert conf.narrowed(pairs, lambda _name: True) == pairs
