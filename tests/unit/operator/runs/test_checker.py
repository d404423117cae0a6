# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents are checked in child processes: a check that takes long is ended and reported, and delays no other."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import apiserver, resolve
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.runs import checker
from corral_operator.runs.checker import Checker

from ...plugins.module_utils._cluster.documents import KEY
from ..world import Json, World, document, path, run

# What the process of a check runs instead: its document says how it does.
CHILD = """
import sys, time
from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve
from corral_operator.runs import checker
whole = resolve.model
def model(document):
    trouble = document["spec"].get("trouble")
    if trouble == "long":
        while True: pass
    if trouble == "large":
        bytearray(4 << 30)
    if trouble == "defect":
        return {}["key"]
    if trouble == "dies":
        sys.exit(3)
    return whole(document)
resolve.model = model
sys.exit(checker.main())
"""


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Checks go wrong as their documents say."""
    (tmp_path / "child.py").write_text(CHILD)
    usual = asyncio.create_subprocess_exec

    async def start(python: str, _m: str, _module: str, *rest: str, **more: Any) -> asyncio.subprocess.Process:
        return await usual(python, str(tmp_path / "child.py"), *rest, **more)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)


def test_it_has_the_message_of_the_playbook() -> None:
    async def story() -> None:
        check = Checker()
        wrong = document(partitions=[{"name": "main", "nodeSets": ["nosuch"]}])
        good, bad = await check(document()), await check(wrong)
        await check.close()
        assert good == checker.check(document()) and not good.errors
        assert bad == checker.check(wrong)
        with pytest.raises(CorralError) as told:
            resolve.model(wrong)
        assert bad.errors == str(told.value)
        assert bad.spec == wrong["spec"]

    asyncio.run(story())


@pytest.mark.usefixtures("child")
def test_one_that_does_not_end_is_reported_and_the_next_is_checked() -> None:
    async def story() -> None:
        check = Checker(cpu=0.5)
        beats = []

        async def beat() -> None:
            while True:
                beats.append(time.monotonic())
                await asyncio.sleep(0.01)

        beating = asyncio.create_task(beat())
        long, good = await asyncio.gather(check(document(trouble="long")), check(document()))
        assert "did not end within 0.5 s" in long.errors
        assert good.errors == ""
        assert len(beats) > 20, "the loop goes on meanwhile"
        assert "MemoryError" in (await check(document(trouble="large"))).errors
        assert "(KeyError: 'key'), which is a defect of corral.slurm" in (await check(document(trouble="defect"))).errors
        with pytest.raises(CorralError, match="ended with status 3"):
            await check(document(trouble="dies"))
        assert (await check(document())).errors == ""
        beating.cancel()
        await check.close()

    asyncio.run(story())


def test_the_largest_document_is_within_the_limits() -> None:
    async def story() -> None:
        check = Checker()
        users = [{"name": f"u{number}", "uid": 10001 + number, "sshKeys": [f"{KEY} {'x' * 640}"]} for number in range(1300)]
        largest = document(users=users)
        assert 0.95 < len(resolve.model(largest).document) / apiserver.MAX_DOCUMENT <= 1
        assert (await check(largest)).errors == ""
        users[-1]["sshKeys"] = users[0]["sshKeys"] * 64
        users.extend({**users[0], "name": f"v{number}", "uid": 20001 + number} for number in range(100))
        assert f"; {apiserver.MAX_DOCUMENT} are the most that Kubernetes has room for" in (await check(document(users=users))).errors
        await check.close()

    asyncio.run(story())


def test_a_process_that_was_killed_meanwhile_is_another_try() -> None:
    async def story() -> None:
        check = Checker()
        await check(document())
        os.kill(check._idle[0].pid, signal.SIGKILL)
        with pytest.raises(CorralError, match="repeated"):
            await check(document())
        assert (await check(document())).errors == ""
        await check.close()

    asyncio.run(story())


def test_invalid_names_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker.names, "of", lambda model: model.nothing)
    assert "(AttributeError: " in checker.check(document()).errors


@pytest.mark.parametrize("since", ["ever", "an edit"])
def test_a_document_is_deleted_whose_check_raises(tmp_path: Path, since: str) -> None:
    async def story() -> None:
        world = World(tmp_path)

        async def check(given: Json) -> checker.Checked:
            if since == "ever" or given["spec"].get("maintenance"):
                raise CorralError("The process that checks documents has ended with status 1; the check is repeated.")
            return checker.check(given)

        world.check = check  # type: ignore[method-assign]
        world.controller = world.new_controller()
        given = document()
        given["metadata"]["finalizers"] = ["corral.hpc/destroy"]
        world.api.put(path(), given)
        if since == "ever":
            world.make()
        async with world:
            await asyncio.sleep(10)
            world.edit(maintenance="Workers")
            await asyncio.sleep(5)
            world.api.delete(path())
            await asyncio.sleep(10)
            assert world.engine.playbooks()[-1] == "destroy"
            assert path() not in world.api.objects

    run(story())


def test_it_ends_with_whoever_asks() -> None:
    answers = io.BytesIO()
    checker.serve(io.BytesIO(b"\0\0"), answers, 4.0)
    assert answers.getvalue() == b""


def test_another_cluster_is_created_during_a_check(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(tmp_path)

        async def check(given: Json) -> checker.Checked:
            if given["metadata"]["name"] == "evil":
                await asyncio.sleep(50)
                return checker.Checked(given["spec"], "The check of the document did not end.")
            return checker.check(given)

        world.check = check  # type: ignore[method-assign]
        world.controller = world.new_controller()
        world.api.put(path("evil"), document("evil"))
        world.api.put(path(), document())
        async with world:
            await asyncio.sleep(10)
            assert world.condition("Ready")[0] == "True"
            await asyncio.sleep(60)
            assert world.condition("Stalled", "evil")[:2] == ("True", "DocumentInvalid")

    run(story())
