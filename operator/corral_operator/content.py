# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The revision of the content that runs: the collection's version, and a digest of its files and of the variables of all runs."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster.version import COLLECTION_VERSION

_PARTS = ("plugins", "roles", "playbooks")


def revision(variables: Mapping[str, Any]) -> str:
    """Return the version and the digest; ``variables`` are passed to every run."""
    root = Path(importlib.import_module("ansible_collections.corral.slurm").__path__[0])
    digest = hashlib.sha256()
    for part in _PARTS:
        for path in sorted((root / part).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(f"{path.relative_to(root)}\0".encode())
                digest.update(path.read_bytes())
    if variables:
        digest.update(json.dumps(variables, sort_keys=True).encode())
    return f"{COLLECTION_VERSION}-{digest.hexdigest()[:12]}"
