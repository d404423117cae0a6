#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_scale
short_description: Drain nodes that the document no longer has, and say which of them may go
version_added: 0.1.0
description:
  - Compares the live StatefulSets of a cluster's node sets with the sizes that the document wants, and the live partitions with those of the document.
    Where nothing is to go, that is two requests and slurmctld is not asked at all.
  - Nodes beyond the wanted size, the highest numbers, are drained with a reason of the owner V(scale). A drain of somebody else is left as it is,
    and its reason too.
  - A node may go when slurmctld shows it out of service and not busy, and shows no job on it. A job that completes is still a job.
    With O(wait=true) it is waited for the others.
  - Nodes that were drained to go, and that the document keeps after all, are resumed.
  - A partition that the document no longer has, while nodes of it stay, is kept as long as a job is in it, since slurmctld ends the jobs of a partition that
    its configuration no longer has. It takes no new jobs then. See O(partitions).
  - Nothing is written to Kubernetes here. RV(objects) is for M(corral.slurm.k8s_apply), RV(held) for M(corral.slurm.slurm_cluster_model).
    Pods have to go before the configuration does, since slurmctld ends the jobs of a node that it no longer knows.
  - If slurmctld can not be asked, or its answers can not be, then nothing may go. Without O(wait) that is a warning, and all stay as they are.
    With O(wait) it is an error.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.slurmctld.attributes
options:
  selector:
    description:
      - Label selector of the StatefulSets of the cluster's node sets. They have the label C(corral.hpc/node-set).
    type: str
    required: true
  config_map:
    description:
      - Name of the ConfigMap that holds the live C(slurm.conf).
    type: str
    required: true
  node_sets:
    description:
      - The node sets of the document. Of a live one that is not among them, all nodes shall go.
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
          - How many nodes with a pod it shall have.
        type: int
        required: true
      policy:
        description:
          - What becomes of jobs on nodes that go, see O(policy).
        type: str
        choices: [Wait, Requeue, Cancel]
        default: Wait
      deadline:
        description:
          - Seconds from the drain, see O(deadline).
        type: int
        default: 3600
      jobs: &jobs
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
  partitions:
    description:
      - The partitions of the document. Of live ones that are not among them it is seen whether jobs run or wait there. Without this option, none is looked at.
    type: list
    elements: str
  slurm_conf:
    description:
      - The C(slurm.conf) that the document makes. Where it is another than the live one, Slurm's own parser reads it first and slurmctld loads its new
        plugins, in the controller's pod, and the module fails with their words before anything is done when they refuse it. Without such a pod it is
        not read.
    type: str
  files:
    description:
      - All files of Slurm's configuration that the document makes, by their names. Where one is another than the live one they are read with O(slurm_conf), as
        far as something but the daemon on its node reads them, which is so of C(cgroup.conf).
    type: dict
  image:
    description:
      - The image that slurmctld shall have. Where its pod has another one, O(slurm_conf) is not read, since another release of Slurm knows other words.
    type: str
  maintenance:
    description:
      - Whether nodes go for a while and not for good, for the reason that they are drained with. Their lines stay by the document.
    type: bool
    default: false
  policy:
    description:
      - What becomes of jobs on nodes of a set that is not in O(node_sets).
      - V(Wait) lets them end. V(Requeue) puts them back into the queue after O(deadline), and waits for those that can not be requeued.
        V(Cancel) cancels them after O(deadline).
      - Jobs on a node that somebody else has drained are always waited for.
    type: str
    choices: [Wait, Requeue, Cancel]
    default: Wait
  deadline:
    description:
      - Seconds from the drain to V(Requeue) or V(Cancel), by slurmctld's clock.
    type: int
    default: 3600
  jobs: *jobs
  wait:
    description:
      - Wait until all nodes that shall go may go, and show what is waited for.
    type: bool
    default: false
  wait_timeout:
    description:
      - Longest wait in seconds. After it, those that may go are returned, and a warning names the jobs on the others.
    type: int
    default: 300
  must_finish:
    description:
      - Fail when the time is over and nodes have jobs left.
    type: bool
    default: false
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_node
  - module: corral.slurm.slurm_cluster_model
"""

EXAMPLES = r"""
- name: Take nodes out of service that the document no longer has
  corral.slurm.slurm_scale:
    namespace: "{{ corral.namespace }}"
    pod: "{{ corral.controller.pod }}"
    selector: "{{ corral.scaling.selector }}"
    config_map: "{{ corral.scaling.config_map }}"
    node_sets: "{{ corral.scaling.node_sets }}"
    partitions: "{{ corral.scaling.partitions }}"
    slurm_conf: "{{ corral.config.files['slurm.conf'] }}"
    files: "{{ corral.config.files }}"
    image: "{{ corral.images.slurm }}"
  register: scale

- name: Have pods end on which no job is left
  corral.slurm.k8s_apply:
    objects: "{{ scale.objects }}"
"""

RETURN = r"""
shrinks:
  description: Whether a live node set is larger than the document says, or the document lacks a live partition.
  returned: success
  type: bool
goes:
  description: Whether some of it can go now.
  returned: success
  type: bool
waiting:
  description: Nodes that shall go and can not yet.
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
objects:
  description: StatefulSets with as many replicas as they must keep, as they were applied else. Only those that can be smaller than they are.
  returned: success
  type: list
  elements: dict
retired:
  description: The same of sets that are not in O(node_sets) and must keep nodes, to be applied among the other objects, else they are pruned.
  returned: success
  type: list
  elements: dict
held:
  description: What must stay of the live configuration, for the option O(corral.slurm.slurm_cluster_model#module:held). Empty when nothing must.
  returned: success
  type: dict
kept_lines:
  description:
    - Nodes that keep the CPUs, the memory and the GPUs that slurm.conf has of them, of those that the document would change. Their pods are not the new
      ones yet, or their nodes are not drained and free. slurmctld ends the jobs of a node on which these change.
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
from ansible_collections.corral.slurm.plugins.module_utils._scheduler.scale import run


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "selector": {"type": "str", "required": True},
        "config_map": {"type": "str", "required": True},
        "node_sets": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "name": {"type": "str", "required": True},
                "replicas": {"type": "int", "required": True},
                **draining_options(),
            },
        },
        "partitions": {"type": "list", "elements": "str"},
        "slurm_conf": {"type": "str"},
        "files": {"type": "dict"},
        "image": {"type": "str"},
        "maintenance": {"type": "bool", "default": False},
        **draining_options(),
        "wait": {"type": "bool", "default": False},
        "wait_timeout": {"type": "int", "default": 300},
        "must_finish": {"type": "bool", "default": False},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(run, argument_spec)


if __name__ == "__main__":
    main()
