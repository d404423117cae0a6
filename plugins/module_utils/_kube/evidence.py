# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be asked about an object that is not in its wanted state: its events, its pods, their logs. All of it best effort.

A right that is missing here (events, logs) must not hide the failure that is being told, so refusals give empty words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, NotFound
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import claims, describe, is_missing, last_end

Object = dict[str, Any]

_LOG_LINES = 5
_LOG_TEXT = 600
_MESSAGE = 300


@dataclass(frozen=True)
class Event:
    """One Event about an object."""

    reason: str
    message: str
    warning: bool
    at: str = ""

    def is_since(self, moment: str | None) -> bool:
        """True unless it is over by that moment; None is long ago."""
        return self.at[:19] >= (moment or "")[:19]


def events(client: Client, ref: Ref, obj: Object) -> list[Event]:
    """Return the events about an object, oldest first."""
    query = {"fieldSelector": f"involvedObject.uid={obj['metadata'].get('uid')}"}
    path = BUILTIN["", "Event"].path(ref.namespace or "default")
    try:
        found = client.get(path, what=f"read the events of {ref}", query=query).data.get("items") or ()
    except KubeError:
        return []
    in_order = sorted(found, key=_time)
    return [
        Event(str(event.get("reason", "")), " ".join(str(event.get("message", "")).split()), event.get("type") == "Warning", _time(event))
        for event in in_order
    ]


def _time(event: Object) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"), event["metadata"].get("creationTimestamp"))
    return str(next(filter(None, times), ""))


def latest(client: Client, ref: Ref, obj: Object) -> Event | None:
    """Return the newest event about an object."""
    found = events(client, ref, obj)
    return found[-1] if found else None


def refusal(client: Client, ref: Ref, workload: Object, *, since: str | None, pod: str = "") -> Event | None:
    """Return with which words a workload's pods, or the one of that name, are refused: by Pod Security, a quota, a PriorityClass that is not there."""
    for one in (workload.get("status") or {}).get("conditions") or ():
        if (one.get("type"), one.get("status")) == ("ReplicaFailure", "True") and one.get("message"):
            return Event("FailedCreate", str(one["message"]), True, str(one.get("lastTransitionTime") or ""))
    found = [event for event in events(client, ref, workload) if not pod or f"Pod {pod} " in event.message]
    return found[-1] if found and found[-1].reason == "FailedCreate" and found[-1].is_since(since) else None


def of_mounts(client: Client, ref: Ref, pod: Object, *, since: str | None) -> tuple[str, str]:
    """Report for a pod that waits for its volumes what nobody has of them, and what its newest event warns of; "" for nothing."""
    found = [event for event in events(client, ref, pod) if event.is_since(since)]
    missing = next((event.message for event in reversed(found) if event.reason == "FailedMount" and is_missing(event.message)), "")
    # An older warning may be over: of a place that it has now.
    return missing, f"{found[-1].reason}: {found[-1].message[:_MESSAGE]}" if found and found[-1].warning else ""


def binds_late(client: Client, claim: Object) -> bool:
    """True for a claim whose storage class binds when the first pod comes."""
    name = (claim.get("spec") or {}).get("storageClassName")
    if not name:
        return False
    storage_class = Ref(BUILTIN["storage.k8s.io", "StorageClass"], None, str(name))
    try:
        found = client.get(storage_class.path, what=f"read {storage_class}").data
    except KubeError:
        return False  # then the claim's events tell it
    return found.get("volumeBindingMode") == "WaitForFirstConsumer"


def are_bound(client: Client, pod: Object) -> bool:
    """True when all claims of a pod are bound."""
    namespace = str(pod["metadata"]["namespace"])
    for name in claims(pod):
        ref = Ref(BUILTIN["", "PersistentVolumeClaim"], namespace, name)
        try:
            claim = client.get(ref.path, what=f"read {ref}").data
        except KubeError:
            return False
        if (claim.get("status") or {}).get("phase") != "Bound":
            return False
    return True


def of_claims(client: Client, pod: Object) -> str:
    """Report which claims of a pod that no node takes are the reason, and what to do."""
    namespace = str(pod["metadata"]["namespace"])
    for name in claims(pod):
        ref = Ref(BUILTIN["", "PersistentVolumeClaim"], namespace, name)
        try:
            claim = client.get(ref.path, what=f"read {ref}").data
        except NotFound:
            return f"{ref} does not exist: make it, or correct its name in the document"
        except KubeError:
            continue
        phase = str((claim.get("status") or {}).get("phase"))
        if phase == "Lost":
            return (
                f"{ref} has lost its volume {(claim.get('spec') or {}).get('volumeName')}: bring the volume back, or create the claim again"
            )
        if phase != "Bound":
            event = latest(client, ref, claim)
            said = f" ({event.reason}: {event.message})" if event else ""
            return f"{ref} is not bound{said}: give it a storage class that makes volumes, or make a PersistentVolume of its class, size and access modes"
    named = ", ".join(claims(pod)) or "its claims"
    return f"its volumes ({named}) cannot be used on any node that it may run on: choose nodes that reach them, or volumes that all nodes reach"


def belongs(pod: Object, kind: str, workload: Object) -> bool:
    """True for a pod of the workload's present revision."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    selector = ((workload.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    owners = {owner.get("uid") for owner in metadata.get("ownerReferences") or ()}
    if kind != "Deployment" and workload["metadata"].get("uid") not in owners:
        return False
    if kind == "StatefulSet" and ((workload["spec"].get("updateStrategy") or {}).get("type")) != "OnDelete":
        revision = (workload.get("status") or {}).get("updateRevision")
        return revision is None or labels.get("controller-revision-hash") == revision
    if kind == "DaemonSet":
        generation = (workload["metadata"].get("annotations") or {}).get("deprecated.daemonset.template.generation")
        return generation is None or labels.get("pod-template-generation") in (None, generation)
    return True


def is_current(client: Client, pod: Object, deployment: Object) -> bool:
    """True when a Deployment's pod is of its newest ReplicaSet."""
    revision = "deployment.kubernetes.io/revision"
    wanted = (deployment["metadata"].get("annotations") or {}).get(revision)
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("kind") == "ReplicaSet":
            ref = Ref(BUILTIN["apps", "ReplicaSet"], pod["metadata"]["namespace"], str(owner["name"]))
            try:
                found = client.get(ref.path, what=f"read {ref}").data
            except KubeError:
                return True
            return (found["metadata"].get("annotations") or {}).get(revision) == wanted
    return True


def log(client: Client, namespace: str, pod: str, container: str, *, previous: bool) -> str:
    """Return the last lines of a container's log in one line, "" when there is none."""
    path = Ref(BUILTIN["", "Pod"], namespace, pod).path + "/log"
    query = {"tailLines": str(_LOG_LINES), **({"container": container} if container else {}), **({"previous": "true"} if previous else {})}
    try:
        text = client.text(path, what=f"read the log of {pod}", query=query)
    except KubeError:
        return ""
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())[-_LOG_TEXT:]


def of_pod(client: Client, pod: Object) -> str:
    """Quote the container that made a pod fail."""
    status = pod.get("status") or {}
    metadata = pod["metadata"]
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            lines = log(client, str(metadata["namespace"]), str(metadata["name"]), str(container["name"]), previous=False)
            said = f"; its last lines: {lines}" if lines else ""
            return f"; pod {metadata['name']}, container {container['name']}: {last_end(container)}{said}"
    message = " ".join(str(status.get("message", "")).split())
    return f"; pod {metadata['name']}: {message}" if message else ""


def of_job(client: Client, ref: Ref, job: Object) -> str:
    """Quote the last pod of a Job that failed."""
    uid = job["metadata"].get("uid")
    path = BUILTIN["", "Pod"].path(ref.namespace)
    try:
        pods = (
            client.get(path, what=f"list the pods of {ref}", query={"labelSelector": f"batch.kubernetes.io/controller-uid={uid}"}).data.get(
                "items"
            )
            or ()
        )
    except KubeError:
        return ""
    failed = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Failed"]
    failed.sort(key=lambda pod: str(pod["metadata"].get("creationTimestamp")))
    return of_pod(client, failed[-1]) if failed else ""


def why(client: Client, ref: Ref, obj: Object, pods: list[Object]) -> str:
    """Report for a time-out what is known about an object that is not ready."""
    parts = [text for text in map(describe, pods) if text][:3]
    unready = [pod for pod in pods if describe(pod)]
    subject, of = (unready[0], Ref(BUILTIN["", "Pod"], ref.namespace, str(unready[0]["metadata"]["name"]))) if unready else (obj, ref)
    warnings = [event for event in events(client, of, subject) if event.warning]
    if warnings:
        parts.append(f"{warnings[-1].reason}: {warnings[-1].message[:_MESSAGE]}")
    return "; ".join(parts)
