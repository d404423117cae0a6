# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options of an association, an account's own or a user's; their argument spec is in module_utils/_module.py."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  limits:
    description:
      - Limits by the names that C(sacctmgr) has for them. The examples show how they are written.
      - Those that are not named stay as they are; V(null) takes one away. TRES that a limit does not name have none.
      - A time is minutes, or C(days-hours:minutes:seconds) in quotes, for YAML takes C(1:30:00) for a number. Memory is MiB, or has a V(G) or
        V(T) behind it.
      - For an association there are C(GrpJobs), C(GrpJobsAccrue), C(GrpSubmit), C(GrpTRES), C(GrpTRESMins), C(GrpTRESRunMins), C(GrpWall),
        C(MaxJobs), C(MaxJobsAccrue), C(MaxSubmit), C(MaxTRES), C(MaxTRESMins), C(MaxTRESPerNode), C(MaxWall), C(MinPrioThresh) and C(Priority).
      - A limit above one that holds it down, of the same association or of an account above it, is an error, and nothing is changed.
    type: dict
  fairshare:
    description:
      - Share among those below the same account, or V(parent) to be counted with these.
    type: str
  qos:
    description:
      - The QoS that jobs may have; an empty list for those of the account above.
    type: list
    elements: str
  default_qos:
    description:
      - The QoS of jobs that name none. It must be among those that jobs may have.
    type: str
"""
