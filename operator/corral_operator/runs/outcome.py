# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outcome of a run, built from the lines that it reported. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass
class Progress:
    """The current task of a run, and the duration of each task."""

    task: str = ""
    role: str = ""
    begun: int = 0
    planned: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    _since: float | None = None

    def begin(self, task: str, role: str, now: float) -> None:
        """Record that a task has started."""
        self.stop(now)
        self.task, self.role = task, role
        self.begun += 1

    def stop(self, now: float) -> None:
        """Record that the task has ended."""
        if self._since is not None and self.task:
            name = f"{self.role} : {self.task}" if self.role else self.task
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now

    @property
    def doing(self) -> str:
        """Return the task, its number and, if known, the number of tasks; a run that changes something may have more tasks than that."""
        if not self.task:
            return ""
        total = f" of {self.planned}" if self.begun <= self.planned else ""
        return f"{self.task} (task {self.begun}{total})"


@dataclass
class Changes:
    """What a run has changed: the changed tasks, the objects, and the fields of other managers that it removed (field, object and manager)."""

    count: int = 0
    tasks: list[str] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def add(self, line: Json) -> None:
        """Add the line of a task."""
        if line.get("changed"):
            self.count += 1
            self.tasks.append(str(line["task"]))
        self.objects += [f"{row['kind']} {row['name']} {row['result']}" for row in line.get("objects", ())]
        self.foreign += line.get("foreign", ())


@dataclass
class Pending:
    """What is left for a later run, as the last pass reported it: the nodes whose jobs it waits for, to remove the node or replace its pod; whether a
    later run is needed even without a change in Kubernetes; and the progress of a roll-out, a line for each unfinished node set."""

    waiting: list[str] = field(default_factory=list)
    left: bool = False
    lines: list[str] = field(default_factory=list)

    def add(self, line: Json) -> None:
        """Add the line of a task."""
        self.waiting = line.get("waiting", self.waiting)
        self.left = line.get("left", self.left)
        self.lines = line.get("lines", self.lines)


@dataclass
class Messages:
    """Sentences of tasks: their warnings; and of accounts, users and QoS, what could not be removed, and the errors of their documents."""

    warnings: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, line: Json) -> None:
        """Add the line of a task."""
        self.warnings += line.get("warnings", ())
        self.kept += line.get("kept", ())
        self.problems += line.get("problems", ())


@dataclass
class Outcome:
    """The outcome of a run, updated line by line. ``code`` is its exit status, None until it has ended; ``ended`` is the reason if the operator ended it;
    ``output_dir`` is the directory of its output; ``counts`` are Ansible's counts of tasks of all hosts (``dark``: unreachable)."""

    code: int | None = None
    ended: str = ""
    output_dir: str = ""
    seconds: float = 0.0
    progress: Progress = field(default_factory=Progress)
    changes: Changes = field(default_factory=Changes)
    pending: Pending = field(default_factory=Pending)
    counts: dict[str, int] = field(default_factory=dict)
    nodes: Json | None = None
    draining: Json = field(default_factory=dict)
    messages: Messages = field(default_factory=Messages)
    # By the kind of the line: the reason of a task takes precedence over what was printed.
    _reasons: dict[str, str] = field(default_factory=dict)

    def add(self, line: Json, now: float = 0.0) -> None:
        """Add a line of the run, received at ``now``."""
        kind = line.get("kind")
        if kind == "task":
            self.progress.begin(str(line["task"]), str(line["role"]), now)
        elif kind == "plan":
            self.progress.planned = int(line["tasks"])
        elif kind in ("ok", "failed"):
            self.changes.add(line)
            self.pending.add(line)
            self.messages.add(line)
            self.nodes = line.get("nodes", self.nodes)
            self.draining = line.get("draining", self.draining)
            if kind == "failed" and not line.get("ignored"):
                message = str(line["message"]).strip()
                self._reasons[kind] = f"{line['task']}: {message}" + ("" if message.endswith((".", "!", "?")) else ".")
        elif kind == "error":
            self._reasons[kind] = str(line["text"]).removeprefix("[ERROR]: ").partition("\n")[0]
        elif kind == "stats":
            self.progress.stop(now)
            self.counts = {name: int(line.get(name) or 0) for name in ("ok", "changed", "failures", "dark", "rescued")}

    @property
    def successful(self) -> bool:
        """True if the playbook ran to its end without a failure."""
        return self.code == 0 and not self.ended

    @property
    def failure(self) -> str:
        """Return why the run failed, as a sentence that names the task; "" if it succeeded or was ended on purpose."""
        if self.successful or self.ended:
            return ""
        reason = self._reasons.get("failed") or self._reasons.get("error")
        if reason:
            return reason
        at = f" in the task {self.progress.task!r}" if self.progress.task else " before its first task"
        how = f"by signal {-self.code}" if self.code is not None and self.code < 0 else f"with status {self.code}"
        return f"The run ended {how}{at}; its output is in the operator's pod, and the run is repeated."
