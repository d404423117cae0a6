# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Authorizes readers of the metrics: a TokenReview authenticates the token, and a SubjectAccessReview checks that its user may get /metrics.

kube-rbac-proxy and controller-runtime do the same, so one ClusterRole lets a Prometheus read all of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.api.client import Api, status_code

log = logging.getLogger(__name__)

PATH = "/metrics"
# How long decisions are cached.
_ALLOWED_SECONDS, _REFUSED_SECONDS = 60.0, 10.0
# Cached decisions of each kind, and waiting reviews of tokens that were never allowed, per address and in total: an upper bound for the load by
# invalid tokens.
_CACHED, _WAITING_PER_ADDRESS, _WAITING_IN_ALL = 256, 2, 32


class Refusal(NamedTuple):
    """An HTTP status and a sentence."""

    code: int
    message: str


class Authorizer:
    """Uses a client of its own, so that requests for metrics do not slow the controller."""

    def __init__(self, client: Api, clock: Callable[[], float]) -> None:
        self._api = client
        self._clock = clock
        # When each decision expires. Allowed tokens have a cache and a lock of their own, so that invalid tokens do not delay them.
        self._allowed: dict[bytes, float] = {}
        self._refused: dict[bytes, tuple[float, Refusal]] = {}
        self._locks = {known: asyncio.Lock() for known in (True, False)}
        self._waiting: Counter[str] = Counter()

    async def refusal(self, header: str, address: str = "") -> Refusal | None:
        """Return why a request from ``address`` with this header Authorization is refused; None if it is allowed."""
        scheme, _space, token = header.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii():
            return Refusal(401, "Send the token of a service account that may get /metrics, as Authorization: Bearer TOKEN.")
        key = hashlib.sha256(token.encode()).digest()
        known = key in self._allowed
        if self._fresh(key):
            return self._decision(key)
        if not known and (self._waiting[address] >= _WAITING_PER_ADDRESS or self._waiting.total() >= _WAITING_IN_ALL):
            return Refusal(429, "Too many tokens are being reviewed; try again in a second.")
        self._waiting[address] += not known
        try:
            async with self._locks[known]:
                if not self._fresh(key):
                    self._store(key, await self._review(token))
                return self._decision(key)
        except CorralError as error:
            log.warning("a reader of metrics could not be authorized", extra={"error": str(error)})
            hint = (
                "; an administrator gives the operator's service account the ClusterRole system:auth-delegator"
                if status_code(error) == 403
                else ""
            )
            return Refusal(503, f"The API server could not authorize the request{hint}.")
        finally:
            self._waiting[address] -= not known
            if not self._waiting[address]:
                del self._waiting[address]

    def _fresh(self, key: bytes) -> bool:
        until = self._allowed.get(key) or self._refused.get(key, (0.0, None))[0]
        return self._clock() < until

    def _decision(self, key: bytes) -> Refusal | None:
        return None if key in self._allowed else self._refused[key][1]

    def _store(self, key: bytes, found: Refusal | None) -> None:
        self._allowed.pop(key, None)
        self._refused.pop(key, None)
        if found is None:
            self._allowed[key] = self._clock() + _ALLOWED_SECONDS
        else:
            self._refused[key] = self._clock() + _REFUSED_SECONDS, found
        for cache in (self._allowed, self._refused):
            while len(cache) > _CACHED:
                del cache[next(iter(cache))]

    async def _review(self, token: str) -> Refusal | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        found = await self._api.request(
            "POST", "/apis/authentication.k8s.io/v1/tokenreviews", what="review a token", body=review, patience=1.0
        )
        status = found.get("status") or {}
        user = status.get("user") or {}
        if not status.get("authenticated") or not user.get("username"):
            return Refusal(401, "The API server does not accept this token.")
        spec = {
            "user": user["username"],
            "nonResourceAttributes": {"path": PATH, "verb": "get"},
            **{key: user[key] for key in ("uid", "groups", "extra") if user.get(key)},
        }
        access = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        found = await self._api.request(
            "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", what="review who may read metrics", body=access, patience=1.0
        )
        if (found.get("status") or {}).get("allowed") is True:
            return None
        return Refusal(
            403,
            f"{user['username']} may not get {PATH}; an administrator binds it to a ClusterRole with the nonResourceURL {PATH} and the verb get.",
        )
