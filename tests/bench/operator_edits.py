# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How soon the operator does what it is there for: takes a document up, makes an edit live, repairs drift of each kind, and leaves a cluster at rest alone.

The operator is the real one, as a process beside the lab; the cluster is the demonstration's, which a playbook has made and which is given back as it was.

By itself: ``tools/run --lab python tests/bench/operator_edits.py DOCUMENT``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.tests.bench.operator_process import REPOSITORY, Metrics, definition, operator, until
from corral_operator.api.client import MERGE, Client, list_all
from corral_operator.reconcile.children import INSTANCE, KINDS

Json = dict[str, Any]

EDITS, DRIFTS = 6, 5
_REST = 20.0
_LABEL = "app.kubernetes.io/name"
# What is set wrong in turn; each object has it, and no selector of the operator's asks for it. Who takes a label off owns no field by that.
_SPOILT = ((_LABEL, "drifted"), (INSTANCE, None))


def measure(document: Path, scratch: Path, edits: int = EDITS, drifts: int = DRIFTS) -> dict[str, Any]:
    """Return seconds, by edit and by kind of object, and what was done to a cluster at rest."""
    return asyncio.run(_measure(yaml.safe_load(document.read_text()), scratch, edits, drifts))


async def _measure(document: Json, scratch: Path, edits: int, drifts: int) -> dict[str, Any]:
    async with Client(auth.resolve({})) as client:
        await definition(client)
        served = _Served(client, document)
        try:
            await served.create()
            began = time.perf_counter()
            async with operator(scratch, namespaces=served.namespace, lease=served.namespace) as (_process, metrics):
                await until(lambda: metrics.get("corral_operator_runs_total") > 0, 60)
                started = time.perf_counter() - began
                await served.settled(metrics)
                return {
                    "start": started,
                    "bare": await _bare(served, edits),
                    **await _edits(served, metrics, edits),
                    "drift": {
                        kind: [await _drift(served, metrics, path, *_SPOILT[number % 2]) for number in range(drifts)]
                        for kind, path in (await served.objects()).items()
                    },
                    **await _rest(metrics),
                }
        finally:
            await served.let_go()


async def _edits(served: _Served, metrics: Metrics, count: int) -> dict[str, list[float]]:
    """A partition's time limit is changed: in the ConfigMap, and as slurmctld says it."""
    found: dict[str, list[float]] = {"live": [], "served": []}
    partitions = served.document["spec"]["partitions"]
    for number in range(1, count + 2):
        limit = f"1-00:{number:02}:00" if number <= count else None  # the last puts it back
        changed = [{**one, "maxTime": limit} if limit and one is partitions[-1] else one for one in partitions]
        began = time.perf_counter()
        await served.patch(served.path, {"spec": {"partitions": changed}})
        if limit:
            config = f"/api/v1/namespaces/{served.namespace}/configmaps/{served.name}-controller-config"
            found["live"].append(await _when("an edit", began, partial(served.says, config, f"MaxTime={limit}")))
            found["served"].append(
                await _when("an edit that slurmctld serves", began, partial(served.serves, partitions[-1]["name"], f"MaxTime={limit}"))
            )
        await served.settled(metrics)
    return found


async def _drift(served: _Served, metrics: Metrics, path: str, label: str, spoilt: str | None) -> float:
    began = time.perf_counter()
    right = (await served.get(path))["metadata"]["labels"][label]
    await served.patch(path, {"metadata": {"labels": {label: spoilt}}})

    async def repaired() -> bool:
        return bool((await served.get(path))["metadata"]["labels"].get(label) == right)

    seconds = await _when(f"the drift of {path}", began, repaired)
    await served.settled(metrics)
    return seconds


async def _rest(metrics: Metrics) -> dict[str, float]:
    def counts() -> tuple[float, ...]:
        writes = metrics.get("corral_operator_requests", kind="write")
        return (
            metrics.get("corral_operator_runs_total", playbook="site"),
            writes,
            metrics.get("corral_operator_runs_total", playbook="sync"),
        )

    before = counts()
    await asyncio.sleep(_REST)
    return {name: after - then for name, then, after in zip(("runs", "writes", "looks"), before, counts(), strict=True)}


async def _bare(served: _Served, count: int) -> list[float]:
    """Return the seconds of the least that a controller can do: it watches a ConfigMap, and patches another one when that has changed."""
    configmaps = f"/api/v1/namespaces/{served.namespace}/configmaps"
    source, target = (f"{configmaps}/bench-{name}" for name in ("source", "target"))
    async with contextlib.AsyncExitStack() as stack:
        for path in (source, target):
            body = {"metadata": {"name": path.rpartition("/")[2]}}
            await served.client.request("POST", configmaps, what="create the baseline's ConfigMap", body=body)
            stack.push_async_callback(partial(served.client.request, "DELETE", path, what="delete the baseline's ConfigMap"))

        async def follow() -> None:
            query = {"fieldSelector": "metadata.name=bench-source"}
            async for event in served.client.watch(configmaps, what="watch the baseline's ConfigMap", query=query, seconds=120):
                if event["object"].get("data"):
                    await served.patch(target, {"data": event["object"]["data"]})

        watching = asyncio.create_task(follow())
        stack.callback(watching.cancel)
        await asyncio.sleep(0.5)
        found = []
        for number in range(count):
            began = time.perf_counter()
            await served.patch(source, {"data": {"limit": f"limit-{number}."}})
            found.append(await _when("the baseline's edit", began, partial(served.says, target, f"limit-{number}.")))
        return found


async def _when(what: str, began: float, condition: Callable[[], Awaitable[bool]]) -> float:
    while not await condition():
        if time.perf_counter() - began > 60:
            sys.exit(f"bench: the operator did not come to {what} within a minute; its log is operator.log")
        await asyncio.sleep(0.02)
    return time.perf_counter() - began


class _Served:
    """The demonstration's cluster as a document of the operator's."""

    def __init__(self, client: Client, document: Json) -> None:
        self.client = client
        self.document = document
        self.name, self.namespace = document["metadata"]["name"], document["metadata"].get("namespace", "default")
        self._collection = f"/apis/corral.hpc/v1alpha1/namespaces/{self.namespace}/slurmclusters"
        self.path = f"{self._collection}/{self.name}"

    async def create(self) -> None:
        """Write the document; one that a run of this has left goes first."""
        await self.let_go()
        await self.client.request("POST", self._collection, what="write the document", body=self.document)

    async def let_go(self) -> None:
        """Take the document away, and leave the cluster."""
        with contextlib.suppress(CorralError):
            await self.patch(self.path, {"metadata": {"finalizers": None}})
            await self.client.request("DELETE", self.path, what="take the document away")

    async def get(self, path: str) -> Json:
        """Read an object."""
        return await self.client.request("GET", path, what=f"read {path}")

    async def patch(self, path: str, change: Json) -> None:
        """Change an object, as somebody else would."""
        await self.client.request("PATCH", path, what=f"change {path}", body=change, content_type=MERGE, query={"fieldManager": "somebody"})

    async def says(self, path: str, text: str) -> bool:
        """Whether an object holds a text."""
        return text in json.dumps(await self.get(path))

    async def serves(self, partition: str, text: str) -> bool:
        """Whether slurmctld says a text of a partition."""
        command = [str(REPOSITORY / "lab" / "kubectl"), "exec", "-n", self.namespace, f"{self.name}-controller-0", "-c", "slurmctld", "--"]
        asked = asyncio.to_thread(subprocess.run, [*command, "scontrol", "show", "partition", partition], capture_output=True, text=True)
        return text in (await asked).stdout

    async def objects(self) -> dict[str, str]:
        """Return an object of each kind that a run sets right. Keys are only ever made, and pods are the StatefulSets' own."""
        found = {}
        for kind in KINDS:
            if kind.name in ("Secret", "Pod"):
                continue
            path = kind.path(self.namespace)
            # Of the ConfigMaps not those that are a set's own record, of which a run reads what it needs.
            query = {"labelSelector": f"{kind.selector},{INSTANCE}={self.name},{_LABEL},!applyset.kubernetes.io/id"}
            for one in (await list_all(self.client, path, what="list", query=query))[0][:1]:
                found[kind.name] = f"{path}/{one['metadata']['name']}"
        return found

    async def settled(self, metrics: Metrics) -> None:
        """Wait until the operator has nothing left to do."""

        async def quiet() -> bool:
            status = (await self.get(self.path)).get("status") or {}
            busy = metrics.get("corral_operator_runs_in_progress") + metrics.get("corral_operator_queue_depth")
            return bool(status.get("observedHash") and status.get("syncedHash")) and not busy

        deadline = time.perf_counter() + 180
        quiet_for = 0
        while quiet_for < 5:
            quiet_for = quiet_for + 1 if await quiet() else 0
            await asyncio.sleep(0.3)
            if time.perf_counter() > deadline:
                sys.exit("bench: the operator did not settle; its log is operator.log")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("document", type=Path)
    arguments.add_argument("--edits", type=int, default=EDITS)
    arguments.add_argument("--drifts", type=int, default=DRIFTS)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(json.dumps(measure(options.document, Path(folder), options.edits, options.drifts), indent=1))
        finally:
            log = Path(folder) / "operator.log"
            print(log.read_text()[-3000:] if log.exists() else "no log", file=sys.stderr)
