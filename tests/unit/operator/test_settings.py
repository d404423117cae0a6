# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings and content."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator import content, settings
from corral_operator.reconcile.children import KINDS

Json = dict[str, Any]
KIND = {kind.name: kind for kind in KINDS}
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"


def test_settings_are_the_environments() -> None:
    given = {"CORRAL_NAMESPACES": "a, b", "CORRAL_ELECT": "false", "CORRAL_RESYNC": "60", "CORRAL_SCRATCH": "/x", "CORRAL_KEEP_RUNS": "3"}
    found = settings.read(given)
    assert (found.namespaces, found.elect, found.resync, found.scratch, found.keep_runs) == (("a", "b"), False, 60.0, Path("/x"), 3)
    assert found.identity and not found.variables
    assert settings.read({"CORRAL_VARIABLES": '{"slurm_workers_wait_timeout": 3600}'}).variables == {"slurm_workers_wait_timeout": 3600}


def test_other_variables_are_other_content() -> None:
    none, some, others = (content.revision(variables) for variables in ({}, {"a": 1}, {"a": 2}))
    assert len({none, some, others}) == 3 and none == content.revision({})


def test_the_page_has_every_setting() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "operator.md").read_text()
    names = {f"CORRAL_{name.upper()}" for name in vars(settings.Settings())}
    rows = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `CORRAL_")]
    assert names ^ set(re.findall(r"CORRAL_\w+", " ".join(rows))) == set()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CORRAL_ENGINE", "hot"),
        ("CORRAL_RESYNC", "soon"),
        ("CORRAL_KEEP_RUNS", "-1"),
        ("CORRAL_ELECT", "maybe"),
        ("CORRAL_RENEW_DEADLINE", "20"),
        ("CORRAL_VARIABLES", "[1]"),
        ("CORRAL_VARIABLES", "a=b"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(CorralError, match=name):
        settings.read({name: value})
