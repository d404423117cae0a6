# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster of a benchmark's own beside the demonstration's, with its images and its jail's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

SMALL = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}


def counts(printed: str) -> tuple[int, int, int]:
    """Return the requests, writes and unchanged objects of a run with -v and results in JSON."""
    requests, writes = (sum(int(n) for n in re.findall(rf'"{what}": (\d+)', printed)) for what in ("requests", "writes"))
    return requests, writes, len(re.findall(r'"result": "unchanged"', printed))


class Own:
    """``name`` is also its namespace's, ``document`` the demonstration's; ``slurm`` and ``spec`` are more of this one's."""

    def __init__(self, name: str, repository: Path, document: Path, scratch: Path, slurm: list[str], **spec: Any) -> None:
        self.name = name
        self._kubectl = str(repository / "lab" / "kubectl")
        self._path = scratch / f"{name}.yml"
        demo = yaml.safe_load(document.read_text())["spec"]
        self.volumes = volumes = Path(os.environ.get("CORRAL_LAB_DIR", "/var/lib/corral-lab")) / "volumes"
        self.document: dict[str, Any] = {
            "apiVersion": "corral.hpc/v1alpha1",
            "kind": "SlurmCluster",
            "metadata": {"name": name, "namespace": name},
            "spec": {
                "images": demo["images"],
                "slurm": {"processTracking": "linuxproc", "extraConfig": slurm},
                "controller": {"stateVolume": {"hostPath": f"{volumes}/{name}-state", "size": "1Gi"}},
                "login": {"service": {"type": "ClusterIP"}},
                "nodeSets": [{"name": "real", "replicas": 1, "resources": SMALL}],
                "jail": {"volume": {"hostPath": f"{volumes}/{name}-jail", "size": "5Gi"}, "populate": demo["jail"]["populate"]},
                **spec,
            },
        }

    def play(self, *args: str, check: bool = True) -> str:
        """Run a playbook with the document as it is now; return what it printed."""
        self._path.write_text(yaml.safe_dump(self.document))
        environment = {**os.environ, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
        command = ["ansible-playbook", *args, "-e", f"slurm_cluster_file={self._path}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment)
        if check and done.returncode:
            sys.exit(f"bench: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = False) -> str:
        """Return what kubectl printed. ``stdin`` of None is nothing."""
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [self._kubectl, *args], capture_output=True, text=True, check=False, **given
        )
        if check and done.returncode:
            sys.exit(f"bench: kubectl {' '.join(args)[:200]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def inside(self, pod: str, container: str, *command: str, stdin: str | None = None, check: bool = False) -> str:
        """Return what a command in a pod of the cluster printed."""
        flags = [] if stdin is None else ["-i"]
        return self.kubectl(
            "exec", *flags, "-n", self.name, f"{self.name}-{pod}", "-c", container, "--", *command, stdin=stdin, check=check
        )

    def remove(self) -> None:
        """Take all of it away."""
        self.play("corral.slurm.destroy", "-e", f"confirm={self.name}", "-e", "delete_namespace=true")
        for what in ("state", "jail", "database"):
            shutil.rmtree(self.volumes / f"{self.name}-{what}", ignore_errors=True)
