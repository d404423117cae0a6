# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the exporter of metrics is given: its slurm.conf, and its arguments. Pure.

It runs Slurm's commands as a user of its own, who sees what every user sees. Where PrivateData hides that, it runs as SlurmUser, so that no number is too low.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import components, config
from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf

Json = dict[str, Any]

PORT = components.EXPORTER_PORT
# Users of the slurm image.
_SLURM, _EXPORTER = 64030, 64035
# Settings of slurmctld and slurmdbd alone, in lower case: the exporter has no such key.
_OF_DAEMONS = frozenset({"authalttypes", "authaltparameters"})
SERVICE_MONITOR = "monitoring.coreos.com/v1"


def slurm_conf(text: str) -> str:
    """Return the exporter's slurm.conf, made of the cluster's ``text``: without nodes, which slurmctld reports, so no scale-up changes it."""
    return conf.text(config.HEADER, config.for_clients(text, _OF_DAEMONS))


def user(text: str) -> int:
    """Return the id of the user that runs the commands; ``text`` is slurm.conf."""
    return _SLURM if any(line.lower().startswith("privatedata=") for line in text.splitlines()) else _EXPORTER


def arguments(name: str, spec: Json) -> list[str]:
    """Return the exporter's arguments. ``name`` is the cluster's, ``spec`` is spec.monitoring."""
    limits = spec["limits"]
    found = {
        "cluster": name,
        "port": PORT,
        "interval": spec["intervalSeconds"],
        "accounts": limits["accounts"],
        "users": limits["users"],
        "nodes": limits["unavailableNodes"],
    }
    return [f"--{key}={value}" for key, value in found.items()]
