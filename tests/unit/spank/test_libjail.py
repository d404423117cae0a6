# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Runs libjail's own tests, so that one pytest call has them too."""

from __future__ import annotations

import graphlib
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


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("make"), reason="needs gcc and make")
def test_no_two_files_need_each_other(tmp_path: pathlib.Path) -> None:
    subprocess.run(["make", "-s", "-C", str(SPANK), f"BUILD={tmp_path}", "CFLAGS=-O1", f"{tmp_path}/libjail.a"], check=True)
    home: dict[str, str] = {}
    needs: dict[str, set[str]] = {}
    for path in tmp_path.glob("*.o"):
        for line in subprocess.run(["nm", path], check=True, capture_output=True, text=True).stdout.splitlines():
            *_address, kind, name = line.split()
            if kind in "TDBR":
                home[name] = path.stem
            elif kind == "U":
                needs.setdefault(path.stem, set()).add(name)
    files = {file: {home[name] for name in names if name in home} for file, names in needs.items()}
    assert "check" in files["enter"]
    graphlib.TopologicalSorter(files).prepare()  # raises, and names the circle
