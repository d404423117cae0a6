# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""replace_stuck_pods and in_use against a real StatefulSet controller and a real kubelet."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Engine, image_with_shell

pytestmark = pytest.mark.lab
UNKNOWN = "localhost/corral/there-is-no-such-image:1"


def stateful_set(image: str, command: str = "sleep 600", replicas: int = 1) -> dict[str, Any]:
    container = {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "command": ["/bin/sh", "-c", command]}
    labels = {"app": "stuck"}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "stuck"},
        "spec": {
            "replicas": replicas,
            "serviceName": "stuck",
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container]},
            },
        },
    }


def await_stuck(engine: Engine, pod: str) -> None:
    path = "jsonpath={.status.containerStatuses[0].state.waiting.reason}=ImagePullBackOff"
    engine.kubectl.await_pod(engine.namespace, pod, path, 60)


def uids(engine: Engine) -> dict[str, str]:
    pods = engine.kubectl.items("pods", "-n", engine.namespace)
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods if not pod["metadata"].get("deletionTimestamp")}


def test_a_pod_that_can_not_start_goes_when_its_template_has_changed(engine: Engine) -> None:
    good = stateful_set(image_with_shell())
    engine.apply(stateful_set(UNKNOWN))
    await_stuck(engine, "stuck-0")
    before = uids(engine)

    planned = engine.apply(good, replace_stuck_pods=True, check=True)
    assert uids(engine) == before, "check mode deletes nothing"
    assert planned["writes"] == 0

    done = engine.apply(good, replace_stuck_pods=True, wait=True, wait_timeout=90)
    rows = {(row["kind"], row["name"]): row["result"] for row in done["objects"]}
    assert rows == {("StatefulSet", "stuck"): "configured", ("Pod", "stuck-0"): "replaced"}
    assert done["changed"]
    assert done["writes"] == 2
    assert uids(engine)["stuck-0"] != before["stuck-0"]

    again = engine.apply(good, replace_stuck_pods=True, wait=True)
    assert (again["changed"], again["writes"]) == (False, 0)


def test_a_pod_that_turns_out_to_be_stuck_during_the_wait_goes_too(engine: Engine) -> None:
    """A user corrects the image at once, before the kubelet has tried the wrong one."""
    engine.apply(stateful_set(UNKNOWN))
    done = engine.apply(stateful_set(image_with_shell()), replace_stuck_pods=True, wait=True, wait_timeout=120)
    assert done["changed"]


def test_a_pod_that_runs_stays_whatever_its_template_says(engine: Engine) -> None:
    image = image_with_shell()
    engine.apply(stateful_set(image), wait=True, wait_timeout=90)
    before = uids(engine)
    done = engine.apply(stateful_set(image, "sleep 601", replicas=2), replace_stuck_pods=True)
    assert [row["result"] for row in done["objects"]] == ["configured"]
    assert uids(engine)["stuck-0"] == before["stuck-0"]


def test_a_stuck_pod_of_the_current_template_stays(engine: Engine) -> None:
    """Deleting it would bring the same pod again, and hide since when it is stuck."""
    engine.apply(stateful_set(UNKNOWN))
    await_stuck(engine, "stuck-0")
    before = uids(engine)
    done = engine.apply(stateful_set(UNKNOWN), replace_stuck_pods=True)
    assert (done["changed"], done["writes"]) == (False, 0)
    assert uids(engine) == before


def test_pods_in_use_that_go_are_waited_for_as_long_as_is_said_and_told(engine: Engine) -> None:
    one = stateful_set(image_with_shell())
    one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 12
    in_use = {"container": "main", "command": ["/bin/sh", "-c", "echo 1 processes of ada; exit 1"], "wait": True}
    engine.apply(one, wait=True, wait_timeout=90)
    one["spec"]["replicas"] = 0
    goes = f"Pod {engine.namespace}/stuck-0 goes while it is in use: 1 processes of ada. It has 12 s to end."
    stays = f"Pod {engine.namespace}/stuck-0 is still there: 1 processes of ada. It ends at "
    told, late = engine.apply(one, in_use=in_use, wait=True, wait_timeout=3)["warnings"]
    assert (told, late.startswith(stays)) == (goes, True), late
    assert "warnings" not in engine.apply(one, in_use=in_use, wait=True, wait_timeout=60)
    assert engine.kubectl.items("pods", "-n", engine.namespace) == []
    one["spec"]["replicas"] = 1
    engine.apply(one, wait=True, wait_timeout=90)
    gone = engine.absent(objects=[one], in_use=in_use, wait=True, wait_timeout=10)
    assert gone["warnings"] == [goes], "and it had its time"
    assert engine.kubectl.items("pods", "-n", engine.namespace) == []
