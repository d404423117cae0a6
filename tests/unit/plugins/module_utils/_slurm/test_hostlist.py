# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist

EXPAND = [
    ("", []),
    ("a", ["a"]),
    ("a,b", ["a", "b"]),
    ("n[0-2]", ["n0", "n1", "n2"]),
    ("n[08-11]", ["n08", "n09", "n10", "n11"]),
    ("n[1,3,5-6]", ["n1", "n3", "n5", "n6"]),
    ("r[0-1]n[0-1]", ["r0n0", "r0n1", "r1n0", "r1n1"]),
    ("a[0-1].dom,b", ["a0.dom", "a1.dom", "b"]),
    ("n[7]", ["n7"]),
]
COMPRESS = [
    ([], ""),
    (["a"], "a"),
    (["n2", "n0", "n1"], "n[0-2]"),
    (["n0", "n2"], "n[0,2]"),
    (["n08", "n09", "n10"], "n[08-10]"),
    (["n1", "n01"], None),
    (["cpu-0", "cpu-1", "big-0"], None),
    (["n0", "n0"], "n0"),
]


@pytest.mark.parametrize(("text", "names"), EXPAND)
def test_expand(text: str, names: list[str]) -> None:
    assert hostlist.expand(text) == names
    assert hostlist.count(text) == len(names)


@pytest.mark.parametrize(("names", "text"), COMPRESS)
def test_compress(names: list[str], text: str | None) -> None:
    written = hostlist.compress(names)
    assert text is None or written == text
    assert set(hostlist.expand(written)) == set(names)


@pytest.mark.parametrize("text", ["a,", ",a", "a,,b", "n[0-2", "n0-2]", "n[[0]]", "n[2-0]", "n[x]", "n[]", "a b", "n[0-99999999]"])
def test_what_slurm_would_not_read_is_refused(text: str) -> None:
    with pytest.raises(hostlist.HostlistError):
        hostlist.expand(text)


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a[0]"])
def test_names_that_can_not_stand_in_a_hostlist(name: str) -> None:
    with pytest.raises(hostlist.HostlistError):
        hostlist.compress([name])


@given(st.sets(st.from_regex(r"[a-c]{1,2}[0-9]{0,3}(-[0-9]{1,2})?", fullmatch=True), max_size=40))
def test_what_is_compressed_expands_to_the_same(names: set[str]) -> None:
    assert set(hostlist.expand(hostlist.compress(names))) == names


@pytest.mark.parametrize(("size", "text"), [(0, ""), (1, "n0.x"), (2, "n[0-1].x"), (10000, "n[0-9999].x")])
def test_ranged(size: int, text: str) -> None:
    assert hostlist.ranged("n", size, ".x") == text
    assert hostlist.count(text) == size


def test_a_name_has_few_brackets() -> None:
    """To look for a name in one costs by their number."""
    hostlist.expand("n" + "[0]" * 8)
    with pytest.raises(hostlist.HostlistError, match="more than 8 brackets"):
        hostlist.first_named("n" + "[0-1]" * 8 + "[0]" * 1300, ["n-"])
