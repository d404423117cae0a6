#!/usr/bin/python3 -I
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""first_login.py JAIL [HOMES]: makes what a user lacks before their session enters the jail. Called by PAM (first_login.sh), as root.

Their home, for a user of a directory, if it is below HOMES, a path of the jail: the directory's administrator is not the jail's. pam_mkhomedir cannot do
it: it would make /home/… of the pod, or, in the jail, follow the links that are planted there.

Their key for the workers, which the document's users have already: a user from useradd or a directory gets it here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import pwd
import stat
import sys
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from corral_users import UsersError
from corral_users.document import FIRST_ID, User
from corral_users.files import DIRECTORY, directory, locked
from corral_users.homes import make_home, make_key_for_workers
from corral_users.ssh import FOLDER, NAME


def say(text: str) -> None:
    """A line of the container's log: PAM takes what is printed away."""
    with contextlib.suppress(OSError), open("/proc/1/fd/2", "a", encoding="utf-8") as log:
        log.write(f"first_login: {text}\n")


def place_of(home: str) -> tuple[list[str], str] | None:
    """The names on the way to a home and its own, below the jail's root; None where it is no path to one."""
    names = home.split("/")
    if len(names) < 3 or names[0] or {"", ".", ".."} & set(names[1:]):
        return None
    return names[1:-1], names[-1]


def reaches_workers(root: int) -> bool:
    """Whether the job that writes users configured ssh to reach workers."""
    with contextlib.suppress(UsersError), directory(root, *FOLDER.strip("/").split("/")) as folder:
        return NAME in os.listdir(folder)
    return False


def owner(parent: int, name: str) -> int | None:
    """Whose directory it is; None where there is nothing, -1 where it is something else."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_uid if stat.S_ISDIR(found.st_mode) else -1


@contextlib.contextmanager
def acting_as(user: User) -> Iterator[None]:
    """In their home with their rights and no others: a file server may give root none."""
    uid, gid, groups = os.geteuid(), os.getegid(), os.getgroups()
    os.setgroups([])
    os.setegid(user.gid)
    os.seteuid(user.uid)
    try:
        yield
    finally:
        os.seteuid(uid)
        os.setegid(gid)
        os.setgroups(groups)


def prepare(jail: str, homes: str, user: User, home: str) -> list[str]:
    """Make what is missing; returns what was made. Raises UsersError."""
    place = place_of(home)
    if place is None or user.uid < FIRST_ID:
        return []
    parents, name = place
    # The folder's name may be another than the user's.
    named, made = dataclasses.replace(user, name=name), []
    root = os.open(jail, DIRECTORY)
    try:
        ours = bool(homes) and home.startswith(f"{homes}/")
        with contextlib.ExitStack() as stack:
            try:
                parent = stack.enter_context(directory(root, *parents))
            except UsersError:
                if ours:
                    raise
                return []
            there = owner(parent, name)
            if not (ours if there is None else there == user.uid):
                return []
            # The lock of the job that writes users: of two logins at once, on two nodes, one makes it.
            with directory(root, "etc") as etc, locked(etc):
                if there is None and make_home(root, parent, user, name):
                    made.append(home)
                if reaches_workers(root):
                    with acting_as(user):
                        if make_key_for_workers(parent, named):
                            made.append(f"{home}/.ssh/corral")
        return made
    finally:
        os.close(root)


def main() -> int:
    """0 when there is nothing more to do, 1 with one sentence otherwise. The session begins in any case."""
    os.umask(0o077)
    name = os.environ.get("PAM_USER", "")
    jail, homes = (*sys.argv[1:3], "")[:2]
    try:
        account = pwd.getpwnam(name)
        user = User(name, account.pw_uid, account.pw_gid, (), (), False, account.pw_shell)
        for path in prepare(jail, homes, user, account.pw_dir):
            say(f"made {path} for {name}")
    except KeyError:
        return 0
    except (UsersError, OSError) as error:
        say(f"{name} lacks something that could not be made: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
