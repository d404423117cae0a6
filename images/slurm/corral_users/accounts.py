# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""passwd, group, shadow, gshadow and sudoers: accounts that are not ours are never touched; ours stand in /etc/corral-users.json."""

from __future__ import annotations

import dataclasses
import json
import os
import stat

from corral_users import UsersError
from corral_users.document import FIRST_ID, Document, Group, User
from corral_users.files import directory, read, replace

STATE = "corral-users.json"
SUDOERS = "corral"


class Table:
    """One of passwd, group, shadow, gshadow: lines by their first field, in order; what is not understood is kept as it is."""

    def __init__(self, etc: int, name: str, mode: int) -> None:
        self._etc, self._name, self._mode = etc, name, mode
        found = read(etc, name)
        self.exists = found is not None
        self._old = found[0] if found else ""
        self._status = found[1] if found else None
        self._set([line for line in self._old.split("\n") if line])

    def _set(self, lines: list[str]) -> None:
        self.lines = lines
        # Where the first entry of each name is: there may be thousands.
        self._places = {line.split(":", 1)[0]: index for index, line in reversed(list(enumerate(lines)))}

    def fields(self, key: str) -> list[str] | None:
        """The fields of an entry."""
        return self.lines[self._places[key]].split(":") if key in self._places else None

    def ids(self) -> dict[int, str]:
        """Which entry has an id (third field)."""
        parts = [line.split(":") for line in self.lines]
        return {int(p[2]): p[0] for p in reversed(parts) if len(p) > 2 and p[2].isdigit()}

    def put(self, fields: list[str]) -> None:
        """Adds or changes an entry."""
        text = ":".join(fields)
        if fields[0] in self._places:
            self.lines[self._places[fields[0]]] = text
        else:
            self._places[fields[0]] = len(self.lines)
            self.lines.append(text)

    def drop(self, keys: set[str]) -> None:
        """Removes entries."""
        self._set([line for line in self.lines if line.split(":", 1)[0] not in keys])

    def drop_members(self, names: set[str]) -> None:
        """Takes users out of the members (fourth field) of every group."""
        for index, line in enumerate(self.lines):
            fields = line.split(":")
            if len(fields) == 4 and not names.isdisjoint(fields[3].split(",")):
                fields[3] = ",".join(m for m in fields[3].split(",") if m not in names)
                self.lines[index] = ":".join(fields)

    def save(self) -> bool:
        """Writes the file if it changed."""
        text = "".join(f"{line}\n" for line in self.lines)
        if text == self._old or (not self.exists and not text):
            return False
        owner = (self._status.st_uid, self._status.st_gid) if self._status else (0, 0)
        replace(self._etc, self._name, text, stat.S_IMODE(self._status.st_mode) if self._status else self._mode, *owner)
        return True


@dataclasses.dataclass
class Ours:
    """What an earlier run made: names and ids of accounts, and the hash of /etc/motd."""

    users: dict[str, int]
    groups: dict[str, int]
    motd: str = ""


def read_state(etc: int) -> Ours:
    """What is ours. System accounts are never ours, whatever the file has."""
    found = read(etc, STATE)
    try:
        data = json.loads(found[0]) if found else {}
        users, groups = ({str(k): int(v) for k, v in (data.get(kind) or {}).items() if int(v) >= FIRST_ID} for kind in ("users", "groups"))
        return Ours(users, groups, str(data.get("motd") or ""))
    except (ValueError, AttributeError, TypeError) as error:
        raise UsersError(
            f"/etc/{STATE} of the jail is damaged ({error}): restore it, or move it away and remove the accounts that it named"
        ) from error


def write_state(etc: int, ours: Ours) -> None:
    """Keeps what is ours, if that changed."""
    data: dict[str, object] = {"version": 1, "users": dict(sorted(ours.users.items())), "groups": dict(sorted(ours.groups.items()))}
    if ours.motd:
        data["motd"] = ours.motd
    text = json.dumps(data, indent=1) + "\n"
    found = read(etc, STATE)
    if not found or found[0] != text:
        replace(etc, STATE, text, 0o644)


def make_account_files(etc: int) -> None:
    """Makes the files that Accounts wants to find, empty, where there are none."""
    for name in ("passwd", "group"):
        if read(etc, name) is None:
            replace(etc, name, "", 0o644)


class Accounts:
    """The account files of a jail, and the changes to them."""

    def __init__(self, etc: int) -> None:
        self.passwd, self.group = Table(etc, "passwd", 0o644), Table(etc, "group", 0o644)
        self.shadow, self.gshadow = Table(etc, "shadow", 0o600), Table(etc, "gshadow", 0o600)
        self.changes: list[str] = []
        if not self.passwd.exists or not self.group.exists:
            raise UsersError("the jail has no /etc/passwd or /etc/group: populate it with an image that has them")

    def check(self, wanted: Document, ours: Ours) -> None:
        """Refuses to take over what belongs to others. Raises UsersError before anything is written."""
        gids, uids = self.group.ids(), self.passwd.ids()
        for group in wanted.groups:
            self._check_free("group", group.name, self.group, gids.get(group.gid), group.gid, ours.groups)
        for user in wanted.users:
            self._check_free("user", user.name, self.passwd, uids.get(user.uid), user.uid, ours.users)
            if ours.users.get(user.name, user.uid) != user.uid:
                raise UsersError(
                    f"user {user.name} has the uid {ours.users[user.name]} and cannot get {user.uid}, since the files would stay with the "
                    "old one: keep the uid, or take the user out, change the files' owner, and put the user back"
                )

    @staticmethod
    def _check_free(kind: str, name: str, table: Table, holder: str | None, number: int, ours: dict[str, int]) -> None:
        if table.fields(name) is not None and name not in ours:
            raise UsersError(f"{kind} {name} is in the jail already and is not corral's: choose another name, or remove it there")
        if holder is not None and holder != name and holder not in ours:
            raise UsersError(f"{kind} {name}: the id {number} is that of {holder} in the jail, which is not corral's: choose another id")

    def apply(self, wanted: Document, ours: Ours) -> None:
        """Gives the tables the wanted content."""
        users = ours.users.keys() - {u.name for u in wanted.users}
        self.changes += [f"removed user {name} (its home stays)" for name in sorted(users) if self.passwd.fields(name)]
        for table in (self.passwd, self.shadow):
            table.drop(users)
        groups = ours.groups.keys() - {g.name for g in wanted.groups}
        self.changes += [f"removed group {name}" for name in sorted(groups) if self.group.fields(name)]
        for table in (self.group, self.gshadow):
            table.drop_members(users)
            table.drop(groups)
        managed = {u.name for u in wanted.users} | users
        members: dict[str, list[str]] = {}
        for user in wanted.users:
            for name in dict.fromkeys(user.groups):
                members.setdefault(name, []).append(user.name)
        for group in wanted.groups:
            self._put_group(group, members.get(group.name, []), managed)
        for user in wanted.users:
            self._put_user(user)

    def _put_group(self, group: Group, ours: list[str], managed: set[str]) -> None:
        old = self.group.fields(group.name)
        # Members that are not ours were put there by an administrator of the jail.
        foreign = [m for m in (old[3].split(",") if old and len(old) == 4 else []) if m and m not in managed]
        members = foreign + ours
        new = [group.name, old[1] if old else "x", str(group.gid), ",".join(members)]
        if old != new:
            self.changes.append(f"{'changed' if old else 'added'} group {group.name} ({group.gid})")
            self.group.put(new)
        if self.gshadow.exists:
            kept = self.gshadow.fields(group.name)
            self.gshadow.put([group.name, kept[1] if kept else "!", kept[2] if kept and len(kept) == 4 else "", ",".join(members)])

    def _put_user(self, user: User) -> None:
        old = self.passwd.fields(user.name)
        new = [user.name, "x", str(user.uid), str(user.gid), old[4] if old and len(old) == 7 else "", f"/home/{user.name}", user.shell]
        if old != new:
            self.changes.append(f"{'changed' if old else 'added'} user {user.name} ({user.uid})")
            self.passwd.put(new)
        # "*": no password fits, and yet the account is not locked. A password that the user was given is kept.
        if self.shadow.fields(user.name) is None:
            self.shadow.put([user.name, "*", "", "", "", "", "", "", ""])

    def save(self) -> None:
        """Secrets first: an account never shows before its shadow entry does."""
        for table in (self.gshadow, self.group, self.shadow, self.passwd):
            table.save()


def sudoers(users: tuple[User, ...]) -> str:
    """The text of our file in /etc/sudoers.d, "" where no user may become root."""
    lines = [f"{name} ALL=(ALL:ALL) NOPASSWD: ALL\n" for name in sorted(u.name for u in users if u.sudo)]
    return "".join(["# From the SlurmCluster's spec.users; edits are lost.\n", *lines]) if lines else ""


def write_sudoers(etc: int, users: tuple[User, ...]) -> list[str]:
    """Lets some users become root in the jail."""
    names, text = sorted(u.name for u in users if u.sudo), sudoers(users)
    try:
        os.stat("sudoers.d", dir_fd=etc, follow_symlinks=False)
    except FileNotFoundError:
        lacking = f"warning: {', '.join(names)} cannot become root: the jail has no /etc/sudoers.d, install sudo in its image"
        return [lacking] if names else []
    with directory(etc, "sudoers.d") as parent:
        found = read(parent, SUDOERS)
        if not names:
            if found:
                os.unlink(SUDOERS, dir_fd=parent)
            return ["no user may use sudo any more"] if found else []
        if found and found[0] == text:
            return []
        replace(parent, SUDOERS, text, 0o440)
        return [f"sudo for {', '.join(names)}"]
