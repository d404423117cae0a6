# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hardware in a node's line of slurm.conf. Pure.

slurmctld aborts the jobs of a node whose processors or GPUs are others after it has read its configuration again (``Aborting JobId=1 due to change in
socket/core configuration``, seen with 24.11.5), and more memory than the pod has is a job that the kernel ends. So a node keeps the line of its pod: the
pod's template carries the hardware of its line, and the line changes when the pod is of the new one and no job is on the node.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf, hostlist

# Of a worker's pod: `text` of the line that its template was made with.
ANNOTATION = "corral.hpc/hardware"
# Lower case, for an extra parameter is as somebody has written it.
KEYS = frozenset(
    {"boards", "corespeccount", "corespersocket", "cpus", "cpuspeclist", "gres", "memspeclimit", "procs", "realmemory"}
    | {"sockets", "socketsperboard", "threadspercore"}
)

Pairs = list[list[str]]


def text(pairs: Iterable[tuple[str, conf.Value | None]]) -> str:
    """Return the hardware of a line as text: the same text for the same hardware, however the keys are written."""
    found = ((key.lower(), conf.value(value)) for key, value in pairs if value is not None and key.lower() in KEYS)
    return " ".join(f"{key}={value}" for key, value in sorted(found))


def differing(live: str, wanted: str) -> dict[str, str]:
    """Return the nodes that both slurm.conf have with other hardware, each with the text of its line in ``wanted``. Raises ConfError, HostlistError."""
    before, after = conf.node_lines(live), conf.node_lines(wanted)
    if before == after:
        return {}
    was, now = _text_by_node(before), _text_by_node(after)
    return {name: value for name, value in now.items() if name in was and was[name] != value}


def retained(live: str, wanted: str, names: Container[str]) -> list[Pairs]:
    """Return the lines of these nodes: the hardware as ``live`` has it, and all else as ``wanted`` has. Raises ConfError, HostlistError."""
    was = {name: pairs for pairs in conf.node_lines(live) for name in hostlist.expand(pairs["NodeName"]) if name in names}
    found: dict[tuple[tuple[str, str], ...], list[tuple[str, str]]] = {}
    for pairs in conf.node_lines(wanted):
        rest = {key: value for key, value in pairs.items() if key.lower() not in KEYS and key not in ("NodeName", "NodeAddr")}
        for name, address in conf.addresses(pairs):
            if name in was:
                own = {key: value for key, value in was[name].items() if key.lower() in KEYS}
                found.setdefault(tuple({**own, **rest}.items()), []).append((name, address))
    return [
        [
            ["NodeName", hostlist.compress(name for name, _at in on)],
            ["NodeAddr", hostlist.compress(at for _name, at in on)],
            *map(list, rest),
        ]
        for rest, on in found.items()
    ]


def _text_by_node(lines: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {name: value for pairs in lines for value in [text(pairs.items())] for name in hostlist.expand(pairs["NodeName"])}
