# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects that the parts of the controller share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from corral_operator.api.client import Api
from corral_operator.api.events import Events
from corral_operator.reconcile.cache import Cache
from corral_operator.reconcile.metadata import Json, owner
from corral_operator.reconcile.queue import Backoff, WorkQueue
from corral_operator.serving.metrics import Metrics
from corral_operator.settings import Settings


class Leadership:
    """Whether this process may act: it has been elected, and its fence is still open, which it is not if the process was frozen for too long."""

    def __init__(self, may_write: Callable[[], bool]) -> None:
        self._may_write = may_write
        self.elected = False

    @property
    def active(self) -> bool:
        """True while this process may act."""
        return self.elected and self._may_write()


class Tasks(set[asyncio.Task[None]]):
    """The asynchronous tasks of the controller."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task."""
        task = asyncio.create_task(work)
        self.add(task)
        task.add_done_callback(self.discard)

    async def end(self, grace: float) -> None:
        """Wait for the tasks, and cancel those that have not ended after ``grace``."""
        if self:
            await asyncio.wait(self, timeout=grace)
        for task in self:
            task.cancel()
        if self:
            await asyncio.wait(self, timeout=5.0)


@dataclass(frozen=True)
class Context:
    """``content`` is the revision of the playbooks; ``clock`` is the event loop's."""

    settings: Settings
    content: str
    api: Api
    metrics: Metrics
    events: Events
    cache: Cache
    queue: WorkQueue
    backoff: Backoff
    leadership: Leadership
    tasks: Tasks
    clock: Callable[[], float]

    def foreign(self, document: Json) -> bool:
        """True for a document that another operator manages."""
        return owner(document) not in ("", self.settings.owner)
