# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where Kubernetes meets Slurm: backends that ask or tell slurmctld by a command in its pod.

The layers below know one of the two worlds each; what needs both is here, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import APPLY, Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import (
    ApiError,
    ExecError,
    Forbidden,
    KubeError,
    NotFound,
    WaitTimeout,
)
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output, run_in_pod
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist, nodes

WANTED = "corral.hpc/config-hash"
SERVED = "corral.hpc/config-served"

# Not `corral`: the StatefulSet's pods are not applied by us, and these two annotations shall never be in conflict with anything that is.
_MANAGER = "corral-reconfigure"
# A kubelet that synced the pod before the new ConfigMap had reached it would look again after a minute; another change of the pod wakes it.
_WAKE_AGAIN = 5.0
_PAUSE, _MAX_PAUSE = 0.2, 1.0
_COMMAND = 30.0


def reconfigure(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Have slurmctld serve the configuration with the hash ``config_hash``; the parameters are those of the module slurm_reconfigure.

    Returns ``changed``, ``requests``. Raises CorralError.
    """
    with _connected(params) as client:
        pod = _Pod(client, params)
        hashes = {"before": {SERVED: pod.annotation(SERVED)}, "after": {SERVED: params["config_hash"]}}
        changed = pod.annotation(SERVED) != params["config_hash"]
        if changed and not check:
            _serve(pod, str(params["config_hash"]), str(params["config_dir"]), float(params["timeout"]))
        result: dict[str, Any] = {"changed": changed, "requests": client.requests}
        if diff and changed:
            result["diff"] = [{"before_header": str(pod.ref), "after_header": str(pod.ref), **hashes}]
        return result


def node_info(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Return what slurmctld says of its nodes; the parameters are those of the module slurm_node_info.

    Returns ``nodes`` (see nodes.Node.to_dict), ``missing`` (hostlist of asked-for names that slurmctld does not know), ``drained``
    (hostlist) and ``requests``. Raises CorralError, with ``wait`` also WaitTimeout that says what is missing.
    """
    del diff  # nothing is changed, so nothing differs
    names = hostlist.expand(str(params.get("nodes") or ""))
    with _connected(params) as client:
        pod = _Pod(client, params, must_exist=False)
        found = _wait_for_nodes(pod, names, float(params["wait_timeout"])) if params.get("wait") and not check else _ask(pod, names)
        known = {node.name for node in found}
        return {
            "changed": False,
            "nodes": [node.to_dict() for node in found],
            "missing": hostlist.compress(name for name in names if name not in known),
            "drained": hostlist.compress(node.name for node in found if node.drained),
            "requests": client.requests,
        }


class _Pod:
    """The controller's pod and its slurmctld container."""

    def __init__(self, client: Client, params: dict[str, Any], *, must_exist: bool = True) -> None:
        self.client = client
        self.ref = Ref(BUILTIN["", "Pod"], str(params.get("namespace") or client.access.namespace), str(params["pod"]))
        self.container = str(params["container"])
        self.live: dict[str, Any] = {}
        if must_exist:
            try:
                self.live = client.get(self.ref.path, what=f"read {self.ref}").data
            except NotFound:
                self.live = {}  # before the first run, in check mode

    def annotation(self, name: str) -> str | None:
        """Return an annotation of the pod as it was read."""
        value = ((self.live.get("metadata") or {}).get("annotations") or {}).get(name)
        return None if value is None else str(value)

    def annotate(self, annotations: dict[str, str]) -> None:
        """Set these annotations, and only these, of this manager; the UID keeps them off another pod of the same name."""
        metadata = {"name": self.ref.name, "namespace": self.ref.namespace, "uid": self.live["metadata"]["uid"], "annotations": annotations}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        query = {"fieldManager": _MANAGER, "force": "true"}
        self.client.request("PATCH", self.ref.path, what=f"annotate {self.ref}", query=query, body=body, content_type=APPLY)

    def run(self, command: list[str], timeout: float) -> Output:
        """Run a command in the slurmctld container."""
        return run_in_pod(
            self.client,
            namespace=str(self.ref.namespace),
            pod=self.ref.name,
            container=self.container,
            command=command,
            timeout=max(1.0, min(timeout, _COMMAND)),
        )


def _serve(pod: _Pod, wanted: str, folder: str, timeout: float) -> None:
    """Wake the kubelet, wait for the files, have slurmctld read them, and note that it did."""
    if not pod.live:
        raise KubeError(f"{pod.ref} does not exist, so there is no slurmctld to reconfigure; apply the controller first.")
    deadline = time.monotonic() + timeout
    pod.annotate({WANTED: wanted, **_kept(pod)})
    _await_files(pod, wanted, folder, deadline, timeout)
    last = ""
    for left in _until(deadline):
        try:
            done = pod.run(["scontrol", "reconfigure"], left)
        except ExecError as error:
            last = str(error)
            continue
        if done.code == 0:
            pod.annotate({WANTED: wanted, SERVED: wanted})
            return
        last = done.words
        if "contact slurm controller" not in last.lower():
            raise KubeError(
                f"slurmctld in {pod.ref} refuses the new configuration and goes on with the old one: {last}; correct the document and run again."
            )
    raise WaitTimeout(f"slurmctld in {pod.ref} could not be told to read its configuration within {timeout:g} s: {last}.")


def _await_files(pod: _Pod, wanted: str, folder: str, deadline: float, timeout: float) -> None:
    """Return when the pod sees the files with the wanted hash."""
    path = f"{folder.rstrip('/')}/config.hash"
    last, wakes, woken = "it has not been read yet", 1, time.monotonic()
    for left in _until(deadline):
        try:
            seen = pod.run(["cat", path], left)
        except ExecError as error:
            last = str(error)
        else:
            if seen.code == 0 and seen.stdout.strip() == wanted:
                return
            last = f"it holds {seen.stdout.strip()[:64]!r}" if seen.code == 0 else seen.words
        if time.monotonic() - woken > _WAKE_AGAIN:
            wakes, woken = wakes + 1, time.monotonic()
            pod.annotate({WANTED: f"{wanted}.{wakes}", **_kept(pod)})
    raise WaitTimeout(
        f"The new configuration ({wanted}) did not reach {path} in {pod.ref} within {timeout:g} s: {last}; "
        "does the pod mount the ConfigMap without subPath, and is its node well?"
    )


def _kept(pod: _Pod) -> dict[str, str]:
    """An apply that leaves out what it owns would remove it."""
    served = pod.annotation(SERVED)
    return {} if served is None else {SERVED: served}


def _wait_for_nodes(pod: _Pod, names: list[str], timeout: float) -> list[nodes.Node]:
    """Ask until every named node answers."""
    deadline = time.monotonic() + timeout
    missing = "slurmctld was not asked"
    for _dummy in _until(deadline):
        try:
            found = _ask(pod, names)
        except Forbidden:
            raise
        except CorralError as error:  # its pod may be starting just now
            missing = str(error)
            continue
        known = {node.name for node in found}
        absent = [name for name in names if name not in known]
        away = [node for node in found if not node.answers]
        if not absent and not away:
            return found
        parts = [f"slurmctld does not know {hostlist.compress(absent)}"] if absent else []
        parts.extend(node.words for node in away[:5])
        if len(away) > 5:
            parts.append(f"and {len(away) - 5} more ({hostlist.compress(node.name for node in away[5:])})")
        missing = "; ".join(parts)
    raise WaitTimeout(f"Not all nodes are in service after {timeout:g} s: {missing.rstrip('.')}. Run again to go on waiting.")


def _ask(pod: _Pod, names: list[str]) -> list[nodes.Node]:
    """Return the named nodes, or all when none is named."""
    try:
        answer = pod.run(["scontrol", "show", "nodes", "--json"], _COMMAND)
    except (ApiError, ExecError) as error:
        if isinstance(error, Forbidden):
            raise
        raise KubeError(f"slurmctld in {pod.ref} can not be asked for its nodes: {error}") from error
    if answer.code != 0:
        raise KubeError(f"slurmctld in {pod.ref} can not be asked for its nodes: {answer.words.rstrip('.')}; see its log.")
    wanted = set(names)
    return [node for node in nodes.parse(answer.stdout) if not wanted or node.name in wanted]


def _until(deadline: float) -> Iterator[float]:
    """Yield the seconds left, with a growing pause between, at least once and until ``deadline``."""
    pause = _PAUSE
    while True:
        left = deadline - time.monotonic()
        yield max(left, 0.0)
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, _MAX_PAUSE)


@contextmanager
def _connected(params: dict[str, Any]) -> Iterator[Client]:
    """Give a client, and put the number of its requests on an error that passes."""
    client = Client(auth.resolve(params))
    try:
        yield client
    except CorralError as error:
        error.data.setdefault("requests", client.requests)
        raise
    finally:
        client.close()
