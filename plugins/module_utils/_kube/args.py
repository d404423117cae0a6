# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection options; doc_fragments/kubernetes.py documents them, and a test keeps the two equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "kubeconfig": ({"type": "str"}, "K8S_AUTH_KUBECONFIG"),
    "context": ({"type": "str"}, "K8S_AUTH_CONTEXT"),
    "host": ({"type": "str"}, "K8S_AUTH_HOST"),
    "api_key": ({"type": "str", "no_log": True}, "K8S_AUTH_API_KEY"),
    "ca_cert": ({"type": "path"}, "K8S_AUTH_SSL_CA_CERT"),
    "client_cert": ({"type": "path"}, "K8S_AUTH_CERT_FILE"),
    "client_key": ({"type": "path", "no_log": False}, "K8S_AUTH_KEY_FILE"),
    "validate_certs": ({"type": "bool"}, "K8S_AUTH_VERIFY_SSL"),
}


def connection_options(env_fallback: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """Return the options as part of an argument spec; ``env_fallback`` is Ansible's, which this layer does not import."""
    return {name: {**option, "fallback": (env_fallback, [variable])} for name, (option, variable) in _OPTIONS.items()}
