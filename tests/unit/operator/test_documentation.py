# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/operator.md lists all events, conditions and metrics of the operator, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from corral_operator.api.events import Reason
from corral_operator.reconcile import conditions
from corral_operator.serving.metrics import Metrics

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "operator.md").read_text()
CODE = "".join(path.read_text() for path in (Path(conditions.__file__).parent).rglob("*.py"))


def section(title: str) -> str:
    """Return the table rows of a section, without the header."""
    text = re.split(r"^##+ ", PAGE.split(f"# {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    return "\n".join(line for line in text.splitlines() if line.startswith("| `"))


def first_column(title: str) -> set[str]:
    return {name for line in section(title).splitlines() for name in re.findall(r"`(\w+)`", line.split(" | ")[0])}


def test_the_page_has_every_event() -> None:
    reasons = set(get_args(Reason))
    assert len(reasons) > 15
    assert first_column("Events") ^ reasons == set()
    assert {reason for reason in reasons if f'"{reason}"' not in CODE} == set(), "these are never written"


def test_the_page_has_every_condition() -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith("| conditions |")]
    types = {
        condition["type"] for condition in conditions.build(conditions.Facts(tenants=("True", "Applied", "")), {}, "now")["conditions"]
    }
    assert set(re.findall(r"`([A-Z]\w+)`", row)) ^ types ^ set(conditions.COMPONENTS.values()) == set()


def test_the_page_has_every_metric() -> None:
    names = {found.name for found in Metrics().registry.collect()}
    assert len(names) > 15
    assert first_column("Metrics") ^ names == set()
