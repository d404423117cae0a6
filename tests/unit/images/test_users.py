# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""users.py on a jail on disk."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import pytest
import users
from corral_users import UsersError, parts, watch
from corral_users.document import read_document
from corral_users.homes import BEGIN, END, with_keys

from ansible_collections.corral.slurm.plugins.module_utils._cluster import accounts

ALICE: dict[str, Any] = {
    "name": "alice",
    "uid": 10001,
    "gid": 10001,
    "groups": ["lab"],
    "sshKeys": ["ssh-ed25519 AAAA alice@home"],
    "sudo": True,
}
BOB: dict[str, Any] = {"name": "bob", "uid": 10002, "gid": 20000, "sshKeys": ["ssh-ed25519 BBBB"], "shell": "/bin/sh"}
LAB = {"name": "lab", "gid": 20000}


def apply(jail: pathlib.Path, *people: dict[str, Any], groups: tuple[dict[str, Any], ...] = (LAB,), ssh: str = "") -> list[str]:
    return users.apply(str(jail), read_document(json.dumps({"groups": groups, "users": people, "sshConfig": ssh})))


def snapshot(jail: pathlib.Path) -> dict[str, tuple[int, int, int, int]]:
    return {str(p): (s.st_ino, s.st_mtime_ns, s.st_uid, s.st_mode) for p in jail.rglob("*") for s in [p.lstat()]}


def line(jail: pathlib.Path, file: str, name: str) -> str | None:
    return next((t for t in (jail / "etc" / file).read_text().splitlines() if t.startswith(f"{name}:")), None)


def test_makes_accounts_homes_keys_and_sudo(jail: pathlib.Path) -> None:
    changes = apply(jail, ALICE, BOB)
    assert line(jail, "passwd", "alice") == "alice:x:10001:10001::/home/alice:/bin/bash"
    assert line(jail, "passwd", "bob") == "bob:x:10002:20000::/home/bob:/bin/sh"
    assert line(jail, "group", "lab") == "lab:x:20000:alice"
    assert line(jail, "group", "alice") == "alice:x:10001:"
    assert line(jail, "group", "bob") is None
    assert line(jail, "shadow", "alice") == "alice:*:::::::"
    assert line(jail, "gshadow", "lab") == "lab:!::alice"
    assert (jail / "etc/sudoers.d/corral").read_text().endswith("alice ALL=(ALL:ALL) NOPASSWD: ALL\n")
    assert stat.S_IMODE((jail / "etc/sudoers.d/corral").stat().st_mode) == 0o440
    assert stat.S_IMODE((jail / "etc/shadow").stat().st_mode) == 0o640
    home = jail / "home/alice"
    assert (home.stat().st_uid, home.stat().st_gid, stat.S_IMODE(home.stat().st_mode)) == (10001, 10001, 0o700)
    assert (home / ".bashrc").stat().st_uid == 10001
    assert (home / ".config/x").read_text() == "y\n"
    assert os.readlink(home / ".profile") == ".bashrc"
    keys = home / ".ssh/authorized_keys"
    assert keys.read_text() == f"{BEGIN}\nssh-ed25519 AAAA alice@home\n{END}\n"
    assert (keys.stat().st_uid, stat.S_IMODE(keys.stat().st_mode), stat.S_IMODE(keys.parent.stat().st_mode)) == (10001, 0o600, 0o700)
    assert any("added user alice" in c for c in changes)


def motd(jail: pathlib.Path, text: str) -> list[str]:
    return users.apply(str(jail), read_document(json.dumps({"groups": [], "users": [], "motd": text})))


def test_the_words_at_login_come_and_go_with_the_document(jail: pathlib.Path) -> None:
    file = jail / "etc/motd"
    file.write_text("the distribution's\n")
    assert motd(jail, "") == [] and file.read_text() == "the distribution's\n", "without the field it is not ours"
    assert motd(jail, "welcome\n") == ["wrote /etc/motd"]
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("welcome\n", 0o644)
    before = snapshot(jail)
    assert motd(jail, "welcome\n") == [] and snapshot(jail) == before
    assert motd(jail, "") == ["removed /etc/motd"] and not file.exists()
    assert motd(jail, "") == []


def test_words_at_login_that_somebody_changed_stay_when_the_field_goes(jail: pathlib.Path) -> None:
    motd(jail, "welcome\n")
    (jail / "etc/motd").write_text("by hand\n")
    assert motd(jail, "") == [] and (jail / "etc/motd").read_text() == "by hand\n"
    assert motd(jail, "welcome\n") == ["wrote /etc/motd"], "with the field, it is the document's"


def test_a_link_in_the_place_of_the_words_at_login_is_not_followed(jail: pathlib.Path, tmp_path: pathlib.Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("secret\n")
    (jail / "etc/motd").symlink_to(outside)
    assert motd(jail, "welcome\n") == ["wrote /etc/motd"]
    assert outside.read_text() == "secret\n" and not (jail / "etc/motd").is_symlink()


def test_second_run_writes_nothing(jail: pathlib.Path) -> None:
    apply(jail, ALICE, BOB)
    before = snapshot(jail)
    assert apply(jail, ALICE, BOB) == []
    assert snapshot(jail) == before


def test_foreign_lines_stay_byte_for_byte(jail: pathlib.Path) -> None:
    before = {name: (jail / "etc" / name).read_text() for name in ("passwd", "group", "shadow", "gshadow")}
    apply(jail, ALICE)
    apply(jail, groups=())
    assert {name: (jail / "etc" / name).read_text() for name in before} == before


def test_removal_keeps_home_and_takes_memberships(jail: pathlib.Path) -> None:
    apply(jail, ALICE, BOB)
    group = jail / "etc/group"
    group.write_text(group.read_text().replace("video:x:44:guest", "video:x:44:guest,alice"))
    changes = apply(jail, BOB)
    assert line(jail, "passwd", "alice") is None and line(jail, "shadow", "alice") is None and line(jail, "group", "alice") is None
    assert line(jail, "group", "video") == "video:x:44:guest"
    assert (jail / "home/alice/.bashrc").exists()
    assert not (jail / "etc/sudoers.d/corral").exists()
    assert "removed user alice (its home stays)" in changes
    assert any("made /home" in c for c in changes) is False


def test_passwords_and_members_of_others_are_kept(jail: pathlib.Path) -> None:
    apply(jail, ALICE)
    shadow, group = jail / "etc/shadow", jail / "etc/group"
    shadow.write_text(shadow.read_text().replace("alice:*:", "alice:$y$set:"))
    group.write_text(group.read_text().replace("lab:x:20000:alice", "lab:x:20000:guest,alice"))
    assert apply(jail, ALICE) == []
    assert line(jail, "shadow", "alice") == "alice:$y$set:::::::"
    apply(jail, {**ALICE, "groups": []})
    assert line(jail, "group", "lab") == "lab:x:20000:guest"


@pytest.mark.parametrize(
    ("person", "groups", "words"),
    [
        ({"name": "guest", "uid": 10003}, [], "not corral's"),
        ({"name": "root", "uid": 10003}, [], "not corral's"),
        ({"name": "eve", "uid": 5000}, [], "the id 5000 is that of guest"),
        ({"name": "eve", "uid": 999}, [], "not an id"),
        ({"name": "eve", "uid": True}, [], "not an id"),
        ({"name": "eve", "uid": 10003, "gid": 30000}, [], "no group has the gid 30000"),
        ({"name": "eve", "uid": 10003, "groups": ["nope"]}, [], "no group nope"),
        ({"name": "Eve", "uid": 10003}, [], "not a name"),
        ({"name": "e:v", "uid": 10003}, [], "not a name"),
        ({"name": "eve\n", "uid": 10003}, [], "not a name"),
        ({"name": "eve", "uid": 10003, "shell": "sh"}, [], "not an absolute path"),
        ({"name": "eve", "uid": 10003, "shell": "/bin/sh\nroot::0"}, [], "not an absolute path"),
        ({"name": "eve", "uid": 10003, "sshKeys": ["a\nb"]}, [], "not one line"),
        ({"name": "eve", "uid": 10003}, [{"name": "video", "gid": 30000}], "not corral's"),
        ({"name": "eve", "uid": 10003}, [{"name": "a", "gid": 30000}, {"name": "b", "gid": 30000}], "twice"),
    ],
)
def test_refuses_with_a_sentence_and_writes_nothing(jail: pathlib.Path, person: dict[str, Any], groups: list[Any], words: str) -> None:
    before = {n: (jail / "etc" / n).read_text() for n in ("passwd", "group", "shadow", "gshadow")}
    with pytest.raises(UsersError, match=words):
        apply(jail, person, groups=tuple(groups))
    assert {n: (jail / "etc" / n).read_text() for n in before} == before
    assert not list((jail / "home").iterdir())


def test_uid_of_a_user_never_changes(jail: pathlib.Path) -> None:
    apply(jail, ALICE)
    with pytest.raises(UsersError, match="keep the uid"):
        apply(jail, {**ALICE, "uid": 10009, "gid": 10009})


def test_state_can_not_claim_system_accounts(jail: pathlib.Path) -> None:
    (jail / "etc/corral-users.json").write_text(json.dumps({"users": {"root": 0}, "groups": {"root": 0, "video": 44}}))
    apply(jail, groups=())
    assert line(jail, "passwd", "root") and line(jail, "group", "video")


def test_run_that_died_after_the_state_goes_on(jail: pathlib.Path) -> None:
    apply(jail, ALICE)
    passwd = (jail / "etc/passwd").read_text()
    (jail / "etc/passwd").write_text("".join(t for t in passwd.splitlines(keepends=True) if not t.startswith("alice:")))
    assert apply(jail, ALICE) == ["added user alice (10001)"]


def test_damaged_state_is_named(jail: pathlib.Path) -> None:
    (jail / "etc/corral-users.json").write_text("{")
    with pytest.raises(UsersError, match="damaged"):
        apply(jail, ALICE)


def test_no_marker_no_jail(jail: pathlib.Path) -> None:
    (jail / "etc/corral-jail").unlink()
    with pytest.raises(UsersError, match="no populated jail"):
        apply(jail, ALICE)


class TestPlantedLinks:
    """The jail's users may be root in it: a link must never lead a write or a read out of it."""

    @pytest.mark.parametrize("name", ["etc/passwd", "etc/corral-users.json", "etc/sudoers.d", "home", "etc/skel", "etc/.pwd.lock"])
    def test_link_in_the_place_of_a_system_file_is_refused(self, jail: pathlib.Path, tmp_path: pathlib.Path, name: str) -> None:
        outside = tmp_path / "outside"
        place = jail / name
        if place.is_dir():
            outside.mkdir()
            place.rename(tmp_path / "away")
        else:
            outside.write_text("root:x:0:0::/:/bin/sh\n")
            place.unlink(missing_ok=True)
        before = outside.lstat()
        os.symlink(outside, place)
        with pytest.raises((UsersError, OSError)):
            apply(jail, ALICE)
        after = outside.lstat()
        assert (before.st_ino, before.st_mtime_ns, before.st_uid) == (after.st_ino, after.st_mtime_ns, after.st_uid)
        assert not outside.is_dir() or not list(outside.iterdir())

    def test_home_that_is_a_link_is_refused(self, jail: pathlib.Path, tmp_path: pathlib.Path) -> None:
        os.symlink(tmp_path, jail / "home/alice")
        with pytest.raises(UsersError, match="no directory of uid"):
            apply(jail, ALICE)

    @pytest.mark.parametrize("kind", ["link", "file", "fifo"])
    def test_ssh_folder_of_another_kind_is_set_aside(self, jail: pathlib.Path, tmp_path: pathlib.Path, kind: str) -> None:
        apply(jail, {**ALICE, "sshKeys": []})
        ssh, outside = jail / "home/alice/.ssh", tmp_path / "outside"
        outside.mkdir()
        for entry in ssh.iterdir():
            entry.unlink()
        ssh.rmdir()
        {"link": lambda: os.symlink(outside, ssh), "file": ssh.touch, "fifo": lambda: os.mkfifo(ssh)}[kind]()
        apply(jail, ALICE)
        assert not ssh.is_symlink() and (ssh / "authorized_keys").read_text().count("AAAA") == 1
        assert not list(outside.iterdir())
        assert len(list(ssh.parent.glob(".ssh.before-corral-*"))) == 1

    @pytest.mark.parametrize("kind", ["symlink", "hardlink", "root's", "folder"])
    def test_keys_file_never_copies_a_secret(self, jail: pathlib.Path, tmp_path: pathlib.Path, kind: str) -> None:
        apply(jail, ALICE)
        secret = tmp_path / "secret"
        secret.write_text("TOP SECRET\n")
        keys = jail / "home/alice/.ssh/authorized_keys"
        keys.unlink()
        if kind == "symlink":
            os.symlink(secret, keys)
        elif kind == "hardlink":
            os.chown(secret, 10001, 10001)
            os.link(secret, keys)
        elif kind == "root's":
            keys.write_text("TOP SECRET\n")
        else:
            keys.mkdir()
        apply(jail, ALICE)
        assert "SECRET" not in keys.read_text() and "AAAA" in keys.read_text()
        assert secret.read_text() == "TOP SECRET\n"


def test_own_keys_of_a_user_stay(jail: pathlib.Path) -> None:
    apply(jail, ALICE)
    keys = jail / "home/alice/.ssh/authorized_keys"
    keys.write_text(keys.read_text() + "ssh-rsa MINE\n")
    assert apply(jail, ALICE) == []
    apply(jail, {**ALICE, "sshKeys": ["ssh-ed25519 NEW"]})
    assert keys.read_text() == f"{BEGIN}\nssh-ed25519 NEW\n{END}\nssh-rsa MINE\n"


@pytest.mark.parametrize(
    ("old", "keys", "new"),
    [
        ("", ("k",), f"{BEGIN}\nk\n{END}\n"),
        (f"a\n{BEGIN}\nold\n{END}\nb\n", ("k",), f"{BEGIN}\nk\n{END}\na\nb\n"),
        (f"a\n{BEGIN}\nold\n{END}\n", (), "a\n"),
        (f"{BEGIN}\nold\n", ("k",), f"{BEGIN}\nk\n{END}\n"),
        (f"{END}\nmine\n", (), f"{END}\nmine\n"),
    ],
)
def test_block_of_keys(old: str, keys: tuple[str, ...], new: str) -> None:
    assert with_keys(old, keys) == new
    assert with_keys(new, keys) == new


def test_no_sudo_in_the_jail_is_a_warning(jail: pathlib.Path) -> None:
    (jail / "etc/sudoers.d").rmdir()
    assert any("install sudo" in c for c in apply(jail, ALICE))


def test_command_tells_what_it_did_and_why_not(jail: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    document, log = tmp_path / "users.json", tmp_path / "log"
    log.touch()
    document.write_text(json.dumps({"groups": [LAB], "users": [ALICE]}))
    arguments = ["--jail", str(jail), "--document", str(document), "--termination-log", str(log)]
    assert users.main(arguments) == 0
    assert users.main(arguments) == 0
    assert capsys.readouterr().out.endswith("users: nothing to change\n")
    document.write_text(json.dumps({"users": [{"name": "guest", "uid": 10003}]}))
    assert users.main(arguments) == 1
    assert "guest is in the jail already" in capsys.readouterr().err
    assert "guest is in the jail already" in log.read_text()


def test_mount_points_are_made_once_and_lead_nowhere_else(jail: pathlib.Path) -> None:
    document = read_document(json.dumps({"mountPoints": ["/data/fast", "/home"]}))
    assert users.apply(str(jail), document) == ["made /data/fast to mount on"]
    made = (jail / "data/fast").stat()
    assert (made.st_uid, stat.S_IMODE(made.st_mode)) == (os.getuid(), 0o755)
    assert users.apply(str(jail), document) == []
    os.symlink("/tmp", jail / "link")
    with pytest.raises(UsersError, match="a link or no directory"):
        users.apply(str(jail), read_document(json.dumps({"mountPoints": ["/link/x"]})))
    with pytest.raises(UsersError, match="without"):
        read_document(json.dumps({"mountPoints": ["/a/../b"]}))


def test_homes_are_made_on_the_volume_that_is_home(jail: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Where /home is a volume of its own, what lies under it in the jail is seen by nobody."""
    volume = tmp_path / "homes"
    volume.mkdir()
    document = read_document(json.dumps({"groups": [LAB], "users": [ALICE]}))
    assert "made /home/alice" in users.apply(str(jail), document, str(volume))
    assert (volume / "alice/.ssh/authorized_keys").exists()
    assert not (jail / "home/alice").exists()
    assert users.apply(str(jail), document, str(volume)) == []


def test_workers_are_reached_with_a_key_of_the_users_own(jail: pathlib.Path) -> None:
    config = "Host worker-*\n    HostName demo-%h\n"
    changes = apply(jail, ALICE, ssh=config)
    assert "made alice a key for the workers" in changes
    written = jail / "etc/ssh/ssh_config.d/20-corral.conf"
    assert (written.read_text(), stat.S_IMODE(written.stat().st_mode)) == (config, 0o644)
    private, public = jail / "home/alice/.ssh/corral", jail / "home/alice/.ssh/corral.pub"
    assert private.read_text().startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert public.read_text().startswith("ssh-ed25519 ") and public.read_text().endswith(" alice within the cluster\n")
    assert (private.stat().st_uid, stat.S_IMODE(private.stat().st_mode), public.stat().st_uid) == (10001, 0o600, 10001)
    before = snapshot(jail)
    assert apply(jail, ALICE, ssh=config) == []
    assert snapshot(jail) == before


def test_without_workers_there_is_no_way_to_them(jail: pathlib.Path) -> None:
    apply(jail, ALICE)
    assert not (jail / "etc/ssh").exists() and not (jail / "home/alice/.ssh/corral").exists()
    apply(jail, ALICE, ssh="Host worker-*\n")
    assert apply(jail, ALICE) == ["wrote how ssh reaches the workers"]
    assert not (jail / "etc/ssh/ssh_config.d/20-corral.conf").exists()


def test_a_planted_link_is_not_followed_for_the_key(jail: pathlib.Path, tmp_path: pathlib.Path) -> None:
    apply(jail, ALICE)
    precious = tmp_path / "precious"
    precious.write_text("x")
    os.symlink(precious, jail / "home/alice/.ssh/corral")
    apply(jail, ALICE, ssh="Host worker-*\n")
    assert precious.read_text() == "x" and not (jail / "home/alice/.ssh/corral").is_symlink()
    (jail / "etc/ssh/ssh_config.d/20-corral.conf").unlink()
    os.rmdir(jail / "etc/ssh/ssh_config.d")
    os.symlink(tmp_path, jail / "etc/ssh/ssh_config.d")
    with pytest.raises(UsersError, match=r"ssh_config\.d"):
        apply(jail, ALICE, ssh="Host worker-*\n")


def test_homes_of_somebody_else_are_left_alone(jail: pathlib.Path) -> None:
    document = read_document(json.dumps({"groups": [LAB], "users": [ALICE]}))
    assert users.apply(str(jail), document, "none") == [
        "added group lab (20000)",
        "added group alice (10001)",
        "added user alice (10001)",
        "sudo for alice",
    ]
    assert os.listdir(jail / "home") == []


def test_accounts_alone(tmp_path: pathlib.Path) -> None:
    """What slurmctld needs of a jail, made from nothing."""
    if os.geteuid() != 0:
        pytest.skip("changing owners needs root")
    document = read_document(json.dumps({"groups": [LAB], "users": [ALICE], "mountPoints": ["/data"]}))
    assert users.apply_accounts(str(tmp_path), document)
    assert line(tmp_path, "passwd", "alice") == "alice:x:10001:10001::/home/alice:/bin/bash"
    assert line(tmp_path, "group", "lab") == "lab:x:20000:alice"
    assert stat.S_IMODE((tmp_path / "etc/passwd").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "etc").stat().st_mode) == 0o755
    assert os.listdir(tmp_path) == ["etc"]
    assert users.apply_accounts(str(tmp_path), document) == []
    assert users.apply_accounts(str(tmp_path), read_document("{}"))
    assert (tmp_path / "etc/passwd").read_text() == ""


def test_watch_follows_the_document_and_goes_on_after_a_mistake(jail: pathlib.Path, tmp_path: pathlib.Path) -> None:
    document, written = tmp_path / "users.json", tmp_path / "written"

    def give(*people: dict[str, Any]) -> str:
        text = json.dumps({"groups": [LAB], "users": people})
        (tmp_path / "new").write_text(text)
        os.replace(tmp_path / "new", document)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def comes(words: str) -> None:
        until = time.monotonic() + 30
        while not written.exists() or words not in written.read_text():
            assert time.monotonic() < until, (words, written.exists() and written.read_text())
            time.sleep(0.05)

    first = give(ALICE)
    arguments = ["--watch", "--jail", str(jail), "--document", str(document), "--written", str(written)]
    program = subprocess.Popen([sys.executable, users.__file__, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        comes(first)
        comes(give(ALICE, BOB))
        assert line(jail, "passwd", "bob")
        give({**ALICE, "name": "guest"})
        comes("guest is in the jail already")
        comes(give(BOB))
        assert line(jail, "passwd", "alice") is None
    finally:
        program.terminate()
        out, err = program.communicate(timeout=10)
    assert program.returncode == 0
    assert "users: added user bob (10002)" in out
    assert err.count("this is tried again") == 1


def test_watch_does_not_begin_with_a_mistake(jail: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = tmp_path / "users.json"
    document.write_text(json.dumps({"users": [{"name": "guest", "uid": 10003}]}))
    arguments = [
        "--watch",
        "--jail",
        str(jail),
        "--document",
        str(document),
        "--written",
        str(tmp_path / "written"),
        "--termination-log",
        os.devnull,
    ]
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert users.main(arguments) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "guest is in the jail already" in capsys.readouterr().err
    assert not (tmp_path / "written").exists()


def split(folder: pathlib.Path, *texts: str) -> str:
    """Writes the parts of a document as their ConfigMaps would show them, and returns what its first file says."""
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    for number, text in enumerate(texts):
        (folder / f"users.json.{number}").write_text(text)
    (folder / "users.json").write_text(json.dumps(digests))
    return (folder / "users.json").read_text()


WHOLE = json.dumps({"groups": [LAB], "users": [ALICE, {**BOB, "name": "zoë"}]}, ensure_ascii=False)


@pytest.mark.parametrize("cuts", [(), (40,), (40, 90), (0,), (len(WHOLE),)])
def test_a_document_is_one_file_or_its_parts(tmp_path: pathlib.Path, cuts: tuple[int, ...]) -> None:
    ends = (0, *cuts, len(WHOLE))
    first = split(tmp_path, *(WHOLE[start:end] for start, end in itertools.pairwise(ends)))
    path = str(tmp_path / "users.json")
    assert parts.whole(path, first) == parts.settled(path) == WHOLE
    assert parts.whole(path, WHOLE) == WHOLE, "by itself it needs no parts"


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '"text"', '{"users": []}'])
def test_what_names_no_parts_is_the_document(tmp_path: pathlib.Path, text: str) -> None:
    assert parts.whole(str(tmp_path / "users.json"), text) == text


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("older", "part 2 of 2 of the users is of another version than the first file"),
        ("missing", "part 2 of 2 of the users is missing"),
        ("cut", "part 2 of 2 of the users is of another version"),
        ("swapped", "part 1 of 2 of the users is of another version"),
    ],
)
def test_parts_that_do_not_fit_are_no_document(tmp_path: pathlib.Path, trouble: str, words: str) -> None:
    first = split(tmp_path, WHOLE[:50], WHOLE[50:])
    one, two = tmp_path / "users.json.0", tmp_path / "users.json.1"
    if trouble == "older":
        two.write_text(WHOLE[50:].replace("alice", "older"))
    elif trouble == "missing":
        two.unlink()
    elif trouble == "cut":
        two.write_text(WHOLE[50:-1])
    else:
        one.write_text(WHOLE[50:])
        two.write_text(WHOLE[:50])
    with pytest.raises(parts.Incomplete, match=words):
        parts.whole(str(tmp_path / "users.json"), first)
    with pytest.raises(parts.Incomplete, match=words):
        parts.settled(str(tmp_path / "users.json"), patience=0)


def test_the_job_waits_for_the_parts_and_says_which_never_came(
    jail: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps({"groups": [LAB], "users": [ALICE, BOB]})
    split(tmp_path, text[:50], text[50:])
    late, log = tmp_path / "users.json.1", tmp_path / "log"
    late.unlink()
    log.touch()
    arguments = ["--jail", str(jail), "--document", str(tmp_path / "users.json"), "--termination-log", str(log)]
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(parts, "time", types.SimpleNamespace(monotonic=lambda: now[0], sleep=pause))
    before = snapshot(jail)
    assert users.main(arguments) == 1 and now[0] > parts.PATIENCE
    assert "part 2 of 2 of the users is missing" in log.read_text() and snapshot(jail) == before

    def comes(seconds: float) -> None:
        pause(seconds)
        late.write_text(text[50:])

    monkeypatch.setattr(parts, "time", types.SimpleNamespace(monotonic=lambda: now[0], sleep=comes))
    assert users.main(arguments) == 0
    assert line(jail, "passwd", "bob")


class Enough(Exception):
    """All steps have been taken."""


def test_watch_takes_a_document_only_when_it_is_whole(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kubelet may show while versions follow one another, read each time: what was written after it, and what the note says."""
    path, written = tmp_path / "users.json", tmp_path / "written"
    done: list[str] = []
    late, last = tmp_path / "users.json.1", tmp_path / "users.json.2"

    def note() -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]

    def only(text: str) -> Callable[[], object]:
        return lambda: path.write_text(text)

    def write(text: str) -> None:
        if "bad" in text:
            raise UsersError("it is bad")
        done.append(text)

    steps: list[tuple[str, Callable[[], object], list[str], Callable[[], str]]] = [
        ("the second part is not there yet", late.unlink, [], lambda: ""),
        ("it has come", lambda: late.write_text("two"), ["onetwo"], note),
        ("nothing is new", lambda: None, ["onetwo"], note),
        ("a part is lost", late.unlink, ["onetwo"], note),
        (
            "a newer version has begun to come",
            only(json.dumps([hashlib.sha256(b"new").hexdigest()] * 3)),
            ["onetwo"],
            lambda: "part 1 of 3",
        ),
        (
            "its parts come",
            lambda: (tmp_path / "users.json.0").write_text("new"),
            ["onetwo"],
            lambda: "part 2 of 3 of the users is missing",
        ),
        ("one by one", lambda: late.write_text("new"), ["onetwo"], lambda: "part 3 of 3 of the users is missing"),
        ("until it is whole", lambda: last.write_text("new"), ["onetwo", "newnewnew"], note),
        ("it fits into one file, and the parts are there still", only("{}"), ["onetwo", "newnewnew", "{}"], note),
        ("they are pruned", lambda: (late.unlink(), last.unlink()), ["onetwo", "newnewnew", "{}"], note),
        ("it cannot be written", only('{"bad": 1}'), ["onetwo", "newnewnew", "{}"], lambda: "it is bad"),
        ("that of before is back", only("{}"), ["onetwo", "newnewnew", "{}", "{}"], note),
    ]
    split(tmp_path, "one", "two")
    taken = iter(steps)
    current = next(taken)
    current[1]()

    def looked(_seconds: float) -> None:
        nonlocal current
        what, _change, expected, words = current
        said = written.read_text() if written.exists() else ""
        assert (done, words() in said, bool(said)) == (expected, True, bool(expected)), (what, said)
        try:
            current = next(taken)
        except StopIteration:
            raise Enough from None
        current[1]()

    monkeypatch.setattr(watch, "time", types.SimpleNamespace(sleep=looked))
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(Enough):
            watch.follow(str(path), str(written), write)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("text", "maps"),
    [
        ('{"users": []}', 1),
        ("x" * accounts.MOST, 1),
        ("x" * (accounts.MOST + 1), 2),
        ("x" * 2 * accounts.MOST, 2),
        ("x" * (2 * accounts.MOST + 1), 3),
        ("é" * accounts.MOST, 2),
        ("x" + "🔥" * (accounts.MOST // 2), 3),
    ],
    ids=["none", "full", "one more", "two full", "three", "of two bytes", "of four bytes"],
)
def test_what_a_run_writes_is_what_is_read(tmp_path: pathlib.Path, text: str, maps: int) -> None:
    found = accounts.maps("demo", text)
    assert [one["name"] for one in found] == accounts.names("demo")[:maps]
    for one in found:
        assert sum(len(value.encode()) for value in one["data"].values()) < 1 << 20
        for key, value in one["data"].items():
            assert not (tmp_path / key).exists(), "two ConfigMaps have the same file"
            (tmp_path / key).write_text(value)
    path = str(tmp_path / "users.json")
    assert parts.whole(path, parts.read(path)) == text
