#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""The first process of slurmctld's container: starts it, logs in one sentence why it ended, and keeps two of them off one state folder.

  run [ARGUMENT…]   slurmctld with these arguments; SIGTERM ends it, SIGHUP has a standby read its configuration again, by a new process
  reread            from outside: SIGHUP for the first process
  reconfigure       from outside: scontrol reconfigure, after what has to be done before it

The gaps that Slurm leaves between two slurmctlds were observed with 24.11.5, and are the reason for this program (docs/ha.md):
- A primary that comes back asks an active backup for control. The backup then waits 29 s for itself, responds to no client meanwhile, and writes its
  state when the primary has read it. So the backup is ended first, and begins again as a standby.
- A primary that was frozen while the backup took over continues with its old state. So a slurmctld is killed when the other has written the heartbeat file.
- A standby knows the configuration that it began with, and scontrol reconfigure does not reach it: it would take over without new nodes.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable

CONFIG = pathlib.Path("/etc/slurm/slurm.conf")
STATE = pathlib.Path("/var/spool/slurmctld")
RESOLV_CONF = pathlib.Path("/etc/resolv.conf")
TERMINATION_LOG = pathlib.Path("/dev/termination-log")
SCRATCH = pathlib.Path("/tmp")
SLURMCTLD = "/usr/sbin/slurmctld"
# Names of pods that do not exist yet must not hold slurmctld up: see resolve_once.c.
PRELOAD = "/usr/local/lib/corral/resolve_once.so"
TICK = 1.0
# Slurm's own default for slurm.conf without the key. Seconds.
DEFAULT_TIMEOUT = 120
PORT = 6817
# A slurmctld that has to end gets this long, of the pod's 30 s.
GRACE = 25.0
# A slurmctld that does not respond within this time is busy.
RESPONSE_TIMEOUT = 4.0
# A heartbeat of this age, in seconds, is that of an active slurmctld of a configuration that is not known here.
LAST_BEAT = 30
# Room below which a volume counts as full: the state of some ten thousand jobs is of that size.
ROOM = 8 << 20
LOOK_AT_ROOM = 30.0
# If the state folder has this file, the ClusterID in ``clustername`` comes from the accounting database.
REGISTERED = "corral-registered"
# While this one does not run slurmctld, one of these files tells the probe so: it is ready all the same, or has no database, and why.
WAITING, REFUSED = "corral-waiting", "corral-refused"
ID_MISMATCH = "CLUSTER ID MISMATCH"
# A slurmctld that has ended because of it is started again this often, in seconds: only slurmctld finds out whether the database is the former one again.
TRY_DATABASE = 30.0
# What slurmctld calls its files when it cannot read them.
FILES = (
    ("job state save file", "job_state"),
    ("job state", "job_state"),
    ("node data checkpoint file", "node_state"),
    ("partition data checkpoint file", "part_state"),
    ("reservation data checkpoint file", "resv_state"),
    ("trigger data checkpoint file", "trigger_state"),
    ("last_conf_lite", "last_config_lite"),
    ("last_config_lite", "last_config_lite"),
    ("CLUSTER NAME MISMATCH", "clustername"),
)
# What a client needs to talk to one slurmctld and no other.
CLIENT_KEYS = frozenset({"clustername", "slurmctldport", "slurmuser", "authtype", "authinfo", "credtype", "plugindir"})
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def say(text: str) -> None:
    """A line of the container's log."""
    print(f"controller.py: {text}", file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True)
class Config:
    """What of slurm.conf counts here. ``hosts`` are names and addresses, the primary first; ``timeout`` is in seconds."""

    hosts: tuple[tuple[str, str], ...]
    port: int
    timeout: int
    client_lines: tuple[str, ...]
    accounting: bool

    def index(self, host: str) -> int | None:
        """The place of a host; None for one that is no controller."""
        names = [name for name, _address in self.hosts]
        return names.index(host) if host in names else None


def parse(text: str) -> Config:
    """Read a slurm.conf as corral writes it: a key at the beginning of each line."""
    hosts: list[tuple[str, str]] = []
    port, timeout, accounting, lines = PORT, DEFAULT_TIMEOUT, False, []
    for line in text.splitlines():
        key, _equals, value = line.partition("=")
        key, value = key.strip().lower(), value.strip().strip('"')
        if key == "slurmctldhost":
            found = re.fullmatch(r"([^()\s]+)(?:\(([^()\s]+)\))?", value)
            if found:
                hosts.append((found[1], found[2] or found[1]))
        elif key == "slurmctldtimeout" and value.isdigit():
            timeout = int(value)
        elif key == "slurmctldport" and value.isdigit():
            port = int(value)
        elif key == "accountingstoragetype":
            accounting = value.lower() == "accounting_storage/slurmdbd"
        if key in CLIENT_KEYS:
            lines.append(line)
    return Config(tuple(hosts), port, timeout, tuple(lines), accounting)


def wrong_domain(address: str, resolv_conf: str) -> str:
    """A sentence for an address by a domain that is not this Kubernetes cluster's; "" for a right one, and where that is unknown."""
    domain = address.partition(".svc.")[2].rstrip(".")
    searched = [word for line in resolv_conf.splitlines() if line.startswith("search ") for word in line.split()[1:]]
    found = [word.removeprefix("svc.").rstrip(".") for word in searched if word.startswith("svc.")]
    if not domain or not found or domain in found:
        return ""
    try:
        # A name server may know several domains.
        socket.getaddrinfo(f"kubernetes.default.svc.{domain}.", None)
    except OSError:
        return f"spec.clusterDomain is {domain}, but the names of this Kubernetes cluster end with {found[0]} (/etc/resolv.conf of its pods): set it to that"
    return ""


def heartbeat(folder: pathlib.Path) -> tuple[int, int] | None:
    """When who was active last: seconds since 1970 by that one's clock, and its place. None without a readable file (src/slurmctld/heartbeat.c)."""
    try:
        data = (folder / "heartbeat").read_bytes()
    except OSError:
        return None
    if len(data) != 16:
        return None
    when, index = struct.unpack(">QQ", data)
    return int(when), int(index)


def fullness(folder: pathlib.Path) -> str:
    """A sentence for a volume that is full; "" for one with room."""
    try:
        usage = shutil.disk_usage(folder)
        nodes = os.statvfs(folder)
    except OSError as error:
        return f"the state volume at {folder} cannot be read ({error.strerror}): check the storage behind it"
    if usage.free < min(ROOM, usage.total // 20):
        left = f"{usage.free >> 10} KiB of {usage.total >> 20} MiB are left"
    elif nodes.f_files and not nodes.f_favail:
        left = "it can hold no further file"
    else:
        return ""
    return (
        f"the state volume at {folder} is full ({left}), so slurmctld cannot save its jobs: "
        "make the claim larger, or take away what is not Slurm's; what was saved before is there"
    )


def explain(lines: list[str], folder: pathlib.Path) -> str:
    """Say why slurmctld gave up, by its last lines; "" where they give no reason."""
    fatal = next((line.split("fatal: ", 1)[1] for line in reversed(lines) if "fatal: " in line), "")
    full = fullness(folder)
    if not fatal:
        return full
    if "CLUSTER NAME MISMATCH" in fatal:
        return (
            f"the state in {folder} is another cluster's, or its file {folder}/clustername is damaged: slurmctld does not touch it and does not start. "
            "Give this cluster its own state volume, or put the file right (docs/ha.md)"
        )
    if ID_MISMATCH in fatal:
        ids = re.findall(r'"(?:ClusterID=)?(\d+)"', "\n".join(lines))
        known = f" (it knows the cluster as {ids[-1]}, the state has {ids[-2]})" if len(ids) > 1 else ""
        return (
            f"the accounting database is not the one that this cluster has written to so far{known}: slurmctld waits. Give back the former database "
            f"in spec.accounting.database; or, to go on with this one and without the former records, remove {folder / REGISTERED} (docs/accounting.md)"
        )
    file = next((name for words, name in FILES if words in fatal), "")
    if file or "start with '-i'" in fatal:
        path = f"the state file {folder / file}" if file else f"a state file in {folder}"
        why = fatal.split(", start with")[0]
        older = (
            f"{file}.old beside it is the state one save before"
            if file and (folder / f"{file}.old").exists()
            else "restore it from a backup"
        )
        also = f"; also {full}" if full else ""
        return (
            f"{path} cannot be read ({why}): slurmctld does not start, and nothing was thrown away. "
            f"Keep a copy of the volume, then put a good file in its place ({older}; docs/ha.md){also}"
        )
    return f"slurmctld gave up: {fatal}{f'; {full}' if full else ''}"


def register(folder: pathlib.Path, accounting: bool) -> None:
    """Record that a new cluster gets its ClusterID from its database."""
    if accounting and not (folder / "clustername").exists():
        (folder / REGISTERED).touch()


def first_database(folder: pathlib.Path) -> bool:
    """Let a cluster without a database so far take the ClusterID of its first one; return True if it is such a cluster.

    Without a database slurmctld chooses a random ClusterID, and ends if the first database has another (observed with 24.11.5). It ends after it has
    read its configuration and before sackd gets it, so this must happen before.
    """
    if (folder / REGISTERED).exists():
        return False
    # slurmctld checked the name in this file when it started.
    (folder / "clustername").unlink(missing_ok=True)
    (folder / REGISTERED).touch()
    return True


def missing_jobs(folder: pathlib.Path) -> str:
    """A sentence for a state folder that had jobs and has lost their file, which slurmctld would take for a new cluster."""
    if (folder / "job_state").exists() or (folder / "job_state.old").exists() or not (folder / "node_state.old").exists():
        return ""
    return (
        f"the state file {folder}/job_state is gone, and job_state.old too, though {folder} is that of a cluster that ran: slurmctld would begin without "
        f"its jobs, so it is not started. Put the file back from a backup; or, where its jobs may be forgotten, move node_state.old away"
    )


class Slurmctld:
    """A slurmctld that runs. ``lines`` are the last that it printed."""

    def __init__(self, arguments: list[str]) -> None:
        self.lines: collections.deque[str] = collections.deque(maxlen=50)
        cluster = socket.gethostname().partition(".")[0].rpartition("-controller-")[0]
        environment = {**os.environ, "LD_PRELOAD": PRELOAD, "CORRAL_CLUSTER": cluster}
        self._process = subprocess.Popen(
            [SLURMCTLD, "-D", *arguments],
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
            preexec_fn=_unblock,
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._pass_on, daemon=True)
        self._reader.start()

    def _pass_on(self) -> None:
        """Give every line to the log as it comes."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
            self.lines.append(line.decode(errors="replace").rstrip())

    def signal(self, number: int) -> None:
        """Send a signal to slurmctld; to one that is gone none."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def finish(self) -> None:
        """End what it left (slurmscriptd outlives a slurmctld that was killed), and read the last lines."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._reader.join(2.0)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def reaped() -> dict[int, int]:
    """The processes that have ended, and how: exit code, or 128 and the signal."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    return ended


class Watch:
    """What the heartbeat file shows over time: whether this slurmctld is the active one, and whether another has taken its place.

    ``index`` is this one's place and ``timeout`` SlurmctldTimeout. Times are in seconds of one clock.
    """

    def __init__(self, index: int, timeout: float, first: tuple[int, int] | None, now: float) -> None:
        self.active = False
        self._index = index
        self._timeout = timeout
        self._first = first
        self._last = now

    def observe(self, beat: tuple[int, int] | None, now: float) -> str:
        """Take in a heartbeat. Returns why this slurmctld must not go on, "" for nothing."""
        gap, self._last = now - self._last, now
        if beat is not None and beat != self._first:
            if beat[1] == self._index:
                self.active = True
            elif self.active:
                return "the other slurmctld has taken over"
        if self.active and gap > self._timeout:
            return f"this pod stood still for {gap:.0f} s, in which the other slurmctld may have taken over"
        return ""


class Controller:
    """One slurmctld after another, until the pod ends or one fails."""

    def __init__(self, config: Config, host: str, arguments: list[str]) -> None:
        self.config = config
        self.arguments = arguments
        self.index = config.index(host) or 0
        self.backed = len(config.hosts) > 1
        self.daemon: Slurmctld | None = None
        self.stopping = False
        self._told_room = float("-inf")

    def run(self) -> int:
        """Return the exit status of the container."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        for mark in (WAITING, REFUSED):  # of a container before this one, which was killed
            (SCRATCH / mark).unlink(missing_ok=True)
        self._write_client(self.index, "127.0.0.1", own_client())
        wrong = wrong_domain(self.config.hosts[self.index][1] if self.config.hosts else "", RESOLV_CONF.read_text())
        if wrong:
            # No client would find it, and its pod would never be ready.
            say(wrong)
            note(wrong)
            return 1
        while True:
            if not self.backed:
                self._await_end_of_backup()
            elif self.index == 0:
                self._take_back()
            else:
                self._await_primary()
            if self.stopping:
                return 0
            lost = missing_jobs(STATE)
            if lost:
                say(lost)
                note(lost)
                return 1
            status, again = self._life()
            if not again:
                return status
            self._reload()

    def _reload(self) -> None:
        """A standby begins anew because its configuration is another, too."""
        with contextlib.suppress(OSError):
            fresh = parse(CONFIG.read_text())
            if len(fresh.hosts) == len(self.config.hosts):
                self.config = fresh

    def _life(self) -> tuple[int, bool]:
        """One slurmctld from its start to its end: how it ended, and whether another must follow."""
        register(STATE, self.config.accounting)
        # Before slurmctld starts: a heartbeat that comes while it does is none of before.
        watch = Watch(self.index, self.config.timeout, heartbeat(STATE), time.time())
        self.daemon = daemon = Slurmctld(self.arguments)
        ended: int | None = None
        again, deadline = False, float("inf")
        while ended is None:
            number = self._wait()
            if number in (signal.SIGTERM, signal.SIGINT):
                self.stopping = True
                daemon.signal(signal.SIGTERM)
                deadline = time.monotonic() + GRACE
            elif number == signal.SIGHUP and self.backed and not watch.active and not self.stopping:
                say("the configuration has changed, so this standby restarts")
                again, deadline = True, time.monotonic() + GRACE
                daemon.signal(signal.SIGTERM)
            if self.backed and not self.stopping and not again:
                reason = watch.observe(heartbeat(STATE), time.time())
                if reason:
                    say(f"{reason}: this one is ended at once, and restarts with the state on the volume")
                    again = True
                    daemon.signal(signal.SIGKILL)
            if time.monotonic() > deadline:
                daemon.signal(signal.SIGKILL)
            self._look_at_room()
            ended = reaped().get(daemon.pid)
        daemon.finish()
        if self.stopping:
            return ended, False
        if again or (self.backed and ended == 0):  # ended by the primary, which is back
            return 0, True
        sentence = explain(list(daemon.lines), STATE)
        if any(ID_MISMATCH in line for line in daemon.lines):
            self._await_database(sentence)
            return 0, True
        if sentence:
            say(sentence)
            note(sentence)
        return ended, False

    def _await_database(self, sentence: str) -> None:
        """Return when another start of slurmctld may find its database. The probe reports the sentence meanwhile, and from outside a command can be run."""
        mark, until = SCRATCH / REFUSED, time.monotonic() + TRY_DATABASE
        if (STATE / REGISTERED).exists():
            say(sentence)
            mark.write_text(f"{sentence}\n")
        while (STATE / REGISTERED).exists() and time.monotonic() < until and not self.stopping:
            self.stopping = self._wait() in (signal.SIGTERM, signal.SIGINT)
        mark.unlink(missing_ok=True)
        # Also when the configuration was changed without the command "reconfigure".
        if not self.stopping and first_database(STATE):
            say("slurmctld starts again and takes the ClusterID from the accounting database")

    def _wait(self) -> int | None:
        """The next signal, None when none came for a while."""
        info = signal.sigtimedwait(SIGNALS, TICK)
        return info.si_signo if info else None

    def _look_at_room(self) -> None:
        if time.monotonic() - self._told_room < LOOK_AT_ROOM:
            return
        self._told_room = time.monotonic()
        sentence = fullness(STATE)
        if sentence:
            say(sentence)

    def _take_back(self) -> None:
        """Return when the backup is no longer active: it is asked to end, which writes its state, and restarts as a standby."""
        asked = float("-inf")
        while not self.stopping:
            beat, state = heartbeat(STATE), self._ask(1)
            if state == "standby":
                return
            if state == "active" and time.monotonic() - asked > 5:
                say(f"{self.config.hosts[1][0]} is active: it writes its state and hands over")
                self._scontrol(1, "shutdown", "slurmctld")
                asked = time.monotonic()
            if state in ("away", "busy"):
                if beat is None or beat[1] == 0 or abs(time.time() - beat[0]) > self.config.timeout:
                    return
                if time.monotonic() - asked > 10:
                    say(f"{self.config.hosts[1][0]} does not respond, but writes its heartbeat: waiting until it stops or responds")
                    asked = time.monotonic()
            number = signal.sigtimedwait(SIGNALS, 0.3)
            self.stopping = number is not None and number.si_signo in (signal.SIGTERM, signal.SIGINT)

    def _await_primary(self) -> None:
        """Return when there is a heartbeat: without one slurmctld would wait for it and respond to no client, so its pod would never be ready.

        There is none while the primary still serves a configuration without a backup; it is replaced once this pod is ready.
        """
        self._pause(lambda: heartbeat(STATE) is None, "there is no heartbeat of a primary yet")

    def _await_end_of_backup(self) -> None:
        """Return when no backup is active that this configuration does not have any more: it is removed once this pod is ready."""

        def is_active() -> bool:
            beat = heartbeat(STATE)
            return beat is not None and beat[1] != self.index and abs(time.time() - beat[0]) <= LAST_BEAT

        self._pause(is_active, "a backup of another configuration is active")

    def _pause(self, condition: Callable[[], bool], why: str) -> None:
        """Wait while a condition holds. The probe takes the pod for ready meanwhile (entry/probe.sh)."""
        if not condition():
            return
        say(f"{why}: waiting")
        mark = SCRATCH / WAITING
        mark.touch()
        while not self.stopping and condition():
            number = self._wait()
            self.stopping = number in (signal.SIGTERM, signal.SIGINT)
        mark.unlink()

    def _ask(self, index: int) -> str:
        """active, standby, away (nothing responds there), or busy."""
        address = self.config.hosts[index][1]
        try:
            socket.create_connection((address, self.config.port), 2.0).close()
        except OSError:
            return "away"
        code, output = self._scontrol(index, "show", "config")
        if code == 0:
            return "active"
        return "standby" if "standby" in output else "busy"

    def _scontrol(self, index: int, *arguments: str) -> tuple[int, str]:
        """Ask one slurmctld, and not the other in its place."""
        path = SCRATCH / f"corral-client-{index}.conf"
        self._write_client(index, self.config.hosts[index][1], path)
        try:
            done = subprocess.run(
                ["/usr/bin/scontrol", *arguments],
                env={**os.environ, "SLURM_CONF": str(path)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                timeout=RESPONSE_TIMEOUT,
                preexec_fn=_unblock,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return 1, str(error)
        return done.returncode, done.stderr

    def _write_client(self, index: int, address: str, path: pathlib.Path) -> None:
        host = self.config.hosts[index][0]
        path.write_text("\n".join([*self.config.client_lines, f"SlurmctldHost={host}({address})", ""]))


def own_client() -> pathlib.Path:
    """A configuration by which the probe asks the slurmctld of its own container."""
    return SCRATCH / "corral-own.conf"


def note(sentence: str) -> None:
    """Leave the reason where Kubernetes reads it: status and runs quote it."""
    with contextlib.suppress(OSError):
        TERMINATION_LOG.write_text(sentence[-2000:] + "\n")


def main(arguments: list[str]) -> int:
    """The command line."""
    if arguments[:1] == ["reread"]:
        os.kill(1, signal.SIGHUP)
        return 0
    if arguments[:1] == ["reconfigure"]:
        if parse(CONFIG.read_text()).accounting and first_database(STATE):
            say("this is the cluster's first accounting database: slurmctld takes the ClusterID from it")
        os.execvp("scontrol", ["scontrol", "reconfigure"])
    if arguments[:1] != ["run"]:
        say("usage: controller.py run [ARGUMENT…] | reread | reconfigure")
        return 2
    return Controller(parse(CONFIG.read_text()), socket.gethostname().partition(".")[0], arguments[1:]).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
