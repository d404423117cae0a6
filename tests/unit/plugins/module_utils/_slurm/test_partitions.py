# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import partitions

from .records import partition, text


def test_what_a_real_slurm_says() -> None:
    main, side = partitions.parse(text("partitions"))
    assert (main.name, main.state, main.nodes, main.node_count, main.cpus, main.max_time) == (
        "main",
        "UP",
        "big-0,cpu-[0-1],gone-0,gpu-0",
        5,
        10,
        None,
    )
    assert (side.name, side.max_time, side.allowed_accounts) == ("side", 60, [])


def test_only_those_that_differ_are_told() -> None:
    assert partitions.commands([partition("main"), partition("side")], "UP") == []
    assert partitions.commands([partition("side")], "DRAIN") == [["scontrol", "update", "partitionname=side", "state=DRAIN"]]


def test_pick_keeps_the_order_and_refuses_unknown_names() -> None:
    found = partitions.parse(text("partitions"))
    assert [one.name for one in partitions.pick(found, ["side", "main", "side"])] == ["side", "main"]
    assert partitions.pick(found, []) == found
    with pytest.raises(CorralError, match="knows no partition nope; it has main, side"):
        partitions.pick(found, ["main", "nope"])


def test_a_partition_of_another_shape_is_refused() -> None:
    with pytest.raises(CorralError, match="describes partition main in an unknown way"):
        partitions.parse(json.dumps({"partitions": [{"name": "main", "nodes": "cpu-0"}]}))
