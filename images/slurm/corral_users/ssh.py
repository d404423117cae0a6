# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""What ssh's clients in the jail need to know of the workers."""

from __future__ import annotations

import contextlib
import os

from corral_users.files import directory, make_directories, read, replace

FOLDER = "/etc/ssh/ssh_config.d"
NAME = "20-corral.conf"


def write_ssh_config(root: int, text: str) -> bool:
    """Makes the file hold ``text``, or takes it away where that is empty. True when something changed."""
    if text:
        make_directories(root, FOLDER)
    else:
        for depth in range(1, FOLDER.count("/") + 1):
            names = FOLDER.strip("/").split("/")[:depth]
            with directory(root, *names[:-1]) as parent:
                if names[-1] not in os.listdir(parent):
                    return False
    with directory(root, *FOLDER.strip("/").split("/")) as folder:
        found = read(folder, NAME)
        if (found[0] if found else "") == text:
            return False
        if text:
            replace(folder, NAME, text, 0o644)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(NAME, dir_fd=folder)
        return True
