# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who opens, executes, connects to, makes and removes what on the jail's volume, and with which rights at that very moment.

The kernel asks before each open (fanotify's permission events), so the opener stands still while it is inspected: its user and capabilities are those of
that call, and the path is the one in the mount namespace that it went through. Libraries that are mapped were opened before. What is made and removed is told
afterwards; with which rights that was, and who asks for unix sockets (for those too that are not there), tells calls.py. Marks lie on the directories
themselves, so every mount of the volume is seen, of every node of the lab. Not seen: directories that are made meanwhile, and looks that open nothing (stat,
O_PATH).
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .calls import Call, Calls

CLASS_NOTIFY, CLASS_CONTENT, CLOEXEC, NONBLOCK, UNLIMITED, REPORT_TID, REPORT_DFID_NAME = 0x0, 0x4, 0x1, 0x2, 0x30, 0x100, 0xC00
ADD, OPEN_PERM, OPEN_EXEC_PERM, CREATE, DELETE, MOVED_FROM, MOVED_TO, ON_DIRECTORY, ON_CHILD = (
    0x1, 0x10000, 0x40000, 0x100, 0x200, 0x40, 0x80, 0x40000000, 0x08000000,
)  # fmt: skip
ALLOW = 1
OPENAT2, IN_ROOT = 437, 0x10
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

NAMES = "users' names, by nss_corral.c: a plain file, by descriptor, without waiting, and none with an id or a name of the pod's own"
USERS = "the job that writes users, without a capability that leads out: by descriptors from the jail's root on, and through no link"
FIRST_LOGIN = "what a user lacks at the first login: by descriptors from the jail's root on, and through no link; in the home with the user's own rights"
# Of pods: their daemons, sessions by ssh, what is made at logins, users.
OF_PODS = (
    Explained(
        "slurmctld-wlm|slurmd-wlm|slurmd|scontrol|squeue|sinfo|sacctmgr|sacct|scancel|getent|id"
        r"|python3\.\d+ first_login\.py",
        "pod",
        "open",
        "/etc/(passwd|group)",
        NAMES,
    ),
    Explained("sshd(-session)?|sshd-auth", "pod|jail", "open", "/etc/(passwd|group)", NAMES),
    Explained("sshd(-session)?", "pod", "open", "/etc/corral-jail", "a session enters as a step does"),
    Explained("sshd(-session)?", "jail", "open", "/|/opt|/var|/var/spool", "a session enters as a step does"),
    Explained(r"python3\.\d+ users\.py", "pod", "open", "/|/(disk|fast|scratch|home)(/.*)?|/etc(/.*)?", USERS),
    Explained(r"python3\.\d+ users\.py", "-", "make|remove", "/(home|etc)/.*", USERS),
    Explained(
        r"python3\.\d+ first_login\.py",
        "pod",
        "open",
        r"/|/home(/[^/]+)?|/etc(/\.pwd\.lock|/skel(/.*)?|/ssh(/ssh_config\.d)?)?",
        FIRST_LOGIN,
    ),
    Explained(r"python3\.\d+ first_login\.py", "-", "make|remove", r"/home/[^/]+|/etc/\.pwd\.lock", FIRST_LOGIN),
)

# Root of a pod asks for a socket of the jail, so that it is known to be seen.
ASK_IN_JAIL = "import socket; socket.socket(socket.AF_UNIX).connect_ex('/mnt/jail/home/nobody-listens')"
ASKED = Explained("python3.*", "pod", "connect", "/home/nobody-listens", "the test's own")


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


def identity(uid: int, capabilities: int, inside: bool) -> str | None:
    """What makes a process one of the pod; None: it is a user's. Root whose root is the jail, without capabilities that lead out, is the jail's."""
    if capabilities & LEAD_OUT:
        return "capabilities"
    return f"uid {uid}" if uid in POD_IDENTITIES and not inside else None


def rights_of(process: int, jail: tuple[int, int]) -> str | None:
    """Of one that is there; None: gone, too."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        inside = place_of(f"/proc/{process}/root/") == jail
    except OSError:
        return None
    words = {line.split(":")[0]: line.split()[1:] for line in lines if line.startswith(("Uid", "CapEff", "NSpid"))}
    uid, capabilities = int(words["Uid"][1]), int(words["CapEff"][0], 16)
    if len(words.get("NSpid", ["1"])) < 2:
        return None  # the machine's own: this test, the runtime, the kubelet
    return identity(uid, capabilities, inside)


def view_of(path: str) -> tuple[str, str]:
    """Through whose root a path of the jail is shown, and what it is in the jail."""
    for place, view in ("/.corral", "view"), ("/mnt/jail", "pod"):
        if path.startswith(place):
            return view, path.removeprefix(place) or "/"
    return "jail", path or "/"


def program_of(process: int, gone: str = "") -> str:
    """Its name; of Python, also that of what it runs. ``gone``: what it was called, where it is no more."""
    try:
        name = os.path.basename(os.readlink(f"/proc/{process}/exe"))
        words = Path(f"/proc/{process}/cmdline").read_text().split("\0")[1:] if name.startswith("python") else []
    except OSError:
        return gone or "?"
    return " ".join([name, *(os.path.basename(word) for word in words if word and not word.startswith("-"))][:2])


# What lies over the jail's root, and where the pod has the jail: for who is gone before it can be asked.
MOUNTED = "/(run|tmp|dev|proc|sys)/.*"
THE_PODS_WAYS = "/(mnt/jail|home|[.]corral)(/.*)?"
# Whoever has that root asks for that socket, which nobody has.
NOBODYS = "/corral-watch"
ASK = """
import os, socket, sys
os.chroot(sys.argv[1])
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[2])
except OSError:
    pass
"""


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
        self.calls = Calls()
        # The kernel's own number of the jail's root; with it, this sees calls at all.
        subprocess.run(["unshare", "--pid", "--fork", sys.executable, "-c", ASK, os.fsdecode(self.root), NOBODYS], check=True)
        [self.root_in_kernel] = [one.root for one in self.calls.read() if one.path == NOBODYS]
        # Who made or removed a name last, by thread and name.
        self.names: dict[tuple[int, str], tuple[str, str | None]] = {}
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
        self.calls.close()

    def listen(self) -> None:
        while not self.over.is_set():
            for group in select.select([self.opens, self.makes, self.calls.file], [], [], 0.2)[0]:
                # What was told afterwards began before.
                for one in self.calls.read():
                    self.called(one)
                if group == self.calls.file:
                    continue
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

    def made(self, mask: int, record: bytes, thread: int) -> None:
        size = struct.unpack_from("=I", record, 12)[0]
        directory = self.directories.get(record[12 : 20 + size], "?")
        name = os.fsdecode(record[20 + size :].split(b"\0")[0])
        program, why = self.names.get((thread, name)) or ("", rights_of(thread, self.jail))
        if why:
            how = "remove" if mask & (DELETE | MOVED_FROM) else "make"
            self.touched.add(Touch(program_of(thread, program), why, "-", how, f"{directory.rstrip('/')}/{name}"))

    def called(self, one: Call) -> None:
        inside = one.root == self.root_in_kernel
        why = identity(one.uid, one.capabilities, inside)
        if not one.connects:
            self.names[one.thread, os.path.basename(one.path.rstrip("/"))] = (one.program, why)
        elif why:
            self.connected(one, why, inside)

    def connected(self, one: Call, why: str, inside: bool) -> None:
        try:
            shown = self.on_the_way(one.process, one.path, inside)
        except OSError:
            # Gone, or elsewhere already.
            shown = None if re.fullmatch(MOUNTED, one.path) or not (inside or re.fullmatch(THE_PODS_WAYS, one.path)) else one.path
        if shown:
            self.note(one.process, why, "connect", shown, one.program)

    def on_the_way(self, process: int, path: str, inside: bool) -> str | None:
        """The path, as it is shown from the first directory of the jail by which the process comes to it; None: it comes by none. Below the jail's root lie
        the mounts, so that is one only for what is not there."""
        if (place_of(f"/proc/{process}/root/") == self.jail) != inside:
            raise ProcessLookupError
        start = os.open(f"/proc/{process}/{'root' if path.startswith('/') else 'cwd'}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            names = path.strip("/").split("/")
            for depth in range(1, len(names) + 1):
                shown, there = self.look(start, "/".join(names[:depth]))
                if shown or (inside and depth == 1 and not there):
                    return "/".join([shown.rstrip("/"), *names[depth:]]) if shown else path
        finally:
            os.close(start)
        return None

    def look(self, start: int, path: str) -> tuple[str, bool]:
        """What the process calls it where it lies in the jail, and whether it is there at all."""
        how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, IN_ROOT)
        file = kernel.syscall(OPENAT2, start, os.fsencode(path), how, len(how))
        if file < 0:
            return "", False
        try:
            found, shown = os.fstat(file), os.readlink(f"/proc/self/fd/{file}")
            same = os.lstat(os.fsdecode(self.root) + view_of(shown)[1])
        except OSError:
            return "", True
        finally:
            os.close(file)
        return (shown if (found.st_dev, found.st_ino) == (same.st_dev, same.st_ino) else ""), True

    def note(self, process: int, why: str, how: str, path: str, name: str = "") -> None:
        view, path = view_of(path)
        self.touched.add(Touch(program_of(process, name), why, view, how, path))
