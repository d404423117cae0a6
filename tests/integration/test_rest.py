# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The REST API with TLS, from outside: a user's job, and everybody who is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .certificates import authority, sign
from .conftest import Cluster, eventually
from .jobs import state, submit

pytestmark = pytest.mark.lab

NAME = "rest"
HOST = "rest.example.com"
PORT = 31331
SPEC = {
    "tls": {"secret": "certificate"},
    "service": {"type": "NodePort", "nodePort": PORT},
    "resources": {"requests": {"cpu": "5m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
}
# Submitted before the REST API was there.
BEFORE: list[str] = []


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority(folder)
    return folder


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster(NAME, 31330)
    del made.spec["nodeSets"][1]
    made.spec["nodeSets"][0]["replicas"] = 1
    run = made.site()
    assert run.rc == 0, run.output
    return made


def put_certificate(cluster: Cluster, work: Path) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": "certificate", "namespace": cluster.namespace},
        "stringData": sign(work, HOST),
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(secret))


def call(cluster: Cluster, work: Path, path: str, token: str | None = None, *flags: str, body: Any = None) -> tuple[int, Any]:
    """Status and body of a response, as curl has it; the body is JSON's, or text."""
    command = ["curl", "-sS", "-m", "60", "--cacert", f"{work}/ca.crt", "--resolve", f"{HOST}:{PORT}:{cluster.kubectl.node_address()}"]
    command += ["-H", f"X-SLURM-USER-TOKEN: {token}"] if token is not None else []
    command += ["-H", "Content-Type: application/json", "--data-binary", "@-"] if body is not None else []
    command += ["-w", "\n%{http_code}", *flags, f"https://{HOST}:{PORT}{path}"]
    text = body if isinstance(body, str) else json.dumps(body)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    response, _newline, status = done.rpartition("\n")
    return int(status), json.loads(response) if response.startswith("{") else response


def make_token(cluster: Cluster, **options: Any) -> str:
    found: str = cluster.module("slurm_token", **{"user": "alice", "lifespan": 600, **options})["token"]
    return found


def forge(key: bytes, **claims: Any) -> str:
    """A token as slurmctld makes it, with another key or other claims."""

    def text(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    signed = ".".join(text(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return f"{signed}.{text(hmac.new(key, signed.encode(), hashlib.sha256).digest())}"


def inside(cluster: Cluster, pod: str, container: str, script: str) -> str:
    return cluster.kubectl("exec", "-n", cluster.namespace, f"{NAME}-{pod}", "-c", container, "--", "bash", "-c", script, check=False)


def test_it_is_switched_on_under_a_running_job(cluster: Cluster, work: Path) -> None:
    BEFORE.append(submit(cluster, "--no-requeue -t 60", "first"))
    put_certificate(cluster, work)
    cluster.spec["rest"] = SPEC
    run = cluster.site()
    assert run.rc == 0, run.output
    assert state(cluster, BEFORE[0]) == ["RUNNING"]
    cluster.ssh("touch first")


def test_an_unchanged_run_changes_nothing_and_costs_little(cluster: Cluster) -> None:
    before = cluster.objects()
    again = cluster.site("-v")
    assert (again.rc, again.changed, cluster.objects()) == (0, 0, before), again.output
    requests = sum(int(number) for number in re.findall(r'"requests": (\d+)', again.output))
    assert 0 < requests <= len(before) + 15


def test_a_user_submits_a_job_and_reads_it_back(cluster: Cluster, work: Path) -> None:
    token = cluster.ssh("scontrol token lifespan=600").stdout.strip().removeprefix("SLURM_JWT=")
    job = {"name": "hello", "current_working_directory": "/home/alice", "environment": ["PATH=/usr/bin:/bin"]}
    body = {"script": "#!/bin/bash\nid -un >by; cat /etc/corral-jail >jail", "job": job}
    status, response = call(cluster, work, "/slurm/v0.0.42/job/submit", token, body=body)
    assert (status, response["errors"]) == (200, []), response
    number = response["job_id"]

    def found() -> dict[str, Any]:
        status, response = call(cluster, work, f"/slurm/v0.0.42/job/{number}", token)
        assert status == 200, response
        one: dict[str, Any] = response["jobs"][0]
        return one

    eventually(lambda: found()["job_state"] == ["COMPLETED"], "the job has run")
    assert (found()["user_name"], found()["name"]) == ("alice", "hello")
    assert cluster.ssh("cat by && test -s jail").stdout == "alice\n", "it ran as alice, in the jail"


def test_who_has_no_valid_token_is_refused(cluster: Cluster, work: Path) -> None:
    path = "/slurm/v0.0.42/jobs"
    secret = cluster.kubectl.json("get", "secret", f"{NAME}-rest-jwt-key", "-n", cluster.namespace)["data"]
    key, now = base64.b64decode(secret["jwt.key"]), int(time.time())
    claims = {"iat": now, "exp": now + 600, "sun": "alice"}
    assert call(cluster, work, path, forge(key, **claims))[0] == 200, "what is forged below differs in one thing alone"
    assert call(cluster, work, path)[0] == 401
    refused = {
        "another cluster's": forge(b"k" * 32, **claims),
        "root's, forged": forge(b"k" * 32, **{**claims, "sun": "root"}),
        "expired": forge(key, **{**claims, "iat": now - 700, "exp": now - 100}),
        "unsigned": forge(key, **claims).rpartition(".")[0] + ".",
        "nonsense": "nonsense",
    }
    for what, token in refused.items():
        status, response = call(cluster, work, path, token)
        assert (status, response["errors"][0]["error"]) == (511, "Protocol authentication error"), what
    # A user's token is no other user's.
    alice = forge(key, **claims)
    assert call(cluster, work, path, alice, "-H", "X-SLURM-USER-NAME: root")[0] == 511
    body = {"script": "#!/bin/bash\nid", "job": {"user_id": "0", "current_working_directory": "/tmp", "environment": ["A=b"]}}
    status, response = call(cluster, work, "/slurm/v0.0.42/job/submit", alice, body=body)
    assert status != 200 and "Invalid user id" in json.dumps(response), response
    assert "Invalid user id" in cluster.ssh("scontrol token username=root 2>&1", check=False).stdout


def test_the_proxy_holds_its_limits_and_logs_no_token(cluster: Cluster, work: Path) -> None:
    token = make_token(cluster)
    assert call(cluster, work, "/slurm/v0.0.42/job/submit", token, body="x" * ((8 << 20) + 1))[0] == 413
    assert call(cluster, work, "/slurm/v0.0.42/job/submit", token, "-H", "Transfer-Encoding: chunked", body="{}")[0] == 411
    logs = cluster.kubectl("logs", "-n", cluster.namespace, f"{NAME}-rest-0", "--all-containers")
    assert '"POST /slurm/v0.0.42/job/submit HTTP/1.1"' in logs
    assert token not in logs


def test_the_pod_has_no_key_and_only_its_port_is_open(cluster: Cluster) -> None:
    keys = "ls -d /run/munge/* /etc/corral/munge /etc/corral/jwt /run/slurm-jwt/* /mnt/jail/home 2>/dev/null"
    for container in ("slurmrestd", "proxy"):
        assert inside(cluster, "rest-0", container, keys) == ""
    assert inside(cluster, "rest-0", "slurmrestd", "id -u; touch /usr/x 2>/dev/null || echo refused").split() == ["64033", "refused"]
    address = cluster.kubectl.json("get", "pod", f"{NAME}-rest-0", "-n", cluster.namespace)["status"]["podIP"]
    listen = "import socket; s = socket.create_server(('', 7000)); s.settimeout(30); s.accept()"
    connect = "timeout 3 bash -c 'exec 3<>/dev/tcp/{}/{}' 2>/dev/null && echo reached || echo closed"
    begin = f'(python3 -c "{listen}" >/dev/null 2>&1 &) ; sleep 1; grep -c :1B58 /proc/net/tcp'
    assert inside(cluster, "rest-0", "slurmrestd", begin).strip() == "1"
    assert inside(cluster, "login-0", "sshd", connect.format(address, 7000)).strip() == "closed"
    assert inside(cluster, "login-0", "sshd", connect.format(address, 6820)).strip() == "reached"
    assert inside(cluster, "rest-0", "slurmrestd", connect.format(f"{NAME}-controller", 6817)).strip() == "reached"
    assert inside(cluster, "rest-0", "slurmrestd", connect.format("kubernetes.default", 443)).strip() == "closed"


def test_a_renewed_certificate_is_served_without_a_restart(cluster: Cluster, work: Path) -> None:
    shown = "jsonpath={.metadata.uid} {.status.initContainerStatuses[*].restartCount}"
    pod = ("get", "pod", f"{NAME}-rest-0", "-n", cluster.namespace, "-o", shown)
    before = cluster.kubectl(*pod)
    authority(work)  # another one, by which the former certificate is not valid
    put_certificate(cluster, work)
    # A kubelet reads a Secret again when its pod changes.
    cluster.kubectl("annotate", "pod", f"{NAME}-rest-0", "-n", cluster.namespace, "test=renewed")

    def served() -> bool:
        try:
            return call(cluster, work, "/slurm/v0.0.42/ping")[0] == 401
        except subprocess.CalledProcessError:
            return False

    eventually(served, "the new certificate", 60)
    assert cluster.kubectl(*pod) == before


def test_a_lost_key_is_not_made_anew(cluster: Cluster) -> None:
    where = ("secret", f"{NAME}-rest-jwt-key", "-n", cluster.namespace)
    secret = cluster.kubectl.json("get", *where)
    secret["metadata"] = {key: secret["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    cluster.kubectl("delete", *where)
    run = cluster.site()
    assert run.rc != 0
    assert f"{NAME}-controller-0 -c slurmctld -- cat /etc/corral/jwt/jwt.key" in " ".join(run.output.split()), run.output
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(secret))


def test_it_is_switched_off_and_its_key_stays(cluster: Cluster) -> None:
    del cluster.spec["rest"]
    run = cluster.site()
    assert run.rc == 0, run.output
    kinds = ("StatefulSet/", "Service/", "ServiceAccount/", "Secret/")
    there = [name for name in cluster.objects() if name.startswith(kinds) and f"/{NAME}-rest" in name]
    assert there == [f"Secret/{NAME}-rest-jwt-key"]
    assert cluster.ssh("scontrol token 2>&1", check=False).returncode != 0
