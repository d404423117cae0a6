# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one exception family of the collection, and how its sentences show what they found."""

from __future__ import annotations

from typing import Any


class CorralError(Exception):
    """A failure whose text is one sentence for the user: what, where, why, and what to do next.

    ``data`` holds further keys of the failed task's result (plain JSON types, never a secret), for programs that read results.
    """

    def __init__(self, message: str, *, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.data: dict[str, Any] = data or {}


def is_private_key(text: str) -> bool:
    """Return whether a text has, or begins, a private key of any kind (PEM, OpenSSH, PGP): no sentence may show any of it."""
    return "PRIVATE KEY" in text


def quoted(text: str, most: int = 80) -> str:
    """Return a text as a sentence shows it: at most ``most`` characters, on one line, in ASCII, and nothing of a private key."""
    if is_private_key(text):
        return "a private key, which must not be here and should be replaced,"
    return ascii(text if len(text) <= most else text[: most - 3] + "...")


def defect(error: Exception) -> CorralError:
    """Return what is to be said where the check of a document raises something else than a CorralError."""
    message = ascii(f"{type(error).__name__}: {error}"[:200])[1:-1]
    return CorralError(
        f"The document cannot be checked ({message}), which is a defect of corral.slurm, so nothing is done; report it, with the document, to the "
        "collection's repository, and go back to the document before this one until then."
    )
