# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of slurm_upgrade_check: the version of an image, as a Job that ran it has left it, beside those that run."""

from __future__ import annotations

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ExecError, Forbidden, KubeError
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import run_in_pod
from ansible_collections.corral.slurm.plugins.module_utils._slurm import releases
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import COMMAND, Slurmctld, connected


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Compare versions; the parameters are those of the module slurm_upgrade_check. Raises CorralError where one cannot follow on the other.

    Returns ``changed``, ``running``, ``wanted``, ``slurmdbd`` (its version), ``database`` (whether its database gets another slurmdbd), ``nodes`` (number
    of nodes by the version of their slurmd), ``msg``, ``requests``.
    """
    del check, diff  # nothing is changed in any mode
    with connected(params) as client:
        slurmctld = Slurmctld(client, params)
        query = {"labelSelector": f"batch.kubernetes.io/job-name={params['job']}"}
        path = BUILTIN["", "Pod"].path(slurmctld.namespace)
        pods = client.items(path, what=f"list the pods of Job {slurmctld.namespace}/{params['job']}", query=query)
        said = [text for text in map(_message, pods) if text]
        if not said:
            raise KubeError(f"Job {slurmctld.namespace}/{params['job']} has not printed the version of its image; run again.")
        wanted = releases.version(said[-1], "The new image")
        lacks = releases.without_auth(wanted, str(params.get("auth") or ""))
        if lacks:
            raise CorralError(f"{lacks} Nothing was changed.")
        nodes: dict[str, int] = {}
        slurmdbd = ""
        try:
            slurmdbd = _slurmdbd(slurmctld)
            running = releases.version(slurmctld.ask(["scontrol", "--version"], "its version"), "slurmctld's pod")
            for node in slurmctld.read_nodes():
                if node.version:
                    nodes[node.version] = nodes.get(node.version, 0) + 1
        except KubeError as error:
            if isinstance(error, Forbidden) or not params.get("may_be_silent"):
                raise
            problem = releases.refusal(wanted, wanted, (), slurmdbd)
            if problem:
                raise CorralError(f"{problem} Nothing was changed.") from error
            message = f"Slurm {wanted} was compared with nothing, since {error}"
            return _result(client, message, running="", wanted=wanted, slurmdbd=slurmdbd, nodes={})
        problem = releases.refusal(running, wanted, nodes, slurmdbd)
        if problem:
            raise CorralError(f"{problem} Nothing was changed.")
        message = f"Slurm {wanted} runs already" if wanted == running else f"Slurm {wanted} follows on {running}"
        return _result(client, f"{message}.", running=running, wanted=wanted, slurmdbd=slurmdbd, nodes=nodes)


def _result(client: Client, message: str, *, running: str, wanted: str, slurmdbd: str, nodes: dict[str, int]) -> dict[str, Any]:
    return {
        "changed": False,
        "running": running,
        "wanted": wanted,
        "slurmdbd": slurmdbd,
        "database": bool(slurmdbd) and slurmdbd != wanted,
        "nodes": nodes,
        "msg": message,
        "requests": client.requests,
    }


def _slurmdbd(slurmctld: Slurmctld) -> str:
    """Return the version of the cluster's slurmdbd; "" without one. Raises KubeError where it cannot be asked."""
    failed: KubeError | None = None
    # The primary first; its backup has the same release, or already the next.
    for name in sorted(str(pod["metadata"]["name"]) for pod in slurmctld.cluster_pods("accounting")):
        what = f"slurmdbd in pod {slurmctld.namespace}/{name}"
        try:
            done = run_in_pod(
                slurmctld.client, namespace=slurmctld.namespace, pod=name, container="slurmdbd", command=["slurmdbd", "-V"], timeout=COMMAND
            )
        except ExecError as error:
            failed = failed or KubeError(f"{what} cannot be asked for its version, and it has the database: {error}")
            continue
        return releases.version(done.stdout, what)
    if failed:
        raise failed
    return ""


def _message(pod: dict[str, Any]) -> str:
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (status.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode") == 0:
            return str(ended.get("message") or "")
    return ""
