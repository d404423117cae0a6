# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster may have left, whatever its document says by now: taking it away never waits for somebody to correct a document."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve, validate
from ansible_collections.corral.slurm.plugins.module_utils._cluster.model import Model
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

Json = dict[str, Any]

_CLAIM = {"storageClassName": "none", "size": "1Gi"}
# The least that a spec says. Its claims have the names of the cluster's own, so nobody else's are among them.
_LEAST: Json = {
    "images": {"slurm": "none"},
    "controller": {"stateVolume": _CLAIM},
    "jail": {"volume": _CLAIM, "populate": {"image": "none"}, "subMounts": []},
    "jails": [],
}


def model(document: Any) -> Model:
    """Return the model by whose ``teardown`` a cluster is taken away.

    Of a document with errors, those parts count that say where data lies and are right by themselves. Raises InvalidDocument for one that does not
    even name a cluster. A defect of the check, too, costs no more than the part that it is met in.
    """
    try:
        return resolve.model(document)
    except (CorralError, RecursionError, MemoryError):
        validate.check_head(document)
    spec = document.get("spec")
    kept = {key: document[key] for key in ("apiVersion", "kind", "metadata")} | {"spec": copy.deepcopy(_LEAST)}
    for changed in _parts(spec if isinstance(spec, dict) else {}, kept):
        try:
            resolve.model(changed)
        except (CorralError, RecursionError, MemoryError):
            continue
        kept["spec"] = changed["spec"]
    return resolve.model(kept)


def _parts(spec: Json, kept: Json) -> Iterator[Json]:
    """Yield the document that is kept so far with one part more each time."""

    def changed(**parts: Any) -> Json:
        return {**kept, "spec": {**kept["spec"], **parts}}

    controller, jail = _mapping(spec, "controller"), _mapping(spec, "jail")
    yield changed(controller={"stateVolume": controller.get("stateVolume")})
    yield changed(jail={**kept["spec"]["jail"], "volume": jail.get("volume"), "shared": jail.get("shared")})
    for mount in _list(jail, "subMounts"):
        if isinstance(mount, dict):
            mounts = [*kept["spec"]["jail"]["subMounts"], {key: value for key, value in mount.items() if key != "nodeSets"}]
            yield changed(jail={**kept["spec"]["jail"], "subMounts": mounts})
    for other in _list(spec, "jails"):
        if isinstance(other, dict):
            found = {"name": other.get("name"), "volume": other.get("volume"), "populate": {"image": "none"}}
            yield changed(jails=[*kept["spec"]["jails"], found])
    yield changed(sssd=spec.get("sssd"))


def _mapping(spec: Json, key: str) -> Json:
    found = spec.get(key)
    return found if isinstance(found, dict) else {}


def _list(spec: Json, key: str) -> list[Any]:
    found = spec.get(key)
    # More than the schema allows of any of these.
    return found[:64] if isinstance(found, list) else []
