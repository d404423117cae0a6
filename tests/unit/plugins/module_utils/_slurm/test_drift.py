# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A slurm.conf with many settings and what a real slurmctld (24.11.5) shows of it: nothing differs, and each edit is found, alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._slurm import drift

_FOLDER = Path(__file__).parent / "recorded"
CONF = (_FOLDER / "slurm.conf").read_text()
CONFIG, NODES, PARTITIONS = ((_FOLDER / f"{name}.txt").read_text() for name in ("config", "nodes_lines", "partitions_lines"))


def found(conf: str = CONF, config: str = CONFIG, nodes: str = NODES, partitions: str = PARTITIONS) -> list[tuple[str, str, str, str]]:
    every = [*drift.config(conf, config), *drift.nodes(conf, nodes), *drift.partitions(conf, partitions)]
    return [(one.kind, one.where, one.document, one.live) for one in every]


def test_what_slurmctld_has_read_does_not_differ() -> None:
    assert found() == []
    assert len(CONF.splitlines()) > 80, "few settings prove little"


def edit(text: str, before: str, after: str, count: int = 1) -> str:
    assert before in text, before
    return text.replace(before, after, count)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("SlurmctldTimeout        = 10 sec", "SlurmctldTimeout        = 11 sec", ("config", "SlurmctldTimeout", "10", "11 sec")),
        ("SlurmdDebug             = info", "SlurmdDebug             = debug2", ("config", "SlurmdDebug", "info", "debug2")),
        ("PriorityMaxAge          = 14-00:00:00", "PriorityMaxAge = 13-00:00:00", ("config", "PriorityMaxAge", "14-0", "13-00:00:00")),
        ("PrologFlags             = Alloc,Contain,X11", "PrologFlags = Alloc,X11", ("config", "PrologFlags", "Contain,X11", "Alloc,X11")),
        ("SlurmSchedLogLevel      = 0", "SlurmSchedLogLevel      = 1", ("config", "SlurmSchedLogLevel", "0", "1")),
        ("PrivateData             = jobs,users", "PrivateData = jobs", ("config", "PrivateData", "jobs,users", "jobs")),
        (
            "SlurmctldHost[0]        = demo-controller-0(127.0.0.1)",
            "SlurmctldHost[0] = mallory",
            ("config", "SlurmctldHost", "demo-controller-0(127.0.0.1)", "mallory"),
        ),
    ],
)
def test_a_setting(before: str, after: str, expected: tuple[str, ...]) -> None:
    assert found(config=edit(CONFIG, before, after)) == [expected]


def test_a_plugin_that_does_nothing() -> None:
    conf = edit(CONF, "TaskPlugin=task/cgroup,task/affinity", "TaskPlugin=task/none")
    assert found(conf, edit(CONFIG, "= task/cgroup,task/affinity", "= (null)")) == []
    assert found(conf) == [("config", "TaskPlugin", "task/none", "task/cgroup,task/affinity")]


LINES = {line.split()[0].partition("=")[2]: line for line in NODES.splitlines()}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (LINES["cpu-1"], edit(LINES["cpu-1"], " Weight=1 ", " Weight=7 "), ("node", "cpu-1 Weight", "1", "7")),
        (
            LINES["cpu-1"],
            edit(LINES["cpu-1"], "AvailableFeatures=avx512", "AvailableFeatures=avx512,own"),
            ("node", "cpu-1 Feature", "avx512", "avx512,own"),
        ),
        (LINES["cpu-1"], edit(LINES["cpu-1"], "Gres=(null)", "Gres=tape:1"), ("node", "cpu-1 Gres", "none", "tape:1")),
        (LINES["cpu-1"], edit(LINES["cpu-1"], "CPUTot=64", "CPUTot=32"), ("node", "cpu-1 CPUs", "64", "32")),
        (f"{LINES['cpu-1']}\n", "", ("node", "cpu-1", "in slurm.conf", "absent")),
        (LINES["cpu-1"], f"{LINES['cpu-1']}\nNodeName=stray CPUTot=1", ("node", "stray", "absent", "in slurmctld")),
        (
            "Gres=gpu:h100:4,gpu:a100:2",
            "Gres=gpu:h100:3,gpu:a100:2",
            ("node", "gpu-0 Gres", "gpu:h100:4,gpu:a100:2", "gpu:h100:3,gpu:a100:2"),
        ),
        ("Weight=1 ", "Weight=9 ", ("node", "cpu-[0-3] Weight", "1", "9")),
    ],
)
def test_a_node(before: str, after: str, expected: tuple[str, ...]) -> None:
    every = 4 if expected[1].startswith("cpu-[") else 1
    text = NODES
    if every > 1:
        text = "".join(line.replace(before, after) if "NodeName=cpu" in line else line for line in text.splitlines(keepends=True))
    assert found(nodes=text if every > 1 else edit(text, before, after)) == [expected]


def test_what_changes_in_a_healthy_cluster_is_no_drift() -> None:
    text = NODES.replace("NodeAddr=127.0.0.1", "NodeAddr=10.1.2.3").replace("State=UNKNOWN", "State=IDLE+DRAIN")
    text = text.replace("Gres=gpu:h100:4,gpu:a100:2", "Gres=gpu:h100:4(S:0,2),gpu:a100:2(S:1)").replace(
        "AllocTRES=", "AllocTRES= Reason=a Weight=9 of it"
    )
    assert found(nodes=text) == []


def test_the_type_that_gres_conf_adds_is_no_drift() -> None:
    assert found(conf=edit(CONF, "Gres=gpu:h100:4,gpu:a100:2", "Gres=gpu:6")) == []


PARTITION = {line.split()[0].partition("=")[2]: line for line in PARTITIONS.splitlines()}


@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [
        ("main", "MaxTime=7-00:00:00", "MaxTime=01:00:00", ("main MaxTime", "7-00:00:00", "01:00:00")),
        ("all", "MaxTime=UNLIMITED", "MaxTime=00:05:00", ("all MaxTime", "INFINITE", "00:05:00")),
        ("all", "State=UP", "State=DRAIN", ("all State", "UP", "DRAIN")),
        ("bigmem", "Nodes=big-0", "Nodes=big-0,cpu-1", ("bigmem Nodes", "big-0", "big-0,cpu-1")),
        ("plain", "PriorityTier=1 ", "PriorityTier=9 ", ("plain PriorityTier", "1", "9")),
        ("plain", "AllowAccounts=ALL", "AllowAccounts=guests", ("plain AllowAccounts", "ALL", "guests")),
        ("bigmem", "DenyAccounts=guests", "AllowAccounts=ALL", ("bigmem DenyAccounts", "guests", "absent")),
        ("odd", "OverSubscribe=YES:4", "OverSubscribe=NO", ("odd OverSubscribe", "YES", "NO")),
    ],
)
def test_a_partition(name: str, before: str, after: str, expected: tuple[str, ...]) -> None:
    text = PARTITIONS.replace(PARTITION[name], edit(PARTITION[name], before, after))
    assert found(partitions=text) == [("partition", *expected)]


def test_partitions_that_come_and_go() -> None:
    assert found(partitions=edit(PARTITIONS, f"{PARTITION['odd']}\n", "")) == [("partition", "odd", "in slurm.conf", "absent")]
    assert found(partitions=f"{PARTITIONS}PartitionName=stray Nodes=cpu-1\n") == [("partition", "stray", "absent", "in slurmctld")]
