# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draining Kubernetes nodes: corral.slurm.sync runs when something has changed, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from corral_operator.reconcile import metadata

from ..world import FAILED, Json, Request, World, document, path, run

WAITS: list[Json] = [
    {"kind": "ok", "task": "Tell", "changed": True, "draining": {"nodes": ["cpu-0 (Kubernetes node n1 is cordoned)"], "busy": True}}
]
FREE: list[Json] = [
    {"kind": "ok", "task": "Tell", "changed": True, "draining": {"nodes": ["cpu-0 (Kubernetes node n1 is cordoned)"], "busy": False}}
]
NONE: list[Json] = [{"kind": "ok", "task": "Tell", "changed": True, "draining": {"nodes": [], "busy": False}}]


class Syncs(World):
    """A cluster at rest with a worker on n1, beside the Kubernetes node n2. Runs of sync report ``reported``, or fail."""

    reported = NONE
    fails = False
    # The site waits for so long.
    waits = 0.0

    async def well(self, request: Request) -> tuple[list[Json], int]:
        if request.playbook.endswith("sync"):
            await asyncio.sleep(0.1)
            return ([{"kind": "failed", "task": "Tell", "message": "slurmctld is away."}], 2) if self.fails else (self.reported, 0)
        await asyncio.sleep(self.waits)
        return await super().well(request)

    def syncs(self) -> int:
        """How often it ran."""
        return self.engine.playbooks().count("sync")

    def events(self) -> list[str]:
        return [found["reason"] for name, found in self.api.objects.items() if "/events/" in name]


def story(folder: Path, steps: Callable[[Syncs], Awaitable[None]], spec: Json | None = None, **settings: Any) -> None:
    """Run a test with a cluster at rest on Kubernetes nodes that are not draining."""

    async def told() -> None:
        world = Syncs(folder, **{"sync_every": 0.0, **settings})
        world.kubernetes_node("n1")
        world.kubernetes_node("n2")
        world.pod("n1")
        world.api.put(path(), document(**(spec or {})))
        async with world:
            await asyncio.sleep(30)
            await steps(world)

    run(told())


def test_a_new_cluster_gets_one_sync_run(tmp_path: Path) -> None:
    async def steps(world: Syncs) -> None:
        assert world.engine.playbooks() == ["site", "site", "sync"]
        world.api.writes.clear()
        world.kubernetes_node("n1", heartbeat=1)
        world.kubernetes_node("n2", heartbeat=1)
        await asyncio.sleep(3600)
        assert world.syncs() == 1, "heartbeats of Kubernetes nodes start no run"
        assert world.api.writes == []

    story(tmp_path, steps)


def test_a_cordon_and_its_end_reach_slurm_within_two_seconds(tmp_path: Path) -> None:
    async def steps(world: Syncs) -> None:
        for count, (cordoned, reported) in enumerate([(True, FREE), (False, NONE)]):
            world.reported = reported
            world.kubernetes_node("n1", cordoned=cordoned)
            await asyncio.sleep(1.9)
            assert world.syncs() == 2 + count
            assert world.events()[-1] == ("NodesDraining" if cordoned else "NodesResumed")
        sites = world.engine.playbooks().count("site")
        await asyncio.sleep(600)
        assert (world.syncs(), world.engine.playbooks().count("site")) == (3, sites)

    story(tmp_path, steps)


def test_a_kubernetes_node_without_workers_starts_no_run(tmp_path: Path) -> None:
    async def steps(world: Syncs) -> None:
        world.kubernetes_node("n2", cordoned=True)
        await asyncio.sleep(600)
        assert world.syncs() == 1

    story(tmp_path, steps)


def test_a_condition_of_the_document_reaches_slurm(tmp_path: Path) -> None:
    async def steps(world: Syncs) -> None:
        world.kubernetes_node("n1", conditions=[{"type": "DiskPressure", "status": "True"}])
        await asyncio.sleep(10)
        assert world.syncs() == 1
        world.kubernetes_node("n1", conditions=[{"type": "KernelDeadlock", "status": "True"}])
        await asyncio.sleep(2)
        assert world.syncs() == 2

    story(tmp_path, steps, {"workers": {"sync": {"kubernetesNodeConditions": ["KernelDeadlock"]}}})


def test_many_changes_at_once_are_one_run(tmp_path: Path) -> None:
    async def steps(world: Syncs) -> None:
        for cordoned in (True, False, True, False, True):
            world.kubernetes_node("n1", cordoned=cordoned)
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        assert world.syncs() == 2

    story(tmp_path, steps)


def test_slurm_is_asked_again_while_jobs_are_waited_for(tmp_path: Path) -> None:
    async def steps(world: Syncs) -> None:
        world.reported = WAITS
        world.kubernetes_node("n1", cordoned=True)
        await asyncio.sleep(62)
        assert world.syncs() == 2 + 4, "each 15 seconds"
        world.reported = FREE
        await asyncio.sleep(15)
        assert world.syncs() == 2 + 5
        await asyncio.sleep(120)
        assert world.syncs() == 2 + 7, "when all are free each minute"
        world.reported = NONE
        world.pod("n2")
        await asyncio.sleep(3)
        count = world.syncs()
        await asyncio.sleep(600)
        assert world.syncs() == count, "the draining Kubernetes node has no worker any more"

    story(tmp_path, steps)


def test_clusters_whose_idle_pods_may_be_evicted_are_probed_each_minute(tmp_path: Path) -> None:
    async def steps(world: Syncs) -> None:
        before = world.syncs()
        await asyncio.sleep(600)
        assert world.syncs() == before + 10

    story(tmp_path, steps, {"workers": {"sync": {"eviction": "WhenIdle"}}})


def _counts(serving: int, drained: int) -> list[Json]:
    nodes = {"total": 2, "inService": serving, "drained": drained, "down": 0}
    return [{"kind": "ok", "task": "Tell", "changed": False, "nodes": nodes, "draining": {"nodes": [], "busy": False}}]


def test_the_status_follows_changes_in_slurm_within_fifteen_seconds(tmp_path: Path) -> None:
    async def steps(world: Syncs) -> None:
        for serving, drained, ready in ((1, 1, "True"), (0, 2, "False"), (2, 0, "True")):
            world.reported = _counts(serving, drained)
            sites = world.engine.playbooks().count("site")
            await asyncio.sleep(15)
            assert world.status()["nodes"] == world.reported[0]["nodes"]
            assert world.condition("Ready")[0] == ready
            assert world.engine.playbooks().count("site") == sites, "nothing is made"
        world.api.writes.clear()
        await asyncio.sleep(600)
        assert world.api.writes == [], "what is as it was is not written"

    story(tmp_path, steps, sync_every=12.0)


def test_many_clusters_share_the_budget_of_probes(tmp_path: Path) -> None:
    async def steps(world: Syncs) -> None:
        for number in range(99):
            world.api.put(path(f"a{number}"), document(f"a{number}", nodeSets=[]))
        await asyncio.sleep(600)
        before = world.syncs()
        await asyncio.sleep(600)
        assert world.syncs() - before == 12, "of a hundred clusters each once in fifty seconds"

    story(tmp_path, steps, sync_every=12.0)


def test_a_slurmctld_that_restarts_between_two_probes_is_not_reported(tmp_path: Path) -> None:
    async def steps(world: Syncs) -> None:
        world.fails = True
        await asyncio.sleep(18)
        world.fails = False
        await asyncio.sleep(60)
        assert "SyncFailed" not in world.events()
        world.fails = True
        before = world.syncs()
        await asyncio.sleep(600)
        assert "SyncFailed" in world.events()
        assert 50 <= world.syncs() - before <= 56, "no more often than one that is well, and no less"

    story(tmp_path, steps, sync_every=12.0)


def test_probes_repeat_no_warnings_and_leave_the_output_of_other_runs(tmp_path: Path) -> None:
    async def steps(world: Syncs) -> None:
        world.reported = [{**_counts(2, 0)[0], "warnings": ["Kubernetes nodes cannot be listed."]}]
        events = world.events()
        await asyncio.sleep(120)
        assert world.events() == events
        names = [request.ident.rpartition("-")[2] for request in world.engine.started]
        assert (names.count("sync"), set(names)) == (1, {"site", "sync", "probe"})

    story(tmp_path, steps, sync_every=12.0)


def test_cold_runs_probe_less_often(tmp_path: Path) -> None:
    async def steps(world: Syncs) -> None:
        before = world.syncs()
        await asyncio.sleep(600)
        assert 18 <= world.syncs() - before <= 20

    story(tmp_path, steps, sync_every=12.0, engine="cold")


@pytest.mark.parametrize("made", [False, True], ids=["never made", "once made"])
def test_a_broken_cluster_costs_ten_requests_a_minute_at_the_most(tmp_path: Path, made: bool) -> None:
    # What runs send: the whole playbook 42, of which a failing one does not reach the end, and a probe.
    cost = {"site": 30, "sync": 4}

    class Broken(Syncs):
        broken = not made
        requests = 0

        async def well(self, request: Request) -> tuple[list[Json], int]:
            playbook = request.playbook.rpartition(".")[2]
            self.requests += cost[playbook]
            if playbook == "site" and self.broken:
                await asyncio.sleep(1)
                return FAILED, 2
            return await super().well(request)

    async def told() -> None:
        world = Broken(tmp_path)

        def count(_method: str, _path: str) -> int:
            world.requests += 1
            return 0

        world.api.refuse = count
        world.kubernetes_node("n1")
        world.pod("n1")
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(60)
            if made:
                assert world.syncs() > 2, "each 12 s while it is well"
                world.broken = True
                world.edit(partitions=[{"name": "all"}])
            await asyncio.sleep(300)
            world.requests = 0
            await asyncio.sleep(600)
            assert world.condition("Degraded")[0] == "True"
            assert 20 < world.requests <= 100
            if made:
                world.broken, syncs = False, world.syncs()
                world.edit(partitions=[{"name": "main"}])
                await asyncio.sleep(30)
                assert world.syncs() - syncs >= 2, "as soon as it is healthy it is probed as before"

    run(told())


def test_a_new_operator_reports_what_happened_without_one_and_nothing_else(tmp_path: Path) -> None:
    async def steps(world: Syncs) -> None:
        for cordoned in (False, True):
            await world.__aexit__()
            world.reported = FREE if cordoned else NONE
            world.kubernetes_node("n1", cordoned=cordoned)
            world.engine.started.clear()
            world.api.writes.clear()
            world.controller = world.new_controller()
            await world.__aenter__()
            await asyncio.sleep(10)
            assert world.engine.playbooks() == ["sync"] * cordoned
        assert not [where for _method, where in world.api.writes if not where.endswith("/status")]

    story(tmp_path, steps)


def test_a_run_that_only_waits_is_preempted_and_continues(tmp_path: Path) -> None:
    async def steps(world: Syncs) -> None:
        world.waits = 500
        found = world.api.objects[path()]
        found["metadata"]["annotations"] = {"corral.hpc/requested-at": "now"}
        world.api.put(path(), found)
        await asyncio.sleep(10)
        began = len(world.engine.started)
        world.kubernetes_node("n1", cordoned=True)
        await asyncio.sleep(6)
        assert world.engine.playbooks()[began:] == ["sync", "site"]
        assert world.engine.most_at_once == 1, "one run a cluster at a time"
        assert "lastFailure" not in world.status()

    story(tmp_path, steps)


def test_a_failing_sync_is_retried_less_and_less_often(tmp_path: Path) -> None:
    async def steps(world: Syncs) -> None:
        world.fails = True
        world.kubernetes_node("n1", cordoned=True)
        await asyncio.sleep(60)
        assert 5 <= world.syncs() - 1 <= 7, "after 1, 2, 4, 8, 16 and 32 seconds"
        assert "SyncFailed" in world.events()
        assert world.condition("Ready")[0] == "True", "the cluster is as its document says"
        world.fails, world.reported = False, FREE
        await asyncio.sleep(60)
        assert "NodesDraining" in world.events()

    story(tmp_path, steps)


def test_without_the_right_to_list_nodes_states_on_pods_are_still_written(tmp_path: Path) -> None:
    async def steps() -> None:
        world = Syncs(tmp_path, sync_every=0.0)
        world.api.refuse = lambda _method, where: 403 if where.startswith("/api/v1/nodes") else 0
        world.pod("n1", ready=False)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(30)
            assert world.syncs() == 1
            world.pod("n1")
            await asyncio.sleep(10)
            assert world.syncs() == 2
            await asyncio.sleep(3600)
            assert world.syncs() == 2
            world.api.refuse = lambda _method, _where: 0  # an administrator gives the right
            world.kubernetes_node("n1", cordoned=True)
            await asyncio.sleep(330)
            assert world.syncs() >= 3

    run(steps())


@pytest.mark.parametrize("change", ["paused", "wrong", "deleted"])
def test_a_cluster_that_must_not_be_changed_is_not(tmp_path: Path, change: str) -> None:
    async def steps(world: Syncs) -> None:
        found = world.api.objects[path()]
        if change == "paused":
            found["metadata"]["annotations"] = {metadata.PAUSED: "true"}
        elif change == "wrong":
            found = {**found, "spec": {**found["spec"], "partitions": [{"name": "main", "nodeSets": ["nosuch"]}]}}
        if change == "deleted":
            world.api.delete(path())
        else:
            world.api.put(path(), found)
        await asyncio.sleep(5)
        before = world.syncs()
        world.kubernetes_node("n1", cordoned=True)
        await asyncio.sleep(60)
        assert world.syncs() == before
        if change == "paused":
            found = world.api.objects[path()]
            found["metadata"]["annotations"] = {}
            world.api.put(path(), found)
            await asyncio.sleep(10)
            assert world.syncs() == before + 1

    story(tmp_path, steps)
