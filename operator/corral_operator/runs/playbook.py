# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of a playbook, in a process of its own that does nothing else: a fork of the zygote (warm), or a fresh Python (cold).

Both leave what ``ansible-runner`` leaves: ``artifacts/<ident>/job_events/*.json``, ``stdout``, ``stderr``, ``rc``, ``status``. The warm one has
ansible-runner's own callback plugin make the events, and spares the start of ``ansible-playbook`` and the files by which the events' two halves meet.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO

from corral_operator import limits
from corral_operator.runs import report
from corral_operator.runs.processes import INTERRUPTED, descendants, die_with_parent

# Read by Ansible when it is imported. What an administrator has set counts.
ENVIRONMENT = {
    name: os.environ.get(name, value)
    for name, value in {
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
        "ANSIBLE_GATHERING": "explicit",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0",
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_RETRY_FILES_ENABLED": "0",
    }.items()
}


@dataclass(frozen=True)
class Request:
    """What to run. The document and the variables are files: neither is ever seen in a process list."""

    ident: str
    playbook: str
    private_data_dir: str
    artifacts: str

    @property
    def extravars(self) -> Path:
        """Return where the run's variables lie; ansible-runner looks for them there too."""
        return Path(self.private_data_dir) / "env" / "extravars"

    @property
    def artifact_dir(self) -> Path:
        """Return where this run's artifacts go; no two runs of an operator have the same."""
        return Path(self.artifacts) / self.ident

    def to_json(self) -> str:
        """Return the request as a line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        """Read what ``to_json`` wrote."""
        return cls(**json.loads(text))


class Reporter:
    """Passes events on as lines to a file descriptor. A controller that no longer listens does not stop the run: its end does that."""

    def __init__(self, descriptor: int) -> None:
        self._file: TextIO | None = os.fdopen(descriptor, "w", buffering=1)

    def __call__(self, event: dict[str, Any]) -> bool:
        """Tell of one event; True: have it written to disk, without what is large in it."""
        self.tell(report.line(event))
        data = event.get("event_data") or {}
        if data.get("res"):
            data["res"] = report.without_bulk(data)
        return True

    def tell(self, line: dict[str, Any] | None) -> None:
        """Tell of something else."""
        if line is not None and self._file is not None:
            try:
                self._file.write(json.dumps(line) + "\n")
            except OSError:
                self._file = None


class Events:
    """Joins what ansible-runner's callback plugin says of an event with what was printed of it, and keeps it as ansible-runner's ``Runner`` does.

    That has the two halves meet in a file for each event, written and read by the same process here.
    """

    def __init__(self, request: Request, handler: Callable[[dict[str, Any]], bool], encoder: type[json.JSONEncoder]) -> None:
        self._folder = request.artifact_dir / "job_events"
        self._ident = request.ident
        self._handler = handler
        self._encoder = encoder
        self._said: dict[str, str] = {}

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Take the plugin's half, as text: the plugin goes on to change it."""
        data = value.get("event_data") or {}
        if data.get("res") and report.computes(data):
            value = {**value, "event_data": {**data, "res": report.without_bulk(data)}}
        self._said[key.removeprefix(":1:ev-")] = json.dumps(value, cls=self._encoder)

    def __call__(self, event: dict[str, Any]) -> None:
        """Take the printed half."""
        if "uuid" not in event:
            return
        event.update(runner_ident=self._ident, **json.loads(self._said.pop(event["uuid"], "{}")))
        event.setdefault("created", datetime.datetime.now(datetime.UTC).isoformat())
        if self._handler(event):
            path = self._folder / f"{event['counter']}-{event['uuid']}.json"
            unfinished = path.with_suffix(".json.tmp")
            unfinished.write_text(json.dumps(event))
            unfinished.rename(path)


def warm(request: Request, descriptor: int) -> NoReturn:
    """Run the playbook in this process, which was forked for it, and leave it."""
    # The controller may have asked for the end before these lines: then SIGINT kills, which is right, for nothing has begun.
    os.setsid()
    die_with_parent()
    os.register_at_fork(after_in_child=die_with_parent)
    limits.bound_run()
    random.seed()
    gc.disable()  # the process ends before it would be worth it, and a collection copies every page that it looks at
    code = 1
    try:
        code = _warm(request, descriptor)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException:  # noqa: BLE001  nothing may return into the zygote's own code
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _warm(request: Request, descriptor: int) -> int:
    # Imported by the zygote before it forked.
    from ansible_runner.utils import OutputEventFilter

    from corral_operator.runs import in_process, preload

    os.umask(0o077)
    directory = request.artifact_dir
    (directory / "job_events").mkdir(mode=0o700, parents=True, exist_ok=True)
    command = ["ansible-playbook", "-i", "localhost,", "-e", f"@{request.extravars}", request.playbook]
    (directory / "command").write_text(json.dumps({"command": command, "cwd": request.private_data_dir, "env": {}}))
    os.chdir(request.private_data_dir)
    plugin = sys.modules["ansible.plugins.callback.awx_display"]
    reporter = Reporter(descriptor)
    events = plugin.event_context.cache = Events(request, reporter, plugin.AnsibleJSONEncoderLocal)
    with (directory / "stdout").open("w") as out, (directory / "stderr").open("w") as err:
        os.dup2(err.fileno(), 2)  # what a crash of Python itself says
        sys.stdout = OutputEventFilter(out, events, suppress_ansible_output=True)
        sys.stderr = OutputEventFilter(err, events, suppress_ansible_output=True)
        code = INTERRUPTED

        def leave(*_dummy: object) -> NoReturn:
            for file in (out, err):
                with contextlib.suppress(RuntimeError):  # it is being written to just now
                    file.flush()
            _finish(directory, "canceled", INTERRUPTED)
            os._exit(INTERRUPTED)

        in_process.leave_by(leave)
        try:
            reporter.tell(preload.plan(request.playbook))
            code = preload.run(request.playbook, request.extravars)
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.close()
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
            _finish(directory, "successful" if code == 0 else "canceled" if code == INTERRUPTED else "failed", code)
    return code


def _finish(directory: Path, status: str, code: int) -> None:
    (directory / "status").write_text(status)
    (directory / "rc").write_text(str(code))


def cold(request: Request, descriptor: int) -> int:
    """Run the playbook by ``ansible_runner.run``, in a process of its own that was started for it. Returns the exit status."""
    import ansible_runner

    ended: list[bool] = []

    def end(*_dummy: object) -> None:
        # To ansible-playbook, which passes it on to its workers: ansible-runner itself knows only SIGKILL, and not of the workers.
        ended.append(True)
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    os.register_at_fork(after_in_child=die_with_parent)
    limits.bound_run()
    plugins = (os.environ.get("ANSIBLE_CALLBACK_PLUGINS"), str(Path(__file__).parent / "callback"))
    done = ansible_runner.run(
        private_data_dir=request.private_data_dir,
        artifact_dir=request.artifacts,
        ident=request.ident,
        playbook=request.playbook,
        inventory="localhost,",
        envvars={**ENVIRONMENT, "ANSIBLE_CALLBACK_PLUGINS": os.pathsep.join(filter(None, plugins))},
        settings={"pexpect_timeout": 0.2, "suppress_ansible_output": True},
        event_handler=Reporter(descriptor),
        quiet=True,
    )
    return INTERRUPTED if ended else int(done.rc)


if __name__ == "__main__":
    die_with_parent()
    sys.exit(cold(Request.from_json(sys.argv[1]), int(sys.argv[2])))
