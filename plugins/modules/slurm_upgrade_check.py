#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_upgrade_check
short_description: See whether another version of Slurm can follow on the one that runs
version_added: 0.1.0
description:
  - Reads the version of a new image from a Job that has run C(slurmctld -V > /dev/termination-log) in it, and compares it with those of
    slurmdbd, of slurmctld and of the nodes' slurmds. Changes nothing.
  - Fails for an older release than the one that runs, since it could not read slurmctld's state, and for one that is more than Slurm's
    compatibility window ahead, which is two releases, and three from 24.11 on.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.slurmctld.attributes
options:
  job:
    description:
      - Name of the Job. It has ended well.
    type: str
    required: true
  auth:
    description:
      - How Slurm's daemons authenticate, as C(spec.slurm.auth) has it. With V(slurm) the image must have Slurm 24.05 or newer.
    type: str
    choices: [munge, slurm]
    default: munge
  may_be_silent:
    description:
      - Whether to succeed if slurmctld cannot be queried. Nothing is compared then; a slurmctld that cannot read the state of a later one
        reports that and does not start.
    type: bool
    default: false
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_reconcile
"""

EXAMPLES = r"""
- name: Compare the image's version with the running one
  corral.slurm.slurm_upgrade_check:
    namespace: demo
    pod: demo-controller-0
    job: demo-controller-upgrade
"""

RETURN = r"""
running:
  description: Version of the slurmctld that runs; empty if it could not be queried.
  returned: success
  type: str
  sample: 24.11.5
wanted:
  description: Version of the image.
  returned: success
  type: str
  sample: 26.05.5
slurmdbd:
  description: Version of the slurmdbd that runs; empty without one.
  returned: success
  type: str
  sample: 24.11.5
database:
  description: Whether the accounting database gets another slurmdbd, which may change its tables for good.
  returned: success
  type: bool
nodes:
  description: How many nodes have a slurmd of which version.
  returned: success
  type: dict
  sample: {"24.11.5": 8}
msg:
  description: The same in a sentence.
  returned: success
  type: str
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 3
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.upgrade import run as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "job": {"type": "str", "required": True},
        "auth": {"type": "str", "choices": ["munge", "slurm"], "default": "munge"},
        "may_be_silent": {"type": "bool", "default": False},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
