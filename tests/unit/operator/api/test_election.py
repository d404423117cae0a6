# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may write. Never two, whatever happens to the lease, to a candidate, or to the way between them."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from corral_operator.api.election import Election, Elector, Step

from ..world import FakeApi, run

LEASE = "/apis/coordination.k8s.io/v1/namespaces/ops/leases/corral-operator"


class Candidate:
    """An operator as far as elections go: ``writes`` until a moment after it was stopped, as runs do."""

    def __init__(self, api: Any, name: str, writers: set[str], *, stop_takes: float = 0.5) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self.writers = writers
        self.until = 0.0
        self.began: list[float] = []
        self.stop_takes = stop_takes
        self.elector = Elector(
            api,
            Election(name, loop.time, lease=12, renew_deadline=8, fence=self.fenced),
            namespace="ops",
            name="corral-operator",
            identity=name,
            lease=12,
            retry=1,
            started=self.start,
            stopped=self.stop,
            clock=loop.time,
        )
        self.task = asyncio.create_task(self.elector.run())

    def fenced(self, until: float) -> None:
        self.until = until

    @property
    def may_write(self) -> bool:
        return asyncio.get_running_loop().time() < self.until

    def freeze(self) -> None:
        """Its processes are frozen without notice."""
        self.task.cancel()

    def thaw(self) -> None:
        self.task = asyncio.create_task(self.elector.run())

    def start(self) -> None:
        self.writers.add(self.name)
        self.began.append(asyncio.get_running_loop().time())
        assert len(self.writers) == 1, f"two write: {self.writers}"

    async def stop(self) -> None:
        await asyncio.sleep(self.stop_takes)
        self.writers.discard(self.name)

    def die(self) -> None:
        self.task.cancel()
        self.writers.discard(self.name)


def test_one_leads_and_the_next_takes_over_when_it_dies() -> None:
    async def story() -> None:
        api, writers = FakeApi(), set[str]()
        first, second = Candidate(api, "first", writers), Candidate(api, "second", writers)
        await asyncio.sleep(60)
        assert len(writers) == 1
        leader, other = (first, second) if writers == {"first"} else (second, first)
        died = asyncio.get_running_loop().time()
        leader.die()
        await asyncio.sleep(20)
        assert writers == {other.name}
        assert other.began[0] - died <= 15
        assert api.objects[LEASE]["spec"]["leaseTransitions"] == 1

    run(story())


def test_two_pods_ask_for_the_lease_ninety_times_a_minute_at_most() -> None:
    async def story() -> None:
        api, writers, asked = FakeApi(), set[str](), list[str]()

        class Counted:
            async def request(self, method: str, path: str, *, what: str, **options: Any) -> Any:
                asked.append(method)
                return await api.request(method, path, what=what, **options)

        for name in ("first", "second"):
            Candidate(Counted(), name, writers)
        await asyncio.sleep(10)
        asked.clear()
        await asyncio.sleep(60)
        assert len(asked) <= 91, "by the clock of a test, in which requests take no time"
        assert asked.count("PUT") in (29, 30, 31)

    run(story())


@pytest.mark.parametrize("harm", ["taken", "deleted", "touched"])
def test_a_leader_detects_a_lost_lease_when_it_writes_it(harm: str) -> None:
    async def story() -> None:
        api, writers = FakeApi(), set[str]()
        candidate = Candidate(api, "first", writers)
        await asyncio.sleep(5)
        lease = api.objects[LEASE]
        if harm == "deleted":
            api.delete(LEASE)
        else:
            holder = "other" if harm == "taken" else "first"
            api.put(LEASE, {**lease, "spec": {**lease["spec"], "holderIdentity": holder}})
        await asyncio.sleep(4)
        assert writers == (set() if harm == "taken" else {"first"})
        assert len(candidate.began) == 1
        await asyncio.sleep(30)
        assert writers == {"first"}, "who took it does not renew it"

    run(story())


def test_a_leader_that_stops_in_order_is_followed_within_two_seconds() -> None:
    async def story() -> None:
        api, writers = FakeApi(), set[str]()
        first = Candidate(api, "first", writers)
        await asyncio.sleep(5)
        second = Candidate(api, "second", writers)
        await asyncio.sleep(5)
        first.die()
        await first.elector.release()
        stopped = asyncio.get_running_loop().time()
        await asyncio.sleep(5)
        assert writers == {"second"}
        assert second.began[0] - stopped <= 2

    run(story())


def test_a_leader_that_can_not_renew_has_stopped_before_anybody_else_begins() -> None:
    async def story() -> None:
        api, writers = FakeApi(), set[str]()
        cut: set[str] = set()

        class Way:
            """One candidate's way to the API server."""

            def __init__(self, name: str) -> None:
                self.name = name

            async def request(self, method: str, path: str, *, what: str, **options: Any) -> Any:
                if self.name in cut:
                    await asyncio.sleep(1000)  # no answer, no refusal
                return await api.request(method, path, what=what, **options)

        first = Candidate(Way("first"), "first", writers, stop_takes=1.6)
        await asyncio.sleep(5)
        second = Candidate(Way("second"), "second", writers)
        await asyncio.sleep(30)
        assert writers == {"first"}
        cut.add("first")
        await asyncio.sleep(9.7)
        assert writers == set(), "given up before its lease has run out"
        await asyncio.sleep(10)
        assert writers == {"second"}
        cut.clear()
        await asyncio.sleep(60)
        assert writers == {"second"}
        assert first.began[1:] == []
        assert len(second.began) == 1

    run(story())


@pytest.mark.parametrize("seconds", [7, 9, 10.5, 30])
def test_a_leader_that_is_frozen_is_fenced_before_anybody_else_begins(seconds: float) -> None:
    async def story() -> None:
        api, writers = FakeApi(), set[str]()
        first = Candidate(api, "first", writers, stop_takes=0)
        await asyncio.sleep(5)
        second = Candidate(api, "second", writers)
        await asyncio.sleep(30)
        assert first.may_write and not second.may_write
        first.freeze()
        writers.clear()  # what counts of it from now on is the fence
        for _step in range(int(seconds / 0.05)):
            await asyncio.sleep(0.05)
            assert not (first.may_write and second.may_write)
        assert (first.may_write, second.may_write) == (seconds < 10, seconds > 15), "its last renewal was a second before"
        first.thaw()
        for _step in range(1200):
            await asyncio.sleep(0.05)
            assert not (first.may_write and second.may_write)
        assert writers == ({"second"} if seconds > 15 else {"first"} if seconds > 8 else set())
        assert len(first.began) == (2 if 8 < seconds < 15 else 1), "what it had begun has ended before it leads anew"

    run(story())


@pytest.mark.parametrize("written", ["1970-01-01T00:00:00.000000Z", "2100-01-01T00:00:00.000000Z", "no time at all"])
def test_clocks_that_differ_neither_cut_a_lease_short_nor_make_it_longer(written: str) -> None:
    """What counts is how long the lease has not changed by one's own clock; the clock of another host is ignored."""

    async def story() -> None:
        api, writers = FakeApi(), set[str]()
        spec = {"holderIdentity": "elsewhere", "leaseDurationSeconds": 12, "renewTime": written, "acquireTime": written}

        def renew(count: int) -> None:
            api.put(LEASE, {"metadata": {"name": "corral-operator"}, "spec": {**spec, "leaseTransitions": 0, "count": count}})

        renew(0)
        candidate = Candidate(api, "here", writers)
        for count in range(1, 20):
            await asyncio.sleep(5)
            renew(count)
        assert writers == set(), "it was renewed all the time"
        stopped = asyncio.get_running_loop().time()
        await asyncio.sleep(20)
        assert writers == {"here"}
        assert 12 <= candidate.began[0] - stopped <= 15

    run(story())


def test_the_fence_moves_with_each_renewal_and_closes_when_the_lease_is_given_up() -> None:
    now, moved = 100.0, list[float]()
    election = Election("me", lambda: now, lease=12, renew_deadline=8, fence=moved.append)
    election.renewed(sent=99.0, version="1")
    now = 103.0
    election.renewed(sent=102.0, version="2")
    election.lost()
    assert moved == [110.0, 113.0, 0.0]
    # Others count whole seconds, and what is left of the lease is the margin.
    odd = Election("me", lambda: now, lease=11.4, renew_deadline=8, fence=moved.append)
    odd.renewed(sent=100.0, version="1")
    assert odd.duration == 11
    assert moved[-1] == pytest.approx(100 + 11 * 11 / 12)


@pytest.mark.parametrize("seed", range(20))
def test_never_two_whatever_happens(seed: int) -> None:
    async def story() -> None:
        chance = random.Random(seed)
        bad = True
        api, writers = FakeApi(), set[str]()
        cut: set[str] = set()

        class Way:
            def __init__(self, name: str) -> None:
                self.name = name

            async def request(self, method: str, path: str, *, what: str, **options: Any) -> Any:
                await asyncio.sleep(chance.choice((0.001, 0.01, 0.3)))
                if self.name in cut:
                    await asyncio.sleep(1000)
                answer = await api.request(method, path, what=what, **options)
                if bad and chance.random() < 0.05:
                    await asyncio.sleep(chance.uniform(0, 20))  # written, and the answer comes late or never
                return answer

        candidates = [Candidate(Way(f"c{n}"), f"c{n}", writers, stop_takes=1.5) for n in range(3)]
        for step in range(60):
            await asyncio.sleep(chance.uniform(0, 8))
            name = f"c{chance.randrange(3)}"
            (cut.discard if name in cut else cut.add)(name)
            if chance.random() < 0.2:
                victim = chance.choice(candidates)
                victim.die()
                candidates.remove(victim)
                candidates.append(Candidate(Way(f"new{step}"), f"new{step}", writers, stop_takes=1.5))
            for candidate in candidates:
                assert not candidate.task.done(), candidate.task.exception()
        bad = False
        cut.clear()
        await asyncio.sleep(60)
        assert len(writers) == 1

    run(story())


def test_the_steps() -> None:
    now = 0.0
    election = Election("me", lambda: now, lease=12, renew_deadline=8, fence=lambda _until: None)
    assert election.observe(None) is Step.CREATE
    theirs = {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15}}
    assert election.observe(theirs) is Step.WAIT
    now = 14.9
    assert election.observe(theirs) is Step.WAIT
    now = 15.0
    assert election.observe(theirs) is Step.TAKE, "not renewed for its holder's lease duration"
    assert election.observe({**theirs, "metadata": {"resourceVersion": "2"}}) is Step.WAIT
    assert election.observe({"metadata": {"resourceVersion": "3"}, "spec": {"holderIdentity": ""}}) is Step.TAKE
    assert election.observe({"metadata": {"resourceVersion": "4"}, "spec": {"holderIdentity": "me"}}) is Step.RENEW
    election.renewed(sent=now, version="5")
    assert election.leads
    now += 8
    assert not election.leads
