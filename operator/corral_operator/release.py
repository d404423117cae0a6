# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""``corral-operator release``: takes the finalizer off the documents, so that they can be deleted when no operator is there. Clusters are left as they are."""

from __future__ import annotations

import asyncio

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator import api, plan
from corral_operator.api import Api, Json

_API = "/apis/corral.hpc/v1alpha1"
_TRIES = 5


async def release(client: Api, namespaces: tuple[str, ...], selector: str = "") -> int:
    """Return how many documents were let go. Raises CorralError where one could not be."""
    count = 0
    query = {"labelSelector": selector} if selector else {}
    for namespace in namespaces or ("",):
        path = f"{_API}/namespaces/{namespace}/slurmclusters" if namespace else f"{_API}/slurmclusters"
        try:
            found, _version = await api.items(client, path, what="list the SlurmClusters", query=query, accept=api.METADATA_LIST)
        except CorralError as error:
            if api.code(error) == 404:  # the definition is gone, and so are all documents
                continue
            raise
        for document in found:
            count += await _let_go(client, document)
    return count


async def _let_go(client: Api, document: Json) -> bool:
    metadata = document["metadata"]
    path = f"{_API}/namespaces/{metadata['namespace']}/slurmclusters/{metadata['name']}"
    what = f"take the finalizer off SlurmCluster {metadata['namespace']}/{metadata['name']}"
    for tried in range(_TRIES):
        finalizers = metadata.get("finalizers") or []
        if plan.FINALIZER not in finalizers:
            return False
        others = [one for one in finalizers if one != plan.FINALIZER]
        # With the version that was read, so that nobody else's finalizer is lost.
        body = {"metadata": {"finalizers": others, "resourceVersion": metadata["resourceVersion"]}}
        try:
            await client.request("PATCH", path, what=what, body=body, content_type=api.MERGE)
        except CorralError as error:
            if api.code(error) == 404:
                return False
            if api.code(error) != 409 or tried == _TRIES - 1:
                raise
            await asyncio.sleep(0.1 * 2**tried)
            metadata = (await client.request("GET", path, what=what))["metadata"]
        else:
            return True
    return False
