# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists and watches a collection of objects, and lists it again when the server no longer has the version, or regularly.

Level-triggered: the callbacks get the state of an object, not what happened to it. After each list they get all objects, so that
deletions in between are noticed too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.api.client import JSON, METADATA, METADATA_LIST, Api, Json, list_all, status_code

log = logging.getLogger(__name__)

# The timeout of a watch; each one varies it a little, so that not all are renewed at once.
_SECONDS = 300
# Intervals between attempts without permission; the second one for optional collections.
_FORBIDDEN, _OPTIONAL_FORBIDDEN = 15.0, 300.0
# Intervals of retries before a refusal is accepted, if the collection could be read before: an API server that has just started refuses
# everything until it has loaded the roles.
_RECHECKS = (1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Collection:
    """A collection to watch. ``whole``: complete objects, not just their metadata; ``optional``: the permission may be missing.

    ``defined``: by a CustomResourceDefinition. The server ends all its watches when the definition changes, but sends no events for objects whose fields
    change by that, so they are listed again.
    """

    path: str
    name: str
    selector: str = ""
    whole: bool = True
    optional: bool = False
    defined: bool = False

    @property
    def query(self) -> dict[str, str]:
        """Return the query that selects the objects."""
        return {"labelSelector": self.selector} if self.selector else {}


class Watch:
    """Calls ``replace(objects)`` after a list, ``on_event(type, object)`` for each event, and ``refused(error)`` without permission."""

    def __init__(
        self,
        client: Api,
        collection: Collection,
        *,
        replace: Callable[[list[Json]], None],
        on_event: Callable[[str, Json], None],
        refused: Callable[[CorralError], None],
        relist: float,
        list_slots: asyncio.Semaphore | None = None,
        denied: Callable[[], bool] = lambda: False,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._api = client
        self._collection = collection
        self._replace = replace
        self._on_event = on_event
        self._refused = refused
        self._relist = relist
        # Limits how many watches list at the same time: each new connection is work for both sides, which must not delay the lease.
        self._list_slots = list_slots or asyncio.Semaphore(1)
        # Whether another watch in the same namespace is refused and keeps retrying.
        self._denied = denied
        # Called before each list.
        self._before = before
        self._again = asyncio.Event()
        self.synced = False
        self.restarts = 0

    def retry(self) -> None:
        """Retry a refused list at once: the permission may have been granted."""
        self._again.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        pause = 0.5
        refusals = 0
        loop = asyncio.get_running_loop()
        while True:
            try:
                version = await self._list()
                until = loop.time() + self._relist * random.uniform(0.9, 1.1)
                while version and loop.time() < until:
                    began = loop.time()
                    version = await self._follow(version, until - began)
                    refusals = 0
                    if loop.time() - began < 1.0:  # do not reconnect in a tight loop to a server that ends watches at once
                        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                        pause = min(10.0, pause * 2)
                    else:
                        pause = 0.5
            except CorralError as error:
                if status_code(error) in (401, 403, 404):
                    refusals += 1
                    if self.synced and refusals <= len(_RECHECKS):
                        pause = _RECHECKS[refusals - 1]
                    else:
                        self.synced = False
                        self._refused(error)
                        pause = _OPTIONAL_FORBIDDEN if self._collection.optional or self._denied() else _FORBIDDEN
                log.info("watch interrupted", extra={"collection": self._collection.path, "error": str(error)})
                self._again.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause * random.uniform(0.5, 1.0)):
                        await self._again.wait()
                pause = min(30.0, pause * 2)
            except Exception:  # an invalid response or a defect must not end the watch for good
                log.exception("watch interrupted", extra={"collection": self._collection.path})
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(30.0, pause * 2)
            self.restarts += 1

    async def _list(self) -> str:
        accept = JSON if self._collection.whole else METADATA_LIST
        async with self._list_slots:
            if self._before is not None:
                await self._before()
            found, version = await list_all(
                self._api, self._collection.path, what=f"list {self._collection.name}", query=self._collection.query, accept=accept
            )
        self.synced = True
        self._replace(found)
        return version

    async def _follow(self, version: str, most: float) -> str:
        """Follow one watch to its end, ``most`` seconds at the most. Returns the version to continue from, "" if a new list is needed."""
        accept = JSON if self._collection.whole else METADATA
        query = {**self._collection.query, "resourceVersion": version}
        seconds = max(1, int(min(most, _SECONDS * random.uniform(0.9, 1.1))))
        began = asyncio.get_running_loop().time()
        try:
            async for event in self._api.watch(
                self._collection.path, what=f"watch {self._collection.name}", query=query, seconds=seconds, accept=accept
            ):
                kind, found = str(event.get("type")), event.get("object") or {}
                if kind == "ERROR":
                    return ""  # 410: the server no longer has that version; any other: unknown events were missed
                version = str((found.get("metadata") or {}).get("resourceVersion") or version)
                if kind != "BOOKMARK":
                    self._on_event(kind, found)
        except CorralError as error:
            if status_code(error) == 410:
                return ""
            raise
        early = asyncio.get_running_loop().time() - began < 0.9 * seconds
        return "" if early and self._collection.defined else version
