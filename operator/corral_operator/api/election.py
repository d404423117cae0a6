# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leader election by a Lease, as Kubernetes' own controllers do it. ``Election`` decides and is pure; ``Elector`` acts.

Clocks of two hosts are never compared: a lease counts as expired when this process has not seen it change for the lease's duration. The leader
gives up ``renew_deadline`` after it sent its last successful renewal. No candidate can regard the lease as expired that early, and the leader's runs
are killed in between, so two pods never write. If the leader is frozen and cannot kill them, the fence closes in between by itself.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.api.client import Api, Json, status_code

log = logging.getLogger(__name__)


class Step(Enum):
    """What to do about the lease next."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


# The part of the lease's duration by which the fence closes early: for clocks that run at different rates, and for writes already sent.
_MARGIN = 1 / 12


class Election:
    """The state of one candidate. ``fence`` is called with the time until which it may write, whenever that changes; 0: it may not."""

    def __init__(
        self, identity: str, clock: Callable[[], float], *, lease: float, renew_deadline: float, fence: Callable[[float], None]
    ) -> None:
        self._identity = identity
        self._clock = clock
        self._lease = lease
        self._renew_deadline = renew_deadline
        self._fence = fence
        self._version: str | None = None
        self._changed = 0.0
        self._duration = lease
        self._renewed: float | None = None

    def observe(self, lease: Json | None) -> Step:
        """Return what to do about the lease that was just read; None: there is none."""
        if lease is None:
            return Step.CREATE
        spec = lease.get("spec") or {}
        version = str((lease.get("metadata") or {}).get("resourceVersion"))
        if version != self._version:
            self._version, self._changed = version, self._clock()
            self._duration = float(spec.get("leaseDurationSeconds") or self._lease)
        holder = spec.get("holderIdentity")
        if holder == self._identity:
            return Step.RENEW
        if not holder or self._clock() - self._changed >= self._duration:
            return Step.TAKE
        return Step.WAIT

    def renewed(self, sent: float, version: str) -> None:
        """Record a successful write of the lease, which was sent at ``sent``."""
        self._renewed = sent
        self._fence(sent + min(self._lease, self.duration) * (1 - _MARGIN))
        self._version, self._changed = version, self._clock()

    def lost(self) -> None:
        """Record that another candidate has the lease, or that it was released."""
        self._renewed = None
        self._fence(0.0)

    @property
    def duration(self) -> int:
        """Return the duration in the Lease, which the API gives in whole seconds."""
        return max(1, round(self._lease))

    @property
    def deadline(self) -> float | None:
        """Return until when this process leads unless it renews; None if it does not lead."""
        return None if self._renewed is None else self._renewed + self._renew_deadline

    @property
    def leads(self) -> bool:
        """True while this process may write."""
        return self.deadline is not None and self._clock() < self.deadline


class Elector:
    """Acquires and renews the lease. ``started`` is called when it was acquired; ``stopped`` when it was lost, and must return only when nothing writes."""

    def __init__(
        self,
        client: Api,
        election: Election,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease: float,
        retry: float,
        started: Callable[[], None],
        stopped: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self._api = client
        self._election = election
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._lease = lease
        self._retry = retry
        self._started = started
        self._stopped = stopped
        self._clock = clock
        self.leading = False
        # The lease as this process last wrote it. While it leads, no other candidate should have written it; if one has, the next write conflicts.
        self._written: Json | None = None

    async def run(self) -> None:
        """Acquire and renew the lease until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._patience()):
                    await self._step()
            except (CorralError, TimeoutError) as error:
                log.warning("the lease could not be read or written", extra={"error": str(error) or "no response in time"})
                if status_code(error) == 409 and not self._election.leads:
                    self._election.lost()
            if self._election.leads and not self.leading:
                self.leading = True
                log.info("leading", extra={"identity": self._identity})
                self._started()
            elif self.leading and not self._election.leads:
                await self._stop()
            # A candidate polls for a released lease; a leader renews half as often.
            pause = self._retry if self._written is None else 2 * self._retry
            await asyncio.sleep(min(pause, self._patience()) if self.leading else self._retry)

    def _patience(self) -> float:
        """Return how long one attempt may take: it must leave time for another one."""
        deadline = self._election.deadline
        return self._lease / 4 if deadline is None else max(0.05, min(self._lease / 4, deadline - self._clock()))

    async def _stop(self) -> None:
        self.leading = False
        self._election.lost()
        log.warning("no longer leading", extra={"identity": self._identity})
        await self._stopped()

    async def _step(self) -> None:
        what = f"read Lease {self._namespace}/{self._name}"
        own, self._written = self._written, None
        if own is not None and self.leading and self._election.leads:
            try:
                await self._renew(Step.RENEW, own)
                return
            except CorralError as error:
                if status_code(error) not in (404, 409):
                    raise
        try:
            lease: Json | None = await self._api.request("GET", f"{self._path}/{self._name}", what=what, patience=1.0)
        except CorralError as error:
            if status_code(error) != 404:
                raise
            lease = None
        step = self._election.observe(lease)
        # A leader that was frozen past its deadline first ends what it has started, even if it could renew or acquire the lease.
        if step is Step.WAIT or (self.leading and not self._election.leads):
            self._election.lost()
            return
        try:
            await self._renew(step, lease)
        except CorralError as error:
            if status_code(error) != 409:  # otherwise another candidate was first, which the next attempt reads
                raise

    async def _renew(self, step: Step, lease: Json | None) -> None:
        sent = self._clock()
        written = await self._write(step, lease)
        self._election.renewed(sent, str(written["metadata"]["resourceVersion"]))
        self._written = written

    async def _write(self, step: Step, lease: Json | None) -> Json:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: dict[str, Any] = dict((lease or {}).get("spec") or {})
        if step is not Step.RENEW:
            spec = {
                "acquireTime": now,
                "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (step is Step.TAKE),
            }
        spec.update(holderIdentity=self._identity, leaseDurationSeconds=self._election.duration, renewTime=now)
        what = f"write Lease {self._namespace}/{self._name}"
        if lease is None:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": spec,
            }
            return await self._api.request("POST", self._path, what=what, body=body, patience=1.0)
        # With the version that was read, so that only one of two candidates succeeds.
        return await self._api.request("PUT", f"{self._path}/{self._name}", what=what, body={**lease, "spec": spec}, patience=1.0)

    async def release(self) -> None:
        """Release the lease, so that the next candidate need not wait; call it when nothing writes any more."""
        if not self._election.leads:
            return
        self._election.lost()
        try:
            lease = await self._api.request("GET", f"{self._path}/{self._name}", what="read the lease", patience=1.0)
            if (lease.get("spec") or {}).get("holderIdentity") != self._identity:
                return
            lease["spec"].update(holderIdentity="", leaseDurationSeconds=1)
            await self._api.request("PUT", f"{self._path}/{self._name}", what="release the lease", body=lease, patience=1.0)
        except CorralError as error:
            log.warning("the lease could not be released", extra={"error": str(error)})
