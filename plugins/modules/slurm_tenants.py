#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_tenants
short_description: Converge accounts, users, associations, QoS and reservations
version_added: 0.1.0
description:
  - Takes all accounts, users, associations and QoS as one document, reads the database with one command in the controller's pod, and
    writes the differences with as few runs of C(sacctmgr) as possible. An unchanged document costs one read. What was written is read again,
    because C(sacctmgr) reports too little of what it refused.
  - What the document names gets exactly the values of the document. A limit that leaves the document is removed. What the document does not name
    stays as it is, unless O(prune) is set.
  - The whole document is checked before the first write, and each error is a sentence with its path. slurmdbd then refuses only what it alone can
    know, such as jobs of a user who is removed.
  - Of 5 000 users with two associations each, a run that changes nothing takes seconds, nearly all of which are C(sacctmgr)'s; making them takes
    slurmdbd minutes, once. C(docs/tenants.md) documents the figures and the document.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.slurmctld.attributes
options:
  tenants:
    description:
      - The document, with the lists C(qos), C(accounts), C(users) and C(reservations), or an object of the kind C(SlurmTenants) with such a C(spec).
        C(docs/tenants.md) has each field.
    type: dict
    required: true
  prune:
    description:
      - Whether to remove what this collection has made and the document no longer names. A document without any account is refused then.
      - What it has made is known by a mark. Associations, those of accounts among them, have the comment C(corral); a QoS has C([corral]) at
        the end of its description, and a reservation the comment C(corral). The mark is set when something is created, never on what existed
        before. So what others have made stays, whether the document names it or not.
      - A user has no mark. They lose the associations that have it, and slurmdbd removes a user with the last one.
      - slurmdbd keeps the jobs and the usage of everything that is removed. The description of an account stays in the database.
      - An account with something below it that stays, or a QoS that something refers to, stays too, and RV(kept) has the reason.
    type: bool
    default: false
  objects:
    description:
      - Whether the C(SlurmTenants) in the cluster's namespace that name the cluster count too. They and O(tenants) are checked and applied as one
        document; a name that occurs in two of them is an error.
    type: bool
    default: false
  path:
    description:
      - What the paths in errors begin with, such as C(spec.accounting.tenants).
    type: str
    default: ""
  wait_timeout:
    description:
      - How long to wait, in seconds, until slurmdbd responds and knows the cluster.
    type: int
    default: 0
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_account
  - module: corral.slurm.slurm_association
  - module: corral.slurm.slurm_qos
  - module: corral.slurm.slurm_reservation
  - module: corral.slurm.slurm_user
"""

EXAMPLES = r"""
- name: Apply accounts, users and QoS
  corral.slurm.slurm_tenants:
    namespace: demo
    cluster: demo
    tenants: "{{ lookup('ansible.builtin.file', 'tenants.yml') | from_yaml }}"
    prune: true

- name: Apply the SlurmTenants of the namespace together with one account of this task
  corral.slurm.slurm_tenants:
    namespace: demo
    cluster: demo
    tenants: {accounts: [{name: science}]}
    objects: true
    prune: true

- name: Two users of one account
  corral.slurm.slurm_tenants:
    namespace: demo
    cluster: demo
    tenants:
      accounts:
        - name: physics
          fairshare: 100
          limits:
            GrpTRES: {cpu: 512, gres/gpu: 16}
      users:
        - name: alice
          associations:
            - account: physics
        - name: bob
          associations:
            - account: physics
              limits: {MaxJobs: 10}
"""

RETURN = r"""
kept:
  description: What O(prune) cannot remove, a sentence each.
  returned: success
  type: list
  elements: str
problems:
  description: The errors of the document, a sentence each.
  returned: when the document is refused
  type: list
  elements: str
writes:
  description: Number of lines for C(sacctmgr) and of runs of C(scontrol), in check mode too; 0 there while the cluster has no accounting yet.
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
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.tenants import tenants as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "tenants": {"type": "dict", "required": True},
        "prune": {"type": "bool", "default": False},
        "objects": {"type": "bool", "default": False},
        "path": {"type": "str", "default": ""},
        "wait_timeout": {"type": "int", "default": 0},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
