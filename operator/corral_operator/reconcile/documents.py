# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents on the API server: reads them again before an action, and writes the metadata that names their operator."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from ansible_collections.corral.slurm.plugins.module_utils._cluster import revisions
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.api.client import MERGE, status_code
from corral_operator.reconcile.cluster import Cluster
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.metadata import FINALIZER, OWNER, Json, desired_state, has_finalizer, key, older, owner, path
from corral_operator.reconcile.queue import Trigger
from corral_operator.runs.checker import Checked


class Documents:
    """``observe`` is called with a document in a response of the API server."""

    def __init__(self, context: Context, observe: Callable[[Json], None]) -> None:
        self._context = context
        self._observe = observe

    def observe_response(self, cluster: Cluster, document: Json) -> None:
        """Observe the document in a response, unless it is older than the observed one or deleted since."""
        if self._context.cache.has(cluster) and not older(document, cluster.document):
            self._observe(document)

    async def unchanged(self, cluster: Cluster, decided: Json) -> bool:
        """True if a decision for a document is still valid. It reads the document again, because a broken watch delivers no edits."""
        context = self._context
        fresh = await self._read(cluster)
        if fresh is None:  # only the watch decides that it is gone: an API server that has just started may respond 404
            if context.cache.has(cluster):
                context.queue.add(cluster.key, Trigger.RETRY, context.backoff.failed(cluster.key))
            return False
        self.observe_response(cluster, fresh)
        us = context.settings.owner
        return (
            context.leadership.active and context.cache.has(cluster) and desired_state(cluster.document, us) == desired_state(decided, us)
        )

    async def _read(self, cluster: Cluster) -> Json | None:
        """Return the current document; None if it does not exist or the selector does not match it any more."""
        what, selector, client = f"read SlurmCluster {cluster.name}", self._context.settings.selector, self._context.api
        try:
            if not selector:
                return await client.request("GET", path(cluster.key), what=what)
            query = {"fieldSelector": f"metadata.name={cluster.key[1]}", "labelSelector": selector}
            found = await client.request("GET", path(cluster.key).rpartition("/")[0], what=what, query=query)
            # The items of a list have no kind.
            kind = {name: cluster.document[name] for name in ("apiVersion", "kind")}
            return next(({**kind, **one} for one in found.get("items") or () if key(one) == cluster.key), None)
        except CorralError as error:
            if status_code(error) != 404:
                raise
            return None

    async def claim(self, cluster: Cluster, *, finalizer: bool = True) -> None:
        """Write this operator's name into the document, before any other write to it, and the finalizer, before any object is created."""
        change: Json = {}
        if not owner(cluster.document):
            change["annotations"] = {OWNER: self._context.settings.owner}
        if finalizer and not has_finalizer(cluster.document):
            change["finalizers"] = [*(cluster.document["metadata"].get("finalizers") or ()), FINALIZER]
        if change:
            await self._write(cluster, change)

    async def release(self, cluster: Cluster) -> None:
        """Remove the finalizer."""
        cluster.ownership.released = True
        left = [one for one in cluster.document["metadata"].get("finalizers") or () if one != FINALIZER]
        await self._write(cluster, {"finalizers": left})

    async def _write(self, cluster: Cluster, change: Json) -> None:
        """Change the document's metadata, if it has not changed since it was observed: the API server decides which operator is first."""
        if self._context.foreign(cluster.document):
            return
        body = {"metadata": {**change, "resourceVersion": cluster.document["metadata"]["resourceVersion"]}}
        what = f"write the finalizer of SlurmCluster {cluster.name}"
        client = self._context.api
        try:
            response = await client.request("PATCH", path(cluster.key), what=what, body=body, content_type=MERGE)
        except CorralError as error:
            if status_code(error) == 404:
                return
            if status_code(error) != 409:
                raise
            self.observe_response(cluster, await client.request("GET", path(cluster.key), what=what))
            raise
        self.observe_response(cluster, response)

    async def hand_over(self, cluster: Cluster) -> bool:
        """Remove this operator's name from a document that its selector does not match any more; False if the document is gone."""
        what, client = f"hand over SlurmCluster {cluster.name}", self._context.api
        try:
            found = await client.request("GET", path(cluster.key), what=what)
            lost = cluster.key not in self._context.cache.clusters
            if self._context.leadership.active and lost and owner(found) == self._context.settings.owner:
                body = {"metadata": {"annotations": {OWNER: None}, "resourceVersion": found["metadata"]["resourceVersion"]}}
                await client.request("PATCH", path(cluster.key), what=what, body=body, content_type=MERGE)
        except CorralError as error:
            if status_code(error) != 404:
                raise
            return False
        return True

    async def namespace_terminates(self, namespace: str) -> bool:
        """True if a namespace is being deleted. The operator's RoleBinding is deleted with it, so no run could finish."""
        try:
            found = await self._context.api.request("GET", f"/api/v1/namespaces/{namespace}", what=f"read Namespace {namespace}")
        except CorralError as error:
            if status_code(error) in (403, 404):  # an older ClusterRole: destroy the cluster as usual
                return False
            raise
        return bool(found["metadata"].get("deletionTimestamp"))

    async def applied_specs(self, cluster: Cluster, check: Callable[[Json], Awaitable[Checked]]) -> list[object]:
        """Return the specs that the cluster was created by, from its history: that of an unfinished run, and that of the last finished one,
        if they are valid in this version."""
        namespace, name = cluster.key
        where = f"/api/v1/namespaces/{namespace}/configmaps/{revisions.name(name)}"
        try:
            found = await self._context.api.request("GET", where, what=f"read the history of {cluster.name}")
        except CorralError as error:
            if status_code(error) != 404:
                raise
            return []
        history = revisions.parse(found.get("binaryData") or {})
        tried = [history.tried] if history.tried else []
        done = [one.document for one in reversed(history.known)]
        identity = {"metadata": {"name": name, "namespace": namespace}}
        valid: list[object] = []
        for documents in (tried, done):
            for one in documents:
                with contextlib.suppress(CorralError):
                    if not (await check({**one, **identity})).errors:
                        valid.append(one["spec"])
                        break
        return valid
