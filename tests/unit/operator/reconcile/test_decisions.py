# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be done about a cluster, and what a run has proved."""

from __future__ import annotations

from typing import Any

import pytest

from corral_operator.reconcile import decisions, metadata
from corral_operator.reconcile.children import KINDS, Child
from corral_operator.reconcile.decisions import Action

from ..world import document

Json = dict[str, Any]
KIND = {kind.name: kind for kind in KINDS}
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"


def ask(given: Json, **changes: Any) -> decisions.Decision:
    children: list[Child] = [Child("ConfigMap", "a-config", "base", "1")]
    usual: Json = {"children": children, "refused": "", "errors": "", "content": "c", "last": "", "touched": True, "forced": False}
    return decisions.decide(given, **{**usual, **changes})


@pytest.mark.parametrize(
    ("desired", "seconds"),
    [("", 500), ("100", 100), ("1", 60), ("0", 0), ("-5", 500), ("soon", 500), ("inf", 500), ("nan", 500), ("1e400", 500)],
)
def test_how_often_a_cluster_is_probed(desired: str, seconds: float) -> None:
    given = document()
    given["metadata"]["annotations"] = {metadata.RESYNC: desired}
    assert metadata.resync(given, 500) == seconds


def gone(*finalizers: str) -> Json:
    given = document()
    given["metadata"].update(deletionTimestamp=NOW, finalizers=list(finalizers))
    return given


def with_finalizer(**annotations: str) -> Json:
    given = document()
    given["metadata"]["annotations"] = {f"corral.hpc/{key}": value for key, value in annotations.items()}
    return given


@pytest.mark.parametrize(
    ("given", "changes", "deed"),
    [
        (document(), {}, Action.APPLY),
        (document(), {"children": None}, Action.WAIT),
        (document(), {"refused": "No right."}, Action.STALL),
        (document(), {"errors": "Wrong."}, Action.STALL),
        (with_finalizer(paused="true"), {}, Action.REST),
        (with_finalizer(paused="false"), {}, Action.APPLY),
        (gone(metadata.FINALIZER), {}, Action.DESTROY),
        (gone("others"), {}, Action.REST),
        (gone(metadata.FINALIZER), {"refused": "No right."}, Action.STALL),
        (gone(metadata.FINALIZER), {"refused": "No right.", "touched": False}, Action.RELEASE),
        (gone(metadata.FINALIZER), {"errors": "Wrong.", "children": []}, Action.RELEASE),
        (gone(metadata.FINALIZER), {"errors": "Wrong."}, Action.DESTROY),
        (gone(metadata.FINALIZER), {"children": None}, Action.WAIT),
    ],
)
def test_what_is_done(given: Json, changes: Json, deed: Action) -> None:
    assert ask(given, **changes).action is deed


def test_what_is_as_it_was_is_left_alone() -> None:
    children = [Child("ConfigMap", "a-config", "base", "1")]
    word = decisions.observed(document(), "c", children)
    assert ask(document(), last=word).action is Action.KEEP
    assert ask(document(), last=word, forced=True).action is Action.APPLY
    assert ask(document(), last=word, touched=False).action is Action.APPLY, "an operator that was taken away has let it go"
    assert ask(document(), last=word, content="d").action is Action.APPLY
    assert ask(document(partitions=[]), last=word).action is Action.APPLY
    assert ask(with_finalizer(**{"requested-at": "now"}), last=word).action is Action.APPLY
    assert ask(document(), last=word, children=[]).action is Action.APPLY


@pytest.mark.parametrize(
    ("changes", "hashed", "again"),
    [
        ({}, "h", None),
        ({"changed": 1}, "", 0.3),
        ({"after": "i"}, "", 0.3),
        ({"waiting": True}, "", 15.0),
        ({"left": True}, "", 60.0),
        ({"left": True, "waiting": True, "changed": 1}, "", 15.0),
        ({"left": True, "changed": 1}, "", 0.3),
        ({"changed": 1, "unsettled": 6}, "", 64.0),
        ({"changed": 1, "unsettled": 60}, "", 300.0),
    ],
)
def test_only_a_run_that_found_nothing_to_do_proves_it(changes: Json, hashed: str, again: float | None) -> None:
    usual: Json = {
        "changed": 0,
        "waiting": False,
        "left": False,
        "before": "h",
        "after": "h",
        "unsettled": 0,
        "scale_again": 15.0,
        "backoff_most": 300.0,
    }
    assert decisions.settle(**{**usual, **changes}) == decisions.Settled(hashed, again)
