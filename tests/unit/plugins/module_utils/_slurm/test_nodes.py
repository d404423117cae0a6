# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._slurm import nodes, output


def reply(*rows: dict[str, object]) -> str:
    return json.dumps({"nodes": [{"name": "cpu-0", "cpus": 2, "real_memory": 384, **row} for row in rows]})


@pytest.mark.parametrize(
    ("state", "answers", "drained"),
    [
        (["IDLE"], True, False),
        (["MIXED"], True, False),
        (["ALLOCATED"], True, False),
        (["IDLE", "COMPLETING"], True, False),
        (["IDLE", "DRAIN"], True, True),
        (["DOWN"], False, False),
        (["IDLE", "NOT_RESPONDING"], False, False),
        (["DOWN", "DRAIN", "NOT_RESPONDING"], False, True),
        (["UNKNOWN"], False, False),
        (["IDLE", "POWERED_DOWN"], False, False),
        (["FUTURE"], False, False),
        ([], False, False),
    ],
)
def test_verdicts(state: list[str], answers: bool, drained: bool) -> None:
    node = nodes.parse(reply({"state": state}))[0]
    assert (node.answers, node.drained) == (answers, drained)
    assert node.to_dict()["in_service"] is (answers and not drained)


def test_a_row_keeps_what_a_reader_wants() -> None:
    row = {"state": ["IDLE", "DRAIN"], "reason": "disk", "address": "a", "features": ["f"], "partitions": ["main"], "more": 1}
    node = nodes.parse(reply(row))[0]
    assert (node.name, node.cpus, node.real_memory, node.features, node.partitions) == ("cpu-0", 2, 384, ["f"], ["main"])
    assert node.summary == "cpu-0 is IDLE+DRAIN (disk)"


def test_numbers_and_words_of_other_data_parsers() -> None:
    node = nodes.parse(reply({"state": "IDLE", "cpus": {"set": True, "infinite": False, "number": 8}, "features": "a,b"}))[0]
    assert (node.state, node.cpus, node.features) == (["IDLE"], 8, ["a", "b"])


@pytest.mark.parametrize("text", ["", "slurm_load_nodes error: Unable to contact slurm controller", "[]", '{"nodes": 3}'])
def test_nonsense_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(output.OutputError, match="scontrol"):
        nodes.parse(text)
