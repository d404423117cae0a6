# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run came to, made of the lines that it reported. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass
class Progress:
    """In which of its tasks a run is, and how long each took."""

    task: str = ""
    role: str = ""
    begun: int = 0
    planned: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    _since: float | None = None

    def begin(self, task: str, role: str, now: float) -> None:
        """Another task begins."""
        self.stop(now)
        self.task, self.role = task, role
        self.begun += 1

    def stop(self, now: float) -> None:
        """The task has ended."""
        if self._since is not None and self.task:
            name = f"{self.role} : {self.task}" if self.role else self.task
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now

    @property
    def doing(self) -> str:
        """Return the task, and which of how many that is, where that is known; a run with much to do has some more."""
        if not self.task:
            return ""
        total = f" of {self.planned}" if self.begun <= self.planned else ""
        return f"{self.task} (task {self.begun}{total})"


@dataclass
class Changes:
    """What a run has changed: how many tasks did, which, which objects, and what others had added to these (field, object and manager)."""

    count: int = 0
    tasks: list[str] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def add(self, line: Json) -> None:
        """Take the line of one task."""
        if line.get("changed"):
            self.count += 1
            self.tasks.append(str(line["task"]))
        self.objects += [f"{row['kind']} {row['name']} {row['result']}" for row in line.get("objects", ())]
        self.foreign += line.get("foreign", ())


@dataclass
class Pending:
    """What a later run goes on with, as the last pass told it: the nodes whose jobs are waited for, those that go and those that get another pod; whether a
    later run has to go on, whatever Kubernetes tells; and how far a roll-out is, a line for each set that has something left."""

    waiting: list[str] = field(default_factory=list)
    left: bool = False
    lines: list[str] = field(default_factory=list)

    def add(self, line: Json) -> None:
        """Take the line of one task."""
        self.waiting = line.get("waiting", self.waiting)
        self.left = line.get("left", self.left)
        self.lines = line.get("lines", self.lines)


@dataclass
class Outcome:
    """Grows line by line while the run goes; ``code`` is its exit status, None until then, and ``ended`` says who ended it before its time; ``kept`` is
    the folder of its output, ``counts`` are Ansible's own of the tasks of all hosts (``dark``: unreachable)."""

    code: int | None = None
    ended: str = ""
    kept: str = ""
    seconds: float = 0.0
    progress: Progress = field(default_factory=Progress)
    changes: Changes = field(default_factory=Changes)
    pending: Pending = field(default_factory=Pending)
    counts: dict[str, int] = field(default_factory=dict)
    nodes: Json | None = None
    leaving: Json = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    # By the kind of the line that told it: a task's goes before what was printed.
    _reasons: dict[str, str] = field(default_factory=dict)

    def add(self, line: Json, now: float = 0.0) -> None:
        """Take one line of the run at the time ``now``."""
        kind = line.get("kind")
        if kind == "task":
            self.progress.begin(str(line["task"]), str(line["role"]), now)
        elif kind == "plan":
            self.progress.planned = int(line["tasks"])
        elif kind in ("ok", "failed"):
            self.changes.add(line)
            self.pending.add(line)
            self.warnings += line.get("warnings", ())
            self.nodes = line.get("nodes", self.nodes)
            self.leaving = line.get("leaving", self.leaving)
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
        """True when the playbook ran to its end."""
        return self.code == 0 and not self.ended

    @property
    def failure(self) -> str:
        """Return why it did not, as a sentence that names the task; "" when it did, and when it was ended on purpose."""
        if self.successful or self.ended:
            return ""
        reason = self._reasons.get("failed") or self._reasons.get("error")
        if reason:
            return reason
        at = f" in the task {self.progress.task!r}" if self.progress.task else " before its first task"
        how = f"by signal {-self.code}" if self.code is not None and self.code < 0 else f"with status {self.code}"
        return f"The run ended {how}{at}; its output is kept in the operator's pod, and the run is repeated."
