#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_user_info
short_description: Ask for users of accounts
version_added: 0.1.0
description:
  - Reads users with C(sacctmgr) in the controller's pod and returns them.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.kubernetes.info
options:
  name:
    description:
      - The users to return; all when it is empty. One that there is not is left out.
    type: list
    elements: str
    default: []
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_user
"""

EXAMPLES = r"""
- name: Ask for all users
  corral.slurm.slurm_user_info:
    namespace: demo
    cluster: demo
  register: answer
"""

RETURN = r"""
users:
  description: The users whom Slurm has on record.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Their name.
      type: str
      returned: always
    admin_level:
      description: V(None), V(Operator) or V(Administrator).
      type: str
      returned: always
    default_account:
      description: The account of jobs that name none.
      type: str
      returned: always
    accounts:
      description: The accounts of this cluster to which they have an association.
      type: list
      elements: str
      returned: always
    coordinates:
      description: The accounts that they are a coordinator of, without those below these.
      type: list
      elements: str
      returned: always
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 2
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.tenants import user_info as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "name": {"type": "list", "elements": "str", "default": []},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
