# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents on the API server: read once more before something is done for them, and their metadata written, which says whose they are."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from ansible_collections.corral.slurm.plugins.module_utils._cluster import revisions
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.api.client import MERGE, status_code
from corral_operator.reconcile.cluster import Cluster
from corral_operator.reconcile.context import Context
from corral_operator.reconcile.metadata import FINALIZER, OWNER, Json, held, key, older, owner, path, wish
from corral_operator.reconcile.queue import Trigger
from corral_operator.runs.checker import Checked


class Documents:
    """``observe`` takes a document that the API server has answered with."""

    def __init__(self, context: Context, observe: Callable[[Json], None]) -> None:
        self._context = context
        self._observe = observe

    def answered(self, cluster: Cluster, document: Json) -> None:
        """Take an answer of the API server: older than what was seen meanwhile, or gone since, it is no news."""
        if self._context.cache.has(cluster) and not older(document, cluster.document):
            self._observe(document)

    async def unchanged(self, cluster: Cluster, decided: Json) -> bool:
        """Whether what was decided for a document holds: it is read once more, for a watch that is cut off without a word tells of no edit."""
        context = self._context
        fresh = await self._read(cluster)
        if fresh is None:  # that it is gone is for the watch to say: an API server that has just started says so of all
            if context.cache.has(cluster):
                context.queue.add(cluster.key, Trigger.RETRY, context.backoff.failed(cluster.key))
            return False
        self.answered(cluster, fresh)
        us = context.settings.owner
        return context.leadership.active and context.cache.has(cluster) and wish(cluster.document, us) == wish(decided, us)

    async def _read(self, cluster: Cluster) -> Json | None:
        """Return the document as it is now; None where it is not, or is not ours to look after any more."""
        what, selector, client = f"read SlurmCluster {cluster.name}", self._context.settings.selector, self._context.api
        try:
            if not selector:
                return await client.request("GET", path(cluster.key), what=what)
            query = {"fieldSelector": f"metadata.name={cluster.key[1]}", "labelSelector": selector}
            found = await client.request("GET", path(cluster.key).rpartition("/")[0], what=what, query=query)
            # The items of a list do not say of which kind they are.
            kind = {name: cluster.document[name] for name in ("apiVersion", "kind")}
            return next(({**kind, **one} for one in found.get("items") or () if key(one) == cluster.key), None)
        except CorralError as error:
            if status_code(error) != 404:
                raise
            return None

    async def hold(self, cluster: Cluster, *, finalizer: bool = True) -> None:
        """Put this operator's name on the document before anything is written of it, and the finalizer before anything is made of it."""
        change: Json = {}
        if not owner(cluster.document):
            change["annotations"] = {OWNER: self._context.settings.owner}
        if finalizer and not held(cluster.document):
            change["finalizers"] = [*(cluster.document["metadata"].get("finalizers") or ()), FINALIZER]
        if change:
            await self._write(cluster, change)

    async def release(self, cluster: Cluster) -> None:
        """Take the finalizer off."""
        cluster.ownership.released = True
        left = [one for one in cluster.document["metadata"].get("finalizers") or () if one != FINALIZER]
        await self._write(cluster, {"finalizers": left})

    async def _write(self, cluster: Cluster, change: Json) -> None:
        """Change the document's metadata, if it is as it was seen: who looks after it is decided by the API server."""
        if self._context.foreign(cluster.document):
            return
        body = {"metadata": {**change, "resourceVersion": cluster.document["metadata"]["resourceVersion"]}}
        what = f"write the finalizer of SlurmCluster {cluster.name}"
        client = self._context.api
        try:
            answer = await client.request("PATCH", path(cluster.key), what=what, body=body, content_type=MERGE)
        except CorralError as error:
            if status_code(error) == 404:
                return
            if status_code(error) != 409:
                raise
            self.answered(cluster, await client.request("GET", path(cluster.key), what=what))
            raise
        self.answered(cluster, answer)

    async def hand_over(self, cluster: Cluster) -> bool:
        """Take this operator's name off a document that it sees no more, if it is there still, with other labels; False when it is gone."""
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
        """Whether a namespace is being deleted. The RoleBinding that the operator works by is deleted with it, so no run would come to its end."""
        try:
            found = await self._context.api.request("GET", f"/api/v1/namespaces/{namespace}", what=f"read Namespace {namespace}")
        except CorralError as error:
            if status_code(error) in (403, 404):  # an older ClusterRole: the document is destroyed as any other
                return False
            raise
        return bool(found["metadata"].get("deletionTimestamp"))

    async def made_by(self, cluster: Cluster, check: Callable[[Json], Awaitable[Checked]]) -> list[object]:
        """Return the specs that the cluster was made by, as they are kept beside it: that of a run that did not come to its end, and the last that
        did, as far as this version understands them."""
        namespace, name = cluster.key
        where = f"/api/v1/namespaces/{namespace}/configmaps/{revisions.name(name)}"
        try:
            found = await self._context.api.request("GET", where, what=f"read the documents that {cluster.name} was made by")
        except CorralError as error:
            if status_code(error) != 404:
                raise
            return []
        history = revisions.parse(found.get("binaryData") or {})
        tried = [history.tried] if history.tried else []
        done = [one.document for one in reversed(history.known)]
        whole = {"metadata": {"name": name, "namespace": namespace}}
        good: list[object] = []
        for documents in (tried, done):
            for one in documents:
                with contextlib.suppress(CorralError):
                    if not (await check({**one, **whole})).mistakes:
                        good.append(one["spec"])
                        break
        return good
