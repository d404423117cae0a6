# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preload of slurmctld: the pause after a name that was not found is none, every other pause is what it was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = "resolve_once.c"


@pytest.fixture(scope="module")
def library(build: Callable[..., Path]) -> Path:
    return build(SOURCE)


def preloaded(library: Path, code: str, after: list[Path] | None = None) -> str:
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
        [sys.executable, "-c", prelude + code], env={**os.environ, "LD_PRELOAD": " ".join(map(str, [library, *(after or [])]))},
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


def test_a_name_server_that_does_not_answer_is_asked_again_until_it_has_been_silent_for_too_long(
    library: Path, build: Callable[..., Path], tmp_path: Path
) -> None:
    """Another library in the place of the C library's look-up: it always says "try again", and notes how often it is asked."""
    source = tmp_path / "silent.c"
    source.write_text("int asked;\nint getaddrinfo(void)\n{\n\tasked++;\n\treturn -3;\n}\n")
    silent = build(source, "-fno-builtin")
    code = "for i in range(3): find('a-node')\nprint(ctypes.c_int.in_dll(c, 'asked').value, paused())"
    done = preloaded(library, code, after=[silent])
    assert done == "3 True", "a node whose name could not be looked for is taken for one without an address"
    hurried = build(SOURCE, "-DPATIENCE=0")
    assert (
        preloaded(
            hurried, "for i in range(3):\n find('a-node')\n c.sleep(1000)\nprint(ctypes.c_int.in_dll(c, 'asked').value)", after=[silent]
        )
        == "1"
    )


def test_another_name_is_looked_for_in_earnest(library: Path) -> None:
    assert preloaded(library, "print(find('nothing.invalid'), find('localhost'))") == "False True"
