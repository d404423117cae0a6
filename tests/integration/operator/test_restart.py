# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server itself is killed and started again, in the middle of a run of the operator. All of the lab notices, so no other test runs meanwhile."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ..conftest import REPOSITORY, VOLUMES, Cluster, eventually
from ..kubectl import Kubectl
from .conftest import DOCUMENTS, Served, let_go

pytestmark = [pytest.mark.lab, pytest.mark.alone]
LAB = VOLUMES.parent
NAME = "restarted"


@pytest.fixture
def cluster(kubectl: Kubectl, make_cluster: Callable[[str, int], Cluster]) -> Iterator[Served]:
    """A controller and nothing else."""
    let_go(kubectl, f"test-{NAME}")
    made = Served(**vars(make_cluster(NAME, 31403)))
    kubectl("create", "namespace", made.namespace)
    made.spec["nodeSets"] = made.spec["partitions"] = []
    made.spec["login"] = {"replicas": 0}
    made.spec["jail"]["populate"]["policy"] = "Never"
    yield made
    let_go(kubectl, made.namespace)


@pytest.fixture
def operator(kubectl: Kubectl, cluster: Served, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The operator, beside the lab: what is restarted is not what it runs in."""
    if not kubectl("get", "crd", DOCUMENTS, "--ignore-not-found", "-o", "name"):
        kubectl("apply", "--server-side", "-f", str(REPOSITORY / "playbooks" / "files" / f"{DOCUMENTS}.yml"))
    settings = {
        "CORRAL_ELECT": "false",
        "CORRAL_NAMESPACES": cluster.namespace,
        "CORRAL_ADDRESS": "127.0.0.1",
        "CORRAL_SCRATCH": str(tmp_path / "scratch"),
        "CORRAL_RUNS": str(tmp_path / "runs"),
        "CORRAL_METRICS_PORT": str(port()),
        "CORRAL_HEALTH_PORT": str(port()),
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "corral_operator"], env={**os.environ, **settings}, stdout=log, stderr=log)
    health = f"http://127.0.0.1:{settings['CORRAL_HEALTH_PORT']}/readyz"
    eventually(lambda: answers(health), "the operator is ready", 60)
    yield process
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, (tmp_path / "log").read_text()


def port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def answers(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def test_the_api_server_is_killed_in_the_middle_of_a_run(operator: subprocess.Popen[bytes], cluster: Served) -> None:
    cluster.apply()
    eventually(lambda: f"ConfigMap/{NAME}-jail-kind" in cluster.objects(), "the run has begun", 60)
    os.kill(int(json.loads((LAB / "run" / "kube-apiserver.json").read_text())["pid"]), signal.SIGKILL)
    subprocess.run([str(REPOSITORY / "lab" / "lab"), "up"], check=True, capture_output=True)
    cluster.wait_ready(280)
    assert cluster.slurm("scontrol", "ping").strip().endswith("UP")
    assert operator.poll() is None, "it is still the same process"
    eventually(lambda: cluster.settled, "the cluster is at rest")
    # And it sees what happens now: its watches are back.
    wanted = cluster.contents()
    cluster.kubectl("delete", "networkpolicy", f"{NAME}-base", "-n", cluster.namespace)
    eventually(lambda: cluster.contents() == wanted, "what was deleted is made again", 30)
    cluster.kubectl("delete", DOCUMENTS, cluster.name, "-n", cluster.namespace, "--timeout=120s")
    assert {name.split("/")[0] for name in cluster.objects()} <= {"PersistentVolumeClaim", "Secret"}
