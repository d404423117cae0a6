# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a pod does not start, and how long that may last. The clock is the test's own."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import pods
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import Patience


def waiting(reason: str, message: str = "m", restarts: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": "main", "image": "img", "restartCount": restarts, "state": {"waiting": {"reason": reason, "message": message}}, **more}


def pod(*containers: dict[str, Any], uid: str = "u", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p-0", "uid": uid}, "status": {"phase": "Pending", "containerStatuses": list(containers), **status}}


def follow(patience: Patience, *moments: tuple[float, dict[str, Any]], old: bool = False, crashes: bool = True) -> float | None:
    """Show a pod's states at their times; return the time at which patience ended."""
    for now, state in moments:
        if patience.exhausted(state, now, old=old, crashes=crashes) is not None:
            return now
    return None


def test_a_pull_that_heals_within_the_grace_is_no_failure() -> None:
    moments = [(0.0, pod(waiting("ErrImagePull"))), (10.0, pod(waiting("ImagePullBackOff"))), (19.0, pod(waiting("ImagePullBackOff")))]
    assert follow(Patience(), *moments, (21.0, pod({"name": "main", "state": {"running": {}}}))) is None


def test_a_pull_ends_patience_after_the_grace_or_at_the_second_back_off() -> None:
    pull, back_off = pod(waiting("ErrImagePull")), pod(waiting("ImagePullBackOff"))
    assert follow(Patience(), (0.0, pull), (19.9, pull), (20.0, pull)) == 20.0
    assert follow(Patience(), (0.0, pull), (1.0, back_off), (5.0, back_off), (11.0, pull), (12.0, back_off)) == 12.0


def test_the_clock_of_a_trouble_starts_anew_when_it_was_away() -> None:
    missing, fine = pod(waiting("CreateContainerConfigError")), pod(waiting("ContainerCreating"))
    assert follow(Patience(), (0.0, missing), (19.0, fine), (21.0, missing), (40.0, missing)) is None


def test_what_a_busy_kubelet_has_not_looked_at_is_not_missing() -> None:
    busy = pod(waiting("CreateContainerConfigError", "failed to sync secret cache: timed out waiting for the condition"))
    missing = pod(waiting("CreateContainerConfigError", 'secret "nowhere" not found'))
    assert follow(Patience(), (0.0, busy), (60.0, busy), (61.0, missing), (80.0, missing), (81.0, missing)) == 81.0


def test_a_bad_name_ends_patience_at_once() -> None:
    assert follow(Patience(), (0.0, pod(waiting("InvalidImageName")))) == 0.0


def crash(restarts: int, uid: str = "u") -> dict[str, Any]:
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "no key"}}
    return pod(waiting("CrashLoopBackOff", restarts=restarts, lastState=ended), uid=uid)


def running(restarts: int) -> dict[str, Any]:
    return pod({"name": "main", "restartCount": restarts, "ready": False, "state": {"running": {}}}, phase="Running")


def test_crashes_end_patience_after_three_restarts_or_the_grace() -> None:
    assert follow(Patience(), (0.0, crash(1)), (10.0, running(2)), (11.0, crash(2)), (15.0, crash(3))) == 15.0
    assert follow(Patience(), (0.0, crash(1)), (10.0, running(2)), (19.0, crash(2)), (20.0, crash(2))) == 20.0


def test_crashes_of_before_the_change_do_not_count() -> None:
    assert follow(Patience(), (0.0, crash(50)), (100.0, crash(50)), old=True) is None
    assert follow(Patience(), (0.0, crash(50)), (100.0, running(51)), (101.0, crash(51)), old=True) == 101.0


def test_a_jobs_crashes_are_its_own_business() -> None:
    assert follow(Patience(), (0.0, crash(9)), (100.0, crash(9)), crashes=False) is None


def test_pods_are_told_apart() -> None:
    patience = Patience()
    assert follow(patience, (0.0, crash(1, "a")), (15.0, crash(1, "b")), (19.0, crash(1, "a"))) is None


def unschedulable() -> dict[str, Any]:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}
    return pod(conditions=[scheduled])


def test_no_place_ends_patience_later() -> None:
    assert follow(Patience(), (0.0, unschedulable()), (29.0, unschedulable()), (30.0, unschedulable())) == 30.0


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found", "volume"),
        ('0/2 nodes are available: persistentvolumeclaim "homes" not found. preemption: 0/2 nodes are available', "volume"),
        ('0/1 nodes are available: persistentvolumeclaim "homes" bound to non-existent persistentvolume "pv1".', "volume"),
        (
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't find available persistent volumes to bind.",
            "volume",
        ),
        ("0/2 nodes are available: 2 node(s) had volume node affinity conflict. preemption: 0/2 nodes are available", "volume"),
        ("0/2 nodes are available: 2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s).", "volume"),
        ("0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption victims found.", "place"),
        ("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", "place"),
    ],
)
def test_what_the_scheduler_says_tells_volumes_from_nodes(message: str, cause: str) -> None:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    waits = pod(conditions=[scheduled])
    assert [trouble.cause for trouble in pods.troubles(waits)] == [cause]
    assert follow(Patience(), (0.0, waits), (29.0, waits), (30.0, waits)) == 30.0


def test_claims_of_a_pod() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "homes"}},
        {"name": "b", "emptyDir": {}},
        {"name": "c", "ephemeral": {"volumeClaimTemplate": {}}},
    ]
    assert pods.claims({"metadata": {"name": "p-0"}, "spec": {"volumes": volumes}}) == ["homes", "p-0-c"]


def test_a_node_that_turns_pods_away_ends_patience_at_once() -> None:
    """Each such pod is replaced by the next within a second."""
    away = pod(phase="Failed", reason="AppArmor", message="Cannot enforce AppArmor:\nAppArmor is not enabled on the host")
    assert follow(Patience(), (0.0, away)) == 0.0
    assert follow(Patience(), (0.0, pod(phase="Failed", reason="Evicted"))) is None


def test_a_profile_that_is_not_there_may_come_within_the_grace() -> None:
    missing = pod(waiting("CreateContainerError", 'cannot load seccomp profile "/k/worker.json": no such file'))
    assert [trouble.cause for trouble in pods.troubles(missing)] == ["profile"]
    assert follow(Patience(), (0.0, missing), (19.0, missing), (20.0, missing)) == 20.0


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (pod(phase="Failed", reason="AppArmor", message="no"), "pod p-0: its node cannot confine it (no)"),
        (
            pod(waiting("ErrImagePull", "no such\n host")),
            "pod p-0: container main: the image img cannot be had (ErrImagePull: no such host)",
        ),
        (crash(1), "pod p-0: container main: it crashes again and again (exit code 1: no key)"),
        (unschedulable(), "pod p-0: 0/2 nodes are available"),
        (pod(waiting("ContainerCreating")), "pod p-0: container main waits (ContainerCreating)"),
        (running(0), "pod p-0: container main runs, but its readiness probe does not succeed"),
        (pod({"name": "main", "state": {"running": {}}, "ready": False, "started": False}), "startup probe has not succeeded"),
        (pod({"name": "main", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}), "ended (exit code 137, OOMKilled)"),
        (pod(phase="Running", conditions=[{"type": "Ready", "status": "True"}]), ""),
        (pod(phase="Succeeded"), ""),
        (pod(), "pod p-0 is Pending"),
        ({"metadata": {"name": "p-0", "deletionTimestamp": "now"}, "status": {}}, "pod p-0 is being deleted"),
        (pod(initContainerStatuses=[waiting("RunContainerError", "exec: no")]), "it cannot be started (RunContainerError: exec: no)"),
    ],
)
def test_describe(state: dict[str, Any], words: str) -> None:
    assert words in pods.describe(state) and bool(words) is bool(pods.describe(state))
