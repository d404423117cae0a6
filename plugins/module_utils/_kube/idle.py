# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that users are in, which a command in each says: exit code 0 for nobody, else who uses it.

Those of an older template go when nobody uses them; of those that go in any case, it is told who uses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import stuck_pods
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.delete import delete
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ApiError, ExecError, Forbidden, NotFound
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import run_in_pod
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import Item

_COMMAND = 15.0


@dataclass(frozen=True)
class Question:
    """The command, and the container in which it is run."""

    container: str
    command: list[str]
    wait: bool = False
    """Whether pods that go with fewer replicas are waited for."""


def replace_next(client: Client, items: list[Item], question: Question) -> tuple[Ref | None, dict[Ref, str]]:
    """Delete the first idle pod of an older template of the StatefulSets with OnDelete, and return it, with what keeps those before it."""
    kept: dict[Ref, str] = {}
    for item in items:
        if item.ref.resource.kind != "StatefulSet" or item.after is None or not stuck_pods.on_delete(item.after):
            continue
        live = stuck_pods.observed(client, item.ref, item.after)
        if live is None:
            continue
        for ref, pod in _pods(client, item.ref, live):
            if pod["metadata"].get("deletionTimestamp") or not stuck_pods.is_stale(pod, live):
                continue
            why = _in_use(client, ref, pod, question)
            if why:
                kept[ref] = why
            elif delete(client, ref, uid=str(pod["metadata"]["uid"]), propagation="Background"):
                return ref, kept
    return None, kept


@dataclass(frozen=True)
class UsedPod:
    """A pod that goes while it is in use."""

    ref: Ref
    users: str
    grace: int
    """Seconds that it has to end."""


def used_pods(client: Client, items: list[Item], question: Question, *, check: bool) -> list[UsedPod]:
    """Return the pods in use that go, or in check mode would go, since this batch has changed their StatefulSet. No request for a set that is unchanged."""
    found: list[UsedPod] = []
    for item in items:
        if item.ref.resource.kind != "StatefulSet" or item.after is None or item.imagined or item.result != "configured":
            continue
        fewer = int((item.after.get("status") or {}).get("replicas") or 0) > _wanted(item.after)
        # A dry run's status is that of before, when all pods were older than a template that is to come.
        before = item.before if check else None
        all_older = check and (before is None or before["spec"]["template"] != item.after["spec"]["template"])
        rolls = not stuck_pods.on_delete(item.after) and (before is None or all_older or stuck_pods.on_delete(before))
        live = before or item.after if check or not rolls else stuck_pods.observed(client, item.ref, item.after)
        if not (fewer or rolls) or live is None:
            continue
        for ref, pod in _pods(client, item.ref, live):
            if _is_above(ref, item.after) or (rolls and (all_older or stuck_pods.is_stale(pod, live))):
                found += _used(client, ref, pod, question)
    return found


def ending(client: Client, refs: list[Ref], question: Question) -> list[UsedPod]:
    """Return the pods in use of those StatefulSets among ``refs`` that are there. That it may not be asked keeps nobody from taking them away."""
    found: list[UsedPod] = []
    for ref in refs:
        if ref.resource.kind != "StatefulSet":
            continue
        try:
            live = client.get(ref.path, what=f"read {ref}").data
        except NotFound:
            continue
        for pod_ref, pod in _pods(client, ref, live):
            try:
                found += _used(client, pod_ref, pod, question)
            except Forbidden as error:
                found.append(_one(pod_ref, pod, _unasked(error)))
    return found


def lasting(client: Client, items: list[Item], question: Question) -> list[str]:
    """Report for each pod above the replicas of its StatefulSet that is still there, who uses it and when it ends."""
    found: list[str] = []
    for item in items:
        if item.ref.resource.kind != "StatefulSet" or item.after is None:
            continue
        for ref, pod in _pods(client, item.ref, item.after):
            if _is_above(ref, item.after):
                users = _in_use(client, ref, pod, question) or "it is not in use, and is ending"
                last = pod["metadata"].get("deletionTimestamp")
                by = f" It ends at {last} at the latest;" if last else " Kubernetes has not begun to delete it;"
                found.append(f"{ref} is still there: {users}.{by} run again to wait for it.")
    return found


def warnings(pods: list[UsedPod], *, check: bool) -> list[str]:
    """Return a sentence for each."""
    goes = "would go" if check else "goes"
    return [f"{one.ref} {goes} while it is in use: {one.users}. It has {one.grace} s to end." for one in pods]


def _used(client: Client, ref: Ref, pod: dict[str, Any], question: Question) -> list[UsedPod]:
    users = _in_use(client, ref, pod, question)
    return [_one(ref, pod, users)] if users else []


def _one(ref: Ref, pod: dict[str, Any], users: str) -> UsedPod:
    return UsedPod(ref, users, int(pod["spec"].get("terminationGracePeriodSeconds") or 0))


def _wanted(live: dict[str, Any]) -> int:
    return int(live["spec"].get("replicas", 1))


def _is_above(ref: Ref, live: dict[str, Any]) -> bool:
    """True for a pod that is more than the replicas of its StatefulSet."""
    number = ref.name.rpartition("-")[2]
    return number.isdecimal() and int(number) >= _wanted(live)


def _unasked(error: Exception) -> str:
    return f"it cannot be asked ({str(error).rstrip('.')})"


def _pods(client: Client, ref: Ref, live: dict[str, Any]) -> list[tuple[Ref, dict[str, Any]]]:
    """List the pods of a StatefulSet."""
    kind = BUILTIN["", "Pod"]
    selector = ",".join(f"{key}={value}" for key, value in sorted(live["spec"]["selector"]["matchLabels"].items()))
    found = client.items(kind.path(ref.namespace), what=f"list the pods of {ref}", query={"labelSelector": selector})
    return [(Ref(kind, ref.namespace, str(pod["metadata"]["name"])), pod) for pod in found]


def _in_use(client: Client, ref: Ref, pod: dict[str, Any], question: Question) -> str:
    """Report who uses a pod; "" for nobody. One that cannot be asked is in use, unless the container does not run."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    if not any(one.get("name") == question.container and "running" in (one.get("state") or {}) for one in statuses):
        return ""
    try:
        done = run_in_pod(
            client, namespace=str(ref.namespace), pod=ref.name, container=question.container, command=question.command, timeout=_COMMAND
        )
    except Forbidden:
        raise
    except (ApiError, ExecError) as error:
        return _unasked(error)
    return "" if done.code == 0 else " ".join(done.stdout.split()) or f"its check ended with exit code {done.code}"
