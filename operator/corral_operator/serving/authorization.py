# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may read the metrics: the API server is asked who a token belongs to (TokenReview), and whether they may get /metrics (SubjectAccessReview).

It is how kube-rbac-proxy and controller-runtime keep theirs, so that one ClusterRole lets a Prometheus read all of them.
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
# An answer of the API server holds for so long.
_LET_IN, _REFUSED = 60.0, 10.0
# Answers of each sort that are kept, and questions about tokens never let in that wait, of one address and of all: whoever tries tokens costs no more.
_KEPT, _EACH, _WAITING = 256, 2, 32


class Refusal(NamedTuple):
    """An HTTP status and a sentence."""

    code: int
    words: str


class Authorizer:
    """Asks by a client of its own, so that nobody who knocks here keeps the controller from its work."""

    def __init__(self, client: Api, clock: Callable[[], float]) -> None:
        self._api = client
        self._clock = clock
        # Until when each answer holds. Those who were let in are kept, and looked at again, apart: whoever tries tokens stands in nobody's way.
        self._let_in: dict[bytes, float] = {}
        self._refused: dict[bytes, tuple[float, Refusal]] = {}
        self._turns = {known: asyncio.Lock() for known in (True, False)}
        self._waiting: Counter[str] = Counter()

    async def refusal(self, header: str, address: str = "") -> Refusal | None:
        """Return why a request from ``address`` with this header Authorization is refused; None where it is let in."""
        scheme, _space, token = header.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii():
            return Refusal(401, "Send the token of a service account that may get /metrics, as Authorization: Bearer TOKEN.")
        key = hashlib.sha256(token.encode()).digest()
        known = key in self._let_in
        if self._fresh(key):
            return self._answer(key)
        if not known and (self._waiting[address] >= _EACH or self._waiting.total() >= _WAITING):
            return Refusal(429, "Too many tokens are being looked at; try again in a second.")
        self._waiting[address] += not known
        try:
            async with self._turns[known]:
                if not self._fresh(key):
                    self._note(key, await self._ask(token))
                return self._answer(key)
        except CorralError as error:
            log.warning("a reader of metrics could not be looked at", extra={"error": str(error)})
            hint = (
                "; an administrator gives the operator's service account the ClusterRole system:auth-delegator"
                if status_code(error) == 403
                else ""
            )
            return Refusal(503, f"The API server could not be asked who may read this{hint}.")
        finally:
            self._waiting[address] -= not known
            if not self._waiting[address]:
                del self._waiting[address]

    def _fresh(self, key: bytes) -> bool:
        until = self._let_in.get(key) or self._refused.get(key, (0.0, None))[0]
        return self._clock() < until

    def _answer(self, key: bytes) -> Refusal | None:
        return None if key in self._let_in else self._refused[key][1]

    def _note(self, key: bytes, found: Refusal | None) -> None:
        self._let_in.pop(key, None)
        self._refused.pop(key, None)
        if found is None:
            self._let_in[key] = self._clock() + _LET_IN
        else:
            self._refused[key] = self._clock() + _REFUSED, found
        for kept in (self._let_in, self._refused):
            while len(kept) > _KEPT:
                del kept[next(iter(kept))]

    async def _ask(self, token: str) -> Refusal | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        found = await self._api.request(
            "POST", "/apis/authentication.k8s.io/v1/tokenreviews", what="see whose token it is", body=review, patience=1.0
        )
        status = found.get("status") or {}
        user = status.get("user") or {}
        if not status.get("authenticated") or not user.get("username"):
            return Refusal(401, "The API server knows nobody by this token.")
        spec = {
            "user": user["username"],
            "nonResourceAttributes": {"path": PATH, "verb": "get"},
            **{key: user[key] for key in ("uid", "groups", "extra") if user.get(key)},
        }
        ask = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        found = await self._api.request(
            "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", what="see who may read metrics", body=ask, patience=1.0
        )
        if (found.get("status") or {}).get("allowed") is True:
            return None
        return Refusal(
            403,
            f"{user['username']} may not get {PATH}; an administrator binds it to a ClusterRole with the nonResourceURL {PATH} and the verb get.",
        )
