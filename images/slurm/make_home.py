#!/usr/bin/python3 -I
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Makes the home of a user whom a directory has, at his first login, before his session enters the jail. Called by PAM (pam_exec), as root.

pam_mkhomedir can not do it: it would make /home/… of the pod, or, in the jail, follow the links that are planted there.
Only below one directory of the jail (CORRAL_LDAP_HOMES), since the directory's administrator is not the jail's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import pwd
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from corral_users import UsersError
from corral_users.document import User
from corral_users.files import DIRECTORY, directory, locked
from corral_users.homes import make_home, make_key_for_workers
from corral_users.ssh import FOLDER, NAME


def say(text: str) -> None:
    """A line of the container's log: PAM takes what is printed away."""
    with contextlib.suppress(OSError), open("/proc/1/fd/2", "a", encoding="utf-8") as log:
        log.write(f"make_home: {text}\n")


def place_of(home: str, homes: str) -> tuple[list[str], str] | None:
    """The names on the way to a home and its own, below the jail's root; None where it is none of ``homes``."""
    names = home.split("/")
    if not home.startswith(f"{homes}/") or {"", ".", ".."} & set(names[1:]):
        return None
    return names[1:-1], names[-1]


def reaches_workers(root: int) -> bool:
    """Whether the job that writes users told ssh how to reach workers."""
    with contextlib.suppress(UsersError), directory(root, *FOLDER.strip("/").split("/")) as folder:
        return NAME in os.listdir(folder)
    return False


def make(jail: str, homes: str, user: User, home: str) -> bool:
    """Make the home unless it is there; True when it was made. Raises UsersError."""
    place = place_of(home, homes)
    if place is None:
        return False
    parents, name = place
    root = os.open(jail, DIRECTORY)
    try:
        # The lock of the job that writes users: of two logins at once, on two nodes, one makes it.
        with directory(root, *parents) as parent:
            if name in os.listdir(parent):
                return False
            with directory(root, "etc") as etc, locked(etc):
                made = make_home(root, parent, user, name)
            if made and reaches_workers(root):
                # The folder's name may be another than the user's.
                make_key_for_workers(parent, dataclasses.replace(user, name=name))
            return made
    finally:
        os.close(root)


def main() -> int:
    """0 when there is nothing more to do, 1 with one sentence otherwise. The session begins in any case."""
    os.umask(0o077)
    name, homes = os.environ.get("PAM_USER", ""), os.environ.get("CORRAL_LDAP_HOMES", "/home")
    if os.environ.get("PAM_TYPE", "open_session") != "open_session":
        return 0
    try:
        account = pwd.getpwnam(name)
        user = User(name, account.pw_uid, account.pw_gid, (), (), False, account.pw_shell)
        if make(os.environ.get("CORRAL_JAIL", "/mnt/jail"), homes, user, account.pw_dir):
            say(f"made {account.pw_dir} for {name}")
    except KeyError:
        return 0
    except (UsersError, OSError) as error:
        say(f"the home of {name} could not be made: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
