# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a cluster whose pods have a jail each, in order: two nodes, homes on one claim. Each test goes on where the last one ended."""

from __future__ import annotations

import base64
import json
import random
import shutil
from collections.abc import Callable, Iterator

import pytest

from .conftest import VOLUMES, Cluster, eventually, playbook

pytestmark = pytest.mark.lab

NAME = "own"
# The lab has no provisioner, so volumes for the pods' claims lie ready.
CLASS = "test-own-disk"
PODS = ("own-login-0", "own-one-0", "own-two-0")


def objects(namespace: str) -> str:
    def volume(name: str, mode: str, **more: object) -> dict[str, object]:
        path = {"path": f"{VOLUMES}/{name}", "type": "DirectoryOrCreate"}
        spec = {"capacity": {"storage": "5Gi"}, "accessModes": [mode], "hostPath": path, "persistentVolumeReclaimPolicy": "Retain", **more}
        return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": {"test": NAME}}, "spec": spec}

    homes = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "volumeName": "test-own-homes",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    items = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "homes", "namespace": namespace}, "spec": homes},
        volume("test-own-homes", "ReadWriteMany", storageClassName="", claimRef={"namespace": namespace, "name": "homes"}),
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": CLASS},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        *(volume(f"test-own-{number}", "ReadWriteOnce", storageClassName=CLASS) for number in range(len(PODS))),
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Iterator[Cluster]:
    made = make_cluster(NAME, 30042)

    def remove() -> None:
        made.kubectl("delete", "pv", "-l", f"test={NAME}", "--ignore-not-found")
        made.kubectl("delete", "storageclass", CLASS, "--ignore-not-found")
        for path in VOLUMES.glob("test-own-*"):
            shutil.rmtree(path)

    remove()
    made.kubectl("apply", "-f", "-", stdin=objects(made.namespace))
    size = {"requests": {"cpu": "5m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}
    made.spec["nodeSets"] = [
        {"name": "one", "resources": size, "nodeSelector": {"kubernetes.io/hostname": "node1"}},
        {"name": "two", "resources": size, "nodeSelector": {"kubernetes.io/hostname": "node2"}},
    ]
    made.spec["jail"] |= {"shared": False, "volume": {"size": "5Gi"}, "subMounts": [{"path": "/home", "claimName": "homes"}]}
    yield made
    made.kubectl("delete", "namespace", made.namespace, "--ignore-not-found", "--wait=true", "--timeout=120s")
    remove()


def on(cluster: Cluster, node: str, command: str, user: str = "alice") -> str:
    return cluster.ssh(f"srun -Q -N1 -w {node} sh -c {json.dumps(command)}", user=user).stdout.strip()


def restarts(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """UID and restarts of each pod that runs on."""
    items = cluster.kubectl.items("pods", "-n", cluster.namespace, "-l", "app.kubernetes.io/component in (controller,login,worker)")
    states = {item["metadata"]["name"]: item["status"]["initContainerStatuses"] + item["status"]["containerStatuses"] for item in items}
    return {
        item["metadata"]["name"]: (item["metadata"]["uid"], sum(s["restartCount"] for s in states[item["metadata"]["name"]]))
        for item in items
    }


def test_site_makes_it_without_a_shared_root(cluster: Cluster) -> None:
    run = cluster.site()
    assert run.rc == 0, run.output
    assert not [name for name in cluster.objects() if "PersistentVolumeClaim" in name and "jail" in name]
    jobs = [name for name in cluster.objects() if name.startswith("Job/")]
    assert len(jobs) == 1 and jobs[0].startswith("Job/own-jail-users-"), jobs
    for pod in PODS:
        (jail,) = [v for v in cluster.kubectl.json("get", "pod", pod, "-n", cluster.namespace)["spec"]["volumes"] if v["name"] == "jail"]
        assert jail == {"name": "jail", "emptyDir": {"sizeLimit": "5Gi"}}
    # slurmctld has the accounts, and not a whole root.
    listed = cluster.slurm("sh", "-c", "ls -A /mnt/jail /mnt/jail/etc; id -u alice").split()
    assert "usr" not in listed and "passwd" in listed and listed[-1] == "10001"


def test_each_node_sees_a_root_of_its_own_and_the_same_homes(cluster: Cluster) -> None:
    on(cluster, "one-0", "touch /var/tmp/mine && sudo -n touch /usr/share/mine && echo home > from-one")
    assert on(cluster, "one-0", "ls /var/tmp/mine /usr/share/mine | wc -l") == "2"
    for look in ("ls /var/tmp/mine 2>&1", "ls /usr/share/mine 2>&1"):
        assert "No such file" in on(cluster, "two-0", f"{look}; true")
        assert "No such file" in cluster.ssh(f"{look}; true").stdout
    assert on(cluster, "two-0", "cat from-one; id -un; stat -c %U from-one") == "home\nalice\nalice"
    assert cluster.ssh("cat from-one; head -c 12 .ssh/authorized_keys; test -f .bashrc").stdout.startswith("home\n# BEGIN of c")
    assert sorted(cluster.ssh("srun -Q -N2 hostname").stdout.split()) == ["own-one-0", "own-two-0"]


def test_an_unchanged_document_writes_nothing(cluster: Cluster) -> None:
    before, pods = cluster.objects(), restarts(cluster)
    run = cluster.site()
    assert (run.rc, run.changed) == (0, 0), run.output
    assert (cluster.objects(), restarts(cluster)) == (before, pods)


def test_an_edit_of_the_users_restarts_nothing_and_is_there_when_the_run_ends(cluster: Cluster) -> None:
    pods = restarts(cluster)
    cluster.spec["users"].append({"name": "bob", "uid": 10002, "sshKeys": list(cluster.spec["users"][0]["sshKeys"]), "sudo": True})
    plan = cluster.site("--check", "--diff")
    assert plan.rc == 0, plan.output
    run = cluster.site()
    assert run.rc == 0, run.output
    assert plan.changed == run.changed > 0, f"planned:\n{plan.output}\ndone:\n{run.output}"
    assert cluster.ssh("srun -Q -N2 sudo -n id -u; id -un", user="bob").stdout.split() == ["0", "0", "bob"]
    assert cluster.slurm("id", "-u", "bob").strip() == "10002"
    cluster.spec["users"].pop()
    assert cluster.site().rc == 0
    assert cluster.ssh("true", user="bob", check=False).returncode == 255
    for node in ("one-0", "two-0"):
        assert "no such user" in on(cluster, node, "id bob 2>&1; true")
    assert restarts(cluster) == pods
    assert cluster.site().changed == 0


def rsa_key(number: int) -> str:
    """As long as one of 4096 bits; nobody has its other half."""
    parts = (b"ssh-rsa", b"\1\0\1", b"\0\xff" + random.Random(number).randbytes(511))
    return f"ssh-rsa {base64.b64encode(b''.join(len(part).to_bytes(4, 'big') + part for part in parts)).decode()} u{number:04d}@example.org"


@pytest.mark.long
def test_more_users_than_a_config_map_holds_come_and_go_with_one_run_each(cluster: Cluster) -> None:
    pods, before = restarts(cluster), cluster.objects()
    first, *others = (f"ConfigMap/own-jail-users{suffix}" for suffix in ("", "-1", "-2"))
    few = list(cluster.spec["users"])
    many = [{"name": f"u{number:04d}", "uid": 20001 + number, "sshKeys": [rsa_key(number)]} for number in range(1200)]
    many[-1]["sshKeys"].append(few[0]["sshKeys"][0])
    cluster.spec["users"] = [*few, *many]
    try:
        run = cluster.site()
        assert run.rc == 0, run.output
        assert [name in cluster.objects() for name in (first, *others)] == [True, True, False]
        assert cluster.ssh("srun -Q -N2 id -un; id -un", user="u1199").stdout.split() == ["u1199"] * 3
        assert cluster.slurm("id", "-u", "u1199").strip() == "21200"
        again = cluster.site()
        assert (again.rc, again.changed) == (0, 0), again.output
    finally:
        cluster.spec["users"] = few
    # By the document that the cluster had, which is kept beside a large one.
    run = playbook("rollback", None, "-e", f"slurm_namespace={cluster.namespace}", "-e", f"slurm_name={NAME}")
    assert run.rc == 0, run.output
    assert cluster.ssh("true", user="u1199", check=False).returncode == 255
    for node in ("one-0", "two-0"):
        assert "no such user" in on(cluster, node, "id u0000 2>&1; true")
    assert set(cluster.objects()) == set(before), "the part is pruned, and the job is that of before"
    assert restarts(cluster) == pods
    assert cluster.site().changed == 0


def test_without_a_run_the_kubelet_brings_it(cluster: Cluster) -> None:
    """Somebody edits the ConfigMap, or the run died before it woke the pods."""
    pods = restarts(cluster)
    text: str = cluster.kubectl.json("get", "configmap", "own-jail-users", "-n", cluster.namespace)["data"]["users.json"]
    document = json.loads(text)
    document["groups"].append({"name": "late", "gid": 20009})

    def put(content: str) -> None:
        patch = json.dumps({"data": {"users.json": content}})
        cluster.kubectl("patch", "configmap", "own-jail-users", "-n", cluster.namespace, "--type=merge", "-p", patch)

    def has_it(pod: str) -> bool:
        container = "sshd" if "login" in pod else "slurmd"
        return "20009" in cluster.kubectl(
            "exec", "-n", cluster.namespace, pod, "-c", container, "--", "getent", "group", "late", check=False
        )

    put(json.dumps(document))
    eventually(lambda: all(has_it(pod) for pod in PODS), "all pods have the group", timeout=150)
    put(text)
    assert restarts(cluster) == pods


def test_a_pod_that_is_replaced_has_a_fresh_root(cluster: Cluster) -> None:
    cluster.kubectl("delete", "pod", "own-one-0", "-n", cluster.namespace, "--wait=true")
    assert cluster.site().rc == 0
    eventually(lambda: cluster.slurm("sinfo", "-h", "-n", "one-0", "-o", "%t").strip() == "idle", "one-0 is back", timeout=120)
    assert on(cluster, "one-0", "ls /var/tmp /usr/share/mine 2>/dev/null; cat from-one; sudo -n id -u") == "/var/tmp:\nhome\n0"


def test_the_other_kind_of_jail_is_refused(cluster: Cluster) -> None:
    before, kept = cluster.objects(), cluster.spec["jail"]
    cluster.spec["jail"] = {**kept, "shared": True, "volume": {"hostPath": f"{VOLUMES}/own-jail", "size": "5Gi"}}
    try:
        for arguments in ((), ("--check",)):
            run = cluster.site(*arguments)
            assert run.rc != 0
            assert "spec.jail.shared is true, but the cluster own was created with the other value" in run.output, run.output
    finally:
        cluster.spec["jail"] = kept
    assert cluster.objects() == before
    # The history has the document that was refused, so that the one before it is a new one to it.
    assert cluster.site().changed == 1 and cluster.objects() == before
    assert cluster.site().changed == 0


def test_a_claim_for_each_pod(cluster: Cluster) -> None:
    """The volume may change, since what it holds is made anew with each pod anyway. No job is there, so the run itself replaces the pods.

    A pod is replaced once and no more: there are as many volumes as pods, and a second pod would wait for one for ever.
    """
    cluster.spec["jail"] |= {"volume": {"size": "2Gi", "storageClassName": CLASS}, "overlay": {"size": "1Gi"}}
    cluster.spec["login"]["entry"] = "Pivot"  # for the tests below: one roll-out brings all of it
    run = cluster.site()
    assert run.rc == 0, run.output
    claims = cluster.kubectl.items("pvc", "-n", cluster.namespace, "-l", "app.kubernetes.io/component=jail")
    assert {claim["metadata"]["name"]: claim["status"]["phase"] for claim in claims} == {f"{pod}-jail": "Bound" for pod in PODS}
    assert on(cluster, "two-0", "cat from-one") == "home"
    assert cluster.site().changed == 0


def test_a_session_by_pivot_is_in_the_login_pods_own_root(cluster: Cluster) -> None:
    pod = ("exec", "-n", cluster.namespace, f"{NAME}-login-0", "-c", "sshd", "--")
    cluster.ssh("sudo -n touch /usr/share/on-login")
    root, mounts = cluster.ssh("findmnt -n -o FSROOT /; readlink /proc/self/ns/mnt").stdout.split()
    assert root.endswith("/root") and mounts != cluster.kubectl(*pod, "readlink", "/proc/1/ns/mnt").strip()
    assert cluster.kubectl(*pod, "ls", "/mnt/jail/usr/share/on-login").strip() == "/mnt/jail/usr/share/on-login"
    assert "No such file" in on(cluster, "one-0", "ls /usr/share/on-login 2>&1; true")
    assert cluster.ssh("sudo -n chroot / true || echo refused", check=False).stdout.split() == ["refused"]
    assert cluster.ssh("cat from-one; echo session >from-session; srun -Q -N1 -w two-0 cat from-session").stdout.split() == [
        "home",
        "session",
    ]


def test_an_overlay_lies_over_each_nodes_own_root(cluster: Cluster) -> None:
    """What a job writes to the root is there for all its steps on that node, nowhere else, and gone with the job; its homes are the shared ones."""
    write = 'srun sh -c "sudo -n touch /usr/share/over-\\$SLURMD_NODENAME; echo \\$CORRAL_JAIL_MODE"'
    read = 'srun sh -c "ls /usr/share/over-*; cat from-one; echo kept >kept-\\$SLURMD_NODENAME"'
    script = f"salloc -Q -N2 --jail-overlay sh -c '{write}; {read} | sort'"
    steps = cluster.ssh(script).stdout.splitlines()
    assert steps == ["overlay", "overlay", "/usr/share/over-one-0", "/usr/share/over-two-0", "home", "home"]
    for node in ("one-0", "two-0"):
        assert on(cluster, node, f"ls /usr/share/over-* 2>/dev/null; cat kept-{node}") == "kept"
    worker = ("exec", "-n", cluster.namespace, f"{NAME}-one-0", "-c", "slurmd", "--", "sh", "-c")
    left = "ls -A /mnt/jail/usr/share | grep -c '^over-' ; ls /var/spool/corral-overlay | grep -c '^[0-9]'; true"
    eventually(lambda: cluster.kubectl(*worker, left).split() == ["0", "0"], "nothing of the overlay is left")


def test_destroy_leaves_nothing_but_what_is_not_ours(cluster: Cluster) -> None:
    run = cluster.destroy("-e", f"confirm={NAME}")
    assert run.rc == 0, run.output
    eventually(lambda: cluster.objects() == {}, "all objects are gone, the claims of the pods too")
    eventually(lambda: cluster.kubectl("get", "pods", "-n", cluster.namespace, "-o", "name") == "", "the pods are gone")
    assert cluster.kubectl("get", "pvc", "-n", cluster.namespace, "-o", "name").split() == ["persistentvolumeclaim/homes"]
    assert (VOLUMES / "test-own-homes/alice/from-one").exists()
