# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents by which a cluster was made: what is kept, in which order, and which is the one before."""

from __future__ import annotations

import base64
import itertools
import json
import lzma
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.corral.slurm.plugins.module_utils._cluster import apiserver, resolve, revisions
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


# So many of 100 characters are of one, two, three and four bytes: of all text that was tried, it is packed the least, to nine tenths.
BLOCKS = {range(0x21, 0x7F): 70, range(0xA1, 0x800): 20, range(0x800, 0xD800): 8, range(0x10000, 0x20000): 2}
ALPHABET = [chr(one) for block in BLOCKS for one in block]
WEIGHTS = list(itertools.accumulate(share / len(block) for block, share in BLOCKS.items() for _one in block))


def noise(size: int, seed: int) -> str:
    """Text of which hardly anything can be packed."""
    text = "".join(random.Random(seed).choices(ALPHABET, cum_weights=WEIGHTS, k=size))
    return text.encode()[:size].decode(errors="ignore")


@pytest.fixture
def tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the room, for packing takes its time."""
    monkeypatch.setattr(revisions, "MOST", revisions.MOST // 10)
    monkeypatch.setattr(revisions, "MOST_TEXT", revisions.MOST_TEXT // 10)


def kept(history: revisions.History) -> list[int]:
    assert revisions.parse(history.data()) == history
    return [one.number for one in history.known]


@pytest.mark.usefixtures("tenth")
def test_large_ones_that_have_nothing_in_common_leave_room_for_the_newest() -> None:
    history = revisions.History()
    for number in range(4):
        history = history.done(document(number, padding=noise(40_000, number)), "now")
    assert kept(history) == [3, 4]
    assert kept(history.done(document(1, padding=noise(120_000, 1)), "now")) == [5]


@pytest.mark.usefixtures("tenth")
def test_older_documents_make_room_for_one_that_is_tried() -> None:
    history = after(1, 2)
    for number in (3, 4):
        history = history.done(document(number, padding=noise(35_000, number)), "now")
    wanted = document(5, padding=noise(50_000, 5))
    trying = history.trying(wanted)
    assert (kept(trying), trying.tried) == ([4], wanted), "the newest is what one goes back to"
    assert kept(trying.done(wanted, "now")) == [4, 5]
    assert history.trying(document(4, padding=noise(35_000, 4))) is history
    # With another there would be no room at all, and no run.
    alone = history.trying(document(6, padding=noise(100_000, 6)))
    assert kept(alone) == [] and alone.tried is not None


@pytest.mark.usefixtures("tenth")
def test_large_ones_that_are_alike_are_kept_beside_one_another() -> None:
    """As those of a site with many users are: the one before is there to go back to, and one of them may be tried."""
    users = [{"name": f"u{number}", "sshKeys": [noise(800, number)]} for number in range(125)]
    history = revisions.History()
    for number in range(5):
        history = history.done(document(number, users=[*users[:number], *users[number + 1 :]]), "now")
    assert kept(history) == [2, 3, 4, 5], "that is all of the text that is ever read"
    last = document(6, users=users[1:])
    trying = history.trying(last)
    assert (kept(trying), trying.removed_users(last)) == ([3, 4, 5], ["u0"])


def test_the_largest_document_fits_into_a_config_map_whatever_it_is_made_of() -> None:
    largest = document(1, padding="")
    largest["spec"]["padding"] = noise(apiserver.MAX_DOCUMENT - len(revisions.text(largest)), 1)
    history = revisions.History().trying(largest)
    assert len(history.packed) < 1 << 20
    assert kept(history) == [] and history.tried == largest
    assert 2 * apiserver.MAX_DOCUMENT + 1000 < revisions.MOST_TEXT, "one that is tried, and the one before"


def packed(text: bytes) -> dict[str, str]:
    return {revisions.KEY: base64.b64encode(lzma.compress(text)).decode()}


def test_what_somebody_else_has_written_there_is_no_document() -> None:
    documents = {
        "1": after(1).known[0].document,
        "2": "no",
        "3": {},
        "4": {"spec": 1},
        "5": [1],
        "x": document(3),
        "6": None,
        "7" * 5000: document(3),
        "tried": [],
    }
    assert revisions.parse(packed(json.dumps(documents).encode())) == after(1)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {revisions.KEY: ""},
        {revisions.KEY: "no base64"},
        {revisions.KEY: base64.b64encode(b"not packed").decode()},
        {revisions.KEY: after(1).data()[revisions.KEY][:-40]},
        packed(b""),
        packed(b"[]"),
        packed(b"{"),
        packed(b"\xff"),
        packed(b"[" * 100_000),
        {"1": json.dumps(document(1))},
    ],
)
def test_what_can_not_be_read_is_none(data: dict[str, str]) -> None:
    assert revisions.parse(data) == revisions.History()


@pytest.mark.parametrize("more", [0, 1])
def test_no_more_is_read_than_is_ever_written(more: int) -> None:
    """A few kilobytes can stand for gigabytes."""
    start = revisions.text({"1": after(1).known[0].document})
    text = start + " " * (revisions.MOST_TEXT - len(start) + more)
    assert revisions.parse(packed(text.encode())) == (revisions.History() if more else after(1))


def test_a_dictionary_that_takes_gigabytes_is_not_read() -> None:
    text = revisions.text({"1": after(1).known[0].document}).encode()
    large = lzma.compress(text, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 64 << 20}])
    assert revisions.parse({revisions.KEY: base64.b64encode(large).decode()}) == revisions.History()


def test_a_python_without_lzma_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    data = after(1).data()
    monkeypatch.setattr(revisions, "lzma", None)
    for ask in (lambda: revisions.parse(data), lambda: after(2).data()):
        with pytest.raises(CorralError, match="built without its module lzma"):
            ask()


def test_a_document_of_a_file_is_that_which_the_api_server_filled_in_and_says_no_more_than_it_did() -> None:
    once = json.loads(resolve.model(good()).document)
    again = json.loads(resolve.model(once).document)
    assert once == again
    assert once["spec"]["priorityClasses"]["create"] is True, "the schema's defaults"
    without = good()
    without["spec"].pop("partitions", None)
    assert json.loads(resolve.model(without).document)["spec"]["partitions"] == [], (
        "what follows from the node sets must continue to follow them"
    )
