# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Runs commands and functions side by side, each in a process group of its own that is killed when its time is over."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral_health.checks import Output

# What one of them may print; more is no output of a check.
MOST_BYTES = 8 << 20
# How many at once: they are short, and a Kubernetes node has other things to do.
AT_ONCE = 6
_NOT_FOUND, _NOT_STARTED = 127, 126


@dataclass(frozen=True)
class Work:
    """A command, or a function whose result is JSON; and the seconds for it."""

    timeout: float
    command: tuple[str, ...] = ()
    function: Callable[[], Any] | None = None


@dataclass
class _Running:
    name: str
    pid: int
    pidfd: int
    deadline: float
    texts: dict[int, bytearray] = field(default_factory=dict)  # of stdout and stderr, by descriptor
    size: int = 0


@dataclass(frozen=True)
class Stuck:
    """A process that was killed and did not end, as one that hangs in a driver."""

    pid: int
    started: str

    def alive(self) -> bool:
        """Whether it is there still."""
        return _started(self.pid) == self.started


def run(
    work: Mapping[str, Work], *, stuck: Mapping[str, Stuck] | None = None, until: float = float("inf")
) -> Iterator[tuple[str, Output, Stuck | None]]:
    """Run all, and yield each one's output as soon as it is there; a function's is its JSON, as stdout.

    What is in ``stuck`` and there still is not started again: each would hang beside it. At ``until``, by the monotonic clock, all is over.
    """
    waiting = dict(work)
    for name, hangs in (stuck or {}).items():
        if name in waiting and hangs.alive():
            del waiting[name]
            yield name, Output(problem=f"it hangs since an earlier run (process {hangs.pid})"), hangs
    running: dict[int, _Running] = {}
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or running:
                while waiting and len(running) < AT_ONCE:
                    name = next(iter(waiting))
                    if time.monotonic() >= until:
                        del waiting[name]
                        yield name, Output(problem="there was no time left for it"), None
                        continue
                    started = _start(name, waiting.pop(name), until)
                    running[started.pidfd] = started
                    for descriptor in (started.pidfd, *started.texts):
                        selector.register(descriptor, selectors.EVENT_READ, started.pidfd)
                if not running:
                    continue
                nearest = min(one.deadline for one in running.values())
                ended = set()
                for key, _events in selector.select(max(0.0, nearest - time.monotonic())):
                    one = running[key.data]
                    if key.fd == one.pidfd:
                        ended.add(key.data)
                    elif not _read(one, key.fd):
                        selector.unregister(key.fd)
                now = time.monotonic()
                for pidfd in list(running):
                    one = running[pidfd]
                    late = now >= one.deadline and pidfd not in ended
                    if pidfd not in ended and not late and one.size <= MOST_BYTES:
                        continue
                    for descriptor in (pidfd, *one.texts):
                        with contextlib.suppress(KeyError):
                            selector.unregister(descriptor)
                    del running[pidfd]
                    yield (one.name, *_end(one, work[one.name].timeout, late=late))
        finally:
            for one in running.values():
                _end(one, 0, late=True)


def _start(name: str, work: Work, until: float) -> _Running:
    # A first read end of each pipe is this process's; the write ends are the child's alone.
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
    pid = os.fork()
    if pid == 0:
        _child(work, pipes[0][1], pipes[1][1])
    for read, write in pipes:
        os.close(write)
        os.set_blocking(read, False)
    return _Running(name, pid, os.pidfd_open(pid), min(until, time.monotonic() + work.timeout), {read: bytearray() for read, _ in pipes})


def _child(work: Work, out: int, err: int) -> None:
    """Become the work; never returns."""
    status = _NOT_STARTED
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        # A function's process, when it hangs, would keep what this one has open, such as the lock of the run.
        os.closerange(3, 1 << 16)
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        if work.function:
            text = json.dumps(work.function())
            with os.fdopen(1, "w", encoding="utf-8", closefd=False) as stdout:
                stdout.write(text)
            status = 0
        else:
            os.execvp(work.command[0], list(work.command))
    except FileNotFoundError as error:
        status = _NOT_FOUND
        _say(f"{error.filename or (work.command or ('',))[0]} is not there")
    except BaseException as error:  # noqa: BLE001 - this process ends here, and its status and last line are all that is heard of it
        _say(f"{type(error).__name__}: {error}")
    finally:
        os._exit(status)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="replace"))


def _read(one: _Running, descriptor: int) -> bool:
    """Take what is there; False at the end."""
    try:
        text = os.read(descriptor, 65536)
    except BlockingIOError:
        return True
    except OSError:
        return False
    one.texts[descriptor] += text
    one.size += len(text)
    return bool(text)


def _end(one: _Running, timeout: float, *, late: bool) -> tuple[Output, Stuck | None]:
    """Read the rest, end what is left of the group, and return the output."""
    for descriptor in one.texts:
        before = -1
        while one.size <= MOST_BYTES and before != one.size:
            before = one.size
            _read(one, descriptor)
    for kill in (os.killpg, os.kill):  # the process alone, where it has no group yet
        with contextlib.suppress(OSError):
            kill(one.pid, signal.SIGKILL)
    stdout, stderr = (bytes(text).decode("utf-8", errors="replace") for text in one.texts.values())
    for descriptor in (one.pidfd, *one.texts):
        os.close(descriptor)
    status, hangs = _reap(one.pid)
    if late:
        return Output(problem=f"it took longer than {timeout:g} s"), hangs
    if one.size > MOST_BYTES:
        return Output(problem=f"it printed more than {MOST_BYTES >> 20} MiB"), hangs
    if status < 0:
        return Output(problem=f"it was ended by signal {-status}"), hangs
    if status in (_NOT_FOUND, _NOT_STARTED) and stderr.endswith("is not there"):
        return Output(problem=stderr), hangs
    return Output(status, stdout, stderr), hangs


def _reap(pid: int) -> tuple[int, Stuck | None]:
    """Wait for a killed process, but not for ever: one that hangs in the kernel ends when that lets it."""
    until = time.monotonic() + 0.5
    while True:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0, None
        if done:
            return os.waitstatus_to_exitcode(status), None
        if time.monotonic() >= until:
            return 0, Stuck(pid, _started(pid))
        time.sleep(0.005)


def _started(pid: int) -> str:
    """Return what tells this process from another of its number; "" when there is none, or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
