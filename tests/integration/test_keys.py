# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys and passwords are rotated under a running job and an open session; an interrupted rotation is continued; nobody meets an authentication error later."""

from __future__ import annotations

import base64
import json
import re
import secrets
import shlex
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from .conftest import MARIADB_IMAGE, Cluster, Run, embedded_database, eventually, playbook
from .jobs import nodes, state, submit
from .scenarios import scenario

pytestmark = pytest.mark.lab

NAME = "keys"
SECRETS = {name: f"{NAME}-{secret}" for name, secret in {
    "munge": "base-munge-key", "host_keys": "login-host-keys", "database": "database-password", "jwt": "rest-jwt-key",
}.items()}  # fmt: skip
ERRORS = re.compile(r"Munge (?:de|en)code failed|Protocol authentication error|Access denied|Invalid credential", re.IGNORECASE)
# Pods that are not replaced, whatever is rotated.
STAY = (f"{NAME}-login-0", f"{NAME}-cpu-0", f"{NAME}-rest-0")
SMALL = {"requests": {"cpu": "5m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster(NAME, 31350)
    del made.spec["nodeSets"][1]
    made.spec["nodeSets"][0]["replicas"] = 1
    made.spec["nodeSets"][0]["resources"]["limits"]["cpu"] = "2"  # one job beside another
    made.spec["images"]["mariadb"] = MARIADB_IMAGE
    made.spec["rest"] = {"plainHttp": True, "resources": SMALL}
    made.spec["accounting"] = {"database": embedded_database(NAME)}
    run = made.site()
    assert run.rc == 0, run.output
    return made


def rotate(cluster: Cluster, names: str, *flags: str) -> Run:
    return playbook("rotate_secrets", cluster.write(), "-e", f"rotate={names}", *flags)


def keys(cluster: Cluster) -> dict[str, dict[str, str]]:
    return {name: cluster.kubectl.json("get", "secret", secret, "-n", cluster.namespace)["data"] for name, secret in SECRETS.items()}


def annotations(cluster: Cluster, name: str) -> dict[str, str]:
    found: dict[str, str] = cluster.kubectl.json("get", "secret", SECRETS[name], "-n", cluster.namespace)["metadata"]["annotations"]
    return found


def containers(cluster: Cluster) -> dict[str, list[str]]:
    """The containers of the pods that stay, by their ids: one that ended has another."""
    found = {}
    for pod in STAY:
        status = cluster.kubectl.json("get", "pod", pod, "-n", cluster.namespace)["status"]
        found[pod] = [one["containerID"] for one in (*status["initContainerStatuses"], *status["containerStatuses"])]
    return found


def shown(keys: dict[str, dict[str, str]], output: str) -> list[str]:
    """What of keys is in an output, as the Secret has it and in plain text."""
    values = [value for data in keys.values() for value in data.values()]
    return [value for value in values if value in output or base64.b64decode(value).decode(errors="ignore").strip() in output]


def works(cluster: Cluster) -> None:
    """A job runs, and slurmdbd has its record."""
    number = cluster.ssh("sbatch --parsable --wait --mem=20 -o /dev/null --wrap 'srun hostname'").stdout.strip()
    eventually(lambda: cluster.ssh(f"sacct -X -n -P -j {number} -o State", check=False).stdout.strip() == "COMPLETED", "the job's record")


def errors_since(cluster: Cluster, since: str) -> list[str]:
    label = f"app.kubernetes.io/instance={NAME}"
    logs = cluster.kubectl(
        "logs", "-n", cluster.namespace, "-l", label, "--all-containers", "--prefix", "--timestamps", "--tail=-1", "--max-log-requests=60",
        f"--since-time={since}",
    )  # fmt: skip
    return [line for line in logs.splitlines() if ERRORS.search(line)]


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def after_this() -> str:
    """A time behind all that is logged of what has been done."""
    time.sleep(2)
    return now()


def host_key(cluster: Cluster) -> str:
    words = ["ssh-keyscan", "-T", "10", "-t", "ed25519", "-p", str(cluster.port), cluster.kubectl.node_address()]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[-1]


def test_what_is_not_named_or_not_there_is_not_rotated(cluster: Cluster) -> None:
    before = keys(cluster)
    none = playbook("rotate_secrets", cluster.write())
    assert none.rc != 0 and "Nothing was rotated; say what with -e rotate=" in " ".join(none.output.split()), none.output
    wrong = rotate(cluster, "munge,password")
    assert wrong.rc != 0 and "rotate names 'password'" in " ".join(wrong.output.split()), wrong.output
    check = rotate(cluster, ",".join(SECRETS), "--check", "--diff", "-vv")
    assert (check.rc, check.changed) == (0, 1), check.output
    assert "keys-cpu-0" in check.output and shown(before, check.output) == []
    assert keys(cluster) == before


def test_the_rest_api_reaches_slurmdbd(cluster: Cluster) -> None:
    token = cluster.module("slurm_token", user="alice", lifespan=600)["token"]
    url = f"http://{NAME}-rest:6820/slurmdb/v0.0.42/associations"
    command = ["curl", "-sS", "-m", "60", "-H", f"X-SLURM-USER-TOKEN: {token}", url]
    found = json.loads(cluster.ssh(shlex.join(command)).stdout)
    assert found["errors"] == [] and {one["account"] for one in found["associations"]} == {"root"}, found


def test_all_are_rotated_under_a_job_and_a_session(cluster: Cluster) -> None:
    number = submit(cluster, "--no-requeue -t 60 --mem=20", "first")
    before, there, old = keys(cluster), containers(cluster), host_key(cluster)
    token = cluster.ssh("scontrol token lifespan=3600").stdout.strip().removeprefix("SLURM_JWT=")
    session = ["ssh", "-i", str(cluster.key), "-p", str(cluster.port), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"]
    session += ["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", f"alice@{cluster.kubectl.node_address()}"]
    command = [*session, "echo up; read line; squeue -h -o %i; echo $line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout and process.stdout.readline() == "up\n"
        with scenario(cluster, "munge's key, the host keys, the database's password and the key of tokens are rotated", [number]):
            run = rotate(cluster, ",".join(SECRETS), "--diff", "-vv")
            assert (run.rc, run.changed) == (0, 1), run.output
        out, _error = process.communicate("still there\n", timeout=60)
        assert out.splitlines() == [number, "still there"]
    after = keys(cluster)
    for name, data in before.items():
        assert data.keys() == after[name].keys() and not set(data.values()) & set(after[name].values()), name
        marks = annotations(cluster, name)
        assert "corral.hpc/rotated" in marks and "corral.hpc/rotating" not in marks, name
    assert shown(before, run.output) == shown(after, run.output) == []
    assert containers(cluster) == there, "no container of these ended"
    assert host_key(cluster) != old
    (cluster.directory / "known_hosts").unlink()
    assert "JOBID" not in cluster.slurm("env", f"SLURM_JWT={token}", "squeue", check=False), "a token from before"
    fresh: str = cluster.module("slurm_token", user="alice", lifespan=600)["token"]
    assert "JOBID" in cluster.slurm("env", f"SLURM_JWT={fresh}", "squeue")

    since = after_this()
    assert state(cluster, number) == ["RUNNING"]
    assert nodes(cluster) == {"cpu-0": "mixed|none"}
    works(cluster)
    cluster.ssh("touch first")
    eventually(
        lambda: cluster.ssh(f"sacct -X -n -P -j {number} -o State").stdout.strip() == "COMPLETED", "the record of the job from before"
    )
    # slurmctld asks each node, and sackd and slurmd ask slurmctld.
    cluster.slurm("scontrol", "reconfigure")
    works(cluster)
    assert errors_since(cluster, since) == []
    # slurmctld's pod is another one, of which the next run notes that it serves the configuration; nothing else is changed, and then nothing at all.
    first = cluster.site()
    assert first.rc == 0 and re.findall(r"(?m)^TASK \[(.*)\] \*+\nchanged:", first.output) in (
        [],
        ["corral.slurm.slurm_controller : Reconfigure slurmctld"],
    ), first.output
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output
    assert keys(cluster) == after


def test_a_rotation_that_was_interrupted_is_continued(cluster: Cluster) -> None:
    """As a run leaves it that is killed after its first write: the Secret is new, and no pod uses it."""
    new = base64.b64encode(secrets.token_bytes(1024)).decode()
    patch: dict[str, Any] = {"metadata": {"annotations": {"corral.hpc/rotating": now()}}, "data": {"munge.key": new}}
    cluster.kubectl("patch", "secret", SECRETS["munge"], "-n", cluster.namespace, "--type=merge", "-p", json.dumps(patch))
    works(cluster)
    run = rotate(cluster, "munge")
    assert (run.rc, run.changed) == (0, 1), run.output
    assert keys(cluster)["munge"] == {"munge.key": new}
    since = after_this()
    works(cluster)
    for pod in (f"{NAME}-{one}-0" for one in ("controller", "accounting", "login", "cpu")):
        used = cluster.kubectl("exec", "-n", cluster.namespace, pod, "-c", "munged", "--", "base64", "-w0", "/run/munge-key/munge.key")
        assert used == new, pod
    assert "corral.hpc/rotating" not in annotations(cluster, "munge")
    assert errors_since(cluster, since) == []


@pytest.mark.long
def test_the_workers_host_keys_are_rotated_under_a_job(cluster: Cluster) -> None:
    number = submit(cluster, "--no-requeue -t 60", "rotated")
    # ssh-keyscan knows nothing of ssh_config, which says where a node is.
    scan = """ssh-keyscan -t ed25519 "$(ssh -G cpu-0 | sed -n 's/^hostname //p')" 2>/dev/null | cut -d ' ' -f 3"""
    eventually(lambda: cluster.ssh(scan, check=False).stdout.strip() != "", "the worker's sshd responds")
    before, uid = cluster.ssh(scan).stdout, cluster.kubectl.uids(cluster.namespace, f"app.kubernetes.io/instance={NAME}")[f"{NAME}-cpu-0"]
    run = rotate(cluster, "worker_host_keys")
    assert run.rc == 0, run.output
    after = cluster.ssh(scan).stdout
    assert after.strip() and after != before
    assert state(cluster, number) == ["RUNNING"]
    assert cluster.kubectl.uids(cluster.namespace, f"app.kubernetes.io/instance={NAME}")[f"{NAME}-cpu-0"] == uid
    cluster.ssh("touch rotated")


def test_a_secret_of_somebody_elses_and_a_pod_that_does_not_respond_stop_it(cluster: Cluster) -> None:
    before = keys(cluster)
    cluster.kubectl("label", "secret", SECRETS["munge"], "-n", cluster.namespace, "app.kubernetes.io/managed-by=vault", "--overwrite")
    other = rotate(cluster, "munge")
    assert other.rc != 0 and "its label app.kubernetes.io/managed-by is vault: rotate it where it is made" in " ".join(other.output.split())
    cluster.kubectl("label", "secret", SECRETS["munge"], "-n", cluster.namespace, "app.kubernetes.io/managed-by=corral", "--overwrite")
    # Its file is away, as in an older image.
    inside = ("exec", "-n", cluster.namespace, f"{NAME}-login-0", "-c", "sshd", "--")
    cluster.kubectl(*inside, "mv", "/usr/local/lib/corral/keys.sh", "/root/keys.sh")
    old = rotate(cluster, "host_keys")
    assert old.rc != 0 and "1 of 1 pods cannot be given new keys: keys-login-0" in " ".join(old.output.split()), old.output
    cluster.kubectl(*inside, "mv", "/root/keys.sh", "/usr/local/lib/corral/keys.sh")
    assert keys(cluster) == before
