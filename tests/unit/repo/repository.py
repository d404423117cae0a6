# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the repository itself read: its files as git sees them, and the YAML in them."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]


@functools.cache
def files() -> tuple[Path, ...]:
    """What git would take: tracked files that exist and new ones that are not ignored, relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return tuple(sorted({Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()}))


@functools.cache
def text(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def load(path: str | Path) -> Any:
    return yaml.safe_load(text(Path(path)))


def names(folder: str, pattern: str = "*.py") -> list[str]:
    """Names of the plugins in a folder, without those that begin with an underscore."""
    return sorted(path.stem for path in files() if path.parent == Path(folder) and path.match(pattern) and not path.name.startswith("_"))


def program(path: str) -> ModuleType:
    """A Python file beside the collection, as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
