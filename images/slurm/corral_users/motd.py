# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""The jail's /etc/motd, which sshd shows."""

from __future__ import annotations

import hashlib
import os

from corral_users import UsersError
from corral_users.files import read, replace

NAME = "motd"


def fingerprint(text: str) -> str:
    """A mark that shows whether the file is as we left it; \"\" of no text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16] if text else ""


def write_motd(etc: int, text: str, ours: str) -> bool:
    """Makes the file hold ``text``; without one, takes it away where it is still what we wrote, ``ours``. True when something changed."""
    try:
        found = read(etc, NAME)
    except UsersError:
        # A link, as some distributions have it: replaced, and not followed.
        found = None
    there = found[0] if found else ""
    if text and there != text:
        replace(etc, NAME, text, 0o644)
        return True
    if not text and ours and fingerprint(there) == ours:
        os.unlink(NAME, dir_fd=etc)
        return True
    return False
