# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""The wanted state: the document of users and groups, checked and completed."""

from __future__ import annotations

import collections
import dataclasses
import json
import re
from typing import Any

from corral_users import UsersError

FIRST_ID = 1000
NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
SHELL = PATH = re.compile(r"(/[A-Za-z0-9._+-]+)+")


@dataclasses.dataclass(frozen=True)
class Group:
    """A group of the document, or the private one of a user."""

    name: str
    gid: int


@dataclasses.dataclass(frozen=True)
class User:
    """A user of the document."""

    name: str
    uid: int
    gid: int
    groups: tuple[str, ...]
    keys: tuple[str, ...]
    sudo: bool
    shell: str


@dataclasses.dataclass(frozen=True)
class Document:
    """The wanted state. ``groups`` has the users' private groups too; ``mount_points`` are absolute paths; ``ssh_config`` is for ssh's
    clients in the jail, ``""`` where workers have no sshd; ``motd`` is ``""`` where /etc/motd is not ours to write."""

    groups: tuple[Group, ...]
    users: tuple[User, ...]
    mount_points: tuple[str, ...] = ()
    ssh_config: str = ""
    motd: str = ""


def _name(kind: str, value: Any) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise UsersError(f"{kind} {value!r} is not a name: lower-case letters, digits, - and _, at most 31, beginning with a letter")
    return value


def _id(what: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not FIRST_ID <= value < 2**32 - 1:
        raise UsersError(f"{what} {value!r} is not an id of a user or group: take one from {FIRST_ID} on, those below are the system's")
    return value


def _key(user: str, value: Any) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not text or any(ord(c) < 32 for c in text) or text.startswith("#"):
        raise UsersError(f"user {user} has an ssh key that is not one line of an authorized_keys file: correct it in spec.users")
    return text


def _path(value: Any) -> str:
    if not isinstance(value, str) or not PATH.fullmatch(value) or {".", ".."} & set(value.split("/")):
        raise UsersError(f"mount point {value!r} is not an absolute path without '.' and '..': correct it in spec.jail.subMounts")
    return value


def _once(what: str, values: list[Any]) -> None:
    for value, count in collections.Counter(values).items():
        if count > 1:
            raise UsersError(f"{what} {value} stands twice in the document: give each its own")


def read_document(text: str) -> Document:
    """Checks and completes the document. Raises UsersError."""
    try:
        data = json.loads(text)
        groups = [Group(_name("group", g.get("name")), _id(f"group {g.get('name')}: gid", g.get("gid"))) for g in data.get("groups") or []]
        users = []
        for entry in data.get("users") or []:
            name = _name("user", entry.get("name"))
            uid = _id(f"user {name}: uid", entry.get("uid"))
            shell = entry.get("shell") or "/bin/bash"
            if not isinstance(shell, str) or not SHELL.fullmatch(shell):
                raise UsersError(f"user {name}: shell {shell!r} is not an absolute path")
            gid = _id(f"user {name}: gid", entry.get("gid") or uid)
            keys = tuple(_key(name, k) for k in entry.get("sshKeys") or [])
            users.append(User(name, uid, gid, tuple(entry.get("groups") or []), keys, bool(entry.get("sudo")), shell))
        ssh_config = str(data.get("sshConfig") or "")
        motd = str(data.get("motd") or "")
        mount_points = tuple(_path(p) for p in data.get("mountPoints") or [])
    except (ValueError, AttributeError, TypeError) as error:
        raise UsersError(f"the document of users is invalid ({error}): check the ConfigMap of the users") from error
    known = {g.gid for g in groups}
    groups += [Group(u.name, u.gid) for u in users if u.gid == u.uid and u.gid not in known]
    names, gids = {g.name for g in groups}, {g.gid for g in groups}
    for user in users:
        if user.gid not in gids:
            raise UsersError(f"user {user.name}: no group has the gid {user.gid}: add it to spec.groups, or leave gid out")
        for missing in [g for g in user.groups if g not in names]:
            raise UsersError(f"user {user.name}: there is no group {missing}: add it to spec.groups")
    _once("user", [u.name for u in users])
    _once("uid", [u.uid for u in users])
    _once("group", [g.name for g in groups])
    _once("gid", [g.gid for g in groups])
    return Document(tuple(groups), tuple(users), mount_points, ssh_config, motd)
