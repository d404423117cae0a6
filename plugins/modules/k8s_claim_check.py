#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: k8s_claim_check
short_description: Refuse a claim that pods cannot mount in the way they need it
version_added: 0.1.0
description:
  - Fails with one sentence for a PersistentVolumeClaim whose volume lacks an access mode, before pods that need it wait in vain.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.kubernetes.namespace
  - corral.slurm.kubernetes.info
options:
  name:
    description:
      - Name of the claim.
    type: str
    required: true
  access_mode:
    description:
      - The access mode that is needed.
    type: str
    choices: [ReadWriteOnce, ReadWriteMany]
    default: ReadWriteMany
  must_exist:
    description:
      - Whether a claim that does not exist is refused too. One that is about to be made is fine without.
    type: bool
    default: true
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.k8s_apply
"""

EXAMPLES = r"""
- name: Check that both controllers can mount the state volume
  corral.slurm.k8s_claim_check:
    namespace: demo
    name: slurm-state
"""

RETURN = r"""
exists:
  description: Whether there is such a claim.
  returned: success
  type: bool
access_modes:
  description: What its volume offers; before there is one, what the claim asks for.
  returned: success
  type: list
  elements: str
  sample: [ReadWriteMany]
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 1
"""

from ansible_collections.corral.slurm.plugins.module_utils._kube.claim import check_claim as backend
from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options, run_module


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **connection_options(),
        "namespace": {"type": "str"},
        "name": {"type": "str", "required": True},
        "access_mode": {"type": "str", "choices": ["ReadWriteOnce", "ReadWriteMany"], "default": "ReadWriteMany"},
        "must_exist": {"type": "bool", "default": True},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
