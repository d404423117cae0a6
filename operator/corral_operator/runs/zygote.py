# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The zygote: a process with one thread that has imported Ansible and the collection, and forks a child for each run.

A fork shares all that is imported, so a run begins some milliseconds after it was asked for, and yet is a process of its own: it can be
killed, it can leak, it can crash. It is ready when it has rehearsed the playbook that makes clusters; the others it rehearses when nothing is
asked of it. Requests come by a socket from the controller, each with the descriptor that the run reports to; when that socket closes,
everything here ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from corral_operator.api import fence
from corral_operator.runs import playbook
from corral_operator.runs.playbook import ENVIRONMENT
from corral_operator.runs.processes import die_with_parent

# What asks for runs at the start asks within this.
_IDLE = 0.2

Started = tuple["subprocess.Popen[bytes]", socket.socket]
"""A zygote's process, and this end of the socket to it."""


def start(fence_path: str = "") -> Started:
    """Start one. ``fence_path`` is that of the fence that its runs pass; none: they pass none."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with theirs:
        number = theirs.fileno()
        command = [sys.executable, "-m", "corral_operator.runs.zygote", str(number)]
        process = subprocess.Popen(command, pass_fds=[number], stdin=subprocess.DEVNULL, env=environment(fence_path))
    return process, ours


def environment(fence_path: str = "") -> dict[str, str]:
    """Return the environment of processes that run this same package, wherever it was imported from, and that write while a fence is open."""
    path = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), fence.VARIABLE: fence_path}


def main() -> int:
    """Serve the socket whose descriptor is the only argument."""
    die_with_parent()
    control = socket.socket(fileno=int(sys.argv[1]))
    os.environ.update(ENVIRONMENT)
    began = time.monotonic()
    later = _warm_up()
    _send(control, {"kind": "ready", "seconds": round(time.monotonic() - began, 3)})
    return Zygote(control, later).serve()


def _warm_up() -> Iterable[str]:
    """Import what a run needs, and have it do once what is remembered in the process. Returns the playbooks that are still to be rehearsed."""
    import ansible_runner.runner

    os.environ["ANSIBLE_STDOUT_CALLBACK"] = "awx_display"
    os.environ["ANSIBLE_CALLBACK_PLUGINS"] = str(Path(ansible_runner.__file__).parent / "display_callback" / "callback")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["AWX_ISOLATED_DATA_DIR"] = scratch  # read by ansible-runner's callback plugin; each run sets its own there
        # Only now: Ansible reads its settings when it is imported.
        from corral_operator.runs import preload

        with _in_silence():
            preload.make()
    # That folder is gone now, and what rehearsals write into it would be thrown away.
    sys.modules["ansible.plugins.callback.awx_display"].event_context.cache = _Nowhere()
    _keep()
    return preload.PLAYBOOKS[1:]


def _rehearse(playbook: str) -> None:
    from corral_operator.runs import preload

    with _in_silence():
        preload.rehearse(playbook)
    _keep()


class _Nowhere:
    """Where ansible-runner's callback plugin puts what it says of a rehearsal."""

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Keep nothing."""


@contextlib.contextmanager
def _in_silence() -> Iterator[None]:
    """What is printed of a rehearsal is nobody's business."""
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


def _keep() -> None:
    """Have no run's process look at what is there for good: a page that is looked at is copied."""
    gc.collect()
    gc.freeze()


class Zygote:
    """Forks and reaps, and rehearses what is left of the playbooks when it has nothing else to do."""

    def __init__(self, control: socket.socket, later: Iterable[str]) -> None:
        self._control = control
        self._runs: dict[int, str] = {}
        self._later = list(later)
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> int:
        """Fork for each request until the controller is gone."""
        signal.signal(signal.SIGCHLD, lambda *_dummy: None)
        # The controller decides when runs end.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.set_wakeup_fd(self._waker)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, dummy in selector.select(_IDLE if self._later else None)}
                if not ready:
                    _rehearse(self._later.pop(0))
                if self._woken in ready:
                    os.read(self._woken, 4096)
                    self._reap()
                if self._control in ready and not self._receive():
                    return 0

    def _receive(self) -> bool:
        """Start what one message asks for; False when there is nobody to ask any more."""
        data, descriptors, *_dummy = socket.recv_fds(self._control, 65536, 1)
        if not data:
            return False
        self._start(data.decode(), descriptors[0])
        return True

    def _start(self, text: str, descriptor: int) -> None:
        request = playbook.Request.from_json(text)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._control.close()
            playbook.warm(request, descriptor)
        os.close(descriptor)
        self._runs[pid] = str(request.artifact_dir)
        _send(self._control, {"kind": "started", "artifact_dir": self._runs[pid], "pid": pid})

    def _reap(self) -> None:
        for pid in list(self._runs):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                _send(self._control, {"kind": "ended", "artifact_dir": self._runs.pop(pid), "code": os.waitstatus_to_exitcode(status)})


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    control.send(json.dumps(message).encode())


if __name__ == "__main__":
    sys.exit(main())
