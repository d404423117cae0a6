# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches SlurmTenants, each change of which requests a run of corral.slurm.tenants."""

from __future__ import annotations

import asyncio
import functools
import logging

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.api.client import Json
from corral_operator.api.watch import Collection, Watch
from corral_operator.reconcile.cache import TenantsObject
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.metadata import API, Key, key
from corral_operator.reconcile.queue import Trigger

log = logging.getLogger(__name__)


class TenantsTriggers:
    """Watches SlurmTenants where the operator watches documents."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # The namespaces, "" for all, that have not been listed yet, and those that cannot be.
        self._missing: set[str] = set()
        self._refused_in: set[str] = set()

    def watch(self) -> list[asyncio.Task[None]]:
        """Start watching."""
        settings = self._context.settings
        self._missing = set(settings.namespaces or ("",))
        return [
            asyncio.create_task(
                Watch(
                    self._context.api,
                    Collection(f"{API}/namespaces/{one}/slurmtenants" if one else f"{API}/slurmtenants", "SlurmTenants", optional=True),
                    replace=functools.partial(self._listed, one),
                    on_event=self._on_event,
                    refused=functools.partial(self._refused, one),
                    relist=settings.relist,
                ).run()
            )
            for one in sorted(self._missing)
        ]

    def _refused(self, scope: str, error: CorralError) -> None:
        # Clusters with objects learn the reason from their next run, which reads them by itself.
        if scope not in self._refused_in:
            self._refused_in.add(scope)
            log.warning("SlurmTenants cannot be watched", extra={"error": str(error)})
            self._replace(scope, {})

    def _listed(self, scope: str, found: list[Json]) -> None:
        self._refused_in.discard(scope)
        self._replace(scope, {key(one): TenantsObject.of(one) for one in found})

    def _replace(self, scope: str, found: dict[Key, TenantsObject]) -> None:
        cache = self._context.cache
        for name in {*(name for name in cache.tenants if not scope or name[0] == scope), *found}:
            self._set(name, found.get(name))
        self._missing.discard(scope)
        if not cache.tenants_known and not self._missing:
            cache.tenants_known = True
            for cluster in cache.clusters.values():
                self._context.queue.add(cluster.tenants_key, Trigger.RESYNC)

    def _on_event(self, event: str, found: Json) -> None:
        self._set(key(found), None if event == "DELETED" else TenantsObject.of(found))

    def _set(self, name: Key, found: TenantsObject | None) -> None:
        """Take over the state of an object, None for one that is gone, and queue the clusters that it is or was for."""
        cache, settings = self._context.cache, self._context.settings
        before = cache.tenants.pop(name, None)
        if found is not None:
            cache.tenants[name] = found
        if before is not None and found is not None and before.version == found.version:
            return  # its status
        for one in {one.cluster for one in (before, found) if one is not None}:
            cluster = cache.clusters.get((name[0], one))
            if cluster is not None:
                self._context.backoff.reset(cluster.tenants_key)
                self._context.queue.add(cluster.tenants_key, Trigger.EDIT, settings.debounce, settings.debounce_most)
                if cluster.facts.observed:
                    cluster.execution.yield_soon()
