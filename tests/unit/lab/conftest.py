# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's package lies beside its program, outside the collection's Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "lab"))

from corral_lab.state import Paths


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A lab's folders, with nothing in them."""
    return Paths(tmp_path / "lab", tmp_path / "cache")
