#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: k8s_rotate
short_description: Rotate the keys of a Kubernetes Secret, and have the pods that mount it use them
version_added: 0.1.0
description:
  - Gives a Secret that M(corral.slurm.k8s_secret) made new generated content, and returns when all pods that mount it use this.
  - Pods of O(selector) are informed by O(command), and continue. First a kubelet brings the content to the volumes of all of them, then O(command) is run in
    all of them at once. Pods of O(restart) are deleted one after the other, and each is waited for.
  - The annotation C(corral.hpc/rotating) of the Secret is there from the write of the new content until all pods use it. If there is one, a run makes no other
    content and continues. C(corral.hpc/rotated) has the time of the last rotation.
  - Before anything is changed, the module asks each pod of O(selector) by O(command), and fails if one is ending or does not respond. It also fails for a
    Secret of somebody else, which has an owner or another C(app.kubernetes.io/managed-by) or is immutable.
  - Generated content goes from this process to the API server. It is in no result, no diff and no argument of a process.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.kubernetes.attributes
attributes:
  check_mode:
    details:
      - Asks the pods, and states which would be informed or replaced.
  diff_mode:
    details:
      - Shows the names of keys and pods.
options:
  secret:
    description:
      - The Secret, and what it gets. Other keys of it stay.
    type: dict
    required: true
    suboptions:
      name:
        description: Name of the Secret.
        type: str
        required: true
      namespace:
        description: Namespace of the Secret and of the pods. The kubeconfig's context decides when it is not set.
        type: str
      labels:
        description: Labels by which the Secret is known to be the collection's own.
        type: dict
        default: {}
      data:
        description: What the keys get, as for M(corral.slurm.k8s_secret).
        type: dict
        required: true
  selector:
    description:
      - Label selector of the pods that are informed.
    type: str
  containers:
    description:
      - Their containers whose daemons use the keys, in the order in which they are informed. The first one mounts the Secret, and each pod has it; a pod that
        lacks another of them is informed in those that it has.
    type: list
    elements: str
  command:
    description:
      - The program in these containers. With the argument C(mounted) it prints the first 16 hexadecimal digits of the SHA-256 of all files of the Secret's
        volume, in the order of their names. With C(use) and these digits it has the daemon use the files, and ends when it does.
    type: list
    elements: str
  overlap:
    description:
      - For daemons that know several keys, and take all files of the volume. All pods get the next key, with the suffix C(.next), before it takes the place of
        the former one, which then has the suffix C(.former) and is removed this many seconds after all pods use the next one.
      - So long something may be valid that was made with the former key.
    type: int
  restart:
    description:
      - Label selectors of pods that read the keys when they start, in the order in which they are replaced.
    type: list
    elements: str
    default: []
  timeout:
    description:
      - Longest time in seconds until all pods use the keys.
    type: int
    default: 600
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.k8s_secret
"""

EXAMPLES = r"""
- name: Rotate the password of the accounting database
  corral.slurm.k8s_rotate:
    secret:
      name: demo-database-password
      namespace: demo
      data:
        password: {password: 32}
    restart:
      - app.kubernetes.io/instance=demo,app.kubernetes.io/component=database
      - app.kubernetes.io/instance=demo,app.kubernetes.io/component=accounting
"""

RETURN = r"""
begun:
  description: Whether the Secret got new content. V(false) where an earlier run had done that, and this one continued.
  returned: always
  type: bool
pods:
  description: Names of the pods that were informed or replaced, in this order.
  returned: always
  type: list
  elements: str
  sample: [demo-database-0, demo-accounting-0]
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 12
"""

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.rotate import run as backend
from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options, run_module, secret_options

CONSTRAINTS: dict[str, Any] = {
    "required_together": [["selector", "containers", "command"]],
    "required_one_of": [["selector", "restart"]],
}


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **connection_options(),
        "secret": {
            "type": "dict",
            "required": True,
            "no_log": False,
            "options": secret_options(),
        },
        "selector": {"type": "str"},
        "containers": {"type": "list", "elements": "str"},
        "command": {"type": "list", "elements": "str"},
        "overlap": {"type": "int"},
        "restart": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "int", "default": 600},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec, CONSTRAINTS)


if __name__ == "__main__":
    main()
