#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: k8s_secret
short_description: Make Kubernetes Secrets with generated content, once
version_added: 0.1.0
description:
  - Makes Secrets that are missing and adds keys that are missing to those that exist. A key that exists is never overwritten.
  - A Secret that is gone, or has lost one of its keys (an empty one is lost), is not created again while pods run with it, since new pods could not join
    them. The task fails with the commands that bring the key back from such a pod. Which keys a Secret had is in its annotation C(corral.hpc/keys).
  - Generated content goes from this process to the API server. It is in no result, no diff and no argument of a process.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.kubernetes.attributes
options:
  secrets:
    description:
      - The Secrets.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the Secret.
        type: str
        required: true
      namespace:
        description: Namespace of the Secret. The kubeconfig's context decides when it is not set.
        type: str
      labels:
        description: Labels that the Secret gets when it lacks them.
        type: dict
        default: {}
      data:
        description:
          - What the keys hold when they are missing, each a mapping with exactly one entry.
          - C(random_bytes) is a number of random bytes, C(password) a number of random letters and digits, C(ssh_host_key) a new private
            key of type C(ed25519), C(ecdsa) or C(rsa) in OpenSSH's format, C(value) a text.
        type: dict
        required: true
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.k8s_apply
"""

EXAMPLES = r"""
- name: Create the missing keys of a cluster
  corral.slurm.k8s_secret:
    secrets:
      - name: demo-base-munge-key
        namespace: demo
        data:
          munge.key: {random_bytes: 1024}
      - name: demo-login-host-keys
        namespace: demo
        data:
          ssh_host_ed25519_key: {ssh_host_key: ed25519}
"""

RETURN = r"""
secrets:
  description: One row for each Secret, in the order of the input.
  returned: always
  type: list
  elements: dict
  contains:
    kind:
      description: Always V(Secret).
      type: str
      returned: always
    namespace:
      description: Namespace of the Secret.
      type: str
      returned: always
    name:
      description: Name of the Secret.
      type: str
      returned: always
    result:
      description: V(created), V(configured), V(unchanged), or V(skipped) when an error came first.
      type: str
      returned: always
    added:
      description: Number of keys that were added.
      type: int
      returned: always
  sample:
    - {kind: Secret, namespace: demo, name: demo-base-munge-key, result: created, added: 1}
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 2
writes:
  description: Number of Secrets that were really written. V(0) in check mode.
  returned: always
  type: int
  sample: 0
"""

from ansible_collections.corral.slurm.plugins.module_utils._kube.secret import run as backend
from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options, run_module, secret_options


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **connection_options(),
        "secrets": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "no_log": False,
            "options": secret_options(),
        },
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
