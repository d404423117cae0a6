# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Secrets of a cluster are rotated, and how the pods that have them are brought to use the new keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import schema
from ansible_collections.corral.slurm.plugins.module_utils._cluster.model import Labels, Model
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError, quoted

Json = dict[str, Any]

_SCRIPT = "/usr/local/lib/corral/keys.sh"
# In the order in which they are rotated: first those that end nothing. munge before all that restarts a pod, which would have the new key at once.
NAMES = ("munge", "slurm", "host_keys", "worker_host_keys", "database", "jwt")

# Slurm's credentials of jobs are valid for 120 s and its others for 60 (cred_expire and ttl of AuthInfo, which corral does not set). Clocks may differ.
_CREDENTIALS = 150


def rows(model: Model, names: Iterable[str]) -> list[Json]:
    """Return a row for each Secret, whose fields are options of k8s_rotate, and its ``name``. Raises CorralError for what the cluster does not have."""
    wanted = {str(name).strip() for name in names} - {""}
    unknown = sorted(wanted - set(NAMES))
    if unknown:
        raise CorralError(f"rotate names {quoted(unknown[0])}; it can be {', '.join(NAMES)}. Nothing was changed; correct the name.")
    return [_row(model, name) for name in NAMES if name in wanted]


def _row(model: Model, name: str) -> Json:
    if name in schema.AUTH:
        if model.auth.type != name:
            raise CorralError(
                f"rotate names {name}, but spec.slurm.auth is {model.auth.type}, so the cluster has no such key. Nothing was changed; name "
                f"{model.auth.type}."
            )
        everywhere = {key: model.labels[key] for key in ("app.kubernetes.io/name", "app.kubernetes.io/instance")}
        if name == "munge":
            return _informed(model, name, model.auth.secret, everywhere, ["munged"])
        # slurmctld last, because it has the others begin anew, and a daemon must not be informed then.
        containers = ["sack", "sackd", "slurmd", "slurmdbd", "slurmctld"]
        return {**_informed(model, name, model.auth.secret, everywhere, containers), "overlap": _CREDENTIALS}
    if name == "host_keys":
        login = model.components["login"]
        return _informed(model, name, model.login.host_keys_secret, login.selector, [login.daemon])
    if name == "worker_host_keys":
        if model.workers.ssh == "Never":
            raise CorralError(
                "rotate names worker_host_keys, but spec.workers.ssh is Never, so workers have none. Nothing was changed; leave it out."
            )
        worker = model.components["worker"]
        return _informed(model, name, model.workers.host_keys_secret, worker.selector, [worker.daemon], "host_keys")
    if name == "database":
        if model.accounting is None:
            raise CorralError("rotate names database, but the document has no spec.accounting. Nothing was changed; leave it out.")
        if model.accounting.database is None:
            raise CorralError(
                f"rotate names database, but the database of spec.accounting.database.external is not the cluster's own: change the password there and in the "
                f"Secret {model.accounting.password_secret}, then delete slurmdbd's pod. Nothing was changed."
            )
        # The server sets the password when it starts.
        return _restarted(model, name, model.accounting.password_secret, ["database", "accounting"])
    if model.rest is None:
        raise CorralError("rotate names jwt, but the document has no spec.rest. Nothing was changed; leave it out.")
    return _restarted(model, name, model.rest.jwt_secret, ["accounting", "controller"] if model.accounting else ["controller"])


def _informed(model: Model, name: str, secret: str, selector: Labels, containers: list[str], what: str = "") -> Json:
    """``what`` is the script's word for the keys, where it is not the name."""
    return {
        **_restarted(model, name, secret, []),
        "selector": _selector(selector),
        "containers": containers,
        "command": [_SCRIPT, what or name],
    }


def _restarted(model: Model, name: str, secret: str, components: list[str]) -> Json:
    return {
        "name": name,
        "secret": next(one for one in model.secrets if one["name"] == secret),
        "restart": [_selector(model.components[component].selector) for component in components],
    }


def _selector(labels: Labels) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())
