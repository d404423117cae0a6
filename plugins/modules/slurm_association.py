#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_association
short_description: Put users into accounts, with limits
version_added: 0.1.0
description:
  - Reads accounts, users, associations and QoS with C(sacctmgr) in the controller's pod, and writes what differs.
  - What is not said stays as it is. A user whom Slurm does not know yet is made, with the account as the default.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.slurmctld.attributes
  - corral.slurm.association
options:
  user:
    description:
      - The user.
    type: str
    required: true
  account:
    description:
      - The account, which must be there.
    type: str
    required: true
  partition:
    description:
      - Only jobs on this partition; all when it is empty.
    type: str
    default: ''
  state:
    description:
      - V(absent) takes the user out of the account. Jobs of the past keep both.
      - The default account of a user who has lost theirs is the first of the others. slurmdbd refuses to take an account away while jobs of the
        user are there.
    type: str
    choices: [present, absent]
    default: present
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_association_info
  - module: corral.slurm.slurm_tenants
"""

EXAMPLES = r"""
- name: At most ten jobs of a user in an account at once
  corral.slurm.slurm_association:
    namespace: demo
    cluster: demo
    user: alice
    account: optics
    limits:
      MaxJobs: 10
      MaxTRES: {cpu: 64, mem: 256G}
      MaxWall: "12:00:00"
"""

RETURN = r"""
association:
  description: The association as it is now, with the fields of RV(corral.slurm.slurm_association_info#module:associations); empty where there is none.
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
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.tenants import association as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "user": {"type": "str", "required": True},
        "account": {"type": "str", "required": True},
        "partition": {"type": "str", "default": ""},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        **association_options(),
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
