# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing is written past the fence: by the controller's own client, and by the runs of a controller that does not run itself any more."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.auth import Access
from corral_operator.api import fence
from corral_operator.api.client import MERGE, Client
from corral_operator.api.fence import Fence
from corral_operator.runs import zygote

from ....server import Handler, Server, kubeconfig, serving

SENTENCE = "has not renewed its Lease in time"
OBJECT = {"apiVersion": "corral.hpc/v1alpha1", "kind": "SlurmCluster"}
DOCUMENT = {**OBJECT, "metadata": {"name": "a", "namespace": "n", "resourceVersion": "1", "finalizers": ["corral.hpc/destroy"]}}


class Kept(Server):
    """An API server that has one SlurmCluster, keeps whatever is written to it to itself, and says when that was."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.written: list[float] = []
        self.code = 200


class _Handler(Handler):
    server: Kept

    def do_GET(self) -> None:
        resources = [{"kind": "SlurmCluster", "name": "slurmclusters", "namespaced": True}]
        asked = (
            ("APIResourceList", {"resources": resources}) if self.path.endswith("v1alpha1") else ("SlurmClusterList", {"items": [DOCUMENT]})
        )
        self.answer(200, {"apiVersion": "v1", "kind": asked[0], **asked[1]})

    def do_PATCH(self) -> None:
        self.body()
        self.server.written.append(fence.now())
        time.sleep(0.1)
        self.answer(self.server.code, DOCUMENT)


@pytest.fixture
def server() -> Iterator[Kept]:
    with serving(Kept()) as started:
        yield started


def test_it_is_open_until_its_moment_for_all_who_share_it() -> None:
    time_now = 5.0
    made = Fence(clock=lambda: time_now)
    shared = Fence(made.path, clock=lambda: time_now)
    with pytest.raises(CorralError, match=SENTENCE):
        shared.check()
    made.move(7.0)
    shared.check()
    time_now = 7.0
    assert not shared.open and not made.open
    made.move(math.inf)
    assert shared.open
    made.move(0.0)
    assert not shared.open
    with pytest.raises(TypeError):
        shared.move(9.0)


def test_the_controllers_client_asks_before_each_try_of_a_write(server: Kept) -> None:
    async def story() -> None:
        limit = Fence()
        async with Client(Access(server=server.url, source="a test"), before_write=limit.check) as client:

            async def write() -> None:
                await client.request("PATCH", "/a/status", what="write the status of a", body={}, content_type=MERGE)

            with pytest.raises(CorralError, match=SENTENCE):
                await write()
            assert (server.written, client.sent["write"]) == ([], 0)
            await client.request("GET", "/apis/corral.hpc/v1alpha1", what="look")
            limit.move(fence.now() + 60)
            await write()
            assert len(server.written) == 1
            server.code = 503  # it is tried again, and by then the time is over
            trying = asyncio.create_task(write())
            while len(server.written) < 2:
                await asyncio.sleep(0.01)
            limit.move(0.0)
            tries = len(server.written)
            with pytest.raises(CorralError, match=SENTENCE):
                await trying
            assert len(server.written) <= tries + 1

    asyncio.run(story())


# A controller that renews ever again, and has a run that writes ever again.
CONTROLLER = """
import asyncio, sys
from corral_operator.runs import engine
from corral_operator.runs.run import Run
from corral_operator.api import fence
from corral_operator.runs.playbook import Request

async def main():
    limit = fence.Fence()
    print(limit.path, flush=True)
    runs = getattr(engine, sys.argv[1])(limit.path)
    await runs.open()

    async def renew():
        while True:
            limit.move(fence.now() + 1.5)
            await asyncio.sleep(0.1)

    renewing = asyncio.create_task(renew())
    request = Request("1", sys.argv[2] + "/play.yml", sys.argv[2], sys.argv[2] + "/runs")
    outcome = await Run(runs, request, timeout=300, grace=1).execute()
    print(outcome.code, outcome.failure, flush=True)
    await runs.close()

asyncio.run(main())
"""
TASK = """
    - corral.slurm.k8s_release: {api_version: corral.hpc/v1alpha1, kind: SlurmCluster, finalizer: corral.hpc/destroy}
"""


@pytest.mark.parametrize("kind", ["Warm", "Cold"])
def test_a_run_whose_controller_is_frozen_stops_writing(kind: str, server: Kept, tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "env" / "extravars").write_text("{}")
    play = "- hosts: localhost\n  connection: local\n  gather_facts: false\n  tasks:" + TASK * 400
    (tmp_path / "play.yml").write_text(play)
    command = [sys.executable, "-c", CONTROLLER, kind, str(tmp_path)]
    environment = {**zygote.environment(), "KUBECONFIG": str(kubeconfig(tmp_path / "kubeconfig", server.url))}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as controller:
        try:
            assert controller.stdout is not None
            limit = Fence(controller.stdout.readline().strip())
            _wait(lambda: len(server.written) > 5 or controller.poll() is not None, "the run writes")
            assert controller.poll() is None, controller.stdout.read()
            time.sleep(2.0)
            assert limit.open, "each renewal has moved it"
            os.kill(controller.pid, signal.SIGSTOP)
            frozen = len(server.written)
            _wait((tmp_path / "runs" / "1" / "rc").exists, "the run has ended")
            assert controller.poll() is None
            assert not limit.open
            closed = limit._until[0]
            assert len(server.written) > frozen, "until then it went on"
            # A write that had just passed may arrive a little later on a busy host; the whole play would take half a minute more.
            assert max(server.written) < closed + 3
            assert SENTENCE in " ".join((tmp_path / "runs" / "1" / "stdout").read_text().split())
        finally:
            os.kill(controller.pid, signal.SIGCONT)
        told = controller.stdout.read()
    assert told.startswith("2 ") and SENTENCE in told


def _wait(done: Any, what: str) -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.05)
