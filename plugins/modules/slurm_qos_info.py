#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_qos_info
short_description: Ask for QoS
version_added: 0.1.0
description:
  - Reads QoS with C(sacctmgr) in the controller's pod and returns them.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.kubernetes.info
options:
  name:
    description:
      - The QoS to return; all when it is empty. One that there is not is left out.
    type: list
    elements: str
    default: []
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_qos
"""

EXAMPLES = r"""
- name: Ask for all QoS
  corral.slurm.slurm_qos_info:
    namespace: demo
    cluster: demo
  register: answer
"""

RETURN = r"""
qos:
  description: The QoS.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
      returned: always
    description:
      description: What it is for.
      type: str
      returned: always
    managed:
      description: Whether this collection has made it.
      type: bool
      returned: always
    priority:
      description: What it adds to the priority of jobs.
      type: int
      returned: always
    flags:
      description: Its flags.
      type: list
      elements: str
      returned: always
    preempt:
      description: The QoS whose jobs may be preempted for it.
      type: list
      elements: str
      returned: always
    preempt_mode:
      description: What becomes of its jobs that are preempted.
      type: str
      returned: always
    preempt_exempt_time:
      description: How long a job runs before it can be preempted, in seconds; V(null) where slurm.conf decides.
      type: int
      returned: always
    grace_time:
      description: How long a job that is preempted has to end, in seconds.
      type: int
      returned: always
    usage_factor:
      description: By what usage is multiplied.
      type: float
      returned: always
    usage_threshold:
      description: The fair-share factor below which jobs are held back; V(null) for none.
      type: float
      returned: always
    limit_factor:
      description: By what limits of TRES are multiplied; V(null) for none.
      type: float
      returned: always
    limits:
      description: Its limits. Times are minutes, memory is MiB.
      type: dict
      returned: always
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 2
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.tenants import qos_info as backend


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
