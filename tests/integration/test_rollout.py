# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another pod template under load, in order: each test goes on where the last one ended. At the end every job is counted."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from . import jobs
from .conftest import Cluster, eventually, playbook
from .jobs import nodes, state
from .scenarios import scenario

pytestmark = pytest.mark.lab

# Jobs that must all come to their own end, by their number; each writes a line there.
KEPT: list[str] = []
SHORT = 150
# Long enough for a short job to end, and for nothing else.
SOON = ("-e", "slurm_workers_rollout_timeout=20")
NODES = ("cpu-0", "cpu-1", "cpu-2")


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster("roll", 31100)
    made.spec["nodeSets"][0].update(replicas=3, updateStrategy={"maxUnavailable": 1})
    made.spec["nodeSets"][0]["sysctls"] = [{"name": "net.ipv4.tcp_keepalive_time", "value": "601"}]
    made.spec["nodeSets"][1]["updateStrategy"] = {"type": "OnDelete"}
    run = made.site()
    assert run.rc == 0, run.output
    # Short ones that come and go on all nodes while these do, with a time limit, by which nodes are chosen that are free sooner.
    made.ssh(f"sbatch --array=1-{SHORT} -t 1 -o /dev/null --wrap 'sleep 2; echo $SLURM_ARRAY_TASK_ID $SLURM_RESTART_COUNT >> done'")
    return made


def submit(cluster: Cluster, flags: str, end: str) -> str:
    """With a time limit, by which nodes are chosen that are free sooner."""
    return jobs.submit(cluster, f"-t 60 {flags}", end)


def away(found: dict[str, str]) -> set[str]:
    """Nodes of the set that take no jobs."""
    return {name for name, words in found.items() if name in NODES and words.startswith("d")}


def pods(cluster: Cluster, node_set: str = "cpu") -> dict[str, str]:
    return cluster.kubectl.uids(cluster.namespace, f"corral.hpc/node-set={node_set}")


def change(cluster: Cluster, value: str, node_set: int = 0) -> None:
    """Another pod template."""
    cluster.spec["nodeSets"][node_set]["environment"] = [{"name": "CHANGE", "value": value}]


def values(cluster: Cluster) -> set[str]:
    """The variable of the template, as the pods of cpu have it."""
    path = "{range .items[*]}{.spec.containers[0].env[?(@.name=='CHANGE')].value}{' '}{end}"
    return set(cluster.kubectl("get", "pods", "-n", cluster.namespace, "-l", "corral.hpc/node-set=cpu", "-o", f"jsonpath={path}").split())


@contextmanager
def watched(cluster: Cluster) -> Iterator[list[set[str]]]:
    """Which nodes were out of service, polled all the time."""
    seen: list[set[str]] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.3):
            seen.append(away(nodes(cluster)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def test_a_changed_configuration_replaces_no_pod(cluster: Cluster) -> None:
    assert cluster.ssh("srun -w cpu-0 cat /proc/sys/net/ipv4/tcp_keepalive_time").stdout.strip() == "601", (
        "a job does not see its set's sysctls"
    )
    KEPT.append(submit(cluster, "-w cpu-1", "first"))
    before = {**pods(cluster), **pods(cluster, "extra")}
    cluster.spec["slurm"]["extraConfig"] = ["MinJobAge=1200"]
    with scenario(cluster, "the configuration changes, and no pod template", KEPT):
        run = cluster.site()
        assert run.rc == 0, run.output
    assert "MinJobAge               = 1200" in cluster.slurm("scontrol", "show", "config")
    assert {**pods(cluster), **pods(cluster, "extra")} == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("SelectTypeParameters=CR_Nothing", "Bad SelectTypeParameter: CR_Nothing"),
        ("PriorityType=priority/nope", "PriorityType=priority/nope is a plugin that the image does not have"),
        ("DebugFlags=Nothing", "Invalid DebugFlag: Nothing"),
    ],
)
def test_a_value_that_slurm_can_not_read_never_reaches_slurmctld(cluster: Cluster, line: str, words: str) -> None:
    good, objects = cluster.spec["slurm"].get("extraConfig", []), cluster.objects()
    before = cluster.kubectl("get", "configmap", "-n", cluster.namespace, "roll-controller-config", "-o", "jsonpath={.data}")
    cluster.spec["slurm"]["extraConfig"] = [*good, line]
    try:
        run = cluster.site("--check", *SOON)
        assert run.rc == 2 and words in " ".join(run.output.split()), run.output
        run = cluster.site(*SOON)
    finally:
        cluster.spec["slurm"]["extraConfig"] = good
    assert run.rc == 2 and words in " ".join(run.output.split()), run.output
    assert cluster.objects() == objects
    assert cluster.kubectl("get", "configmap", "-n", cluster.namespace, "roll-controller-config", "-o", "jsonpath={.data}") == before


def test_a_changed_template_is_told_before_and_waits_for_jobs(cluster: Cluster) -> None:
    change(cluster, "one")
    before, objects = pods(cluster), cluster.objects()
    plan = cluster.site("--check", "--diff")
    assert plan.rc == 0, plan.output
    words = " ".join(plan.output.split())
    assert f"job {KEPT[0]} (wrap of alice) on cpu-1" in words and "pod of cpu-1" in words, plan.output
    assert cluster.objects() == objects and not away(nodes(cluster)), "a check run did something"
    with watched(cluster) as seen, scenario(cluster, "another pod template, while a job runs on one of the nodes", KEPT):
        run = cluster.site(*SOON)
    assert run.rc == 0, run.output
    assert f"job {KEPT[0]} (wrap of alice) on cpu-1" in " ".join(run.output.split()), run.output
    now = pods(cluster)
    assert {name for name in before if now[name] == before[name]} == {"roll-cpu-1"}, "only the one with a job keeps its pod"
    assert nodes(cluster)["cpu-1"].startswith("draining|corral: rollout:")
    assert max(map(len, seen)) == 1, f"more than one node was out of service at once: {seen}"
    again = cluster.site(*SOON)
    assert again.rc == 0, again.output
    assert again.changed == 0, again.output


def test_the_run_that_waits_goes_on_when_the_job_has_ended(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def end_the_job() -> None:
        eventually(lambda: log.exists() and f"waiting for job {KEPT[0]}" in log.read_text(), "the run shows what it waits for", 90)
        cluster.ssh("touch first")

    what = "the job ends for which the replacement of a pod waits, during the run"
    with scenario(cluster, what, KEPT), ThreadPoolExecutor() as pool:
        ended = pool.submit(end_the_job)
        run = cluster.site("-e", "slurm_workers_rollout_timeout=100", env={"ANSIBLE_LOG_PATH": str(log)})
        ended.result()
    assert run.rc == 0, run.output
    assert state(cluster, KEPT[0]) == ["COMPLETED"]
    assert values(cluster) == {"one"}
    assert not away(nodes(cluster))
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output


def test_one_that_is_killed_half_way_is_gone_on_with(cluster: Cluster) -> None:
    KEPT.append(submit(cluster, "-w cpu-0", "second"))
    before = pods(cluster)
    change(cluster, "two")
    command = ["ansible-playbook", "corral.slurm.site", "-e", f"slurm_cluster_file={cluster.write()}"]
    with scenario(cluster, "a run that replaces pods is killed, and another one goes on", KEPT[-1:]):
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            eventually(lambda: pods(cluster) != before, "a pod is replaced", 120)
            kill_all(run.pid)
        assert away(nodes(cluster)), "the run was killed too late to show anything"
        cluster.ssh("touch second")
        again = cluster.site()
        assert again.rc == 0, again.output
    assert values(cluster) == {"two"}
    assert not away(nodes(cluster))


def kill_all(pid: int) -> None:
    """End a run and all that it started, which are in sessions of their own, without a chance to tidy up."""
    found = [pid]
    for one in found:
        found.extend(
            map(int, subprocess.run(["ps", "-o", "pid=", "--ppid", str(one)], capture_output=True, text=True, check=False).stdout.split())
        )
    for one in found:
        os.kill(one, signal.SIGKILL)


def test_a_template_that_does_not_work_stops_after_the_first_batch_and_is_rolled_back(cluster: Cluster) -> None:
    KEPT.append(submit(cluster, "-w cpu-0", "third"))
    good, before = cluster.spec["nodeSets"][0]["environment"], pods(cluster)
    cluster.spec["nodeSets"][0]["volumes"] = [{"name": "no", "mountPath": "/mnt/no", "configMap": "there-is-none"}]
    with scenario(cluster, "a pod template that does not work, and back", KEPT[-1:]):
        with watched(cluster) as seen:
            run = cluster.site()
        assert run.rc == 2, run.output
        words = " ".join(run.output.split())
        assert "does not come up with the new template: pod roll-cpu-" in words, f"it was told by the time-out: {words}"
        assert "The roll-out of node set cpu has stopped" in words and "there-is-none" in words and "roll back" in words, run.output
        assert max(map(len, seen)) == 1, f"more than one node was out of service at once: {seen}"
        assert len(set(pods(cluster).values()) & set(before.values())) == 2, "a set lost more than it may"
        assert cluster.ssh("srun -p main -x extra-0 hostname").stdout.strip(), "the others do not take jobs"
        del cluster.spec["nodeSets"][0]["volumes"]
        assert cluster.spec["nodeSets"][0]["environment"] == good
        back = cluster.site()
        assert back.rc == 0, back.output
    assert not away(nodes(cluster))
    assert state(cluster, KEPT[-1]) == ["RUNNING"]
    cluster.ssh("touch third")
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output


def test_pods_that_are_refused_are_told_before_the_time_out(cluster: Cluster) -> None:
    good, before = dict(cluster.spec["nodeSets"][0]), values(cluster)
    quota = ("quota", "no-more-pods", "-n", cluster.namespace)
    change(cluster, "refused")
    cluster.kubectl("create", *quota, "--hard=pods=0")
    try:
        run = cluster.site()
    finally:
        cluster.kubectl("delete", *quota)
        cluster.spec["nodeSets"][0] = good
    words = " ".join(run.output.split())
    assert run.rc == 2 and "does not come up with the new template: its pod was refused at " in words, run.output
    assert "exceeded quota: no-more-pods" in words and "after 600 s" not in words, run.output
    back = cluster.site()
    assert back.rc == 0, back.output
    assert values(cluster) == before and not away(nodes(cluster))


def test_drains_of_others_stay_and_their_nodes_are_replaced_when_they_are_free(cluster: Cluster) -> None:
    cluster.slurm("scontrol", "update", "nodename=cpu-0", "state=drain", "reason=ask bob")
    eventually(lambda: nodes(cluster)["cpu-0"].startswith("drained"), "its jobs have ended")
    change(cluster, "three")
    cluster.spec["nodeSets"][0]["updateStrategy"] = {"maxUnavailable": 2}
    run = cluster.site()
    assert run.rc == 0, run.output
    assert values(cluster) == {"three"}
    now = nodes(cluster)
    assert now["cpu-0"].endswith("|ask bob") and away(now) == {"cpu-0"}, now
    cluster.slurm("scontrol", "update", "nodename=cpu-0", "state=resume")


def test_a_set_whose_pods_are_replaced_by_others(cluster: Cluster) -> None:
    before = pods(cluster, "extra")
    change(cluster, "x", node_set=1)
    run = cluster.site()
    assert run.rc == 0, run.output
    assert pods(cluster, "extra") == before
    assert not nodes(cluster)["extra-0"].startswith("d")
    cluster.slurm("scontrol", "update", "nodename=extra-0", "state=drain", "reason=mine")
    eventually(lambda: nodes(cluster)["extra-0"].startswith("drained"), "its jobs have ended")
    cluster.kubectl("delete", "pod", "-n", cluster.namespace, "roll-extra-0", "--timeout=120s")
    run = cluster.site()
    assert (run.rc, pods(cluster, "extra") == before) == (0, False), run.output
    cluster.slurm("scontrol", "update", "nodename=extra-0", "state=resume")


def test_a_maintenance_window_is_a_reservation(cluster: Cluster) -> None:
    before = pods(cluster)
    cluster.spec["nodeSets"][0]["updateStrategy"] = {"type": "Maintenance", "maxUnavailable": "100%"}
    change(cluster, "four")
    began = time.monotonic()
    run = cluster.site()
    assert run.rc == 0, run.output
    assert pods(cluster) == before and not away(nodes(cluster))
    assert time.monotonic() - began < 100, "a run waits for a window"
    window = ["reservationname=window", "nodes=cpu-[0-2]", "starttime=now", "duration=30", "users=root", "flags=maint,ignore_jobs"]
    cluster.slurm("scontrol", "create", "reservation", *window)
    try:
        # slurmctld looks for windows that have begun every few seconds.
        eventually(lambda: all(nodes(cluster)[name].startswith("maint") for name in NODES), "the window has begun")
        run = cluster.site()
        assert run.rc == 0, run.output
        assert values(cluster) == {"four"}
    finally:
        cluster.slurm("scontrol", "delete", "reservationname=window")
    eventually(lambda: all(not nodes(cluster)[name].startswith(("d", "m")) for name in NODES), "all are in service")


def test_after_the_deadline_jobs_are_requeued(cluster: Cluster) -> None:
    cluster.spec["nodeSets"][0]["updateStrategy"] = {"maxUnavailable": 3, "drain": {"policy": "Requeue", "deadlineSeconds": 1}}
    change(cluster, "five")
    requeued = submit(cluster, "-w cpu-2", "never")
    with scenario(cluster, "another pod template for nodes whose set says `Requeue`, after the deadline", [requeued], anew=1):
        run = cluster.site("-e", "slurm_workers_rollout_timeout=60")
        assert run.rc == 0, run.output
        assert values(cluster) == {"five"}
    cluster.slurm("scancel", requeued)


def test_login_pods_are_replaced_when_no_user_is_in_them(cluster: Cluster) -> None:
    login = "app.kubernetes.io/component=login"
    KEPT.append(submit(cluster, "", "fourth"))
    before = cluster.kubectl.uids(cluster.namespace, login)
    cluster.ssh("nohup sleep 1000 >/dev/null 2>&1 &")
    cluster.spec["login"]["volumes"] = [{"name": "room", "mountPath": "/mnt/room", "memory": "1Mi"}]
    run = cluster.site()
    assert run.rc == 0, run.output
    assert "keeps its older template while it is in use: 1 processes of alice" in " ".join(run.output.split()), run.output
    assert cluster.kubectl.uids(cluster.namespace, login) == before
    cluster.ssh("pkill -x sleep", check=False)
    with scenario(cluster, "the login pod from which a job was submitted is replaced", KEPT[-1:]):
        run = cluster.site()
        assert run.rc == 0, run.output
        assert cluster.kubectl.uids(cluster.namespace, login) != before
    assert cluster.ssh("id -un").stdout.strip() == "alice"
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output


@contextmanager
def a_terminal(cluster: Cluster, host: str) -> Iterator[Callable[[str], str]]:
    """A session with a terminal on a login pod, by its host name.

    Gives what types a line, if any, waits for a word, and returns all that the terminal has shown.
    """
    pod = f"{cluster.name}-{host}"
    address = cluster.kubectl("get", "pod", pod, "-n", cluster.namespace, "-o", "jsonpath={.status.podIP}")
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes")
    words = ["ssh", "-tt", "-i", str(cluster.key), *(word for option in options for word in ("-o", option)), f"alice@{address}"]
    shown: list[str] = []
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        reader = threading.Thread(target=lambda stream: shown.extend(iter(lambda: stream.read(1), "")), args=(process.stdout,))
        reader.start()

        def say(line: str, wanted: str) -> str:
            assert process.stdin is not None
            if line:
                process.stdin.write(f"{line}\n")
                process.stdin.flush()
            eventually(lambda: wanted in "".join(shown), f"{wanted} on the terminal")
            return "".join(shown)

        try:
            yield say
        finally:
            process.kill()
            reader.join()


def test_users_of_a_login_pod_that_goes_are_told_and_have_time(cluster: Cluster) -> None:
    cluster.spec["login"] |= {"replicas": 2, "drain": {"deadlineSeconds": 900}}
    run = cluster.site()
    assert run.rc == 0, run.output
    with a_terminal(cluster, "login-1") as say:
        say("echo here$((1 + 1))", "here2")
        cluster.spec["login"]["replicas"] = 1
        check = cluster.site("--check")
        sentence = "login-1 would go while it is in use: 2 processes of alice. It has 930 s to end."
        assert check.rc == 0 and sentence in " ".join(check.output.split()), check.output
        run = cluster.site()
        assert run.rc == 0 and "login-1 goes while it is in use" in " ".join(run.output.split()), run.output
        shown = say("echo still$((1 + 1))", "still2")
        assert f"*** The login node {cluster.name}-login-1 ends at " in shown
        assert {cluster.ssh("hostname").stdout.strip() for _try in range(8)} == {f"{cluster.name}-login-0"}, (
            "who comes now gets another pod"
        )
        began = time.monotonic()
        say("exit", "logout")
    gone = ("get", "pod", f"{cluster.name}-login-1", "-n", cluster.namespace, "--ignore-not-found", "-o", "name")
    eventually(lambda: cluster.kubectl(*gone) == "", "the pod goes when nobody is left")
    print(f"MEASURED gone after the last session: {time.monotonic() - began:.1f} s")


def test_at_the_deadline_a_login_pod_goes_with_its_sessions(cluster: Cluster) -> None:
    cluster.spec["login"] |= {"drain": {"deadlineSeconds": 5}, "updateStrategy": {"type": "RollingUpdate"}}
    run = cluster.site()
    assert run.rc == 0, run.output
    before = cluster.kubectl.uids(cluster.namespace, "app.kubernetes.io/component=login")
    with a_terminal(cluster, "login-0") as say:
        say("echo here$((1 + 1))", "here2")
        cluster.spec["login"]["volumes"] = [{"name": "room", "mountPath": "/mnt/room", "memory": "2Mi"}]
        run = cluster.site()
        assert run.rc == 0 and "login-0 goes while it is in use" in " ".join(run.output.split()), run.output
        assert cluster.kubectl.uids(cluster.namespace, "app.kubernetes.io/component=login") != before
        say("", " ends at ")
    assert cluster.ssh("id -un").stdout.strip() == "alice"
    cluster.spec["login"].pop("updateStrategy")
    run = cluster.site()
    assert run.rc == 0, run.output


def test_an_upgrade_looks_before_it_touches_anything(cluster: Cluster) -> None:
    document, objects = cluster.write(), cluster.objects()
    run = playbook("upgrade", document)
    assert run.rc == 0, run.output
    assert "runs already" in run.output
    image = cluster.spec["images"]["slurm"]
    cluster.spec["images"]["slurm"] = "localhost/corral/slurm:there-is-none"
    try:
        with scenario(cluster, "an upgrade to an image that cannot be had", KEPT[-1:]):
            run = playbook("upgrade", cluster.write())
    finally:
        cluster.spec["images"]["slurm"] = image
    cluster.ssh("touch fourth")
    assert run.rc == 2, run.output
    assert "the image localhost/corral/slurm:there-is-none cannot be had" in " ".join(run.output.split()), run.output
    assert cluster.objects() == objects, "an upgrade that cannot be has changed something"


def test_no_job_was_lost(cluster: Cluster) -> None:
    eventually(lambda: not cluster.slurm("squeue", "-h"), "all jobs have ended", 200)
    found = cluster.ssh("cat done").stdout.splitlines()
    wanted = [*(str(number) for number in range(1, SHORT + 1)), *KEPT]
    assert sorted(line.split()[0] for line in found) == sorted(wanted), "jobs were lost"
