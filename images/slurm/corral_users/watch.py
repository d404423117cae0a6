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

from corral_users import UsersError, parts

# The cause may be repaired in the jail itself, which sends no event.
PAUSE_AFTER_FAILURE = 10.0


def follow(document: str, written: str, write: Callable[[str], None]) -> NoReturn:
    """Calls ``write`` with the document's text, now and after each change of it, and notes in the file ``written`` what has become of it: the
    beginning of the SHA-256 of the first file, or a sentence. The first failure is raised, later ones are logged and tried again: a node that works goes
    on. While parts are missing nothing is written, from the beginning on.
    """
    # The first process of a container ignores signals that it has no handler for.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    done: str | None = None
    failed = ""
    while True:
        pause = parts.PAUSE
        try:
            first = parts.read(document)
            # After a failure those of before are written anew, too: who asks is to find the note of what there is.
            if first != done or failed:
                write(parts.whole(document, first))
                note(written, hashlib.sha256(first.encode()).hexdigest()[:16])
                done, failed = first, ""
        except (UsersError, OSError) as error:
            pause = parts.PAUSE if isinstance(error, parts.Incomplete) else PAUSE_AFTER_FAILURE
            if done is None and pause == PAUSE_AFTER_FAILURE:
                raise
            if str(error) != failed:
                failed = str(error)
                print(f"users: {failed}; this is tried again", file=sys.stderr, flush=True)
                if done is not None:
                    note(written, failed)
        time.sleep(pause)


def note(written: str, text: str) -> None:
    """Writes the note, so that readers see the old one or the new one."""
    part = f"{written}.part"
    with open(part, "w", encoding="utf-8") as file:
        file.write(f"{text}\n")
    os.replace(part, written)
