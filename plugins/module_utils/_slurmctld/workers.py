# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workers' pods, by the nodes that they are."""

from __future__ import annotations

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN

NODE_SET = "corral.hpc/node-set"

_PODS = BUILTIN["", "Pod"]


def pods(client: Client, namespace: str, selector: str) -> dict[str, dict[str, Any]]:
    """Return the pods of node sets by their nodes. Raises KubeError."""
    found = client.items(_PODS.path(namespace), what=f"list the workers' pods in {namespace}", query={"labelSelector": selector})
    return {
        f"{node_set}-{str(pod['metadata']['name']).rpartition('-')[2]}": pod
        for pod in found
        for node_set in [(pod["metadata"].get("labels") or {}).get(NODE_SET)]
        if node_set
    }
