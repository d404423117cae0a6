# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's process is killed again and again while it makes a cluster; then the API server itself, while it changes it and a job runs.
And it is frozen in the middle of a run, until another one leads.

The operator runs beside the lab: what is restarted is not what it runs in. All of the lab notices when its API server is gone, so no other test runs
meanwhile.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corral_operator.runs import processes

from ...faultproxy.proxy import Fault, FaultProxy, changed
from ..conftest import REPOSITORY, VOLUMES, Cluster, eventually
from ..kubectl import Kubectl
from .conftest import DOCUMENTS, Beside, Served, definitions, keys, let_go

pytestmark = [pytest.mark.lab, pytest.mark.alone, pytest.mark.long]
Json = dict[str, Any]
LAB = VOLUMES.parent
NAME = "restarted"
# Making this cluster takes some sixty writes, with those of the operator's own: its finalizer, the status and the events.
EVERY = 12


@pytest.fixture(scope="module")
def cluster(kubectl: Kubectl, make_cluster: Callable[[str, int], Cluster]) -> Iterator[Served]:
    let_go(kubectl, f"test-{NAME}")
    made = Served(**vars(make_cluster(NAME, 31403)))
    kubectl("create", "namespace", made.namespace)
    made.spec["nodeSets"] = made.spec["nodeSets"][:1]
    made.spec["nodeSets"][0]["replicas"] = 1
    with definitions(kubectl):
        yield made
        let_go(kubectl, made.namespace)


@pytest.fixture(scope="module")
def operator(cluster: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    directory = tmp_path_factory.mktemp("operator")
    made = Beside(directory, cluster.namespace)
    yield made
    if made.lives:
        made.stop()
    shutil.rmtree(directory)


def as_by_hand(cluster: Served) -> None:
    """The playbook by hand finds nothing to do: the objects are, byte for byte, what it makes."""
    run = cluster.site()
    assert (run.rc, run.changed) == (0, 0), run.output


def test_an_operator_that_is_killed_after_every_few_writes_makes_the_cluster(operator: Beside, cluster: Served, tmp_path: Path) -> None:
    known: dict[str, str] = {}
    lives = 0
    with FaultProxy(LAB / "kubeconfig", effects=changed) as proxy:
        proxy.kill = operator.kill
        kubeconfig = str(proxy.kubeconfig(tmp_path / "kubeconfig"))
        cluster.apply()
        while not cluster.settled:
            assert lives < 20, operator.log
            lives += 1
            proxy.plan(Fault("kill-committed", effect=EVERY))
            operator.start(KUBECONFIG=kubeconfig)
            eventually(lambda: not operator.lives or cluster.settled, "the operator is killed, or through", 100)
            assert operator.code in (None, -signal.SIGKILL), operator.log
            now = keys(cluster)
            assert known.items() <= now.items(), "a key was made anew"
            known = now
        operator.stop()
    print(f"MEASURED the operator was killed {lives - 1} times, after {EVERY} writes each, until the cluster was made")
    assert lives > 3
    as_by_hand(cluster)


def test_the_api_server_is_killed_in_the_middle_of_a_run(operator: Beside, cluster: Served) -> None:
    number = cluster.ssh("sbatch --parsable -N1 --wrap 'sleep 3600'").stdout.strip()
    eventually(lambda: "RUNNING" in cluster.slurm("squeue", "-h", "-j", number, "-o", "%T"), "the job runs")
    before = cluster.objects()[f"ConfigMap/{NAME}-controller-config"], keys(cluster)
    operator.start()
    cluster.spec["nodeSets"][0]["features"] = ["plain", "other"]
    cluster.spec["login"]["service"]["annotations"] = {"example.com/changed": "yes"}
    cluster.apply()
    eventually(lambda: cluster.objects()[f"ConfigMap/{NAME}-controller-config"] != before[0], "the run has changed something", 60)
    os.kill(int(json.loads((LAB / "run" / "kube-apiserver.json").read_text())["pid"]), signal.SIGKILL)
    subprocess.run([str(REPOSITORY / "lab" / "lab"), "up"], check=True, capture_output=True)
    eventually(lambda: cluster.settled, "the cluster is at rest", 100)
    assert operator.lives, "it is still the same process"
    assert "other" in cluster.slurm("scontrol", "show", "node", "cpu-0")
    said = cluster.slurm("scontrol", "show", "job", number)
    assert "JobState=RUNNING" in said and "Restarts=0" in said
    assert keys(cluster) == before[1]
    # And it sees what happens now: its watches are back.
    wanted = cluster.contents()
    cluster.kubectl("delete", "networkpolicy", f"{NAME}-base", "-n", cluster.namespace)
    eventually(lambda: cluster.contents() == wanted, "what was deleted is made again", 30)
    eventually(lambda: cluster.settled, "the cluster is at rest again", 30)
    operator.stop()
    as_by_hand(cluster)


def of_the_run(before: Json, after: Json) -> bool:
    """A write of the run's own, and not the lease, the status or an event."""
    return after.get("kind") == "Service" and changed(before, after)


def written(trace: Path, *, leases: bool) -> list[float]:
    """When an operator wrote the lease, or else anything else, commands in pods among it; refused writes count as well."""
    lines = [json.loads(line) for line in trace.read_text().splitlines()] if trace.exists() else []
    writes = [line for line in lines if line["write"] is not None or line["path"].partition("?")[0].endswith("/exec")]
    return [line["time"] for line in writes if ("/leases" in line["path"]) is leases]


@pytest.mark.parametrize("what", ["controller", "all"])
def test_a_leader_that_is_frozen_in_a_run_writes_nothing_once_another_leads(
    operator: Beside, cluster: Served, tmp_path: Path, what: str
) -> None:
    election = {"CORRAL_ELECT": "true", "CORRAL_LEASE_NAMESPACE": cluster.namespace, "CORRAL_LEASE_NAME": f"frozen-{what}"}
    traces = {name: tmp_path / f"{name}.trace" for name in ("first", "second")}
    (tmp_path / "second").mkdir()
    other = Beside(tmp_path / "second", cluster.namespace)
    frozen: list[int] = []
    lost = operator.log.count('"no longer leading"')

    def freeze() -> None:
        assert operator.process is not None
        found = [operator.process.pid, *(processes.descendants(operator.process.pid) if what == "all" else ())]
        for pid in found:
            os.kill(pid, signal.SIGSTOP)
        frozen.extend(found)

    def thaw() -> None:
        while frozen:
            os.kill(frozen.pop(), signal.SIGCONT)

    with (
        FaultProxy(LAB / "kubeconfig", effects=of_the_run, trace=traces["first"]) as ours,
        FaultProxy(LAB / "kubeconfig", trace=traces["second"]) as theirs,
    ):
        ours.kill = freeze
        # With another Lease these are another operator than that of the tests before.
        cluster.kubectl("annotate", DOCUMENTS, cluster.name, "-n", cluster.namespace, "corral.hpc/operator-", check=False)
        operator.start(KUBECONFIG=str(ours.kubeconfig(tmp_path / "first.kubeconfig")), **election)
        try:
            cluster.apply()
            eventually(lambda: cluster.settled, "the cluster is at rest", 100)
            other.start(KUBECONFIG=str(theirs.kubeconfig(tmp_path / "second.kubeconfig")), **election)
            eventually(lambda: "the zygote has warmed up" in other.log, "another operator is ready")
            ours.plan(Fault("kill-committed", effect=1))
            cluster.spec["login"]["service"]["annotations"] = {"example.com/frozen": what}
            cluster.apply()
            eventually(lambda: bool(frozen), "the leader is frozen in its run")
            eventually(lambda: bool(written(traces["second"], leases=False)), "another one leads, and works")
            taken = written(traces["second"], leases=True)[0]
            thaw()
            thawed = time.time()
            eventually(lambda: operator.log.count('"no longer leading"') > lost, "the first has seen that it does not lead")
            eventually(lambda: cluster.settled, "the cluster is at rest again", 100)
            late = [moment for moment in written(traces["first"], leases=False) if moment > taken]
            assert late == [], operator.log
            assert not [moment for moment in written(traces["first"], leases=True) if taken < moment], "nor does it take the lease"
            assert "lastFailure" not in cluster.resource()["status"]
            print(f"MEASURED another operator led {thawed - taken:.1f} s before the frozen {what} went on")
            assert operator.lives and other.lives
        finally:
            thaw()
            operator.stop()
            if other.lives:
                other.stop()
    as_by_hand(cluster)
