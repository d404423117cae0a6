# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""spec.health: the file that the health check of a node reads, and the settings of slurm.conf for it. Pure.

What is checked is in the slurm image (images/slurm/corral_health/catalogue.py); a test keeps the names here equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import job_hooks
from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf

Json = dict[str, Any]

# Where the pods have the file and the scripts.
FOLDER = "/etc/corral/health"
FILE = "health.json"
CHECKS = (
    "jail",
    "mounts",
    "read-only",
    "disk-full",
    "memory-size",
    "memory-errors",
    "raid",
    "gpu-driver",
    "gpu-count",
    "gpu-xid",
    "gpu-recovery",
    "gpu-ecc",
    "gpu-remap",
    "gpu-retired-pages",
    "gpu-fabric",
    "gpu-nvlink",
    "gpu-pcie",
    "gpu-throttle",
    "gpu-busy",
    "infiniband",
    "gpu-memory",
    "gpu-ecc-corrected",
    "gpu-temperature",
    "infiniband-errors",
    "ethernet",
    "munge",
    "clock",
    "clocksource",
    "leftovers",
)
_GPU_THRESHOLDS = {
    "nvlinks": "gpuNvlinks",
    "pcieWidth": "gpuPcieWidth",
    "pcieGeneration": "gpuPcieGeneration",
    "temperatureCelsius": "gpuTemperatureCelsius",
    "correctedErrors": "gpuCorrectedErrors",
    "idleMemoryMebibytes": "gpuIdleMemoryMiB",
}


def slurm_conf(health: Json) -> dict[str, conf.Value]:
    """Return settings of slurm.conf; an interval of 0 switches the program off."""
    return {"HealthCheckInterval": health["intervalSeconds"] if health["enabled"] else 0}


def files(spec: Json) -> dict[str, str]:
    """Return the files of the ConfigMap: the settings for all nodes, and the scripts of the site's checks."""
    health = spec["health"]
    settings = {
        "guardPercent": health["guardPercent"],
        "off": health["disabledChecks"],
        "thresholds": dict(health["thresholds"]),
        "nodeSets": {node_set["name"]: _node_set(node_set["gpu"], health) for node_set in spec["nodeSets"] if _checked(node_set)},
        "checks": [_check(check) for check in health["checks"]],
    }
    scripts = {check["name"]: check["script"] for check in health["checks"] if "script" in check}
    return {FILE: json.dumps(settings, indent=1, sort_keys=True) + "\n", **scripts, **job_hooks.files(health)}


def _checked(node_set: Json) -> bool:
    """Simulated GPUs have no tool that would know them."""
    return "gpu" in node_set and node_set["gpu"]["vendor"] != "simulated"


def _node_set(gpu: Json, health: Json) -> Json:
    given: Json = next((one for one in health["gpuThresholds"] if one["type"] == gpu.get("type")), {})
    thresholds = {name: given[field] for field, name in _GPU_THRESHOLDS.items() if field in given}
    return {"vendor": gpu["vendor"], "gpus": gpu["count"], "thresholds": thresholds}


def _check(check: Json) -> Json:
    return {
        "name": check["name"],
        "command": check.get("command") or [f"{FOLDER}/{check['name']}"],
        "in": check["in"].lower(),
        "contexts": [context.lower() for context in check["contexts"]],
        "timeout": check["timeoutSeconds"],
        "onFailure": check["onFailure"].lower(),
    }


def errors(spec: Json, extra: Mapping[str, str]) -> Iterator[str]:
    """What the structure cannot say. ``extra`` are the site's own lines of slurm.conf, keys in lower case."""
    health = spec["health"]
    for index, check in enumerate(health["checks"]):
        path = f"spec.health.checks[{index}]"
        if check["name"] in CHECKS:
            yield f"{path}.name is {check['name']}, as a check of the catalogue is (docs/health.md); choose another name."
        if check["timeoutSeconds"] > health["intervalSeconds"]:
            yield (
                f"{path}.timeoutSeconds is {check['timeoutSeconds']}, longer than spec.health.intervalSeconds, {health['intervalSeconds']}, after which "
                "the check runs again; make it shorter, or the interval longer."
            )
        if check["in"] == "Jail" and "script" in check:
            yield f"{path}.in is Jail, where the script of a ConfigMap is not; put it into the jail and name it in command."
    yield from job_hooks.errors(spec, frozenset({*CHECKS, *(check["name"] for check in health["checks"])}), extra)
    types = {node_set["gpu"].get("type") for node_set in spec["nodeSets"] if _checked(node_set)}
    for index, one in enumerate(health["gpuThresholds"]):
        if one["type"] not in types:
            yield (
                f"spec.health.gpuThresholds[{index}].type is {one['type']}, but no node set has real GPUs of that type; correct it, or give the node set's "
                "gpu this type."
            )
