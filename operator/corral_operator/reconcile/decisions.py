# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides what to do about a cluster, and when to reconcile it again. Pure: it contains the controller's whole policy."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from corral_operator.reconcile.children import Child, fingerprint
from corral_operator.reconcile.metadata import REQUESTED, annotation, deleting, has_finalizer, paused

Json = dict[str, Any]

# The number of runs or repairs in a row that counts as a conflict with another writer.
CONFLICT = 5


class Action(Enum):
    """WAIT: a watch will requeue the cluster; REST: do nothing; KEEP: the cluster matches its document already."""

    WAIT = "wait"
    REST = "rest"
    KEEP = "keep"
    STALL = "stall"
    APPLY = "apply"
    DESTROY = "destroy"
    RELEASE = "release"


@dataclass(frozen=True)
class Decision:
    """An action, and the reason and the message for the status, of STALL and of DESTROY with an invalid document."""

    action: Action
    reason: Literal["", "DocumentInvalid", "NotPermitted"] = ""
    message: str = ""


def observed(document: Json, content: str, children: list[Child]) -> str:
    """Return the fingerprint of everything that a run depends on: the document, the content of the playbooks, and the observed objects."""
    inputs = document.get("spec"), annotation(document, REQUESTED), content, fingerprint(children)
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


def decide(
    document: Json, *, children: list[Child] | None, refused: str, errors: str, content: str, last: str, touched: bool, forced: bool
) -> Decision:
    """Return the action for a document.

    ``children`` is None until they have been listed; ``refused`` is why the namespace cannot be read; ``errors`` are those of the document;
    ``last`` is ``observed`` of the last run that changed nothing; ``touched``: a run may have created objects; ``forced``: run even if nothing
    seems to have changed.
    """
    is_deleting = deleting(document)
    if is_deleting and not has_finalizer(document):
        return Decision(Action.REST)
    if paused(document):
        return Decision(Action.REST)
    if refused:
        if is_deleting and not touched:
            return Decision(Action.RELEASE)
        return Decision(Action.STALL, "NotPermitted", refused)
    if children is None:
        return Decision(Action.WAIT)
    if is_deleting and not children and (errors or not touched):
        return Decision(Action.RELEASE)
    if errors:  # a cluster is destroyed by the document that it was created by
        return Decision(Action.DESTROY if is_deleting else Action.STALL, "DocumentInvalid", errors)
    if is_deleting:
        return Decision(Action.DESTROY)
    # Without the finalizer a removed operator has released the document, so it must be claimed again.
    if touched and not forced and last and last == observed(document, content, children):
        return Decision(Action.KEEP)
    return Decision(Action.APPLY)


def next_probe(*, draining: bool, busy: bool, idle: bool, again: float, every: float) -> float | None:
    """Return in how many seconds Slurm is probed for what Kubernetes does not show, such as ended jobs. None: not before a change in Kubernetes.

    ``draining``: some Kubernetes nodes are draining, ``busy``: with jobs; ``idle``: the document allows the eviction of pods of idle nodes. ``every`` is the
    longest interval, 0 for none.
    """
    if draining and busy:
        return min(again, every or again)
    if draining or idle:
        return min(4 * again, every or 4 * again)
    return every or None


def conflict_backoff(repairs: int, most: float) -> float:
    """Return for how long an object is left alone after this number of repairs in a row: another writer changes it too."""
    return 0.0 if repairs < CONFLICT else min(most, 2.0 ** min(repairs, 20))


@dataclass(frozen=True)
class Settled:
    """After a successful run: the ``hash`` to store, or else ``again``, the pause until the next run (None: none is needed)."""

    hash: str = ""
    again: float | None = None


def settle(
    *, changed: int, waiting: bool, left: bool, before: str, after: str, unsettled: int, scale_again: float, backoff_most: float
) -> Settled:
    """Decide whether a cluster is known to match its document.

    Only a run that changed nothing, with the same objects before and after it, proves that. Otherwise another run is needed: a change that a watch has
    not delivered yet must not be taken for intended. A cluster that never settles gets runs less and less often.
    """
    if waiting:
        return Settled(again=scale_again)
    if left and not changed:
        return Settled(again=4 * scale_again)
    if not changed and before == after:
        return Settled(hash=after)
    return Settled(again=0.3 if unsettled < 4 else min(backoff_most, 2.0 ** min(unsettled, 20)))
