# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands in a real container, and slurmctld told and asked by them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils import _converge
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import exec as kube_exec
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ExecError, NotFound, WaitTimeout

from .conftest import Engine, image_with_shell

pytestmark = pytest.mark.lab

# A stand-in for Slurm's scontrol: what is tested here is the way to it. tests/integration/test_site.py has the real one.
SCONTROL = """#!/bin/sh
case "$*" in
  reconfigure) echo x >> /tmp/reconfigured; cat /tmp/refuse >&2 2>/dev/null && exit 1; exit 0 ;;
  "show nodes --json") cat /tmp/nodes.json 2>/dev/null || { echo "slurm_load_node error: Unable to contact slurm controller (connect failure)" >&2; exit 1; } ;;
esac
"""


def pod(image: str) -> dict[str, Any]:
    controller = "/usr/local/lib/corral/controller.py"
    script = (
        f"mkdir -p /tmp/bin {Path(controller).parent}; printf '#!/bin/sh\\nexec scontrol \"$@\"\\n' >{controller}; chmod 755 {controller}; "
        "cp /etc/slurm/scontrol /tmp/bin/; chmod 755 /tmp/bin/scontrol; exec sleep 900"
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["/bin/sh", "-c", script],
                    "env": [{"name": "PATH", "value": "/tmp/bin:/usr/bin:/bin"}],
                    "volumeMounts": [{"name": "config", "mountPath": "/etc/slurm"}],
                    "readinessProbe": {"exec": {"command": ["test", "-x", "/tmp/bin/scontrol"]}, "periodSeconds": 1},
                }
            ],
            "volumes": [{"name": "config", "configMap": {"name": "config"}}],
        },
    }


@pytest.fixture
def box(engine: Engine) -> Iterator[tuple[Engine, Client]]:
    """A running pod with the stand-in."""
    configure(engine, "one")
    engine.apply(pod(image_with_shell()), wait=True, wait_timeout=60)
    client = engine.client()
    yield engine, client
    client.close()


def configure(engine: Engine, digest: str) -> None:
    engine.apply(engine.config_map("config", **{"config.hash": digest, "scontrol": SCONTROL}))


def sh(box: tuple[Engine, Client], script: str, **keywords: Any) -> kube_exec.Output:
    engine, client = box
    return kube_exec.run_in_pod(client, namespace=engine.namespace, pod="p", container="main", command=["sh", "-c", script], **keywords)


def test_output_errors_exit_code_and_input(box: tuple[Engine, Client]) -> None:
    done = sh(box, "echo out; echo 'é 🙂' >&2; exit 42")
    assert (done.code, done.stdout, done.stderr) == (42, "out\n", "é 🙂\n")
    data = b"".join(bytes([number % 251]) for number in range(300_000))
    assert (
        sh(box, "sha256sum | cut -c1-64; wc -c </dev/null", stdin=data).stdout.split()[0] == __import__("hashlib").sha256(data).hexdigest()
    )
    big = sh(box, "head -c 3000000 /dev/zero | tr '\\0' x")
    assert big.code == 0 and len(big.stdout) == 3_000_000


def test_a_command_that_does_not_end_is_told(box: tuple[Engine, Client]) -> None:
    began = time.monotonic()
    with pytest.raises(ExecError, match=r"did not end within 1 s; its output so far: working"):
        sh(box, "echo working; sleep 60", timeout=1)
    assert time.monotonic() - began < 5


def test_what_can_not_be_run_is_told(box: tuple[Engine, Client]) -> None:
    engine, client = box
    with pytest.raises(NotFound, match='pods "nobody" not found'):
        kube_exec.run_in_pod(client, namespace=engine.namespace, pod="nobody", container="main", command=["true"])
    with pytest.raises(ExecError, match=r"container not found|not valid"):
        kube_exec.run_in_pod(client, namespace=engine.namespace, pod="p", container="other", command=["true"])
    with pytest.raises(ExecError, match="no-such-program"):
        kube_exec.run_in_pod(client, namespace=engine.namespace, pod="p", container="main", command=["/no-such-program"])


def params(engine: Engine, **more: Any) -> dict[str, Any]:
    given = {"kubeconfig": engine.kubeconfig, "namespace": engine.namespace, "pod": "p", "container": "main", "config_dir": "/etc/slurm"}
    return {**given, "timeout": 60, "wait_timeout": 60, **more}


def test_a_new_configuration_is_served_within_seconds_and_once(box: tuple[Engine, Client]) -> None:
    engine, _dummy = box
    for digest, times in (("one", 1), ("two", 2)):
        configure(engine, digest)
        began = time.monotonic()
        assert _converge.reconfigure(params(engine, config_hash=digest), check=True, diff=True)["changed"]
        assert _converge.reconfigure(params(engine, config_hash=digest), check=False, diff=True)["changed"]
        assert time.monotonic() - began < 20, "the kubelet was not woken"
        assert sh(box, "wc -l < /tmp/reconfigured").stdout.strip() == str(times)
        annotations = engine.get("pod", "p")["metadata"]["annotations"]
        assert annotations[_converge.WANTED] == annotations[_converge.SERVED] == digest
        again = _converge.reconfigure(params(engine, config_hash=digest), check=False, diff=False)
        assert again == {"changed": False, "requests": 1}
    assert "p" in engine.names("pods")


def test_a_refused_configuration_is_told_and_not_noted_as_served(box: tuple[Engine, Client]) -> None:
    engine, _dummy = box
    sh(box, "echo 'error: Unable to parse line 7' > /tmp/refuse")
    with pytest.raises(CorralError, match=r"refuses the new configuration and goes on with the old one: error: Unable to parse line 7"):
        _converge.reconfigure(params(engine, config_hash="one"), check=False, diff=False)
    assert _converge.SERVED not in engine.get("pod", "p")["metadata"]["annotations"]
    sh(box, "rm /tmp/refuse")
    assert _converge.reconfigure(params(engine, config_hash="one"), check=False, diff=False)["changed"]


def test_files_that_do_not_come_are_told(box: tuple[Engine, Client]) -> None:
    engine, _dummy = box
    with pytest.raises(WaitTimeout, match=r"did not reach /etc/slurm/config.hash in Pod .*/p within 2 s: it holds 'one'"):
        _converge.reconfigure(params(engine, config_hash="other", timeout=2), check=False, diff=False)


def test_nodes_are_asked_for_and_waited_for(box: tuple[Engine, Client]) -> None:
    engine, _dummy = box
    with pytest.raises(CorralError, match=r"cannot be asked for its nodes: .*Unable to contact slurm controller"):
        _converge.node_info(params(engine, nodes="cpu-[0-1]"), check=False, diff=False)
    down = '{"nodes": [{"name": "cpu-0", "state": ["IDLE"]}, {"name": "cpu-1", "state": ["IDLE", "NOT_RESPONDING"]}]}'
    sh(box, f"echo '{down}' > /tmp/nodes.json")
    with pytest.raises(WaitTimeout, match=r"slurmctld does not know gpu-0; cpu-1 is IDLE\+NOT_RESPONDING"):
        _converge.node_info(params(engine, nodes="cpu-[0-1],gpu-0", wait=True, wait_timeout=2), check=False, diff=False)
    up = down.replace("NOT_RESPONDING", "DRAIN")
    sh(box, f"(sleep 2; echo '{up}' > /tmp/nodes.json) >/dev/null 2>&1 &")
    found = _converge.node_info(params(engine, nodes="cpu-[0-1]", wait=True), check=False, diff=False)
    assert [node["in_service"] for node in found["nodes"]] == [True, False] and found["drained"] == "cpu-1" and found["missing"] == ""


def test_a_pod_that_is_not_there(engine: Engine) -> None:
    assert _converge.reconfigure(params(engine, config_hash="one"), check=True, diff=True)["changed"]
    with pytest.raises(CorralError, match="does not exist, so there is no slurmctld"):
        _converge.reconfigure(params(engine, config_hash="one"), check=False, diff=False)
    with pytest.raises(CorralError, match="cannot be asked for its nodes"):
        _converge.node_info(params(engine), check=False, diff=False)
