#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: k8s_api_server_info
short_description: Under which addresses pods reach the Kubernetes API server
version_added: 0.1.0
description:
  - Reads the Service and the EndpointSlice C(kubernetes) in the namespace C(default), so that a NetworkPolicy can close these addresses.
    The server of the task's own connection counts too, unless it is a loopback address.
  - What may not be read, or is not there, is what an earlier task has recorded of it. Where none has, a warning says what to do.
options:
  addresses:
    description:
      - Networks that are the API server's. With any, no others are looked up.
    type: list
    elements: str
    default: []
  networks:
    description:
      - Networks of which RV(within) shall tell.
    type: list
    elements: str
    default: []
  policy:
    description:
      - Name of the NetworkPolicy whose annotation C(corral.hpc/api-server) has the RV(record) of an earlier task.
    type: str
  namespace:
    description:
      - Its namespace.
    type: str
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.kubernetes.attributes
attributes:
  check_mode:
    support: full
    details:
      - It only reads.
  diff_mode:
    support: none
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.k8s_apply
"""

EXAMPLES = r"""
- name: See where the API server is
  corral.slurm.k8s_api_server_info:
  register: api_server

- name: See which exceptions a policy for 10.0.0.0/8 needs, where this may be all that a task with more rights has left
  corral.slurm.k8s_api_server_info:
    networks: [10.0.0.0/8]
    namespace: slurm
    policy: demo-base
  register: api_server
"""

RETURN = r"""
ipv4:
  description: IPv4 networks, of one address each where O(addresses) does not name them, in their order.
  returned: success
  type: list
  elements: str
  sample: [10.96.0.1/32, 192.0.2.10/32]
ipv6:
  description: IPv6 networks, of one address each where O(addresses) does not name them, in their order.
  returned: success
  type: list
  elements: str
  sample: []
within:
  description: For each of O(networks), which of these lie within it and are less than all of it.
  returned: success
  type: dict
  sample: {10.0.0.0/8: [10.96.0.1/32]}
record:
  description: All that is known, and of where, for the annotation of O(policy).
  returned: success
  type: str
  sample: EndpointSlice/kubernetes=192.0.2.10/32 Service/kubernetes=10.96.0.1/32 api.example.com=198.51.100.4/32
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 3
"""

from ansible_collections.corral.slurm.plugins.module_utils._kube.api_server import run
from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options, run_module

CONSTRAINTS = {"required_together": [("policy", "namespace")]}


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **connection_options(),
        "addresses": {"type": "list", "elements": "str", "default": []},
        "networks": {"type": "list", "elements": "str", "default": []},
        "policy": {"type": "str"},
        "namespace": {"type": "str"},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(run, argument_spec, CONSTRAINTS)


if __name__ == "__main__":
    main()
