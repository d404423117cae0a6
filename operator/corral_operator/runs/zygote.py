# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The zygote: a process with one thread that has imported Ansible and the collection, and forks a child for each run.

A fork shares all imported modules, so a run starts within milliseconds, and yet in a process of its own: it can be killed, leak memory or crash.
The zygote is ready when the site playbook has been warmed up; the others are warmed up while it is idle. Requests come by a socket from the
controller, each with the descriptor that the run reports to; when that socket closes, the zygote and all runs end.
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

# After this time without a request the zygote is idle: the first runs are requested earlier.
_IDLE = 0.2

Started = tuple["subprocess.Popen[bytes]", socket.socket]
"""A zygote's process, and the controller's end of the socket."""


def start(fence_path: str = "") -> Started:
    """Start a zygote. ``fence_path`` is the path of the fence of its runs, if there is one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with theirs:
        number = theirs.fileno()
        command = [sys.executable, "-m", "corral_operator.runs.zygote", str(number)]
        process = subprocess.Popen(command, pass_fds=[number], stdin=subprocess.DEVNULL, env=environment(fence_path))
    return process, ours


def environment(fence_path: str = "") -> dict[str, str]:
    """Return the environment of child processes, which import this same package and may write while the fence is open."""
    path = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), fence.VARIABLE: fence_path}


def main() -> int:
    """Serve the socket whose file descriptor is the only argument."""
    die_with_parent()
    control = socket.socket(fileno=int(sys.argv[1]))
    os.environ.update(ENVIRONMENT)
    began = time.monotonic()
    later = _warm_up()
    _send(control, {"kind": "ready", "seconds": round(time.monotonic() - began, 3)})
    return Zygote(control, later).serve()


def _warm_up() -> Iterable[str]:
    """Import what a run needs, and fill the caches. Returns the playbooks that are still to be warmed up."""
    import ansible_runner.runner

    os.environ["ANSIBLE_STDOUT_CALLBACK"] = "awx_display"
    os.environ["ANSIBLE_CALLBACK_PLUGINS"] = str(Path(ansible_runner.__file__).parent / "display_callback" / "callback")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["AWX_ISOLATED_DATA_DIR"] = scratch  # read by ansible-runner's callback plugin; each run sets its own
        # Not earlier: Ansible reads its settings when it is imported.
        from corral_operator.runs import preload

        with _silenced():
            preload.load()
    # That directory is gone now; discard what later warm-ups would write into it.
    sys.modules["ansible.plugins.callback.awx_display"].event_context.cache = _DiscardingCache()
    _freeze_heap()
    return preload.PLAYBOOKS[1:]


def _warm_up_playbook(playbook: str) -> None:
    from corral_operator.runs import preload

    with _silenced():
        preload.warm_up(playbook)
    _freeze_heap()


class _DiscardingCache:
    """Discards the events of ansible-runner's callback plugin during a warm-up."""

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Discard the event."""


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Discard the output of a warm-up."""
    with Path(os.devnull).open("w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
        yield


def _freeze_heap() -> None:
    """Exclude all existing objects from garbage collection, which would copy their pages in each fork."""
    gc.collect()
    gc.freeze()


class Zygote:
    """Forks and reaps runs, and warms up the remaining playbooks while idle."""

    def __init__(self, control: socket.socket, later: Iterable[str]) -> None:
        self._control = control
        self._runs: dict[int, str] = {}
        self._later = list(later)
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> int:
        """Fork for each request until the controller ends."""
        signal.signal(signal.SIGCHLD, lambda *_dummy: None)
        # Only the controller ends runs.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.set_wakeup_fd(self._waker)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, dummy in selector.select(_IDLE if self._later else None)}
                if not ready:
                    _warm_up_playbook(self._later.pop(0))
                if self._woken in ready:
                    os.read(self._woken, 4096)
                    self._reap()
                if self._control in ready and not self._receive():
                    return 0

    def _receive(self) -> bool:
        """Start the run of one message; False if the controller has closed the socket."""
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
