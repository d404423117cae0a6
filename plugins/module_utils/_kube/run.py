# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of k8s_apply: read the set, apply by tiers, prune, wait, and say what happened."""

from __future__ import annotations

import logging
import time
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth, foreign_fields, idle, ownership, stuck_pods, wait
from ansible_collections.corral.slurm.plugins.module_utils._kube.apply import Applier, current_revision
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.delete import delete, usual_propagation, wait_gone
from ansible_collections.corral.slurm.plugins.module_utils._kube.diff import difference
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Discovery, Ref, unknown_kind
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ApiError, KubeError, NotFound, WaitFailed, WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import Item, prepare
from ansible_collections.corral.slurm.plugins.module_utils._kube.prune import MEMBER_LABEL, ApplySet

_PROGRESS = logging.getLogger("corral.slurm.progress")
# A CustomResourceDefinition is Established within a second or two; later tiers wait for it whatever ``wait`` says.
_ESTABLISHED = 30.0


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Make the cluster hold (or not hold) the objects of ``params``; the parameters are those of the module k8s_apply.

    Returns ``changed``, ``objects`` (one row each: kind, namespace, name, result), ``requests``, ``writes``, ``outdated`` (names of StatefulSets with
    OnDelete that have pods of an older template), ``foreign`` (a row for each field of somebody else that was taken back) and ``unknown_kinds`` where
    there are any and, with ``diff``, ``diff``.
    Raises CorralError; its ``data`` then holds what was done so far under the same keys.
    """
    client = Client(auth.resolve(params))
    batch = Batch(client, params, check=check, diff=diff)
    try:
        batch.run()
    except KubeError as error:
        error.data = {**batch.result(), **error.data}
        raise
    finally:
        client.close()
    return batch.result()


class Batch:
    """One call of k8s_apply."""

    def __init__(self, client: Client, params: dict[str, Any], *, check: bool, diff: bool) -> None:
        self._client = client
        self._params = params
        self._check = check
        self._diff = diff
        self._manager = str(params.get("field_manager") or "corral")
        self._namespace = str(params.get("namespace") or client.access.namespace)
        self._timeout = float(params.get("wait_timeout") or 300)
        self._discovery = Discovery(client)
        self._items: list[Item] = []
        self._rows: list[dict[str, Any]] = []
        self._diffs: list[dict[str, Any]] = []
        self._outdated: list[str] = []
        self._warnings: list[str] = []
        self._unknown_kinds: list[str] = []
        self._set = self._applyset()

    def run(self) -> None:
        """Do it."""
        objects = list(self._params.get("objects") or ())
        owner = self._params.get("owner") or None
        absent = self._params.get("state") == "absent"
        self._items = prepare(
            objects,
            self._discovery,
            namespace=self._namespace,
            owner=owner,
            origins=self._params.get("origins"),
            # In check mode an earlier task may be what brings the kind.
            unknown_kinds=absent or self._check or bool(self._params.get("skip_unknown_kinds")),
        )
        self._unknown_kinds = sorted({f"{item.body['apiVersion']}/{item.body['kind']}" for item in self._items if item.imagined})
        if self._params.get("skip_unknown_kinds"):
            self._items = [item for item in self._items if not item.imagined]
        if absent:
            self._remove()
        else:
            self._make()

    def result(self) -> dict[str, Any]:
        """Return the task's result as far as things have gone."""
        rows = [*(item.ref.row(item.result) for item in self._items), *self._rows]
        changed = [row for row in rows if row["result"] in ("created", "configured", "pruned", "absent", "replaced")]
        bookkeeping = self._set.writes if self._set is not None else 0
        result: dict[str, Any] = {
            "changed": bool(changed),
            "objects": rows,
            "requests": self._client.requests,
            "writes": 0 if self._check else len(changed) + bookkeeping,
        }
        if self._unknown_kinds:
            result["unknown_kinds"] = self._unknown_kinds
        if self._outdated:
            result["outdated"] = self._outdated
        drift = [{**item.ref.row("foreign"), **row} for item in self._items for row in item.foreign]
        if drift:
            result["foreign"] = drift
        warnings = [*foreign_fields.warnings(self._items, check=self._check), *self._warnings]
        if warnings:
            result["warnings"] = warnings
        if self._diff:
            result["diff"] = [*(entry for item in self._items for entry in difference(item, self._manager)), *self._diffs]
        return result

    def _gone(self, result: str, refs: list[Ref]) -> None:
        """Note objects that are not in the batch and were deleted."""
        self._rows.extend(ref.row(result) for ref in refs)
        self._diffs.extend({"before_header": str(ref), "before": f"{ref}\n", "after": ""} for ref in refs)

    def _applyset(self) -> ApplySet | None:
        wanted = self._params.get("applyset")
        if not wanted:
            return None
        return ApplySet(
            self._client,
            self._discovery,
            name=str(wanted["name"]),
            namespace=str(wanted.get("namespace") or self._namespace),
            labels={str(key): str(value) for key, value in (wanted.get("labels") or {}).items()},
            manager=self._manager,
            check=self._check,
        )

    def _make(self) -> None:
        revision = self._revision()
        known = [item for item in self._items if not item.imagined]
        self._foretell([item for item in self._items if item.imagined])
        if self._set is not None:
            self._set.adopt(self._items)
            self._refuse_others(self._set.strange(known))
        others = self._params.get("foreign_fields")
        applier = Applier(
            self._client,
            manager=self._manager,
            force=bool(self._params.get("force")),
            check=self._check,
            diff=self._diff,
            retry_failed_jobs=bool(self._params.get("retry_failed_jobs")),
            rebind_volumes=bool(self._params.get("rebind_volumes")),
            member_label=self._set.selector if self._set is not None and self._set.exists else None,
            may_be_foreign=None if others is None else foreign_fields.permitted(others),
            uids={} if self._set is None else self._set.uids(known),
            refuse_others=self._refuse_others,
        )
        applier.start(revision)
        work = applier.create_missing if self._params.get("create_only") else applier.run
        # The set's parent may live in a namespace of the batch.
        first = [item for item in known if item.tier == 0]
        kinds = [item for item in known if item.tier == 1]
        rest = [item for item in known if item.tier > 1]
        work(first)
        if self._set is not None:
            self._set.open()
        if kinds:
            work(kinds)
            self._await_kinds(applier, kinds)
        work(rest)
        self._warnings += applier.warnings
        if self._set is not None:
            self._gone("pruned", self._set.prune(self._items))
            self._set.close(self._items)
        question = self._question()
        if question is not None:
            self._warnings += idle.warnings(idle.used_pods(self._client, self._items, question, check=self._check), check=self._check)
        if self._params.get("replace_stuck_pods"):
            self._replace_stuck()
        if self._params.get("wait") and not self._check:
            self._wait()
            if question is not None and question.wait:
                self._await_gone(question)
        self._outdated = stuck_pods.outdated(self._client, self._items, check=self._check, waits=bool(self._params.get("wait")))
        if self._outdated and self._params.get("replace_idle_pods") and question is not None and not self._check:
            self._replace_idle(question)

    def _refuse_others(self, items: list[Item]) -> None:
        if self._set is not None:
            ownership.refuse_others(self._client, items, set_label=MEMBER_LABEL, set_id=self._set.id)

    def _foretell(self, items: list[Item]) -> None:
        """Warn, in check mode, that objects come with their kind; the API server cannot be asked. Raises NotFound where no definition can bring it."""
        for item in items:
            kind = item.ref.resource
            if any(group == kind.group for group, _kind in BUILTIN):
                raise unknown_kind(kind.api_version, kind.kind)
            item.result = "created"
            self._warnings.append(
                f"{item.ref} is not checked, since the API server has no kind {kind.kind} in {kind.api_version}. If an earlier task brings its "
                "CustomResourceDefinition, a run creates it; else correct apiVersion and kind."
            )

    def _question(self) -> idle.Question | None:
        wanted = self._params.get("in_use")
        if not wanted:
            return None
        return idle.Question(str(wanted["container"]), [str(word) for word in wanted["command"]], bool(wanted.get("wait")))

    def _replace_idle(self, question: idle.Question) -> None:
        """Replace pods that nobody uses, one after the other, so that there is one for who comes meanwhile."""
        while True:
            gone, kept = idle.replace_next(self._client, self._items, question)
            if gone is None:
                break
            self._gone("replaced", [gone])
            self._refresh()
            self._wait()
        self._outdated = sorted({ref.name.rpartition("-")[0] for ref in kept})
        self._warnings += [
            f"{ref} keeps its older template while it is in use: {why}. A later run replaces it." for ref, why in kept.items()
        ]

    def _refresh(self) -> None:
        """Read the StatefulSets again, once they have seen that a pod goes: as they were, they are ready."""
        for item in self._items:
            if item.ref.resource.kind == "StatefulSet" and item.after is not None and stuck_pods.on_delete(item.after):
                item.after = stuck_pods.one_less(self._client, item.ref)

    def _replace_stuck(self) -> bool:
        gone = stuck_pods.replace(self._client, self._items, check=self._check)
        self._gone("replaced", gone)
        return bool(gone)

    def _wait(self) -> None:
        """Wait for readiness; a pod of an older template that turns out to be stuck only now is replaced and waited for too."""
        deadline = time.monotonic() + self._timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                wait.until_ready(
                    self._client,
                    self._items,
                    timeout=left,
                    load_balancers=bool(self._params.get("wait_load_balancer")),
                    # Pods that users are in take the time that they have to end, which may be longer than this wait.
                    gone=not self._params.get("in_use"),
                )
                return
            except WaitFailed:
                if not (self._params.get("replace_stuck_pods") and self._replace_stuck()):
                    raise

    def _await_gone(self, question: idle.Question) -> None:
        """Wait for pods that go with fewer replicas, and warn of those that take longer: that is no failure, for they have that time."""
        try:
            wait.until_ready(self._client, self._items, timeout=self._timeout)
        except WaitTimeout:
            left = idle.lasting(self._client, self._items, question)
            if not left:
                raise
            self._warnings += left

    def _revision(self) -> int | None:
        """Return the store's revision from before the first write."""
        if self._set is not None:
            return self._set.read()
        if not self._items or self._params.get("create_only") or self._check or self._diff:
            return None
        builtin = [item.ref for item in self._items if item.ref.resource.builtin]
        return current_revision(self._client, builtin[0])[0] if builtin else None

    def _await_kinds(self, applier: Applier, kinds: list[Item]) -> None:
        made = [item for item in kinds if item.result in ("created", "configured")]
        if self._check:
            made = [item for item in made if item.result == "created"]
        else:
            wait.until_ready(self._client, kinds, timeout=_ESTABLISHED)
        applier.expect([resource for item in made for resource in self._discovery.learn(item.body)])

    def _warn_users(self) -> int:
        """Report whose pods are taken away, at once since the wait for them follows; return the seconds that these have to end."""
        question = self._question()
        if question is None:
            return 0
        refs = [item.ref for item in self._items if not item.imagined] + (self._set.members() if self._set is not None else [])
        pods = idle.ending(self._client, refs, question)
        for sentence in idle.warnings(pods, check=self._check):
            _PROGRESS.info("%s", sentence)
            self._warnings.append(sentence)
        return max((one.grace for one in pods), default=0)

    def _remove(self) -> None:
        waits = bool(self._params.get("wait"))
        propagation = str(self._params.get("propagation") or "")
        if self._set is not None:
            self._set.read()
        timeout = self._timeout + self._warn_users()
        deadline = time.monotonic() + timeout
        if self._set is not None:
            gone = self._set.delete_all(propagation=propagation, wait=waits, timeout=timeout)
            self._gone("absent", gone)
        deleting: list[tuple[Ref, str]] = []
        for item in sorted(self._items, key=lambda one: -one.tier):
            try:
                uid = self._delete(item, propagation, waits=waits)
            except ApiError:
                item.result = "refused"
                raise
            if uid:
                deleting.append((item.ref, uid))
        if waits and not self._check:
            for ref, uid in deleting:
                wait_gone(self._client, ref, uid, timeout=max(0.0, deadline - time.monotonic()))

    def _delete(self, item: Item, propagation: str, *, waits: bool) -> str:
        """Delete one object; return the uid of what goes, "" where nothing does."""
        try:
            # Where there is no such kind there is no such object.
            item.before = None if item.imagined else self._client.get(item.ref.path, what=f"read {item.ref}").data
        except NotFound:
            item.before = None
        other = None if item.before is None else ownership.another_owner(item.body, item.before)
        if other:
            self._warnings.append(f"{item.ref} stays: {other}. Delete it by hand if nobody wants it.")
        if item.before is None or other:
            item.result = "unchanged"
            return ""
        metadata = item.before["metadata"]
        uid = str(metadata["uid"])
        gone = not metadata.get("deletionTimestamp") and delete(
            self._client, item.ref, uid=uid, propagation=propagation or usual_propagation(item.ref, waits=waits), check=self._check
        )
        item.result = "absent" if gone else "unchanged"
        return uid
