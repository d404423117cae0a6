# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One collection of objects, kept in step with the API server: list, watch from there, and list again when the server has forgotten or may have.

Level-triggered: whoever listens is told that an object is as it is, never what happened to it. After each list the listener gets all objects, so
that one that vanished in between is noticed too.
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

# The server ends a watch after so long; each watch takes a little less or more, so that not all are renewed at once.
_SECONDS = 300
# A right that is missing is asked for again so often; one that may be withheld less so.
_REFUSED, _WITHHELD = 15.0, 300.0
# What could be seen is asked for again so soon before a refusal is believed: an API server that has just started refuses all until it knows the rights.
_DOUBTS = (1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Collection:
    """What is watched: the path of a list, which of its objects, whether more than their metadata matters, and whether the right may be withheld.

    ``defined``: by a CustomResourceDefinition. The server ends all watches of these when the definition is changed, and tells nobody that the objects have
    other fields since, so they are listed again.
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
    """Calls ``replace(objects)`` after a list and ``seen(kind_of_event, object)`` for each event; ``refused(error)`` when it may not look."""

    def __init__(
        self,
        client: Api,
        collection: Collection,
        *,
        replace: Callable[[list[Json]], None],
        seen: Callable[[str, Json], None],
        refused: Callable[[CorralError], None],
        relist: float,
        turns: asyncio.Semaphore | None = None,
        hopeless: Callable[[], bool] = lambda: False,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._api = client
        self._collection = collection
        self._replace = replace
        self._seen = seen
        self._refused = refused
        self._relist = relist
        # Of many watches that begin together only some list at a time: each new connection is work for both sides, and the lease must not wait for it.
        self._turns = turns or asyncio.Semaphore(1)
        # Whether another watch has found out that there is no right here, and goes on asking.
        self._hopeless = hopeless
        # Done before each list.
        self._before = before
        self._again = asyncio.Event()
        self.synced = False
        self.restarts = 0

    def retry(self) -> None:
        """A right may be there now: what was refused is asked for at once."""
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
                    if loop.time() - began < 1.0:  # a server that ends watches at once is not asked without end
                        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                        pause = min(10.0, pause * 2)
                    else:
                        pause = 0.5
            except CorralError as error:
                if status_code(error) in (401, 403, 404):
                    refusals += 1
                    if self.synced and refusals <= len(_DOUBTS):
                        pause = _DOUBTS[refusals - 1]
                    else:
                        self.synced = False
                        self._refused(error)
                        pause = _WITHHELD if self._collection.optional or self._hopeless() else _REFUSED
                log.info("watch interrupted", extra={"collection": self._collection.path, "error": str(error)})
                self._again.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause * random.uniform(0.5, 1.0)):
                        await self._again.wait()
                pause = min(30.0, pause * 2)
            except Exception:  # an answer that is none, or a mistake of ours: what is watched here must not be forgotten for good
                log.exception("watch interrupted", extra={"collection": self._collection.path})
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(30.0, pause * 2)
            self.restarts += 1

    async def _list(self) -> str:
        accept = JSON if self._collection.whole else METADATA_LIST
        async with self._turns:
            if self._before is not None:
                await self._before()
            found, version = await list_all(
                self._api, self._collection.path, what=f"list {self._collection.name}", query=self._collection.query, accept=accept
            )
        self.synced = True
        self._replace(found)
        return version

    async def _follow(self, version: str, most: float) -> str:
        """Follow one watch to its end, ``most`` seconds at the most. Returns the version to go on from, "" when only a new list can help."""
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
                    return ""  # 410: the server has forgotten that version; any other: it is not known what was missed
                version = str((found.get("metadata") or {}).get("resourceVersion") or version)
                if kind != "BOOKMARK":
                    self._seen(kind, found)
        except CorralError as error:
            if status_code(error) == 410:
                return ""
            raise
        early = asyncio.get_running_loop().time() - began < 0.9 * seconds
        return "" if early and self._collection.defined else version
