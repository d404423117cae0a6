# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running pods take in a ConfigMap that has changed: at once, and known to have done so.

A kubelet reads what a pod mounts when it syncs the pod, about once a minute, or when the pod changes; an annotation is such a change. What
a pod has taken in is said by a file in it, which its own program writes.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import APPLY, METADATA_LIST, Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import (
    Conflict,
    ExecError,
    Invalid,
    KubeError,
    NotFound,
    WaitTimeout,
)
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import run_in_pod
from ansible_collections.corral.slurm.plugins.module_utils._kube.progress import ProgressLog

Object = dict[str, Any]

# Not `corral`: the pods are not applied by us, and this annotation should never be in conflict with anything that is.
_MANAGER = "corral-refresh"
# A kubelet that synced the pod before the new ConfigMap had reached it is woken again after this many seconds.
_WAKE_AGAIN = 5.0
_PAUSE = 0.5
_COMMAND = 10.0
# Pods that are woken and asked at once: a new websocket each time, and the API server serves others too.
_AT_ONCE = 8
_NAMED = 5


def refresh(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Have the pods take in the ConfigMap; the parameters are those of the module k8s_refresh.

    Returns ``changed``, ``pods`` (names of those that were woken) and ``requests``. Raises KubeError.
    """
    client = Client(auth.resolve(params), connections=_AT_ONCE)
    try:
        return Refresh(client, params).run(check=check, diff=diff)
    except KubeError as error:
        error.data.setdefault("requests", client.requests)
        raise
    finally:
        client.close()


def changed_at(config_map: Object, key: str, wanted: str) -> str | None:
    """Return when the ConfigMap got the content with the hash ``wanted`` at the latest; None when it has another."""
    text = (config_map.get("data") or {}).get(key)
    if text is None or hashlib.sha256(text.encode()).hexdigest()[:16] != wanted:
        return None
    metadata = config_map["metadata"]
    times = [entry["time"] for entry in metadata.get("managedFields") or () if entry.get("time")]
    return str(max([metadata["creationTimestamp"], *times]))


def is_stale(pod: Object, annotation: str, wanted: str, changed: str | None) -> bool:
    """True for a pod that was there before the change and is not known to have it. Times count whole seconds; a pod of the same one mounts later."""
    metadata = pod["metadata"]
    if metadata.get("deletionTimestamp") or (metadata.get("annotations") or {}).get(annotation) == wanted:
        return False
    return changed is None or str(metadata["creationTimestamp"]) < changed


def can_be_asked(pod: Object, container: str) -> bool:
    """True for a pod that is ready and has the container: others see the new content when they start or come back."""
    spec = pod["spec"]
    named = any(one["name"] == container for kind in ("containers", "initContainers") for one in spec.get(kind) or ())
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return named and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


class Refresh:
    """One call of k8s_refresh, or, with the ``command`` that prints the hash, a wait for a Secret (rotate.py)."""

    def __init__(self, client: Client, params: dict[str, Any]) -> None:
        self._client = client
        self._params = params
        self._namespace = str(params.get("namespace") or client.access.namespace)
        self._wanted = str(params["hash"])
        self._annotation = f"corral.hpc/refreshed-{params['config_map']}"
        self._command = list(params.get("command") or ["cat", str(params["path"])])
        self._timeout = float(params["timeout"])

    def run(self, *, check: bool, diff: bool) -> dict[str, Any]:
        """Find the pods that may lack the content, and see to it."""
        pods = self._stale()
        if pods and not check:
            with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
                self.have_taken_in(pods, pool)
        result: dict[str, Any] = {
            "changed": bool(pods),
            "pods": [str(pod["metadata"]["name"]) for pod in pods],
            "requests": self._client.requests,
        }
        if diff:
            result["diff"] = [self._difference(pod) for pod in pods]
        return result

    def _difference(self, pod: Object) -> dict[str, Any]:
        """Return what changes on a pod, as Ansible shows it."""
        header = f"Pod {self._namespace}/{pod['metadata']['name']}"
        before = (pod["metadata"].get("annotations") or {}).get(self._annotation)
        return {
            "before_header": header,
            "after_header": header,
            "before": {self._annotation: before},
            "after": {self._annotation: self._wanted},
        }

    def _stale(self) -> list[Object]:
        """Return the pods to be woken. What they are is asked for only when there is one: the metadata of thousands is a small answer."""
        config_map = Ref(BUILTIN["", "ConfigMap"], self._namespace, str(self._params["config_map"]))
        try:
            changed = changed_at(self._client.get(config_map.path, what=f"read {config_map}").data, str(self._params["key"]), self._wanted)
        except NotFound:
            return []  # before the first run, in check mode
        path = BUILTIN["", "Pod"].path(self._namespace)
        query, what = {"labelSelector": str(self._params["selector"])}, f"list the pods of {self._namespace}"
        heads = self._client.items(path, what=what, query=query, accept=METADATA_LIST)
        names = {pod["metadata"]["name"] for pod in heads if is_stale(pod, self._annotation, self._wanted, changed)}
        if not names:
            return []
        pods = self._client.items(path, what=what, query=query)
        return [pod for pod in pods if pod["metadata"]["name"] in names and can_be_asked(pod, str(self._params["container"]))]

    def have_taken_in(self, pods: list[Object], pool: ThreadPoolExecutor) -> None:
        """Wake all kubelets and ask all pods, round by round, so that some that hang hold up no others."""
        deadline = time.monotonic() + self._timeout
        left, wakes, woken, progress = pods, 0, 0.0, ProgressLog()
        while left:
            if not wakes or time.monotonic() - woken > _WAKE_AGAIN:
                wakes, woken = wakes + 1, time.monotonic()
                left = [pod for pod, there in self._each(pool, left, f"{self._wanted}.{wakes}") if there]
            found = list(zip(left, pool.map(self._ask, left), strict=True))
            list(self._each(pool, [pod for pod, message in found if message is None], self._wanted))
            left = [pod for pod, message in found if message]
            if not left:
                return
            reasons = [f"{pod['metadata']['name']} {message}" for pod, message in found if message]
            more = f"; and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
            which = "; ".join(reasons[:_NAMED]) + more
            count, what = f"{len(left)} of {len(pods)} pods", f"the new {self._params['config_map']}"
            if time.monotonic() + _PAUSE > deadline:
                raise WaitTimeout(
                    f"{count} did not take in {what} within {self._timeout:g} s: {which}. They go on trying; run again to go on waiting."
                )
            progress.log(f"{count} have not taken in {what}: {which}")
            time.sleep(_PAUSE)

    def _each(self, pool: ThreadPoolExecutor, pods: list[Object], value: str) -> Iterator[tuple[Object, bool]]:
        """Annotate pods; tell for each whether it is still there."""
        return zip(pods, pool.map(lambda pod: self._annotate(pod, value), pods), strict=True)

    def _ask(self, pod: Object) -> str | None:
        """Return None when the pod has the content, ``""`` when it is gone, and else why not, as the part of a sentence."""
        try:
            seen = run_in_pod(
                self._client,
                namespace=self._namespace,
                pod=str(pod["metadata"]["name"]),
                container=str(self._params["container"]),
                command=self._command,
                timeout=_COMMAND,
            )
        except NotFound:
            return ""
        except ExecError as error:
            return f"cannot be asked ({str(error).rstrip('.')})"
        found = seen.stdout.strip() if seen.code == 0 else seen.summary
        if found == self._wanted:
            return None
        return f"says: {found[:300]}" if " " in found else f"still has {found[:64]}"

    def _annotate(self, pod: Object, value: str) -> bool:
        """Set the annotation; False where the pod is gone. The UID keeps it off another pod of its name, which was made with the new content."""
        ref = Ref(BUILTIN["", "Pod"], self._namespace, str(pod["metadata"]["name"]))
        metadata = {
            "name": ref.name,
            "namespace": self._namespace,
            "uid": pod["metadata"]["uid"],
            "annotations": {self._annotation: value},
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        query = {"fieldManager": _MANAGER, "force": "true"}
        try:
            self._client.request(
                "PATCH", ref.path, what=f"annotate {ref}", query=query, body=body, content_type=APPLY, retry_conflict=False
            )
        except (Conflict, Invalid, NotFound):
            # An apply to a pod that is gone would make one, which the API server takes for a race or for a pod without containers.
            return False
        return True
