# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``--diff`` shows of an object: the fields that our manager owns, before and after; never a Secret's value."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import fields
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import Item

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def difference(item: Item, manager: str) -> list[dict[str, Any]]:
    """Return the entries for Ansible's ``diff`` (none for an unchanged object)."""
    if item.result not in ("created", "configured", "absent"):
        return []
    kind = item.ref.resource.kind
    if item.result == "absent":
        before, after = _own(item.before or {}, manager), {}
    elif item.imagined or item.after is None:
        before, after = {}, item.body
    else:
        # Also what was ours and is no longer, so that a removed field shows.
        tree = fields.union(fields.owned(item.after, manager), fields.owned(item.before or {}, manager))
        tree = fields.union(tree, item.taken_off)
        before = fields.project(item.before, tree) if item.before is not None and item.result == "configured" else {}
        after = fields.project(item.after, tree) if tree else item.body
    name = str(item.ref)
    takes = f" (without {', '.join(row['field'] + ' of ' + row['manager'] for row in item.foreign)})" if item.foreign else ""
    return [{"before_header": name, "after_header": name + takes, "before": shown(before, kind), "after": shown(after, kind)}]


def shown(obj: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return an object's fields fit for a terminal: texts of several lines as lists of lines, a Secret's values only by their SHA-256."""
    if not obj:
        return {}
    visible = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
    if kind == "Secret":
        for key in ("data", "stringData"):
            if isinstance(visible.get(key), dict):
                visible[key] = {name: _hashed(value, encoded=key == "data") for name, value in visible[key].items()}
            elif visible.get(key):  # a error, with a value in it all the same
                visible[key] = _hashed(visible[key], encoded=False)
    if kind.endswith("List") and isinstance(visible.get("items"), list):
        visible["items"] = [
            shown(item, str(item.get("kind") or kind.removesuffix("List"))) if isinstance(item, dict) else item for item in visible["items"]
        ]
    metadata = visible.get("metadata")
    if isinstance(metadata, dict):
        visible["metadata"] = {key: value for key, value in metadata.items() if key != "managedFields"}
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict):  # kubectl's copy of the whole object, a Secret's values in it
            visible["metadata"]["annotations"] = {key: value for key, value in annotations.items() if key != _LAST_APPLIED}
    broken: dict[str, Any] = _lines(visible)
    return broken


def _own(obj: dict[str, Any], manager: str) -> dict[str, Any]:
    tree = fields.owned(obj, manager)
    own: dict[str, Any] = fields.project(obj, tree) if tree else {"metadata": {"name": (obj.get("metadata") or {}).get("name")}}
    return own


def _hashed(value: Any, *, encoded: bool) -> str:
    raw = str(value).encode()
    if encoded:
        with contextlib.suppress(ValueError):
            raw = base64.b64decode(raw, validate=True)
    return f"sha256:{hashlib.sha256(raw).hexdigest()[:8]}… ({len(raw)} bytes)"


def _lines(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lines(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_lines(item) for item in value]
    return value.splitlines() if isinstance(value, str) and "\n" in value else value
