# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Engines that start runs of playbooks. ``Warm`` lets the zygote fork, ``Cold`` starts a Python process for each run; both report the same lines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Protocol

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.runs import zygote
from corral_operator.runs.playbook import Request
from corral_operator.runs.processes import kill_tree, resident

log = logging.getLogger(__name__)


_READY = 60.0
_STUCK = 180.0


@dataclass
class Process:
    """The process of a run, and its future exit status."""

    pid: int
    ended: asyncio.Future[int]


class Engine(Protocol):
    """Starts runs."""

    async def start(self, request: Request, descriptor: int) -> Process:
        """Start a run that reports to a file descriptor. Raises CorralError."""

    async def open(self) -> None:
        """Prepare to start runs."""

    async def close(self) -> None:
        """End all processes."""

    @property
    def ready(self) -> bool:
        """True if a run can be started now."""

    @property
    def stuck(self) -> bool:
        """True if only a restart of the container would help."""


class Cold:
    """Starts a process for each run, which calls ``ansible_runner.run``. ``fence`` is the path of the fence of runs, if there is one."""

    def __init__(self, fence: str = "") -> None:
        self._fence = fence

    async def open(self) -> None:
        """There is nothing to prepare."""

    async def close(self) -> None:
        """There is nothing to end."""

    @property
    def ready(self) -> bool:
        """Always true."""
        return True

    @property
    def stuck(self) -> bool:
        """Always false."""
        return False

    async def start(self, request: Request, descriptor: int) -> Process:
        """Start the process of a run."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "corral_operator.runs.playbook", request.to_json(), str(descriptor),
            pass_fds=[descriptor], start_new_session=True, stdin=asyncio.subprocess.DEVNULL, env=zygote.environment(self._fence),
        )  # fmt: skip
        return Process(process.pid, asyncio.ensure_future(process.wait()))


class Warm:
    """Starts runs by a zygote, and restarts it. ``fence`` is the path of the fence of runs, if there is one; ``first`` is a zygote already started."""

    def __init__(self, fence: str = "", first: zygote.Started | None = None) -> None:
        self._fence = fence
        self._first = first
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: asyncio.Event = asyncio.Event()
        # By artifact directory: runs of different clusters may have the same name.
        self._started: dict[str, asyncio.Future[Process]] = {}
        self._runs: dict[str, Process] = {}
        self._supervisor: asyncio.Task[None] | None = None
        self._since = 0.0
        self.restarts = 0

    @property
    def ready(self) -> bool:
        """True if the zygote has warmed up and is alive."""
        return self._ready.is_set()

    @property
    def stuck(self) -> bool:
        """True if it has not warmed up for too long, including its restarts."""
        return not self._ready.is_set() and asyncio.get_running_loop().time() - self._since > _STUCK

    @property
    def memory(self) -> float:
        """Return the zygote's resident memory in MiB, 0 if there is no zygote."""
        return resident(self._process.pid) if self._process is not None else 0.0

    async def open(self) -> None:
        """Start the zygote and supervise it."""
        self._since = asyncio.get_running_loop().time()
        self._supervisor = asyncio.create_task(self._supervise())

    async def close(self) -> None:
        """End the zygote and all runs."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
        if self._control is not None:
            self._control.close()
        if self._process is not None and self._process.poll() is None:
            kill_tree(self._process.pid)
            await asyncio.to_thread(self._process.wait)

    async def start(self, request: Request, descriptor: int) -> Process:
        """Have the zygote fork."""
        try:
            await asyncio.wait_for(self._ready.wait(), _READY)
        except TimeoutError:
            raise CorralError(
                "The zygote, which starts runs, does not become ready; see the operator's log, or set CORRAL_ENGINE=cold."
            ) from None
        assert self._control is not None
        key = str(request.artifact_dir)
        started = self._started[key] = asyncio.get_running_loop().create_future()
        try:
            socket.send_fds(self._control, [request.to_json().encode()], [descriptor])
            process: Process = await started
            return process
        except OSError as error:
            raise CorralError(f"The zygote, which starts runs, cannot be reached ({error}); the run is repeated.") from error
        finally:
            self._started.pop(key, None)

    async def _supervise(self) -> None:
        pause = 0.5
        while True:
            await self._serve()
            self.restarts += 1
            log.error("the zygote has ended and is restarted")
            await asyncio.sleep(pause)
            pause = min(30.0, pause * 2)

    async def _serve(self) -> None:
        process, ours = self._first or zygote.start(self._fence)
        self._first = None
        self._process = process
        self._control = ours
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    data = await loop.sock_recv(ours, 65536)
                except OSError:
                    data = b""
                if not data:
                    break
                self._receive(json.loads(data))
        finally:
            if self._ready.is_set():
                self._since = loop.time()
            self._ready.clear()
            ours.close()
            self._control = None
            for future in self._started.values():
                if not future.done():
                    future.set_exception(CorralError("The zygote, which starts runs, has ended; the run is repeated."))
            for run in list(self._runs.values()):  # the kernel has killed them with the zygote
                if not run.ended.done():
                    run.ended.set_result(-signal.SIGKILL)
            self._runs.clear()
        await asyncio.to_thread(process.wait)

    def _receive(self, message: dict[str, object]) -> None:
        if message["kind"] == "ready":
            log.info("the zygote has warmed up", extra={"seconds": message["seconds"]})
            self._ready.set()
            return
        key = str(message["artifact_dir"])
        if message["kind"] == "started":
            run = self._runs[key] = Process(int(str(message["pid"])), asyncio.get_running_loop().create_future())
            started = self._started.get(key)
            if started is not None and not started.done():
                started.set_result(run)
            else:
                kill_tree(run.pid)  # its caller was cancelled meanwhile, so nothing else would end it
        elif message["kind"] == "ended":
            ended = self._runs.pop(key, None)
            if ended is not None and not ended.ended.done():
                ended.ended.set_result(int(str(message["code"])))
