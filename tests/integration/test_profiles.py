# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster whose pods run under corral's seccomp profiles: first on a node that does not have them, then with them put there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator

import pytest

from .conftest import SLURM_IMAGE, VOLUMES, Cluster, Run, eventually, playbook

pytestmark = pytest.mark.lab
NAME = "profiles"
NODE = "node1"
# The lab's kubelets have folders of their own.
FOLDER = VOLUMES.parent / "nodes" / NODE / "kubelet" / "seccomp"
EPERM, ENOSYS = 1, 38

# What is tried: number (x86-64) and arguments such that the kernel would refuse them too, or do nothing; and its answer to a job and to a session,
# None for any but the filter's.
CALLS: dict[str, tuple[int, tuple[int, ...], int | None, int | None]] = {
    "kexec_load": (246, (0, 0, 0, 0), EPERM, EPERM),
    "init_module": (175, (0, 0, 0), EPERM, EPERM),
    "finit_module": (313, (-1, 0, 0), EPERM, EPERM),
    "reboot, by a wrong magic number": (169, (0, 0, 0, 0), EPERM, EPERM),
    "swapon": (167, (0, 0), EPERM, EPERM),
    "open_by_handle_at": (304, (-1, 0, 0), EPERM, EPERM),
    "clock_settime": (227, (0, 0), EPERM, EPERM),
    "keyctl, asking for a keyring": (250, (0, -3, 0), ENOSYS, ENOSYS),
    "add_key": (248, (0, 0, 0, 0, 0), ENOSYS, ENOSYS),
    "io_uring_setup": (425, (0, 0), ENOSYS, ENOSYS),
    "userfaultfd": (323, (-1,), ENOSYS, ENOSYS),
    "fanotify_init": (300, (-1, 0), ENOSYS, ENOSYS),
    "bpf, a map": (321, (0, 0, 0), ENOSYS, ENOSYS),
    "bpf, a program": (321, (5, 0, 0), None, ENOSYS),
    "perf_event_open": (298, (0, 0, 0, 0, 0), None, ENOSYS),
    "a socket of the kernel for cryptography": (41, (38, 5, 0), ENOSYS, ENOSYS),
    "a socket to the machine below": (41, (40, 1, 0), ENOSYS, ENOSYS),
    "a netlink socket": (41, (16, 3, 0), None, None),
    "a call that no kernel has": (999, (), ENOSYS, ENOSYS),
    "personality without randomized addresses": (135, (0x40000,), None, None),
    "get_mempolicy": (239, (0, 0, 0, 0, 0), None, None),
    "pidfd_getfd": (438, (-1, 0, 0), None, None),
}
TRY = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
said = {}
for name, (number, arguments, *wanted) in json.loads(sys.argv[1]).items():
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    said[name] = ctypes.get_errno() if result < 0 else 0
print(json.dumps(said))
"""
TRACE = """
import ctypes, os, signal
libc = ctypes.CDLL(None)
child = os.fork()
if child == 0:
    libc.ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
print(os.WIFSTOPPED(os.waitpid(child, 0)[1]), libc.ptrace(17, child, 0, 0))
"""


def node_profiles(*args: str) -> Run:
    words = {
        "node_profiles_image": SLURM_IMAGE,
        "node_profiles_namespace": f"test-{NAME}-nodes",
        "node_profiles_directory": str(FOLDER),
        "node_profiles_node_selector": {"kubernetes.io/hostname": NODE},
    }
    return playbook("node_profiles", None, "-e", json.dumps(words), *args)


def left() -> list[str]:
    return sorted(path.name for path in (FOLDER / "corral").glob("*"))


@pytest.fixture(scope="module")
def bare(make_cluster: Callable[[str, int], Cluster]) -> Iterator[tuple[Cluster, Run]]:
    """The cluster, and how its first run ended on a node that has no profiles."""
    shutil.rmtree(FOLDER / "corral", ignore_errors=True)
    made = make_cluster(NAME, 30187)
    made.spec["nodeSets"] = [{**made.spec["nodeSets"][0], "name": "one", "replicas": 1, "nodeSelector": {"kubernetes.io/hostname": NODE}}]
    made.spec["login"] |= {"entry": "Pivot", "nodeSelector": {"kubernetes.io/hostname": NODE}}
    made.spec["security"] = {"seccomp": "Localhost"}
    made.spec["jail"] |= {"overlay": {"size": "1Gi"}, "subMounts": [{"path": "/scratch", "scratch": "100Mi"}]}
    made.spec["users"].append({"name": "bob", "uid": 10002, "sshKeys": made.spec["users"][0]["sshKeys"]})
    yield made, made.site()
    run = made.destroy("-e", f"confirm={NAME}", "-e", "delete_namespace=true")
    assert run.rc == 0, run.output


@pytest.fixture(scope="module")
def cluster(bare: tuple[Cluster, Run]) -> Iterator[Cluster]:
    made = bare[0]
    try:
        run = node_profiles()
        assert run.rc == 0, run.output
        assert left() == ["login.json", "worker.json"]
        run = made.site()
        assert run.rc == 0, run.output
        eventually(lambda: made.ssh("true", check=False).returncode == 0, "ssh")
        yield made
    finally:
        node_profiles("-e", "node_profiles_state=absent")
        made.kubectl("delete", "namespace", f"test-{NAME}-nodes", "--ignore-not-found")


def test_a_node_without_the_profile_is_told(bare: tuple[Cluster, Run]) -> None:
    _made, run = bare
    assert run.rc != 0
    assert "cannot load seccomp profile" in run.output
    assert f"{FOLDER}/corral/login.json" in run.output
    assert "corral.slurm.node_profiles" in run.output


def test_the_profiles_stay_and_a_second_run_changes_nothing(cluster: Cluster) -> None:
    run = node_profiles()
    assert (run.rc, run.changed) == (0, 0), run.output
    assert cluster.kubectl("get", "networkpolicy", "-n", f"test-{NAME}-nodes", "-o", "name").split() == [
        "networkpolicy.networking.k8s.io/corral-node-profiles"
    ]
    (FOLDER / "corral" / "login.json").unlink()
    eventually(lambda: left() == ["login.json", "worker.json"], "the file is written again")


@pytest.mark.parametrize(("pod", "container"), [("one-0", "slurmd"), ("login-0", "sshd")])
def test_pods_run_under_a_filter_and_never_privileged(cluster: Cluster, pod: str, container: str) -> None:
    where = ("-n", cluster.namespace, f"{NAME}-{pod}")
    status = cluster.kubectl("exec", *where, "-c", container, "--", "cat", "/proc/1/status")
    assert "Seccomp:\t2" in status
    spec = json.loads(cluster.kubectl("get", "pod", *where, "-o", "json"))["spec"]["containers"][0]["securityContext"]
    assert spec["seccompProfile"]["type"] == "Localhost"
    # No other capability of the kernel's forty than those that the document's model names.
    bound = int(next(line for line in status.splitlines() if line.startswith("CapBnd")).split()[1], 16)
    assert bound.bit_count() == len(spec["capabilities"]["add"])


def test_jobs_enter_the_jail(cluster: Cluster) -> None:
    user = "srun sh -c 'id -un; test -f /etc/corral-jail && echo jail; touch /scratch/x && echo submount'"
    assert cluster.ssh(user, user="bob").stdout.split() == ["bob", "jail", "submount"]
    assert cluster.ssh("srun sudo sh -c 'id -u; ls -d /home/bob'").stdout.split() == ["0", "/home/bob"]
    overlay = "srun --jail-overlay sh -c 'sudo touch /etc/over && ls /etc/over; echo $CORRAL_JAIL_MODE'; ls /etc/over"
    done = cluster.ssh(overlay, check=False)
    assert done.stdout.split() == ["/etc/over", "overlay"]
    assert "No such file" in done.stderr
    assert cluster.ssh("srun --jail-ro sh -c 'touch $HOME/ro 2>/dev/null || echo no'").stdout.split() == ["no"]
    assert cluster.ssh("sbatch --wait -o out --wrap 'srun hostname' >/dev/null; cat out", user="bob").stdout.split() == [f"{NAME}-one-0"]


def namespace_of_pod(cluster: Cluster) -> str:
    """The mount namespace of the login pod; a session by Pivot has one of its own."""
    where = ("-n", cluster.namespace, f"{NAME}-login-0", "-c", "sshd")
    return cluster.kubectl("exec", *where, "--", "readlink", "/proc/self/ns/mnt", check=False).strip()


def test_a_session_has_the_jail_as_its_root(cluster: Cluster) -> None:
    root, mounts = cluster.ssh("findmnt -n -o FSROOT /; readlink /proc/self/ns/mnt").stdout.split()
    assert root.endswith("/root") and mounts != namespace_of_pod(cluster)
    assert cluster.ssh("sudo chroot / true || echo refused", check=False).stdout.split() == ["refused"]


@pytest.mark.parametrize("place", ["job", "session"])
@pytest.mark.parametrize("root", [False, True], ids=["user", "root"])
def test_what_the_filter_refuses(cluster: Cluster, place: str, root: bool) -> None:
    words = f"{'srun ' if place == 'job' else ''}{'sudo ' if root else ''}"
    said = json.loads(cluster.ssh(f"{words}python3 - '{json.dumps(CALLS)}'", stdin=TRY).stdout)
    wanted = {name: call[2] if place == "job" else call[3] for name, call in CALLS.items()}
    assert {name: answer for name, answer in said.items() if wanted[name] is not None} == {
        name: answer for name, answer in wanted.items() if answer is not None
    }
    passed = {name: said[name] for name, answer in wanted.items() if answer is None}
    assert ENOSYS not in passed.values(), passed


def test_what_jobs_need_is_there(cluster: Cluster) -> None:
    container = "srun unshare -Urmp --fork sh -c 'mount -t tmpfs none /mnt && hostname -F /dev/null; mount -t proc proc /proc; id -u'"
    assert cluster.ssh(container, user="bob", check=False).stdout.split() == ["0"]
    assert cluster.ssh("unshare -Ur id -u", user="bob").stdout.split() == ["0"]
    assert cluster.ssh("srun python3 -", user="bob", stdin=TRACE).stdout.split() == ["True", "0"]


def test_ssh_to_a_worker_follows_the_job_under_the_filter(cluster: Cluster) -> None:
    """slurmd's container has one filter for all: the jail isolates the session, pam_slurm_adopt does its work under it."""
    assert "no active jobs" in cluster.ssh("ssh one-0 true", user="bob", check=False).stderr
    job = cluster.ssh("sbatch --parsable -o /dev/null --wrap 'srun sh -c \"echo mine >/tmp/mine; sleep 300\"'", user="bob").stdout.strip()
    try:
        eventually(lambda: cluster.ssh("ssh one-0 cat /tmp/mine", user="bob", check=False).stdout == "mine\n", "the job's own /tmp")
        said = cluster.ssh("ssh one-0 'echo $SLURM_JOB_ID; hostname; grep Seccomp: /proc/self/status'", user="bob").stdout.split()
        assert said == [job, f"{NAME}-one-0", "Seccomp:", "2"]
    finally:
        cluster.ssh(f"scancel {job}", user="bob")


def test_a_session_by_chroot_has_the_same_filter(cluster: Cluster) -> None:
    """The other way into the jail: sshd's own chroot."""
    cluster.spec["login"]["entry"] = "Chroot"
    run = cluster.site()
    assert run.rc == 0, run.output
    # The new document rolls the login pod; the old one may still answer for a moment.
    look = "readlink /proc/self/ns/mnt; test -f /etc/corral-jail && grep Seccomp: /proc/self/status"
    eventually(lambda: cluster.ssh(look, check=False).stdout.split() == [namespace_of_pod(cluster), "Seccomp:", "2"], "a session by chroot")
    said = json.loads(cluster.ssh(f"python3 - '{json.dumps(CALLS)}'", stdin=TRY).stdout)
    wanted = {name: call[3] for name, call in CALLS.items() if call[3] is not None}
    assert {name: said[name] for name in wanted} == wanted
    assert cluster.ssh("srun id -un", user="bob").stdout.split() == ["bob"]


def test_no_new_privileges_for_jobs_and_sessions(cluster: Cluster) -> None:
    words = "sh -c 'grep NoNewPrivs: /proc/self/status; sudo -n id -u'"
    assert cluster.ssh(f"srun {words}; {words}").stdout.split() == ["NoNewPrivs:", "0", "0"] * 2
    cluster.spec["security"]["noNewPrivileges"] = True
    refused = cluster.site()
    assert refused.rc != 0 and "spec.security.noNewPrivileges is true, but alice has sudo" in refused.output
    for user in cluster.spec["users"]:
        user.pop("sudo", None)
    run = cluster.site()
    assert run.rc == 0, run.output
    look = "grep NoNewPrivs: /proc/self/status"
    eventually(lambda: cluster.ssh(look, check=False).stdout.split()[1:] == ["1"], "a session without new privileges")
    eventually(lambda: cluster.ssh(f"srun {look}", check=False).stdout.split()[1:] == ["1"], "a job without new privileges")
    # su is set-uid root, and asks nobody who is root already for a password.
    for place in ("", "srun "):
        assert cluster.ssh(f"{place}setpriv --reuid=0 true || {place}su -c true root </dev/null", check=False).returncode != 0
    job = cluster.ssh("sbatch --parsable -o /dev/null --wrap 'sleep 300'", user="bob").stdout.strip()
    try:
        eventually(lambda: cluster.ssh(f"ssh one-0 {look}", user="bob", check=False).stdout.split()[1:] == ["1"], "a session on the worker")
    finally:
        cluster.ssh(f"scancel {job}", user="bob")


def test_they_are_taken_away_again(cluster: Cluster) -> None:
    check = node_profiles("-e", "node_profiles_state=absent", "--check")
    assert (check.rc, left()) == (0, ["login.json", "worker.json"]), check.output
    run = node_profiles("-e", "node_profiles_state=absent")
    assert (run.rc, left()) == (0, []), run.output
    run = node_profiles("-e", "node_profiles_state=absent")
    assert (run.rc, run.changed) == (0, 0), run.output
    # What runs goes on.
    assert cluster.ssh("srun id -un", user="bob").stdout.split() == ["bob"]
