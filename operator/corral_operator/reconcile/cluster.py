# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One SlurmCluster as last observed, and this process's state of it."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

from corral_operator.reconcile.conditions import Facts
from corral_operator.reconcile.conflicts import Conflicts
from corral_operator.reconcile.metadata import Json, Key, deleting
from corral_operator.reconcile.queue import Trigger
from corral_operator.runs.checker import Checked
from corral_operator.runs.run import Run


@dataclass
class Execution:
    """The current or the last run, and what has happened meanwhile."""

    run: Run | None = None
    playbook: str = ""
    generation: int = 0
    began: float = 0.0
    # The number of runs so far.
    count: int = 0
    # The run only waits, for pods or for jobs.
    parked: bool = False
    # Objects that another writer has changed during the run; whether the run must restart because of one of them.
    overwritten: set[str] = field(default_factory=set)
    outdated: bool = False
    # A Kubernetes node is draining or is back, or tenants have changed: a run that only waits yields to one that is short.
    yielding: bool = False

    @property
    def aside(self) -> bool:
        """True while a run leaves the cluster's objects alone."""
        return self.run is not None and self.playbook in ("sync", "tenants")

    @property
    def applying(self) -> bool:
        """True while a run applies or destroys the cluster."""
        return self.run is not None and not self.aside

    def yield_soon(self) -> None:
        """End a run that only waits, now or as soon as it only waits. It is repeated."""
        self.yielding = True
        if self.parked and self.applying:
            self.end("preempted")

    def end(self, reason: str) -> None:
        """End the current run early, if there is one."""
        if self.run is not None:
            self.run.end(reason)


@dataclass
class Requests:
    """Why and when the cluster was queued."""

    # The trigger with which it is queued when its objects have been listed.
    deferred: Trigger = Trigger.RESYNC
    # A run is needed even if nothing seems to have changed.
    forced: bool = False
    # Time of the last resync, or when it was first observed; time of the last edit.
    resynced: float = 0.0
    edited: float = -math.inf
    # All objects were ready when the last run failed. A change of an object has cut the pause after a failure short; only an edit does that again.
    was_ready: bool = False
    backoff_cut: bool = False
    # Errors in a row of the operator itself.
    errors: int = 0


@dataclass
class Convergence:
    """How far runs are from finding nothing to do."""

    conflicts: Conflicts
    # The number of runs in a row that changed something.
    unsettled: int = 0
    # The next run follows at once, to verify that nothing is left to do.
    settling: bool = False
    # The specs of its SlurmNodeSets at the last run.
    requested: list[str] | None = None
    # The end of the back-off of objects in conflict.
    backoff: asyncio.TimerHandle | None = None


@dataclass
class Validation:
    """The last check of the document's spec, and the current one."""

    checked: Checked = field(default_factory=Checked)
    task: asyncio.Task[Checked] | None = None
    # The older cluster with conflicting names, which it waits for.
    waits_for: Key | None = None


@dataclass
class Ownership:
    """Which operator manages the document."""

    # This operator has removed the finalizer.
    released: bool = False
    # The other operator that was reported as its manager.
    other: str = ""
    # Fields of a newer definition that this operator does not know; those of them that were reported.
    unknown: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)


@dataclass
class StatusWrites:
    """The last written status, and the scheduled write."""

    last: Json | None = None
    timer: asyncio.TimerHandle | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class Probe:
    """When the next probe of Slurm is due, None: not known yet; and the draining nodes that were last reported."""

    due: float | None = None
    draining: list[str] = field(default_factory=list)


@dataclass
class Cluster:
    """``seen_at`` is when it was first observed, or when another operator had released it."""

    key: Key
    document: Json
    facts: Facts
    seen_at: float
    convergence: Convergence
    execution: Execution = field(default_factory=Execution)
    requests: Requests = field(default_factory=Requests)
    validation: Validation = field(default_factory=Validation)
    ownership: Ownership = field(default_factory=Ownership)
    writes: StatusWrites = field(default_factory=StatusWrites)
    probe: Probe = field(default_factory=Probe)

    @property
    def generation(self) -> int:
        """The document's generation."""
        return int(self.document["metadata"].get("generation") or 0)

    @property
    def sync_key(self) -> Key:
        """The queue's key of corral.slurm.sync."""
        return (*self.key, "sync")

    @property
    def tenants_key(self) -> Key:
        """The queue's key of corral.slurm.tenants."""
        return (*self.key, "tenants")

    @property
    def name(self) -> str:
        """Namespace and name, as in messages and logs."""
        return "/".join(self.key)

    @property
    def deleting(self) -> bool:
        """True if the document is being deleted."""
        return deleting(self.document)
