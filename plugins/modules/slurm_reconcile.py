#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_reconcile
short_description: Bring a cluster's workers one step closer to its document
version_added: 0.1.0
description:
  - The last step of a pass over a cluster, when all objects are applied. Waits until Slurm has the nodes in service; drains nodes that the document no
    longer has, and resumes those that it has again; closes removed partitions; replaces pods of an older template that have no jobs left.
  - No job is lost by any of it. A node is free when C(scontrol) shows it out of service and not busy, and C(squeue) shows no job on it. A drain of
    somebody else is left as it is. If slurmctld cannot be queried, nothing is removed.
  - It applies nothing to Kubernetes, and deletes no other pods than those of an older template. What can be removed afterwards is left to the next pass, for
    which M(corral.slurm.slurm_cluster_model) builds a new model. RV(again) reports whether that pass would get further.
  - A pod of an older template is deleted when its node is drained and free. When the new pod is ready and slurmctld has its node registered, the node is
    resumed. Not more than C(maxUnavailable) nodes of a set are out of service for it, and a template that does not work stops the roll-out after the
    first nodes.
  - All state is in Slurm and in Kubernetes, so the next run continues a run that was killed.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld.attributes
options:
  model:
    description:
      - The model of the pass, as M(corral.slurm.slurm_cluster_model) returns it with O(corral.slurm.slurm_cluster_model#module:live=true).
    type: dict
    required: true
  drain_only:
    description:
      - Only drain what the document no longer has, before the cluster is read again and the pass decides what stays.
    type: bool
    default: false
  outdated:
    description:
      - StatefulSets that have pods of an older template, as M(corral.slurm.k8s_apply) returns them. Without it, it is not known whether there are any, and
        pods are replaced only for a roll-out that has begun.
    type: list
    elements: str
  previous:
    description:
      - What this module has returned in the pass before of the same run.
    type: dict
    default: {}
  register_timeout:
    description:
      - Seconds in which slurmctld has to have the nodes in service.
    type: int
    default: 120
  wait_timeout:
    description:
      - Seconds in which a new pod has to come up, and a removed one has to end.
    type: int
    default: 600
  scale_timeout:
    description:
      - Seconds to wait for jobs on removed nodes and in removed partitions. V(0) checks once.
    type: int
    default: 300
  scale_must_finish:
    description:
      - Fail when that time is over and jobs are left.
    type: bool
    default: false
  rollout_timeout:
    description:
      - Seconds to wait for jobs on nodes whose pods are to be replaced, while nothing moves.
    type: int
    default: 300
  rollout_must_finish:
    description:
      - Fail when that time is over and pods of an older template are left.
    type: bool
    default: false
requirements:
  - websocket-client, for commands in pods
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_cluster_model
  - module: corral.slurm.k8s_apply
  - module: corral.slurm.slurm_node
"""

EXAMPLES = r"""
- name: Reconcile the workers with the document
  corral.slurm.slurm_reconcile:
    model: "{{ corral }}"
    outdated: "{{ applied.outdated | default(omit) }}"
  register: workers

- name: Report whether another pass is due
  ansible.builtin.debug:
    msg: Run it again.
  when: workers.again
"""

RETURN = r"""
again:
  description: Whether another pass would get further at once. Never in check mode.
  returned: success
  type: bool
left:
  description: Whether a later run has to continue, when jobs have ended, a window has begun or a node is repaired.
  returned: success
  type: bool
waiting:
  description: Nodes that cannot be removed yet, or whose pods cannot be replaced yet, because of the jobs on them.
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: The node.
      type: str
      returned: always
    jobs:
      description: The jobs on it, each with C(id), C(name) and C(user). C(id) is C(12_3) for a task of an array.
      type: list
      elements: dict
      returned: always
lines:
  description: How far the roll-out of each set is that has something left.
  returned: success
  type: list
  elements: str
  sample: ["2 of 8 nodes of gpu have the new template; gpu-1: starting"]
node_sets:
  description: The node sets of a roll-out.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the set.
      type: str
      returned: always
    nodes:
      description: How many nodes it has.
      type: int
      returned: always
    replaced:
      description: How many have come into service with the new template.
      type: int
      returned: always
    stale:
      description: Hostlist of those whose pod is of an older template.
      type: str
      returned: always
    starting:
      description: Hostlist of those whose pod is gone, ending, or new and not in service yet.
      type: str
      returned: always
    waiting:
      description: Hostlist of those that are drained and have jobs.
      type: str
      returned: always
    failed:
      description: Why new pods of the set do not come up, or an empty text.
      type: str
      returned: always
counts:
  description: How many nodes are drained, in service though not drained, and neither, which is down.
  returned: when slurmctld was asked
  type: dict
  sample: {"total": 4, "in_service": 3, "drained": 1, "down": 0}
config_updated:
  description: Nodes whose lines in slurm.conf may change in the next pass, or have changed in one of this run. For O(previous).
  returned: success
  type: list
  elements: str
passes:
  description: How many passes of the run there were. After 50, RV(again) is false.
  returned: success
  type: int
  sample: 1
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 1
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options, run_module
from ansible_collections.corral.slurm.plugins.module_utils._reconcile import run as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **connection_options(),
        "model": {"type": "dict", "required": True},
        "drain_only": {"type": "bool", "default": False},
        "outdated": {"type": "list", "elements": "str"},
        "previous": {"type": "dict", "default": {}},
        "register_timeout": {"type": "int", "default": 120},
        "wait_timeout": {"type": "int", "default": 600},
        "scale_timeout": {"type": "int", "default": 300},
        "scale_must_finish": {"type": "bool", "default": False},
        "rollout_timeout": {"type": "int", "default": 300},
        "rollout_must_finish": {"type": "bool", "default": False},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
