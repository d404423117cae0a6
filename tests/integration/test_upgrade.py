# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From one release of Slurm to a newer one while jobs run and wait: slurmctld first, login nodes, and workers when no job is on them.

It is collected only where CORRAL_SLURM_IMAGE names another Slurm than the usual one, from which it is upgraded (`make newest`).
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from .conftest import OLDER_IMAGE, SLURM_IMAGE, Cluster, Run, eventually, playbook
from .jobs import nodes, state
from .scenarios import scenario

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster("upgrade", 31110)
    del made.spec["nodeSets"][1]
    made.spec["nodeSets"][0].update(replicas=2, updateStrategy={"maxUnavailable": 1})
    made.spec["images"]["slurm"] = OLDER_IMAGE
    run = made.site()
    assert run.rc == 0, run.output
    return made


def upgrade(cluster: Cluster) -> Run:
    """Long enough for a worker to be replaced, and not for a job that waits to be told to end."""
    return playbook("upgrade", cluster.write(), "-e", "slurm_workers_rollout_timeout=20")


def release(text: str) -> str:
    return ".".join(text.removeprefix("slurm-wlm ").removeprefix("slurm ").split(".")[:2])


def releases(cluster: Cluster) -> dict[str, str]:
    """The release of each node's slurmd."""
    found = json.loads(cluster.slurm("scontrol", "show", "nodes", "--json"))["nodes"]
    return {one["name"]: release(one["version"]) for one in found}


def slurmctld(cluster: Cluster) -> str:
    return release(cluster.slurm("slurmctld", "-V").strip())


def submit(cluster: Cluster, flags: str, end: str = "") -> str:
    """A job that starts a step of its own when alice has a file ``end``."""
    script = f"until test -e {end or '.'}; do sleep 1; done; srun -n1 true && echo $SLURM_JOB_ID $SLURM_RESTART_COUNT >> done"
    return cluster.ssh(f"sbatch --parsable -o /dev/null {flags} --wrap '{script}'").stdout.strip()


def test_a_newer_slurm_comes_while_jobs_run(cluster: Cluster) -> None:
    old = slurmctld(cluster)
    running = submit(cluster, "-w cpu-0 --exclusive", "end")
    eventually(lambda: state(cluster, running) == ["RUNNING"], "the job runs", 30)
    waiting = [submit(cluster, "-w cpu-0"), *(submit(cluster, "-w cpu-1") for _number in range(3))]
    cluster.spec["images"]["slurm"] = SLURM_IMAGE
    with scenario(cluster, "Slurm is upgraded from 24.11 to 26.05, in one step", [running, *waiting[:1]]):
        run = upgrade(cluster)
        assert run.rc == 0, run.output
        new = slurmctld(cluster)
        assert new != old
        assert state(cluster, running) == ["RUNNING"]
        assert releases(cluster) == {"cpu-0": old, "cpu-1": new}, "a node with a job keeps its slurmd"
        assert f"waiting for job {running}" in " ".join(run.output.split()), run.output
        assert release(cluster.ssh("sinfo -V").stdout.strip()) == new
        cluster.ssh("srun -w cpu-1 true")
        cluster.ssh("touch end")
        eventually(lambda: state(cluster, running) == ["COMPLETED"], "the job of the older slurmd ends, a step of its own in it", 30)
        run = upgrade(cluster)
        assert run.rc == 0, run.output
        assert releases(cluster) == {"cpu-0": new, "cpu-1": new}
    eventually(lambda: not cluster.slurm("squeue", "-h"), "all jobs have ended", 60)
    done = {line.split()[0] for line in cluster.ssh("cat done").stdout.splitlines()}
    assert done == {running, *waiting}, "jobs were lost"
    assert all(not words.startswith("d") for words in nodes(cluster).values())


def test_an_unchanged_run_changes_nothing_and_nobody_goes_back(cluster: Cluster) -> None:
    run = cluster.site()
    assert (run.rc, run.changed) == (0, 0), run.output
    objects = cluster.objects()
    cluster.spec["images"]["slurm"] = OLDER_IMAGE
    run = upgrade(cluster)
    assert run.rc == 2
    assert "is an older release than" in " ".join(run.output.split()), run.output
    assert cluster.objects() == objects
