# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What login nodes have of their own: limits of a user."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve, validate

from .documents import accounts, edited, good
from .test_validate import mistakes


def login(document: Any) -> dict[str, Any]:
    found: dict[str, Any] = resolve.model(document).to_dict()["login"]
    return found


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({}, ""),
        ({"memory": "1.5Gi"}, f"memory.max={3 << 29}"),
        ({"cpu": "500m"}, "cpu.max=50000"),
        ({"processes": 300, "cpu": 2, "memory": "1G"}, "memory.max=1000000000 cpu.max=200000 pids.max=300"),
    ],
)
def test_limits_are_words_of_a_cgroup(limits: dict[str, Any], words: str) -> None:
    assert login(edited("spec.login.limits", limits))["user_limits"] == words


def test_connections_are_spread_over_the_login_nodes_unless_the_document_says_otherwise() -> None:
    assert login(good())["session_affinity"] == "None"
    assert login(edited("spec.login.service", {"sessionAffinity": "ClientIP"}))["session_affinity"] == "ClientIP"


@pytest.mark.parametrize("text", ["Welcome.", "Welcome.\n", "Welcome.\n\n"])
def test_words_at_login_are_the_jails_file(text: str) -> None:
    assert accounts(resolve.model(edited("spec.login.motd", text)).to_dict())["motd"] == "Welcome.\n"
    assert "motd" not in accounts(resolve.model(good()).to_dict())


def test_without_limits_there_are_none() -> None:
    assert login(good())["user_limits"] == ""


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"limits": {"memory": "8Gi"}}, "spec.login.limits.memory is 8Gi for each user, but the container has 4Gi for all of them"),
        (
            {"limits": {"cpu": "3"}, "resources": {"limits": {"cpu": "2500m"}}},
            "spec.login.limits.cpu is 3 for each user, but the container has 2500m",
        ),
        ({"limits": {"memory": "0"}}, "spec.login.limits.memory is 0, with which nobody could log in"),
        ({"limits": {"processes": 3}}, "it must be between 16 and 1000000"),
    ],
)
def test_limits_that_can_not_be(fields: dict[str, Any], words: str) -> None:
    found = mistakes(edited("spec.login", fields))
    assert len(found) == 1 and words in found[0], found


def test_a_container_without_a_limit_holds_any() -> None:
    validate.check(edited("spec.login", {"limits": {"memory": "8Gi", "cpu": 64}, "resources": {"requests": {"cpu": "1"}}}))
