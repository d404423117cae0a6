# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Server-side apply of a batch: one PATCH an object, and an exact answer to "did it change?" without a GET.

How a change is known. Revisions of the API server's store only grow, and the list that is asked for first says the current one, R0.
An object whose resourceVersion in the PATCH's answer is not above R0 was not written since: the apply changed nothing. Above R0 it
was written by this PATCH or, in the same moment, by a controller; then the object as it was at R0 is asked for
(``resourceVersionMatch=Exact``) and what our manager owns is compared. (resourceVersions compare as integers since KEP-5504, Kubernetes 1.35, and did so
before wherever etcd is the store.) ``managedFields[].time`` would not do: it counts whole seconds, and an apply that only begins to own a
field with its present value writes the object without any time (seen on 1.34; tests/integration/kube/test_apply.py shows both).
Custom kinds may live in an aggregated server's own store, so each gets an R0 of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import fields, foreign_fields, immutable
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import APPLY, JSON_PATCH, Client, Response, patch_as_seen
from ansible_collections.corral.slurm.plugins.module_utils._kube.delete import delete, wait_gone
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import Ref, Resource, unknown_kind
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    Unreachable,
)
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import NEVER_PRUNED, Item

# With four connections 400 unchanged ConfigMaps took 0.6 of the time of one on two cores that the API server shared; more gave nothing.
THREADS = 4
# Fewer objects than this in a tier are not worth a thread.
_WORTH_THREADS = 4
# The API server serves a new kind shortly after it has called it Established.
_KIND_COMES = 10.0
# What Kubernetes adds to a claimRef when it binds the volume.
_BINDING = ("uid", "resourceVersion")
# Longest wait for an object that is being deleted to make room for its successor.
_MAKE_ROOM = 120.0
# How often fields of others are taken back that come again in the same moment.
_TAKE_BACK = 3


class Applier:
    """Applies items and writes ``result``, ``before`` and ``after`` into them."""

    def __init__(
        self,
        client: Client,
        *,
        manager: str,
        force: bool,
        check: bool,
        diff: bool,
        retry_failed_jobs: bool = False,
        rebind_volumes: bool = False,
        member_label: str | None = None,
        may_be_foreign: list[foreign_fields.Permission] | None = None,
        uids: dict[Ref, str] | None = None,
        refuse_others: Callable[[list[Item]], None] | None = None,
        threads: int = THREADS,
    ) -> None:
        self._client = client
        self._manager = manager
        self._force = force
        self._check = check
        self._diff = diff
        self._retry_failed_jobs = retry_failed_jobs
        self._rebind_volumes = rebind_volumes
        self._may_be_foreign = may_be_foreign
        # What objects were when they were applied last, and who raises Conflict for one that is somebody else's now.
        self._uids = dict(uids or {})
        self._refuse_others = refuse_others or (lambda _items: None)
        self._live = Live(client, member_label)
        self._threads = threads
        self._lock = threading.Lock()
        self._revisions: dict[str, int | None] = {}
        self._coming: set[Resource] = set()
        self._new_namespaces: set[str] = set()
        self._gone = threading.Event()
        # Sentences about single objects, for the task's result.
        self.warnings: list[str] = []

    def start(self, revision: int | None) -> None:
        """Give R0, the store's revision from before anything was written (None: not known)."""
        self._revisions[""] = revision

    def expect(self, resources: list[Resource]) -> None:
        """Announce kinds that this run has made: their first objects may come before the API server serves them."""
        self._coming.update(resources)

    def run(self, items: list[Item]) -> None:
        """Apply items of any tiers, tier after tier; within a tier several at once. All of a tier are tried before an error is raised."""
        in_order = sorted(items, key=lambda item: item.tier)
        for _dummy, tier in groupby(in_order, key=lambda item: item.tier):
            self._together(list(tier), self._apply)

    def create_missing(self, items: list[Item]) -> None:
        """Create what does not exist and leave the rest alone: one GET each, a POST where it is missing."""
        in_order = sorted(items, key=lambda item: item.tier)
        for _dummy, tier in groupby(in_order, key=lambda item: item.tier):
            self._together(list(tier), self._create)

    def _together(self, items: list[Item], work: Callable[[Item], None]) -> None:
        errors: list[tuple[Item, KubeError]] = []

        def one(item: Item) -> None:
            if self._gone.is_set():
                return
            try:
                work(item)
            except KubeError as error:
                if isinstance(error, Unreachable):
                    self._gone.set()
                else:
                    item.result = "refused"
                with self._lock:
                    errors.append((item, error))

        if len(items) < _WORTH_THREADS or self._threads < 2:
            for item in items:
                one(item)
        else:
            with ThreadPoolExecutor(min(self._threads, len(items))) as pool:
                list(pool.map(one, items))
        raise_together([error for item in items for failed, error in errors if failed is item])

    def _apply(self, item: Item) -> None:
        if self._check and self._would_be_new(item):
            item.result, item.imagined = "created", True
            return
        revision = self._revision(item.ref)
        if self._check or self._diff or revision is None:
            item.before = self._live.get(item.ref)
        try:
            response = self._patch(item)
        except (NotFound, Invalid) as error:
            self._imagine(item, error)
            return
        item.after = response.data
        if self._in_the_way(item):
            item.result = "created"
            if not self._check:
                self._replace(item)
        else:
            item.result = self._verdict(item, response, revision)
            self._take_back(item)
        if self._rebind_volumes and item.ref.resource.kind == "PersistentVolume":
            self._rebind(item)
        if self._check and item.result == "created":
            self._note_new(item)

    def _patch(self, item: Item) -> Response:
        query = {"fieldManager": self._manager, "force": "true" if self._force else "false"}
        if self._check:
            query["dryRun"] = "All"
        # With its UID it is for this very object: another one of its name is read before it is written. So an unchanged batch costs no request for it.
        uid = self._uids.pop(item.ref, "")
        deadline = time.monotonic() + _KIND_COMES
        while True:
            body = {**item.body, "metadata": {**item.body["metadata"], "uid": uid}} if uid else item.body
            try:
                return self._client.request(
                    "PATCH", item.ref.path, what=f"apply {item.ref}", query=query, body=body, content_type=APPLY, retry_conflict=not uid
                )
            except NotFound as error:
                if error.status.kind or error.status.namespace_missing:
                    raise
                if item.ref.resource not in self._coming or time.monotonic() > deadline:
                    raise unknown_kind(item.ref.resource.api_version, item.ref.resource.kind) from error
                time.sleep(0.1)
            except (Conflict, Invalid, Forbidden) as error:
                if uid and error.status.is_of_another_uid:
                    uid = ""
                    self._refuse_others([item])
                elif error.status.is_field_conflict:
                    conflicts = [{**item.ref.row("conflict"), **row} for row in error.data.get("conflicts", ())]
                    raise Conflict(str(error), error.status, data={"conflicts": conflicts}) from error
                elif immutable.is_refused(error.status):
                    different = immutable.changed(item.ref, item.body, item.before or self._live.get(item.ref))
                    raise Invalid(f"{str(error).rstrip('.')}; {immutable.way_out(item.ref, different)}.", error.status) from error
                else:
                    raise

    def _verdict(self, item: Item, response: Response, revision: int | None) -> str:
        """Return created, configured or unchanged; see the module's text."""
        if response.code == 201:
            return "created"
        version = _revision_of(response.data)
        before: dict[str, Any] | None
        if self._check or self._diff or revision is None:
            before = item.before
            if (
                before is not None
                and not self._check
                and before["metadata"].get("resourceVersion") == response.data["metadata"].get("resourceVersion")
            ):
                return "unchanged"
        elif version is not None and version <= revision:
            return "unchanged"
        else:
            try:
                before = at_revision(self._client, item.ref, revision)
            except ApiError:
                return "configured"  # written since R0, and the past cannot be asked for
        if before is None:
            return "created"  # by a first try whose response was lost
        return "unchanged" if fields.same(before, response.data, self._manager) else "configured"

    def _create(self, item: Item) -> None:
        if self._check and self._would_be_new(item):
            item.result, item.imagined = "created", True
            return
        item.before = self._live.get(item.ref)
        if item.before is not None and item.before["metadata"].get("uid") != self._uids.get(item.ref, item.before["metadata"].get("uid")):
            self._refuse_others([item])
        if item.before is not None and not item.before["metadata"].get("deletionTimestamp"):
            item.after, item.result = item.before, "unchanged"
            return
        if item.before is not None and not self._check:
            wait_gone(self._client, item.ref, str(item.before["metadata"].get("uid")), timeout=_MAKE_ROOM)
        item.before = None
        query = {"fieldManager": self._manager, **({"dryRun": "All"} if self._check else {})}
        try:
            response = self._client.request("POST", item.ref.collection, what=f"create {item.ref}", query=query, body=item.body)
        except (NotFound, Invalid) as error:
            self._imagine(item, error)
            return
        except Conflict as error:
            if not error.status.already_exists:
                raise
            # Made since the GET: by a first try whose response was lost, or by somebody else, whose object is left alone all the same.
            item.after = self._live.get(item.ref)
            item.result = "created" if self._manager in _managers(item.after) else "unchanged"
            return
        item.after, item.result = response.data, "created"
        if self._check:
            self._note_new(item)

    def _imagine(self, item: Item, error: ApiError) -> None:
        """Report for an object, in check mode, what a run would make of it where the API server cannot be asked. Raises the error where it can."""
        if not self._check or not (error.status.namespace_missing or error.status.is_untried):
            raise error
        # Another task of the same check run would have made the namespace.
        item.result, item.imagined = "created" if item.before is None else "configured", True
        if error.status.is_untried:
            self.warnings.append(f"{item.ref} is not checked, since {error.status.message.rstrip('.')}; a run asks it.")

    def _in_the_way(self, item: Item) -> bool:
        """True when the live object must go before the wanted one can be made: it is being deleted, or it is a Job that failed."""
        after = item.after or {}
        if after.get("metadata", {}).get("deletionTimestamp"):
            return True
        return self._retry_failed_jobs and item.ref.resource.kind == "Job" and job_failed(after)

    def _replace(self, item: Item) -> None:
        metadata = (item.after or {})["metadata"]
        if not metadata.get("deletionTimestamp"):
            delete(self._client, item.ref, uid=str(metadata["uid"]), propagation="Background")
        wait_gone(self._client, item.ref, str(metadata["uid"]), timeout=_MAKE_ROOM)
        item.after = self._patch(item).data

    def _rebind(self, item: Item) -> None:
        """Take the identity of a claim that is gone off a volume that is kept, so that the next claim of that name is bound to it.

        A claimRef of a name alone is what the object says, and Kubernetes adds the uid of the claim that it binds. This field is Kubernetes' own, so no
        apply takes it away (kubernetes.io/docs/concepts/storage/persistent-volumes, "Retain": an administrator does it by hand).
        """
        what = f"give {item.ref} back to its claim's name"

        def change(volume: dict[str, Any]) -> dict[str, Any] | None:
            item.after = volume
            return {"spec": {"claimRef": dict.fromkeys(_BINDING)}} if keeps_gone_claim(volume, item.body) else None

        query = {"fieldManager": self._manager, **({"dryRun": "All"} if self._check else {})}
        after = patch_as_seen(self._client, item.ref.path, item.after or {}, change, what=what, query=query)
        if after is not None:
            item.after = after
            item.result = "configured"
            item.taken_off = {"f:spec": {"f:claimRef": {f"f:{name}": {} for name in _BINDING}}}

    def _take_back(self, item: Item) -> None:
        """Take away what others have added to the object, where that is asked for; see foreign_fields.py."""
        if self._may_be_foreign is None:
            return
        for attempt in range(_TAKE_BACK):
            added = foreign_fields.added(item.after or {}, item.ref.resource.group_kind, self._manager, self._may_be_foreign)
            if not added:
                return
            taken: fields.Tree = {}
            for who, tree, names in added:
                taken = foreign_fields.joined(taken, tree)
                rows = [{"field": name, "manager": who} for name in names]
                item.foreign.extend(row for row in rows if row not in item.foreign)
            item.taken_off = fields.union(item.taken_off, taken)
            if item.result != "created":
                item.result = "configured"
            if self._check:
                item.after = fields.without(item.after, taken)
                return
            self._disown(item, taken, last=attempt == _TAKE_BACK - 1)
            item.after = self._patch(item).data

    def _disown(self, item: Item, taken: fields.Tree, *, last: bool) -> None:
        """Write down that the fields are ours, so that the next apply takes them away."""
        if item.before is None and self._diff:
            item.before = item.after
        metadata = (item.after or {})["metadata"]
        body = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
            {
                "op": "replace",
                "path": "/metadata/managedFields",
                "value": foreign_fields.handed_over(item.after or {}, self._manager, taken),
            },
        ]
        what = f"take back fields of {item.ref} that somebody else has added"
        try:
            self._client.request(
                "PATCH",
                item.ref.path,
                what=what,
                query={"fieldManager": self._manager},
                body=body,
                content_type=JSON_PATCH,
                retry_conflict=False,
            )
        except Conflict:
            if last:
                raise

    def _would_be_new(self, item: Item) -> bool:
        return item.ref.namespace in self._new_namespaces or item.ref.resource in self._coming

    def _note_new(self, item: Item) -> None:
        if item.ref.resource.kind == "Namespace":
            self._new_namespaces.add(item.ref.name)

    def _revision(self, ref: Ref) -> int | None:
        """Return R0 of the store that keeps ``ref``."""
        key = "" if ref.resource.builtin else f"{ref.resource.group_kind}/{ref.resource.version}"
        with self._lock:
            if key not in self._revisions:
                self._revisions[key] = None if self._check or self._diff else current_revision(self._client, ref)[0]
            return self._revisions[key]


class Live:
    """Reads live objects for check and diff mode: those of an ApplySet by one LIST a collection, others by GET."""

    def __init__(self, client: Client, member_label: str | None) -> None:
        self._client = client
        self._label = member_label
        self._lock = threading.Lock()
        self._lists: dict[str, dict[str, dict[str, Any]]] = {}

    def get(self, ref: Ref) -> dict[str, Any] | None:
        """Return the live object, or None when it does not exist."""
        if self._label is not None and ref.resource.kind not in NEVER_PRUNED:
            with self._lock:
                if ref.collection not in self._lists:
                    self._lists[ref.collection] = self._members(ref)
            found = self._lists[ref.collection].get(ref.name)
            if found is not None:
                return found
        try:
            return self._client.get(ref.path, what=f"read {ref}").data
        except NotFound:
            return None

    def _members(self, ref: Ref) -> dict[str, dict[str, Any]]:
        try:
            response = self._client.get(ref.collection, what=f"list {ref.resource.plural}", query={"labelSelector": str(self._label)})
        except (Forbidden, NotFound):
            return {}  # then each by its name
        return {str(obj["metadata"]["name"]): obj for obj in response.data.get("items") or ()}


def current_revision(client: Client, ref: Ref) -> tuple[int | None, dict[str, Any] | None]:
    """Return the current revision of the store of ``ref`` and the object itself (None: it does not exist), by one request.

    A list's ``metadata.resourceVersion`` is the store's revision, an object's is only that of its last write. The revision is None
    when the API server does not let us list.
    """
    query = {"fieldSelector": f"metadata.name={ref.name}", "limit": "1"}
    try:
        response = client.get(ref.collection, what=f"list {ref.resource.plural}", query=query)
    except (Forbidden, NotFound):
        return None, None
    items = response.data.get("items") or [None]
    return _revision_of(response.data), items[0]


def at_revision(client: Client, ref: Ref, revision: int) -> dict[str, Any] | None:
    """Return the object as it was at ``revision`` (None: it did not exist). Raises ApiError when the server has forgotten (410 after minutes)."""
    query = {"fieldSelector": f"metadata.name={ref.name}", "resourceVersion": str(revision), "resourceVersionMatch": "Exact"}
    items = client.get(ref.collection, what=f"read {ref} as it was", query=query).data.get("items") or [None]
    found: dict[str, Any] | None = items[0]
    return found


def keeps_gone_claim(volume: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """True for a PersistentVolume whose claim is gone and whose data stay, where ``wanted`` names that claim without its uid."""
    spec = volume.get("spec") or {}
    live, named = spec.get("claimRef") or {}, (wanted.get("spec") or {}).get("claimRef") or {}
    return (
        (volume.get("status") or {}).get("phase") == "Released"
        and spec.get("persistentVolumeReclaimPolicy") == "Retain"
        and not (volume.get("metadata") or {}).get("deletionTimestamp")
        and bool(live.get("uid"))
        and not named.get("uid")
        and bool(named.get("name"))
        and all(live.get(key) == named.get(key) for key in ("namespace", "name"))
    )


def job_failed(job: dict[str, Any]) -> bool:
    """True for a Job that has given up."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == "Failed" and condition.get("status") == "True" for condition in conditions)


def raise_together(errors: list[KubeError]) -> None:
    """Raise the errors of several objects as one: nothing for none, the error itself for one."""
    if not errors:
        return
    if len(errors) == 1 or isinstance(errors[0], Unreachable):
        raise errors[0]
    data: dict[str, Any] = {"conflicts": [row for error in errors for row in error.data.get("conflicts", ())]}
    text = " ".join(f"({number}) {error}" for number, error in enumerate(errors[:5], 1))
    more = f" And {len(errors) - 5} more." if len(errors) > 5 else ""
    raise KubeError(f"{len(errors)} objects were refused: {text}{more}", data={key: rows for key, rows in data.items() if rows})


def _revision_of(obj: dict[str, Any]) -> int | None:
    version = str((obj.get("metadata") or {}).get("resourceVersion", ""))
    return int(version) if version.isdecimal() else None


def _managers(obj: dict[str, Any] | None) -> set[str]:
    entries = ((obj or {}).get("metadata") or {}).get("managedFields") or ()
    return {str(entry.get("manager")) for entry in entries}
