# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's compatibility window, as its Upgrade Guide has it by table."""

from __future__ import annotations

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._slurm import releases
from ansible_collections.corral.slurm.plugins.module_utils._slurm.output import OutputError

# Release, and those that it can follow on.
GUIDE = {
    "23.02": ("22.05", "21.08"),
    "23.11": ("23.02", "22.05"),
    "24.05": ("23.11", "23.02"),
    "24.11": ("24.05", "23.11", "23.02"),
    "25.05": ("24.11", "24.05", "23.11"),
    "25.11": ("25.05", "24.11", "24.05"),
}
ALL = ("20.11", "21.08", "22.05", *GUIDE, "26.05")


@pytest.mark.parametrize(("new", "old"), [(new, old) for new in GUIDE for old in ALL])
def test_the_window_is_that_of_the_guide(new: str, old: str) -> None:
    assert (releases.refusal(f"{old}.1", f"{new}.0") == "") == (old == new or old in GUIDE[new])


def test_another_maintenance_version_can_go_either_way() -> None:
    assert releases.refusal("24.11.5", "24.11.1") == ""


def test_what_is_too_old_is_told_the_next_step() -> None:
    assert releases.refusal("23.02.7", "26.05.0").endswith("Upgrade to 24.11 first.")
    assert releases.refusal("24.11.5", "26.05.0") == ""


def test_an_older_release_would_lose_the_jobs() -> None:
    assert "begin without its jobs" in releases.refusal("26.05.0", "24.11.5")


def test_nodes_that_an_upgrade_before_has_not_reached() -> None:
    assert "some have 24.05 still" in releases.refusal("24.11.5", "26.05.0", ["24.11.5", "24.05.1"])


@pytest.mark.parametrize("text", ["slurm-wlm 24.11.5", "slurm 24.11.5\n", "slurm 24.11.5-1"])
def test_versions_are_read(text: str) -> None:
    assert releases.version(text, "the image") == "24.11.5"


def test_what_is_no_version_is_an_error() -> None:
    with pytest.raises(OutputError, match="is it Slurm's image"):
        releases.version("nginx", "the image")
