# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node set of 1 000: real objects, a real slurmctld, and pods on a machine that only says that it runs them (simulated.py), so that no slurmd registers.

A run is measured up to its wait for slurmd.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import METADATA_LIST, Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import run_in_pod
from ansible_collections.corral.slurm.tests.bench import own, simulated

NAME = "many"
COUNT = 1000
# Between two probes, which are in this process: the measurement must not measure itself.
_PAUSE = 0.5


def measure(repository: Path, document: Path, scratch: Path) -> dict[str, Any]:
    """Return seconds and counts. ``document`` is that of the demonstration's cluster, of which the images and the jail are taken."""
    cluster = _Cluster(repository, document, scratch)
    try:
        return cluster.measure()
    finally:
        cluster.remove()


class _Cluster(own.Own):
    def __init__(self, repository: Path, document: Path, scratch: Path) -> None:
        # Nodes that do not answer are not down.
        super().__init__(NAME, repository, document, scratch, ["SlurmdTimeout=0"])
        self._client = Client(auth.resolve({}))

    def measure(self) -> dict[str, Any]:
        """Make the cluster, add COUNT workers, run again, and take half of them away."""
        self._site(0)
        with simulated.machine(self._address()):
            try:
                return self._measured()
            finally:
                self.remove()  # before the machine, which ends its pods

    def _measured(self) -> dict[str, Any]:
        before = self._restarts()
        known = self._timed(lambda: self._nodes() == COUNT + 1, lambda: self._site(COUNT, "slurm_controller"))
        self._unregistered()
        self._idle()
        began = time.perf_counter()
        said = self._unregistered()
        unchanged = time.perf_counter() - began
        down = self._timed(
            lambda: self._nodes() == COUNT // 2 + 1 and self._pods() == COUNT // 2, lambda: self._site(COUNT // 2, "slurm_controller")
        )
        if self._restarts() != before:
            sys.exit(f"bench: slurmctld was started {self._restarts()} times, before that {before}")
        requests, writes, objects = own.counts(said)
        return {"known": known, "unchanged": unchanged, "requests": requests, "writes": writes, "objects": objects, "down": down}

    def _address(self) -> str:
        return self.kubectl("get", "pod", f"{NAME}-controller-0", "-n", NAME, "-o", "jsonpath={.status.podIP}")

    def _unregistered(self) -> str:
        """Run the site to where it waits until slurmd has registered, which it never does here; return what it printed."""
        return self._site(COUNT, "slurm_controller,slurm_workers", "-e", "slurm_workers_register_timeout=0", check=False)

    def _idle(self) -> None:
        """Have slurmctld take the simulated nodes for idle ones that do not answer: it asks for their addresses anew, and an administrator sets their state."""
        self._scontrol("reconfigure")
        for words in (["state=down", "reason=bench"], ["state=idle"]):
            self._scontrol("update", f"nodename=sim-[0-{COUNT - 1}]", *words)
        nodes = json.loads(self._scontrol("show", "nodes", "--json"))["nodes"]
        idle = sum("IDLE" in node["state"] for node in nodes if node["name"].startswith("sim-"))
        if idle != COUNT:
            sys.exit(f"bench: {idle} of {COUNT} simulated nodes are idle")

    def _scontrol(self, *args: str) -> str:
        return self.inside("controller-0", "slurmctld", "scontrol", *args)

    def _site(self, workers: int, tag: str = "", *args: str, check: bool = True) -> str:
        """Run the site, or a part of it, with so many simulated workers; return what it printed."""
        sets = self.document["spec"]["nodeSets"][:1]
        if workers:
            sets.append({"name": "sim", "replicas": workers, "resources": own.SMALL, **simulated.PLACE})
        self.document["spec"]["nodeSets"] = sets
        return self.play("corral.slurm.site", "-v", *(["--tags", tag] if tag else []), *args, check=check)

    def _timed(self, condition: Callable[[], bool], action: Callable[[], object]) -> float:
        """Return after how many seconds a condition holds that an action leads to. Both are over then."""
        with ThreadPoolExecutor() as pool:
            began = time.perf_counter()
            acting = pool.submit(action)
            self._until(condition, 300, acting)
            took = time.perf_counter() - began
            acting.result()
            return took

    def _until(self, condition: Callable[[], bool], seconds: float, acting: Future[object]) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if acting.done() and acting.exception():
                acting.result()
            if time.monotonic() > deadline:
                sys.exit(f"bench: {self._nodes()} nodes and {self._pods()} pods after {seconds:.0f} s")
            time.sleep(_PAUSE)

    def _nodes(self) -> int:
        """Count the records of the partition: slurmctld does not show nodes that have no address yet, as those without a pod."""
        pod, command = f"{NAME}-controller-0", ["scontrol", "show", "partition"]
        try:
            said = run_in_pod(self._client, namespace=NAME, pod=pod, container="slurmctld", command=command).stdout
        except CorralError:  # a busy one is asked again
            return 0
        found = re.search(r"TotalNodes=(\d+)", said)
        return int(found[1]) if found else 0

    def _pods(self) -> int:
        query = {"labelSelector": "corral.hpc/node-set=sim"}
        return len(
            self._client.items(f"/api/v1/namespaces/{NAME}/pods", what="count the simulated pods", query=query, accept=METADATA_LIST)
        )

    def _restarts(self) -> int:
        pod = json.loads(self.kubectl("get", "pod", f"{NAME}-controller-0", "-n", NAME, "-o", "json"))
        return sum(int(one["restartCount"]) for one in pod["status"]["containerStatuses"])
