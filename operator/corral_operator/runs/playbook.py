# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of a playbook, in a process of its own: a fork of the zygote (warm), or a new Python process (cold).

Both write what ``ansible-runner`` writes: ``artifacts/<ident>/job_events/*.json``, ``stdout``, ``stderr``, ``rc``, ``status``. The warm one uses
ansible-runner's callback plugin for the events, and saves the start of ``ansible-playbook`` and the temporary files of the events.
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

# Read by Ansible when it is imported. Variables that an administrator has set take precedence.
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
    """What to run. The document and the variables are in files, so that neither shows in a process list."""

    ident: str
    playbook: str
    private_data_dir: str
    artifacts: str

    @property
    def extravars(self) -> Path:
        """Return the path of the run's variables, where ansible-runner expects them too."""
        return Path(self.private_data_dir) / "env" / "extravars"

    @property
    def artifact_dir(self) -> Path:
        """Return the directory of this run's artifacts, which is unique."""
        return Path(self.artifacts) / self.ident

    def to_json(self) -> str:
        """Return the request as a line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        """Parse the result of ``to_json``."""
        return cls(**json.loads(text))


class Reporter:
    """Writes events as lines to a file descriptor. A closed pipe does not fail the run; the controller's end kills it."""

    def __init__(self, descriptor: int) -> None:
        self._file: TextIO | None = os.fdopen(descriptor, "w", buffering=1)

    def __call__(self, event: dict[str, Any]) -> bool:
        """Report an event; returns True, to have it written to disk without its large parts."""
        self.write(report.line(event))
        data = event.get("event_data") or {}
        if data.get("res"):
            data["res"] = report.without_bulk(data)
        return True

    def write(self, line: dict[str, Any] | None) -> None:
        """Write a line."""
        if line is not None and self._file is not None:
            try:
                self._file.write(json.dumps(line) + "\n")
            except OSError:
                self._file = None


class Events:
    """Joins the data of an event from ansible-runner's callback plugin with its printed output, and stores it as ansible-runner's ``Runner`` does.

    ``Runner`` joins them by a file for each event; here both halves are in the same process.
    """

    def __init__(self, request: Request, handler: Callable[[dict[str, Any]], bool], encoder: type[json.JSONEncoder]) -> None:
        self._folder = request.artifact_dir / "job_events"
        self._ident = request.ident
        self._handler = handler
        self._encoder = encoder
        self._pending: dict[str, str] = {}

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Store the plugin's data, as text, because the plugin changes it later."""
        data = value.get("event_data") or {}
        if data.get("res") and report.computes(data):
            value = {**value, "event_data": {**data, "res": report.without_bulk(data)}}
        self._pending[key.removeprefix(":1:ev-")] = json.dumps(value, cls=self._encoder)

    def __call__(self, event: dict[str, Any]) -> None:
        """Join the printed output."""
        if "uuid" not in event:
            return
        event.update(runner_ident=self._ident, **json.loads(self._pending.pop(event["uuid"], "{}")))
        event.setdefault("created", datetime.datetime.now(datetime.UTC).isoformat())
        if self._handler(event):
            path = self._folder / f"{event['counter']}-{event['uuid']}.json"
            unfinished = path.with_suffix(".json.tmp")
            unfinished.write_text(json.dumps(event))
            unfinished.rename(path)


def warm(request: Request, descriptor: int) -> NoReturn:
    """Run the playbook in this process, which was forked for it, and exit."""
    # A SIGINT of the controller before these lines kills the process, which is right, because nothing has started.
    os.setsid()
    die_with_parent()
    os.register_at_fork(after_in_child=die_with_parent)
    limits.bound_run()
    random.seed()
    gc.disable()  # not worth it in a short process, and a collection copies every page that it touches
    code = 1
    try:
        code = _warm(request, descriptor)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException:  # noqa: BLE001  the child must never return to the zygote's code
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
        os.dup2(err.fileno(), 2)  # for messages of a crash of Python itself
        sys.stdout = OutputEventFilter(out, events, suppress_ansible_output=True)
        sys.stderr = OutputEventFilter(err, events, suppress_ansible_output=True)
        code = INTERRUPTED

        def exit_now(*_dummy: object) -> NoReturn:
            for file in (out, err):
                with contextlib.suppress(RuntimeError):  # it is being written to
                    file.flush()
            _finish(directory, "canceled", INTERRUPTED)
            os._exit(INTERRUPTED)

        in_process.set_exit_handler(exit_now)
        try:
            reporter.write(preload.plan(request.playbook))
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
    """Run the playbook by ``ansible_runner.run`` in this process, which was started for it. Returns the exit status."""
    import ansible_runner

    ended: list[bool] = []

    def end(*_dummy: object) -> None:
        # ansible-playbook forwards it to its workers. ansible-runner itself sends only SIGKILL, and not to the workers.
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
