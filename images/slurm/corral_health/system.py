# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Checks of a node's memory, disks, links, clock and processes. Each reads files below ``facts.root`` and nothing else, but for what the kernel alone tells."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from corral_health.checks import Broken, Facts, Result, failed, ok, skipped

# Where a full disk ends jobs, or slurmd: the pod's own paths. None leads through a directory of the jail, which others can change.
DISKS = ("/", "/tmp", "/dev/shm", "/var/spool/slurmd", "/mnt/jail")
# What is mounted there when slurmd starts has to stay. The kubelet and the runtime mount it; steps have mounts of their own in namespaces of their own.
_KEPT = re.compile(r"/mnt/(?:jail|jails|submounts)(?:/|$)|/var/spool/slurmd$|/etc/corral(?:/|$)")
# Uids of the pod's own daemons, and nobody's.
DAEMONS = (64030, 65535)


def memory_size(facts: Facts) -> Result:
    """The node has the memory that slurm.conf promises."""
    if facts.node is None or not facts.node.memory:
        return skipped("slurmctld does not show the node")
    total = _meminfo(facts, "MemTotal")
    percent = facts.settings.threshold("memoryPercent")
    if percent is None:
        return skipped("no threshold")
    if total < facts.node.memory * percent / 100:
        return failed(f"it has {total} MiB of memory, and slurm.conf promises {facts.node.memory}")
    return ok()


def memory_errors(facts: Facts) -> Result:
    """The memory has no errors that could not be corrected."""
    found = {path.parent.name: _number(path) for path in sorted((facts.root / "sys/devices/system/edac/mc").glob("mc*/ue_count"))}
    if not found:
        return skipped("the kernel does not report errors of memory here")
    wrong = [f"{number} uncorrectable errors of memory controller {name}" for name, number in found.items() if number]
    return failed("; ".join(wrong)) if wrong else ok()


def disks(facts: Facts) -> Result:
    """No file system is full, of bytes or of inodes."""
    limit, inodes = facts.settings.threshold("diskPercent"), facts.settings.threshold("inodePercent")
    wrong = []
    seen = set()
    for path in DISKS:
        try:
            state = os.statvfs(facts.root / path.lstrip("/"))
        except FileNotFoundError:
            continue
        except OSError as error:
            wrong.append(f"{path}: {error.strerror}")
            continue
        key = (state.f_fsid, state.f_blocks, state.f_files)
        if key in seen:
            continue
        seen.add(key)
        wrong += _full(path, state.f_blocks, state.f_bfree, state.f_bavail, state.f_files, state.f_ffree, limit, inodes)
    return failed("; ".join(wrong)) if wrong else ok()


def _full(
    path: str, blocks: int, free: int, available: int, files: int, free_files: int, limit: float | None, inodes: float | None
) -> Iterable[str]:
    used = blocks - free
    # As df computes it: what is reserved for root is not there for others.
    if limit is not None and used + available and used * 100 >= limit * (used + available):
        yield f"{path} is {used * 100 // (used + available)} % full"
    if inodes is not None and files and (files - free_files) * 100 >= inodes * files:
        yield f"{path} has {(files - free_files) * 100 // files} % of its inodes in use"


def read_only(facts: Facts) -> Result:
    """No file system became read-only by an error: mounted to be written, over a file system that does not allow it."""
    wrong = [point for point, options, superblock in _mounts(facts) if "rw" in options and "ro" in superblock]
    return failed(f"read-only by an error: {', '.join(sorted(set(wrong)))}") if wrong else ok()


def mounts(facts: Facts) -> Result:
    """What was mounted when slurmd started is mounted still."""
    now = sorted({point for point, _options, _superblock in _mounts(facts) if _KEPT.match(point)})
    before = facts.counters.get("mounts", now)
    lost = sorted(set(before) - set(now))
    # What somebody mounts later may go again.
    counters = {"mounts": before}
    return failed(f"no longer mounted: {', '.join(lost)}", counters) if lost else ok(counters=counters)


def raid(facts: Facts) -> Result:
    """No RAID array of the kernel's lacks a disk or has stopped."""
    text = facts.read("proc/mdstat")
    if not text or "blocks" not in text:
        return skipped("there are no RAID arrays")
    wrong = []
    for array, rest in re.findall(r"^(md\S+) : (.*(?:\n .*)*)", text, re.MULTILINE):
        if rest.startswith("inactive"):
            wrong.append(f"{array} is inactive")
        elif match := re.search(r"\[(\d+)/(\d+)\] \[[U_]*_[U_]*\]", rest):
            wrong.append(f"{array} has {match[2]} of {match[1]} disks")
        elif "(F)" in rest:
            wrong.append(f"{array} has a failed disk")
    return failed("; ".join(wrong)) if wrong else ok()


def infiniband(facts: Facts) -> Result:
    """InfiniBand's ports are up and as fast as they were, or as the document says."""
    ports = {}
    for folder in sorted((facts.root / "sys/class/infiniband").glob("*/ports/*")):
        if (_text(folder / "link_layer") or "InfiniBand") != "InfiniBand":
            continue
        state, rate = _text(folder / "state") or "", _text(folder / "rate") or ""
        match = re.match(r"(\d+)", rate)
        ports[f"{folder.parents[1].name}/{folder.name}"] = int(match[1]) if "ACTIVE" in state and match else 0
    return _links(
        facts, ports, "InfiniBand port", "Gb/s", facts.settings.threshold("infinibandPorts"), facts.settings.threshold("infinibandGbps")
    )


def ethernet(facts: Facts) -> Result:
    """Network interfaces of hardware are up and as fast as they were."""
    links = {}
    for folder in sorted((facts.root / "sys/class/net").glob("*")):
        if not (folder / "device").exists():
            continue
        speed = _text(folder / "speed") or ""
        links[folder.name] = int(speed) if _text(folder / "operstate") == "up" and speed.isdigit() else 0
    return _links(facts, links, "network interface", "Mb/s", None, None)


def _links(facts: Facts, now: Mapping[str, int], kind: str, unit: str, count: float | None, rate: float | None) -> Result:
    """Compare with the best that was seen since the pod's start; what was never up is in nobody's way."""
    best: dict[str, int] = dict(facts.counters.get("best", {}))
    wrong = []
    for name, speed in now.items():
        wanted = rate if rate and (best.get(name) or speed) else best.get(name, 0)
        if wanted and speed < wanted:
            wrong.append(f"{kind} {name} " + (f"has {speed} {unit}, not {wanted:.0f}" if speed else "is down"))
        best[name] = max(best.get(name, 0), speed)
    wrong += [f"{kind} {name} is gone" for name, speed in best.items() if speed and name not in now]
    up = sum(1 for speed in now.values() if speed)
    if count and up < count and not wrong:
        wrong.append(f"{up} of {count:.0f} {kind}s are up")
    if not best and not count:
        return skipped(f"there is no {kind}")
    return failed("; ".join(wrong), {"best": best}) if wrong else ok(counters={"best": best})


# Counted by the port since its driver was loaded.
_ERRORS = ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "local_link_integrity_errors")


def infiniband_errors(facts: Facts) -> Result:
    """InfiniBand's ports have counted no new errors."""
    now = {
        f"{path.parents[3].name}/{path.parents[1].name} {name}": _number(path)
        for name in _ERRORS
        for path in sorted((facts.root / "sys/class/infiniband").glob(f"*/ports/*/counters/{name}"))
    }
    if not now:
        return skipped("there is no InfiniBand port with counters")
    before = facts.counters.get("errors", now)
    # A counter that went back began anew.
    new = {name: number - (before.get(name, number) if before.get(name, number) <= number else 0) for name, number in now.items()}
    wrong = [f"{number} new errors of {name}" for name, number in new.items() if number]
    return failed("; ".join(wrong), {"errors": now}) if wrong else ok(counters={"errors": now})


def clock(facts: Facts) -> Result:
    """The kernel's clock is disciplined, and near the right time."""
    limit = facts.settings.threshold("clockOffsetMilliseconds")
    if limit is None:
        return skipped("no threshold")
    synchronised, offset = _adjtimex()
    return judge_clock(synchronised, offset, limit, facts.counters)


def judge_clock(synchronised: bool, offset: float, limit: float, counters: Mapping[str, object]) -> Result:
    """``offset`` in milliseconds. Where nothing ever disciplined the clock, as in many virtual machines, nothing is to be said."""
    kept = {"synchronised": synchronised or bool(counters.get("synchronised"))}
    if synchronised and abs(offset) > limit:
        return failed(f"the clock is {offset:.0f} ms off, more than {limit:.0f}", kept)
    if not synchronised and kept["synchronised"]:
        return failed("nothing sets the clock any more", kept)
    return ok(counters=kept) if kept["synchronised"] else skipped("nothing sets the kernel's clock here")


def _adjtimex() -> tuple[bool, float]:
    import ctypes  # takes 10 ms, in this check's own process

    # struct timex has 208 bytes, beginning with modes, offset, freq, maxerror, esterror, status.
    class Timex(ctypes.Structure):
        _fields_ = (
            ("modes", ctypes.c_uint),
            ("offset", ctypes.c_long),
            ("freq", ctypes.c_long),
            ("maxerror", ctypes.c_long),
            ("esterror", ctypes.c_long),
            ("status", ctypes.c_int),
            ("rest", ctypes.c_byte * 512),
        )

    found = Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(found))
    if state < 0:
        raise Broken(f"the kernel does not tell the clock's state: {os.strerror(ctypes.get_errno())}")
    unsynchronised, nanoseconds = 0x40, 0x2000
    return not found.status & unsynchronised, found.offset / (1e6 if found.status & nanoseconds else 1e3)


def clocksource(facts: Facts) -> Result:
    """The kernel did not fall back to a slow clock: each question for the time takes a thousand times as long then."""
    current = (facts.read("sys/devices/system/clocksource/clocksource0/current_clocksource") or "").strip()
    if not current:
        return skipped("the kernel does not tell its clock")
    return (
        failed(f"the kernel's clock is {current}, which is slow") if current in ("hpet", "acpi_pm", "jiffies", "refined-jiffies") else ok()
    )


def leftovers(facts: Facts) -> Result:
    """No user without a step on the node has processes there."""
    processes = _processes(facts.root / "proc")
    with_steps = {uid for pid, (uid, _parent, _name) in processes.items() if _below_a_step(pid, processes)}
    left: dict[int, int] = {}
    for pid, (uid, _parent, _name) in processes.items():
        if uid >= 1000 and uid not in with_steps and not DAEMONS[0] <= uid <= DAEMONS[1] and not _below_a_step(pid, processes):
            left[uid] = left.get(uid, 0) + 1
    return (
        failed(
            "; ".join(f"{number} process{'es' * (number > 1)} of user {uid}, who has no job here" for uid, number in sorted(left.items()))
        )
        if left
        else ok()
    )


def of_no_step(folder: Path, uid: int) -> list[int]:
    """Return the processes of a user that are not below a slurmstepd."""
    processes = _processes(folder)
    return [pid for pid, (owner, _parent, _name) in processes.items() if owner == uid and not _below_a_step(pid, processes)]


def _processes(folder: Path) -> dict[int, tuple[int, int, str]]:
    """Return uid, parent and name of each process."""
    found = {}
    for entry in folder.glob("[0-9]*"):
        try:
            status = (entry / "status").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has ended
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        if {"Uid", "PPid", "Name"} <= set(fields) and not fields.get("State", "").startswith("Z"):
            found[int(entry.name)] = (int(fields["Uid"].split()[0]), int(fields["PPid"]), fields["Name"])
    return found


def _below_a_step(pid: int, processes: Mapping[int, tuple[int, int, str]]) -> bool:
    seen = set()
    while pid in processes and pid not in seen:
        seen.add(pid)
        uid, parent, name = processes[pid]
        # Others can take this name, but not its user.
        if name == "slurmstepd" and uid == 0:
            return True
        pid = parent
    return False


def _mounts(facts: Facts) -> list[tuple[str, list[str], list[str]]]:
    """Return point, options of the mount and options of its file system, of each."""
    text = facts.read("proc/self/mountinfo")
    if text is None:
        raise Broken("/proc/self/mountinfo cannot be read")
    found = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if separator and len(fields) >= 6 and len(kind) >= 3:
            found.append((fields[4].replace("\\040", " "), fields[5].split(","), kind[2].split(",")))
    return found


def _meminfo(facts: Facts, name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB", facts.read("proc/meminfo") or "", re.MULTILINE)
    if not match:
        raise Broken(f"/proc/meminfo has no {name}")
    return int(match[1]) // 1024


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _number(path: Path) -> int:
    text = _text(path) or ""
    return int(text) if text.isdigit() else 0
