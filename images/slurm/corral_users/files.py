# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Files under descriptors: the jail's users may be root in it and plant any link, so names are opened one by one from the jail's
root and no link is followed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator

from corral_users import UsersError

LOCK_SECONDS = 60
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextlib.contextmanager
def directory(parent: int, *names: str) -> Iterator[int]:
    """Opens a directory below another, one name at a time, following no link."""
    fd = os.dup(parent)
    try:
        for name in names:
            try:
                inner = os.open(name, DIRECTORY, dir_fd=fd)
            except OSError as error:
                why = "a link or no directory" if error.errno in (errno.ELOOP, errno.ENOTDIR) else error.strerror
                raise UsersError(f"/{'/'.join(names)} of the jail cannot be used ({name}: {why}): make it a plain directory") from error
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    """Opens a directory of the pod's own."""
    fd = os.open(path, DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def make_directories(root: int, path: str) -> bool:
    """Makes the missing ones of a path below ``root``, of root and 0755, following no link. True when something was made."""
    made = False
    names = path.strip("/").split("/")
    for depth, name in enumerate(names):
        with directory(root, *names[:depth]) as parent, contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
            os.chmod(name, 0o755, dir_fd=parent)
            made = True
    with directory(root, *names):
        return made


def read(parent: int, name: str) -> tuple[str, os.stat_result] | None:
    """Text and status of a plain file; None where there is none."""
    try:
        fd = os.open(name, FILE, dir_fd=parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsersError(f"{name} in the jail cannot be read ({error.strerror}): make it a plain file") from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise UsersError(f"{name} in the jail is not a plain file: make it one")
    with os.fdopen(fd, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read(), status


def replace(parent: int, name: str, text: str, mode: int, uid: int = 0, gid: int = 0) -> None:
    """Writes a file beside and renames it into place: readers see the old one or the new one."""
    part = f".{name}.{secrets.token_hex(6)}"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent)
    try:
        with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
            file.flush()
            os.fchown(fd, uid, gid)
            os.fchmod(fd, mode)
            os.fsync(fd)
        os.rename(part, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=parent)
        raise


@contextlib.contextmanager
def locked(parent: int, name: str = ".pwd.lock", place: str = "/etc") -> Iterator[None]:
    """A lock on a file: as it is, that of useradd and passwd, so that both never write at once."""
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent)
    try:
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES) or time.monotonic() > until:
                    why = f"{place}/{name} of the jail cannot be locked ({error.strerror}): see who edits accounts there"
                    raise UsersError(why) from error
                time.sleep(0.2)
        yield
    finally:
        os.close(fd)
