# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole controller against an API server in memory, in simulated time: the leader, the order of the queue, and resyncs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from ..world import CONFIG, FAILED, Json, Request, World, document, path, run


def test_a_resync_runs_and_writes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path, resync=100)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            world.api.writes.clear()
            await asyncio.sleep(95)
            assert len(world.engine.started) == 3
            assert world.api.writes == []

    run(story())


def test_a_cluster_can_be_resynced_more_often_or_never(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path, resync=10_000)
        for name, desired in (("often", "100"), ("never", "0"), ("usual", ""), ("odd", "soon")):
            found = document(name)
            found["metadata"]["annotations"] = {"corral.hpc/resync": desired} if desired else {}
            world.api.put(path(name), found)
        async with world:
            await asyncio.sleep(50)
            began = len(world.engine.started)

            def runs() -> list[str]:
                names = (Path(request.private_data_dir).name for request in world.engine.started[began:])
                return sorted(names)

            await asyncio.sleep(500)
            assert runs() == ["often"] * 5
            await asyncio.sleep(10_000)
            assert {name: runs().count(name) for name in ("never", "usual", "odd")} == {"never": 0, "usual": 1, "odd": 1}

    run(story())


def test_a_new_operator_starts_no_run_for_a_hundred_healthy_clusters(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        for number in range(100):
            world.api.put(path(f"c{number}", f"ns{number % 7}"), document(f"c{number}", f"ns{number % 7}"))
        async with world:
            await asyncio.sleep(120)
            assert all(world.condition("Ready", f"c{n}", f"ns{n % 7}")[0] == "True" for n in range(100))
        world.api.writes.clear()
        world.engine.started.clear()
        world.controller = world.new_controller()
        async with world:
            await asyncio.sleep(600)
        assert world.engine.started == []
        assert world.api.writes == []

    run(story())


def test_metrics_have_the_waiting_time_of_each_cluster(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)

        async def script(request: Request) -> tuple[list[Json], int]:
            await asyncio.sleep(1.4)
            return await world.well(request)

        def told(name: str, cluster: str | None = None, **labels: str) -> float | None:
            world.controller.refresh_metrics()
            labels |= {} if cluster is None else {"namespace": "one", "cluster": cluster}
            return world.metrics.registry.get_sample_value(f"corral_operator_{name}", labels)

        world.limits = (1, 1)
        world.engine.script = script
        world.controller = world.new_controller()
        for name in ("a", "b"):
            world.api.put(path(name), document(name))
        async with world:
            await asyncio.sleep(1.2)
            first, second = sorted(("a", "b"), key=lambda name: told("cluster_waiting_seconds", name) or 0.0)
            assert (told("queue_depth") or 0) >= 1
            assert told("cluster_working_seconds", first) == pytest.approx(1, abs=0.3)
            assert told("cluster_waiting_seconds", second) == pytest.approx(1, abs=0.3)
            assert told("cluster_waiting_seconds", first) == told("cluster_working_seconds", second) == told("cluster_ready", first) == 0
            await asyncio.sleep(200)
            assert [told("cluster_ready", name) for name in ("a", "b")] == [1, 1]
            assert told("cluster_waiting_seconds", second) == told("cluster_working_seconds", second) == 0
            assert (told("queue_adds_total", trigger="resync") or 0) >= 2
            assert (told("queue_work_seconds_sum", trigger="resync") or 0) >= 1.5
            world.api.delete(path("a"))
            await asyncio.sleep(60)
            assert told("cluster_ready", "a") is None, "a deleted cluster has no series"

    run(story())


def test_a_process_that_no_longer_leads_writes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)

        async def script(request: Request) -> tuple[list[Json], int]:
            await asyncio.sleep(1000)
            return await world.well(request)

        world.engine.script = script
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(5)
            assert world.engine.at_once == 1
            await world.controller.halt("lost the lease", 1.0)
            assert world.engine.at_once == 0
            world.api.writes.clear()
            world.api.put(path("b"), document("b"))
            await asyncio.sleep(100)
            assert world.api.writes == []
            world.engine.script = world.well
            world.controller.lead()
            await asyncio.sleep(20)
            assert world.condition("Ready")[0] == world.condition("Ready", "b")[0] == "True"

    run(story())


def test_a_controller_that_was_frozen_neither_writes_nor_takes_its_run_for_a_failed_one(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        refused = asyncio.Event()

        async def script(_request: Request) -> tuple[list[Json], int]:
            await refused.wait()
            return FAILED, 2

        world.engine.script = script
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(5)
            world.may_write = False
            before, version = len(world.api.writes), world.api.version
            refused.set()
            world.api.put(path("b"), document("b"))
            await asyncio.sleep(100)
            assert len(world.api.writes) == before
            assert world.api.version == version + 1, "nor is there an event"
            assert len(world.engine.started) == 1
            labels = {"playbook": "site", "result": "lost the lease"}
            assert world.metrics.registry.get_sample_value("corral_operator_runs_total", labels) == 1
            # The elector has seen it too, and leads again later.
            await world.controller.halt("lost the lease", 1.0)
            world.engine.script, world.may_write = world.well, True
            world.controller.lead()
            await asyncio.sleep(20)
            assert world.condition("Ready")[0] == world.condition("Ready", "b")[0] == "True"
            assert "lastFailure" not in world.status()

    run(story())


def test_an_api_server_in_a_bad_moment_is_no_news(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            bad = 0

            async def script(request: Request) -> tuple[list[Json], int]:
                nonlocal bad
                bad += 1
                return (FAILED, 2) if bad == 1 else await world.well(request)

            world.engine.script = script
            seen: list[str] = []
            original = world.api._emit

            def emit(where: str, kind: str, found: Json) -> None:
                if where == path():
                    seen.append(world.condition("Ready")[0])
                original(where, kind, found)

            world.api._emit = emit  # type: ignore[method-assign]
            world.api.delete(CONFIG)
            await asyncio.sleep(20)
            assert "False" not in seen
            assert world.condition("Ready")[0] == "True"

    run(story())


def test_many_clusters_respect_the_limit(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        for number in range(20):
            world.api.put(path(f"c{number}"), document(f"c{number}"))
        async with world:
            await asyncio.sleep(30)
            assert world.engine.most_at_once == 2
            assert all(world.condition("Ready", f"c{n}")[0] == "True" for n in range(20))

    run(story())


def test_fifty_new_clusters_all_get_their_turn_and_broken_ones_delay_no_other(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)

        async def script(request: Request) -> tuple[list[Json], int]:
            if "/bad" in request.private_data_dir:
                await asyncio.sleep(1)
                return FAILED, 2
            if "/stuck" in request.private_data_dir:
                await asyncio.sleep(1000)
            return await world.well(request)

        world.engine.script = script
        names = [f"c{number}" for number in range(44)]
        async with world:
            await asyncio.sleep(1)
            for name in ("bad0", "stuck0", "bad1", *names, "stuck1", "bad2", "stuck2"):
                world.api.put(path(name, f"ns-{name}"), document(name, f"ns-{name}"))
            await asyncio.sleep(20)
            # Two at once, 0.1 s each, twice: 4.4 s are the least.
            assert {world.condition("Ready", name, f"ns-{name}")[0] for name in names} == {"True"}
            begun = {Path(request.private_data_dir).name for request in world.engine.started}
            assert len(begun) == 50
            assert world.condition("Degraded", "bad1", "ns-bad1")[:2] == ("True", "RunFailed")

    run(story())


def test_during_a_resync_of_a_hundred_a_new_cluster_starts_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path, resync=100)
        for number in range(100):
            world.api.put(path(f"c{number}", f"ns{number % 7}"), document(f"c{number}", f"ns{number % 7}"))
        async with world:
            await asyncio.sleep(90)
            world.engine.started.clear()

            async def slow(request: Request) -> tuple[list[Json], int]:
                await asyncio.sleep(1.0)
                return await world.well(request)

            world.engine.script = slow
            await asyncio.sleep(45)  # in the middle of it, when those that wait have waited for longer than anybody should
            done = len(world.engine.started)
            assert 20 < done < 100
            began = asyncio.get_running_loop().time()
            world.api.put(path("new"), document("new"))
            while "new" not in {Path(request.private_data_dir).name for request in world.engine.started}:
                await asyncio.sleep(0.01)
            assert asyncio.get_running_loop().time() - began < 1.0
            await asyncio.sleep(60)
            assert len(world.engine.started) == 102, "each once, and the new one twice"

    run(story())


@pytest.mark.parametrize("written", ["a document", "an edit"])
def test_a_leader_whose_watch_is_dead_makes_no_older_document(tmp_path: Path, written: str) -> None:
    """A broken connection delivers no events: a run's document is read right before it."""

    async def story() -> None:
        world = World(tmp_path)
        given: list[int] = []

        async def script(request: Request) -> tuple[list[Json], int]:
            given.append(json.loads(Path(request.private_data_dir, "cluster.json").read_text())["spec"]["nodeSets"][0]["replicas"])
            return await world.well(request)

        world.engine.script = script
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            given.clear()
            world.api._emit = lambda *_event: None  # type: ignore[method-assign]
            small = {"name": "cpu", "replicas": 4, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
            world.edit(nodeSets=[small])
            if written == "a document":
                world.controller.lead()
            else:
                world.controller.resync(next(iter(world.controller.cache.clusters.values())), 0.0)
            await asyncio.sleep(10)
            assert set(given) <= {4}
            if written == "an edit":
                assert given

    run(story())


def test_one_that_was_standby_for_long_probes_nothing_when_it_becomes_leader(tmp_path: Path) -> None:
    async def story() -> None:
        first = World(tmp_path / "first")
        first.api.put(path(), document())
        async with first:
            await asyncio.sleep(10)
        second = World(tmp_path / "second", resync=1000)
        second.api = first.api
        second.controller = second.new_controller()
        second.controller.start()
        await asyncio.sleep(5000)
        second.controller.lead()
        await asyncio.sleep(500)
        assert second.engine.playbooks() == []
        await asyncio.sleep(700)
        assert second.engine.playbooks() == ["site"]
        await second.controller.stop()

    run(story())
