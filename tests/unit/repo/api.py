# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server that has few objects and takes every one that is tried: enough for a playbook in check mode, which asks it by HTTP as it would another."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from ... import server


class _Handler(server.Handler):
    server: Tried

    def do_GET(self) -> None:
        words = urlsplit(self.path).path.strip("/").split("/")
        words = words[2 if words[0] == "api" else 3 :]
        words = words[2:] if words[:1] == ["namespaces"] and len(words) > 2 else words
        if not words:
            self.answer(200, {"apiVersion": "v1", "kind": "APIResourceList", "resources": self.server.own})
        elif len(words) == 1 and words[0] not in self.server.lacks:
            (wanted,) = parse_qs(urlsplit(self.path).query).get("fieldSelector", [""])
            found = [one for one in self.server.items.get(words[0], ()) if wanted in ("", f"metadata.name={one['metadata']['name']}")]
            self.answer(200, {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": found})
        elif named := [one for one in self.server.items.get(words[0], ()) if one["metadata"]["name"] == words[-1]]:
            self.answer(200, named[0])
        else:
            self.answer(404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": f"{words[-1]} not found"})

    def do_PATCH(self) -> None:
        body = yaml.safe_load(self.body())
        tried = parse_qs(urlsplit(self.path).query).get("dryRun") == ["All"]
        if not tried:
            self.server.written.append(f"{self.command} {urlsplit(self.path).path}")
        else:
            self.server.tried.append(copy.deepcopy(body))
        name = (body.get("metadata") or {}).get("name")
        if tried and (body.get("kind"), name) in self.server.refused:
            code, message = self.server.refused[body["kind"], name]
            self.answer(code, {"kind": "Status", "code": code, "reason": "Invalid" if code == 422 else "BadRequest", "message": message})
            return
        body.setdefault("metadata", {}).update(uid="1", resourceVersion="1", creationTimestamp="2026-01-01T00:00:00Z")
        self.answer(201, body)

    do_POST = do_PUT = do_PATCH

    def do_DELETE(self) -> None:
        self.server.written.append(f"{self.command} {self.path}")
        self.answer(404, {"kind": "Status", "code": 404, "reason": "NotFound"})


class Tried(server.Server):
    def __init__(self, lacks: Collection[str], items: Mapping[str, list[dict[str, Any]]]) -> None:
        super().__init__(_Handler)
        self.lacks, self.items = lacks, items
        kinds = ("SlurmCluster", "SlurmNodeSet", *(("Certificate",) if "certificates" in items else ()))
        named = [{"name": f"{kind.lower()}s", "kind": kind, "namespaced": True} for kind in kinds]
        self.own = [one for one in named if one["name"] not in lacks]
        self.written: list[str] = []
        # The bodies of dry runs.
        self.tried: list[dict[str, Any]] = []
        # What is answered, by code and message, to the dry run of an object of this kind and name.
        self.refused: dict[tuple[str, str], tuple[int, str]] = {}


@contextmanager
def serving(lacks: Collection[str] = (), **items: list[dict[str, Any]]) -> Iterator[Tried]:
    """``lacks`` are the plurals of kinds that nobody has defined; ``items`` by plural are objects that are there."""
    with server.serving(Tried(lacks, items)) as started:
        yield started
