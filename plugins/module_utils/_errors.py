# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one exception family of the collection."""

from __future__ import annotations

from typing import Any


class CorralError(Exception):
    """A failure whose text is one sentence for the user: what, where, why, and what to do next.

    ``data`` holds further keys of the failed task's result (plain JSON types, never a secret), for programs that read results.
    """

    def __init__(self, message: str, *, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.data: dict[str, Any] = data or {}
