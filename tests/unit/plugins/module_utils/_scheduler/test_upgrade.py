# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_upgrade_check: what a new image says of itself beside what runs."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output
from ansible_collections.corral.slurm.plugins.module_utils._scheduler import upgrade

from .conftest import CONNECTION, Fake, pod


def check(fake: Fake, message: str, *, code: int = 0, running: str = "slurm-wlm 24.11.5", nodes: str = "24.11.5") -> dict[str, Any]:
    ended = {"terminated": {"exitCode": code, "message": message}}
    fake.pods = [pod("check-x", status={"containerStatuses": [{"name": "slurmctld", "state": ended}]})]
    fake.answers["scontrol", "--version"] = Output(0, running, "")
    for row in fake.nodes["nodes"]:
        row["version"] = nodes
    return upgrade.run({**CONNECTION, "job": "check"}, check=False, diff=False)


def test_what_can_follow(fake: Fake) -> None:
    result = check(fake, "slurm-wlm 26.05.1\n")
    assert (result["running"], result["wanted"], result["changed"]) == ("24.11.5", "26.05.1", False)
    assert result["msg"] == "Slurm 26.05.1 follows on 24.11.5."
    assert result["nodes"] == {"24.11.5": len(fake.nodes["nodes"])}
    assert check(fake, "slurm-wlm 24.11.5")["msg"] == "Slurm 24.11.5 runs already."


@pytest.mark.parametrize(
    ("message", "more", "words"),
    [
        ("slurm 24.05.1", {}, "begin without its jobs"),
        ("slurm 26.05.1", {"nodes": "24.05.1"}, "some have 24.05 still"),
        ("nginx", {}, "is it Slurm's image"),
        ("slurm 26.05.1", {"code": 1}, "has not said the version"),
        ("slurm 26.05.1", {"running": "?"}, "not its version"),
    ],
)
def test_what_can_not(fake: Fake, message: str, more: dict[str, Any], words: str) -> None:
    with pytest.raises(CorralError, match=words):
        check(fake, message, **more)
