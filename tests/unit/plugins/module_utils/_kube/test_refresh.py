# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods have to be woken for a ConfigMap that changed; tests/integration/kube/test_refresh.py wakes real ones."""

from __future__ import annotations

import hashlib
import logging
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import refresh
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._kube.progress import ProgressLog

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


def test_a_wait_for_pods_says_which_and_why(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    monkeypatch.setattr(refresh, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda pause: now.append(now.pop() + pause)))
    monkeypatch.setattr(refresh, "ProgressLog", lambda: ProgressLog(lambda: now[0]))
    params = {"namespace": "ns", "hash": "newer", "config_map": "users", "container": "users", "path": "/hash", "timeout": 60}
    waits = refresh.Refresh(cast(Any, None), params)
    monkeypatch.setattr(waits, "_annotate", lambda _pod, _value: True)
    monkeypatch.setattr(waits, "_ask", lambda pod: None if pod["metadata"]["name"] == "cpu-0" else "still has older")
    caplog.set_level(logging.INFO, "corral.slurm.progress")
    with ThreadPoolExecutor() as pool, pytest.raises(WaitTimeout):
        waits.have_taken_in([{"metadata": {"name": f"cpu-{number}"}} for number in range(3)], pool)
    assert caplog.messages[0].startswith(
        "2 of 3 pods have not taken in the new users: cpu-1 still has older; cpu-2 still has older (for "
    ), caplog.messages
    assert 60 / 20 < len(caplog.messages) < 60 / 14, "every 15 s while nothing changes"
