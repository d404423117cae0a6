# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two slurmctlds on one state volume: a living cluster gets the second and loses it again, and whatever happens to the primary no job is lost.

The tests go on from one another. The state volume is a small file system of its own, so that it can be filled.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import job, why

from .conftest import VOLUMES, Cluster, eventually
from .scenarios import scenario

pytestmark = pytest.mark.lab

NAME = "ha"
STATE = VOLUMES / f"{NAME}-state"
# Seconds after which a command that is not accepted is lost. What users wait is a figure of docs/ha.md, not of a test.
PATIENCE = 120
# Jobs that run or wait through all of it.
KEPT: list[int] = []


@pytest.fixture(scope="module")
def state() -> Iterator[Path]:
    """A state volume of 64 MiB."""
    if STATE.is_mount():
        subprocess.run(["umount", "-l", str(STATE)], check=True)
    STATE.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "corral-test", str(STATE)], check=True)
    yield STATE
    subprocess.run(["umount", "-l", str(STATE)], check=True)


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster], state: Path) -> Cluster:
    made = make_cluster(NAME, 30210)
    del made.spec["nodeSets"][1]
    made.spec["controller"] = {"stateVolume": {"hostPath": str(state), "size": "64Mi", "accessMode": "ReadWriteMany"}}
    run = made.site()
    assert run.rc == 0, run.output
    return made


def submit(cluster: Cluster, *words: str) -> int:
    return int(cluster.ssh(f"sbatch --parsable --output=/dev/null {' '.join(words)}").stdout)


def accepted_after(cluster: Cluster, began: float) -> tuple[int, float]:
    """Submit as a user would who tries again at once; return the job and the seconds since ``began``."""
    while True:
        done = cluster.ssh("sbatch --parsable --output=/dev/null --wrap=true", check=False)
        took = time.monotonic() - began
        if done.returncode == 0:
            return int(done.stdout), took
        assert took < PATIENCE, done.stderr
        time.sleep(0.2)


def known(cluster: Cluster) -> dict[int, str]:
    """Jobs and their states, as the login node sees them."""
    lines = cluster.ssh("squeue -h -t all -o '%i %T'").stdout.split("\n")
    return {int(line.split()[0]): line.split()[1] for line in lines if line}


def none_lost(cluster: Cluster, before: dict[int, str]) -> None:
    after = known(cluster)
    assert before.keys() <= after.keys(), "a job was lost"
    assert [after[one] for one, was in before.items() if was == "RUNNING"] == ["RUNNING"] * list(before.values()).count("RUNNING")


def saved(cluster: Cluster, state: Path) -> dict[int, str]:
    """Return all jobs when they are on the volume: slurmctld writes them some seconds after it has accepted them."""
    jobs = known(cluster)
    now = time.time()
    # What is written after this change holds all that was before it.
    alive = next(number for number, what in jobs.items() if what in ("RUNNING", "PENDING"))
    cluster.ssh(f"scontrol update jobid={alive} comment={now}")
    eventually(lambda: (state / "job_state").stat().st_mtime > now, "the jobs are saved", 60)
    return jobs


def _command_lines(pod: str) -> dict[int, bytes]:
    """Command lines in a pod's slurmctld container, by the machine's own numbers: the lab's nodes are this machine."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
                line = (folder / "cmdline").read_bytes()
            except OSError:  # it has ended meanwhile
                continue
            if f"HOSTNAME={pod}".encode() in variables and (b"slurmctld" in line or b"controller.py" in line):
                found[int(folder.name)] = line
    return found


def processes(pod: str) -> list[int]:
    """The processes of a pod's slurmctld container."""
    return sorted(_command_lines(pod))


def slurmctld(pod: str) -> int:
    """The process of a pod's slurmctld itself, 0 while there is none."""
    return min((number for number, line in _command_lines(pod).items() if b"/usr/sbin/slurmctld\0" in line), default=0)


def heart(state: Path) -> int:
    """Which slurmctld is active: 0 for the primary."""
    data = (state / "heartbeat").read_bytes()
    return data[15] if len(data) == 16 else -1


def params(cluster: Cluster, **more: Any) -> dict[str, Any]:
    return {"namespace": cluster.namespace, "pod": f"{cluster.name}-controller-0", "container": "slurmctld", **more}


def restarts(cluster: Cluster, pod: str) -> int:
    status = cluster.kubectl.json("get", "pod", pod, "-n", cluster.namespace)["status"]["containerStatuses"]
    return int(status[0]["restartCount"])


def test_a_claim_for_one_node_is_refused_before_anything_is_touched(cluster: Cluster) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "mine"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "64Mi"}}},
    }
    cluster.kubectl("apply", "-n", cluster.namespace, "-f", "-", stdin=json.dumps(claim))
    before, good = cluster.objects(), cluster.spec["controller"]
    cluster.spec["controller"] = {"replicas": 2, "stateVolume": {"claimName": "mine"}}
    run = cluster.site()
    cluster.spec["controller"] = good
    assert run.rc != 0
    assert "PersistentVolumeClaim test-ha/mine is ReadWriteOnce, but pods on several nodes mount it" in " ".join(run.output.split()), (
        run.output
    )
    assert cluster.objects() == before


def test_a_second_controller_comes_while_a_job_runs(cluster: Cluster, state: Path) -> None:
    running = submit(cluster, "--wrap='sleep 900'")
    KEPT.append(running)
    eventually(lambda: known(cluster).get(running) == "RUNNING", "the job runs", 30)
    with scenario(cluster, "a second controller is added", KEPT):
        login = cluster.kubectl.uids(cluster.namespace, "app.kubernetes.io/component in (login,worker)")
        cluster.spec["controller"]["replicas"] = 2
        run = cluster.site()
        assert run.rc == 0, run.output
        none_lost(cluster, {running: "RUNNING"})
        ping = cluster.ssh("scontrol ping").stdout
        assert f"(primary) at {NAME}-controller-0 is UP" in ping and f"(backup) at {NAME}-controller-1 is UP" in ping
        assert cluster.kubectl.uids(cluster.namespace, "app.kubernetes.io/component in (login,worker)") == login
        pods = cluster.kubectl.items("pods", "-n", cluster.namespace, "-l", "app.kubernetes.io/component=controller")
        assert len({pod["spec"]["nodeName"] for pod in pods}) == 2, "both are on one node"
        assert cluster.kubectl.json("get", "pdb", f"{NAME}-controller", "-n", cluster.namespace)["status"]["disruptionsAllowed"] == 1
        before = cluster.objects()
        again = cluster.site()
        assert (again.rc, again.changed) == (0, 0), again.output
        assert cluster.objects() == before
        assert heart(state) == 0


def test_a_killed_process_and_a_killed_pod_are_back_at_once(cluster: Cluster, state: Path) -> None:
    KEPT.extend(submit(cluster, "--exclusive", "--wrap='sleep 900'") for _dummy in range(6))
    eventually(lambda: list(known(cluster).values()).count("RUNNING") == 2, "as many jobs run as there are nodes", 30)
    before = saved(cluster, state)
    assert "PENDING" in before.values()
    with scenario(cluster, "slurmctld's process is killed", KEPT):
        os.kill(slurmctld(f"{NAME}-controller-0"), signal.SIGKILL)
        number, took = accepted_after(cluster, time.monotonic())
        print(f"MEASURED killed process: {took:.1f} s")
        none_lost(cluster, before)
    assert number > max(before)
    before = saved(cluster, state)
    with scenario(cluster, "slurmctld's pod is deleted by force", KEPT):
        began = time.monotonic()
        cluster.kubectl("delete", "pod", f"{NAME}-controller-0", "-n", cluster.namespace, "--force", "--grace-period=0")
        # kubectl does not wait for the container's end, and until then the primary takes jobs.
        gone = f"(primary) at {NAME}-controller-0 is DOWN"
        eventually(lambda: gone in cluster.ssh("scontrol ping", check=False).stdout, "the primary is gone", 60)
        number, took = accepted_after(cluster, began)
        print(f"MEASURED killed pod: {took:.1f} s")
        none_lost(cluster, {**before, number: "?"})


def test_a_change_reaches_the_standby(cluster: Cluster) -> None:
    with scenario(cluster, "nodes are added, and slurmctld reads its configuration anew", KEPT):
        cluster.spec["nodeSets"][0]["replicas"] = 3
        run = cluster.site()
        assert run.rc == 0, run.output
        assert restarts(cluster, f"{NAME}-controller-1") == 0, "the standby begins anew without its container"
        again = cluster.site()
        assert (again.rc, again.changed) == (0, 0), again.output


def test_without_its_primary_the_cluster_goes_on(cluster: Cluster, state: Path) -> None:
    """The pod is gone for good, with its StatefulSet's will to replace it."""
    eventually(lambda: heart(state) == 0, "the primary is active", 30)
    before = saved(cluster, state)
    with scenario(cluster, "the primary's pod is gone, and nobody replaces it", KEPT):
        cluster.kubectl("delete", "statefulset", f"{NAME}-controller", "-n", cluster.namespace, "--cascade=orphan")
        began = time.monotonic()
        cluster.kubectl("delete", "pod", f"{NAME}-controller-0", "-n", cluster.namespace, "--force", "--grace-period=0")
        number, took = accepted_after(cluster, began)
        print(f"MEASURED pod gone: {took:.1f} s")
        assert heart(state) == 1
        none_lost(cluster, {**before, number: "?"})
        assert "cpu-2" in cluster.ssh("sinfo -h -N -o %N").stdout, "the backup did not know the new node"
        assert any(one["id"] == number for one in job.info(params(cluster), check=False, diff=False)["jobs"]), (
            "modules find the other controller"
        )
        assert why.run(params(cluster), check=False, diff=False)["lines"]


def test_the_primary_takes_control_back(cluster: Cluster, state: Path) -> None:
    before = known(cluster)
    with scenario(cluster, "the primary takes control back", KEPT):
        run = cluster.site()
        assert run.rc == 0, run.output
        eventually(lambda: heart(state) == 0, "the primary is active", 60)
        number, took = accepted_after(cluster, time.monotonic())
        print(f"MEASURED after the way back: {took:.1f} s")
        none_lost(cluster, {**before, number: "?"})
        log = cluster.kubectl("logs", "-n", cluster.namespace, f"{NAME}-controller-1", "-c", "slurmctld")
        assert "not completely done relinquishing control" not in log


def test_a_primary_that_was_frozen_does_not_go_on_with_what_it_knew(cluster: Cluster, state: Path) -> None:
    """As a machine that hangs or is cut off, and comes back: the pod's processes stand still and its network is gone."""
    before = saved(cluster, state)
    with scenario(cluster, "the primary's machine stands still, and wakes up", KEPT):
        address = cluster.kubectl.json("get", "pod", f"{NAME}-controller-0", "-n", cluster.namespace)["status"]["podIP"]
        cut = [["-s", address, "-j", "DROP"], ["-d", address, "-j", "DROP"]]
        frozen = processes(f"{NAME}-controller-0")
        for rule in cut:
            subprocess.run(["iptables", "-t", "raw", "-I", "PREROUTING", *rule], check=True)
        try:
            began = time.monotonic()
            for one in frozen:
                os.kill(one, signal.SIGSTOP)
            number, took = accepted_after(cluster, began)
            print(f"MEASURED machine gone: {took:.1f} s")
        finally:
            for rule in cut:
                subprocess.run(["iptables", "-t", "raw", "-D", "PREROUTING", *rule], check=True)
            for one in frozen:
                os.kill(one, signal.SIGCONT)
        eventually(lambda: slurmctld(f"{NAME}-controller-0") not in [0, *frozen], "the old slurmctld is ended and another begun", 60)
        eventually(lambda: heart(state) == 0, "the primary is active again", 60)
        none_lost(cluster, {**before, number: "?"})
        later, _took = accepted_after(cluster, time.monotonic())
        assert later > number, "a job's number was given twice"


def test_the_second_controller_goes_while_a_job_runs(cluster: Cluster) -> None:
    before = known(cluster)
    with scenario(cluster, "the second controller goes", KEPT):
        cluster.spec["controller"]["replicas"] = 1
        run = cluster.site()
        assert run.rc == 0, run.output
        none_lost(cluster, before)
        assert cluster.kubectl(
            "get", "service,pdb", "-n", cluster.namespace, "-o", "name", "-l", "app.kubernetes.io/component=controller"
        ).split() == [f"service/{NAME}-controller"]
        again = cluster.site()
        assert (again.rc, again.changed) == (0, 0), again.output


def test_a_full_state_volume_is_told(cluster: Cluster, state: Path) -> None:
    filler = state / "filler"
    usage = os.statvfs(state)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, usage.f_bavail * usage.f_frsize)
    try:
        run = cluster.site()
        assert "The state volume of slurmctld in Pod test-ha/ha-controller-0 is full" in " ".join(run.output.split()), run.output
        assert any("is full" in line for line in why.run(params(cluster), check=False, diff=False)["lines"])
    finally:
        filler.unlink()
    assert not any("full" in line for line in why.run(params(cluster), check=False, diff=False)["lines"])


def test_a_damaged_state_is_named_and_kept(cluster: Cluster, state: Path) -> None:
    before = known(cluster)
    with scenario(cluster, "slurmctld's state is damaged and repaired", KEPT):
        number = slurmctld(f"{NAME}-controller-0")
        os.kill(number, signal.SIGSTOP)
        good = (state / "job_state").read_bytes()
        (state / "job_state").write_bytes(good[: len(good) // 2])
        os.kill(number, signal.SIGKILL)
        run = cluster.site("-e", "slurm_controller_wait_timeout=60")
        words = " ".join(run.output.split())
        assert run.rc != 0
        assert "/var/spool/slurmctld/job_state cannot be read" in words and "nothing was thrown away" in words, run.output
        assert (state / "job_state").read_bytes() == good[: len(good) // 2]
        (state / "job_state").write_bytes(good)
        cluster.kubectl("delete", "pod", f"{NAME}-controller-0", "-n", cluster.namespace)
        run = cluster.site()
        assert run.rc == 0, run.output
        none_lost(cluster, before)
    cluster.ssh("scancel --user=alice")
