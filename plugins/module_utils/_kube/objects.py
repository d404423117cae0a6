# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what a user wrote to what is sent: checked, complete and ordered objects."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import Discovery, Ref, Resource, split_api_version
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Invalid, KubeError, NotFound, Status

# Objects of a tier do not need one another; each tier may need those before it. A RoleBinding's role must exist, else the API server
# cannot see that the binder holds the role's rights; a token Secret needs its ServiceAccount; pods need all that they mount.
_TIERS: tuple[frozenset[str], ...] = (
    frozenset({"Namespace"}),
    frozenset({"CustomResourceDefinition"}),
    frozenset({"PriorityClass", "StorageClass", "RuntimeClass", "ServiceAccount", "Role", "ClusterRole", "ResourceQuota", "LimitRange"}),
    frozenset(
        {
            "RoleBinding",
            "ClusterRoleBinding",
            "Secret",
            "ConfigMap",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "NetworkPolicy",
            "PodDisruptionBudget",
            "PodTemplate",
        }
    ),
    frozenset({"Service", "IngressClass"}),
    frozenset({"StatefulSet", "Deployment", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob", "Pod"}),
)

# What holds data or other people's objects is never a member of a set, so no error in a document or a batch can delete it.
NEVER_PRUNED = frozenset({"Namespace", "PersistentVolume", "PersistentVolumeClaim", "Secret", "CustomResourceDefinition"})

# What the server keeps in metadata; an object that somebody exported with kubectl brings it along.
_SERVER_METADATA = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._:]*[A-Za-z0-9])?")


@dataclass
class Item:
    """One object of a batch and what became of it."""

    ref: Ref
    body: dict[str, Any]
    origin: str = ""
    """Where the object was written ("service.yml.j2, document 1"), for error sentences."""
    result: str = "skipped"
    before: dict[str, Any] | None = None
    """The live object before this run, where it was read."""
    after: dict[str, Any] | None = None
    """The API server's answer; in check mode that of the dry run."""
    taken_off: dict[str, Any] = field(default_factory=dict)
    """Fields of others that were taken off the object besides (as a tree of FieldsV1)."""
    foreign: list[dict[str, str]] = field(default_factory=list)
    """Fields that others had added: ``field`` and ``manager``, each."""
    imagined: bool = False
    """The API server could not be asked: it has no such namespace or kind, which in check mode this run, or an earlier task, would make."""

    @property
    def tier(self) -> int:
        """Position in the order of application."""
        return tier(self.ref.resource.kind, builtin=self.ref.resource.builtin)


def tier(kind: str, *, builtin: bool = True) -> int:
    """Return the tier of ``kind``, from 0; everything that is not in the table comes last."""
    if builtin:
        for number, kinds in enumerate(_TIERS):
            if kind in kinds:
                return number
    return len(_TIERS)


def prepare(
    objects: list[Any],
    discovery: Discovery,
    *,
    namespace: str,
    owner: dict[str, Any] | None = None,
    origins: list[str] | None = None,
    unknown_kinds: bool = False,
) -> list[Item]:
    """Return the objects as items, in the given order; Lists are taken apart.

    ``namespace`` is for namespaced objects that name none. ``owner`` (an ownerReference, perhaps with the key ``namespace``) is put on every
    object that the owner may own: those in its namespace. With ``unknown_kinds`` an object of a kind that the API server does not have is an
    imagined item, which cannot exist; otherwise NotFound is raised. Raises KubeError for what is no Kubernetes object and for one that is there twice.
    """
    flat: list[tuple[dict[str, Any], str]] = []
    for index, obj in enumerate(objects):
        flat.extend(_unfolded(obj, origins[index] if origins else f"objects[{index}]"))
    for body, _dummy in flat:
        if body["kind"] == "CustomResourceDefinition":
            discovery.learn(body)
    items: list[Item] = []
    seen: dict[Ref, str] = {}
    for body, origin in flat:
        item = _item(body, origin, discovery, namespace, unknown_kinds)
        if item.ref in seen:
            raise _invalid(f"{item.ref} is there twice: in {seen[item.ref]} and in {origin}; leave one out")
        seen[item.ref] = origin
        items.append(item)
    if owner:
        _own(items, owner, namespace)
    return items


def _unfolded(obj: Any, origin: str) -> list[tuple[dict[str, Any], str]]:
    if not isinstance(obj, dict):
        raise _invalid(f"{origin} is no mapping but {type(obj).__name__}; an object has apiVersion, kind and metadata")
    for key in ("apiVersion", "kind"):
        if not isinstance(obj.get(key), str) or not obj[key]:
            raise _invalid(f"{origin} has no {key}; every object needs apiVersion, kind and metadata.name")
    if obj["kind"].endswith("List") and isinstance(obj.get("items"), list):
        return [pair for index, item in enumerate(obj["items"]) for pair in _unfolded(item, f"{origin}.items[{index}]")]
    return [(obj, origin)]


def _item(obj: dict[str, Any], origin: str, discovery: Discovery, namespace: str, unknown_kinds: bool) -> Item:
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        raise _invalid(f"{obj['kind']} in {origin} has no metadata.name; name it (generateName cannot be applied twice)")
    if not _NAME.fullmatch(name):  # it becomes part of a path
        raise _invalid(
            f"{obj['kind']} in {origin} has the name {name!r}, which no object may have; use lower-case letters, digits, '-' and '.'"
        )
    try:
        resource = discovery.resource(obj["apiVersion"], obj["kind"])
    except NotFound:
        if not unknown_kinds:
            raise
        nowhere = Resource(*split_api_version(obj["apiVersion"]), obj["kind"], "", bool(metadata.get("namespace")), builtin=False)
        return Item(Ref(nowhere, metadata.get("namespace"), name), obj, origin, imagined=True)
    where = (metadata.get("namespace") or namespace) if resource.namespaced else None
    if where is not None and not _NAME.fullmatch(str(where)):
        raise _invalid(f"{obj['kind']} {name} in {origin} has the namespace {where!r}, which no namespace may be called")
    clean = {key: value for key, value in metadata.items() if key not in _SERVER_METADATA}
    if where is not None:
        clean["namespace"] = str(where)
    else:
        clean.pop("namespace", None)
    body = {key: value for key, value in obj.items() if key != "status"}
    body["metadata"] = clean
    if (resource.group, resource.kind) == ("", "Secret") and isinstance(body.get("stringData"), dict):
        # Server-side apply tracks stringData as a field of its own: no conflict is seen, and a key that is left out later would stay for good.
        given = body.pop("stringData")
        for key, value in given.items():
            if not isinstance(
                value, str
            ):  # None or a mapping would become a text that nobody meant; YAML reads 0123 and yes as something else, too
                raise _invalid(
                    f"Secret {name} in {origin} has a stringData.{key} that is no text but {type(value).__name__}; put it in quotes, or leave it out"
                )
        texts = {key: base64.b64encode(value.encode()).decode() for key, value in given.items()}
        body["data"] = {**(body.get("data") or {}), **texts}
    return Item(Ref(resource, None if where is None else str(where), name), body, origin)


def _own(items: list[Item], owner: dict[str, Any], namespace: str) -> None:
    """Put the owner on the objects of its namespace. The garbage collector deletes an object whose owner is in another namespace."""
    reference = {key: value for key, value in owner.items() if key != "namespace"}
    missing = [key for key in ("apiVersion", "kind", "name", "uid") if not reference.get(key)]
    if missing:
        raise _invalid(f"owner has no {' and no '.join(missing)}; give an ownerReference with apiVersion, kind, name and uid")
    where = owner.get("namespace") or namespace
    for item in items:
        if item.ref.namespace == where:
            others = [entry for entry in item.body["metadata"].get("ownerReferences") or () if entry.get("uid") != reference["uid"]]
            item.body["metadata"]["ownerReferences"] = [*others, reference]


def add_label(item: Item, name: str, value: str) -> None:
    """Put a label on an item's object, not on its pods."""
    metadata = item.body["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), name: value}


def _invalid(text: str) -> KubeError:
    return Invalid(f"{text}.", Status(422, "Invalid", text))
