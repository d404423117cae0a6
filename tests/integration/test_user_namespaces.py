# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster whose pods have user namespaces of their own (`hostUsers: false`): who their root is on the node, whose the files are, and that the
cluster's users notice nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import VOLUMES, Cluster, eventually

pytestmark = pytest.mark.lab
NAME = "userns"
PODS = {"controller-0": "slurmctld", "login-0": "sshd", "cpu-0": "slurmd", "cpu-1": "slurmd"}
# What Kubernetes gives a pod, unless the nodes' kubelets are told otherwise.
IDS = 65536
DISK = VOLUMES / "userns-disk"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Iterator[Cluster]:
    made = make_cluster(NAME, 30188)
    shutil.rmtree(DISK, ignore_errors=True)
    DISK.mkdir(parents=True)
    os.chmod(DISK, 0o1777)
    made.spec["nodeSets"] = [made.spec["nodeSets"][0]]
    for part in (made.spec["controller"], made.spec["login"], *made.spec["nodeSets"]):
        part["hostUsers"] = False
    made.spec["jail"] |= {
        "overlay": {"size": "1Gi"},
        "subMounts": [
            {"path": "/disk", "hostPath": str(DISK)},
            {"path": "/scratch", "scratch": "100Mi"},
            {"path": "/fast", "memory": "16Mi"},
        ],
    }
    made.spec["users"].append({"name": "bob", "uid": 10002, "sshKeys": made.spec["users"][0]["sshKeys"]})
    run = made.site()
    assert run.rc == 0, run.output
    yield made
    run = made.destroy("-e", f"confirm={NAME}", "-e", "delete_namespace=true")
    shutil.rmtree(DISK, ignore_errors=True)
    assert run.rc == 0, run.output


@pytest.fixture(scope="module", params=["Chroot", pytest.param("Pivot", marks=pytest.mark.long)])
def entry(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """Both ways into the login node's jail."""
    cluster.spec["login"]["entry"] = request.param
    run = cluster.site()
    assert run.rc == 0, run.output
    eventually(lambda: cluster.ssh("true", check=False).returncode == 0, "ssh")
    return str(request.param)


@dataclass(frozen=True)
class Process:
    """A process of a pod as the machine sees it: its name, its real uid there, and which uid there is root of its user namespace."""

    name: str
    uid: int
    root: int


def processes(cluster: Cluster, pod: str) -> list[Process]:
    uid = cluster.kubectl.json("get", "pod", "-n", cluster.namespace, f"{NAME}-{pod}")["metadata"]["uid"]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, StopIteration):
            if f"pod{uid}/" not in (folder / "cgroup").read_text():
                continue
            own = next(line.split()[1] for line in (folder / "status").read_text().splitlines() if line.startswith("Uid:"))
            one = Process((folder / "comm").read_text().strip(), int(own), int((folder / "uid_map").read_text().split()[1]))
            # runc itself, on its way into the container that it starts something in.
            found += [] if one.name.startswith("runc") else [one]
    return found


@pytest.mark.usefixtures("entry")
def test_no_process_of_a_pod_is_root_of_the_machine_or_of_another_pod(cluster: Cluster) -> None:
    roots = {}
    for pod, container in PODS.items():
        inside = cluster.kubectl(
            "exec", "-n", cluster.namespace, f"{NAME}-{pod}", "-c", container, "--", "cat", "/proc/self/uid_map"
        ).split()
        assert inside[0] == "0" and int(inside[2]) == IDS, inside
        found = processes(cluster, pod)
        roots[pod] = found[0].root
        wrong = [one for one in found if one.root != roots[pod] or not roots[pod] <= one.uid < roots[pod] + IDS]
        assert not wrong, f"{pod}, whose root is {roots[pod]}: {wrong}"
    assert min(roots.values()) >= IDS and len(set(roots.values())) == len(PODS), roots


def test_sessions_jobs_and_root_of_the_jail_own_what_they_should(cluster: Cluster, entry: str) -> None:
    """As the pods see it, and as the machine does: the ids of the jail's files are the document's, whichever pod wrote them."""
    home = f"/home/alice/{entry}"
    cluster.ssh(
        f"mkdir {home}; touch {home}/session; srun -N2 -Q sh -c 'touch {home}/job-$SLURM_PROCID'; sbatch -Q --wait -o {home}/batch --wrap id"
    )
    cluster.ssh(
        f"srun -Q sudo -n sh -c 'touch {home}/root /etc/{entry}; cp /bin/true {home}/bobs; chown bob:bob {home}/bobs; chmod u+s {home}/bobs'"
    )
    cluster.ssh("srun -Q touch /disk/job /scratch/job /fast/job")
    folder = VOLUMES / f"{NAME}-jail" / "root"
    seen = {path.name: path.stat().st_uid for path in (folder / "home/alice" / entry).iterdir()}
    assert seen == {"session": 10001, "job-0": 10001, "job-1": 10001, "batch": 10001, "root": 0, "bobs": 10002}
    assert (folder / "home/alice" / entry / "bobs").stat().st_mode & 0o4000
    assert (folder / "etc" / entry).stat().st_uid == 0
    assert (DISK / "job").stat().st_uid == 10001
    assert cluster.ssh(f"stat -c %u {home}/session {home}/root {home}/bobs; id -u").stdout.split() == ["10001", "0", "10002", "10001"]


@pytest.mark.usefixtures("entry")
def test_jobs_and_sessions_are_as_ever(cluster: Cluster) -> None:
    assert sorted(cluster.ssh("srun -Q -N2 hostname", user="bob").stdout.split()) == [f"{NAME}-cpu-0", f"{NAME}-cpu-1"]
    assert cluster.ssh(
        "srun -Q --jail-overlay sudo -n sh -c 'touch /etc/over; ls /etc/over'; ls /etc/over", check=False
    ).stdout.split() == ["/etc/over"]
    assert cluster.ssh("sudo -n id -u; sudo -n -u bob id -un").stdout.split() == ["0", "bob"]
    # Of others' processes users see nothing, and root of the jail that they are there.
    for where in ("", "srun -Q "):
        assert cluster.ssh(f"{where}cat /proc/1/comm", check=False).returncode
        assert cluster.ssh(f"{where}sudo -n cat /proc/1/comm").stdout.strip()
    # Into the job on its worker, and to its end.
    job = cluster.ssh("sbatch --parsable -w cpu-1 --wrap 'sleep 300'").stdout.strip()
    eventually(lambda: cluster.ssh(f"squeue -h -j {job} -o %T").stdout.strip() == "RUNNING", "the job to run")
    assert cluster.ssh("ssh cpu-1 'hostname; id -un'").stdout.split() == [f"{NAME}-cpu-1", "alice"]
    cluster.ssh(f"scancel {job}")
    eventually(lambda: "sleep" not in {one.name for one in processes(cluster, "cpu-1")}, "the job's processes to end")


def test_root_of_a_pod_and_of_the_jail_cannot_touch_the_node(cluster: Cluster) -> None:
    """With every capability that the worker has: each of these works where its root is the machine's."""
    script = """
import ctypes, errno, json, os
libc = ctypes.CDLL(None, use_errno=True)
def tried(call, *arguments):
    ctypes.set_errno(0)
    try:
        failed = call(*arguments) in (None, 0) or ctypes.get_errno()
    except OSError as error:
        failed = error.errno
    return "done" if failed is True else errno.errorcode[failed]
print(json.dumps({
    "bpf": tried(libc.syscall, 321, 5, ctypes.create_string_buffer(128), 128),
    "mknod": tried(os.mknod, "/run/disk", 0o060600, os.makedev(8, 0)),
    "mount": tried(libc.mount, b"/dev/null", b"/mnt", b"ext4", 0, None),
    "other ids": tried(os.setresuid, 70000, 70000, 70000),
}))
"""
    said = cluster.kubectl("exec", "-i", "-n", cluster.namespace, f"{NAME}-cpu-0", "-c", "slurmd", "--", "python3", "-", stdin=script)
    assert json.loads(said) == {"bpf": "EPERM", "mknod": "EPERM", "mount": "EPERM", "other ids": "EINVAL"}
    # What belongs to the machine's root alone is nobody's in there.
    root = cluster.ssh("srun -Q sudo -n sh -c 'stat -c %u /proc/sys/kernel; cat /proc/self/uid_map'").stdout.split()
    assert root[0] == "65534" and int(root[2]) >= IDS, root
