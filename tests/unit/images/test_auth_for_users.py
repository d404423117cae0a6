# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preload of the munged for users: accounts of a pod are nobody, everybody else is who they are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="asks as several users, so it needs root")
# Asked through a socket of its own, as munged does; the other options of a socket are none of its business.
ASK = """
import os, socket, struct, sys
os.setresgid(*[int(sys.argv[2])] * 3)
os.setresuid(*[int(sys.argv[1])] * 3)
one, other = socket.socketpair()
print(*struct.unpack("3i", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1:], one.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE))
"""


@pytest.mark.parametrize(
    ("user", "group", "seen"),
    [
        (0, 0, "65534 65534 1"),
        (0, 10001, "65534 65534 1"),
        (64030, 64030, "65534 65534 1"),
        (10001, 10001, "10001 10001 1"),
        (64031, 64031, "65534 65534 1"),
        (64032, 10001, "65534 65534 1"),
        (33, 10001, "65534 65534 1"),
        (10001, 0, "10001 65534 1"),
        (10001, 42, "10001 65534 1"),
        (10001, 64031, "10001 65534 1"),
        (500, 100, "500 100 1"),
        (70000, 70000, "70000 70000 1"),
    ],
)
def test_who_asks(build: Callable[..., Path], user: int, group: int, seen: str) -> None:
    library = build("auth_for_users.c")
    command = [sys.executable, "-c", ASK, str(user), str(group)]
    plain = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert plain == f"{user} {group} 1", "without the library it is told the truth"
    assert (
        subprocess.run(command, env={**os.environ, "LD_PRELOAD": str(library)}, capture_output=True, text=True, check=True).stdout.strip()
        == seen
    )
