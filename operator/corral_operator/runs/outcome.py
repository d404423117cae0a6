# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run came to, made of the lines that it reported. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass
class Outcome:
    """Grows line by line while the run goes; ``code`` is its exit status, None until then, and ``ended`` says who ended it before its time; ``kept`` is
    the folder of its output, ``counts`` are Ansible's own of the tasks of all hosts (``dark``: unreachable)."""

    code: int | None = None
    ended: str = ""
    kept: str = ""
    seconds: float = 0.0
    task: str = ""
    role: str = ""
    begun: int = 0
    planned: int = 0
    changed: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    nodes: Json | None = None
    leaving: Json = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    # What others had added to objects, and was taken back: the field, the object and the manager.
    foreign: list[str] = field(default_factory=list)
    changed_tasks: list[str] = field(default_factory=list)
    tasks: dict[str, float] = field(default_factory=dict)
    _waiting: dict[str, list[str]] = field(default_factory=dict)
    _left: dict[str, bool] = field(default_factory=dict)
    _lines: dict[str, list[str]] = field(default_factory=dict)
    _failure: Json | None = None
    _error: str = ""
    _began: float | None = None

    def add(self, line: Json, now: float = 0.0) -> None:
        """Take one line of the run at the time ``now``."""
        kind = line.get("kind")
        if kind == "task":
            self._time(now)
            self.task, self.role = str(line["task"]), str(line["role"])
            self.begun += 1
        elif kind == "plan":
            self.planned = int(line["tasks"])
        elif kind in ("ok", "failed"):
            self.changed += bool(line.get("changed"))
            if line.get("changed"):
                self.changed_tasks.append(str(line["task"]))
            self.warnings += line.get("warnings", ())
            self.changes += [f"{row['kind']} {row['name']} {row['result']}" for row in line.get("objects", ())]
            self.foreign += line.get("foreign", ())
            self.nodes = line.get("nodes", self.nodes)
            self.leaving = line.get("leaving", self.leaving)
            self._waiting |= line.get("waiting", {})
            self._left |= line.get("left", {})
            self._lines |= line.get("lines", {})
            if kind == "failed" and not line.get("ignored"):
                self._failure = line
        elif kind == "error":
            self._error = str(line["text"])
        elif kind == "stats":
            self._time(now)
            self.counts = {name: int(line.get(name) or 0) for name in ("ok", "changed", "failures", "dark", "rescued")}

    def _time(self, now: float) -> None:
        if self._began is not None and self.task:
            name = f"{self.role} : {self.task}" if self.role else self.task
            self.tasks[name] = self.tasks.get(name, 0.0) + now - self._began
        self._began = now

    @property
    def waiting(self) -> list[str]:
        """Return the nodes whose jobs are waited for: those that go, and those that get another pod."""
        return [node for nodes in self._waiting.values() for node in nodes]

    @property
    def left(self) -> bool:
        """True when a later run has to go on, whatever Kubernetes tells."""
        return any(self._left.values())

    @property
    def lines(self) -> list[str]:
        """Return how far a roll-out is, a line for each set that has something left."""
        return [line for lines in self._lines.values() for line in lines]

    @property
    def successful(self) -> bool:
        """True when the playbook ran to its end."""
        return self.code == 0 and not self.ended

    @property
    def failure(self) -> str:
        """Return why it did not, as a sentence that names the task; "" when it did, and when it was ended on purpose."""
        if self.successful or self.ended:
            return ""
        if self._failure is not None:
            where = self._failure["task"]
            message = str(self._failure["message"]).strip()
            return f"{where}: {message}" + ("" if message.endswith((".", "!", "?")) else ".")
        if self._error:
            return self._error.removeprefix("[ERROR]: ").splitlines()[0]
        at = f" in the task {self.task!r}" if self.task else " before its first task"
        how = f"by signal {-self.code}" if self.code is not None and self.code < 0 else f"with status {self.code}"
        return f"The run ended {how}{at}; its output is kept in the operator's pod, and the run is repeated."

    @property
    def doing(self) -> str:
        """Return what the run does at present: its task, and which of how many that is, where that is known; a run with much to do has some more."""
        if not self.task:
            return ""
        total = f" of {self.planned}" if self.begun <= self.planned else ""
        return f"{self.task} (task {self.begun}{total})"
