# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accounts, users and QoS: corral.slurm.tenants runs when they have changed, their objects have the outcome, and the cluster does not depend on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ..world import Json, Request, World, document, path, run

ACCOUNTING: Json = {
    "database": {"external": {"host": "db", "passwordSecret": "db"}},
    "tenants": {"objects": True, "prune": True, "accounts": [{"name": "science"}]},
}
OBJECTS = "/apis/corral.hpc/v1alpha1/namespaces/one/slurmtenants"
CHANGED: list[Json] = [{"kind": "ok", "task": "Apply accounts, users and QoS", "changed": True, "kept": []}]
SAME: list[Json] = [
    {"kind": "ok", "task": "Apply accounts, users and QoS", "changed": False, "kept": ["Account art stays, for bob is in it."]}
]


def refused(*problems: str) -> list[Json]:
    return [
        {
            "kind": "failed",
            "task": "Apply accounts, users and QoS",
            "message": " ".join([*problems, "Nothing was changed."]),
            "problems": list(problems),
        }
    ]


class Tenants(World):
    """A cluster at rest with accounting. Runs of tenants report ``reported``."""

    reported = CHANGED
    # The site waits for so long.
    waits = 0.0

    async def well(self, request: Request) -> tuple[list[Json], int]:
        if request.playbook.endswith("tenants"):
            await asyncio.sleep(0.1)
            given = json.loads(Path(request.private_data_dir, "env", "extravars").read_text())
            assert given["slurm_controller_wait_timeout"] == 0
            return self.reported, 2 if self.reported[0]["kind"] == "failed" else 0
        given = json.loads(Path(request.private_data_dir, "env", "extravars").read_text())
        assert request.playbook.endswith("sync") or given["slurm_controller_tenants"] is False
        await asyncio.sleep(self.waits)
        return await super().well(request)

    def runs(self) -> int:
        return self.engine.playbooks().count("tenants")

    def tenants(self, name: str = "physics", *, cluster: str = "a", **spec: Any) -> None:
        before = self.api.objects.get(f"{OBJECTS}/{name}", {})
        self.api.put(f"{OBJECTS}/{name}", {**before, "metadata": {"name": name, "namespace": "one"}, "spec": {"cluster": cluster, **spec}})

    def applied(self, name: str = "physics") -> tuple[str, str, str]:
        (found,) = self.api.objects[f"{OBJECTS}/{name}"]["status"]["conditions"]
        return found["status"], found["reason"], found["message"]

    def events(self) -> list[tuple[str, str, str]]:
        found = [one for name, one in self.api.objects.items() if "/events/" in name]
        return [
            (one["reason"], one["involvedObject"]["kind"], one["involvedObject"]["name"]) for one in found if "Tenants" in one["reason"]
        ]


def story(folder: Path, steps: Callable[[Tenants], Awaitable[None]], accounting: Json | None = None, **settings: Any) -> None:
    """``accounting``: another one than ACCOUNTING; {} for a cluster without."""
    given = ACCOUNTING if accounting is None else accounting

    async def told() -> None:
        world = Tenants(folder, **{"sync_every": 0.0, "resync": 0.0, **settings})
        world.api.put(path(), document(**({"accounting": given} if given else {})))
        async with world:
            await asyncio.sleep(30)
            await steps(world)

    run(told())


def test_an_object_is_applied_within_a_second_and_the_site_is_not(tmp_path: Path) -> None:
    async def steps(world: Tenants) -> None:
        assert world.runs() == 1
        assert world.condition("TenantsApplied")[:2] == ("True", "Applied")
        sites = world.engine.playbooks().count("site")
        world.tenants(accounts=[{"name": "physics"}])
        await asyncio.sleep(1)
        assert (world.runs(), world.applied()) == (2, ("True", "Applied", ""))
        status = world.api.objects[f"{OBJECTS}/physics"]["status"]
        assert status["observedGeneration"] == status["conditions"][0]["observedGeneration"] == 1
        world.reported = SAME
        world.tenants(accounts=[{"name": "optics"}])
        await asyncio.sleep(1)
        assert (world.runs(), world.applied()) == (3, ("True", "Applied", "Account art stays, for bob is in it."))
        world.api.delete(f"{OBJECTS}/physics")
        await asyncio.sleep(1)
        assert world.runs() == 4
        world.api.writes.clear()
        await asyncio.sleep(3600)
        assert (world.runs(), world.api.writes) == (4, [])
        assert world.engine.playbooks().count("site") == sites
        assert world.events() == [("TenantsApplied", "SlurmCluster", "a")] * 2
        assert world.condition("Ready")[0] == "True"

    story(tmp_path, steps)


def test_many_objects_at_once_are_one_run(tmp_path: Path) -> None:
    async def steps(world: Tenants) -> None:
        for number in range(8):
            world.tenants(f"faculty{number}", accounts=[{"name": f"a{number}"}])
            await asyncio.sleep(0.05)
        await asyncio.sleep(2)
        assert world.runs() == 2
        assert {world.applied(f"faculty{number}")[0] for number in range(8)} == {"True"}

    story(tmp_path, steps)


def test_a_run_of_the_site_that_only_waits_yields(tmp_path: Path) -> None:
    async def steps(world: Tenants) -> None:
        world.waits = 600.0
        world.edit(maintenance="Workers")
        await asyncio.sleep(5)
        world.waits = 0.0
        world.tenants(accounts=[{"name": "physics"}])
        await asyncio.sleep(2)
        assert world.applied()[0] == "True"
        await asyncio.sleep(10)
        assert world.engine.playbooks()[-3:] == ["site", "tenants", "site"]
        assert world.status()["observedGeneration"] == 2

    story(tmp_path, steps)


def test_an_error_is_reported_on_its_object_and_leaves_the_cluster_alone(tmp_path: Path) -> None:
    sentence = "SlurmTenants physics spec.accounts[0].parent is scince, and there is no account of that name; correct the name: science may be meant."

    async def steps(world: Tenants) -> None:
        world.tenants("chemistry", accounts=[{"name": "chemistry"}])
        await asyncio.sleep(1)
        world.reported = refused(sentence)
        world.tenants(accounts=[{"name": "physics", "parent": "scince"}])
        await asyncio.sleep(1)
        assert world.applied() == ("False", "TenantsInvalid", sentence)
        assert world.applied("chemistry") == ("False", "Blocked", f"Not applied, because of an error elsewhere: {sentence}")
        assert world.condition("TenantsApplied") == ("False", "TenantsInvalid", sentence)
        assert world.condition("Ready")[0] == "True"
        before = world.runs()
        await asyncio.sleep(3600)
        assert before + 10 < world.runs() < before + 25, "it is repeated with growing pauses: what is missing may be made by others"
        assert world.events().count(("TenantsInvalid", "SlurmTenants", "physics")) == 1
        assert ("TenantsInvalid", "SlurmCluster", "a") not in world.events()
        world.reported = CHANGED
        world.tenants(accounts=[{"name": "physics", "parent": "science"}])
        await asyncio.sleep(1)
        assert world.applied()[0] == world.applied("chemistry")[0] == world.condition("TenantsApplied")[0] == "True"

    story(tmp_path, steps)


def test_an_error_of_the_document_is_the_clusters(tmp_path: Path) -> None:
    async def steps(world: Tenants) -> None:
        world.reported = refused("spec.accounting.tenants.accounts[0].parent is nosuch.")
        world.edit(accounting={**ACCOUNTING, "tenants": {"accounts": [{"name": "a", "parent": "nosuch"}]}})
        await asyncio.sleep(5)
        assert world.condition("TenantsApplied")[2] == "spec.accounting.tenants.accounts[0].parent is nosuch."
        assert world.events()[-1] == ("TenantsInvalid", "SlurmCluster", "a")
        assert world.condition("Ready")[0] == "True"
        world.edit(accounting={"database": ACCOUNTING["database"]})
        await asyncio.sleep(5)
        assert world.condition("TenantsApplied") == ("", "", "")
        assert "tenantsHash" not in world.status()

    story(tmp_path, steps)


def test_a_failure_is_reported_from_the_second_on(tmp_path: Path) -> None:
    async def steps(world: Tenants) -> None:
        world.reported = [{"kind": "failed", "task": "Apply", "message": "slurmdbd does not answer."}]
        world.tenants(accounts=[])
        await asyncio.sleep(0.9)
        assert "status" not in world.api.objects[f"{OBJECTS}/physics"]
        await asyncio.sleep(10)
        assert world.applied() == ("False", "TenantsFailed", "Apply: slurmdbd does not answer.")
        assert world.events()[-1] == ("TenantsFailed", "SlurmCluster", "a")
        world.reported = CHANGED
        await asyncio.sleep(300)
        assert world.applied()[0] == "True"

    story(tmp_path, steps)


@pytest.mark.parametrize("accounting", [{}, {**ACCOUNTING, "tenants": {"accounts": [{"name": "science"}]}}])
def test_a_cluster_that_takes_no_objects_says_so_on_them(tmp_path: Path, accounting: Json) -> None:
    async def steps(world: Tenants) -> None:
        before = world.runs()
        assert before == (1 if accounting else 0)
        world.tenants(accounts=[{"name": "physics"}])
        world.tenants("elsewhere", cluster="nosuch")
        await asyncio.sleep(5)
        status, reason, message = world.applied()
        assert (status, reason) == ("False", "NotTaken")
        assert "set spec.accounting.tenants.objects" in message
        assert "status" not in world.api.objects[f"{OBJECTS}/elsewhere"]
        assert world.runs() == before

    story(tmp_path, steps, accounting)


def test_what_is_changed_by_hand_comes_back_at_each_resync(tmp_path: Path) -> None:
    async def steps(world: Tenants) -> None:
        before = world.runs()
        await asyncio.sleep(3600)
        assert world.runs() == before + 6

    story(tmp_path, steps, resync=600.0)


def test_an_operator_that_starts_makes_no_run_and_finds_what_was_deleted(tmp_path: Path) -> None:
    async def steps(world: Tenants) -> None:
        world.tenants(accounts=[{"name": "physics"}])
        await asyncio.sleep(2)
        before = world.runs()
        for gone in (False, True):
            await world.controller.halt("stopping", 1.0)
            await world.controller.stop()
            if gone:
                world.api.delete(f"{OBJECTS}/physics")
            world.controller = world.new_controller()
            world.controller.start()
            world.controller.lead()
            await asyncio.sleep(30)
            assert world.runs() == before + gone

    story(tmp_path, steps)


def test_without_the_definition_documents_are_applied_all_the_same(tmp_path: Path) -> None:
    async def told() -> None:
        world = Tenants(tmp_path, sync_every=0.0, resync=0.0)
        world.api.refuse = lambda _method, where: 404 if where.endswith("/slurmtenants") else 0
        world.api.put(path(), document(accounting=ACCOUNTING))
        async with world:
            await asyncio.sleep(30)
            assert world.runs() == 1
            assert not world.controller.unready

    run(told())
