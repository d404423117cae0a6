# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All defaults of a SlurmCluster.

Static ones stand in the schema, so that the API server fills in the very same; those that depend on other fields are computed here.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import schema as _schema

# The partition of a document without any.
PARTITION = "main"


def derived(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a valid ``spec``, which has the schema's defaults, with those that depend on other fields. Filling in twice changes nothing."""
    filled = deepcopy(spec)
    set_names = [node_set["name"] for node_set in filled["nodeSets"]]
    if not filled["partitions"]:
        filled["partitions"] = [fill(_partition_schema(), {"name": PARTITION})]
    for partition in filled["partitions"]:
        partition.setdefault("nodeSets", list(set_names))
    if not any(partition.get("default") for partition in filled["partitions"]):
        for partition in filled["partitions"]:
            if "default" not in partition:
                partition["default"] = True
                break
    for partition in filled["partitions"]:
        partition.setdefault("default", False)

    for user in filled["users"]:
        user.setdefault("gid", user["uid"])
    return filled


def static(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a valid ``spec`` with the schema's defaults, as the API server fills them in."""
    filled: dict[str, Any] = fill(_schema.spec(), spec)
    return filled


def normal(value: Any, rules: dict[str, Any] | None = None) -> Any:
    """Return a copy of a spec, valid or not, as the API server would keep it: without blank fields, and with 2.0 as 2, since JSON has one kind of numbers.

    Where ``rules`` say nothing, nothing is read, so that depth is the schema's.
    """
    rules = _schema.spec() if rules is None else rules
    if isinstance(value, dict):
        known, others = rules.get("properties", {}), rules.get("additionalProperties")
        return {
            key: normal(item, known.get(key, others)) if key in known or others is not None else item
            for key, item in value.items()
            if item is not None or (key not in known and others is None)
        }
    if isinstance(value, list) and "items" in rules:
        return [normal(item, rules["items"]) for item in value]
    if (
        isinstance(value, float)
        and value.is_integer()
        and (rules.get("type") in ("integer", "number") or "x-kubernetes-int-or-string" in rules)
    ):
        return int(value)
    return value


def _partition_schema() -> dict[str, Any]:
    schema: dict[str, Any] = _schema.spec()["properties"]["partitions"]["items"]
    return schema


def fill(schema: dict[str, Any], value: Any) -> Any:
    """Copy ``value`` with the schema's static defaults, as Kubernetes' structural defaulting does it."""
    properties = schema.get("properties")
    if properties is not None and isinstance(value, dict):
        filled = {}
        for key, child in properties.items():
            if value.get(key) is not None:
                filled[key] = fill(child, value[key])
            elif "default" in child:
                filled[key] = fill(child, deepcopy(child["default"]))
        return filled
    if "items" in schema and isinstance(value, list):
        return [fill(schema["items"], item) for item in value]
    return deepcopy(value)
