# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cluster is next."""

from __future__ import annotations

import pytest

from corral_operator.reconcile.metadata import Key
from corral_operator.reconcile.queue import PATIENCE, Backoff, Trigger, WorkQueue

A, B, C = ("one", "a"), ("one", "b"), ("two", "c")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue:
    return WorkQueue(clock, working=2, open_limit=3)


def taken(queue: WorkQueue) -> Key | None:
    one = queue.take()
    return one.key if one else None


def test_edits_go_first(queue: WorkQueue, clock: Clock) -> None:
    queue.add(A, Trigger.RESYNC)
    clock.now += 1
    queue.add(B, Trigger.DRIFT)
    queue.add(C, Trigger.EDIT)
    assert taken(queue) == C
    assert taken(queue) == B


def test_among_equals_the_first_is_first(queue: WorkQueue, clock: Clock) -> None:
    for key in (B, A):
        queue.add(key, Trigger.RESYNC)
        clock.now += 1
    assert (taken(queue), taken(queue)) == (B, A)


def test_nothing_waits_for_ever(queue: WorkQueue, clock: Clock) -> None:
    queue.add(A, Trigger.RESYNC)
    clock.now += PATIENCE + 1
    queue.add(B, Trigger.EDIT)
    assert taken(queue) == A


def test_one_more_slot_is_reserved_for_edits(queue: WorkQueue, clock: Clock) -> None:
    others = [("three", str(number)) for number in range(4)]
    for key in others:
        queue.add(key, Trigger.RESYNC)
    assert (taken(queue), taken(queue), taken(queue)) == (others[0], others[1], None)
    assert queue.next_due() is None, "until one of them is done"
    clock.now += PATIENCE + 1
    queue.add(A, Trigger.EDIT)
    queue.add(B, Trigger.EDIT)
    assert (taken(queue), taken(queue)) == (A, None), "at once, though all places are taken and others have waited for long"
    queue.done(A)
    assert taken(queue) == B


def test_a_key_is_worked_on_once_at_a_time_and_later_requests_are_retained(queue: WorkQueue) -> None:
    queue.add(A, Trigger.EDIT)
    assert taken(queue) == A
    queue.add(A, Trigger.DRIFT)
    queue.add(A, Trigger.EDIT)
    assert taken(queue) is None
    queue.done(A)
    one = queue.take()
    assert one is not None
    assert (one.key, one.trigger) == (A, Trigger.EDIT)
    queue.done(A)
    assert taken(queue) is None


def test_work_absorbs_due_requests_but_not_later_ones(queue: WorkQueue) -> None:
    queue.add(A, Trigger.EDIT)
    assert taken(queue) == A
    queue.add(A, Trigger.DRIFT)
    queue.absorb(A)
    queue.done(A)
    assert not queue.pending(A)
    queue.add(A, Trigger.RETRY, delay=5)
    queue.absorb(A)
    assert queue.pending(A)


def test_no_more_work_than_there_is_room_for(queue: WorkQueue) -> None:
    for key in (A, B, C):
        queue.add(key, Trigger.DRIFT)
    assert {taken(queue), taken(queue)} == {A, B}
    assert taken(queue) is None
    queue.park(A)
    assert taken(queue) == C
    queue.park(A, False)
    queue.done(B)
    queue.add(B, Trigger.DRIFT)
    assert taken(queue) is None, "A works again"


def test_a_parked_key_makes_room_when_all_places_are_taken(queue: WorkQueue) -> None:
    for key in (A, B, C):
        queue.add(key, Trigger.DRIFT)
    taken(queue), taken(queue)
    queue.park(A)
    taken(queue)
    assert queue.preemptible() is None, "no key is due"
    queue.add(("x", "y"), Trigger.DRIFT)
    assert queue.preemptible() == A


def test_a_debounce_waits_for_quiet_but_not_for_ever(queue: WorkQueue, clock: Clock) -> None:
    queue.add(A, Trigger.DRIFT, 0.3, 1.0)
    for _dummy in range(3):
        clock.now += 0.2
        queue.add(A, Trigger.DRIFT, 0.3, 1.0)
        assert taken(queue) is None
    assert queue.next_due() == pytest.approx(100.9)
    clock.now += 0.2
    queue.add(A, Trigger.DRIFT, 0.3, 1.0)
    assert queue.next_due() == pytest.approx(101.0)
    clock.now = 101.0
    assert taken(queue) == A


def test_an_edit_does_not_wait_for_a_debounce_or_a_pause(queue: WorkQueue) -> None:
    queue.add(A, Trigger.RETRY, delay=300)
    assert taken(queue) is None
    queue.add(A, Trigger.EDIT)
    one = queue.take()
    assert one is not None
    assert one.trigger is Trigger.EDIT


def test_a_debounce_does_not_put_off_what_is_due(queue: WorkQueue) -> None:
    queue.add(A, Trigger.EDIT)
    queue.add(A, Trigger.DRIFT, 0.3, 1.0)
    assert taken(queue) == A


def test_it_has_the_times_that_clusters_wait_and_are_worked_on(queue: WorkQueue, clock: Clock) -> None:
    queue.add(A, Trigger.EDIT)
    queue.add(B, Trigger.DRIFT, delay=5)
    queue.add((*C, "sync"), Trigger.DRIFT)
    clock.now += 2
    queue.add(C, Trigger.DRIFT)
    assert queue.waiting == {A: 2, C: 2}
    assert taken(queue) == A
    queue.add((*A, "sync"), Trigger.DRIFT)
    clock.now += 4
    assert (queue.waiting, queue.at_work) == ({B: 1, C: 6}, {A: 4})
    queue.park(A)
    clock.now += 1
    assert queue.done(A) == 5
    assert queue.at_work == {}
    assert queue.done(A) == 0, "of one that was forgotten meanwhile"


def test_a_forgotten_key_is_not_taken(queue: WorkQueue) -> None:
    queue.add(A, Trigger.EDIT)
    queue.forget(A)
    assert taken(queue) is None
    assert queue.next_due() is None


def test_pauses_double_up_to_a_limit_and_begin_anew() -> None:
    backoff = Backoff(1.0, 10.0)
    assert [backoff.failed(A) for _dummy in range(6)] == [1, 2, 4, 8, 10, 10]
    assert backoff.failed(B) == 1
    backoff.reset(A)
    assert backoff.count(A) == 0
    assert backoff.failed(A) == 1
