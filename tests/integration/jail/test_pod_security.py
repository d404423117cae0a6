# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of Kubernetes' Pod Security levels the pods of a cluster keep, by the word of the API server itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from ..conftest import REPOSITORY, Cluster, eventually

pytestmark = pytest.mark.lab

# Those that lead people into the jail, which takes mounts.
LEADING = {"login", "worker"}


def refusals(level: str, pods: list[dict[str, Any]]) -> dict[str, str]:
    """What the API server says to pods in a namespace of that level, by their components; of those that it takes, nothing. No pod is made."""
    namespace = f"test-level-{level}"
    program = str(REPOSITORY / "lab" / "kubectl")
    found = {}
    for pod in pods:
        component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        metadata = {"name": f"{component}-{len(found)}", "namespace": namespace}
        # Of the old pod's own namespace, and what the API server has put in.
        spec = {
            key: value for key, value in pod["spec"].items() if key not in {"serviceAccountName", "serviceAccount", "priority", "nodeName"}
        }
        text = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        done = subprocess.run([program, "create", "--dry-run=server", "-f", "-"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or "violates PodSecurity" in done.stderr, done.stderr
        if done.returncode:
            found[component] = done.stderr
    return found


@pytest.fixture(scope="module")
def pods(cluster: Cluster) -> Iterator[list[dict[str, Any]]]:
    """All pods of the cluster, those of finished jobs too; and namespaces of both levels."""
    levels = [f"test-level-{level}" for level in ("baseline", "restricted")]
    for name in levels:
        cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=true")
        cluster.kubectl("create", "namespace", name)
        cluster.kubectl("label", "namespace", name, f"pod-security.kubernetes.io/enforce={name.removeprefix('test-level-')}")
        # Kubernetes makes it a moment later, and takes no pod before.
        eventually(
            lambda name=name: "default" in cluster.kubectl("get", "serviceaccounts", "-n", name, "-o", "name"), f"{name} to be ready"
        )
    yield cluster.kubectl.items("pods", "-n", cluster.namespace)
    cluster.kubectl("delete", "namespace", *levels, "--wait=false")


def test_only_those_that_lead_into_the_jail_break_the_baseline(pods: list[dict[str, Any]]) -> None:
    seen = {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods}
    assert seen >= {"controller", "jail", *LEADING}, seen
    found = refusals("baseline", pods)
    assert found.keys() == LEADING, found
    for said in found.values():
        assert "non-default capabilities" in said and "host namespaces" not in said and "privileged container" not in said, said


def test_what_stays_of_the_control_plane_keeps_the_restricted_level(pods: list[dict[str, Any]]) -> None:
    """All but what makes a new volume slurmctld's own, as root, before it starts."""
    control = [pod for pod in pods if pod["metadata"]["labels"]["app.kubernetes.io/component"] not in {*LEADING, "jail"}]
    assert control and set(refusals("restricted", control)) == {"controller"}, "else this page of docs/security.md is too modest"
    for pod in control:
        first = pod["spec"].get("initContainers") or []
        pod["spec"]["initContainers"] = [one for one in first if one.get("restartPolicy") == "Always"]
    assert refusals("restricted", control) == {}
