# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents that come, change and go, and definitions of other versions."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import schema

from ..... import misoperations
from ...world import CONFIG, WORKER, Json, Request, World, document, path, run

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFuIGV4YW1wbGUga2V5IHRoYXQgbm9ib2R5IGhvbGRz"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/slurmclusters.corral.hpc"


def test_a_newer_document_ends_the_run_and_is_made(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)

        async def slow_once(request: Request) -> tuple[list[Json], int]:
            if len(world.engine.started) == 1:
                await asyncio.sleep(1000)
            return await world.well(request)

        world.engine.script = slow_once
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(5)
            world.api.put(path(), document(partitions=[{"name": "main"}]) | {"metadata": world.api.objects[path()]["metadata"]})
            await asyncio.sleep(10)
            assert len(world.engine.started) >= 2
            assert world.status()["observedGeneration"] == 2
            assert world.condition("Ready")[0] == "True"
            assert "lastFailure" not in world.status(), "to be superseded is no failure"

    run(story())


def test_an_invalid_document_is_reported_with_its_path_and_nothing_is_changed(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document(partitions=[{"name": "main", "nodeSets": ["nosuch"]}]))
        async with world:
            await asyncio.sleep(30)
            assert world.engine.started == []
            kind, reason, message = world.condition("Stalled")
            assert (kind, reason) == ("True", "DocumentInvalid")
            assert "spec.partitions[0].nodeSets[0]" in message
            right = {**world.api.objects[path()], "spec": document()["spec"]}
            world.api.put(path(), right)
            await asyncio.sleep(5)
            assert world.condition("Ready")[0] == "True"
            assert world.condition("Stalled")[0] == "False"

    run(story())


def test_no_wrong_document_touches_anything(tmp_path: Path) -> None:
    """Of all that people can mistype a sample; what the API server would have refused already is refused all the same."""

    async def story() -> None:
        world = World(tmp_path)
        wrong = {f"c{number}": one for number, one in enumerate(itertools.islice(misoperations.of(document()), 0, None, 4))}
        assert len(wrong) > 50
        for name, one in wrong.items():
            world.api.put(path(name), {**document(name), "spec": one.document["spec"]})
        async with world:
            await asyncio.sleep(30)
            for name, one in wrong.items():
                kind, reason, message = world.condition("Stalled", name)
                assert (kind, reason) == ("True", "DocumentInvalid"), one
                assert one.path in message, one
                assert world.condition("Ready", name)[0] == "False"
                assert "finalizers" not in world.api.objects[path(name)]["metadata"]
            assert world.engine.started == []
            assert {where.rpartition("/")[2] for _method, where in world.api.writes} == {"status", *wrong}, "status and owner"
            for name in wrong:  # and going back heals it
                world.api.put(path(name), {**world.api.objects[path(name)], "spec": document()["spec"]})
            await asyncio.sleep(60)
            assert {world.condition("Ready", name)[0] for name in wrong} == {"True"}

    run(story())


def test_documents_of_another_selector_are_another_operators(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path, selector="team=physics")
        mine = document("mine")
        mine["metadata"]["labels"] = {"team": "physics"}
        world.api.put(path("mine"), mine)
        world.api.put(path("other"), document("other"))
        async with world:
            await asyncio.sleep(10)
            assert world.condition("Ready", "mine")[0] == "True"
            assert world.status("other") == {}

    run(story())


def test_paused_means_that_nothing_is_done(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        paused = document()
        paused["metadata"]["annotations"] = {"corral.hpc/paused": "true"}
        world.api.put(path(), paused)
        async with world:
            await asyncio.sleep(30)
            assert world.engine.started == []
            assert world.condition("Reconciling")[:2] == ("False", "Paused")
            found = world.api.objects[path()]
            found["metadata"]["annotations"] = {}
            world.api.put(path(), found)
            await asyncio.sleep(5)
            assert world.condition("Ready")[0] == "True"

    run(story())


def test_an_annotation_asks_for_a_run(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            count = len(world.engine.started)
            found = world.api.objects[path()]
            found["metadata"]["annotations"] = {"corral.hpc/requested-at": "now"}
            world.api.put(path(), found)
            await asyncio.sleep(10)
            assert len(world.engine.started) == count + 1

    run(story())


def test_with_another_definition_a_document_has_other_fields_and_the_same_generation(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document(newer="A"))
        async with world:
            await asyncio.sleep(10)
            assert world.condition("Stalled")[:2] == ("True", "DocumentInvalid")
            # An older operator came before its definition: the server ends the watches, and has the field no longer.
            world.api.objects[path()]["spec"].pop("newer")
            world.api.end_watches(None)
            await asyncio.sleep(10)
            assert world.condition("Stalled")[0] == "False"
            assert world.condition("Ready")[0] == "True"

    run(story())


def test_a_newer_definition_beside_this_operator_invalidates_no_document(tmp_path: Path) -> None:
    """Another operator on the same Kubernetes has brought it."""
    definition = schema.crd()
    fields = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["flavour"] = {"type": "string", "default": "sweet"}

    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            runs, status = len(world.engine.started), world.status()
            # The API server has the definition, ends the watches, and gives all documents the default.
            world.api.put(DEFINITION, definition)
            world.api.objects[path()]["spec"]["flavour"] = "sweet"
            world.api.end_watches(None)
            await asyncio.sleep(10)
            assert (len(world.engine.started), world.status()) == (runs, status), "its meaning has not changed"
            world.edit(users=[{"name": "alice", "uid": 10001, "sshKeys": [KEY]}])
            await asyncio.sleep(10)
            assert world.condition("Ready")[0] == "True"
            given = json.loads(Path(world.engine.started[-1].private_data_dir, "cluster.json").read_text())
            assert (given["spec"]["users"][0]["name"], "flavour" in given["spec"]) == ("alice", False)
            told = [
                found["message"] for name, found in world.api.objects.items() if "/events/" in name and found["reason"] == "NewerDefinition"
            ]
            assert len(told) == 1 and "spec.flavour" in told[0]
            assert "flavour" not in world.controller.without_unknown_fields(world.api.objects[path()])["spec"], "as the webhook sees it"
            world.edit(flavour="sour")
            await asyncio.sleep(10)
            assert world.condition("Stalled")[:2] == ("True", "DocumentInvalid")

    run(story())


@pytest.mark.parametrize("code", [403, 404])
def test_a_definition_that_may_not_be_read_is_taken_for_its_own(tmp_path: Path, code: int) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.refuse = lambda _method, where: code if where == DEFINITION else 0
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            assert world.condition("Ready")[0] == "True"

    run(story())


def test_a_document_that_wants_objects_of_an_older_one_is_refused_until_they_are_free(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        resources = {"limits": {"cpu": "1", "memory": "1Gi"}}
        world.api.put(path("m"), document("m", nodeSets=[{"name": "n-x", "resources": resources}]))
        second = document("m-n", nodeSets=[{"name": "x", "resources": resources}])
        second["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
        world.api.put(path("m-n"), second)
        async with world:
            await asyncio.sleep(20)
            assert world.condition("Ready", "m")[0] == "True"
            assert world.condition("Stalled", "m-n")[:2] == ("True", "DocumentInvalid")
            assert "m-n-x of a StatefulSet, which the cluster one/m has already" in world.condition("Ready", "m-n")[2]
            world.api.delete(path("m"))
            await asyncio.sleep(20)
            assert path("m") not in world.api.objects
            assert world.condition("Ready", "m-n")[0] == "True"

    run(story())


@pytest.mark.parametrize(("answers", "events"), [(0.05, 0.0), (0.0, 0.05), (0.0, 0.0)], ids=["event first", "answer first", "together"])
def test_what_it_writes_itself_is_its_own_whichever_comes_first(tmp_path: Path, answers: float, events: float) -> None:
    """The response to the write of a status or its watch event may come first. Without another writer there is no conflict and no further write."""

    async def story() -> None:
        world = World(tmp_path)
        world.api.response_delay, world.api.event_delay = answers, events
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            state = world.api.objects[WORKER]["status"]
            for _round in range(4):  # each is two writes of the status
                for ready in (0, state["readyReplicas"]):
                    world.api.writes.clear()
                    world.api.put(WORKER, {**world.api.objects[WORKER], "status": {**state, "readyReplicas": ready}})
                    await asyncio.sleep(3)
                    assert 1 <= world.api.writes.count(("PATCH", f"{path()}/status")) <= 2
            [cluster] = world.controller.cache.clusters.values()
            assert cluster.convergence.conflicts._repairs == {}, "nothing was set back"
            count = len(world.engine.started)
            world.api.delete(CONFIG)
            await asyncio.sleep(4)
            assert len(world.engine.started) >= count + 2, "a repair is soon followed by another run"

    run(story())


def test_a_moment_in_which_nothing_is_found_forgets_no_cluster(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            left = 1

            def refuse(method: str, where: str) -> int:
                nonlocal left
                if left and method == "GET" and where == path():
                    left -= 1
                    return 404
                return 0

            world.api.refuse = refuse
            world.api.delete(CONFIG)
            await asyncio.sleep(5)
            assert not left
            assert CONFIG in world.api.objects

    run(story())


def test_a_document_that_is_another_operators_now_is_left_alone(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path, selector="team=a")
        given = document()
        given["metadata"]["labels"] = {"team": "a"}
        world.api.put(path(), given)
        async with world:
            await asyncio.sleep(10)
            assert world.condition("Ready")[0] == "True"
            world.engine.started.clear()
            emit, world.api._emit = world.api._emit, lambda *_event: None  # type: ignore[method-assign]
            found = world.api.objects[path()]
            world.api.put(path(), {**found, "metadata": {**found["metadata"], "labels": {"team": "b"}}})
            world.api._emit = emit  # type: ignore[method-assign]
            world.api.delete(CONFIG)
            await asyncio.sleep(30)
            assert world.engine.started == []

    run(story())


def test_fifty_edits_in_a_row_are_a_few_runs_and_the_last_counts(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(20)
            began = len(world.engine.started)
            for number in range(50):
                world.edit(users=[{"name": "alice", "uid": 10001 + number, "sshKeys": [KEY]}])
                await asyncio.sleep(0.15)
            await asyncio.sleep(5)
            assert len(world.engine.started) - began < 10
            given = json.loads(Path(world.engine.started[-1].private_data_dir, "cluster.json").read_text())
            assert given["spec"]["users"][0]["uid"] == 10050
            assert world.status()["observedGeneration"] == world.api.objects[path()]["metadata"]["generation"]
            assert world.condition("Ready")[0] == "True"

    run(story())
