# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""sack.sh: two sackd that live and die together, of which those in the jail reach one alone."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
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
import os, signal, socket, sys, time
heard = "SACK_RECONFIG_FD" in os.environ
def again(*_):
    os.environ["SACK_RECONFIG_FD"] = str(one.fileno())
    os.set_inheritable(one.fileno(), True)
    os.execv("{folder}/sackd", ["sackd", *sys.argv[1:]])
one = socket.socket(fileno=int(os.environ["SACK_RECONFIG_FD"])) if heard else socket.socket(socket.AF_UNIX)
if not heard:
    one.bind("{folder}/run/slurm/sack.socket")
    one.listen()
signal.signal(signal.SIGHUP, again if not os.path.exists("{folder}/deaf") else signal.SIG_IGN)
while True:
    other, _ = one.accept()
    other.sendall(b"{{}}".replace(b"{{}}", b"'"${{LD_PRELOAD:-none}}"'"))
    other.close()
' "$@"
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


def keys(container: Container) -> list[tuple[str, str | None]]:
    """What Slurm reads: each key, and whether it is that which signs."""
    found = json.loads((container.folder / "run/slurm-key/slurm.jwks").read_text())["keys"]
    assert all((one["alg"], one["kty"]) == ("HS256", "oct") for one in found) and len({one["kid"] for one in found}) == len(found)
    return [(base64.b64decode(one["k"]).decode(), one.get("use")) for one in found]


def taken(container: Container) -> bool:
    """Whether both sackd have what the Secret has."""
    volume = container.folder / "etc/corral/slurm-key"
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(volume.iterdir()))).hexdigest()[:16]
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if (container.folder / "run/slurm-key/used").read_text().strip() == wanted:
                return True
        time.sleep(0.1)
    return False


def test_keys_are_taken_without_an_end_of_a_socket(container: Container) -> None:
    process, volume = container.start(), container.folder / "etc/corral/slurm-key"
    assert container.works() and taken(container)
    assert keys(container) == [("key", "default")]
    before = container.daemons()
    for files, wanted in (
        ({"slurm.key": "key", "slurm.key.next": "new"}, [("key", "default"), ("new", None)]),
        ({"slurm.key": "new", "slurm.key.former": "key"}, [("new", "default"), ("key", None)]),
        # Restored by hand in the midst: Slurm ends with two keys of one name.
        ({"slurm.key": "new", "slurm.key.former": "new"}, [("new", "default")]),
        ({"slurm.key": "new"}, [("new", "default")]),
    ):
        for path in volume.iterdir():
            path.unlink()
        for name, text in files.items():
            (volume / name).write_text(text)
        began = len(container.daemons())
        process.send_signal(signal.SIGHUP)
        assert taken(container) and keys(container) == wanted
        assert container.works()
        assert sorted(container.daemons()[began:]) == sorted(before), "each executes itself anew, once"
    assert ((container.folder / "run/slurm-key/slurm.jwks").stat().st_mode & 0o777) == 0o400
    assert process.poll() is None


def test_a_sackd_that_does_not_take_keys_ends_the_container(container: Container) -> None:
    (container.folder / "deaf").touch()
    process = container.start()
    assert container.works()
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 1
    assert process.stderr and "did not take the new keys" in process.stderr.read()


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


# Executes itself anew on SIGHUP, as Slurm's do. It is a bash, whose program is its own file.
DAEMON = """\
trap 'exec {folder}/{name} {folder}/{name}.sh' HUP
echo "$$" >>{folder}/{name}.began
while :; do sleep 0.05; done
"""


class Daemon:
    """A container with one of Slurm's daemons, the volume that sack.sh writes, and keys.sh."""

    def __init__(self, folder: Path, script: Callable[..., str], name: str) -> None:
        self.folder, self.name = folder, name
        (folder / "run/slurm-key").mkdir(parents=True)
        shutil.copy("/bin/bash", folder / name)
        (folder / f"{name}.sh").write_text(DAEMON.format(folder=folder, name=name))
        (folder / "probe.sh").write_text(f"#!/bin/sh\nprintf '%s\\n' \"$*\" >>{folder}/probed\n[ ! -e {folder}/busy ]\n")
        (folder / "common.sh").write_text(script("common.sh", {"/run/slurm-key": f"{folder}/run/slurm-key"}))
        moved = {"/usr/sbin/": f"{folder}/", "/usr/local/lib/corral/": f"{folder}/", "/etc/corral/": f"{folder}/none/"}
        (folder / "keys.sh").write_text(script("keys.sh", moved))
        for file in ("probe.sh", "keys.sh"):
            (folder / file).chmod(0o755)
        (folder / "run/slurm-key/used").write_text("0123456789abcdef\n")
        self.process = subprocess.Popen([folder / name, folder / f"{name}.sh"], start_new_session=True)
        while not self.began():
            time.sleep(0.05)

    def began(self) -> list[str]:
        file = self.folder / f"{self.name}.began"
        return file.read_text().split() if file.exists() else []

    def use(self, digest: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.folder / "keys.sh", "slurm", "use", digest], capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def daemon(tmp_path: Path, script: Callable[..., str], request: pytest.FixtureRequest) -> Iterator[Daemon]:
    made = Daemon(tmp_path, script, getattr(request, "param", "slurmd"))
    yield made
    made.process.kill()
    made.process.wait()


@pytest.mark.parametrize("daemon", ["slurmd", "sackd"], indirect=True)
def test_a_daemon_begins_anew_with_what_sack_has_taken(daemon: Daemon) -> None:
    refused = daemon.use("fedcba9876543210")
    assert refused.returncode == 1 and "the container sack has other keys" in refused.stderr
    assert len(daemon.began()) == 1
    done = daemon.use("0123456789abcdef")
    assert done.returncode == 0, done.stderr
    number = str(daemon.process.pid)
    assert (number, daemon.process.poll()) == (daemon.began()[0], None), "it stays the same process"
    end = time.monotonic() + 10
    while len(daemon.began()) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    assert daemon.began() == [number, number]


def test_a_user_may_call_a_process_of_theirs_slurmd(daemon: Daemon) -> None:
    """It would end by SIGHUP, and slurmd not take the keys."""
    theirs = daemon.folder / "theirs"
    theirs.mkdir()
    shutil.copy("/bin/sleep", theirs / "slurmd")
    with subprocess.Popen([theirs / "slurmd", "60"]) as other:
        assert daemon.use("0123456789abcdef").returncode == 0
        assert other.poll() is None
        other.kill()


def test_one_that_is_just_starting_or_busy_is_not_sent_a_signal(daemon: Daemon) -> None:
    (daemon.folder / "busy").touch()
    assert daemon.use("0123456789abcdef").returncode == 1
    (daemon.folder / "busy").unlink()
    (daemon.folder / "slurmd.sh").write_text(f"echo again >>{daemon.folder}/slurmd.began; while :; do sleep 0.05; done")
    assert daemon.use("0123456789abcdef").returncode == 0
    end = time.monotonic() + 10
    while len(daemon.began()) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    # Now it is one without a handler, as in the midst of its start.
    refused = daemon.use("0123456789abcdef")
    assert refused.returncode == 1 and "slurmd is beginning anew" in refused.stderr
    assert daemon.process.poll() is None


def test_what_does_not_run_reads_the_keys_when_it_starts(daemon: Daemon) -> None:
    daemon.process.kill()
    daemon.process.wait()
    assert daemon.use("0123456789abcdef").returncode == 0
