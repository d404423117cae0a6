#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_usage
short_description: Report what jobs have used, and apply budgets
version_added: 0.1.0
description:
  - Adds up the CPU-, GPU-, node- and billing-hours of jobs in a period, by account, user, QoS and partition, with C(sacct) in the controller's pod.
    All periods that a task needs are one command there, and only sums leave the pod.
  - The sums are those of C(sacct --duplicates --truncate), to the second. Of a job that runs, what it has used until the end of the period or until
    now counts. Of a job that was requeued, each run counts. Time in which a job was suspended does not count. C(UsageFactor) is not applied.
  - Compares usage with O(budgets), and with O(hold) stops the jobs of exhausted budgets from starting. Running jobs go on.
    C(docs/usage.md) has the details.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
  - corral.slurm.slurmctld.attributes
options:
  month:
    description:
      - The month to report, such as V(2026-10). Without it and without O(start), the current month until now.
    type: str
  start:
    description:
      - The beginning of the period, a date or a date with a time. Without an offset from UTC it is in O(timezone).
    type: str
  end:
    description:
      - The end of the period, which is not part of it. Without it, now. An end in the future is now, too.
    type: str
  timezone:
    description:
      - The time zone in which months and days begin, such as V(Europe/Berlin).
    type: str
    default: UTC
  by:
    description:
      - What to add up by, any of these. With an empty list, there is one row for the whole cluster.
    type: list
    elements: str
    choices: [account, user, qos, partition]
    default: [account]
  format:
    description:
      - The format of RV(text).
    type: str
    choices: [table, csv, json]
    default: table
  prices:
    description:
      - The price of an hour of C(cpu), C(gpu), C(node) and C(billing). What has none costs nothing.
      - C(partitions) and C(qos) have other prices by name. That of a QoS is taken before that of a partition, and that before the general one.
      - C(currency) is returned as it is.
    type: dict
  budgets:
    description:
      - What accounts and users may use. Each has C(account), which stands for all accounts below it too, C(user), or both for a user in that account; and
        one of C(cpu_hours), C(gpu_hours), C(node_hours), C(billing_hours) and C(cost), which needs O(prices).
      - C(period) is V(month), the default, for the calendar month in which the report ends, or V(total) for all since C(start).
    type: list
    elements: dict
    default: []
  marks:
    description:
      - The shares of a budget, in percent, from which on a warning is given.
    type: list
    elements: int
    default: [50, 80, 100]
  hold:
    description:
      - Whether to hold the accounts and users whose budget is exhausted, and to release those whose budget is not. It needs C(limits) in
        C(spec.accounting.enforce).
      - A hold is C(GrpJobs=0) of the association. Slurm starts none of its jobs then, with the reason C(AssocGrpJobsLimit). Nothing is killed.
      - Each hold has a mark in the association's comment, which keeps the former limit. A limit that is 0 without the mark is never touched.
      - All holds without an exhausted budget in this task are released. So one task has all budgets of a cluster; with an empty list it releases all.
    type: bool
    default: false
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_tenants
"""

EXAMPLES = r"""
- name: October by account and user
  corral.slurm.slurm_usage:
    namespace: demo
    cluster: demo
    start: 2026-10-01
    end: 2026-11-01
    by: [account, user]
  register: usage

- name: Write it as a file
  ansible.builtin.copy:
    content: "{{ usage.text }}"
    dest: usage.txt
    mode: "0644"

- name: Apply budgets of the current month
  corral.slurm.slurm_usage:
    namespace: demo
    cluster: demo
    prices: {cpu: 0.02, gpu: 1.50, partitions: {a100: {gpu: 3}}, currency: EUR}
    budgets:
      - account: physics
        gpu_hours: 5000
      - user: alice
        cost: 2000
        start: 2026-01-01
    hold: true
"""

RETURN = r"""
start:
  description: The beginning of the period, in UTC.
  returned: success
  type: str
  sample: "2026-10-01T00:00:00Z"
end:
  description: Its end; now, where it is not over.
  returned: success
  type: str
  sample: "2026-11-01T00:00:00Z"
rows:
  description: What was used, by what O(by) names.
  returned: success
  type: list
  elements: dict
  contains:
    account:
      description: The account, without those below it.
      type: str
      returned: with account in O(by); the same holds for the other three
    user:
      description: The user.
      type: str
      returned: with user in O(by)
    qos:
      description: The QoS.
      type: str
      returned: with qos in O(by)
    partition:
      description: The partition.
      type: str
      returned: with partition in O(by)
    jobs:
      description: Number of runs of jobs. A job that was requeued has several.
      type: int
      returned: always
    cpu_seconds:
      description: Seconds of allocated CPUs; C(gpu_seconds), C(node_seconds) and C(billing_seconds) are of the other resources.
      type: int
      returned: always
    cpu_hours:
      description: The same in hours, rounded; so for the other resources.
      type: float
      returned: always
    cost:
      description: What it costs, rounded. It is computed from the exact sums, so costs of rows can differ from the total by their rounding.
      type: float
      returned: with O(prices)
totals:
  description: The same fields for the whole cluster.
  returned: success
  type: dict
currency:
  description: The currency of O(prices).
  returned: success
  type: str
budgets:
  description: The state of each budget.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Whose it is.
      type: str
      returned: always
      sample: account physics
    account:
      description: The account; empty for all.
      type: str
      returned: always
    user:
      description: The user; empty for all.
      type: str
      returned: always
    unit:
      description: What it limits.
      type: str
      returned: always
      sample: gpu_hours
    period:
      description: V(month) or V(total).
      type: str
      returned: always
    start:
      description: Since when usage counts for it, in UTC.
      type: str
      returned: always
    end:
      description: Until when.
      type: str
      returned: always
    limit:
      description: What may be used.
      type: float
      returned: always
    used:
      description: What is used, rounded.
      type: float
      returned: always
    share:
      description: The share that is used, in percent, rounded down.
      type: float
      returned: always
    mark:
      description: The highest of O(marks) that is passed; 0 for none.
      type: int
      returned: always
    held:
      description: Whether Slurm starts none of its jobs now, by a hold or by a limit of somebody else's.
      type: bool
      returned: always
text:
  description: The report in the O(format) asked for.
  returned: success
  type: str
writes:
  description: Number of lines for C(sacctmgr), in check mode too.
  returned: with O(hold)
  type: int
  sample: 1
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 2
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.usage import run as backend

CONSTRAINTS: dict[str, object] = {
    "mutually_exclusive": [("month", "start"), ("month", "end")],
    "required_by": {"end": "start"},
}


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "month": {"type": "str"},
        "start": {"type": "str"},
        "end": {"type": "str"},
        "timezone": {"type": "str", "default": "UTC"},
        "by": {"type": "list", "elements": "str", "choices": ["account", "user", "qos", "partition"], "default": ["account"]},
        "format": {"type": "str", "choices": ["table", "csv", "json"], "default": "table"},
        "prices": {"type": "dict"},
        "budgets": {"type": "list", "elements": "dict", "default": []},
        "marks": {"type": "list", "elements": "int", "default": [50, 80, 100]},
        "hold": {"type": "bool", "default": False},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec, CONSTRAINTS)


if __name__ == "__main__":
    main()
