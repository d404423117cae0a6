# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the output of all of Slurm's programs with ``--json`` has in common (Slurm 24.11, data parser v0.0.42 and its neighbours). Pure.

slurmctld that cannot be reached gives no JSON but a line on stderr; a name that it does not know gives an empty list and exit code 0.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

Row = dict[str, Any]


class OutputError(CorralError):
    """Some output is not what Slurm's data parser promises."""


def rows(text: str, key: str, program: str = "scontrol", name: str = "name") -> list[Row]:
    """Return the list ``key`` of some output; each row has ``name``. Raises OutputError."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise OutputError(
            f"{program}'s output is not JSON ({error}): {text.strip()[:200]!r}; is its Slurm built with the JSON plugin?"
        ) from error
    found = document.get(key) if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise OutputError(f"{program}'s JSON has no list of {key}; Slurm 23.02 or later has one.")
    if not all(isinstance(row, dict) and row.get(name) for row in found):
        raise OutputError(
            f"{program}'s JSON has {key} without {name}; nothing was changed, so see what 'scontrol show {key} --json' prints."
        )
    return found


def strings(value: Any) -> list[str]:
    """Return a list of strings: newer parsers give lists, older ones text joined by commas."""
    if isinstance(value, list):
        return [str(item) for item in value]
    return [part for part in str(value or "").split(",") if part]


def section(value: Any) -> Row:
    """Return a part of a row that holds parts itself; an empty one where the data parser has none."""
    return value if isinstance(value, dict) else {}


def number(value: Any) -> int:
    """Return a count: a number, or ``{"set": true, "infinite": false, "number": 3}``."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else 0
    try:
        return 0 if value in (None, "") else int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise OutputError(f"Slurm's JSON has {value!r} where a number belongs; nothing was changed.") from error


def moment(value: Any) -> str:
    """Return a time as text like ``2026-01-31T08:00:00Z``; "" where there is none."""
    return stamp(number(value))


def stamp(seconds: int) -> str:
    """Return seconds since 1970 as such a text; "" for 0."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds > 0 else ""
    except (OverflowError, ValueError):
        return ""


def seconds(text: str) -> float:
    """Return what ``date +%s`` prints. Raises OutputError."""
    if not text.strip().isdigit():
        raise OutputError(f"The controller's clock printed {text.strip()[:60]!r} and not the seconds since 1970.")
    return float(text)


def printable(text: str, what: str) -> str:
    """Return ``text`` without the white space around it. Raises CorralError where Slurm would not keep it as it is."""
    text = text.strip()
    for position, character in enumerate(text, 1):
        if not character.isprintable():
            raise CorralError(
                f"The {what} {text[:60]!r} has a line break or another control character at character {position}; write it in one line."
            )
    return text
