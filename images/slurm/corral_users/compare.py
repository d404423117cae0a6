# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Compares a jail with the document, and writes nothing. Hashes of passwords are never part of the result."""

from __future__ import annotations

import os
from collections.abc import Iterator

from corral_users import UsersError
from corral_users.accounts import SUDOERS, Accounts, Table, read_state, sudoers
from corral_users.document import Document, User
from corral_users.files import DIRECTORY, directory, opened, read
from corral_users.homes import keys_in, own_text
from corral_users.motd import NAME as MOTD
from corral_users.ssh import FOLDER, NAME

Difference = tuple[str, str, str]


def differences(jail: str, wanted: Document, homes_at: str | None) -> list[dict[str, str]]:
    """What differs: where, the document's value and the live one, "" for none. ``homes_at`` is the volume of the homes, where they have one of their own;
    ``none``: leave them out. Raises UsersError."""
    root = os.open(jail, DIRECTORY)
    try:
        found = [*_accounts(root, wanted), *_files(root, wanted), *(() if homes_at == "none" else _keys(root, wanted, homes_at))]
    finally:
        os.close(root)
    return [dict(zip(("where", "document", "live"), one, strict=True)) for one in found]


def _accounts(root: int, wanted: Document) -> Iterator[Difference]:
    """What a run would change of passwd and group, tried on the tables in memory."""
    with directory(root, "etc") as etc:
        accounts = Accounts(etc)
        before = {name: _entries(table) for name, table in (("passwd", accounts.passwd), ("group", accounts.group))}
        accounts.apply(wanted, read_state(etc))
        for name, table in (("passwd", accounts.passwd), ("group", accounts.group)):
            after = _entries(table)
            for key in dict.fromkeys([*before[name], *after]):
                if before[name].get(key) != after.get(key):
                    yield f"/etc/{name} {key}", after.get(key, ""), before[name].get(key, "")


def _entries(table: Table) -> dict[str, str]:
    return {line.split(":", 1)[0]: line for line in reversed(table.lines)}


def _files(root: int, wanted: Document) -> Iterator[Difference]:
    """Files that are ours alone."""
    texts = [(f"/etc/sudoers.d/{SUDOERS}", sudoers(wanted.users)), (f"{FOLDER}/{NAME}", wanted.ssh_config)]
    if wanted.motd:
        texts.append((f"/etc/{MOTD}", wanted.motd))
    for path, text in texts:
        live = _text(root, path)
        # Without sudo in the image nobody becomes root, whatever the document says.
        if (live or "") != text and not (live is None and path == f"/etc/sudoers.d/{SUDOERS}"):
            yield path, text, live or ""


def _text(root: int, path: str) -> str | None:
    """The text of a file, or why it is none; "" where it is missing, None where its directory is."""
    *folders, name = path.strip("/").split("/")
    try:
        with directory(root, *folders) as folder:
            found = read(folder, name)
            return found[0] if found else ""
    except UsersError as error:
        return None if isinstance(error.__cause__, FileNotFoundError) else str(error)


def _keys(root: int, wanted: Document, homes_at: str | None) -> Iterator[Difference]:
    """Homes that are missing, and the document's block in ~/.ssh/authorized_keys; what users have added beside it is theirs."""
    with opened(homes_at) if homes_at else directory(root, "home") as homes:
        for user in wanted.users:
            live = _block(homes, user)
            if live is None:
                yield f"/home/{user.name}", f"a directory of uid {user.uid}", ""
            elif live != user.keys:
                yield f"/home/{user.name}/.ssh/authorized_keys", "\n".join(user.keys), "\n".join(live)


def _block(homes: int, user: User) -> tuple[str, ...] | None:
    """The keys in the document's block; None without a home of the user's own."""
    try:
        if os.stat(user.name, dir_fd=homes, follow_symlinks=False).st_uid != user.uid:
            return None
    except FileNotFoundError:
        return None
    try:
        with directory(homes, user.name, ".ssh") as ssh:
            return keys_in(own_text(ssh, user) or "")
    except UsersError as error:
        # A file server may keep root out of homes. Then nobody but the user can write there.
        return user.keys if isinstance(error.__cause__, PermissionError) else ()
