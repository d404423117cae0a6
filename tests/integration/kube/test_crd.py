# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The custom resource's definition before the API server, which checks more than its own schema: defaults against rules, the rules' cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..kubectl import Kubectl

pytestmark = pytest.mark.lab
REPOSITORY = Path(__file__).resolve().parents[3]


def test_the_api_server_takes_the_definition() -> None:
    file = REPOSITORY / "playbooks" / "files" / "slurmclusters.corral.hpc.yml"
    # Tests of the operator may have installed it.
    said = Kubectl(REPOSITORY)("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", str(file))
    assert "slurmclusters.corral.hpc serverside-applied" in said
