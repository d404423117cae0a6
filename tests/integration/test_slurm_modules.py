# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An administrator's day with a real Slurm: nodes out and back, partitions, reservations, jobs, and why a node is down.

The backends run in this process, with the modules' own argument specs; one test runs actions and modules as Ansible does.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import WaitTimeout

from .conftest import VOLUMES, Cluster, eventually, playbook

pytestmark = pytest.mark.lab

Call = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster("tasks", 30137)
    del made.spec["nodeSets"][1]
    made.spec["partitions"].append({"name": "side"})
    run = made.site()
    assert run.rc == 0, run.output
    return made


@pytest.fixture
def call(cluster: Cluster) -> Iterator[Call]:
    """Run a module's backend: call("slurm_node", nodes="cpu-0", state="drained", …). Leaves every node and partition in service."""

    run = functools.partial(cluster.module, diff=True)
    yield run
    run("slurm_job", user="alice", state="absent", wait=True, wait_timeout=30)
    run("slurm_reservation", name="fans", state="absent")
    run("slurm_node", nodes="cpu-[0-1]", state="resumed", force=True, wait=True, wait_timeout=30)
    run("slurm_partition", name=["main", "side"], state="UP")


def reason(cluster: Cluster, node: str) -> str:
    return cluster.slurm("sinfo", "-h", "-N", "-p", "main", "-n", node, "-O", "StateLong:20,Reason:60").strip()


def test_the_plan_the_deed_and_the_second_time(call: Call, cluster: Cluster) -> None:
    options = {
        "nodes": "cpu-[0-1]",
        "state": "drained",
        "reason": 'new "fans", a = b',
        "features": ["plain", "trial"],
        "weight": 5,
        "comment": "ü",
    }
    plan = call("slurm_node", check=True, **options)
    assert plan["changed"]
    assert "idle" in reason(cluster, "cpu-0")
    done = call("slurm_node", **options)
    assert (done["changed"], done["diff"], done["requests"]) == (True, plan["diff"], 4), (
        "one read, a command for states and one for attributes, one look"
    )
    assert [one["state"] for one in done["nodes"]] == [["IDLE", "DRAIN"]] * 2
    assert 'corral: admin: new "fans", a = b' in reason(cluster, "cpu-1")
    for check in (True, False):
        again = call("slurm_node", check=check, **options)
        assert (again["changed"], again["requests"]) == (False, 1)
    back = call("slurm_node", nodes="cpu-[0-1]", state="resumed", features=["plain"], weight=1, comment="", wait=True)
    assert [(one["in_service"], one["features"], one["weight"], one["comment"]) for one in back["nodes"]] == [(True, ["plain"], 1, "")] * 2


def test_a_drain_of_somebody_else_stays(call: Call, cluster: Cluster) -> None:
    cluster.slurm("scontrol", "update", "nodename=cpu-0", "state=drain", "reason=ask bob")
    for options in ({"state": "resumed"}, {"state": "drained", "reason": "mine"}, {"state": "down", "reason": "mine"}):
        result = call("slurm_node", nodes="cpu-0", **options)
        assert (result["changed"], [one["reason"] for one in result["foreign"]]) == (False, ["ask bob"])
        assert "ask bob" in reason(cluster, "cpu-0")
    # Slurm asks a node that it resumes whether it answers, and says NOT_RESPONDING meanwhile.
    assert call("slurm_node", nodes="cpu-0", state="resumed", force=True, wait=True)["nodes"][0]["in_service"]


def test_the_wait_for_jobs_says_which(call: Call) -> None:
    job = call("slurm_job", name="sleeper", user="alice", command="sleep 8", options={"nodelist": "cpu-0"})["job"]
    eventually(lambda: call("slurm_job_info", job_id=[job["id"]])["jobs"][0]["state"] == "RUNNING", "the job runs", 20)
    with pytest.raises(WaitTimeout, match=rf"job {job['id']} \(sleeper of alice\) on cpu-0"):
        call("slurm_node", nodes="cpu-[0-1]", state="drained", reason="fans", wait=True, wait_timeout=1)
    free = call("slurm_node", nodes="cpu-[0-1]", state="drained", reason="fans", wait=True, wait_timeout=60)
    assert not free["changed"]
    assert call("slurm_job_info", name=["sleeper"])["jobs"][-1]["succeeded"], "the drain ended a job"


def test_a_name_that_is_none_changes_nothing(call: Call, cluster: Cluster) -> None:
    with pytest.raises(CorralError, match=r"knows no node cpu-7; it has cpu-\[0-1\]"):
        call("slurm_node", nodes="cpu-[0,7]", state="down", reason="x")
    assert "idle" in reason(cluster, "cpu-0")


def test_a_job_and_its_output_and_not_twice(call: Call) -> None:
    options = {"name": "hello", "user": "alice", "command": "echo $USER in $PWD; id -u; exit 3", "wait": True, "wait_timeout": 60}
    assert call("slurm_job", check=True, **options)["changed"]
    with pytest.raises(CorralError, match=r"with exit code 3; its last lines: alice in /home/alice \| 10001") as caught:
        call("slurm_job", **options)
    number = caught.value.data["job"]["id"]
    same = call("slurm_job", **options, must_succeed=False)
    assert (same["changed"], same["job"]["id"], same["job"]["exit_code"], same["output"]) == (
        False,
        number,
        3,
        "alice in /home/alice\n10001\n",
    )
    fixed = call("slurm_job", **{**options, "command": "true"}, resubmit="failed")
    assert fixed["changed"] and fixed["job"]["succeeded"] and fixed["job"]["id"] > number
    assert not call("slurm_job", **options, resubmit="failed", must_succeed=False)["changed"]


def test_the_life_of_a_held_job(call: Call) -> None:
    job = call("slurm_job", name="held", user="alice", script="#!/bin/sh\nsleep 100\n", options={"hold": True}, resubmit="always")["job"]
    assert (job["state"], job["held"]) == ("PENDING", True)
    assert not call("slurm_job", name="held", state="held")["changed"]
    assert call("slurm_job", job_id=job["id"], state="released")["changed"]
    eventually(lambda: call("slurm_job_info", job_id=[job["id"]])["jobs"][0]["state"] == "RUNNING", "the job runs", 20)
    assert call("slurm_job", job_id=job["id"], state="requeued")["job"]["state"].startswith("PENDING")
    gone = call("slurm_job", name="held", user="alice", state="absent", wait=True)
    assert (gone["changed"], gone["job"]["state"], gone["job"]["ended"]) == (True, "CANCELLED", True)
    assert not call("slurm_job", name="held", user="alice", state="absent")["changed"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"user": "nobody-here"}, "Invalid user|no user nobody-here"),
        ({"user": "root"}, "account of the pod"),
        ({"options": {"partition": "nope"}}, "Invalid partition name"),
        ({"options": {"nope": 1}}, "unrecognized option '--nope=1'"),
    ],
)
def test_a_job_that_can_not_be_submitted(call: Call, options: dict[str, Any], words: str) -> None:
    with pytest.raises(CorralError, match=words):
        call("slurm_job", **{"name": "bad", "user": "alice", "command": "true", **options})


def test_partitions_are_closed_and_opened(call: Call, cluster: Cluster) -> None:
    plan = call("slurm_partition", check=True, name=["main", "side"], state="DOWN")
    done = call("slurm_partition", name=["main", "side"], state="DOWN")
    assert (plan["changed"], done["changed"], done["diff"]) == (True, True, plan["diff"])
    assert not call("slurm_partition", name=["side"], state="DOWN")["changed"]
    assert "State=DOWN" in cluster.slurm("scontrol", "show", "partition", "side")
    assert "no partition of it takes jobs (main is DOWN" in call("slurm_why", nodes="cpu-0")["lines"][0]
    assert [one["state"] for one in call("slurm_partition_info")["partitions"]] == ["DOWN", "DOWN"]


def test_a_reservation(call: Call) -> None:
    options = {"name": "fans", "nodes": "cpu-0", "users": ["alice"], "start": "now", "duration": "1:00:00", "flags": ["MAINT"]}
    assert call("slurm_reservation", check=True, **options)["changed"]
    made = call("slurm_reservation", **options)["reservation"]
    assert (made["nodes"], made["active"], made["end"] - made["start"]) == ("cpu-0", True, 3600)
    assert not call("slurm_reservation", **options)["changed"]
    words = f"the maintenance reservation fans holds it. Next: wait for the reservation's end ({made['end_time']})"
    # slurmctld marks the nodes a moment later.
    eventually(lambda: words in call("slurm_why", nodes="cpu-0")["lines"][0], "why tells of the reservation", 30)
    later = {**options, "nodes": "cpu-[0-1]", "users": ["alice", "root"], "duration": "2:00:00", "flags": ["IGNORE_JOBS"]}
    changed = call("slurm_reservation", **later)
    assert set(changed["diff"][0]["after"]) == {"nodes", "users", "end", "flags"}
    assert not call("slurm_reservation", **later)["changed"]
    with pytest.raises(CorralError, match="Invalid user"):
        call("slurm_reservation", **{**later, "users": ["nobody-here"]})
    assert [one["users"] for one in call("slurm_reservation_info", name=["fans"])["reservations"]] == [["alice", "root"]]
    assert call("slurm_reservation", name="fans", state="absent")["changed"]
    assert not call("slurm_reservation", name="fans", state="absent")["changed"]


def test_a_future_reservation_is_as_asked_in_any_time_zone(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    start = int(time.time()) // 60 * 60 + 86400
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(start + 7200)) + "+02:00"
    monkeypatch.setitem(os.environ, "TZ", "Asia/Tokyo")
    made = call("slurm_reservation", name="fans", node_count=1, partition="main", accounts=["root"], start=text, duration="1-0")
    assert (made["reservation"]["start"], made["reservation"]["end"]) == (start, start + 86400)
    assert not call("slurm_reservation", name="fans", start=text, duration="1-0", node_count=1)["changed"]


def test_why_tells_whose_drain_it_is_and_what_to_do(call: Call, cluster: Cluster) -> None:
    cluster.slurm("scontrol", "update", "nodename=cpu-1", "state=drain", "reason=Kill task failed")
    answer: dict[str, Any] = {}

    def the_jail_is_named() -> bool:
        """The health check takes its own drain back when it finds the jail well; perhaps before this has asked."""
        cluster.slurm("scontrol", "update", "nodename=cpu-0", "state=drain", "reason=corral: jail: marker is missing")
        answer.update({one["node"]: one for one in call("slurm_why")["nodes"]})
        return bool(answer.get("cpu-0", {}).get("cause") == "jail")

    eventually(the_jail_is_named, "the cause is the jail")
    assert (answer["cpu-1"]["cause"], answer["cpu-1"]["who"]) == ("unkillable", "Slurm itself")
    assert f"kubectl exec -n {cluster.namespace} {cluster.name}-cpu-1" in answer["cpu-1"]["next"]


def test_names_that_led_nowhere_when_slurmctld_read_its_configuration(call: Call, cluster: Cluster) -> None:
    """Somebody deletes the workers' Service and slurmctld reads its configuration before it is back."""
    service = f"{cluster.name}-worker"
    before = cluster.kubectl("get", "service", "-n", cluster.namespace, service, "-o", "json")
    kept = json.loads(before)
    kept["metadata"] = {key: kept["metadata"][key] for key in ("name", "namespace", "labels")}
    host = f"{cluster.name}-cpu-0.{service}.{cluster.namespace}.svc.cluster.local"
    cluster.kubectl("delete", "service", "-n", cluster.namespace, service)
    try:
        eventually(lambda: not cluster.slurm("getent", "hosts", host, check=False).strip(), "the name leads nowhere")
        cluster.slurm("scontrol", "reconfigure")
        eventually(
            lambda: all("NOT_RESPONDING" in node["state"] for node in call("slurm_node_info")["nodes"]), "slurmctld has lost its nodes"
        )
    finally:
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(kept))
    back = call("slurm_node_info", nodes="cpu-[0-1]", wait=True, wait_timeout=90)
    assert back["counts"]["in_service"] == 2


def test_the_playbooks(call: Call, cluster: Cluster) -> None:
    document = cluster.write()
    refused = playbook("drain", document, "-e", "node=cpu-0")
    assert refused.rc != 0 and "say why cpu-0 is taken out with -e reason=" in refused.output
    # The very words of docs/nodes.md, by the shell that takes their quotes away.
    typed = shlex.split("-e 'node=cpu-[0-1]' -e reason='new fans' -e by=ada")
    out = playbook("drain", document, *typed)
    assert (out.rc, out.changed) == (0, 1), out.output
    assert playbook("drain", document, *typed).changed == 0
    told = playbook("why", None, "-e", f"slurm_name={cluster.name}")
    assert "by an administrator: new fans (ada)" in told.output
    # What it says to do next is a command that can be typed as it stands.
    command = re.findall(r"'ansible-playbook corral\.slurm\.drain ([^']+)'", " ".join(told.output.split()))
    assert f"-e slurm_namespace={cluster.namespace} -e slurm_name={cluster.name} -e node=cpu-0 -e resume=true" in command
    cluster.slurm("scontrol", "update", "nodename=cpu-1", "state=drain", "reason=ask bob")
    back = playbook("drain", document, "-e", "node=cpu-[0-1]", "-e", "resume=true")
    assert back.rc != 0 and "cpu-1 was not brought back: it is out by somebody else (ask bob)" in back.output
    forced = playbook("drain", document, "-e", "node=cpu-[0-1]", "-e", "resume=true", "-e", "force=true")
    assert (forced.rc, forced.changed) == (0, 1), forced.output
    assert call("slurm_why")["lines"] == ["All nodes are in service."]
    cluster.site()  # what the tests before have done to objects is set right
    assert playbook("upgrade", cluster.write()).changed == 0


@pytest.mark.long
def test_the_action_and_the_module_give_the_same(cluster: Cluster, tmp_path: Path) -> None:
    """An asynchronous task is always the module; the wait in the action shows its progress."""
    tasks: list[dict[str, Any]] = []
    for task in (
        {"corral.slurm.slurm_node": {"nodes": "cpu-0", "comment": "same"}},
        {"corral.slurm.slurm_partition": {"name": ["main"], "state": "UP"}},
        {"corral.slurm.slurm_why": {"nodes": "cpu-0"}},
        {"corral.slurm.slurm_reservation_info": {}},
        {"corral.slurm.slurm_node_info": {"nodes": "cpu-0", "pod": "{{ omit }}"}},
    ):
        tasks += [
            {**task, "register": "plan", "check_mode": True},
            {**task, "register": "module", "async": 60, "poll": 1},
            {**task, "register": "action"},
        ]
        picked = "dict2items | selectattr('key', 'in', ['nodes', 'partitions', 'lines', 'reservations', 'foreign']) | items2dict"
        same = [f"(module | {picked}) == (action | {picked})", f"(module | {picked}) | length > 0"]
        tasks.append({"ansible.builtin.assert": {"that": ["plan.changed == module.changed", "not action.changed", *same]}})
    wait = {"nodes": "cpu-0", "state": "drained", "reason": "fans", "wait": True, "wait_timeout": 1}
    job = {"name": "progress", "user": "alice", "command": "sleep 30", "options": {"nodelist": "cpu-0"}, "resubmit": "always"}
    tasks += [
        {"corral.slurm.slurm_job": job, "register": "job"},
        {
            "corral.slurm.slurm_job_info": {"job_id": ["{{ job.job.id }}"]},
            "register": "info",
            "until": "info.jobs[0].state != 'PENDING'",
            "retries": 20,
            "delay": 1,
        },
        {"corral.slurm.slurm_node": wait, "ignore_errors": True},
        {"corral.slurm.slurm_job": {"name": "progress", "user": "alice", "state": "absent", "wait": True}},
        {"corral.slurm.slurm_node": {"nodes": "cpu-0", "state": "resumed", "comment": "", "wait": True}},
    ]
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}"},
        "module_defaults": {"group/corral.slurm.kubernetes": {"namespace": cluster.namespace, "pod": f"{cluster.name}-controller-0"}},
        "tasks": tasks,
    }
    path = tmp_path / "play.yml"
    path.write_text(yaml.safe_dump([play], sort_keys=False))
    run = playbook(str(path), None)
    assert run.rc == 0, run.output
    assert "corral.slurm: nodes cpu-0: waiting for job" in run.output
    assert (VOLUMES / f"{cluster.name}-jail/root/home/alice").is_dir()
