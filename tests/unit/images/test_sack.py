# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""sack.sh: two sackd that live and die together, of which those in the jail reach one alone."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Listens as Slurm's does: at one path, whoever it is.
SACKD = """\
#!/bin/bash
echo "$$ ${{LD_PRELOAD:-none}} $*" >>{folder}/began
[ ! -e {folder}/mute ] || exit 1
exec python3 -c '
import socket, time
one = socket.socket(socket.AF_UNIX)
one.bind("{folder}/run/slurm/sack.socket")
one.listen()
while True:
    other, _ = one.accept()
    other.sendall(b"{{}}".replace(b"{{}}", b"'"${{LD_PRELOAD:-none}}"'"))
    other.close()
'
"""
LIBRARY = "libm.so.6"


class Container:
    def __init__(self, folder: Path, script: Callable[..., str]) -> None:
        self.folder = folder
        for name in ("etc/corral/slurm-key", "run/slurm", "run/slurm-key", "plugins"):
            (folder / name).mkdir(parents=True)
        (folder / "etc/corral/slurm-key/slurm.key").write_text("key")
        (folder / "plugins/auth_slurm.so").touch()
        (folder / "sackd").write_text(SACKD.format(folder=folder))
        moved = {path: f"{folder}{path}" for path in ("/etc/corral", "/run/slurm")}
        common = script("common.sh", {"/run/slurm-key": f"{folder}/run/slurm-key"})
        (folder / "common.sh").write_text(common)
        programs = {
            "/usr/sbin/sackd": f"{folder}/sackd",
            "/usr/local/lib/corral/common.sh": f"{folder}/common.sh",
            "/usr/local/lib/corral/auth_for_users.so": LIBRARY,
            "/opt/corral/lib/slurm/": f"{folder}/plugins/",
        }
        (folder / "sack.sh").write_text(script("sack.sh", {**moved, **programs}))
        for name in ("sackd", "sack.sh"):
            (folder / name).chmod(0o755)
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        self.close()
        environment = {**os.environ, "CORRAL_CLUSTER": "demo"}
        self.process = subprocess.Popen(
            [self.folder / "sack.sh"], env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        return self.process

    def close(self) -> None:
        if self.process and self.process.stderr:
            self.process.stderr.close()

    def answer(self, name: str) -> str:
        """Who listens to a socket: the library that it was preloaded with."""
        done = subprocess.run(
            ["python3", "-c", "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(99).decode())", name],
            cwd=self.folder / "run/slurm", capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout.strip()

    def works(self) -> bool:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if (self.answer("jail/sack.socket"), self.answer("sack.socket")) == (LIBRARY, "none"):
                return True
            time.sleep(0.1)
        return False

    def daemons(self) -> list[int]:
        return [int(line.split()[0]) for line in (self.folder / "began").read_text().splitlines()]


@pytest.fixture
def container(tmp_path: Path, script: Callable[..., str]) -> Iterator[Container]:
    made = Container(tmp_path, script)
    yield made
    if made.process and made.process.poll() is None:
        os.killpg(made.process.pid, signal.SIGKILL)
        made.process.wait()
    made.close()


def test_those_in_the_jail_have_one_of_their_own(container: Container) -> None:
    container.start()
    assert container.works()
    keys = container.folder / "run/slurm-key"
    assert (keys / "slurm.key").read_text() == "key" and (keys / "slurm.key").stat().st_mode & 0o777 == 0o400
    assert "ClusterName=demo\n" in (keys / "sackd.conf").read_text()
    assert sorted(path.name for path in (container.folder / "run/slurm/jail").iterdir()) == ["sack.socket"]


@pytest.mark.parametrize("which", [0, 1])
def test_without_one_of_them_the_container_ends_and_starts_anew(container: Container, which: int) -> None:
    process = container.start()
    assert container.works()
    os.kill(container.daemons()[which], signal.SIGKILL)
    assert process.wait(30) == 1
    assert process.stderr and "a sackd ended with status 137" in process.stderr.read()
    container.start()
    assert container.works(), "the sockets of those before are in the way"


def test_it_ends_when_it_is_told(container: Container) -> None:
    process = container.start()
    assert container.works()
    process.terminate()
    assert process.wait(30) == 0
    for pid in container.daemons():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ("etc/corral/slurm-key/slurm.key", "mount the Secret of Slurm's key there"),
        ("plugins/auth_slurm.so", "or set spec.slurm.auth: munge"),
    ],
)
def test_what_it_lacks_is_named(container: Container, gone: str, words: str) -> None:
    (container.folder / gone).unlink()
    process = container.start()
    assert process.wait(30) == 1
    assert process.stderr and words in process.stderr.read()


def test_a_sackd_that_does_not_start_is_an_error(container: Container) -> None:
    (container.folder / "mute").touch()
    process = container.start()
    assert process.wait(30) == 1
    assert process.stderr and "a sackd did not make its socket" in process.stderr.read()
