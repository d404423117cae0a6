# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that keep a StatefulSet from healing: they can not start, and its template has changed since they were made.

A StatefulSet waits for such a pod for ever (kubernetes.io, StatefulSets, "Forced rollback"), and with OnDelete it never replaces any. A pod goes
only when one of its containers waits to be started, so nothing of it runs in there.
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


def _replace(client: Client, item: Item, *, check: bool) -> list[Ref]:
    live = item.after if check else _observed(client, item)
    revision = ((live or {}).get("status") or {}).get("updateRevision")
    if live is None or not revision:
        return []
    selector = ",".join(f"{key}={value}" for key, value in sorted(live["spec"]["selector"]["matchLabels"].items()))
    pod_kind = BUILTIN["", "Pod"]
    namespace = item.ref.namespace
    gone: list[Ref] = []
    for pod in client.items(pod_kind.path(namespace), what=f"list the pods of {item.ref}", query={"labelSelector": selector}):
        metadata = pod["metadata"]
        if (
            metadata.get("deletionTimestamp")
            or metadata.get("labels", {}).get("controller-revision-hash") == revision
            or not _is_stuck(pod)
        ):
            continue
        ref = Ref(pod_kind, namespace, metadata["name"])
        if delete(client, ref, uid=str(metadata["uid"]), propagation="Background", check=check):
            gone.append(ref)
    return gone


def _observed(client: Client, item: Item) -> dict[str, Any] | None:
    """Return the StatefulSet once its controller has seen this generation; None where it does not."""
    live = item.after
    deadline = time.monotonic() + _OBSERVED
    while live is not None and int((live.get("status") or {}).get("observedGeneration") or 0) < int(live["metadata"]["generation"]):
        if time.monotonic() > deadline:
            return None
        time.sleep(0.1)
        live = client.get(item.ref.path, what=f"read {item.ref}").data
    return live


def _is_stuck(pod: dict[str, Any]) -> bool:
    status = pod.get("status") or {}
    states = [container.get("state") or {} for key in ("initContainerStatuses", "containerStatuses") for container in status.get(key) or ()]
    return any((state.get("waiting") or {}).get("reason") in _BROKEN for state in states)
