# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backends of slurm_partition and slurm_partition_info."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._slurm import partitions
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import Slurmctld, connected, difference


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Give partitions a state; the parameters are those of the module slurm_partition."""
    state = str(params["state"])
    with connected(params) as client:
        slurmctld = Slurmctld(client, params)
        live = partitions.pick(slurmctld.read_partitions(), [str(name) for name in params["name"]])
        commands = partitions.commands(live, state)
        differing = [partition for partition in live if partition.state != state]
        if commands and not check:
            slurmctld.execute_each((command, f"set {command[2]} {state}") for command in commands)
        result: dict[str, Any] = {
            "changed": bool(commands),
            "partitions": [(partition if check else replace(partition, state=state)).to_dict() for partition in live],
            "requests": client.requests,
        }
        if diff and commands:
            before = {partition.name: {"state": partition.state} for partition in differing}
            result["diff"] = difference("partitions", before, {name: {"state": state} for name in before})
        return result


def info(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Return partitions; the parameters are those of the module slurm_partition_info."""
    del check, diff  # nothing is changed in any mode
    with connected(params) as client:
        found = partitions.pick(Slurmctld(client, params).read_partitions(), [str(name) for name in params["name"]])
        return {"changed": False, "partitions": [partition.to_dict() for partition in found], "requests": client.requests}
