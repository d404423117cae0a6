# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents by which a cluster was made, as a ConfigMap keeps them: one a key, numbered in the order in which they were applied. Pure.

Each is a document that can be run as it is. They have all defaults, so that one that the API server has filled in is the same as one of a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

RECORDED = "corral.hpc/recorded"
KEEP = 10
# A ConfigMap holds 1 MiB.
MOST = 900_000

Json = dict[str, Any]


@dataclass(frozen=True)
class Revision:
    """One document; ``recorded`` is when a run first had it in this place, such as 2026-01-31T08:00:00Z."""

    number: int
    recorded: str
    document: Json

    @property
    def spec(self) -> Json:
        """What it says of the cluster."""
        found: Json = self.document["spec"]
        return found

    @property
    def image(self) -> str:
        """Image of its Slurm."""
        return str((self.spec.get("images") or {}).get("slurm") or "")

    def to_dict(self) -> Json:
        """Return what a list of revisions says of each."""
        sets = {str(one.get("name")): one.get("replicas", 1) for one in self.spec.get("nodeSets") or ()}
        return {"revision": self.number, "recorded": self.recorded, "image": self.image, "node_sets": sets}


def name(cluster: str) -> str:
    """Return the name of the ConfigMap."""
    return f"{cluster}-controller-revisions"


def parse(data: Mapping[str, str]) -> list[Revision]:
    """Return the revisions, the oldest first. What is none was not written by this collection, and is left out."""
    found = []
    for key, text in data.items():
        try:
            document = json.loads(text)
            recorded = str(((document.get("metadata") or {}).get("annotations") or {}).get(RECORDED, ""))
            if key.isdecimal() and isinstance(document["spec"], dict):
                found.append(Revision(int(key), recorded, document))
        except (ValueError, AttributeError, KeyError, TypeError):
            continue
    return sorted(found, key=lambda one: one.number)


def recorded(known: list[Revision], document: Json, now: str) -> list[Revision]:
    """Return the revisions with this document as the newest: ``known`` itself where it is. One that comes again has a new number and no old one."""
    if known and known[-1].spec == document["spec"]:
        return known
    number = known[-1].number + 1 if known else 1
    metadata = {**document["metadata"], "annotations": {RECORDED: now}}
    newest = Revision(number, now, {**document, "metadata": metadata})
    kept = [*(one for one in known if one.spec != newest.spec), newest][-KEEP:]
    while len(kept) > 1 and sum(map(len, data(kept).values())) > MOST:
        del kept[0]
    return kept


def data(revisions: Iterable[Revision]) -> dict[str, str]:
    """Return what the ConfigMap holds."""
    return {str(one.number): json.dumps(one.document) for one in revisions}


def chosen(known: list[Revision], number: int | None, cluster: str) -> Revision:
    """Return the revision of this number, or that before the newest. Raises CorralError where there is none."""
    numbers = ", ".join(str(one.number) for one in known) or "none"
    if number is None:
        if len(known) < 2:
            raise CorralError(
                f"There is no document of {cluster} before the one that it has (kept: {numbers}), so nothing was changed; run corral.slurm.site with another."
            )
        return known[-2]
    for one in known:
        if one.number == number:
            return one
    raise CorralError(f"No document of {cluster} with the number {number} is kept, so nothing was changed; there are {numbers}.")
