# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes retain their line of slurm.conf, since their pods are of other hardware than the document's, or jobs are on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Forbidden
from ansible_collections.corral.slurm.plugins.module_utils._slurm import draining, hardware, node_plan
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import workers
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.orders import nodes_and_tasks
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import Slurmctld


def nodes_to_retain(client: Client, slurmctld: Slurmctld, params: Mapping[str, Any], live: str, wanted: str) -> set[str]:
    """Return the nodes of the live slurm.conf that must not have their line of ``wanted`` yet.

    There is no request where no line differs in its hardware. A line changes when the pod is one that was made for it, or there is none, and the node is
    drained, or refused by slurmctld, and free by two commands; where slurmctld does not respond it stays. Raises CorralError.
    """
    changed = hardware.differing(live, wanted)
    if not changed:
        return set()
    found_pods = workers.pods(client, str(params.get("namespace") or client.access.namespace), str(params["selector"]))
    made_for = {name: str((pod["metadata"].get("annotations") or {}).get(hardware.ANNOTATION, "")) for name, pod in found_pods.items()}
    stale = {name for name, text in changed.items() if made_for.get(name, text) != text}
    ready = [name for name in changed if name not in stale]
    try:
        found, tasks = nodes_and_tasks(slurmctld, ready, "the jobs on nodes whose lines change") if ready else ([], [])
    except Forbidden:
        raise
    except CorralError:
        return set(changed)
    on = draining.by_node(tasks)
    busy = {
        node.name
        for node in found
        if node.busy or on.get(node.name) or not (node_plan.lasting(node) or node.never_taken or (node.out and node.name not in made_for))
    }
    return stale | (busy & set(ready))
