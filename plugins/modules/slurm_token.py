#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_token
short_description: Make a token for the REST API
version_added: 0.1.0
description:
  - Runs C(scontrol token) in the controller's pod, and returns a token by which a user is known to slurmrestd. The cluster needs C(spec.rest).
  - A token is as good as a password until it expires, and nobody can take it back. The result of the task is shown as with C(no_log=true); tasks that use
    the token should have C(no_log=true) themselves.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
attributes:
  check_mode:
    support: full
    details:
      - Checks the user. No token is made.
  diff_mode:
    support: none
    details:
      - A token is not shown.
  idempotent:
    support: none
    details:
      - Each run makes another token. Nothing in the cluster changes.
options:
  user:
    description:
      - The user whose token it is. slurmctld has to know the user. V(root) and V(slurm) may do everything in the cluster.
    type: str
    required: true
  lifespan:
    description:
      - How long it is valid, in seconds, 30 days at most.
    type: int
    default: 900
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.k8s_secret
"""

EXAMPLES = r"""
- name: Make a token
  corral.slurm.slurm_token:
    namespace: demo
    cluster: demo
    user: alice
  register: alice

- name: Read the jobs
  ansible.builtin.uri:
    url: https://slurm.example.com:6820/slurm/v0.0.42/jobs
    headers:
      X-SLURM-USER-TOKEN: "{{ alice.token }}"
  no_log: true
"""

RETURN = r"""
user:
  description: The user.
  returned: success
  type: str
  sample: alice
token:
  description: The token, for the header C(X-SLURM-USER-TOKEN), or as C(SLURM_JWT) in the environment of Slurm's commands.
  returned: success, not in check mode
  type: str
expires:
  description: When it expires, in seconds since 1970.
  returned: success, not in check mode
  type: int
  sample: 1795631161
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 3
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.token import run as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "user": {"type": "str", "required": True},
        "lifespan": {"type": "int", "default": 900},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
