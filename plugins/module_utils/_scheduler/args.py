# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that say which slurmctld; doc_fragments/slurmctld.py documents them, and a test keeps the two equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.args import connection_options


def slurmctld_options(env_fallback: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """Return the options as part of an argument spec, those of the connection among them; ``env_fallback`` is Ansible's."""
    return {
        **connection_options(env_fallback),
        "namespace": {"type": "str"},
        "cluster": {"type": "str"},
        "pod": {"type": "str"},
        "container": {"type": "str", "default": "slurmctld"},
    }


_POLICIES = ["Wait", "Requeue", "Cancel"]


def draining_options() -> dict[str, dict[str, Any]]:
    """Return the options that say what becomes of jobs on nodes that shall be free."""
    rule = {
        "partitions": {"type": "list", "elements": "str", "default": []},
        "qos": {"type": "list", "elements": "str", "default": []},
        "policy": {"type": "str", "choices": _POLICIES, "required": True},
        "deadline": {"type": "int", "default": 3600},
    }
    return {
        "policy": {"type": "str", "choices": _POLICIES, "default": "Wait"},
        "deadline": {"type": "int", "default": 3600},
        "jobs": {"type": "list", "elements": "dict", "default": [], "options": rule},
    }
