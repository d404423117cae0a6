# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ConfigMap reaches programs in running pods at once, and it is known that it did."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import refresh
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import WaitTimeout

from .conftest import Engine, image_with_shell

pytestmark = pytest.mark.lab

# Takes in what the file says; "bad" is refused, as a program would do it.
PROGRAM = """
while true; do
  new=$(sha256sum < /etc/map/file | cut -c1-16)
  if grep -q bad /etc/map/file; then new="the file is bad"; fi
  echo "$new" > /tmp/taken
  sleep 0.2
done
"""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "program"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "main",
                    "image": image_with_shell(),
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["/bin/sh", "-c", PROGRAM],
                    "volumeMounts": [{"name": "map", "mountPath": "/etc/map"}],
                    "readinessProbe": {"exec": {"command": ["test", "-s", "/tmp/taken"]}, "periodSeconds": 1},
                }
            ],
            "volumes": [{"name": "map", "configMap": {"name": "map"}}],
        },
    }


def test_pods_take_it_in_within_seconds_and_are_asked_once(engine: Engine) -> None:
    def call(text: str, **more: Any) -> dict[str, Any]:
        given = {
            "kubeconfig": engine.kubeconfig,
            "namespace": engine.namespace,
            "config_map": "map",
            "key": "file",
            "selector": "app=program",
        }
        keywords = {"check": more.pop("check", False), "diff": more.pop("diff", False)}
        return refresh.refresh(
            {**given, "hash": digest(text), "container": "main", "path": "/tmp/taken", "timeout": 60, **more}, **keywords
        )

    assert call("one", check=True)["changed"] is False, "there is no ConfigMap yet"
    engine.apply(engine.config_map("map", file="one"))
    time.sleep(1.1)  # times count whole seconds
    engine.apply(pod("a"), pod("b"), wait=True, wait_timeout=60)
    # Pods that came after the ConfigMap need no waking.
    assert call("one") == {"changed": False, "pods": [], "requests": 2}
    uids = engine.kubectl.uids(engine.namespace, "app=program")

    assert call("two", check=True)["pods"] == ["a", "b"], "what would be applied is not there yet"
    time.sleep(1.1)
    engine.apply(engine.config_map("map", file="two"))
    began = time.monotonic()
    done = call("two", diff=True)
    assert time.monotonic() - began < 20, "the kubelets were not woken"
    assert (done["changed"], done["pods"], len(done["diff"])) == (True, ["a", "b"], 2)
    assert call("two") == {"changed": False, "pods": [], "requests": 2}

    engine.apply(engine.config_map("map", file="bad"))
    with pytest.raises(WaitTimeout, match=r"2 of 2 pods did not take in the new map within 8 s: a says: the file is bad; b says"):
        call("bad", timeout=8)
    assert call("bad", check=True)["changed"], "what was not taken in is asked for again"
    assert engine.kubectl.uids(engine.namespace, "app=program") == uids
