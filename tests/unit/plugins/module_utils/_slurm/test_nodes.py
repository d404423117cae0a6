# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible_collections.corral.slurm.plugins.module_utils._slurm import nodes


def reply(*rows: dict[str, object]) -> str:
    return json.dumps({"nodes": [{"name": "cpu-0", "cpus": 2, "real_memory": 384, **row} for row in rows]})


@pytest.mark.parametrize(
    ("state", "in_service"),
    [
        (["IDLE"], True),
        (["MIXED"], True),
        (["ALLOCATED"], True),
        (["IDLE", "COMPLETING"], True),
        (["IDLE", "DRAIN"], True),
        ("IDLE+DRAIN", True),
        (["DOWN"], False),
        (["IDLE", "NOT_RESPONDING"], False),
        (["DOWN", "NOT_RESPONDING"], False),
        (["UNKNOWN"], False),
        (["IDLE", "POWERED_DOWN"], False),
        (["FUTURE"], False),
        ([], False),
    ],
)
def test_in_service(state: object, in_service: bool) -> None:
    assert nodes.parse(reply({"state": state}))[0].in_service is in_service


def test_a_row_keeps_what_a_reader_wants() -> None:
    row = {"state": ["IDLE", "DRAIN"], "reason": "disk", "reason_set_by_user": "root", "features": ["a"], "partitions": ["main"], "more": 1}
    assert nodes.parse(reply(row))[0].to_dict() == {
        "name": "cpu-0",
        "state": ["IDLE", "DRAIN"],
        "reason": "disk",
        "reason_set_by": "root",
        "cpus": 2,
        "real_memory": 384,
        "features": ["a"],
        "partitions": ["main"],
    }


@pytest.mark.parametrize("text", ["", "slurm_load_nodes error: Unable to contact slurm controller", "[]", '{"nodes": [{}]}', '{"nodes": 3}'])
def test_nonsense_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(nodes.SlurmError, match="can not be read"):
        nodes.parse(text)


def test_missing_says_what_slurm_says() -> None:
    known = nodes.parse(reply({"name": "a", "state": ["IDLE"]}, {"name": "b", "state": ["DOWN"], "reason": "Not responding"}))
    assert nodes.missing(known, ["a", "b", "c"]) == {"b": "DOWN (Not responding)", "c": "not known to slurmctld"}
