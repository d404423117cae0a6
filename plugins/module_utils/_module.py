# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules share and what needs Ansible: their common options, and their ``main``. Backends know nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.parameters import env_fallback

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

Options = dict[str, Any]
Backend = Callable[..., Options]


def connection_options() -> Options:
    """Return the options that say which API server; doc_fragments/kubernetes.py documents them, and a test keeps the two equal."""
    return {
        name: {**option, "fallback": (env_fallback, [variable])}
        for name, variable, option in (
            ("kubeconfig", "K8S_AUTH_KUBECONFIG", {"type": "str"}),
            ("context", "K8S_AUTH_CONTEXT", {"type": "str"}),
            ("host", "K8S_AUTH_HOST", {"type": "str"}),
            ("api_key", "K8S_AUTH_API_KEY", {"type": "str", "no_log": True}),
            ("ca_cert", "K8S_AUTH_SSL_CA_CERT", {"type": "path"}),
            ("client_cert", "K8S_AUTH_CERT_FILE", {"type": "path"}),
            ("client_key", "K8S_AUTH_KEY_FILE", {"type": "path", "no_log": False}),
            ("validate_certs", "K8S_AUTH_VERIFY_SSL", {"type": "bool"}),
        )
    }


def slurmctld_options() -> Options:
    """Return the options that say which slurmctld, and by which API server it is reached; doc_fragments/slurmctld.py documents them."""
    return {
        **connection_options(),
        "namespace": {"type": "str"},
        "cluster": {"type": "str"},
        "pod": {"type": "str"},
        "container": {"type": "str", "default": "slurmctld"},
    }


def secret_options() -> Options:
    """Return the options of one Secret and the recipes of its keys."""
    return {
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str"},
        "labels": {"type": "dict", "default": {}},
        "data": {"type": "dict", "required": True, "no_log": True},
    }


def association_options() -> Options:
    """Return the options of an association, an account's own or a user's; doc_fragments/association.py documents them."""
    return {
        "limits": {"type": "dict"},
        "fairshare": {"type": "str"},
        "qos": {"type": "list", "elements": "str"},
        "default_qos": {"type": "str"},
    }


def run_module(
    backend: Backend,
    argument_spec: Callable[[], Options],
    constraints: Options | None = None,
    *,
    shown: Callable[[Options], Options] = dict,
) -> None:
    """Run ``backend(params, check=…, diff=…)`` as a module, on the host that the task is delegated to.

    ``constraints`` are AnsibleModule's arguments that restrict combinations of options (``required_if``…). ``shown`` makes of the
    parameters what the result shows of them from three -v on.
    """
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True, **(constraints or {}))
    params = dict(module.params)
    module.params = shown(params)
    try:
        result = backend(params, check=module.check_mode, diff=module._diff)
    except CorralError as error:
        module.fail_json(**{"changed": False, **error.data, "msg": str(error)})
    module.exit_json(**result)
