#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_account
short_description: Make, change and remove accounts
version_added: 0.1.0
description:
  - Reads accounts, users, associations and QoS with C(sacctmgr) in the controller's pod, and writes what differs.
  - What is not said stays as it is. M(corral.slurm.slurm_tenants) takes a whole tree at once, and takes away what it no longer names.
  - An account that is made has the comment C(corral) at its association with the cluster, by which M(corral.slurm.slurm_tenants) knows it again.
  - Slurm keeps names, descriptions and organizations in lower case.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.slurmctld.attributes
  - corral.slurm.association
options:
  name:
    description:
      - The account. V(root) is Slurm's own and refused.
    type: str
    required: true
  state:
    description:
      - V(absent) takes the account out of this cluster. It is an error while users or accounts are below it. Jobs of the past keep their account.
      - The words that other clusters of the same database see, the description among them, stay there.
    type: str
    choices: [present, absent]
    default: present
  parent:
    description:
      - The account above; V(root) where a new one does not say it.
    type: str
  description:
    description:
      - What it is for.
    type: str
  organization:
    description:
      - Whose it is.
    type: str
  coordinators:
    description:
      - Users who may administer the account and those below it. Others are no coordinators any longer.
    type: list
    elements: str
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_account_info
  - module: corral.slurm.slurm_tenants
"""

EXAMPLES = r"""
- name: An account with a limit on what runs at once
  corral.slurm.slurm_account:
    namespace: demo
    cluster: demo
    name: optics
    parent: physics
    description: Optics group
    limits:
      GrpTRES: {cpu: 512, mem: 2T, gres/gpu: 16}
      MaxWall: "2-00:00:00"
"""

RETURN = r"""
account:
  description: The account as it is now, with the fields of RV(corral.slurm.slurm_account_info#module:accounts); empty where there is none.
  returned: success
  type: dict
writes:
  description: Number of lines that C(sacctmgr) was given, or would be.
  returned: success
  type: int
  sample: 1
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 2
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import association_options, run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.tenants import account as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "parent": {"type": "str"},
        "description": {"type": "str"},
        "organization": {"type": "str"},
        "coordinators": {"type": "list", "elements": "str"},
        **association_options(),
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
