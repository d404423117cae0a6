# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_upgrade_check: what a new image says of itself beside what runs."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ExecError
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import upgrade

from .conftest import CONNECTION, Fake, pod


def check(
    fake: Fake,
    message: str,
    *,
    code: int = 0,
    running: str | Output = "slurm-wlm 24.11.5",
    nodes: str = "24.11.5",
    silent: bool = False,
    auth: str = "munge",
) -> dict[str, Any]:
    ended = {"terminated": {"exitCode": code, "message": message}}
    fake.pods = [*fake.pods, pod("check-x", status={"containerStatuses": [{"name": "slurmctld", "state": ended}]})]
    fake.answers["scontrol", "--version"] = Output(0, running, "") if isinstance(running, str) else running
    for row in fake.nodes["nodes"]:
        row["version"] = nodes
    return upgrade.run({**CONNECTION, "job": "check", "may_be_silent": silent, "auth": auth}, check=False, diff=False)


def test_what_can_follow(fake: Fake) -> None:
    result = check(fake, "slurm-wlm 26.05.1\n")
    assert (result["running"], result["wanted"], result["changed"]) == ("24.11.5", "26.05.1", False)
    assert result["msg"] == "Slurm 26.05.1 follows on 24.11.5."
    assert result["nodes"] == {"24.11.5": len(fake.nodes["nodes"])}
    assert check(fake, "slurm-wlm 24.11.5")["msg"] == "Slurm 24.11.5 runs already."
    assert check(fake, "slurm-wlm 26.05.1", auth="slurm")["wanted"] == "26.05.1"


@pytest.mark.parametrize(
    ("message", "more", "words"),
    [
        ("slurm 24.05.1", {}, "begin without its jobs"),
        ("slurm 26.05.1", {"nodes": "24.05.1"}, "some have 24.05 still"),
        (
            "slurm-wlm 23.11.10",
            {"running": "slurm-wlm 23.11.4", "nodes": "23.11.4", "auth": "slurm"},
            r"spec\.slurm\.auth is slurm, and spec\.images\.slurm has Slurm 23\.11\.10.*24\.05 or newer.*Nothing was changed",
        ),
        ("nginx", {}, "is it Slurm's image"),
        ("slurm 26.05.1", {"code": 1}, "has not printed the version"),
        ("slurm 26.05.1", {"running": "?"}, "not its version"),
    ],
)
def test_what_can_not(fake: Fake, message: str, more: dict[str, Any], words: str) -> None:
    with pytest.raises(CorralError, match=words):
        check(fake, message, **more)


def with_slurmdbd(fake: Fake, version: str | Exception) -> None:
    fake.pods.append(pod("demo-accounting-0", "accounting"))
    fake.answers["slurmdbd", "-V"] = Output(0, f"slurm-wlm {version}", "") if isinstance(version, str) else version


def test_another_slurmdbd_changes_the_database(fake: Fake) -> None:
    assert check(fake, "slurm 26.05.1")["database"] is False
    with_slurmdbd(fake, "24.11.5")
    found = check(fake, "slurm 26.05.1")
    assert (found["slurmdbd"], found["database"]) == ("24.11.5", True)
    assert check(fake, "slurm 24.11.5")["database"] is False


def test_a_slurmdbd_that_was_upgraded_stays(fake: Fake) -> None:
    """An upgrade was interrupted between slurmdbd and slurmctld; also on the way back from an image with which slurmctld does not start."""
    with_slurmdbd(fake, "26.05.1")
    with pytest.raises(
        CorralError, match=r"older release than the slurmdbd that runs, 26.05.1, which has changed the database.*Nothing was changed"
    ):
        check(fake, "slurm 24.11.5")
    gone = Output(1, "", "Unable to contact slurm controller")
    with pytest.raises(CorralError, match="which has changed the database"):
        check(fake, "slurm 24.11.5", running=gone, silent=True)
    assert check(fake, "slurm 26.05.2")["msg"] == "Slurm 26.05.2 follows on 24.11.5."


def test_a_slurmdbd_that_does_not_run_stands_in_the_way(fake: Fake) -> None:
    with_slurmdbd(fake, ExecError("Could not run slurmdbd: no such container."))
    with pytest.raises(
        CorralError, match="slurmdbd in pod demo/demo-accounting-0 cannot be asked for its version, and it has the database"
    ):
        check(fake, "slurm 26.05.1")


def test_the_primary_is_asked_and_its_backup_where_it_can_not_be(fake: Fake) -> None:
    with_slurmdbd(fake, "24.11.5")
    fake.pods.insert(0, pod("demo-accounting-1", "accounting"))
    assert check(fake, "slurm 26.05.1")["slurmdbd"] == "24.11.5"
    asked: list[str] = []
    real = upgrade.run_in_pod

    def one_away(client: Any, **more: Any) -> Output:
        asked.append(more["pod"])
        if more["pod"] == "demo-accounting-0":
            raise ExecError("Could not run slurmdbd: the node is away.")
        return real(client, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upgrade, "run_in_pod", one_away)
        assert check(fake, "slurm 26.05.1")["slurmdbd"] == "24.11.5"
    assert asked == ["demo-accounting-0", "demo-accounting-1"]


def test_a_slurmctld_that_does_not_answer_stands_in_the_way_of_an_upgrade_and_not_of_the_way_back(fake: Fake) -> None:
    gone = Output(1, "", "Unable to contact slurm controller")
    with pytest.raises(CorralError, match="cannot be asked for its version"):
        check(fake, "slurm 24.11.5", running=gone)
    found = check(fake, "slurm 24.11.5", running=gone, silent=True)
    assert (found["running"], found["wanted"]) == ("", "24.11.5")
    assert "was compared with nothing" in found["msg"]
