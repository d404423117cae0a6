# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An operator for one namespace, with no right outside it: on volumes of an administrator, a cluster is created and deleted as usual."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from ..conftest import VOLUMES, Cluster, eventually
from ..kubectl import Kubectl
from .conftest import DOCUMENTS, ENVIRONMENT, IMAGE, Operator, Served, let_go

pytestmark = pytest.mark.lab
NAME = "scoped"
# As an administrator has made them. The control plane's is the collection's own, which other clusters of the lab make, too.
PRIORITIES = {"corral-control-plane": 1000001, "test-workers": 1000}


def volumes(name: str, namespace: str) -> str:
    """Two volumes and their claims, as an administrator creates them."""
    objects = []
    for claim, folder in ((f"{name}-controller-state", "state"), (f"{name}-jail", "jail")):
        common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        volume = f"{namespace}-{claim}"
        objects += [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": volume},
                "spec": {
                    **common,
                    "capacity": {"storage": "1Gi"},
                    "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": {"path": f"{VOLUMES}/{name}-{folder}", "type": "DirectoryOrCreate"},
                    "claimRef": {"namespace": namespace, "name": f"own-{folder}"},
                },
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": f"own-{folder}", "namespace": namespace},
                "spec": {**common, "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}},
            },
        ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


@pytest.fixture(scope="module")
def operator(kubectl: Kubectl, make_cluster: Callable[[str, int], Cluster]) -> Iterator[tuple[Operator, Served]]:
    let_go(kubectl, f"test-{NAME}")
    cluster = Served(**vars(make_cluster(NAME, 31401)))
    kubectl("create", "namespace", cluster.namespace)
    kubectl("apply", "-f", "-", stdin=volumes(NAME, cluster.namespace))
    for name, value in PRIORITIES.items():
        kubectl("create", "priorityclass", name, f"--value={value}", check=False)
    had = kubectl("get", "crd", DOCUMENTS, "--ignore-not-found", "-o", "name")
    operator = Operator(kubectl, "test-operator-own")
    # The test sets the namespaces itself.
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "CORRAL_NAMESPACES"}
    run = operator.install(
        image=IMAGE,
        scope="Namespaced",
        namespaces=[cluster.namespace],
        priority_class="",
        replicas=1,
        environment={**environment, "CORRAL_LEGACY_CONDITIONS": "true"},
        webhook="absent",
    )
    assert run.rc == 0, run.output
    yield operator, cluster
    kubectl("delete", DOCUMENTS, cluster.name, "-n", cluster.namespace, "--ignore-not-found", "--timeout=120s", check=False)
    run = operator.install("-e", "confirm=slurmclusters", state="absent", remove_documents=not had)
    assert run.rc == 0, run.output
    kubectl("delete", "namespace", operator.namespace, "--timeout=120s")
    kubectl("delete", "priorityclass", "test-workers")


def may(operator: Operator, *words: str) -> bool:
    return operator.kubectl("auth", "can-i", "--as", operator.account, *words, check=False).strip() == "yes"


def test_it_has_no_right_outside_its_namespaces(operator: tuple[Operator, Served]) -> None:
    one, cluster = operator
    everywhere = one.kubectl.items("clusterroles,clusterrolebindings")
    # The operator of other tests may have such: of this one, neither the name nor the account is anywhere.
    assert not [
        found["metadata"]["name"] for found in everywhere if found["metadata"]["name"].startswith(f"corral-operator-{one.namespace}")
    ]
    assert not [found["metadata"]["name"] for found in everywhere if one.namespace in json.dumps(found.get("subjects"))]
    for words in (
        ("list", DOCUMENTS, "-A"),
        ("get", "secrets", "-n", "default"),
        ("get", "configmaps", "-n", "kube-system"),
        ("get", "nodes"),
    ):
        assert not may(one, *words), words
    assert not may(one, "list", "secrets", "-n", cluster.namespace)
    assert may(one, "watch", DOCUMENTS, "-n", cluster.namespace)
    assert may(one, "patch", "statefulsets", "-n", cluster.namespace)


def test_a_cluster_is_created_and_deleted(operator: tuple[Operator, Served]) -> None:
    _one, cluster = operator
    cluster.spec["nodeSets"] = []
    cluster.spec["partitions"] = []
    cluster.spec["login"] = {"replicas": 0}
    cluster.spec["controller"]["stateVolume"] = {"claimName": "own-state"}
    cluster.spec["jail"]["volume"] = {"claimName": "own-jail"}
    cluster.spec["priorityClasses"] = {"create": False, "worker": "test-workers"}
    cluster.apply()
    cluster.wait_ready()
    assert cluster.slurm("scontrol", "ping").strip().endswith("UP")
    # Those of the Go ansible-operator, as its users wait for them.
    cluster.kubectl("wait", DOCUMENTS, cluster.name, "-n", cluster.namespace, "--for=condition=Successful", "--timeout=60s")
    eventually(lambda: cluster.condition("Running").get("reason") == "Successful", "the run is over")
    assert [cluster.condition(kind)["status"] for kind in ("Running", "Successful", "Failure")] == ["True", "True", "False"]
    cluster.kubectl("delete", DOCUMENTS, cluster.name, "-n", cluster.namespace, "--timeout=120s")
    assert {name.split("/")[0] for name in cluster.objects()} == {"Secret"}
    assert len(cluster.kubectl.items("pvc", "-n", cluster.namespace)) == 2
