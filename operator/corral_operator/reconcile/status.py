# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the status of SlurmClusters, when it says something else than before, and the sizes of their node sets."""

from __future__ import annotations

import asyncio
import datetime
import logging

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.api.client import MERGE, status_code
from corral_operator.reconcile import conditions
from corral_operator.reconcile.children import Child, resized
from corral_operator.reconcile.cluster import Cluster
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.documents import Documents
from corral_operator.reconcile.metadata import API, owner, path

log = logging.getLogger(__name__)

# Changes of objects are gathered so long before the status is written.
GATHER = 0.3
# How often a status is written anew since the document has changed meanwhile.
_TRIES = 5
# A status that was refused is written again after this.
_REFUSED = 10.0


class StatusWriter:
    """Writes each status once at a time."""

    def __init__(self, context: Context, documents: Documents) -> None:
        self._context = context
        self._documents = documents

    def write_soon(self, cluster: Cluster, delay: float = GATHER) -> None:
        """Have it written, with what comes until then."""
        if cluster.writes.timer is None and self._context.leadership.active:
            cluster.writes.timer = asyncio.get_running_loop().call_later(delay, self._write_now, cluster)

    def _write_now(self, cluster: Cluster) -> None:
        cluster.writes.timer = None
        if cluster.key in self._context.cache.clusters:
            self._context.tasks.spawn(self.try_write(cluster))

    async def try_write(self, cluster: Cluster) -> None:
        """Write it; again later, where that is refused."""
        try:
            await self.write(cluster)
        except CorralError as error:
            log.warning("status not written", extra={"cluster": cluster.name, "error": str(error)})
            self.write_soon(cluster, _REFUSED)

    async def write(self, cluster: Cluster, *, unclaimed: bool = False) -> bool:
        """Write it if it says something else than before; True when it was written. ``unclaimed``: also where nobody looks after the document."""
        context, us = self._context, self._context.settings.owner
        async with cluster.writes.lock:
            facts = cluster.facts
            facts.generation = cluster.generation
            facts.children = context.cache.children(cluster)
            if owner(cluster.document) == us:
                await self._write_sizes(cluster, facts.children or [])
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            for _try in range(_TRIES):
                before = cluster.document.get("status") or {}
                wanted = conditions.build(facts, before, now, legacy=context.settings.legacy_conditions)
                change = conditions.patch(wanted, before)
                # Where its name can not be written, that is told all the same.
                own = owner(cluster.document) in (us, "" if unclaimed or cluster.requests.errors else us)
                if not change or not context.leadership.active or not own:
                    return False
                what = f"write the status of SlurmCluster {cluster.name}"
                # If it is as it was seen: it may be another operator's by now.
                body = {"metadata": {"resourceVersion": cluster.document["metadata"]["resourceVersion"]}, "status": change}
                cluster.writes.last = (
                    wanted  # the watch may tell of it before the answer does, and of one whose answer is lost: both are ours
                )
                try:
                    answer = await context.api.request("PATCH", f"{path(cluster.key)}/status", what=what, body=body, content_type=MERGE)
                except CorralError as error:
                    if status_code(error) == 404:
                        return False
                    if status_code(error) != 409:
                        raise
                    self._documents.answered(cluster, await context.api.request("GET", path(cluster.key), what=what))
                    continue
                cluster.writes.last = answer.get("status")
                context.metrics.status_writes.inc()
                self._documents.answered(cluster, answer)
                return True
            self.write_soon(cluster, _REFUSED)
            return False

    async def _write_sizes(self, cluster: Cluster, children: list[Child]) -> None:
        """Have the scale subresources tell how many nodes there are, which autoscalers count with."""
        for name, size in resized(children).items():
            if not self._context.leadership.active:
                return
            try:
                await self._context.api.request(
                    "PATCH",
                    f"{API}/namespaces/{cluster.key[0]}/slurmnodesets/{name}/status",
                    what=f"write the status of SlurmNodeSet {cluster.key[0]}/{name}",
                    body={"status": {"replicas": size}},
                    content_type=MERGE,
                )
            except CorralError as error:
                if status_code(error) not in (403, 404):
                    raise
                if status_code(error) == 403:  # the cluster's own status is written all the same
                    log.warning("size of a node set not told", extra={"cluster": cluster.name, "error": str(error)})
                continue
            self._context.metrics.status_writes.inc()
