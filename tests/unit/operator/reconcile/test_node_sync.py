# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that go, and what the operator does about them: corral.slurm.sync runs when something has changed, and not else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from corral_operator.reconcile import metadata

from ..world import FAILED, Json, Request, World, document, path, run

WAITS: list[Json] = [
    {"kind": "ok", "task": "Tell", "changed": True, "leaving": {"nodes": ["cpu-0 (Kubernetes node n1 is cordoned)"], "busy": True}}
]
FREE: list[Json] = [
    {"kind": "ok", "task": "Tell", "changed": True, "leaving": {"nodes": ["cpu-0 (Kubernetes node n1 is cordoned)"], "busy": False}}
]
NONE: list[Json] = [{"kind": "ok", "task": "Tell", "changed": True, "leaving": {"nodes": [], "busy": False}}]


class Syncs(World):
    """A cluster at rest with a worker on n1, beside machine n2. Runs of sync say ``said``, or fail."""

    said = NONE
    fails = False
    # The site waits for so long.
    waits = 0.0

    async def well(self, request: Request) -> tuple[list[Json], int]:
        if request.playbook.endswith("sync"):
            await asyncio.sleep(0.1)
            return ([{"kind": "failed", "task": "Tell", "message": "slurmctld is away."}], 2) if self.fails else (self.said, 0)
        await asyncio.sleep(self.waits)
        return await super().well(request)

    def syncs(self) -> int:
        """How often it ran."""
        return self.engine.playbooks().count("sync")

    def events(self) -> list[str]:
        return [found["reason"] for name, found in self.api.objects.items() if "/events/" in name]


def story(folder: Path, tell: Callable[[Syncs], Awaitable[None]], spec: Json | None = None, **settings: Any) -> None:
    """Tell a story of a cluster that is at rest with machines that stay."""

    async def told() -> None:
        world = Syncs(folder, **{"sync_every": 0.0, **settings})
        world.machine("n1")
        world.machine("n2")
        world.pod("n1")
        world.api.put(path(), document(**(spec or {})))
        async with world:
            await asyncio.sleep(30)
            await tell(world)

    run(told())


def test_slurm_is_told_once_of_a_new_cluster_and_then_left_alone(tmp_path: Path) -> None:
    async def tell(world: Syncs) -> None:
        assert world.engine.playbooks() == ["site", "site", "sync"]
        world.api.writes.clear()
        world.machine("n1", heartbeat=1)
        world.machine("n2", heartbeat=1)
        await asyncio.sleep(3600)
        assert world.syncs() == 1, "what machines say of themselves all the time is no news"
        assert world.api.writes == []

    story(tmp_path, tell)


def test_a_cordon_is_told_within_two_seconds_and_so_is_its_end(tmp_path: Path) -> None:
    async def tell(world: Syncs) -> None:
        for count, (cordoned, said) in enumerate([(True, FREE), (False, NONE)]):
            world.said = said
            world.machine("n1", cordoned=cordoned)
            await asyncio.sleep(1.9)
            assert world.syncs() == 2 + count
            assert world.events()[-1] == ("NodesDraining" if cordoned else "NodesResumed")
        sites = world.engine.playbooks().count("site")
        await asyncio.sleep(600)
        assert (world.syncs(), world.engine.playbooks().count("site")) == (3, sites)

    story(tmp_path, tell)


def test_a_machine_without_workers_of_the_cluster_is_nobodys_business(tmp_path: Path) -> None:
    async def tell(world: Syncs) -> None:
        world.machine("n2", cordoned=True)
        await asyncio.sleep(600)
        assert world.syncs() == 1

    story(tmp_path, tell)


def test_a_condition_that_the_document_calls_bad_is_told(tmp_path: Path) -> None:
    async def tell(world: Syncs) -> None:
        world.machine("n1", conditions=[{"type": "DiskPressure", "status": "True"}])
        await asyncio.sleep(10)
        assert world.syncs() == 1
        world.machine("n1", conditions=[{"type": "KernelDeadlock", "status": "True"}])
        await asyncio.sleep(2)
        assert world.syncs() == 2

    story(tmp_path, tell, {"workers": {"sync": {"kubernetesNodeConditions": ["KernelDeadlock"]}}})


def test_many_changes_at_once_are_one_run(tmp_path: Path) -> None:
    async def tell(world: Syncs) -> None:
        for cordoned in (True, False, True, False, True):
            world.machine("n1", cordoned=cordoned)
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        assert world.syncs() == 2

    story(tmp_path, tell)


def test_slurm_is_asked_again_while_jobs_are_waited_for(tmp_path: Path) -> None:
    async def tell(world: Syncs) -> None:
        world.said = WAITS
        world.machine("n1", cordoned=True)
        await asyncio.sleep(62)
        assert world.syncs() == 2 + 4, "each 15 seconds"
        world.said = FREE
        await asyncio.sleep(15)
        assert world.syncs() == 2 + 5
        await asyncio.sleep(120)
        assert world.syncs() == 2 + 7, "when all are free each minute"
        world.said = NONE
        world.pod("n2")
        await asyncio.sleep(3)
        count = world.syncs()
        await asyncio.sleep(600)
        assert world.syncs() == count, "the machine that goes has no worker any more"

    story(tmp_path, tell)


def test_clusters_whose_idle_pods_may_go_are_looked_at_each_minute(tmp_path: Path) -> None:
    async def tell(world: Syncs) -> None:
        before = world.syncs()
        await asyncio.sleep(600)
        assert world.syncs() == before + 10

    story(tmp_path, tell, {"workers": {"sync": {"eviction": "WhenIdle"}}})


def _counts(serving: int, drained: int) -> list[Json]:
    nodes = {"total": 2, "inService": serving, "drained": drained, "down": 0}
    return [{"kind": "ok", "task": "Tell", "changed": False, "nodes": nodes, "leaving": {"nodes": [], "busy": False}}]


def test_the_status_follows_what_somebody_told_slurm_within_fifteen_seconds(tmp_path: Path) -> None:
    async def tell(world: Syncs) -> None:
        for serving, drained, ready in ((1, 1, "True"), (0, 2, "False"), (2, 0, "True")):
            world.said = _counts(serving, drained)
            sites = world.engine.playbooks().count("site")
            await asyncio.sleep(15)
            assert world.status()["nodes"] == world.said[0]["nodes"]
            assert world.condition("Ready")[0] == ready
            assert world.engine.playbooks().count("site") == sites, "nothing is made"
        world.api.writes.clear()
        await asyncio.sleep(600)
        assert world.api.writes == [], "what is as it was is not written"

    story(tmp_path, tell, sync_every=12.0)


def test_many_clusters_share_what_looks_by_time_alone_may_cost(tmp_path: Path) -> None:
    async def tell(world: Syncs) -> None:
        for number in range(99):
            world.api.put(path(f"a{number}"), document(f"a{number}", nodeSets=[]))
        await asyncio.sleep(600)
        before = world.syncs()
        await asyncio.sleep(600)
        assert world.syncs() - before == 12, "of a hundred clusters each once in fifty seconds"

    story(tmp_path, tell, sync_every=12.0)


def test_a_slurmctld_that_starts_again_between_two_looks_is_no_news(tmp_path: Path) -> None:
    async def tell(world: Syncs) -> None:
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

    story(tmp_path, tell, sync_every=12.0)


def test_looks_by_time_say_nothing_again_and_leave_the_output_of_other_runs(tmp_path: Path) -> None:
    async def tell(world: Syncs) -> None:
        world.said = [{**_counts(2, 0)[0], "warnings": ["Machines can not be seen."]}]
        events = world.events()
        await asyncio.sleep(120)
        assert world.events() == events
        names = [request.ident.rpartition("-")[2] for request in world.engine.started]
        assert (names.count("sync"), set(names)) == (1, {"site", "sync", "probe"})

    story(tmp_path, tell, sync_every=12.0)


def test_cold_runs_are_too_dear_to_look_so_often(tmp_path: Path) -> None:
    async def tell(world: Syncs) -> None:
        before = world.syncs()
        await asyncio.sleep(600)
        assert 18 <= world.syncs() - before <= 20

    story(tmp_path, tell, sync_every=12.0, engine="cold")


@pytest.mark.parametrize("made", [False, True], ids=["never made", "once made"])
def test_a_broken_cluster_costs_ten_requests_a_minute_at_the_most(tmp_path: Path, made: bool) -> None:
    # What runs send: the whole playbook 42, of which one that fails does not come to the end, and one that looks at nodes.
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
        world.machine("n1")
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
                assert world.syncs() - syncs >= 2, "as soon as it is well it is looked at as before"

    run(told())


def test_a_new_operator_tells_what_happened_without_one_and_nothing_else(tmp_path: Path) -> None:
    async def tell(world: Syncs) -> None:
        for cordoned in (False, True):
            await world.__aexit__()
            world.said = FREE if cordoned else NONE
            world.machine("n1", cordoned=cordoned)
            world.engine.started.clear()
            world.api.writes.clear()
            world.controller = world.new_controller()
            await world.__aenter__()
            await asyncio.sleep(10)
            assert world.engine.playbooks() == ["sync"] * cordoned
        assert not [where for _method, where in world.api.writes if not where.endswith("/status")]

    story(tmp_path, tell)


def test_a_run_that_only_waits_makes_way_and_goes_on(tmp_path: Path) -> None:
    async def tell(world: Syncs) -> None:
        world.waits = 500
        found = world.api.objects[path()]
        found["metadata"]["annotations"] = {"corral.hpc/requested-at": "now"}
        world.api.put(path(), found)
        await asyncio.sleep(10)
        began = len(world.engine.started)
        world.machine("n1", cordoned=True)
        await asyncio.sleep(6)
        assert world.engine.playbooks()[began:] == ["sync", "site"]
        assert world.engine.most_at_once == 1, "one run a cluster at a time"
        assert "lastFailure" not in world.status()

    story(tmp_path, tell)


def test_slurm_that_can_not_be_told_is_tried_again_ever_more_seldom(tmp_path: Path) -> None:
    async def tell(world: Syncs) -> None:
        world.fails = True
        world.machine("n1", cordoned=True)
        await asyncio.sleep(60)
        assert 5 <= world.syncs() - 1 <= 7, "after 1, 2, 4, 8, 16 and 32 seconds"
        assert "SyncFailed" in world.events()
        assert world.condition("Ready")[0] == "True", "the cluster is as its document says"
        world.fails, world.said = False, FREE
        await asyncio.sleep(60)
        assert "NodesDraining" in world.events()

    story(tmp_path, tell)


def test_where_machines_may_not_be_seen_pods_are_shown_all_the_same(tmp_path: Path) -> None:
    async def tell() -> None:
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
            world.machine("n1", cordoned=True)
            await asyncio.sleep(330)
            assert world.syncs() >= 3

    run(tell())


@pytest.mark.parametrize("change", ["paused", "wrong", "deleted"])
def test_a_cluster_that_nobody_shall_touch_is_not(tmp_path: Path, change: str) -> None:
    async def tell(world: Syncs) -> None:
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
        world.machine("n1", cordoned=True)
        await asyncio.sleep(60)
        assert world.syncs() == before
        if change == "paused":
            found = world.api.objects[path()]
            found["metadata"]["annotations"] = {}
            world.api.put(path(), found)
            await asyncio.sleep(10)
            assert world.syncs() == before + 1

    story(tmp_path, tell)
