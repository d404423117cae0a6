# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A document's metadata: its operator, requests by annotations, and the order of documents. Pure."""

from __future__ import annotations

import math
from typing import Any

Json = dict[str, Any]
# A key of the work queue: namespace and name of the cluster, and a third element for corral.slurm.sync and corral.slurm.tenants.
Key = tuple[str, ...]

API = "/apis/corral.hpc/v1alpha1"
FINALIZER = "corral.hpc/destroy"
PAUSED = "corral.hpc/paused"
REQUESTED = "corral.hpc/requested-at"
RESYNC = "corral.hpc/resync"
# The annotation with the operator that manages the document; no other operator writes to it.
OWNER = "corral.hpc/operator"
# A lower bound, so that no document can keep the operator busy.
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
    """True if the cluster must not be changed."""
    return annotation(document, PAUSED).lower() == "true"


def resync(document: Json, usual: float) -> float:
    """Return the resync interval in seconds, 0 for never: that of the document, or ``usual``."""
    try:
        own = float(annotation(document, RESYNC) or "none")
    except ValueError:
        return usual
    return max(own, _SHORTEST) if 0 < own < math.inf else 0.0 if own == 0 else usual


def owner(document: Json) -> str:
    """Return the operator that manages the document; "" if none does."""
    return annotation(document, OWNER)


def has_finalizer(document: Json) -> bool:
    """True if the document has the operator's finalizer."""
    return FINALIZER in ((document.get("metadata") or {}).get("finalizers") or ())


def deleting(document: Json) -> bool:
    """True if the document is being deleted."""
    return bool((document.get("metadata") or {}).get("deletionTimestamp"))


def older(document: Json, than: Json) -> bool:
    """True if an object was written before another one; resourceVersions only grow."""
    version, other = str(document["metadata"].get("resourceVersion", "")), str(than["metadata"].get("resourceVersion", ""))
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


def age(document: Json) -> tuple[str, str]:
    """Return a key that orders documents by creation time, and within the same second by uid."""
    metadata = document["metadata"]
    return str(metadata.get("creationTimestamp", "")), str(metadata.get("uid", ""))


def desired_state(document: Json, us: str) -> tuple[object, ...]:
    """Return what a user asks for in a document, from the view of the operator ``us``; anything else is written by operators.

    The generation is not enough: another CustomResourceDefinition prunes or defaults other fields of the same generation.
    """
    return (
        document["metadata"].get("generation"),
        document.get("spec"),
        deleting(document),
        paused(document),
        annotation(document, REQUESTED),
        owner(document) not in ("", us),
    )
