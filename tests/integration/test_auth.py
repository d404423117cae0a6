# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster with auth: slurm. It works without a munged, root of the jail is nobody to it, and a change under pods that stay is refused."""

from __future__ import annotations

import base64
import json
import re
import secrets
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from .conftest import MARIADB_IMAGE, Cluster, embedded_database, eventually, playbook
from .jobs import nodes, state, submit

pytestmark = pytest.mark.lab

NAME = "auth"
SMALL = {"requests": {"cpu": "5m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}
REFUSED = "Invalid user id"
ERRORS = re.compile(
    r"Protocol authentication error|has authentication error|could not find kid|jwt_decode|expired key|Invalid credential|sack_verify failure"
)


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
        f"{where}sudo -n find /run/sack /run/slurm /run/slurm-key /etc/corral -name 'slurm.[jk]*' -o -type s 2>/dev/null; true"
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


def key_files(cluster: Cluster) -> dict[str, str]:
    found: dict[str, str] = cluster.kubectl.json("get", "secret", f"{NAME}-base-slurm-key", "-n", cluster.namespace)["data"]
    return found


def known_keys(cluster: Cluster) -> dict[str, list[tuple[str, str | None]]]:
    """What the daemons of each pod read: the keys, and which of them signs."""
    found = {}
    for pod in (f"{NAME}-{one}-0" for one in ("controller", "accounting", "login", "cpu")):
        text = cluster.kubectl("exec", "-n", cluster.namespace, pod, "-c", "sack", "--", "cat", "/run/slurm-key/slurm.jwks")
        found[pod] = [(one["k"], one.get("use")) for one in json.loads(text)["keys"]]
    return found


def containers(cluster: Cluster) -> dict[str, list[str]]:
    """Of each pod: one that ended has another id."""
    pods = cluster.kubectl.json("get", "pods", "-n", cluster.namespace, "-l", f"app.kubernetes.io/instance={NAME}")["items"]
    return {
        pod["metadata"]["name"]: [
            one["containerID"] for one in (*pod["status"].get("initContainerStatuses", ()), *pod["status"]["containerStatuses"])
        ]
        for pod in pods
        if pod["status"]["phase"] == "Running"
    }


def errors_since(cluster: Cluster, since: str) -> list[str]:
    logs = cluster.kubectl(
        "logs", "-n", cluster.namespace, "-l", f"app.kubernetes.io/instance={NAME}", "--all-containers", "--prefix", "--tail=-1",
        "--max-log-requests=60", f"--since-time={since}",
    )  # fmt: skip
    return [line for line in logs.splitlines() if ERRORS.search(line)]


def test_the_key_of_the_other_kind_is_not_there_to_be_rotated(cluster: Cluster) -> None:
    run = playbook("rotate_secrets", cluster.write(), "-e", "rotate=munge")
    assert run.rc != 0 and "spec.slurm.auth is slurm, so the cluster has no such key" in " ".join(run.output.split()), run.output


def test_its_key_is_rotated_under_jobs(cluster: Cluster) -> None:
    """Jobs start all the time meanwhile, one runs through it, no container ends, and no log has an authentication error."""
    since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    number, before, there = submit(cluster, "--no-requeue -t 60 --mem=20", "rotated"), key_files(cluster), containers(cluster)
    load = "i=0; while [ ! -e enough ]; do i=$((i + 1)); srun -Q --mem=20 true || echo failed; done; echo $i"
    done: list[str] = []
    # Until the rotation is over, which waits for the kubelets three times.
    thread = threading.Thread(target=lambda: done.extend(cluster.ssh(f"{load} 2>&1", timeout=900).stdout.split("\n")))
    thread.start()
    try:
        run = playbook("rotate_secrets", cluster.write(), "-e", "rotate=slurm", "--diff", "-vv")
    finally:
        cluster.ssh("touch enough")
        thread.join()
    assert (run.rc, run.changed) == (0, 1), run.output
    after = key_files(cluster)
    assert after.keys() == before.keys() == {"slurm.key"} and after != before
    assert not [value for value in (*before.values(), *after.values()) if value in run.output]
    assert containers(cluster) == there
    assert set(map(tuple, known_keys(cluster).values())) == {((after["slurm.key"], "default"),)}
    assert "failed" not in done and int(done[-2]) > 20, done
    assert state(cluster, number) == ["RUNNING"] and nodes(cluster) == {"cpu-0": "mixed|none"}
    cluster.ssh("touch rotated")
    works(cluster)
    assert errors_since(cluster, since) == []
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output


@pytest.mark.long
def test_a_rotation_of_it_that_was_interrupted_is_continued(cluster: Cluster) -> None:
    """As a run leaves it that is killed when the next key is the one that signs: all pods may have it, some or none."""
    old, new = key_files(cluster)["slurm.key"], base64.b64encode(secrets.token_bytes(1024)).decode()
    mark = {"annotations": {"corral.hpc/rotating": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}
    patch: dict[str, Any] = {"metadata": mark, "data": {"slurm.key.next": new}}
    cluster.kubectl("patch", "secret", f"{NAME}-base-slurm-key", "-n", cluster.namespace, "--type=merge", "-p", json.dumps(patch))
    works(cluster)
    run = playbook("rotate_secrets", cluster.write(), "-e", "rotate=slurm")
    assert (run.rc, run.changed) == (0, 1), run.output
    assert key_files(cluster) == {"slurm.key": new} and old not in str(known_keys(cluster))
    works(cluster)


def test_the_node_of_a_pod_that_ends_is_down_at_once(cluster: Cluster) -> None:
    """Also where the pod's own sackd is away: the order has another."""
    stop = ("exec", "-n", cluster.namespace, f"{NAME}-cpu-0", "-c", "slurmd", "--", "bash", "-c")
    away = "mv /run/slurm/sack.socket /run/slurm/away; /usr/local/lib/corral/worker_stop.sh; mv /run/slurm/away /run/slurm/sack.socket"
    cluster.kubectl(*stop, away)
    assert nodes(cluster)["cpu-0"].startswith("down"), nodes(cluster)
    # The view was its own, and so was the sackd.
    left = "ls /run/slurm/conf/slurm.conf; sleep 1; cat /proc/[0-9]*/comm 2>/dev/null | grep -cx sackd; true"
    assert cluster.kubectl(*stop, left).split() == ["/run/slurm/conf/slurm.conf", "0"]
    cluster.slurm("scontrol", "update", "nodename=cpu-0", "state=resume")
    eventually(lambda: nodes(cluster) == {"cpu-0": "idle|none"}, "the node is back")
    works(cluster)


def test_it_changes_only_while_no_pod_is_left_that_has_the_former(cluster: Cluster) -> None:
    before = cluster.objects()
    cluster.spec["slurm"]["auth"] = "munge"
    refused = cluster.site()
    words = f"spec.slurm.auth is munge, but pods run with slurm ({NAME}-cpu-0, {NAME}-login-0)"
    assert refused.rc != 0 and words in " ".join(refused.output.split()), refused.output
    assert cluster.objects() == before
    cluster.spec["slurm"]["auth"] = "slurm"


@pytest.mark.long
def test_it_changes_in_a_maintenance(cluster: Cluster) -> None:
    cluster.spec["maintenance"] = "WorkersAndLogin"
    run = cluster.site()
    assert run.rc == 0, run.output
    cluster.spec["slurm"]["auth"] = "munge"
    run = cluster.site()
    assert run.rc == 0, run.output
    del cluster.spec["maintenance"]
    run = cluster.site()
    assert run.rc == 0, run.output
    works(cluster)
