# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be done about a cluster now. Pure; the whole policy of the controller is here and in ``settle``."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

from corral_operator.reconcile.children import Child, fingerprint

Json = dict[str, Any]

FINALIZER = "corral.hpc/destroy"
PAUSED = "corral.hpc/paused"
REQUESTED = "corral.hpc/requested-at"
RESYNC = "corral.hpc/resync"
# Names the operator that looks after the document; no other one writes anything of it.
OWNER = "corral.hpc/operator"

# Runs or repairs in a row after which somebody else is thought to write the same objects.
FEUD = 5
# A cluster shall not be able to keep the operator from the others.
_SHORTEST = 60.0


class Do(Enum):
    """Deeds. WAIT: something comes by itself that leads to another look; REST: nothing may be done; KEEP: all is as the document says already."""

    WAIT = "wait"
    REST = "rest"
    KEEP = "keep"
    STALL = "stall"
    MAKE = "make"
    DESTROY = "destroy"
    RELEASE = "release"


@dataclass(frozen=True)
class Decision:
    """A deed, and the reason and the sentence for the status: of STALL, and of DESTROY where the document can not be used."""

    do: Do
    reason: str = ""
    message: str = ""


def annotation(document: Json, name: str) -> str:
    """Return an annotation, "" where it is missing."""
    return str(((document.get("metadata") or {}).get("annotations") or {}).get(name, ""))


def paused(document: Json) -> bool:
    """True when nothing shall be done about the cluster."""
    return annotation(document, PAUSED).lower() == "true"


def resync(document: Json, usual: float) -> float:
    """Return after how many seconds the cluster is looked at again by time alone, 0 for never: its own wish, or ``usual`` where it has none."""
    try:
        own = float(annotation(document, RESYNC) or "none")
    except ValueError:
        return usual
    return max(own, _SHORTEST) if 0 < own < math.inf else 0.0 if own == 0 else usual


def owner(document: Json) -> str:
    """Return which operator looks after the document; "" while none does."""
    return annotation(document, OWNER)


def held(document: Json) -> bool:
    """True when the document has the operator's finalizer."""
    return FINALIZER in ((document.get("metadata") or {}).get("finalizers") or ())


def observed(document: Json, content: str, children: list[Child]) -> str:
    """Return one word for everything that a run depends on: the document, the content of the playbooks, and the objects as they are."""
    return word(document.get("spec"), annotation(document, REQUESTED), content, fingerprint(children))


def word(*what: object) -> str:
    """Return one word for all of this."""
    return hashlib.sha256(json.dumps(what, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


def decide(
    document: Json, *, children: list[Child] | None, refused: str, mistakes: str, content: str, hashed: str, touched: bool, again: bool
) -> Decision:
    """Return what to do.

    ``children`` is None until they have been seen; ``refused`` says why the namespace may not be looked at; ``mistakes`` what is wrong with the document;
    ``hashed`` is ``observed`` of the last run that found nothing to do; ``touched``: a run may have made something; ``again``: look even at a cluster
    that seems to be as it was.
    """
    deleting = bool((document.get("metadata") or {}).get("deletionTimestamp"))
    if deleting and not held(document):
        return Decision(Do.REST)
    if paused(document):
        return Decision(Do.REST)
    if refused:
        if deleting and not touched:
            return Decision(Do.RELEASE)
        return Decision(Do.STALL, "NotPermitted", refused)
    if children is None:
        return Decision(Do.WAIT)
    if deleting and not children and (mistakes or not touched):
        return Decision(Do.RELEASE)
    if mistakes:  # a cluster is taken away by the document that it was made by
        return Decision(Do.DESTROY if deleting else Do.STALL, "DocumentInvalid", mistakes)
    if deleting:
        return Decision(Do.DESTROY)
    # Without the finalizer it is as an operator left it that was taken away since: it has to be held again.
    if touched and not again and hashed and hashed == observed(document, content, children):
        return Decision(Do.KEEP)
    return Decision(Do.MAKE)


def next_look(*, leaving: bool, busy: bool, idle: bool, again: float, every: float) -> float | None:
    """Return in how many seconds Slurm is asked again for what Kubernetes can not tell: that jobs have ended. None: not before Kubernetes changes something.

    ``leaving``: nodes are on machines that go, ``busy``: with jobs; ``idle``: the document lets pods of idle nodes be evicted. ``every``: so often in any
    case, 0 for never.
    """
    if leaving and busy:
        return min(again, every or again)
    if leaving or idle:
        return min(4 * again, every or 4 * again)
    return every or None


def calm(repairs: int, most: float) -> float:
    """Return for how long an object is left alone that was set back so often in a row, each time soon after the last: somebody else writes it too."""
    return 0.0 if repairs < FEUD else min(most, 2.0 ** min(repairs, 20))


@dataclass(frozen=True)
class Settled:
    """After a good run: ``hash`` to remember, or else ``again``, the pause until the next look (None: none is needed)."""

    hash: str = ""
    again: float | None = None


def settle(
    *, changed: int, waiting: bool, left: bool, before: str, after: str, unsettled: int, scale_again: float, backoff_most: float
) -> Settled:
    """Decide whether a cluster is known to be as its document says.

    Only a run that changed nothing, over objects that were the same before and after it, proves that. Anything else is looked at once more: what a
    watch has not told yet, or what somebody did in between, must not be taken for wanted. A cluster that never settles is looked at ever more seldom.
    """
    if waiting:
        return Settled(again=scale_again)
    if left and not changed:
        return Settled(again=4 * scale_again)
    if not changed and before == after:
        return Settled(hash=after)
    return Settled(again=0.3 if unsettled < 4 else min(backoff_most, 2.0 ** min(unsettled, 20)))
