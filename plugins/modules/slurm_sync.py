#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_sync
short_description: Drain the Slurm nodes on cordoned Kubernetes nodes, and show the states of Slurm nodes on their pods
version_added: 0.1.0
description:
  - Drains the Slurm nodes whose pods are on a Kubernetes node that is cordoned, or has one of O(taints) or of O(kubernetes_node_conditions). The reason
    has the owner V(sync), and names the Kubernetes node, the cause, and the text of the node's annotation C(corral.hpc/reason) or of its condition.
    Resumes them when the cause is gone and their pod is ready, on this Kubernetes node or another. Drains of others are never touched.
  - A worker's pod gets the label C(corral.hpc/evictable=true) when no job is on its node and none can come, see O(eviction). A PodDisruptionBudget of
    the cluster refuses the eviction of all other worker pods, new ones among them.
  - A worker's pod gets the conditions C(corral.hpc/SlurmNodeReady) and C(corral.hpc/SlurmNodeDrained), whose reason and message show the node's state.
    They are written when they change.
  - Without the right to list Kubernetes nodes it does not observe cordons and taints, and warns about that. Drains of this module then stay as they are.
  - If slurmctld cannot be asked, nothing is changed.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.slurmctld.attributes
options:
  taints:
    description:
      - Keys of taints that announce the removal of a Kubernetes node, with the effect C(NoSchedule) or C(NoExecute).
        V(node.kubernetes.io/unschedulable) stands for a cordon.
    type: list
    elements: str
    default:
      - node.kubernetes.io/unschedulable
      - ToBeDeletedByClusterAutoscaler
      - karpenter.sh/disrupted
      - node.kubernetes.io/out-of-service
  kubernetes_node_conditions:
    description:
      - Types of conditions of a Kubernetes node that are bad when they are C(True), such as V(KernelDeadlock) of the node problem detector.
    type: list
    elements: str
    default: []
  eviction:
    description:
      - Which pods get the label. V(WhenDrained) labels those on a Kubernetes node that is to be emptied, if their Slurm node is drained and has no job.
      - V(WhenIdle) labels those whose node has no job. A job that starts between two polls is lost if the pod is evicted in that time.
      - V(Always) is for a cluster without the PodDisruptionBudget, and labels none.
    type: str
    choices: [WhenDrained, WhenIdle, Always]
    default: WhenDrained
  nodes:
    description:
      - Slurm's hostlist expression of the nodes that RV(counts) is of, such as V(cpu-[0-3]). Those that slurmctld does not show count as down.
        All that it shows where this is empty.
    type: str
    default: ""
  conditions:
    description:
      - Whether the conditions are written. That takes the right to patch C(pods/status); without it there is a warning.
    type: bool
    default: true
  duration:
    description:
      - How long to poll, in seconds. V(0) polls once.
    type: int
    default: 0
  interval:
    description:
      - Seconds between two polls.
    type: int
    default: 10
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_node
  - module: corral.slurm.slurm_why
"""

EXAMPLES = r"""
- name: Drain the Slurm nodes on cordoned Kubernetes nodes and resume the others
  corral.slurm.slurm_sync:
    namespace: demo
    pod: demo-controller-0

- name: Repeat that for ten minutes, under a scheduler that starts this every ten minutes
  corral.slurm.slurm_sync:
    namespace: demo
    pod: demo-controller-0
    duration: 590
"""

RETURN = r"""
draining:
  description: The Slurm nodes on Kubernetes nodes that are to be emptied.
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: Slurm's name of the node.
      type: str
      returned: always
    kubernetes_node:
      description: Name of the Kubernetes node.
      type: str
      returned: always
    cause:
      description: Why the Kubernetes node is to be emptied.
      type: str
      returned: always
      sample: Kubernetes node n7 is cordoned
    state:
      description: The Slurm node's state, with flags behind a plus sign.
      type: str
      returned: always
    free:
      description: Whether it is drained and has no job left.
      type: bool
      returned: always
counts:
  description: How many nodes there are, and how many are in service, drained and down.
  returned: when there are pods of workers
  type: dict
  sample: {total: 4, in_service: 3, drained: 1, down: 0}
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 5
"""

from ansible_collections.corral.slurm.plugins.module_utils._kube.nodes import TAINTS
from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.sync import run as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "taints": {"type": "list", "elements": "str", "default": list(TAINTS)},
        "kubernetes_node_conditions": {"type": "list", "elements": "str", "default": []},
        "eviction": {"type": "str", "choices": ["WhenDrained", "WhenIdle", "Always"], "default": "WhenDrained"},
        "nodes": {"type": "str", "default": ""},
        "conditions": {"type": "bool", "default": True},
        "duration": {"type": "int", "default": 0},
        "interval": {"type": "int", "default": 10},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
