# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""What a check is, what it is given, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral_health.scheduler import Node
from corral_health.settings import Settings

OK = "ok"
FAILED = "failed"
# The check itself did not work, so nothing is known about what it checks.
BROKEN = "broken"
# There is nothing to check on this node.
SKIPPED = "skipped"


class Broken(Exception):
    """A check cannot tell; the text is one sentence that says why."""


@dataclass(frozen=True)
class Result:
    """The result of one check. ``counters`` are kept for its next run. ``warning``: a failure that never drains."""

    status: str
    detail: str = ""
    counters: Mapping[str, Any] | None = None
    warning: bool = False


def ok(detail: str = "", counters: Mapping[str, Any] | None = None) -> Result:
    """Return that all is well."""
    return Result(OK, detail, counters)


def failed(detail: str, counters: Mapping[str, Any] | None = None, *, warning: bool = False) -> Result:
    """Return what is wrong."""
    return Result(FAILED, detail, counters, warning)


def skipped(detail: str) -> Result:
    """Return why there is nothing to check."""
    return Result(SKIPPED, detail)


@dataclass(frozen=True)
class Output:
    """What a command printed, and its exit status; ``problem`` says why there is none: it took too long, or could not be started."""

    status: int = 0
    stdout: str = ""
    stderr: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Facts:
    """What a check is given: the outputs of the commands that it needs, the files of the system under ``root``, and the counters of its last run."""

    settings: Settings
    root: Path = Path("/")
    outputs: Mapping[str, Output] = field(default_factory=dict)
    node: Node | None = None
    counters: Mapping[str, Any] = field(default_factory=dict)

    def output(self, name: str) -> Output:
        """Return the output of a command. Raises Broken when there is none."""
        found = self.outputs.get(name) or Output(problem=f"{name} was not run")
        if found.problem:
            raise Broken(found.problem)
        return found

    def read(self, path: str) -> str | None:
        """Return the text of a file of the system; None when there is none that can be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None


@dataclass(frozen=True)
class Check:
    """One row of the catalogue.

    ``function`` computes the result. ``needs`` are commands whose output it reads, run once for all checks. ``files``: it reads files of the system, which can
    block, so it runs in a process of its own. ``contexts``: ``start`` is the first run in a pod, ``interval`` each later one. ``states``: ``any``, or
    ``idle`` for nodes without a job. It counts as failed after ``failures`` of the last ``window`` results. ``on_failure`` is ``drain``, ``comment`` or
    ``log``; a drain ends when it is well again. ``latched``: what it found stays until the node is resumed by hand. ``reservation`` holds all jobs when too
    many nodes fail. ``owner`` is that of the reason. ``inside``: its command runs in the jail.
    """

    name: str
    finds: str
    function: Callable[[Facts], Result]
    needs: tuple[str, ...] = ()
    files: bool = False
    platforms: tuple[str, ...] = ("cpu", "nvidia", "amd")
    contexts: tuple[str, ...] = ("start", "interval")
    states: str = "any"
    timeout: int = 10
    failures: int = 1
    window: int = 1
    on_failure: str = "drain"
    latched: bool = False
    reservation: str = ""
    owner: str = "health"
    inside: bool = False

    @property
    def prefix(self) -> str:
        """The beginning of this check's reasons, by which its own drains are known."""
        return f"corral: {self.owner}:" if self.owner != "health" else f"corral: health: {self.name}:"
