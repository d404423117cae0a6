# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What df says of the state volume, as a sentence."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._slurm import state

GIB = 1 << 30
MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "free", "said"),
    [
        (GIB, GIB, ""),
        (GIB, GIB // 5, ""),
        (GIB, 90 * MIB, "is nearly full (91 % of 1.0 GiB, 90.0 MiB left)"),
        (GIB, 7 * MIB, "is full (99 % of 1.0 GiB, 7.0 MiB left)"),
        (64 * MIB, 4 * MIB, "is nearly full (93 % of 64.0 MiB, 4.0 MiB left)"),
        (64 * MIB, 0, "is full (100 % of 64.0 MiB, 0.0 MiB left)"),
        (0, 0, ""),
    ],
)
def test_room(size: int, free: int, said: str) -> None:
    found = state.room(f"{size} {free}", "Pod ns/p")
    assert said in found
    assert bool(found) is bool(said)
    assert not found or ("Pod ns/p" in found and "make the claim larger" in found)


@pytest.mark.parametrize("answer", ["", "df: no such file", "1B-blocks Avail", "1 2x", "1", "1 2 3"])
def test_an_answer_that_is_none_says_nothing(answer: str) -> None:
    assert state.room(answer, "Pod ns/p") == ""


@pytest.mark.parametrize("there", [True, False])
def test_a_command_beside_has_its_own_output_and_exit_code(there: bool, tmp_path: Path) -> None:
    command = state.beside(["sh", "-c", "echo one; echo; echo two; echo said >&2; exit 3"])
    command[2] = command[2].replace(state.FOLDER, str(tmp_path if there else tmp_path / "away"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    line, rest = state.split(done.stdout)
    assert (done.returncode, done.stderr, rest) == (3, "said\n", "one\n\ntwo\n")
    assert [word.isdigit() for word in line.split()] == ([True, True] if there else [])
