# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for objects by watch: no request for what is ready already, an early end with the pod's own reason for what never will be.

One watch for the waited-for objects of each collection and one for the pods of each namespace that has waiting workloads; each watch
runs in a thread of its own and puts what it sees into one queue, which the caller's thread reads.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import evidence, stuck_pods
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client, Stop
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, WaitFailed, WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import Item
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import (
    GRACE,
    Asked,
    Patience,
    Trouble,
    describe,
    mounts,
    waits_for_claims,
)
from ansible_collections.corral.slurm.plugins.module_utils._kube.predicates import State, state
from ansible_collections.corral.slurm.plugins.module_utils._kube.progress import ProgressLog

Object = dict[str, Any]

# Kinds whose pods say why they are not ready.
_WORKLOADS = frozenset({"StatefulSet", "Deployment", "DaemonSet", "Job"})
# The clock of troubles ticks without events, so the queue is polled this often (seconds).
_TICK = 1.0
# After a read of all pods the next comes when this many times as long has passed: a thousand pods that start bring thousands of events.
_REST = 9
# The server ends a watch after this time and it is begun again (seconds).
_WATCH = 60


def until_ready(client: Client, items: list[Item], *, timeout: float, load_balancers: bool = False, gone: bool = True) -> None:
    """Return when all ``items`` are ready, without ``gone`` even while pods above a StatefulSet's replicas are still there.

    Raises WaitFailed with the reason when one cannot become ready, WaitTimeout with what is missing.
    """
    wait = _Wait(client, items, timeout, load_balancers=load_balancers, gone=gone)
    if wait.pending:
        wait.run()


@dataclass
class _Pending:
    """One object that is not ready."""

    item: Item
    obj: Object
    state: State
    since: float = field(default_factory=time.monotonic)
    asked: float = 0.0
    """When its events were last asked for."""
    warning: str = ""
    """What a pod of it waits for, that may heal by itself."""


class _Wait:
    def __init__(self, client: Client, items: list[Item], timeout: float, *, load_balancers: bool = False, gone: bool = True) -> None:
        self._client = client
        self._timeout = timeout
        self._load_balancers = load_balancers
        self._gone = gone
        self._stop = Stop()
        self._queue: queue.Queue[tuple[Ref, Object | None] | KubeError] = queue.Queue()
        self._patience = Patience()
        self._pods: dict[Ref, Object] = {}
        self._refusals: Asked[evidence.Event | None] = Asked()
        self._mounts: Asked[tuple[str, str]] = Asked()
        # What a pod suffered before this run changed something may be cured by the change. With nothing changed, past troubles are present ones.
        self._began = client.clock if any(item.result in ("created", "configured") for item in items) else None
        self.pending: dict[Ref, _Pending] = {}
        for item in items:
            if item.after is not None:
                self._take(item, item.after)

    def run(self) -> None:
        """Watch until nothing is pending."""
        deadline = time.monotonic() + self._timeout
        progress = ProgressLog()
        try:
            self._judge()  # before the first request: an object may have failed already
            if not self.pending:
                return
            self._start()
            rested = 0.0
            while self.pending:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._too_late()
                progress.log(self._waited_for())
                self._read(min(left, _TICK))
                began = time.monotonic()
                if began >= rested:
                    self._judge()
                    ended = time.monotonic()
                    rested = ended + _REST * (ended - began)
        finally:
            self._stop.set()

    def _take(self, item: Item, obj: Object) -> None:
        """Note an object's new state."""
        now = state(
            {"apiVersion": item.ref.resource.api_version, "kind": item.ref.resource.kind, **obj},
            load_balancers=self._load_balancers,
            gone=self._gone,
            suspended=bool((item.body.get("spec") or {}).get("suspend")),
        )
        if now.ready:
            self.pending.pop(item.ref, None)
        elif item.ref in self.pending:
            self.pending[item.ref].obj, self.pending[item.ref].state = obj, now
        else:
            self.pending[item.ref] = _Pending(item, obj, now)

    def _start(self) -> None:
        collections: dict[str, list[_Pending]] = {}
        for pending in self.pending.values():
            collections.setdefault(pending.item.ref.collection, []).append(pending)
        for group in collections.values():
            first = group[0].item.ref
            query = {"fieldSelector": f"metadata.name={first.name}"} if len(group) == 1 else {}
            versions = [str(pending.obj["metadata"].get("resourceVersion", "")) for pending in group]
            version = str(min(map(int, versions))) if all(map(str.isdecimal, versions)) else None
            self._follow(first, query, version)
        pod = BUILTIN["", "Pod"]
        for namespace in sorted({str(p.item.ref.namespace) for p in self.pending.values() if p.item.ref.resource.kind in _WORKLOADS}):
            self._follow(Ref(pod, namespace, ""), {}, None)

    def _follow(self, ref: Ref, query: dict[str, str], version: str | None) -> None:
        thread = threading.Thread(target=_follow, args=(self._client, ref, query, version, self._queue, self._stop), daemon=True)
        thread.start()

    def _read(self, seconds: float) -> None:
        """Take in everything that the watches have seen; sleep at most ``seconds`` for the first."""
        try:
            event = self._queue.get(timeout=seconds)
            while True:
                self._note(event)
                event = self._queue.get_nowait()
        except queue.Empty:
            return

    def _note(self, event: tuple[Ref, Object | None] | KubeError) -> None:
        if isinstance(event, KubeError):
            raise event
        ref, obj = event
        if ref in self.pending:
            if obj is None:
                raise WaitFailed(f"{ref} was deleted by somebody else during the wait; run again.")
            self._take(self.pending[ref].item, obj)
        if ref.resource.kind == "Pod":
            if obj is None:
                self._pods.pop(ref, None)
            else:
                self._pods[ref] = obj

    def _judge(self) -> None:
        """Raise WaitFailed for the first object that cannot become ready."""
        now = time.monotonic()
        for ref, pending in list(self.pending.items()):
            if pending.state.failed:
                raise WaitFailed(f"{ref}: {pending.state.text}{self._last_log(pending)}.")
            if ref.resource.kind == "PersistentVolumeClaim":
                self._judge_claim(ref, pending, now)
            pods = self._pods_of(pending)
            self._judge_creation(ref, pending, pods, now)
            if ref.resource.kind == "StatefulSet" and stuck_pods.on_delete(pending.obj):
                pods = self._without_stale(ref, pending, pods)
            pending.warning = ""
            for pod in pods:
                pending.warning = self._judge_mounts(ref, pod, now) or pending.warning
                old = self._began is not None and str(pod["metadata"].get("creationTimestamp")) < self._began
                trouble = self._patience.exhausted(pod, now, old=old, crashes=ref.resource.kind != "Job")
                if trouble is not None and self._counts(pending, pod, trouble):
                    raise WaitFailed(self._sentence(ref, pod, trouble))

    def _without_stale(self, ref: Ref, pending: _Pending, pods: list[Object]) -> list[Object]:
        """With OnDelete pods of an older template are the business of whoever replaces them, well or not: the set is ready without them."""
        stale = [pod for pod in pods if stuck_pods.is_stale(pod, pending.obj) and not pod["metadata"].get("deletionTimestamp")]
        ready = int((pending.obj.get("status") or {}).get("readyReplicas") or 0)
        away = sum(1 for pod in stale if describe(pod))
        if away and len(pods) == int(pending.obj["spec"].get("replicas", 1)) <= ready + away:
            self.pending.pop(ref)
            return []
        return [pod for pod in pods if pod not in stale]

    def _judge_claim(self, ref: Ref, pending: _Pending, now: float) -> None:
        """A claim that waits for its first pod is in its wanted state; one that no volume fits is told by its events."""
        if not pending.asked and evidence.binds_late(self._client, pending.obj):
            self.pending.pop(ref)
            return
        if not pending.asked:
            pending.asked = now
        if now - pending.asked >= GRACE / 4:
            pending.asked = now
            event = evidence.latest(self._client, ref, pending.obj)
            if event is not None and event.reason in ("WaitForFirstConsumer", "WaitForPodScheduled"):
                self.pending.pop(ref)
            elif event is not None and event.reason in ("FailedBinding", "ProvisioningFailed") and now - pending.since >= GRACE:
                volume, todo = pending.obj["spec"].get("volumeName"), ""
                if volume and "different claim" in event.message:
                    todo = (
                        f" If the claim in the claimRef of {volume} is gone and its reclaim policy is Retain, 'kubectl delete pv {volume}' takes "
                        "no data away, and the next run makes it anew."
                    )
                raise WaitFailed(f"{ref}: it is not bound to a volume: {event.reason}: {event.message.rstrip('.')}.{todo}")

    def _judge_creation(self, ref: Ref, pending: _Pending, pods: list[Object], now: float) -> None:
        """A workload whose pods are refused (Pod Security, a quota, a PriorityClass that is not there) has none that could tell."""
        spec = pending.obj.get("spec") or {}
        wanted = int(spec.get("replicas", spec.get("parallelism", 1)) or 0)
        if ref.resource.kind not in _WORKLOADS or len(pods) >= wanted:
            return

        def ask() -> evidence.Event | None:
            self._judge_strays(ref, pending, wanted)
            return evidence.refusal(self._client, ref, pending.obj, since=self._began)

        event = self._refusals.answer(str(ref), now, ask)
        if event is not None:
            raise WaitFailed(
                f"{ref}: its pods are refused: {event.message.rstrip('.')}. Have that allowed, or made, or the document ask for something else, and run "
                "again."
            )

    def _judge_strays(self, ref: Ref, pending: _Pending, wanted: int) -> None:
        """A StatefulSet's controller says nothing of a pod that has the name of one of its pods and is not its own."""
        if ref.resource.kind != "StatefulSet":
            return
        for name in (f"{ref.name}-{number}" for number in range(wanted)):
            pod = self._pods.get(Ref(BUILTIN["", "Pod"], ref.namespace, name))
            owners = [one.get("uid") for one in (pod or {}).get("metadata", {}).get("ownerReferences") or ()]
            if pod is not None and not pod["metadata"].get("deletionTimestamp") and pending.obj["metadata"].get("uid") not in owners:
                raise WaitFailed(
                    f"{ref}: pod {name} is not its own any more, and no other can be made beside it: somebody has changed the pod's labels or owner. "
                    f"kubectl delete pod {name} -n {ref.namespace} has it made anew (and ends what runs in it); the next run goes on."
                )

    def _judge_mounts(self, ref: Ref, pod: Object, now: float) -> str:
        """A pod without what it mounts just waits, and says so by events alone. Returns what may heal by itself."""
        uid, name = str(pod["metadata"].get("uid")), str(pod["metadata"]["name"])
        if not mounts(pod):
            self._mounts.forget(uid)
            return ""
        of = Ref(BUILTIN["", "Pod"], ref.namespace, name)
        answer = self._mounts.answer(uid, now, lambda: evidence.of_mounts(self._client, of, pod, since=self._began))
        missing, warning = answer or ("", "")
        whose = "" if ref.resource.kind == "Pod" else f"pod {name}: "
        if missing:
            raise WaitFailed(
                f"{ref}: {whose}it cannot have its volumes: {missing.rstrip('.')}. Make what is missing; the next run goes on."
            )
        return f"{whose}{warning}" if warning else ""

    def _pods_of(self, pending: _Pending) -> list[Object]:
        ref = pending.item.ref
        if ref.resource.kind == "Pod":
            return [pending.obj]
        if ref.resource.kind not in _WORKLOADS:
            return []
        return [
            pod
            for key, pod in self._pods.items()
            if key.namespace == ref.namespace and evidence.belongs(pod, ref.resource.kind, pending.obj)
        ]

    def _counts(self, pending: _Pending, pod: Object, trouble: Trouble) -> bool:
        """False for troubles that somebody else is about to end."""
        if waits_for_claims(trouble) and evidence.are_bound(self._client, pod):
            return False
        if trouble.reason == "Unschedulable":
            event = evidence.latest(self._client, Ref(BUILTIN["", "Pod"], pending.item.ref.namespace, str(pod["metadata"]["name"])), pod)
            return event is None or event.reason not in ("TriggeredScaleUp", "Preempted", "Nominated")
        if pending.item.ref.resource.kind == "Deployment":
            return evidence.is_current(self._client, pod, pending.obj)
        return True

    def _sentence(self, ref: Ref, pod: Object, trouble: Trouble) -> str:
        name = str(pod["metadata"]["name"])
        whose = f"{ref}: pod {name}" if ref.resource.kind != "Pod" else str(ref)
        where = f", container {trouble.container}" if trouble.container else ""
        last_lines = (
            evidence.log(self._client, str(ref.namespace), name, trouble.container, previous=True) if trouble.cause == "crash" else ""
        )
        advice = {
            "image": "check the name and the pull secrets",
            "name": "correct the image's name",
            "start": "make what it refers to",
            "profile": "put the profile on that node (docs/security.md; corral.slurm.node_profiles does it for seccomp), or choose Unconfined for its pods",
            "place": "lower the requests, or add nodes that fit its selectors and tolerations",
            "volume": evidence.of_claims(self._client, pod) if trouble.cause == "volume" else "",
            "crash": f"see kubectl -n {ref.namespace} logs {name}"
            + (f" -c {trouble.container}" if trouble.container else "")
            + " --previous",
        }[trouble.cause]
        log = f"; its last lines: {last_lines}" if last_lines else ""
        return f"{whose}{where}: {trouble.text}{log}; {advice}."

    def _last_log(self, pending: _Pending) -> str:
        """Quote the pod of a failed Job, or the container of a failed Pod."""
        ref = pending.item.ref
        if ref.resource.kind == "Job":
            return evidence.of_job(self._client, ref, pending.obj)
        return evidence.of_pod(self._client, pending.obj) if ref.resource.kind == "Pod" else ""

    def _waited_for(self) -> str:
        parts = [
            f"{ref}: {pending.state.text}" + (f" ({pending.warning})" if pending.warning else "")
            for ref, pending in sorted(self.pending.items())[:3]
        ]
        more = f"; and {len(self.pending) - 3} more" if len(self.pending) > 3 else ""
        return f"waiting for {'; '.join(parts)}{more}"

    def _too_late(self) -> WaitTimeout:
        parts: list[str] = []
        for ref, pending in sorted(self.pending.items())[:5]:
            details = evidence.why(self._client, ref, pending.obj, self._pods_of(pending))
            parts.append(f"{ref}: {pending.state.text}" + (f" ({details})" if details else ""))
        more = f"; and {len(self.pending) - 5} more" if len(self.pending) > 5 else ""
        return WaitTimeout(
            f"Not ready after {round(self._timeout, 1):g} s: {'; '.join(parts)}{more}. Run again to go on waiting, or raise wait_timeout."
        )


def _follow(
    client: Client,
    ref: Ref,
    query: dict[str, str],
    version: str | None,
    out: queue.Queue[tuple[Ref, Object | None] | KubeError],
    stop: Stop,
) -> None:
    """Put every state of a collection's objects into ``out``, None for a deleted one, until ``stop``."""
    what = f"watch {ref.resource.plural}" + (f" in {ref.namespace}" if ref.namespace else "")
    seen: set[Ref] = set()

    def put(obj: Object, *, gone: bool = False) -> None:
        metadata = obj["metadata"]
        one = Ref(ref.resource, metadata.get("namespace"), str(metadata["name"]))
        seen.discard(one) if gone else seen.add(one)
        out.put((one, None if gone else obj))

    try:
        while not stop.is_set():
            if version is None:
                answer = client.get(ref.collection, what=what, query=query)
                before = set(seen)
                seen.clear()
                for obj in answer.data.get("items") or ():
                    put(obj)
                for missing in before - seen:
                    out.put((missing, None))
                version = str((answer.data.get("metadata") or {}).get("resourceVersion"))
            events = 0
            for event in client.watch(ref.collection, what=what, query={**query, "resourceVersion": version}, seconds=_WATCH, stop=stop):
                events += 1
                if event.get("type") == "ERROR":
                    version = None  # the server has forgotten that version: begin with a list
                    break
                obj = event["object"]
                version = str(obj["metadata"]["resourceVersion"])
                if event.get("type") != "BOOKMARK":
                    put(obj, gone=event.get("type") == "DELETED")
            if not events:
                stop.wait(0.2)
    except KubeError as error:
        if not stop.is_set():
            out.put(error)
