# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that say what becomes of jobs on nodes that shall be free, as two modules have them."""

from __future__ import annotations

from typing import Any

_POLICIES = ["Wait", "Requeue", "Cancel"]


def draining_options() -> dict[str, dict[str, Any]]:
    """Return the options that say what becomes of jobs on nodes that shall be free."""
    rule = {
        "partitions": {"type": "list", "elements": "str", "default": []},
        "qos": {"type": "list", "elements": "str", "default": []},
        "policy": {"type": "str", "choices": _POLICIES, "required": True},
        "deadline": {"type": "int", "default": 3600},
    }
    return {
        "policy": {"type": "str", "choices": _POLICIES, "default": "Wait"},
        "deadline": {"type": "int", "default": 3600},
        "jobs": {"type": "list", "elements": "dict", "default": [], "options": rule},
    }
