# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The definitions of the custom resources before the API server, which checks more than their own schemas: defaults against rules, the rules' cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..kubectl import Kubectl

pytestmark = pytest.mark.lab
REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("plural", ["slurmclusters", "slurmnodesets"])
def test_the_api_server_takes_the_definition(plural: str) -> None:
    file = REPOSITORY / "playbooks" / "files" / f"{plural}.corral.hpc.yml"
    # Tests of the operator may have installed it.
    said = Kubectl(REPOSITORY)("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", str(file))
    assert f"{plural}.corral.hpc serverside-applied" in said
