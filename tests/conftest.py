# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes this checkout importable as `ansible_collections.corral.slurm`, so that a plain `pytest tests/unit` works without a word about paths."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# How long an example takes says more of the machine than of what is tested.
hypothesis.settings.register_profile("corral", deadline=None)
hypothesis.settings.load_profile("corral")

REPOSITORY = Path(__file__).resolve().parents[1]

# The link tree outside the checkout is the Makefile's own; Python's current folder or an installed collection must not win over it.
TREE = subprocess.run([REPOSITORY / "tools" / "tree"], check=True, capture_output=True, text=True).stdout.strip()
if TREE not in sys.path:
    sys.path.insert(0, TREE)
# For ansible-playbook and other programs that tests start.
os.environ["ANSIBLE_COLLECTIONS_PATH"] = TREE
os.environ["PYTHONPATH"] = TREE


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """With CI set, say at once what failed and why: a run that is ended by its time limit prints no summary."""
    if os.environ.get("CI") and report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = " ".join(str(crash.message if crash else report.longrepr).split())
        print(f"\nFAILED after {report.duration:.0f} s: {report.nodeid} ({report.when}): {why[:600]}", file=sys.__stdout__, flush=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A machine of somebody's may lack what a test needs; where all is installed, a test that is left out is a test that is lost."""
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason: Any = report.longrepr
        report.outcome = "failed"
        report.longrepr = f"With CI set no test is left out: {reason[2] if isinstance(reason, tuple) else reason}"
    return report
