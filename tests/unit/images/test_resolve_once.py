# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preload of slurmctld: the pause after a name that was not found is none, every other pause is what it was."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = "resolve_once.c"


@pytest.fixture(scope="module")
def library(build: Callable[..., Path]) -> Path:
    return build(SOURCE)


def preloaded(library: Path, code: str, after: list[Path] | None = None, **more: str) -> str:
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
        [sys.executable, "-c", prelude + code], env={**os.environ, **more, "LD_PRELOAD": " ".join(map(str, [library, *(after or [])]))},
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


def saved_node(name: str, state: int, address: str, reason: str = "") -> bytes:
    """A node of slurmctld's node_state as _node_record_pack() of 24.11 and 26.05 writes it, as far as its state and a little more."""

    def packed(word: str) -> bytes:
        return struct.pack(">I", len(word) + 1 if word else 0) + (word.encode() + b"\0" if word else b"")

    words = ["", address, name, name, "a comment", "", reason, "gpu", "gpu", "gres:1", "", "", ""]
    return b"".join(packed(word) for word in words) + struct.pack(">II", 0xFFFFFFFE, state) + b"more" * 20


def pod(node: str) -> str:
    return f"my-lab-{node}.my-lab-worker.ns.svc.invalid"


IDLE, DOWN, FUTURE, DRAIN = 2, 1, 6, 0x200


@pytest.fixture(scope="module")
def built(build: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The library, and the state file that it looks into."""
    state = tmp_path_factory.mktemp("state") / "node_state"
    return build(SOURCE, f'-DSTATE="{state}"'), state


@pytest.fixture
def remembering(built: tuple[Path, Path]) -> tuple[Path, Path]:
    """The same without any state yet."""
    for file in built[1].parent.iterdir():
        file.unlink()
    return built


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(
    ("state", "known"), [(IDLE, True), (IDLE | DRAIN, True), (DOWN | DRAIN, True), (FUTURE, False), (FUTURE | DRAIN, False)]
)
def test_a_node_that_slurmctld_has_seen_keeps_what_it_knows_of_it(
    remembering: tuple[Path, Path], state: int, known: bool, told: bool
) -> None:
    """Whether the file has the name of its pod, or the address that the pod has told."""
    library, file = remembering
    addresses = {name: "192.0.2.7" if told else pod(name) for name in ("gpu-1", "gpu-10", "gpu-11")}
    nodes = [("gpu-10", IDLE), ("gpu-1", state), ("gpu-11", FUTURE)]
    file.write_bytes(b"header" + b"".join(saved_node(name, how, addresses[name], "by ada") for name, how in nodes))
    names = [*(pod(name) for name in ("gpu-10", "gpu-1", "gpu-11", "gpu", "1")), "gpu-10", "by ada"]
    assert preloaded(library, f"print(*map(find, {names}))", CORRAL_CLUSTER="my-lab").split() == ["True", str(known), *["False"] * 5]
    code = f"import contextlib\nwith contextlib.suppress(OSError): print(socket.getaddrinfo({pod('gpu-1')!r}, 1)[0][4][0])"
    assert preloaded(library, code, CORRAL_CLUSTER="my-lab") == ("127.0.0.1" if known else ""), "where nobody answers"


def test_a_machine_outside_is_known_by_its_address(remembering: tuple[Path, Path]) -> None:
    library, file = remembering
    file.write_bytes(b"header" + saved_node("old-1", DOWN, "old-1.invalid") + saved_node("old-2", FUTURE, "old-2.invalid"))
    for more in ({}, {"CORRAL_CLUSTER": "my-lab"}, {"CORRAL_CLUSTER": ""}):
        found = preloaded(library, "print(find('old-1.invalid'), find('old-2.invalid'), find('old-3.invalid'))", **more)
        assert found.split() == ["True", "False", "False"]


def test_the_save_before_counts_where_there_is_no_other(remembering: tuple[Path, Path]) -> None:
    library, file = remembering
    assert preloaded(library, "print(find('gpu-1.invalid'))") == "False"
    file.with_name("node_state.old").write_bytes(b"header" + saved_node("gpu-1", IDLE, "gpu-1.invalid"))
    assert preloaded(library, "print(find('gpu-1.invalid'))") == "True"


def test_a_file_that_breaks_off_says_nothing_of_its_last_node(remembering: tuple[Path, Path]) -> None:
    library, file = remembering
    whole = b"header" + saved_node("gpu-1", IDLE, "gpu-1.invalid")
    end = len(whole) - 80
    for cut in (*range(1, end, end // 6), end - 1):
        file.write_bytes(whole[:cut])
        assert preloaded(library, "print(find('gpu-1.invalid'))") == "False", cut
    file.write_bytes(whole[:end])
    assert preloaded(library, "print(find('gpu-1.invalid'))") == "True"


def test_a_node_is_not_taken_for_gone_where_the_name_server_is_silent(
    remembering: tuple[Path, Path], build: Callable[..., Path], tmp_path: Path
) -> None:
    _library, file = remembering
    file.write_bytes(saved_node("gpu-1", IDLE, "gpu-1.invalid"))
    source = tmp_path / "silent.c"
    source.write_text("int getaddrinfo(void)\n{\n\treturn -3;\n}\n")
    hurried = build(SOURCE, f'-DSTATE="{file}"', "-DPATIENCE=0")
    assert preloaded(hurried, "print(find('gpu-1.invalid'))", after=[build(source, "-fno-builtin")]) == "False"
