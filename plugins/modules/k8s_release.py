#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: k8s_release
short_description: Remove a finalizer from objects whose owner is gone
version_added: 0.1.0
description:
  - An object with a finalizer cannot be deleted until its owner has taken the finalizer off. When the owner itself is removed, this module does so in its
    place. Nothing else of the objects is changed, other finalizers stay, and it deletes no object itself.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.kubernetes.attributes
attributes:
  check_mode:
    details:
      - The requests are sent as a dry run.
  diff_mode:
    details:
      - Shows the finalizers of each object before and after.
options:
  api_version:
    description:
      - The objects' C(apiVersion). Where the API server does not have it there is nothing to do.
    type: str
    required: true
  kind:
    description:
      - The objects' C(kind).
    type: str
    required: true
  finalizer:
    description:
      - The finalizer.
    type: str
    required: true
  namespaces:
    description:
      - Namespaces of the objects. Empty - all.
    type: list
    elements: str
    default: []
  selector:
    description:
      - Label selector of the objects. Empty - all.
    type: str
    default: ""
  annotation:
    description:
      - The annotation that names the owner of an object. Empty - the owner does not matter.
    type: str
    default: ""
  owner:
    description:
      - With O(annotation), only objects whose annotation has this value are released, and the annotation is removed with the finalizer.
      - Empty - only objects without the annotation.
    type: str
    default: ""
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.k8s_apply
"""

EXAMPLES = r"""
- name: Remove the finalizers of an operator that is gone
  corral.slurm.k8s_release:
    api_version: corral.hpc/v1alpha1
    kind: SlurmCluster
    finalizer: corral.hpc/destroy
    annotation: corral.hpc/operator
    owner: corral-operator/corral-operator
"""

RETURN = r"""
objects:
  description: One row for each object that carried the finalizer, or the owner's name.
  returned: always
  type: list
  elements: dict
  sample:
    - {kind: SlurmCluster, namespace: slurm, name: lab, result: released}
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 3
writes:
  description: Number of objects that were written. V(0) in check mode.
  returned: always
  type: int
  sample: 1
"""

from ansible_collections.corral.slurm.plugins.module_utils._kube.release import release as backend
from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options, run_module


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **connection_options(),
        "api_version": {"type": "str", "required": True},
        "kind": {"type": "str", "required": True},
        "finalizer": {"type": "str", "required": True},
        "namespaces": {"type": "list", "elements": "str", "default": []},
        "selector": {"type": "str", "default": ""},
        "annotation": {"type": "str", "default": ""},
        "owner": {"type": "str", "default": ""},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
