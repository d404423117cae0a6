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
  limits:
    description:
      - Limits by the names that C(sacctmgr) has for them. The examples show how they are written.
      - Those that are not named stay as they are; V(null) takes one away. TRES that a limit does not name have none.
      - A time is minutes, or C(days-hours:minutes:seconds) in quotes, for YAML takes C(1:30:00) for a number. Memory is MiB, or has a V(G) or
        V(T) behind it.
      - For an association there are C(GrpJobs), C(GrpJobsAccrue), C(GrpSubmit), C(GrpTRES), C(GrpTRESMins), C(GrpTRESRunMins), C(GrpWall),
        C(MaxJobs), C(MaxJobsAccrue), C(MaxSubmit), C(MaxTRES), C(MaxTRESMins), C(MaxTRESPerNode), C(MaxWall), C(MinPrioThresh) and C(Priority).
      - A limit above one that holds it down, of the same association or of an account above it, is an error, and nothing is changed.
    type: dict
  fairshare:
    description:
      - Share among those below the same account, or V(parent) to be counted with these.
    type: str
  qos:
    description:
      - The QoS that jobs may have; an empty list for those of the account above.
    type: list
    elements: str
  default_qos:
    description:
      - The QoS of jobs that name none. It must be among those that jobs may have.
    type: str
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

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.tenants import association


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "user": {"type": "str", "required": True},
        "account": {"type": "str", "required": True},
        "partition": {"type": "str", "default": ""},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "limits": {"type": "dict"},
        "fairshare": {"type": "str"},
        "qos": {"type": "list", "elements": "str"},
        "default_qos": {"type": "str"},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(association, argument_spec)


if __name__ == "__main__":
    main()
