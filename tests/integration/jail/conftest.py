# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One cluster for all tests of the jail: two workers on two nodes, a second jail, submounts, overlays; a sudoer, a plain user, one who may leave."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..conftest import VOLUMES, Cluster, Clusters, eventually

NAME = "jail"
NODE_DISK = VOLUMES / "jail-node-disk"


@pytest.fixture(scope="session")
def make_cluster(clusters_made: Clusters) -> Iterator[Callable[[str, int], Cluster]]:
    """As the one of other tests, but for clusters that all files of this folder share."""
    with clusters_made.made() as make:
        yield make


@pytest.fixture(scope="session")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Iterator[Cluster]:
    made = make_cluster(NAME, 30041)
    shutil.rmtree(VOLUMES / "jail-old", ignore_errors=True)
    made.kubectl("delete", "pv", "test-jail-jail-jail-old", "--ignore-not-found")
    key = made.spec["users"][0]["sshKeys"]
    size = {"requests": {"cpu": "5m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "768Mi"}}
    made.spec["users"] = [
        {"name": "alice", "uid": 10001, "sshKeys": key, "sudo": True},
        {"name": "bob", "uid": 10002, "sshKeys": key},
        {"name": "carol", "uid": 10003, "sshKeys": key},
    ]
    made.spec["nodeSets"] = [
        {
            "name": "one",
            "resources": size,
            "nodeSelector": {"kubernetes.io/hostname": "node1"},
            "volumes": [
                {"name": "disk", "mountPath": "/mnt/own-disk", "scratch": "16Mi"},
                {"name": "memory", "mountPath": "/srv/own", "memory": "8Mi"},
            ],
        },
        {"name": "two", "resources": size, "nodeSelector": {"kubernetes.io/hostname": "node2"}},
    ]
    made.spec["login"] |= {
        "motd": "Welcome to the jail.",
        "limits": {"memory": "1Gi", "cpu": "2", "processes": 500},
        "initScripts": [{"name": "mark", "script": "#!/bin/sh\ncat /mnt/jail/etc/corral-jail >/run/marked\n"}],
    }
    made.spec["slurm"]["extraConfig"] = ["HealthCheckInterval=5"]
    made.spec["partitions"] = [{"name": "main", "default": True}, {"name": "past", "jail": "old"}]
    NODE_DISK.mkdir(parents=True, exist_ok=True)
    os.chmod(NODE_DISK, 0o1777)
    made.spec["jail"] |= {
        "overlay": {"size": "1Gi"},
        "noJailUsers": ["carol"],
        "noJailDespiteSudo": True,
        "subMounts": [
            {"path": "/disk", "hostPath": str(NODE_DISK)},
            {"path": "/scratch", "scratch": "100Mi"},
            {"path": "/fast", "memory": "16Mi", "login": False, "nodeSets": ["two"]},
        ],
    }
    made.spec["jails"] = [
        {
            "name": "old",
            "volume": {"hostPath": f"{VOLUMES}/jail-old", "size": "5Gi"},
            "populate": {"image": "localhost/corral/jail:trixie"},
        }
    ]
    run = made.site()
    assert run.rc == 0, run.output
    yield made
    run = made.destroy("-e", f"confirm={NAME}", "-e", "delete_namespace=true")
    for path in (NODE_DISK, VOLUMES / "jail-old"):
        shutil.rmtree(path, ignore_errors=True)
    assert run.rc == 0, run.output


def enter_by(cluster: Cluster, entry: str) -> None:
    """How sessions of the login node come into the jail from now on: Chroot or Pivot. Whoever cares says so, for the one before may have chosen."""
    if cluster.spec["login"].get("entry", "Chroot") == entry:
        return
    cluster.spec["login"]["entry"] = entry
    run = cluster.site("--tags", "slurm_login")
    assert run.rc == 0, run.output
    eventually(lambda: cluster.ssh("true", check=False).returncode == 0, "ssh after the roll")


Script = Callable[..., str]


@pytest.fixture(scope="session")
def script(cluster: Cluster) -> Script:
    """Run a bash script on the login node, as alice unless told; return what it printed. ``set -e`` holds.

    Its input is empty: srun and sattach would read the script's next lines.
    """

    def run(text: str, user: str = "alice", check: bool = True) -> str:
        done = cluster.ssh('bash -ec "$(cat)" 2>&1 </dev/null', user=user, stdin=f"cd; {text}\n", check=False)
        assert done.returncode == 0 or not check, f"status {done.returncode} of:\n{text}\n{done.stdout}"
        return without_the_wait(done.stdout)

    return run


def without_the_wait(said: str) -> str:
    """What was printed, but for what srun says when a job before it has not left its nodes yet."""
    return re.sub(r"(?m)^srun: job \d+ (queued and waiting for|has been allocated) resources\n", "", said).strip()


@dataclass(frozen=True)
class Person:
    """Who uses Slurm, and how: ``run`` is a Script of theirs."""

    name: str
    home: str
    run: Script


@pytest.fixture(params=["alice", "root"])
def person(request: pytest.FixtureRequest, cluster: Cluster, script: Script) -> Person:
    """A user on the login node; or root, as the administrator is it: in the jail on a worker, with the munge of Slurm's daemons. In their jobs root is
    nobody to Slurm, as all root of the jail is, so root starts no steps."""
    if request.param == "alice":
        return Person("alice", "/home/alice", script)
    entry = "/opt/corral/bin/jail-exec jail=/mnt/jail bind=/run/munge:/run/munge -- env -i HOME=/root SHELL=/bin/bash"
    worker = ("exec", "-i", "-n", cluster.namespace, "jail-one-0", "-c", "slurmd", "--", "bash", "-c")

    def run(text: str, check: bool = True) -> str:
        command = f"{entry} PATH=$PATH bash -ec {shlex.quote(f'cd; {text}')} 2>&1 </dev/null; echo; echo status $?"
        said, _mark, status = cluster.kubectl(*worker, command).strip().rpartition("status ")
        assert status == "0" or not check, f"status {status} of:\n{text}\n{said}"
        return without_the_wait(said)

    return Person("root", "/root", run)


def submit(script: Script, *options: str, user: str = "alice", command: str = "sleep 120") -> str:
    """A job that waits; returns its id once it runs."""
    job = script(f"sbatch --parsable {' '.join(options)} --wrap {command!r}", user=user)
    eventually(lambda: script(f"squeue -h -j {job} -o %T", user=user) == "RUNNING", f"job {job} to run")
    return job


@pytest.fixture(scope="session")
def root() -> Path:
    """The default jail's root as the machine sees it."""
    return VOLUMES / "jail-jail" / "root"


@pytest.fixture(scope="session")
def mpi(script: Script) -> str:
    """How MPI programs are started best: Debian builds Slurm 24.11 with PMIx and 26.05 without."""
    return "pmix" if "pmix" in script("srun --mpi=list").split() else "pmi2"
