# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other CPUs, memory and GPUs of a node set under load, in order: a node's line stays that of its pod for as long as a job is there.

slurmctld aborts the jobs of a node whose CPUs change under them, batch jobs that may not be begun anew for good.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from .conftest import Cluster, eventually
from .jobs import nodes, state, submit
from .scenarios import scenario

pytestmark = pytest.mark.lab

# Jobs that may not be begun anew.
KEPT: list[str] = []
NODES = ("cpu-0", "cpu-1", "cpu-2")
SOON = ("-e", "slurm_workers_rollout_timeout=15")


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster("hard", 31290)
    del made.spec["nodeSets"][1]
    # One after the other: the lines change three times in a run.
    made.spec["nodeSets"][0].update(replicas=3, updateStrategy={"maxUnavailable": 1})
    run = made.site()
    assert run.rc == 0, run.output
    return made


def resize(cluster: Cluster, cpus: int, memory: str) -> None:
    cluster.spec["nodeSets"][0]["resources"]["limits"] = {"cpu": str(cpus), "memory": memory}


def sizes(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """CPUs and MiB by node, as slurmctld has them."""
    found = json.loads(cluster.slurm("scontrol", "show", "nodes", "--json"))["nodes"]
    return {row["name"]: (row["cpus"], row["real_memory"]) for row in found}


def ended(cluster: Cluster, number: str) -> None:
    eventually(lambda: state(cluster, number) == ["COMPLETED"], "the job ends by itself")


def in_service(cluster: Cluster) -> bool:
    return all(words.split("|")[0] in ("idle", "mixed", "allocated") for words in nodes(cluster).values())


@pytest.mark.parametrize(
    ("cpus", "memory", "before", "after"),
    [
        pytest.param(2, "640Mi", (1, 384), (2, 512), id="more"),
        pytest.param(1, "512Mi", (2, 512), (1, 384), id="fewer", marks=pytest.mark.long),
    ],
)
def test_a_node_has_its_new_size_when_its_job_has_ended(
    cluster: Cluster, cpus: int, memory: str, before: tuple[int, int], after: tuple[int, int]
) -> None:
    assert sizes(cluster) == dict.fromkeys(NODES, before)
    end = f"end-{cpus}"
    KEPT.append(submit(cluster, f"--no-requeue -t 60 -w cpu-1 -c {before[0]}", end))
    resize(cluster, cpus, memory)
    with scenario(cluster, "other CPUs and memory for a node set", KEPT[-1:]):
        plan = cluster.site("--check", "--diff")
        assert plan.rc == 0, plan.output
        assert sizes(cluster) == dict.fromkeys(NODES, before)
        run = cluster.site(*SOON)
        assert run.rc == 0, run.output
        assert f"job {KEPT[-1]} (wrap of alice) on cpu-1" in " ".join(run.output.split()), run.output
        # Idle ones come first, one after the other.
        assert sizes(cluster) == {**dict.fromkeys(NODES, after), "cpu-1": before}
        assert state(cluster, KEPT[-1]) == ["RUNNING"]
        assert nodes(cluster)["cpu-0"].startswith("idle"), nodes(cluster)
        assert cluster.ssh(f"srun -w cpu-0 -c {after[0]} hostname").stdout.strip()
        again = cluster.site(*SOON)
        assert (again.rc, again.changed) == (0, 0), again.output
        cluster.ssh(f"touch {end}")
        ended(cluster, KEPT[-1])
        run = cluster.site()
        assert run.rc == 0, run.output
        assert sizes(cluster) == dict.fromkeys(NODES, after)
        eventually(lambda: in_service(cluster), "all nodes are in service")
        assert cluster.ssh(f"srun -N3 -c {after[0]} hostname").stdout.split()
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output


@pytest.mark.long
def test_simulated_gpus_more_and_fewer_cost_no_job(cluster: Cluster) -> None:
    node_set = cluster.spec["nodeSets"][0]
    for count in (2, 1):
        node_set["gpu"] = {"vendor": "simulated", "count": count}
        number = submit(cluster, "--no-requeue -t 60 -w cpu-1", f"gpu-{count}")
        KEPT.append(number)
        with scenario(cluster, "another number of GPUs for a node set", [number]):
            run = cluster.site(*SOON)
            assert run.rc == 0, run.output
            assert cluster.ssh(f"srun -w cpu-0 --gres=gpu:{count} sh -c 'echo $CUDA_VISIBLE_DEVICES'").stdout.strip()
            assert state(cluster, number) == ["RUNNING"]
            cluster.ssh(f"touch gpu-{count}")
            ended(cluster, number)
            run = cluster.site()
            assert run.rc == 0, run.output
        eventually(lambda: in_service(cluster), "all nodes are in service")
        assert cluster.ssh(f"srun -N3 --gres=gpu:{count} hostname").stdout.split()
