# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects that change: drift, what others write, and rights that are missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Status, api_error

from ...world import CHANGED, CONFIG, INSTANCE, LABELS, OK, WORKER, Json, Request, World, document, path, run


@pytest.mark.parametrize("harm", ["deleted", "edited", "missed"])
def test_drift_is_repaired_within_two_seconds(tmp_path: Path, harm: str) -> None:
    async def story() -> None:
        world = World(tmp_path, relist=60)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            began = len(world.engine.started)
            if harm == "edited":
                world.api.put(WORKER, {**world.api.objects[WORKER], "spec": {"replicas": 1, "paused": True}})
            elif harm == "deleted":
                world.api.delete(CONFIG)
            else:  # the watch never delivers it
                del world.api.objects[CONFIG]
            await asyncio.sleep(2 if harm != "missed" else 70)
            assert len(world.engine.started) > began
            assert CONFIG in world.api.objects
            await asyncio.sleep(10)
            count = len(world.engine.started)
            await asyncio.sleep(1000)
            assert len(world.engine.started) == count

    run(story())


def test_a_burst_of_changes_is_one_run(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            began = len(world.engine.started)
            for ready in (0, 1, 0, 1):
                state = {"observedGeneration": 1, "readyReplicas": ready, "currentRevision": "r", "updateRevision": "r"}
                world.api.put(WORKER, {**world.api.objects[WORKER], "status": state})
                await asyncio.sleep(0.1)
            await asyncio.sleep(10)
            assert len(world.engine.started) == began, "it is as it was: no run is needed at all"

    run(story())


def test_without_rights_nothing_is_changed_and_the_status_reports_it(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.refuse = lambda _method, where: 403 if "/namespaces/one/configmaps" in where else 0
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(30)
            assert world.engine.started == []
            assert world.condition("Stalled")[:2] == ("True", "NotPermitted")
            assert "RoleBinding" in world.condition("Ready")[2]
            assert "finalizers" not in world.api.objects[path()]["metadata"]
            writes = len(world.api.writes)
            await asyncio.sleep(600)
            assert len(world.api.writes) == writes
            world.api.refuse = lambda _method, _where: 0
            await asyncio.sleep(60)
            assert world.condition("Ready")[0] == "True"

    run(story())


def test_a_right_that_may_be_withheld_is_not_needed(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.refuse = lambda _method, where: 403 if where.endswith("/secrets") else 0
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(30)
            assert world.condition("Ready")[0] == "True"

    run(story())


def test_watches_that_break_or_are_too_old_miss_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            for event in (None, {"type": "ERROR", "object": {"kind": "Status", "code": 410}}):
                world.api.end_watches(event)
                world.api.objects.pop(CONFIG)  # while there is no watch
                await asyncio.sleep(1)
                world.api.end_watches({"type": "ERROR", "object": {"kind": "Status", "code": 410}})
                await asyncio.sleep(10)
                assert CONFIG in world.api.objects

    run(story())


def test_a_second_of_refusals_by_an_api_server_that_has_just_started_is_no_news(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            writes = len(world.api.writes)
            world.api.refuse = lambda _method, _where: 403
            world.api.end_watches({"type": "ERROR", "object": {}})
            await asyncio.sleep(1.2)
            world.api.refuse = lambda _method, _where: 0
            await asyncio.sleep(60)
            assert len(world.api.writes) == writes
            world.api.refuse = lambda _method, where: 403 if "/namespaces/one/configmaps" in where else 0
            world.api.end_watches({"type": "ERROR", "object": {}})
            await asyncio.sleep(20)
            assert world.condition("Stalled")[:2] == ("True", "NotPermitted"), "rights that are really gone are reported"

    run(story())


def test_an_invalid_response_does_not_end_a_watch(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        original = world.api.request
        bad = 1

        async def request(method: str, where: str, **rest: object) -> Json:
            nonlocal bad
            if bad and where.endswith("/configmaps"):
                bad -= 1
                raise ValueError("<html>")
            return await original(method, where, **rest)  # type: ignore[arg-type]

        world.api.request = request  # type: ignore[method-assign,assignment]
        async with world:
            await asyncio.sleep(20)
            assert world.condition("Ready")[0] == "True"
            world.api.delete(CONFIG)
            await asyncio.sleep(5)
            assert CONFIG in world.api.objects

    run(story())


@pytest.mark.parametrize("pause", [0.2, 1.0, 5.0])
def test_another_writer_of_an_object_is_reported_and_not_raced(tmp_path: Path, pause: float) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            async with world.opponent(CONFIG, pause):
                await asyncio.sleep(600)
            assert len(world.engine.started) < 40
            assert any("/events" in name and found["reason"] == "ReconcileConflict" for name, found in world.api.objects.items())
            await asyncio.sleep(700)
            count = len(world.engine.started)
            world.api.delete(CONFIG)
            await asyncio.sleep(2)
            assert CONFIG in world.api.objects, "once it is over drift is repaired at once again"
            assert len(world.engine.started) > count

    run(story())


def test_different_objects_that_drift_one_after_the_other_are_no_conflict(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        wanted = [CONFIG, WORKER, WORKER.replace("worker", "login"), WORKER.replace("worker", "controller")]

        async def script(request: Request) -> tuple[list[Json], int]:
            missing = [where.rsplit("/", 2)[-2:] for where in wanted if where not in world.api.objects]
            await world.well(request)
            rows = [{"kind": kind, "name": name, "result": "created"} for kind, name in missing]
            return ([{**CHANGED[0], "objects": rows}, *OK] if rows else OK), 0

        world.engine.script = script
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            for _round in range(3):
                for where in wanted:
                    world.api.delete(where)
                    await asyncio.sleep(2)
                    assert where in world.api.objects
            assert not any("/events" in name and found["reason"] == "ReconcileConflict" for name, found in world.api.objects.items())

    run(story())


def test_another_writer_of_one_object_delays_no_other_object_and_no_scaling(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)

            async with world.opponent(CONFIG):
                await asyncio.sleep(400)
                world.api.delete(WORKER)
                await asyncio.sleep(2)
                assert WORKER in world.api.objects
                count = len(world.engine.started)
                labels = {**LABELS, INSTANCE: "a"}
                where = "/apis/corral.hpc/v1alpha1/namespaces/one/slurmnodesets/a-cpu"
                world.api.put(where, {"metadata": {"name": "a-cpu", "labels": labels}, "spec": {"replicas": 5}})
                await asyncio.sleep(2)
                assert len(world.engine.started) > count

    run(story())


def test_a_conflict_is_seen_while_jobs_are_waited_for_too(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        waits = {"waiting": ["cpu-1"]}

        async def script(request: Request) -> tuple[list[Json], int]:
            lines, code = await world.well(request)
            return [*lines[:-1], {**OK[1], **waits}, lines[-1]], code

        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            world.engine.script = script

            async with world.opponent(CONFIG):
                await asyncio.sleep(600)
                assert len(world.engine.started) < 100, "every 15 s for the jobs, and no more"

    run(story())


def test_a_watch_that_is_refused_where_a_list_is_not_is_reported(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        original = world.api.watch

        def watch(where: str, **rest: Any) -> AsyncIterator[Json]:
            if "/configmaps" in where:
                raise api_error(Status(403, message="refused"), "watch", server="fake")
            return original(where, **rest)

        world.api.watch = watch  # type: ignore[method-assign,assignment]
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(60)
            assert world.condition("Stalled")[:2] == ("True", "NotPermitted")

    run(story())


def test_a_second_writer_is_noticed_in_runs_that_only_wait(tmp_path: Path) -> None:
    """Each of its writes would restart the run: it is reported, and the object is left alone for a while, and does not count as ready."""

    async def story() -> None:
        async def waits(_request: Request) -> tuple[list[Json], int]:
            world.make()
            await asyncio.sleep(200)
            return OK, 0

        world = World(tmp_path, waits)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(5)
            for second in range(42):
                found = world.api.objects[CONFIG]
                fields = [{"manager": "kubectl", "time": f"2026-01-01T00:01:{second:02}Z"}]
                world.api.put(CONFIG, {**found, "metadata": {**found["metadata"], "managedFields": fields}})
                await asyncio.sleep(1.8)
            assert len(world.engine.started) < 10
            assert any("/events" in name and found["reason"] == "ReconcileConflict" for name, found in world.api.objects.items())
            assert world.condition("Ready")[:2] == ("False", "ReconcileConflict")
            assert world.condition("Degraded")[:2] == ("True", "ReconcileConflict")
            assert "ConfigMap a-config" in world.condition("Ready")[2]
            world.engine.script = world.well
            await asyncio.sleep(1000)
            assert world.condition("Ready")[0] == "True", "it is over"

    run(story())


class Keys(World):
    """A world in which a run also sets the keys of a ConfigMap, and another writer removes one, which gives it no ownership of a field."""

    def stamp(self) -> str:
        second = int(asyncio.get_running_loop().time())
        return f"2026-01-{1 + second // 86400:02}T{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}Z"

    def write(self, *keys: str, time: str) -> None:
        found = self.api.objects[CONFIG]
        fields = [{"manager": "corral", "operation": "Apply", "time": time, "fieldsV1": {"f:data": {f"f:{key}": {} for key in keys}}}]
        metadata = {**found["metadata"], "managedFields": fields}
        self.api.put(CONFIG, {**found, "metadata": metadata, "data": dict.fromkeys(keys, "x")})

    def take_away(self) -> None:
        self.write("gres.conf", time=self.api.objects[CONFIG]["metadata"]["managedFields"][0]["time"])

    @property
    def wrong(self) -> bool:
        return "slurm.conf" not in self.api.objects[CONFIG].get("data", {})

    async def well(self, request: Request) -> tuple[list[Json], int]:
        lines, code = await super().well(request)
        if CONFIG in self.api.objects and self.wrong:
            self.write("slurm.conf", "gres.conf", time=self.stamp())
            return CHANGED, 0
        return lines, code


@pytest.mark.parametrize("pause", [0.3, 3.0, 20.0])
def test_another_writer_that_deletes_a_key_is_reported_while_it_is_missing(tmp_path: Path, pause: float) -> None:
    async def story() -> None:
        world = Keys(tmp_path)
        world.api.put(path(), document())
        untold = 0.0
        async with world:
            await asyncio.sleep(20)

            async def opponent() -> None:
                while True:
                    if not world.wrong:
                        world.take_away()
                    await asyncio.sleep(pause)

            fight = asyncio.create_task(opponent())
            for _turn in range(6000):
                await asyncio.sleep(0.1)
                if world.wrong and (world.condition("Ready")[0] == "True" or world.condition("Degraded")[0] == "False"):
                    untold += 0.1
            fight.cancel()
            assert untold < 6, "but for the five repairs that come first"
            assert world.condition("Ready")[:2] == ("False", "ReconcileConflict")
            assert len(world.engine.started) < 60
            await asyncio.sleep(1000)
            assert not world.wrong
            assert world.condition("Ready")[0] == "True", "it is over"

    run(story())


def test_a_key_that_is_taken_away_has_a_waiting_run_begin_anew(tmp_path: Path) -> None:
    async def story() -> None:
        async def waits(request: Request) -> tuple[list[Json], int]:
            answer = await World.well(world, request)
            if world.wrong:
                world.write("slurm.conf", "gres.conf", time=world.stamp())
            await asyncio.sleep(300)
            return answer

        world = Keys(tmp_path, waits)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(20)
            assert not world.wrong
            world.take_away()
            await asyncio.sleep(10)
            assert not world.wrong
            assert len(world.engine.started) == 2

    run(story())


def test_an_overwrite_during_a_run_is_not_left_until_the_next_run_for_jobs(tmp_path: Path) -> None:
    async def story() -> None:
        world = Keys(tmp_path, scale_again=120.0)
        waits = {"waiting": ["cpu-1"]}
        spoilt = False

        async def script(request: Request) -> tuple[list[Json], int]:
            nonlocal spoilt
            lines, code = await world.well(request)
            if not spoilt:
                spoilt = True
                await asyncio.sleep(0.5)
                world.take_away()
                await asyncio.sleep(0.5)
            return [*lines[:-1], {**OK[1], **waits}, lines[-1]], code

        world.api.put(path(), document())
        async with world:
            world.engine.script = script
            await asyncio.sleep(10)
            assert spoilt and not world.wrong

    run(story())


def test_a_pushed_document_against_ours_is_two_writers_too(tmp_path: Path) -> None:
    """A playbook that a person runs writes by the name that runs have."""

    async def story() -> None:
        world = Keys(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(20)
            for _turn in range(60):
                if not world.wrong:
                    world.write("gres.conf", time=world.stamp())
                await asyncio.sleep(5)
            assert world.wrong
            assert world.condition("Ready")[:2] == ("False", "ReconcileConflict")
            assert world.condition("Degraded")[:2] == ("True", "ReconcileConflict")

    run(story())


@pytest.mark.parametrize("label", [None, "b"])
def test_an_object_without_its_clusters_label_is_drift(tmp_path: Path, label: str | None) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(20)
            world.engine.started.clear()
            found = world.api.objects[CONFIG]
            labels = {**LABELS, **({INSTANCE: label} if label else {})}
            world.api.put(CONFIG, {**found, "metadata": {**found["metadata"], "labels": labels}})
            await asyncio.sleep(2)
            assert world.engine.started, "a run sets it right, or says whose it is"

    run(story())


def test_a_namespace_without_rights_is_asked_about_a_few_times_a_minute(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        asked: list[str] = []

        def refuse(_method: str, where: str) -> int:
            if "/namespaces/one/" in where and "slurmclusters" not in where:
                asked.append(where)
                return 403
            return 0

        world.api.refuse = refuse
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(600)
            asked.clear()
            await asyncio.sleep(600)
            assert len(asked) < 100
            world.api.refuse = lambda _method, _where: 0
            await asyncio.sleep(25)
            assert world.condition("Ready")[0] == "True", "a right that comes is noticed as soon as before"

    run(story())


@pytest.mark.parametrize("refused", [0, 403, 404])
def test_the_kind_of_another_operator_is_watched_where_a_document_needs_it(tmp_path: Path, refused: int) -> None:
    async def story() -> None:
        world = World(tmp_path)
        asked: list[str] = []

        def refuse(_method: str, where: str) -> int:
            if "k8s.mariadb.com" in where:
                asked.append(where)
                return refused
            return 0

        world.api.refuse = refuse
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            assert world.condition("Ready")[0] == "True"
            assert asked == []
            world.api.put(path(), document(accounting={"database": {"mariadbOperator": {}}}))
            await asyncio.sleep(10)
            assert set(asked) == {"/apis/k8s.mariadb.com/v1alpha1/namespaces/one/mariadbs"}
            assert world.condition("Ready")[0] == "True"

    run(story())
