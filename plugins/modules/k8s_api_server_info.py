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
  - Where they may not be read there are none, and a warning says what to do.
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
"""

RETURN = r"""
ipv4:
  description: Networks of one IPv4 address each, in their order.
  returned: success
  type: list
  elements: str
  sample: [10.96.0.1/32, 192.0.2.10/32]
ipv6:
  description: Networks of one IPv6 address each, in their order.
  returned: success
  type: list
  elements: str
  sample: []
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 2
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.parameters import env_fallback

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.api_server import run
from ansible_collections.corral.slurm.plugins.module_utils._kube.args import connection_options


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return connection_options(env_fallback)


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    try:
        module.exit_json(**run(module.params, check=module.check_mode, diff=module._diff))
    except CorralError as error:
        module.fail_json(**{"changed": False, **error.data, "msg": str(error)})


if __name__ == "__main__":
    main()
