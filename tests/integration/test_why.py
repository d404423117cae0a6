# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Causes for which a node takes no jobs, planted in one cluster: for each, who, since when, why and what to do next, in one sentence.

A cordoned machine is in test_sync.py, a full state volume in test_ha.py, and a jail that cannot be entered in jail/test_failure.py: others feel these too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Cluster, eventually, playbook
from .jobs import nodes, state, submit
from .scenarios import scenario

pytestmark = pytest.mark.lab

# Two sets whose pods never get as far as slurmd, and one that promises more memory than any machine of a lab has.
_ODD: list[dict[str, Any]] = [
    {
        "name": "huge",
        "replicas": 1,
        "resources": {"requests": {"cpu": "900", "memory": "64Mi"}, "limits": {"cpu": "900", "memory": "512Mi"}},
    },
    {"name": "fat", "replicas": 1, "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "900Gi"}}},
]


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster("why", 30450)
    made.spec["nodeSets"][0]["replicas"] = 5
    made.spec["nodeSets"][1]["replicas"] = 1
    made.spec["partitions"] = [{"name": "main", "default": True, "nodeSets": ["cpu"]}, {"name": "side", "nodeSets": ["extra"]}]
    # Soon enough for a test.
    made.spec["slurm"]["extraConfig"] = ["SlurmdTimeout=20"]
    run = made.site()
    assert run.rc == 0, run.output
    return made


def test_an_order_that_slurmctld_comes_to_late_is_not_carried_out(cluster: Cluster) -> None:
    """A worker that goes sets its node down. When slurmctld hears of it the next pod may run jobs already, here those of the same pod."""
    job = submit(cluster, "-w cpu-2", "late")
    in_pod = ("exec", "-n", cluster.namespace, "-c", "slurmd", "why-cpu-2", "--", "sh", "-c")
    asked_first = '[ $1 = show ] && echo NodeName=cpu-2 State=ALLOCATED X || exec /usr/bin/scontrol "$@"'
    shown = f"mkdir -p /tmp/late; printf '%s\\n' '#!/bin/sh' '{asked_first}' >/tmp/late/scontrol"
    cluster.kubectl(*in_pod, f"{shown}; chmod +x /tmp/late/scontrol")
    with scenario(cluster, "slurmctld stands still when a worker that goes sets its node down, and hears of it later", [job]):
        cluster.slurm("sh", "-c", "kill -STOP $(pidof slurmctld)")
        try:
            cluster.kubectl(*in_pod, "PATH=/tmp/late:$PATH /usr/local/lib/corral/worker_stop.sh; rm -r /tmp/late; sleep 1")
        finally:
            cluster.slurm("sh", "-c", "kill -CONT $(pidof slurmctld)")
        # Connections are answered in their order, so it has come to the other one by now.
        eventually(lambda: "cpu-2" in nodes(cluster), "slurmctld answers")
        cluster.ssh("srun -w cpu-1 true")
        assert not nodes(cluster)["cpu-2"].startswith("d"), nodes(cluster)
    cluster.ssh("touch late")
    eventually(lambda: state(cluster, job) == ["COMPLETED"], "the job has ended")


def plant(cluster: Cluster) -> None:
    """Everything at once, since most of it takes a while to be seen."""
    in_pod = ("exec", "-n", cluster.namespace, "-c", "slurmd")
    cluster.kubectl(*in_pod, "why-cpu-4", "--", "sh", "-c", "kill -STOP $(pidof slurmd)")
    cluster.kubectl("set", "image", "-n", cluster.namespace, "pod/why-cpu-3", "slurmd=localhost/corral/slurm:there-is-none")
    submit(cluster, "-w cpu-2", "end")
    cluster.slurm("scontrol", "update", "nodename=cpu-0", "state=drain", "reason=ask bob")
    window = ["reservationname=fans", "nodes=cpu-1", "starttime=now", "duration=30", "users=root", "flags=maint,ignore_jobs"]
    cluster.slurm("scontrol", "create", "reservation", *window)
    cluster.spec["nodeSets"][0]["replicas"] = 5
    odd = {
        "name": "odd",
        "replicas": 1,
        "resources": _ODD[1]["resources"] | {"limits": {"cpu": "1", "memory": "512Mi"}},
        "initScripts": [{"name": "mount", "script": "#!/bin/sh\necho 'no scratch here'; exit 3\n"}],
    }
    cluster.spec["nodeSets"] += [*_ODD, odd]
    run = cluster.site("-e", "slurm_workers_wait_timeout=20")
    assert run.rc == 2 and "huge" in run.output, run.output
    # At its first registration Slurm leaves the reason that a node has, which is that it had no address before its pod came.
    cluster.slurm("scontrol", "reconfigure")
    eventually(lambda: causes(cluster).get("fat-0") == "memory", "fat-0 has registered again", 30)
    cluster.slurm("scontrol", "update", "partitionname=side", "state=down")


def asked(cluster: Cluster, nodes: str = "") -> dict[str, dict[str, Any]]:
    """The module's answers by node."""
    return {one["node"]: one for one in cluster.module("slurm_why", nodes=nodes)["nodes"]}


def causes(cluster: Cluster) -> dict[str, str]:
    return {name: one["cause"] for name, one in asked(cluster).items()}


EXPECTED = {
    # node: cause, who, why, what next
    "cpu-0": ("person", "somebody as user slurm", "ask bob", "-e node=cpu-0 -e resume=true -e force=true"),
    "cpu-1": ("maintenance", "a reservation", "the maintenance reservation fans holds it", "wait for the reservation's end"),
    # Of an image that is changed in a pod the kubelet names the former one, and says in turn that it cannot be pulled and that it backs off.
    "cpu-3": (
        "pod",
        "its pod",
        "registered yet: pod why-cpu-3: container slurmd: ",
        "kubectl describe pod -n test-why why-cpu-3",
    ),
    "cpu-4": ("silent", "Slurm itself", "slurmd ", "check that pod why-cpu-4 runs"),
    "extra-0": ("partition", "the document or an administrator", "no partition of it takes jobs (side is DOWN)", "slurm_partition"),
    "huge-0": ("pod", "Slurm itself", "nodes are available", "kubectl describe pod -n test-why why-huge-0"),
    "fat-0": ("memory", "Slurm itself", "slurmd sees less memory than slurm.conf promises", "of node set fat"),
    "odd-0": (
        "start",
        "its pod's start",
        "init script mount ended with status 3: no scratch here",
        "kubectl logs -n test-why why-odd-0 -c slurmd",
    ),
}


def test_each_planted_cause_is_named(cluster: Cluster) -> None:
    plant(cluster)
    expected = {name: words[0] for name, words in EXPECTED.items()}
    with contextlib.suppress(AssertionError):  # the next line says better what is missing
        eventually(lambda: causes(cluster) == expected, "all are seen", 50)
    assert causes(cluster) == expected
    for name, found in asked(cluster).items():
        cause, who, why, following = EXPECTED[name]
        assert (found["cause"], found["who"]) == (cause, who), found
        assert why in found["why"] and following in found["next"], found
        # Slurm keeps no time of a partition's state, nor of a silence that has not set the node down yet.
        assert found["since"] or cause == "partition" or (cause == "silent" and "DOWN" not in found["state"]), found
        assert found["summary"].startswith(f"{name} is ") and found["summary"].count(" Next: ") == 1, found
    # Its pod would be waited for at the end.
    cluster.kubectl("exec", "-n", cluster.namespace, "-c", "slurmd", "why-cpu-4", "--", "sh", "-c", "kill -CONT $(pidof slurmd)")
    assert asked(cluster, "cpu-2")["cpu-2"]["cause"] == "none", "a node with a job is in service"


def test_a_node_that_goes_and_one_that_slurm_does_not_know(cluster: Cluster) -> None:
    cluster.spec["nodeSets"] = [one for one in cluster.spec["nodeSets"] if one["name"] in ("cpu", "extra")]
    cluster.spec["nodeSets"][0]["replicas"] = 2
    run = cluster.site(
        "--tags", "slurm_controller,slurm_workers", "-e", "slurm_workers_scale_timeout=0", "-e", "slurm_workers_register_timeout=0"
    )
    found = asked(cluster, "cpu-2,gone-7")
    going, stranger = found["cpu-2"], found["gone-7"]
    assert (going["cause"], going["who"]) == ("scale", "corral (scale)"), (going, run.output)
    assert going["since"] and "raise replicas of node set cpu" in going["next"] and "jobs still run on it" in going["evidence"], going
    assert stranger["cause"] == "unknown" and "slurm.conf has no such node" in stranger["why"] and "raise replicas" in stranger["next"], (
        stranger
    )


def test_the_playbook_says_it(cluster: Cluster) -> None:
    run = playbook("why", cluster.write(), "-e", "node=cpu-0")
    assert run.rc == 0, run.output
    words = " ".join(run.output.split())
    assert re.search(r"cpu-0 is IDLE\+DRAIN since 20\S+Z \(\d+ (s|min)\), by somebody as user slurm: ask bob\. Next: ", words), run.output
