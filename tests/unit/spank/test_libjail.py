# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Runs libjail's own tests, so that one pytest call has them too."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import tempfile

import pytest

SPANK = pathlib.Path(__file__).resolve().parents[3] / "files" / "spank"


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("make"), reason="needs gcc and make")
def test_libjail() -> None:
    # Not in pytest's own folder, which is closed to users: some tests open files as one.
    with tempfile.TemporaryDirectory() as build:
        pathlib.Path(build).chmod(0o755)
        done = subprocess.run(["make", "-C", str(SPANK), "test", f"BUILD={build}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
