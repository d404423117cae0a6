#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_qos
short_description: Make, change and remove QoS
version_added: 0.1.0
description:
  - Reads accounts, users, associations and QoS with C(sacctmgr) in the controller's pod, and writes what differs.
  - What is not given stays as it is. QoS are those of all clusters of the database.
  - A created QoS has C([corral]) at the end of its description, by which M(corral.slurm.slurm_tenants) recognizes it; it is not shown here.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.slurmctld.attributes
options:
  name:
    description:
      - The QoS.
    type: str
    required: true
  state:
    description:
      - V(absent) removes the QoS. It is an error while an association or another QoS names it.
      - This does not check whether a partition of slurm.conf names it.
    type: str
    choices: [present, absent]
    default: present
  description:
    description:
      - What it is for. Slurm keeps it in lower case.
    type: str
  priority:
    description:
      - What it adds to the priority of jobs.
    type: int
  flags:
    description:
      - The flags that it has; others it has not.
    type: list
    elements: str
  preempt:
    description:
      - The QoS whose jobs may be preempted for jobs of this one.
    type: list
    elements: str
  preempt_mode:
    description:
      - What becomes of jobs of this QoS that are preempted; V(cluster) is what slurm.conf says.
    type: str
    choices: [cluster, cancel, requeue, suspend]
  preempt_exempt_time:
    description:
      - How long a job runs before it can be preempted, in seconds or as C(days-hours:minutes:seconds).
    type: str
  grace_time:
    description:
      - How long a job that is preempted has to end, in seconds or as C(days-hours:minutes:seconds).
    type: str
  usage_factor:
    description:
      - By what the usage of its jobs is multiplied.
    type: float
  usage_threshold:
    description:
      - The fair-share factor below which jobs are held back.
    type: float
  limit_factor:
    description:
      - By what limits of TRES of associations are multiplied for its jobs.
    type: float
  limits:
    description:
      - Limits by the names that C(sacctmgr) has for them, written as for M(corral.slurm.slurm_account).
      - Those that are not named stay as they are; V(null) takes one away. TRES that a limit does not name have none.
      - For a QoS there are C(GrpJobs), C(GrpJobsAccrue), C(GrpSubmit), C(GrpTRES), C(GrpTRESMins), C(GrpTRESRunMins), C(GrpWall),
        C(MaxJobsAccruePerAccount), C(MaxJobsAccruePerUser), C(MaxJobsPerAccount), C(MaxJobsPerUser), C(MaxSubmitJobsPerAccount),
        C(MaxSubmitJobsPerUser), C(MaxTRES), C(MaxTRESMins), C(MaxTRESPerAccount), C(MaxTRESPerNode), C(MaxTRESPerUser),
        C(MaxTRESRunMinsPerAccount), C(MaxTRESRunMinsPerUser), C(MaxWall), C(MinPrioThresh) and C(MinTRES).
    type: dict
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_qos_info
  - module: corral.slurm.slurm_tenants
"""

EXAMPLES = r"""
- name: A QoS for short jobs
  corral.slurm.slurm_qos:
    namespace: demo
    cluster: demo
    name: short
    priority: 1000
    flags: [DenyOnLimit]
    limits:
      MaxWall: "00:30:00"
      MaxTRESPerUser: {cpu: 64}
"""

RETURN = r"""
qos:
  description: The QoS as it is now, with the fields of RV(corral.slurm.slurm_qos_info#module:qos); empty where there is none.
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
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.tenants import qos as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "description": {"type": "str"},
        "priority": {"type": "int"},
        "flags": {"type": "list", "elements": "str"},
        "preempt": {"type": "list", "elements": "str"},
        "preempt_mode": {"type": "str", "choices": ["cluster", "cancel", "requeue", "suspend"]},
        "preempt_exempt_time": {"type": "str"},
        "grace_time": {"type": "str"},
        "usage_factor": {"type": "float"},
        "usage_threshold": {"type": "float"},
        "limit_factor": {"type": "float"},
        "limits": {"type": "dict"},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
