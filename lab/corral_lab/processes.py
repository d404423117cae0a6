# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's daemons as processes: started apart from the terminal, known by process id and start time, never mistaken for another's."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from .state import LabError, Paths, boot_id, write_file

# Every daemon carries this variable, and what it starts inherits it (containerd's shims do), so that a process
# whose record was lost is still known as the lab's. Containers do not get it; they are known by their cgroup.
MARK = "CORRAL_LAB_DAEMON"
LOG_LIMIT = 20 * 1024 * 1024


class NotWell(LabError):
    """A part lives and does not do its work."""


@dataclass(frozen=True)
class Part:
    """One daemon. `ports` are (address, port) that it will listen on; `health` returns why it is not well, or None."""

    name: str
    command: tuple[str, ...]
    health: Callable[[], str | None]
    ports: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Identity:
    """A process that cannot be confused with a later one of the same number: its start time in clock ticks since boot, and the boot."""

    pid: int
    start: int
    boot: str


def parse_stat(text: str) -> tuple[str, int]:
    """State letter and start time (clock ticks since boot) from /proc/PID/stat; the name in parentheses may hold anything (proc(5))."""
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def identify(pid: int) -> Identity | None:
    """The process of this number if it lives; a zombie does not."""
    try:
        state, start = parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except (OSError, IndexError, ValueError):
        return None
    return None if state in "ZX" else Identity(pid, start, boot_id())


def alive(identity: Identity | None) -> bool:
    return identity is not None and identify(identity.pid) == identity


def recorded(paths: Paths, name: str) -> Identity | None:
    """The process that was last started for a part, living or not."""
    try:
        document = json.loads((paths.run / f"{name}.json").read_text())
        return Identity(int(document["pid"]), int(document["start"]), str(document["boot"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def running(paths: Paths, name: str) -> Identity | None:
    """The part's living process, or None."""
    identity = recorded(paths, name)
    return identity if alive(identity) else None


def daemon_environment(paths: Paths, outside: dict[str, str]) -> dict[str, str]:
    """A clean environment: certificate bundles, proxies and Go settings of the user's shell must not leak into the daemons."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {"PATH": f"{paths.bin}:{path}", "HOME": "/root", "LANG": "C.UTF-8", MARK: str(paths.root)}
    if "TZ" in outside:
        environment["TZ"] = outside["TZ"]
    return environment


def port_holder(port: int) -> str:
    """Who listens on a TCP port, as ss tells it, for an error sentence."""
    ss = shutil.which("ss")
    if ss:
        done = subprocess.run([ss, "-Hltnp", f"sport = :{port}"], capture_output=True, text=True, check=False)
        if "users:" in done.stdout:
            return done.stdout.split("users:", 1)[1].strip()
    return "another program"


def check_ports(parts: Iterable[Part]) -> None:
    """Raises LabError, naming the holder, when a port that a part is about to use is taken."""
    for part in parts:
        for address, port in part.ports:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((address, port))
                except OSError as error:
                    raise LabError(
                        f"{part.name} cannot listen on {address}:{port} ({error.strerror}): {port_holder(port)} has that port; stop it and try again."
                    ) from error


def start(paths: Paths, part: Part) -> Identity:
    """Start a daemon in a session of its own, its output appended to log/NAME.log, and record who it is."""
    log = paths.log / f"{part.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))
    with log.open("ab") as output:
        output.write(f"==== {time.strftime('%Y-%m-%dT%H:%M:%S%z')} {' '.join(part.command)}\n".encode())
        output.flush()
        try:
            process = subprocess.Popen(
                part.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=paths.root,
                env=daemon_environment(paths, dict(os.environ)),
                start_new_session=True,
            )
        except OSError as error:
            raise LabError(f"{part.name} could not be started ({part.command[0]}: {error.strerror}); run lab/lab up again.") from error
    identity = identify(process.pid)
    # It outlives this command and nobody waits for it; Popen would warn of that.
    process.returncode = 0
    if identity is None:
        raise LabError(f"{part.name} ended at once:\n{log_tail(paths, part.name)}")
    write_file(paths.run / f"{part.name}.json", json.dumps(identity.__dict__ | {"command": part.command}) + "\n")
    return identity


def stop(identities: Iterable[Identity], patience: float = 5.0) -> None:
    """End processes, gently, then for certain. Returns when all are gone; raises LabError for one that even SIGKILL leaves."""
    waiting = [i for i in identities if send(i, signal.SIGTERM)]
    deadline = time.monotonic() + patience
    killed = False
    while waiting:
        time.sleep(0.02)
        waiting = [i for i in waiting if alive(i)]
        if waiting and time.monotonic() > deadline:
            if killed:
                pids = ", ".join(str(i.pid) for i in waiting)
                raise LabError(
                    f"processes {pids} do not end even by SIGKILL; they hang in the kernel (see /proc/PID/stack), a reboot ends them."
                )
            for identity in waiting:
                send(identity, signal.SIGKILL)
            killed, deadline = True, time.monotonic() + 10


def send(identity: Identity, number: signal.Signals) -> bool:
    """Signal exactly this process: a pidfd is opened first and the identity checked after, so a reused number is never hit."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except OSError:
        return False
    try:
        if not alive(identity):
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def marked(paths: Paths) -> list[Identity]:
    """Every living process that carries this lab's mark, recorded or not."""
    wanted = f"{MARK}={paths.root}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                environment = Path(entry.path, "environ").read_bytes()
            except OSError:
                continue
            if wanted in environment.split(b"\0"):
                identity = identify(int(entry.name))
                if identity:
                    found.append(identity)
    return found


def log_tail(paths: Paths, name: str, lines: int = 8) -> str:
    """The last lines of a part's log, indented, for an error sentence."""
    try:
        with (paths.log / f"{name}.log").open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 20000))
            text = file.read().decode(errors="replace")
    except OSError:
        return "  (no log)"
    return "\n".join(f"  {line[:400]}" for line in text.splitlines()[-lines:])


def wait_until(what: str, check: Callable[[], str | None], seconds: float) -> None:
    """Poll until `check` returns None. Raises NotWell with what it said last."""
    deadline = time.monotonic() + seconds
    while True:
        why = check()
        if why is None:
            return
        if time.monotonic() > deadline:
            raise NotWell(f"{what} is not well after {seconds:.0f} s: {why}")
        time.sleep(0.1)
