# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backends of slurm_reconfigure and slurm_node_info: the controller's configuration as Kubernetes has it, and as slurmctld serves it.

The other backends that ask or tell slurmctld by a command in its pod are in _slurmctld.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import APPLY, Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import (
    ExecError,
    Forbidden,
    KubeError,
    NotFound,
    WaitTimeout,
)
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output, run_in_pod
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import describe
from ansible_collections.corral.slurm.plugins.module_utils._kube.progress import ProgressLog
from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf, hostlist, nodes, reasons
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import Slurmctld, connected, silent, until

WANTED = "corral.hpc/config-hash"
SERVED = "corral.hpc/config-served"

# In the slurmctld container: images/slurm/controller.py.
STANDBY = ["/usr/local/lib/corral/controller.py", "reread"]
ACTIVE = ["/usr/local/lib/corral/controller.py", "reconfigure"]

# Not `corral`: the StatefulSet's pods are not applied by us, and these two annotations should never be in conflict with anything that is.
_MANAGER = "corral-reconfigure"
# A kubelet that synced the pod before the new ConfigMap had reached it would look again after a minute; another change of the pod wakes it.
_WAKE_AGAIN = 5.0
# Seconds that nodes may be away before slurmctld is to look their names up again, then between two such looks, and how many there are in one wait.
_LOST_FOR, _RETRY_AFTER, _RETRIES = 3.0, 10.0, 3
_RETRY = 'getent hosts "$1" >/dev/null && exec scontrol reconfigure'
_COMMAND = 30.0
# The setting and the files of plugins.
_MPI = 'grep -i "^MpiDefault=" "$1/slurm.conf"; ls "$2" 2>/dev/null | grep "[.]so$"'
_PLUGINS = "/opt/corral/lib/slurm"


def reconfigure(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Have slurmctld serve the configuration with the hash ``config_hash``; the parameters are those of the module slurm_reconfigure.

    Returns ``changed``, ``requests``. Raises CorralError.
    """
    with connected(params) as client:
        wanted = str(params["config_hash"])
        pods = _reachable([_Pod(client, {**params, "pod": name}) for name in (params["pod"], params.get("backup")) if name])
        stale = [pod for pod in pods if pod.annotation(SERVED) != wanted]
        if stale and not check:
            _serve(pods, wanted, str(params["config_dir"]), float(params["timeout"]), backed=bool(params.get("backup")))
        result: dict[str, Any] = {"changed": bool(stale), "requests": client.requests}
        if diff and stale:
            result["diff"] = [
                {
                    "before_header": str(pod.ref),
                    "after_header": str(pod.ref),
                    "before": {SERVED: pod.annotation(SERVED)},
                    "after": {SERVED: wanted},
                }
                for pod in stale
            ]
        return result


def node_info(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Return what slurmctld says of its nodes; the parameters are those of the module slurm_node_info.

    Returns ``nodes`` (see nodes.Node.to_dict), ``missing`` (hostlist of asked-for names that slurmctld does not know), ``counts`` (``total``,
    ``in_service``, ``drained`` and ``down``), ``drained`` (hostlist), ``drained_by`` (hostlists by the owner of the drain, "" for one that is not of
    this collection) and ``requests``.
    Raises CorralError, with ``wait`` also WaitTimeout that says what is missing.
    """
    del diff  # nothing is changed, so nothing differs
    names = hostlist.expand(str(params.get("nodes") or ""))
    with connected(params) as client:
        slurmctld = Slurmctld(client, params)
        if params.get("wait") and not check:
            awaited = hostlist.expand(str(params.get("wait_nodes") or "")) or names
            all_nodes, full = _wait_for_nodes(slurmctld, awaited, float(params["wait_timeout"]))
        else:
            all_nodes, full = slurmctld.read_nodes(), ""
        found = nodes.named(all_nodes, names)
        known = {node.name for node in found}
        missing = [name for name in names if name not in known]
        result: dict[str, Any] = {
            "changed": False,
            "nodes": [node.to_dict() for node in found],
            "missing": hostlist.compress(missing),
            "counts": nodes.counts(all_nodes, names),
            "drained": hostlist.compress(node.name for node in found if node.drained),
            "drained_by": _drained_by(found),
            "requests": client.requests,
        }
        if full:
            result["warnings"] = [full]
        return result


def _drained_by(found: list[nodes.Node]) -> dict[str, str]:
    owners: dict[str, list[str]] = {}
    for node in found:
        if node.drained:
            owners.setdefault(reasons.owner(node.reason), []).append(node.name)
    return {owner: hostlist.compress(names) for owner, names in owners.items()}


class _Pod:
    """The controller's pod and its slurmctld container."""

    def __init__(self, client: Client, params: dict[str, Any]) -> None:
        self.client = client
        self.ref = Ref(BUILTIN["", "Pod"], str(params.get("namespace") or client.access.namespace), str(params["pod"]))
        self.container = str(params["container"])
        try:
            self.live: dict[str, Any] = client.get(self.ref.path, what=f"read {self.ref}").data
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


def _reachable(pods: list[_Pod]) -> list[_Pod]:
    """Of two controllers those that are ready: one that is not begins with the configuration of its ConfigMap, and the next run sees to it."""
    return [pod for pod in pods if pod.live and not describe(pod.live)] or pods[:1]


def _serve(pods: list[_Pod], wanted: str, folder: str, timeout: float, *, backed: bool) -> None:
    """Wake the kubelets, wait for the files, have slurmctld read them, and note that it did.

    The files are there in all pods before, since any may have the active slurmctld. A standby is not told by Slurm: it restarts.
    """
    for pod in pods:
        if not pod.live:
            raise KubeError(f"{pod.ref} does not exist, so there is no slurmctld to reconfigure; apply the controller first.")
    deadline = time.monotonic() + timeout
    for pod in pods:
        pod.annotate({WANTED: wanted, **_kept(pod)})
    for pod in pods:
        _await_files(pod, wanted, folder, deadline, timeout)
    _refuse_mpi(pods[0], folder, deadline)
    _reread(pods[0], deadline, timeout)
    for pod in pods:
        if backed:
            _begin_anew(pod, deadline)
        pod.annotate({WANTED: wanted, SERVED: wanted})


def _begin_anew(pod: _Pod, deadline: float) -> None:
    """Have a standby restart with its configuration; an active slurmctld goes on."""
    done = pod.run(STANDBY, deadline - time.monotonic())
    if done.code != 0:
        raise KubeError(
            f"The standby in {pod.ref} did not accept the command to read its configuration: {done.summary.rstrip('.')}; is its image of this release?"
        )


def _reread(pod: _Pod, deadline: float, timeout: float) -> None:
    """Have slurmctld read its files."""
    last, progress = "", ProgressLog()
    for left in until(deadline):
        try:
            done = pod.run(ACTIVE, left)
        except ExecError as error:
            last = str(error)
        else:
            if done.code == 0:
                return
            last = done.summary
            if not silent(last):
                raise KubeError(
                    f"slurmctld in {pod.ref} refuses the new configuration and goes on with the old one: {last}; correct the document and run again."
                )
        progress.log(f"waiting until slurmctld in {pod.ref} reads its new configuration: {last.rstrip('.')}")
    raise WaitTimeout(
        f"slurmctld in {pod.ref} does not answer: within {timeout:g} s it did not accept the command to read its new "
        f"configuration ({last.rstrip('.')}), and it has "
        f"not refused it. See what it does: kubectl logs -n {pod.ref.namespace} {pod.ref.name} -c {pod.container}; the next run tries again."
    )


def _await_files(pod: _Pod, wanted: str, folder: str, deadline: float, timeout: float) -> None:
    """Return when the pod sees the files with the wanted hash."""
    path = f"{folder.rstrip('/')}/config.hash"
    last, wakes, woken, progress = "it has not been read yet", 1, time.monotonic(), ProgressLog()
    for left in until(deadline):
        try:
            seen = pod.run(["cat", path], left)
        except ExecError as error:
            last = str(error)
        else:
            if seen.code == 0 and seen.stdout.strip() == wanted:
                return
            last = f"it holds {seen.stdout.strip()[:64]!r}" if seen.code == 0 else seen.summary
        progress.log(f"waiting until {pod.ref} has the new configuration: {path}: {last.rstrip('.')}")
        if time.monotonic() - woken > _WAKE_AGAIN:
            wakes, woken = wakes + 1, time.monotonic()
            pod.annotate({WANTED: f"{wanted}.{wakes}", **_kept(pod)})
    raise WaitTimeout(
        f"The new configuration ({wanted}) did not reach {path} in {pod.ref} within {timeout:g} s: {last}; "
        "does the pod mount the ConfigMap without subPath, and is its node well?"
    )


def _refuse_mpi(pod: _Pod, folder: str, deadline: float) -> None:
    """Raise KubeError for an MpiDefault that the image lacks: slurmctld does not look for it, and every srun fails.

    Which plugins there are depends on how Slurm was built (Debian's 26.05 has no PMIx), so only a pod of the image can tell.
    """
    done = pod.run(["sh", "-c", _MPI, "mpi", folder, _PLUGINS], deadline - time.monotonic())
    there = {line for line in done.stdout.splitlines() if line.endswith(".so")}
    lacks = [setting for setting, file in conf.plugins(done.stdout).items() if file not in there]
    if lacks and there:
        names = ", ".join(sorted({"none", *(file.removeprefix("mpi_").removesuffix(".so") for file in there if file.startswith("mpi_"))}))
        raise KubeError(
            f"{lacks[0]} is a plugin that the image of {pod.ref} does not have, so every srun would fail; it has {names}: "
            "write one of them into spec.slurm.extraConfig, as MpiDefault=none, or take an image whose Slurm was built with it, and run again."
        )


def _kept(pod: _Pod) -> dict[str, str]:
    """An apply that leaves out what it owns would remove it."""
    served = pod.annotation(SERVED)
    return {} if served is None else {SERVED: served}


def _wait_for_nodes(slurmctld: Slurmctld, names: list[str], timeout: float) -> tuple[list[nodes.Node], str]:
    """Ask until every named node responds. Returns all nodes, and a sentence where the state volume is full or nearly so."""
    deadline = time.monotonic() + timeout
    missing, refused = "slurmctld was not asked", ""
    lost, progress = _Lost(slurmctld), ProgressLog()
    message = "waiting until Slurm has its nodes in service"
    for _dummy in until(deadline):
        try:
            all_nodes, full = slurmctld.read_nodes_and_room()
        except Forbidden:
            raise
        except CorralError as error:  # its pod may be starting just now
            missing = str(error)
            progress.log(f"{message}: {missing.rstrip('.')}")
            continue
        found = nodes.named(all_nodes, names)
        known = {node.name for node in found}
        absent = [name for name in names if name not in known]
        away = [node for node in found if not node.answers]
        if not absent and not away:
            return all_nodes, full
        lost.retry(away)
        parts = [f"slurmctld does not know {hostlist.compress(absent)}"] if absent else []
        parts.extend(node.summary for node in away[:5])
        if len(away) > 5:
            parts.append(f"and {len(away) - 5} more ({hostlist.compress(node.name for node in away[5:])})")
        missing = "; ".join(parts)
        progress.log(f"{message}: {missing.rstrip('.')}")
        refused = hostlist.compress(node.name for node in away if node.refused)
    if refused:
        todo = f"Slurm refuses {refused}: compare the node set in the document with the hardware of its Kubernetes nodes, and run again."
    else:
        todo = "Run again to go on waiting."
    raise WaitTimeout(f"Not all nodes are in service after {timeout:g} s: {missing.rstrip('.')}. {todo}")


class _Lost:
    """Nodes whose names led nowhere when slurmctld last read its configuration, as while the workers' Service was away.

    slurmctld looks names up only then, and tries the address that it has for minutes (24.11.5). A reading more puts it right within seconds, and jobs do
    not notice it. A worker that has announced itself since has an address for a name, and is away for another reason.
    """

    def __init__(self, slurmctld: Slurmctld) -> None:
        self._slurmctld = slurmctld
        self._next = time.monotonic() + _LOST_FOR
        self._left = _RETRIES

    def retry(self, away: list[nodes.Node]) -> None:
        """Have slurmctld read its configuration once more where the name of a node that does not respond leads to an address by now."""
        named = [node.address for node in away if node.named_only]
        if not named or not self._left or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _RETRY_AFTER
        # An error of it is no error of the wait, which says what is missing.
        with contextlib.suppress(KubeError):
            if self._slurmctld.run(["sh", "-c", _RETRY, "sh", named[0]]).code == 0:
                self._left -= 1
