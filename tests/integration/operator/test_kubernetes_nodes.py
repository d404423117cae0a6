# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draining Kubernetes nodes under the operator, which alone runs corral.slurm.sync.

The tests go on from one another. node2 has one of the two workers, and nothing else of the cluster; it is cordoned, so no other test runs beside these.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ..conftest import Cluster, eventually
from ..kubectl import Kubectl
from ..scenarios import scenario
from ..test_sync import DRAINED, READY, comes_again, condition, drain, evict, in_service, node_on, nodes, pods, state, submit
from .conftest import DOCUMENTS, ENVIRONMENT, IMAGE, Operator, Served, let_go

# test_sync.py tests the same changes in Slurm by the playbook.
pytestmark = [pytest.mark.lab, pytest.mark.alone, pytest.mark.long]
NAME = os.environ.get("CORRAL_TEST_PREFIX", "") + "machines"
PORT = int(os.environ.get("CORRAL_TEST_PORT", "31402"))


@pytest.fixture(scope="module")
def made(kubectl: Kubectl, make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    let_go(kubectl, f"test-{NAME}")
    cluster = make_cluster(NAME, PORT)  # takes away what was left of its namespace
    kubectl("create", "namespace", cluster.namespace)
    return cluster


@pytest.fixture(scope="module")
def operator(kubectl: Kubectl, made: Cluster) -> Iterator[Operator]:
    """One that serves this namespace only, so that any other of the lab does not matter; its rights are those of one for the whole cluster."""
    found = Operator(kubectl, f"test-operator-{NAME}")
    kubectl("delete", "namespace", found.namespace, "--ignore-not-found", "--timeout=120s")
    had = kubectl("get", "crd", DOCUMENTS, "--ignore-not-found", "-o", "name")
    environment = {**ENVIRONMENT, "CORRAL_NAMESPACES": made.namespace, "CORRAL_SYNC_AGAIN": "3"}
    run = found.install(image=IMAGE, namespaces=[made.namespace], host_paths=True, webhook="absent", replicas=1, environment=environment)
    assert run.rc == 0, run.output
    yield found
    run = found.install("-e", "confirm=slurmclusters", state="absent", remove_documents=not had)
    assert run.rc == 0, run.output
    kubectl("delete", "namespace", found.namespace, "--timeout=120s")


@pytest.fixture(scope="module")
def cluster(operator: Operator, made: Cluster) -> Iterator[Served]:
    found = Served(**vars(made))
    del found.spec["nodeSets"][1]
    found.spec["nodeSets"][0].update(replicas=2, onePodPerNode=True)
    for part in ("controller", "login"):
        found.spec[part]["nodeSelector"] = {"kubernetes.io/hostname": "node1"}
    found.apply()
    found.wait_ready()
    yield found
    kubectl = operator.kubectl
    kubectl("uncordon", "node2")
    kubectl("delete", DOCUMENTS, found.name, "-n", found.namespace, "--ignore-not-found", "--timeout=120s", check=False)
    let_go(kubectl, found.namespace)


def test_the_states_of_nodes_show_on_their_pods(cluster: Served) -> None:
    eventually(lambda: all(shown(pod, READY) == "True" for pod in pods(cluster).values()), "the pods show that their nodes are ready", 30)


def shown(pod: dict[str, object], kind: str) -> str:
    """The status of a condition, "" where it is not there yet."""
    try:
        return condition(pod, kind)[0]
    except StopIteration:
        return ""


def test_a_cordon_drains_and_comes_back_by_itself(cluster: Served) -> None:
    name = node_on(cluster, "node2")
    with scenario(cluster, "a machine is cordoned, and uncordoned again, under the operator", [submit(cluster, f"-w {name}", "first")]):
        began = time.monotonic()
        cluster.kubectl("cordon", "node2")
        eventually(lambda: nodes(cluster)[name] == "draining|corral: sync: Kubernetes node node2 is cordoned", "the node is drained", 15)
        print(f"MEASURED cordon → node drained: {time.monotonic() - began:.1f} s")
        eventually(lambda: shown(pods(cluster)["node2"], DRAINED) == "False", "the pod shows it", 15)
        assert "disruption budget" in evict(cluster, pods(cluster)["node2"]["metadata"]["name"]), "the pod of a running job was evicted"
        began = time.monotonic()
        cluster.kubectl("uncordon", "node2")
        eventually(lambda: not nodes(cluster)[name].startswith("d"), "the node is back in service", 15)
        print(f"MEASURED uncordon → node back: {time.monotonic() - began:.1f} s")
    time.sleep(15)
    before = cluster.resource()["metadata"]["resourceVersion"]
    written = [pod["metadata"]["resourceVersion"] for pod in pods(cluster).values()]
    time.sleep(15)
    assert cluster.resource()["metadata"]["resourceVersion"] == before, "nothing changes, and nothing is written"
    assert [pod["metadata"]["resourceVersion"] for pod in pods(cluster).values()] == written
    cluster.ssh("touch first")


def test_kubectl_drain_waits_for_the_job_and_then_succeeds(cluster: Served) -> None:
    pod = pods(cluster)["node2"]["metadata"]
    number = submit(cluster, f"-w {node_on(cluster, 'node2')}", "second")
    with (
        scenario(cluster, "`kubectl drain` of a machine whose worker has a job, under the operator", [number]),
        ThreadPoolExecutor() as pool,
    ):
        draining = pool.submit(drain, cluster)
        eventually(lambda: nodes(cluster)[node_on(cluster, "node2")].startswith("draining|corral: sync:"), "the node is drained", 30)
        time.sleep(8)
        assert (draining.done(), state(cluster, number)) == (False, "RUNNING")
        cluster.ssh("touch second")
        said = draining.result()
        assert state(cluster, number) == "COMPLETED"
        assert f"pod/{pod['name']} evicted" in said and "drained" in said, said
        cluster.kubectl("uncordon", "node2")
        comes_again(cluster, pod["uid"])
        in_service(cluster)
    eventually(lambda: cluster.settled, "the cluster is at rest", 90)


def test_a_drain_of_an_administrator_is_not_touched(cluster: Served) -> None:
    name = node_on(cluster, "node2")
    cluster.slurm("scontrol", "update", f"nodename={name}", "state=drain", "reason=ask bob")
    for word in ("cordon", "uncordon"):
        cluster.kubectl(word, "node2")
        time.sleep(6)
        assert nodes(cluster)[name].endswith("|ask bob")
    cluster.slurm("scontrol", "update", f"nodename={name}", "state=resume")
