# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What others have added to an object: fields that the apply leaves alone and that change what the object does all the same.

Server-side apply takes back what was ours and says nothing of the rest: a container, an environment variable or an open port that somebody has added
stays for ever. Who owns which field is in the response of the very apply (``metadata.managedFields``), so an object without such fields costs nothing.
They are taken back by giving them to our manager and applying once more: what a manager owned and does not apply any more, the API server takes away,
whatever kind of list or map it is in. (kubectl moves its own fields from update to apply in the same way, k8s.io/client-go/util/csaupgrade.)
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import fields
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Invalid, Status
from ansible_collections.corral.slurm.plugins.module_utils._kube.fields import Tree
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import Item

_TEMPLATE = (("spec", "template"),)
# Where a field of somebody else makes pods, ways into them or rights others than they were meant. Elsewhere (labels, annotations, replicas) others may write.
_WATCHED: dict[str, tuple[tuple[str, ...], ...]] = {
    "StatefulSet.apps": _TEMPLATE,
    "Deployment.apps": _TEMPLATE,
    "DaemonSet.apps": _TEMPLATE,
    "CronJob.batch": (("spec", "jobTemplate"),),
    "Job.batch": (("spec", "suspend"),),
    "PodTemplate": (("template",),),
    "NetworkPolicy.networking.k8s.io": (("spec",),),
    "Service": (("spec",),),
    "ConfigMap": (("data",), ("binaryData",)),
    "Role.rbac.authorization.k8s.io": (("rules",),),
    "ClusterRole.rbac.authorization.k8s.io": (("rules",), ("aggregationRule",)),
    "RoleBinding.rbac.authorization.k8s.io": (("subjects",),),
    "ClusterRoleBinding.rbac.authorization.k8s.io": (("subjects",),),
    "ServiceAccount": (("automountServiceAccountToken",),),
}
_KEYS = ("kind", "field", "manager", "labels")
# Stands for the manager of what no entry of managedFields names.
_UNKNOWN, _UNKNOWN_TEXT = "unknown", "an unknown manager"


@dataclass(frozen=True)
class Permission:
    """Fields that may be somebody else's."""

    kind: str
    field: re.Pattern[str]
    manager: re.Pattern[str]
    labels: tuple[tuple[str, str], ...]

    def covers(self, kind: str, labels: dict[str, Any]) -> bool:
        """True when it is about this object."""
        return self.kind in ("", kind) and all(labels.get(key) == value for key, value in self.labels)


_ALWAYS: tuple[dict[str, str], ...] = (
    # `kubectl rollout restart`: an administrator's word that pods should be made again. Taking it off would make them again once more.
    {"field": ".spec.template.metadata.annotations.kubectl.kubernetes.io/restartedAt"},
    # Kubernetes allots these and lets nobody change them; whoever has made the Service by another way than apply owns them.
    {"kind": "Service", "field": ".spec.clusterIP"},
    {"kind": "Service", "field": ".spec.clusterIPs"},
    {"kind": "Service", "field": ".spec.ipFamilies"},
    {"kind": "Service", "field": ".spec.ipFamilyPolicy"},
)


def permitted(entries: list[Any]) -> list[Permission]:
    """Return the checked entries of ``foreign_fields``. Raises Invalid for one that says nothing, or something unknown."""
    found: list[Permission] = []
    for number, entry in enumerate([*entries, *_ALWAYS]):
        if not isinstance(entry, dict) or set(entry) - set(_KEYS) or not (entry.get("field") or entry.get("manager")):
            text = f"foreign_fields[{number}] needs a field or a manager, and may have a kind and labels; correct it"
            raise Invalid(f"{text}.", Status(422, "Invalid", text))
        labels = tuple((str(key), str(value)) for key, value in (entry.get("labels") or {}).items())
        found.append(Permission(str(entry.get("kind") or ""), _pattern(entry.get("field")), _pattern(entry.get("manager")), labels))
    return found


def _pattern(text: Any) -> re.Pattern[str]:
    """``*`` stands for anything; nothing at all is everything."""
    return re.compile(".*".join(re.escape(part) for part in str(text or "*").split("*")))


def added(obj: dict[str, Any], group_kind: str, manager: str, permissions: list[Permission]) -> list[tuple[str, Tree, list[str]]]:
    """Return the fields added by others to ``obj``: a manager, its tree and the names of its fields, each."""
    watched = _WATCHED.get(group_kind, ())
    metadata = obj.get("metadata") or {}
    if group_kind == "ClusterRole.rbac.authorization.k8s.io" and obj.get("aggregationRule"):
        watched = (("aggregationRule",),)  # Kubernetes gathers its rules
    entries = metadata.get("managedFields") or ()
    if not watched or not entries:
        return []
    ours = fields.owned(obj, manager)
    everybody: Tree = {}
    for entry in entries:
        everybody = joined(everybody, entry.get("fieldsV1") or {})
    # An entry may say of itself what it likes, and who took it out has left its fields behind.
    trees = [
        (str(entry.get("manager") or _UNKNOWN), entry.get("fieldsV1") or {}, ours) for entry in entries if not _is_ours(entry, manager)
    ]
    trees.append((_UNKNOWN, _left(obj, group_kind, watched, everybody), everybody))
    labels = metadata.get("labels") or {}
    kind = str(obj.get("kind") or group_kind.partition(".")[0])
    here = [one for one in permissions if one.covers(kind, labels)]
    found: list[tuple[str, Tree, list[str]]] = []
    for who, theirs, known in trees:
        allowed = [one.field for one in here if one.manager.fullmatch(who)]
        for path in watched:
            names: list[str] = []
            tree = _beyond(_below(theirs, path), _below(known, path), "".join(f".{key}" for key in path), allowed, names)
            if tree is not None and names:
                for key in reversed(path):
                    tree = {f"f:{key}": tree}
                found.append((who, tree, names))
    return found


def _is_ours(entry: dict[str, Any], manager: str) -> bool:
    """Only what was applied is ours: an update in our name is somebody's who says that they are us."""
    return bool(entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"))


def _left(obj: dict[str, Any], group_kind: str, watched: tuple[tuple[str, ...], ...], owned: Tree) -> Tree:
    """Return what nobody owns of that which Kubernetes never makes by itself: elements of keyed lists, and keys of a ConfigMap."""
    left: Tree = {}
    for path in watched:
        value, tree = obj, _below(owned, path)
        for key in path:
            value = value.get(key) or {}
        rest = (
            {f"f:{key}": {} for key in value if f"f:{key}" not in (tree or {})}
            if group_kind == "ConfigMap"
            else fields.unowned(value, tree)
        )
        for key in reversed(path if rest else ()):
            rest = {f"f:{key}": rest}
        left = joined(left, rest)
    return left


def _below(tree: Tree | None, path: tuple[str, ...]) -> Tree | None:
    for key in path:
        tree = None if tree is None else tree.get(f"f:{key}")
    return tree


def _beyond(theirs: Tree | None, ours: Tree | None, name: str, allowed: list[re.Pattern[str]], names: list[str]) -> Tree | None:
    """Return what of ``theirs`` is neither ours nor allowed (None: nothing), and put its topmost names into ``names``."""
    if theirs is None or any(pattern.fullmatch(name) for pattern in allowed):
        return None
    if not theirs:
        if ours is None:
            names.append(name)
            return {}
        return None
    below: list[str] = []
    rest: Tree = {}
    for key, sub in theirs.items():
        tree = None if key == "." else _beyond(sub, None if ours is None else ours.get(key), name + _step(key), allowed, below)
        if tree is not None:
            rest[key] = tree
    if ours is None and rest == {key: sub for key, sub in theirs.items() if key != "."}:
        names.append(name)
        return theirs
    names.extend(below)
    return rest or None


def _step(key: str) -> str:
    """Return a node of FieldsV1 as the API server writes it in conflicts: ``.image``, ``[name="x"]``."""
    sort, _colon, text = key.partition(":")
    if sort == "f":
        return f".{text}"
    if sort == "k":
        return "[" + ",".join(f"{name}={json.dumps(value)}" for name, value in json.loads(text).items()) + "]"
    return f"[={text}]" if sort == "v" else f"[{text}]"


def warnings(items: list[Item], *, check: bool) -> list[str]:
    """Return a sentence for each object of which fields of others were taken back."""
    verb = "would be" if check else "were"
    sentences: list[str] = []
    for item in items:
        rows = [f"{row['field']} of {_UNKNOWN_TEXT if row['manager'] == _UNKNOWN else row['manager']}" for row in item.foreign]
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        if rows:
            way = "Name them in foreign_fields (spec.foreignFields of a SlurmCluster) to keep them."
            sentences.append(f"{item.ref}: fields added by others {verb} taken back: {', '.join(rows[:5])}{more}. {way}")
    return sentences


def handed_over(obj: dict[str, Any], manager: str, taken: Tree) -> list[dict[str, Any]]:
    """Return the managedFields of ``obj`` with the fields of ``taken`` as our manager's alone."""
    result: list[dict[str, Any]] = []
    given = False
    for entry in obj["metadata"]["managedFields"]:
        if _is_ours(entry, manager):
            result.append(entry if given else {**entry, "fieldsV1": joined(entry.get("fieldsV1") or {}, taken)})
            given = True
        else:
            left = fields.less(entry.get("fieldsV1") or {}, taken)
            if left:
                result.append({**entry, "fieldsV1": left})
    return result


def joined(left: Tree, right: Tree) -> Tree:
    """Return the fields of both as FieldsV1 writes them: a node that is owned itself and has owned nodes below it holds a dot."""
    both = {**left, **{key: sub for key, sub in right.items() if key not in left}}
    for key in left.keys() & right.keys():
        if left[key] and right[key]:
            both[key] = joined(left[key], right[key])
        elif left[key] or right[key]:
            both[key] = {".": {}, **(left[key] or right[key])}
    return both
