# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may read the metrics: the API server is asked who a token belongs to (TokenReview), and whether they may get /metrics (SubjectAccessReview).

It is how kube-rbac-proxy and controller-runtime keep theirs, so that one ClusterRole lets a Prometheus read all of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from typing import NamedTuple

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator import api
from corral_operator.api import Api

log = logging.getLogger(__name__)

PATH = "/metrics"
# An answer of the API server holds for so long.
_LET_IN, _REFUSED = 60.0, 10.0
# Answers that are kept, and questions that wait: whoever tries tokens costs no more than this.
_KEPT, _WAITING = 256, 8


class Refusal(NamedTuple):
    """An HTTP status and a sentence."""

    code: int
    words: str


class Admission:
    """Asks by a client of its own, so that nobody who knocks here keeps the controller from its work."""

    def __init__(self, client: Api, clock: Callable[[], float]) -> None:
        self._api = client
        self._clock = clock
        self._known: dict[bytes, tuple[float, Refusal | None]] = {}
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def refusal(self, header: str) -> Refusal | None:
        """Return why a request with this header Authorization is refused; None where it is let in."""
        scheme, _space, token = header.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii():
            return Refusal(401, "Send the token of a service account that may get /metrics, as Authorization: Bearer TOKEN.")
        key = hashlib.sha256(token.encode()).digest()
        if self._fresh(key):
            return self._known[key][1]
        if self._waiting >= _WAITING:
            return Refusal(429, "Too many tokens are being looked at; try again in a second.")
        self._waiting += 1
        try:
            async with self._turn:
                if not self._fresh(key):
                    found = await self._ask(token)
                    self._known.pop(key, None)
                    self._known[key] = self._clock() + (_REFUSED if found else _LET_IN), found
                    while len(self._known) > _KEPT:
                        del self._known[next(iter(self._known))]
                return self._known[key][1]
        except CorralError as error:
            log.warning("a reader of metrics could not be looked at", extra={"error": str(error)})
            hint = (
                "; an administrator gives the operator's service account the ClusterRole system:auth-delegator"
                if api.code(error) == 403
                else ""
            )
            return Refusal(503, f"The API server could not be asked who may read this{hint}.")
        finally:
            self._waiting -= 1

    def _fresh(self, key: bytes) -> bool:
        return key in self._known and self._clock() < self._known[key][0]

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
