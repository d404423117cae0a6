# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ApplySets (KEP-3659): a parent ConfigMap that says which kinds a set holds, a label on its members, and prune by both.

Order of a run, so that a crash anywhere leaves nothing behind for good: the parent is widened to the old and the new kinds and loses its
hash; the members are applied; what carries the set's label and is not in the batch is deleted; the parent is narrowed and gets the hash
of the members' names. While the hash fits the batch, nothing can be superfluous: such a run reads the parent and lists nothing.

Two runs on one set at once: each writes the parent only as it has read it (resourceVersion), and while a run is at work the parent
carries its mark, so that a write whose answer was lost is told from another run's. The slower run fails, and takes the hash away first, so
that the next run prunes what the two have left.

Hash and mark are ours (``corral.hpc/applyset-…``); everything else is the KEP's, and kubectl keeps its hands off a set of another tooling.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.apply import current_revision
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import APPLY, METADATA_LIST, Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.delete import delete, wait_gone
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Discovery, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Conflict, KubeError, NotFound
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import NEVER_PRUNED, Item, add_label, tier

ID_LABEL = "applyset.k8s.io/id"
MEMBER_LABEL = "applyset.k8s.io/part-of"
TOOLING = "applyset.k8s.io/tooling"
GROUP_KINDS = "applyset.k8s.io/contains-group-kinds"
NAMESPACES = "applyset.k8s.io/additional-namespaces"
HASH = "corral.hpc/applyset-hash"
RUN = "corral.hpc/applyset-run"
_ANNOTATIONS = (TOOLING, GROUP_KINDS, NAMESPACES, HASH, RUN)

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
        self._namespaces: set[str] = set()
        self.ref = Ref(BUILTIN["", "ConfigMap"], namespace, name)
        self.id = set_id(name, namespace)
        self.writes = 0

    @property
    def selector(self) -> str:
        """The label selector of the members."""
        return f"{MEMBER_LABEL}={self.id}"

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
        """Label the members among ``items`` and work out what the parent shall say."""
        members = [item for item in items if item.ref.resource.kind not in NEVER_PRUNED]
        for item in members:
            add_label(item, MEMBER_LABEL, self.id)
        self._kinds = {item.ref.resource.group_kind for item in members}
        self._namespaces = {item.ref.namespace for item in members if item.ref.namespace not in (None, self.ref.namespace)}
        names = sorted(_key(item.ref) for item in members)
        self._hash = hashlib.sha256(json.dumps([names, sorted(self._labels.items())]).encode()).hexdigest()[:32]
        self._settled = self._annotation(HASH) == self._hash

    def open(self) -> None:
        """Widen the parent to the old and the new members, unless it says already that the batch is all there is."""
        if self._settled:
            return
        kinds = self._kinds | _split(self._annotation(GROUP_KINDS))
        namespaces = self._namespaces | _split(self._annotation(NAMESPACES))
        self._write(kinds, namespaces, None)

    def prune(self, items: list[Item]) -> list[Ref]:
        """Delete the members that are not among ``items``; return them. If one kind can not be listed, nothing is deleted at all."""
        if self._settled or (self._check and self._parent is None):
            return []
        kept = {_key(item.ref) for item in items}
        pruned: list[Ref] = []
        for ref, uid, going in self._members(self._kinds, self._namespaces):
            if not going and _key(ref) not in kept and delete(self._client, ref, uid=uid, propagation="Background", check=self._check):
                pruned.append(ref)
        return pruned

    def close(self, *, created: bool) -> None:
        """Narrow the parent to the batch and write the hash. ``created``: this run made a member."""
        if self._check:
            return
        try:
            if not self._settled:
                self._write(self._kinds, self._namespaces, self._hash)
            elif created:
                # Another run may have pruned between our look at the parent and our create; it would have left another hash.
                self.read()
                if self._annotation(HASH) != self._hash:
                    raise _Race(self.ref)
        except _Race:
            self.read()
            kinds = self._kinds | _split(self._annotation(GROUP_KINDS))
            self._write(kinds, self._namespaces | _split(self._annotation(NAMESPACES)), None)
            raise

    def delete_all(self, *, propagation: str, wait: bool, timeout: float) -> list[Ref]:
        """Delete all members, workloads first, then the parent; return what was deleted.

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
                if not going and delete(self._client, ref, uid=uid, propagation=propagation, check=self._check)
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
                for obj in self._client.items(path, what=where, query={"labelSelector": self.selector}, accept=METADATA_LIST):
                    metadata = obj["metadata"]
                    if (metadata.get("labels") or {}).get(MEMBER_LABEL) == self.id:
                        ref = Ref(resource, metadata.get("namespace"), str(metadata["name"]))
                        found.append((ref, str(metadata["uid"]), bool(metadata.get("deletionTimestamp"))))
        return sorted(found, key=lambda pair: (-_tier(pair[0]), pair[0]))

    def _write(self, kinds: set[str], namespaces: set[str], digest: str | None) -> None:
        annotations = {TOOLING: _TOOLING_VALUE, GROUP_KINDS: ",".join(sorted(kinds))}
        if namespaces:
            annotations[NAMESPACES] = ",".join(sorted(namespaces))
        annotations |= {RUN: self._run} if digest is None else {HASH: digest}
        metadata: dict[str, Any] = {
            "name": self.ref.name,
            "namespace": self.ref.namespace,
            "labels": {**self._labels, ID_LABEL: self.id},
            "annotations": annotations,
        }
        before = None if self._parent is None else self._parent["metadata"].get("resourceVersion")
        if before is not None:
            metadata["resourceVersion"] = before  # two runs on one set at once: the slower one fails here
        query = {"fieldManager": self._manager, "force": "true", **({"dryRun": "All"} if self._check else {})}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        what = f"write down the members of set {self.ref}"
        for attempt in range(_RACES):
            try:
                answer = self._client.request(
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
                    self.writes += 1  # by our own first try, whose answer was lost
                    return
                if now != before or attempt == _RACES - 1:
                    raise _Race(self.ref) from error
                time.sleep(0.05 * 2**attempt)
                continue
            if not self._check:
                self._parent = answer.data
                self.writes += before != answer.data["metadata"].get("resourceVersion")
            return

    def _annotation(self, name: str) -> str:
        metadata = (self._parent or {}).get("metadata") or {}
        return str((metadata.get("annotations") or {}).get(name, ""))

    def _refuse_foreign(self, metadata: dict[str, Any]) -> None:
        found = (metadata.get("labels") or {}).get(ID_LABEL)
        tooling = self._annotation(TOOLING)
        if found is None:
            raise KubeError(f"{self.ref} exists and is no parent of an ApplySet; name another applyset, or remove that ConfigMap.")
        if tooling.partition("/")[0] != _TOOL:
            raise KubeError(f"The set of {self.ref} belongs to another tool ({tooling or 'unnamed'}); name another applyset.")
        if found != self.id:
            raise KubeError(
                f"{self.ref} carries the id of another set ({found}), as a copied ConfigMap would; remove it, or name another applyset."
            )


def _split(text: str) -> set[str]:
    return {part for part in text.split(",") if part}


def _key(ref: Ref) -> str:
    """Name an object apart from its API version."""
    return f"{ref.resource.group_kind}/{ref.namespace or ''}/{ref.name}"


def _tier(ref: Ref) -> int:
    return tier(ref.resource.kind, builtin=ref.resource.builtin)
