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


def sizes(history: revisions.History) -> list[tuple[int, int]]:
    return [(one.number, one.spec["nodeSets"][0]["replicas"]) for one in history.known]


def run(history: revisions.History, replicas: int, *, well: bool = True) -> revisions.History:
    """What is kept after a run of a document."""
    wanted = document(replicas)
    going = history.trying(wanted)
    if not well:
        return going
    return going.done(wanted, f"2026-01-01T00:00:{replicas:02d}Z") if going.is_pending(wanted) else going


def after(*replicas: int) -> revisions.History:
    history = revisions.History()
    for count in replicas:
        history = run(history, count)
    return history


def test_users_that_a_document_leaves_out_are_told_until_a_run_without_them_has_ended() -> None:
    both = document(1, users=[{"name": "ada"}, {"name": "bob"}])
    one = document(1, users=[{"name": "ada"}, {"name": "eve"}])
    assert revisions.History().removed_users(one) == []
    history = revisions.History().trying(both)
    assert history.removed_users(one) == ["bob"], "that run may have made them"
    history = history.done(both, "2026-01-01T00:00:00Z")
    assert history.removed_users(document(1)) == ["ada", "bob"]
    assert history.removed_users(both) == []
    assert history.trying(one).removed_users(one) == ["bob"], "a run that was cut off says it again"
    assert history.done(one, "2026-01-01T00:00:01Z").removed_users(one) == []


def test_the_same_document_is_kept_once_and_one_that_comes_again_is_the_newest() -> None:
    history = after(1)
    assert run(history, 1) is history
    assert sizes(after(1, 2, 2)) == [(1, 1), (2, 2)]
    assert sizes(after(1, 2, 3, 1)) == [(2, 2), (3, 3), (4, 1)]
    newest = after(1, 2).known[-1].to_dict()
    assert newest == {"revision": 2, "recorded": "2026-01-01T00:00:02Z", "image": "slurm:1", "node_sets": {"cpu": 2}}


def test_the_one_before_is_that_before_the_newest_and_back_again() -> None:
    history = after(1, 2, 3)
    assert history.chosen(None, "demo").number == 2
    back = run(history, 2)
    assert sizes(back) == [(1, 1), (3, 3), (4, 2)]
    assert back.chosen(None, "demo").number == 3
    assert history.chosen(1, "demo").number == 1


def test_from_one_that_failed_the_way_back_leads_to_the_last_that_did_not() -> None:
    failed = run(after(1, 2), 3, well=False)
    assert sizes(failed) == [(1, 1), (2, 2)]
    assert failed.chosen(None, "demo").number == 2
    assert run(failed, 3, well=False) is failed, "it is noted once"
    again = run(failed, 4, well=False)
    assert again.chosen(None, "demo").number == 2
    assert run(run(again, 2, well=False), 2) == after(1, 2), "back, and nothing is left of it"
    assert sizes(run(again, 4)) == [(1, 1), (2, 2), (3, 4)]
    assert run(after(1), 2, well=False).chosen(None, "demo").number == 1


@pytest.mark.parametrize(("known", "number", "words"), [([], None, "kept: none"), ([1], None, "kept: 1"), ([1, 2], 7, "there are 1, 2")])
def test_one_that_is_not_kept(known: list[int], number: int | None, words: str) -> None:
    with pytest.raises(CorralError, match=words):
        after(*known).chosen(number, "demo")


@given(st.lists(st.tuples(st.integers(0, 15), st.booleans()), max_size=60))
def test_ten_at_most_and_they_come_back_as_they_were(runs: list[tuple[int, bool]]) -> None:
    history = revisions.History()
    for replicas, well in runs:
        history = run(history, replicas, well=well)
    assert len(history.known) <= revisions.KEEP
    assert len({count for _number, count in sizes(history)}) == len(history.known)
    assert revisions.parse(history.data()) == history
    assert [one.number for one in history.known] == sorted(one.number for one in history.known)


def test_large_ones_leave_room_for_the_newest() -> None:
    history = revisions.History()
    for number in range(4):
        history = history.done(document(number, padding="x" * 400_000), "now")
    assert [one.number for one in history.known] == [3, 4]
    assert [one.number for one in history.done(document(1, padding="x" * revisions.MOST), "now").known] == [5]


def test_older_documents_make_room_for_one_that_is_tried() -> None:
    history = after(1, 2)
    for number, size in ((3, 300_000), (4, 300_000)):
        history = history.done(document(number, padding="x" * size), "now")
    trying = history.trying(document(5, padding="x" * 500_000))
    assert [one.number for one in trying.known] == [4], "the newest is what one goes back to"
    assert trying.tried == document(5, padding="x" * 500_000)
    assert [one.number for one in trying.done(document(5, padding="x" * 500_000), "now").known] == [4, 5]
    # With it there would be no room at all, and no run.
    alone = history.trying(document(6, padding="x" * 790_000))
    assert (alone.known, alone.size < 1_048_576) == ((), True)
    assert history.trying(document(4, padding="x" * 300_000)) is history


def test_what_somebody_else_has_written_there_is_no_document() -> None:
    data = {
        **after(1).data(),
        "2": "no",
        "3": "{}",
        "4": '{"spec": 1}',
        "5": "[1]",
        "x": json.dumps(document(3)),
        "6": "null",
        "tried": "[]",
    }
    assert revisions.parse(data) == after(1)


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
