# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an entry into the jail costs, against entry.c: a mount namespace, the same mounts by mount(2), and pivot_root, on a bare machine that runs Slurm.

By itself: ``tools/run python tests/bench/entry.py``, as root. It needs the images, and no lab.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.corral.slurm.tests.bench.clock import Comparison, pairs, undisturbed
from ansible_collections.corral.slurm.tests.integration.bare.hosts import ENVIRONMENT, JAIL, NODES, PLUGIN, Machine, cluster

PAIRS, ENTRIES = 20, 25
JOB = "4000000000"
_SOURCE = Path(__file__).with_name("entry.c")
_BARE = "/usr/local/bin/entry"
_OURS = ("/opt/corral/bin/jail-exec", "--job", JOB, f"jail={JAIL}")
# mount(2)'s flags, by mountinfo's words.
_FLAGS = {"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8}


@dataclass(frozen=True)
class Mount:
    """A line of mountinfo."""

    device: str
    root: str
    place: str
    flags: int
    kind: str

    @classmethod
    def all_of(cls, text: str) -> list[Mount]:
        lines = re.findall(r"^\d+ \d+ (\S+) (\S+) (\S+) (\S+) .*?- (\S+) ", text, re.MULTILINE)
        return [
            cls(device, root, place, sum(_FLAGS.get(word, 0) for word in words.split(",")), kind)
            for device, root, place, words, kind in lines
        ]

    def shows(self, other: Mount) -> str:
        """Where what is mounted there is to be seen in this one, or nowhere."""
        if self.device != other.device or not f"{other.root}/".startswith(f"{self.root.rstrip('/')}/"):
            return ""
        return f"{self.place.rstrip('/')}/{other.root[len(self.root.rstrip('/')) :].lstrip('/')}".rstrip("/")


def _same_mounts(machine: Machine) -> tuple[list[Mount], str]:
    """What an entry mounts, and that as entry.c reads it."""
    outside = Mount.all_of(machine.read("/proc/self/mountinfo"))
    inside = Mount.all_of(machine.run(*_OURS, "--", "cat", "/proc/self/mountinfo").stdout)
    # What lies below the jail comes along with it.
    there = {(one.device, one.root, one.place.removeprefix(JAIL) or "/") for one in outside if f"{one.place}/".startswith(f"{JAIL}/")}
    made = [one for one in inside if (one.device, one.root, one.place) not in there]
    shown = list(outside)
    lines = []
    for one in made:
        target = JAIL + one.place
        # A mask of /proc is a mount of what has just been mounted there.
        source = next((place for place in (seen.shows(one) for seen in reversed(shown)) if place), "")
        lines.append(f"{source or 'none'} {target} {'bind' if source else one.kind} {one.flags}\n")
        shown.append(Mount(one.device, one.root, target, one.flags, one.kind))
    return made, "".join(lines)


def _compare(machine: Machine) -> Comparison:
    made, lines = _same_mounts(machine)

    def bare(count: int) -> str:
        command = machine.enter(_BARE, str(count), JAIL)
        return subprocess.run(command, env=ENVIRONMENT, input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout

    def ours() -> float:
        return _median(machine.run(*_OURS, "--time", str(ENTRIES)).stdout)

    wanted, found = ({(one.place, one.kind, one.flags) for one in mounts if one.place != "/"} for mounts in (made, Mount.all_of(bare(0))))
    if wanted - found:
        sys.exit(f"bench: entry.c does not mount what an entry does: {sorted(wanted - found)}")
    with undisturbed():
        return pairs(ours, lambda: _median(bare(ENTRIES)), PAIRS)


def _median(said: str) -> float:
    return float(json.loads(said)["p50"]) / 1e6


def compare() -> dict[str, Comparison]:
    """With the machine's own volumes, and with 50 more below the jail."""
    with tempfile.NamedTemporaryFile() as made_of:
        subprocess.run(["gcc", "-O2", "-static", "-Wall", "-Wextra", "-Werror", "-o", made_of.name, _SOURCE], check=True)
        program = Path(made_of.name).read_bytes()
    with cluster({NODES[0]: PLUGIN}) as made:
        machine = made.machines[NODES[0]]
        subprocess.run(machine.enter("sh", "-ec", f"cat >{_BARE}; chmod 0755 {_BARE}"), env=ENVIRONMENT, input=program, check=True)
        few = _compare(machine)
        machine.sh(f"mount -t tmpfs none {JAIL}/mnt; for i in $(seq 50); do mkdir {JAIL}/mnt/$i; mount -t tmpfs none {JAIL}/mnt/$i; done")
        return {"entering the jail": few, "entering the jail with 50 more mounts": _compare(machine)}


if __name__ == "__main__":
    for what, comparison in compare().items():
        print(f"{what}: {comparison.ratio:.2f}, {comparison}")
