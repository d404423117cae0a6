# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A key that is lost, where the operator may not watch Secrets: the first pod that cannot start for it starts a run, which says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ..world import Json, Request, World, document, path, run

WORKER = "/apis/apps/v1/namespaces/one/statefulsets/a-worker"
WORDS = "Secret one/a-base-munge-key is gone, while pods run with it (a-controller-0); new pods could not join them with another, so none was made."


def test_ready_reports_it_as_soon_as_it_does_harm(tmp_path: Path) -> None:
    async def story() -> None:
        world, lost = World(tmp_path), False

        async def script(request: Request) -> tuple[list[Json], int]:
            if lost:
                return [{"kind": "failed", "task": "Make keys", "role": "cluster_base", "changed": False, "message": WORDS}], 2
            return await world.well(request)

        world.engine.script = script
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            assert world.condition("Ready")[0] == "True"
            lost = True
            worker = world.api.objects[WORKER]
            world.api.put(
                WORKER, {**worker, "status": {**worker["status"], "readyReplicas": 0}}
            )  # its pod was replaced, and waits for the Secret
            await asyncio.sleep(15)
            status, reason, message = world.condition("Ready")
            assert (status, WORDS in message) == ("False", True), (reason, message)
            lost = False
            world.api.put(WORKER, worker)
            await asyncio.sleep(30)
            assert world.condition("Ready")[0] == "True"

    run(story())
