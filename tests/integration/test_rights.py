# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rights of examples/rights.yml are enough for a cluster's whole life."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import REPOSITORY, VOLUMES, Cluster, Run
from .test_bad_days import connection, said

pytestmark = pytest.mark.lab

NAME = "rights"
RIGHTS = REPOSITORY / "examples" / "rights.yml"
CLAIMS = ("state", "jail")


def claim(name: str, namespace: str) -> list[dict[str, object]]:
    """A volume that the cluster's administrator gives to the namespace."""
    shape = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    path = VOLUMES / f"{NAME}-{name}"
    path.mkdir(parents=True, exist_ok=True)
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"test-{NAME}-{name}"},
        "spec": {
            **shape,
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": str(path)},
            "claimRef": {"name": name, "namespace": namespace},
        },
    }
    wanted = {**shape, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"test-{NAME}-{name}"}
    return [
        volume,
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace}, "spec": wanted},
    ]


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Iterator[Cluster]:
    made = make_cluster(NAME, 30240)
    kubectl = made.kubectl

    def remove_volumes() -> None:
        for name in CLAIMS:
            kubectl("delete", "pv", f"test-{NAME}-{name}", "--ignore-not-found")

    remove_volumes()  # of a run that was killed: they are bound to its claims
    kubectl("create", "namespace", made.namespace)
    kubectl("apply", "-n", made.namespace, "-f", str(RIGHTS))
    kubectl("create", "serviceaccount", "pusher", "-n", made.namespace)
    subject = f"--serviceaccount={made.namespace}:pusher"
    kubectl("create", "rolebinding", "pusher", "--role=corral-push", subject, "-n", made.namespace)
    volumes = [one for name in CLAIMS for one in claim(name, made.namespace)]
    kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": volumes}))
    made.spec["priorityClasses"] = {"create": False}
    made.spec["controller"] = {"stateVolume": {"claimName": "state"}, "replicas": 2}
    made.spec["jail"]["volume"] = {"claimName": "jail"}
    yield made
    kubectl("delete", "namespace", made.namespace, "--ignore-not-found", "--wait=true", "--timeout=120s")
    remove_volumes()


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path) -> Callable[[str], Run]:
    """Runs a playbook as somebody who has these rights and no others."""
    token = cluster.kubectl("create", "token", "pusher", "-n", cluster.namespace).strip()
    env = {"K8S_AUTH_API_KEY": token, **connection(cluster.kubectl, tmp_path)}

    def playbook(verb: str) -> Run:
        words = ("-e", "cluster_base_create_namespace=false")
        return cluster.site(*words, env=env) if verb == "site" else cluster.destroy(*words, "-e", f"confirm={NAME}", env=env)

    return playbook


def test_the_rights_are_of_one_namespace_and_name_what_they_are_for() -> None:
    text = RIGHTS.read_text()
    assert "kind: Role\n" in text
    assert "ClusterRole" not in text
    assert "*" not in text


def test_they_make_change_and_remove_a_cluster(cluster: Cluster, run: Callable[[str], Run]) -> None:
    made = run("site")
    assert made.rc == 0, made.output
    # Who may read where the API server is closes it, and who may not leaves it so.
    assert "until a run reads addresses there" in said(made.output)
    service = cluster.kubectl("get", "service", "kubernetes", "-n", "default", "-o", "jsonpath={.spec.clusterIP}").strip()
    policy = ("get", "networkpolicy", f"{NAME}-base-egress-worker", "-n", cluster.namespace, "-o", "yaml")
    assert f"{service}/32" not in cluster.kubectl(*policy)
    with_more = cluster.site()
    assert with_more.rc == 0, with_more.output
    assert f"{service}/32" in cluster.kubectl(*policy)
    again = run("site")
    assert (again.rc, again.changed) == (0, 0), again.output
    assert "until a run reads addresses there" not in said(again.output)
    # A new user, one node less, another template: what the controller's and the workers' pods are told, and a pod that is replaced.
    cluster.spec["users"].append({"name": "bob", "uid": 10002, "sshKeys": cluster.spec["users"][0]["sshKeys"]})
    cluster.spec["nodeSets"][0]["replicas"] = 1
    cluster.spec["nodeSets"][1]["environment"] = [{"name": "CHANGE", "value": "one"}]
    before = cluster.kubectl.uids(cluster.namespace, "corral.hpc/node-set=extra")
    less = run("site")
    assert less.rc == 0, less.output
    assert cluster.kubectl.uids(cluster.namespace, "corral.hpc/node-set=extra") != before
    assert cluster.slurm("sinfo", "-h", "-N", "-o", "%N").split() == ["cpu-0", "extra-0"]
    gone = run("destroy")
    assert gone.rc == 0, gone.output
    assert not cluster.objects()
