# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status on the API server: when it is written, and what it says of objects that do worse."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ..world import WORKER, Json, Request, World, document, path, run

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFuIGV4YW1wbGUga2V5IHRoYXQgbm9ib2R5IGhvbGRz"


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
            assert (world.api.writes, len(world.engine.started)) == ([], runs), "only a probe of Slurm detects that one serves again"

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
