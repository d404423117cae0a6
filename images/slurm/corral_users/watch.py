# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Follows the document of users beside a node's own jail, for the pod's whole life."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from corral_users import UsersError

# The kubelet replaces the file by a rename, so a look at it is a few bytes of the page cache.
PAUSE = 1.0
# What is wrong may be mended in the jail itself, which nobody tells.
PAUSE_AFTER_FAILURE = 10.0


def follow(document: str, written: str, write: Callable[[str], None]) -> NoReturn:
    """Calls ``write`` with the document's text, now and after each change of it, and notes in the file ``written`` what has become of it: the
    beginning of the text's SHA-256, or a sentence. The first failure is raised, later ones are said and tried again: a node that works goes on.
    """
    # The first process of a container ignores signals that it has no handler for.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    done: str | None = None
    failed = ""
    while True:
        try:
            with open(document, encoding="utf-8") as file:
                text = file.read()
            if text != done:
                write(text)
                note(written, hashlib.sha256(text.encode()).hexdigest()[:16])
                done, failed = text, ""
        except (UsersError, OSError) as error:
            if done is None:
                raise
            if str(error) != failed:
                failed = str(error)
                print(f"users: {failed}; this is tried again", file=sys.stderr, flush=True)
                note(written, failed)
        time.sleep(PAUSE_AFTER_FAILURE if failed else PAUSE)


def note(written: str, text: str) -> None:
    """Writes the note, so that readers see the old one or the new one."""
    part = f"{written}.part"
    with open(part, "w", encoding="utf-8") as file:
        file.write(f"{text}\n")
    os.replace(part, written)
