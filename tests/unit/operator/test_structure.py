# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's parts stay of a size that can be read. Which may import which is in pyproject.toml."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import corral_operator

CLASSES = [
    (f"{path.stem}.{node.name}", node)
    for path in sorted(Path(corral_operator.__path__[0]).rglob("*.py"))
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.ClassDef)
]


def mutable(node: ast.ClassDef) -> Iterator[ast.AnnAssign]:
    decorators = {ast.unparse(one) for one in node.decorator_list}
    if "dataclass" in decorators:
        yield from (one for one in node.body if isinstance(one, ast.AnnAssign))


def test_no_class_is_a_world_of_its_own() -> None:
    assert len(CLASSES) > 40
    lines = {name: (node.end_lineno or 0) - node.lineno for name, node in CLASSES}
    assert max(lines.values()) > 100
    assert {name: count for name, count in lines.items() if count > 300} == {}


def test_no_state_has_more_than_a_dozen_fields() -> None:
    fields = {name: len(list(mutable(node))) for name, node in CLASSES}
    assert max(fields.values()) > 8
    assert {name: count for name, count in fields.items() if count > 12} == {}
