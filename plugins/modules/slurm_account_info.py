#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_account_info
short_description: Ask for accounts
version_added: 0.1.0
description:
  - Reads accounts with C(sacctmgr) in the controller's pod and returns them.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.kubernetes.info
options:
  name:
    description:
      - The accounts to return; all when it is empty. One that there is not is left out.
    type: list
    elements: str
    default: []
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_account
"""

EXAMPLES = r"""
- name: Ask for all accounts
  corral.slurm.slurm_account_info:
    namespace: demo
    cluster: demo
  register: answer
"""

RETURN = r"""
accounts:
  description: The accounts of this cluster, V(root) among them.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
      returned: always
    parent:
      description: The account above; empty for V(root).
      type: str
      returned: always
    description:
      description: What it is for.
      type: str
      returned: always
    organization:
      description: Whose it is.
      type: str
      returned: always
    coordinators:
      description: Its coordinators, without those of the accounts above.
      type: list
      elements: str
      returned: always
    managed:
      description: Whether this collection has made it.
      type: bool
      returned: always
    held:
      description: Whether M(corral.slurm.slurm_usage) holds its jobs, by the limit C(GrpJobs). The limits here are those without the hold.
      type: bool
      returned: always
    fairshare:
      description: Its share, a number or V(parent).
      type: raw
      returned: always
    qos:
      description: The QoS that it has itself; empty where those of the account above hold.
      type: list
      elements: str
      returned: always
    default_qos:
      description: Its default QoS; empty where that of the account above holds.
      type: str
      returned: always
    limits:
      description: Its own limits, none that it inherits. Times are minutes, memory is MiB.
      type: dict
      returned: always
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 2
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.tenants import account_info as backend


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
