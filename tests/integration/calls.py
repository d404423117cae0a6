# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who connects to which unix socket, and who makes, removes and renames which name, in all containers of the machine, with which rights at that very moment.

fanotify does not tell of connections, and of names only afterwards, when who did it may have other rights. So small programs of ours run in the kernel where
such a system call begins (BPF at its tracepoint). They note what is gone or changed a moment later: the rights and the root of who calls, and the path as it
is asked for. Where all that lies, the kernel says itself (BTF). All of it goes with the descriptors. Not seen: messages that are sent to a socket by its path,
without a connection.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

kernel = ctypes.CDLL(None, use_errno=True)
BPF, PERF_EVENT_OPEN = {"x86_64": (321, 298), "aarch64": (280, 241)}.get(os.uname().machine, (0, 0))
MAP_CREATE, PROG_LOAD, RING_BUFFER, FOR_TRACEPOINTS = 0, 5, 27, 5
SET_BPF, ENABLE = 0x40042408, 0x2400
SIZE = 1 << 21
BUSY = 1 << 31
# What follows a type of each kind: bytes, and bytes for each of its parts.
MORE = {1: (4, 0), 3: (12, 0), 4: (0, 12), 5: (0, 12), 6: (0, 8), 13: (0, 8), 14: (4, 0), 15: (0, 12), 17: (4, 0), 19: (0, 12)}

# System calls, and which of their arguments are paths whose last names are made or go away. Old ones are not everywhere.
NAMED = {
    **dict.fromkeys(("open", "creat", "mkdir", "mknod", "unlink", "rmdir"), (0,)),
    **dict.fromkeys(("openat", "openat2", "mkdirat", "mknodat", "unlinkat", "symlink", "link"), (1,)),
    "symlinkat": (2,),
    "linkat": (3,),
    "rename": (0, 1),
    "renameat": (1, 3),
    "renameat2": (1, 3),
}
# Of those that open, the argument with the flags: others are not asked for.
FLAGS = {"open": 1, "openat": 2}

# The note, as it lies at the end of the program's stack.
NOTE = struct.Struct("=IIQQII16sH350s")
THREAD, PROCESS, CAPABILITIES, ROOT, UID, LEVEL, PROGRAM, ADDRESS = (place - NOTE.size for place in (0, 4, 8, 16, 24, 28, 32, 48))
TEXT = ADDRESS + 2
AF_UNIX, LONGEST = 1, 110


@dataclass(frozen=True)
class Call:
    """``root``: the kernel's own number of the root directory. ``path``: a socket's where ``connects``, else of what is made or goes away."""

    thread: int
    process: int
    program: str
    uid: int
    capabilities: int
    root: int
    connects: bool
    path: str


def called(number: int, *arguments: object) -> int:
    result = kernel.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{'bpf' if number == BPF else 'perf_event_open'}: {os.strerror(ctypes.get_errno())}")
    return int(result)


def bpf(command: int, layout: str, *values: int) -> int:
    attributes = struct.pack(f"={layout}", *values).ljust(120, b"\0")
    return called(BPF, command, attributes, len(attributes))


class Structures:
    """Where members of the kernel's structures lie."""

    def __init__(self) -> None:
        data = Path("/sys/kernel/btf/vmlinux").read_bytes()
        head, types, length, strings = struct.unpack_from("=IIII", data, 4)
        self.strings = data[head + strings :]
        self.members: dict[int, list[tuple[str, int, int]]] = {}
        self.numbers: dict[str, int] = {}
        at, number = head + types, 0
        while at < head + types + length:
            number += 1
            name, info, _size = struct.unpack_from("=III", data, at)
            kind, parts = info >> 24 & 31, info & 0xFFFF
            at += 12
            if kind in (4, 5):
                # Of bit fields the upper bits tell how long they are.
                places = 0xFFFFFF if info >> 31 else 0xFFFFFFFF
                found = (struct.unpack_from("=III", data, at + 12 * part) for part in range(parts))
                self.members[number] = [(self.string(word), inner, (place & places) // 8) for word, inner, place in found]
                self.numbers.setdefault(self.string(name), number)
            fixed, each = MORE.get(kind, (0, 0))
            at += fixed + each * parts

    def string(self, at: int) -> str:
        return self.strings[at : self.strings.index(b"\0", at)].decode()

    def place(self, structure: str, *members: str) -> int:
        """Of a member, or of one of that."""
        number, place = self.numbers[structure], 0
        for member in members:
            found = self.look(number, member)
            assert found, f"the kernel has no {structure}.{'.'.join(members)}"
            number, place = found[0], place + found[1]
        return place

    def look(self, number: int, member: str) -> tuple[int, int] | None:
        for name, inner, place in self.members[number]:
            if name == member:
                return inner, place
            further = self.look(inner, member) if not name and inner in self.members else None
            if further:
                return further[0], place + further[1]
        return None


class Program:
    """Instructions. Registers: 1 to 5 go to a helper, 0 comes back, 6 is the tracepoint's record, 7 the task, 8 what was followed last, 10 the stack."""

    def __init__(self, structures: Structures, ring: int) -> None:
        self.place, self.ring = structures.place, ring
        self.code: list[bytes] = []
        self.leaves: list[int] = []
        self.add(0xBF, 6, 1)
        for word in range(THREAD, 0, 8):
            self.add(0x7A, 10, offset=word)

    def add(self, operation: int, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> None:
        self.code.append(struct.pack("=BBhi", operation, to | source << 4, offset, value))

    def on_stack(self, to: int, place: int) -> None:
        self.add(0xBF, to, 10)
        self.add(0x07, to, value=place)

    def leave_if(self, operation: int, register: int, value: int) -> None:
        self.leaves.append(len(self.code))
        self.add(operation, register, value=value)

    def argument(self, register: int, number: int) -> None:
        self.add(0x79, register, 6, 16 + 8 * number)

    def read(self, to: int, size: int, base: int, place: int, helper: int = 113) -> None:
        """Of the kernel's memory, to a place of the stack."""
        self.on_stack(1, to)
        self.add(0xB7, 2, value=size)
        self.add(0xBF, 3, base)
        self.add(0x07, 3, value=place)
        self.add(0x85, value=helper)

    def follow(self, base: int, place: int) -> None:
        """A pointer of the kernel's."""
        self.read(ROOT, 8, base, place)
        self.add(0x79, 8, 10, ROOT)

    def address(self) -> None:
        """As long as it is; of unix sockets with a path only."""
        self.on_stack(1, ADDRESS)
        self.argument(2, 2)
        self.add(0x67, 2, value=32)
        self.add(0x77, 2, value=32)
        self.add(0xB5, 2, offset=1, value=LONGEST)
        self.add(0xB7, 2, value=LONGEST)
        self.argument(3, 1)
        self.add(0x85, value=112)
        self.add(0x69, 1, 10, ADDRESS)
        self.leave_if(0x55, 1, AF_UNIX)
        self.add(0x71, 1, 10, TEXT)
        self.leave_if(0x15, 1, 0)

    def path(self, number: int) -> None:
        self.on_stack(1, TEXT)
        self.add(0xB7, 2, value=-TEXT)
        self.argument(3, number)
        self.add(0x85, value=114)

    def creates(self, number: int) -> None:
        """By the flags of an open."""
        self.argument(1, number)
        self.add(0x57, 1, value=os.O_CREAT)
        self.leave_if(0x15, 1, 0)

    def caller(self) -> None:
        """In a container: who has a number there that is not the machine's."""
        self.add(0x85, value=35)
        self.add(0xBF, 7, 0)
        self.follow(7, self.place("task_struct", "thread_pid"))
        self.read(LEVEL, 4, 8, self.place("pid", "level"))
        self.add(0x61, 1, 10, LEVEL)
        self.leave_if(0x15, 1, 0)
        self.add(0x85, value=14)
        self.add(0x7B, 10, 0, THREAD)
        self.on_stack(1, PROGRAM)
        self.add(0xB7, 2, value=16)
        self.add(0x85, value=16)
        self.follow(7, self.place("task_struct", "cred"))
        self.read(UID, 4, 8, self.place("cred", "euid"))
        self.read(CAPABILITIES, 8, 8, self.place("cred", "cap_effective"))

    def root(self) -> None:
        self.follow(7, self.place("task_struct", "fs"))
        self.follow(8, self.place("fs_struct", "root", "dentry"))
        self.follow(8, self.place("dentry", "d_inode"))

    def send(self) -> None:
        self.add(0x18, 1, 1, value=self.ring)
        self.add(0)
        self.on_stack(2, THREAD)
        self.add(0xB7, 3, value=NOTE.size)
        self.add(0xB7, 4)
        self.add(0x85, value=130)

    def end(self) -> bytes:
        for place in self.leaves:
            operation, registers, _offset, value = struct.unpack("=BBhi", self.code[place])
            self.code[place] = struct.pack("=BBhi", operation, registers, len(self.code) - place - 1, value)
        self.add(0xB7)
        self.add(0x95)
        return b"".join(self.code)


def for_connections(structures: Structures, ring: int) -> bytes:
    program = Program(structures, ring)
    program.caller()
    program.address()
    program.root()
    program.send()
    return program.end()


def for_names(structures: Structures, ring: int, call: str) -> bytes:
    program = Program(structures, ring)
    if call in FLAGS:
        program.creates(FLAGS[call])
    program.caller()
    program.root()
    for argument in NAMED[call]:
        program.path(argument)
        program.send()
    return program.end()


def tracepoints() -> dict[str, int]:
    """System call → its number among the kernel's events. Looked up where nobody else sees the mount."""
    look = "mount -t tracefs none /sys/kernel/tracing && cd /sys/kernel/tracing/events/syscalls && grep -H . sys_enter_*/id"
    said = subprocess.run(["unshare", "-m", "sh", "-c", look], check=True, stdout=subprocess.PIPE, text=True).stdout
    words = (line.removeprefix("sys_enter_").split("/id:") for line in said.splitlines())
    return {name: int(number) for name, number in words}


class Calls:
    """``file`` can be read when there is something to ``read``."""

    def __init__(self) -> None:
        assert BPF, f"the numbers of system calls on {os.uname().machine} are not known here"
        structures, numbers = Structures(), tracepoints()
        self.file = bpf(MAP_CREATE, "IIII", RING_BUFFER, 0, 0, SIZE)
        programs = {call: for_names(structures, self.file, call) for call in NAMED if call in numbers}
        programs["connect"] = for_connections(structures, self.file)
        self.attached = [attach(numbers[call], code) for call, code in programs.items()]
        self.taken = mmap.mmap(self.file, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=0)
        # The data twice in a row, so that none is torn at its end.
        self.given = mmap.mmap(self.file, mmap.PAGESIZE + 2 * SIZE, mmap.MAP_SHARED, mmap.PROT_READ, offset=mmap.PAGESIZE)

    def close(self) -> None:
        self.taken.close()
        self.given.close()
        for file in (*self.attached, self.file):
            os.close(file)

    def read(self) -> Iterator[Call]:
        at = struct.unpack_from("=Q", self.taken)[0]
        while at < struct.unpack_from("=Q", self.given)[0]:
            start = mmap.PAGESIZE + at % SIZE
            length = struct.unpack_from("=I", self.given, start)[0]
            if length & BUSY:
                return
            thread, process, capabilities, root, uid, _level, program, family, text = NOTE.unpack_from(self.given, start + 8)
            yield Call(thread, process, string(program), uid, capabilities, root, family == AF_UNIX, string(text))
            at += 8 + (length + 7 & ~7)
            struct.pack_into("=Q", self.taken, 0, at)


def string(words: bytes) -> str:
    return os.fsdecode(words.split(b"\0")[0])


def attach(event: int, code: bytes) -> int:
    """Have it run at that event, for as long as the descriptor is open."""
    said, lines, terms = ctypes.create_string_buffer(1 << 16), ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    texts = (ctypes.addressof(lines), ctypes.addressof(terms), 1, len(said), ctypes.addressof(said))
    try:
        loaded = bpf(PROG_LOAD, "IIQQIIQ", FOR_TRACEPOINTS, len(code) // 8, *texts)
    except OSError as error:
        raise AssertionError(f"{error}\n{said.value.decode()[-2000:]}") from error
    try:
        attributes = struct.pack("=IIQ", 2, 64, event).ljust(64, b"\0")
        file = called(PERF_EVENT_OPEN, attributes, -1, 0, -1, 8)
        fcntl.ioctl(file, SET_BPF, loaded)
        fcntl.ioctl(file, ENABLE, 0)
        return file
    finally:
        os.close(loaded)
