# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""probe.sh: what a probe of a daemon finds, and how a probe at a start waits, against files and programs of a folder."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

# 6818, 22 and 6819, listening, and a connection of 6817, which is none.
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1AA2 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   3: 00000000:1AA3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   2: 0100007F:1AA1 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
"""


class Pod:
    """A container with all of its daemons at work; ``gone`` takes something away, ``after`` brings it back when the look has paused so often."""

    def __init__(self, folder: Path, script: Callable[..., str]) -> None:
        self.folder = folder
        self.log = folder / "log"
        for file in ("run/slurm/conf/slurm.conf", "mnt/jail/etc/corral-jail"):
            self.file(file)
        for number, comm in enumerate(("tini", "slurmctld", "slurmd", "sackd", "sshd", "slurmdbd", "slurmrestd"), 1):
            self.file(f"proc/{number}/comm", comm + "\n")
        for family in ("tcp", "tcp6"):
            self.file(f"proc/net/{family}", TCP if family == "tcp" else "")
        self.file("proc/net/unix", f"0000000000000000: 00000002 00000000 00010000 0001 01 12345 {folder}/run/slurmrestd/rest.sock\n")
        for path in ("run/munge/munge.socket.2", "run/munge/jail/munge.socket.2", "run/slurm/sack.socket", "run/slurm/jail/sack.socket"):
            self.file(path)
        self.file("common.sh", "attach_submounts() { :; }\n")
        for name in ("munge", "scontrol", "jail-exec", "sleep"):
            self.program(name, "")
        moved = {path: f"{folder}{path}" for path in ("/proc/", "/run/", "/mnt/jail", "/tmp/corral-")}
        programs = {path: str(folder / Path(path).name) for path in ("/opt/corral/bin/jail-exec", "/usr/local/lib/corral/common.sh")}
        self.file("probe.sh", script("probe.sh", {"[ ! -S ": "[ ! -e ", **moved, **programs}))

    def file(self, name: str, text: str = "") -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def program(self, name: str, does: str) -> None:
        self.file(name, f'#!/bin/bash\necho "{name} $*" >>{self.log}\n{does}\n')
        (self.folder / name).chmod(0o755)

    def asked(self, name: str) -> list[str]:
        """Each call of a program, by its arguments."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.removeprefix(name).strip() for line in lines if line.split()[0] == name]

    def look(self, *arguments: str, **environment: str) -> tuple[int, str]:
        path = f"{self.folder}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", self.folder / "probe.sh", *arguments],
            env={"PATH": path, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout.strip()


@pytest.fixture
def pod(tmp_path: Path, script: Callable[..., str]) -> Pod:
    return Pod(tmp_path, script)


@pytest.mark.parametrize("daemon", ["slurmctld", "slurmd", "slurmdbd", "slurmrestd", "sackd", "sshd", "munged", "sack"])
def test_a_daemon_that_works(pod: Pod, daemon: str) -> None:
    for depth in ((), ("alive",), ("10",)):
        assert pod.look(daemon, *depth) == (0, "")
    assert pod.asked("sleep") == []


@pytest.mark.parametrize(
    ("daemon", "gone", "words", "alive"),
    [
        ("slurmctld", "proc/2/comm", "slurmctld is not running", False),
        ("slurmd", "proc/3/comm", "slurmd is not running", False),
        ("slurmd", "proc/net/tcp", "slurmd does not listen on port 6818 yet", False),
        ("slurmd", "run/slurm/conf/slurm.conf", "slurmd has no configuration from slurmctld yet", True),
        ("slurmd", "mnt/jail/etc/corral-jail", "is not mounted or not populated", True),
        ("slurmdbd", "proc/6/comm", "slurmdbd is not running", False),
        ("slurmrestd", "proc/7/comm", "slurmrestd is not running", False),
        ("slurmrestd", "proc/net/unix", "slurmrestd does not listen yet", True),
        ("sackd", "proc/4/comm", "sackd is not running", False),
        ("sackd", "run/slurm/conf/slurm.conf", "sackd has no configuration from slurmctld yet", False),
        ("sshd", "proc/net/tcp", "sshd does not listen on port 22 yet", False),
        ("sshd", "mnt/jail/etc/corral-jail", "is not mounted or not populated", True),
        ("munged", "run/munge/munge.socket.2", "/run/munge/munge.socket.2", False),
        ("munged", "run/munge/jail/munge.socket.2", "/run/munge/jail/munge.socket.2", False),
        ("sack", "proc/4/comm", "sackd is not running", False),
        ("sack", "run/slurm/sack.socket", "/run/slurm/sack.socket yet", False),
        ("sack", "run/slurm/jail/sack.socket", "/run/slurm/jail/sack.socket yet", False),
    ],
)
def test_what_lacks_is_named_and_alive_asks_for_the_daemon_only(pod: Pod, daemon: str, gone: str, words: str, alive: bool) -> None:
    (pod.folder / gone).unlink()
    code, said = pod.look(daemon)
    assert code == 1 and words in said and "\n" not in said
    assert (pod.look(daemon, "alive")[0] == 0) is alive


@pytest.mark.parametrize(
    ("daemon", "program", "says", "words"),
    [
        ("munged", "munge", "exit 1", "munged does not respond on"),
        (
            "slurmctld",
            "scontrol",
            "echo first; echo 'Slurmctld(primary) is DOWN'; exit 1",
            "slurmctld does not respond: Slurmctld(primary) is DOWN",
        ),
        ("slurmd", "jail-exec", "echo 'jail-exec: no such file' >&2; exit 1", "no step can enter the jail: no such file"),
        ("sshd", "jail-exec", "echo 'jail-exec: no space' >&2; exit 1", "the jail is not made ready for sessions: no space"),
    ],
)
def test_a_daemon_that_does_not_answer(pod: Pod, daemon: str, program: str, says: str, words: str) -> None:
    pod.program(program, says)
    code, said = pod.look(daemon)
    assert code == 1 and words in said and "\n" not in said


def test_a_backup_of_slurmdbd_is_ready_while_it_stands_by_and_listens_when_it_has_control(pod: Pod) -> None:
    (pod.folder / "proc/net/tcp").unlink()
    pod.file("run/slurm/standby")
    assert pod.look("slurmdbd") == (0, "")
    (pod.folder / "proc/6/comm").unlink()
    assert pod.look("slurmdbd") == (1, "slurmdbd is not running")
    # The primary has to change the tables first, for which Kubernetes waits until this one is ready.
    pod.file("run/slurm/waiting")
    assert pod.look("slurmdbd") == pod.look("slurmdbd", "alive") == (0, "")


def test_a_backup_of_slurmdbd_that_waits_for_the_primary_is_not_ended_and_not_ready(pod: Pod) -> None:
    (pod.folder / "proc/6/comm").unlink()
    pod.file("run/slurm/waiting")
    assert pod.look("slurmdbd", "alive") == pod.look("slurmdbd", "10") == (0, "")
    assert pod.look("slurmdbd") == (1, "slurmdbd waits for the primary, which has to start first")


def test_a_slurmdbd_that_changes_its_tables_is_not_ended(pod: Pod) -> None:
    (pod.folder / "proc/net/tcp").unlink()
    (pod.folder / "run/slurm").mkdir(exist_ok=True)
    (pod.folder / "run/slurm/converting").touch()
    assert pod.look("slurmdbd", "10") == (0, "")
    assert pod.look("slurmdbd") == (1, "slurmdbd changes the tables of its database to those of its release; see its log")


def test_a_standby_and_a_step_that_has_entered_are_not_asked_again(pod: Pod) -> None:
    assert pod.look("slurmd")[0] == pod.look("slurmd")[0] == 0
    assert len(pod.asked("jail-exec")) == 1
    (pod.folder / "proc/2/comm").unlink()
    pod.file("tmp/corral-waiting")
    assert pod.look("slurmctld") == (0, "") and pod.asked("scontrol") == []


def test_a_slurmctld_without_its_database_is_alive_and_says_why_it_is_not_ready(pod: Pod) -> None:
    (pod.folder / "proc/2/comm").unlink()
    pod.file("tmp/corral-refused", "the accounting database is another one\n")
    assert pod.look("slurmctld", "alive") == (0, "")
    assert pod.look("slurmctld") == (1, "the accounting database is another one")
    assert pod.asked("scontrol") == []


def test_a_look_at_a_start_waits_for_it(pod: Pod) -> None:
    conf = pod.folder / "run/slurm/conf/slurm.conf"
    conf.unlink()
    pod.program("sleep", f"[ $(grep -c ^sleep {pod.log}) -lt 5 ] || : >{conf}")
    assert pod.look("sackd", "10") == (0, "")
    assert pod.asked("sleep") == ["0.1", "0.2", "0.4", "1", "1"], "more often at first, and never in a busy loop"


def test_it_does_not_wait_for_ever(pod: Pod) -> None:
    (pod.folder / "proc/4/comm").unlink()
    pod.program("sleep", 'exec /bin/sleep "$1"')
    assert pod.look("sackd", "2") == (1, "sackd is not running")
    # bash counts whole seconds of the clock: fewer where it began late in one.
    paused = pod.asked("sleep")
    assert paused == ["0.1", "0.2", "0.4", "1", "1"][: len(paused)]
    assert pod.look("sackd", "0") == (1, "sackd is not running")
    assert pod.asked("sleep") == paused, "without time it looks once"


@pytest.mark.parametrize("arguments", [(), ("slurmweb",), ("slurmd", "10s"), ("slurmd", "-1")])
def test_what_it_can_not_be_asked(pod: Pod, arguments: tuple[str, ...]) -> None:
    code, said = pod.look(*arguments)
    assert code == 1 and said.startswith("usage: probe.sh ")


def test_slurmdbd_without_its_database_says_why(pod: Pod) -> None:
    pod.file("proc/net/tcp")
    assert pod.look("slurmdbd", "alive", CORRAL_DATABASE_ADDRESS="127.0.0.1:1") == (0, "")
    assert pod.look("slurmdbd", CORRAL_DATABASE_ADDRESS="127.0.0.1:1") == (
        1,
        "slurmdbd waits for its database: nothing answers at 127.0.0.1:1",
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert pod.look("slurmdbd", CORRAL_DATABASE_ADDRESS=address) == (1, "slurmdbd does not listen on port 6819 yet")
        pod.file("run/slurm/last_error", "Access denied for user 'slurm'\n")
        assert pod.look("slurmdbd", CORRAL_DATABASE_ADDRESS=address) == (1, "slurmdbd has no database: Access denied for user 'slurm'")
