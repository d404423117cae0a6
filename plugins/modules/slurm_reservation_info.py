#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_reservation_info
short_description: Ask slurmctld for its reservations
version_added: 0.1.0
description:
  - Runs C(scontrol show reservations --json) in the controller's pod and returns its output.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.kubernetes.info
options:
  name:
    description:
      - The reservations to return, those of them that there are; all when it is empty.
    type: list
    elements: str
    default: []
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_reservation
"""

EXAMPLES = r"""
- name: List all reservations
  corral.slurm.slurm_reservation_info:
    namespace: demo
    pod: demo-controller-0
  register: result
"""

RETURN = r"""
reservations:
  description: The reservations.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
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
    users:
      description: Users who may use it.
      type: list
      elements: str
      returned: always
    accounts:
      description: Accounts that may use it.
      type: list
      elements: str
      returned: always
    start:
      description: Its start in seconds since 1970.
      type: int
      returned: always
    end:
      description: Its end in seconds since 1970.
      type: int
      returned: always
    start_time:
      description: Its start as text, in UTC.
      type: str
      returned: always
    end_time:
      description: Its end as text, in UTC.
      type: str
      returned: always
    active:
      description: Whether it holds now.
      type: bool
      returned: always
    flags:
      description: Its flags, with those that slurmctld sets by itself.
      type: list
      elements: str
      returned: always
    partition:
      description: The partition that its nodes are of, if one was said.
      type: str
      returned: always
    features:
      description: The features that its nodes have, if some were said.
      type: str
      returned: always
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 2
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.reservation import info as backend


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
