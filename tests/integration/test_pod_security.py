# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of Kubernetes' Pod Security levels each pod that the collection can make keeps, by the word of the API server that enforces them, and
what in it a stricter one refuses: the table of docs/security.md. No pod is made."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve
from ansible_collections.corral.slurm.plugins.module_utils._kube.render import render

from ..unit.repo.test_operator_role import objects as operator_objects
from .conftest import MARIADB_IMAGE, REPOSITORY, eventually, make_spec
from .kubectl import Kubectl

pytestmark = pytest.mark.lab

Json = dict[str, Any]
ROLES = REPOSITORY / "roles"
# The strictest first.
LEVELS = ("restricted", "baseline", "privileged")
# What each documented pod is made of: the change of the document that it takes, and the template that has it.
MADE: dict[str, tuple[Json, str]] = {
    "accounting": ({"database": {}}, "accounting/stateful_set"),
    "accounting, its database": ({"database": {"size": "1Gi"}}, "accounting/database"),
    "accounting, its database with a `hostPath`": ({"database": {"hostPath": "/srv/database"}}, "accounting/database"),
    "accounting, with an archive": ({"database": {}, "archive": True}, "accounting/stateful_set"),
    "backup of the accounting database": ({"database": {}, "backup": {"claimName": "dumps"}}, "accounting/backup"),
    "backup of the accounting database to a `hostPath`": (
        {"database": {}, "backup": {"hostPath": "/srv", "size": "1Gi"}},
        "accounting/backup",
    ),
    "backup of the accounting database, by a run": ({"database": {}}, "accounting/database_client"),
    "controller": ({}, "slurm_controller/stateful_set"),
    "controller, with `spec.sssd`": ({"sssd": True}, "slurm_controller/stateful_set"),
    "controller, while Slurm is upgraded": ({}, "slurm_controller/upgrade_check"),
    "job that tries LDAP": ({"sssd": True}, "cluster_base/sssd_check"),
    "job that populates a jail": ({}, "jail_populate/populate_job"),
    "job that writes users": ({}, "jail_populate/users_job"),
    "job that writes users, without a shared jail": ({"shared": False}, "jail_populate/users_job"),
    "login": ({}, "slurm_login/stateful_set"),
    "login, `entry: Pivot`": ({"entry": "Pivot"}, "slurm_login/stateful_set"),
    "login, `entry: Pivot`, profiles on the nodes": ({"entry": "Pivot", "seccomp": "Localhost"}, "slurm_login/stateful_set"),
    "login, without a shared jail": ({"shared": False}, "slurm_login/stateful_set"),
    "monitoring": ({"monitoring": True}, "monitoring/stateful_set"),
    "REST API": ({"rest": True}, "slurm_rest/stateful_set"),
    "workers": ({}, "slurm_workers/stateful_set"),
    "workers, profiles on the nodes": ({"seccomp": "Localhost"}, "slurm_workers/stateful_set"),
    "workers, with a `hostPath` in `spec.jail.subMounts`": ({"hostPath": True}, "slurm_workers/stateful_set"),
}
# The checks of Pod Security that refuse something of ours, and what the table calls that; capabilities are named themselves.
CHECKS = {
    "non-default capabilities": [],
    "unrestricted capabilities": [],
    "runAsNonRoot != true": ["root"],
    "runAsUser=0": ["root"],
    "seccompProfile": ["seccomp Unconfined"],
    "forbidden AppArmor profile": ["AppArmor Unconfined"],
    "hostPath volumes": ["hostPath"],
}
# Beside the model; the rest of these words are values that no rule reads.
VARIABLES = {"populate_script": "#!/bin/sh\n", "image": "localhost/corral/slurm:24.11", "changes": []}


def document(change: Json) -> Json:
    spec = make_spec("levels", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE6YrzWLtEu6CTFnqvbNzcnYEqIPSvFdLO5zQbRhcUuK a", 30399)
    if change.get("sssd"):
        spec["sssd"] = {"image": "localhost/corral/sssd:trixie", "configSecret": "sssd"}
    if change.get("shared") is False:
        spec["jail"] |= {"shared": False, "volume": {"size": "5Gi"}, "subMounts": [{"path": "/home", "claimName": "homes"}]}
    if change.get("entry"):
        spec["login"]["entry"] = change["entry"]
    if change.get("seccomp"):
        spec["security"] = {"seccomp": change["seccomp"], "appArmor": change["seccomp"]}
    if "database" in change:
        spec["images"]["mariadb"] = MARIADB_IMAGE
        spec["accounting"] = {"database": {"embedded": {"volume": change["database"]}}}
    if "backup" in change:
        spec["accounting"]["database"]["backup"] = {"schedule": "@daily", "volume": change["backup"]}
    if change.get("archive"):
        spec["accounting"] |= {"purge": {"jobs": "12months"}, "archive": {"volume": {"claimName": "archive"}}}
    if change.get("monitoring"):
        spec["monitoring"] = {}
    if change.get("rest"):
        spec["rest"] = {"tls": {"secret": "certificate"}}
    if change.get("hostPath"):
        spec["jail"]["subMounts"] = [{"path": "/disk", "hostPath": "/srv/disk"}]
    return {
        "apiVersion": "corral.hpc/v1alpha1",
        "kind": "SlurmCluster",
        "metadata": {"name": "levels", "namespace": "levels"},
        "spec": spec,
    }


def pod_spec(objects: list[Json]) -> Json:
    """The pod of the first object that makes some, without what only lies in the namespace that it is made for."""
    made = next(item for item in objects if item["kind"] in {"StatefulSet", "Deployment", "DaemonSet", "Job", "CronJob"})
    spec: Json = made["spec"].get("jobTemplate", made)["spec"]["template"]["spec"]
    # A Job's and a StatefulSet's are completed by their controllers.
    left_out = {"serviceAccountName", "priorityClassName", "nodeName", "imagePullSecrets"}
    return {"restartPolicy": "Never"} | {key: value for key, value in spec.items() if key not in left_out}


def pods() -> dict[str, Json]:
    made = {}
    for name, (change, template) in MADE.items():
        role, _slash, file = template.partition("/")
        model = resolve.model(document(change), sizes={}).to_dict()
        folders: list[Path] = [ROLES / one / "templates" for one in (role, "cluster_base")]
        made[name] = pod_spec(render([ROLES / role / "templates" / f"{file}.yml.j2"], {"corral": model, **VARIABLES}, folders)[0])
    made["operator"] = pod_spec(operator_objects(operator_image="localhost/corral/operator:0.1.0"))
    made["`node_profiles`"] = pod_spec(node_profiles_objects())
    return made


def node_profiles_objects(**given: Any) -> list[Json]:
    """What the role node_profiles would apply."""
    words = {
        "namespace": "levels",
        "labels": {"a": "b"},
        "selector": {"a": "b"},
        "state": "present",
        "pull_policy": "Never",
        "pull_secrets": [],
    }
    words |= {"directory": "/var/lib/kubelet/seccomp", "node_selector": {}, "tolerations": [], "files": {"a": "b"}, "digest": "0"}
    folder = ROLES / "node_profiles" / "templates"
    return render([folder / "daemon_set.yml.j2"], words | VARIABLES | given, [folder])[0]


@dataclass
class Judge:
    """The API server, with a namespace of each level."""

    program: str

    def refusal(self, level: str, spec: Json) -> str | None:
        """What it says of a pod in a namespace that enforces a level; None where it takes the pod."""
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "levels", "namespace": f"test-level-{level}"}, "spec": spec}
        command = [self.program, "create", "--dry-run=server", "-f", "-"]
        done = subprocess.run(command, input=json.dumps(pod), capture_output=True, text=True, check=False)
        assert done.returncode == 0 or "violates PodSecurity" in done.stderr, done.stderr
        return done.stderr if done.returncode else None

    def level(self, spec: Json) -> str:
        """The strictest that takes the pod."""
        return next(level for level in LEVELS if self.refusal(level, spec) is None)


@pytest.fixture(scope="module")
def judge(kubectl: Kubectl) -> Iterator[Judge]:
    names = [f"test-level-{level}" for level in LEVELS]
    kubectl("delete", "namespace", *names, "--ignore-not-found", "--wait=true")
    for level, name in zip(LEVELS, names, strict=True):
        kubectl("create", "namespace", name)
        kubectl("label", "namespace", name, f"pod-security.kubernetes.io/enforce={level}")
        # Kubernetes makes it a moment later, and takes no pod before.
        eventually(lambda name=name: "default" in kubectl("get", "serviceaccounts", "-n", name, "-o", "name"), f"{name} to be ready")
    yield Judge(str(REPOSITORY / "lab" / "kubectl"))
    kubectl("delete", "namespace", *names, "--wait=false")


def container(spec: Json, one: Json) -> Json:
    """The pod with this container alone and none of its volumes: what is refused then is the container's."""
    only = {key: value for key, value in one.items() if key not in {"restartPolicy", "volumeMounts"}}
    return {key: value for key, value in spec.items() if key != "volumes"} | {"initContainers": [], "containers": [only]}


def reasons(said: str) -> str:
    """The API server's words of one container or pod, in those of the table: capabilities, and what else is refused."""
    checks = said.partition('latest": ')[2]
    told = {word for name in re.findall(r"(?:^|, )([\w !=-]+) \(", checks) for word in CHECKS[name]}
    added = " ".join(re.findall(r"must not include (.*?) in securityContext.capabilities.add", checks))
    return ", ".join(f"`{one}`" for one in [*sorted(re.findall(r'"(\w+)"', added)), *sorted(told)])


def row(judge: Judge, name: str, spec: Json) -> str:
    """A pod's row: the level that it keeps, and what the next stricter one refuses of each container, and of its volumes."""
    level = judge.level(spec)
    refused = []
    if level != LEVELS[0]:
        stricter = LEVELS[LEVELS.index(level) - 1]
        for one in [*(spec.get("initContainers") or []), *spec["containers"]]:
            said = judge.refusal(stricter, container(spec, one))
            refused += [f"`{one['name']}`: {reasons(said)}"] if said else []
        # An empty container keeps every level, so what is refused of it is the volumes'.
        plain = {"name": "plain", "image": "plain", "securityContext": PLAIN}
        said = judge.refusal(stricter, spec | {"initContainers": [], "containers": [plain]})
        refused += [f"volumes: {reasons(said)}"] if said else []
        assert refused, f"{name}: {stricter} refuses the pod, and none of its parts"
    return f"| {name} | {level if level != 'privileged' else 'none'} | {'; '.join(refused) or '—'} |"


PLAIN = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def test_the_documents_table_is_what_the_api_server_says(judge: Judge) -> None:
    text = (REPOSITORY / "docs" / "security.md").read_text()
    rows = [row(judge, name, spec) for name, spec in sorted(pods().items())]
    table = text.partition("| pods | level that they keep | what the next stricter one refuses |\n|---|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == rows, "this would be the table of docs/security.md:\n" + "\n".join(rows)


def test_every_template_that_makes_pods_is_in_the_table() -> None:
    """But for the one that others extend."""
    made = {template for _change, template in MADE.values()} | {"operator/deployment", "node_profiles/daemon_set"}
    there = {
        f"{path.parts[-3]}/{path.name.removesuffix('.yml.j2')}"
        for path in ROLES.glob("*/templates/*.j2")
        if re.search(r"(?m)^(kind: (StatefulSet|Deployment|DaemonSet|Job|CronJob|Pod)|\{% extends .*)$", path.read_text())
    } - {"cluster_base/daemon"}
    assert there and there == made
