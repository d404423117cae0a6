#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_association_info
short_description: Ask for associations of users
version_added: 0.1.0
description:
  - Reads associations of users with C(sacctmgr) in the controller's pod and returns them.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.kubernetes.info
options:
  user:
    description:
      - Those of these users; of all when it is empty.
    type: list
    elements: str
    default: []
  account:
    description:
      - Those in these accounts; in all when it is empty.
    type: list
    elements: str
    default: []
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_association
"""

EXAMPLES = r"""
- name: Ask for all associations of users
  corral.slurm.slurm_association_info:
    namespace: demo
    cluster: demo
  register: answer
"""

RETURN = r"""
associations:
  description: The associations of users on this cluster; those of accounts are M(corral.slurm.slurm_account_info)'s.
  returned: success
  type: list
  elements: dict
  contains:
    user:
      description: The user.
      type: str
      returned: always
    account:
      description: The account.
      type: str
      returned: always
    partition:
      description: The partition; empty for all.
      type: str
      returned: always
    parent:
      description: Empty, as only accounts have one.
      type: str
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
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.tenants import association_info as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "user": {"type": "list", "elements": "str", "default": []},
        "account": {"type": "list", "elements": "str", "default": []},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
