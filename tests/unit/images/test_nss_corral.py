# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name service of the pods, asked by getent: users of the jail's files, whatever root in the jail puts in their place."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ALICE = "alice:x:10001:10001:Alice:/home/alice:/bin/bash"
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Names:
    """``names``: where the links into the jail lie; ``jail``: the jail's /etc."""

    library: Path
    names: Path
    jail: Path

    def ask(self, *words: str) -> str:
        """What getent prints of this service alone."""
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.library)}
        done = subprocess.run(["getent", "-s", "corral", *words], env=environment, capture_output=True, text=True, check=False, timeout=10)
        assert done.returncode in (0, 2), done
        return done.stdout.strip()

    def user(self, line: str) -> str:
        """What is found for a line's name, and by its id, where both say the same."""
        (self.jail / "passwd").write_text(f"{ALICE}\n{line}\n")
        name, _password, number = line.split(":")[:3]
        every = self.ask("passwd").splitlines()
        assert every[0] == ALICE
        found = {*every[1:2], self.ask("passwd", "--", name), self.ask("passwd", str(int(number) % 2**32))}
        assert len(found - {""}) <= 1
        return "" if len(found) != 1 else found.pop()


@pytest.fixture
def service(build: Callable[..., Path], tmp_path: Path) -> Names:
    found = Names(tmp_path / "lib", tmp_path / "names", tmp_path / "jail" / "etc")
    for directory in (found.library, found.names, found.jail, tmp_path / "pod"):
        directory.mkdir(parents=True)
    words = {"NAMES": found.names, "OF_THE_POD": tmp_path / "pod"}
    made = build("nss_corral.c", *(f'-D{name}="{path}/"' for name, path in words.items()))
    shutil.move(made, found.library / "libnss_corral.so.2")
    (tmp_path / "pod" / "passwd").write_text("root:x:0:0::/root:/bin/bash\nslurm:x:64030:64030::/:/bin/false\n")
    (tmp_path / "pod" / "group").write_text("root:x:0:\nslurm:x:64030:\n")
    for name in ("passwd", "group"):
        (found.names / name).symlink_to(found.jail / name)
    (found.jail / "passwd").write_text(f"root:x:0:0::/root:/bin/bash\n{ALICE}\nbob:x:10002:10002::/home/bob:/bin/sh\n")
    (found.jail / "group").write_text(
        "root:x:0:\nalice:x:10001:\noptics:x:20000:bob,alice\nslurm:x:20001:alice\nlow:x:27:alice\nlasers:x:20002:alice\n"
    )
    return found


def test_users_and_groups_of_the_jail(service: Names) -> None:
    assert service.ask("passwd", "alice") == service.ask("passwd", "10001") == ALICE
    assert service.ask("passwd").splitlines() == [ALICE, "bob:x:10002:10002::/home/bob:/bin/sh"]
    assert service.ask("group", "optics") == service.ask("group", "20000") == "optics:x:20000:bob,alice"
    assert service.ask("initgroups", "alice").split() == ["alice", "20000", "20002"]
    assert service.ask("passwd", "nobody-is") == ""


def test_files_instead_of_links(service: Names) -> None:
    """As slurmstepd's own root has them."""
    for name in ("passwd", "group"):
        (service.names / name).unlink()
        shutil.copy(service.jail / name, service.names / name)
    assert service.ask("passwd", "alice") == ALICE


def test_a_line_longer_than_the_first_buffer(service: Names) -> None:
    members = ",".join(f"user{number}" for number in range(20000))
    (service.jail / "group").write_text(f"all:x:20000:{members},alice\nlasers:x:20002:alice\n")
    assert service.ask("group", "all") == f"all:x:20000:{members},alice"
    assert service.ask("initgroups", "alice").split() == ["alice", "20000", "20002"]


@pytest.mark.parametrize("number", [0, 1, 499, 60001, 64030, 64032, 65534, 65535, 2**32 - 2, 2**32 - 1, 2**32, 2**32 + 10003])
def test_ids_that_nobody_of_a_jail_has(service: Names, number: int) -> None:
    assert service.user(f"eve:x:{number}:10003::/home/eve:/bin/sh") == ""
    assert service.user(f"eve:x:10003:{number}::/home/eve:/bin/sh") == ""
    (service.jail / "group").write_text(f"eve:x:{number}:alice\n")
    assert service.ask("group", "eve") == service.ask("group") == ""
    assert service.ask("initgroups", "alice").split() == ["alice"]


@pytest.mark.parametrize("number", [500, 1000, 60000, 65536, 2**31, 2**32 - 3])
def test_ids_that_users_may_have(service: Names, number: int) -> None:
    line = f"eve:x:{number}:{number}::/home/eve:/bin/sh"
    assert service.user(line) == line
    line = f"eve:x:{number}:100::/home/eve:/bin/sh"
    assert service.user(line) == line


@pytest.mark.parametrize("name", ["-eve", "+eve", "~eve", ".eve", "ev e", "../eve", "e/ve", "10003", "e\x01ve", "e,ve"])
def test_names_that_are_other_words(service: Names, name: str) -> None:
    assert service.user(f"{name}:x:10003:10003::/home/eve:/bin/sh") == ""


@pytest.mark.parametrize("name", ["root", "slurm"])
def test_no_other_id_has_the_name_of_an_account_of_the_pod(service: Names, name: str) -> None:
    """Slurm takes who may do what from a name that it found by the id."""
    (service.jail / "passwd").write_text(f"{name}:x:10003:10003::/home/eve:/bin/sh\n{ALICE}\n")
    assert service.ask("passwd", "10003") == service.ask("passwd", name) == ""
    assert service.ask("passwd", "alice") == ALICE


@pytest.mark.parametrize("home", ["", "home/eve", "/home/../../etc", "/..", "/home/eve/..", "/ho\x1bme"])
def test_homes_that_lead_elsewhere(service: Names, home: str) -> None:
    assert service.user(f"eve:x:10003:10003::{home}:/bin/sh") == ""


def test_a_home_with_dots_in_its_name(service: Names) -> None:
    line = "eve:x:10003:10003::/home/..eve.d/...:/bin/sh"
    assert service.user(line) == line


@pytest.mark.parametrize("what", ["pipe", "link", "link to itself open", "directory", "device", "nothing"])
def test_what_lies_there_instead_is_not_read(service: Names, what: str) -> None:
    """A pipe would be waited for; a link could lead to any file of the pod's."""
    for name in ("passwd", "group"):
        place = service.jail / name
        place.rename(service.jail / f"{name}.real")
        if what == "pipe":
            os.mkfifo(place)
        elif what == "link":
            place.symlink_to(f"{name}.real")
        elif what == "link to itself open":
            place.symlink_to("/proc/self/fd/0")
        elif what == "directory":
            place.mkdir()
        elif what == "device":
            if os.geteuid() != 0:
                pytest.skip("only root makes devices")
            os.mknod(place, 0o20666, os.makedev(1, 5))
        assert service.ask(name) == service.ask(name, "alice") == service.ask(name, "10001") == ""
    assert service.ask("initgroups", "alice").split() in ([], ["alice"])


def test_a_link_in_the_place_of_the_directory(service: Names) -> None:
    service.jail.rename(service.jail.parent / "other")
    service.jail.symlink_to("other")
    assert service.ask("passwd", "alice") == ""


def test_a_lease_keeps_nobody_waiting(service: Names) -> None:
    """Its owner is asked to give it back, and has 45 s for it."""
    previous = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with open(service.jail / "passwd", "r+b") as held:
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            assert service.ask("passwd", "alice") == ""
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    finally:
        signal.signal(signal.SIGIO, previous)
    assert service.ask("passwd", "alice") == ALICE


def test_a_file_without_end(service: Names) -> None:
    """A line of a megabyte and more is the end of it, and so is a file of 32 megabytes."""
    (service.jail / "passwd").write_text(
        f"{ALICE}\neve:x:10003:10003:{'x' * 2 * MEGABYTE}:/home/eve:/bin/sh\nbob:x:10002:10002::/home/bob:/bin/sh\n"
    )
    assert service.ask("passwd", "alice") == ALICE
    assert service.ask("passwd", "eve") == service.ask("passwd", "bob") == ""
    with open(service.jail / "passwd", "ab") as file:
        file.truncate(33 * MEGABYTE)
    assert service.ask("passwd", "alice") == ""


def test_a_file_that_grows_while_it_is_read(service: Names) -> None:
    over = threading.Event()

    def grow() -> None:
        with open(service.jail / "passwd", "ab", buffering=0) as file:
            while not over.is_set() and file.tell() < 64 * MEGABYTE:
                file.write(b"#" * 1023 + b"\n")

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        assert service.ask("passwd", "nobody-is") == ""
    finally:
        over.set()
        thread.join()
