# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a pod does not start: what its status says, which of it can heal by itself, and when patience ends. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Answer = TypeVar("Answer")
Object = dict[str, Any]

# A registry that hiccups, a Secret that comes a moment later: such states are given this long before they count. Seconds.
GRACE = 20.0
# No node fits: another run may be freeing one just now, or an autoscaler adds one (its event stops this clock, see wait.py). Seconds.
UNSCHEDULABLE_GRACE = 30.0
# What refuses to make a pod, or has not what a pod mounts, may come to it a moment later. Seconds.
REFUSED = 8.0
# Restarts that a container may need while its peers come up.
RESTARTS = 3
# The kubelet calls it a back-off only after a pull has failed; the second one means that it failed again ten seconds later.
BACK_OFFS = 2

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable", "SignatureValidationFailed"})
_START = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
# How the kubelet calls a pod with an AppArmor profile on a node without AppArmor.
_NO_APPARMOR = "AppArmor"
# What runtimes say of a profile that the node does not have: "cannot load seccomp profile", "apparmor profile not found".
_PROFILE = re.compile("(seccomp|apparmor) profile")
# How the scheduler tells that a claim or its volume is the reason: "pod has unbound immediate PersistentVolumeClaims", 'persistentvolumeclaim "x" not
# found', "node(s) didn't find available persistent volumes to bind", "node(s) had volume node affinity conflict", "... pvc(s) bound to non-existent pv(s)".
_VOLUME = re.compile(r"persistent ?volume|pvc\(s\)|volume (node affinity|zone)", re.IGNORECASE)
# The scheduler has seen a claim as it was before it was bound. It looks again at the next event that it takes for a reason, or after five minutes.
_UNBOUND = "unbound immediate PersistentVolumeClaims"
# A busy kubelet that has not read a Secret or ConfigMap yet: whether that is there is not known yet.
_NOT_LOOKED = re.compile("failed to sync .* cache: timed out")


@dataclass(frozen=True)
class Trouble:
    """Something wrong with a pod. ``cause``: image, name, start, profile, crash, place or volume, or event for what events alone tell (refused pods, and
    volumes that cannot be mounted); ``reason`` is the reason that Kubernetes gives."""

    cause: str
    reason: str
    text: str
    container: str = ""
    restarts: int = 0


@dataclass
class Patience:
    """Remembers how long a pod has been in which trouble. Times are seconds of any monotonic clock."""

    since: dict[tuple[str, str, str], float] = field(default_factory=dict)
    back_offs: dict[tuple[str, str, str], int] = field(default_factory=dict)
    reasons: dict[tuple[str, str, str], str] = field(default_factory=dict)
    first_restarts: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def exhausted(self, pod: Object, now: float, *, old: bool, crashes: bool = True) -> Trouble | None:
        """Return the trouble of ``pod`` that has lasted too long.

        ``old``: the pod was there before this run changed something, so what it suffered until now may be cured by the change:
        only a crash after the change counts. ``crashes`` False: its Job counts the crashes.
        """
        uid = str((pod.get("metadata") or {}).get("uid"))
        found = troubles(pod)
        present = {(uid, trouble.container, trouble.cause) for trouble in found}
        for key in [key for key in self.since if key[0] == uid and key not in present and key[2] != "crash"]:
            del self.since[key]
            self.reasons.pop(key, None)
        for trouble in found:
            if trouble.cause == "crash" and not crashes:
                continue
            key = uid, trouble.container, trouble.cause
            began = self.since.setdefault(key, now)
            if trouble.reason == "ImagePullBackOff" and self.reasons.get(key) != trouble.reason:
                self.back_offs[key] = self.back_offs.get(key, 0) + 1
            self.reasons[key] = trouble.reason
            before = self.first_restarts.setdefault(key, trouble.restarts)
            if self._too_long(trouble, key, now - began, trouble.restarts - before, old):
                return trouble
        return None

    def _too_long(self, trouble: Trouble, key: tuple[str, str, str], lasted: float, restarts: int, old: bool) -> bool:
        # A pod that its node turned away is replaced each second, so none of them lasts.
        if trouble.cause == "name" or trouble.reason == _NO_APPARMOR:
            return True
        if trouble.reason == "Unschedulable":
            return lasted >= UNSCHEDULABLE_GRACE
        if trouble.cause == "crash":
            if old:
                return restarts >= 1
            return trouble.restarts >= RESTARTS or lasted >= GRACE
        return lasted >= GRACE or self.back_offs.get(key, 0) >= BACK_OFFS


@dataclass
class Asked(Generic[Answer]):
    """Answers about what only waits, and may say by events why: each is asked for after REFUSED seconds, and then every half of that."""

    since: dict[str, float] = field(default_factory=dict)
    at: dict[str, float] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)

    def answer(self, key: str, now: float, ask: Callable[[], Answer]) -> Answer | None:
        """Return the last answer, None where it is too early for one. Times are seconds of any monotonic clock."""
        since = self.since.setdefault(key, now)
        if now - max(since + REFUSED / 2, self.at.get(key, since)) >= REFUSED / 2:
            self.at[key], self.answers[key] = now, ask()
        return self.answers.get(key)

    def forget(self, key: str) -> None:
        """It waits no more."""
        for known in (self.since, self.at, self.answers):
            known.pop(key, None)


def troubles(pod: Object) -> list[Trouble]:
    """Return what is wrong with a pod now; an empty list for one that starts or runs."""
    status = pod.get("status") or {}
    place = [
        Trouble("volume" if _VOLUME.search(str(condition.get("message"))) else "place", "Unschedulable", str(condition.get("message", "")))
        for condition in status.get("conditions") or ()
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False" and condition.get("reason") == "Unschedulable"
    ]
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    if status.get("phase") == "Failed" and status.get("reason") == _NO_APPARMOR:
        place.append(Trouble("profile", _NO_APPARMOR, f"its node cannot confine it ({' '.join(str(status.get('message', '')).split())})"))
    return place + [trouble for trouble in map(_container, containers) if trouble is not None]


# What a volume names and nobody has: no other attempt of the kubelet heals that.
_MISSING = re.compile(
    r'(configmap|secret) ".*" not found|references non-existent|hostPath type check failed|no such (file|device)', re.IGNORECASE
)


def waits_for_claims(trouble: Trouble) -> bool:
    """True for a pod that no node takes only because a claim of it was not bound when the scheduler looked."""
    return trouble.reason == "Unschedulable" and _UNBOUND in trouble.text


def is_missing(message: str) -> bool:
    """True where a kubelet's FailedMount says that something is not there; others (a server that does not respond yet) may end by themselves."""
    return bool(_MISSING.search(message))


def mounts(pod: Object) -> bool:
    """True for a pod that is on a node and of which no container has begun: its volumes may be what it waits for."""
    status = pod.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = [(one.get("state") or {}).get("waiting") or {} for one in containers]
    return (
        bool((pod.get("spec") or {}).get("nodeName"))
        and status.get("phase", "Pending") == "Pending"
        and all(one.get("reason") in ("ContainerCreating", "PodInitializing") for one in waiting)
    )


def claims(pod: Object) -> list[str]:
    """Return the names of the claims that a pod mounts."""
    names = []
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            names.append(str(volume["persistentVolumeClaim"].get("claimName")))
        elif volume.get("ephemeral"):
            names.append(f"{pod['metadata']['name']}-{volume['name']}")
    return names


def _container(status: Object) -> Trouble | None:
    waiting = (status.get("state") or {}).get("waiting") or {}
    reason, message = str(waiting.get("reason", "")), " ".join(str(waiting.get("message", "")).split())
    name, restarts = str(status.get("name", "")), int(status.get("restartCount") or 0)
    image = str(status.get("image", ""))
    if reason == "InvalidImageName":
        return Trouble("name", reason, f"the image name {image!r} is not valid", name, restarts)
    if reason in _IMAGE:
        return Trouble("image", reason, f"the image {image} cannot be had ({reason}: {message})", name, restarts)
    if reason in _START and _PROFILE.search(message):
        return Trouble("profile", reason, f"it cannot be started ({reason}: {message})", name, restarts)
    if reason in _START and not _NOT_LOOKED.search(message):
        return Trouble("start", reason, f"it cannot be started ({reason}: {message})", name, restarts)
    if reason == "CrashLoopBackOff":
        return Trouble("crash", reason, f"it crashes again and again ({last_end(status)})", name, restarts)
    return None


def last_end(status: Object) -> str:
    """Report how a container ended last: exit code, signal or reason, and its termination message."""
    for state in (status.get("state") or {}, status.get("lastState") or {}):
        ended = state.get("terminated")
        if ended:
            parts = [f"exit code {ended.get('exitCode')}"]
            if ended.get("signal"):
                parts.append(f"signal {ended['signal']}")
            if ended.get("reason") not in (None, "", "Error", "Completed"):
                parts.append(str(ended["reason"]))
            message = " ".join(str(ended.get("message") or "").split())
            return ", ".join(parts) + (f": {message[-400:]}" if message else "")
    return "its end is not known"


def describe(pod: Object) -> str:
    """Report in a few words why a pod is not ready; "" when it is."""
    status = pod.get("status") or {}
    found = troubles(pod)
    name = str((pod.get("metadata") or {}).get("name", ""))
    if found:
        trouble = found[0]
        return f"pod {name}: " + (f"container {trouble.container}: " if trouble.container else "") + trouble.text
    if (
        any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
        or status.get("phase") == "Succeeded"
    ):
        return ""
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        return f"pod {name} is being deleted"
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        state = container.get("state") or {}
        waiting, ended = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason") not in ("PodInitializing",):
            return f"pod {name}: container {container.get('name')} waits ({waiting.get('reason', 'no reason given')})"
        if ended and ended.get("exitCode"):
            return f"pod {name}: container {container.get('name')} ended ({last_end(container)})"
        if "running" in state and not container.get("ready") and container.get("started") is False:
            return f"pod {name}: container {container.get('name')} runs, but its startup probe has not succeeded"
    for container in status.get("containerStatuses") or ():
        if "running" in (container.get("state") or {}) and not container.get("ready"):
            return f"pod {name}: container {container.get('name')} runs, but its readiness probe does not succeed"
    return f"pod {name} is {status.get('phase', 'Pending')}"
