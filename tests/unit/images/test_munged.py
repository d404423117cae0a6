# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""munged.sh: two daemons that live and die together, against one of a few lines."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

DAEMON = """\
#!/bin/bash
socket=$(tr ' ' '\\n' <<<"$*" | sed -n 's/^--socket=//p')
: >"$socket"
trap 'echo "$socket" >>{folder}/ended; exit 0' TERM
echo "$$ $socket ${{LD_PRELOAD:-}} $*" >>{folder}/began
while [ ! -e {folder}/die ] || [[ $socket != */"$(cat {folder}/die)" ]]; do
    sleep 0.05 &
    wait $! # which a signal ends at once
done
exit 3
"""
PAIR = ["jail/munge.socket.2", "munge.socket.2"]


class Container:
    def __init__(self, folder: Path, script: Callable[..., str]) -> None:
        self.folder = folder
        for name in ("etc/corral/munge", "run/munge", "run/munge-key"):
            (folder / name).mkdir(parents=True)
        (folder / "etc/corral/munge/munge.key").write_text("key")
        (folder / "munged").write_text(DAEMON.format(folder=folder))
        moved = {"/usr/sbin/munged": f"{folder}/munged", "/etc/corral": f"{folder}/etc/corral", "/run/munge": f"{folder}/run/munge"}
        # The dynamic linker would complain of a library that is not there, each time.
        library = {"/usr/local/lib/corral/auth_for_users.so": "libm.so.6"}
        common = {"/usr/local/lib/corral/common.sh": str(Path(__file__).parents[3] / "images/slurm/entry/common.sh")}
        (folder / "munged.sh").write_text(script("munged.sh", {**moved, **library, **common}))
        for name in ("munged", "munged.sh"):
            (folder / name).chmod(0o755)
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        self.process = subprocess.Popen([self.folder / "munged.sh"], stderr=subprocess.PIPE, text=True, start_new_session=True)
        end = time.monotonic() + 30
        while len(self.lines("began")) < 2 and time.monotonic() < end and self.process.poll() is None:
            time.sleep(0.02)
        return self.process

    def lines(self, name: str) -> list[list[str]]:
        file = self.folder / name
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def container(tmp_path: Path, script: Callable[..., str]) -> Iterator[Container]:
    found = Container(tmp_path, script)
    yield found
    for pid in [int(line[0]) for line in found.lines("began")]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if found.process:
        found.process.kill()
        found.process.communicate()


def test_both_are_told_to_end_and_it_waits_for_them(container: Container) -> None:
    process = container.start()
    assert sorted(line[1].partition("run/munge/")[2] for line in container.lines("began")) == PAIR
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert sorted(line[0].partition("run/munge/")[2] for line in container.lines("ended")) == PAIR


@pytest.mark.parametrize("which", PAIR)
def test_with_either_the_container_ends(container: Container, which: str) -> None:
    process = container.start()
    # Of the two names one ends like the other.
    (container.folder / "die").write_text("run/munge/" + which)
    assert process.wait(30) == 1
    assert process.stderr is not None
    assert "munged.sh: a munged ended with status 3; the container is started again" in process.stderr.readline()


def test_only_those_in_the_jail_get_the_library_and_the_key_is_its_own_file(container: Container) -> None:
    container.start()
    preload = {line[1].partition("run/munge/")[2]: line[2] == "libm.so.6" for line in container.lines("began")}
    assert preload == {"jail/munge.socket.2": True, "munge.socket.2": False}
    copy = container.folder / "run/munge-key/munge.key"
    assert copy.read_text() == "key" and copy.stat().st_mode & 0o777 == 0o400 and not copy.is_symlink()


def mount(container: Container, text: str) -> str:
    """Another key in the Secret's volume; returns its hash."""
    (container.folder / "etc/corral/munge/munge.key").write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.fixture
def keys(container: Container, script: Callable[..., str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run keys.sh beside munged.sh, which is not the first process here."""
    (container.folder / "probe.sh").write_text("#!/bin/bash\n")
    (container.folder / "probe.sh").chmod(0o755)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        moved = {
            "/etc/corral": f"{container.folder}/etc/corral",
            "/run/munge-key": f"{container.folder}/run/munge-key",
            "/usr/local/lib/corral/probe.sh": f"{container.folder}/probe.sh",
            ". /usr/local/lib/corral/common.sh": 'die() { echo "$*" >&2; exit 1; }',
            "kill -HUP 1": f"kill -HUP {container.process.pid if container.process else 0}",
        }
        text = script("keys.sh", moved)
        return subprocess.run(["bash", "-c", text, "keys.sh", *arguments], capture_output=True, text=True, timeout=30, check=False)

    return run


def test_both_start_again_with_a_new_key_and_only_once(container: Container, keys: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    process = container.start()
    assert keys("munge", "mounted").stdout.strip() == hashlib.sha256(b"key").hexdigest()[:16]
    new = mount(container, "new")
    assert keys("munge", "mounted").stdout.strip() == new
    for _again in range(2):
        done = keys("munge", "use", new)
        assert done.returncode == 0, done.stderr
    assert process.poll() is None
    copy = container.folder / "run/munge-key/munge.key"
    assert copy.read_text() == "new" and copy.stat().st_mode & 0o777 == 0o400
    end = time.monotonic() + 30
    while len(container.lines("began")) < 4 and time.monotonic() < end:
        time.sleep(0.02)
    assert sorted(line[1].partition("run/munge/")[2] for line in container.lines("began")) == sorted(PAIR * 2)
    assert sorted(line[0].partition("run/munge/")[2] for line in container.lines("ended")) == PAIR, "before the others began"


def test_daemons_that_ended_on_request_do_not_end_the_container(
    container: Container, keys: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """bash reports such a child once more to a wait for any (observed with 5.2)."""
    process = container.start()
    for number in range(8):
        done = keys("munge", "use", mount(container, f"key {number}"))
        assert done.returncode == 0, done.stderr
        time.sleep(0.1)
        assert process.poll() is None


def test_a_volume_that_has_another_key_is_not_used(container: Container, keys: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    container.start()
    done = keys("munge", "use", "0" * 16)
    assert (done.returncode, done.stderr) == (1, "the pod's volume has other keys\n")
    assert len(container.lines("began")) == 2
    assert "usage" in keys("other", "mounted").stderr


def test_no_key(container: Container) -> None:
    (container.folder / "etc/corral/munge/munge.key").unlink()
    done = subprocess.run([container.folder / "munged.sh"], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1 and "munge.key is missing or not readable" in done.stderr and container.lines("began") == []
