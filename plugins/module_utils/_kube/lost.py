# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys that are gone while pods run with them: a new key would part those from all that come later, and nobody would say why."""

from __future__ import annotations

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Conflict, Status

Json = dict[str, Any]


def refuse(client: Client, secret: Ref, keys: list[str]) -> None:
    """Raise Conflict with the way out when pods run with the Secret that is gone, or has lost all of ``keys``. One list, and only where that is so."""
    collection = BUILTIN["", "Pod"].path(secret.namespace)
    users = [pod for pod in client.items(collection, what=f"list pods to see who uses {secret}", query={}) if uses(pod, secret.name)]
    if not users:
        return
    where = next((place for pod in users for place in places(pod, secret.name, keys)), "")
    names = ", ".join(str(pod["metadata"]["name"]) for pod in users[:3]) + (f" and {len(users) - 3} more" if len(users) > 3 else "")
    one = keys[0]
    if where:
        made = " ".join(f"--from-file={key}" for key in keys)
        others = f", and in the same way {', '.join(keys[1:])}" if len(keys) > 1 else ""
        restore = (
            f"restore it from a pod: 'kubectl -n {secret.namespace} exec {where.format(key=one)} > {one}'{others}, then "
            f"'kubectl -n {secret.namespace} create secret generic {secret.name} {made}'"
        )
    else:
        restore = "restore it from a backup"
    text = (
        f"{secret} is gone, or has lost {', '.join(keys)}, while pods run with it ({names}); new pods could not join them with another, so none was made. "
        f"To go on, {restore}, and run again; or delete those pods, whose jobs end with them, and a new one is made"
    )
    raise Conflict(f"{text}.", Status(409, "Conflict", text))


def uses(pod: Json, name: str) -> bool:
    """True for a pod that runs, and has the Secret among its volumes: what it holds of it stays when the Secret goes."""
    status = pod.get("status") or {}
    if status.get("phase") != "Running" or pod["metadata"].get("deletionTimestamp"):
        return False
    return bool(_volumes(pod, name))


def _volumes(pod: Json, name: str) -> dict[str, dict[str, str]]:
    """Return the volumes that hold the Secret, each with the files of the keys that it renames."""
    found: dict[str, dict[str, str]] = {}
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        own = volume.get("secret") or {}
        sources = [source.get("secret") or {} for source in (volume.get("projected") or {}).get("sources") or ()]
        for source, called in ((own, own.get("secretName")), *((one, one.get("name")) for one in sources)):
            if called == name:
                found[str(volume["name"])] = {str(item["key"]): str(item["path"]) for item in source.get("items") or ()}
    return found


def places(pod: Json, name: str, keys: list[str]) -> list[str]:
    """Return how a pod is asked for a key's file, with ``{key}`` where a key's name belongs, for each container that has it."""
    spec = pod.get("spec") or {}
    status = pod.get("status") or {}
    running = {
        one["name"]
        for one in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
        if "running" in (one.get("state") or {})
    }
    volumes = _volumes(pod, name)
    found: list[str] = []
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        for mount in container.get("volumeMounts") or ():
            if container["name"] not in running or mount["name"] not in volumes or mount.get("subPath"):
                continue
            renamed = volumes[mount["name"]]
            file = renamed.get(keys[0], "{key}") if len(keys) == 1 else "{key}"
            found.append(f"{pod['metadata']['name']} -c {container['name']} -- cat {mount['mountPath'].rstrip('/')}/{file}")
    return found
