# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods have to be woken for a ConfigMap that changed; tests/integration/kube/test_refresh.py wakes real ones."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import refresh

TEXT = "text"
HASH = hashlib.sha256(TEXT.encode()).hexdigest()[:16]
MAP: dict[str, Any] = {
    "metadata": {
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"manager": "corral", "time": "2026-01-02T00:00:00Z"}, {"manager": "other"}],
    },
    "data": {"file": TEXT},
}


def test_when_the_content_came() -> None:
    assert refresh.changed_at(MAP, "file", HASH) == "2026-01-02T00:00:00Z"
    assert refresh.changed_at({**MAP, "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}, "file", HASH) == "2026-01-01T00:00:00Z"
    assert refresh.changed_at(MAP, "file", "0" * 16) is None
    assert refresh.changed_at({"metadata": {}}, "file", HASH) is None


@pytest.mark.parametrize(
    ("created", "more", "changed", "stale"),
    [
        ("2026-01-01T23:59:59Z", {}, "2026-01-02T00:00:00Z", True),
        ("2026-01-02T00:00:00Z", {}, "2026-01-02T00:00:00Z", False),
        ("2026-01-02T00:00:01Z", {}, None, True),
        ("2026-01-01T00:00:00Z", {"annotations": {"a": HASH}}, "2026-01-02T00:00:00Z", False),
        ("2026-01-01T00:00:00Z", {"annotations": {"a": f"{HASH}.2"}}, "2026-01-02T00:00:00Z", True),
        ("2026-01-01T00:00:00Z", {"deletionTimestamp": "x"}, None, False),
    ],
)
def test_pods_that_may_lack_it(created: str, more: dict[str, Any], changed: str | None, stale: bool) -> None:
    assert refresh.is_stale({"metadata": {"creationTimestamp": created, **more}}, "a", HASH, changed) is stale


@pytest.mark.parametrize(
    ("kind", "name", "ready", "asked"),
    [
        ("containers", "users", "True", True),
        ("initContainers", "users", "True", True),
        ("containers", "users", "False", False),
        ("containers", "other", "True", False),
    ],
)
def test_pods_that_can_be_asked(kind: str, name: str, ready: str, asked: bool) -> None:
    pod = {"spec": {kind: [{"name": name}]}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
    assert refresh.can_be_asked(pod, "users") is asked
