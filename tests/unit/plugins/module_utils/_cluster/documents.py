# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A good document for the tests, and a way to edit it by path."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

_BLOB = base64.b64encode((11).to_bytes(4, "big") + b"ssh-ed25519" + (32).to_bytes(4, "big") + b"k" * 32).decode()
KEY = f"ssh-ed25519 {_BLOB} ada"
REMOVE = object()


def good() -> dict[str, Any]:
    return {
        "apiVersion": "corral.hpc/v1alpha1",
        "kind": "SlurmCluster",
        "metadata": {"name": "demo", "namespace": "ns"},
        "spec": {
            "images": {"slurm": "example/slurm:1"},
            "controller": {"stateVolume": {"storageClassName": "standard", "size": "1Gi"}},
            "nodeSets": [
                {"name": "cpu", "replicas": 2, "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}, "features": ["a", "b"]},
                {"name": "big", "replicas": 1, "resources": {"limits": {"cpu": "4500m", "memory": "2Gi"}}},
            ],
            "partitions": [{"name": "main", "default": True}, {"name": "big", "nodeSets": ["big"], "maxTime": "1-00:00:00"}],
            "jail": {"volume": {"claimName": "shared"}, "populate": {"image": "example/jail:1"}},
            "groups": [{"name": "physics", "gid": 20001}],
            "users": [{"name": "ada", "uid": 10001, "groups": ["physics"], "sshKeys": [KEY]}],
        },
    }


def edited(path: str, value: Any) -> dict[str, Any]:
    """The good document with one value replaced, added, or (REMOVE) taken out: `edited("spec.nodeSets[1].replicas", -1)`."""
    document = good()
    steps: list[Any] = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", path)]
    place: Any = document
    for step in steps[:-1]:
        place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
    if value is REMOVE:
        del place[steps[-1]]
    elif isinstance(place, list) and steps[-1] == len(place):
        place.append(value)
    else:
        place[steps[-1]] = value
    return document


def accounts(model: dict[str, Any]) -> dict[str, Any]:
    """What the jails must have, of a model's ConfigMaps."""
    maps = model["users"]["maps"]
    texts = [maps[0]["data"]["users.json"]] if len(maps) == 1 else [one["data"][f"users.json.{number}"] for number, one in enumerate(maps)]
    found: dict[str, Any] = json.loads("".join(texts))
    return found
