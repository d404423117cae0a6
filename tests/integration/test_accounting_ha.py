# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two slurmdbd, in order: from one to two, the primary's death, a primary that is back, and from two to one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import MARIADB_IMAGE, Cluster, embedded_database, eventually
from .jobs import state, submit

pytestmark = [pytest.mark.lab, pytest.mark.long]

NAME = "dbds"
PRIMARY, BACKUP = f"{NAME}-accounting-0", f"{NAME}-accounting-1"
RUNNING: list[str] = []


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster(NAME, 31320)
    del made.spec["nodeSets"][1]
    made.spec["images"]["mariadb"] = MARIADB_IMAGE
    made.spec["accounting"] = {"database": embedded_database(NAME)}
    run = made.site()
    assert run.rc == 0, run.output
    return made


def pods(cluster: Cluster, component: str) -> dict[str, str]:
    """UIDs of a component's pods by their names."""
    found = cluster.kubectl.json("get", "pods", "-n", cluster.namespace, "-l", f"app.kubernetes.io/component={component}")
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found["items"]}


def listens(cluster: Cluster, pod: str) -> bool:
    """Whether a slurmdbd has control: a standby does not listen."""
    script = "grep -qE ':1AA3 [0-9A-F]+:0000 0A ' /proc/net/tcp /proc/net/tcp6 && echo yes"
    said = cluster.kubectl("exec", "-n", cluster.namespace, pod, "-c", "slurmdbd", "--", "bash", "-c", script, check=False)
    return said.strip() == "yes"


def ready(cluster: Cluster, pod: str) -> bool:
    found = cluster.kubectl.json("get", "pod", pod, "-n", cluster.namespace)
    return any(one["type"] == "Ready" and one["status"] == "True" for one in found["status"]["conditions"])


def recorded(cluster: Cluster) -> str:
    """The number of a job that ran and whose record sacct shows."""
    number = cluster.ssh("sbatch --parsable --wait -o /dev/null --wrap true").stdout.strip()
    shown = f"sacct -X -n -P -o State -j {number}"
    eventually(lambda: cluster.ssh(shown, check=False).stdout.strip() == "COMPLETED", "the record of a job")
    return number


def test_from_one_to_two(cluster: Cluster) -> None:
    RUNNING.append(submit(cluster, "--no-requeue -t 60", "first"))
    before = {**pods(cluster, "login"), **pods(cluster, "worker")}
    cluster.spec["accounting"]["replicas"] = 2
    run = cluster.site()
    assert run.rc == 0, run.output
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output
    assert state(cluster, RUNNING[0]) == ["RUNNING"]
    assert {**pods(cluster, "login"), **pods(cluster, "worker")} == before
    eventually(lambda: listens(cluster, PRIMARY) and not listens(cluster, BACKUP), "the primary has control, and the backup stands by")
    assert ready(cluster, PRIMARY) and ready(cluster, BACKUP)
    assert cluster.slurm("scontrol", "show", "config").count(f"{NAME}-accounting-1.{cluster.namespace}") == 1
    budget = cluster.kubectl.json("get", "poddisruptionbudget", f"{NAME}-accounting", "-n", cluster.namespace)
    assert budget["spec"]["maxUnavailable"] == 1
    recorded(cluster)


def test_the_backup_takes_over_and_gives_back(cluster: Cluster) -> None:
    """The primary's pod is gone, and nobody replaces it until the next run."""
    uid = pods(cluster, "accounting")[BACKUP]
    cluster.kubectl("delete", "statefulset", f"{NAME}-accounting", "-n", cluster.namespace, "--cascade=orphan")
    cluster.kubectl("delete", "pod", PRIMARY, "-n", cluster.namespace, "--force", "--grace-period=0")
    eventually(lambda: listens(cluster, BACKUP), "the backup has control")
    recorded(cluster)
    run = cluster.site()
    assert run.rc == 0, run.output
    eventually(lambda: listens(cluster, PRIMARY) and not listens(cluster, BACKUP), "the primary has control again", 120)
    assert ready(cluster, BACKUP) and pods(cluster, "accounting")[BACKUP] == uid
    assert state(cluster, RUNNING[0]) == ["RUNNING"]
    recorded(cluster)


def test_from_two_to_one(cluster: Cluster) -> None:
    del cluster.spec["accounting"]["replicas"]
    run = cluster.site()
    assert run.rc == 0, run.output
    assert list(pods(cluster, "accounting")) == [PRIMARY]
    there = cluster.objects()
    assert f"Service/{NAME}-accounting" in there
    assert not {f"Service/{NAME}-accounting-1", f"PodDisruptionBudget/{NAME}-accounting"} & set(there)
    cluster.ssh("touch first")
    shown = f"sacct -X -n -P -o State -j {RUNNING[0]}"
    eventually(lambda: cluster.ssh(shown, check=False).stdout.strip() == "COMPLETED", "the record of the job from before")
