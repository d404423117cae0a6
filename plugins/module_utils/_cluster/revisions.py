# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents by which a cluster was made, as a ConfigMap keeps them: one a key, numbered in the order in which they were applied. Pure.

Each is a document that can be run as it is. They have the schema's defaults, so that one that the API server has filled in is the same as one of a file.
That of a run that goes, or has failed, is kept beside them until a run comes to its end: it is not one to go back to, but one to go back from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

RECORDED = "corral.hpc/recorded"
TRIED = "tried"
KEEP = 10
# A ConfigMap holds 1 MiB.
MOST = 900_000

Json = dict[str, Any]


@dataclass(frozen=True)
class Revision:
    """One document; ``recorded`` is when a run of it came to its end, such as 2026-01-31T08:00:00Z."""

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


@dataclass(frozen=True)
class History:
    """Documents by which runs came to their end, the oldest first, and one of a run that has not come to its end, if there is such."""

    known: tuple[Revision, ...] = ()
    tried: Json | None = None

    @property
    def newest(self) -> Json | None:
        """The spec of the newest of them."""
        return self.known[-1].spec if self.known else None

    def is_pending(self, document: Json) -> bool:
        """True when a run of this document has something to note at its end."""
        return self.tried is not None or self.newest != document["spec"]

    def removed_users(self, document: Json) -> list[str]:
        """Return the users that the cluster has, or that a run may have begun to make, and that this document leaves out."""
        had = {str(user["name"]) for spec in (self.newest, (self.tried or {}).get("spec")) for user in (spec or {}).get("users") or ()}
        return sorted(had - {str(user["name"]) for user in document["spec"].get("users") or ()})

    def trying(self, document: Json) -> History:
        """Return what is to be kept while a run of this document goes: this very history where there is nothing to note.

        Older documents make room for it; where it and the newest do not fit together, the newest goes, too, for the run could not begin.
        """
        if document["spec"] in (self.newest, (self.tried or {}).get("spec")):
            return self
        return History(self.known, document)._that_fits(least=0)

    def done(self, document: Json, now: str) -> History:
        """Return it with this document as the newest. One that comes again has a new number and no old one."""
        if self.newest == document["spec"]:
            return self if self.tried is None else History(self.known)
        number = self.known[-1].number + 1 if self.known else 1
        newest = Revision(number, now, {**document, "metadata": {**document["metadata"], "annotations": {RECORDED: now}}})
        kept = [*(one for one in self.known if one.spec != newest.spec), newest][-KEEP:]
        return History(tuple(kept))._that_fits(least=1)

    def _that_fits(self, least: int) -> History:
        """Return it without as many of the oldest as it takes to fit into a ConfigMap, but with ``least`` of them."""
        left = self.size - MOST
        known = list(self.known)
        while left > 0 and len(known) > least:
            left -= _size(known.pop(0).document)
        return History(tuple(known), self.tried)

    @property
    def size(self) -> int:
        """Return how many bytes of the ConfigMap it takes."""
        return sum(_size(one) for one in (*(one.document for one in self.known), self.tried) if one is not None)

    def data(self) -> dict[str, str]:
        """Return what the ConfigMap holds."""
        texts = {str(one.number): json.dumps(one.document) for one in self.known}
        return texts if self.tried is None else {**texts, TRIED: json.dumps(self.tried)}

    def chosen(self, number: int | None, cluster: str) -> Revision:
        """Return the document of this number; else the newest where a run of another has not come to its end, or the one before it. Raises CorralError."""
        numbers = ", ".join(str(one.number) for one in self.known) or "none"
        if number is not None:
            for one in self.known:
                if one.number == number:
                    return one
            raise CorralError(f"No document of {cluster} with the number {number} is kept, so nothing was changed; there are {numbers}.")
        back = 1 if self.tried is not None and self.tried["spec"] != self.newest else 2
        if len(self.known) < back:
            raise CorralError(
                f"There is no document of {cluster} before the one that it has (kept: {numbers}), so nothing was changed; run corral.slurm.site with another."
            )
        return self.known[-back]


def _size(document: Json) -> int:
    return len(json.dumps(document))


def name(cluster: str) -> str:
    """Return the name of the ConfigMap."""
    return f"{cluster}-base-revisions"


def parse(data: Mapping[str, str]) -> History:
    """Read a ConfigMap. What is no document was not written by this collection, and is left out."""
    found = []
    for key, text in data.items():
        try:
            document = json.loads(text)
            recorded = str(((document.get("metadata") or {}).get("annotations") or {}).get(RECORDED, ""))
            if (key.isdecimal() or key == TRIED) and isinstance(document["spec"], dict):
                found.append((key, recorded, document))
        except (ValueError, AttributeError, KeyError, TypeError):
            continue
    known = (Revision(int(key), recorded, document) for key, recorded, document in found if key != TRIED)
    tried = next((document for key, _recorded, document in found if key == TRIED), None)
    return History(tuple(sorted(known, key=lambda one: one.number)), tried)
