# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""kubectl for the tests: an independent witness, since the collection's own client is what is tested."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

# Kinds that a cluster of the collection consists of, for comparing before and after.
KINDS = (
    "configmaps,secrets,services,serviceaccounts,persistentvolumeclaims,statefulsets.apps,jobs.batch,"
    "networkpolicies.networking.k8s.io,poddisruptionbudgets.policy"
)


class Kubectl:
    def __init__(self, repository: Path) -> None:
        self._program = str(repository / "lab" / "kubectl")

    def __call__(self, *args: str, check: bool = True, stdin: str | None = None) -> str:
        done = subprocess.run([self._program, *args], capture_output=True, text=True, timeout=300, check=False, input=stdin)
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(args)} ended {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def json(self, *args: str) -> Any:
        return json.loads(self(*args, "-o", "json"))

    def items(self, *args: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.json("get", *args)["items"]
        return items

    def versions(self, namespace: str, selector: str) -> dict[str, str]:
        """kind/name → resourceVersion. On a cluster at rest any difference is somebody's write."""
        items = self.items(KINDS, "-n", namespace, "-l", selector)
        return {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in items}

    def uids(self, namespace: str, selector: str) -> dict[str, str]:
        return {item["metadata"]["name"]: item["metadata"]["uid"] for item in self.items("pods", "-n", namespace, "-l", selector)}

    def await_pod(self, namespace: str, pod: str, condition: str, seconds: int) -> None:
        """Wait until the pod is there, and then for the condition: `kubectl wait` fails at once for what a controller has yet to create."""
        for wanted in ("create", condition):
            self("wait", "-n", namespace, f"pod/{pod}", f"--for={wanted}", f"--timeout={seconds}s")

    def serves(self, definition: str) -> bool:
        """Whether a CustomResourceDefinition is served. kubectl's own wait, and its filters, fail for one that has no conditions yet."""
        conditions = self.json("get", f"crd/{definition}").get("status", {}).get("conditions") or []
        return any((one["type"], one["status"]) == ("Established", "True") for one in conditions)

    def node_address(self) -> str:
        addresses = self.items("nodes")[0]["status"]["addresses"]
        return str(next(a["address"] for a in addresses if a["type"] == "InternalIP"))
