#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_job_info
short_description: List the jobs of a cluster
version_added: 0.1.0
description:
  - Runs C(squeue --json --states=all) in the controller's pod and returns its output. Tasks of an array, and the parts of a
    heterogeneous job, are returned as one.
  - slurmctld forgets a job some minutes after its end (C(MinJobAge), 300 s if not set).
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.kubernetes.info
options:
  job_id:
    description:
      - Numbers of jobs.
    type: list
    elements: int
    default: []
  name:
    description:
      - Names of jobs.
    type: list
    elements: str
    default: []
  user:
    description:
      - Whose jobs.
    type: list
    elements: str
    default: []
  partition:
    description:
      - Partitions.
    type: list
    elements: str
    default: []
  states:
    description:
      - States as squeue knows them, such as V(running) and V(pending); all when it is empty.
    type: list
    elements: str
    default: []
  nodes:
    description:
      - Jobs that have one of these nodes, as a hostlist.
    type: str
    default: ""
  removed_users:
    description:
      - Set it when O(user) are users whom the document of the cluster no longer has. A warning names those of their jobs that have not ended, and what
        happens to them. If slurmctld cannot be queried, there is a warning instead of an error.
    type: bool
    default: false
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_job
"""

EXAMPLES = r"""
- name: List the jobs on two nodes
  corral.slurm.slurm_job_info:
    namespace: demo
    pod: demo-controller-0
    nodes: gpu-[0-1]
    states: [running]
  register: result
"""

RETURN = r"""
jobs:
  description: The jobs, the newest last.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: Its number; of an array or a heterogeneous job the first one's.
      type: int
      returned: always
    name:
      description: Its name.
      type: str
      returned: always
    user:
      description: Whose it is.
      type: str
      returned: always
    state:
      description: Slurm's state, with flags behind a plus sign.
      type: str
      returned: always
    ended:
      description: Whether it has ended.
      type: bool
      returned: always
    succeeded:
      description: Whether it has ended as COMPLETED.
      type: bool
      returned: always
    held:
      description: Whether it is held.
      type: bool
      returned: always
    exit_code:
      description: The exit code; V(null) while it has none, and for one ended by a signal.
      type: int
      returned: always
    signal:
      description: The signal that ended it, V(0) for none.
      type: int
      returned: always
    reason:
      description: Slurm's reason for its state.
      type: str
      returned: always
    nodes:
      description: Its nodes as a hostlist.
      type: str
      returned: always
    partition:
      description: Its partition.
      type: str
      returned: always
    output:
      description: Path of its output in the jail.
      type: str
      returned: always
    comment:
      description: Its comment.
      type: str
      returned: always
    submit_time:
      description: When it was submitted, in UTC.
      type: str
      returned: always
    start_time:
      description: When it began or may begin, in UTC.
      type: str
      returned: always
    end_time:
      description: When it ended, in UTC.
      type: str
      returned: always
    tasks:
      description: Number of records that are one here, such as the tasks of an array.
      type: int
      returned: always
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 2
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.job import info as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "job_id": {"type": "list", "elements": "int", "default": []},
        "name": {"type": "list", "elements": "str", "default": []},
        "user": {"type": "list", "elements": "str", "default": []},
        "partition": {"type": "list", "elements": "str", "default": []},
        "states": {"type": "list", "elements": "str", "default": []},
        "nodes": {"type": "str", "default": ""},
        "removed_users": {"type": "bool", "default": False},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
