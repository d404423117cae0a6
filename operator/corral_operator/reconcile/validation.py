# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validates a document: the collection's check, and conflicts of names with objects of an older cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from ansible_collections.corral.slurm.plugins.module_utils._cluster import names
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.reconcile.cluster import Cluster
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.metadata import Json, Key, age
from corral_operator.reconcile.queue import Trigger
from corral_operator.runs.checker import Checked

# How long to wait for the first check of another document, which gives its names.
_FIRST_CHECK = 2.0


class Validator:
    """``check`` checks a document without blocking the event loop."""

    def __init__(self, context: Context, check: Callable[[Json], Awaitable[Checked]]) -> None:
        self._context = context
        self.check = check

    async def validate(self, cluster: Cluster) -> Checked:
        """Return the check of the current document. Concurrent callers share one check."""
        document, validation = cluster.document, cluster.validation
        while validation.checked.spec != document.get("spec"):
            if validation.task is None:
                validation.task = asyncio.create_task(self._validate(cluster, document))
            found = await asyncio.shield(validation.task)
            if found.spec == document.get("spec"):
                return found
        return validation.checked

    async def _validate(self, cluster: Cluster, document: Json) -> Checked:
        try:
            cluster.validation.checked = found = await self.check(document)
            return found
        finally:
            cluster.validation.task = None

    async def name_conflict(self, cluster: Cluster) -> str:
        """Return a message if an older document has an object of the same name, "" otherwise. The older cluster keeps its objects."""
        own = (await self.validate(cluster)).names
        for other in list(self._context.cache.clusters.values()):
            if other is cluster or age(other.document) >= age(cluster.document):
                continue
            if other.validation.checked.spec is ...:  # only for the first check: later edits of another document must not delay this one
                with contextlib.suppress(CorralError, TimeoutError):
                    async with asyncio.timeout(_FIRST_CHECK):
                        await self.validate(other)
            conflict = names.meeting(own, other.validation.checked.names, other.name)
            if conflict:
                cluster.validation.waits_for = other.key
                return conflict
        cluster.validation.waits_for = None
        return ""

    def requeue_waiting(self, key: Key) -> None:
        """Queue the clusters that wait for the names of a cluster which was deleted or edited."""
        for other in self._context.cache.clusters.values():
            if other.validation.waits_for == key:
                self._context.queue.add(other.key, Trigger.EDIT)
