#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_user
short_description: Make, change and remove users of accounts
version_added: 0.1.0
description:
  - Reads accounts, users, associations and QoS with C(sacctmgr) in the controller's pod, and writes what differs.
  - What is not said stays as it is. The limits of a user in an account are M(corral.slurm.slurm_association)'s.
  - These are Slurm's records of users. The users themselves, with their numbers and keys, are the cluster's document's or the directory's.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.slurmctld.attributes
options:
  name:
    description:
      - The user. V(root) is refused.
    type: str
    required: true
  state:
    description:
      - V(absent) takes the user out of all accounts of this cluster. Jobs of the past keep their user.
      - slurmdbd refuses that while jobs of theirs are there.
    type: str
    choices: [present, absent]
    default: present
  default_account:
    description:
      - The account of jobs that name none. The user gets an association to it where they have none.
      - A new user needs one.
    type: str
  admin_level:
    description:
      - What the user may do to other people's jobs and records.
    type: str
    choices: [None, Operator, Administrator]
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_user_info
  - module: corral.slurm.slurm_association
  - module: corral.slurm.slurm_tenants
"""

EXAMPLES = r"""
- name: A user of an account
  corral.slurm.slurm_user:
    namespace: demo
    cluster: demo
    name: alice
    default_account: optics
"""

RETURN = r"""
user:
  description: The user as they are now, with the fields of RV(corral.slurm.slurm_user_info#module:users); empty where there is none.
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

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.tenants import user as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "default_account": {"type": "str"},
        "admin_level": {"type": "str", "choices": ["None", "Operator", "Administrator"]},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
