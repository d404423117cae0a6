# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Homes and keys that are made at the first login, in a jail whose root may plant anything."""

from __future__ import annotations

import os
import pathlib
import stat

import first_login
import pytest
from corral_users import UsersError
from corral_users.document import User

LEA = User("lea", 20001, 30000, (), (), False, "/bin/bash")


def test_a_home_is_made_of_the_skeleton_once(jail: pathlib.Path) -> None:
    assert first_login.prepare(str(jail), "/home", LEA, "/home/lea")
    home = jail / "home/lea"
    status = home.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (20001, 30000, 0o700)
    assert (home / ".bashrc").stat().st_uid == 20001
    (home / ".bashrc").unlink()
    assert not first_login.prepare(str(jail), "/home", LEA, "/home/lea")
    assert not (home / ".bashrc").exists()


def test_a_home_of_another_name_below_a_folder(jail: pathlib.Path) -> None:
    (jail / "home/optics").mkdir()
    assert first_login.prepare(str(jail), "/home", LEA, "/home/optics/l.e")
    assert (jail / "home/optics/l.e").stat().st_uid == 20001
    with pytest.raises(UsersError, match="home/chemistry of the jail cannot be used"):
        first_login.prepare(str(jail), "/home", LEA, "/home/chemistry/lea")


@pytest.mark.parametrize("home", ["/etc/cron.d", "/", "", "/home", "/home/", "/home/../etc/x", "/home//x", "/homes/x", "home/x"])
def test_no_other_place_is_touched(jail: pathlib.Path, home: str) -> None:
    before = {str(path) for path in jail.rglob("*")}
    assert not first_login.prepare(str(jail), "/home", LEA, home)
    assert {str(path) for path in jail.rglob("*")} == before


def test_planted_links_lead_nowhere(jail: pathlib.Path, tmp_path: pathlib.Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    os.symlink(outside, jail / "home/optics")
    with pytest.raises(UsersError, match="a link or no directory"):
        first_login.prepare(str(jail), "/home", LEA, "/home/optics/lea")
    os.symlink(outside / "new", jail / "home/lea")
    assert not first_login.prepare(str(jail), "/home", LEA, "/home/lea")
    assert list(outside.iterdir()) == []


@pytest.fixture
def workers(jail: pathlib.Path) -> pathlib.Path:
    """The jail, with workers that have sshd."""
    folder = jail / "etc/ssh/ssh_config.d"
    folder.mkdir(parents=True)
    (folder / "20-corral.conf").write_text("Host cpu-*\n")
    # The user himself makes the key, and pytest's folders are root's alone.
    for path in (*jail.parents[:3], jail, jail / "home"):
        path.chmod(0o755)
    return jail


def test_a_key_for_the_workers_comes_with_the_home_where_they_have_sshd(workers: pathlib.Path) -> None:
    assert first_login.prepare(str(workers), "/home", LEA, "/home/l.e") == ["/home/l.e", "/home/l.e/.ssh/corral"]
    key = workers / "home/l.e/.ssh/corral"
    assert (key.stat().st_uid, stat.S_IMODE(key.stat().st_mode)) == (20001, 0o600)


def test_who_came_by_useradd_gets_a_key_too(workers: pathlib.Path) -> None:
    home = workers / "home/guest"
    home.mkdir(mode=0o700)
    os.chown(home, 20001, 30000)
    assert first_login.prepare(str(workers), "", LEA, "/home/guest") == ["/home/guest/.ssh/corral"]
    files = {path.name: (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) for path in (home / ".ssh").iterdir()}
    assert files == {"corral": (20001, 0o600), "corral.pub": (20001, 0o644)}
    assert os.geteuid() == 0
    assert first_login.prepare(str(workers), "", LEA, "/home/guest") == []


def test_a_home_that_is_not_his_gets_nothing(workers: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (workers / "home/shared").mkdir(mode=0o777)
    assert first_login.prepare(str(workers), "", LEA, "/home/shared") == []
    (workers / "home/link").symlink_to(tmp_path)
    assert first_login.prepare(str(workers), "", LEA, "/home/link") == []
    assert first_login.prepare(str(workers), "", LEA, "/home/missing") == [], "homes are made of a directory's users alone"
    system = User("daemon", 500, 500, (), (), False, "/bin/sh")
    os.chown(workers / "home/shared", 500, 500)
    assert first_login.prepare(str(workers), "", system, "/home/shared") == []


def test_his_own_rights_are_enough_and_are_all(workers: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A link of theirs to a folder of root's leads them nowhere."""
    home, outside = workers / "home/guest", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    os.symlink(outside, home / ".ssh")
    os.chown(home, 20001, 30000)
    assert first_login.prepare(str(workers), "", LEA, "/home/guest") == ["/home/guest/.ssh/corral"]
    assert list(outside.iterdir()) == [] and (home / ".ssh").is_dir() and not (home / ".ssh").is_symlink()
