# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many nodes people or autoscalers have asked for, by objects with a scale subresource."""

from __future__ import annotations

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import Resource
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import NotFound

NODE_SETS = Resource("corral.hpc", "v1alpha1", "SlurmNodeSet", "slurmnodesets", namespaced=True, builtin=False)


def read(client: Client, namespace: str, node_sets: list[dict[str, Any]]) -> tuple[dict[str, int] | None, list[str]]:
    """Return the sizes that are asked for by node set, None where the API server does not know the kind, and the sets whose object is missing.

    ``node_sets`` are those of model.Scaling.scaled. A set without an object, or whose object has no number, has the document's size. Raises KubeError.
    """
    try:
        found = client.items(NODE_SETS.path(namespace), what=f"list the SlurmNodeSets in {namespace}", query={})
    except NotFound:
        return None, []
    live = {str(one["metadata"]["name"]): one for one in found}
    sizes: dict[str, int] = {}
    for wanted in node_sets:
        there = live.get(str(wanted["object"]), {})
        # One that somebody has made by hand, without a number, is none to go by.
        sizes[str(wanted["name"])] = int((there.get("spec") or {}).get("replicas", wanted["replicas"]))
    return sizes, [str(one["name"]) for one in node_sets if str(one["object"]) not in live]
