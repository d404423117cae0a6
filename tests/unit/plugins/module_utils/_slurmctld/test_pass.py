# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Passes over a cluster of paper: each decides once when it begins, and says whether another would come further."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils import _converge, _live, _reconcile
from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, WaitTimeout

from .._cluster.documents import good
from .conftest import CONNECTION, UNREACHABLE, Fake, pod
from .test_scale import stateful_set

STEP = {
    "drain_only": False, "outdated": None, "previous": {}, "register_timeout": 1, "wait_timeout": 0, "scale_timeout": 0, "scale_must_finish": False,
    "rollout_timeout": 0, "rollout_must_finish": False,
}  # fmt: skip


class Cluster:
    """What the roles apply is applied at once: sizes, pods and the configuration. ``done`` are the passes' results."""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake
        self.document = good()
        self.document["metadata"]["namespace"] = "demo"
        self.done: list[dict[str, Any]] = []
        self.models: list[dict[str, Any]] = []
        self.apply(resolve.model(self.document).to_dict())
        row = fake.nodes["nodes"][0]
        fake.nodes["nodes"] = [{**row, "name": name, "state": ["IDLE"], "reason": ""} for name in ("cpu-0", "cpu-1", "big-0")]
        fake.jobs["jobs"] = []

    def apply(self, model: dict[str, Any], outdated: bool = False) -> None:
        """Do what the roles do with a model. StatefulSets that it lacks are pruned."""
        self.fake.config_map = {"data": dict(model["config"]["files"])}
        sizes = {one["name"]: one["pods"] for one in model["workers"]["node_sets"]}
        retired = {one["metadata"]["name"]: one["spec"]["replicas"] for one in (model["live"] or {}).get("retired", ())}
        sizes |= {name.removeprefix("demo-"): count for name, count in retired.items()}
        self.fake.stateful_sets = [stateful_set(name, count) for name, count in sizes.items()]
        controller = pod("demo-controller-0", "controller")
        controller["spec"]["containers"] = []  # of another image, so that Slurm's parser is not asked
        self.fake.pods = [controller]
        for name, count in sizes.items():
            for number in range(count):
                made = pod(f"demo-{name}-{number}")
                made["metadata"]["labels"]["corral.hpc/node-set"] = name
                self.fake.pods.append(made)

    def run(self, most: int = 9, **options: Any) -> dict[str, Any]:
        """What site does: what goes is drained in the first pass, before anything is decided; passes, until one says that there is no more to do at once."""
        previous: dict[str, Any] = {}
        for _number in range(most):
            model = _live.model(self.document, {}, check=False)
            if model["live"]["shrinks"] and not previous:
                _reconcile.run({**STEP, "model": model, "drain_only": True}, check=False, diff=False)
                model = _live.model(self.document, {}, check=False)
            self.models.append(model)
            self.apply(model)
            previous = _reconcile.run({**STEP, "model": model, "previous": previous, **options}, check=False, diff=False)
            self.done.append(previous)
            if not previous["again"]:
                return previous
        raise AssertionError("passes do not end")

    def lines(self) -> list[str]:
        text = self.fake.config_map["data"]["slurm.conf"]
        return [line.split()[0].removeprefix("NodeName=") for line in text.splitlines() if line.startswith("NodeName=")]

    def sizes(self) -> dict[str, int]:
        return {one["metadata"]["name"]: one["spec"]["replicas"] for one in self.fake.stateful_sets}


@pytest.fixture
def cluster(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    @contextmanager
    def connected(_params: dict[str, Any]) -> Iterator[Fake]:
        yield fake

    for module in (_converge, _live, _reconcile):
        monkeypatch.setattr(module, "connected", connected)
    monkeypatch.setattr(
        _live.api_server, "read", lambda *_given: {"ipv4": [], "ipv6": [], "within": {}, "record": "", "warnings": ["moved"]}
    )
    return Cluster(fake)


def test_where_nothing_is_to_be_done_there_is_one_pass_and_slurmctld_is_asked_once(cluster: Cluster) -> None:
    done = cluster.run()
    assert [command[:3] for command in cluster.fake.execs] == [["scontrol", "show", "nodes"]]
    assert (done["changed"], done["again"], done["left"], done["passes"], done["counts"]["in_service"]) == (False, False, False, 1, 3)
    live = cluster.models[0]["live"]
    assert (live["shrinks"], live["retired"], live["retained_lines"], live["files"], live["new_node_sets"]) == (False, [], [], None, [])
    assert (live["note"], live["pending"]) == (True, True), "no document was kept yet"
    assert cluster.models[0]["warnings"] == ["moved"] and "warnings" not in live["api_server"]


def test_a_free_node_is_drained_its_pod_ends_and_then_its_line_goes(cluster: Cluster) -> None:
    cluster.document["spec"]["nodeSets"][0]["replicas"] = 1
    done = cluster.run()
    assert [one["again"] for one in cluster.done] == [True, False]
    assert [model["workers"]["node_sets"][0]["pods"] for model in cluster.models] == [1, 1]
    assert [model["live"]["retained"]["lines"] for model in cluster.models] == [["cpu-1"], []]
    assert cluster.fake.told == [
        ["scontrol", "update", "nodename=cpu-1", "state=drain", "reason=corral: scale: the document has fewer nodes in this set"]
    ]
    assert (cluster.sizes(), cluster.lines(), done["left"], done["passes"]) == (
        {"demo-cpu": 1, "demo-big": 1},
        ["cpu-0", "big-0"],
        False,
        2,
    )
    assert cluster.run()["changed"] is False and len(cluster.done) == 3


def test_a_node_set_that_leaves_is_pruned_when_its_pods_have_ended(cluster: Cluster) -> None:
    del cluster.document["spec"]["nodeSets"][1]
    del cluster.document["spec"]["partitions"][1]
    cluster.run()
    assert (cluster.sizes(), cluster.lines()) == ({"demo-cpu": 2}, ["cpu-[0-1]"])
    assert [[one["spec"]["replicas"] for one in model["live"]["retired"]] for model in cluster.models] == [[0], []]


def test_a_busy_node_stays_and_is_left_for_a_later_run(cluster: Cluster) -> None:
    cluster.fake.state("cpu-1", "MIXED")
    cluster.fake.jobs["jobs"] = [{"job_id": 7, "name": "train", "user_name": "ada", "job_state": ["RUNNING"], "nodes": "cpu-1"}]
    cluster.document["spec"]["nodeSets"][0]["replicas"] = 1
    done = cluster.run()
    assert (done["again"], done["left"], [one["node"] for one in done["waiting"]]) == (False, True, ["cpu-1"])
    assert "waiting for job 7 (train of ada) on cpu-1" in done["warnings"][0]
    assert (cluster.sizes()["demo-cpu"], cluster.models[0]["workers"]["node_sets"][0]["replicas"]) == (2, 1)
    again = cluster.run()
    assert (again["changed"], again["passes"], again["left"]) == (False, 1, True)
    with pytest.raises(WaitTimeout, match="job 7") as caught:
        cluster.run(scale_must_finish=True)
    assert caught.value.data["passes"] == 1 and not caught.value.data["changed"]
    cluster.fake.jobs["jobs"] = []
    cluster.fake.state("cpu-1", "IDLE", "DRAIN")
    assert cluster.run()["left"] is False and cluster.lines() == ["cpu-0", "big-0"]


def test_what_stays_after_all_is_given_back(cluster: Cluster) -> None:
    cluster.fake.state("cpu-1", "IDLE", "DRAIN", reason="corral: scale: the document has fewer nodes in this set")
    done = cluster.run()
    assert cluster.fake.told == [["scontrol", "update", "nodename=cpu-1", "state=resume"]]
    assert (done["changed"], done["again"], done["left"]) == (True, False, False)


def test_where_slurmctld_can_not_be_asked_nothing_goes(cluster: Cluster) -> None:
    cluster.document["spec"]["nodeSets"][0]["replicas"] = 1
    cluster.fake.answers["scontrol", "show"] = UNREACHABLE
    with pytest.raises(KubeError):
        cluster.run()
    assert (cluster.sizes()["demo-cpu"], cluster.lines()) == (2, ["cpu-0", "big-0", "cpu-1"])


def test_passes_of_one_run_are_bounded(cluster: Cluster) -> None:
    cluster.document["spec"]["nodeSets"][0]["replicas"] = 1
    model = _live.model(cluster.document, {}, check=False)
    cluster.apply(model)
    done = _reconcile.run({**STEP, "model": model, "previous": {"passes": _reconcile.MOST - 1}}, check=False, diff=False)
    assert (done["again"], done["left"]) == (False, True)


def test_check_mode_tells_what_a_run_would_do_and_asks_for_no_other_pass(cluster: Cluster) -> None:
    cluster.document["spec"]["nodeSets"][0]["replicas"] = 1
    model = _live.model(cluster.document, {}, check=True)
    assert model["workers"]["node_sets"][0]["pods"] == 1, "as if it were drained"
    done = _reconcile.run({**STEP, "model": model}, check=True, diff=True)
    assert (done["changed"], done["again"], cluster.fake.told) == (True, False, [])
    assert done["diff"][0]["before_header"] == "nodes that go, and jobs on them"
    cluster.fake.answers["scontrol", "show"] = UNREACHABLE
    assert _reconcile.run({**STEP, "model": _live.model(good(), {}, check=True)}, check=True, diff=True)["changed"] is False


def test_in_maintenance_the_lines_stay_and_nobody_waits_for_nodes(cluster: Cluster) -> None:
    cluster.document["spec"]["maintenance"] = "Workers"
    done = cluster.run()
    assert (cluster.sizes(), cluster.lines(), done["left"]) == ({"demo-cpu": 0, "demo-big": 0}, ["cpu-[0-1]", "big-0"], False)
    assert cluster.run()["passes"] == 1


def test_a_model_of_the_document_alone_is_refused() -> None:
    model = resolve.model(good()).to_dict()
    with pytest.raises(CorralError, match="live: true"):
        _reconcile.run({**STEP, **CONNECTION, "model": model}, check=False, diff=False)


def test_sizes_that_are_asked_for_are_the_models(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.document["spec"]["nodeSets"][0]["scale"] = {"minReplicas": 1, "maxReplicas": 4}
    monkeypatch.setattr(_live.sizes, "read", lambda *_given: ({"cpu": 3}, ["cpu"]))
    model = _live.model(cluster.document, {}, check=False)
    assert (model["workers"]["node_sets"][0]["replicas"], [one["object"] for one in model["live"]["new_node_sets"]]) == (3, ["demo-cpu"])
    monkeypatch.setattr(_live.sizes, "read", lambda *_given: (None, []))
    model = _live.model(cluster.document, {}, check=False)
    assert (model["workers"]["node_sets"][0]["replicas"], model["live"]["new_node_sets"], model["scaling"]["scalable"]) == (2, [], False)
