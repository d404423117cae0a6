# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole controller against an API server in memory, in simulated time."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import schema
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Status, api_error
from corral_operator.reconcile import runner
from corral_operator.runs import engine, report
from corral_operator.runs import run as run_module

from .... import misoperations
from ..world import CHANGED, FAILED, INSTANCE, LABELS, OK, FakeEngine, Json, Request, World, document, path, run

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFuIGV4YW1wbGUga2V5IHRoYXQgbm9ib2R5IGhvbGRz"
CONFIG = "/api/v1/namespaces/one/configmaps/a-config"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/slurmclusters.corral.hpc"
WORKER = "/apis/apps/v1/namespaces/one/statefulsets/a-worker"


@pytest.fixture(autouse=True)
def signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are no processes here: what would be sent to one goes to the engine that started it."""

    def kill(pid: int, number: int = 9) -> None:
        _engines[-1].signalled(pid, number)

    monkeypatch.setattr(run_module, "kill_tree", kill)
    monkeypatch.setattr(run_module.os, "kill", kill)


_engines: list[FakeEngine] = []


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


def test_a_cluster_can_be_looked_at_more_often_or_never(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path, resync=10_000)
        for name, wish in (("often", "100"), ("never", "0"), ("usual", ""), ("odd", "soon")):
            found = document(name)
            found["metadata"]["annotations"] = {"corral.hpc/resync": wish} if wish else {}
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


def test_the_run_gets_the_document_as_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    seen: list[tuple[Json, Json, int]] = []

    async def script(request: Request) -> tuple[list[Json], int]:
        variables = json.loads(request.extravars.read_text())
        file = Path(variables["slurm_cluster_file"])
        seen.append((json.loads(file.read_text()), variables, file.stat().st_mode & 0o777))
        return OK, 0

    async def story() -> None:
        world = World(tmp_path, script, variables={"slurm_workers_wait_timeout": 3600, "slurm_cluster_file": "/x", "corral_force": False})
        evil = document(users=[{"name": "alice", "uid": 10001, "sshKeys": [KEY + " {{ lookup('pipe', 'id') }}"]}])
        world.api.put(path(), evil)
        async with world:
            await asyncio.sleep(5)
        given, variables, mode = seen[0]
        assert given["spec"] == evil["spec"]
        assert set(given) == {"apiVersion", "kind", "metadata", "spec"}
        assert given["metadata"] == {"name": "a", "namespace": "one"}
        assert "lookup" not in json.dumps(variables)
        assert (variables["slurm_workers_wait_timeout"], variables["corral_force"]) == (3600, True), "the operator's own go first"
        assert mode == 0o600

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
            else:  # the watch never tells of it
                del world.api.objects[CONFIG]
            await asyncio.sleep(2 if harm != "missed" else 70)
            assert len(world.engine.started) > began
            assert CONFIG in world.api.objects
            await asyncio.sleep(10)
            count = len(world.engine.started)
            await asyncio.sleep(1000)
            assert len(world.engine.started) == count

    run(story())


def test_what_is_asked_of_a_node_set_is_a_run_and_its_size_is_told_once(tmp_path: Path) -> None:
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


def test_a_lost_pod_shows_at_once_and_is_over_when_it_is_back(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            status = world.api.objects[WORKER]["status"]
            world.api.put(WORKER, {**world.api.objects[WORKER], "status": {**status, "readyReplicas": 0}})
            await asyncio.sleep(1)
            assert world.condition("WorkersReady") == ("False", "NotReady", "0 of 1 pods of a-worker are ready.")
            assert world.condition("Ready")[:2] == ("False", "NotReady")
            world.api.put(WORKER, {**world.api.objects[WORKER], "status": status})
            await asyncio.sleep(5)
            assert world.condition("Ready")[0] == "True"

    run(story())


def test_a_status_that_may_not_be_written_is_tried_again_now_and_then(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            asked: list[str] = []

            def refuse(_method: str, where: str) -> int:
                if not where.endswith("/status"):
                    return 0
                asked.append(where)
                return 403

            world.api.refuse = refuse
            status = world.api.objects[WORKER]["status"]
            world.api.put(WORKER, {**world.api.objects[WORKER], "status": {**status, "readyReplicas": 0}})
            await asyncio.sleep(60)
            assert 3 <= len(asked) <= 12
            world.api.refuse = lambda _method, _where: 0
            await asyncio.sleep(11)
            assert world.condition("WorkersReady")[0] == "False"

    run(story())


def test_a_newer_document_ends_the_run_and_is_made(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)

        async def slow_once(request: Request) -> tuple[list[Json], int]:
            if len(world.engine.started) == 1:
                await asyncio.sleep(1000)
            return await world.well(request)

        world.engine.script = slow_once
        _engines.append(world.engine)
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


def test_a_broken_cluster_backs_off_says_why_and_delays_nobody(tmp_path: Path) -> None:
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


def test_metrics_tell_of_each_cluster_how_long_it_waits(tmp_path: Path) -> None:
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
        _engines.append(world.engine)
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
            assert (told("queue_adds_total", why="resync") or 0) >= 2
            assert (told("queue_work_seconds_sum", why="resync") or 0) >= 1.5
            world.api.delete(path("a"))
            await asyncio.sleep(60)
            assert told("cluster_ready", "a") is None, "one that is gone is told of no more"

    run(story())


def test_runs_that_only_wait_leave_room_for_others(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)

        async def script(request: Request) -> tuple[list[Json], int]:
            if "stuck" in request.private_data_dir:
                await asyncio.sleep(500)
            return await world.well(request)

        world.engine.script = script
        _engines.append(world.engine)
        for number in range(8):
            world.api.put(path(f"stuck{number}"), document(f"stuck{number}"))
        async with world:
            await asyncio.sleep(60)
            world.api.put(path("a"), document("a"))
            await asyncio.sleep(4)
            assert world.condition("Ready", "a")[0] == "True", "one of the waiting runs was sent to the end of the queue"

    run(story())


def test_a_cluster_that_never_settles_is_looked_at_ever_more_seldom(tmp_path: Path) -> None:
    async def story() -> None:
        async def script(_request: Request) -> tuple[list[Json], int]:
            return CHANGED, 0

        world = World(tmp_path, script)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(3600)
            assert len(world.engine.started) < 30
            assert any("/events" in name and found["reason"] == "DoesNotSettle" for name, found in world.api.objects.items())

    run(story())


def test_without_rights_nothing_is_touched_and_the_status_says_so(tmp_path: Path) -> None:
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


def test_a_wrong_document_is_told_with_its_path_and_nothing_is_touched(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(("waits", "runs"), [(True, 40), (False, 10)])
def test_what_slurm_has_to_tell_is_come_back_for(tmp_path: Path, waits: bool, runs: int) -> None:
    """Nothing of Kubernetes changes when a deadline passes, a window begins, or the last job of a partition ends."""

    async def story() -> None:
        async def script(_request: Request) -> tuple[list[Json], int]:
            waiting = {"slurm_rollout": ["cpu-0 (job 7 of ada)"] if waits else []}
            return [
                {"kind": "ok", "task": "Roll", "waiting": waiting, "left": {"slurm_rollout": True}, "lines": {"slurm_rollout": ["1 of 2"]}},
                *OK,
            ], 0

        world = World(tmp_path, script)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            began = len(world.engine.started)
            await asyncio.sleep(600)
            assert len(world.engine.started) - began == pytest.approx(runs, abs=1)
            assert world.status()["waitingFor"] == "1 of 2" + "; the jobs on nodes that go: cpu-0 (job 7 of ada)" * waits

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
            assert {where.rpartition("/")[2] for _method, where in world.api.writes} == {"status", *wrong}, "status, and who looks after it"
            for name in wrong:  # and going back heals it
                world.api.put(path(name), {**world.api.objects[path(name)], "spec": document()["spec"]})
            await asyncio.sleep(60)
            assert {world.condition("Ready", name)[0] for name in wrong} == {"True"}

    run(story())


def test_going_back_to_what_was_made_is_ready_at_once_without_a_run(tmp_path: Path) -> None:
    """The new generation asks for what the last run has proved to be there: nothing is to do, and whoever waits for Ready must be told so."""

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
            _engines.append(world.engine)
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
def test_a_document_goes_at_once_with_its_namespace(tmp_path: Path, rights: bool, paused: bool) -> None:
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
        _engines.append(world.engine)
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
            return [*lines, {"kind": "ok", "task": "Scale", "role": "", "changed": False, "waiting": {"slurm_scale": waiting}}], code

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


def test_a_run_that_takes_too_long_is_ended_and_told(tmp_path: Path) -> None:
    async def story() -> None:
        async def script(_request: Request) -> tuple[list[Json], int]:
            await asyncio.sleep(10_000)
            return OK, 0

        world = World(tmp_path, script, run_timeout=60)
        _engines.append(world.engine)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(65)
            assert world.condition("Ready")[:2] == ("False", "TimedOut")
            [event] = [found for name, found in world.api.objects.items() if "/events/" in name and found["reason"] == "TimedOut"]
            assert event["message"].startswith("The run was ended after 60 s")
            assert event["message"].endswith(f"Its output: {tmp_path}/runs/one/a/{world.engine.started[0].ident}/stdout in pod me.")

    run(story())


def test_a_run_that_says_nothing_for_too_long_is_ended_where_that_is_wanted(tmp_path: Path) -> None:
    async def story() -> None:
        async def script(_request: Request) -> tuple[list[Json], int]:
            await asyncio.sleep(10_000)
            return OK, 0

        world = World(tmp_path, script, idle_timeout=30)
        _engines.append(world.engine)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(25)
            assert len(world.engine.started) == 1
            await asyncio.sleep(10)
            assert world.condition("Ready")[:2] == ("False", "TimedOut")
            assert "said nothing for 30 s" in world.condition("Ready")[2]

    run(story())


def test_who_no_longer_leads_writes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)

        async def script(request: Request) -> tuple[list[Json], int]:
            await asyncio.sleep(1000)
            return await world.well(request)

        world.engine.script = script
        _engines.append(world.engine)
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
        _engines.append(world.engine)
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


def test_watches_that_break_or_are_too_old_miss_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            for event in (None, {"type": "ERROR", "object": {"kind": "Status", "code": 410}}):
                world.api.end_watches(event)
                world.api.objects.pop(CONFIG)  # while nobody watches
                await asyncio.sleep(1)
                world.api.end_watches({"type": "ERROR", "object": {"kind": "Status", "code": 410}})
                await asyncio.sleep(10)
                assert CONFIG in world.api.objects

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
            assert (len(world.engine.started), world.status()) == (runs, status), "it says what it said"
            world.edit(users=[{"name": "alice", "uid": 10001, "sshKeys": [KEY]}])
            await asyncio.sleep(10)
            assert world.condition("Ready")[0] == "True"
            given = json.loads(Path(world.engine.started[-1].private_data_dir, "cluster.json").read_text())
            assert (given["spec"]["users"][0]["name"], "flavour" in given["spec"]) == ("alice", False)
            told = [
                found["message"] for name, found in world.api.objects.items() if "/events/" in name and found["reason"] == "NewerDefinition"
            ]
            assert len(told) == 1 and "spec.flavour" in told[0]
            assert "flavour" not in world.controller.known(world.api.objects[path()])["spec"], "as the webhook sees it"
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
            original = world.api._tell

            def tell(where: str, kind: str, found: Json) -> None:
                if where == path():
                    seen.append(world.condition("Ready")[0])
                original(where, kind, found)

            world.api._tell = tell  # type: ignore[method-assign]
            world.api.delete(CONFIG)
            await asyncio.sleep(20)
            assert "False" not in seen
            assert world.condition("Ready")[0] == "True"

    run(story())


def test_many_clusters_keep_to_the_limit(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        for number in range(20):
            world.api.put(path(f"c{number}"), document(f"c{number}"))
        async with world:
            await asyncio.sleep(30)
            assert world.engine.most_at_once == 2
            assert all(world.condition("Ready", f"c{n}")[0] == "True" for n in range(20))

    run(story())


def test_fifty_new_clusters_all_get_their_turn_and_the_broken_ones_delay_nobody(tmp_path: Path) -> None:
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
        _engines.append(world.engine)
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


def test_while_a_hundred_are_looked_at_again_a_new_cluster_is_begun_at_once(tmp_path: Path) -> None:
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
            _engines.append(world.engine)
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
    """A connection that is cut without a word tells of nothing: what a run is given is read right before it."""

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
            world.api._tell = lambda *_event: None  # type: ignore[method-assign]
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
                    found["metadata"]["finalizers"] = [*found["metadata"].get("finalizers", ()), "somebody/else"]
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


@pytest.mark.parametrize("trouble", ["finalizer", "engine", "disk"])
def test_what_goes_wrong_outside_a_run_is_in_the_status_until_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    async def story() -> None:
        world = World(tmp_path)
        wrong = True
        if trouble == "finalizer":
            world.api.refuse = lambda method, where: 403 if wrong and method == "PATCH" and where == path() else 0
        elif trouble == "engine":
            start = world.engine.start

            async def broken(request: Request, descriptor: int) -> engine.Process:
                if wrong:
                    raise CorralError("The process that starts runs does not come up.")
                return await start(request, descriptor)

            monkeypatch.setattr(world.engine, "start", broken)
        else:
            write = runner.write_private

            def full(where: Path, content: Json) -> None:
                if wrong:
                    raise OSError(errno.ENOSPC, "No space left on device")
                write(where, content)

            monkeypatch.setattr(runner, "write_private", full)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(60)
            assert world.condition("Degraded")[:2] == ("True", "OperatorError")
            assert world.condition("Reconciling")[0] == "False"
            assert world.condition("Ready")[0] == "False"
            words = {"finalizer": "refused", "engine": "does not come up", "disk": "No space left"}[trouble]
            assert words in world.status()["lastFailure"]
            assert any("/events" in name and found["reason"] == "OperatorError" for name, found in world.api.objects.items())
            writes = len(world.api.writes)
            await asyncio.sleep(3600)
            assert len(world.api.writes) < writes + 60
            wrong = False
            await asyncio.sleep(400)
            assert world.condition("Degraded")[0] == "False"
            assert world.condition("Ready")[0] == "True"

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
                data = {"3": json.dumps(good), "4": json.dumps(wrong)}
                world.api.put(
                    "/api/v1/namespaces/one/configmaps/a-base-revisions", {"metadata": {"name": "a-base-revisions"}, "data": data}
                )
            edited = {"partitions": [{"name": "main", "nodeSets": ["nowhere"]}], "deletion": {"data": "Delete"}}
            world.edit(**edited)
            await asyncio.sleep(10)
            assert world.condition("Stalled")[:2] == ("True", "DocumentInvalid")
            world.api.delete(path())
            await asyncio.sleep(10)
            # Without any that is kept, the playbook takes what is right of the document: nothing waits for a correction.
            assert path() not in world.api.objects
            assert [spec for spec, _variables in given] == [good["spec"] if kept else {**good["spec"], **edited}]
            assert given[0][1]["keep_data"] is False

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
            assert world.condition("Stalled")[:2] == ("True", "NotPermitted"), "rights that are really gone are told"

    run(story())


def test_an_answer_that_is_none_does_not_end_a_watch(tmp_path: Path) -> None:
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
def test_one_who_sets_an_object_back_each_time_is_told_of_and_not_raced(tmp_path: Path, pause: float) -> None:
    async def story() -> None:
        world = World(tmp_path)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            async with world.opponent(CONFIG, pause):
                await asyncio.sleep(600)
            assert len(world.engine.started) < 40
            assert any("/events" in name and found["reason"] == "DoesNotSettle" for name, found in world.api.objects.items())
            await asyncio.sleep(700)
            count = len(world.engine.started)
            world.api.delete(CONFIG)
            await asyncio.sleep(2)
            assert CONFIG in world.api.objects, "once it is over drift is repaired at once again"
            assert len(world.engine.started) > count

    run(story())


def test_different_objects_that_drift_one_after_the_other_are_no_feud(tmp_path: Path) -> None:
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
            assert not any("/events" in name and found["reason"] == "DoesNotSettle" for name, found in world.api.objects.items())

    run(story())


@pytest.mark.parametrize(("answers", "events"), [(0.05, 0.0), (0.0, 0.05), (0.0, 0.0)], ids=["event first", "answer first", "together"])
def test_what_it_writes_itself_is_its_own_whichever_comes_first(tmp_path: Path, answers: float, events: float) -> None:
    """The answer to the write of a status, or the watch's event of it: nobody else has written, so there is no feud, and nothing is written again."""

    async def story() -> None:
        world = World(tmp_path)
        world.api.answers_after, world.api.tells_after = answers, events
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
            assert len(world.engine.started) >= count + 2, "what was set right is looked at once more, and soon"

    run(story())


def test_one_that_has_stood_by_for_long_looks_at_nothing_by_time_when_it_leads(tmp_path: Path) -> None:
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


def test_a_look_that_was_asked_for_is_not_lost_with_a_run_that_makes_way(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        _engines.append(world.engine)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            cluster = next(iter(world.controller.cache.clusters.values()))
            world.engine.started.clear()

            async def slow(request: Request) -> tuple[list[Json], int]:
                await asyncio.sleep(1 if len(world.engine.started) > 1 else 100)
                return await world.well(request)

            world.engine.script = slow
            world.controller.resync(cluster, 0.0)
            await asyncio.sleep(1)
            assert cluster.execution.run is not None
            cluster.execution.run.end("preempted")
            await asyncio.sleep(20)
            assert world.engine.playbooks() == ["site", "site"]

    run(story())


def test_who_writes_one_object_delays_no_other_and_no_scaling(tmp_path: Path) -> None:
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


def test_a_feud_is_seen_while_jobs_are_waited_for_too(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
        waits = {"waiting": {"slurm_scale": ["cpu-1"]}}

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


def test_a_watch_that_is_refused_where_a_list_is_not_is_told(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("during", ["the look at the namespace", "the finalizer's answer", "the kept documents"])
def test_a_pause_that_comes_while_something_is_asked_is_heeded(tmp_path: Path, during: str) -> None:
    async def story() -> None:
        world = World(tmp_path)
        original, armed = world.api.request, False
        part = {"the look at the namespace": "/namespaces/one", "the finalizer's answer": path(), "the kept documents": "-base-revisions"}[
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
            name = "/api/v1/namespaces/one/configmaps/a-base-revisions"
            world.api.put(name, {"metadata": {"name": "a-base-revisions"}, "data": {"1": json.dumps(document())}})
            if during == "the kept documents":
                world.edit(partitions=[{"name": "main", "nodeSets": ["nowhere"]}])
                await asyncio.sleep(5)
            armed = True
            world.api.delete(path())
            await asyncio.sleep(10)
            assert not armed
            assert "destroy" not in world.engine.playbooks()
            assert path() in world.api.objects

    run(story())


def test_one_whose_first_run_failed_goes_by_the_document_that_was_tried(tmp_path: Path) -> None:
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
            name = "/api/v1/namespaces/one/configmaps/a-base-revisions"
            data = {"1": json.dumps(done), "tried": json.dumps(tried)}
            world.api.put(name, {"metadata": {"name": "a-base-revisions"}, "data": data})
            world.edit(partitions=[{"name": "main", "nodeSets": ["nowhere"]}])
            await asyncio.sleep(5)
            world.api.delete(path())
            await asyncio.sleep(10)
            assert path() not in world.api.objects
            assert given == [tried["spec"], done["spec"]], "what either has made, its data too"

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
            tell, world.api._tell = world.api._tell, lambda *_event: None  # type: ignore[method-assign]
            found = world.api.objects[path()]
            world.api.put(path(), {**found, "metadata": {**found["metadata"], "labels": {"team": "b"}}})
            world.api._tell = tell  # type: ignore[method-assign]
            world.api.delete(CONFIG)
            await asyncio.sleep(30)
            assert world.engine.started == []

    run(story())


@pytest.mark.parametrize("trouble", ["its own writing", "a pod that crashes", "somebody else"])
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


def test_a_second_writer_is_noticed_in_runs_that_only_wait(tmp_path: Path) -> None:
    """Each of its writes would have the run begin anew: it is told, and the object is left alone for a while, and not called well."""

    async def story() -> None:
        async def waits(_request: Request) -> tuple[list[Json], int]:
            world.make()
            await asyncio.sleep(200)
            return OK, 0

        world = World(tmp_path, waits)
        _engines.append(world.engine)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(5)
            for second in range(42):
                found = world.api.objects[CONFIG]
                fields = [{"manager": "kubectl", "time": f"2026-01-01T00:01:{second:02}Z"}]
                world.api.put(CONFIG, {**found, "metadata": {**found["metadata"], "managedFields": fields}})
                await asyncio.sleep(1.8)
            assert len(world.engine.started) < 10
            assert any("/events" in name and found["reason"] == "DoesNotSettle" for name, found in world.api.objects.items())
            assert world.condition("Ready")[:2] == ("False", "DoesNotSettle")
            assert world.condition("Degraded")[:2] == ("True", "DoesNotSettle")
            assert "ConfigMap a-config" in world.condition("Ready")[2]
            world.engine.script = world.well
            await asyncio.sleep(1000)
            assert world.condition("Ready")[0] == "True", "it is over"

    run(story())


class Keys(World):
    """A world in which a run also sets the keys of a ConfigMap, and in which somebody takes one away, who owns no field by that."""

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
def test_who_takes_a_key_away_each_time_is_told_of_while_it_is_missing(tmp_path: Path, pause: float) -> None:
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
            assert world.condition("Ready")[:2] == ("False", "DoesNotSettle")
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
        _engines.append(world.engine)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(20)
            assert not world.wrong
            world.take_away()
            await asyncio.sleep(10)
            assert not world.wrong
            assert len(world.engine.started) == 2

    run(story())


def test_what_is_overwritten_in_a_run_is_not_left_until_the_next_look_at_jobs(tmp_path: Path) -> None:
    async def story() -> None:
        world = Keys(tmp_path, scale_again=120.0)
        waits = {"waiting": {"slurm_scale": ["cpu-1"]}}
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
            assert world.condition("Ready")[:2] == ("False", "DoesNotSettle")
            assert world.condition("Degraded")[:2] == ("True", "DoesNotSettle")

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
            await asyncio.sleep(100)
            assert any("/events" in name and found["reason"] == "Repaired" for name, found in world.api.objects.items())

    run(story())


def test_a_cluster_without_a_node_in_service_is_not_ready(tmp_path: Path) -> None:
    async def story() -> None:
        async def script(request: Request) -> tuple[list[Json], int]:
            lines, code = await World.well(world, request)
            return [
                {**line, "nodes": {"total": 1, "inService": 0, "drained": 1, "down": 0}} if "nodes" in line else line for line in lines
            ], code

        world = World(tmp_path, script)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(20)
            kind, reason, message = world.condition("Ready")
            assert (kind, reason) == ("False", "NoNodeInService")
            assert message.startswith("0 of 1 nodes are in service")
            world.api.writes.clear()
            runs = len(world.engine.started)
            await asyncio.sleep(600)
            assert (world.api.writes, len(world.engine.started)) == ([], runs), "that one serves again is for looks at Slurm to find"

    run(story())


def test_nor_is_it_while_an_edit_of_it_is_made(tmp_path: Path) -> None:
    async def story() -> None:
        async def script(request: Request) -> tuple[list[Json], int]:
            lines, code = await World.well(world, request)
            if world.status().get("observedGeneration"):
                await asyncio.sleep(10)
            return [
                {**line, "nodes": {"total": 1, "inService": 0, "drained": 1, "down": 0}} if "nodes" in line else line for line in lines
            ], code

        world = World(tmp_path, script)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(30)
            assert world.condition("Ready")[:2] == ("False", "NoNodeInService")
            world.edit(users=[{"name": "alice", "uid": 10001, "sshKeys": [KEY]}])
            await asyncio.sleep(5)
            assert world.condition("Reconciling")[0] == "True"
            assert world.condition("Ready")[:2] == ("False", "NoNodeInService")

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


def test_what_others_added_is_told_with_field_and_manager(tmp_path: Path) -> None:
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
            events = [found for name, found in world.api.objects.items() if "/events" in name and found["reason"] == "TakenBack"]
            assert len(events) == 1
            assert ".spec.egress of NetworkPolicy a-worker, by kubectl-edit" in events[0]["message"]

    run(story())
