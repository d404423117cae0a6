# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of nodes that do not come into service in time."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.corral.slurm.plugins.module_utils import _converge
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._slurm import nodes


class Slurmctld:
    def __init__(self, *state: str) -> None:
        rows = [{"name": "cpu-0", "state": list(state), "reason": "Low CPUs"}, {"name": "cpu-1", "state": ["IDLE"]}]
        self.answer = nodes.parse(json.dumps({"nodes": rows})), ""

    def read_nodes_and_room(self) -> Any:
        return self.answer


def wait(*state: str) -> str:
    with pytest.raises(WaitTimeout) as told:
        _converge._wait_for_nodes(cast(Any, Slurmctld(*state)), ["cpu-0", "cpu-1"], 0)
    return str(told.value)


def test_one_that_slurm_refuses_is_no_matter_of_time() -> None:
    assert wait("IDLE", "DRAIN", "INVALID_REG") == (
        "Not all nodes are in service after 0 s: cpu-0 is IDLE+DRAIN+INVALID_REG (Low CPUs). "
        "Slurm refuses cpu-0: compare the node set in the document with what its machines have, and run again."
    )


def test_one_that_is_away_is_waited_for_by_the_next_run() -> None:
    assert wait("DOWN", "NOT_RESPONDING").endswith("(Low CPUs). Run again to go on waiting.")


def test_only_some_are_waited_for_and_all_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted of a cluster is never counted of a part of it."""
    monkeypatch.setattr(_converge, "connected", lambda _params: contextlib.nullcontext(SimpleNamespace(requests=1)))
    monkeypatch.setattr(_converge, "Slurmctld", lambda _client, _params: Slurmctld("DOWN", "NOT_RESPONDING"))
    params = {"nodes": "cpu-[0-2]", "wait": True, "wait_nodes": "cpu-1", "wait_timeout": 0}
    told = _converge.node_info(params, check=False, diff=False)
    assert ([row["name"] for row in told["nodes"]], told["missing"]) == (["cpu-0", "cpu-1"], "cpu-2")
    assert told["counts"] == {"total": 3, "in_service": 1, "drained": 0, "down": 2}, "each node once, hidden ones as down"
    with pytest.raises(WaitTimeout, match="slurmctld does not know cpu-2; cpu-0 is DOWN"):
        _converge.node_info({**params, "wait_nodes": ""}, check=False, diff=False)
