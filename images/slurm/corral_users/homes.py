# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Homes and ssh keys. A home is its user's: whatever is in it is checked by descriptor before it is used."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import subprocess
import tempfile
from collections.abc import Iterator

from corral_users import UsersError
from corral_users.document import User
from corral_users.files import DIRECTORY, FILE, directory, read, replace

BEGIN = "# BEGIN of corral's keys: they come from the SlurmCluster, edits inside are lost"
END = "# END of corral's keys"
MAX_KEYS_FILE = 1 << 20
KEY = "corral"


def copy_skeleton(source: int, target: int, user: User) -> None:
    """Copies files, folders and links of /etc/skel as the user's."""
    for entry in sorted(os.listdir(source)):
        status = os.stat(entry, dir_fd=source, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(entry, dir_fd=source), entry, dir_fd=target)
            os.chown(entry, user.uid, user.gid, dir_fd=target, follow_symlinks=False)
        elif stat.S_ISDIR(status.st_mode):
            os.mkdir(entry, 0o700, dir_fd=target)
            with directory(source, entry) as inner, directory(target, entry) as made:
                copy_skeleton(inner, made, user)
                os.fchown(made, user.uid, user.gid)
                os.fchmod(made, stat.S_IMODE(status.st_mode))
        elif stat.S_ISREG(status.st_mode):
            found = read(source, entry)
            if found:
                replace(target, entry, found[0], stat.S_IMODE(status.st_mode), user.uid, user.gid)


def remove_tree(parent: int, name: str) -> None:
    """Removes a half-made home of an earlier run, following no link."""
    with directory(parent, name) as inner:
        for entry in os.listdir(inner):
            if stat.S_ISDIR(os.stat(entry, dir_fd=inner, follow_symlinks=False).st_mode):
                remove_tree(inner, entry)
            else:
                os.unlink(entry, dir_fd=inner)
    os.rmdir(name, dir_fd=parent)


def make_home(root: int, home: int, user: User, name: str | None = None) -> bool:
    """Makes a home of /etc/skel unless there is one of this user. ``name`` is its own, where that is not the user's."""
    name = name or user.name
    try:
        status = os.stat(name, dir_fd=home, follow_symlinks=False)
    except FileNotFoundError:
        status = None
    if status is not None:
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != user.uid:
            raise UsersError(
                f"/home/{name} in the jail is no directory of uid {user.uid} (its owner is {status.st_uid}): "
                "change its owner or move it away"
            )
        return False
    part = f".corral-home-{name}"
    with contextlib.suppress(FileNotFoundError):
        os.stat(part, dir_fd=home, follow_symlinks=False)
        remove_tree(home, part)
    os.mkdir(part, 0o700, dir_fd=home)
    with directory(home, part) as made:
        try:
            os.stat("etc/skel", dir_fd=root, follow_symlinks=False)
        except FileNotFoundError:
            pass
        else:
            with directory(root, "etc", "skel") as skeleton:
                copy_skeleton(skeleton, made, user)
        os.fchown(made, user.uid, user.gid)
    os.rename(part, name, src_dir_fd=home, dst_dir_fd=home)
    return True


def set_aside(parent: int, name: str) -> None:
    """Renames what is in the way: it is the user's own and must not be lost."""
    os.rename(name, f"{name}.before-corral-{secrets.token_hex(3)}", src_dir_fd=parent, dst_dir_fd=parent)


def own_text(ssh: int, user: User) -> str | None:
    """The user's authorized_keys as it is, or None where it is no plain file of the user's alone: a link to a file that only root
    reads must not be copied to where the user can read it."""
    try:
        fd = os.open("authorized_keys", FILE, dir_fd=ssh)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != user.uid or status.st_nlink != 1 or status.st_size > MAX_KEYS_FILE:
            return None
        return os.read(fd, MAX_KEYS_FILE).decode("utf-8", "surrogateescape")
    finally:
        os.close(fd)


def with_keys(text: str, keys: tuple[str, ...]) -> str:
    """An authorized_keys file with our block in it; the user's own lines stay."""
    kept, inside = [], False
    for line in text.splitlines():
        if line == BEGIN:
            inside = True
        elif line == END and inside:
            inside = False
        elif not inside:
            kept.append(line)
    block = [BEGIN, *keys, END] if keys else []
    return "".join(f"{line}\n" for line in [*block, *kept])


def keys_in(text: str) -> tuple[str, ...]:
    """The keys of our block in an authorized_keys file."""
    lines = text.splitlines()
    return tuple(lines[lines.index(BEGIN) + 1 : lines.index(END)]) if BEGIN in lines and END in lines else ()


@contextlib.contextmanager
def ssh_directory(home: int, user: User) -> Iterator[int]:
    """The user's ~/.ssh, made where it is missing. The home is the user's: whatever is there is checked by descriptor."""
    with directory(home, user.name) as own:
        try:
            ssh = os.open(".ssh", DIRECTORY, dir_fd=own)
        except OSError as error:
            if error.errno != errno.ENOENT:
                set_aside(own, ".ssh")
            os.mkdir(".ssh", 0o700, dir_fd=own)
            ssh = os.open(".ssh", DIRECTORY, dir_fd=own)
        try:
            status = os.fstat(ssh)
            if status.st_uid != user.uid:
                if os.listdir(ssh):
                    raise UsersError(f"/home/{user.name}/.ssh in the jail belongs to uid {status.st_uid}: change its owner to {user.name}")
                os.fchown(ssh, user.uid, user.gid)
            yield ssh
        finally:
            os.close(ssh)


def make_way(parent: int, name: str) -> None:
    """Sets a directory of that name aside; anything else is replaced by a rename."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            set_aside(parent, name)


def write_keys(home: int, user: User) -> bool:
    """Makes ~/.ssh/authorized_keys hold the document's keys."""
    with ssh_directory(home, user) as ssh:
        old = own_text(ssh, user)
        new = with_keys(old or "", user.keys)
        if old == new:
            return False
        make_way(ssh, "authorized_keys")
        replace(ssh, "authorized_keys", new, 0o600, user.uid, user.gid)
        return True


def make_key_for_workers(home: int, user: User) -> bool:
    """Makes ~/.ssh/corral and corral.pub, by which the user goes on from a login node to a worker and from worker to worker."""
    with ssh_directory(home, user) as ssh:
        if {KEY, f"{KEY}.pub"} <= set(os.listdir(ssh)):
            return False
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, KEY)
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{user.name} within the cluster", "-f", path]
            made = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if made.returncode:
                raise UsersError(f"ssh-keygen made no key for {user.name}: {made.stderr.strip() or made.returncode}")
            # The public half last: it is what a second run looks for.
            for name, mode in ((KEY, 0o600), (f"{KEY}.pub", 0o644)):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    text = file.read()
                make_way(ssh, name)
                replace(ssh, name, text, mode, user.uid, user.gid)
        return True
