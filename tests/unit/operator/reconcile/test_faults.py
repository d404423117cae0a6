# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a cluster (made, changed, spoilt, deleted) once for each write and each event at which something can go wrong: the end is always the same.

What a run itself does at its writes is tested where it is real: tests/integration/kube/test_faults.py and tests/integration/operator/test_crashes.py.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Status, Unreachable, api_error
from corral_operator.api.client import JSON
from corral_operator.reconcile.children import INSTANCE

from ..world import LABELS, OK, FakeApi, Json, Request, World, document, path, run

MAP = "/api/v1/namespaces/one/configmaps/a-config"
PARTS = ("controller", "worker", "login")
States = list[Json]


class Link:
    """What one process of the operator sees of the API server.

    It dies after its n-th write, whose answer it never gets; or one of its writes, or of the events that it is told, goes wrong.
    """

    def __init__(self, real: FakeApi, *, dies_after: int = 0, fault: str = "", at: int = 0, event: str = "") -> None:
        self._real = real
        self._dies_after = dies_after
        self._fault, self._at, self._event = fault, at, event
        self.writes = 0
        self.events = 0
        self._told: dict[str, Json] = {}
        self.died = asyncio.Event()

    async def request(self, method: str, path: str, *, what: str, **given: Any) -> Any:
        async def send() -> Json:
            return await self._real.request(method, path, what=what, **given)

        return await send() if method == "GET" else await self.write(send, what)

    async def write(self, send: Callable[[], Any], what: str) -> Any:
        """Do one write, as everything that this process and its runs write is done."""
        await self._alive()
        self.writes += 1
        strikes = bool(self._fault) and self.writes == self._at
        if strikes and not self._fault.endswith("committed"):
            raise self._error(what)
        answer = await send()
        if strikes:
            raise self._error(what)
        if self.writes == self._dies_after:
            self.died.set()
        await self._alive()
        return answer

    async def _alive(self) -> None:
        if self.died.is_set():
            await asyncio.get_running_loop().create_future()

    def _error(self, what: str) -> Exception:
        code = self._fault.partition("-")[0]
        return (
            Unreachable(f"Could not {what}: reset")
            if code == "reset"
            else api_error(Status(int(code), message="injected"), what, server="fake")
        )

    async def watch(self, path: str, *, what: str, query: Mapping[str, str], seconds: int, accept: str = JSON) -> AsyncIterator[Json]:
        async for event in self._real.watch(path, what=what, query=query, seconds=seconds, accept=accept):
            await self._alive()
            self.events += 1
            name = f"{path}/{event['object']['metadata']['name']}"
            before = self._told.get(name, event["object"])
            self._told[name] = event["object"]
            if self._event and self.events == self._at:
                if self._event == "410":
                    yield {"type": "ERROR", "object": {"kind": "Status", "code": 410}}
                if self._event in ("cut", "410"):
                    return
                if self._event == "lost":
                    continue
                if event["type"] != "DELETED":  # after which no event would restore it
                    yield event
                    event = {"type": "MODIFIED", "object": before if self._event == "stale" else event["object"]}
            yield event


class Life(World):
    """A world whose runs write each object by itself, as the document says, through the link of the process that runs them."""

    def __init__(self, folder: Path) -> None:
        self.link = Link(FakeApi())  # replaced before anything happens
        super().__init__(folder, script=self.work, relist=8.0)

    def begin(self, link: Link) -> None:
        """Another process of the operator starts."""
        self.link = link
        real, self.api = self.api, link  # type: ignore[assignment]  # a Link stands in for it, as FakeApi does
        self.controller = self.new_controller()
        self.api = real
        self.controller.start()
        self.controller.lead()

    async def work(self, request: Request) -> tuple[list[Json], int]:
        link = self.link
        changed = []
        given = json.loads(Path(request.private_data_dir, "cluster.json").read_text())
        wanted = {} if request.playbook.endswith("destroy") else self.objects(given["spec"])
        failed: list[Json] = [{"kind": "failed", "task": "Apply", "role": "base", "changed": False, "message": "It was refused."}]
        for where, found in wanted.items():
            await asyncio.sleep(0.01)
            live = self.api.objects.get(where)
            if live is None or live.get("spec") != found.get("spec") or live.get("data") != found.get("data"):
                try:
                    await link.write(_putting(self.api, where, found), where)
                except Exception:  # noqa: BLE001  what the engine makes of it is not the matter here
                    return failed, 2
                changed.append(where)
        for where in [MAP, *(f"/apis/apps/v1/namespaces/one/statefulsets/a-{part}" for part in PARTS)]:
            if where in self.api.objects and where not in wanted:
                try:
                    await link.write(_deleting(self.api, where), where)
                except Exception:  # noqa: BLE001  as above
                    return failed, 2
        row = {"kind": "ok", "task": "Apply", "role": "base", "changed": bool(changed)}
        return [row, *OK], 0

    @staticmethod
    def objects(spec: Json) -> dict[str, Json]:
        labels = {**LABELS, INSTANCE: "a"}
        by = [{"manager": "corral", "time": "2026-01-01T00:00:00Z"}]
        common = {"labels": labels, "managedFields": by}
        text = json.dumps(spec, sort_keys=True)
        return {
            MAP: {"metadata": {"name": "a-config", **common}, "data": {"slurm.conf": text}},
            **{
                f"/apis/apps/v1/namespaces/one/statefulsets/a-{part}": {
                    "metadata": {"name": f"a-{part}", **common, "labels": {**labels, "app.kubernetes.io/component": part}},
                    "spec": {"replicas": spec["nodeSets"][0]["replicas"] if part == "worker" else 1},
                }
                for part in PARTS
            },
        }


def _putting(real: FakeApi, where: str, found: Json) -> Callable[[], Any]:
    async def send() -> None:
        made = real.put(where, found)
        if "statefulsets" in where:  # and its pods are ready at once
            ready = {"observedGeneration": made["metadata"]["generation"], "readyReplicas": found["spec"]["replicas"]}
            real.put(where, {**made, "status": {**ready, "currentRevision": "r", "updateRevision": "r"}})

    return send


def _deleting(real: FakeApi, where: str) -> Callable[[], Any]:
    async def send() -> None:
        real.delete(where)

    return send


def masked(world: World) -> Json:
    """Everything that there is, without what differs between two lives that went well: versions, times, and what is counted in events."""
    found = {}
    for where, live in world.api.objects.items():
        if "/events" in where:
            continue
        one = copy.deepcopy(live)
        for key in ("resourceVersion", "uid", "generation"):
            one["metadata"].pop(key, None)
        if where == path():
            status = one.get("status") or {}
            status["observedHash"] = bool(status.get("observedHash"))
            for condition in status.get("conditions", ()):
                del condition["lastTransitionTime"]
        found[where] = one
    return found


async def live(world: Life, first: Link) -> tuple[States, int]:
    """Live the whole life; return what there was at the end of each part, and the writes of all processes."""
    links = [first]
    world.begin(first)

    async def quiet() -> None:
        waiting = asyncio.create_task(asyncio.sleep(20))
        died = asyncio.create_task(world.link.died.wait())
        await asyncio.wait((waiting, died), return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        if world.link.died.is_set() and not waiting.done():
            for task in world.controller.tasks:
                task.cancel()
            await asyncio.gather(world.controller.stop(), *world.controller.tasks, return_exceptions=True)
            links.append(Link(world.api))
            world.begin(links[-1])
        await waiting

    states = []
    world.api.put(path(), document())
    await quiet()
    states.append(masked(world))
    changed = document(nodeSets=[{**document()["spec"]["nodeSets"][0], "replicas": 5}])["spec"]
    world.api.put(path(), {**world.api.objects[path()], "spec": changed})
    await quiet()
    states.append(masked(world))
    world.api.delete(MAP)
    await quiet()
    states.append(masked(world))
    world.api.delete(path())
    await quiet()
    states.append(masked(world))
    await world.controller.halt("stopping", 1.0)
    await world.controller.stop()
    return states, sum(link.writes for link in links)


def lives(folder: Path, **link: Any) -> tuple[States, int, bool]:
    """One life with something that goes wrong in it; the last is whether it did."""

    async def story() -> tuple[States, int, bool]:
        world = Life(folder)
        first = Link(world.api, **link)
        states, writes = await live(world, first)
        return states, writes, first.died.is_set() or (first.events if "event" in link else first.writes) >= link.get("at", 0) > 0

    return run(story())


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[States, int]:
    states, writes, _struck = lives(tmp_path_factory.mktemp("reference"))
    ready = [next(one for one in state[path()]["status"]["conditions"] if one["type"] == "Ready")["status"] for state in states[:3]]
    assert ready == ["True"] * 3
    assert states[3] == {}
    return states, writes


def test_killed_after_any_of_its_writes_the_next_comes_to_the_same_end(tmp_path: Path, reference: tuple[States, int]) -> None:
    states, count = reference
    for nth in range(1, count + 1):
        found, writes, struck = lives(tmp_path / str(nth), dies_after=nth)
        assert struck
        assert found == states, f"killed after write {nth} of {count}"
        assert writes <= 3 * count


@pytest.mark.parametrize("fault", ["409", "422", "429", "500", "503", "504-committed", "reset", "reset-committed"])
def test_any_of_its_writes_may_go_wrong(tmp_path: Path, reference: tuple[States, int], fault: str) -> None:
    states, count = reference
    for nth in range(1, count + 1):
        found, writes, struck = lives(tmp_path / str(nth), fault=fault, at=nth)
        assert struck
        assert found == states, f"{fault} at write {nth} of {count}"
        assert writes <= 3 * count


@pytest.mark.parametrize("fault", ["lost", "twice", "stale", "cut", "410"])
def test_any_event_may_be_lost_repeated_or_late_and_any_watch_may_end(tmp_path: Path, reference: tuple[States, int], fault: str) -> None:
    states, count = reference
    nth, struck = 1, True
    while struck:
        found, writes, struck = lives(tmp_path / str(nth), event=fault, at=nth)
        assert found == states, f"event {nth}: {fault}"
        assert writes <= 3 * count
        nth += 1
    assert nth > count, "each write is an event at least"
