# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields that Kubernetes changes for nobody: which of them stand in the way, and the command that clears it."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Status

# As Kubernetes' validation words it: k8s.io/kubernetes, pkg/apis/*/validation/validation.go.
_REFUSALS = re.compile(
    r"field is immutable|immutable when|updates to \S+ spec for fields other than|cannot change roleRef|may not change once set|is immutable after creation"
    r"|may not be changed in an update|updates to \S+ are forbidden|pod updates may not|existing toleration can not be modified"
)
# The API server names the fields of a StatefulSet's spec that may be changed, and not the one that was.
_MAY_CHANGE = frozenset(
    (
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    )
)
# Their pods run on, and the next object of the name takes them over.
_ADOPTED = frozenset(("StatefulSet", "Deployment", "ReplicaSet", "DaemonSet"))
# To delete these is to lose what they hold.
_HOLD_DATA = frozenset(("PersistentVolumeClaim", "PersistentVolume", "Secret", "CustomResourceDefinition", "Namespace"))


def is_refused(status: Status) -> bool:
    """True when the object was refused because of a field that cannot be changed."""
    return (
        status.code in (403, 422) and _REFUSALS.search(" ".join((status.message, *(cause.message for cause in status.causes)))) is not None
    )


def changed(ref: Ref, body: dict[str, Any], live: dict[str, Any] | None) -> list[str]:
    """Return the names of a StatefulSet's fields that differ and cannot be changed; other kinds are told field by field by the API server."""
    if ref.resource.kind != "StatefulSet" or live is None:
        return []
    wanted, there = body.get("spec") or {}, live.get("spec") or {}
    return [f"spec.{key}" for key, value in wanted.items() if key not in _MAY_CHANGE and not _within(value, there.get(key))]


def _within(wanted: Any, live: Any) -> bool:
    """True when ``live`` says all that ``wanted`` says; it has defaults besides."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(_within(value, live.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(live, list) and len(wanted) == len(live) and all(map(_within, wanted, live))
    return bool(wanted == live)


def way_out(ref: Ref, fields: list[str]) -> str:
    """Return the sentence that ends the refusal."""
    what = f"{', '.join(fields)} cannot be changed" if fields else "that cannot be changed"
    kind = ref.resource.kind.lower()
    where = f" -n {ref.namespace}" if ref.namespace else ""
    if ref.resource.kind in _HOLD_DATA:
        return f"{what} in an object that exists, and to delete {ref} may lose what it holds: set the field back, or give the object another name"
    orphan = " --cascade=orphan" if ref.resource.kind in _ADOPTED else ""
    stays = " (its pods run on)" if orphan else ""
    return (
        f"{what} in an object that exists: 'kubectl{where} delete {kind} {ref.name}{orphan}'{stays}, then run again, or set the field back"
    )
