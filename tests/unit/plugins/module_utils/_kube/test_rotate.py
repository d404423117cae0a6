# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Secret is rotated once, whatever interrupts it, and all pods use its keys in the end. Slurm's daemons do so in tests/integration/test_keys.py."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import refresh, rotate, secret
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Response
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Conflict, ExecError, NotFound, Status, WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output

Json = dict[str, Any]
BEFORE, CHANGE, AFTER = (f"2026-01-01T00:00:0{second}Z" for second in (1, 2, 3))
OLD = base64.b64encode(b"old").decode()
OURS = {"app.kubernetes.io/managed-by": "corral", "app.kubernetes.io/instance": "lab"}
WANTED: Json = {"name": "key", "namespace": "slurm", "labels": OURS, "data": {"k": {"random_bytes": 32}}}
INFORMED: Json = {"secret": WANTED, "selector": "all", "containers": ["munged"], "command": ["keys.sh", "munge"], "timeout": 5}
RESTARTED: Json = {"secret": WANTED, "restart": ["first", "second"], "timeout": 5}


def pod(name: str, uid: str = "1", created: str = BEFORE, **metadata: Any) -> Json:
    return {
        "metadata": {"name": name, "uid": uid, "creationTimestamp": created, **metadata},
        "spec": {"volumes": [{"name": "key", "secret": {"secretName": "key"}}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "initContainerStatuses": [{"name": "munged", "state": {"running": {}}, "containerID": f"c{uid}"}],
        },
    }


class Server:
    """An API server with one Secret, pods by selector whose StatefulSet makes each again, and kubelets that are quick."""

    def __init__(self) -> None:
        self.access = type("Access", (), {"namespace": "slurm"})()
        self.requests = 0
        fields = [{"manager": "corral", "time": BEFORE, "fieldsV1": {"f:data": {}}}, {"manager": "corral", "time": AFTER}]
        self.live: Json = {
            "metadata": {"resourceVersion": "1", "creationTimestamp": BEFORE, "labels": {**OURS}, "managedFields": fields},
            "data": {"k": OLD},
        }
        self.pods: dict[str, list[Json]] = {}
        self.log: list[str] = []
        self.used: dict[str, str] = {}
        self.mute: set[str] = set()
        self.back = True

    def get(self, path: str, *, what: str) -> Response:
        if "/secrets/" in path:
            return Response(200, json.loads(json.dumps(self.live)))
        for pods in self.pods.values():
            for one in pods:
                if path.endswith(f"/{one['metadata']['name']}"):
                    return Response(200, one)
        raise NotFound(f"Could not {what}.", Status(404, "NotFound"))

    def items(self, _path: str, *, query: Json, **_more: Any) -> list[Json]:
        return list(self.pods.get(query["labelSelector"], []))

    def request(self, method: str, path: str, *, body: Json, query: Json | None = None, **_more: Any) -> Response:
        if "/pods/" in path:
            if method == "DELETE":
                self._replace(path.rpartition("/")[2])
            return Response(200, {})
        if query and query.get("dryRun"):
            return Response(200, {**self.live, "data": body["data"]})
        annotations = {**(self.live["metadata"].get("annotations") or {}), **body["metadata"].get("annotations", {})}
        self.live["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
        if "data" in body:
            self.log.append("rotated")
            self.live["data"] = {key: value for key, value in {**self.live["data"], **body["data"]}.items() if value is not None}
            self.live["metadata"]["managedFields"][0]["time"] = CHANGE
        return Response(200, json.loads(json.dumps(self.live)))

    def _replace(self, name: str) -> None:
        self.log.append(f"deleted {name}")
        for selector, pods in self.pods.items():
            made = [pod(name, "2", AFTER)] if self.back else []
            if any(one["metadata"]["name"] == name for one in pods):
                self.pods[selector] = [one for one in pods if one["metadata"]["name"] != name] + made

    def run_in_pod(self, _client: Any, *, pod: str, command: list[str], container: str, **_more: Any) -> Output:
        if pod in self.mute:
            raise ExecError("Could not run keys.sh: its node does not respond.")
        if command[2] == "mounted":
            return Output(0, rotate.digest(self.live) + "\n", "")
        self.log.append(f"{pod} uses" if container == "munged" else f"{container} of {pod} uses {sorted(self.live['data'])}")
        self.used[pod] = command[3]
        return Output(0, "", "")

    def close(self) -> None:
        pass

    @property
    def marks(self) -> set[str]:
        return set(self.live["metadata"].get("annotations") or {}) & {secret.ROTATING, secret.ROTATED}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda pause: now.append(now.pop() + pause))
    monkeypatch.setattr(rotate.auth, "resolve", lambda _params: None)
    monkeypatch.setattr(rotate, "Client", lambda _access, **_more: found)
    for module in (rotate, refresh):
        monkeypatch.setattr(module, "run_in_pod", found.run_in_pod)
        monkeypatch.setattr(module, "time", clock)
    return found


def run(params: Json, **mode: bool) -> Json:
    return rotate.run(params, check=mode.get("check", False), diff=mode.get("diff", True))


def test_pods_are_informed_and_a_second_rotation_makes_other_keys(server: Server) -> None:
    server.pods["all"] = [pod("lab-cpu-0"), pod("lab-cpu-1")]
    result = run(INFORMED)
    assert (result["changed"], result["begun"], sorted(result["pods"])) == (True, True, ["lab-cpu-0", "lab-cpu-1"])
    assert server.live["data"]["k"] != OLD
    assert set(server.used.values()) == {rotate.digest(server.live)}
    assert server.marks == {secret.ROTATED}
    assert server.live["data"]["k"] not in json.dumps(result)
    first = server.live["data"]["k"]
    assert run(INFORMED)["begun"]
    assert server.live["data"]["k"] != first


def test_a_run_that_ended_early_is_continued_with_the_same_keys(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.pods["all"] = [pod("lab-cpu-0"), pod("lab-cpu-1")]

    def half(client: Any, *, pod: str, command: list[str], **more: Any) -> Output:
        if pod == "lab-cpu-1" and command[2] == "use":
            return Output(1, "", "munged did not start")
        return server.run_in_pod(client, pod=pod, command=command, **more)

    monkeypatch.setattr(rotate, "run_in_pod", half)
    with pytest.raises(
        WaitTimeout, match=r"1 of 2 pods do not use the new keys: lab-cpu-1 \(munged did not start\) after 5 s\. .* goes on"
    ):
        run(INFORMED)
    assert server.marks == {secret.ROTATING}
    keys = server.live["data"]["k"]
    monkeypatch.setattr(rotate, "run_in_pod", server.run_in_pod)
    result = run(INFORMED)
    assert (result["changed"], result["begun"]) == (True, False)
    assert server.live["data"]["k"] == keys and server.used == dict.fromkeys(("lab-cpu-0", "lab-cpu-1"), rotate.digest(server.live))
    assert server.marks == {secret.ROTATED}


def test_a_container_that_starts_meanwhile_is_informed_too(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.pods["all"] = [pod("lab-cpu-0")]

    def another(client: Any, *, pod: str, command: list[str], **more: Any) -> Output:
        if command[2] == "use" and len(server.pods["all"]) == 1:
            server.pods["all"].append(globals()["pod"]("lab-cpu-1", "7"))
        return server.run_in_pod(client, pod=pod, command=command, **more)

    monkeypatch.setattr(rotate, "run_in_pod", another)
    assert run(INFORMED)["pods"] == ["lab-cpu-0", "lab-cpu-1"]


def unreachable(server: Server) -> None:
    server.mute = {"lab-cpu-1"}


def ending(server: Server) -> None:
    server.pods["all"][1]["metadata"]["deletionTimestamp"] = AFTER


def owned(server: Server) -> None:
    server.live["metadata"]["ownerReferences"] = [{"kind": "ExternalSecret", "name": "munge"}]


def managed(server: Server) -> None:
    server.live["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "vault"}


def another_cluster(server: Server) -> None:
    server.live["metadata"]["labels"]["app.kubernetes.io/instance"] = "other"


def immutable(server: Server) -> None:
    server.live["immutable"] = True


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (unreachable, r"1 of 2 pods cannot be given new keys: lab-cpu-1 \(Could not run keys.sh: its node does not respond\)"),
        (ending, r"pods that are ending would keep the former keys \(lab-cpu-1\)"),
        (owned, "because ExternalSecret munge owns it: rotate it where it is made"),
        (managed, "because its label app.kubernetes.io/managed-by is vault"),
        (another_cluster, "because it belongs to the cluster other"),
        (immutable, "because it is immutable"),
    ],
)
def test_what_cannot_end_well_is_not_begun(server: Server, trouble: Callable[[Server], None], words: str, check: bool) -> None:
    server.pods["all"] = [pod("lab-cpu-0"), pod("lab-cpu-1")]
    trouble(server)
    with pytest.raises(Conflict, match=f"{words}.*othing was changed"):
        run(INFORMED, check=check)
    assert server.log == [] and server.marks == set()


def test_pods_are_replaced_in_their_order_and_newer_ones_stay(server: Server) -> None:
    server.pods = {
        "first": [pod("lab-database-0")],
        "second": [pod("lab-controller-0"), pod("lab-controller-1"), pod("lab-controller-2", "1", AFTER)],
    }
    result = run(RESTARTED)
    assert server.log == ["rotated", "deleted lab-database-0", "deleted lab-controller-1", "deleted lab-controller-0"]
    assert result["pods"] == ["lab-database-0", "lab-controller-1", "lab-controller-0"]
    assert result["diff"][0]["after"]["data"] == {"k": "random bytes"}


def test_a_replacement_that_does_not_come_is_waited_for_and_not_deleted_again(server: Server) -> None:
    server.pods = {"first": [pod("lab-database-0")], "second": [pod("lab-accounting-0")]}
    server.back = False
    with pytest.raises(WaitTimeout, match="Pod slurm/lab-database-0 has not been made again after 5 s"):
        run(RESTARTED)
    server.back = True
    server.pods["first"] = [pod("lab-database-0", "2", AFTER)]
    assert run(RESTARTED)["pods"] == ["lab-accounting-0"]
    assert server.log == ["rotated", "deleted lab-database-0", "deleted lab-accounting-0"]


BESIDE: Json = {
    "secret": WANTED, "selector": "all", "containers": ["sack", "slurmd", "slurmctld"], "command": ["keys.sh", "slurm"], "overlap": 150, "timeout": 5,
}  # fmt: skip
STAGES = [["k", "k.next"], ["k", "k.former"], ["k"]]


def daemons(name: str, *containers: str) -> Json:
    made = pod(name)
    made["status"]["containerStatuses"] = [
        {"name": one, "state": {"running": {}}, "containerID": f"{name}/{one}"} for one in ("sack", *containers)
    ]
    return made


def informed(*stages: list[str]) -> list[str]:
    """What is logged of stages: each container of all pods before the next one, and all of them before the Secret is changed again."""
    pods = ("sack of lab-controller-0", "sack of lab-cpu-0", "slurmd of lab-cpu-0", "slurmctld of lab-controller-0")
    return [line for stage in stages for line in ("rotated", *(f"{one} uses {stage}" for one in pods))]


@pytest.fixture
def beside(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    server.pods["all"] = [daemons("lab-controller-0", "slurmctld"), daemons("lab-cpu-0", "slurmd")]
    monkeypatch.setattr(rotate, "_AT_ONCE", 1)  # for the order in the log
    return server


def test_a_key_is_known_to_all_before_it_is_used_and_the_former_one_goes_last(beside: Server) -> None:
    began = rotate.time.monotonic()
    result = run(BESIDE)
    assert beside.log == informed(*STAGES)
    assert list(beside.live["data"]) == ["k"] and beside.live["data"]["k"] != OLD
    assert result["pods"] == ["lab-controller-0", "lab-cpu-0"] and beside.marks == {secret.ROTATED}
    assert rotate.time.monotonic() - began >= 150, "what was made with the former key is valid so long"
    assert beside.live["data"]["k"] not in json.dumps(result)


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_rotation_with_both_keys_is_continued_from_its_stage(beside: Server, stage: int) -> None:
    new = base64.b64encode(b"new").decode()
    beside.live["data"] = [{"k": OLD, "k.next": new}, {"k": new, "k.former": OLD}, {"k": new}][stage]
    beside.live["metadata"]["annotations"] = {secret.ROTATING: BEFORE}
    assert not run(BESIDE)["begun"]
    assert beside.log == informed(*STAGES[stage:])[1:]
    assert beside.live["data"] == {"k": new} and beside.marks == {secret.ROTATED}


def test_a_stage_that_somebody_else_has_begun_is_not_skipped(beside: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write whose response was lost comes back as a conflict: pods must have what it wrote before the next one."""
    request, lost = beside.request, []

    def once_lost(method: str, path: str, *, body: Json, **more: Any) -> Response:
        done = request(method, path, body=body, **more)
        if "k.former" in (body.get("data") or {}) and not lost:
            lost.append(True)
            raise Conflict("Could not rotate it.", Status(409, "Conflict"))
        return done

    monkeypatch.setattr(beside, "request", once_lost)
    run(BESIDE)
    assert lost and beside.log == informed(*STAGES)


def test_check_mode_names_the_pods_and_writes_nothing(server: Server) -> None:
    server.pods = {"all": [pod("lab-cpu-0")], "first": [], "second": [pod("lab-accounting-0")]}
    for params, names in ((INFORMED, ["lab-cpu-0"]), ({**INFORMED, "overlap": 9}, ["lab-cpu-0"]), (RESTARTED, ["lab-accounting-0"])):
        result = run(params, check=True)
        assert (result["changed"], result["begun"], result["pods"]) == (True, True, names)
    assert server.log == [] and server.live["data"]["k"] == OLD and server.marks == set()
