# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the API server that are known before they are asked for.

A server-side apply of the same fields by the same manager, to an object that has the version which the last such apply was answered with, changes
nothing, and is answered with the object as it is. So a run that is made again (replay.py) reads all objects first, a collection by one list and
several at once, and sends the applies of those only that have another version. What it read before is read in the same way, or found in these lists.
An answer is used once, and none any more when something was written.

Like replay.py this is imported before Ansible has set up how collections are found.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl, quote

Json = dict[str, Any]

_INSTANCE = "app.kubernetes.io/instance"
_THREADS = 4


class Known:
    """Notes what a run asks, and in a later run, after ``look``, what of it need not be asked again."""

    def __init__(self, server: str = "", applied: Json | None = None, read: dict[str, str] | None = None) -> None:
        self._server = server
        # By where the apply went: the digest of what was applied, and uid, version and instance of the object in the answer.
        self._applied: dict[str, list[str]] = applied or {}
        # What was read, with the instance of the one object in the answer.
        self._read: dict[str, str] = read or {}
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
        instance = _labels(response.data).get(_INSTANCE, "")
        if method == "GET":
            if "resourceVersion=" not in where and "continue=" not in where:  # these are of this very moment
                self._read.setdefault(where, instance)
            return
        if method == "PATCH" and response.code == 200:
            self._applied[where] = [_digest(body), *_version(response.data), instance]
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
        rest = {where for where, instance in self._read.items() if not _listed(where, instance, lists)}
        wanted.update(dict.fromkeys(sorted(rest), ""))
        with ThreadPoolExecutor(_THREADS) as pool:
            found = dict(zip(wanted, pool.map(lambda where: _get(client, where), wanted), strict=True))
        self.requests += len(wanted)
        for where, collection in wanted.items():
            data = found[where]
            if data is None:
                continue
            if collection:
                self._objects.update({f"{collection}/{one['metadata']['name']}": one for one in data.get("items") or ()})
                for question in self._read.keys() - rest:
                    answer = _found(question, collection, data)
                    if answer is not None:
                        self._answers[question] = answer
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


def _listed(where: str, instance: str, lists: dict[str, str]) -> bool:
    """True for a question that lists answer: for an object of a collection, by its name or its place, or for those with some labels more."""
    collection, _question, query = where.partition("?")
    if not query:
        return bool(instance) and lists.get(collection.rpartition("/")[0]) == instance
    if collection not in lists:
        return False
    wanted = dict(parse_qsl(query))
    return _name(wanted) != "" or (_equal(wanted) or {}).get(_INSTANCE) == lists[collection]


def _found(where: str, collection: str, data: Json) -> Json | None:
    """Return the answer to such a question that a list has; None where it is about another collection, or its one object is not there."""
    path, _question, query = where.partition("?")
    items = data.get("items") or []
    if path == collection:
        wanted = dict(parse_qsl(query))
        name, labels = _name(wanted), _equal(wanted) or {}
        found = [one for one in items if (one["metadata"]["name"] == name if name else labels.items() <= _labels(one).items())]
        return None if name and not found else {**data, "items": found}
    kind = {"apiVersion": data.get("apiVersion"), "kind": str(data.get("kind", "")).removesuffix("List")}
    return next(({**kind, **one} for one in items if f"{collection}/{one['metadata']['name']}" == path), None)


def _name(query: dict[str, str]) -> str:
    """Return which one object is asked for; "" for another question."""
    field, _equals, name = query.get("fieldSelector", "").partition("=")
    return name if set(query) == {"fieldSelector", "limit"} and field == "metadata.name" else ""


def _equal(query: dict[str, str]) -> Json | None:
    """Return the labels that are asked for; None where that is not the whole question."""
    terms = [term.partition("=") for term in query.get("labelSelector", "").split(",")]
    whole = query.keys() <= {"labelSelector", "limit"} and all(
        equals and key.strip("!") == key and value[:1] != "=" for key, equals, value in terms
    )
    return {key: value for key, _equals, value in terms} if whole else None


def _labels(found: Json) -> dict[str, str]:
    return (found.get("metadata") or {}).get("labels") or {}


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
