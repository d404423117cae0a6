# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much a wait reads; what it reports is in tests/integration/kube/test_wait.py."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import wait
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Response
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import WaitFailed
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import Item


class Busy(wait._Wait):
    """A wait with an event each millisecond and so many pods that reading them takes ten."""

    looks = 0

    def _start(self) -> None:
        self.until = time.monotonic() + 0.6

    def _read(self, seconds: float) -> None:
        time.sleep(0.001)
        if time.monotonic() > self.until:
            self.pending.clear()

    def _judge(self) -> None:
        self.looks += 1
        time.sleep(0.01)


def test_a_look_at_a_thousand_pods_does_not_follow_each_of_their_events() -> None:
    ref = Ref(BUILTIN["apps", "StatefulSet"], "ns", "web")
    live = {"metadata": {"name": "web", "namespace": "ns", "generation": 1}, "spec": {"replicas": 2}, "status": {}}
    item = Item(ref=ref, body=live)
    item.after = live
    waits = Busy(None, [item], 5.0)  # type: ignore[arg-type]  # it asks no Client
    assert waits.pending
    waits.run()
    assert 2 <= waits.looks <= 8, "a tenth of the time at most, and yet again and again"


class Told:
    """An API server that has one event about anything, and counts who asks. ``clock`` is the time at which the wait began."""

    def __init__(self, reason: str, message: str, at: str = "2026-01-01T00:00:05Z") -> None:
        self.clock = "2026-01-01T00:00:00Z"
        self.asked = 0
        self.claims = "Bound"
        self._event = {"metadata": {}, "reason": reason, "message": message, "type": "Warning", "lastTimestamp": at}

    def get(self, path: str, **_options: Any) -> Response:
        self.asked += 1
        if "/persistentvolumeclaims/" in path:
            return Response(200, {"metadata": {"name": path.rpartition("/")[2]}, "status": {"phase": self.claims}})
        return Response(200, {"items": [self._event]})


def waiting(
    monkeypatch: pytest.MonkeyPatch, client: Told, *pods: dict[str, Any], kind: str = "StatefulSet"
) -> tuple[list[float], wait._Wait]:
    """Return the time, which stands still, and a wait for a workload of two pods."""
    group = "batch" if kind == "Job" else "apps"
    ref = Ref(BUILTIN[group, kind], "ns", "web")
    live: dict[str, Any] = {
        "metadata": {"name": "web", "namespace": "ns", "generation": 1, "uid": "u"},
        "spec": {"replicas": 2},
        "status": {},
    }
    item = Item(ref=ref, body=live)
    item.after, item.result = live, "configured"
    now = [100.0]
    monkeypatch.setattr(wait.time, "monotonic", lambda: now[0])
    waits = wait._Wait(client, [item], 600.0)  # type: ignore[arg-type]  # stands in for a Client
    for pod in pods:
        metadata = {"namespace": "ns", "ownerReferences": [{"uid": pod.get("owner", "u")}], "uid": pod["name"], "name": pod["name"]}
        waits._pods[Ref(BUILTIN["", "Pod"], "ns", pod["name"])] = {
            "metadata": metadata,
            "spec": pod.get("spec", {"nodeName": "n"}),
            "status": pod["status"],
        }
    for pending in waits.pending.values():
        pending.since = now[0]
    return now, waits


def judged(
    monkeypatch: pytest.MonkeyPatch, client: Told, seconds: float, *pods: dict[str, Any], kind: str = "StatefulSet"
) -> tuple[float | None, str]:
    """Look at a workload of two pods each second, for so long."""
    now, waits = waiting(monkeypatch, client, *pods, kind=kind)
    while now[0] < 100 + seconds:
        try:
            waits._judge()
        except WaitFailed as error:
            return now[0] - 100, str(error)
        now[0] += 1
    return None, ""


STARTS = {"phase": "Pending", "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}]}
RUNS = {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"running": {}}}]}
SECRET = 'MountVolume.SetUp failed for volume "munge" : secret "web-munge" not found'


@pytest.mark.parametrize("kind", ["StatefulSet", "Job"])
def test_pods_that_are_refused_are_told_within_fifteen_seconds(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    client = Told("FailedCreate", 'create Pod web-0 failed error: pods "web-0" is forbidden: violates PodSecurity "restricted:latest"')
    seconds, words = judged(monkeypatch, client, 60, kind=kind)
    assert seconds is not None and seconds <= 10
    assert "violates PodSecurity" in words and "web" in words
    assert client.asked == 1


def test_a_refusal_of_before_the_change_is_not_this_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Told("FailedCreate", "it is forbidden", at="2025-12-31T23:59:59Z")
    assert judged(monkeypatch, client, 60) == (None, "")
    assert client.asked <= 60 / 4


def test_what_a_pod_mounts_and_nobody_has_is_told_within_fifteen_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [{"name": name, "status": status} for name, status in (("web-0", RUNS), ("web-1", STARTS))]
    seconds, words = judged(monkeypatch, Told("FailedMount", SECRET), 60, *pods)
    assert seconds is not None and seconds <= 10
    assert "pod web-1" in words and 'secret "web-munge" not found' in words


@pytest.mark.parametrize(
    ("reason", "message"),
    [("FailedMount", "MountVolume.SetUp failed: timed out waiting for the condition"), ("FailedAttachVolume", "Multi-Attach error")],
)
def test_what_may_heal_by_itself_is_waited_for(monkeypatch: pytest.MonkeyPatch, reason: str, message: str) -> None:
    pods = [{"name": name, "status": STARTS} for name in ("web-0", "web-1")]
    assert judged(monkeypatch, Told(reason, message), 60, *pods) == (None, "")


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("FailedMount", "MountVolume.SetUp failed for volume jail: mount.nfs: access denied by server while mounting nas:/jail"),
        ("FailedMount", "kubernetes.io/csi: driver name x not found in the list of registered CSI drivers"),
        ("FailedAttachVolume", "Multi-Attach error for volume jail"),
    ],
)
def test_what_a_pod_waits_for_is_told_while_it_may_heal(monkeypatch: pytest.MonkeyPatch, reason: str, message: str) -> None:
    now, waits = waiting(monkeypatch, Told(reason, message), {"name": "web-0", "status": RUNS}, {"name": "web-1", "status": STARTS})
    began, told = now[0], {}
    while now[0] < began + 20:
        waits._judge()
        told[now[0] - began] = waits._waited_for()
        now[0] += 1
    ready = "waiting for StatefulSet ns/web: its controller has not seen the change yet"
    assert told[4] == ready and told[8] == told[19] == f"{ready} (pod web-1: {reason}: {message})"
    waits._pods[Ref(BUILTIN["", "Pod"], "ns", "web-1")]["status"] = RUNS
    waits._judge()
    assert waits._waited_for() == ready, "the pod has its volumes"


def test_a_pod_whose_labels_somebody_took_off_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Told("SuccessfulCreate", "create Pod web-0 in StatefulSet web successful")
    pods = [{"name": "web-0", "status": RUNS}, {"name": "web-1", "status": RUNS, "owner": "nobody"}]
    seconds, words = judged(monkeypatch, client, 60, *pods)
    assert seconds is not None and seconds <= 10
    assert "kubectl delete pod web-1 -n ns" in words


def test_pods_that_run_ask_for_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Told("FailedCreate", "long over")
    judged(monkeypatch, client, 60, *({"name": name, "status": RUNS} for name in ("web-0", "web-1")))
    assert client.asked == 0


def unscheduled(message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    volumes = [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]
    return {"name": "web-0", "spec": {"volumes": volumes}, "status": {"phase": "Pending", "conditions": [condition]}}


def test_a_pod_whose_claims_were_bound_just_after_the_scheduler_looked_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks again when something tells it to, and within five minutes at the latest."""
    client = Told("FailedScheduling", "pod has unbound immediate PersistentVolumeClaims")
    early = unscheduled("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found")
    pods = (early, {"name": "web-1", "status": RUNS})
    assert judged(monkeypatch, client, 330, *pods) == (None, "")
    client.claims = "Pending"
    seconds, words = judged(monkeypatch, client, 330, *pods)
    assert seconds == 30 and "home is not bound" in words
    client.claims = "Bound"
    other = unscheduled("0/2 nodes are available: 2 node(s) had volume node affinity conflict.")
    seconds, words = judged(monkeypatch, client, 330, other, pods[1])
    assert seconds == 30 and "cannot be used on any node" in words


@pytest.mark.parametrize(("wanted", "waits"), [({}, True), ({"suspend": True}, False)])
def test_a_job_that_somebody_else_has_suspended_is_waited_for(wanted: dict[str, Any], waits: bool) -> None:
    metadata = {"name": "users", "namespace": "ns", "generation": 1}
    item = Item(Ref(BUILTIN["batch", "Job"], "ns", "users"), {"metadata": metadata, "spec": wanted})
    item.after = {"metadata": metadata, "spec": {"suspend": True}}
    said = wait._Wait(None, [item], 5.0)  # type: ignore[arg-type]  # it asks no Client
    assert bool(said.pending) is waits
    assert not waits or "Job ns/users: it is suspended; kubectl patch job users -n ns" in said._waited_for()
