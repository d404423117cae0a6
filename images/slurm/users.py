#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Writes a cluster's users and groups into its jail: accounts, homes, ssh keys, sudo; and the directories that volumes are mounted on.
A second run changes nothing. With --watch it stays, and writes them again whenever the document changes. With --compare it writes nothing, and prints what
differs from the document on its standard input.

The document (JSON):  {"groups": [{name, gid}], "users": [{name, uid, gid, groups, sshKeys, sudo, shell}], "mountPoints": [path],
"sshConfig": text, "motd": text}; or, where that is too large for one file, which parts of it there are (corral_users/parts.py)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys

from corral_users import UsersError, compare, parts, watch
from corral_users.accounts import Accounts, Ours, make_account_files, read_state, write_state, write_sudoers
from corral_users.document import Document, read_document
from corral_users.files import DIRECTORY, directory, locked, make_directories, opened, read
from corral_users.homes import make_home, make_key_for_workers, write_keys
from corral_users.motd import fingerprint, write_motd
from corral_users.ssh import write_ssh_config

MARKER = "corral-jail"
HOMES_LOCK = ".corral-homes.lock"


def apply(jail: str, wanted: Document, homes_at: str | None = None) -> list[str]:
    """Makes the jail have the wanted users; returns what changed, a line each. Raises UsersError.

    ``homes_at`` is the volume that is /home of the jail, where it is one of its own; ``none`` where homes are made by somebody else.
    """
    root = os.open(jail, DIRECTORY)
    try:
        with directory(root, "etc") as etc:
            if read(etc, MARKER) is None:
                raise UsersError(f"{jail} is no populated jail (etc/{MARKER} is missing): check the populate job")
            # Here and once: each kubelet would make them as it likes, all at the same time.
            made = [f"made {path} to mount on" for path in wanted.mount_points if make_directories(root, path)]
            with locked(etc):
                ours = read_state(etc)
                accounts = Accounts(etc)
                accounts.check(wanted, ours)
                now = Ours({u.name: u.uid for u in wanted.users}, {g.name: g.gid for g in wanted.groups}, fingerprint(wanted.motd))
                # Before the accounts: a run that dies in between must know them as its own when it comes again.
                write_state(etc, Ours({**ours.users, **now.users}, {**ours.groups, **now.groups}, ours.motd))
                homes, keys = ([], []) if homes_at == "none" else make_homes(root, wanted, homes_at)
                ssh = ["wrote how ssh reaches the workers"] if write_ssh_config(root, wanted.ssh_config) else []
                motd = ["wrote /etc/motd" if wanted.motd else "removed /etc/motd"] if write_motd(etc, wanted.motd, ours.motd) else []
                accounts.apply(wanted, ours)
                accounts.save()
                sudo = write_sudoers(etc, wanted.users)
                write_state(etc, now)
        return [*made, *accounts.changes, *homes, *keys, *ssh, *motd, *sudo]
    finally:
        os.close(root)


def make_homes(root: int, wanted: Document, homes_at: str | None) -> tuple[list[str], list[str]]:
    """Makes homes and their ssh keys; returns what changed."""
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(opened(homes_at) if homes_at else directory(root, "home"))
        if homes_at:
            # Other nodes may have the same volume, and each has a jail of its own, so the lock of its accounts keeps none of them away.
            stack.enter_context(locked(home, HOMES_LOCK, "/home"))
        homes = [f"made /home/{u.name}" for u in wanted.users if make_home(root, home, u)]
        keys = [f"wrote the ssh keys of {u.name}" for u in wanted.users if write_keys(home, u)]
        if wanted.ssh_config:
            keys += [f"made {u.name} a key for the workers" for u in wanted.users if make_key_for_workers(home, u)]
        return homes, keys


def apply_accounts(jail: str, wanted: Document) -> list[str]:
    """Makes the account files alone, for slurmctld, in a directory that need not be a jail; returns what changed. Raises UsersError."""
    root = os.open(jail, DIRECTORY)
    try:
        make_directories(root, "etc")
        with directory(root, "etc") as etc, locked(etc):
            make_account_files(etc)
            ours = read_state(etc)
            accounts = Accounts(etc)
            accounts.check(wanted, ours)
            accounts.apply(wanted, ours)
            accounts.save()
            write_state(etc, Ours({u.name: u.uid for u in wanted.users}, {g.name: g.gid for g in wanted.groups}))
        return accounts.changes
    finally:
        os.close(root)


def compared(jail: str, homes_at: str | None, text: str) -> str:
    """What differs from the document, and the jail's marker, as JSON. Raises UsersError."""
    # A login pod mounts the volume of the homes outside the jail, and a session mounts it over the jail's /home.
    mounts = [mount.split(":") for mount in os.environ.get("CORRAL_SUBMOUNTS", "").split()]
    homes_at = next((source for source, path, *_mode in mounts if path == "/home"), homes_at)
    with opened(jail) as root, directory(root, "etc") as etc:
        marker = read(etc, MARKER)
    found = compare.differences(jail, read_document(text), homes_at) if marker else []
    return json.dumps({"marker": marker[0] if marker else "", "differences": found})


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0 when the users are as wanted, 1 with one sentence otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--jail", default=os.environ.get("CORRAL_JAIL", "/mnt/jail"))
    parser.add_argument(
        "--homes",
        default=os.environ.get("CORRAL_HOMES"),
        help="volume of the homes, where they have one of their own; none: leave them alone",
    )
    parser.add_argument(
        "--only", default=os.environ.get("CORRAL_ONLY", ""), choices=("", "accounts"), help="accounts: passwd, group, shadow alone"
    )
    parser.add_argument("--compare", action="store_true", help="write nothing, and print what differs from the document on standard input")
    parser.add_argument("--watch", action="store_true", help="stay, and write the users again whenever the document changes")
    parser.add_argument("--written", default="/run/corral-users", help="with --watch: the file that names the document that was written")
    parser.add_argument("--document", default="/etc/corral/users/users.json")
    parser.add_argument("--termination-log", default="/dev/termination-log")
    given = parser.parse_args(arguments)
    os.umask(0o077)

    def write(text: str) -> None:
        wanted = read_document(text)
        changes = apply_accounts(given.jail, wanted) if given.only == "accounts" else apply(given.jail, wanted, given.homes)
        for line in changes or ["nothing to change"]:
            print(f"users: {line}", flush=True)

    try:
        if given.compare:
            print(compared(given.jail, given.homes, sys.stdin.read()))
            return 0
        if given.watch:
            watch.follow(given.document, given.written, write)
        write(parts.settled(given.document))
    except (UsersError, OSError) as error:
        print(f"users: {error}", file=sys.stderr)
        if given.compare:  # somebody else's container
            return 1
        with contextlib.suppress(OSError), open(os.open(given.termination_log, os.O_WRONLY), "w", encoding="utf-8") as file:
            file.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
