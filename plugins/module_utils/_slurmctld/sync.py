# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of slurm_sync: applies Kubernetes' decisions about its nodes to slurmctld, and shows slurmctld's node states on the nodes' pods.

A PodDisruptionBudget of the cluster lets no worker pod be evicted but those with the label EVICTABLE. It is given here, and taken before a node is
resumed. A pod without it, a new one among them, is protected.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import nodes as kubernetes_nodes
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import MERGE, Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Conflict, Forbidden, Invalid, NotFound
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import describe
from ansible_collections.corral.slurm.plugins.module_utils._slurm import draining, hostlist, jobs, sync
from ansible_collections.corral.slurm.plugins.module_utils._slurm.nodes import Node, counts
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import conditions
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import Slurmctld, connected, difference

EVICTABLE = "corral.hpc/evictable"

_STRATEGIC = "application/strategic-merge-patch+json"
_MANAGER = "corral-sync"
_INSTANCE = "app.kubernetes.io/instance"
_PROGRESS = logging.getLogger("corral.slurm.progress")

Object = dict[str, Any]


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Poll once, or repeatedly for ``duration`` seconds; the parameters are those of the module slurm_sync.

    Returns ``changed``, ``draining``, ``requests``, ``warnings``, and, where there are workers, ``counts`` (see nodes.counts). Raises CorralError: of several
    polls for the last one only.
    """
    with connected(params) as client:
        work = _Work(client, params, check=check)
        until = time.monotonic() + (0.0 if check else float(params["duration"]))
        while True:
            last = time.monotonic() + float(params["interval"]) > until
            try:
                work.poll()
            except CorralError as error:
                if last or isinstance(error, Forbidden):
                    error.data["changed"] = work.changed
                    raise
                work.log(str(error))
            if last:
                break
            time.sleep(float(params["interval"]))
        result: dict[str, Any] = {"changed": work.changed, "draining": work.draining_nodes, "requests": client.requests}
        if work.counts:
            result["counts"] = work.counts
        if work.warnings:
            result["warnings"] = list(work.warnings.values())
        if diff and work.changed:
            result["diff"] = difference("nodes and their pods", work.before, work.after)
        return result


class _Work:
    def __init__(self, client: Client, params: dict[str, Any], *, check: bool) -> None:
        self._client = client
        self._params = params
        self._check = check
        self._logged: set[str] = set()
        self.changed = False
        self.before: Object = {}
        self.after: Object = {}
        self.draining_nodes: list[Object] = []
        self.counts: dict[str, int] = {}
        self.warnings: dict[str, str] = {}

    def poll(self) -> None:
        """Read the state, and act on it. Raises CorralError."""
        slurmctld = Slurmctld(self._client, self._params)
        causes = self._causes()
        pods = {_node(pod): pod for pod in slurmctld.cluster_pods("worker")}
        places = [_place(name, pod, causes) for name, pod in pods.items()]
        live = slurmctld.read_nodes() if pods else []
        if pods:
            step = sync.step(places, live)
            # Before slurmctld may send a job there.
            for name in step.resume.after:
                self._mark(pods[name], name, evictable=False)
            live = self._execute(slurmctld, step, live)
        known = {node.name: node for node in live}
        unneeded = self._unneeded(places, live)
        # Drained ones too, whoever did it: their conditions show when that has come to its end.
        free = self._free(slurmctld, unneeded | {name for name in pods if name in known and known[name].drained and not known[name].busy})
        for place in places:
            pod = pods[place.node]
            self._mark(pod, place.node, evictable=place.node in unneeded & free)
            if self._params["conditions"]:
                self._show(pod, place.node, known.get(place.node), free=place.node in free)
        if pods:
            self.counts = counts(live, hostlist.expand(str(self._params.get("nodes") or "")))
        self.draining_nodes = [_draining(place, known.get(place.node), free) for place in places if place.must_drain]
        if self.draining_nodes:
            busy = [one["node"] for one in self.draining_nodes if not one["free"]]
            still = f"; jobs are left on {hostlist.compress(busy)}" if busy else "; no job is left there"
            self.log(f"{hostlist.compress(one['node'] for one in self.draining_nodes)} is drained for its Kubernetes node{still}")

    def log(self, message: str) -> None:
        """Log a line of progress, once."""
        if message not in self._logged:
            self._logged = {message}
            _PROGRESS.info("%s", message)

    def _causes(self) -> dict[str, str] | None:
        """Return for each Kubernetes node why it is to be emptied, "" for none; None where Kubernetes nodes cannot be read."""
        try:
            found = self._client.items("/api/v1/nodes", what="list the Kubernetes nodes", query={})
        except Forbidden as error:
            self.warnings["machines"] = (
                f"{str(error).rstrip('.')}; so cordons and taints are not observed, and no worker pod is made evictable for them. "
                "docs/rights.md lists the right that it takes."
            )
            return None
        return {
            str(one["metadata"]["name"]): kubernetes_nodes.cause(one, self._params["taints"], self._params["kubernetes_node_conditions"])
            for one in found
        }

    def _execute(self, slurmctld: Slurmctld, step: sync.Step, live: list[Node]) -> list[Node]:
        """Run the commands, and return slurmctld's nodes afterwards; in check mode as they would be."""
        executed = False
        for plan in step.plans:
            for command in plan.commands() if not self._check else ():
                slurmctld.execute(command, f"change nodes {command[2].removeprefix('nodename=')}")
                executed = self.changed = True
            for name, after in plan.after.items():
                self._note(f"node {name}", plan.before[name], after)
            live = [plan.foretold(node) for node in live]
        return slurmctld.read_nodes() if executed else live

    def _unneeded(self, places: list[sync.Place], live: list[Node]) -> set[str]:
        eviction = self._params["eviction"]
        return set() if eviction == "Always" else sync.unneeded(places, live, idle=eviction == "WhenIdle")

    def _free(self, slurmctld: Slurmctld, names: set[str]) -> set[str]:
        """Return those of the nodes that no job is on. squeue is asked after the drains were seen: no job comes after that."""
        if not names:
            return set()
        command = ["squeue", "--json", f"--nodelist={hostlist.compress(sorted(names))}", jobs.ON_NODES]
        return sync.free(names, draining.tasks(slurmctld.ask(command, "the jobs on drained nodes")))

    def _mark(self, pod: Object, name: str, *, evictable: bool) -> None:
        """Add the label to a pod, or remove it."""
        labels = pod["metadata"].setdefault("labels", {})
        was = labels.get(EVICTABLE)
        desired = "true" if evictable else None
        if was == desired or not self._patch(pod, "", MERGE, {"metadata": {"labels": {EVICTABLE: desired}}}):
            return
        labels.update({EVICTABLE: desired})
        self._note(f"pod of {name}", {EVICTABLE: was}, {EVICTABLE: desired})

    def _show(self, pod: Object, name: str, node: Node | None, *, free: bool) -> None:
        """Write the conditions that differ."""
        live = (pod.get("status") or {}).get("conditions") or []
        found = conditions.differing(conditions.wanted(node, free=free), live, self._client.clock or "")
        try:
            if not found or not self._patch(pod, "/status", _STRATEGIC, {"status": {"conditions": found}}):
                return
        except Forbidden as error:
            self.warnings["conditions"] = (
                f"{str(error).rstrip('.')}; so Slurm's states are not shown as conditions of pods; docs/rights.md lists the right that it takes."
            )
            return
        seen = {str(one.get("type")): f"{one.get('status')} ({one.get('reason', '')})" for one in live}
        self._note(
            f"pod of {name}",
            {one["type"]: seen.get(one["type"]) for one in found},
            {one["type"]: f"{one['status']} ({one['reason']})" for one in found},
        )

    def _patch(self, pod: Object, part: str, content_type: str, body: Object) -> bool:
        """Change a pod; False where it is gone. The UID keeps the change off another pod of its name."""
        if pod["metadata"].get("deletionTimestamp"):
            return False
        ref = Ref(BUILTIN["", "Pod"], str(pod["metadata"]["namespace"]), str(pod["metadata"]["name"]))
        body = {**body, "metadata": {**body.get("metadata", {}), "uid": pod["metadata"]["uid"]}}
        query = {"fieldManager": _MANAGER, **({"dryRun": "All"} if self._check else {})}
        try:
            self._client.request(
                "PATCH", ref.path + part, what=f"change {ref}", query=query, body=body, content_type=content_type, retry_conflict=False
            )
        except (Conflict, Invalid, NotFound):
            return False
        return True

    def _note(self, name: str, before: Object, after: Object) -> None:
        self.changed = True
        self.before.setdefault(name, {}).update({key: value for key, value in before.items() if key not in self.before.get(name, {})})
        self.after.setdefault(name, {}).update(after)


def _node(pod: Object) -> str:
    """Return the Slurm node of a worker's pod."""
    metadata = pod["metadata"]
    return str(metadata["name"]).removeprefix(f"{metadata['labels'][_INSTANCE]}-")


def _place(name: str, pod: Object, causes: dict[str, str] | None) -> sync.Place:
    kubernetes_node = str((pod.get("spec") or {}).get("nodeName") or "")
    settled = not describe(pod) and not pod["metadata"].get("deletionTimestamp")
    return sync.Place(node=name, kubernetes_node=kubernetes_node, cause=(causes or {}).get(kubernetes_node), settled=settled)


def _draining(place: sync.Place, node: Node | None, free: set[str]) -> Object:
    state = "+".join(node.state) if node else ""
    return {"node": place.node, "kubernetes_node": place.kubernetes_node, "cause": place.cause, "state": state, "free": place.node in free}
