# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents by which a cluster was made, as a ConfigMap keeps them, numbered in the order in which they were applied. Pure.

Each is a document that can be run as it is. They have the schema's defaults, so that one that the API server has filled in is the same as one of a file.
That of a run that goes, or has failed, is kept beside them until a run comes to its end: it is not one to go back to, but one to go back from.

They are packed together (xz), since one is much like the next: several large documents take hardly more room than one.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

try:
    import lzma
except ImportError:  # Python can be built without it
    lzma = None  # type: ignore[assignment]

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

RECORDED = "corral.hpc/recorded"
TRIED = "tried"
KEEP = 10
# The binary data of the ConfigMap: JSON, packed.
KEY = "documents"
# A ConfigMap holds 1 MiB. Text that can hardly be packed takes 92 % of its room, so one of the largest documents always fits.
MOST = 1_000_000
# Whoever may write the ConfigMap could have few bytes stand for gigabytes.
MOST_TEXT = 5_000_000
# For reading; ours take the size of their text.
_MEMORY = 32 << 20

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
        found = self
        while len(found.known) > least and not found._fits:
            found = History(found.known[1:], found.tried)
        return found

    @property
    def _fits(self) -> bool:
        size = len(self._text)
        return size <= MOST or (size <= MOST_TEXT and len(self.packed) <= MOST)

    @functools.cached_property
    def _text(self) -> bytes:
        documents = {str(one.number): one.document for one in self.known}
        return text(documents if self.tried is None else {**documents, TRIED: self.tried}).encode()

    @functools.cached_property
    def packed(self) -> bytes:
        """Return the documents as the ConfigMap holds them. Raises CorralError."""
        # The quick preset, for all that there is to find is that documents are alike; with all of them within its reach.
        options = {"id": _lzma().FILTER_LZMA2, "preset": 1, "dict_size": max(4096, len(self._text))}
        return bytes(_lzma().compress(self._text, filters=[options]))

    def data(self) -> dict[str, str]:
        """Return the binary data of the ConfigMap. Raises CorralError."""
        return {KEY: base64.b64encode(self.packed).decode()}

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


def text(value: Any) -> str:
    """Return it as JSON as the API server keeps it: a document's size is that of this."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _lzma() -> Any:
    if lzma is None:
        raise CorralError(
            "The Python that runs this task was built without its module lzma, which compresses a cluster's documents; use one that has it: "
            "all distributions' have, and those of pyenv when liblzma's headers are there (liblzma-dev, xz-devel)."
        )
    return lzma


def name(cluster: str) -> str:
    """Return the name of the ConfigMap."""
    return f"{cluster}-base-revisions"


def parse(data: Mapping[str, str]) -> History:
    """Read the binary data of a ConfigMap. What is no document was not written by this collection, and is left out. Raises CorralError."""
    known: list[Revision] = []
    tried: Json | None = None
    for key, document in _unpacked(data.get(KEY, "")):
        try:
            recorded = str(((document.get("metadata") or {}).get("annotations") or {}).get(RECORDED, ""))
            if not isinstance(document["spec"], dict):
                continue
            if key == TRIED:
                tried = document
            elif key.isdecimal():
                known.append(Revision(int(key), recorded, document))
        except (AttributeError, KeyError, TypeError, ValueError):
            continue
    return History(tuple(sorted(known, key=lambda one: one.number)), tried)


def _unpacked(encoded: str) -> Iterable[tuple[str, Any]]:
    """Return the documents of the packed text; none where it is damaged, or more than is ever packed."""
    if not encoded:
        return ()
    try:
        reader = _lzma().LZMADecompressor(memlimit=_MEMORY)
        found = reader.decompress(base64.b64decode(encoded), max_length=MOST_TEXT + 1)
        return tuple(json.loads(found).items()) if reader.eof and len(found) <= MOST_TEXT else ()
    except (_lzma().LZMAError, ValueError, AttributeError, RecursionError):
        return ()
