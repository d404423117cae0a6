# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of slurm_why: what slurmctld says of a node and what Kubernetes says of its pod, put together."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import evidence, lost_keys
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import describe
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist, nodes, why
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import Slurmctld, connected


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Explain nodes; the parameters are those of the module slurm_why.

    Returns ``cluster``, ``namespace``, ``nodes``, ``lines``, ``requests``. Raises CorralError.
    """
    del check, diff  # nothing is changed in any mode
    names = hostlist.expand(str(params.get("nodes") or ""))
    with connected(params) as client:
        slurmctld = Slurmctld(client, params)
        where = {"cluster": slurmctld.cluster, "namespace": slurmctld.namespace}
        found, full = slurmctld.read_nodes_and_room(future=True)
        known = {node.name: node for node in found}
        partitions = {one.name: one for one in slurmctld.read_partitions()}
        if names:
            asked = [known[name] for name in dict.fromkeys(names) if name in known]
        else:
            asked = [node for node in known.values() if _away(node) or why.closed(node, partitions)]
        unknown_names = [name for name in dict.fromkeys(names) if name not in known]
        reservations = {one.name: one for one in slurmctld.read_reservations()} if any(node.reservation for node in asked) else {}
        pods = _Pods(slurmctld)
        verdicts = [
            why.explain(
                node,
                **where,
                pod=pods.of(node.name) if _away(node) else None,
                partitions=partitions,
                reservations=reservations,
                now=time.time(),
            )
            for node in asked
        ]
        verdicts += [why.unknown(name, pod=pods.of(name), known=hostlist.compress(known), **where) for name in unknown_names]
        lines = [verdict.summary for verdict in verdicts] or ["All nodes are in service."]
        if full:
            lines.append(full)
        lines += pods.lost_keys()
        return {"changed": False, **where, "nodes": [one.to_dict() for one in verdicts], "lines": lines, "requests": client.requests}


def _away(node: nodes.Node) -> bool:
    return not node.answers or node.drained or bool({"MAINTENANCE", "RESERVED"} & set(node.state))


class _Pods:
    """The workers' pods and their Kubernetes nodes; a right that is missing gives no words, and hides nothing of what Slurm says."""

    def __init__(self, slurmctld: Slurmctld) -> None:
        self._slurmctld = slurmctld
        self._kubernetes_nodes: dict[str, tuple[str, str]] = {}
        self._prefix = ""
        self._pods: dict[str, dict[str, Any]] | None = None
        try:
            found = slurmctld.cluster_pods("")
        except CorralError:
            return
        self._pods = {str(pod["metadata"]["name"]): pod for pod in found}
        labels = (self._pods.get(slurmctld.pod) or {"metadata": {}})["metadata"].get("labels") or {}
        instance = labels.get("app.kubernetes.io/instance")
        self._prefix = f"{instance}-" if instance else ""

    def of(self, node: str) -> why.Pod:
        """Return what Kubernetes says of a node's pod."""
        name = f"{self._prefix}{node}"
        if self._pods is None:
            return why.Pod(name)
        pod = self._pods.get(name)
        if pod is None:
            return why.Pod(name, there=False)
        trouble = describe(pod)
        if trouble:
            ref = Ref(BUILTIN["", "Pod"], self._slurmctld.namespace, name)
            # Its own words come first there, so that nothing is said twice.
            trouble = evidence.why(self._slurmctld.client, ref, pod, [pod]) or trouble
        kubernetes_node, note = self._kubernetes_node(str((pod.get("spec") or {}).get("nodeName") or ""))
        return why.Pod(name, there=True, trouble=trouble, kubernetes_node=kubernetes_node, note=note)

    def lost_keys(self) -> list[str]:
        """Report which Secrets the pods run with that are gone: nothing else shows it before one of them is replaced."""
        return lost_keys.warnings(self._slurmctld.client, self._slurmctld.namespace, (self._pods or {}).values())

    def _kubernetes_node(self, name: str) -> tuple[str, str]:
        """Return what is wrong with a Kubernetes node, and what else is to be known of it."""
        if not name:
            return "", ""
        if name not in self._kubernetes_nodes:
            try:
                live = self._slurmctld.client.get(f"/api/v1/nodes/{name}", what=f"read Node {name}").data
            except KubeError:  # mostly no right: nodes are the whole cluster's
                live = {}
            self._kubernetes_nodes[name] = (
                _unready(name, live),
                f"Kubernetes node {name} is cordoned" if (live.get("spec") or {}).get("unschedulable") else "",
            )
        return self._kubernetes_nodes[name]


def _unready(name: str, kubernetes_node: dict[str, Any]) -> str:
    for condition in (kubernetes_node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            message = " ".join(str(condition.get("message", "")).split())
            return f"Kubernetes node {name} is not ready ({condition.get('reason', 'no reason given')}: {message})"
    return ""
