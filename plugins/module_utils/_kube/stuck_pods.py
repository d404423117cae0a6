# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods of an older template than their StatefulSet's: those that keep it from healing, since they cannot start, and those that nobody replaces.

A StatefulSet waits for a pod that cannot start for ever (kubernetes.io, StatefulSets, "Forced rollback"), and with OnDelete it never replaces any. A
pod goes only when one of its containers waits to be started; with OnDelete, where somebody else says when work may end, only when none of them runs.
"""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.delete import delete
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import Item

_BROKEN = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
# The label by which a StatefulSet's pod says of which template it is.
REVISION = "controller-revision-hash"
# The StatefulSet controller needs some milliseconds to see a new template; without its word nothing is deleted. Seconds.
_OBSERVED = 10.0


def replace(client: Client, items: list[Item], *, check: bool) -> list[Ref]:
    """Delete the stuck pods of the StatefulSets among ``items`` and return them. No request is made for a set whose pods are all ready."""
    gone: list[Ref] = []
    for item in items:
        if item.ref.resource.kind != "StatefulSet" or item.imagined or item.after is None or _is_ready(item.after):
            continue
        gone.extend(_replace(client, item, check=check))
    return gone


def _is_ready(live: dict[str, Any]) -> bool:
    status = live.get("status") or {}
    return int(status.get("readyReplicas") or 0) >= int(live["spec"].get("replicas", 1))


def outdated(client: Client, items: list[Item], *, check: bool, waits: bool = True) -> list[str]:
    """Return the names of those StatefulSets among ``items`` with OnDelete that have pods of an older template, or in check mode would have them.

    No request is made for a set that this batch has not changed, and with ``waits`` False for none: a set that ends hundreds of pods is not seen by its
    controller before it has told them all.
    """
    found: list[str] = []
    for item in items:
        if item.ref.resource.kind != "StatefulSet" or item.after is None or item.imagined or not on_delete(item.after):
            continue
        changes = check and item.before is not None and item.before["spec"]["template"] != item.after["spec"]["template"]
        live = item.after if check or not waits else observed(client, item.ref, item.after)
        status = (live or {}).get("status") or {}
        count = int(status.get("replicas") or 0)
        if (changes and count) or int(status.get("updatedReplicas") or 0) < count:
            found.append(item.ref.name)
    return found


def on_delete(live: dict[str, Any]) -> bool:
    """True for a StatefulSet whose pods are replaced by whoever deletes them."""
    return str((live["spec"].get("updateStrategy") or {}).get("type")) == "OnDelete"


def is_stale(pod: dict[str, Any], live: dict[str, Any]) -> bool:
    """True for a pod of an older template than its StatefulSet's; False while the set's controller has not said which is the newest."""
    status = live.get("status") or {}
    revision = status.get("updateRevision")
    if not revision or int(status.get("observedGeneration") or 0) < int(live["metadata"]["generation"]):
        return False
    return str((pod["metadata"].get("labels") or {}).get(REVISION)) != str(revision)


def observed(client: Client, ref: Ref, live: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a StatefulSet once its controller has seen the generation of ``live``; None where it does not."""
    deadline = time.monotonic() + _OBSERVED
    while live is not None and int((live.get("status") or {}).get("observedGeneration") or 0) < int(live["metadata"]["generation"]):
        if time.monotonic() > deadline:
            return None
        time.sleep(0.1)
        live = client.get(ref.path, what=f"read {ref}").data
    return live


def one_less(client: Client, ref: Ref) -> dict[str, Any]:
    """Return a StatefulSet once its status shows that a pod that was deleted is not ready any more, or after some seconds."""
    deadline = time.monotonic() + _OBSERVED
    while True:
        live: dict[str, Any] = client.get(ref.path, what=f"read {ref}").data
        if not _is_ready(live) or time.monotonic() > deadline:
            return live
        time.sleep(0.1)


def _replace(client: Client, item: Item, *, check: bool) -> list[Ref]:
    live = item.after if check else observed(client, item.ref, item.after)
    if live is None:
        return []
    selector = ",".join(f"{key}={value}" for key, value in sorted(live["spec"]["selector"]["matchLabels"].items()))
    pod_kind = BUILTIN["", "Pod"]
    namespace = item.ref.namespace
    gone: list[Ref] = []
    for pod in client.items(pod_kind.path(namespace), what=f"list the pods of {item.ref}", query={"labelSelector": selector}):
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp") or not is_stale(pod, live) or not _is_stuck(pod, work_counts=on_delete(live)):
            continue
        ref = Ref(pod_kind, namespace, metadata["name"])
        if delete(client, ref, uid=str(metadata["uid"]), propagation="Background", check=check):
            gone.append(ref)
    return gone


def _is_stuck(pod: dict[str, Any], *, work_counts: bool) -> bool:
    status = pod.get("status") or {}
    states = [container.get("state") or {} for key in ("initContainerStatuses", "containerStatuses") for container in status.get(key) or ()]
    if work_counts and any("running" in (container.get("state") or {}) for container in status.get("containerStatuses") or ()):
        return False
    return any((state.get("waiting") or {}).get("reason") in _BROKEN for state in states)
