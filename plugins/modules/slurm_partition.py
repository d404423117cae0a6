#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_partition
short_description: Open and close partitions
version_added: 0.1.0
description:
  - Reads all partitions once with C(scontrol show partitions --json) in the controller's pod and sets the state of those that have another.
  - slurmctld takes the state from its configuration again when it next reads that, so a closed partition is open after a change of the document.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.slurmctld.attributes
options:
  name:
    description:
      - The partitions. A name that slurmctld does not know is an error, and nothing is changed.
    type: list
    elements: str
    required: true
  state:
    description:
      - V(UP) takes jobs and runs them.
      - V(DOWN) takes jobs and starts none.
      - V(DRAIN) takes no new jobs and runs those that it has.
      - V(INACTIVE) does neither.
      - Running jobs continue in any case.
    type: str
    choices: [UP, DOWN, DRAIN, INACTIVE]
    required: true
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_partition_info
"""

EXAMPLES = r"""
- name: Stop two partitions from starting jobs
  corral.slurm.slurm_partition:
    namespace: demo
    pod: demo-controller-0
    name: [main, large]
    state: DOWN
"""

RETURN = r"""
partitions:
  description: The partitions as they are now, with the fields of RV(corral.slurm.slurm_partition_info#module:partitions).
  returned: success
  type: list
  elements: dict
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 2
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.partition import run as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "name": {"type": "list", "elements": "str", "required": True},
        "state": {"type": "str", "choices": ["UP", "DOWN", "DRAIN", "INACTIVE"], "required": True},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
