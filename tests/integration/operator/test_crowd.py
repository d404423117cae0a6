# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fifty clusters in five namespaces, all written at once: one operator makes them, leaves them alone and takes them away.

Only `make crowd` runs this: it takes many minutes, and each cluster has a jail of its own (0.8 GB).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..conftest import VOLUMES, eventually, make_spec
from ..kubectl import Kubectl
from .conftest import DOCUMENTS, ENVIRONMENT, IMAGE, Operator, Served, let_go

pytestmark = [pytest.mark.lab, pytest.mark.alone]
COUNT = int(os.environ.get("CORRAL_CROWD", "50"))
NAMESPACES = [f"test-crowd-{number}" for number in range(5)]
PORT = 31500
SMALL = {"requests": {"cpu": "5m", "memory": "16Mi"}}


@pytest.fixture(scope="module")
def operator(kubectl: Kubectl) -> Iterator[Operator]:
    found = Operator(kubectl, "test-operator-crowd")
    remove(kubectl)
    for namespace in NAMESPACES:
        kubectl("create", "namespace", namespace)
    had = kubectl("get", "crd", DOCUMENTS, "--ignore-not-found", "-o", "name")
    environment = {**ENVIRONMENT, "CORRAL_NAMESPACES": ",".join(NAMESPACES)}
    run = found.install(image=IMAGE, namespaces=NAMESPACES, host_paths=True, webhook="absent", replicas=1, environment=environment)
    assert run.rc == 0, run.output
    yield found
    remove(kubectl)
    run = found.install("-e", "confirm=slurmclusters", state="absent", remove_documents=not had)
    assert run.rc == 0, run.output
    kubectl("delete", "namespace", found.namespace, "--timeout=120s")


def remove(kubectl: Kubectl) -> None:
    """Take away what a test has left, with or without an operator."""
    for namespace in NAMESPACES:
        kubectl("delete", DOCUMENTS, "--all", "-n", namespace, "--timeout=120s", check=False)
        let_go(kubectl, namespace)
    kubectl("delete", "namespace", *NAMESPACES, "--ignore-not-found", "--timeout=250s")
    for volume in kubectl("get", "pv", "-o", "name").split():
        if volume.partition("/")[2].startswith("test-crowd-"):
            kubectl("delete", volume, "--ignore-not-found")
    for folder in VOLUMES.glob("crowd-*"):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def clusters(operator: Operator, ssh_key: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Served]:
    found = []
    for number in range(COUNT):
        name = f"crowd-{number}"
        spec = make_spec(name, Path(f"{ssh_key}.pub").read_text().strip(), PORT + number)
        spec["controller"]["resources"] = spec["login"]["resources"] = SMALL
        spec["nodeSets"] = [{**spec["nodeSets"][0], "replicas": 1}]
        spec["nodeSets"][0]["resources"]["requests"] = SMALL["requests"]
        spec["deletion"] = {"data": "Delete"}
        namespace = NAMESPACES[number % len(NAMESPACES)]
        found.append(Served(name, namespace, spec, tmp_path_factory.mktemp(name), ssh_key, PORT + number, operator.kubectl))
    return found


def ready(operator: Operator) -> dict[str, str]:
    """Why each document is not ready, "" where it is; of its present generation."""
    found = {}
    for namespace in NAMESPACES:
        for one in operator.kubectl.items(DOCUMENTS, "-n", namespace):
            conditions = {c["type"]: c for c in one.get("status", {}).get("conditions", ())}
            given = conditions.get("Ready", {})
            fresh = given.get("observedGeneration") == one["metadata"]["generation"]
            found[one["metadata"]["name"]] = "" if fresh and given["status"] == "True" else str(given.get("message", "not reconciled"))
    return found


def test_all_are_made_and_a_broken_one_delays_none(operator: Operator, clusters: list[Served], tmp_path: Path) -> None:
    documents = [yaml.safe_load(cluster.write().read_text()) for cluster in clusters]
    broken: dict[str, Any] = {**documents[0], "metadata": {"name": "broken", "namespace": NAMESPACES[0]}}
    broken["spec"] = {**broken["spec"], "partitions": [{"name": "main", "nodeSets": ["nowhere"]}]}
    file = tmp_path / "all.yml"
    file.write_text(yaml.safe_dump_all([broken, *documents]))
    began = time.monotonic()
    operator.kubectl("apply", "-f", str(file))
    seen: dict[str, float] = {}

    def all_ready() -> bool:
        now = ready(operator)
        seen.update({name: time.monotonic() - began for name, why in now.items() if not why and name not in seen})
        return len(seen) == COUNT

    try:
        eventually(all_ready, "all clusters are ready", 12 * COUNT + 60)
    except AssertionError as error:
        raise AssertionError(f"{error}: {ready(operator)}\n{operator.log('--tail=40')}") from None
    why = ready(operator)
    assert "nowhere" in why.pop("broken")
    assert set(why.values()) == {""}
    times = sorted(seen.values())
    print(
        f"MEASURED {COUNT} clusters written at once: the first ready after {times[0]:.0f} s, half {times[COUNT // 2]:.0f}, all {times[-1]:.0f}"
    )
    operator.kubectl("delete", DOCUMENTS, "broken", "-n", NAMESPACES[0], "--timeout=60s")


def test_each_is_a_cluster_of_its_own(clusters: list[Served]) -> None:
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda cluster: cluster.ssh("srun sh -c 'echo $SLURM_CLUSTER_NAME'").stdout.strip(), clusters))
    assert said == [cluster.name for cluster in clusters]


def test_an_operator_that_starts_runs_nothing(operator: Operator, clusters: list[Served]) -> None:
    eventually(lambda: all(cluster.settled for cluster in clusters), "all are at rest", 120)
    before = [cluster.objects() for cluster in clusters]
    operator.kubectl("rollout", "restart", "deployment/corral-operator", "-n", operator.namespace)
    operator.kubectl("rollout", "status", "deployment/corral-operator", "-n", operator.namespace, "--timeout=120s")
    operator.led()
    time.sleep(10)
    assert operator.runs() == 0, operator.log("--tail=50")
    assert [cluster.objects() for cluster in clusters] == before


def test_all_go(operator: Operator, clusters: list[Served]) -> None:
    began = time.monotonic()
    for namespace in NAMESPACES:
        operator.kubectl("delete", DOCUMENTS, "--all", "-n", namespace, "--wait=false")
    eventually(lambda: not ready(operator), "all documents are gone", 6 * COUNT + 60)
    print(f"MEASURED {len(clusters)} clusters deleted at once: gone after {time.monotonic() - began:.0f} s")
    for namespace in NAMESPACES:
        assert operator.kubectl("get", "statefulsets,services,secrets,jobs,persistentvolumeclaims", "-n", namespace, "-o", "name") == ""
