# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the connection options, and what is said of all modules that have them; their argument spec is in module_utils/_module.py."""

from __future__ import annotations

from typing import ClassVar


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - Path of a kubeconfig file. Several paths joined by V(:) are merged, as kubectl does with E(KUBECONFIG).
      - Without it E(K8S_AUTH_KUBECONFIG), E(KUBECONFIG) and C(~/.kube/config) are tried, then the service account of the pod that this runs in.
    type: str
  context:
    description:
      - Name of the context in the kubeconfig. E(K8S_AUTH_CONTEXT) gives it too.
      - The kubeconfig's current context is taken otherwise.
    type: str
  host:
    description:
      - URL of the API server, instead of the kubeconfig's. E(K8S_AUTH_HOST) gives it too.
    type: str
  api_key:
    description:
      - Bearer token, instead of the kubeconfig's credentials. E(K8S_AUTH_API_KEY) gives it too.
    type: str
  ca_cert:
    description:
      - Path of the CA certificates that the API server's certificate is checked with. E(K8S_AUTH_SSL_CA_CERT) gives it too.
    type: path
  client_cert:
    description:
      - Path of the client's certificate. E(K8S_AUTH_CERT_FILE) gives it too.
    type: path
  client_key:
    description:
      - Path of the client's key. E(K8S_AUTH_KEY_FILE) gives it too.
    type: path
  validate_certs:
    description:
      - Whether the API server's certificate is checked. E(K8S_AUTH_VERIFY_SSL) gives it too.
      - The kubeconfig decides when it is not set.
    type: bool
requirements:
  - urllib3 >= 2.0
  - PyYAML
  - kubernetes, for kubeconfigs with exec plugins, auth providers or several files
attributes:
  check_mode:
    description: Can run in C(check_mode) and report what would change without changing it.
  diff_mode:
    description: Returns what has changed, or would change, when run with C(--diff).
  idempotent:
    description: When run twice with the same options and nothing else changing the cluster, the second run changes nothing.
    support: full
  action_group:
    description: Use C(group/corral.slurm.kubernetes) in C(module_defaults) to set the connection once.
    support: full
    membership:
      - corral.slurm.kubernetes
"""

    # For plugins of other types, which have no attributes. ansible-test reads plain assignments, and takes no expression there.
    PLUGIN: ClassVar[str] = DOCUMENTATION.partition("attributes:\n")[0]

    # For those whose objects are in one namespace.
    NAMESPACE = r"""
options:
  namespace:
    description:
      - Namespace of what the other options name. The kubeconfig's context decides when it is not set.
    type: str
"""

    # For those that ask the API server alone.
    ATTRIBUTES = r"""
attributes:
  check_mode:
    support: full
    details:
      - The requests are sent to the API server with C(dryRun=All).
  diff_mode:
    support: full
    details:
      - Only the fields that this collection owns are shown, values of Secrets as the beginning of their SHA-256.
"""

    # For those that only ask.
    INFO = r"""
attributes:
  check_mode:
    support: full
    details:
      - Changes nothing in any mode.
  diff_mode:
    support: N/A
    details:
      - Changes nothing.
"""
