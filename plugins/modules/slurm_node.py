#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node
short_description: Drain and resume nodes, and set their features, weight and comment
version_added: 0.1.0
description:
  - Reads all nodes once with C(scontrol show nodes --json) in the controller's pod, compares, and changes what differs,
    with one C(scontrol update) for all nodes that need the same change.
  - "A node out of service belongs to whoever its reason names. This module writes C(corral: <owner>: <reason>) and touches only nodes whose
    reason begins with its own owner. A drain of somebody else (a person, a health check, Slurm itself, another part of this collection) is
    neither overwritten nor resumed without O(force=true). It is returned in RV(foreign), with a warning."
  - Two exceptions, which lose nothing. A node that is only down, and by a reason of Slurm's own such as C(Not responding) or because its pod
    ended, can be drained.
  - A drain that ends by itself is taken over by whoever drains the node. That is one of the jail's health check, of the start of the node's pod or of
    its end, and Slurm's own of a node whose registration it refuses. It gets the new reason, and so lasts until O(owner) resumes the node. If its
    cause is still there then, the drain is made again.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.slurmctld.attributes
options:
  nodes:
    description:
      - The nodes as a hostlist like V(cpu-[0-3],gpu-0). A name that slurmctld does not know is an error, and nothing is changed.
    type: str
    required: true
  state:
    description:
      - V(drained) takes no new jobs; those that run continue. O(wait) waits for their end.
      - V(down) ends the jobs on the node at once, and drains it. Requeued are those that may be. slurmctld no longer calls a node down that responds
        (ReturnToService=2), which the drain outlasts. So a node has its state when it is drained for this reason, and is down or has no job.
      - V(resumed) takes back what O(owner) has drained or set down.
      - The state stays as it is when this is not set.
    type: str
    choices: [drained, down, resumed]
  reason:
    description:
      - Why, for those who find the nodes drained. Needed for V(drained) and V(down).
      - Another text of the same owner takes the place of the one before.
    type: str
  owner:
    description:
      - Whose drain it is, in small letters, digits and hyphens.
      - V(jail) is the jail's health check.
    type: str
    default: admin
  force:
    description:
      - Overwrite and resume drains of others too.
    type: bool
    default: false
  features:
    description:
      - The features that the nodes have, available and active.
      - slurmctld forgets them when it next reads its configuration; to keep them, write them into the document.
    type: list
    elements: str
  features_prefix:
    description:
      - Only features that begin with this are the task's, and all of O(features) must. Others stay as they are.
      - Without it, the nodes have no others.
    type: str
  weight:
    description:
      - The weight; nodes of a low weight get jobs first. Forgotten as O(features) are.
    type: int
  comment:
    description:
      - A comment on the nodes. It outlives a reconfiguration.
    type: str
  wait:
    description:
      - With O(state=drained) and O(state=down), wait until no job is left on the nodes. With O(state=resumed), wait until they are in service.
    type: bool
    default: false
  wait_timeout:
    description:
      - Longest wait in seconds. The error at its end names the jobs and the nodes that are waited for; the drain stays.
    type: int
    default: 3600
  policy:
    description:
      - What happens to jobs on nodes that O(owner) has drained, while O(wait) waits for their end.
      - V(Wait) lets them end. V(Requeue) requeues them after O(deadline), and waits for those that cannot be requeued.
        V(Cancel) cancels them after O(deadline).
    type: str
    choices: [Wait, Requeue, Cancel]
    default: Wait
  deadline:
    description:
      - Seconds from the drain to V(Requeue) or V(Cancel), by slurmctld's clock.
    type: int
    default: 3600
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_node_info
  - module: corral.slurm.slurm_why
  - module: corral.slurm.slurm_reservation
"""

EXAMPLES = r"""
- name: Drain a node for a repair and wait until its jobs have ended
  corral.slurm.slurm_node:
    namespace: demo
    pod: demo-controller-0
    nodes: gpu-3
    state: drained
    reason: fan 2 is loud
    wait: true

- name: Resume what administrators have drained among these nodes
  corral.slurm.slurm_node:
    namespace: demo
    pod: demo-controller-0
    nodes: gpu-[0-7]
    state: resumed

- name: Resume a node that Slurm itself has drained
  corral.slurm.slurm_node:
    namespace: demo
    pod: demo-controller-0
    nodes: gpu-3
    state: resumed
    force: true

- name: Mark nodes for a trial
  corral.slurm.slurm_node:
    namespace: demo
    pod: demo-controller-0
    nodes: cpu-[0-1]
    features: [plain, trial]
    comment: new kernel since Monday
"""

RETURN = r"""
cluster:
  description: The cluster that was queried.
  returned: success
  type: str
  sample: demo
namespace:
  description: Its namespace.
  returned: success
  type: str
  sample: demo
nodes:
  description: The nodes as they are now, with the fields of RV(corral.slurm.slurm_node_info#module:nodes).
  returned: success
  type: list
  elements: dict
foreign:
  description: Nodes that were left as they are because somebody else keeps them out of service.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The node.
      type: str
      returned: always
    state:
      description: Its state.
      type: str
      returned: always
    reason:
      description: Its reason.
      type: str
      returned: always
    by:
      description: Who set the reason, as slurmctld knows them.
      type: str
      returned: always
    since:
      description: When the reason was set, in UTC.
      type: str
      returned: always
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 2
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.node import run as backend

CONSTRAINTS = {"required_if": [("state", "drained", ["reason"]), ("state", "down", ["reason"])]}


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "nodes": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["drained", "down", "resumed"]},
        "reason": {"type": "str"},
        "owner": {"type": "str", "default": "admin"},
        "force": {"type": "bool", "default": False},
        "features": {"type": "list", "elements": "str"},
        "features_prefix": {"type": "str"},
        "weight": {"type": "int"},
        "comment": {"type": "str"},
        "wait": {"type": "bool", "default": False},
        "wait_timeout": {"type": "int", "default": 3600},
        "policy": {"type": "str", "choices": ["Wait", "Requeue", "Cancel"], "default": "Wait"},
        "deadline": {"type": "int", "default": 3600},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec, CONSTRAINTS)


if __name__ == "__main__":
    main()
