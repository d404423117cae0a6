#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_revision
short_description: Keep the documents by which a cluster was made, and give it one of them again
version_added: 0.1.0
description:
  - The last ten documents whose run succeeded are retained in the ConfigMap C(CLUSTER-base-revisions), numbered in their order.
    Of large ones that have little in common, there are fewer.
  - They are packed together, which needs Python's module C(lzma). Pythons of distributions have it.
  - A document that is the same as the newest one is not recorded again. One that was recorded earlier gets a new number.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.kubernetes.namespace
  - corral.slurm.kubernetes.attributes
attributes:
  check_mode:
    details:
      - Writes nothing.
  diff_mode:
    details:
      - Shows the number of the newest document before and after.
options:
  cluster:
    description:
      - Name of the cluster.
    type: str
    required: true
  state:
    description:
      - V(tried) records that a run of O(document) has begun.
      - V(recorded) keeps O(document) as the newest one, since its run has come to its end.
      - V(restored) returns one that was kept, for M(corral.slurm.slurm_cluster_model). Where there is a C(SlurmCluster) of this name, its C(spec) is replaced
        by that of the document, and the operator does the rest.
    type: str
    choices: [tried, recorded, restored]
    default: recorded
  document:
    description:
      - The document as JSON text, as C(corral.document) has it. Needed with O(state=tried) and O(state=recorded).
    type: str
  labels:
    description:
      - Labels of the ConfigMap.
    type: dict
    default: {}
  revision:
    description:
      - Number of the document that is to be restored. Without it, the newest where a run of another has not come to its end, else the one before it.
    type: int
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_revision_info
  - module: corral.slurm.slurm_cluster_model
"""

EXAMPLES = r"""
- name: Record the document as applied
  corral.slurm.slurm_revision:
    namespace: "{{ corral.namespace }}"
    cluster: "{{ corral.name }}"
    document: "{{ corral.document }}"
    labels: "{{ corral.components.base.labels }}"

- name: Restore the revision before
  corral.slurm.slurm_revision:
    namespace: demo
    cluster: demo
    state: restored
  register: restored
"""

RETURN = r"""
revision:
  description: Number of the document.
  returned: with O(state=restored)
  type: int
  sample: 4
document:
  description: The document, with all defaults.
  returned: with O(state=restored)
  type: dict
operator:
  description: Whether there is a C(SlurmCluster) of this name, so that an operator makes the cluster.
  returned: with O(state=restored)
  type: bool
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 1
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options, run_module
from ansible_collections.corral.slurm.plugins.module_utils._revisions import revision as backend

CONSTRAINTS: dict[str, object] = {"required_if": [["state", "tried", ["document"]], ["state", "recorded", ["document"]]]}


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **connection_options(),
        "namespace": {"type": "str"},
        "cluster": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["tried", "recorded", "restored"], "default": "recorded"},
        "document": {"type": "str"},
        "labels": {"type": "dict", "default": {}},
        "revision": {"type": "int"},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec, CONSTRAINTS)


if __name__ == "__main__":
    main()
