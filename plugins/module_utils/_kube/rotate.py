# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of k8s_rotate: a Secret gets new keys, and the pods that mount it use them.

The Secret itself records what was begun: one write gives it the new keys and an annotation, which goes when all pods use them. A run that finds the
annotation makes no other keys, and goes on. What a pod uses it reports itself, or its age does.

Pods whose daemon can take other keys are informed in two steps, because keys that differ between pods let nobody in: first all volumes get the keys, which
takes a kubelet seconds and changes nothing, then all daemons use them at once.

A daemon that knows several keys has no such moment. With ``overlap`` the Secret goes through three stages, each of which all pods have before the next one
begins: the next key is known, it takes the place of the former one, and this one goes when nothing is valid any more that was made with it. The keys
that the Secret has are the stage, so each of them may last.
"""

from __future__ import annotations

import base64
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth, lost_keys, secret
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.delete import delete
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import (
    Conflict,
    ExecError,
    KubeError,
    NotFound,
    Status,
    WaitTimeout,
)
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import run_in_pod
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import describe
from ansible_collections.corral.slurm.plugins.module_utils._kube.progress import ProgressLog
from ansible_collections.corral.slurm.plugins.module_utils._kube.refresh import Refresh

Object = dict[str, Any]

# Each is a connection of its own; what counts is the time between the first pod with the new keys and the last.
_AT_ONCE = 32
_COMMAND = 30.0
_PAUSE = 0.5
_NAMED = 5


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Rotate one Secret; the parameters are those of the module k8s_rotate.

    Returns ``changed``, ``begun`` (False where an earlier run had begun it), ``pods`` (names of those that were informed or replaced) and ``requests``.
    Raises KubeError.
    """
    client = Client(auth.resolve(params), connections=_AT_ONCE)
    rotation = _Rotation(client, params)
    try:
        rotation.run(check=check)
    except KubeError as error:
        error.data = {**rotation.result(diff=diff), **error.data}
        raise
    finally:
        client.close()
    return rotation.result(diff=diff)


def digest(live: Object) -> str:
    """Return 16 digits for what a Secret holds, as ``keys.sh`` in the pods makes them of its files."""
    data = live.get("data") or {}
    return hashlib.sha256(b"".join(base64.b64decode(data[key] or "") for key in sorted(data))).hexdigest()[:16]


def changed_at(live: Object) -> str:
    """Return when the Secret got its content, by the API server's clock."""
    metadata = live["metadata"]
    entries = metadata.get("managedFields") or ()
    times = [entry["time"] for entry in entries if entry.get("time") and "f:data" in (entry.get("fieldsV1") or {})]
    return str(max([metadata["creationTimestamp"], *times]))


def container_id(pod: Object, container: str) -> str:
    """Return what identifies a container that runs; "" for one that does not: it reads the keys when it starts."""
    status = pod.get("status") or {}
    for one in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        if one["name"] == container and "running" in (one.get("state") or {}):
            return f"{pod['metadata']['uid']} {one.get('containerID', '')}"
    return ""


class _Rotation:
    """One call of k8s_rotate."""

    def __init__(self, client: Client, params: dict[str, Any]) -> None:
        self._client = client
        self._params = params
        self._secret = secret.parse(dict(params["secret"]), str(client.access.namespace))
        self._namespace = str(self._secret.ref.namespace)
        self._containers = [str(name) for name in params.get("containers") or ()]
        self._overlap = params.get("overlap")
        self._command = [str(word) for word in params.get("command") or ()]
        self._deadline = time.monotonic() + float(params["timeout"])
        self._begun = self._changed = False
        self._done: list[str] = []

    def result(self, *, diff: bool) -> dict[str, Any]:
        """Return the task's result as far as things have gone."""
        result: dict[str, Any] = {
            "changed": self._changed,
            "begun": self._begun,
            "pods": self._done,
            "requests": self._client.requests,
        }
        if diff and self._changed:
            header = str(self._secret.ref)
            after = {"data": secret.describe(self._secret) if self._begun else {}, "pods": self._done}
            result["diff"] = [{"before_header": header, "after_header": header, "before": {}, "after": after}]
        return result

    def run(self, *, check: bool) -> None:
        """Do it. In check mode nothing is written, and ``pods`` are those that would be informed or replaced."""
        live = secret.read_own(self._client, self._secret)
        if not secret.is_rotating(live):
            if self._command:
                self._refuse_unreachable()
            live = secret.overwrite(self._client, self._secret, check=check, beside=self._overlap is not None)
            self._begun = True
        self._changed = True
        if check:
            informed = self._listeners() if self._command else []
            restarted = [pod for selector in self._restarts for pod in self._older(selector, None if self._begun else changed_at(live))]
            self._done = [_name(pod) for pod in (*informed, *restarted)]
            return
        if self._command:
            self._inform(digest(live))
            while stage := secret.stage(live, self._secret):
                if stage == secret.FORMER:
                    self._outlive(float(self._overlap or 0))
                live = secret.advance(self._client, self._secret, live)
                self._inform(digest(live))
        for selector in self._restarts:
            self._replace(selector, changed_at(live))
        secret.finish_rotation(self._client, self._secret)

    @property
    def _restarts(self) -> list[str]:
        return [str(selector) for selector in self._params.get("restart") or ()]

    def _pods(self, selector: str) -> list[Object]:
        path = BUILTIN["", "Pod"].path(self._namespace)
        what = f"list the pods that use {self._secret.ref}"
        pods = self._client.items(path, what=what, query={"labelSelector": selector})
        return [pod for pod in pods if lost_keys.mounts(pod, self._secret.ref.name)]

    def _listeners(self) -> list[Object]:
        """Return the pods with a daemon that uses the keys now. A kubelet brings none to a pod that ends."""
        return [pod for pod in self._running() if not pod["metadata"].get("deletionTimestamp")]

    def _running(self) -> list[Object]:
        return [pod for pod in self._pods(str(self._params["selector"])) if container_id(pod, self._containers[0])]

    def _outlive(self, seconds: float) -> None:
        """Return when what was made with the former keys is no longer valid. That is no part of the time in which pods must respond."""
        self._deadline += seconds
        until, progress = time.monotonic() + seconds, ProgressLog()
        while (left := until - time.monotonic()) > 0:
            progress.log(f"all pods use the new keys; the former ones are removed in {left:.0f} s")
            time.sleep(min(left, _PAUSE))

    def _refuse_unreachable(self) -> None:
        """Raise Conflict, before anything is changed, where a pod could not be given the new keys: it would be left alone with its own."""
        pods = self._running()
        ending = [_name(pod) for pod in pods if pod["metadata"].get("deletionTimestamp")]
        if ending:
            raise _refused(
                f"{self._secret.ref} is not rotated, because pods that are ending would keep the former keys ({_some(ending)}); "
                "run again when they are gone"
            )
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            found = [text for text in pool.map(lambda pod: self._ask(pod, self._containers[0], ["mounted"]), pods) if text]
        if found:
            raise _refused(
                f"{self._secret.ref} is not rotated, because {len(found)} of {len(pods)} pods cannot be given new keys: {_some(found)}; "
                "bring them back or delete them, give pods of an older image the current one, and run again"
            )

    def _ask(self, pod: Object, container: str, words: list[str]) -> str:
        """Run the command in a pod; return "" where that succeeds or the pod is gone, else why not, with its name."""
        try:
            done = run_in_pod(
                self._client,
                namespace=self._namespace,
                pod=_name(pod),
                container=container,
                command=[*self._command, *words],
                timeout=_COMMAND,
            )
        except NotFound:
            return ""
        except ExecError as error:
            return f"{_name(pod)} ({str(error).rstrip('.')})"
        return "" if done.code == 0 else f"{_name(pod)} ({done.summary.rstrip('.')})"

    def _inform(self, wanted: str) -> None:
        """Have all daemons use the keys; and those, too, whose container has started meanwhile, maybe with the former ones."""
        known: set[str] = set()
        while True:
            pods = [pod for pod in self._listeners() if not self._ids(pod) <= known]
            if not pods:
                return
            self._have_mounted(pods, wanted)
            for container in self._containers:
                self._have_used([pod for pod in pods if container_id(pod, container)], container, wanted)
            known |= {one for pod in pods for one in self._ids(pod)}
            self._done += [_name(pod) for pod in pods if _name(pod) not in self._done]

    def _ids(self, pod: Object) -> set[str]:
        return {container_id(pod, container) for container in self._containers} - {""}

    def _have_mounted(self, pods: list[Object], wanted: str) -> None:
        params = {
            "namespace": self._namespace,
            "config_map": self._secret.ref.name,
            "hash": wanted,
            "container": self._containers[0],
            "command": [*self._command, "mounted"],
            "timeout": max(1.0, self._deadline - time.monotonic()),
        }
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            Refresh(self._client, params).have_taken_in(pods, pool)

    def _have_used(self, pods: list[Object], container: str, wanted: str) -> None:
        """Return when the daemons of this container of all pods use the keys; all are asked at once."""
        progress = ProgressLog()
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            left = pods
            while True:
                found = list(zip(left, pool.map(lambda pod: self._ask(pod, container, ["use", wanted]), left), strict=True))
                left = [pod for pod, text in found if text]
                if not left:
                    return
                text = f"{len(left)} of {len(pods)} pods do not use the new keys: {_some([one for _pod, one in found if one])}"
                self._pause(text, progress)

    def _pause(self, text: str, progress: ProgressLog) -> None:
        if time.monotonic() + _PAUSE > self._deadline:
            raise WaitTimeout(
                f"{text} after {float(self._params['timeout']):g} s. The rotation of {self._secret.ref} has begun and goes on "
                "with the same keys when this is run again."
            )
        progress.log(text)
        time.sleep(_PAUSE)

    def _older(self, selector: str, changed: str | None) -> list[Object]:
        """Return the pods from before the change, the last one first. Times count whole seconds. None: the change is yet to come."""
        pods = [pod for pod in self._pods(selector) if changed is None or str(pod["metadata"]["creationTimestamp"]) <= changed]
        return sorted(pods, key=lambda pod: (len(_name(pod)), _name(pod)), reverse=True)

    def _replace(self, selector: str, changed: str) -> None:
        """Replace pods one after the other: they read the keys when they start. Their StatefulSet makes each again."""
        for pod in self._older(selector, changed):
            ref, uid = Ref(BUILTIN["", "Pod"], self._namespace, _name(pod)), str(pod["metadata"]["uid"])
            delete(self._client, ref, uid=uid, propagation="Background")
            self._done.append(_name(pod))
            progress = ProgressLog()
            while text := self._not_back(ref, uid):
                self._pause(text, progress)

    def _not_back(self, ref: Ref, uid: str) -> str:
        """Return why the pod in the place of another is not ready; "" for one that is."""
        try:
            live = self._client.get(ref.path, what=f"read {ref}").data
        except NotFound:
            return f"{ref} has not been made again"
        return f"{ref} is still ending" if live["metadata"].get("uid") == uid else describe(live)


def _refused(text: str) -> Conflict:
    return Conflict(f"{text}. Nothing was changed.", Status(409, "Conflict", text))


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _some(texts: list[str]) -> str:
    return "; ".join(texts[:_NAMED]) + (f"; and {len(texts) - _NAMED} more" if len(texts) > _NAMED else "")
