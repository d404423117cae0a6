# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a document can be made: what the collection says of it, and whether its objects would have the names of an older cluster's."""

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

# The names of another cluster are waited for so long, as long as they are not known at all.
_COURTESY = 2.0


class Validator:
    """``check`` says what is wrong with a document, beside the loop."""

    def __init__(self, context: Context, check: Callable[[Json], Awaitable[Checked]]) -> None:
        self._context = context
        self.check = check

    async def validate(self, cluster: Cluster) -> Checked:
        """Return what is to be said of the document, of which one check goes on at a time, whoever waits for it."""
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
        """Return a sentence where a document that is older wants an object of the same name, "" where none does. Objects of the first are never written."""
        own = (await self.validate(cluster)).names
        for other in list(self._context.cache.clusters.values()):
            if other is cluster or age(other.document) >= age(cluster.document):
                continue
            if other.validation.checked.spec is ...:  # what is known of it already is waited for by nobody else, however often it is edited
                with contextlib.suppress(CorralError, TimeoutError):
                    async with asyncio.timeout(_COURTESY):
                        await self.validate(other)
            said = names.meeting(own, other.validation.checked.names, other.name)
            if said:
                cluster.validation.waits_for = other.key
                return said
        cluster.validation.waits_for = None
        return ""

    def requeue_waiting(self, key: Key) -> None:
        """Queue the clusters that wait for another one's names, which is gone or was edited."""
        for other in self._context.cache.clusters.values():
            if other.validation.waits_for == key:
                self._context.queue.add(other.key, Trigger.EDIT)
