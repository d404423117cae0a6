# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A limit of requests that the controller and all of its runs share."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

from ansible_collections.corral.slurm.plugins.module_utils._kube.auth import Access
from corral_operator.api.client import Client
from corral_operator.api.rate_limit import VARIABLE, RateLimiter
from corral_operator.runs import zygote
from corral_operator.settings import Settings

from ..world import World, document, path, run
from .test_fence import Server, server

__all__ = ["server"]


def test_a_burst_is_sent_at_once_and_later_requests_at_the_rate() -> None:
    now = 100.0
    limiter = RateLimiter(rate=10, burst=5, clock=lambda: now)
    assert [limiter.reserve() for _turn in range(5)] == [0.0] * 5
    assert [round(limiter.reserve(), 3) for _turn in range(3)] == [0.1, 0.2, 0.3]
    now += 0.55  # five are there again but for those three, which were lent
    assert [round(limiter.reserve(), 3) for _turn in range(4)] == [0.0, 0.0, 0.05, 0.15]
    now += 3600
    assert [limiter.reserve() for _turn in range(5)] == [0.0] * 5, "no more than a burst is ever saved"
    assert limiter.reserve() > 0


def test_the_start_of_a_hundred_clusters_is_what_may_be_sent_at_once(tmp_path: Path) -> None:
    """No more, because a malfunctioning operator sends that before it is slowed; and no less, so that a new leader is not delayed."""
    asked, clusters = 0, 25

    def count(_method: str, _path: str) -> int:
        nonlocal asked
        asked += 1
        return 0

    async def story() -> None:
        world = World(tmp_path)
        for number in range(clusters):
            world.api.put(path(f"c{number}", f"ns{number}"), document(f"c{number}", f"ns{number}"))
        async with world:
            await asyncio.sleep(120)
            assert world.condition("Ready", "c24", "ns24")[0] == "True"
        world.controller, world.api.refuse = world.new_controller(), count
        async with world:
            await asyncio.sleep(60)
        assert len(world.engine.started) == 2 * clusters

    run(story())
    burst = Settings().burst
    assert burst / 1.2 < asked * 100 / clusters <= burst


def test_a_storm_is_slowed_within_half_a_minute() -> None:
    now = 0.0
    limiter = RateLimiter(rate=Settings().qps, burst=Settings().burst, clock=lambda: now)
    while not limiter.reserve():
        now += 0.01  # a hundred a second
    assert 10 < now < 30


def test_without_a_rate_there_is_no_limit() -> None:
    limiter = RateLimiter()
    assert max(limiter.reserve() for _turn in range(1000)) == 0.0


def test_processes_and_their_threads_share_one_bucket() -> None:
    limiter = RateLimiter(rate=0.001, burst=1000)
    take = f"from corral_operator.api.rate_limit import RateLimiter; limiter = RateLimiter({limiter.path!r}); [limiter.reserve() for _turn in range(200)]"
    beside = [subprocess.Popen([sys.executable, "-c", take], env=zygote.environment()) for _turn in range(2)]
    threads = [threading.Thread(target=lambda: [limiter.reserve() for _turn in range(200)]) for _turn in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait(30) for process in beside] == [0, 0]
    free = 0
    while not limiter.reserve():
        free += 1
    assert free == 200


def test_a_process_that_dies_while_it_reserves_blocks_no_other() -> None:
    limiter = RateLimiter(rate=1000, burst=10)
    holds = f"import fcntl, os, sys; fd = os.open({limiter.path!r}, os.O_RDWR); fcntl.lockf(fd, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline()
    process.kill()
    process.communicate()
    assert limiter.reserve() == 0.0


def test_the_controllers_client_respects_it(server: Server) -> None:
    async def story() -> float:
        limiter = RateLimiter(rate=20, burst=2)
        async with Client(Access(server=server.url, source="a test"), rate_limit=limiter.reserve) as client:
            began = time.monotonic()
            for _turn in range(6):
                await client.request("GET", "/apis/corral.hpc/v1alpha1", what="look")
            return time.monotonic() - began

    assert 0.19 < asyncio.run(story()) < 2.0


def test_a_run_respects_it(server: Server) -> None:
    limiter = RateLimiter(rate=20, burst=2)
    script = f"""
import time
from corral_operator.runs.guard import guard
guard()
from ansible_collections.corral.slurm.plugins.module_utils._kube.auth import Access
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
client, began = Client(Access(server={server.url!r}, source="a test")), time.monotonic()
for _turn in range(6):
    client.get("/apis/corral.hpc/v1alpha1", what="look")
print(time.monotonic() - began)
"""
    said = subprocess.run(
        [sys.executable, "-c", script], env={**zygote.environment(), VARIABLE: limiter.path}, capture_output=True, text=True, check=True
    ).stdout
    assert 0.19 < float(said) < 2.0
