# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the integration tests share: the lab's cluster, a runner for the playbooks, a throw-away SlurmCluster.

The lab and its images are brought up by `make integration`; these tests only use them.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from .kubectl import Kubectl

REPOSITORY = Path(__file__).resolve().parents[2]
VOLUMES = Path(os.environ.get("CORRAL_LAB_DIR", "/var/lib/corral-lab")) / "volumes"
# Another Slurm's image, which lies in the lab: CORRAL_SLURM_IMAGE=localhost/corral/slurm:26.05 make integration
OLDER_IMAGE = "localhost/corral/slurm:24.11"
SLURM_IMAGE = os.environ.get("CORRAL_SLURM_IMAGE", OLDER_IMAGE)
# There is nothing to upgrade from else.
collect_ignore = ["test_upgrade.py"] if SLURM_IMAGE == OLDER_IMAGE else []
# Only by its own target of make.
collect_ignore += [] if os.environ.get("CORRAL_CROWD") else ["operator/test_crowd.py"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what the cluster said; nobody can ask it any more when the report is read. What the test left in the queue goes: it would
    hold the nodes, and the tests after it would fail for it."""
    report = yield
    if report.failed:
        for one in getattr(item, "funcargs", {}).values():
            if isinstance(one, Cluster):
                report.sections.append((f"cluster {one.name}", one.said()))
                one.cancel_jobs()
    return report


class OneCluster(LoadScopeScheduling):
    """Gives each worker of pytest-xdist whole files, and the files of jail/ and those of operator/, which share a cluster, as one."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::")[0]
        folder = Path(path).parent.name
        return folder if folder in {"jail", "operator"} else path


# The longest first, so that none of them is what all wait for at the end: folders of the class above, and files.
LONGEST = ("operator", "jail", "test_rollout.py", "test_own_jail.py", "test_scale.py", "test_ldap.py", "test_site.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order them by LONGEST, and the rest as they were."""
    places = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.parent.name, places.get(item.path.name, len(places))))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneCluster:
    return OneCluster(config, log)


@dataclass
class Run:
    """One ansible-playbook run: exit status, everything printed, and the recap's numbers."""

    rc: int
    output: str
    recap: dict[str, int] = field(default_factory=dict)

    @property
    def changed(self) -> int:
        return self.recap.get("changed", -1)


def playbook(name: str, document: Path | None, *args: str, env: dict[str, str] | None = None, timeout: int = 600) -> Run:
    """Run `corral.slurm.<name>` with a document, as a user would, or the playbook of a path."""
    command = [
        "ansible-playbook",
        name if "/" in name else f"corral.slurm.{name}",
        *(["-e", f"slurm_cluster_file={document}"] if document else []),
        *args,
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0", **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    recap = re.search(r"^localhost\s*:\s*(.*)$", done.stdout, re.MULTILINE)
    numbers = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", recap.group(1))} if recap else {}
    return Run(done.returncode, done.stdout, numbers)


@dataclass
class Cluster:
    """A SlurmCluster of a test: its document (edit `spec`, then `site()`), its namespace, its user's key."""

    name: str
    namespace: str
    spec: dict[str, Any]
    directory: Path
    key: Path
    port: int
    kubectl: Kubectl

    def write(self) -> Path:
        if ":26." in SLURM_IMAGE:  # Debian builds it without PMIx
            lines = self.spec.setdefault("slurm", {}).setdefault("extraConfig", [])
            lines += [] if any(one.startswith("MpiDefault=") for one in lines) else ["MpiDefault=none"]
        path = self.directory / f"{self.name}.yml"
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "corral.hpc/v1alpha1",
                    "kind": "SlurmCluster",
                    "metadata": {"name": self.name, "namespace": self.namespace},
                    "spec": self.spec,
                }
            )
        )
        return path

    def site(self, *args: str, **kwargs: Any) -> Run:
        return playbook("site", self.write(), *args, **kwargs)

    def destroy(self, *args: str, **kwargs: Any) -> Run:
        return playbook("destroy", self.write(), *args, **kwargs)

    def slurm(self, *command: str, check: bool = True) -> str:
        """Output of a Slurm command in the controller's pod."""
        return self.kubectl("exec", "-n", self.namespace, f"{self.name}-controller-0", "-c", "slurmctld", "--", *command, check=check)

    def module(self, name: str, /, *, check: bool = False, diff: bool = False, **options: Any) -> dict[str, Any]:
        """What a module returns whose backend runs in this process, with the options as its action has them checked."""
        action = importlib.import_module(f"ansible_collections.corral.slurm.plugins.action.{name}").ActionModule
        given = {"namespace": self.namespace, "pod": f"{self.name}-controller-0", **options}
        validated = ArgumentSpecValidator(action.argument_spec(), **action.constraints).validate(given)
        assert not validated.error_messages
        result = action.backend(validated.validated_parameters, check=check, diff=diff)
        plain: dict[str, Any] = json.loads(json.dumps(result))  # what Ansible makes of it, too
        return plain

    def said(self) -> str:
        """What Slurm and Kubernetes say of the cluster now, as far as they answer."""
        inside = ("exec", "-n", self.namespace, f"{self.name}-controller-0", "-c", "slurmctld", "--")
        logs = ("logs", "-n", self.namespace, "--prefix", "--timestamps", "--max-log-requests=20", "-l")
        commands: list[tuple[str, ...]] = [
            (*inside, "sinfo", "-N", "-o", "%N %T %E %H"),
            (*inside, "squeue", "-o", "%i %T %r %N %S"),
            ("get", "pods", "-n", self.namespace, "-o", "wide"),
            ("get", "pvc", "-n", self.namespace),
            ("get", "events", "-n", self.namespace, "--field-selector=type!=Normal", "--sort-by=.metadata.creationTimestamp"),
            (*logs, "app.kubernetes.io/component=controller", "-c", "slurmctld", "--tail=150"),
            (*logs, "app.kubernetes.io/component=worker", "-c", "slurmd", "--tail=40"),
        ]
        return "\n".join(f"-- {' '.join(command)}\n{self.kubectl(*command, check=False)}" for command in commands)

    def cancel_jobs(self) -> None:
        """End all of its jobs, if it answers."""
        self.slurm("sh", "-c", "squeue -h -o %A | sort -u | xargs -r scancel", check=False)

    def ssh(
        self,
        command: str,
        *flags: str,
        check: bool = True,
        user: str = "alice",
        stdin: str | None = None,
        env: dict[str, str] | None = None,
        timeout: float = 180,
    ) -> subprocess.CompletedProcess[str]:
        arguments = [
            "ssh", "-i", str(self.key), "-p", str(self.port), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
            "-o", f"UserKnownHostsFile={self.directory}/known_hosts", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=10",
            *flags, f"{user}@{self.kubectl.node_address()}", command,
        ]  # fmt: skip
        deadline = time.monotonic() + 10
        while True:
            done = subprocess.run(
                arguments, capture_output=True, text=True, timeout=timeout, check=False, input=stdin, env={**os.environ, **(env or {})}
            )
            # kube-proxy opens the port a moment after the login pod is ready, and nothing has run yet.
            if "Connection refused" not in done.stderr or not done.stderr.startswith("ssh: connect to") or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if check and done.returncode:
            raise AssertionError(f"ssh {command!r} ended {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def objects(self) -> dict[str, str]:
        """kind/name → resourceVersion of all that carries the cluster's label and that the collection wrote, but for the documents that it has had."""
        found = self.kubectl.versions(self.namespace, f"app.kubernetes.io/instance={self.name}")
        return {name: version for name, version in found.items() if name != f"ConfigMap/{self.name}-base-revisions"}


def make_spec(name: str, public_key: str, port: int) -> dict[str, Any]:
    # The lab's machines have two CPUs each, and clusters of several files are there at once, until the end: what a pod asks for must be next to nothing.
    small = {"requests": {"cpu": "5m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}
    return {
        "images": {"slurm": SLURM_IMAGE},
        "slurm": {"processTracking": "linuxproc"},
        "controller": {
            "resources": {"requests": {"cpu": "20m", "memory": "128Mi"}, "limits": {"memory": "2Gi"}},
            "stateVolume": {"hostPath": f"{VOLUMES}/{name}-state", "size": "1Gi"},
        },
        "login": {"service": {"type": "NodePort", "nodePort": port}},
        "nodeSets": [
            {"name": "cpu", "replicas": 2, "resources": copy.deepcopy(small), "features": ["plain"]},
            {"name": "extra", "replicas": 1, "resources": copy.deepcopy(small)},
        ],
        "partitions": [{"name": "main", "default": True}],
        "jail": {
            "volume": {"hostPath": f"{VOLUMES}/{name}-jail", "size": "5Gi"},
            "populate": {"image": "localhost/corral/jail:trixie"},
        },
        "users": [{"name": "alice", "uid": 10001, "sshKeys": [public_key], "sudo": True}],
        # One pod less for each cluster; test_monitoring.py has it.
        "monitoring": {"enabled": False},
    }


MARIADB_IMAGE = "localhost/corral/mariadb:trixie"


def embedded_database(name: str) -> dict[str, Any]:
    """A field ``spec.accounting.database`` for the cluster of this name; MARIADB_IMAGE is its image."""
    return {
        "embedded": {
            "volume": {"hostPath": f"{VOLUMES}/{name}-database", "size": "1Gi"},
            "resources": {"requests": {"cpu": "5m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
            "nodeSelector": {"kubernetes.io/hostname": "node1"},
        }
    }


@pytest.fixture(scope="session")
def kubectl() -> Kubectl:
    return Kubectl(REPOSITORY)


@pytest.fixture(scope="session")
def ssh_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = tmp_path_factory.mktemp("ssh") / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(key)], check=True)
    return key


@dataclass
class Clusters:
    """Makes documents of clusters in namespaces of their own, and takes away whatever a test left of them."""

    kubectl: Kubectl
    key: Path
    directories: pytest.TempPathFactory
    left: dict[str, None] = field(default_factory=dict)

    @contextlib.contextmanager
    def made(self) -> Iterator[Callable[[str, int], Cluster]]:
        """Those that are made here begin to go at the end: the files after this one need the room, and none needs to see them gone."""
        names: list[str] = []

        def make(name: str, port: int) -> Cluster:
            self.remove(name)
            names.append(name)
            spec = make_spec(name, Path(f"{self.key}.pub").read_text().strip(), port)
            return Cluster(name, f"test-{name}", spec, self.directories.mktemp(name), self.key, port, self.kubectl)

        yield make
        for name in dict.fromkeys(names):
            self.kubectl("delete", "namespace", f"test-{name}", "--ignore-not-found", "--wait=false")
            self.left[name] = None

    def remove(self, name: str) -> None:
        """See it gone, with what its volumes held."""
        self.kubectl("delete", "namespace", f"test-{name}", "--ignore-not-found", "--wait=true", "--timeout=120s")
        for what, claim in (("state", "controller-state"), ("jail", "jail"), ("database", "database"), ("backup", "backup")):
            self.kubectl("delete", "pv", f"test-{name}-{name}-{claim}", "--ignore-not-found")
            shutil.rmtree(VOLUMES / f"{name}-{what}", ignore_errors=True)


@pytest.fixture(scope="session")
def clusters_made(kubectl: Kubectl, ssh_key: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    clusters = Clusters(kubectl, ssh_key, tmp_path_factory)
    yield clusters
    for name in clusters.left:
        clusters.remove(name)


@pytest.fixture(scope="module")
def make_cluster(clusters_made: Clusters) -> Iterator[Callable[[str, int], Cluster]]:
    """Make the document of a cluster that is gone after the file: NAME, its login's node port."""
    with clusters_made.made() as make:
        yield make


def eventually(condition: Callable[[], bool], what: str, timeout: float = 60) -> None:
    """Poll until a condition holds; the wait is bounded and its failure says what never came.

    ``timeout`` is for a machine that does nothing else: three times as long is waited, which costs nothing where it is not needed.
    """
    deadline = time.monotonic() + 3 * timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {3 * timeout:.0f} s: {what}")
        time.sleep(0.5)
