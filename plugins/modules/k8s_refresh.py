#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: k8s_refresh
short_description: Have running pods take in a ConfigMap that has just been applied
version_added: 0.1.0
description:
  - A kubelet shows a pod the new content of a ConfigMap after a minute or so. This wakes the kubelets by an annotation on the pods, which restarts
    nothing, and waits until a program in each pod reports that it has read the content.
  - Asked are the pods that are ready, have the container and were there before the ConfigMap changed. The others see the new content by themselves.
  - The hash is noted on the pods (C(corral.hpc/refreshed-CONFIGMAP)), so that nothing is done twice.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.kubernetes.namespace
  - corral.slurm.kubernetes.attributes
attributes:
  check_mode:
    details:
      - Says which pods would be woken.
  diff_mode:
    details:
      - Shows the hash that each pod has before and after.
options:
  config_map:
    description:
      - Name of the ConfigMap, which the pods mount without C(subPath).
    type: str
    required: true
  key:
    description:
      - The file of the ConfigMap.
    type: str
    required: true
  hash:
    description:
      - The first 16 hexadecimal digits of the SHA-256 of the file as it was applied.
    type: str
    required: true
  selector:
    description:
      - Label selector of the pods.
    type: str
    required: true
  container:
    description:
      - Name of the container whose program reads the content.
    type: str
    required: true
  path:
    description:
      - A file in that container in which the program notes the hash of what it has taken in, or a sentence why it could not.
    type: str
    required: true
  timeout:
    description:
      - Longest time in seconds until all pods have it.
    type: int
    default: 120
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.k8s_apply
"""

EXAMPLES = r"""
- name: Refresh the users in the pods' own jails
  corral.slurm.k8s_refresh:
    namespace: demo
    config_map: demo-jail-users
    key: users.json
    hash: "{{ corral.users.hash }}"
    selector: app.kubernetes.io/instance=demo
    container: users
    path: /run/corral-users
"""

RETURN = r"""
pods:
  description: Names of the pods that were woken.
  returned: always
  type: list
  elements: str
  sample: [demo-cpu-0]
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 2
"""

from ansible_collections.corral.slurm.plugins.module_utils._kube.refresh import refresh as backend
from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options, run_module


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **connection_options(),
        "namespace": {"type": "str"},
        "config_map": {"type": "str", "required": True},
        "key": {"type": "str", "required": True, "no_log": False},
        "hash": {"type": "str", "required": True},
        "selector": {"type": "str", "required": True},
        "container": {"type": "str", "required": True},
        "path": {"type": "str", "required": True},
        "timeout": {"type": "int", "default": 120},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
