# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preload of slurmctld: the pause after a name that was not found is none, every other pause is what it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "images" / "slurm" / "resolve_once.c"
pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("preload") / "resolve_once.so"
    sanitized = ["gcc", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-o", str(made), str(SOURCE)]
    subprocess.run(sanitized, check=True)
    return made


def preloaded(library: Path, code: str) -> str:
    """Run Python code with the library; a pause that is not skipped lasts longer than the time allowed."""
    prelude = """
import ctypes, signal, socket
c = ctypes.CDLL(None)

def find(name):
    try:
        return bool(socket.getaddrinfo(name, 1))
    except socket.gaierror:
        return False

def paused():
    signal.signal(signal.SIGALRM, lambda *args: None)
    signal.alarm(2)
    return c.sleep(1000) > 0

"""
    done = subprocess.run(
        [sys.executable, "-c", prelude + code], env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_debians_ten_tries_cost_no_pause(library: Path) -> None:
    assert preloaded(library, "for i in range(10):\n find('nothing.invalid')\n c.sleep(1000)\nprint('through')") == "through"


def test_only_one_pause_is_skipped(library: Path) -> None:
    code = "find('nothing.invalid'); c.sleep(1000); print(paused())"
    assert preloaded(library, code) == "True", "the second sleep was a real one, which the signal ended"


def test_a_name_that_is_found_changes_nothing(library: Path) -> None:
    code = "print(find('localhost'), find('127.0.0.1'), paused())"
    assert preloaded(library, code).split() == ["True", "True", "True"]


def test_another_name_is_looked_for_in_earnest(library: Path) -> None:
    assert preloaded(library, "print(find('nothing.invalid'), find('localhost'))") == "False True"
