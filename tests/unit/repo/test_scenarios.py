# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/scenarios.md is written by tests in the lab; here it is seen that it has a row for each of their scenarios, and no other."""

from __future__ import annotations

import ast

from .repository import ROOT


def scenarios() -> list[str]:
    """What the tests give to ``scenario``; both texts of a choice."""
    found = []
    for path in sorted((ROOT / "tests" / "integration").rglob("test_*.py")):
        tree = ast.parse(path.read_text())
        texts = {
            node.targets[0].id: [one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)]
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "scenario":
                what = node.args[1]
                found += [what.value] if isinstance(what, ast.Constant) else texts[what.id] if isinstance(what, ast.Name) else []
    return found


def test_the_page_has_a_row_for_each_scenario() -> None:
    rows = [line.split("|")[1].strip() for line in (ROOT / "docs" / "scenarios.md").read_text().splitlines() if "`test_" in line]
    assert sorted(rows) == sorted(scenarios())


def test_no_job_is_lost_in_any() -> None:
    rows = [line.split("|") for line in (ROOT / "docs" / "scenarios.md").read_text().splitlines() if "`test_" in line]
    assert rows and all(row[7].strip() == "0" for row in rows)
