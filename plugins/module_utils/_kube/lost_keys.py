# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys that are gone while pods run with them: a new key would separate these pods from all later ones, without any error.

Which keys a Secret had is in its annotation KEYS: what it never had, a key of a newer release's, no pod can hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Conflict, KubeError, NotFound, Status

Json = dict[str, Any]

_NEXT = "Next: run 'ansible-playbook corral.slurm.site', which explains how to restore it."

KEYS = "corral.hpc/keys"


def recorded(live: Json) -> set[str]:
    """Return the keys that a Secret is known to have had."""
    return set(filter(None, str((live["metadata"].get("annotations") or {}).get(KEYS, "")).split(",")))


def missing(live: Json, keys: Iterable[str]) -> list[str]:
    """Return those of ``keys`` that a Secret lacks, or has empty."""
    data = live.get("data") or {}
    return sorted(key for key in keys if not data.get(key))


def warnings(client: Client, namespace: str, pods: Iterable[Json]) -> list[str]:
    """Return a sentence for each Secret that pods run with and that is gone or has lost keys; none for those that may not be read."""
    users: dict[str, list[str]] = {}
    for pod in pods:
        for name in _needed(pod) if is_running(pod) else ():
            users.setdefault(name, []).append(str(pod["metadata"]["name"]))
    found: list[str] = []
    for name, names in sorted(users.items()):
        ref = Ref(BUILTIN["", "Secret"], namespace, name)
        try:
            live = client.get(ref.path, what=f"read {ref}").data
        except NotFound:
            found.append(f"{ref} is gone, while pods run with it ({_some(names)}); pods that start cannot join them. {_NEXT}")
        except KubeError:
            continue
        else:
            keys = missing(live, recorded(live))
            if keys:
                found.append(
                    f"{ref} has lost {', '.join(keys)}, while pods run with it ({_some(names)}); pods that start cannot join them. {_NEXT}"
                )
    return found


def refuse(client: Client, secret: Ref, keys: list[str], *, exists: bool = False) -> None:
    """Raise Conflict with the way out when pods run with the Secret that is gone, or ``exists`` and has lost ``keys``. One list, and only where that is so."""
    collection = BUILTIN["", "Pod"].path(secret.namespace)
    users = [pod for pod in client.items(collection, what=f"list pods to see who uses {secret}", query={}) if uses(pod, secret.name)]
    if not users:
        return
    where = next((place for pod in users for place in places(pod, secret.name, keys)), "")
    names = _some([str(pod["metadata"]["name"]) for pod in users])
    one = keys[0]
    if where:
        made = " ".join(f"--from-file={key}" for key in keys)
        others = f", and in the same way {', '.join(keys[1:])}" if len(keys) > 1 else ""
        create = f"kubectl -n {secret.namespace} create secret generic {secret.name} {made}"
        if exists:  # a kubelet takes the file away, too, in a minute or two
            create += f" --dry-run=client -o yaml | kubectl -n {secret.namespace} apply -f -"
            others += " (where there is no such file any more, the daemon has a copy, which docs/security.md names)"
        restore = f"restore it from a pod: 'kubectl -n {secret.namespace} exec {where.format(key=one)} > {one}'{others}, then '{create}'"
    else:
        restore = "restore it from a backup"
    how = f"has lost {', '.join(keys)}" if exists else "is gone"
    text = (
        f"{secret} {how}, while pods run with it ({names}); new pods could not join them with another, so none was made. "
        f"To go on, {restore}, and run again; or delete those pods, whose jobs end with them, and a new one is made"
    )
    raise Conflict(f"{text}.", Status(409, "Conflict", text))


def uses(pod: Json, name: str) -> bool:
    """True for a pod that runs, and has the Secret among its volumes: what it holds of it stays when the Secret goes."""
    return is_running(pod) and mounts(pod, name)


def mounts(pod: Json, name: str) -> bool:
    """True for a pod that has the Secret among its volumes."""
    return bool(_volumes(pod, name))


def is_running(pod: Json) -> bool:
    """True for a pod that runs and is not being deleted."""
    return (pod.get("status") or {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _sources(volume: Json) -> list[tuple[Json, str]]:
    """Return the Secrets of a volume, each with its name."""
    own = volume.get("secret") or {}
    projected = [source.get("secret") or {} for source in (volume.get("projected") or {}).get("sources") or ()]
    return [(own, str(own.get("secretName", ""))), *((one, str(one.get("name", ""))) for one in projected)]


def _needed(pod: Json) -> set[str]:
    """Return the Secrets without which a pod does not start."""
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return {name for volume in volumes for source, name in _sources(volume) if name and not source.get("optional")}


def _volumes(pod: Json, name: str) -> dict[str, dict[str, str]]:
    """Return the volumes that hold the Secret, each with the files of the keys that it renames."""
    found: dict[str, dict[str, str]] = {}
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        for source, called in _sources(volume):
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
