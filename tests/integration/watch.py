# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who opens, executes, makes and removes what on the jail's volume, and with which rights at that very moment.

The kernel asks before each open (fanotify's permission events), so the opener stands still while it is looked at: its user and capabilities are those of
that call, and the path is the one in the mount namespace that it went through. Libraries that are mapped were opened before. What is made and removed is told
afterwards. Marks lie on the directories themselves, so every mount of the volume is seen, of every node of the lab, and nothing else of the machine is
slowed down. Not seen: directories that are made meanwhile, looks that open nothing (stat, O_PATH), and connections to sockets.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import struct
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CLASS_NOTIFY, CLASS_CONTENT, CLOEXEC, NONBLOCK, UNLIMITED, REPORT_TID, REPORT_DFID_NAME = 0x0, 0x4, 0x1, 0x2, 0x30, 0x100, 0xC00
ADD, OPEN_PERM, OPEN_EXEC_PERM, CREATE, DELETE, MOVED_FROM, MOVED_TO, ON_DIRECTORY, ON_CHILD = (
    0x1, 0x10000, 0x40000, 0x100, 0x200, 0x40, 0x80, 0x40000000, 0x08000000,
)  # fmt: skip
ALLOW = 1
FOR_EVENTS = 0x200  # AT_HANDLE_FID: a file system that opens nothing by handle, such as an overlay, gives one too
EVENT = struct.Struct("=IBBHQii")
kernel = ctypes.CDLL(None, use_errno=True)

# Those that jail_drop_capabilities takes from all that users start (files/spank/caps.c): who has one of them is no process of the jail.
LEAD_OUT = sum(
    1 << number for number in (2, 12, 16, 17, 18, 19, 20, 21, 22, 25, 26, 27, 30, 32, 33, 34, 35, 36, 37, 38, 39, 40) if number != 30
)
# root, sshd's before somebody is known, Slurm's account, munge's, the one that asks for keys of a directory, nobody.
POD_IDENTITIES = frozenset({0, 999, 64030, 64031, 64032, 65534})


@dataclass(frozen=True, order=True)
class Touch:
    """``who``: the program. ``view``: in whose root the path was resolved: "jail" (the jail is the root), "view" (slurmstepd's own), "pod"; "-": of what is
    made and removed it is not told.
    """

    who: str
    rights: str
    view: str
    how: str
    path: str


@dataclass(frozen=True)
class Explained:
    """Regular expressions of whole values, and why it is safe that root in the jail may have put anything there."""

    who: str
    view: str
    how: str
    path: str
    why: str

    def covers(self, touch: Touch) -> bool:
        pairs = ((self.who, touch.who), (self.view, touch.view), (self.how, touch.how), (self.path, touch.path))
        return all(re.fullmatch(wanted, seen) for wanted, seen in pairs)


# Of each step, wherever Slurm runs.
OF_STEPS = (
    Explained(
        "slurmstepd|jail-exec",
        "pod",
        "open",
        "/etc/corral-jail",
        "the marker is read without waiting and by no link, by a child that is left when it hangs; one byte",
    ),
    Explained(
        "slurmstepd",
        "view",
        "open",
        "/etc/corral-jail",
        "the marker's image for CORRAL_JAIL: without waiting and by no link, and only characters of a name are taken",
    ),
    Explained(
        "slurmstepd|jail-exec",
        "jail",
        "open",
        "/|/opt|/var|/var/spool",
        "the names there are listed for slurmstepd's own root: only directories are opened, by no link",
    ),
)


def unexplained(touched: set[Touch], explained: Iterable[Explained]) -> list[Touch]:
    """CORRAL_SHOW_TRACE names a file for all that was touched."""
    if os.environ.get("CORRAL_SHOW_TRACE"):
        Path(os.environ["CORRAL_SHOW_TRACE"]).write_text("\n".join(str(touch) for touch in sorted(touched)))
    rules = tuple(explained)
    return [touch for touch in sorted(touched) if not any(rule.covers(touch) for rule in rules)]


def check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def handle_of(directory: bytes) -> bytes:
    """The kernel's handle of a directory, as events name it."""
    buffer = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128))
    mount = ctypes.c_int()
    check(kernel.name_to_handle_at(-100, directory, buffer, ctypes.byref(mount), FOR_EVENTS), "name_to_handle_at")
    size, kind = struct.unpack_from("=Ii", buffer.raw)
    return struct.pack("=Ii", size, kind) + buffer.raw[8 : 8 + size]


def place_of(path: str | bytes) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def rights_of(process: int, jail: tuple[int, int]) -> str | None:
    """What makes this process one of the pod; None: it is a user's, or gone. Root whose root is the jail, without capabilities that lead out, is the jail's."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        inside = place_of(f"/proc/{process}/root/") == jail
    except OSError:
        return None
    words = {line.split(":")[0]: line.split()[1:] for line in lines if line.startswith(("Uid", "CapEff", "NSpid"))}
    uid, capabilities = int(words["Uid"][1]), int(words["CapEff"][0], 16)
    if len(words.get("NSpid", ["1"])) < 2:
        return None  # the machine's own: this test, the runtime, the kubelet
    if capabilities & LEAD_OUT:
        return "capabilities"
    return f"uid {uid}" if uid in POD_IDENTITIES and not inside else None


def program_of(process: int) -> str:
    """Its name; of Python, also that of what it runs."""
    try:
        name = os.path.basename(os.readlink(f"/proc/{process}/exe"))
        words = Path(f"/proc/{process}/cmdline").read_text().split("\0")[1:] if name.startswith("python") else []
    except OSError:
        return "?"
    return " ".join([name, *(os.path.basename(word) for word in words if word and not word.startswith("-"))][:2])


class Watch:
    """Watches from ``with`` to its end; ``touched`` is what was seen."""

    def __init__(self, root: Path) -> None:
        self.root = os.fsencode(root)
        self.jail = place_of(self.root)
        self.touched: set[Touch] = set()
        self.directories: dict[bytes, str] = {}
        self.over = threading.Event()
        self.opens = check(
            kernel.fanotify_init(CLASS_CONTENT | CLOEXEC | NONBLOCK | UNLIMITED | REPORT_TID, os.O_RDONLY | os.O_CLOEXEC), "fanotify_init"
        )
        self.makes = check(kernel.fanotify_init(CLASS_NOTIFY | CLOEXEC | NONBLOCK | UNLIMITED | REPORT_DFID_NAME, 0), "fanotify_init")
        self.thread = threading.Thread(target=self.listen, daemon=True)

    def __enter__(self) -> Watch:
        # All are found before one is marked, and somebody listens by then: finding them opens them.
        found = [directory for directory, _names, _files in os.walk(self.root)]
        self.directories = {handle_of(directory): os.fsdecode(directory[len(self.root) :]) or "/" for directory in found}
        self.thread.start()
        for directory in found:
            for group, mask in ((self.makes, CREATE | DELETE | MOVED_FROM | MOVED_TO), (self.opens, OPEN_PERM | OPEN_EXEC_PERM | ON_CHILD)):
                check(
                    kernel.fanotify_mark(group, ADD, ctypes.c_uint64(mask | ON_DIRECTORY), -100, directory), f"fanotify_mark {directory!r}"
                )
        return self

    def __exit__(self, *_error: object) -> None:
        self.over.set()
        self.thread.join()
        # Whoever still waits for an answer goes on.
        os.close(self.opens)
        os.close(self.makes)

    def listen(self) -> None:
        while not self.over.is_set():
            for group in select.select([self.opens, self.makes], [], [], 0.2)[0]:
                data = os.read(group, 65536)
                while data:
                    length, _version, _spare, start, mask, file, process = EVENT.unpack_from(data)
                    if group == self.opens:
                        self.opened(mask, file, process)
                    else:
                        self.made(mask, data[start:length], process)
                    data = data[length:]

    def opened(self, mask: int, file: int, process: int) -> None:
        try:
            rights = rights_of(process, self.jail)
            if rights:
                self.note(process, rights, "exec" if mask & OPEN_EXEC_PERM else "open", os.readlink(f"/proc/self/fd/{file}"))
        except OSError:
            pass  # gone meanwhile
        finally:
            os.write(self.opens, struct.pack("=iI", file, ALLOW))
            os.close(file)

    def made(self, mask: int, record: bytes, process: int) -> None:
        rights = rights_of(process, self.jail)
        if not rights:
            return
        size = struct.unpack_from("=I", record, 12)[0]
        directory = self.directories.get(record[12 : 20 + size], "?")
        name = os.fsdecode(record[20 + size :].split(b"\0")[0])
        self.touched.add(
            Touch(program_of(process), rights, "-", "remove" if mask & (DELETE | MOVED_FROM) else "make", f"{directory.rstrip('/')}/{name}")
        )

    def note(self, process: int, rights: str, how: str, path: str) -> None:
        view, _slash, path = ("view", "", path.removeprefix("/.corral")) if path.startswith("/.corral") else ("jail", "", path)
        if path.startswith("/mnt/jail"):
            view, path = "pod", path.removeprefix("/mnt/jail")
        self.touched.add(Touch(program_of(process), rights, view, how, path or "/"))
