# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pass where the document has other CPUs: each node keeps its line until its pod is another one and no job is on it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ExecError
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import scale

from .conftest import CONNECTION, Fake, pod
from .test_scale import stateful_set

LIVE = """NodeName=cpu-[0-2] NodeAddr=demo-cpu-[0-2].w CPUs=1 RealMemory=896 Weight=1 State=UNKNOWN
PartitionName=main Nodes=cpu-[0-2] Default=YES State=UP
"""
WANTED = LIVE.replace("CPUs=1", "CPUs=2").replace("Weight=1", "Weight=5")
FORMER, NEW = "cpus=1 realmemory=896", "cpus=2 realmemory=896"


@pytest.fixture
def world(fake: Fake) -> Fake:
    """cpu-[0-2], all idle, with pods of the former template."""
    fake.stateful_sets = [stateful_set("cpu", 3)]
    fake.config_map = {"data": {"slurm.conf": LIVE, "gres.conf": "NodeName=cpu-[0-2] Name=gpu File=/dev/x[0-1]\n"}}
    row = fake.nodes["nodes"][0]
    fake.nodes["nodes"] = [{**row, "name": f"cpu-{number}", "state": ["IDLE"], "reason": ""} for number in range(3)]
    fake.jobs["jobs"] = []
    fake.pods = [pod("demo-controller-0", "controller")]
    for number in range(3):
        put(fake, number, FORMER)
    return fake


def put(world: Fake, number: int, words: str) -> None:
    """A pod is there that was made with these words."""
    name = f"demo-cpu-{number}"
    world.pods = [one for one in world.pods if one["metadata"]["name"] != name]
    made = pod(name)
    made["metadata"]["labels"]["corral.hpc/node-set"] = "cpu"
    made["metadata"]["annotations"] = {"corral.hpc/hardware": words} if words else {}
    world.pods.append(made)


def run(text: str = WANTED, *, check: bool = False) -> dict[str, Any]:
    sets = [{"name": "cpu", "replicas": 3, "policy": "Wait", "deadline": 60, "jobs": []}]
    given = {"selector": "s", "config_map": "demo-controller-config", "node_sets": sets, "policy": "Wait", "deadline": 60, "jobs": []}
    with scale.connected({}) as client:
        return scale.decide(client, {**CONNECTION, **given, "slurm_conf": text}, check=check)


def lines(result: dict[str, Any]) -> list[str]:
    return [" ".join(f"{key}={value}" for key, value in line) for line in result["retained_config"].get("hardware", ())]


@pytest.mark.parametrize("words", [FORMER, ""])
@pytest.mark.parametrize("check", [False, True])
def test_a_node_keeps_the_line_of_its_pod(world: Fake, check: bool, words: str) -> None:
    """A pod of an older version of the collection does not say what it was made with."""
    for number in range(3):
        put(world, number, words)
    result = run(check=check)
    assert lines(result) == ["NodeName=cpu-[0-2] NodeAddr=demo-cpu-[0-2].w CPUs=1 RealMemory=896 Weight=5 State=UNKNOWN"]
    assert result["retained_config"]["gres"] == [[["NodeName", "cpu-[0-2]"], ["Name", "gpu"], ["File", "/dev/x[0-1]"]]]
    assert (result["retained_lines"], result["shrinks"]) == (["cpu-0", "cpu-1", "cpu-2"], False)


def test_nobody_is_asked_where_no_hardware_changes(world: Fake) -> None:
    for text in (LIVE, LIVE.replace("Weight=1", "Weight=9")):
        world.execs.clear()
        result = run(text)
        assert (result["retained_config"], result["retained_lines"]) == ({}, [])
        assert not [command for command in world.execs if "squeue" in command or "nodes" in command]


@pytest.mark.parametrize(
    ("state", "job", "kept"),
    [
        (["IDLE", "DRAIN"], "", False),
        (["DOWN", "DRAIN"], "", False),
        (["DOWN", "INVALID_REG"], "", False),
        (["FUTURE"], "", False),
        (["IDLE"], "", True),
        (["DOWN"], "", True),
        (["MIXED", "DRAIN"], "", True),
        (["IDLE", "DRAIN"], "cpu-1", True),
    ],
)
def test_with_a_new_pod_the_line_changes_when_the_node_is_drained_and_free(world: Fake, state: list[str], job: str, kept: bool) -> None:
    put(world, 1, NEW)
    world.state("cpu-1", *state, reason="corral: rollout: x")
    if job:
        world.jobs["jobs"].append({"job_id": 7, "name": "train", "user_name": "ada", "job_state": ["RUNNING"], "nodes": job})
    assert ("cpu-1" in run()["retained_lines"]) is kept


def test_without_a_pod_the_line_changes_where_the_node_is_out_of_service(world: Fake) -> None:
    world.pods = [one for one in world.pods if one["metadata"]["name"] not in ("demo-cpu-0", "demo-cpu-1")]
    world.state("cpu-1", "DOWN")
    assert run()["retained_lines"] == ["cpu-0", "cpu-2"]


def test_where_slurmctld_does_not_answer_all_stay_as_they_are(world: Fake) -> None:
    for number in range(3):
        put(world, number, NEW)
    world.answers[("scontrol",)] = ExecError("no")
    assert run()["retained_lines"] == ["cpu-0", "cpu-1", "cpu-2"]


def test_a_change_back_in_the_middle_keeps_the_new_lines_of_new_pods(world: Fake) -> None:
    world.config_map["data"]["slurm.conf"] = (
        "NodeName=cpu-[0-1] NodeAddr=demo-cpu-[0-1].w CPUs=1 RealMemory=896 State=UNKNOWN\n"
        "NodeName=cpu-2 NodeAddr=demo-cpu-2.w CPUs=2 RealMemory=896 State=UNKNOWN\n"
    )
    put(world, 2, NEW)
    result = run(LIVE)
    assert lines(result) == ["NodeName=cpu-2 NodeAddr=demo-cpu-2.w CPUs=2 RealMemory=896 Weight=1 State=UNKNOWN"]
