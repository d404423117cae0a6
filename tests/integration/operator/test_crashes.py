# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of the operator, ended or disturbed at each of its writes, with real Slurm: the objects come to the same bytes, keys stay, and no job is lost.

A run is killed as soon as it has changed any object, and so is the next, until nothing is left to change: so there is a crash after each change that there is.
Between the runs and the API server stands the fault proxy.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corral_operator.runs import engine, outcome, processes
from corral_operator.runs.playbook import Request
from corral_operator.runs.run import Run

from ...faultproxy.proxy import TRANSIENT, Fault, FaultProxy, changed
from ..conftest import VOLUMES, Cluster, eventually
from ..kubectl import Kubectl
from .conftest import Served

pytestmark = [pytest.mark.lab, pytest.mark.long]
LAB = VOLUMES.parent
NAME = "crashed"
PORT = 31402


def effects(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Ignore the mark that each run first puts on the ApplySet when it continues after a killed run: it is no object of the cluster."""
    marked = ["corral.hpc/applyset-run" in (one.get("metadata", {}).get("annotations") or {}) for one in (before, after)]
    return changed(before, after) and not all(marked)


class Warm(engine.Warm):
    """The operator's own way to start runs; remembers the last, so that it can be killed."""

    pid = 0

    async def start(self, request: Request, descriptor: int) -> engine.Process:
        process = await super().start(request, descriptor)
        self.pid = process.pid
        return process


class Runs:
    """Runs as the operator makes them, in a loop that lives in a thread beside the tests."""

    def __init__(self, proxy: FaultProxy, directory: Path) -> None:
        self.proxy = proxy
        self.directory = directory
        self.count = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._warm = self._do(self._open())

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(600)

    async def _open(self) -> Warm:
        warm = Warm()
        await warm.open()
        return warm

    def close(self) -> None:
        self._do(self._warm.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def kill(self) -> None:
        """Everything of the run that is under way, as when its pod is gone."""
        processes.kill_tree(self._warm.pid)

    def run(self, cluster: Cluster, playbook: str = "site", **variables: Any) -> outcome.Outcome:
        self.count += 1
        directory = self.directory / f"{self.count}"
        (directory / "env").mkdir(parents=True)
        document = {
            "apiVersion": "corral.hpc/v1alpha1",
            "kind": "SlurmCluster",
            "metadata": {"name": cluster.name, "namespace": cluster.namespace},
        }
        (directory / "cluster.json").write_text(json.dumps({**document, "spec": cluster.spec}))
        given = {
            "slurm_cluster_file": str(directory / "cluster.json"),
            "corral_force": True,
            "cluster_base_create_namespace": False,
            **variables,
        }
        (directory / "env" / "extravars").write_text(json.dumps(given))
        request = Request("run", f"corral.slurm.{playbook}", str(directory), str(directory / "artifacts"))

        async def go() -> outcome.Outcome:
            return await Run(self._warm, request, timeout=300, grace=1).go()

        return self._do(go())

    def good(self, cluster: Cluster, playbook: str = "site", **variables: Any) -> int:
        """A run that nothing disturbs; returns its effects, and makes sure that the one after it has none."""
        self.proxy.plan()
        found = self.run(cluster, playbook, **variables)
        assert found.successful, found.failure
        effects = self.proxy.effects
        if playbook == "site":
            self.proxy.plan()
            again = self.run(cluster)
            assert again.successful, again.failure
            assert (again.changes.count, self.proxy.effects) == (0, 0)
        return effects

    def killed_after_each_effect(self, cluster: Cluster, playbook: str = "site", **variables: Any) -> int:
        """Run until a run comes to its end, each killed after its first effect; returns how many there were."""
        for effects in range(100):
            self.proxy.plan(Fault("kill-committed", effect=1))
            found = self.run(cluster, playbook, **variables)
            if self.proxy.effects == 0:
                assert found.successful, found.failure
                return effects
            assert found.code and found.code < 0, f"the run should have been killed: {found}"
        raise AssertionError(f"100 runs were killed and still there is something to change, the last by {self.proxy.trace[-3:]}")


@pytest.fixture(scope="module")
def cluster(kubectl: Kubectl, make_cluster: Callable[[str, int], Cluster]) -> Served:
    made = Served(**vars(make_cluster(NAME, PORT)))
    kubectl("create", "namespace", made.namespace)
    made.spec["nodeSets"] = made.spec["nodeSets"][:1]
    made.spec["nodeSets"][0]["replicas"] = 1
    return made


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    directory = tmp_path_factory.mktemp("runs")
    before = dict(os.environ)
    with FaultProxy(LAB / "kubeconfig", effects=effects) as proxy:
        os.environ["KUBECONFIG"] = str(proxy.kubeconfig(directory / "kubeconfig"))
        made = Runs(proxy, directory)
        proxy.kill = made.kill
        os.environ["KUBECONFIG"] = before["KUBECONFIG"]
        yield made
        made.close()
    shutil.rmtree(directory)


def keys(cluster: Served) -> dict[str, Any]:
    return {secret["metadata"]["name"]: secret["data"] for secret in cluster.kubectl.items("secrets", "-n", cluster.namespace)}


reference: dict[str, Any] = {}


def test_the_reference_is_made_and_taken_away_by_runs_that_nothing_disturbs(runs: Runs, cluster: Served) -> None:
    reference["make"] = runs.good(cluster)
    reference["contents"], reference["keys"] = cluster.contents(), keys(cluster)
    assert reference["make"] >= len(reference["contents"])
    reference["destroy"] = runs.good(cluster, "destroy", keep_data=True)
    reference["left"] = cluster.contents()
    # Once more, since keys and data are there now: so the lives that follow are alike.
    reference["make"] = runs.good(cluster)
    assert cluster.contents() == reference["contents"]
    print(f"MEASURED writes: {reference['make']} to make, {reference['destroy']} to destroy")


def test_a_removal_that_is_killed_after_each_write_leaves_what_it_should(runs: Runs, cluster: Served) -> None:
    writes = runs.killed_after_each_effect(cluster, "destroy", keep_data=True)
    assert cluster.contents() == reference["left"]
    assert writes <= 3 * reference["destroy"]


def test_a_cluster_that_is_made_by_runs_killed_after_each_write_is_the_same(runs: Runs, cluster: Served) -> None:
    began = time.monotonic()
    writes = runs.killed_after_each_effect(cluster)
    print(f"MEASURED made by runs that were killed after each of {writes} writes: {time.monotonic() - began:.0f} s")
    assert cluster.contents() == reference["contents"]
    assert keys(cluster) == reference["keys"]
    assert writes <= 3 * reference["make"]
    assert cluster.ssh("srun -N1 true").returncode == 0


@pytest.fixture(scope="module")
def job(cluster: Served) -> Iterator[str]:
    number = cluster.ssh("sbatch --parsable -N1 --wrap 'sleep 3600'").stdout.strip()
    eventually(lambda: "RUNNING" in cluster.slurm("squeue", "-h", "-j", number, "-o", "%T"), "the job runs")
    yield number
    cluster.ssh(f"scancel {number}")


def lives(cluster: Served, number: str) -> bool:
    """The job runs, and has been started once only."""
    said = cluster.slurm("scontrol", "show", "job", number)
    return "JobState=RUNNING" in said and "Restarts=0" in said


def change(cluster: Served, back: bool = False) -> None:
    """From the first document to another one, or back."""
    cluster.spec["nodeSets"][0]["replicas"] = 1 if back else 2
    cluster.spec["nodeSets"][0]["features"] = ["plain"] if back else ["plain", "other"]
    cluster.spec["login"]["service"]["annotations"] = {} if back else {"example.com/changed": "yes"}


def test_a_change_that_is_killed_after_each_write_comes_to_the_same_end_and_the_job_runs_on(runs: Runs, cluster: Served, job: str) -> None:
    change(cluster)
    reference["change"] = runs.good(cluster)
    reference["changed"] = cluster.contents()
    change(cluster, back=True)
    reference["back"] = runs.good(cluster)
    assert cluster.contents() == reference["contents"], "by way of another document the first is the same"
    change(cluster)
    writes = runs.killed_after_each_effect(cluster)
    assert cluster.contents() == reference["changed"]
    assert writes <= 3 * reference["change"]
    change(cluster, back=True)
    writes = runs.killed_after_each_effect(cluster)
    assert cluster.contents() == reference["contents"]
    assert writes <= 3 * reference["back"]
    assert lives(cluster, job)


def turn(cluster: Served) -> tuple[dict[str, Any], int]:
    """Change the document to the other one of the two; return the expected contents, and the number of effects that lead there."""
    back = cluster.spec["nodeSets"][0]["replicas"] == 2
    change(cluster, back)
    return (reference["contents"], reference["back"]) if back else (reference["changed"], reference["change"])


@pytest.mark.parametrize("fault", TRANSIENT)
def test_a_run_rides_out_a_fault_at_each_write(runs: Runs, cluster: Served, job: str, fault: str) -> None:
    """Every write fails once: odd ones fail, and their retries are even."""
    wanted, count = turn(cluster)
    runs.proxy.plan(*(Fault(fault, write=number, **TRANSIENT[fault]) for number in range(1, 200, 2)))
    found = runs.run(cluster)
    assert found.successful, found.failure
    assert any(seen.fault for seen in runs.proxy.trace)
    assert runs.proxy.effects <= 3 * count
    assert cluster.contents() == wanted
    assert lives(cluster, job)


def test_a_refusal_at_each_write_ends_the_run_and_the_next_continues(runs: Runs, cluster: Served, job: str) -> None:
    wanted, _count = turn(cluster)
    ended = []
    while not ended or not ended[-1]:
        runs.proxy.plan(Fault("422", write=len(ended) + 1))
        found = runs.run(cluster)
        ended.append(found.successful)
        assert found.successful or "injected 422" in found.failure, found.failure
        assert len(ended) < 100
    assert len(ended) > 10
    runs.good(cluster)
    assert cluster.contents() == wanted
    assert lives(cluster, job)


def test_an_api_server_that_is_gone_for_seconds_in_the_middle_of_a_run_costs_nothing_but_time(
    runs: Runs, cluster: Served, job: str
) -> None:
    wanted, _count = turn(cluster)

    def restart() -> None:
        with runs.proxy.gone():
            time.sleep(5)

    away = threading.Thread(target=restart)
    runs.proxy.plan(Fault("kill-committed", effect=2))
    runs.proxy.kill = away.start
    try:
        found = runs.run(cluster)
        away.join()
        # A request waits for a server that has responded before; a task that starts now fails without a server, and the next run continues.
        assert found.successful or "does not answer" in found.failure, found.failure
        runs.good(cluster)
    finally:
        runs.proxy.kill = runs.kill
    assert cluster.contents() == wanted
    assert lives(cluster, job)
