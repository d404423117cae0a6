# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Directories of the jail that pods mount something on. They are made once and here: were they left to the pods, the container runtime of
each would make them, at the same time, and by whatever links are on the way."""

from __future__ import annotations

import os
import stat

from corral_users import UsersError
from corral_users.files import DIRECTORY, directory


def make_mount_points(root: int, paths: list[str]) -> list[str]:
    """Makes the directories that are missing, plain and root's; returns what was made, a line each. Raises UsersError."""
    return [line for path in paths for line in _make(root, path)]


def _make(root: int, path: str) -> list[str]:
    names = path.removeprefix("/").split("/")
    if not path.startswith("/") or not all(names) or {".", ".."} & set(names):
        raise UsersError(f"{path} is no absolute path without '.', '..' and empty parts: correct spec.jail.subMounts")
    made = []
    for count, name in enumerate(names):
        here = "/" + "/".join(names[: count + 1])
        with directory(root, *names[:count]) as parent:
            try:
                mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            except FileNotFoundError:
                _make_directory(parent, name)
                made.append(f"made {here}")
                continue
            if not stat.S_ISDIR(mode):
                raise UsersError(f"{here} of the jail is a link or no directory, and {path} is to be mounted: make it a plain directory")
    return made


def _make_directory(parent: int, name: str) -> None:
    os.mkdir(name, 0o755, dir_fd=parent)
    made = os.open(name, DIRECTORY, dir_fd=parent)
    try:
        # Whatever the umask is.
        os.fchmod(made, 0o755)
    finally:
        os.close(made)
