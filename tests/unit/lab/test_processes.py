# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes are known by number and start time, and only the right one is ever ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from corral_lab import processes
from corral_lab.processes import Identity, Part
from corral_lab.state import LabError, Paths


def well() -> str | None:
    return None


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_parse_stat_takes_any_name() -> None:
    fields = " ".join(["1"] * 18)
    assert processes.parse_stat(f"42 (a) b) (c)) S {fields} 987654 1 1") == ("S", 987654)


def test_identity_of_a_living_process(sleeper: subprocess.Popen[bytes]) -> None:
    identity = processes.identify(sleeper.pid)
    assert identity is not None
    assert processes.alive(identity)


def test_a_reused_number_is_another_process(sleeper: subprocess.Popen[bytes]) -> None:
    identity = processes.identify(sleeper.pid)
    assert identity is not None
    for other in (replace(identity, start=identity.start - 1), replace(identity, boot="another boot")):
        assert not processes.alive(other)
        processes.stop([other])
        assert not processes.send(other, signal.SIGKILL)
    assert sleeper.poll() is None


def test_a_zombie_does_not_live() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{process.pid}").exists()
        assert processes.identify(process.pid) is None


def test_stop_ends_what_ignores_sigterm() -> None:
    script = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        identity = processes.identify(process.pid)
        assert identity is not None
        processes.stop([identity], patience=0.1)
        assert process.wait() == -signal.SIGKILL


def test_daemon_is_recorded_marked_and_apart(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    paths.root.mkdir(parents=True)
    monkeypatch.setenv("SSL_CERT_FILE", "/outside/world.crt")
    identity = processes.start(paths, Part("sleeper", ("sleep", "600"), well))
    try:
        assert processes.running(paths, "sleeper") == identity
        assert identity in processes.marked(paths)
        environment = Path(f"/proc/{identity.pid}/environ").read_bytes().split(b"\0")
        assert not [entry for entry in environment if entry.startswith(b"SSL_CERT_FILE")]
        assert os.getsid(identity.pid) == identity.pid
        assert identity not in processes.marked(Paths(paths.root / "other", paths.cache))
    finally:
        processes.stop([identity])
    assert processes.running(paths, "sleeper") is None
    assert processes.recorded(paths, "sleeper") == identity
    assert processes.marked(paths) == []
    os.waitpid(identity.pid, 0)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"pid": "x", "start": 1, "boot": "b"}'])
def test_a_broken_record_is_no_process(paths: Paths, content: str) -> None:
    paths.run.mkdir(parents=True)
    (paths.run / "etcd.json").write_text(content)
    assert processes.recorded(paths, "etcd") is None


def test_a_missing_program_is_told_in_a_sentence(paths: Paths) -> None:
    paths.root.mkdir(parents=True)
    with pytest.raises(LabError, match=r"^etcd could not be started \(/no/such"):
        processes.start(paths, Part("etcd", ("/no/such/program",), well))


def test_a_taken_port_is_told_before_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(LabError, match=rf"etcd cannot listen on 127\.0\.0\.1:{port}"):
            processes.check_ports([Part("etcd", ("etcd",), well, (("127.0.0.1", port),))])
    processes.check_ports([Part("etcd", ("etcd",), well, (("127.0.0.1", port),))])


def test_log_tail(paths: Paths) -> None:
    paths.log.mkdir(parents=True)
    assert processes.log_tail(paths, "etcd") == "  (no log)"
    (paths.log / "etcd.log").write_text("".join(f"line {n}\n" for n in range(9999)))
    assert processes.log_tail(paths, "etcd", 2) == "  line 9997\n  line 9998"


def test_wait_until_tells_the_last_reason() -> None:
    with pytest.raises(processes.NotWell, match="etcd is not well after 0 s: still loading"):
        processes.wait_until("etcd", lambda: "still loading", 0)
    answers = iter(["not yet", None])
    processes.wait_until("etcd", lambda: next(answers), 10)


def test_nobody_is_stopped_for_an_unknown_process() -> None:
    assert not processes.alive(None)
    assert not processes.send(Identity(2**22 + 1, 1, "x"), signal.SIGTERM)
