# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster with auth: slurm. It works without a munged, root of the jail is nobody to it, and a change under pods that stay is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import MARIADB_IMAGE, Cluster, embedded_database, eventually, playbook
from .jobs import nodes, state, submit

pytestmark = pytest.mark.lab

NAME = "auth"
SMALL = {"requests": {"cpu": "5m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}
REFUSED = "Invalid user id"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster(NAME, 31360)
    del made.spec["nodeSets"][1]
    made.spec["nodeSets"][0]["replicas"] = 1
    made.spec["nodeSets"][0]["resources"]["limits"]["cpu"] = "2"
    made.spec["users"][0]["sudo"] = True
    made.spec["images"]["mariadb"] = MARIADB_IMAGE
    made.spec["rest"] = {"plainHttp": True, "resources": SMALL}
    made.spec["accounting"] = {"database": embedded_database(NAME)}
    made.spec.setdefault("slurm", {})["auth"] = "slurm"
    run = made.site()
    assert run.rc == 0, run.output
    return made


def works(cluster: Cluster) -> None:
    number = cluster.ssh("sbatch --parsable --wait --mem=20 -o /dev/null --wrap 'srun hostname'").stdout.strip()
    eventually(lambda: cluster.ssh(f"sacct -X -n -P -j {number} -o State", check=False).stdout.strip() == "COMPLETED", "the job's record")


def test_users_work(cluster: Cluster) -> None:
    assert cluster.ssh("srun -Q id -un").stdout.strip() == "alice"
    works(cluster)
    token: str = cluster.module("slurm_token", user="alice", lifespan=600)["token"]
    assert "JOBID" in cluster.slurm("env", f"SLURM_JWT={token}", "squeue")
    assert nodes(cluster) == {"cpu-0": "idle|none"}


def test_no_pod_has_a_munged_or_its_key(cluster: Cluster) -> None:
    pods = cluster.kubectl.json("get", "pods", "-n", cluster.namespace, "-l", f"app.kubernetes.io/instance={NAME}")["items"]
    assert len(pods) >= 5
    for pod in pods:
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            assert "munge" not in container["name"] and not any("munge" in mount["name"] for mount in container["volumeMounts"])
        if pod["status"]["phase"] == "Running":
            name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
            found = cluster.kubectl("exec", "-n", cluster.namespace, name, "-c", container, "--", "sh", "-c", "cat /proc/[0-9]*/comm")
            assert found and "munged" not in found, name
    assert f"{NAME}-base-munge-key" not in cluster.kubectl("get", "secrets", "-n", cluster.namespace, "-o", "name")


@pytest.mark.parametrize("where", ["", "srun -Q "], ids=["session", "job"])
def test_root_of_the_jail_is_nobody(cluster: Cluster, where: str) -> None:
    drain = "PATH=$PATH scontrol update nodename=cpu-0 state=drain reason=mine 2>&1"
    for who in ("", "-u \\#64030 ", "-u \\#64031 "):
        said = cluster.ssh(f"{where}sudo -n {who}env {drain}; true").stdout
        assert REFUSED in said, (who, said)
    assert cluster.ssh("sudo -n env PATH=$PATH srun -Q -t1 id -u").stdout.strip() == "65534"
    # The daemons' own socket and the key are not there.
    found = cluster.ssh(
        f"{where}sudo -n find /run/sack /run/slurm /run/slurm-key /etc/corral -name slurm.key -o -type s 2>/dev/null; true"
    ).stdout.split()
    assert found == ["/run/sack/sack.socket"]
    assert nodes(cluster) == {"cpu-0": "idle|none"}


def test_root_of_the_pods_is_slurms(cluster: Cluster) -> None:
    """Also after a reconfiguration, by which the login node's sackd begins anew."""
    for turn in range(2):
        for pod, container in ((f"{NAME}-login-0", "sshd"), (f"{NAME}-cpu-0", "slurmd")):
            run = ("exec", "-n", cluster.namespace, pod, "-c", container, "--", "scontrol", "update", "nodename=cpu-0")
            cluster.kubectl(*run, "state=drain", "reason=test")
            found = nodes(cluster)
            cluster.kubectl(*run, "state=resume")
            # After it was resumed, slurmctld asks the node whether it is there; until it answers, its state has a "*".
            assert {name: shown.replace("*", "") for name, shown in found.items()} == {"cpu-0": "drained|test"}, (turn, pod)
        cluster.slurm("scontrol", "reconfigure")
        eventually(lambda: nodes(cluster) == {"cpu-0": "idle|none"}, "the node is back")
    works(cluster)


def test_without_its_sackd_a_pod_gets_another_and_jobs_run_on(cluster: Cluster) -> None:
    number = submit(cluster, "--no-requeue -t 60 --mem=20", "go")
    for pod in (f"{NAME}-cpu-0", f"{NAME}-login-0", f"{NAME}-controller-0"):
        cluster.kubectl("exec", "-n", cluster.namespace, pod, "-c", "sack", "--", "sh", "-c", "kill 1")
    eventually(lambda: "alice" in cluster.ssh("srun -Q --mem=20 id -un", check=False).stdout, "commands work again")
    assert state(cluster, number) == ["RUNNING"]
    cluster.ssh("touch go")
    eventually(lambda: state(cluster, number) == ["COMPLETED"], "the job has ended")


def test_an_unchanged_document_writes_nothing(cluster: Cluster) -> None:
    before = cluster.objects()
    run = cluster.site()
    assert (run.rc, run.changed) == (0, 0), run.output
    assert cluster.objects() == before


def test_its_key_is_not_rotated_under_jobs(cluster: Cluster) -> None:
    run = playbook("rotate_secrets", cluster.write(), "-e", "rotate=munge")
    assert run.rc != 0 and "spec.slurm.auth is slurm" in " ".join(run.output.split()), run.output


def test_it_changes_only_while_no_pod_is_left_that_has_the_former(cluster: Cluster) -> None:
    before = cluster.objects()
    cluster.spec["slurm"]["auth"] = "munge"
    refused = cluster.site()
    words = f"spec.slurm.auth is munge, but pods run with slurm ({NAME}-cpu-0, {NAME}-login-0)"
    assert refused.rc != 0 and words in " ".join(refused.output.split()), refused.output
    assert cluster.objects() == before
    cluster.spec["slurm"]["auth"], cluster.spec["maintenance"] = "slurm", "WorkersAndLogin"
    run = cluster.site()
    assert run.rc == 0, run.output
    cluster.spec["slurm"]["auth"] = "munge"
    run = cluster.site()
    assert run.rc == 0, run.output
    del cluster.spec["maintenance"]
    run = cluster.site()
    assert run.rc == 0, run.output
    works(cluster)
