#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_rollout
short_description: Replace workers' pods of an older template when no job is on them
version_added: 0.1.0
description:
  - Compares each worker's pod with its StatefulSet's newest revision. A node whose pod is of an older one is drained with a reason of the owner
    V(rollout); when slurmctld shows it out of service and not busy, and shows no job on it, its pod is deleted. When the new pod is ready
    and slurmctld has its node registered, the node is resumed.
  - A drain of somebody else is left as it is. The pod of such a node is replaced when no job is on it, and the drain stays.
  - Nodes whose pods are not ready are replaced first, and nodes without jobs before those whose jobs end soonest. Nodes at one switch or block
    are replaced together.
  - A node is only taken out of service while not more than O(node_sets[].max_unavailable) of its set are out of it, for whatever reason. So a
    template that does not work stops the roll-out after the first nodes, and the task fails with what their pods say.
  - Nodes that were drained for a roll-out, and whose pods are of the newest template after all, are resumed.
  - All that is known is in Slurm and in Kubernetes, so a run that was killed is gone on with by the next.
  - In check mode, pods count as old too whose template this very run would change, see O(outdated).
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.slurmctld.attributes
options:
  selector:
    description:
      - Label selector of the StatefulSets of the cluster's node sets and of their pods. They have the label C(corral.hpc/node-set).
    type: str
    required: true
  node_sets:
    description:
      - The node sets of the document. Others are left alone.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - Name of the set. Its nodes are C(<name>-0), C(<name>-1) and so on.
        type: str
        required: true
      replicas:
        description:
          - How many nodes it has.
        type: int
        required: true
      type:
        description:
          - V(RollingUpdate) replaces pods now. V(Maintenance) replaces those whose nodes a Slurm reservation with the flag C(MAINT) holds now.
            V(OnDelete) replaces none.
        type: str
        choices: [RollingUpdate, Maintenance, OnDelete]
        default: RollingUpdate
      max_unavailable:
        description:
          - How many nodes of the set may be out of service at once. With V(Maintenance), how many pods are replaced at once.
        type: int
        default: 1
      policy:
        description:
          - What becomes of jobs on drained nodes. V(Wait) lets them end. V(Requeue) puts them back into the queue after O(node_sets[].deadline), and
            waits for those that can not be. V(Cancel) cancels them after it.
          - Jobs on a node that somebody else has drained are always waited for.
        type: str
        choices: [Wait, Requeue, Cancel]
        default: Wait
      deadline:
        description:
          - Seconds from the drain to V(Requeue) or V(Cancel), by slurmctld's clock.
        type: int
        default: 3600
      jobs:
        description:
          - Jobs with a policy of their own, by their partition or QoS. The first entry that fits a job counts.
        type: list
        elements: dict
        default: []
        suboptions:
          partitions:
            description:
              - Partitions of these jobs.
            type: list
            elements: str
            default: []
          qos:
            description:
              - QoS of these jobs. With partitions too, a job must be of both.
            type: list
            elements: str
            default: []
          policy:
            description:
              - What becomes of them.
            type: str
            choices: [Wait, Requeue, Cancel]
            required: true
          deadline:
            description:
              - Seconds from the drain.
            type: int
            default: 3600
      place:
        description:
          - The switch or block that the nodes are at. One place is replaced after the other, unless only jobs are waited for there.
        type: str
        default: ''
  outdated:
    description:
      - Names of StatefulSets whose template would change, as RV(corral.slurm.k8s_apply#module:outdated) has them. Used in check mode only.
    type: list
    elements: str
    default: []
  kept_lines:
    description:
      - Nodes whose line in slurm.conf is that of their former pod, as RV(corral.slurm.slurm_scale#module:kept_lines) has them. With a new pod they stay
        drained and are told as RV(relines), so that their line can be changed before they are taken back.
    type: list
    elements: str
    default: []
  wait_timeout:
    description:
      - How long to wait, in seconds, while nothing moves. Pods that start are waited for besides, see O(start_timeout). V(0) looks once where no
        pod starts. After it, a warning names the jobs that are waited for.
    type: int
    default: 300
  start_timeout:
    description:
      - How long a new pod may take until slurmctld has its node in service, in seconds. After it the roll-out of its set has failed.
    type: int
    default: 600
  must_finish:
    description:
      - Fail when the time is over and pods are left.
    type: bool
    default: false
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_scale
  - module: corral.slurm.slurm_why
"""

EXAMPLES = r"""
- name: Replace pods of an older template
  corral.slurm.slurm_rollout:
    namespace: demo
    pod: demo-controller-0
    selector: app.kubernetes.io/instance=demo,app.kubernetes.io/component=worker
    node_sets:
      - {name: gpu, replicas: 8, max_unavailable: 2}
"""

RETURN = r"""
node_sets:
  description: How far each set is.
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
      description: How many of them have the new template.
      type: int
      returned: always
    stale:
      description: Hostlist of those whose pods are of an older template.
      type: str
      returned: always
    starting:
      description: Hostlist of those whose pod is gone, ending, or new and not in service yet.
      type: str
      returned: always
    waiting:
      description: Hostlist of those that are drained and have jobs left.
      type: str
      returned: always
    failed:
      description: Why new pods do not come up. Empty where they do.
      type: str
      returned: always
waiting:
  description: Nodes that are drained and have jobs left.
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
relines:
  description: Nodes that are drained and free, whose pod is the new one, and whose line in slurm.conf is still that of the former one.
  returned: success
  type: list
  elements: str
left:
  description: Nodes whose pods a later run replaces, with no change of the document; of a set with C(OnDelete) none.
  returned: success
  type: str
  sample: gpu-[0-1]
lines:
  description: One sentence for each set that has something left.
  returned: success
  type: list
  elements: str
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 1
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._scheduler.args import draining_options
from ansible_collections.corral.slurm.plugins.module_utils._scheduler.rollout import run


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "selector": {"type": "str", "required": True},
        "node_sets": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "name": {"type": "str", "required": True},
                "replicas": {"type": "int", "required": True},
                "type": {"type": "str", "choices": ["RollingUpdate", "Maintenance", "OnDelete"], "default": "RollingUpdate"},
                "max_unavailable": {"type": "int", "default": 1},
                **draining_options(),
                "place": {"type": "str", "default": ""},
            },
        },
        "outdated": {"type": "list", "elements": "str", "default": []},
        "kept_lines": {"type": "list", "elements": "str", "default": []},
        "wait_timeout": {"type": "int", "default": 300},
        "start_timeout": {"type": "int", "default": 600},
        "must_finish": {"type": "bool", "default": False},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(run, argument_spec)


if __name__ == "__main__":
    main()
