# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When an object is ready: one small predicate a kind, in a table. Pure: an object in, a verdict out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True)
class State:
    """``ready``; or ``failed``, which time will not heal; else on its way. ``text`` says what is missing or wrong."""

    ready: bool
    text: str = ""
    failed: bool = False


READY = State(ready=True)


def state(obj: Object, *, load_balancers: bool = False, gone: bool = True, suspended: bool = False) -> State:
    """Return the state of ``obj``; kinds without a predicate are ready as soon as they exist.

    Without ``gone``, a StatefulSet is ready while pods above its replicas are still there. With ``suspended``, a suspended Job is in its wanted state.
    """
    group = str(obj.get("apiVersion", "")).rpartition("/")[0]
    kind = str(obj.get("kind", ""))
    if (group, kind) == ("", "Service"):
        return _service(obj) if load_balancers else READY
    if (group, kind) == ("apps", "StatefulSet"):
        return _stateful_set(obj, gone)
    if (group, kind) == ("batch", "Job"):
        return _job(obj, suspended)
    predicate = PREDICATES.get((group, kind))
    return predicate(obj) if predicate is not None else READY


def waits(group: str, kind: str) -> bool:
    """True for kinds that are not ready at once."""
    return (group, kind) in PREDICATES


def _status(obj: Object) -> dict[str, Any]:
    return obj.get("status") or {}


def _spec(obj: Object) -> dict[str, Any]:
    return obj.get("spec") or {}


def _condition(obj: Object, kind: str) -> dict[str, Any]:
    for condition in _status(obj).get("conditions") or ():
        if condition.get("type") == kind:
            return dict(condition)
    return {}


def _holds(obj: Object, kind: str) -> bool:
    return _condition(obj, kind).get("status") == "True"


def _unseen(obj: Object) -> State | None:
    """A status that speaks of an older spec says nothing."""
    generation = (obj.get("metadata") or {}).get("generation", 0)
    if _status(obj).get("observedGeneration", 0) < generation:
        return State(ready=False, text="its controller has not seen the change yet")
    return None


def _count(obj: Object, key: str) -> int:
    return int(_status(obj).get(key) or 0)


def _stateful_set(obj: Object, gone: bool = True) -> State:
    unseen = _unseen(obj)
    if unseen:
        return unseen
    wanted = int(_spec(obj).get("replicas", 1))
    ready = min(_count(obj, "readyReplicas"), _count(obj, "availableReplicas") if "availableReplicas" in _status(obj) else wanted)
    if ready < wanted:
        return State(ready=False, text=f"{ready} of {wanted} pods are ready")
    if gone and _count(obj, "replicas") > wanted:
        return State(ready=False, text=f"{_count(obj, 'replicas') - wanted} superfluous pods are still there")
    strategy = _spec(obj).get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") == "OnDelete":
        return READY  # its pods are replaced by whoever deletes them; that is not this wait's business
    partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
    updated, due = _count(obj, "updatedReplicas"), max(0, wanted - partition)
    if _status(obj).get("currentRevision") != _status(obj).get("updateRevision") and updated < due:
        return State(ready=False, text=f"{updated} of {due} pods are of the new revision")
    return READY


def _deployment(obj: Object) -> State:
    unseen = _unseen(obj)
    if unseen:
        return unseen
    progressing = _condition(obj, "Progressing")
    if progressing.get("status") == "False" and progressing.get("reason") == "ProgressDeadlineExceeded":
        return State(ready=False, failed=True, text=f"it made no progress within its deadline: {progressing.get('message', '')}")
    wanted = int(_spec(obj).get("replicas", 1))
    updated = _count(obj, "updatedReplicas")
    if updated < wanted:
        return State(ready=False, text=f"{updated} of {wanted} pods are of the new revision")
    if _count(obj, "availableReplicas") < wanted:
        return State(ready=False, text=f"{_count(obj, 'availableReplicas')} of {wanted} pods are available")
    if _count(obj, "replicas") > updated:
        return State(ready=False, text=f"{_count(obj, 'replicas') - updated} old pods are still there")
    return READY


def _daemon_set(obj: Object) -> State:
    unseen = _unseen(obj)
    if unseen:
        return unseen
    wanted = _count(obj, "desiredNumberScheduled")
    if (_spec(obj).get("updateStrategy") or {}).get("type", "RollingUpdate") != "OnDelete" and _count(
        obj, "updatedNumberScheduled"
    ) < wanted:
        return State(ready=False, text=f"{_count(obj, 'updatedNumberScheduled')} of {wanted} pods are of the new revision")
    available = _count(obj, "numberAvailable")
    return READY if available >= wanted else State(ready=False, text=f"{available} of {wanted} pods are available")


def _job(obj: Object, suspended: bool = False) -> State:
    failure = _condition(obj, "Failed")
    if failure.get("status") == "True":
        return State(ready=False, failed=True, text=f"it failed ({failure.get('reason', '')}: {failure.get('message', '')})")
    if _holds(obj, "Complete"):
        return READY
    if _spec(obj).get("suspend"):
        metadata = obj.get("metadata") or {}
        way = f'kubectl patch job {metadata.get("name")} -n {metadata.get("namespace")} -p \'{{"spec":{{"suspend":false}}}}\' has it go on'
        return READY if suspended else State(ready=False, text=f"it is suspended; {way}")
    done, wanted = _count(obj, "succeeded"), int(_spec(obj).get("completions") or 1)
    failed = _count(obj, "failed")
    return State(ready=False, text=f"{done} of {wanted} pods have succeeded" + (f", {failed} have failed so far" if failed else ""))


def _pod(obj: Object) -> State:
    phase = _status(obj).get("phase", "Pending")
    if phase == "Succeeded" or _holds(obj, "Ready"):
        return READY
    if phase == "Failed":
        return State(ready=False, failed=True, text=f"it failed ({_status(obj).get('reason') or 'see its containers'})")
    return State(ready=False, text=f"it is {phase} and not ready")


def _claim(obj: Object) -> State:
    phase = _status(obj).get("phase", "Pending")
    if phase == "Bound":
        return READY
    if phase == "Lost":
        return State(ready=False, failed=True, text="the volume that it was bound to is gone (phase Lost)")
    return State(ready=False, text="it is not bound to a volume")


def _definition(obj: Object) -> State:
    names = _condition(obj, "NamesAccepted")
    if names.get("status") == "False":
        return State(ready=False, failed=True, text=f"its names are taken: {names.get('message', '')}")
    return READY if _holds(obj, "Established") else State(ready=False, text="it is not established")


def _namespace(obj: Object) -> State:
    phase = _status(obj).get("phase", "Active")
    return READY if phase == "Active" else State(ready=False, text=f"it is {phase}")


def _service(obj: Object) -> State:
    if _spec(obj).get("type") != "LoadBalancer" or (_status(obj).get("loadBalancer") or {}).get("ingress"):
        return READY
    return State(ready=False, text="no load balancer has given it an address")


def _operated(operator: str) -> Callable[[Object], State]:
    """As another operator says by its condition, which need not have a generation."""

    def state(obj: Object) -> State:
        ready = _condition(obj, "Ready")
        if ready.get("status") == "True":
            return READY
        if not ready:
            return State(ready=False, text=f"{operator} has not reported on it; see whether its pod runs and watches this namespace")
        return State(ready=False, text=f"{ready.get('reason', 'NotReady')}: {str(ready.get('message', '')).rstrip('.')}")

    return state


PREDICATES: dict[tuple[str, str], Callable[[Object], State]] = {
    ("", "Namespace"): _namespace,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): _pod,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "Job"): _job,
    ("cert-manager.io", "Certificate"): _operated("cert-manager"),
    ("k8s.mariadb.com", "MariaDB"): _operated("mariadb-operator"),
}
