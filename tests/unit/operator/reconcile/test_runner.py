# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run is given, and when it is ended before its time."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.reconcile import runner
from corral_operator.runs import engine

from ..world import OK, Json, Request, World, document, path, run

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFuIGV4YW1wbGUga2V5IHRoYXQgbm9ib2R5IGhvbGRz"


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


def test_runs_that_only_wait_leave_room_for_others(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)

        async def script(request: Request) -> tuple[list[Json], int]:
            if "stuck" in request.private_data_dir:
                await asyncio.sleep(500)
            return await world.well(request)

        world.engine.script = script
        for number in range(8):
            world.api.put(path(f"stuck{number}"), document(f"stuck{number}"))
        async with world:
            await asyncio.sleep(60)
            world.api.put(path("a"), document("a"))
            await asyncio.sleep(4)
            assert world.condition("Ready", "a")[0] == "True", "one of the waiting runs was sent to the end of the queue"

    run(story())


def test_a_run_that_takes_too_long_is_ended_and_reported(tmp_path: Path) -> None:
    async def story() -> None:
        async def script(_request: Request) -> tuple[list[Json], int]:
            await asyncio.sleep(10_000)
            return OK, 0

        world = World(tmp_path, script, run_timeout=60)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(65)
            assert world.condition("Ready")[:2] == ("False", "TimedOut")
            [event] = [found for name, found in world.api.objects.items() if "/events/" in name and found["reason"] == "TimedOut"]
            assert event["message"].startswith("The run was ended after 60 s")
            assert event["message"].endswith(f"Its output: {tmp_path}/runs/one/a/{world.engine.started[0].ident}/stdout in pod me.")

    run(story())


def test_a_run_that_reports_nothing_for_too_long_is_ended_if_configured(tmp_path: Path) -> None:
    async def story() -> None:
        async def script(_request: Request) -> tuple[list[Json], int]:
            await asyncio.sleep(10_000)
            return OK, 0

        world = World(tmp_path, script, idle_timeout=30)
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(25)
            assert len(world.engine.started) == 1
            await asyncio.sleep(10)
            assert world.condition("Ready")[:2] == ("False", "TimedOut")
            assert "reported nothing for 30 s" in world.condition("Ready")[2]

    run(story())


@pytest.mark.parametrize("trouble", ["finalizer", "engine", "disk"])
def test_a_failure_outside_a_run_is_in_the_status_until_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
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


def test_a_requested_resync_is_not_lost_with_a_preempted_run(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)
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
