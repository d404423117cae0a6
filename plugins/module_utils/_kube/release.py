# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of k8s_release: takes one finalizer off objects, and no other, whoever writes meanwhile."""

from __future__ import annotations

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import METADATA_LIST, Client, patch_as_seen
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import Discovery, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, NotFound


def release(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Take the finalizer off; the parameters are those of the module k8s_release.

    Returns ``changed``, ``objects`` (one row each), ``requests``, ``writes`` and, with ``diff``, ``diff``. Raises CorralError.
    """
    client = Client(auth.resolve(params))
    rows: list[dict[str, Any]] = []
    diffs: list[dict[str, Any]] = []

    def result() -> dict[str, Any]:
        return {"changed": bool(rows), "objects": rows, "requests": client.requests, "writes": 0 if check else len(rows)}

    try:
        for ref, metadata in _objects(client, params):
            before = list(metadata.get("finalizers") or ())
            if _release(client, ref, metadata, params, check=check):
                rows.append(ref.row("released"))
                after = [one for one in before if one != params["finalizer"]]
                diffs.append(
                    {"before_header": str(ref), "after_header": str(ref), "before": {"finalizers": before}, "after": {"finalizers": after}}
                )
    except KubeError as error:
        error.data = {**result(), **error.data}
        raise
    finally:
        client.close()
    return {**result(), **({"diff": diffs} if diff else {})}


def _objects(client: Client, params: dict[str, Any]) -> list[tuple[Ref, dict[str, Any]]]:
    """Return the objects that are meant, with their metadata. Where there is no such kind there are none."""
    try:
        resource = Discovery(client).resource(str(params["api_version"]), str(params["kind"]))
    except NotFound:
        return []
    query = {"labelSelector": str(params["selector"])} if params.get("selector") else {}
    found: list[tuple[Ref, dict[str, Any]]] = []
    for namespace in params.get("namespaces") or [None]:
        for obj in client.items(resource.path(namespace), what=f"list the {resource.plural}", query=query, accept=METADATA_LIST):
            metadata = obj["metadata"]
            found.append((Ref(resource, metadata.get("namespace"), str(metadata["name"])), metadata))
    return found


def _release(client: Client, ref: Ref, metadata: dict[str, Any], params: dict[str, Any], *, check: bool) -> bool:
    """Return False for an object that carries neither the finalizer nor its owner's name, is somebody else's, or is gone."""
    finalizer, annotation, owner = str(params["finalizer"]), str(params.get("annotation") or ""), str(params.get("owner") or "")
    what = f"take the finalizer {finalizer} off {ref}"

    def change(obj: dict[str, Any]) -> dict[str, Any] | None:
        finalizers = obj["metadata"].get("finalizers") or []
        named = (obj["metadata"].get("annotations") or {}).get(annotation, "")
        if (annotation and named != owner) or not (finalizer in finalizers or named):
            return None
        kept = {"finalizers": [one for one in finalizers if one != finalizer]}
        return {"metadata": {**kept, **({"annotations": {annotation: None}} if named else {})}}

    try:
        query = {"dryRun": "All"} if check else None
        return patch_as_seen(client, ref.path, {"metadata": metadata}, change, what=what, query=query) is not None
    except NotFound:
        return False
