# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation's own rules: prose of at most 100 columns, and links that lead to a page and to a heading of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .repository import ROOT, files, text

COLUMNS = 100
# `make crd` writes the first, `make bench` the second, and tests in the lab the others.
GENERATED = {"docs/reference/slurmcluster.md", "docs/benchmarks.md", "docs/scenarios.md"}
PAGES = sorted(
    {path for path in files() if path.suffix == ".md" and path.parts[0] == "docs" and str(path) not in GENERATED}
    | {Path(name) for name in ("README.md", "CONTRIBUTING.md", "files/spank/README.md", "images/README.md", "tests/bench/README.md")}
)


def prose(page: str) -> Iterator[tuple[int, str]]:
    """Lines of a page with their numbers, without tables, code blocks and lines that are one link."""
    fence = False
    for number, line in enumerate(page.splitlines(), 1):
        mark = line.lstrip().startswith("```")
        fence ^= mark
        if not (mark or fence or line.startswith("|") or re.fullmatch(r"\s*([-*] )?\[[^\]]*\]\([^)]*\)[.,;:]?", line)):
            yield number, line


def too_long(page: str) -> list[int]:
    return [number for number, line in prose(page) if len(line) > COLUMNS]


def anchors(page: str) -> set[str]:
    """The names by which a link reaches a page's headings, as GitHub and Ansible Galaxy make them."""
    titles = [line.lstrip("#").strip() for dummy, line in prose(page) if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w -]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)).lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [str(path) for path in PAGES])
def test_no_prose_is_wider_than_the_limit(page: str) -> None:
    long = too_long(text(Path(page)))
    assert long == [], f"{page} has lines of more than {COLUMNS} columns: wrap them"


def test_what_counts_as_prose() -> None:
    wide = "x" * (COLUMNS + 1)
    assert too_long(f"{wide}\n\n| {wide} |\n```\n{wide}\n```\n- {wide}\n[{wide}](a.md)\n{wide[:COLUMNS]}\n") == [1, 7]


def test_links_lead_to_a_page_and_to_a_heading_of_it() -> None:
    link = re.compile(r"\]\((?![a-z]+:)([^)\s]+)\)")
    lost = []
    for path in (path for path in files() if path.suffix == ".md"):
        for target in link.findall("\n".join(line for line in text(path).splitlines() if not line.startswith("```"))):
            name, *rest = target.split("#", 1)
            there = Path(os.path.normpath(path.parent / name)) if name else path
            if not (ROOT / there).exists() or (rest and rest[0] not in anchors(text(there))):
                lost.append(f"{path}: {target}")
    assert lost == []
