# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys are made once, whatever happens, and never shown."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import secret
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Invalid, KubeError

from ...faultproxy.proxy import Fault, FaultProxy
from .conftest import Engine

pytestmark = pytest.mark.lab

KEYS: dict[str, Any] = {
    "munge.key": {"random_bytes": 1024},
    "ed": {"ssh_host_key": "ed25519"},
    "ec": {"ssh_host_key": "ecdsa"},
    "rsa": {"ssh_host_key": "rsa"},
    "text": {"value": "swordfish"},
}


def make(engine: Engine, data: dict[str, Any], *, check: bool = False, diff: bool = True, **more: Any) -> dict[str, Any]:
    wanted = {"name": "keys", "namespace": engine.namespace, "labels": {"a": "b"}, "data": data, **more}
    return secret.run({"kubeconfig": engine.kubeconfig, "secrets": [wanted]}, check=check, diff=diff)


def test_keys_are_made_once_and_completed_later(engine: Engine, tmp_path: Path) -> None:
    assert make(engine, KEYS, check=True)["changed"] and engine.names("secrets") == set()
    first = make(engine, KEYS)
    assert first["secrets"][0] == {"kind": "Secret", "namespace": engine.namespace, "name": "keys", "result": "created", "added": 5}
    data = engine.get("secret", "keys")["data"]
    assert len(base64.b64decode(data["munge.key"])) == 1024 and base64.b64decode(data["text"]) == b"swordfish"
    assert not any(value in json.dumps(first) for value in (*data.values(), "swordfish")), "a key is in the result"
    for name, kind in (("ed", "ssh-ed25519"), ("ec", "ecdsa-sha2-nistp256"), ("rsa", "ssh-rsa")):
        path = tmp_path / name
        path.write_bytes(base64.b64decode(data[name]))
        path.chmod(0o600)
        public = subprocess.run(["ssh-keygen", "-y", "-f", str(path)], capture_output=True, text=True, check=True).stdout
        assert public.startswith(kind)
    second = make(engine, {**KEYS, "text": {"value": "other"}})
    assert not second["changed"] and second["requests"] == 1
    assert make(engine, {**KEYS, "new": {"random_bytes": 16}}, check=True)["changed"]
    assert engine.get("secret", "keys")["data"] == data
    third = make(engine, {**KEYS, "new": {"random_bytes": 16}}, labels={"c": "d"})
    assert third["secrets"][0]["result"] == "configured" and third["secrets"][0]["added"] == 1
    live = engine.get("secret", "keys")
    assert {key: value for key, value in live["data"].items() if key != "new"} == data and live["metadata"]["labels"] == {
        "a": "b",
        "c": "d",
    }


@pytest.mark.parametrize("action", ["409", "429", "500", "503", "504-committed", "reset", "reset-committed"])
def test_a_fault_at_a_write_never_makes_a_key_twice(behind: Engine, proxy: FaultProxy, action: str) -> None:
    first = {"one": {"random_bytes": 32}}
    proxy.plan(Fault(action, write=1, seconds=0.05))
    assert make(behind, first)["secrets"][0]["result"] == "created"
    data = behind.get("secret", "keys")["data"]
    proxy.plan(Fault(action, write=1, seconds=0.05))
    made = make(behind, {**first, "two": {"random_bytes": 32}})
    assert made["secrets"][0] == {"kind": "Secret", "namespace": behind.namespace, "name": "keys", "result": "configured", "added": 1}
    after = behind.get("secret", "keys")["data"]
    assert after["one"] == data["one"] and set(after) == {"one", "two"}
    proxy.plan()
    assert not make(behind, {**first, "two": {"random_bytes": 32}})["changed"] and proxy.writes == 0


def test_somebody_who_adds_the_same_key_in_between_keeps_his(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    make(engine, {"one": {"random_bytes": 8}})
    contents = secret._contents

    def overtaken(keys: dict[str, Any]) -> dict[str, str]:
        monkeypatch.setattr(secret, "_contents", contents)
        engine.kubectl("patch", "secret", "keys", "-n", engine.namespace, "--type=merge", "-p", '{"stringData": {"two": "his"}}')
        return contents(keys)

    monkeypatch.setattr(secret, "_contents", overtaken)
    result = make(engine, {"one": {"random_bytes": 8}, "two": {"random_bytes": 8}})
    assert base64.b64decode(engine.get("secret", "keys")["data"]["two"]) == b"his"
    assert result["secrets"][0]["result"] == "unchanged"


@pytest.mark.parametrize(
    "source", [{}, {"random_bytes": 0}, {"random_bytes": True}, {"random_bytes": 1, "value": "x"}, {"ssh_host_key": "dsa"}, "x"]
)
def test_a_recipe_that_says_nothing_or_two_things_is_refused(engine: Engine, source: Any) -> None:
    with pytest.raises(Invalid, match="the key k needs exactly one of"):
        make(engine, {"k": source})


def test_an_immutable_secret_is_told(engine: Engine) -> None:
    engine.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "immutable": True, "data": {"one": "eA=="}})
    with pytest.raises(KubeError, match="is immutable and lacks the keys two"):
        make(engine, {"two": {"random_bytes": 8}})


def test_a_key_that_is_lost_while_a_pod_runs_with_it_is_not_made_anew(engine: Engine, tmp_path: Path) -> None:
    """The pod is held back from the scheduler and only said to run: what it holds is asked of nobody here."""
    recipe = {"one": {"random_bytes": 32}, "two": {"random_bytes": 8}}
    make(engine, recipe)
    container = {"name": "c", "image": "localhost/none:1", "volumeMounts": [{"name": "k", "mountPath": "/keys"}]}
    spec = {
        "containers": [container],
        "volumes": [{"name": "k", "secret": {"secretName": "keys"}}],
        "schedulingGates": [{"name": "test.corral.hpc/never"}],
    }
    engine.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    running = {
        "phase": "Running",
        "containerStatuses": [{"name": "c", "ready": True, "restartCount": 0, "image": "", "imageID": "", "state": {"running": {}}}],
    }
    engine.kubectl(
        "patch", "pod", "p", "-n", engine.namespace, "--subresource=status", "--type=merge", "-p", json.dumps({"status": running})
    )
    lost = engine.get("secret", "keys")["data"]["two"]
    for value in ('""', "null"):
        engine.kubectl("patch", "secret", "keys", "-n", engine.namespace, "--type=merge", "-p", f'{{"data": {{"two": {value}}}}}')
        with pytest.raises(KubeError, match=r"Secret .*/keys has lost two, while pods run with it \(p\)") as caught:
            make(engine, recipe)
        (tmp_path / "two").write_bytes(base64.b64decode(lost))
        create = re.search(r"then 'kubectl (-n \S+ create secret .*) \| kubectl (-n \S+ apply -f -)'", str(caught.value))
        assert create is not None
        manifest = engine.kubectl(*create[1].replace("=two", f"={tmp_path / 'two'}").split())
        engine.kubectl(*create[2].split(), stdin=manifest)
        assert engine.get("secret", "keys")["data"]["two"] == lost
        make(engine, recipe)
    engine.kubectl("delete", "secret", "keys", "-n", engine.namespace)
    for check in (True, False):
        with pytest.raises(KubeError, match=r"Secret .*/keys is gone, while pods run with it \(p\)") as caught:
            make(engine, recipe, check=check)
        assert f"kubectl -n {engine.namespace} exec p -c c -- cat /keys/one > one" in str(caught.value)
    assert "keys" not in engine.names("secrets")
    engine.kubectl("delete", "pod", "p", "-n", engine.namespace, "--grace-period=0", "--force")
    assert make(engine, recipe)["changed"]
