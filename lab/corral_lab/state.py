# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the lab's files lie, what the running lab is, and the lock that lets one command change it at a time."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

LAB_FILES = Path(__file__).resolve().parent.parent
DEFAULT_DIRECTORY = "/var/lib/corral-lab"
LOCK = Path("/run/corral-lab.lock")
MAX_NODES = 3


class LabError(Exception):
    """Something that the user must know: what, where, why, and what to do next."""


@dataclass(frozen=True)
class Paths:
    """Every folder of the lab. `root` goes with `down`; `cache` stays."""

    root: Path
    cache: Path

    @classmethod
    def from_environment(cls, environment: dict[str, str]) -> Paths:
        """Paths by CORRAL_LAB_DIR and CORRAL_CACHE. Raises LabError for a folder that `down` must never remove."""
        root = Path(environment.get("CORRAL_LAB_DIR") or DEFAULT_DIRECTORY)
        if not root.is_absolute() or len(root.parts) < 3 or ".." in root.parts:
            raise LabError(f"CORRAL_LAB_DIR is {str(root)!r}: it must be an absolute path below a top folder, such as {DEFAULT_DIRECTORY}.")
        home = environment.get("HOME") or str(Path.home())
        cache = Path(environment.get("CORRAL_CACHE") or Path(home) / ".cache" / "corral") / "lab"
        return cls(root, cache)

    @property
    def name(self) -> str:
        """Names what lies outside the state folder (cgroups, results of CNI), differently for a lab in another folder."""
        suffix = "" if str(self.root) == DEFAULT_DIRECTORY else "-" + hashlib.sha256(str(self.root).encode()).hexdigest()[:8]
        return f"corral-lab{suffix}"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def record(self) -> Path:
        return self.root / "lab.json"

    def node(self, name: str) -> Path:
        """A node's own folder: containerd's and the kubelet's roots, sockets, logs of pods."""
        return self.root / "nodes" / name


@dataclass
class Lab:
    """What the lab in a state folder is; written before the first thing is started, so that `down` always knows what to undo.
    Another checkout's lab may have recorded more or less than this one knows; then it is another lab, and `down` undoes what it can."""

    content_hash: str = ""
    nodes: list[str] = field(default_factory=list)
    address: str = ""
    checkout: str = "another version of the lab"
    boot_id: str = ""
    # What to put back: /proc/sys file → the text it held before; folders outside the state folder that did not exist.
    kernel_values: dict[str, str] = field(default_factory=dict)
    made_folders: list[str] = field(default_factory=list)
    # iptables tables ("iptables nat", …) that were not there before.
    made_tables: list[str] = field(default_factory=list)

    def save(self, paths: Paths) -> None:
        write_file(paths.record, json.dumps(self.__dict__, indent=1, sort_keys=True) + "\n")

    @classmethod
    def load(cls, paths: Paths) -> Lab | None:
        """The recorded lab, or None where there is none (or only the first pieces of one)."""
        try:
            document: dict[str, Any] = json.loads(paths.record.read_text())
        except (OSError, ValueError):
            return None
        known = {each.name for each in fields(cls)}
        return cls(**{key: value for key, value in document.items() if key in known})


def write_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file so that no reader and no power cut meets half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def boot_id() -> str:
    """Changes with every start of the machine: process ids and mounts of another boot mean nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def hash_files(root: Path, *more: str) -> str:
    """SHA-256 over names and contents of the files below `root`, and over `more`. Python's byte code does not count."""
    digest = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)}\0{len(content)}\0".encode() + content)
    for text in more:
        digest.update(f"\0{text}".encode())
    return digest.hexdigest()


def lab_hash(node_count: int, address: str) -> str:
    """What makes a running lab the wanted one: the lab's files, how many nodes, and the address that its certificates name."""
    return hash_files(LAB_FILES, str(node_count), address, platform.machine())


def node_count(environment: dict[str, str]) -> int:
    """LAB_NODES, 1 to 3, two unless told. Raises LabError."""
    text = environment.get("LAB_NODES") or "2"
    if text not in {str(n) for n in range(1, MAX_NODES + 1)}:
        raise LabError(f"LAB_NODES is {text!r}; the lab has 1 to {MAX_NODES} nodes.")
    return int(text)


@contextlib.contextmanager
def lock() -> Iterator[None]:
    """One command at a time changes the lab, whichever checkout it is called from. The file goes with the last holder."""
    while True:
        descriptor = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("lab: another command is changing the lab; waiting for it.", flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(descriptor).st_ino == LOCK.stat().st_ino:
                break
        # The holder before us removed the file that we waited on; a third may have made it anew.
        os.close(descriptor)
    try:
        yield
    finally:
        LOCK.unlink(missing_ok=True)
        os.close(descriptor)
