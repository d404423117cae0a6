# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each form of kubeconfig leads to the same request as kubectl's, and to the same command in a pod: to the same server, as the same user, for the same
user, by the same proxy."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import run_in_pod

from ...recorder import Proxy, Recorder, certificate
from ...server import serving
from .conftest import LAB

pytestmark = pytest.mark.lab

EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "interactiveMode": "Never"}
DEPUTY = {"as": "somebody", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"Some/Key": ["one", "two"], "plain": ["z"]}}
USERS: dict[str, dict[str, Any]] = {
    "token": {"token": "t0k"},
    "file": {"tokenFile": "token.txt"},
    "both": {"token": "t0k", "tokenFile": "token.txt"},
    "basic": {"username": "u", "password": "p"},
    "certificate": {"client-certificate": "c.pem", "client-key": "k.pem"},
    "texts": {"client-certificate-data": "c.pem", "client-key-data": "k.pem"},
    "exec": {"exec": EXEC},
    "exec-certificate": {"exec": {**EXEC, "command": "./card"}},
    "deputy": {"token": "t0k", **DEPUTY},
    "deputy-file": {"tokenFile": "token.txt", **DEPUTY},
    "deputy-basic": {"username": "u", "password": "p", **DEPUTY},
    "deputy-certificate": {"client-certificate": "c.pem", "client-key": "k.pem", **DEPUTY},
    "deputy-exec": {"exec": EXEC, **DEPUTY},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kubeconfig")
    certificate(path)
    (path / "token.txt").write_text("fr0m-file\n")
    pems = {name: (path / f"{name}.pem").read_text().replace("\n", "\\n") for name in ("c", "k")}
    for name, status in (("login", '"token": "made"'), ("card", f'"clientCertificateData": "{pems["c"]}", "clientKeyData": "{pems["k"]}"')):
        made = f'{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {{{status}}}}}'
        (path / name).write_text(f"#!/bin/sh\ncat <<'END'\n{made}\nEND\n")
        (path / name).chmod(0o700)
    return path


@pytest.fixture(scope="module")
def recorder(folder: Path) -> Iterator[Recorder]:
    with serving(Recorder(folder)) as server:
        yield server


def encoded(user: dict[str, Any], folder: Path) -> dict[str, Any]:
    return {
        key: base64.b64encode((folder / value).read_bytes()).decode() if key.endswith("-data") else value for key, value in user.items()
    }


def write(folder: Path, recorder: Recorder, name: str, **cluster: Any) -> Path:
    server = {"server": recorder.url, "certificate-authority": "c.pem", **cluster}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": server}],
        "users": [{"name": user, "user": encoded(content, folder)} for user, content in USERS.items()],
        "contexts": [{"name": user, "context": {"cluster": "c", "user": user}} for user in USERS],
    }
    path = folder / name
    path.write_text(yaml.safe_dump(document))
    return path


def both(
    recorder: Recorder, kubeconfig: str, context: str, monkeypatch: pytest.MonkeyPatch, folder: Path, *, command: bool = False
) -> tuple[list[Any], list[Any]]:
    """Return what was seen of kubectl's request, or of its command in a pod, and of ours."""
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    found: list[list[Any]] = []
    for ours in (False, True):
        recorder.seen.clear()
        if ours:
            client = Client(auth.resolve({"context": context}))
            if command:
                assert run_in_pod(client, namespace="default", pod="p", container="c", command=["echo", "said"]).stdout == "said"
            else:
                client.get("/probe", what="look")
            client.close()
        else:
            words = ("exec", "p", "-c", "c", "--", "echo", "said") if command else ("get", "--raw", "/probe")
            environment = {**os.environ, "KUBECACHEDIR": str(folder / "cache"), "HOME": str(folder)}
            done = subprocess.run(
                [str(LAB / "bin" / "kubectl"), "--context", context, *words],
                check=False,
                capture_output=True,
                text=True,
                timeout=60,
                env=environment,
                cwd=folder,
            )
            assert done.returncode == 0 or "kubectl exec is refused" in done.stderr, done.stderr
        found.append(list(recorder.seen))
    return found[0], found[1]


def of_commands(seen: list[Any], *, proxied: bool) -> list[Any]:
    """What was observed of the commands alone: kubectl reads the pod before, and its kind."""
    places = [place for place, entry in enumerate(seen) if entry[0].endswith("/exec")]
    return [entry for place in places for entry in seen[place - proxied : place + 1]]


@pytest.mark.parametrize("user", USERS)
def test_our_request_is_kubectls(folder: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    theirs, ours = both(recorder, str(write(folder, recorder, "config")), user, monkeypatch, folder)
    assert theirs and ours == theirs


@pytest.mark.parametrize("user", USERS)
def test_our_command_in_a_pod_is_kubectls(folder: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    theirs, ours = both(recorder, str(write(folder, recorder, "config")), user, monkeypatch, folder, command=True)
    assert len(ours) == 1 and ours == of_commands(theirs, proxied=False)


@pytest.mark.parametrize("user", ["token", "file", "certificate", "exec", "deputy", "deputy-exec"])
def test_merged_files_are_merged_as_kubectl_does(folder: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    """The entries are in two files in two folders, and a third says other things of the same names, too late."""
    whole = yaml.safe_load(write(folder, recorder, "config").read_text())
    away = folder / "away"
    away.mkdir(exist_ok=True)
    for name in ("c.pem", "k.pem", "token.txt", "login"):
        shutil.copy(folder / name, away / name)
    (away / "token.txt").write_text("fr0m-another-file\n")
    (folder / "contexts").write_text(yaml.safe_dump({**whole, "users": []}))
    (away / "users").write_text(yaml.safe_dump({**whole, "contexts": [], "clusters": []}))
    late = {"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}], "users": [{"name": user, "user": {"token": "late"}}]}
    (folder / "late").write_text(yaml.safe_dump({**whole, **late}))
    paths = (folder / "none", folder / "contexts", away / "users", folder / "late")
    theirs, ours = both(recorder, ":".join(map(str, paths)), user, monkeypatch, folder)
    assert theirs and ours == theirs


@pytest.mark.parametrize("credentials", ["", "user:p%40w@"])
@pytest.mark.parametrize(("scheme", "tls"), [("http", True), ("https", True), ("socks5", True), ("http", False), ("socks5", False)])
def test_a_proxy_is_asked_as_kubectl_asks_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, tls: bool, credentials: str
) -> None:
    with serving(Recorder(folder, tls=tls)) as server:
        proxy = Proxy(server.seen, folder if scheme == "https" else None)
        try:
            config = str(write(folder, server, "proxied", **{"proxy-url": f"{scheme}://{credentials}127.0.0.1:{proxy.port}"}))
            theirs, ours = both(server, config, "deputy", monkeypatch, folder)
            assert len(theirs) == 2 and ours == theirs
            theirs, ours = both(server, config, "deputy", monkeypatch, folder, command=True)
            assert len(ours) == 2 and ours == of_commands(theirs, proxied=True)
        finally:
            proxy.close()
