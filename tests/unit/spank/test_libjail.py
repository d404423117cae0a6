# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Runs libjail's own tests, so that one pytest call has them too."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

SPANK = pathlib.Path(__file__).resolve().parents[3] / "files" / "spank"


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("make"), reason="needs gcc and make")
def test_libjail(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(["make", "-C", str(SPANK), "test", f"BUILD={tmp_path}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
