#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_partition_info
short_description: Ask slurmctld for its partitions
version_added: 0.1.0
description:
  - Runs C(scontrol show partitions --json) in the controller's pod and returns its output.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.kubernetes.info
options:
  name:
    description:
      - The partitions to return; all when it is empty. A name that slurmctld does not know is an error.
    type: list
    elements: str
    default: []
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_partition
"""

EXAMPLES = r"""
- name: List all partitions
  corral.slurm.slurm_partition_info:
    namespace: demo
    pod: demo-controller-0
  register: result
"""

RETURN = r"""
partitions:
  description: The partitions.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
      returned: always
    state:
      description: V(UP), V(DOWN), V(DRAIN) or V(INACTIVE).
      type: str
      returned: always
    nodes:
      description: Its nodes as a hostlist.
      type: str
      returned: always
    node_count:
      description: Number of its nodes.
      type: int
      returned: always
    cpus:
      description: Number of its CPUs.
      type: int
      returned: always
    max_time:
      description: Longest time of a job in minutes; V(null) without a limit.
      type: int
      returned: always
    allowed_accounts:
      description: Accounts that may use it; empty for all.
      type: list
      elements: str
      returned: always
    allowed_groups:
      description: Groups that may use it; empty for all.
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
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.partition import info as backend


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
