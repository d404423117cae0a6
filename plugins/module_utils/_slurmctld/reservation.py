# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backends of slurm_reservation and slurm_reservation_info."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._slurm import reservations
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import Slurmctld, connected, difference


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Make, change or delete a reservation; the parameters are those of the module slurm_reservation."""
    desired = reservations.wanted(params)
    with connected(params) as client:
        slurmctld = Slurmctld(client, params)
        live = _named(slurmctld, desired.name)
        before: dict[str, Any]
        after: dict[str, Any]
        if params["state"] == "absent":
            commands = [["scontrol", "delete", f"reservationname={desired.name}"]] if live else []
            before, after = (live.to_dict(time.time()) if live else {}), {}
        else:
            commands = reservations.commands(live, desired)
            before, after = reservations.difference(live, desired)
        if commands and not check:
            slurmctld.execute_each((command, f"{command[1]} reservation {desired.name}") for command in commands)
            live = _named(slurmctld, desired.name)
        result: dict[str, Any] = {
            "changed": bool(commands),
            "reservation": live.to_dict(time.time()) if live else {},
            "requests": client.requests,
        }
        if diff and commands:
            result["diff"] = difference(f"reservation {desired.name}", before, after)
        return result


def info(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Return reservations; the parameters are those of the module slurm_reservation_info."""
    del check, diff  # nothing is changed in any mode
    names = {str(name) for name in params["name"]}
    with connected(params) as client:
        found = [one for one in Slurmctld(client, params).read_reservations() if not names or one.name in names]
        return {"changed": False, "reservations": [one.to_dict(time.time()) for one in found], "requests": client.requests}


def _named(slurmctld: Slurmctld, name: str) -> reservations.Reservation | None:
    return next((one for one in slurmctld.read_reservations() if one.name == name), None)
