# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Partitions of ``scontrol show partitions --json``, and the commands that set their state. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import output


@dataclass(frozen=True)
class Partition:
    """One partition; ``state`` is UP, DOWN (jobs wait), DRAIN (jobs are refused, those in the queue run) or INACTIVE (neither).

    ``max_time`` is in minutes, None without a limit.
    """

    name: str
    state: str
    nodes: str
    node_count: int
    cpus: int
    max_time: int | None
    allowed_accounts: list[str]
    allowed_groups: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def parse(text: str) -> list[Partition]:
    """Return the partitions of scontrol's JSON in its order. Raises OutputError."""
    return [_partition(row) for row in output.rows(text, "partitions")]


def pick(partitions: Iterable[Partition], names: list[str]) -> list[Partition]:
    """Return the named ones, all when none is named. Raises CorralError for a name that there is not."""
    known = {partition.name: partition for partition in partitions}
    absent = [name for name in names if name not in known]
    if absent:
        raise CorralError(
            f"slurmctld knows no partition {', '.join(absent)}; it has {', '.join(known) or 'none'}. Nothing was changed; correct the name."
        )
    return [known[name] for name in dict.fromkeys(names)] if names else list(known.values())


def commands(partitions: Iterable[Partition], state: str) -> list[list[str]]:
    """Return the commands that give the partitions a state; none for those that have it."""
    return [
        ["scontrol", "update", f"partitionname={partition.name}", f"state={state}"] for partition in partitions if partition.state != state
    ]


def _partition(row: output.Row) -> Partition:
    try:
        nodes, accounts, groups = row.get("nodes") or {}, row.get("accounts") or {}, row.get("groups") or {}
        limit = (row.get("maximums") or {}).get("time")
        return Partition(
            name=str(row["name"]),
            state="+".join(output.strings((row.get("partition") or {}).get("state"))),
            nodes=str(nodes.get("configured") or ""),
            node_count=output.number(nodes.get("total")),
            cpus=output.number((row.get("cpus") or {}).get("total")),
            max_time=output.number(limit) if isinstance(limit, dict) and limit.get("set") else None,
            allowed_accounts=output.strings(accounts.get("allowed")),
            allowed_groups=output.strings(groups.get("allowed")),
        )
    except AttributeError as error:
        raise output.OutputError(
            f"scontrol's JSON describes partition {row['name']} in an unknown way ({error}); nothing was changed."
        ) from error
