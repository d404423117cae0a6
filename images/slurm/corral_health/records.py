# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""What a run leaves behind on the node: its state for the next one, a line of JSON, and metrics in the format of node_exporter's textfile collector."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corral_health.checks import BROKEN, FAILED, Result

# Of the file of results; the one before it is kept beside it.
_MOST_BYTES = 1 << 20


def load(path: Path) -> dict[str, Any]:
    """Return the state of the last run; an empty one when there is none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def save(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file in one step: who reads it meets the old text or the new one."""
    beside = path.with_name(f".{path.name}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line of JSON."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
    except FileNotFoundError:
        pass
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def metrics(node: str, results: Mapping[str, Result], failures: Mapping[str, str], seconds: float, now: float) -> str:
    """Return the metrics of a run. A check that is skipped has none."""
    rows = [
        (
            "corral_health_check_failed",
            "Whether the check found the node at fault.",
            {name: int(name in failures) for name in _done(results)},
        ),
        (
            "corral_health_check_warning",
            "Whether the check found something that does not count, or not yet.",
            {name: int(results[name].status == FAILED and name not in failures) for name in _done(results)},
        ),
        (
            "corral_health_check_broken",
            "Whether the check had no result.",
            {name: int(results[name].status == BROKEN) for name in _done(results)},
        ),
    ]
    lines = []
    for metric, text, values in rows:
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} gauge"]
        lines += [f'{metric}{{node="{node}",check="{name}"}} {value}' for name, value in values.items()]
    for metric, text, number in (
        ("corral_health_run_duration_seconds", "How long the last run took.", seconds),
        ("corral_health_last_run_timestamp_seconds", "When the last run ended.", now),
    ):
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} gauge", f'{metric}{{node="{node}"}} {number:.3f}']
    return "\n".join(lines) + "\n"


def _done(results: Mapping[str, Result]) -> list[str]:
    return [name for name, result in results.items() if result.status != "skipped"]
