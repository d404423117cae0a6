#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_reconfigure
short_description: Have slurmctld serve a configuration that has just been applied
version_added: 0.1.0
description:
  - Wakes the controller's kubelet, so that the pod sees its ConfigMap at once and not after a minute, waits until it does, and runs
    C(scontrol reconfigure) in the pod. slurmctld pushes the configuration to the other daemons.
  - Notes the hash on the pod (C(corral.hpc/config-served)), so that nothing is done while it is served. A new pod has no such note.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.kubernetes.namespace
  - corral.slurm.kubernetes.attributes
attributes:
  check_mode:
    details:
      - Reports whether slurmctld would be reconfigured, without querying it.
  diff_mode:
    details:
      - Shows the hash that is served before and after.
options:
  pod:
    description:
      - Name of the pod that runs slurmctld.
    type: str
    required: true
  backup:
    description:
      - Name of the pod that runs a second slurmctld, where the cluster has one. The configuration is to reach both pods before any slurmctld reads it,
        and a standby, which C(scontrol reconfigure) does not reach, restarts.
      - Of two pods one that is not ready is left out.
    type: str
  container:
    description:
      - Name of the container that runs slurmctld.
    type: str
    default: slurmctld
  config_hash:
    description:
      - Hash of the configuration, as the file C(config.hash) beside C(slurm.conf) holds it.
    type: str
    required: true
  config_dir:
    description:
      - Folder of the configuration in the container.
    type: str
    default: /etc/slurm
  timeout:
    description:
      - Longest time in seconds until the configuration is served.
    type: int
    default: 120
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_node_info
"""

EXAMPLES = r"""
- name: Reconfigure slurmctld
  corral.slurm.slurm_reconfigure:
    namespace: demo
    pod: demo-controller-0
    config_hash: "{{ corral.config.hash }}"
"""

RETURN = r"""
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 1
"""

from ansible_collections.corral.slurm.plugins.module_utils._converge import reconfigure as backend
from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options, run_module


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **connection_options(),
        "namespace": {"type": "str"},
        "pod": {"type": "str", "required": True},
        "backup": {"type": "str"},
        "container": {"type": "str", "default": "slurmctld"},
        "config_hash": {"type": "str", "required": True},
        "config_dir": {"type": "str", "default": "/etc/slurm"},
        "timeout": {"type": "int", "default": 120},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
