# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readers of the metrics: those with the right to get /metrics in Kubernetes, and none without a review."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Status, api_error
from corral_operator.api.client import JSON
from corral_operator.serving import authorization, health
from corral_operator.serving.authorization import Authorizer
from corral_operator.serving.metrics import Metrics

from ..world import FakeApi, run

PROMETHEUS = {"username": "system:serviceaccount:monitoring:prometheus", "uid": "u", "groups": ["system:serviceaccounts"]}


class Reviews(FakeApi):
    """Knows two tokens; one of them may read."""

    def __init__(self) -> None:
        super().__init__()
        self.users: dict[str, dict[str, Any]] = {"good": PROMETHEUS, "other": {"username": "somebody"}}
        self.allowed = {PROMETHEUS["username"]}
        self.asked: list[dict[str, Any]] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        body: dict[str, Any] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        patience: float | None = None,
    ) -> dict[str, Any]:
        await asyncio.sleep(0.1)
        code = self.refuse(method, path)
        if code:
            raise api_error(Status(code, message="refused"), what, server="fake")
        assert body is not None and method == "POST"
        self.asked.append(body)
        if path == "/apis/authentication.k8s.io/v1/tokenreviews":
            user = self.users.get(body["spec"]["token"])
            return {"status": {"authenticated": True, "user": user} if user else {"error": "invalid"}}
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        assert body["spec"]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        return {"status": {"allowed": body["spec"]["user"] in self.allowed}}


def of(reviews: Reviews) -> Authorizer:
    return Authorizer(reviews, asyncio.get_running_loop().time)


@pytest.mark.parametrize(
    ("header", "code", "words", "questions"),
    [
        ("Bearer good", 0, "", 2),
        ("bearer  good ", 0, "", 2),
        ("Bearer other", 403, "somebody may not get /metrics", 2),
        ("Bearer wrong", 401, "does not accept this token", 1),
        ("Bearer ", 401, "Bearer TOKEN", 0),
        ("", 401, "Bearer TOKEN", 0),
        ("Basic Z29vZA==", 401, "Bearer TOKEN", 0),
        ("good", 401, "Bearer TOKEN", 0),
        ("Bearer g\udcffod", 401, "Bearer TOKEN", 0),
        ("Bearer gööd", 401, "Bearer TOKEN", 0),
    ],
)
def test_which_readers_are_allowed(header: str, code: int, words: str, questions: int) -> None:
    async def story() -> None:
        reviews = Reviews()
        found = await of(reviews).refusal(header)
        assert (found.code if found else 0) == code
        assert words in (found.message if found else "")
        assert len(reviews.asked) == questions

    run(story())


def test_all_attributes_of_a_user_are_in_the_access_review() -> None:
    async def story() -> None:
        reviews = Reviews()
        reviews.users["good"] = {**PROMETHEUS, "extra": {"a": ["b"]}}
        assert await of(reviews).refusal("Bearer good") is None
        spec = reviews.asked[1]["spec"]
        assert {key: spec[key] for key in ("user", "uid", "groups", "extra")} == {
            "user": PROMETHEUS["username"], "uid": "u", "groups": ["system:serviceaccounts"], "extra": {"a": ["b"]},
        }  # fmt: skip

    run(story())


def test_an_acceptance_is_cached_for_a_minute_and_a_refusal_for_ten_seconds() -> None:
    async def story() -> None:
        reviews = Reviews()
        gate = of(reviews)
        for _turn in range(5):
            assert await gate.refusal("Bearer good") is None
            assert await gate.refusal("Bearer wrong") is not None
        assert len(reviews.asked) == 3
        reviews.users["wrong"], reviews.allowed = PROMETHEUS, {PROMETHEUS["username"]}
        await asyncio.sleep(11)
        assert await gate.refusal("Bearer wrong") is None
        reviews.allowed = set()
        assert await gate.refusal("Bearer good") is None
        await asyncio.sleep(61)
        refusal = await gate.refusal("Bearer good")
        assert refusal is not None and refusal.code == 403

    run(story())


def test_whoever_tries_tokens_costs_a_few_questions_at_a_time_and_no_memory() -> None:
    async def story() -> None:
        reviews = Reviews()
        gate = of(reviews)
        found = await asyncio.gather(*(gate.refusal(f"Bearer try-{number}") for number in range(500)))
        assert sorted({one.code for one in found if one}) == [401, 429]
        assert len(reviews.asked) <= 8
        for number in range(400):
            await gate.refusal(f"Bearer again-{number}")
        assert len(gate._refused) <= 256

    run(story())


async def flood(gate: Authorizer, address: str) -> None:
    """Somebody who tries tokens without end, and as many at a time as they can."""
    async with asyncio.TaskGroup() as tries:
        for turn in itertools.count():
            tries.create_task(gate.refusal(f"Bearer try-{turn}", address))
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("known", [True, False], ids=["it was let in before", "its first scrape, or with a new token"])
def test_invalid_tokens_delay_no_allowed_reader(known: bool) -> None:
    async def story() -> None:
        reviews = Reviews()
        gate = of(reviews)
        if known:
            assert await gate.refusal("Bearer good", "10.0.0.1") is None
            await asyncio.sleep(61)
        floods = [asyncio.create_task(flood(gate, f"10.0.0.{number}")) for number in ((1, 2, 3) if known else (2, 3))]
        await asyncio.sleep(5.05)
        began, asked = asyncio.get_running_loop().time(), len(reviews.asked)
        assert asked > 10
        assert await gate.refusal("Bearer good", "10.0.0.1") is None
        assert asyncio.get_running_loop().time() - began < 5, "within a scrape's time"
        await asyncio.sleep(20)
        assert await gate.refusal("Bearer good", "10.0.0.1") is None, "it is not driven out either"
        for one in floods:
            one.cancel()

    run(story())


@pytest.mark.parametrize(("code", "hint"), [(403, "system:auth-delegator"), (500, "could not authorize the request")])
def test_no_reader_is_allowed_without_a_review(code: int, hint: str) -> None:
    async def story() -> None:
        reviews = Reviews()
        reviews.refuse = lambda _method, path: code if "subject" in path else 0
        gate = of(reviews)
        refusal = await gate.refusal("Bearer good")
        assert refusal is not None and refusal.code == 503 and hint in refusal.message
        reviews.refuse = lambda _method, _path: 0
        assert await gate.refusal("Bearer good") is None, "what could not be asked is not remembered"

    run(story())


@pytest.mark.parametrize("secure", [True, False])
def test_they_are_served(secure: bool, tmp_path: Path) -> None:
    async def story() -> None:
        metrics = Metrics()
        gate = Authorizer(Reviews(), asyncio.get_running_loop().time) if secure else None
        runner = await health.serve_metrics(
            address="127.0.0.1",
            port=0,
            metrics=metrics,
            refresh=lambda: metrics.leader.set(1),
            authorizer=gate,
            scratch=tmp_path / "scratch",
        )
        unchecked = ssl.create_default_context()
        unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
        url = f"{'https' if secure else 'http'}://127.0.0.1:{runner.addresses[0][1]}/metrics"
        async with aiohttp.ClientSession() as session:

            async def get(**headers: str) -> tuple[int, str]:
                async with session.get(url, headers=headers, ssl=unchecked) as answer:
                    return answer.status, await answer.text()

            if secure:
                assert (await get())[0] == 401
                assert (await get(Authorization="Bearer other"))[0] == 403
                with pytest.raises(aiohttp.ClientError):  # nothing is served in plain text
                    await session.get(url.replace("https", "http"))
            code, text = await get(Authorization="Bearer good")
            assert (code, "corral_operator_leader 1.0" in text) == (200, True)
        await runner.cleanup()
        assert not list(tmp_path.rglob("*.pem")), "the key is in memory alone"

    asyncio.run(story())


def test_the_path_is_the_one_that_rights_are_given_on() -> None:
    assert authorization.PATH == "/metrics"
