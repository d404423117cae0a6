# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be done about a cluster now, and when it is looked at again. Pure: the whole policy of the controller is here."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from corral_operator.reconcile.children import Child, fingerprint
from corral_operator.reconcile.metadata import REQUESTED, annotation, deleting, held, paused

Json = dict[str, Any]

# Runs or repairs in a row after which somebody else is thought to write the same objects.
CONFLICT = 5


class Action(Enum):
    """WAIT: something comes by itself that requeues the cluster; REST: nothing may be done; KEEP: all is as the document says already."""

    WAIT = "wait"
    REST = "rest"
    KEEP = "keep"
    STALL = "stall"
    APPLY = "apply"
    DESTROY = "destroy"
    RELEASE = "release"


@dataclass(frozen=True)
class Decision:
    """An action, and the reason and the message for the status: of STALL, and of DESTROY where the document can not be used."""

    action: Action
    reason: str = ""
    message: str = ""


def observed(document: Json, content: str, children: list[Child]) -> str:
    """Return the fingerprint of everything that a run depends on: the document, the content of the playbooks, and the objects as they are."""
    what = document.get("spec"), annotation(document, REQUESTED), content, fingerprint(children)
    return hashlib.sha256(json.dumps(what, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


def decide(
    document: Json, *, children: list[Child] | None, refused: str, mistakes: str, content: str, last: str, touched: bool, forced: bool
) -> Decision:
    """Return what to do.

    ``children`` is None until they have been seen; ``refused`` says why the namespace may not be looked at; ``mistakes`` what is wrong with the document;
    ``last`` is ``observed`` of the last run that found nothing to do; ``touched``: a run may have made something; ``forced``: also a cluster
    that seems to be as it was gets a run.
    """
    going = deleting(document)
    if going and not held(document):
        return Decision(Action.REST)
    if paused(document):
        return Decision(Action.REST)
    if refused:
        if going and not touched:
            return Decision(Action.RELEASE)
        return Decision(Action.STALL, "NotPermitted", refused)
    if children is None:
        return Decision(Action.WAIT)
    if going and not children and (mistakes or not touched):
        return Decision(Action.RELEASE)
    if mistakes:  # a cluster is taken away by the document that it was made by
        return Decision(Action.DESTROY if going else Action.STALL, "DocumentInvalid", mistakes)
    if going:
        return Decision(Action.DESTROY)
    # Without the finalizer it is as an operator left it that was taken away since: it has to be held again.
    if touched and not forced and last and last == observed(document, content, children):
        return Decision(Action.KEEP)
    return Decision(Action.APPLY)


def next_probe(*, leaving: bool, busy: bool, idle: bool, again: float, every: float) -> float | None:
    """Return in how many seconds Slurm is asked again for what Kubernetes can not tell: that jobs have ended. None: not before Kubernetes changes something.

    ``leaving``: nodes are on machines that go, ``busy``: with jobs; ``idle``: the document lets pods of idle nodes be evicted. ``every``: so often in any
    case, 0 for never.
    """
    if leaving and busy:
        return min(again, every or again)
    if leaving or idle:
        return min(4 * again, every or 4 * again)
    return every or None


def conflict_backoff(repairs: int, most: float) -> float:
    """Return for how long an object is left alone that was set back so often in a row, each time soon after the last: somebody else writes it too."""
    return 0.0 if repairs < CONFLICT else min(most, 2.0 ** min(repairs, 20))


@dataclass(frozen=True)
class Settled:
    """After a good run: ``hash`` to remember, or else ``again``, the pause until the next run (None: none is needed)."""

    hash: str = ""
    again: float | None = None


def settle(
    *, changed: int, waiting: bool, left: bool, before: str, after: str, unsettled: int, scale_again: float, backoff_most: float
) -> Settled:
    """Decide whether a cluster is known to be as its document says.

    Only a run that changed nothing, over objects that were the same before and after it, proves that. Anything else takes one more run: what a
    watch has not told yet, or what somebody did in between, must not be taken for wanted. A cluster that never settles gets runs ever more seldom.
    """
    if waiting:
        return Settled(again=scale_again)
    if left and not changed:
        return Settled(again=4 * scale_again)
    if not changed and before == after:
        return Settled(hash=after)
    return Settled(again=0.3 if unsettled < 4 else min(backoff_most, 2.0 ** min(unsettled, 20)))
