#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node_info
short_description: List the nodes of a cluster, and wait until they are in service
version_added: 0.1.0
description:
  - Runs C(scontrol show nodes --json) in the controller's pod and returns its output.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.kubernetes.attributes
attributes:
  check_mode:
    details:
      - Changes nothing in any mode. In check mode it does not wait.
  diff_mode:
    support: N/A
    details:
      - Changes nothing.
options:
  nodes:
    description:
      - The nodes to return, as a hostlist like V(cpu-[0-3],gpu-0). All nodes when it is empty.
    type: str
    default: ""
  wait:
    description:
      - Wait until all of O(nodes) respond, that is, are idle, mixed, allocated or completing, and not down, unknown or unreachable.
      - If a node does not respond because its name had no address when slurmctld last read its configuration, and has one now,
        slurmctld reads the configuration again (C(scontrol reconfigure)). That does not count as a change.
      - A drained node that responds ends the wait too and is named in RV(drained), since somebody has drained it on purpose.
    type: bool
    default: false
  wait_nodes:
    description:
      - With O(wait=true), wait only for these, as a hostlist. All of O(nodes) when it is empty.
    type: str
    default: ""
  wait_timeout:
    description:
      - Longest wait in seconds.
    type: int
    default: 300
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_node
  - module: corral.slurm.slurm_why
  - module: corral.slurm.slurm_reconfigure
"""

EXAMPLES = r"""
- name: Wait until the nodes are in service
  corral.slurm.slurm_node_info:
    namespace: demo
    pod: demo-controller-0
    nodes: "{{ corral.node_names }}"
    wait: true
  register: slurm_nodes
"""

RETURN = r"""
nodes:
  description: The nodes, in slurmctld's order.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Slurm's name of the node.
      type: str
      returned: always
    state:
      description: The base state and its flags.
      type: list
      elements: str
      returned: always
    reason:
      description: Why it is drained or down. A node in service may keep the reason that it had.
      type: str
      returned: always
    address:
      description: Where slurmctld reaches it.
      type: str
      returned: always
    cpus:
      description: Number of its CPUs.
      type: int
      returned: always
    real_memory:
      description: Its memory in MiB.
      type: int
      returned: always
    features:
      description: Its features.
      type: list
      elements: str
      returned: always
    partitions:
      description: The partitions that it is in.
      type: list
      elements: str
      returned: always
    in_service:
      description: Whether it responds and takes jobs.
      type: bool
      returned: always
    drained:
      description: Whether somebody has drained it.
      type: bool
      returned: always
    active_features:
      description: Those of its features that are active.
      type: list
      elements: str
      returned: always
    weight:
      description: Its weight; nodes of a low weight get jobs first.
      type: int
      returned: always
    comment:
      description: The comment on it.
      type: str
      returned: always
    reason_user:
      description: Who set the reason, as slurmctld knows them.
      type: str
      returned: always
    reason_time:
      description: When the reason was set, in UTC.
      type: str
      returned: always
    reservation:
      description: The reservation that holds it now.
      type: str
      returned: always
    gres:
      description: Its generic resources, such as GPUs.
      type: str
      returned: always
    gres_used:
      description: Those of them that jobs have.
      type: str
      returned: always
    allocated_cpus:
      description: Number of its CPUs that jobs have.
      type: int
      returned: always
    version:
      description: Version of its slurmd.
      type: str
      returned: always
    boot_time:
      description: When its Kubernetes node started, in UTC.
      type: str
      returned: always
    slurmd_start_time:
      description: When its slurmd started, in UTC.
      type: str
      returned: always
missing:
  description: Hostlist of those of O(nodes) that slurmctld does not know.
  returned: success
  type: str
  sample: ""
counts:
  description:
    - How many nodes are drained, in service though not drained, and neither, which is down. Those of RV(missing) count as down.
  returned: success
  type: dict
  sample: {"total": 4, "in_service": 3, "drained": 1, "down": 0}
drained:
  description: Hostlist of the drained ones.
  returned: success
  type: str
  sample: cpu-3
drained_by:
  description: Hostlists of the drained ones by the owner that the reason names, which is empty where it is nobody of this collection.
  returned: success
  type: dict
  sample: {"admin": "cpu-3"}
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 1
"""

from ansible_collections.corral.slurm.plugins.module_utils._converge import node_info as backend
from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "nodes": {"type": "str", "default": ""},
        "wait": {"type": "bool", "default": False},
        "wait_nodes": {"type": "str", "default": ""},
        "wait_timeout": {"type": "int", "default": 300},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
