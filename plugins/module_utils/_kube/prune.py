# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ApplySets (KEP-3659): a parent ConfigMap that says which kinds a set holds, a label on its members, and prune by both.

Order of a run, so that a crash anywhere leaves nothing behind for good: the parent is widened to the old and the new kinds and loses its
hash; the members are applied; what carries the set's label and is not in the batch is deleted; the parent is narrowed and gets the hash
of the members' names. While the hash fits the batch, nothing can be superfluous: such a run reads the parent and lists nothing.

What a member is. Labels are copied (a Service's by its EndpointSlices, anybody's by ``kubectl get -o yaml | … | kubectl create``), so the label alone says
nothing: the parent notes the UIDs of what its runs have applied. An object whose run was killed before it could be noted is known by its name, which was
noted before, and by who applied the label; so are the members of parents that were written when UIDs were not noted yet, under the keys of that time
(``applyset.k8s.io/…``, before kubectl's became final). Such a parent keeps both until a run has come to its end, and its members are looked for by both.

Two runs on one set at once: each writes the parent only as it has read it (resourceVersion), and while a run is at work the parent
carries its mark, so that a write whose response was lost is told from another run's. The run that finds another's mark at its end fails, and
takes the hash away first; the other, which finds its own mark on a parent that was written meanwhile, ends well without a hash. So the next run prunes
what the two have left.

Hash and mark are ours (``corral.hpc/applyset-…``); everything else is the KEP's, and kubectl keeps its hands off a set of another tooling.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import fields
from ansible_collections.corral.slurm.plugins.module_utils._kube.apply import current_revision
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import APPLY, METADATA_LIST, Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.delete import delete, usual_propagation, wait_gone
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Discovery, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Conflict, Invalid, KubeError, NotFound, Status
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import NEVER_PRUNED, Item, add_label, tier

_DOMAIN, _FORMER = "applyset.kubernetes.io/", "applyset.k8s.io/"
ID_LABEL = f"{_DOMAIN}id"
MEMBER_LABEL = f"{_DOMAIN}part-of"
TOOLING = f"{_DOMAIN}tooling"
GROUP_KINDS = f"{_DOMAIN}contains-group-kinds"
NAMESPACES = f"{_DOMAIN}additional-namespaces"
HASH = "corral.hpc/applyset-hash"
RUN = "corral.hpc/applyset-run"
_ANNOTATIONS = (TOOLING, GROUP_KINDS, NAMESPACES, HASH, RUN)
# Of the parent's data: the UIDs of what the set's runs have applied, and the names of those that a run is about to apply.
_MEMBERS, _PENDING = "members", "pending"

_TOOL = "corral"
_TOOLING_VALUE = f"{_TOOL}/v1"

# Tries of a write to the parent that the API server calls a race though nobody else wrote.
_RACES = 5


class _Race(KubeError):
    def __init__(self, ref: Ref) -> None:
        super().__init__(f"Another run changes the set of {ref} at the same time; run again when it is done.")


def set_id(name: str, namespace: str, kind: str = "ConfigMap", group: str = "") -> str:
    """Return the id of the set whose parent is this object, in kubectl's V1 format."""
    digest = hashlib.sha256(f"{name}.{namespace}.{kind}.{group}".encode()).digest()
    return f"applyset-{base64.urlsafe_b64encode(digest).decode().rstrip('=')}-v1"


class ApplySet:
    """One set: ``read`` first, then ``adopt``, ``open``, (apply), ``prune``, ``close``; or ``delete_all``."""

    def __init__(
        self, client: Client, discovery: Discovery, *, name: str, namespace: str, labels: dict[str, str], manager: str, check: bool
    ) -> None:
        self._client = client
        self._discovery = discovery
        self._labels = dict(labels)
        self._manager = manager
        self._check = check
        self._parent: dict[str, Any] | None = None
        self._settled = False
        self._hash = ""
        self._run = secrets.token_hex(8)
        self._kinds: set[str] = set()
        self._keys: list[str] = []
        self._namespaces: set[str] = set()
        self.ref = Ref(BUILTIN["", "ConfigMap"], namespace, name)
        self.id = set_id(name, namespace)
        self.writes = 0

    @property
    def selector(self) -> str:
        """The label selector of the members."""
        return f"{MEMBER_LABEL}={self.id}"

    def strange(self, items: list[Item]) -> list[Item]:
        """Return those of ``items`` that no run of this set is known to have applied."""
        known = self._noted() or {}
        return [item for item in items if _key(item.ref) not in known]

    def uids(self, items: list[Item]) -> dict[Ref, str]:
        """Return the UIDs of those of ``items`` that a run of this set has applied: another object of the name may be somebody else's."""
        known = self._noted() or {}
        return {item.ref: known[_key(item.ref)] for item in items if _key(item.ref) in known}

    @property
    def _former(self) -> bool:
        """True while the parent, and perhaps members, carry the keys of before."""
        return f"{_FORMER}id" in (((self._parent or {}).get("metadata") or {}).get("labels") or {})

    @property
    def exists(self) -> bool:
        """True when the parent was there when it was read."""
        return self._parent is not None

    def read(self) -> int | None:
        """Read the parent; return the store's revision (see apply.py). Raises KubeError for a parent that is not ours."""
        revision, self._parent = current_revision(self._client, self.ref)
        if self._parent is None and revision is None:  # may not list: then by name
            try:
                self._parent = self._client.get(self.ref.path, what=f"read {self.ref}").data
            except NotFound:
                self._parent = None
        if self._parent is not None:
            self._refuse_foreign(self._parent["metadata"])
        return revision

    def adopt(self, items: list[Item]) -> None:
        """Label the members among ``items`` and work out what the parent should say. Raises Invalid when the parent itself is among them."""
        if any(item.ref == self.ref for item in items):
            text = f"{self.ref} is the parent of the set and one of its objects; give the set another name"
            raise Invalid(f"{text}.", Status(422, "Invalid", text))
        members = [item for item in items if item.ref.resource.kind not in NEVER_PRUNED]
        for item in members:
            add_label(item, MEMBER_LABEL, self.id)
        self._kinds = {item.ref.resource.group_kind for item in members}
        self._namespaces = {item.ref.namespace for item in members if item.ref.namespace not in (None, self.ref.namespace)}
        self._keys = sorted(_key(item.ref) for item in members)
        self._hash = hashlib.sha256(json.dumps([self._keys, sorted(self._labels.items())]).encode()).hexdigest()[:32]
        self._settled = self._annotation(HASH) == self._hash and not self._former

    def open(self) -> None:
        """Widen the parent to the old and the new members, unless it says already that the batch is all there is."""
        if self._settled:
            return
        kinds = self._kinds | _split(self._annotation(GROUP_KINDS))
        namespaces = self._namespaces | _split(self._annotation(NAMESPACES))
        noted = self._noted()
        data = {_PENDING: json.dumps(sorted({*self._keys, *self._pending()}))}
        self._write(kinds, namespaces, None, data if noted is None else {**data, _MEMBERS: json.dumps(noted)})

    def prune(self, items: list[Item]) -> list[Ref]:
        """Delete the members that are not among ``items``; return them. If one kind cannot be listed, nothing is deleted at all."""
        if self._settled or (self._check and self._parent is None):
            return []
        kept = {_key(item.ref) for item in items}
        pruned: list[Ref] = []
        for ref, uid, going in self._members(self._kinds, self._namespaces):
            if not going and _key(ref) not in kept and self._still_ours(ref, uid):
                pruned.append(ref)
        return pruned

    def _still_ours(self, ref: Ref, uid: str) -> bool:
        """Delete a member as it is now: another set may have taken it since it was listed."""
        for _dummy in range(_RACES):
            try:
                metadata = self._client.get(ref.path, what=f"read {ref}").data["metadata"]
            except NotFound:
                return False
            if metadata.get("uid") != uid or self.id not in _sets(metadata):
                return False
            version = str(metadata["resourceVersion"])
            if delete(self._client, ref, uid=uid, version=version, propagation="Background", check=self._check):
                return True
        raise KubeError(f"{ref} is written all the time and could not be pruned; run again.")

    def close(self, items: list[Item]) -> None:
        """Narrow the parent to the batch and write the hash, and the UIDs of what was applied, also of what nothing prunes."""
        if self._check:
            return
        created = any(item.result == "created" for item in items)
        found = {_key(item.ref): str(item.after["metadata"].get("uid") or "") for item in items if item.after is not None}
        uids = {key: uid for key, uid in found.items() if uid}
        data = {_MEMBERS: json.dumps(dict(sorted(uids.items())))}
        try:
            if not self._settled or self._noted() != uids:
                self._write(self._kinds, self._namespaces, self._hash, data)
            elif created:
                # Another run may have pruned between our read of the parent and our create; it would have left another hash.
                self.read()
                if self._annotation(HASH) != self._hash:
                    raise _Race(self.ref)
        except _Race:
            self.read()
            kinds = self._kinds | _split(self._annotation(GROUP_KINDS))
            noted = {**(self._noted() or {}), **uids}
            both = {_MEMBERS: json.dumps(noted), _PENDING: json.dumps(sorted({*self._keys, *self._pending()}))}
            mark = self._annotation(RUN)
            self._write(kinds, self._namespaces | _split(self._annotation(NAMESPACES)), None, both, mark=mark)
            if mark != self._run:  # else the other one has failed and left the set to us: what the two have made is pruned by the next run
                raise

    def members(self) -> list[Ref]:
        """Return what ``delete_all`` would delete, but for the parent."""
        return [] if self._parent is None else [ref for ref, *dummy in self._members(set(), set())]

    def delete_all(self, *, propagation: str, wait: bool, timeout: float) -> list[Ref]:
        """Delete all members, workloads first, then the parent; return what was deleted. ``propagation`` is "" for the usual one.

        With ``wait`` each tier is gone before the next is touched, so that pods can end while their Services and files are still there. That holds for
        members, too, that a run before has begun to delete.
        """
        if self._parent is None:
            return []
        deleted: list[Ref] = []
        members = self._members(set(), set())
        for number in sorted({_tier(ref) for ref, *dummy in members}, reverse=True):
            tier = [member for member in members if _tier(member[0]) == number]
            deleted.extend(
                ref
                for ref, uid, going in tier
                if not going
                and delete(self._client, ref, uid=uid, propagation=propagation or usual_propagation(ref, waits=wait), check=self._check)
            )
            if wait and not self._check:
                for ref, uid, _dummy in tier:
                    wait_gone(self._client, ref, uid, timeout=timeout)
        if delete(self._client, self.ref, uid=str(self._parent["metadata"]["uid"]), propagation="Background", check=self._check):
            deleted.append(self.ref)
        return deleted

    def _members(self, kinds: set[str], namespaces: set[str]) -> list[tuple[Ref, str, bool]]:
        """Return the members with their UIDs and whether they are being deleted, those of the latest tier first. ``kinds`` and ``namespaces`` add to
        what the parent names."""
        everywhere = sorted({str(self.ref.namespace)} | namespaces | _split(self._annotation(NAMESPACES)))
        found: list[tuple[Ref, str, bool]] = []
        for group_kind in sorted(kinds | _split(self._annotation(GROUP_KINDS))):
            resource = self._discovery.group_kind(group_kind)
            if resource is None or resource.kind in NEVER_PRUNED:
                continue
            for namespace in everywhere if resource.namespaced else [None]:
                where = f"list the {resource.plural} of set {self.ref} to prune it (nothing was pruned)"
                path = resource.path(namespace)
                for selector in (self.selector, *([f"{_FORMER}part-of={self.id}"] if self._former else [])):
                    for obj in self._client.items(path, what=where, query={"labelSelector": selector}, accept=METADATA_LIST):
                        metadata = obj["metadata"]
                        ref = Ref(resource, metadata.get("namespace"), str(metadata["name"]))
                        if self._is_member(ref, metadata):
                            found.append((ref, str(metadata["uid"]), bool(metadata.get("deletionTimestamp"))))
        return sorted(found, key=lambda pair: (-_tier(pair[0]), pair[0]))

    def _is_member(self, ref: Ref, metadata: dict[str, Any]) -> bool:
        """True for what a run of this set has applied; a label can be copied."""
        if self.id not in _sets(metadata):
            return False
        noted = self._noted()
        if noted is not None and str(metadata["uid"]) in noted.values():
            return True
        if noted is not None and _key(ref) not in {*self._pending(), *self._keys}:
            return False
        owned = fields.owned({"metadata": metadata}, self._manager).get("f:metadata") or {}
        return bool({f"f:{_DOMAIN}part-of", f"f:{_FORMER}part-of"} & (owned.get("f:labels") or {}).keys())

    def _noted(self) -> dict[str, str] | None:
        """Return the UIDs of the members by their names; None for a parent of before they were noted."""
        text = ((self._parent or {}).get("data") or {}).get(_MEMBERS)
        return self._json(text) if text else None

    def _pending(self) -> list[str]:
        text = ((self._parent or {}).get("data") or {}).get(_PENDING)
        return list(self._json(text)) if text else []

    def _json(self, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise KubeError(
                f"The data of {self.ref} is not what corral wrote there ({error}); remove its data, and the next run records it again."
            ) from error

    def _write(self, kinds: set[str], namespaces: set[str], digest: str | None, data: dict[str, str], *, mark: str = "") -> None:
        annotations = {TOOLING: _TOOLING_VALUE, GROUP_KINDS: ",".join(sorted(kinds))}
        if namespaces:
            annotations[NAMESPACES] = ",".join(sorted(namespaces))
        annotations |= {RUN: mark or self._run} if digest is None else {HASH: digest}
        labels = {**self._labels, ID_LABEL: self.id}
        if digest is None and self._former:  # both, until a run has come to its end
            labels[f"{_FORMER}id"] = self.id
            annotations |= {key.replace(_DOMAIN, _FORMER): value for key, value in annotations.items() if key.startswith(_DOMAIN)}
        metadata: dict[str, Any] = {
            "name": self.ref.name,
            "namespace": self.ref.namespace,
            "labels": labels,
            "annotations": annotations,
        }
        before = None if self._parent is None else self._parent["metadata"].get("resourceVersion")
        if before is not None:
            metadata["resourceVersion"] = before  # two runs on one set at once: the slower one fails here
        query = {"fieldManager": self._manager, "force": "true", **({"dryRun": "All"} if self._check else {})}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        what = f"write down the members of set {self.ref}"
        for attempt in range(_RACES):
            try:
                response = self._client.request(
                    "PATCH", self.ref.path, what=what, query=query, body=body, content_type=APPLY, retry_conflict=False
                )
            except NotFound as error:
                if self._check and error.status.namespace_missing:
                    return
                raise
            except Conflict as error:
                self.read()
                now = None if self._parent is None else self._parent["metadata"].get("resourceVersion")
                if now != before and all(self._annotation(key) == annotations.get(key, "") for key in _ANNOTATIONS):
                    self.writes += 1  # by our own first try, whose response was lost
                    return
                if now != before or attempt == _RACES - 1:
                    raise _Race(self.ref) from error
                time.sleep(0.05 * 2**attempt)
                continue
            if not self._check:
                self._parent = response.data
                self.writes += before != response.data["metadata"].get("resourceVersion")
            return

    def _annotation(self, name: str) -> str:
        metadata = (self._parent or {}).get("metadata") or {}
        annotations = metadata.get("annotations") or {}
        return str(annotations.get(name) or annotations.get(name.replace(_DOMAIN, _FORMER), ""))

    def _refuse_foreign(self, metadata: dict[str, Any]) -> None:
        labels = metadata.get("labels") or {}
        found = labels.get(ID_LABEL) or labels.get(f"{_FORMER}id")
        tooling = self._annotation(TOOLING)
        if found is None:
            raise KubeError(f"{self.ref} exists and is no parent of an ApplySet; name another applyset, or remove that ConfigMap.")
        if tooling.partition("/")[0] != _TOOL:
            raise KubeError(f"The set of {self.ref} belongs to another tool ({tooling or 'unnamed'}); name another applyset.")
        if found != self.id:
            raise KubeError(
                f"{self.ref} carries the id of another set ({found}), as a copied ConfigMap would; remove it, or name another applyset."
            )


def _sets(metadata: dict[str, Any]) -> set[str]:
    """Return the ids of the sets that an object's labels name, by the keys of today and of before."""
    labels = metadata.get("labels") or {}
    return {str(labels[key]) for key in (MEMBER_LABEL, f"{_FORMER}part-of") if key in labels}


def _split(text: str) -> set[str]:
    return {part for part in text.split(",") if part}


def _key(ref: Ref) -> str:
    """Name an object apart from its API version."""
    return f"{ref.resource.group_kind}/{ref.namespace or ''}/{ref.name}"


def _tier(ref: Ref) -> int:
    return tier(ref.resource.kind, builtin=ref.resource.builtin)
