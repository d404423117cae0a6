# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that found nothing to do, made again without the playbook.

Half of what such a run costs is Ansible's work on tasks whose outcome is known. To Kubernetes and to Slurm a run is nothing but the calls of this
collection's backends, and what each is given follows from the document, the variables, the content of the playbooks, and what the calls before it
returned. So a run of the playbook that has changed nothing writes its calls down. The next look at the same document makes the same calls in the same
order. As long as each returns what it returned then, this is what the playbook would do; the first that returns anything else is as far as that is
known, and the playbook is run, from its beginning, as after a run that was cut off there. A call waits for nothing here: what is waited for is not as
it was, and that is the playbook's business.

A run's process imports this before Ansible has set up how collections are found, so what is used of the collection is imported where it is used.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from corral_operator import report
from corral_operator.known import Known

Json = dict[str, Any]
Backend = Callable[..., Json]

# It makes of the document what every later call is given, and asks nobody.
_COMPUTES = "slurm_cluster_model"
# They only look, and a command in a pod takes its time: asked from the beginning on, beside the others.
_LOOKS = frozenset({"slurm_node_info"})
# How often somebody was asked; and of Slurm's nodes, what jobs do with them. The status has these of each run, and nothing else depends on them.
_PASSING = ("requests", "nodes", "counts")
# The playbook itself looks so often at least: there may be another API server by then, with other defaults.
_GOOD_FOR = 86400.0
# k8s_apply takes 0 for its default.
_AT_ONCE = 0.001


@dataclass(frozen=True)
class Call:
    """A call of a backend, the task that made it, and what came of it."""

    task: str
    role: str
    action: str
    params: Json
    check: bool
    diff: bool
    returned: str

    def line(self, result: Json) -> Json | None:
        """Return what the controller is told of it: what it would be told of the task."""
        data = {"task": self.task, "role": self.role, "resolved_action": self.action, "res": result}
        return report.line({"event": "runner_on_ok", "event_data": data})

    def make(self, backend: Backend) -> Json:
        """Make it again. Raises CorralError."""
        params = {**self.params, "wait_timeout": _AT_ONCE} if "wait_timeout" in self.params else self.params
        return backend(params, check=self.check, diff=self.diff)


class Recorder:
    """Listens to a run of a playbook, and writes its calls down when they are all that there was to it."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._task: Json = {"task": "", "role": ""}
        self._whole = True
        self._known = Known()

    def listen(self, actions: Iterable[Any]) -> None:
        """Have the calls of these actions come through here, in this process, and what they ask."""
        from ansible_collections.corral.slurm.plugins.module_utils._kube.client import remember_by

        remember_by(self._known)
        for action in actions:
            name = action.__module__.rpartition(".")[2]
            if name != _COMPUTES:
                action.backend = staticmethod(functools.partial(self._through, name, action.argument_spec, action.backend))

    def hear(self, line: Json) -> None:
        """Take what the controller is told: in which task the run is, and whether it goes as a run does that finds nothing to do."""
        if line["kind"] == "task":
            self._task = {"task": line["task"], "role": line["role"]}
        elif line["kind"] in ("failed", "error") or line.get("changed"):
            self._whole = False

    def _through(self, name: str, spec: Callable[[], Json], backend: Backend, params: Json, *, check: bool, diff: bool) -> Json:
        if any(option.get("no_log") and params.get(key) for key, option in spec().items()):
            self._whole = False  # nobody's password is written down
        given = _copy(params) if self._whole else None
        result = backend(params, check=check, diff=diff)
        if given is None:
            self._whole = False
        else:
            self._calls.append(Call(**self._task, action=name, params=given, check=check, diff=diff, returned=_lasting(result)))
        return result

    def keep(self, path: Path, word: str, ident: str) -> None:
        """Write the calls of the run ``ident`` down, under the word for everything that they depend on; or nothing, where they are not all of it."""
        if self._whole and self._calls:
            Replay(ident, self._calls, self._known).write(path, word)


@dataclass(frozen=True)
class Replay:
    """The calls of the run ``ident``, to be made again, and what is known of their answers."""

    ident: str
    calls: list[Call]
    known: Known
    # When the playbook was run.
    made: float = field(default_factory=time.time)

    def write(self, path: Path, word: str) -> None:
        """Write it down, for nobody else's eyes."""
        calls = [asdict(call) for call in self.calls]
        content = {"word": word, "ident": self.ident, "made": self.made, "calls": calls, "known": self.known.to_json()}
        unfinished = path.with_suffix(".tmp")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 1))
        unfinished.rename(path)

    def go(self, backends: dict[str, Backend], tell: Callable[[Json | None], None], say: Callable[[str], None]) -> bool:
        """Make the calls. Returns True when each returned what it did before; False says that the playbook has to be run, whatever was found.

        ``tell`` takes what the controller is told, ``say`` lines for people.
        """
        from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
        from ansible_collections.corral.slurm.plugins.module_utils._kube.client import remember_by

        say(
            f"The calls of run {self.ident}, which found nothing to do, are made again without the playbook; "
            "it is run as soon as one of them returns anything else."
        )
        tell({"kind": "plan", "tasks": len(self.calls)})
        early = {number: _Early(call, backends) for number, call in enumerate(self.calls) if call.action in _LOOKS}
        try:
            self._look()
            remember_by(self.known)
            for number, call in enumerate(self.calls):
                tell({"kind": "task", "task": call.task, "role": call.role})
                where = f"{call.role} : {call.task}" if call.role else call.task
                try:
                    result = early[number].result() if number in early else call.make(backends[call.action])
                except CorralError as error:
                    if error.data.get("changed"):
                        tell(call.line({**error.data, "changed": True}))
                    say(f"{where}: {error}")
                    return _ends(tell, say)
                tell(call.line(result))
                if _lasting(result) != call.returned:
                    say(f"{where}: " + ("changed." if result.get("changed") else "not as before."))
                    return _ends(tell, say)
                say(f"{where}: as before. {json.dumps({key: result[key] for key in ('requests', 'writes') if key in result})}")
        finally:
            remember_by(None)
            for one in early.values():
                one.join()  # the playbook forks, and no thread may be there then
        tell({"kind": "replayed", "held": True})
        say(f"Nothing is to be done. {json.dumps({'requests': self.known.requests})} in advance.")
        return True

    def _look(self) -> None:
        """Ask for all that the calls will ask for, where they all ask the same API server; any answer that is missing is asked for in its turn."""
        from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
        from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
        from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client

        try:
            self.known.look(Client(auth.resolve(self.calls[0].params)))
        except CorralError:
            return


def _ends(tell: Callable[[Json | None], None], say: Callable[[str], None]) -> bool:
    tell({"kind": "replayed", "held": False})
    say("The playbook is run.")
    return False


class _Early:
    """A call that is made beside the others."""

    def __init__(self, call: Call, backends: dict[str, Backend]) -> None:
        self._call, self._backend = call, backends[call.action]
        self._result: Json = {}
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._make)
        self._thread.start()

    def _make(self) -> None:
        try:
            self._result = self._call.make(self._backend)
        except BaseException as error:  # noqa: BLE001  it is raised where the call has its turn
            self._error = error

    def join(self) -> None:
        """Wait until it has come back."""
        self._thread.join()

    def result(self) -> Json:
        """Return what it returned, or raise what it raised."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._result


def read(path: Path, word: str) -> Replay | None:
    """Return the calls that were written down under this word; None where there are none."""
    try:
        found = json.loads(zlib.decompress(path.read_bytes()))
        made = float(found["made"])
        if found["word"] != word or not 0 <= time.time() - made <= _GOOD_FOR:
            return None
        return Replay(str(found["ident"]), [Call(**call) for call in found["calls"]], Known(**found["known"]), made)
    except (OSError, ValueError, KeyError, TypeError, zlib.error):
        return None


def _lasting(result: Json) -> str:
    """Return what of a result has to be as it was."""
    return json.dumps({key: value for key, value in result.items() if key not in _PASSING}, sort_keys=True, default=str)


def _copy(params: Json) -> Json | None:
    """Return parameters as they are read back; None for those that would not be the same."""
    try:
        copy: Json = json.loads(json.dumps(params))
    except (TypeError, ValueError):
        return None
    return copy if copy == params else None
