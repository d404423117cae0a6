# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules that hold for every file of the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .repository import ROOT, files, text

# Put together here, so that this file does not break the rule that it holds.
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("deb", "debian", "org"),
        ("registry", "k8s", "io"),
        ("registry-1", "docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
        ("registry", "npmjs", "org"),
    )
]
FORBIDDEN = {
    "a package registry's host: builds must work with whatever registry the machine is set up for": "|".join(map(re.escape, HOSTS)),
    "a path of one developer's machine": "/" + r"work/(main|shared|\.library)\b" + "|/" + r"root/\.",
    "a privileged container: name the capabilities that it needs": r"privileged: *['\"]?" + "true",
    "unfinished work: do it, or say in the documentation that it is not there": r"\b(TO" + "DO|FIX" + "ME|XX" + r"X)\b",
}
PROSE = {".md"}
BINARY = {".png", ".gz", ".tar"}


def lines() -> Iterator[tuple[Path, int, str]]:
    for path in files():
        if path.suffix not in BINARY and path.name not in {"LICENSE", "go.sum"}:
            yield from ((path, number, line) for number, line in enumerate(text(path).splitlines(), 1))


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    # Prose may speak of what the manifests may not do.
    prose = PROSE if "privileged" in what else set()
    found = [f"{path}:{number}: {line.strip()}" for path, number, line in lines() if path.suffix not in prose and pattern.search(line)]
    assert not found, f"{what}\n" + "\n".join(found)


def is_code(path: Path) -> bool:
    return path.suffix in {".py", ".c", ".h", ".sh", ".go"} or text(path).startswith("#!")


def test_code_names_its_licence() -> None:
    # An empty file has nothing to license.
    bare = [
        str(path)
        for path in files()
        if path.suffix not in BINARY
        and text(path)
        and is_code(path)
        and "SPDX-License-Identifier: GPL-3.0-or-later" not in text(path)[:600]
    ]
    assert not bare, "without an SPDX line near the top: " + ", ".join(bare)


def test_python_is_of_this_decade() -> None:
    old = [
        str(path)
        for path in files()
        if path.suffix == ".py" and "import" in text(path) and "from __future__ import annotations" not in text(path)
    ]
    assert not old, "without `from __future__ import annotations`: " + ", ".join(old)


def test_ansible_test_needs_no_ignores() -> None:
    assert [str(path) for path in files() if path.is_relative_to("tests/sanity")] == []


def test_build_results_are_not_tracked() -> None:
    built = [str(path) for path in files() if path.suffix in {".o", ".so", ".a", ".pyc", ".gz", ".tar"} or path.parts[0] == "build"]
    assert built == []


def test_programs_can_be_run() -> None:
    """A first line with an interpreter and the executable bit go together. (Modules have the first line only: Ansible runs them its own way.)"""
    wrong = [
        str(path)
        for path in files()
        if path.suffix not in BINARY
        and path.parts[:2] != ("plugins", "modules")
        and text(path).startswith("#!") != bool((ROOT / path).stat().st_mode & 0o100)
    ]
    assert wrong == []
