# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fault at every write: the run ends well by itself, or, when it is killed, the next run brings everything to the same end.

Oracles: the rows say what happened, the objects are those of a clean run, none was made twice, and the run after it writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import client as client_module
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Unreachable

from ...faultproxy.proxy import TRANSIENT, Fault, FaultProxy
from .conftest import Engine

pytestmark = pytest.mark.lab

OBJECTS = 10
# The ten objects, and the set's parent before and after them.
WRITES = OBJECTS + 2
FAULTS = {**TRANSIENT, "delay": {"seconds": 0.2}}
# An answer that is lost when the write was made is the hardest of them.
EACH = [pytest.param(one, marks=() if one == "reset-committed" else pytest.mark.long) for one in FAULTS]


class Killed(BaseException):
    """Ends a run as a signal would: nothing of ours catches it."""


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back off in milliseconds."""
    quick = client_module.Retry(base=0.005, cap=0.05)
    monkeypatch.setattr(
        client_module.Client.__init__, "__kwdefaults__", {**(client_module.Client.__init__.__kwdefaults__ or {}), "retry": quick}
    )


def batch(engine: Engine, value: str = "1") -> list[dict[str, Any]]:
    maps = [engine.config_map(f"m{number}", key=value) for number in range(OBJECTS - 2)]
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "labels": {"v": value}}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "labels": {"v": value}}, "spec": {"clusterIP": "None"}}
    return [*maps, account, service]


def the_set(engine: Engine) -> dict[str, Any]:
    return {"name": "set", "namespace": engine.namespace}


def live(engine: Engine, proxy: FaultProxy) -> list[dict[str, Any]]:
    """Return the live members, asked for without the engine and without the faults."""
    found: list[dict[str, Any]] = []
    for plural in ("configmaps", "services", "serviceaccounts"):
        url = f"{proxy.upstream}/api/v1/namespaces/{engine.namespace}/{plural}?labelSelector=applyset.kubernetes.io/part-of"
        found += proxy.pool.request("GET", url, headers=proxy.headers).json()["items"]
    return found


def settled(engine: Engine, proxy: FaultProxy, value: str = "1") -> None:
    """Assert the end of a clean run: the objects, and a further run that only reads."""
    items = live(engine, proxy)
    assert len(items) == OBJECTS
    assert {item["data"]["key"] for item in items if "data" in item} == {value}
    proxy.plan()
    again = engine.apply(*batch(engine, value), applyset=the_set(engine))
    assert (again["changed"], again["writes"], again["requests"]) == (False, 0, OBJECTS + 1)
    assert {seen.code for seen in proxy.trace} == {200}


@pytest.mark.parametrize("action", EACH)
def test_a_fault_at_each_write_of_a_creation(behind: Engine, proxy: FaultProxy, action: str) -> None:
    for write in range(1, WRITES + 1):
        proxy.plan(Fault(action, write=write, **FAULTS[action]))
        result = behind.apply(*batch(behind), applyset=the_set(behind))
        assert [row["result"] for row in result["objects"]] == ["created"] * OBJECTS, f"{action} at write {write}"
        assert any(seen.fault for seen in proxy.trace), "the fault did not happen"
        assert proxy.writes <= WRITES + 1, [seen for seen in proxy.trace if seen.write]
        assert result["writes"] == WRITES, f"{action} at write {write}"
        settled(behind, proxy)
        proxy.plan()
        behind.absent(applyset=the_set(behind))


@pytest.mark.parametrize("action", EACH)
def test_a_fault_at_each_write_of_a_change(behind: Engine, proxy: FaultProxy, action: str) -> None:
    behind.apply(*batch(behind, "0"), applyset=the_set(behind))
    for write in range(1, OBJECTS + 1):
        proxy.plan(Fault(action, write=write, **FAULTS[action]))
        result = behind.apply(*batch(behind, str(write)), applyset=the_set(behind))
        assert [row["result"] for row in result["objects"]] == ["configured"] * OBJECTS, f"{action} at write {write}"
        assert any(seen.fault for seen in proxy.trace), "the fault did not happen"
        settled(behind, proxy, str(write))


@pytest.mark.parametrize("action", EACH)
def test_a_fault_at_each_write_of_a_removal(behind: Engine, proxy: FaultProxy, action: str) -> None:
    for write in range(1, OBJECTS + 2):
        proxy.plan()
        behind.apply(*batch(behind), applyset=the_set(behind))
        proxy.plan(Fault(action, write=write, **FAULTS[action]))
        behind.absent(applyset=the_set(behind), wait=True)
        assert any(seen.fault for seen in proxy.trace), "the fault did not happen"
        assert live(behind, proxy) == [], f"{action} at write {write}"
    assert behind.names() == set(), "the parent is gone too"


def test_faults_of_reads_do_not_matter(behind: Engine, proxy: FaultProxy) -> None:
    for action in ("429", "500", "503", "reset"):
        proxy.plan(Fault(action, verb="GET", path="/configmaps", match=1, times=2))
        behind.apply(*batch(behind, action), applyset=the_set(behind))
        assert sum(bool(seen.fault) for seen in proxy.trace) == 2
        settled(behind, proxy, action)


def killer(nth: int, after: bool) -> Callable[..., Any]:
    """Return a Client.request that dies at the nth write, before or after the server has done it."""
    genuine = client_module.Client.request
    count = 0

    def request(self: client_module.Client, method: str, path: str, **keywords: Any) -> client_module.Response:
        nonlocal count
        if method in ("PATCH", "POST", "DELETE"):
            count += 1
            if count > nth or (count == nth and not after):
                raise Killed
            if count == nth:
                genuine(self, method, path, **keywords)
                raise Killed
        return genuine(self, method, path, **keywords)

    return request


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_run_that_is_killed_at_any_write_is_finished_by_the_next(
    behind: Engine, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """From an older batch, so that there is something to prune: two members of it fall out of the new one."""
    older = [*batch(behind, "0"), behind.config_map("old1"), behind.config_map("old2")]
    for nth in range(1, WRITES + 2 + 1):
        behind.apply(*older, applyset=the_set(behind))
        with monkeypatch.context() as patch:
            patch.setattr(client_module.Client, "request", killer(nth, after))
            with pytest.raises(Killed):
                behind.apply(*batch(behind), applyset=the_set(behind))
        behind.apply(*batch(behind), applyset=the_set(behind))
        settled(behind, proxy)


@pytest.mark.long
def test_a_removal_that_is_killed_at_any_write_is_finished_by_the_next(
    behind: Engine, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for nth in range(1, OBJECTS + 2):
        behind.apply(*batch(behind), applyset=the_set(behind))
        with monkeypatch.context() as patch:
            patch.setattr(client_module.Client, "request", killer(nth, True))
            with pytest.raises(Killed):
                behind.absent(applyset=the_set(behind))
        behind.absent(applyset=the_set(behind))
        assert live(behind, proxy) == []
    assert behind.names() == set()


def test_a_server_that_stays_away_is_told_in_a_sentence(behind: Engine, proxy: FaultProxy) -> None:
    proxy.plan(Fault("reset", path="/", times=1000))
    with pytest.raises(Unreachable, match=r"does not answer: .*is it running"):
        behind.apply(*batch(behind))
    proxy.plan(Fault("503", path="/", times=1000))
    with pytest.raises(Exception, match="answered 503: injected 503"):
        behind.apply(*batch(behind))


def test_refusals_are_not_tried_again(behind: Engine, proxy: FaultProxy) -> None:
    proxy.plan(Fault("422", write=1, times=100))
    with pytest.raises(Exception, match="injected 422"):
        behind.apply(behind.config_map("m"))
    assert proxy.writes == 1
