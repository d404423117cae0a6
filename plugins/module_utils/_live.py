# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The model of a pass: the document, and what the cluster is like when the pass begins. It is read once, and nothing is changed by it."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils import _revisions
from ansible_collections.corral.slurm.plugins.module_utils._cluster import components, resolve, retained
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import api_server, sizes
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import scale
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import connected

Json = dict[str, Any]


def model(document: Any, connection: Json, *, check: bool) -> Json:
    """Return the model of ``document`` with the sizes that are asked for, the nodes that stay because of their jobs, and ``live``:

    - ``note``, ``pending``, ``removed_users``: see _revisions.state; ``api_server``: see api_server.read
    - ``new_node_sets``: the node sets with ``scale`` that have no SlurmNodeSet yet, as model.Scaling.scaled has them
    - ``shrinks``, ``retired``, ``retained_lines``, ``retained``: see scale.decide
    - ``files``: Slurm's configuration as the document alone makes it, None where that is the model's.

    ``connection`` are the options of a module that say which API server. Raises CorralError; for a wrong document before anything is asked.
    """
    found = resolve.model(document).to_dict()
    namespace = str(found["namespace"])
    with connected({**connection, "namespace": namespace, "pod": found["controller"]["pod"]}) as client:
        history = _revisions.state(client, namespace, found["name"], json.loads(found["document"]), found["components"]["base"]["labels"])
        scaled = found["scaling"]["scaled"]
        new_node_sets: list[str] = []
        if scaled:
            asked, new_node_sets = sizes.read(client, namespace, scaled)
            if asked is not None:
                found = resolve.model(document, asked).to_dict()
        egress = found["egress"]
        addresses = api_server.read(client, namespace, f"{found['name']}-base", egress["api_server"], egress["networks"])
        decided = scale.decide(client, scaling(found, connection), check=check)
        requests = client.requests
    retained_config, warnings = decided.pop("retained_config"), addresses.pop("warnings", [])
    live = {
        **history,
        "api_server": addresses,
        "new_node_sets": [one for one in found["scaling"]["scaled"] if one["name"] in new_node_sets],
        **decided,
        "files": found["config"]["files"] if retained_config else None,
    }
    result: Json = {**retained.retain(found, retained_config), "live": live, "requests": requests}
    return {**result, "warnings": warnings} if warnings else result


def without_cluster(document: Any) -> Json:
    """Return the model of ``document`` as ``model`` does for a new cluster, without asking for one. Where the API server is, only the document can say then.

    Raises CorralError for a wrong document.
    """
    found = resolve.model(document, {}).to_dict()
    egress = found["egress"]
    addresses = {"record": "", "within": api_server.within(egress["networks"], egress["api_server"])}
    live = {
        "note": False,
        "pending": False,
        "removed_users": [],
        "api_server": addresses,
        "new_node_sets": found["scaling"]["scaled"],
        "shrinks": False,
        "retired": [],
        "retained_lines": [],
        "files": None,
    }
    return {**found, "live": live}


def scaling(found: Json, connection: Json) -> Json:
    """Return the parameters of scale.decide and scale.order for a model."""
    live = found["live"] or {}
    files = live.get("files") or found["config"]["files"]
    return {
        **connection,
        "namespace": found["namespace"],
        "pod": found["controller"]["pod"],
        "container": "slurmctld",
        **found["scaling"],
        "slurm_conf": files["slurm.conf"],
        "files": files,
        "image": found["images"]["slurm"],
        "maintenance": found["maintenance"]["workers"],
        "users_of_auth": ",".join([*(f"{key}={value}" for key, value in found["labels"].items()), f"{components.LABEL} in (worker,login)"]),
    }


def of_pass(found: Json) -> Json:
    """Return what a pass has seen when it began. Raises CorralError for a model that knows the document alone."""
    live: Json | None = found.get("live")
    if live is None:
        raise CorralError(
            "This model knows the document alone, and not which nodes have jobs; make it by corral.slurm.slurm_cluster_model with live: true, and run again."
        )
    return live
