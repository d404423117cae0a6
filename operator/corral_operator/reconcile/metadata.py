# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a document's metadata says: whose it is, what is asked of its operator, and which of two was written first. Pure."""

from __future__ import annotations

import math
from typing import Any

Json = dict[str, Any]
# Of the work queue: the first two words name the cluster, a third one another errand for it.
Key = tuple[str, ...]

API = "/apis/corral.hpc/v1alpha1"
FINALIZER = "corral.hpc/destroy"
PAUSED = "corral.hpc/paused"
REQUESTED = "corral.hpc/requested-at"
RESYNC = "corral.hpc/resync"
# Names the operator that looks after the document; no other one writes anything of it.
OWNER = "corral.hpc/operator"
# A cluster shall not be able to keep the operator from the others.
_SHORTEST = 60.0


def key(document: Json) -> Key:
    """Return the document's namespace and name."""
    return str(document["metadata"]["namespace"]), str(document["metadata"]["name"])


def path(cluster: Key) -> str:
    """Return the path of a document."""
    return f"{API}/namespaces/{cluster[0]}/slurmclusters/{cluster[1]}"


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


def deleting(document: Json) -> bool:
    """True when the document shall go."""
    return bool((document.get("metadata") or {}).get("deletionTimestamp"))


def older(document: Json, than: Json) -> bool:
    """True for an object that was written before another; versions of the API server's store only grow."""
    version, other = str(document["metadata"].get("resourceVersion", "")), str(than["metadata"].get("resourceVersion", ""))
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


def age(document: Json) -> tuple[str, str]:
    """Order documents by when they were made, and those of one second by what never changes."""
    metadata = document["metadata"]
    return str(metadata.get("creationTimestamp", "")), str(metadata.get("uid", ""))


def wish(document: Json, us: str) -> tuple[object, ...]:
    """Return what of a document is somebody's wish, to the operator ``us``; a change of anything else is an operator's own writing.

    The generation does not tell all: with another definition the same document has other fields, those that it prunes or gives a default.
    """
    return (
        document["metadata"].get("generation"),
        document.get("spec"),
        deleting(document),
        paused(document),
        annotation(document, REQUESTED),
        owner(document) not in ("", us),
    )
