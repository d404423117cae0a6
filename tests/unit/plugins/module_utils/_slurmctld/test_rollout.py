# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_rollout against a slurmctld and an API server of paper: what it does in which order, when it stops, and what it says."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, WaitFailed, WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist
from ansible_collections.corral.slurm.plugins.module_utils._slurm.rollout import REASON
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import rollout, slurmctld

from .conftest import CONNECTION, UNREACHABLE, Fake, pod, refusal

MARK = "corral.hpc/node-set"
REVISION = "controller-revision-hash"


def worker(name: str, revision: str, *, born: str = "2026-01-31T08:00:00Z") -> dict[str, Any]:
    found = pod(f"demo-{name}")
    found["metadata"]["labels"] = {**found["metadata"]["labels"], MARK: name.rpartition("-")[0], REVISION: revision}
    found["metadata"]["creationTimestamp"] = born
    found["spec"]["containers"] = [{"name": "slurmd", "image": "slurm:1"}]
    return found


@pytest.fixture
def world(fake: Fake) -> Fake:
    """cpu-[0-2], all idle with pods of the revision before."""
    fake.stateful_sets = [
        {
            "metadata": {"name": "demo-cpu", "namespace": "demo", "generation": 2, "labels": {MARK: "cpu"}},
            "spec": {"replicas": 3, "updateStrategy": {"type": "OnDelete"}},
            "status": {"observedGeneration": 2, "updateRevision": "new"},
        }
    ]
    fake.pods = [worker(f"cpu-{number}", "old") for number in range(3)]
    row = fake.nodes["nodes"][0]
    fake.nodes["nodes"] = [{**row, "name": f"cpu-{number}", "state": ["IDLE"], "reason": ""} for number in range(3)]
    fake.jobs["jobs"] = []
    return fake


def comes_up(world: Fake, status: dict[str, Any] | None = None) -> None:
    """Have deleted pods be made anew, well or with a status."""
    request = world.request

    def then(method: str, path: str, **more: Any) -> Any:
        answer = request(method, path, **more)
        name = world.deleted[-1].removeprefix("demo-")
        at = next(index for index, one in enumerate(world.pods) if one["metadata"]["name"] == world.deleted[-1])
        world.pods[at] = worker(name, "new")
        if status is not None:
            world.pods[at]["status"] = status
        return answer

    world.request = then  # type: ignore[method-assign]


def busy(world: Fake, node: str, number: int = 7) -> None:
    world.state(node, "MIXED")
    world.jobs["jobs"].append({"job_id": number, "name": "train", "user_name": "ada", "job_state": ["RUNNING"], "nodes": node})


def run(*, check: bool = False, most: int = 1, policy: str = "Wait", kind: str = "RollingUpdate", **options: Any) -> dict[str, Any]:
    one = {"name": "cpu", "replicas": 3, "type": kind, "max_unavailable": most, "policy": policy, "deadline": 60, "jobs": [], "place": ""}
    given = {
        "selector": "s",
        "node_sets": [one],
        "outdated": [],
        "retained_lines": [],
        "wait_timeout": 0,
        "start_timeout": 600,
        "must_finish": False,
    }
    return rollout.run({**CONNECTION, **given, **options}, check=check, diff=True)


def states(world: Fake) -> dict[str, list[str]]:
    return {row["name"]: row["state"] for row in world.nodes["nodes"]}


def test_each_node_is_drained_replaced_and_taken_back_one_after_the_other(world: Fake) -> None:
    comes_up(world)
    result = run()
    assert world.deleted == ["demo-cpu-2", "demo-cpu-1", "demo-cpu-0"]
    told = [" ".join(command[2:4]) for command in world.told]
    assert told == [f"nodename=cpu-{number} state={what}" for number in (2, 1, 0) for what in ("drain", "resume")]
    assert states(world) == {f"cpu-{number}": ["IDLE"] for number in range(3)}
    assert (result["changed"], "warnings" in result, result["lines"]) == (True, False, [])
    assert [(one["replaced"], one["stale"]) for one in result["node_sets"]] == [(3, "")]
    again = run()
    assert (again["changed"], again["requests"] - result["requests"]) == (False, 2), "a second run has something to do"


def test_a_busy_node_is_drained_and_left_with_its_jobs(world: Fake) -> None:
    comes_up(world)
    busy(world, "cpu-1")
    result = run()
    assert world.deleted == ["demo-cpu-2", "demo-cpu-0"]
    assert result["waiting"] == [{"node": "cpu-1", "jobs": [{"id": "7", "name": "train", "user": "ada"}]}]
    assert (
        "2 of 3 nodes of cpu have the new template; waiting for job 7 (train of ada) on cpu-1. A later run goes on" in result["warnings"][0]
    )
    assert states(world)["cpu-1"] == ["MIXED", "DRAIN"]
    again = run()
    assert (again["changed"], world.deleted) == (False, ["demo-cpu-2", "demo-cpu-0"])
    with pytest.raises(WaitTimeout, match="job 7"):
        run(must_finish=True)


def test_a_job_that_comes_before_the_drain_is_seen(world: Fake) -> None:
    def update(words: dict[str, str]) -> None:
        if words.get("state") == "drain":
            busy(world, words["nodename"])
        Fake._update(world, words)

    world._update = update  # type: ignore[method-assign]
    run()
    assert world.deleted == []


def test_it_is_gone_on_with_from_anywhere(world: Fake) -> None:
    """A run before was killed: one pod is new and its node still drained, another is drained and was not deleted."""
    comes_up(world)
    world.pods[2] = worker("cpu-2", "new")
    world.state("cpu-2", "IDLE", "DRAIN", reason=REASON)
    world.state("cpu-1", "IDLE", "DRAIN", reason=REASON)
    run()
    assert world.deleted == ["demo-cpu-1", "demo-cpu-0"]
    assert states(world) == {f"cpu-{number}": ["IDLE"] for number in range(3)}


def test_a_node_with_its_new_pod_that_slurmctld_hides_until_it_registers_is_waited_for(
    world: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.pods = [worker(f"cpu-{number}", "new") for number in range(3)]
    world.state("cpu-2", "FUTURE", "DRAIN", reason=REASON)
    monkeypatch.setattr(rollout.time, "sleep", lambda _seconds: world.state("cpu-2", "IDLE", "DRAIN", reason=REASON))
    assert "warnings" not in run()
    assert states(world)["cpu-2"] == ["IDLE"]


def test_one_that_is_taken_back_gives_its_drains_back_and_writes_nothing_else(world: Fake) -> None:
    world.stateful_sets[0]["status"]["updateRevision"] = "old"
    busy(world, "cpu-1")
    world.state("cpu-1", "MIXED", "DRAIN", reason=REASON)
    world.state("cpu-2", "IDLE", "DRAIN", reason="ask bob")
    result = run()
    assert (world.deleted, states(world)["cpu-1"], states(world)["cpu-2"]) == ([], ["MIXED"], ["IDLE", "DRAIN"])
    assert result["changed"]


NO_IMAGE = {
    "phase": "Pending",
    "containerStatuses": [{"name": "slurmd", "image": "slurm:2", "state": {"waiting": {"reason": "InvalidImageName", "message": "no"}}}],
}


def test_a_template_that_does_not_work_stops_with_the_pods_own_words(world: Fake) -> None:
    comes_up(world, NO_IMAGE)
    with pytest.raises(WaitFailed) as caught:
        run()
    assert world.deleted == ["demo-cpu-2"]
    text = str(caught.value)
    assert text.startswith(
        "The roll-out of node set cpu has stopped: cpu-2 does not come up with the new template: pod demo-cpu-2: container slurmd: the image"
    )
    assert "cpu-[0-1] keep their pods (image slurm:1) and take jobs." in text
    assert "roll back" in text
    assert caught.value.data["changed"]
    assert caught.value.data["node_sets"][0]["starting"] == "cpu-2"


def test_a_run_that_fails_waits_for_the_pods_that_may_still_come_up(world: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """cpu-2's machine cannot pull the image; that of cpu-1 needs a moment longer for it."""
    request = world.request

    def then(method: str, path: str, **more: Any) -> Any:
        answer, name = request(method, path, **more), world.deleted[-1].removeprefix("demo-")
        number = int(name[-1])
        world.pods[number] = worker(name, "new")
        world.pods[number]["status"] = NO_IMAGE if number == 2 else {"phase": "Pending"}
        return answer

    def later(_seconds: float) -> None:
        if "demo-cpu-1" in world.deleted and next(looks) == 3:
            world.pods[1] = worker("cpu-1", "new")

    looks = iter(range(1000))
    world.request = then  # type: ignore[method-assign]
    monkeypatch.setattr(rollout.time, "sleep", later)
    with pytest.raises(WaitFailed, match="cpu-2 does not come up") as caught:
        run(most=2)
    assert states(world) == {"cpu-0": ["IDLE"], "cpu-1": ["IDLE"], "cpu-2": ["IDLE", "DRAIN"]}, "a node stays drained whose pod is well"
    assert world.deleted == ["demo-cpu-2", "demo-cpu-1"], "it went on after it had stopped"
    assert caught.value.data["node_sets"][0]["starting"] == "cpu-2"


def test_one_that_falls_ill_after_its_turn_does_not_stop_the_others(world: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    comes_up(world, {"phase": "Pending"})

    def later(_seconds: float) -> None:
        for name in world.deleted:
            world.pods[int(name[-1])] = worker(name.removeprefix("demo-"), "new")

    monkeypatch.setattr(rollout.time, "sleep", later)
    world.pods[0] = worker("cpu-0", "new", born="2026-01-31T07:00:00Z")
    world.pods[0]["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
    world.state("cpu-0", "DOWN", "NOT_RESPONDING", reason="Not responding")
    result = run(most=2)
    assert world.deleted == ["demo-cpu-2", "demo-cpu-1"]
    assert (states(world)["cpu-1"], states(world)["cpu-2"], "warnings" in result) == (["IDLE"], ["IDLE"], False)


def test_an_outage_of_all_pods_is_waited_for(world: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    comes_up(world)
    running = {"name": "slurmd", "state": {"running": {"startedAt": "2026-01-31T07:00:00Z"}}}
    for one in world.pods:
        one["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [running]}
    result = run()
    assert (world.deleted, result["changed"]) == ([], False)
    assert "cpu-[0-2]: left while cpu-[0-2] is out of service (maxUnavailable 1)" in result["warnings"][0]

    def well(_seconds: float) -> None:
        for number, one in enumerate(world.pods):
            world.pods[number] = worker(f"cpu-{number}", one["metadata"]["labels"][REVISION])

    monkeypatch.setattr(rollout.time, "sleep", well)
    assert "warnings" not in run(wait_timeout=20)
    assert world.deleted == ["demo-cpu-2", "demo-cpu-1", "demo-cpu-0"]


def test_pods_whose_slurmd_does_not_run_go_all_at_once(world: Fake) -> None:
    comes_up(world)
    waits = {"name": "slurmd", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    beside = {"name": "sssd", "state": {"running": {}}}
    for one in world.pods[:2]:
        one["status"] = {"phase": "Running", "containerStatuses": [waits, beside]}
    run()
    assert sorted(world.deleted) == ["demo-cpu-0", "demo-cpu-1", "demo-cpu-2"]
    assert sorted(world.deleted[:2]) == ["demo-cpu-0", "demo-cpu-1"]


def test_a_pod_that_only_takes_too_long_stops_it_too(world: Fake) -> None:
    comes_up(world, {"phase": "Pending"})
    with pytest.raises(WaitFailed, match="after 0 s: pod demo-cpu-2 is Pending"):
        run(start_timeout=0)
    world.pods[2] = worker("cpu-2", "new", born="2026-01-31T07:00:00Z")
    world.pods[2]["status"] = {"phase": "Pending"}
    with pytest.raises(WaitFailed, match="after 600 s"):
        run()
    assert world.deleted == ["demo-cpu-2"], "the second run went on to break another"


def test_a_pod_that_is_not_made_or_does_not_end_stops_it_too(world: Fake) -> None:
    world.pods = world.pods[:2]
    with pytest.raises(WaitFailed, match="after 0 s: its StatefulSet has made no pod"):
        run(start_timeout=0)
    world.pods.append(worker("cpu-2", "old"))
    world.pods[2]["metadata"]["deletionTimestamp"] = "2026-01-31T08:00:00Z"
    world.pods[2]["status"] = {"phase": "Running"}
    with pytest.raises(WaitFailed, match="being deleted; check its Kubernetes node"):
        run(start_timeout=0)


def event(reason: str, message: str, at: str = "2026-01-31T08:00:05Z") -> dict[str, Any]:
    return {"metadata": {}, "type": "Warning", "reason": reason, "message": message, "lastTimestamp": at}


QUOTA = 'create Pod demo-cpu-2 in StatefulSet demo-cpu failed error: pods "demo-cpu-2" is forbidden: exceeded quota: small'
NO_SECRET = 'MountVolume.SetUp failed for volume "key" : secret "there-is-none" not found'
CREATING = {"phase": "Pending", "containerStatuses": [{"name": "slurmd", "state": {"waiting": {"reason": "ContainerCreating"}}}]}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which passes only while the run rests."""
    now = [1000.0]

    def sleep(_seconds: float) -> None:
        now[0] += 2.0

    monkeypatch.setattr(rollout.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(rollout.time, "sleep", sleep)
    return now


def never_made(world: Fake) -> None:
    """Have deleted pods be made by nobody."""
    request = world.request

    def then(method: str, path: str, **more: Any) -> Any:
        answer = request(method, path, **more)
        world.pods = [one for one in world.pods if one["metadata"]["name"] != world.deleted[-1]]
        return answer

    world.request = then  # type: ignore[method-assign]


def test_a_pod_that_is_refused_stops_it_within_fifteen_seconds(world: Fake, clock: list[float]) -> None:
    never_made(world)
    world.events = [event("FailedCreate", QUOTA)]
    with pytest.raises(
        WaitFailed, match=r"cpu-2 does not come up with the new template: its pod was refused .*exceeded quota: small\. cpu-\[0-1\] keep"
    ):
        run()
    assert clock[0] - 1000 <= 15 and world.deleted == ["demo-cpu-2"]


def test_what_a_new_pod_mounts_and_nobody_has_stops_it_within_fifteen_seconds(world: Fake, clock: list[float]) -> None:
    comes_up(world, CREATING)
    world.events = [event("FailedMount", NO_SECRET)]
    with pytest.raises(WaitFailed, match=r'cpu-2 does not come up with the new template: .*secret "there-is-none" not found'):
        run()
    assert clock[0] - 1000 <= 15 and world.deleted == ["demo-cpu-2"]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (False, event("FailedCreate", QUOTA, at="2026-01-31T07:00:00Z")),  # the template was another one then
        (False, event("FailedCreate", QUOTA.replace("demo-cpu-2", "demo-cpu-1"))),
        (True, event("FailedMount", "MountVolume.SetUp failed: access denied by server")),
        (True, event("FailedAttachVolume", "Multi-Attach error")),
    ],
)
def test_what_may_heal_has_its_time(world: Fake, clock: list[float], made: bool, told: dict[str, Any]) -> None:
    entry = {"manager": "corral", "operation": "Apply", "time": "2026-01-31T07:59:59Z", "fieldsV1": {"f:spec": {"f:template": {}}}}
    world.stateful_sets[0]["metadata"]["managedFields"] = [entry, {**entry, "subresource": "status", "time": "2026-01-31T09:00:00Z"}]
    comes_up(world, CREATING) if made else never_made(world)
    world.events = [told]
    with pytest.raises(WaitFailed, match=r"after 600 s"):
        run()
    assert clock[0] - 1000 >= 590
    assert 10 <= world.events_asked <= 600 / 4, "events are asked for now and then"


@pytest.mark.parametrize("well_after", [10.0, 12.0])
def test_what_was_refused_counts_between_two_looks_at_the_events(
    world: Fake, clock: list[float], monkeypatch: pytest.MonkeyPatch, well_after: float
) -> None:
    """cpu-2's pod is refused, while that of cpu-1 comes up."""
    request, rest = world.request, rollout.time.sleep

    def then(method: str, path: str, **more: Any) -> Any:
        answer = request(method, path, **more)
        world.pods = [one for one in world.pods if one["metadata"]["name"] != world.deleted[-1]]
        if world.deleted[-1] == "demo-cpu-1":
            world.pods.append({**worker("cpu-1", "new"), "status": {"phase": "Pending"}})
        return answer

    def sleep(seconds: float) -> None:
        rest(seconds)
        if clock[0] >= 1000 + well_after:
            world.pods = [one for one in world.pods if one["metadata"]["name"] != "demo-cpu-1"] + [worker("cpu-1", "new")]

    world.request = then  # type: ignore[method-assign]
    monkeypatch.setattr(rollout.time, "sleep", sleep)
    world.events = [event("FailedCreate", QUOTA)]
    with pytest.raises(WaitFailed, match="exceeded quota"):
        run(most=2)
    assert world.deleted == ["demo-cpu-2", "demo-cpu-1"], "the set went on after it had stopped"
    assert states(world) == {"cpu-0": ["IDLE"], "cpu-1": ["IDLE"], "cpu-2": ["IDLE", "DRAIN"]}


def test_check_mode_tells_nothing_and_says_what_would_be(world: Fake) -> None:
    busy(world, "cpu-1")
    world.stateful_sets[0]["status"]["updateRevision"] = "old"
    assert run(check=True)["changed"] is False
    result = run(check=True, outdated=["demo-cpu"])
    assert (world.told, world.deleted, result["changed"]) == ([], [], True)
    assert "waiting for job 7 (train of ada) on cpu-1" in result["warnings"][0]
    assert set(result["diff"][0]["after"]) >= {"pod of cpu-0", "pod of cpu-1", "pod of cpu-2"}


@pytest.mark.parametrize("answer", [UNREACHABLE, refusal("down"), Output(0, "", ""), Output(0, '{"nodes": []}', "")])
@pytest.mark.parametrize("what", [("scontrol", "show"), ("squeue",)])
def test_whoever_can_not_be_believed_ends_no_pod(world: Fake, what: tuple[str, ...], answer: Any) -> None:
    for number in range(3):
        world.state(f"cpu-{number}", "IDLE", "DRAIN", reason=REASON)
    world.answers[what] = answer
    with pytest.raises(KubeError, match="so no pod was replaced any more"):
        run()
    assert (world.told, world.deleted) == ([], [])


def test_a_drain_that_slurmctld_refuses_ends_no_pod(world: Fake) -> None:
    world.answers["scontrol", "update"] = refusal("slurm_update error: Access/permission denied")
    with pytest.raises(CorralError, match="permission denied"):
        run()
    assert world.deleted == []


def test_after_the_deadline_jobs_are_told(world: Fake) -> None:
    busy(world, "cpu-2")
    world.state("cpu-2", "MIXED", "DRAIN", reason=REASON)
    world.nodes["nodes"][2]["reason_changed_at"] = {"set": True, "infinite": False, "number": 1_999_999_000}
    world.answers["date",] = Output(0, "2000000000\n", "")
    run(policy="Requeue")
    assert ["scontrol", "requeue", "7"] in world.told


def test_a_set_that_waits_for_others_costs_one_look_and_no_warning(world: Fake) -> None:
    waits = {"OnDelete": "waits until somebody deletes the pod (OnDelete)", "Maintenance": "waits for a reservation with the flag MAINT"}
    for kind, why in waits.items():
        world.execs.clear()
        result = run(kind=kind, wait_timeout=300)
        assert (result["changed"], "warnings" in result, len(world.execs)) == (False, False, 2), kind
        assert f"0 of 3 nodes of cpu have the new template; cpu-[0-2]: {why}" in result["lines"][0]


def test_what_is_under_way_is_shown(world: Fake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    comes_up(world)
    busy(world, "cpu-2")
    ask, looks = world.run_in_pod, iter(range(100))

    def later(client: Any, **more: Any) -> Output:
        if more["command"][0] == "squeue" and next(looks) == 12:
            world.state("cpu-2", "IDLE", "DRAIN")
            world.jobs["jobs"].clear()
        return ask(client, **more)

    monkeypatch.setattr(slurmctld, "run_in_pod", later)
    with caplog.at_level(logging.INFO, "corral.slurm.progress"):
        result = run(wait_timeout=20)
    assert (hostlist.compress(name.removeprefix("demo-") for name in world.deleted), "warnings" in result) == ("cpu-[0-2]", False)
    assert "waiting for job 7 (train of ada) on cpu-2" in caplog.text


def test_a_node_whose_line_changes_stays_drained_with_its_new_pod_until_that_is_done(world: Fake) -> None:
    comes_up(world)
    busy(world, "cpu-1")
    result = run(most=2, retained_lines=["cpu-0", "cpu-1", "cpu-2"])
    assert sorted(result["config_updates"]) == ["cpu-0", "cpu-2"]
    assert all("DRAIN" in states(world)[name] for name in result["config_updates"]), (
        "with its former line it would get jobs that the change ends"
    )
    assert "warnings" not in result
    run(most=2, retained_lines=["cpu-1"])
    assert (states(world)["cpu-0"], states(world)["cpu-2"]) == (["IDLE"], ["IDLE"]), "their lines are the new ones now"


def test_one_that_got_a_new_pod_by_itself_is_drained_for_its_line(world: Fake) -> None:
    """A lost machine's pods are made anew from the new template, and take jobs with the line that they had."""
    world.pods = [worker(f"cpu-{number}", "new") for number in range(3)]
    busy(world, "cpu-1")
    result = run(retained_lines=["cpu-1"], wait_timeout=0)
    assert states(world)["cpu-1"] == ["MIXED", "DRAIN"]
    assert (result["config_updates"], result["waiting"][0]["node"], result["left"]) == ([], "cpu-1", "cpu-1")
    world.jobs["jobs"] = []
    world.state("cpu-1", "IDLE", "DRAIN")
    assert run(retained_lines=["cpu-1"])["config_updates"] == ["cpu-1"]
    assert not world.deleted
    run()
    assert states(world)["cpu-1"] == ["IDLE"]
