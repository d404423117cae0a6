# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever Slurm's programs answer, a reader gets rows or one sentence, never a traceback."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import jobs, nodes, output, partitions, reservations

from .records import text

PARSERS = {"nodes": nodes.parse, "partitions": partitions.parse, "reservations": reservations.parse, "jobs": jobs.parse}
NONSENSE = ["", "null", "[]", "3", "{}", "slurm_load_node error: Unable to contact slurm controller (connect failure)", '{"errors": []}']
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("kind", PARSERS)
@pytest.mark.parametrize("nonsense", NONSENSE)
def test_nonsense_is_refused_in_a_sentence(kind: str, nonsense: str) -> None:
    with pytest.raises(output.OutputError, match=r"(scontrol|squeue)'s (output is not JSON|JSON has no list)"):
        PARSERS[kind](nonsense)


@pytest.mark.parametrize("kind", PARSERS)
@pytest.mark.parametrize("row", [3, None, {}, [], {"name": "", "job_id": 0}])
def test_rows_without_a_name_are_refused(kind: str, row: Any) -> None:
    with pytest.raises(output.OutputError, match="without"):
        PARSERS[kind](json.dumps({kind: [row]}))


@pytest.mark.parametrize("kind", PARSERS)
@given(data=st.data())
def test_a_field_of_another_type_gives_a_row_or_a_sentence(kind: str, data: st.DataObject) -> None:
    document = json.loads(text(kind))
    row = data.draw(st.sampled_from(document[kind]))
    key = data.draw(st.sampled_from(sorted(row)))
    row[key] = data.draw(VALUES)
    with contextlib.suppress(CorralError):
        PARSERS[kind](json.dumps(document))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3),
        ("3", 3),
        (None, 0),
        ({"set": True, "infinite": False, "number": 8}, 8),
        ({"set": False, "infinite": False, "number": 8}, 0),
        ({"set": True, "infinite": True}, 0),
    ],
)
def test_numbers_of_all_data_parsers(value: Any, number: int) -> None:
    assert output.number(value) == number


def test_times_are_text_in_utc_and_none_is_empty() -> None:
    assert output.moment({"set": True, "infinite": False, "number": 1795251802}) == "2026-11-21T09:03:22Z"
    assert output.moment({"set": True, "infinite": False, "number": 0}) == ""
    assert output.stamp(10**20) == ""


@pytest.mark.parametrize("bad", ["a\nb", "a\x00", "a\u2028b", "tab\there"])
def test_text_for_slurm_is_one_line(bad: str) -> None:
    with pytest.raises(CorralError, match=r"The reason .* control character at character"):
        output.printable(bad, "reason")


def test_text_for_slurm_keeps_everything_else() -> None:
    assert output.printable('  disk = "swap", ü  ', "reason") == 'disk = "swap", ü'
