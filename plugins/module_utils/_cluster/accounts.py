# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accounts of a document as files of ConfigMaps: ``users.json``, or where one ConfigMap cannot hold it, its parts. Pure.

Then ``users.json`` is the list of their digests, so it still differs wherever the accounts do, and nobody can take it for a document without users. The
parts lie beside it as ``users.json.0``, ``users.json.1`` and so on, the first in the same ConfigMap. Pods mount all ConfigMaps that there can be, so that
more users change no pod. The reader is images/slurm/corral_users/parts.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

FILE = "users.json"
# A ConfigMap holds 1 MiB.
MOST = 900_000
# The largest document has users for two and a half: one list of groups takes twice the room here.
PARTS = 3


def names(cluster: str) -> list[str]:
    """Return the names of all ConfigMaps that there can be; without the first there is no other."""
    first = f"{cluster}-jail-users"
    return [first, *(f"{first}-{number}" for number in range(1, PARTS))]


def maps(cluster: str, text: str) -> list[Json]:
    """Return the ConfigMaps that hold ``text``, each with its name and its data."""
    if len(text.encode()) <= MOST:
        return [{"name": names(cluster)[0], "data": {FILE: text}}]
    parts = list(_parts(text.encode()))
    digests = [hashlib.sha256(part.encode()).hexdigest() for part in parts]
    found: list[Json] = [{"name": names(cluster)[number], "data": {f"{FILE}.{number}": part}} for number, part in enumerate(parts)]
    found[0]["data"] = {FILE: json.dumps(digests, indent=1) + "\n", **found[0]["data"]}
    return found


def _parts(data: bytes) -> Iterator[str]:
    """Cut where a character ends."""
    start = 0
    while start < len(data):
        end = start + MOST
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        yield data[start:end].decode()
        start = end


def volume(cluster: str) -> Json:
    """Return the volume by which pods see the files."""
    first, *others = names(cluster)
    sources: list[Json] = [{"configMap": {"name": first}}, *({"configMap": {"name": name, "optional": True}} for name in others)]
    return {"name": "users", "projected": {"sources": sources}}


def text(found: list[Json]) -> str:
    """Return what ``maps`` has cut into parts."""
    data = {key: part for one in found for key, part in one["data"].items()}
    parts = [data[f"{FILE}.{number}"] for number in range(PARTS) if f"{FILE}.{number}" in data]
    return "".join(parts) if parts else data[FILE]
