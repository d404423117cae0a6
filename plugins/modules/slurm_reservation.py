#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_reservation
short_description: Make, change and delete reservations
version_added: 0.1.0
description:
  - Reads all reservations once with C(scontrol show reservations --json) in the controller's pod, compares those fields that the task
    names, and changes what differs.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.slurmctld.attributes
options:
  name:
    description:
      - Name of the reservation.
    type: str
    required: true
  state:
    description:
      - Whether it is there.
    type: str
    choices: [present, absent]
    default: present
  nodes:
    description:
      - Its nodes as a hostlist, or V(ALL). To make a reservation, this or O(node_count) is needed.
    type: str
  node_count:
    description:
      - Number of its nodes, which slurmctld chooses.
    type: int
  users:
    description:
      - Who may use it. To make a reservation, this or O(accounts) is needed.
    type: list
    elements: str
  accounts:
    description:
      - Accounts that may use it.
    type: list
    elements: str
  start:
    description:
      - Its start as ISO 8601, in UTC where no offset is written, or relative as Slurm has it, such as V(now) and V(now+2hours).
      - Relative words count when the reservation is made and are not compared later. slurmctld refuses another start for one that has begun.
      - slurmctld moves one that recurs (V(HOURLY), V(DAILY), V(WEEKDAY), V(WEEKEND) or V(WEEKLY) in O(flags)) on when its time is over. So of that the
        time is compared that this start leads to, by UTC, and how long it lasts. Another one counts from the next of its times on.
      - The start of one with V(TIME_FLOAT) is not compared.
    type: str
  end:
    description:
      - Its end as ISO 8601.
    type: str
  duration:
    description:
      - How long it lasts, in Slurm's format. V(90) and V(90:00) are minutes, then V(1:30:00), V(2-12) days and hours, V(2-12:30:00), V(UNLIMITED) a year.
    type: str
  flags:
    description:
      - Its flags, such as V(MAINT), V(IGNORE_JOBS), V(FLEX) and V(DAILY). V(MAINT) keeps node failures of that time out of the statistics, V(IGNORE_JOBS)
        makes the reservation though jobs run there.
      - Flags that slurmctld sets by itself are not compared, nor is V(REPLACE_DOWN), which Slurm 24.11 does not show.
      - Any name that C(scontrol) takes will do. V(STATIC_ALLOC) is V(STATIC), V(LICENSE_ONLY) is V(ANY_NODES), V(PROMISCUOUS) is V(MAGNETIC).
    type: list
    elements: str
  partition:
    description:
      - The partition that its nodes are of.
    type: str
  features:
    description:
      - Features that its nodes have, as C(sbatch --constraint) writes them.
    type: str
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_reservation_info
  - module: corral.slurm.slurm_node
"""

EXAMPLES = r"""
- name: Reserve four nodes for a repair on Saturday
  corral.slurm.slurm_reservation:
    namespace: demo
    pod: demo-controller-0
    name: repair
    nodes: gpu-[0-3]
    users: [root]
    start: "2026-01-31T08:00:00+01:00"
    duration: "4:00:00"
    flags: [MAINT, IGNORE_JOBS]

- name: Reserve all nodes for maintenance on Saturdays
  corral.slurm.slurm_reservation:
    namespace: demo
    pod: demo-controller-0
    name: saturdays
    nodes: ALL
    users: [root]
    start: "2026-01-31T08:00:00Z"
    duration: "4:00:00"
    flags: [MAINT, IGNORE_JOBS, WEEKLY]

- name: Delete the reservation early
  corral.slurm.slurm_reservation:
    namespace: demo
    pod: demo-controller-0
    name: repair
    state: absent
"""

RETURN = r"""
reservation:
  description: The reservation as it is now, with the fields of RV(corral.slurm.slurm_reservation_info#module:reservations). Empty when there is none.
  returned: success
  type: dict
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 2
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.reservation import run as backend

CONSTRAINTS = {"mutually_exclusive": [("end", "duration"), ("nodes", "node_count")]}


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "nodes": {"type": "str"},
        "node_count": {"type": "int"},
        "users": {"type": "list", "elements": "str"},
        "accounts": {"type": "list", "elements": "str"},
        "start": {"type": "str"},
        "end": {"type": "str"},
        "duration": {"type": "str"},
        "flags": {"type": "list", "elements": "str"},
        "partition": {"type": "str"},
        "features": {"type": "str"},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec, CONSTRAINTS)


if __name__ == "__main__":
    main()
