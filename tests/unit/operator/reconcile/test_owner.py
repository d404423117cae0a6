# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operators side by side: a document has one owner, and no other operator writes to it. In simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Status, api_error
from corral_operator.reconcile import metadata
from corral_operator.settings import Settings

from ..world import FakeApi, Json, World, document, path, run

ANNOTATIONS = {metadata.OWNER: "default/corral-operator"}


class Other(World):
    """A second operator in the same world. ``forbidden``: a namespace without a RoleBinding for it."""

    def __init__(self, folder: Path, first: World, *, forbidden: str = "", **settings: Any) -> None:
        self._first = first
        super().__init__(folder, **{"lease_namespace": "other", **settings})
        self.api, self._link = first.api, _Link(first.api, forbidden)
        self.controller = self.new_controller()

    def new_controller(self) -> Any:
        real, self.api = self.api, getattr(self, "_link", self.api)
        try:
            return super().new_controller()
        finally:
            self.api = real


class _Link:
    """One operator's way to the API server."""

    def __init__(self, real: FakeApi, forbidden: str) -> None:
        self._real, self._forbidden = real, forbidden
        self.sent: dict[str, int] = {}
        self.writes: list[str] = []

    async def request(self, method: str, path: str, **more: Any) -> Json:
        if self._forbidden and f"/namespaces/{self._forbidden}/" in path and "corral.hpc" not in path:
            raise api_error(Status(403, message="no right"), str(more["what"]), server="fake")
        if method != "GET":
            self.writes.append(path)
        return await self._real.request(method, path, **more)

    def watch(self, path: str, **more: Any) -> Any:
        return self._real.watch(path, **more)


def reasons(world: World) -> set[str]:
    return {found["reason"] for name, found in world.api.objects.items() if "/events" in name}


def test_a_second_operator_without_rights_there_leaves_a_healthy_cluster_as_it_is(tmp_path: Path) -> None:
    async def story() -> None:
        first = World(tmp_path / "first", namespaces=("one",))
        second = Other(tmp_path / "second", first, forbidden="one")
        first.api.put(path(), document())
        async with second:
            async with first:
                await asyncio.sleep(60)
                assert first.condition("Ready")[0] == "True"
                assert first.api.objects[path()]["metadata"]["annotations"] == ANNOTATIONS
                first.api.writes.clear()
                await asyncio.sleep(3600)
                assert first.api.writes == []
            assert (second.engine.started, second._link.writes) == ([], []), "not one write, however long it takes"

    run(story())


def test_of_two_with_rights_one_creates_the_cluster_and_the_other_names_it(tmp_path: Path) -> None:
    async def story() -> None:
        first = World(tmp_path / "first")
        second = Other(tmp_path / "second", first)
        first.api.put(path(), document())
        async with first, second:
            await asyncio.sleep(60)
            owner = first.api.objects[path()]["metadata"]["annotations"][metadata.OWNER]
            made = {"default/corral-operator": first, "other/corral-operator": second}
            assert made.pop(owner).engine.playbooks() == ["site", "site"]
            assert [world.engine.started for world in made.values()] == [[]]
            assert "ManagedByOtherOperator" in reasons(first)
            first.api.delete(path())
            await asyncio.sleep(60)
            assert path() not in first.api.objects
            assert [world.engine.started for world in made.values()] == [[]]

    run(story())


def test_a_document_is_handed_over_by_its_annotation_with_what_its_status_remembers(tmp_path: Path) -> None:
    async def story() -> None:
        first = World(tmp_path / "first")
        second = Other(tmp_path / "second", first)
        first.api.put(path(), document())
        async with first:
            await asyncio.sleep(20)
            async with second:
                await asyncio.sleep(20)
                found = first.api.objects[path()]
                given = {**found["metadata"], "annotations": {metadata.OWNER: "other/corral-operator"}}
                first.api.put(path(), {**found, "metadata": given})
                await asyncio.sleep(20)
                first.engine.started.clear()
                assert second.engine.started == [], "the cluster is as its status says"
                first.api.delete("/api/v1/namespaces/one/configmaps/a-config")
                await asyncio.sleep(20)
                assert (len(first.engine.started), len(second.engine.started)) == (0, 2)

    run(story())


def test_a_document_that_no_operator_may_manage_has_that_in_its_status(tmp_path: Path) -> None:
    async def story() -> None:
        first = World(tmp_path / "first")
        first.api.refuse = lambda _method, where: 403 if "/namespaces/one/configmaps" in where else 0
        second = Other(tmp_path / "second", first, forbidden="one")
        first.api.put(path(), document())
        async with first, second:
            await asyncio.sleep(30)
            assert first.condition("Stalled")[:2] == ("True", "NotPermitted")
            assert "annotations" not in first.api.objects[path()]["metadata"]
            first.api.writes.clear()
            await asyncio.sleep(600)
            assert first.api.writes == [], "they do not write over one another"

    run(story())


def test_with_other_labels_it_is_managed_by_the_operator_of_those(tmp_path: Path) -> None:
    async def story() -> None:
        first = World(tmp_path / "first", selector="team=a")
        second = Other(tmp_path / "second", first, selector="team=b")
        given = document()
        given["metadata"]["labels"] = {"team": "a"}
        first.api.put(path(), given)
        async with first, second:
            await asyncio.sleep(20)
            found = first.api.objects[path()]
            moved = {**found, "metadata": {**found["metadata"], "labels": {"team": "b"}}}
            first.api.put(path(), moved)
            for collection, queue in first.api.watches:  # as an API server sends it to watches with these labels
                if collection.endswith("slurmclusters"):
                    queue.put_nowait({"type": "DELETED", "object": {**found, "metadata": {**found["metadata"], "labels": {"team": "a"}}}})
            await asyncio.sleep(20)
            assert first.api.objects[path()]["metadata"]["annotations"][metadata.OWNER] == "other/corral-operator"
            assert "Orphaned" not in reasons(first)

    run(story())


def without_finalizer(found: Json) -> Json:
    return {**found, "metadata": {**found["metadata"], "finalizers": []}}


def without_owner(found: Json) -> Json:
    return {**found, "metadata": {**found["metadata"], "annotations": {}}}


def without_status(found: Json) -> Json:
    return {key: value for key, value in found.items() if key != "status"}


def with_another_ready(found: Json) -> Json:
    status = found["status"]
    conditions = [{**one, "status": "False"} if one["type"] == "Ready" else one for one in status["conditions"]]
    return {**found, "status": {**status, "conditions": conditions}}


@pytest.mark.parametrize("harm", [without_finalizer, without_owner, without_status, with_another_ready])
def test_removed_metadata_of_a_document_is_restored_within_a_second(tmp_path: Path, harm: Callable[[Json], Json]) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(20)
            world.engine.started.clear()
            world.api.put(path(), harm(world.api.objects[path()]))
            await asyncio.sleep(1)
            found = world.api.objects[path()]["metadata"]
            assert (found["finalizers"], found["annotations"]) == ([metadata.FINALIZER], ANNOTATIONS)
            assert world.condition("Ready")[0] == "True"
            await asyncio.sleep(60)
            assert world.engine.started == [], "the cluster itself is as it was"
            world.api.writes.clear()
            for _second in range(600):
                world.api.put(path(), harm(world.api.objects[path()]))
                await asyncio.sleep(1)
            assert len(world.api.writes) < 40, "who goes on is not answered without end"

    run(story())


def test_a_finalizer_comes_back_while_a_run_is_under_way(tmp_path: Path) -> None:
    async def story() -> None:
        async def slow(_request: Any) -> tuple[list[Json], int]:
            await asyncio.sleep(300)
            return [], 0

        world = World(tmp_path, slow)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(20)
            world.api.put(path(), without_finalizer(world.api.objects[path()]))
            await asyncio.sleep(1)
            assert world.api.objects[path()]["metadata"]["finalizers"] == [metadata.FINALIZER]
            assert len(world.engine.started) == 1

    run(story())


def test_objects_whose_document_was_deleted_without_its_finalizer_are_reported(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        world.api.put(path("b"), document("b"))
        async with world:
            await asyncio.sleep(20)
            world.api.put(path(), {**world.api.objects[path()], "metadata": {**world.api.objects[path()]["metadata"], "finalizers": []}})
            world.api.delete(path())
            await asyncio.sleep(5)
            events = [found for name, found in world.api.objects.items() if "/events" in name and found["reason"] == "Orphaned"]
            assert len(events) == 1
            assert "4 objects remain" in events[0]["message"] and "corral.slurm.destroy" in events[0]["message"]
            world.controller.refresh_metrics()
            sample = {"namespace": "one", "cluster": "a"}
            assert world.metrics.registry.get_sample_value("corral_operator_objects_without_document", sample) == 4
            world.api.delete(path("b"))
            await asyncio.sleep(20)
            assert path("b") not in world.api.objects
            assert len([1 for name, found in world.api.objects.items() if "/events" in name and found["reason"] == "Orphaned"]) == 1

    run(story())


def test_they_are_reported_with_a_selector_and_for_the_namespaces_last_document(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path, selector="team=a")
        found = document()
        found["metadata"]["labels"] = {"team": "a"}
        world.api.put(path(), found)
        async with world:
            await asyncio.sleep(20)
            world.api.put(path(), without_finalizer(world.api.objects[path()]))
            world.api.delete(path())
            await asyncio.sleep(5)
            [event] = [found for name, found in world.api.objects.items() if "/events" in name and found["reason"] == "Orphaned"]
            assert "4 objects remain" in event["message"]

    run(story())


def test_an_operator_is_named_by_its_lease() -> None:
    assert Settings(lease_namespace="slurm-ops", lease_name="x").owner == "slurm-ops/x"
