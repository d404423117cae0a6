# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of a playbook: followed to its end, or ended early; and the retention of outputs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

from corral_operator.runs.engine import Engine, Process
from corral_operator.runs.outcome import Outcome
from corral_operator.runs.playbook import Request
from corral_operator.runs.processes import descendants, kill_left, kill_tree


class Run:
    """One run from its start to its end."""

    def __init__(self, engine: Engine, request: Request, *, timeout: float, grace: float) -> None:
        self._engine = engine
        self._request = request
        self._timeout = timeout
        self._grace = grace
        self._end_requested: asyncio.Event = asyncio.Event()
        self.outcome = Outcome()
        self._clock = asyncio.get_running_loop().time
        self.last_line = self._clock()

    def end(self, reason: str) -> None:
        """End the run early."""
        if not self._end_requested.is_set():
            self.outcome.ended = reason
            self._end_requested.set()

    async def execute(self) -> Outcome:
        """Execute the run. If this is cancelled, the run is killed."""
        began = self._clock()
        reading, writing = os.pipe()
        try:
            process = await self._engine.start(self._request, writing)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        lines = asyncio.create_task(self._read(reading))
        wanted: asyncio.Future[bool] = asyncio.ensure_future(self._end_requested.wait())
        try:
            waited: list[asyncio.Future[Any]] = [process.ended, wanted]
            await asyncio.wait(waited, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
            if not process.ended.done():
                if not wanted.done():
                    self.end("timeout")
                await self._interrupt(process)
            self.outcome.code = await process.ended
        finally:
            if not process.ended.done():
                kill_tree(process.pid)
            wanted.cancel()
            # A worker that has not ended yet keeps the pipe open.
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(lines, 1.0)
        self.outcome.seconds = self._clock() - began
        return self.outcome

    async def _interrupt(self, process: Process) -> None:
        """Send SIGINT, which lets Ansible's workers end in order; kill what is left after the grace period."""
        below = descendants(process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGINT)
        await asyncio.wait({process.ended}, timeout=self._grace)
        if not process.ended.done():
            kill_tree(process.pid)
            await asyncio.wait({process.ended}, timeout=10.0)
        kill_left(below)

    async def _read(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=4 << 20)
        transport, _dummy = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0))
        try:
            async for line in reader:
                with contextlib.suppress(ValueError):
                    self.last_line = self._clock()
                    self.outcome.add(json.loads(line), self.last_line)
        finally:
            transport.close()


def clear(artifacts: Path, playbook: str, keep: int) -> None:
    """Remove artifacts except those of the last ``keep`` runs of a playbook, and of the last failed one."""
    runs = sorted(artifacts.glob(f"*-{playbook}"), reverse=True)
    retained = set(runs[:keep])
    for path in runs[keep:]:
        status = path / "status"
        if status.exists() and status.read_text() == "failed":
            retained.add(path)
            break
    for path in runs:
        if path not in retained:
            shutil.rmtree(path, ignore_errors=True)
