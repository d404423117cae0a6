# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which fields a manager owns (``metadata.managedFields``, FieldsV1) and what an object says in just these.

FieldsV1 is a tree: ``f:<name>`` a field, ``k:{…}`` the list element with these keys, ``v:<json>`` a set's element, ``i:<n>`` an index,
``.`` the node itself; an empty tree owns the whole value (sigs.k8s.io/structured-merge-diff, fieldpath/serialize-pe.go).
"""

from __future__ import annotations

import json
from typing import Any

Tree = dict[str, Any]

# Lists of pod templates and Services whose elements have these keys. Kubernetes fills in parts of elements, and never makes one.
_KEYED: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ports": ("containerPort", "port", "protocol"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}


def owned(obj: dict[str, Any], manager: str) -> Tree:
    """Return the fields of ``obj`` that ``manager`` owns by server-side apply; ``{}`` when it never applied."""
    tree: Tree = {}
    for entry in (obj.get("metadata") or {}).get("managedFields") or ():
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            tree = union(tree, entry.get("fieldsV1") or {})
    return tree


def union(left: Tree, right: Tree) -> Tree:
    """Return the fields of both trees."""
    merged = dict(left)
    for key, sub in right.items():
        merged[key] = union(merged[key], sub) if key in merged and merged[key] and sub else {} if key in merged else sub
    return merged


def less(tree: Tree, taken: Tree) -> Tree:
    """Return the fields of ``tree`` that are not in ``taken``."""
    left: Tree = {}
    for key, sub in tree.items():
        if key not in taken:
            left[key] = sub
        elif taken[key] and sub:
            rest = less(sub, taken[key])
            if rest:
                left[key] = rest
    return left


def without(value: Any, tree: Tree) -> Any:
    """Return ``value`` without the fields that ``tree`` covers."""
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            sub = tree.get(f"f:{key}")
            if sub is None:
                kept[key] = item
            elif any(name != "." for name in sub) and "." not in sub:
                kept[key] = without(item, sub)
        return kept
    if isinstance(value, list):
        covered = dict(_elements(value, tree))
        return [without(item, covered.get(index, {})) for index, item in enumerate(value) if not _whole(covered.get(index))]
    return value


def _whole(sub: Tree | None) -> bool:
    return sub is not None and (not sub or "." in sub)


def project(value: Any, tree: Tree) -> Any:
    """Return the part of ``value`` that ``tree`` covers; fields that are absent stay absent."""
    if not tree:
        return value
    if isinstance(value, dict):
        picked = {key[2:]: project(value[key[2:]], sub) for key, sub in tree.items() if key.startswith("f:") and key[2:] in value}
        return {key: picked[key] for key in value if key in picked}
    if isinstance(value, list):
        return [project(value[index], sub) for index, sub in _elements(value, tree)]
    return value


def _elements(value: list[Any], tree: Tree) -> list[tuple[int, Tree]]:
    """Return the covered elements of a list in the list's order."""
    found: dict[int, Tree] = {}
    for key, sub in tree.items():
        index = _index(value, key)
        if index is not None:
            found[index] = sub
    return sorted(found.items(), key=lambda pair: pair[0])


def _index(value: list[Any], key: str) -> int | None:
    if key.startswith("i:"):
        index = int(key[2:])
        return index if index < len(value) else None
    if key.startswith("v:"):
        wanted = json.loads(key[2:])
        return value.index(wanted) if wanted in value else None
    if key.startswith("k:"):
        keys: dict[str, Any] = json.loads(key[2:])
        for index, element in enumerate(value):
            # A key that the element lacks has its default there (a port's protocol is TCP), which the server fills in before it answers.
            if isinstance(element, dict) and all(element.get(name, wanted) == wanted for name, wanted in keys.items()):
                return index
    return None


def unowned(value: Any, tree: Tree | None) -> Tree:
    """Return the elements of keyed lists in ``value`` of which ``tree`` (None: nothing) says nothing; a list of which it says nothing counts as a whole."""
    found: Tree = {}
    for key, below in value.items() if isinstance(value, dict) and tree != {} else ():
        here = None if tree is None else tree.get(f"f:{key}")
        rest: Tree = {}
        if key in _KEYED and isinstance(below, list):
            if here is None:
                found.update({f"f:{key}": {}} if below else {})
                continue
            for element in below:  # whoever owns a list owns no element by that
                rest.update(_unowned_element(element, here, _KEYED[key]))
        else:
            rest = unowned(below, here)
        if rest:
            found[f"f:{key}"] = rest
    return found


def _unowned_element(element: dict[str, Any], tree: Tree, keys: tuple[str, ...]) -> Tree:
    for key, sub in tree.items():
        named = json.loads(key[2:]) if key.startswith("k:") else {}
        if named and all(element.get(name, wanted) == wanted for name, wanted in named.items()):
            rest = unowned(element, sub)
            return {key: rest} if rest else {}
    return {f"k:{json.dumps({key: element[key] for key in keys if key in element}, separators=(',', ':'))}": {}}


def same(before: dict[str, Any], after: dict[str, Any], manager: str) -> bool:
    """True when ``manager`` owns the same fields with the same values in both states of an object."""
    tree = owned(after, manager)
    if owned(before, manager) != tree:
        return False
    # An object of a name alone owns nothing; the server's second apply of it writes down who owned the rest, which is no change of ours.
    return not tree or project(before, tree) == project(after, tree)
