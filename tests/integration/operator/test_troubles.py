# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults around the operator: a cluster that cannot be created, beside one that can; watches that break in every way; and no key in any output.

The operator runs beside the lab, and the fault proxy stands before its API server. The clusters have no nodes, so that each is made in seconds.
"""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ...faultproxy.proxy import Fault, FaultProxy
from ..conftest import SLURM_IMAGE, VOLUMES, Cluster, eventually
from ..kubectl import Kubectl
from .conftest import Beside, Served, definitions, keys, let_go

pytestmark = pytest.mark.lab
Json = dict[str, Any]
LAB = VOLUMES.parent
MISSING = "localhost/corral/slurm:is-missing"


def without_nodes(made: Cluster) -> Served:
    made.kubectl("create", "namespace", made.namespace)
    made.spec |= {"nodeSets": [], "partitions": [], "login": {"replicas": 0}}
    return Served(**vars(made))


@pytest.fixture(scope="module")
def clusters(kubectl: Kubectl, make_cluster: Callable[[str, int], Cluster]) -> Iterator[tuple[Served, Served]]:
    """One that is going to be broken, and one that is not."""
    with definitions(kubectl):
        for name in ("broken", "spared"):
            let_go(kubectl, f"test-{name}")
        broken, spared = (without_nodes(make_cluster(name, 0)) for name in ("broken", "spared"))
        yield broken, spared
        for one in (broken, spared):
            let_go(kubectl, one.namespace)


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    with FaultProxy(LAB / "kubeconfig") as made:
        yield made


@pytest.fixture(scope="module")
def operator(clusters: tuple[Served, Served], proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    directory = tmp_path_factory.mktemp("operator")
    made = Beside(directory, ",".join(one.namespace for one in clusters))
    made.start(KUBECONFIG=str(proxy.kubeconfig(directory / "kubeconfig")), CORRAL_IDENTITY="this-pod_1")
    yield made
    if made.lives:
        made.stop()
    shutil.rmtree(directory)


def lines(operator: Beside, message: str) -> list[Json]:
    """What the operator has logged with these words."""
    found = [json.loads(line) for line in operator.log.splitlines() if line.startswith("{")]
    return [line for line in found if line["message"] == message]


def events(cluster: Served, reason: str) -> list[Json]:
    return [one for one in cluster.kubectl.items("events", "-n", cluster.namespace) if one["reason"] == reason]


def test_a_cluster_that_can_not_be_created_reports_why_and_is_retried_less_and_less_often(
    operator: Beside, clusters: tuple[Served, Served]
) -> None:
    broken, _spared = clusters
    broken.spec["images"]["slurm"] = MISSING
    broken.apply()
    eventually(lambda: broken.condition("Ready").get("reason") == "RunFailed", "the status shows the failure", 60)
    status = broken.resource()["status"]
    [degraded] = [one for one in status["conditions"] if one["type"] == "Degraded"]
    assert degraded["status"] == "True" and degraded["message"] == status["lastFailure"]
    said = broken.condition("Ready")["message"]
    # The task, the object, the reason, and what to do next.
    assert said.startswith(f"Write the users into the shared jail: Job {broken.namespace}/broken-jail-users-"), said
    assert f"container users: the image {MISSING} cannot be had" in said, said
    assert said.endswith("; check the name and the pull secrets."), said
    eventually(lambda: events(broken, "RunFailed") != [], "an event reports it")
    [event] = events(broken, "RunFailed")[:1]
    where, _of, pod = event["message"].rpartition("Its output: ")[2].rstrip(".").partition(" in pod ")
    assert pod == "this-pod"
    assert MISSING in Path(where).read_text(), "the run's output is where the event states"
    eventually(lambda: len(lines(operator, "run failed")) >= 2, "it is tried again", 120)
    pauses = [line["again_in"] for line in lines(operator, "run failed")[:2]]
    assert pauses[0] < pauses[1], pauses


def test_meanwhile_another_cluster_is_made_as_if_it_were_alone(operator: Beside, clusters: tuple[Served, Served]) -> None:
    broken, spared = clusters
    began = time.monotonic()
    spared.apply()
    eventually(lambda: any(one["cluster"].endswith("/spared") for one in lines(operator, "run started")), "its run begins at once", 5)
    print(f"MEASURED kubectl apply beside a broken cluster → its run has begun: {time.monotonic() - began:.1f} s")
    spared.wait_ready()
    eventually(lambda: spared.settled, "the cluster is at rest")
    assert not broken.is_("Ready", "True")


def test_a_corrected_document_is_applied_at_once_and_an_event_reports_it(operator: Beside, clusters: tuple[Served, Served]) -> None:
    broken, _spared = clusters
    broken.spec["images"]["slurm"] = SLURM_IMAGE
    broken.apply()
    broken.wait_ready()
    eventually(lambda: broken.settled, "the cluster is at rest")
    assert events(broken, "Recovered") != []
    assert "lastFailure" not in broken.resource()["status"]
    assert operator.lives


@pytest.mark.parametrize("fault", ["410", *(pytest.param(one, marks=pytest.mark.long) for one in ("410-event", "429", "500"))])
def test_watches_that_break_miss_nothing(operator: Beside, clusters: tuple[Served, Served], proxy: FaultProxy, fault: str) -> None:
    _broken, spared = clusters
    wanted = spared.contents()
    # All watches end, and the next ones that are begun fail, some of them twice.
    proxy.plan(Fault(fault, verb="GET", path="[?&]watch=1", times=30, seconds=0.2))
    with proxy.gone():
        spared.kubectl("delete", "networkpolicy", "spared-base", "-n", spared.namespace)
    began = time.monotonic()
    eventually(lambda: spared.contents() == wanted, "what was deleted is made again", 60)
    print(f"MEASURED all watches broken by {fault} → what was deleted meanwhile is repaired: {time.monotonic() - began:.1f} s")
    assert [one for one in proxy.trace if one.fault == fault]
    # And its present watches deliver events.
    proxy.plan()
    eventually(lambda: spared.settled, "the cluster is at rest")
    spared.kubectl("delete", "configmap", "spared-controller-config", "-n", spared.namespace)
    eventually(lambda: spared.contents() == wanted, "what is deleted then is made again, too", 60)
    eventually(lambda: spared.settled, "the cluster is at rest again")
    assert operator.lives
    assert "lastFailure" not in spared.resource()["status"]


WRITES = ("409", "429", "reset")


@pytest.mark.parametrize("fault", WRITES)
def test_writes_that_are_refused_for_now_are_written_later(
    operator: Beside, clusters: tuple[Served, Served], proxy: FaultProxy, fault: str
) -> None:
    """Of the operator's own, the status and the finalizer, and of its runs."""
    _broken, spared = clusters
    eventually(lambda: spared.settled, "the cluster is at rest")
    proxy.plan(*(Fault(fault, write=number, seconds=0.2) for number in range(1, 12, 2)))
    spared.spec["slurm"]["extraConfig"] = [f"KillWait={40 + WRITES.index(fault)}"]
    spared.apply()
    eventually(lambda: spared.settled, "the edit is made real", 60)
    assert [one for one in proxy.trace if one.fault == fault]
    proxy.plan()
    assert "lastFailure" not in spared.resource()["status"]
    assert operator.lives


def canaries(cluster: Served) -> list[bytes]:
    """What must be nowhere: pieces from the middle of each key that is no public one, as it is and as Kubernetes writes it."""
    found: list[bytes] = []
    for name, value in keys(cluster).items():
        if not name.endswith(".pub"):
            raw = base64.b64decode(value)
            parts = raw.splitlines() if raw.startswith(b"-----BEGIN") else [raw[:24], raw[24:48], raw[48:72]]
            found += [parts[len(parts) // 2], value[len(value) // 2 :][:40].encode()]
    assert all(len(one) >= 20 for one in found)
    return found


def test_no_key_is_in_status_event_log_or_artifact(operator: Beside, clusters: tuple[Served, Served]) -> None:
    """After all that these tests have done, failures among it."""
    for cluster in clusters:
        wanted = canaries(cluster)
        held = json.dumps(cluster.kubectl.items("secrets", "-n", cluster.namespace)).encode()
        assert sum(canary in held for canary in wanted) >= 4, "they would be found"
        resource = json.dumps(cluster.resource()) + json.dumps(cluster.kubectl.items("events", "-n", cluster.namespace))
        config_maps = json.dumps(cluster.kubectl.items("configmaps", "-n", cluster.namespace))
        texts = {"status and events": resource.encode(), "ConfigMaps": config_maps.encode(), "log": operator.log.encode()}
        files = [path for path in operator.directory.rglob("*") if path.is_file()]
        assert any(path.name == "stdout" for path in files)
        texts |= {str(path): path.read_bytes() for path in files}
        leaks = [where for where, text in texts.items() for canary in wanted if canary in text]
        assert leaks == []
