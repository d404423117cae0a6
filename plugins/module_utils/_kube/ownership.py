# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The owner of an object that a batch names for the first time: another cluster's or another set's object is never written.

Names can meet: set ``n-x`` of cluster ``m`` and set ``x`` of cluster ``m-n`` both want the StatefulSet ``m-n-x``. An apply would take it over silently,
because both have the same field manager. So what a set has not applied yet is read before the first write, and what is another object than the one that it
applied (by its UID) before that is written; an unchanged set has nothing of either kind.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.client import METADATA, METADATA_LIST, Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Conflict, Forbidden, NotFound, Status
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import Item

INSTANCE = "app.kubernetes.io/instance"
MANAGED_BY = "app.kubernetes.io/managed-by"
_CORRAL = "corral"
# From so many objects of a collection on one list of it is asked for.
_WORTH_A_LIST = 3


def refuse_others(client: Client, items: list[Item], *, set_label: str = "", set_id: str = "") -> None:
    """Raise Conflict for the first of ``items`` that exists as another cluster's, or as a member of another set than ``set_id``."""
    collections: dict[str, list[Item]] = {}
    for item in items:
        collections.setdefault(item.ref.collection, []).append(item)
    for group in collections.values():
        live = _listed(client, group) if len(group) >= _WORTH_A_LIST else None
        for item in group:
            labels = _labels(client, item) if live is None else live.get(item.ref.name, {})
            check(item, labels, set_label=set_label, set_id=set_id)
            _check_claim(client, item)


def check(item: Item, live: dict[str, str], *, set_label: str = "", set_id: str = "") -> None:
    """Raise Conflict when the labels of the live object say that it is somebody else's."""
    wanted = (item.body.get("metadata") or {}).get("labels") or {}
    other = another_cluster(live, wanted)
    if other:
        raise _conflict(
            item,
            f"{item.ref} belongs to the cluster {other} (its label {INSTANCE}), and nothing of it was changed; give this cluster, or its part of that name, "
            "another name",
        )
    same = live.get(INSTANCE) and live.get(INSTANCE) == wanted.get(INSTANCE) and live.get(MANAGED_BY) == wanted.get(MANAGED_BY) == _CORRAL
    if set_id and live.get(set_label, set_id) != set_id and not same:
        raise _conflict(
            item,
            f"{item.ref} is a member of another set (its label {set_label} is {live[set_label]}); leave it out of one of the two batches",
        )


def _check_claim(client: Client, item: Item) -> None:
    """Raise Conflict for a volume of a cluster that is kept for another claim: clusters of one name in two namespaces have the same labels."""
    labels = (item.body.get("metadata") or {}).get("labels") or {}
    if labels.get(MANAGED_BY) != _CORRAL or not (item.body.get("spec") or {}).get("claimRef"):
        return
    try:
        live = client.get(item.ref.path, what=f"read {item.ref}").data
    except (NotFound, Forbidden):
        return
    other = another_owner(item.body, live) if (live.get("spec") or {}).get("claimRef") else ""
    if other:
        raise _conflict(
            item, f"{item.ref} was left as it is: {other}; give this cluster another name, or delete that volume if nobody wants it"
        )


def another_cluster(live: dict[str, str], wanted: dict[str, str]) -> str | None:
    """Return the name of the cluster that the live object is of, None where that is the wanted one, or nobody says so."""
    if live.get(MANAGED_BY) != _CORRAL or not live.get(INSTANCE) or not wanted.get(INSTANCE):
        return None
    return None if live[INSTANCE] == wanted[INSTANCE] else live[INSTANCE]


def another_owner(wanted: dict[str, Any], live: dict[str, Any]) -> str:
    """Report whose the live object is where it is not the one that ``wanted`` tells of, "" where it is.

    A name alone is not enough for a delete: volumes have no namespace, and names of clusters and namespaces can meet. So ``wanted`` may have the cluster's
    labels, and ``spec.claimRef``, the claim that a PersistentVolume is kept for.
    """
    cluster = another_cluster(live["metadata"].get("labels") or {}, (wanted.get("metadata") or {}).get("labels") or {})
    if cluster:
        return f"it belongs to the cluster {cluster} (its label {INSTANCE})"
    claim, found = ((one.get("spec") or {}).get("claimRef") or {} for one in (wanted, live))
    if all(found.get(key) == claim[key] for key in ("namespace", "name") if key in claim):
        return ""
    if not found:
        return "it is reserved for no claim"
    return (
        f"it is reserved for the claim {found.get('namespace')}/{found.get('name')}, not for {claim.get('namespace')}/{claim.get('name')}"
    )


def _listed(client: Client, group: list[Item]) -> dict[str, dict[str, str]] | None:
    ref = group[0].ref
    try:
        found = client.items(ref.collection, what=f"list {ref.resource.plural}", query={}, accept=METADATA_LIST)
    except (Forbidden, NotFound):
        return None
    return {str(obj["metadata"]["name"]): obj["metadata"].get("labels") or {} for obj in found}


def _labels(client: Client, item: Item) -> dict[str, str]:
    try:
        metadata = client.request("GET", item.ref.path, what=f"read {item.ref}", accept=METADATA).data["metadata"]
    except (NotFound, Forbidden):
        return {}  # who may not read it cannot tell; the apply says the rest
    return metadata.get("labels") or {}


def _conflict(item: Item, text: str) -> Conflict:
    item.result = "refused"
    return Conflict(f"{text}.", Status(409, "Conflict", text))
