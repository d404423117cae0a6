# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the Kubernetes engine share: the lab's API server, a namespace a test, and the engine called as Ansible calls it."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth, run
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client

from ...faultproxy.proxy import FaultProxy
from ..kubectl import Kubectl

LAB = Path(os.environ.get("CORRAL_LAB_DIR", "/var/lib/corral-lab"))


@dataclass
class Engine:
    """Calls the backend of k8s_apply in one namespace."""

    kubeconfig: str
    namespace: str
    kubectl: Kubectl
    requests: int = field(default=0, init=False)

    def apply(self, *objects: dict[str, Any], check: bool = False, diff: bool = False, **params: Any) -> dict[str, Any]:
        """Run k8s_apply; further keywords are its parameters."""
        given = {"kubeconfig": self.kubeconfig, "namespace": self.namespace, "objects": list(objects), **params}
        return run.run(given, check=check, diff=diff)

    def results(self, *objects: dict[str, Any], **params: Any) -> dict[str, str]:
        """Run k8s_apply; return name → result."""
        return {row["name"]: row["result"] for row in self.apply(*objects, **params)["objects"]}

    def absent(self, **params: Any) -> dict[str, Any]:
        return self.apply(state="absent", **params)

    def client(self) -> Client:
        return Client(auth.resolve({"kubeconfig": self.kubeconfig}))

    def config_map(self, name: str, **data: str) -> dict[str, Any]:
        labels = {"test": "kube"}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels},
            "data": data,
        }

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return the live object as kubectl sees it, managedFields included."""
        live: dict[str, Any] = self.kubectl.json("get", kind, name, "-n", self.namespace, "--show-managed-fields")
        return live

    def names(self, kind: str = "configmaps") -> set[str]:
        items = self.kubectl.items(kind, "-n", self.namespace)
        return {item["metadata"]["name"] for item in items} - {"kube-root-ca.crt"}

    def versions(self) -> dict[str, str]:
        """Everything that the namespace holds, with its resourceVersion: equal before and after means that nobody wrote."""
        items = self.kubectl.items("configmaps,secrets,services,serviceaccounts", "-n", self.namespace)
        return {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in items}


def _kubectl() -> Kubectl:
    return Kubectl(Path(__file__).resolve().parents[3])


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace of the test's own, deleted afterwards with what is in it."""
    kubectl = _kubectl()
    name = f"test-kube-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def engine(namespace: str) -> Engine:
    return Engine(str(LAB / "kubeconfig"), namespace, _kubectl())


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    with FaultProxy(LAB / "kubeconfig") as started:
        yield started


@pytest.fixture
def behind(engine: Engine, proxy: FaultProxy, tmp_path: Path) -> Engine:
    """The engine with the fault proxy between it and the API server."""
    proxy.plan()
    return Engine(str(proxy.kubeconfig(tmp_path / "kubeconfig")), engine.namespace, engine.kubectl)


def image_with_shell() -> str:
    """Return an image of the lab that has a shell; the tests that run commands skip without one."""
    nodes = _kubectl().items("nodes")
    every = [{name for image in node["status"].get("images") or () for name in image.get("names") or ()} for node in nodes]
    found = sorted(name for name in set.intersection(*every) if name.startswith("localhost/corral/"))
    if not found:
        pytest.skip("no image of corral is loaded into the lab; make lab-load")
    return found[0]


def playbook(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook as a user would."""
    command = ["ansible-playbook", "-i", "localhost,", str(path), *arguments]
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL)
