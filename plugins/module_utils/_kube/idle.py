# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods of an older template that may go when nobody uses them, which a command in each says: exit code 0 for nobody, else who does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import stuck
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.delete import delete
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ApiError, ExecError, Forbidden
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import run_in_pod
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import Item

_COMMAND = 15.0


@dataclass(frozen=True)
class Question:
    """The command, and the container in which it is run."""

    container: str
    command: list[str]


def replace_next(client: Client, items: list[Item], question: Question) -> tuple[Ref | None, dict[Ref, str]]:
    """Delete the first idle pod of an older template of the StatefulSets with OnDelete, and return it, with what keeps those before it."""
    kept: dict[Ref, str] = {}
    for item in items:
        if item.ref.resource.kind != "StatefulSet" or item.after is None or not stuck.on_delete(item.after):
            continue
        live = stuck.observed(client, item.ref, item.after)
        if live is None:
            continue
        selector = ",".join(f"{key}={value}" for key, value in sorted(live["spec"]["selector"]["matchLabels"].items()))
        path = BUILTIN["", "Pod"].path(item.ref.namespace)
        for pod in client.items(path, what=f"list the pods of {item.ref}", query={"labelSelector": selector}):
            if pod["metadata"].get("deletionTimestamp") or not stuck.is_stale(pod, live):
                continue
            ref = Ref(BUILTIN["", "Pod"], item.ref.namespace, str(pod["metadata"]["name"]))
            why = _in_use(client, ref, pod, question)
            if why:
                kept[ref] = why
            elif delete(client, ref, uid=str(pod["metadata"]["uid"]), propagation="Background"):
                return ref, kept
    return None, kept


def _in_use(client: Client, ref: Ref, pod: dict[str, Any], question: Question) -> str:
    """Say who uses a pod; "" for nobody. One that can not be asked is in use, unless the container does not run."""
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
        return f"it can not be asked ({str(error).rstrip('.')})"
    return "" if done.code == 0 else " ".join(done.stdout.split()) or f"its check ended with exit code {done.code}"
