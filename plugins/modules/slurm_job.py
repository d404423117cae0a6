#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_job
short_description: Submit a job as a user and wait for it, or cancel, hold, release and requeue jobs
version_added: 0.1.0
description:
  - Submits a script or a command with C(sbatch) as one of the cluster's users, in a login pod (or a worker pod where no login pod is ready),
    with a session's environment and nothing of the pod's.
  - A job is known by O(name) and O(user) together. A play that runs again finds the job of before, and submits only as O(resubmit) says.
  - slurmctld forgets a job some minutes after its end (C(MinJobAge), 300 s if not set). A play that runs later than that submits again.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.slurmctld.attributes
attributes:
  idempotent:
    support: partial
    details:
      - As long as slurmctld remembers the job. O(state=requeued) restarts a job each time that it is not pending.
options:
  state:
    description:
      - V(present) submits the job if need be.
      - V(absent) cancels jobs that have not ended.
      - V(held) keeps jobs in the queue from starting, and V(released) lets them.
      - V(requeued) puts the last job that fits back into the queue, whether it runs or has ended.
    type: str
    choices: [present, absent, held, released, requeued]
    default: present
  name:
    description:
      - Name of the job. Needed for O(state=present); for other states O(name), O(user) and O(job_id) select the jobs.
    type: str
  job_id:
    description:
      - Number of the job, for the other states than V(present).
    type: int
  user:
    description:
      - Whose job it is. Needed for O(state=present).
    type: str
  script:
    description:
      - The batch script, with its first line C(#!...) and lines C(#SBATCH ...) as always.
    type: str
  command:
    description:
      - A shell command instead of a script.
    type: str
  options:
    description:
      - Further options of sbatch by their long names, without the hyphens in front. V(true) stands for an option without a value.
    type: dict
    default: {}
  chdir:
    description:
      - Folder in the jail in which the job runs and its output is written. The user's home when it is not set.
    type: str
  comment:
    description:
      - A comment on the job.
    type: str
  resubmit:
    description:
      - Whether a job is submitted though slurmctld knows one of that name and user.
      - V(never), only when that one V(failed), when it has V(ended) in any way, or V(always).
    type: str
    choices: [never, failed, ended, always]
    default: never
  wait:
    description:
      - With O(state=present), wait for the job's end. With O(state=absent), wait until the jobs have left their nodes.
    type: bool
    default: false
  wait_timeout:
    description:
      - Longest wait in seconds. The job continues after it.
    type: int
    default: 3600
  must_succeed:
    description:
      - Whether the task fails when the job that it has waited for did not end as COMPLETED. The error has the exit code and the last lines of the output.
    type: bool
    default: true
  submit_pod:
    description:
      - The pod in which the job is submitted. Found by itself when it is not set.
    type: str
  submit_container:
    description:
      - The container of O(submit_pod), which runs as root and has Slurm's clients.
    type: str
    default: sshd
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_job_info
"""

EXAMPLES = r"""
- name: Run a test job and return its output
  corral.slurm.slurm_job:
    namespace: demo
    pod: demo-controller-0
    name: hello
    user: ada
    command: srun hostname
    options: {nodes: 2, partition: main, time: 5}
    wait: true
    wait_timeout: 300
  register: hello

- name: Submit a script again if its last job failed
  corral.slurm.slurm_job:
    namespace: demo
    pod: demo-controller-0
    name: nightly
    user: ada
    script: |
      #!/bin/bash
      #SBATCH --exclusive
      make -C ~/benchmark run
    resubmit: failed

- name: Cancel all jobs of a user
  corral.slurm.slurm_job:
    namespace: demo
    pod: demo-controller-0
    user: ada
    state: absent
    wait: true
"""

RETURN = r"""
job:
  description: The job, the newest where several fit, with the fields of RV(corral.slurm.slurm_job_info#module:jobs). Empty in check mode for one that would be
    submitted, and where there is none.
  returned: success
  type: dict
jobs:
  description: All jobs that fit, with the same fields.
  returned: when O(state) is not V(present)
  type: list
  elements: dict
output:
  description: The end of the job's output, 4 KiB at most, when it was waited for and its user can read it.
  returned: success
  type: str
  sample: "gpu-0\n"
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 2
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.job import run as backend

CONSTRAINTS = {
    "required_if": [("state", "present", ["name", "user"])],
    "required_one_of": [("name", "user", "job_id")],
    "mutually_exclusive": [("script", "command")],
}


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "state": {"type": "str", "choices": ["present", "absent", "held", "released", "requeued"], "default": "present"},
        "name": {"type": "str"},
        "job_id": {"type": "int"},
        "user": {"type": "str"},
        "script": {"type": "str"},
        "command": {"type": "str"},
        "options": {"type": "dict", "default": {}},
        "chdir": {"type": "str"},
        "comment": {"type": "str"},
        "resubmit": {"type": "str", "choices": ["never", "failed", "ended", "always"], "default": "never"},
        "wait": {"type": "bool", "default": False},
        "wait_timeout": {"type": "int", "default": 3600},
        "must_succeed": {"type": "bool", "default": True},
        "submit_pod": {"type": "str"},
        "submit_container": {"type": "str", "default": "sshd"},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec, CONSTRAINTS)


if __name__ == "__main__":
    main()
