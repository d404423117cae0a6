#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_drift
short_description: Report where a cluster differs from its document
version_added: 0.1.0
description:
  - Compares settings, nodes and partitions of slurm.conf with those of the running slurmctld, and the accounts, the image and the version of the jail with
    those in the volume.
  - Adds what tasks in check mode would change, so that one list has all of it. C(ansible-playbook corral.slurm.drift) runs these tasks and prints the list.
  - Writes nothing, to Kubernetes, to Slurm or to the jail.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.kubernetes.info
options:
  model:
    description:
      - The model of the cluster, as M(corral.slurm.slurm_cluster_model) returns it with O(corral.slurm.slurm_cluster_model#module:live=true).
    type: dict
    required: true
  results:
    description:
      - Results of tasks that ran in check mode and with C(diff), as M(corral.slurm.k8s_apply) and M(corral.slurm.slurm_tenants) return them.
    type: list
    elements: dict
    default: []
  format:
    description:
      - The form of RV(text).
    type: str
    choices: [table, json]
    default: table
  container:
    description:
      - The container that runs slurmctld.
    type: str
    default: slurmctld
requirements:
  - websocket-client, for commands in pods
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.k8s_apply
  - module: corral.slurm.slurm_cluster_model
"""

EXAMPLES = r"""
- name: Read the document and the live cluster
  corral.slurm.slurm_cluster_model:
    path: my.yml
    live: true
  register: corral

- name: Compare slurmctld and the jail with the document
  corral.slurm.slurm_drift:
    model: "{{ corral }}"
  register: result

- name: Print what differs
  ansible.builtin.debug:
    var: result.findings
"""

RETURN = r"""
findings:
  description: The differences.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description:
        - A kind of Kubernetes (V(StatefulSet)), or V(config), V(node), V(partition), V(tenant), V(user) or V(jail), or V(run) for a task that failed.
      type: str
      returned: always
    where:
      description: The object and its field, the setting, the node, the file.
      type: str
      returned: always
    document:
      description: The value that follows from the document.
      type: str
      returned: always
    live:
      description: The value that was found.
      type: str
      returned: always
  sample: [{"kind": "partition", "where": "main MaxTime", "document": "7-00:00:00", "live": "01:00:00"}]
not_compared:
  description: What was not compared, and why.
  returned: success
  type: list
  elements: str
text:
  description: All of it, in the wanted form.
  returned: success
  type: str
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 5
"""

from ansible_collections.corral.slurm.plugins.module_utils._drift import run as backend
from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options, run_module


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **connection_options(),
        "model": {"type": "dict", "required": True},
        "results": {"type": "list", "elements": "dict", "default": []},
        "format": {"type": "str", "choices": ["table", "json"], "default": "table"},
        "container": {"type": "str", "default": "slurmctld"},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
