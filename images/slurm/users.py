#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Writes a cluster's users and groups into its jail: accounts, homes, ssh keys, sudo; and the directories that volumes are mounted on.
A second run changes nothing.

The document (JSON):  {"groups": [{name, gid}], "users": [{name, uid, gid, groups, sshKeys, sudo, shell}], "mountPoints": [path]}
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys

from corral_users import UsersError
from corral_users.accounts import Accounts, Ours, read_state, write_state, write_sudoers
from corral_users.document import Document, read_document
from corral_users.files import DIRECTORY, directory, locked, make_directories, opened, read
from corral_users.homes import make_home, write_keys

MARKER = "corral-jail"


def apply(jail: str, wanted: Document, homes_at: str | None = None) -> list[str]:
    """Makes the jail have the wanted users; returns what changed, a line each. Raises UsersError.

    ``homes_at`` is the volume that is /home of the jail, where it is one of its own.
    """
    root = os.open(jail, DIRECTORY)
    try:
        with directory(root, "etc") as etc:
            if read(etc, MARKER) is None:
                raise UsersError(f"{jail} is no populated jail (etc/{MARKER} is missing): look at the populate job")
            # Here and once: each kubelet would make them as it likes, all at the same time.
            made = [f"made {path} to mount on" for path in wanted.mount_points if make_directories(root, path)]
            with locked(etc):
                ours = read_state(etc)
                accounts = Accounts(etc)
                accounts.check(wanted, ours)
                now = Ours({u.name: u.uid for u in wanted.users}, {g.name: g.gid for g in wanted.groups})
                # Before the accounts: a run that dies in between must know them as its own when it comes again.
                write_state(etc, Ours({**ours.users, **now.users}, {**ours.groups, **now.groups}))
                with opened(homes_at) if homes_at else directory(root, "home") as home:
                    homes = [f"made /home/{u.name}" for u in wanted.users if make_home(root, home, u)]
                    keys = [f"wrote the ssh keys of {u.name}" for u in wanted.users if write_keys(home, u)]
                accounts.apply(wanted, ours)
                accounts.save()
                sudo = write_sudoers(etc, wanted.users)
                write_state(etc, now)
        return [*made, *accounts.changes, *homes, *keys, *sudo]
    finally:
        os.close(root)


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0 when the users are as wanted, 1 with one sentence otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--jail", default=os.environ.get("CORRAL_JAIL", "/mnt/jail"))
    parser.add_argument("--homes", default=os.environ.get("CORRAL_HOMES"), help="volume of the homes, where they have one of their own")
    parser.add_argument("--document", default="/etc/corral/users/users.json")
    parser.add_argument("--termination-log", default="/dev/termination-log")
    given = parser.parse_args(arguments)
    os.umask(0o077)
    try:
        with open(given.document, encoding="utf-8") as file:
            wanted = read_document(file.read())
        changes = apply(given.jail, wanted, given.homes)
    except (UsersError, OSError) as error:
        print(f"users: {error}", file=sys.stderr)
        with contextlib.suppress(OSError), open(os.open(given.termination_log, os.O_WRONLY), "w", encoding="utf-8") as file:
            file.write(f"{error}\n")
        return 1
    for line in changes or ["nothing to change"]:
        print(f"users: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
