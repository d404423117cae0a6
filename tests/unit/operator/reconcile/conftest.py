# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs are no processes here: what would be sent to one ends its script."""

from __future__ import annotations

import pytest

from corral_operator.runs import run

from ..world import kill


@pytest.fixture(autouse=True)
def signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "kill_tree", kill)
    monkeypatch.setattr(run.os, "kill", kill)
