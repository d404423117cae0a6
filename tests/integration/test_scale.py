# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node sets that shrink under load, in order: each test goes on where the last one ended. At the end every job is counted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import scale
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import connected

from .conftest import Cluster, eventually
from .jobs import nodes, state, submit
from .scenarios import scenario

pytestmark = pytest.mark.lab

# Jobs that must all come to their own end, by their number; each writes a line there.
KEPT: list[str] = []
SHORT = 60
NOW = ("-e", "slurm_workers_scale_timeout=0")


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster("scale", 30200)
    made.spec["nodeSets"][0]["replicas"] = 3
    made.spec["nodeSets"][1]["replicas"] = 3
    made.spec["partitions"].append({"name": "side", "nodeSets": ["extra"]})
    run = made.site()
    assert run.rc == 0, run.output
    # Short ones that come and go on all nodes while these do.
    made.ssh(f"sbatch --array=1-{SHORT} -o /dev/null --wrap 'sleep 2; echo $SLURM_ARRAY_TASK_ID $SLURM_RESTART_COUNT >> done'")
    return made


def pods(cluster: Cluster, node_set: str) -> set[str]:
    return set(cluster.kubectl.uids(cluster.namespace, f"corral.hpc/node-set={node_set}"))


def test_free_nodes_go_in_one_run_and_leave_no_ghost(cluster: Cluster) -> None:
    cluster.spec["nodeSets"][1]["replicas"] = 2
    before = cluster.objects()
    plan = cluster.site("--check", "--diff")
    assert plan.rc == 0, plan.output
    assert cluster.objects() == before and "drain" not in nodes(cluster)["extra-2"], "a check run did something"
    assert "extra-2" in plan.output
    run = cluster.site()
    assert run.rc == 0, run.output
    assert pods(cluster, "extra") == {"scale-extra-0", "scale-extra-1"}
    assert "extra-2" not in nodes(cluster) and "extra-2" not in cluster.slurm("scontrol", "show", "nodes")
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output


def test_a_busy_node_is_waited_for_and_all_else_is_done_meanwhile(cluster: Cluster) -> None:
    KEPT.append(submit(cluster, "-w cpu-2", "first"))
    with scenario(cluster, "a node set shrinks below a busy node, another one grows", KEPT[-1:]):
        cluster.spec["nodeSets"][0]["replicas"] = 1
        cluster.spec["nodeSets"][1]["replicas"] = 3
        cluster.spec["users"].append({"name": "bob", "uid": 10002, "sshKeys": list(cluster.spec["users"][0]["sshKeys"])})
        run = cluster.site(*NOW)
        assert run.rc == 0, run.output
        assert f"job {KEPT[-1]} (wrap of alice) on cpu-2" in " ".join(run.output.split())
        assert pods(cluster, "cpu") == {"scale-cpu-0", "scale-cpu-1", "scale-cpu-2"}
        now = nodes(cluster)
        assert now["cpu-2"].startswith("draining|corral: scale:") and now["cpu-1"].startswith("drain"), now
        assert not now["extra-2"].startswith("d"), "the set that grows has waited for the one that shrinks"
        assert cluster.ssh("id -un", user="bob").stdout.strip() == "bob"
        again = cluster.site(*NOW)
        assert (again.rc, again.changed) == (0, 0), again.output


def test_what_is_taken_back_is_given_back_and_drains_of_others_stay(cluster: Cluster) -> None:
    with scenario(cluster, "a node set that shrinks is made larger again", KEPT[:1]):
        cluster.slurm("scontrol", "update", "nodename=cpu-0", "state=drain", "reason=ask bob")
        cluster.spec["nodeSets"][0]["replicas"] = 2
        run = cluster.site(*NOW)
        assert run.rc == 0, run.output
        now = nodes(cluster)
        assert not now["cpu-1"].startswith("d") and now["cpu-2"].startswith("draining"), now
        assert now["cpu-0"].endswith("|ask bob"), now
        cluster.slurm("scontrol", "update", "nodename=cpu-0", "state=resume")


def test_a_slurmctld_that_does_not_answer_takes_nothing_away(cluster: Cluster) -> None:
    sets = [{"name": "cpu", "replicas": 0, "policy": "Wait", "deadline": 60, "jobs": []}]
    params = {
        "namespace": cluster.namespace,
        "pod": f"{cluster.name}-controller-0",
        "container": "slurmctld",
        "selector": f"app.kubernetes.io/instance={cluster.name},app.kubernetes.io/component=worker",
        "config_map": f"{cluster.name}-controller-config",
        "node_sets": sets,
        "policy": "Wait",
        "deadline": 60,
        "jobs": [],
        "wait": False,
    }
    with scenario(cluster, "a node set shrinks while slurmctld is away", KEPT[:1]):
        controller = f"statefulset/{cluster.name}-controller"
        cluster.kubectl("scale", "-n", cluster.namespace, controller, "--replicas=0")
        cluster.kubectl("wait", "-n", cluster.namespace, "--for=delete", f"pod/{cluster.name}-controller-0", "--timeout=60s")
        try:
            with connected(params) as client:
                decided = scale.decide(client, params, check=False)
            result = scale.order(params, check=False, diff=False)
        finally:
            cluster.kubectl("scale", "-n", cluster.namespace, controller, "--replicas=1")
            cluster.kubectl("rollout", "status", "-n", cluster.namespace, controller, "--timeout=60s")
        assert decided["retained"]["pods"] == {"cpu": 3, "extra": 3} and not result["changed"]
        assert "so no node was taken away, and cpu-[0-2],extra-[0-2] stay as they are" in result["warnings"][0]
        assert not nodes(cluster)["cpu-0"].startswith("d")


def test_the_run_that_waits_lets_the_node_go_when_its_job_has_ended(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = f"nodes cpu-2 go when their jobs have ended: waiting for job {KEPT[0]} (wrap of alice) on cpu-2"
    with scenario(cluster, "the last job ends on a node that goes, during the run", KEPT[:1]):

        def end_the_job() -> None:
            eventually(lambda: log.exists() and words in log.read_text(), "the run shows what it waits for", 90)
            cluster.ssh("touch first")

        with ThreadPoolExecutor() as pool:
            ended = pool.submit(end_the_job)
            run = cluster.site("-e", "slurm_workers_scale_timeout=100", env={"ANSIBLE_LOG_PATH": str(log)})
            ended.result()
        assert run.rc == 0, run.output
        assert state(cluster, KEPT[0]) == ["COMPLETED"]
        assert pods(cluster, "cpu") == {"scale-cpu-0", "scale-cpu-1"}
        assert sorted(nodes(cluster)) == ["cpu-0", "cpu-1", "extra-0", "extra-1", "extra-2"]
        again = cluster.site()
        assert (again.rc, again.changed) == (0, 0), again.output


def test_jobs_elsewhere_and_in_the_queue_that_name_a_node_are_not_lost_when_it_goes(cluster: Cluster) -> None:
    """slurmctld fails a job that requires a node which its configuration no longer has, and does not release one that excludes such a node."""
    cluster.slurm("scontrol", "update", "nodename=extra-2", "state=drain", "reason=so that it runs on the other one")
    elsewhere = submit(cluster, "-N1 -n1 -w 'extra-[0,2]'", "named")
    cluster.slurm("scontrol", "update", "nodename=extra-2", "state=resume")
    assert cluster.slurm("squeue", "-h", "-o", "%N", f"--jobs={elsewhere}").strip() == "extra-0"
    wrap = "--wrap 'echo $SLURM_JOB_ID $SLURM_RESTART_COUNT >> done'"
    required, excluded = (
        cluster.ssh(f"sbatch --parsable --hold -n1 {flags} -o /dev/null {wrap}").stdout.strip() for flags in ("-w extra-2", "-x extra-2")
    )
    KEPT.extend((elsewhere, required, excluded))
    with scenario(cluster, "a node goes that jobs elsewhere and in the queue name (`--nodelist`, `--exclude`)", KEPT[-3:]):
        cluster.spec["nodeSets"][1]["replicas"] = 2
        run = cluster.site(*NOW)
        assert run.rc == 0, run.output
        for number in (elsewhere, required):
            assert f"job {number} (wrap of alice), which names extra-2 (--nodelist)" in " ".join(run.output.split())
        assert "scale-extra-2" in pods(cluster, "extra")
        assert [state(cluster, number) for number in KEPT[-3:]] == [["RUNNING"], ["PENDING"], ["PENDING"]]
        again = cluster.site(*NOW)
        assert (again.rc, again.changed) == (0, 0), again.output
        cluster.slurm("scontrol", "update", "reqnodelist=", f"jobid={required}")
        cluster.ssh("touch named")
        run = cluster.site("-e", "slurm_workers_scale_timeout=100")
        assert run.rc == 0, run.output
        assert pods(cluster, "extra") == {"scale-extra-0", "scale-extra-1"}
        assert "extra-2" not in nodes(cluster)
        assert [state(cluster, number) for number in KEPT[-3:]] == [["COMPLETED"], ["PENDING"], ["PENDING"]]
        for number in (required, excluded):
            cluster.slurm("scontrol", "release", number)
        eventually(lambda: all(state(cluster, number) == ["COMPLETED"] for number in KEPT[-2:]), "the jobs that waited have run", 60)
    cluster.spec["nodeSets"][1]["replicas"] = 3
    run = cluster.site()
    assert run.rc == 0, run.output


def test_in_maintenance_all_pods_of_users_go_without_a_job_lost_and_come_back_as_they_were(cluster: Cluster) -> None:
    KEPT.append(submit(cluster, "-w cpu-1", "third"))
    login = "app.kubernetes.io/instance=scale,app.kubernetes.io/component=login"
    with scenario(cluster, "maintenance: the workers and login pods go, slurmctld is replaced, and all come back", KEPT[-1:]):
        cluster.slurm("scontrol", "update", "nodename=extra-0", "state=drain", "reason=ask bob")
        before = sorted(nodes(cluster))
        cluster.spec["maintenance"] = "WorkersAndLogin"
        run = cluster.site(*NOW)
        assert run.rc == 0, run.output
        assert (pods(cluster, "cpu"), pods(cluster, "extra")) == ({"scale-cpu-0", "scale-cpu-1"}, set()), "cpu-1 has a job"
        again = cluster.site(*NOW)
        assert (again.rc, again.changed) == (0, 0), again.output
        # The login pod is there as long as the job: it takes one that waits for the end of this.
        KEPT.append(cluster.ssh("sbatch --parsable -o /dev/null --wrap 'echo $SLURM_JOB_ID >> done'; touch third").stdout.strip())
        run = cluster.site("-e", "slurm_workers_scale_timeout=100")
        assert run.rc == 0, run.output
        assert state(cluster, KEPT[-2]) == ["COMPLETED"]
        assert pods(cluster, "cpu") == set()
        assert not cluster.kubectl.uids(cluster.namespace, login), "the run ended before the login pods"
        assert sorted(nodes(cluster)) == before, "nodes in maintenance are not known to Slurm"
        cluster.kubectl("delete", "pod", "-n", cluster.namespace, f"{cluster.name}-controller-0")
        cluster.kubectl("rollout", "status", "-n", cluster.namespace, f"statefulset/{cluster.name}-controller", "--timeout=60s")
        run = cluster.site()  # which has slurmctld read its configuration: it does not know whether the new pod has done so
        assert run.rc == 0, run.output
        again = cluster.site()
        assert (again.rc, again.changed) == (0, 0), again.output
        now = nodes(cluster)
        assert sorted(now) == before and now["extra-0"].endswith("|ask bob"), now
        assert all("corral: scale: the document declares maintenance" in now[name] for name in before if name != "extra-0"), now
        assert state(cluster, KEPT[-1]) == ["PENDING"]
        del cluster.spec["maintenance"]
        run = cluster.site()
        assert run.rc == 0, run.output
        now = nodes(cluster)
        assert now.pop("extra-0") == "drained|ask bob"
        assert all(said.startswith(("idle", "alloc", "mix", "comp")) for said in now.values()), now
        eventually(lambda: state(cluster, KEPT[-1]) == ["COMPLETED"], "the job that waited has run", 60)
        cluster.slurm("scontrol", "update", "nodename=extra-0", "state=resume")


def test_after_the_deadline_jobs_are_requeued_or_cancelled_as_the_set_says(cluster: Cluster) -> None:
    cluster.spec["nodeSets"][0].update(replicas=1, drain={"policy": "Requeue", "deadlineSeconds": 1})
    cluster.spec["nodeSets"][1].update(replicas=2, drain={"policy": "Cancel", "deadlineSeconds": 1})
    requeued, cancelled = submit(cluster, "-x cpu-0,extra-[0-2]", "never"), submit(cluster, "-w extra-2", "never")
    with scenario(cluster, "nodes go whose sets say `Requeue` and `Cancel`, after the deadline", [requeued, cancelled], anew=1, asked=1):
        run = cluster.site("-e", "slurm_workers_scale_timeout=60")
        assert run.rc == 0, run.output
        assert (pods(cluster, "cpu"), pods(cluster, "extra")) == ({"scale-cpu-0"}, {"scale-extra-0", "scale-extra-1"})
        assert state(cluster, cancelled) == ["CANCELLED"]
        assert state(cluster, requeued) == ["PENDING"]
    cluster.slurm("scancel", requeued)


def test_a_node_set_that_leaves_with_its_partition_keeps_both_until_its_jobs_have_ended(cluster: Cluster) -> None:
    KEPT.append(submit(cluster, "-w extra-0 -p side", "second"))
    with scenario(cluster, "a node set leaves the document with its partition", KEPT[-1:]):
        del cluster.spec["nodeSets"][1]
        del cluster.spec["partitions"][1]
        run = cluster.site(*NOW)
        assert run.rc == 0, run.output
        assert pods(cluster, "extra") == {"scale-extra-0"}, "extra-1 was free, extra-0 is not"
        assert "State=DRAIN" in cluster.slurm("scontrol", "show", "partition", "side")
        assert state(cluster, KEPT[-1]) == ["RUNNING"]
        again = cluster.site(*NOW)
        assert (again.rc, again.changed) == (0, 0), again.output
        cluster.ssh("touch second")
        run = cluster.site("-e", "slurm_workers_scale_timeout=100")
        assert run.rc == 0, run.output
        assert state(cluster, KEPT[-1]) == ["COMPLETED"]
        assert pods(cluster, "extra") == set()
        assert "StatefulSet/scale-extra" not in cluster.objects()
        assert sorted(nodes(cluster)) == ["cpu-0"]
        assert "side" not in cluster.slurm("scontrol", "show", "partitions")


def test_no_job_was_lost(cluster: Cluster) -> None:
    eventually(lambda: not cluster.slurm("squeue", "-h"), "all jobs have ended", 120)
    found = cluster.ssh("cat done").stdout.splitlines()
    wanted = [*(str(number) for number in range(1, SHORT + 1)), *KEPT]
    assert sorted(line.split()[0] for line in found) == sorted(wanted), "jobs were lost"
    assert [line for line in found if len(line.split()) > 1] == [], "jobs were begun anew"
