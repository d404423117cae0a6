# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small world for the controller: an API server in memory, an engine whose runs do what a test says, and a loop whose time passes by itself."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import json
import os
import selectors
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ansible_collections.corral.slurm.plugins.module_utils._cluster import revisions
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Status, api_error
from corral_operator.api.client import JSON
from corral_operator.reconcile.children import COMPONENT, INSTANCE
from corral_operator.reconcile.controller import Controller
from corral_operator.runs import checker
from corral_operator.runs.engine import Process
from corral_operator.runs.playbook import Request
from corral_operator.serving.metrics import Metrics
from corral_operator.settings import Settings

Json = dict[str, Any]
T = TypeVar("T")
CONFIG = "/api/v1/namespaces/one/configmaps/a-config"
WORKER = "/apis/apps/v1/namespaces/one/statefulsets/a-worker"
LABELS = {"app.kubernetes.io/managed-by": "corral", "app.kubernetes.io/part-of": "corral"}


class _Selector(selectors.DefaultSelector):
    loop: Loop

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if found or timeout == 0:
            return found
        if timeout is None:
            return super().select(5)
        self.loop.now += timeout
        return []


class Loop(asyncio.SelectorEventLoop):
    """A loop in which sleeping takes no time: when all wait, the clock jumps to the next moment at which something happens."""

    def __init__(self) -> None:
        selector = _Selector()
        self.now = 1000.0
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self.now


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(work)


class FakeApi:
    """Objects by their path. Writes are counted; ``refuse`` gives the code with which a request is refused, if it is."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.version = 100
        self.writes: list[tuple[str, str]] = []
        self.sent: dict[str, int] = {}
        self.watches: list[tuple[str, asyncio.Queue[Json | None]]] = []
        self.refuse: Callable[[str, str], int] = lambda _method, _path: 0
        # Delay of the response to a write after its watch event.
        self.response_delay = 0.0
        # Delay of the watch event after the response to a write.
        self.event_delay = 0.0

    def put(self, path: str, found: Json) -> Json:
        """Write an object, as any client."""
        self.version += 1
        old = self.objects.get(path)
        found = copy.deepcopy(found)
        metadata = found.setdefault("metadata", {})
        metadata["resourceVersion"] = str(self.version)
        metadata.setdefault("uid", old["metadata"]["uid"] if old else f"uid-{self.version}")
        spec_changed = old is None or old.get("spec") != found.get("spec")
        metadata["generation"] = int((old or found)["metadata"].get("generation", 0)) + spec_changed
        self.objects[path] = found
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            self.delete(path)
        else:
            self._emit(path, "MODIFIED" if old else "ADDED", found)
        return found

    def delete(self, path: str) -> None:
        """Delete an object, as any client."""
        self.version += 1
        found = self.objects[path]
        found["metadata"]["resourceVersion"] = str(self.version)
        if found["metadata"].get("finalizers"):
            found["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
            self._emit(path, "MODIFIED", found)
        else:
            del self.objects[path]
            self._emit(path, "DELETED", found)

    def _emit(self, path: str, kind: str, found: Json) -> None:
        for collection, queue in self.watches:
            if _within(path, collection):
                event = {"type": kind, "object": copy.deepcopy(found)}
                if self.event_delay:
                    asyncio.get_running_loop().call_later(self.event_delay, queue.put_nowait, event)
                else:
                    queue.put_nowait(event)

    def end_watches(self, event: Json | None = None) -> None:
        """The server ends all watches, with a last event where one is given."""
        for _path, queue in self.watches:
            if event is not None:
                queue.put_nowait(event)
            queue.put_nowait(None)

    async def request(
        self,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        patience: float | None = None,
    ) -> Json:
        await asyncio.sleep(0)
        code = self.refuse(method, path)
        if code:
            raise api_error(Status(code, message="refused"), what, server="fake")
        if method != "GET" and "/events" not in path:
            self.writes.append((method, path))
        if method == "POST":
            path = f"{path}/{(body or {})['metadata']['name']}"
            if path in self.objects:
                raise api_error(Status(409, reason="AlreadyExists"), what, server="fake")
            return copy.deepcopy(self.put(path, body or {}))
        if method == "GET" and path not in self.objects and path.rsplit("/", 1)[-1].endswith(("s", "ies")):
            items = [copy.deepcopy(found) for name, found in self.objects.items() if _within(name, path) and _selected(found, query)]
            return {"items": items, "metadata": {"resourceVersion": str(self.version)}}
        target = path.removesuffix("/status")
        if target not in self.objects:
            raise api_error(Status(404, message="not found"), what, server="fake")
        old = self.objects[target]
        if method == "GET":
            return copy.deepcopy(old)
        given = ((body or {}).get("metadata") or {}).get("resourceVersion")
        if given is not None and given != old["metadata"]["resourceVersion"]:
            raise api_error(Status(409, reason="Conflict"), what, server="fake")
        new = copy.deepcopy(body or {}) if method == "PUT" else _merged(old, body or {})
        response = copy.deepcopy(self.put(target, new))
        await asyncio.sleep(self.response_delay)
        return response

    async def watch(self, path: str, *, what: str, query: Mapping[str, str], seconds: int, accept: str = JSON) -> AsyncIterator[Json]:
        queue: asyncio.Queue[Json | None] = asyncio.Queue()
        entry = (path, queue)
        self.watches.append(entry)
        try:
            for name, found in self.objects.items():  # what was written since the list
                if (
                    _within(name, path)
                    and _selected(found, query)
                    and int(found["metadata"]["resourceVersion"]) > int(query["resourceVersion"])
                ):
                    yield {"type": "MODIFIED", "object": copy.deepcopy(found)}
            while True:
                try:
                    async with asyncio.timeout(seconds):
                        event = await queue.get()
                except TimeoutError:
                    return
                if event is None:
                    return
                if event["type"] == "ERROR" or _selected(event["object"], query):
                    yield event
        finally:
            self.watches.remove(entry)


def _within(path: str, collection: str) -> bool:
    if path.startswith(f"{collection}/"):
        return "/" not in path[len(collection) + 1 :]
    head, _slash, plural = collection.rpartition("/")
    return path.startswith(f"{head}/namespaces/") and path.rsplit("/", 2)[-2] == plural and "/namespaces/" not in collection


def _selected(found: Json, query: Mapping[str, str] | None) -> bool:
    """Whether a label selector, of equalities alone, lets an object through."""
    wanted = [one.split("=") for one in (query or {}).get("labelSelector", "").split(",") if one]
    labels = (found.get("metadata") or {}).get("labels") or {}
    return all(labels.get(key) == value for key, value in wanted)


def _merged(old: Json, change: Json) -> Json:
    new = dict(old)
    for key, value in change.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, dict):
            new[key] = _merged(old.get(key) or {}, value)
        else:
            new[key] = value
    return copy.deepcopy(new)


OK: list[Json] = [
    {"kind": "task", "task": "Ask", "role": "workers"},
    {"kind": "ok", "task": "Ask", "role": "workers", "changed": False, "nodes": {"total": 2, "inService": 2, "drained": 0, "down": 0}},
    {"kind": "stats"},
]
CHANGED: list[Json] = [
    {
        "kind": "ok",
        "task": "Apply",
        "role": "base",
        "changed": True,
        "objects": [{"kind": "ConfigMap", "name": "a-config", "result": "created"}],
    },
    *OK,
]
FAILED: list[Json] = [{"kind": "failed", "task": "Apply", "role": "base", "changed": False, "message": "ConfigMap a-config was refused."}]

# Runs are no processes here; no real one has such a number.
_PIDS = itertools.count(10_000_000)
_RUNS: dict[int, asyncio.Task[None]] = {}


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Stands for os.kill."""
    assert number in (signal.SIGINT, signal.SIGKILL, signal.SIGSTOP)
    _RUNS[pid].cancel()


Script = Callable[[Request], Awaitable[tuple[list[Json], int]]]


class FakeEngine:
    """Runs a script instead of a playbook: it returns what a run reports and its exit status; waiting in it can be interrupted."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.started: list[Request] = []
        self.at_once = 0
        self.most_at_once = 0
        self.ready = True
        self.stuck = False

    async def open(self) -> None:
        """It is open."""

    async def close(self) -> None:
        """Nothing to end."""

    async def start(self, request: Request, descriptor: int) -> Process:
        self.started.append(request)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        copied = os.dup(descriptor)

        async def go() -> None:
            code = 99
            try:
                lines, code = await self.script(request)
                os.write(copied, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            finally:
                os.close(copied)
                self.at_once -= 1
                ended.set_result(code)

        pid = next(_PIDS)
        _RUNS[pid] = asyncio.create_task(go())
        return Process(pid, ended)

    def playbooks(self) -> list[str]:
        return [request.playbook.rpartition(".")[2] for request in self.started]


def document(name: str = "a", namespace: str = "one", **spec: Any) -> Json:
    small = {"limits": {"cpu": "1", "memory": "1Gi"}}
    return {
        "apiVersion": "corral.hpc/v1alpha1",
        "kind": "SlurmCluster",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "images": {"slurm": "slurm:24.11"},
            "controller": {"stateVolume": {"storageClassName": "fast", "size": "1Gi"}},
            "nodeSets": [{"name": "cpu", "replicas": 2, "resources": small}],
            "jail": {"volume": {"claimName": "root"}, "populate": {"image": "jail:trixie"}},
            **spec,
        },
    }


def path(name: str = "a", namespace: str = "one") -> str:
    return f"/apis/corral.hpc/v1alpha1/namespaces/{namespace}/slurmclusters/{name}"


class World:
    """An API server, an engine, and a controller that leads."""

    def __init__(self, folder: Path, script: Script | None = None, **settings: Any) -> None:
        self.api = FakeApi()
        self.engine = FakeEngine(script or self.well)
        self.settings = Settings(scratch=folder / "scratch", runs=folder / "runs", identity="me", **settings)
        self.limits = (2, 8)
        self.content = "content-1"
        self.may_write = True
        self.controller = self.new_controller()

    def new_controller(self) -> Controller:
        self.metrics = Metrics()
        return Controller(
            self.api,
            self.engine,
            self.settings,
            self.metrics,
            content=self.content,
            limits=self.limits,
            may_write=lambda: self.may_write,
            check=self.check,
        )

    async def check(self, document: Json) -> checker.Checked:
        """Documents are checked here and now."""
        return checker.check(document)

    async def well(self, request: Request) -> tuple[list[Json], int]:
        """A successful run, which creates what is missing."""
        await asyncio.sleep(0.1)
        given = json.loads(Path(request.private_data_dir, "cluster.json").read_text())["metadata"]
        if request.playbook.endswith("destroy"):
            for name in [name for name in self.api.objects if f"/namespaces/{given['namespace']}/configmaps/{given['name']}-" in name]:
                self.api.delete(name)
            return OK, 0
        return (CHANGED if self.make(given["name"], given["namespace"]) else OK), 0

    def make(self, name: str = "a", namespace: str = "one") -> bool:
        """Make the cluster's objects; False when all were there."""
        labels = {**LABELS, INSTANCE: name}
        wanted = {
            f"/api/v1/namespaces/{namespace}/configmaps/{name}-config": {"metadata": {"name": f"{name}-config", "labels": labels}},
            **{
                f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}-{part}": {
                    "metadata": {"name": f"{name}-{part}", "labels": {**labels, "app.kubernetes.io/component": part}},
                    "spec": {"replicas": 1},
                    "status": {"observedGeneration": 1, "readyReplicas": 1, "currentRevision": "r", "updateRevision": "r"},
                }
                for part in ("controller", "worker", "login")
            },
        }
        missing = [where for where in wanted if where not in self.api.objects]
        for where in missing:
            wanted[where]["metadata"]["managedFields"] = [{"manager": "corral", "time": "2026-01-01T00:00:00Z"}]
            self.api.put(where, wanted[where])
        return bool(missing)

    def keep(self, *documents: Json, tried: Json | None = None) -> None:
        """Have the cluster been made by these documents, the oldest first, and a run of one more not come to its end."""
        known = tuple(revisions.Revision(number, "", document) for number, document in enumerate(documents, 1))
        name = revisions.name("a")
        body = {"metadata": {"name": name}, "binaryData": revisions.History(known, tried).data()}
        self.api.put(f"/api/v1/namespaces/one/configmaps/{name}", body)

    def edit(self, **spec: Any) -> None:
        """Change fields of the document's spec."""
        found = self.api.objects[path()]
        self.api.put(path(), {**found, "spec": {**found["spec"], **spec}})

    def pause(self) -> None:
        """Pause the cluster."""
        found = self.api.objects[path()]
        self.api.put(path(), {**found, "metadata": {**found["metadata"], "annotations": {"corral.hpc/paused": "true"}}})

    @contextlib.asynccontextmanager
    async def opponent(self, where: str, pause: float = 1.0) -> AsyncIterator[None]:
        """Another writer deletes an object whenever it exists."""

        async def write() -> None:
            while True:
                if where in self.api.objects:
                    self.api.delete(where)
                await asyncio.sleep(pause)

        fight = asyncio.create_task(write())
        try:
            yield
        finally:
            fight.cancel()

    def kubernetes_node(self, name: str, *, cordoned: bool = False, **status: Any) -> None:
        """Create or replace a Kubernetes node."""
        self.api.put(f"/api/v1/nodes/{name}", {"metadata": {"name": name}, "spec": {"unschedulable": cordoned}, "status": status})

    def pod(self, node: str, *, name: str = "a-cpu-0", cluster: str = "a", ready: bool = True) -> None:
        """Create or replace a worker's pod on a Kubernetes node."""
        labels = {**LABELS, INSTANCE: cluster, COMPONENT: "worker"}
        conditions = [{"type": "Ready", "status": str(ready)}]
        where = f"/api/v1/namespaces/one/pods/{name}"
        if where in self.api.objects:
            self.api.delete(where)
        self.api.put(
            where, {"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": node}, "status": {"conditions": conditions}}
        )

    async def __aenter__(self) -> World:
        self.controller.start()
        self.controller.lead()
        return self

    async def __aexit__(self, *_dummy: object) -> None:
        await self.controller.halt("stopping", 1.0)
        await self.controller.stop()

    def status(self, name: str = "a", namespace: str = "one") -> Json:
        found: Json = self.api.objects[path(name, namespace)].get("status") or {}
        return found

    def condition(self, kind: str, name: str = "a", namespace: str = "one") -> tuple[str, str, str]:
        for condition in self.status(name, namespace).get("conditions", ()):
            if condition["type"] == kind:
                return condition["status"], condition["reason"], condition["message"]
        return "", "", ""
