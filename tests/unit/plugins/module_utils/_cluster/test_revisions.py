# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents by which a cluster was made: what is kept, in which order, and which is the one before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve, revisions
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

from .documents import good


def document(replicas: int, **more: Any) -> dict[str, Any]:
    spec = {"images": {"slurm": "slurm:1"}, "nodeSets": [{"name": "cpu", "replicas": replicas}], **more}
    return {"apiVersion": "corral.hpc/v1alpha1", "kind": "SlurmCluster", "metadata": {"name": "demo", "namespace": "ns"}, "spec": spec}


def sizes(known: list[revisions.Revision]) -> list[tuple[int, int]]:
    return [(one.number, one.spec["nodeSets"][0]["replicas"]) for one in known]


def after(*replicas: int) -> list[revisions.Revision]:
    known: list[revisions.Revision] = []
    for count in replicas:
        known = revisions.recorded(known, document(count), f"2026-01-01T00:00:{count:02d}Z")
    return known


def test_the_same_document_is_kept_once_and_one_that_comes_again_is_the_newest() -> None:
    known = after(1)
    assert revisions.recorded(known, document(1), "later") is known
    assert sizes(after(1, 2, 2)) == [(1, 1), (2, 2)]
    assert sizes(after(1, 2, 3, 1)) == [(2, 2), (3, 3), (4, 1)]
    assert after(1, 2)[-1].to_dict() == {"revision": 2, "recorded": "2026-01-01T00:00:02Z", "image": "slurm:1", "node_sets": {"cpu": 2}}


def test_the_one_before_is_that_before_the_newest_and_back_again() -> None:
    known = after(1, 2, 3)
    assert revisions.chosen(known, None, "demo").number == 2
    back = revisions.recorded(known, revisions.chosen(known, None, "demo").document, "now")
    assert sizes(back) == [(1, 1), (3, 3), (4, 2)]
    assert revisions.chosen(back, None, "demo").number == 3
    assert revisions.chosen(known, 1, "demo").number == 1


@pytest.mark.parametrize(("known", "number", "words"), [([], None, "kept: none"), ([1], None, "kept: 1"), ([1, 2], 7, "there are 1, 2")])
def test_one_that_is_not_kept(known: list[int], number: int | None, words: str) -> None:
    with pytest.raises(CorralError, match=words):
        revisions.chosen(after(*known), number, "demo")


@given(st.lists(st.integers(0, 15), max_size=60))
def test_ten_at_most_and_they_come_back_as_they_were(replicas: list[int]) -> None:
    known = after(*replicas)
    assert len(known) <= revisions.KEEP
    assert len({count for _number, count in sizes(known)}) == len(known)
    assert revisions.parse(revisions.data(known)) == known
    assert [one.number for one in known] == sorted(one.number for one in known)


def test_large_ones_leave_room_for_the_newest() -> None:
    known: list[revisions.Revision] = []
    for number in range(4):
        known = revisions.recorded(known, document(number, padding="x" * 400_000), "now")
    assert [one.number for one in known] == [3, 4]
    assert [one.number for one in revisions.recorded(known, document(1, padding="x" * revisions.MOST), "now")] == [5]


def test_what_somebody_else_has_written_there_is_no_document() -> None:
    data = {**revisions.data(after(1)), "2": "no", "3": "{}", "4": '{"spec": 1}', "5": "[1]", "x": json.dumps(document(3)), "6": "null"}
    assert sizes(revisions.parse(data)) == [(1, 1)]


def test_a_document_of_a_file_is_that_which_the_api_server_filled_in_and_says_no_more_than_it_did() -> None:
    once = json.loads(resolve.model(good()).document)
    again = json.loads(resolve.model(once).document)
    assert once == again
    assert once["spec"]["priorityClasses"]["create"] is True, "the schema's defaults"
    without = good()
    without["spec"].pop("partitions", None)
    assert json.loads(resolve.model(without).document)["spec"]["partitions"] == [], (
        "what follows from the node sets shall go on following them"
    )
