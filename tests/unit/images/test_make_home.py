# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Homes that are made at the first login, in a jail whose root may plant anything."""

from __future__ import annotations

import os
import pathlib
import stat

import make_home
import pytest
from corral_users import UsersError
from corral_users.document import User

LEA = User("lea", 20001, 30000, (), (), False, "/bin/bash")


def test_a_home_is_made_of_the_skeleton_once(jail: pathlib.Path) -> None:
    assert make_home.make(str(jail), "/home", LEA, "/home/lea")
    home = jail / "home/lea"
    status = home.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (20001, 30000, 0o700)
    assert (home / ".bashrc").stat().st_uid == 20001
    (home / ".bashrc").unlink()
    assert not make_home.make(str(jail), "/home", LEA, "/home/lea")
    assert not (home / ".bashrc").exists()


def test_a_home_of_another_name_below_a_folder(jail: pathlib.Path) -> None:
    (jail / "home/optics").mkdir()
    assert make_home.make(str(jail), "/home", LEA, "/home/optics/l.e")
    assert (jail / "home/optics/l.e").stat().st_uid == 20001
    with pytest.raises(UsersError, match="home/chemistry of the jail can not be used"):
        make_home.make(str(jail), "/home", LEA, "/home/chemistry/lea")


@pytest.mark.parametrize("home", ["/etc/cron.d", "/", "", "/home", "/home/", "/home/../etc/x", "/home//x", "/homes/x", "home/x"])
def test_no_other_place_is_touched(jail: pathlib.Path, home: str) -> None:
    before = {str(path) for path in jail.rglob("*")}
    assert not make_home.make(str(jail), "/home", LEA, home)
    assert {str(path) for path in jail.rglob("*")} == before


def test_planted_links_lead_nowhere(jail: pathlib.Path, tmp_path: pathlib.Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    os.symlink(outside, jail / "home/optics")
    with pytest.raises(UsersError, match="a link or no directory"):
        make_home.make(str(jail), "/home", LEA, "/home/optics/lea")
    os.symlink(outside / "new", jail / "home/lea")
    assert not make_home.make(str(jail), "/home", LEA, "/home/lea")
    assert list(outside.iterdir()) == []


def test_a_key_for_the_workers_comes_with_the_home_where_they_have_sshd(jail: pathlib.Path) -> None:
    assert make_home.make(str(jail), "/home", LEA, "/home/lea")
    assert not (jail / "home/lea/.ssh").exists()
    folder = jail / "etc/ssh/ssh_config.d"
    folder.mkdir(parents=True)
    (folder / "20-corral.conf").write_text("Host cpu-*\n")
    assert make_home.make(str(jail), "/home", LEA, "/home/l.e")
    key = jail / "home/l.e/.ssh/corral"
    assert (key.stat().st_uid, stat.S_IMODE(key.stat().st_mode)) == (20001, 0o600)
