# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Errors of GPUs in the kernel's log: Xids of NVIDIA's driver and SXids of its switches."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from corral_health.checks import Broken, Facts, Result, failed, ok, skipped

# By NVIDIA's catalogue of Xids. What is in no class is an application's error, or news: it never takes a node out.
RESET = frozenset({46, 48, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158})
REBOOT = frozenset({79, 151})
POWER = frozenset({54})
# To be told, as it may be the beginning of something.
FOLLOW = frozenset({45, 63, 74, 92, 94, *range(144, 151), 154, 171, 172})

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+),?\s*(.*)")
_SXID = re.compile(r"nvidia-nvswitch(\S+): SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+), (Fatal.*)")
# More than a kernel keeps; else the newest would never be reached.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Event:
    """One error. ``weight`` is 2 for one that takes the node out of service, 1 for one to be told, 0 for an application's."""

    where: str
    code: int
    weight: int
    text: str


def events(lines: Iterable[str]) -> list[Event]:
    """Return the errors of a kernel log, in its order."""
    found = []
    for line in lines:
        if match := _XID.search(line):
            code = int(match[2])
            found.append(Event(match[1], code, _weight(code), f"Xid {code} of {match[1]}{_todo(code)}"))
        elif match := _SXID.search(line):
            found.append(Event(match[2], int(match[3]), 2, f"SXid {match[3]} of {match[2]}: {match[4][:60].strip()}"))
    return found


def _weight(code: int) -> int:
    return 2 if code in RESET | REBOOT | POWER else 1 if code in FOLLOW else 0


def _todo(code: int) -> str:
    if code in REBOOT:
        return " (reboot the Kubernetes node, or replace it)"
    if code in POWER:
        return " (check the power cable)"
    return " (reset the GPU)" if code in RESET else ""


def since(path: Path, last: int | None) -> tuple[list[str], int]:
    """Return the lines of /dev/kmsg after number ``last``, and the number of the newest. Without ``last`` there are no lines: what was
    before the pod is not this pod's; the state of its GPUs is. Raises OSError."""
    lines: list[str] = []
    newest = last if last is not None else -1
    size = 0
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while size < _MOST_BYTES:
            try:
                record = os.read(descriptor, 16384)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten while it was read: the next read is of the oldest that is there
                    continue
                raise
            if not record:
                break
            size += len(record)
            # A real kmsg gives one record for each read; a file of a test, many.
            for line in record.decode(errors="replace").splitlines():
                head, _, text = line.partition(";")
                fields = head.split(",")
                if len(fields) < 3 or not fields[1].isdigit():
                    continue
                number = int(fields[1])
                if last is not None and number > last:
                    lines.append(text)
                newest = max(newest, number)
    finally:
        os.close(descriptor)
    return lines, newest


def xid(facts: Facts) -> Result:
    """No error in the kernel's log since the last run says that a GPU has to be reset, or its node rebooted."""
    last = facts.counters.get("kmsg")
    try:
        lines, newest = since(facts.root / "dev/kmsg", last)
    except (FileNotFoundError, PermissionError):
        return skipped("the pod has no /dev/kmsg that it may read")
    except OSError as error:
        raise Broken(f"/dev/kmsg cannot be read: {error.strerror}") from None
    counters = {"kmsg": newest}
    found = sorted(events(lines), key=lambda event: -event.weight)
    if not found or not found[0].weight:
        return ok("; ".join(sorted({event.text for event in found})), counters)
    texts = list(dict.fromkeys(event.text for event in found if event.weight == found[0].weight))
    return failed("; ".join(texts), counters, warning=found[0].weight < 2)
