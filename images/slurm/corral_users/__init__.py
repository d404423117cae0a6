# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""The parts of users.py. Errors that a human has to act on are one sentence in UsersError."""

from __future__ import annotations


class UsersError(Exception):
    """The users cannot be written; one sentence with the next step."""
