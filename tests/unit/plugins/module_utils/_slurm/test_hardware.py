# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node's line says of its hardware, and which nodes keep the one that they have."""

from __future__ import annotations

from ansible_collections.corral.slurm.plugins.module_utils._slurm import hardware

LIVE = """\
# a comment
NodeName=cpu-[0-3] NodeAddr=demo-cpu-[0-3].w CPUs=2 RealMemory=896 Feature=old Weight=1 State=UNKNOWN
NodeName=gpu-[0-1] NodeAddr=demo-gpu-[0-1].w CPUs=8 RealMemory=896 Weight=1 Gres=gpu:2 State=UNKNOWN
NodeName=gone-0 NodeAddr=demo-gone-0.w CPUs=1 RealMemory=5 Weight=1 State=UNKNOWN
PartitionName=main Nodes=cpu-[0-3] State=UP
"""


def test_the_words_are_of_hardware_alone_and_the_same_however_it_is_written() -> None:
    assert (
        hardware.text([("CPUs", 2), ("RealMemory", 896), ("Gres", None), ("SOCKETS", "1"), ("Weight", 3)])
        == "cpus=2 realmemory=896 sockets=1"
    )
    assert hardware.text([("sockets", "1"), ("RealMemory", "896"), ("Feature", "x"), ("CPUs", "2")]) == "cpus=2 realmemory=896 sockets=1"


def test_what_differs_is_told_by_node_with_what_is_wanted() -> None:
    wanted = LIVE.replace("cpu-[0-3] NodeAddr=demo-cpu-[0-3].w CPUs=2", "cpu-[0-4] NodeAddr=demo-cpu-[0-4].w CPUs=3").replace(
        "Weight=1", "Weight=2"
    )
    wanted = "\n".join(line for line in wanted.splitlines() if "gone" not in line)
    assert hardware.differing(LIVE, wanted) == {f"cpu-{number}": "cpus=3 realmemory=896" for number in range(4)}
    assert hardware.differing(LIVE, LIVE) == {}
    assert hardware.differing(LIVE, LIVE.replace("Weight=1", "Weight=2").replace("Feature=old ", "")) == {}
    fewer = LIVE.replace("Gres=gpu:2 ", "")
    assert hardware.differing(LIVE, fewer) == {"gpu-0": "cpus=8 realmemory=896", "gpu-1": "cpus=8 realmemory=896"}
    assert set(hardware.differing(fewer, LIVE)) == {"gpu-0", "gpu-1"}


def test_kept_lines_have_the_former_hardware_and_all_else_of_the_document() -> None:
    wanted = LIVE.replace("CPUs=2", "CPUs=3").replace("Feature=old Weight=1", "Feature=new Weight=7")
    wanted = wanted.replace("Weight=1 Gres=gpu:2", "Weight=1")
    found = hardware.retained(LIVE, wanted, {"cpu-1", "cpu-3", "gpu-0"})
    assert [" ".join(f"{key}={value}" for key, value in line) for line in found] == [
        "NodeName=cpu-[1,3] NodeAddr=demo-cpu-[1,3].w CPUs=2 RealMemory=896 Feature=new Weight=7 State=UNKNOWN",
        "NodeName=gpu-0 NodeAddr=demo-gpu-0.w CPUs=8 RealMemory=896 Gres=gpu:2 Weight=1 State=UNKNOWN",
    ]


def test_nodes_of_one_line_may_have_come_from_different_ones() -> None:
    """In the middle of a roll-out some nodes have their new line already, and then the document is changed once more."""
    live = "NodeName=cpu-[0,2] NodeAddr=a-[0,2] CPUs=2\nNodeName=cpu-1 NodeAddr=a-1 CPUs=3\n"
    wanted = "NodeName=cpu-[0-2] NodeAddr=a-[0-2] CPUs=4\n"
    assert [" ".join(f"{key}={value}" for key, value in line) for line in hardware.retained(live, wanted, {"cpu-0", "cpu-1", "cpu-2"})] == [
        "NodeName=cpu-[0,2] NodeAddr=a-[0,2] CPUs=2",
        "NodeName=cpu-1 NodeAddr=a-1 CPUs=3",
    ]
