# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster of 1 000 workers: real objects, a real slurmctld, and pods that only say that they run (kwok: sigs.k8s.io/kwok).

slurmctld is told that their nodes are idle, and not to ask them (SlurmdTimeout=0), so that a run finds a cluster at rest.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

KWOK = "v0.7.0"
# Behind all others by name: what asks for the first machine means a real one.
MACHINE = "zz-simulated"
NAME = "many"
COUNT = 1000
_SMALL = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}


def measure(repository: Path, document: Path, scratch: Path) -> dict[str, Any]:
    """Return seconds and counts. ``document`` is that of the demonstration's cluster, of which the images and the jail are taken."""
    kubectl = str(repository / "lab" / "kubectl")
    with _machine(kubectl, scratch):
        cluster = _Cluster(kubectl, document, scratch)
        try:
            return cluster.measure()
        finally:
            cluster.remove()


class _Cluster:
    def __init__(self, kubectl: str, document: Path, scratch: Path) -> None:
        self._kubectl = kubectl
        self._path = scratch / f"{NAME}.yml"
        demo = yaml.safe_load(document.read_text())["spec"]
        volumes = Path(os.environ.get("CORRAL_LAB_DIR", "/var/lib/corral-lab")) / "volumes"
        self._document: dict[str, Any] = {
            "apiVersion": "corral.hpc/v1alpha1",
            "kind": "SlurmCluster",
            "metadata": {"name": NAME, "namespace": NAME},
            "spec": {
                "images": demo["images"],
                "slurm": {"processTracking": "linuxproc", "extraConfig": ["SlurmdTimeout=0"]},
                "controller": {"stateVolume": {"hostPath": f"{volumes}/{NAME}-state", "size": "1Gi"}},
                "login": {"service": {"type": "ClusterIP"}},
                "nodeSets": [
                    {"name": "real", "replicas": 1, "resources": _SMALL},
                    {
                        "name": "sim",
                        "replicas": 1,
                        "resources": _SMALL,
                        "nodeSelector": {"kubernetes.io/hostname": MACHINE},
                        "tolerations": [{"key": "corral.hpc/simulated", "operator": "Exists"}],
                    },
                ],
                "jail": {
                    "volume": {"hostPath": f"{volumes}/{NAME}-jail", "size": "5Gi"},
                    "populate": demo["jail"]["populate"],
                },
            },
        }

    def measure(self) -> dict[str, Any]:
        """Make the cluster, grow it to COUNT, run the site again, and shrink it to half."""
        self._site(1)
        before = self._restarts()
        known = threading.Thread(target=self._wait_for_records, args=(COUNT, began := time.perf_counter()))
        self._known = 0.0
        known.start()
        self._site(COUNT)
        up = time.perf_counter() - began
        known.join()
        said, took = self._site(COUNT)
        if "changed=0" not in said:
            sys.exit(f"bench: the cluster of {COUNT} workers is not at rest:\n{said}")
        requests, writes = (sum(int(n) for n in re.findall(rf'"{what}": (\d+)', said)) for what in ("requests", "writes"))
        objects = len(re.findall(r'"result": "unchanged"', said))
        _said, down = self._site(COUNT // 2)
        left = int(self._slurm("sinfo", "-h", "-o", "%D").split()[0])
        if (left, self._restarts()) != (COUNT // 2 + 1, before):
            sys.exit(f"bench: {left} nodes are left, and slurmctld was started {self._restarts()} times after {before}")
        return {
            "known": self._known,
            "up": up,
            "requests": requests,
            "writes": writes,
            "objects": objects,
            "unchanged": took,
            "down": down,
        }

    def remove(self) -> None:
        """Take all of it away."""
        _play("corral.slurm.destroy", "-e", f"slurm_cluster_file={self._path}", "-e", f"confirm={NAME}", "-e", "delete_namespace=true")

    def _site(self, replicas: int) -> tuple[str, float]:
        """Run the site with so many simulated workers, and return what it printed and the seconds."""
        self._document["spec"]["nodeSets"][1]["replicas"] = replicas
        self._path.write_text(yaml.safe_dump(self._document))
        done = threading.Event()
        idle = threading.Thread(target=self._keep_idle, args=(done,))
        idle.start()
        began = time.perf_counter()
        try:
            said = _play("corral.slurm.site", "-v", "-e", f"slurm_cluster_file={self._path}")
        finally:
            took = time.perf_counter() - began
            done.set()
            idle.join()
        return said, took

    def _keep_idle(self, done: threading.Event) -> None:
        """Tell slurmctld that nodes work which have never said so."""
        while not done.wait(1):
            names = {
                line.split()[0]
                for line in self._slurm("sinfo", "-h", "-N", "-o", "%N %T", check=False).splitlines()
                if "unk" in line or "down" in line
            }
            simulated = sorted(name for name in names if name.startswith("sim-"))
            if simulated:
                self._slurm("scontrol", "update", f"nodename={','.join(simulated)}", "state=idle", check=False)

    def _wait_for_records(self, count: int, began: float) -> None:
        while f"sim-{count - 1}" not in self._slurm("scontrol", "show", "node", f"sim-{count - 1}", check=False):
            time.sleep(0.2)
        self._known = time.perf_counter() - began

    def _slurm(self, *command: str, check: bool = True) -> str:
        words = [self._kubectl, "exec", "-n", NAME, f"{NAME}-controller-0", "-c", "slurmctld", "--", *command]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if check and done.returncode:
            sys.exit(f"bench: {' '.join(command)} ended {done.returncode}: {done.stderr}")
        return done.stdout

    def _restarts(self) -> int:
        words = [self._kubectl, "get", "pod", f"{NAME}-controller-0", "-n", NAME, "-o", "json"]
        pod = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        return int(sum(one["restartCount"] for one in pod["status"]["containerStatuses"]))


@contextmanager
def _machine(kubectl: str, scratch: Path) -> Iterator[None]:
    """A machine that says yes to every pod."""
    room = {"cpu": "1000", "memory": "1Ti", "pods": str(2 * COUNT)}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": MACHINE,
            "labels": {"kubernetes.io/hostname": MACHINE, "kubernetes.io/os": "linux"},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [{"key": "corral.hpc/simulated", "effect": "NoSchedule"}]},
        "status": {"allocatable": room, "capacity": room},
    }
    program = _built()
    words = ["--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--cidr=10.250.0.0/16"]
    with (scratch / "kwok.log").open("w") as log:
        kwok = subprocess.Popen([program, f"--kubeconfig={os.environ['KUBECONFIG']}", *words], stdout=log, stderr=log)
        try:
            subprocess.run([kubectl, "apply", "-f", "-"], input=json.dumps(node), text=True, check=True, stdout=subprocess.DEVNULL)
            yield
        finally:
            subprocess.run([kubectl, "delete", "node", MACHINE, "--ignore-not-found"], check=False, stdout=subprocess.DEVNULL)
            kwok.terminate()
            kwok.wait()


def _built() -> str:
    """Return kwok's path; it is built once (some minutes) and kept."""
    folder = Path(os.environ.get("CORRAL_CACHE") or Path.home() / ".cache" / "corral") / f"kwok-{KWOK}"
    if not (folder / "kwok").exists():
        environment = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"}
        subprocess.run(["go", "install", "-trimpath", "-ldflags=-s -w", f"sigs.k8s.io/kwok/cmd/kwok@{KWOK}"], env=environment, check=True)
    return str(folder / "kwok")


def _play(*args: str) -> str:
    environment = {**os.environ, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
    done = subprocess.run(
        ["ansible-playbook", *args], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment
    )
    if done.returncode:
        sys.exit(f"bench: ansible-playbook {' '.join(args)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
