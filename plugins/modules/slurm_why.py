#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_why
short_description: Explain who took a node out of service, since when, why, and what to do next
version_added: 0.1.0
description:
  - Combines slurmctld's view of a node (state, reason, reservation, partitions) with Kubernetes' view of its pod and
    its Kubernetes node, and writes one sentence about it.
  - C(ansible-playbook corral.slurm.why -e node=gpu-3) prints it.
  - It also names Secrets that the cluster's pods run with and that are gone or have lost a key, since nothing else shows that before a pod is replaced.
  - If a right is missing (to read Kubernetes nodes, events, pods, Secrets), only that part of the result is left out.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.kubernetes.info
options:
  nodes:
    description:
      - The nodes as a hostlist. All that are not in service when it is empty. A name that slurmctld does not know is an error.
    type: str
    default: ""
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_node
  - module: corral.slurm.slurm_node_info
"""

EXAMPLES = r"""
- name: Explain why a node takes no jobs
  corral.slurm.slurm_why:
    namespace: demo
    pod: demo-controller-0
    nodes: gpu-3
  register: result

- name: Print the explanation
  ansible.builtin.debug:
    var: result.lines
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
  description: The result for each node.
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: Slurm's name of the node.
      type: str
      returned: always
    state:
      description: Its state, with flags behind a plus sign.
      type: str
      returned: always
    in_service:
      description: Whether it takes jobs.
      type: bool
      returned: always
    cause:
      description:
        - The cause, as a constant for programs.
        - V(none), V(admin), V(jail), V(start), V(owned) (another part of this collection), V(person), V(silent), V(pod), V(no-pod),
          V(kubernetes-node), V(maintenance) and more.
      type: str
      returned: always
    who:
      description: Who took it out.
      type: str
      returned: always
    since:
      description: Since when, in UTC; empty where that is not known.
      type: str
      returned: always
    reason:
      description: Its reason in Slurm.
      type: str
      returned: always
    why:
      description: An explanation of the reason.
      type: str
      returned: always
    next:
      description: What to do next.
      type: str
      returned: always
    evidence:
      description: Further observations.
      type: list
      elements: str
      returned: always
    summary:
      description: All of it as one sentence.
      type: str
      returned: always
lines:
  description: The sentence of each node.
  returned: success
  type: list
  elements: str
  sample: ["gpu-3 is DOWN+NOT_RESPONDING since 2026-01-31T08:00:00Z (2 h), by Slurm itself: slurmd has not answered slurmctld for longer than SlurmdTimeout."]
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 2
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.why import run as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "nodes": {"type": "str", "default": ""},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
