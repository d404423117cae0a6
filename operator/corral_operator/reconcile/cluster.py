# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One SlurmCluster as it was last seen, and what this process knows of it."""

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
    """The run under way, or the last one, and what has come up meanwhile."""

    run: Run | None = None
    playbook: str = ""
    generation: int = 0
    began: float = 0.0
    # How many there were.
    count: int = 0
    # It only waits, for pods or for jobs.
    parked: bool = False
    # Objects that somebody else has set meanwhile; whether it has to begin anew for one of them.
    overtaken: set[str] = field(default_factory=set)
    outdated: bool = False
    # Machines go or come back: a run that only waits makes way.
    yielding: bool = False

    @property
    def syncing(self) -> bool:
        """True while corral.slurm.sync runs."""
        return self.run is not None and self.playbook == "sync"

    @property
    def applying(self) -> bool:
        """True while a run is under way that makes or destroys the cluster."""
        return self.run is not None and self.playbook != "sync"

    def end(self, reason: str) -> None:
        """Have the run end before its time, if there is one."""
        if self.run is not None:
            self.run.end(reason)


@dataclass
class Requests:
    """What the cluster was and is queued for."""

    # For what it is queued again when its objects have been seen.
    deferred: Trigger = Trigger.RESYNC
    # The next run comes even if all seems to be as it was.
    forced: bool = False
    # When it was queued last by time alone, or first seen; when somebody edited it last.
    resynced: float = 0.0
    edited: float = -math.inf
    # All was ready when the last run failed. The pause after it was cut short by a change of an object; the next one is cut short by an edit only.
    was_ready: bool = False
    backoff_cut: bool = False
    # How often in a row the operator itself could not go on.
    errors: int = 0


@dataclass
class Convergence:
    """Whether runs come to find nothing to do."""

    conflicts: Conflicts
    # Runs in a row that changed something.
    unsettled: int = 0
    # The next run comes at once, to prove that nothing is left to do.
    settling: bool = False
    # What was asked of its node sets at the last run.
    requested: list[str] | None = None
    # Until then an object is left to somebody else who writes it, too.
    backoff: asyncio.TimerHandle | None = None


@dataclass
class Validation:
    """What is to be said of the document's spec, and the check under way."""

    checked: Checked = field(default_factory=Checked)
    task: asyncio.Task[Checked] | None = None
    # The older cluster whose names it would have, for which it waits.
    waits_for: Key | None = None


@dataclass
class Ownership:
    """Whose document it is."""

    # Its finalizer was taken off by this operator.
    released: bool = False
    # The other operator that was told of as the one who looks after it.
    other: str = ""
    # What a newer definition has given it that this operator does not know; what of that was told.
    unknown: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)


@dataclass
class StatusWrites:
    """The status that was written last, and the write to come."""

    last: Json | None = None
    timer: asyncio.TimerHandle | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class Probe:
    """When Slurm is asked next by time alone, None: not known yet; and the nodes on machines that go, as they were told last."""

    due: float | None = None
    leaving: list[str] = field(default_factory=list)


@dataclass
class Cluster:
    """``seen_at`` is when it was seen first, or when another operator had left it."""

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
    def name(self) -> str:
        """Namespace and name, as sentences and logs have them."""
        return "/".join(self.key)

    @property
    def deleting(self) -> bool:
        """True when the document shall go."""
        return deleting(self.document)
