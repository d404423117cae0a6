# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator with a hundred clusters that are well: its start, its memory, its rest, how soon a new document is begun, and who leads next.

The operator is the real one, as a process of its own beside the lab's API server; documents and objects are real, too. The clusters have no pods, and are
written down as found well by a run before: so nothing is to do, which is what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import subprocess
import sys
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.tests.bench.operator_process import Metrics, definition, memory, operator, processor, until
from corral_operator import content
from corral_operator.api.client import MERGE, Client, list_all
from corral_operator.reconcile import conditions, decisions, metadata
from corral_operator.reconcile.children import COMPONENT, INSTANCE, KINDS, Children

Json = dict[str, Any]

COUNT = 100
NAME = "fleet"
_LABELS = {"app.kubernetes.io/managed-by": "corral", "app.kubernetes.io/part-of": "corral", INSTANCE: NAME}
# How long the operator is watched at rest.
_REST = 30.0


def measure(document: Path, scratch: Path) -> dict[str, float]:
    """Return seconds, MiB and counts. ``document`` is that of the demonstration's cluster, of which the images are taken."""
    return asyncio.run(_measure(yaml.safe_load(document.read_text())["spec"]["images"], scratch))


async def _measure(images: Json, scratch: Path) -> dict[str, float]:
    async with Client(auth.resolve({})) as client:
        await definition(client)
        fleet = _Fleet(client, images)
        try:
            await fleet.make()
            found = await _at_rest(fleet, scratch)
            return {**found, "first": await _a_new_one(fleet, scratch), **await _succession(fleet, scratch)}
        finally:
            await fleet.remove()


async def _at_rest(fleet: _Fleet, scratch: Path) -> dict[str, float]:
    began = time.perf_counter()
    async with fleet.operator(scratch) as (process, metrics):
        await until(lambda: metrics.get("corral_operator_runs_skipped_total") >= COUNT, 120)
        seconds = time.perf_counter() - began
        await asyncio.sleep(5.0)  # the zygote warms up meanwhile
        before = processor(process.pid)
        await asyncio.sleep(_REST)
        return {
            "start": seconds,
            "processor": 100 * (processor(process.pid) - before) / _REST,
            "memory": memory(process.pid),
            "runs": metrics.get("corral_operator_runs_total") + metrics.get("corral_operator_runs_in_progress"),
            "writes": metrics.get("corral_operator_requests", kind="write"),
        }


async def _a_new_one(fleet: _Fleet, scratch: Path) -> float:
    """Return the seconds from a new document to its finalizer, while the operator reads all the others for the first time."""
    async with fleet.operator(scratch) as (_process, metrics):
        await until(lambda: metrics.get("corral_operator_runs_skipped_total") >= 1, 120)
        await fleet.document("new", finalizers=[])
        began = time.perf_counter()
        while not (await fleet.get("new"))["metadata"].get("finalizers"):
            await asyncio.sleep(0.02)
            if time.perf_counter() - began > 60:
                sys.exit("bench: the operator did not begin a new document")
        return time.perf_counter() - began


async def _succession(fleet: _Fleet, scratch: Path) -> dict[str, float]:
    """Return the seconds from a leader's end to the next one's beginning: killed, and told to stop."""

    async def leads(metrics: Metrics) -> float:
        began = time.perf_counter()
        await until(lambda: metrics.get("corral_operator_leader") == 1, 60)
        return time.perf_counter() - began

    found = {}
    async with fleet.operator(scratch, elect=True) as (first, its):
        await leads(its)
        async with fleet.operator(scratch, elect=True) as (second, metrics):
            await until(lambda: metrics.get("corral_operator_clusters") >= COUNT, 120)
            first.kill()
            found["killed"] = await leads(metrics)
            async with fleet.operator(scratch, elect=True) as (_third, last):
                await until(lambda: last.get("corral_operator_clusters") >= COUNT, 120)
                second.terminate()
                found["stopped"] = await leads(last)
    return found


class _Fleet:
    def __init__(self, client: Client, images: Json) -> None:
        self._client = client
        self._images = images
        self.names = [f"{NAME}-{number}" for number in range(COUNT)]
        # Others in the lab have their own operator.
        self.alone = True

    def operator(self, scratch: Path, *, elect: bool = False) -> AbstractAsyncContextManager[tuple[subprocess.Popen[bytes], Metrics]]:
        """Start an operator that sees these clusters."""
        namespaces = "" if self.alone else ",".join(f"bench-{name}" for name in (*self.names, "new"))
        return operator(scratch, namespaces=namespaces, lease="bench-new", elect=elect)

    async def make(self) -> None:
        """Namespaces, documents and objects, and what a run would have found."""
        await self.remove()
        documents, _version = await list_all(self._client, "/apis/corral.hpc/v1alpha1/slurmclusters", what="list documents", query={})
        self.alone = not documents
        await asyncio.gather(*(self._namespace(name) for name in (*self.names, "new")))
        turns = asyncio.Semaphore(8)

        async def one(name: str) -> None:
            async with turns:
                await self.document(name, finalizers=[metadata.FINALIZER])
                for path, body in _objects():
                    await self._post(path.format(f"bench-{name}"), body)

        await asyncio.gather(*map(one, self.names))
        await asyncio.sleep(5.0)  # the controllers of the StatefulSets observe them
        for name in self.names:
            await self._well(name)

    async def document(self, name: str, finalizers: list[str]) -> None:
        """Write one."""
        volume = {"claimName": "none"}
        spec = {
            "images": self._images,
            "controller": {"stateVolume": volume, "nodeSelector": {"nowhere": "yes"}},
            "priorityClasses": {"create": False},
            "login": {"replicas": 0},
            "nodeSets": [],
            "partitions": [],
            "jail": {"volume": volume, "populate": {"image": "none"}},
        }
        metadata = {"name": NAME, "namespace": f"bench-{name}", "finalizers": finalizers}
        body = {"apiVersion": "corral.hpc/v1alpha1", "kind": "SlurmCluster", "metadata": metadata, "spec": spec}
        await self._post(f"/apis/corral.hpc/v1alpha1/namespaces/bench-{name}/slurmclusters", body)

    async def get(self, name: str) -> Json:
        """Read one."""
        return await self._client.request("GET", _document(name), what="read a document")

    async def _well(self, name: str) -> None:
        """Write the status that a run has left which found nothing to do."""
        document = await self.get(name)
        children = Children()
        for kind in KINDS:
            path = kind.path(f"bench-{name}")
            found, _version = await list_all(self._client, path, what=f"list {kind.plural}", query={"labelSelector": kind.selector})
            children.replace(kind, found)
        mine = children.of(NAME)
        if not all(child.ready for child in mine):
            sys.exit(f"bench: objects in bench-{name} are not ready: {[child.message for child in mine if not child.ready]}")
        generation = int(document["metadata"]["generation"])
        revision = content.revision({})
        facts = conditions.Facts(
            generation=generation,
            observed=generation,
            fingerprints=conditions.Fingerprints(site=decisions.observed(document, revision, mine), revision=revision),
            nodes={"total": 0, "inService": 0, "drained": 0, "down": 0},
            children=mine,
        )
        body = {"status": conditions.build(facts, {}, datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))}
        await self._client.request("PATCH", f"{_document(name)}/status", what="write a status", body=body, content_type=MERGE)

    async def _namespace(self, name: str) -> None:
        await self._post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"bench-{name}"}})

    async def _post(self, path: str, body: Json) -> None:
        await self._client.request("POST", path, what=f"create in {path}", body=body)

    async def remove(self) -> None:
        """Take everything away, also what a run of this that was killed has left."""

        async def one(name: str) -> None:
            with contextlib.suppress(CorralError):
                body = {"metadata": {"finalizers": None}}
                await self._client.request("PATCH", _document(name), what="let go", body=body, content_type=MERGE)
            with contextlib.suppress(CorralError):
                await self._client.request("DELETE", f"/api/v1/namespaces/bench-{name}", what="delete a namespace")

        names = (*self.names, "new")
        await asyncio.gather(*map(one, names))
        for name in names:
            for _try in range(600):
                try:
                    await self._client.request("GET", f"/api/v1/namespaces/bench-{name}", what="look for a namespace")
                except CorralError:
                    break
                await asyncio.sleep(0.5)


def _document(name: str) -> str:
    return f"/apis/corral.hpc/v1alpha1/namespaces/bench-{name}/slurmclusters/{NAME}"


def _objects() -> list[tuple[str, Json]]:
    """What a small cluster has, without pods."""
    found: list[tuple[str, Json]] = []
    for part in ("controller", "worker", "login"):
        labels = {**_LABELS, COMPONENT: part}
        metadata = {"name": f"{NAME}-{part}", "labels": labels}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
        sets = {"replicas": 0, "serviceName": f"{NAME}-{part}", "selector": {"matchLabels": labels}, "template": pod}
        found += [
            ("/api/v1/namespaces/{}/configmaps", {"metadata": metadata, "data": {"text": "x" * 4000}}),
            ("/api/v1/namespaces/{}/serviceaccounts", {"metadata": metadata}),
            ("/api/v1/namespaces/{}/services", {"metadata": metadata, "spec": {"clusterIP": "None", "selector": labels}}),
            ("/apis/apps/v1/namespaces/{}/statefulsets", {"metadata": metadata, "spec": sets}),
        ]
    return found
