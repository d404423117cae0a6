# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A wait is never silent for longer than 15 s, and a short one says nothing."""

from __future__ import annotations

import logging

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube.progress import ProgressLog


def test_a_wait_tells_each_change_and_at_least_every_15_seconds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "corral.slurm.progress")
    now = 0.0
    progress = ProgressLog(lambda: now)
    heard: dict[int, str] = {}
    for second in range(61):
        now = float(second)
        before = len(caplog.messages)
        progress.log(
            "0 of 2 pods" if second < 5 else "1 of 2 pods" if second < 6 else f"2 of 3 pods, {second}" if second < 12 else "the last"
        )
        if len(caplog.messages) > before:
            heard[second] = caplog.messages[-1]
    assert heard[1] == "0 of 2 pods (for 1 s)" and heard[5] == "1 of 2 pods (for 5 s)"
    assert set(heard) == {1, 5, 7, 9, 11, 13, 28, 43, 58}, "changes no more often than every other second"
    assert heard[58] == "the last (for 58 s)"


def test_a_short_wait_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "corral.slurm.progress")
    now = 0.0
    progress = ProgressLog(lambda: now)
    progress.log("0 of 2 pods")
    now = 0.9
    progress.log("1 of 2 pods")
    assert not caplog.messages
