# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model that keeps what jobs are still on, and gives it back when they have ended."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve, retained
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hardware, hostlist

from .documents import edited, good

LINE = [["NodeName", "cpu-[2-3]"], ["NodeAddr", "demo-cpu-[2-3].w"], ["CPUs", "2"], ["State", "UNKNOWN"]]
MAIN = {
    "name": "main",
    "nodes": "cpu-[2-3]",
    "line": [["PartitionName", "main"], ["Nodes", "cpu-[0-3]"], ["Default", "YES"], ["State", "UP"]],
}
OLD = {
    "name": "old",
    "nodes": "cpu-[2-3]",
    "line": [["PartitionName", "old"], ["Nodes", "cpu-[0-3]"], ["Default", "YES"], ["MaxTime", "5"], ["State", "UP"]],
}
HELD: dict[str, Any] = {"replicas": {"cpu": 4}, "nodes": [LINE], "partitions": [MAIN, OLD]}


def lines(model: dict[str, Any]) -> list[str]:
    return [line for line in model["config"]["files"]["slurm.conf"].splitlines() if line.startswith(("NodeName", "PartitionName"))]


def test_nodes_stay_in_their_partitions_beside_what_the_document_says() -> None:
    model = resolve.model(good()).to_dict()
    before = deepcopy(model)
    kept = retained.retain(model, HELD)
    assert model == before, "the model that was given is changed"
    assert [node_set["pods"] for node_set in kept["workers"]["node_sets"]] == [4, 1]
    assert kept["node_names"] == "cpu-[0-1],big-0", "nodes that go are not waited for as if they came"
    assert lines(kept) == [
        *lines(model)[:2],
        "NodeName=cpu-[2-3] NodeAddr=demo-cpu-[2-3].w CPUs=2 State=UNKNOWN",
        "PartitionName=main Nodes=cpu-[0-1],big-0,cpu-[2-3] Default=YES MaxTime=INFINITE State=UP",
        lines(model)[3],
        "PartitionName=old Nodes=cpu-[2-3] Default=NO MaxTime=5 State=DRAIN",
    ]
    assert kept["config"]["hash"] != model["config"]["hash"]
    assert kept["config"]["files"]["config.hash"] == kept["config"]["hash"] + "\n"


def test_where_nothing_stays_the_model_is_the_documents() -> None:
    model = resolve.model(good()).to_dict()
    assert retained.retain(model, {}) == model


def test_without_partitions_left_in_the_document_nodes_have_lines_all_the_same() -> None:
    model = resolve.model(good()).to_dict()
    model["config"]["files"]["slurm.conf"] = "ClusterName=demo\n"
    assert lines(retained.retain(model, {"replicas": {}, "nodes": [LINE], "partitions": [OLD]})) == [
        "NodeName=cpu-[2-3] NodeAddr=demo-cpu-[2-3].w CPUs=2 State=UNKNOWN",
        "PartitionName=old Nodes=cpu-[2-3] Default=NO MaxTime=5 State=DRAIN",
    ]


GPUS = [["NodeName", "cpu-[2-3]"], ["AutoDetect", "off"], ["Name", "gpu"], ["File", "/dev/corral-gpu/[0-1]"]]


def test_nodes_with_gpus_keep_them() -> None:
    """Without their lines slurmd would register with fewer, and without the type slurmctld would not take the node's line."""
    model = resolve.model(good()).to_dict()
    kept = retained.retain(model, {"replicas": {"cpu": 4}, "nodes": [[*LINE, ["Gres", "gpu:2"]]], "partitions": [MAIN], "gres": [GPUS]})
    files = kept["config"]["files"]
    assert files["gres.conf"] == "NodeName=cpu-[2-3] AutoDetect=off Name=gpu File=/dev/corral-gpu/[0-1]\n"
    before, _nodes = files["slurm.conf"].split("NodeName=", 1)
    assert before.endswith("\nGresTypes=gpu\n")


def test_gpus_that_the_document_has_too_are_named_once() -> None:
    model = resolve.model(edited("spec.nodeSets[0].gpu", {"vendor": "simulated", "count": 2})).to_dict()
    own = model["config"]["files"]["gres.conf"]
    (line,) = [line for line in own.splitlines() if line.startswith("NodeName=cpu")]
    same = [["NodeName", "cpu-[1-2]"], *[pair.split("=", 1) for pair in line.split()[1:]]]
    files = retained.retain(model, {"replicas": {"cpu": 3}, "nodes": [LINE], "partitions": [], "gres": [same]})["config"]["files"]
    assert files["gres.conf"] == own + line.replace("cpu-[0-1]", "cpu-2") + "\n"
    assert files["slurm.conf"].count("GresTypes=gpu\n") == 1


def test_what_becomes_of_jobs_is_the_clusters_or_the_sets_own() -> None:
    document = edited("spec.workers", {"drain": {"policy": "Requeue", "deadlineSeconds": 60}})
    document["spec"]["nodeSets"][1]["drain"] = {"policy": "Cancel"}
    scaling = resolve.model(document).to_dict()["scaling"]
    assert (scaling["policy"], scaling["deadline"], scaling["config_map"]) == ("Requeue", 60, "demo-controller-config")
    assert scaling["node_sets"] == [
        {"name": "cpu", "replicas": 2, "policy": "Requeue", "deadline": 60, "jobs": []},
        {"name": "big", "replicas": 1, "policy": "Cancel", "deadline": 60, "jobs": []},
    ]
    assert resolve.model(good()).to_dict()["scaling"]["policy"] == "Wait"


def test_jobs_of_a_partition_that_leaves_keep_their_jail() -> None:
    """Each step that they start reads plugstack.conf anew; without the words it would start in another root."""
    document = good()
    document["spec"]["jails"] = [{"name": "other", "volume": {"claimName": "other"}, "populate": {"image": "jail:bookworm"}}]
    document["spec"]["partitions"].append({"name": "old", "nodeSets": ["cpu"], "jail": "other"})
    words = resolve.model(document).to_dict()["config"]["files"]["plugstack.conf"].split()
    jail = [word.split("=", 1) for word in words if word.startswith(("partition.old=", "jail.other="))]
    assert len(jail) == 2
    model = resolve.model(good()).to_dict()
    plain = model["config"]["files"]["plugstack.conf"]
    kept = retained.retain(
        model, {"replicas": {}, "nodes": [], "partitions": [{**OLD, "jail": jail}, {**OLD, "name": "twin", "jail": jail[:1]}]}
    )
    assert kept["config"]["files"]["plugstack.conf"].split() == [*plain.split(), *(f"{key}={value}" for key, value in jail)]
    # Of a partition that stays counts what the document says.
    other = retained.retain(model, {"replicas": {}, "nodes": [], "partitions": [{**MAIN, "jail": [["partition.main", "other"]]}]})
    assert other["config"]["files"]["plugstack.conf"] == plain


AWAY = {
    "replicas": {"cpu": 2},
    "nodes": [[["NodeName", "cpu-[0-2]"], ["NodeAddr", "demo-cpu-[0-2].w"], ["State", "UNKNOWN"]]],
    "partitions": [{**MAIN, "nodes": "cpu-[0-2]"}],
}


def test_in_maintenance_nodes_have_no_pods_and_keep_their_lines() -> None:
    there = resolve.model(good()).to_dict()
    away = resolve.model(edited("spec.maintenance", "WorkersAndLogin")).to_dict()
    assert away["config"] == there["config"] and away["node_names"] == there["node_names"]
    assert [(one["replicas"], one["pods"]) for one in away["workers"]["node_sets"]] == [(2, 0), (1, 0)]
    assert [one["replicas"] for one in away["scaling"]["node_sets"]] == [0, 0]
    assert (away["login"]["replicas"], away["login"]["pods"]) == (1, 0)
    workers = resolve.model(edited("spec.maintenance", "Workers")).to_dict()
    assert (workers["login"]["pods"], [one["pods"] for one in workers["workers"]["node_sets"]]) == (1, [0, 0])


def test_what_is_busy_in_maintenance_has_one_line_as_the_document_says_and_the_login_pods_stay_until_it_is_free() -> None:
    model = resolve.model(edited("spec.maintenance", "WorkersAndLogin")).to_dict()
    kept = retained.retain(model, AWAY)
    assert [one["pods"] for one in kept["workers"]["node_sets"]] == [2, 0]
    assert kept["login"]["pods"] == 1
    assert lines(kept) == [
        *lines(model)[:2],
        "NodeName=cpu-2 NodeAddr=demo-cpu-2.w State=UNKNOWN",  # the document has two
        "PartitionName=main Nodes=cpu-[0-1],big-0,cpu-2 Default=YES MaxTime=INFINITE State=UP",
        lines(model)[3],
    ]


def test_nodes_keep_the_line_of_their_pods_and_the_partitions_of_the_document() -> None:
    model = resolve.model(good()).to_dict()
    former = [["NodeName", "cpu-1"], ["NodeAddr", "demo-cpu-1.w"], ["CPUs", "7"], ["Gres", "gpu:2"], ["State", "UNKNOWN"]]
    kept = retained.retain(model, {"hardware": [former], "gres": [[["NodeName", "cpu-1"], ["Name", "gpu"], ["File", "/dev/x[0-1]"]]]})
    of_cpu, of_big, main, *_rest = lines(model)
    assert lines(kept) == [
        of_cpu.replace("cpu-[0-1]", "cpu-0"),
        of_big,
        "NodeName=cpu-1 NodeAddr=demo-cpu-1.w CPUs=7 Gres=gpu:2 State=UNKNOWN",
        main,
        *_rest,
    ]
    files = kept["config"]["files"]
    assert files["gres.conf"] == "NodeName=cpu-1 Name=gpu File=/dev/x[0-1]\n"
    assert "\nGresTypes=gpu\n" in files["slurm.conf"]
    assert kept["config"]["hash"] != model["config"]["hash"]
    assert kept["workers"] == model["workers"]


def test_a_set_of_which_all_nodes_keep_their_lines_has_no_line_of_its_own() -> None:
    model = resolve.model(good()).to_dict()
    former = [["NodeName", "cpu-[0-1]"], ["NodeAddr", "demo-cpu-[0-1].w"], ["CPUs", "7"], ["State", "UNKNOWN"]]
    kept = retained.retain(model, {"hardware": [former]})
    assert lines(kept)[:2] == [lines(model)[1], "NodeName=cpu-[0-1] NodeAddr=demo-cpu-[0-1].w CPUs=7 State=UNKNOWN"]


def test_what_a_document_gives_of_gpus_is_not_for_nodes_that_keep_their_line() -> None:
    model = resolve.model(good()).to_dict()
    model["config"]["files"]["gres.conf"] = "NodeName=cpu-[0-1] Name=gpu File=/dev/corral-gpu/[0-3]\n"
    former = [["NodeName", "cpu-1"], ["NodeAddr", "demo-cpu-1.w"], ["CPUs", "7"], ["State", "UNKNOWN"]]
    kept = retained.retain(model, {"hardware": [former]})
    assert kept["config"]["files"]["gres.conf"] == "NodeName=cpu-0 Name=gpu File=/dev/corral-gpu/[0-3]\n"


def test_a_pod_carries_the_words_of_its_line() -> None:
    model = resolve.model(good()).to_dict()
    cpu = model["workers"]["node_sets"][0]
    assert (
        hardware.differing(model["config"]["files"]["slurm.conf"].replace("CPUs=", "CPUs=1"), model["config"]["files"]["slurm.conf"])[
            "cpu-0"
        ]
        == cpu["hardware"]
    )


def test_lines_of_gres_conf_that_name_no_resource_are_kept_as_they_are() -> None:
    model = resolve.model(good()).to_dict()
    kept = retained.retain(
        model, {"replicas": {"cpu": 4}, "nodes": [LINE], "partitions": [], "gres": [[["NodeName", "cpu-[2-3]"], ["AutoDetect", "nvml"]]]}
    )
    assert kept["config"]["files"]["gres.conf"] == "NodeName=cpu-[2-3] AutoDetect=nvml\n"


def test_login_pods_stay_for_nodes_that_go_and_not_for_lines() -> None:
    model = resolve.model(good()).to_dict()
    model["login"] = {**model["login"], "pods": 0}
    former = [["NodeName", "cpu-1"], ["NodeAddr", "demo-cpu-1.w"], ["CPUs", "7"], ["State", "UNKNOWN"]]
    assert retained.retain(model, {"hardware": [former]})["login"]["pods"] == 0
    assert retained.retain(model, HELD)["login"]["pods"] == model["login"]["replicas"]


def test_lines_of_gpus_are_expanded_only_where_the_same_resource_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 such lines took 5.6 GB and a minute in each run."""
    document = edited("spec.slurm.extraGresConfig", [f"NodeName=x[0-3900] Name=tape Count={count}" for count in range(256)])
    model = resolve.model(document).to_dict()
    expand = hostlist.expand
    monkeypatch.setattr(hostlist, "expand", lambda text: pytest.fail("expanded") if text.startswith("x") else expand(text))
    own = model["config"]["files"]["gres.conf"]
    assert retained.retain(model, HELD)["config"]["files"]["gres.conf"] == own
    kept = retained.retain(model, {**HELD, "gres": [GPUS]})["config"]["files"]["gres.conf"]
    assert kept == own + "NodeName=cpu-[2-3] AutoDetect=off Name=gpu File=/dev/corral-gpu/[0-1]\n"
