#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node_set
short_description: How many nodes people and autoscalers ask for of each node set
version_added: 0.1.0
description:
  - A node set whose document has C(scale) gets its size from an object C(SlurmNodeSet), which C(kubectl scale) and autoscalers can set.
    This reads these sizes, and makes objects that are missing, with the size that the document begins with.
  - It never changes an object. What else is in these objects is applied with the workers.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.kubernetes.namespace
  - corral.slurm.kubernetes.attributes
attributes:
  check_mode:
    support: full
    details:
      - Objects that are missing are not made.
  diff_mode:
    support: full
    details:
      - Shows the objects that are made, with their size.
options:
  node_sets:
    description:
      - Node sets with C(scale), as the model of M(corral.slurm.slurm_cluster_model) has them in C(scaling.scaled).
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: The node set.
        type: str
        required: true
      object:
        description: Name of its SlurmNodeSet.
        type: str
        required: true
      replicas:
        description: Number of nodes that it begins with.
        type: int
        required: true
      labels:
        description: Labels of the object.
        type: dict
        default: {}
      selector:
        description: Label selector of its pods. It is applied with the workers, and not here.
        type: str
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_cluster_model
  - module: corral.slurm.slurm_scale
"""

EXAMPLES = r"""
- name: See how many nodes are asked for
  corral.slurm.slurm_node_set:
    namespace: "{{ corral.namespace }}"
    node_sets: "{{ corral.scaling.scaled }}"
  register: asked

- name: Take these sizes for the document's
  corral.slurm.slurm_cluster_model:
    path: my.yml
    sizes: "{{ asked.sizes }}"
"""

RETURN = r"""
sizes:
  description:
    - Number of nodes by node set, as it is asked for; the document's bounds are not applied.
    - V(null) where the API server does not know SlurmNodeSets.
  returned: success
  type: dict
  sample: {"cpu": 3}
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 1
"""

from ansible_collections.corral.slurm.plugins.module_utils._kube.sizes import run
from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options, run_module


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **connection_options(),
        "namespace": {"type": "str"},
        "node_sets": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "name": {"type": "str", "required": True},
                "object": {"type": "str", "required": True},
                "replicas": {"type": "int", "required": True},
                "labels": {"type": "dict", "default": {}},
                "selector": {"type": "str"},
            },
        },
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(run, argument_spec)


if __name__ == "__main__":
    main()
