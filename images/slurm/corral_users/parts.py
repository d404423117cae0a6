# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""The document of users as its files: one, or where a ConfigMap cannot hold it, several.

Then the first is the list of their digests, and the parts lie beside it as ``users.json.0``, ``users.json.1``…; the document is one after the other.
Each ConfigMap comes by itself, so for a while there may be parts of different versions, or none. What is not whole is never taken: a missing part would
look like users who have left. The writer is plugins/module_utils/_cluster/accounts.py.
"""

from __future__ import annotations

import hashlib
import json
import time

from corral_users import UsersError

# The kubelet replaces the files by a rename, so reading the first is a few bytes of the page cache.
PAUSE = 1.0
# Kubelets check ConfigMaps every minute or so.
PATIENCE = 150.0


class Incomplete(UsersError):
    """Parts are missing, or of another version than the first file."""


def read(path: str) -> str:
    """Text of the first file."""
    with open(path, encoding="utf-8") as file:
        return file.read()


def whole(path: str, first: str) -> str:
    """The document whose first file says ``first``. Raises Incomplete."""
    digests = _digests(first)
    if digests is None:
        return first
    found = [_part(f"{path}.{number}", digest, f"part {number + 1} of {len(digests)}") for number, digest in enumerate(digests)]
    return b"".join(found).decode("utf-8")


def settled(path: str, patience: float = PATIENCE) -> str:
    """The document as soon as it is whole. Raises Incomplete when it still is not after ``patience`` seconds."""
    until = time.monotonic() + patience
    while True:
        try:
            return whole(path, read(path))
        except Incomplete:
            if time.monotonic() > until:
                raise
        time.sleep(PAUSE)


def _digests(first: str) -> list[str] | None:
    """Those of the parts; None where the file is the document itself."""
    try:
        found = json.loads(first)
    except ValueError:
        return None  # errors of a document are reported when it is read
    return [str(one) for one in found] if isinstance(found, list) and found else None


def _part(path: str, digest: str, which: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise Incomplete(f"{which} of the users is missing: run again if its ConfigMap is") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise Incomplete(f"{which} of the users is of another version than the first file: run again if it stays so")
    return data
