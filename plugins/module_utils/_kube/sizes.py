# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of slurm_node_set: objects with a scale subresource, asked for the number that people or autoscalers have set, and made where they are missing.

The number is set once, when the object is made, under a field manager of its own: no run that applies the rest of the object ever has a say in it.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import Ref, Resource
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ApiError, KubeError, NotFound

NODE_SETS = Resource("corral.hpc", "v1alpha1", "SlurmNodeSet", "slurmnodesets", namespaced=True, builtin=False)
MANAGER = "corral-scale"

_CONFLICT = 409


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Return the sizes that are asked for; the parameters are those of the module slurm_node_set.

    Returns ``changed``, ``sizes`` (by node set; None where the API server does not know the kind), ``requests`` and, with ``diff``, ``diff``.
    Raises CorralError.
    """
    client = Client(auth.resolve(params))
    namespace = str(params.get("namespace") or client.access.namespace)
    made: list[str] = []
    try:
        try:
            found = client.items(NODE_SETS.path(namespace), what=f"list the SlurmNodeSets in {namespace}", query={})
        except NotFound:
            return {"changed": False, "sizes": None, "requests": client.requests}
        live = {str(one["metadata"]["name"]): one for one in found}
        sizes: dict[str, int] = {}
        for wanted in params["node_sets"]:
            there = live.get(str(wanted["object"]))
            if there is None:
                made.append(str(wanted["object"]))
                there = {} if check else _make(client, namespace, wanted)
            # One that somebody has made by hand, without a number, is none to go by.
            sizes[str(wanted["name"])] = int((there.get("spec") or {}).get("replicas", wanted["replicas"]))
    except KubeError as error:
        error.data = {"changed": bool(made) and not check, "requests": client.requests, **error.data}
        raise
    finally:
        client.close()
    result: dict[str, Any] = {"changed": bool(made), "sizes": sizes, "requests": client.requests}
    if diff:
        result["diff"] = [
            {"before_header": one["object"], "after_header": one["object"], "before": {}, "after": {"spec": {"replicas": one["replicas"]}}}
            for one in params["node_sets"]
            if one["object"] in made
        ]
    return result


def _make(client: Client, namespace: str, wanted: dict[str, Any]) -> dict[str, Any]:
    ref = Ref(NODE_SETS, namespace, str(wanted["object"]))
    body = {
        "apiVersion": NODE_SETS.api_version,
        "kind": NODE_SETS.kind,
        "metadata": {"name": ref.name, "namespace": namespace, "labels": wanted["labels"]},
        "spec": {"replicas": int(wanted["replicas"])},
    }
    try:
        answer = client.request(
            "POST", ref.collection, what=f"make {ref}", query={"fieldManager": MANAGER}, body=body, retry_conflict=False
        )
    except ApiError as error:
        if error.status.code != _CONFLICT:
            raise
        answer = client.get(ref.path, what=f"read {ref}")  # a first try whose answer was lost, or another run's
    return dict(answer.data)
