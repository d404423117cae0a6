# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AppArmor's profiles decide, without a kernel that has AppArmor: the parser's own output, walked as the kernel walks it (security/apparmor/match.c)."""

from __future__ import annotations

import re
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

# What a kernel of today mediates, as Debian's package of the parser has it: without it, rules of mounts, signals and tracing would be left out.
FEATURES = Path("/etc/apparmor.d/abi/3.0")
_MAGIC = struct.pack(">I", 0x1B5E783D)
_ACCEPT, _BASE, _CHECK, _DEFAULT, _CLASSES, _NEXT = 1, 2, 3, 4, 5, 8
_WIDTHS = {1: "B", 2: "H", 4: "I"}
_DIFF_ENCODED = 1 << 31
_MOUNT_CLASS = b"\x07"
# Bits of a path's permissions, which the kernel keeps apart for owners and others, and of mounts.
_FILE_BITS = {"x": 1, "w": 2, "r": 4}
_OTHERS = 14
_PIVOT, _MOUNT, _UMOUNT = 1, 2, 4


def compiled(parser: str, path: Path) -> bytes:
    """A profile as the kernel takes it."""
    command = [parser, "-Q", "-K", "-S", f"--kernel-features={FEATURES}", "--warn=all", "--Werror=all", str(path)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@dataclass(frozen=True)
class Automaton:
    """One of the compiled tables: from a state by a byte to a state, which accepts some permissions."""

    tables: dict[int, tuple[int, ...]]

    @classmethod
    def of(cls, blob: bytes) -> Automaton:
        header, size = struct.unpack_from(">II", blob, 4)
        tables, position = {}, header
        while position < size:
            kind, width, high, low = struct.unpack_from(">HHII", blob, position)
            count = low * (high + 1)
            tables[kind] = struct.unpack_from(f">{count}{_WIDTHS[width]}", blob, position + 12)
            position += -(-(12 + count * width) // 8) * 8
        return cls(tables)

    def walk(self, text: bytes, state: int = 1) -> int:
        for byte in text:
            state = self._next(state, self.tables[_CLASSES][byte] if _CLASSES in self.tables else byte)
        return state

    def _next(self, state: int, byte: int) -> int:
        while True:
            base = self.tables[_BASE][state]
            place = (base & 0xFFFFFF) + byte
            if self.tables[_CHECK][place] == state:
                return self.tables[_NEXT][place]
            state = self.tables[_DEFAULT][state]
            if not base & _DIFF_ENCODED:
                return state

    def accepts(self, state: int) -> int:
        return self.tables[_ACCEPT][state]


@dataclass(frozen=True)
class Profile:
    """A compiled profile and its answers."""

    files: Automaton
    rest: Automaton
    capabilities: int

    @classmethod
    def compile(cls, parser: str, path: Path) -> Profile:
        blob = compiled(parser, path)
        starts = [found.start() for found in re.finditer(re.escape(_MAGIC), blob)]
        assert len(starts) == 2, "a table of classes and one of paths"
        rest, files = (Automaton.of(blob[start:]) for start in starts)
        # The struct of a profile: its path's flags, then the lower half of its capabilities; the upper half has a struct of its own.
        lower = re.search(rb"path_flags\x00\x02.{4}\x02(.{4})", blob, re.DOTALL)
        upper = re.search(rb"caps64\x00\x07\x02(.{4})", blob, re.DOTALL)
        assert lower and upper
        return cls(files, rest, int.from_bytes(lower[1] + upper[1], "little"))

    def path(self, path: str, owner: bool = True) -> str:
        """Which of r, w and x a process may do with a path."""
        bits = self.files.accepts(self.files.walk(path.encode())) >> (0 if owner else _OTHERS)
        return "".join(letter for letter in "rwx" if bits & _FILE_BITS[letter])

    def mount(self, target: str, source: str, kind: str) -> bool:
        text = b"\0".join((target.encode(), source.encode(), kind.encode(), b""))
        return bool(self.rest.accepts(self.rest.walk(_MOUNT_CLASS + text)) & _MOUNT)

    def umount(self, target: str) -> bool:
        return bool(self.rest.accepts(self.rest.walk(_MOUNT_CLASS + target.encode())) & _UMOUNT)

    def pivot(self, new: str, old: str) -> bool:
        return bool(self.rest.accepts(self.rest.walk(_MOUNT_CLASS + b"\0".join((new.encode(), old.encode())))) & _PIVOT)

    def capability(self, number: int) -> bool:
        return bool(self.capabilities >> number & 1)
