# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields that a newer CustomResourceDefinition gives documents by default, and that this version does not know. Pure.

All operators of a Kubernetes share one definition. The API server gives every document the defaults of a newer one; with such a value a document says
what it said without the field, so an older version leaves it out. A field that has another value is somebody's request, which it cannot fulfil.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import defaults, schema

Json = dict[str, Any]


@dataclass(frozen=True)
class Additions:
    """What one place of a schema has more: ``fields`` with their defaults, and what lies in its known fields and in each of its items or values."""

    fields: Json = field(default_factory=dict)
    inside: dict[str, Additions] = field(default_factory=dict)
    each: Additions | None = None

    def __bool__(self) -> bool:
        """True when there is anything."""
        return bool(self.fields or self.inside or self.each)


def additions(definition: Json) -> Additions:
    """Return what the spec of a live CustomResourceDefinition has more than this version's."""
    versions = {one.get("name"): one for one in (definition.get("spec") or {}).get("versions") or ()}
    live = ((versions.get(schema.VERSION) or {}).get("schema") or {}).get("openAPIV3Schema") or {}
    return _compared(schema.spec(), (live.get("properties") or {}).get("spec") or {})


def _compared(ours: Json, theirs: Json) -> Additions:
    known, live = ours.get("properties"), theirs.get("properties") or {}
    if known is None:
        name = "items" if "items" in ours else "additionalProperties"
        each = (
            _compared(ours[name], theirs[name]) if isinstance(ours.get(name), dict) and isinstance(theirs.get(name), dict) else Additions()
        )
        return Additions(each=each or None)
    fields = {key: defaults.fill(rules, rules["default"]) for key, rules in live.items() if key not in known and "default" in rules}
    inside = {key: found for key, rules in live.items() if key in known and (found := _compared(known[key], rules))}
    return Additions(fields, inside)


def without(value: Any, added: Additions, path: str = "spec") -> tuple[Any, list[str]]:
    """Return a spec without the fields that have their newer default, and the paths of these. What has none is returned as it is."""
    dropped: list[str] = []
    return _without(value, added, path, dropped) if added else value, dropped


def _without(value: Any, added: Additions, path: str, dropped: list[str]) -> Any:
    if isinstance(value, list) and added.each:
        return [_without(item, added.each, f"{path}[{number}]", dropped) for number, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    return dict(_kept(value, added, path, dropped))


def _kept(value: Json, added: Additions, path: str, dropped: list[str]) -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        where = f"{path}.{key}"
        if key in added.fields and item == added.fields[key]:
            dropped.append(where)
            continue
        inner = added.inside.get(key) or added.each
        yield key, _without(item, inner, where, dropped) if inner else item
