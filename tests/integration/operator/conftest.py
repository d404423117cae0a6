# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator in the lab, by its own image and its own playbook, and one cluster that it serves, for all tests of this folder."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from corral_operator.runs import processes, zygote

from ..conftest import REPOSITORY, Cluster, Clusters, Run, eventually, playbook
from ..kubectl import KINDS, Kubectl

SET = "applyset.kubernetes.io/id"
VERSION = yaml.safe_load((REPOSITORY / "galaxy.yml").read_text())["version"]
# Another image, which lies in the lab.
IMAGE = os.environ.get("CORRAL_OPERATOR_IMAGE", f"localhost/corral/operator:{VERSION}")
# Settings of the operator under test: CORRAL_OPERATOR_ENVIRONMENT='{"CORRAL_ENGINE": "cold"}' make integration
ENVIRONMENT = json.loads(os.environ.get("CORRAL_OPERATOR_ENVIRONMENT", "{}"))
NAMESPACE = "test-operator"
NAME = "served"
PORT = 31400
DOCUMENTS = "slurmclusters.corral.hpc"


_SCRAPE = """
import ssl, sys, urllib.error, urllib.request
token = sys.stdin.read()
asked = urllib.request.Request("https://localhost:8443/metrics", headers={"Authorization": f"Bearer {token}"} if token else {})
try:
    answer = urllib.request.urlopen(asked, context=ssl._create_unverified_context(), timeout=10)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status)
print(answer.read().decode())
"""


@dataclass
class Operator:
    """The operator's pods."""

    kubectl: Kubectl
    namespace: str = NAMESPACE
    variables: dict[str, Any] = field(default_factory=dict)
    token: str = ""
    since: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat())

    @property
    def account(self) -> str:
        """As whom it talks to the API server."""
        return f"system:serviceaccount:{self.namespace}:corral-operator"

    def install(self, *args: str, **more: Any) -> Run:
        """Install or upgrade it; what was given once stays given."""
        self.variables |= {"operator_namespace": self.namespace, **{f"operator_{name}": value for name, value in more.items()}}
        # It is taken away without its image, too.
        if more.get("state") == "absent":
            self.kubectl("delete", "clusterrolebinding", self.reader, "--ignore-not-found")
            self.token = ""
        given = {name: value for name, value in self.variables.items() if name != "operator_image" or more.get("state") != "absent"}
        return playbook("operator", None, "-e", json.dumps(given), *args)

    def pods(self) -> list[str]:
        """Names of the pods that are ready."""
        found = self.kubectl.items("pods", "-n", self.namespace, "-l", "app.kubernetes.io/name=corral-operator")
        return sorted(
            pod["metadata"]["name"]
            for pod in found
            if not pod["metadata"].get("deletionTimestamp")
            and any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", ()))
        )

    def leader(self) -> str:
        """The pod that works, "" while none does."""
        holder = self.kubectl(
            "get", "lease", "corral-operator", "-n", self.namespace, "--ignore-not-found", "-o", "jsonpath={.spec.holderIdentity}"
        ).partition("_")[0]
        return holder if holder in self.pods() else ""

    def led(self) -> str:
        """Wait for a leader."""
        eventually(lambda: bool(self.leader()), "one of the operator's pods leads", 30)
        return self.leader()

    def processes(self, pod: str) -> list[int]:
        """The processes of a pod, by their pids on the host, which runs all nodes of the lab; the oldest first."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    variables = (folder / "environ").read_bytes().split(b"\0")
                except OSError:  # it has ended meanwhile, or is the kernel's
                    continue
                if f"HOSTNAME={pod}".encode() in variables:
                    found.append(int(folder.name))
        return sorted(found)

    def kill(self, pod: str) -> None:
        """Kill it as a power failure does, without a shutdown."""
        for process in self.processes(pod):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    @property
    def reader(self) -> str:
        """The ClusterRole of readers of its metrics."""
        return f"corral-operator-{self.namespace}:metrics-reader"

    def metrics(self, pod: str) -> str:
        """As Prometheus reads them, with the token of a service account that may."""
        if not self.token:
            binding = ("clusterrolebinding", self.reader, f"--clusterrole={self.reader}", f"--serviceaccount={self.namespace}:default")
            self.kubectl("create", *binding, check=False)
            self.token = self.kubectl("create", "token", "default", "-n", self.namespace).strip()
        code, text = self.scrape(pod, self.token)
        assert code == 200, text
        return text

    def scrape(self, pod: str, token: str) -> tuple[int, str]:
        """Ask a pod for its metrics, from within: the status and the text."""
        said = self.kubectl(*("exec", "-i", "-n", self.namespace, pod, "--", "/opt/corral/bin/python", "-c", _SCRAPE), stdin=token)
        code, _line, text = said.partition("\n")
        return int(code), text

    def runs(self, playbook: str = "site") -> int:
        """How many runs of a playbook the pods that are there have made."""
        lines = [line for pod in self.pods() for line in self.metrics(pod).splitlines()]
        counts = [line for line in lines if line.startswith("corral_operator_runs_total{") and f'playbook="{playbook}"' in line]
        return sum(int(float(line.rpartition(" ")[2])) for line in counts)

    def log(self, *args: str) -> str:
        return "".join(self.kubectl("logs", "-n", self.namespace, pod, *args, check=False) for pod in self.pods())


@dataclass
class Served(Cluster):
    """A cluster that the operator makes."""

    def apply(self) -> None:
        self.kubectl("apply", "-f", str(self.write()))

    def resource(self) -> dict[str, Any]:
        found: dict[str, Any] = self.kubectl.json("get", DOCUMENTS, self.name, "-n", self.namespace)
        return found

    def condition(self, kind: str) -> dict[str, Any]:
        """A condition of the document's present generation; empty while there is none."""
        resource = self.resource()
        for condition in resource.get("status", {}).get("conditions", ()):
            if condition["type"] == kind and condition.get("observedGeneration") == resource["metadata"]["generation"]:
                found: dict[str, Any] = condition
                return found
        return {}

    def is_(self, kind: str, status: str) -> bool:
        return bool(self.condition(kind).get("status") == status)

    @property
    def settled(self) -> bool:
        """Nothing is to do, nothing is wrong, and the operator has seen that for itself."""
        status = self.resource().get("status", {})
        seen = status.get("observedHash") and (status.get("syncedHash") or not self.spec["nodeSets"])
        return bool(seen) and self.is_("Ready", "True") and not self.is_("Reconciling", "True")

    def annotate(self, *words: str) -> None:
        self.kubectl("annotate", "--overwrite", DOCUMENTS, self.name, "-n", self.namespace, *words)

    def wait_ready(self, seconds: int = 280) -> None:
        """As its users wait for it."""
        said = subprocess.run(
            [
                *(str(REPOSITORY / "lab" / "kubectl"), "wait", "--for=condition=Ready", f"{DOCUMENTS}/{self.name}"),
                *("-n", self.namespace, f"--timeout={seconds}s"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 0, said.stderr + self.kubectl("describe", DOCUMENTS, self.name, "-n", self.namespace)

    def contents(self) -> dict[str, Any]:
        """What the collection wrote, without what Kubernetes adds to it, by the fields of its field manager. The documents that the cluster has had are
        left out: they follow from what was, and all else from what the document says."""
        selector = f"app.kubernetes.io/instance={self.name}"
        items = self.kubectl.json("get", KINDS, "-n", self.namespace, "-l", selector, "--show-managed-fields")["items"]
        history = f"{self.name}-base-revisions"
        noted = [*items, *self.kubectl.items("persistentvolumes", "-l", selector)]
        uids = {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["uid"] for item in noted}
        for item in items:
            if SET in item["metadata"]["labels"]:
                _anonymize(item, uids)
        return {f"{item['kind']}/{item['metadata']['name']}": _owned(item) for item in items if item["metadata"]["name"] != history}


def _anonymize(parent: dict[str, Any], uids: dict[str, str]) -> None:
    """What a set notes of its members is their UIDs, which are others once they are made anew: the right one of each is as good as another."""
    members: dict[str, str] = json.loads(parent["data"]["members"]) if "members" in parent.get("data", {}) else {}
    for key, uid in members.items():
        kind, _namespace, name = key.split("/")
        if uids.get(f"{kind.partition('.')[0]}/{name}") == uid:
            members[key] = "its UID"
    if members:
        parent["data"]["members"] = json.dumps(members)


def _owned(item: dict[str, Any]) -> Any:
    """An object's fields that the manager `corral` owns, with their values, and its managers of these."""
    entries = [e for e in item["metadata"]["managedFields"] if e["manager"] == "corral"]
    metadata = {key: item["metadata"].get(key) for key in ("labels", "annotations", "ownerReferences")}
    addresses = ("clusterIP", "clusterIPs") if item["kind"] == "Service" and item["spec"]["clusterIP"] != "None" else ()
    given = {key: value for key, value in item.get("spec", {}).items() if key not in addresses}
    if item["kind"] == "Job":  # Kubernetes puts the Job's uid into both
        del given["selector"]
        labels = given["template"]["metadata"]["labels"]
        given["template"]["metadata"]["labels"] = {key: value for key, value in labels.items() if "controller-uid" not in key}
    spec = {"spec": given} if "spec" in item else {}
    return {
        "fields": [(e["operation"], e["apiVersion"], e["fieldsV1"]) for e in entries],
        "metadata": metadata,
        **{key: value for key, value in item.items() if key not in {"metadata", "spec", "status"}},
        **spec,
    }


def let_go(kubectl: Kubectl, namespace: str) -> None:
    """Remove finalizers from documents that a killed run of these tests has left."""
    for name in kubectl("get", DOCUMENTS, "-n", namespace, "-o", "name", "--ignore-not-found", check=False).split():
        kubectl("patch", name, "-n", namespace, "--type=merge", "-p", '{"metadata": {"finalizers": null}}', check=False)


@pytest.fixture(scope="session")
def make_cluster(clusters_made: Clusters) -> Iterator[Callable[[str, int], Cluster]]:
    """As the one of other tests, but for clusters that all files of this folder share."""
    with clusters_made.made() as make:
        yield make


@pytest.fixture(scope="session")
def made(kubectl: Kubectl, make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    """A namespace and a document; the fixture `cluster` gives it its other ways."""
    for namespace in (f"test-{NAME}", "test-unserved"):
        let_go(kubectl, namespace)
    cluster = make_cluster(NAME, PORT)  # takes away what was left of its namespace
    kubectl("create", "namespace", cluster.namespace)
    return cluster


@pytest.fixture(scope="session")
def operator(kubectl: Kubectl, made: Cluster) -> Iterator[Operator]:
    """Installed as its users install it, for one namespace. Its rights on hostPath are for the lab's volumes.

    It may watch Secrets; test_namespaced.py has one that may not.
    """
    had = kubectl("get", "crd", DOCUMENTS, "--ignore-not-found", "-o", "name")
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")  # what a run that was killed has left
    found = Operator(kubectl)
    run = found.install(
        image=IMAGE,
        namespace=NAMESPACE,
        namespaces=[made.namespace],
        host_paths=True,
        watch_secrets=True,
        webhook="absent",
        environment={"CORRAL_SCALE_AGAIN": "5", **ENVIRONMENT},
    )
    assert run.rc == 0, run.output
    yield found
    run = found.install("-e", "confirm=slurmclusters", state="absent", remove_documents=not had)
    assert run.rc == 0, run.output
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")


@pytest.fixture(scope="session")
def cluster(operator: Operator, made: Cluster) -> Iterator[Served]:
    """The cluster of these tests. It is the first of them that makes it."""
    found = Served(**{**vars(made), "kubectl": operator.kubectl})
    found.spec["nodeSets"] = found.spec["nodeSets"][:1]
    yield found
    found.kubectl("delete", DOCUMENTS, found.name, "-n", found.namespace, "--ignore-not-found", "--timeout=120s", check=False)
    let_go(found.kubectl, found.namespace)


def sentence(text: str) -> str:
    """A terminal's text without its line breaks."""
    return re.sub(r"\s+", " ", text)


class Beside:
    """The operator as a process on the host."""

    def __init__(self, directory: Path, namespace: str) -> None:
        self.directory = directory
        self._settings = {
            "CORRAL_ELECT": "false",
            "CORRAL_NAMESPACES": namespace,
            "CORRAL_ADDRESS": "127.0.0.1",
            "CORRAL_METRICS_PORT": "0",
            "CORRAL_METRICS_SECURE": "false",
            "CORRAL_HEALTH_PORT": "0",
            "CORRAL_SCRATCH": str(directory / "scratch"),
            "CORRAL_RUNS": str(directory / "runs"),
        }
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def code(self) -> int | None:
        """How it ended; None while it lives."""
        return None if self.process is None else self.process.poll()

    def start(self, **environment: str) -> None:
        if self.process is not None and self.lives:  # a test that failed has left it, and it would take the next one's document
            self.kill()
            self.process.wait()
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "corral_operator"],
                env={**zygote.environment(), **self._settings, **environment},
                stdout=log,
                stderr=log,
            )

    @property
    def lives(self) -> bool:
        return self.process is not None and self.code is None

    def kill(self) -> None:
        """The process and all below it: nothing of it can say good-bye."""
        assert self.process is not None
        processes.kill_tree(self.process.pid)

    def stop(self) -> None:
        """In order."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log

    @property
    def log(self) -> str:
        return log.read_text() if (log := self.directory / "log").exists() else ""


def keys(cluster: Served) -> dict[str, str]:
    """Each key that is there, by its Secret."""
    found = cluster.kubectl.items("secrets", "-n", cluster.namespace)
    return {f"{one['metadata']['name']}/{key}": value for one in found for key, value in one["data"].items()}


@contextlib.contextmanager
def definitions(kubectl: Kubectl) -> Iterator[None]:
    """The CustomResourceDefinitions are there, for an operator that is not installed; those that were there stay."""
    had = kubectl("get", "crd", DOCUMENTS, "--ignore-not-found", "-o", "name")
    names = (DOCUMENTS, "slurmnodesets.corral.hpc", "slurmtenants.corral.hpc")
    files = [f"--filename={REPOSITORY}/playbooks/files/{name}.yml" for name in names]
    kubectl("apply", "--server-side", "--force-conflicts", *files)
    eventually(lambda: all(kubectl.serves(name) for name in names), "the definitions are served")
    yield
    if not had:
        kubectl("delete", *files)
