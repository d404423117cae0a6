# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits against real kubelets: ready, not ready, never ready and why."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import pods, wait
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import WaitFailed, WaitTimeout

from .conftest import Engine, image_with_shell

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def image() -> str:
    return image_with_shell()


# A container without a readiness probe counts as ready for the moment that it runs before it crashes.
PROBE = {"readinessProbe": {"exec": {"command": ["/bin/true"]}, "initialDelaySeconds": 2}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six seconds instead of 20 and 30, which the tables of tests/unit hold; what kubelets really say is what is tested here."""
    for module in (pods, wait):
        monkeypatch.setattr(module, "GRACE", 6.0)
    monkeypatch.setattr(pods, "UNSCHEDULABLE_GRACE", 6.0)


def pod_template(image: str, script: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "command": ["/bin/sh", "-c", script]}
    container |= {"terminationMessagePolicy": "FallbackToLogsOnError"} | spec.pop("container", {})
    return {
        "metadata": {"labels": {"app": "test"}},
        "spec": {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container], **spec},
    }


def stateful_set(name: str, template: dict[str, Any], replicas: int = 1, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "test"}},
            "template": template,
            **spec,
        },
    }


def job(name: str, template: dict[str, Any], **spec: Any) -> dict[str, Any]:
    template["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": template, **spec},
    }


def test_workloads_become_ready_and_are_then_ready_without_a_request(engine: Engine, image: str) -> None:
    template = pod_template(image, "sleep 600")
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "test"}}, "template": template},
    }
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "n"},
        "spec": {"selector": {"matchLabels": {"app": "test"}}, "template": template},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": template["spec"]}
    done = job("j", pod_template(image, "true"))
    batch = [stateful_set("s", template, replicas=2), deployment, daemon_set, done]
    engine.apply(*batch, wait=True, wait_timeout=120)
    for kind, name, path in (
        ("statefulset", "s", "readyReplicas"),
        ("deployment", "d", "availableReplicas"),
        ("daemonset", "n", "numberReady"),
    ):
        assert engine.get(kind, name)["status"][path] >= 1
    assert engine.get("job", "j")["status"]["succeeded"] == 1
    engine.apply(pod, wait=True, wait_timeout=120, create_only=True)
    again = engine.apply(*batch, wait=True, wait_timeout=120)
    assert not again["changed"] and again["requests"] <= len(batch) + 1 + sum(row["result"] == "configured" for row in again["objects"])
    assert engine.absent(objects=[pod], wait=True)["changed"]


def test_a_change_is_waited_for_until_the_new_pods_are_there(engine: Engine, image: str) -> None:
    engine.apply(stateful_set("s", pod_template(image, "sleep 600"), replicas=2), wait=True, wait_timeout=120)
    changed = pod_template(image, "sleep 601")
    engine.apply(stateful_set("s", changed, replicas=2), wait=True, wait_timeout=120)
    status = engine.get("statefulset", "s")["status"]
    assert status["updatedReplicas"] == 2 and status["readyReplicas"] == 2 and status["currentRevision"] == status["updateRevision"]


def test_scaling_in_is_waited_for_and_deleting_waits_for_the_pods(engine: Engine, image: str) -> None:
    template = pod_template(image, "sleep 600")
    engine.apply(stateful_set("s", template, replicas=2), wait=True, wait_timeout=120)
    engine.apply(stateful_set("s", template, replicas=1), wait=True, wait_timeout=60)
    assert engine.names("pods") == {"s-0"}
    engine.absent(objects=[stateful_set("s", template)], wait=True, wait_timeout=60)
    assert engine.names("pods") == set()


@pytest.mark.long
def test_an_image_that_can_not_be_had_is_told_after_its_grace(engine: Engine) -> None:
    template = pod_template("localhost/there/is:none", "true")
    began = time.monotonic()
    with pytest.raises(
        WaitFailed,
        match=r"StatefulSet .*/s: pod s-0, container main: the image localhost/there/is:none cannot be had \(\w+: .*pull secrets",
    ):
        engine.apply(stateful_set("s", template), wait=True, wait_timeout=120)
    assert 5 < time.monotonic() - began < 40, "neither at first sight nor at the time-out"


def test_a_name_that_is_none_is_told_at_once(engine: Engine) -> None:
    began = time.monotonic()
    with pytest.raises(WaitFailed, match=r"image name .* is not valid"):
        engine.apply(stateful_set("s", pod_template("No Image::", "true")), wait=True, wait_timeout=60)
    assert time.monotonic() - began < 15


@pytest.mark.long
def test_a_crash_loop_is_told_with_exit_code_and_last_words(engine: Engine, image: str) -> None:
    # One stream: the runtime reads stdout and stderr from two pipes, in no order.
    script = "exec >&2; echo starting; echo no munge key found; exit 7"
    with pytest.raises(
        WaitFailed, match=r"pod s-0, container main: it crashes again and again \(exit code 7: .*no munge key found"
    ) as caught:
        engine.apply(stateful_set("s", pod_template(image, script, container=PROBE)), wait=True, wait_timeout=120)
    assert "last lines: starting | no munge key found" in str(caught.value) and "logs s-0 -c main --previous" in str(caught.value)


@pytest.mark.long
def test_what_a_container_refers_to_and_is_not_there_is_told(engine: Engine, image: str) -> None:
    missing = {"envFrom": [{"secretRef": {"name": "nowhere"}}]}
    with pytest.raises(
        WaitFailed, match=r'cannot be started \(CreateContainerConfigError: secret "nowhere" not found\); make what it refers to'
    ):
        engine.apply(stateful_set("s", pod_template(image, "true", container=missing)), wait=True, wait_timeout=60)


@pytest.mark.long
def test_a_pod_that_no_node_takes_is_told(engine: Engine, image: str) -> None:
    template = pod_template(image, "true", nodeSelector={"corral.hpc/no": "such-node"})
    with pytest.raises(WaitFailed, match=r"pod s-0: .*nodes are available.*; lower the requests, or add nodes"):
        engine.apply(stateful_set("s", template), wait=True, wait_timeout=90)


@pytest.mark.long
def test_a_pod_whose_claim_has_no_volume_is_told_of_the_claim(engine: Engine, image: str) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "homes"},
        "spec": {"storageClassName": "", "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    template = pod_template(image, "true", volumes=[{"name": "homes", "persistentVolumeClaim": {"claimName": "homes"}}])
    engine.apply(claim)
    with pytest.raises(WaitFailed, match=r"pod s-0: .*; PersistentVolumeClaim .*/homes is not bound \(FailedBinding: .*\): give it"):
        engine.apply(stateful_set("s", template), wait=True, wait_timeout=90)


def test_a_failed_job_quotes_its_pod_and_is_made_anew_once_on_demand(engine: Engine, image: str) -> None:
    failing = job("j", pod_template(image, "echo disk full >&2; exit 3"))
    with pytest.raises(WaitFailed, match=r"Job .*/j: it failed \(BackoffLimitExceeded.*exit code 3: .*disk full"):
        engine.apply(failing, wait=True, wait_timeout=60)
    began = time.monotonic()
    with pytest.raises(WaitFailed, match="it failed") as caught:
        engine.apply(failing, wait=True, wait_timeout=60)
    assert time.monotonic() - began < 5 and caught.value.data["objects"][0]["result"] == "unchanged"
    uid = engine.get("job", "j")["metadata"]["uid"]
    assert engine.results(failing, retry_failed_jobs=True, check=True) == {"j": "created"}
    assert engine.get("job", "j")["metadata"]["uid"] == uid, "check mode leaves it"
    with pytest.raises(WaitFailed) as caught:
        engine.apply(failing, wait=True, wait_timeout=60, retry_failed_jobs=True)
    assert caught.value.data["objects"][0]["result"] == "created" and engine.get("job", "j")["metadata"]["uid"] != uid


def test_a_job_that_somebody_has_suspended_is_told_or_taken_back(engine: Engine, image: str) -> None:
    wanted = job("j", pod_template(image, "true"))
    held = {**wanted, "spec": {**wanted["spec"], "suspend": True}}
    assert engine.apply(held, wait=True, wait_timeout=30)["changed"], "it is as it should be"
    engine.absent(objects=[wanted], wait=True)
    engine.kubectl("create", "-n", engine.namespace, "-f", "-", stdin=json.dumps(held))
    with pytest.raises(WaitTimeout, match=r"Job .*/j: it is suspended; kubectl patch job j -n .* has it go on"):
        engine.apply(wanted, wait=True, wait_timeout=5)
    result = engine.apply(wanted, wait=True, wait_timeout=60, foreign_fields=[])
    assert [row["field"] for row in result["foreign"]] == [".spec.suspend"]
    assert engine.get("job", "j")["status"]["succeeded"] == 1


def test_a_time_out_says_what_is_missing(engine: Engine, image: str) -> None:
    never = {"readinessProbe": {"exec": {"command": ["/bin/false"]}, "periodSeconds": 1}}
    with pytest.raises(
        WaitTimeout, match=r"Not ready after 6 s: StatefulSet .*/s: 0 of 2 pods are ready \(.*pod s-0: container main runs.*Unhealthy"
    ):
        engine.apply(stateful_set("s", pod_template(image, "sleep 600", container=never), replicas=2), wait=True, wait_timeout=6)


def claim(storage_class: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "resources": {"requests": {"storage": "1Mi"}}},
    }


def kept_volume(namespace: str) -> dict[str, Any]:
    """For the claim of a namespace, whose name it has, too."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": namespace},
        "spec": {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace, "name": "c"},
            "hostPath": {"path": "/var/lib/nothing"},
        },
    }


@pytest.mark.long
def test_claims(engine: Engine) -> None:
    late = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": engine.namespace},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    volume = kept_volume(engine.namespace)
    try:
        began = time.monotonic()
        engine.apply(late, claim(engine.namespace), wait=True, wait_timeout=30)
        assert time.monotonic() - began < 5, "a claim that binds at its first pod is as it should be"
        engine.absent(objects=[claim("")], wait=True)
        engine.apply(volume, claim(""), wait=True, wait_timeout=30)
        assert engine.get("pvc", "c")["status"]["phase"] == "Bound"
        engine.absent(objects=[claim("")], wait=True)
        with pytest.raises(WaitFailed, match=r"PersistentVolumeClaim .*/c: it is not bound to a volume: ProvisioningFailed: .*not found"):
            engine.apply(claim("no-such-class"), wait=True, wait_timeout=60)
        engine.absent(objects=[claim("")], wait=True)
        again = claim("")
        again["spec"]["volumeName"] = name = volume["metadata"]["name"]
        with pytest.raises(
            WaitFailed, match=rf"already bound to a different claim\. If the claim .* 'kubectl delete pv {name}' takes no data away"
        ):
            engine.apply(volume, again, wait=True, wait_timeout=60)
    finally:
        engine.absent(objects=[volume, late])


def test_a_volume_that_is_kept_serves_the_next_claim_of_its_name_where_that_is_asked_for(engine: Engine) -> None:
    volume = kept_volume(engine.namespace)
    bound = claim("")
    bound["spec"]["volumeName"] = engine.namespace

    def live() -> Any:
        return engine.get("pv", engine.namespace)

    def phase_comes(phase: str) -> None:
        deadline = time.monotonic() + 60
        while live()["status"]["phase"] != phase:
            assert time.monotonic() < deadline, live()
            time.sleep(0.2)

    try:
        engine.apply(volume, bound, wait=True, wait_timeout=60)
        before = live()
        assert engine.results(volume, bound, rebind_volumes=True) == {engine.namespace: "unchanged", "c": "unchanged"}, (
            "while its claim is there"
        )
        assert live() == before
        engine.absent(objects=[bound], wait=True)
        phase_comes("Released")
        before = live()
        assert engine.results(volume) == {engine.namespace: "unchanged"}, "it was not asked for"
        would = engine.apply(volume, rebind_volumes=True, check=True, diff=True)
        assert would["changed"] and live() == before
        [shown] = would["diff"]
        assert shown["before"]["spec"]["claimRef"]["uid"] == before["spec"]["claimRef"]["uid"]
        assert shown["after"]["spec"]["claimRef"] == volume["spec"]["claimRef"]
        did = engine.apply(volume, bound, rebind_volumes=True, wait=True, wait_timeout=60)
        assert {row["name"]: row["result"] for row in did["objects"]} == {engine.namespace: "configured", "c": "created"}
        assert live()["spec"]["claimRef"]["uid"] == engine.get("pvc", "c")["metadata"]["uid"] != before["spec"]["claimRef"]["uid"]
        assert engine.results(volume, bound, rebind_volumes=True) == {engine.namespace: "unchanged", "c": "unchanged"}
    finally:
        engine.absent(objects=[bound, volume])


def test_somebody_who_deletes_what_is_waited_for_is_told(engine: Engine, image: str) -> None:
    threading.Timer(1.0, engine.kubectl, ("delete", "statefulset", "s", "-n", engine.namespace)).start()
    template = pod_template(image, "sleep 600", nodeSelector={"corral.hpc/no": "such-node"})
    with pytest.raises(WaitFailed, match="was deleted by somebody else"):
        engine.apply(stateful_set("s", template), wait=True, wait_timeout=60)


@pytest.mark.long
def test_pods_that_are_refused_are_told(engine: Engine, image: str) -> None:
    with pytest.raises(WaitFailed) as told:
        engine.apply(stateful_set("refused", pod_template(image, "sleep 1000", priorityClassName="nosuch")), wait=True, wait_timeout=60)
    assert "its pods are refused" in str(told.value) and "nosuch" in str(told.value)


@pytest.mark.long
def test_a_volume_of_a_secret_that_is_not_there_is_told(engine: Engine, image: str) -> None:
    mounted = {"volumeMounts": [{"name": "key", "mountPath": "/key"}]}
    template = pod_template(image, "sleep 1000", container=mounted, volumes=[{"name": "key", "secret": {"secretName": "nosuch"}}])
    with pytest.raises(WaitFailed) as told:
        engine.apply(stateful_set("mounts", template), wait=True, wait_timeout=60)
    assert "pod mounts-0: it cannot have its volumes" in str(told.value) and '"nosuch" not found' in str(told.value)
