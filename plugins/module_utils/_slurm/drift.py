# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A slurm.conf compared with what scontrol shows of the running slurmctld. Pure.

scontrol shows values in another form than slurm.conf has them: with a unit, in another case or order, completed by what they imply (tried with 24.11.5).
So values are compared by what they mean. A key that scontrol does not show cannot be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf, hostlist

# slurm.conf's key of a node, and scontrol's. An address is renewed when a node registers, so it differs in a healthy cluster.
_NODE = {
    "boards": "boards",
    "corespersocket": "corespersocket",
    "cpus": "cputot",
    "feature": "availablefeatures",
    "features": "availablefeatures",
    "gres": "gres",
    "realmemory": "realmemory",
    "sockets": "sockets",
    "threadspercore": "threadspercore",
    "tmpdisk": "tmpdisk",
    "weight": "weight",
}
# What holds where slurm.conf does not have the key, of keys that scontrol can change.
_CONFIG_DEFAULTS = {"SlurmctldDebug": "info", "DebugFlags": "", "SlurmSchedLogLevel": "0"}
_NODE_DEFAULTS = {"Feature": "", "Gres": "", "Weight": "1"}
_PARTITION_DEFAULTS = {
    "AllocNodes": "ALL",
    "AllowGroups": "ALL",
    "Default": "NO",
    "DefaultTime": "NONE",
    "ExclusiveUser": "NO",
    "GraceTime": "0",
    "Hidden": "NO",
    "LLN": "NO",
    "MaxCPUsPerNode": "UNLIMITED",
    "MaxNodes": "UNLIMITED",
    "MaxTime": "UNLIMITED",
    "OverSubscribe": "NO",
    "PreemptMode": "OFF",
    "PriorityJobFactor": "1",
    "PriorityTier": "1",
    "QoS": "N/A",
    "ReqResv": "NO",
    "RootOnly": "NO",
    "State": "UP",
}
# A partition has one of the keys of a line; the first one's default is shown where slurm.conf has none of them.
_ONE_OF = (
    ("AllowAccounts", "ALL", "DenyAccounts"),
    ("AllowQos", "ALL", "DenyQos"),
    ("DefMemPerNode", "UNLIMITED", "DefMemPerCPU"),
    ("MaxMemPerNode", "UNLIMITED", "MaxMemPerCPU"),
)
_SHOWN = frozenset(key for one, _default, other in _ONE_OF for key in (one, other))
# Slurm adds what the given values imply.
_COMPLETED = frozenset({"accountingstorageenforce", "accountingstoragetres", "prologflags"})
_WORDS = {"(null)": "", "none": "", "n/a": "", "(null type)": "", "yes": "1", "no": "0", "infinite": "unlimited", "-1": "unlimited"}
_LEVELS = dict(
    zip("0123456789", ("quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5"), strict=True)
)
_LINE = re.compile(r"(\w+)(?:\[\d+\])? *= ?(.*)")
_GAP = re.compile(r" +(?=[A-Za-z_]+=)")
_UNIT = re.compile(r"(-?[\d.]+) (?:sec|min|msec|usec|ms|percent|nodes/min)")
# A plugin that does nothing is shown as (null): TaskPlugin=task/none.
_NO_PLUGIN = re.compile(r"[a-z_]+/none")
_ID = re.compile(r"\(\d+\)$")
_CLOCK = re.compile(r"(?:\d+-)?\d+:\d\d:\d\d")
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_SOCKETS = re.compile(r"\(s:[^)]*\)")
ABSENT = "absent"


@dataclass(frozen=True, order=True)
class Finding:
    """One difference: what ``kind`` of thing, ``where``, the document's value and the live one; ``absent`` where there is none."""

    kind: str
    where: str
    document: str
    live: str

    def to_dict(self) -> dict[str, str]:
        """Return plain JSON types."""
        return asdict(self)


def config(text: str, shown: str) -> list[Finding]:
    """Compare the settings of a slurm.conf with ``scontrol show config``."""
    written = _settings(text)
    live: dict[str, list[str]] = {}
    for line in shown.partition("\n\n")[0].splitlines():
        if found := _LINE.fullmatch(line.strip()):
            live.setdefault(found[1].lower(), []).append(found[2])
    known = {key.lower() for key in written}
    wanted = {**{key: [raw] for key, raw in _CONFIG_DEFAULTS.items() if key.lower() not in known}, **written}
    return [
        Finding("config", key, ",".join(raw) or "none", ",".join(live[key.lower()]))
        for key, raw in wanted.items()
        if key.lower() in live and not _same(key.lower(), ",".join(raw), ",".join(live[key.lower()]))
    ]


def nodes(text: str, shown: str) -> list[Finding]:
    """Compare the nodes of a slurm.conf with ``scontrol show nodes --future --oneliner``. Nodes that differ in the same way are one finding."""
    live = _named("nodename", shown)
    differ: dict[tuple[str, str, str], list[str]] = {}
    known: set[str] = set()
    for pairs in conf.node_lines(text):
        wanted = {**{key: raw for key, raw in _NODE_DEFAULTS.items() if not _has(pairs, key)}, **pairs}
        for name in hostlist.expand(pairs["NodeName"]):
            known.add(name)
            if name not in live:
                differ.setdefault(("", "in slurm.conf", ABSENT), []).append(name)
                continue
            for key, raw in wanted.items():
                its = live[name].get(_NODE.get(key.lower(), ""))
                if its is not None and not _same(key.lower(), raw, its):
                    differ.setdefault((f" {key}", raw or "none", its), []).append(name)
    if strange := [name for name in live if name not in known]:
        differ["", ABSENT, "in slurmctld"] = strange
    return [Finding("node", f"{hostlist.compress(names)}{key}", raw, its) for (key, raw, its), names in differ.items()]


def partitions(text: str, shown: str) -> list[Finding]:
    """Compare the partitions of a slurm.conf with ``scontrol show partitions --oneliner``."""
    live = _named("partitionname", shown)
    settings = {key.lower(): raw[-1] for key, raw in _settings(text).items()}
    defaults = {**_PARTITION_DEFAULTS, "PreemptMode": settings.get("preemptmode", "OFF")}
    found: list[Finding] = []
    known: set[str] = set()
    for line in text.splitlines():
        if not line.startswith("PartitionName="):
            continue
        pairs = dict(conf.parse_pairs(line))
        name = pairs.pop("PartitionName")
        known.add(name)
        if name not in live:
            found.append(Finding("partition", name, "in slurm.conf", ABSENT))
            continue
        # A setting of slurm.conf may be every partition's.
        wanted = {key: raw for key, raw in defaults.items() if not _has(pairs, key)}
        wanted |= {one: raw for one, raw, other in _ONE_OF if not any(_has({**pairs, **settings}, key) for key in (one, other))}
        for key, raw in {**wanted, **pairs}.items():
            its = live[name].get(key.lower(), ABSENT if key in _SHOWN else None)
            every = hostlist.compress(conf.nodes(text)) if key == "Nodes" and raw.upper() == "ALL" else raw
            if its is not None and not _same(key.lower(), every, its):
                found.append(Finding("partition", f"{name} {key}", raw, its))
    return [*found, *(Finding("partition", name, ABSENT, "in slurmctld") for name in live if name not in known)]


def _settings(text: str) -> dict[str, list[str]]:
    """Return the lines of a slurm.conf that are no nodes, partitions or the like."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, equals, raw = line.partition("=")
        if equals and not key.startswith(("#", "NodeName", "NodeSet", "PartitionName", "DownNodes", "FrontendName")):
            found.setdefault(key.strip(), []).append(raw.strip().strip('"'))
    return found


def _named(key: str, shown: str) -> dict[str, dict[str, str]]:
    """Return the lines of a ``--oneliner`` by name. The first of a key counts: texts that people have written stand at the end."""
    found: dict[str, dict[str, str]] = {}
    for line in shown.splitlines():
        pairs: dict[str, str] = {}
        for pair in _GAP.split(line.strip()):
            name, _equals, raw = pair.partition("=")
            pairs.setdefault(name.lower(), raw.strip())
        if key in pairs:
            found[pairs[key]] = pairs
    return found


def _has(pairs: Mapping[str, str], key: str) -> bool:
    return any(one.lower().rstrip("s") == key.lower().rstrip("s") for one in pairs)


def _same(key: str, written: str, shown: str) -> bool:
    """True when both mean the same."""
    if key == "nodes":
        return set(hostlist.expand(written)) == set(hostlist.expand("" if shown == "(null)" else shown))
    if _CLOCK.fullmatch(shown):
        return _seconds(written) == _seconds(shown)
    ours, its = _items(written), _items(shown)
    if key == "gres":
        return _gres(ours) == _gres(its) or _gres(ours) == _gres(its, typed=False)
    if key == "oversubscribe" and ":" not in written:
        its = _items(shown.partition(":")[0])
    if key == "priorityflags":  # the default, which is not shown
        ours = ours - {"fair_tree"} or {""}
    if key.endswith("debug") and written in _LEVELS:
        ours = {_LEVELS[written]}
    return ours <= its if key in _COMPLETED else ours == its


def _items(raw: str) -> set[str]:
    text = _ID.sub("", _SOCKETS.sub("", raw.strip().lower()))
    unit = _UNIT.fullmatch(text)
    text = "" if _NO_PLUGIN.fullmatch(text) else text
    return {_WORDS.get(one, one) for one in (unit[1] if unit else text).split(",")}


def _seconds(raw: str) -> int | None:
    """Return a time as Slurm reads it: minutes, minutes:seconds, hours:minutes:seconds, days-hours and so on; None for another word."""
    found = _TIME.fullmatch(raw.strip())
    if not found:
        return None
    days, first, second, third = (int(one) if one is not None else None for one in found.groups())
    if days is not None:
        hours, minutes, seconds = first or 0, second or 0, third or 0
    elif third is not None:
        hours, minutes, seconds = first or 0, second or 0, third
    else:
        hours, minutes, seconds = 0, first or 0, second or 0
    return (((days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _gres(items: Iterable[str], *, typed: bool = True) -> dict[str, int | str]:
    """Return the counts by name and type; scontrol adds the sockets, and the type where gres.conf has it."""
    found: dict[str, int | str] = {}
    for one in items:
        name, *rest = one.split(":")
        count = rest.pop() if rest and rest[-1][:1].isdigit() else "1"
        name = ":".join([name, *rest]) if typed else name
        before = found.get(name, 0)
        found[name] = int(before) + int(count) if count.isdigit() and isinstance(before, int) else count
    return {name: count for name, count in found.items() if name}
