# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a cluster is made, settled and taken away, and what becomes of runs that fail."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.runs import report

from ..world import CHANGED, CONFIG, FAILED, INSTANCE, LABELS, OK, WORKER, Json, Request, World, document, path, run


def test_a_cluster_is_made_and_then_left_alone(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            assert world.engine.playbooks() == ["site", "site"], "the second run proves that nothing is left to do"
            assert world.condition("Ready") == ("True", "InService", "2 of 2 nodes are in service.")
            assert world.condition("Reconciling")[0] == world.condition("Stalled")[0] == world.condition("Degraded")[0] == "False"
            assert world.status()["observedGeneration"] == 1
            assert world.status()["nodes"] == {"total": 2, "inService": 2, "drained": 0, "down": 0}
            world.api.writes.clear()
            await asyncio.sleep(3600)
            assert world.api.writes == [], "a quiet cluster is not written"
            assert len(world.engine.started) == 2

    run(story())


def test_other_content_is_another_cluster(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
        world.engine.started.clear()
        world.content = "content-2"
        world.controller = world.new_controller()
        async with world:
            await asyncio.sleep(10)
        assert world.engine.playbooks() == ["site"]
        assert world.status()["revision"] == "content-2"

    run(story())


def test_scaling_a_node_set_is_a_run_and_its_size_is_written_once(tmp_path: Path) -> None:
    async def story() -> None:
        asks = "/apis/corral.hpc/v1alpha1/namespaces/one/slurmnodesets/a-worker"
        world = World(tmp_path)

        async def scales(request: Request) -> tuple[list[Json], int]:
            answer = await World.well(world, request)
            worker, wanted = world.api.objects[WORKER], world.api.objects[asks]["spec"]["replicas"]
            if worker["spec"]["replicas"] == wanted:
                return answer
            world.api.put(WORKER, {**worker, "spec": {"replicas": wanted}, "status": {**worker["status"], "readyReplicas": wanted}})
            return CHANGED, 0

        world.engine.script = scales
        world.api.put(path(), document())
        labels = {**LABELS, INSTANCE: "a"}
        world.api.put(asks, {"metadata": {"name": "a-worker", "labels": labels}, "spec": {"replicas": 1}})
        async with world:
            await asyncio.sleep(10)
            assert world.api.objects[asks]["status"] == {"replicas": 1}
            began = len(world.engine.started)
            world.api.put(asks, {**world.api.objects[asks], "spec": {"replicas": 3}})  # kubectl scale
            await asyncio.sleep(2)
            assert len(world.engine.started) > began
            assert world.api.objects[WORKER]["spec"]["replicas"] == 3
            await asyncio.sleep(10)
            assert world.api.objects[asks]["status"] == {"replicas": 3}
            reasons = [found["reason"] for name, found in world.api.objects.items() if "/events/" in name]
            assert (reasons.count("Scaled"), reasons.count("Repaired")) == (1, 0)
            writes, count = len(world.api.writes), len(world.engine.started)
            await asyncio.sleep(1000)
            assert (len(world.api.writes), len(world.engine.started)) == (writes, count)

    run(story())


def test_a_broken_cluster_backs_off_reports_why_and_delays_no_other(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)

        async def script(request: Request) -> tuple[list[Json], int]:
            if "/bad/" in request.private_data_dir + "/":
                await asyncio.sleep(1)
                return FAILED, 2
            return await world.well(request)

        world.engine.script = script
        world.api.put(path("bad"), document("bad"))
        async with world:
            await asyncio.sleep(30)
            tries = len(world.engine.started)
            assert 4 <= tries <= 6, "after 1, 2, 4, 8 and 16 seconds"
            assert world.condition("Ready", "bad") == ("False", "RunFailed", "Apply: ConfigMap a-config was refused.")
            assert world.condition("Degraded", "bad")[0] == "True"
            assert world.status("bad")["lastFailure"] == "Apply: ConfigMap a-config was refused."
            world.api.put(path("a"), document("a"))
            await asyncio.sleep(2)
            assert world.condition("Ready", "a")[0] == "True"

    run(story())


def test_a_cluster_that_never_settles_gets_runs_less_and_less_often(tmp_path: Path) -> None:
    async def story() -> None:
        async def script(_request: Request) -> tuple[list[Json], int]:
            return CHANGED, 0

        world = World(tmp_path, script)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(3600)
            assert len(world.engine.started) < 30
            assert any("/events" in name and found["reason"] == "ReconcileConflict" for name, found in world.api.objects.items())

    run(story())


@pytest.mark.parametrize(("waits", "runs"), [(True, 40), (False, 10)])
def test_a_later_run_follows_what_only_slurm_knows(tmp_path: Path, waits: bool, runs: int) -> None:
    """Nothing of Kubernetes changes when a deadline passes, a window begins, or the last job of a partition ends."""

    async def story() -> None:
        async def script(_request: Request) -> tuple[list[Json], int]:
            waiting = ["cpu-0 (job 7 of ada)"] if waits else []
            return [{"kind": "ok", "task": "Roll", "waiting": waiting, "left": True, "lines": ["1 of 2"]}, *OK], 0

        world = World(tmp_path, script)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            began = len(world.engine.started)
            await asyncio.sleep(600)
            assert len(world.engine.started) - began == pytest.approx(runs, abs=1)
            assert world.status()["waitingFor"] == "1 of 2" + "; jobs on draining nodes: cpu-0 (job 7 of ada)" * waits

    run(story())


def test_going_back_to_the_applied_spec_is_ready_at_once_without_a_run(tmp_path: Path) -> None:
    """The new generation asks for what the last run has verified: there is nothing to do, and Ready must be true for its generation."""

    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            runs = len(world.engine.started)
            spec = world.api.objects[path()]["spec"]
            world.api.put(
                path(), {**world.api.objects[path()], "spec": document(partitions=[{"name": "main", "nodeSets": ["nosuch"]}])["spec"]}
            )
            await asyncio.sleep(2)
            assert world.condition("Ready")[:2] == ("False", "DocumentInvalid")
            world.api.put(path(), {**world.api.objects[path()], "spec": spec})
            await asyncio.sleep(2)
            assert len(world.engine.started) == runs
            assert world.status()["observedGeneration"] == world.api.objects[path()]["metadata"]["generation"] == 3
            ready = next(one for one in world.status()["conditions"] if one["type"] == "Ready")
            assert (ready["status"], ready["observedGeneration"]) == ("True", 3)
            assert world.condition("Reconciling")[:2] == ("False", "Done")
            assert world.condition("Degraded")[0] == "False"

    run(story())


@pytest.mark.parametrize("killed", [False, True])
def test_going_back_after_a_run_has_begun_takes_a_run(tmp_path: Path, killed: bool) -> None:
    """It may have drained a node, which no object shows."""

    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)

            async def slow(_request: Request) -> tuple[list[Json], int]:
                await asyncio.sleep(1000)
                return OK, 0

            world.engine.script = slow
            spec = world.api.objects[path()]["spec"]
            world.api.put(path(), {**world.api.objects[path()], "spec": document(partitions=[{"name": "main"}])["spec"]})
            await asyncio.sleep(1)
            runs = len(world.engine.started)
            if not killed:
                world.engine.script = world.well
                world.api.put(path(), {**world.api.objects[path()], "spec": spec})
                await asyncio.sleep(10)
        if killed:
            world.engine.script = world.well
            world.api.put(path(), {**world.api.objects[path()], "spec": spec})
            world.controller = world.new_controller()
            async with world:
                await asyncio.sleep(10)
        assert len(world.engine.started) > runs
        assert world.condition("Ready")[0] == "True"

    run(story())


@pytest.mark.parametrize(("policy", "keep"), [(None, True), ("Keep", True), ("Delete", False)])
def test_a_deleted_document_takes_the_cluster_away(tmp_path: Path, policy: str | None, keep: bool) -> None:
    async def story() -> None:
        world = World(tmp_path)
        given: list[Json] = []

        async def script(request: Request) -> tuple[list[Json], int]:
            if request.playbook.endswith("destroy"):
                given.append(json.loads(request.extravars.read_text()))
            return await world.well(request)

        world.engine.script = script
        world.api.put(path(), document(**({"deletion": {"data": policy}} if policy else {})))
        async with world:
            await asyncio.sleep(10)
            assert world.api.objects[path()]["metadata"]["finalizers"] == ["corral.hpc/destroy"]
            world.api.delete(path())
            await asyncio.sleep(10)
            assert path() not in world.api.objects
            assert given[0]["keep_data"] is keep
            assert given[0].get("confirm") == (None if keep else "a")
            assert not (world.settings.scratch / "one" / "a").exists()

    run(story())


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("rights", [False, True])
def test_a_document_is_released_at_once_with_its_namespace(tmp_path: Path, rights: bool, paused: bool) -> None:
    """The namespace's controller deletes the RoleBinding as early as anything else: then nothing of the namespace may be listed any more."""

    async def story() -> None:
        world = World(tmp_path)
        world.api.put("/api/v1/namespaces/one", {"metadata": {"name": "one"}})
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            count = len(world.engine.started)
            if paused:
                world.pause()
            world.api.objects["/api/v1/namespaces/one"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            if not rights:
                world.api.refuse = lambda _method, where: 403 if "/namespaces/one/" in where and "/slurmclusters" not in where else 0
                world.api.end_watches()
            world.api.delete(path())
            await asyncio.sleep(5)
            assert path() not in world.api.objects
            assert len(world.engine.started) == count, "there was nothing to do any more"

    run(story())


def test_deletion_ends_the_run_that_is_under_way(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)

        async def script(request: Request) -> tuple[list[Json], int]:
            if request.playbook.endswith("site"):
                world.make()
                await asyncio.sleep(1000)
            return await world.well(request)

        world.engine.script = script
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(5)
            world.api.delete(path())
            await asyncio.sleep(5)
            assert world.engine.playbooks() == ["site", "destroy"]
            assert path() not in world.api.objects

    run(story())


def test_nodes_that_wait_for_their_jobs_are_come_back_to(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        left = 3

        async def script(request: Request) -> tuple[list[Json], int]:
            nonlocal left
            lines, code = await world.well(request)
            left -= 1
            waiting = ["cpu-1 (job 7 of alice)"] if left > 0 else []
            return [*lines, {"kind": "ok", "task": "Scale", "role": "", "changed": False, "waiting": waiting}], code

        world.engine.script = script
        world.make()
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            assert world.condition("Ready")[0] == "True"
            assert world.condition("Reconciling")[:2] == ("True", "WaitingForJobs")
            assert "cpu-1 (job 7 of alice)" in world.status()["waitingFor"]
            assert len(world.engine.started) == 1
            await asyncio.sleep(40)
            assert "waitingFor" not in world.status()
            assert world.condition("Reconciling")[0] == "False"

    run(story())


@pytest.mark.parametrize("how", ["deleted", "deleting", "paused", "edited"])
@pytest.mark.parametrize("during", ["finalizer", "status"])
def test_what_changes_while_a_run_is_prepared_is_heeded(tmp_path: Path, how: str, during: str) -> None:
    async def story() -> None:
        world = World(tmp_path)
        given: list[Json] = []

        async def script(request: Request) -> tuple[list[Json], int]:
            given.append(json.loads(Path(request.private_data_dir, "cluster.json").read_text())["spec"])
            return await world.well(request)

        world.engine.script = script
        original = world.api.request
        armed = during == "finalizer"

        async def request(method: str, where: str, **rest: object) -> Json:
            nonlocal armed
            ours = where == (path() if during == "finalizer" else f"{path()}/status")
            if armed and method == "PATCH" and ours:
                armed = False
                found = world.api.objects[path()]
                if how == "deleted":
                    found["metadata"].pop("finalizers", None)
                    world.api.delete(path())
                elif how == "deleting":
                    found["metadata"]["finalizers"] = [*found["metadata"].get("finalizers", ()), "example.com/other"]
                    world.api.delete(path())
                elif how == "paused":
                    world.pause()
                else:
                    world.edit(accounting={"last": True})
                await asyncio.sleep(0.1)
            return await original(method, where, **rest)  # type: ignore[arg-type]

        world.api.request = request  # type: ignore[method-assign,assignment]
        world.api.put(path(), document())
        async with world:
            if during == "status":
                await asyncio.sleep(10)
                given.clear()
                world.engine.started.clear()
                armed = True
                world.edit(maintenance="Workers")
            await asyncio.sleep(10)
            assert not armed
            if how == "deleting" and during == "status":
                assert world.engine.playbooks() == ["destroy"]
            else:
                assert not given, "of what was decided nothing may be made"
            assert len(world.controller.cache.clusters) == (path() in world.api.objects)

    run(story())


@pytest.mark.parametrize("kept", [True, False])
def test_a_cluster_whose_document_has_become_invalid_is_taken_away_by_the_one_that_made_it(tmp_path: Path, kept: bool) -> None:
    async def story() -> None:
        world = World(tmp_path)
        given: list[tuple[Json, Json]] = []

        async def script(request: Request) -> tuple[list[Json], int]:
            if request.playbook.endswith("destroy"):
                made = json.loads(Path(request.private_data_dir, "cluster.json").read_text())
                given.append((made["spec"], json.loads(request.extravars.read_text())))
            return await world.well(request)

        world.engine.script = script
        good = document()
        world.api.put(path(), good)
        async with world:
            await asyncio.sleep(10)
            if kept:
                wrong = {**good, "spec": {**good["spec"], "partitions": [{"name": "main", "nodeSets": ["gone"]}]}}
                world.keep(good, wrong)
            edited = {"partitions": [{"name": "main", "nodeSets": ["nowhere"]}], "deletion": {"data": "Delete"}}
            world.edit(**edited)
            await asyncio.sleep(10)
            assert world.condition("Stalled")[:2] == ("True", "DocumentInvalid")
            world.api.delete(path())
            await asyncio.sleep(10)
            # Without a history, the playbook uses the valid parts of the document: a deletion waits for no correction.
            assert path() not in world.api.objects
            assert [spec for spec, _variables in given] == [good["spec"] if kept else {**good["spec"], **edited}]
            assert given[0][1]["keep_data"] is False

    run(story())


@pytest.mark.parametrize("during", ["the read of the namespace", "the response for the finalizer", "the history"])
def test_a_pause_that_comes_while_something_is_asked_is_heeded(tmp_path: Path, during: str) -> None:
    async def story() -> None:
        world = World(tmp_path)
        original, armed = world.api.request, False
        part = {"the read of the namespace": "/namespaces/one", "the response for the finalizer": path(), "the history": "-base-revisions"}[
            during
        ]

        async def request(method: str, where: str, **rest: object) -> Json:
            nonlocal armed
            answer: Json | Exception
            try:
                answer = await original(method, where, **rest)  # type: ignore[arg-type]
            except CorralError as error:
                answer = error
            if armed and where.endswith(part) and method == ("PATCH" if part == path() else "GET"):
                armed = False
                world.pause()
                await asyncio.sleep(0.1)
            if isinstance(answer, Exception):
                raise answer
            return answer

        world.api.request = request  # type: ignore[method-assign,assignment]
        armed = part == path()
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            if part == path():
                assert not armed and world.engine.playbooks() == []
                return
            world.keep(document())
            if during == "the history":
                world.edit(partitions=[{"name": "main", "nodeSets": ["nowhere"]}])
                await asyncio.sleep(5)
            armed = True
            world.api.delete(path())
            await asyncio.sleep(10)
            assert not armed
            assert "destroy" not in world.engine.playbooks()
            assert path() in world.api.objects

    run(story())


def test_one_whose_first_run_failed_is_destroyed_by_the_tried_document(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        given: list[Json] = []

        async def script(request: Request) -> tuple[list[Json], int]:
            if request.playbook.endswith("destroy"):
                given.append(json.loads(Path(request.private_data_dir, "cluster.json").read_text())["spec"])
                return await world.well(request)
            world.make()
            return FAILED, 2

        world.engine.script = script
        tried, done = document(), document(slurm={"extraConfig": ["MinJobAge=9"]})
        world.api.put(path(), tried)
        async with world:
            await asyncio.sleep(3)
            world.keep(done, tried=tried)
            world.edit(partitions=[{"name": "main", "nodeSets": ["nowhere"]}])
            await asyncio.sleep(5)
            world.api.delete(path())
            await asyncio.sleep(10)
            assert path() not in world.api.objects
            assert given == [tried["spec"], done["spec"]], "what either has made, its data too"

    run(story())


def test_a_failed_run_whose_status_can_not_be_written_counts_once(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            bad = 1
            seen: list[str] = []

            async def script(request: Request) -> tuple[list[Json], int]:
                nonlocal bad
                if bad:
                    bad -= 1
                    world.api.refuse = lambda method, where: 500 if method == "PATCH" and where.endswith("/status") else 0
                    asyncio.get_running_loop().call_later(0.1, setattr, world.api, "refuse", lambda _method, _where: 0)
                    return FAILED, 2
                seen.append(world.condition("Ready")[0])
                return await world.well(request)

            world.engine.script = script
            world.api.delete(CONFIG)
            await asyncio.sleep(20)
            assert seen and set(seen) == {"True"}
            reasons = {found["reason"] for name, found in world.api.objects.items() if "/events" in name}
            assert "OperatorError" not in reasons and "RunFailed" in reasons

    run(story())


@pytest.mark.parametrize("trouble", ["its own writing", "a pod that crashes", "another writer"])
def test_a_broken_document_asks_ever_less(tmp_path: Path, trouble: str) -> None:
    """Whatever of the half-made cluster moves: what its run writes, pods that become ready and crash again, another controller."""

    async def story() -> None:
        async def script(_request: Request) -> tuple[list[Json], int]:
            world.make()
            await asyncio.sleep(0.2)
            if trouble == "its own writing":
                asyncio.get_running_loop().call_later(0.5, touch, CONFIG, "corral")
            return FAILED, 2

        def touch(where: str, manager: str) -> None:
            found = world.api.objects[where]
            fields = [{"manager": manager, "time": f"2026-01-01T00:00:{world.api.version % 60:02}Z"}]
            world.api.put(
                where, {**found, "metadata": {**found["metadata"], "managedFields": fields, "annotations": {"n": str(world.api.version)}}}
            )

        async def trouble_maker() -> None:
            for turn in itertools.count():
                await asyncio.sleep(5)
                if trouble == "somebody else":
                    touch(CONFIG, "kubectl")
                elif trouble == "a pod that crashes":
                    state = {"observedGeneration": 1, "readyReplicas": turn % 2, "currentRevision": "r", "updateRevision": "r"}
                    world.api.put(WORKER, {**world.api.objects[WORKER], "status": state})

        world = World(tmp_path, script)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(3)
            maker = asyncio.create_task(trouble_maker())
            await asyncio.sleep(297)
            began = len(world.engine.started)
            assert began < 14
            await asyncio.sleep(1200)
            maker.cancel()
            assert len(world.engine.started) - began <= 5

    run(story())


def test_what_has_become_well_cuts_a_pause_short_once(tmp_path: Path) -> None:
    async def story() -> None:
        async def script(_request: Request) -> tuple[list[Json], int]:
            world.make()
            await asyncio.sleep(0.2)
            return (OK, 0) if world.api.objects[WORKER]["status"]["readyReplicas"] else (FAILED, 2)

        world = World(tmp_path, script)
        world.make()
        state = world.api.objects[WORKER]["status"]
        world.api.put(WORKER, {**world.api.objects[WORKER], "status": {**state, "readyReplicas": 0}})
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(400)
            world.api.put(WORKER, {**world.api.objects[WORKER], "status": {**state, "readyReplicas": 1}})
            await asyncio.sleep(3)
            assert world.condition("Ready")[0] == "True"

    run(story())


def test_repaired_is_what_was(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)

        async def overwritten(request: Request) -> tuple[list[Json], int]:
            answer = await World.well(world, request)
            if answer[0] is CHANGED:
                world.api.delete(CONFIG)
                await asyncio.sleep(0.1)
            return answer

        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            world.engine.script = overwritten
            world.api.delete(CONFIG)
            await asyncio.sleep(1)
            assert not any("/events" in name and found["reason"] == "Repaired" for name, found in world.api.objects.items())
            world.engine.script = world.well
            assert "lastDrift" not in world.status()
            await asyncio.sleep(100)
            assert any("/events" in name and found["reason"] == "Repaired" for name, found in world.api.objects.items())
            drift = world.status()["lastDrift"]
            assert drift["changes"] == ["ConfigMap a-config created"] and drift["repairedAt"].endswith("Z")
            writes = len(world.api.writes)
            await asyncio.sleep(1000)
            assert len(world.api.writes) == writes and world.status()["lastDrift"] == drift

    run(story())


def test_removed_fields_are_reported_with_field_and_manager(tmp_path: Path) -> None:
    async def story() -> None:
        row = {"kind": "NetworkPolicy", "name": "a-worker", "result": "foreign", "field": ".spec.egress", "manager": "kubectl-edit"}
        told = report.line(
            {"event": "runner_on_ok", "event_data": {"resolved_action": "corral.slurm.k8s_apply", "res": {"foreign": [row]}}}
        )
        assert told is not None

        async def script(_request: Request) -> tuple[list[Json], int]:
            return [told, *OK], 0

        world = World(tmp_path, script)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            events = [found for name, found in world.api.objects.items() if "/events" in name and found["reason"] == "ForeignFieldsRemoved"]
            assert len(events) == 1
            assert ".spec.egress of NetworkPolicy a-worker, by kubectl-edit" in events[0]["message"]

    run(story())
