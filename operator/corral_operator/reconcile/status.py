# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the status of SlurmClusters, if it has changed, and the sizes of their node sets."""

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

# Changes of objects are gathered for this long before the status is written.
GATHER = 0.3
# Attempts to write a status whose document changes meanwhile.
_TRIES = 5
# The pause after a refused write of a status.
_REFUSED = 10.0


def timestamp() -> str:
    """Return the time as Kubernetes writes it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class StatusWriter:
    """Writes each status, one write at a time."""

    def __init__(self, context: Context, documents: Documents) -> None:
        self._context = context
        self._documents = documents

    def write_soon(self, cluster: Cluster, delay: float = GATHER) -> None:
        """Schedule a write of the status."""
        if cluster.writes.timer is None and self._context.leadership.active:
            cluster.writes.timer = asyncio.get_running_loop().call_later(delay, self._write_now, cluster)

    def _write_now(self, cluster: Cluster) -> None:
        cluster.writes.timer = None
        if cluster.key in self._context.cache.clusters:
            self._context.tasks.spawn(self.try_write(cluster))

    async def try_write(self, cluster: Cluster) -> None:
        """Write the status, and retry later if that fails."""
        try:
            await self.write(cluster)
        except CorralError as error:
            log.warning("status not written", extra={"cluster": cluster.name, "error": str(error)})
            self.write_soon(cluster, _REFUSED)

    async def write(self, cluster: Cluster, *, unclaimed: bool = False) -> bool:
        """Write the status if it has changed; True if it was written. ``unclaimed``: even if no operator manages the document."""
        context, us = self._context, self._context.settings.owner
        async with cluster.writes.lock:
            facts = cluster.facts
            facts.generation = cluster.generation
            facts.children = context.cache.children(cluster)
            if owner(cluster.document) == us:
                await self._write_sizes(cluster, facts.children or [])
            now = timestamp()
            for _try in range(_TRIES):
                before = cluster.document.get("status") or {}
                wanted = conditions.build(facts, before, now, legacy=context.settings.legacy_conditions)
                change = conditions.patch(wanted, before)
                # A failure to claim the document must show in the status too.
                own = owner(cluster.document) in (us, "" if unclaimed or cluster.requests.errors else us)
                if not change or not context.leadership.active or not own:
                    return False
                what = f"write the status of SlurmCluster {cluster.name}"
                # Only if unchanged since it was observed: another operator may have claimed it.
                body = {"metadata": {"resourceVersion": cluster.document["metadata"]["resourceVersion"]}, "status": change}
                cluster.writes.last = wanted  # set before the response, which may arrive after the watch event or get lost
                try:
                    response = await context.api.request("PATCH", f"{path(cluster.key)}/status", what=what, body=body, content_type=MERGE)
                except CorralError as error:
                    if status_code(error) == 404:
                        return False
                    if status_code(error) != 409:
                        raise
                    self._documents.observe_response(cluster, await context.api.request("GET", path(cluster.key), what=what))
                    continue
                cluster.writes.last = response.get("status")
                context.metrics.status_writes.inc()
                self._documents.observe_response(cluster, response)
                return True
            self.write_soon(cluster, _REFUSED)
            return False

    async def _write_sizes(self, cluster: Cluster, children: list[Child]) -> None:
        """Write the number of nodes into the scale subresources, for autoscalers."""
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
                if status_code(error) == 403:  # the cluster's own status is written anyway
                    log.warning("size of a node set not written", extra={"cluster": cluster.name, "error": str(error)})
                continue
            self._context.metrics.status_writes.inc()
