# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the API server that are known before they are asked for.

A server-side apply of the same fields by the same manager, to an object that has the version which the last such apply was answered with, changes
nothing, and is answered with the object as it is. So a run that is made again (replay.py) reads all objects first, a collection by one list and
several at once, and sends the applies of those only that have another version. What it read before is read in the same way. An answer is used once,
and none any more when something was written.

Like replay.py this is imported before Ansible has set up how collections are found.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

Json = dict[str, Any]

_INSTANCE = "app.kubernetes.io/instance"
_THREADS = 4


class Known:
    """Notes what a run asks, and in a later run, after ``look``, what of it need not be asked again."""

    def __init__(self, server: str = "", applied: Json | None = None, read: list[str] | None = None) -> None:
        self._server = server
        # By where the apply went: the digest of what was applied, and uid, version and instance of the object in the answer.
        self._applied: dict[str, list[str]] = applied or {}
        self._read: list[str] = read or []
        self._answers: dict[str, Json] = {}
        self._objects: dict[str, Json] = {}
        self.requests = 0
        self.changed = False

    def to_json(self) -> Json:
        """Return it as it is written down."""
        return {"server": self._server, "applied": self._applied, "read": self._read}

    def note(self, server: str, method: str, where: str, body: Any, response: Any) -> None:
        """Take the answer to a request that was sent."""
        self._server = self._server or server
        if server != self._server:
            return
        if method == "GET":
            if where not in self._read and "resourceVersion=" not in where and "continue=" not in where:  # these are of this very moment
                self._read.append(where)
            return
        metadata = response.data.get("metadata") or {}
        if method == "PATCH" and response.code == 200:
            labels = metadata.get("labels") or {}
            self._applied[where] = [_digest(body), *_version(response.data), str(labels.get(_INSTANCE, ""))]
            self.changed = True
            if _version(response.data) == _version(self._objects.get(_path(where)) or {}):
                return  # it wrote nothing
        self._answers, self._objects = {}, {}

    def look(self, client: Any) -> None:
        """Read everything that the run had to do with. What can not be read is asked for when its turn comes."""
        lists = self._lists()
        wanted = {f"{collection}?labelSelector={quote(f'{_INSTANCE}={name}', safe='')}": collection for collection, name in lists.items()}
        for where in self._applied:
            if _path(where).rpartition("/")[0] not in lists:
                wanted[_path(where)] = ""
        for where in self._read:
            if not _named(where, lists):
                wanted[where] = ""
        with ThreadPoolExecutor(_THREADS) as pool:
            found = dict(zip(wanted, pool.map(lambda where: _get(client, where), wanted), strict=True))
        self.requests += len(wanted)
        for where, collection in wanted.items():
            data = found[where]
            if data is None:
                continue
            if collection:
                items = {f"{collection}/{one['metadata']['name']}": one for one in data.get("items") or ()}
                self._objects.update(items)
                for name, one in items.items():
                    listed = {"metadata": data.get("metadata") or {}, "items": [one]}
                    self._answers[f"{collection}?fieldSelector=metadata.name%3D{name.rpartition('/')[2]}&limit=1"] = listed
            else:
                self._answers[where] = data
                self._objects[where] = data

    def recall(self, server: str, method: str, where: str, body: Any) -> Json | None:
        """Return the answer to a request that need not be sent; None for one that is to be."""
        if server != self._server:
            return None
        if method == "GET":
            return self._answers.pop(where, None)
        if method == "PATCH" and where in self._applied:
            digest, uid, version, _instance = self._applied[where]
            found = self._objects.get(_path(where))
            if found is not None and _version(found) == [uid, version] and _digest(body) == digest:
                return found
        return None

    def _lists(self) -> dict[str, str]:
        """Return the collections that are read by one list each, with the label of what they hold of the cluster."""
        counts: Counter[tuple[str, str]] = Counter()
        for where, (*_version_of_it, instance) in self._applied.items():
            counts[_path(where).rpartition("/")[0], instance] += 1
        return {
            collection: instance
            for (collection, instance), count in counts.items()
            if count > 1 and instance and "/namespaces/" in collection
        }


def _named(where: str, lists: dict[str, str]) -> bool:
    """True for the question for one object of a collection that is listed anyway."""
    collection, _question, query = where.partition("?")
    return collection in lists and query.startswith("fieldSelector=metadata.name%3D") and query.endswith("&limit=1")


def _get(client: Any, where: str) -> Json | None:
    from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

    try:
        data: Json = client.get(where, what=f"read {where}").data
    except CorralError:
        return None
    return data


def _path(where: str) -> str:
    return where.partition("?")[0]


def _version(found: Json) -> list[str]:
    metadata = found.get("metadata") or {}
    return [str(metadata.get("uid", "")), str(metadata.get("resourceVersion", ""))]


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, default=str).encode()).hexdigest()[:32]
