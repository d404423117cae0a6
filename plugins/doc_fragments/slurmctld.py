# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that say which slurmctld; their argument spec is in module_utils/_module.py."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  namespace:
    description:
      - Namespace of the cluster. When it is not set, that of the kubeconfig's context is searched first, then all namespaces that may be read.
    type: str
  cluster:
    description:
      - Name of the cluster. It is found by itself when it is not set and there is one cluster.
    type: str
  pod:
    description:
      - Name of the pod that runs slurmctld, C(<cluster>-controller-0). Found by itself when it is not set.
      - Where nothing can be run in it, and the cluster has a second controller, that one is taken.
    type: str
  container:
    description:
      - Name of the container that runs slurmctld.
    type: str
    default: slurmctld
requirements:
  - websocket-client, for commands in pods
"""

    # For those that change something.
    ATTRIBUTES = r"""
attributes:
  check_mode:
    support: full
    details:
      - slurmctld is queried as always, and its output decides; nothing is changed.
  diff_mode:
    support: full
    details:
      - Of the fields that differ, slurmctld's values before, and the wanted ones.
"""
