# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where nodes are: topology.conf, and places that do not fit together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve, validate

from .documents import good
from .test_validate import mistakes


def document(topology: dict[str, Any] | None, *places: dict[str, str] | None, replicas: int = 2) -> dict[str, Any]:
    """A document of one node set for each place: a-0, a-1, b-0, …"""
    made = good()
    one = made["spec"]["nodeSets"][0]
    made["spec"]["nodeSets"] = [
        {**one, "name": chr(ord("a") + index), "replicas": replicas, **({"topology": place} if place else {})}
        for index, place in enumerate(places)
    ]
    made["spec"]["partitions"] = []
    if topology:
        made["spec"]["slurm"] = {"topology": topology}
    return made


def switch(name: str) -> dict[str, str]:
    return {"switch": name}


def written(*given: Any, **more: Any) -> list[str]:
    files = resolve.model(document(*given, **more)).config.files
    plugin = next(line for line in files["slurm.conf"].splitlines() if line.startswith("TopologyPlugin="))
    return [plugin.partition("=")[2], *files["topology.conf"].splitlines()[1:]]


TREE = {"plugin": "Tree"}


def test_without_it_there_is_no_file() -> None:
    files = resolve.model(document(None, None)).config.files
    assert "topology.conf" not in files and "TopologyPlugin" not in files["slurm.conf"]


def test_switches_of_node_sets_hang_below_one() -> None:
    assert written(TREE, switch("left"), switch("right"), switch("left")) == [
        "topology/tree",
        "SwitchName=left Nodes=a-[0-1],c-[0-1]",
        "SwitchName=right Nodes=b-[0-1]",
        "SwitchName=corral_top Switches=left,right",
    ]
    assert written(TREE, switch("left")) == ["topology/tree", "SwitchName=left Nodes=a-[0-1]"]


def test_switches_of_the_document_stand_after_what_hangs_below_them() -> None:
    switches = [
        {"name": "core", "switches": ["spine1", "spine2"]},
        {"name": "spine1", "switches": ["left"]},
        {"name": "spine2", "switches": ["right"]},
    ]
    assert written({**TREE, "switches": switches}, switch("left"), switch("right"))[3:] == [
        "SwitchName=spine1 Switches=left",
        "SwitchName=spine2 Switches=right",
        "SwitchName=core Switches=spine1,spine2",
    ]


def test_switches_without_nodes_are_left_out() -> None:
    made = document(
        {**TREE, "switches": [{"name": "core", "switches": ["up", "left"]}, {"name": "up", "switches": ["right"]}]},
        switch("left"),
        switch("right"),
    )
    made["spec"]["nodeSets"][1]["replicas"] = 0
    text = resolve.model(made).config.files["topology.conf"]
    assert text.splitlines()[1:] == ["SwitchName=left Nodes=a-[0-1]", "SwitchName=core Switches=left"]


def test_blocks() -> None:
    assert written({"plugin": "Block", "blockSizes": [2, 4]}, {"block": "x"}, {"block": "y"}) == [
        "topology/block",
        "BlockName=x Nodes=a-[0-1]",
        "BlockName=y Nodes=b-[0-1]",
        "BlockSizes=2,4",
    ]
    three = written({"plugin": "Block"}, {"block": "x"}, {"block": "y"}, {"block": "y"})
    assert three[1:] == ["BlockName=x Nodes=a-[0-1]", "BlockName=y Nodes=b-[0-1],c-[0-1]", "BlockSizes=2"]
    assert written({"plugin": "Block"}, {"block": "x"}, replicas=0) == ["topology/block"]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.integers(1, 3))
def test_every_node_is_at_one_place_and_every_switch_is_reached(places: list[int], replicas: int) -> None:
    lines = written(TREE, *(switch(f"s{place}") for place in places), replicas=replicas)[1:]
    pairs = [dict(word.split("=", 1) for word in line.split()) for line in lines]
    nodes = [name for pair in pairs for name in pair.get("Nodes", "").split(",") if name]
    assert len(nodes) == len(set(nodes)) == len(places)
    below = {name for pair in pairs for name in pair.get("Switches", "").split(",") if name}
    assert len({pair["SwitchName"] for pair in pairs} - below) == 1


@pytest.mark.parametrize(
    ("topology", "places", "words"),
    [
        (None, [switch("x")], "spec.nodeSets[0].topology goes with spec.slurm.topology, which is missing"),
        (TREE, [switch("x"), None], "spec.nodeSets[1].topology.switch is missing"),
        (TREE, [{"block": "x"}], "spec.nodeSets[0].topology.block does not go with plugin Tree; name the switch instead."),
        ({"plugin": "Block"}, [switch("x")], "spec.nodeSets[0].topology.switch does not go with plugin Block"),
        ({**TREE, "blockSizes": [2]}, [switch("x")], "spec.slurm.topology.blockSizes goes with plugin: Block, but it is Tree"),
        ({"plugin": "Block", "blockSizes": [2, 6]}, [{"block": "x"}], "spec.slurm.topology.blockSizes[1] is 6; each is twice"),
        ({"plugin": "Block", "blockSizes": [2, 8, 4]}, [{"block": "x"}], "spec.slurm.topology.blockSizes[2] is 4"),
        ({"plugin": "Block", "blockSizes": [4]}, [{"block": "x"}], "spec.slurm.topology.blockSizes[0] is 4, but the block x has 2 nodes"),
        ({**TREE, "switches": [{"name": "x", "switches": ["y"]}]}, [switch("x"), switch("y")], "switches[0].name is x, on which nodes"),
        (
            {**TREE, "switches": [{"name": "top", "switches": ["x", "z"]}]},
            [switch("x")],
            "switches[0].switches[1] is z, which is no switch",
        ),
        ({**TREE, "switches": [{"name": "top", "switches": ["x"]}]}, [switch("x"), switch("y")], "switches has nothing above y"),
        (
            {**TREE, "switches": [{"name": "p", "switches": ["x"]}, {"name": "q", "switches": ["x"]}]},
            [switch("x")],
            "switches[1].switches[0] is x, which hangs below p already",
        ),
        (
            {**TREE, "switches": [{"name": "p", "switches": ["q", "x"]}, {"name": "q", "switches": ["p"]}]},
            [switch("x")],
            "goes round in a circle at p",
        ),
    ],
)
def test_places_that_do_not_fit_together(topology: dict[str, Any] | None, places: list[dict[str, str] | None], words: str) -> None:
    found = mistakes(document(topology, *places))
    assert len(found) == 1 and words in found[0], found


def test_a_plugin_of_the_users_own_beside_it() -> None:
    made = document(TREE, switch("x"))
    made["spec"]["slurm"]["extraConfig"] = ["TopologyPlugin=topology/tree"]
    assert "sets TopologyPlugin, which spec.slurm.topology sets too" in mistakes(made)[0]


def test_fabrics_that_are_apart() -> None:
    switches = [{"name": "p", "switches": ["x"]}, {"name": "q", "switches": ["y"]}]
    validate.check(document({**TREE, "switches": switches}, switch("x"), switch("y")))
