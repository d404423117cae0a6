# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each form of kubeconfig leads to the same request as kubectl's: to the same server, as the same user, for the same user, by the same proxy."""

from __future__ import annotations

import base64
import http.server
import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client

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


class Recorder(http.server.ThreadingHTTPServer):
    """An API server that notes who asks, and a proxy before it that notes who goes through."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[Any] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "c.pem", folder / "k.pem")
        context.load_verify_locations(folder / "c.pem")
        context.verify_mode = ssl.CERT_OPTIONAL
        self.socket = context.wrap_socket(self.socket, server_side=True)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Recorder

    def do_GET(self) -> None:  # http.server asks for this name
        wanted = ("authorization", "impersonate-", "host")
        headers = sorted((name.lower(), value) for name, value in self.headers.items() if name.lower().startswith(wanted))
        self.server.seen.append((self.path, headers, bool(self.connection.getpeercert())))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_args: Any) -> None:
        return


class Proxy:
    """Of HTTP, or of SOCKS (RFC 1928 and 1929): notes where each connection goes and its credentials, then leads on. One after the other."""

    def __init__(self, seen: list[Any]) -> None:
        self._seen = seen
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            with client, client.makefile("rb", 0) as stream:
                first = stream.read(1)
                name, port, given, answer = _socks(client, stream) if first == b"\5" else _connect(first, stream)
                self._seen.append((name, port, given))
                with socket.create_connection((name, port)) as upstream:
                    client.sendall(answer)
                    back = threading.Thread(target=_pump, args=(upstream, client))
                    back.start()
                    _pump(client, upstream)
                    back.join()


def _connect(first: bytes, stream: Any) -> tuple[str, int, list[str], bytes]:
    """Where an HTTP client wants to go, what credentials it shows, and what it is answered once it is there."""
    line, *lines = (first + b"".join(iter(stream.readline, b"\r\n"))).decode().split("\r\n")
    given = [line.partition(": ")[2] for line in lines if line.lower().startswith("proxy-authorization")]
    name, _colon, port = line.removeprefix("CONNECT ").split()[0].rpartition(":")
    return name, int(port), given, b"HTTP/1.1 200 OK\r\n\r\n"


def _socks(client: socket.socket, stream: Any) -> tuple[str, int, list[str], bytes]:
    """The same of a SOCKS client, whose first byte has been read."""
    given: list[str] = []
    if 2 in stream.read(stream.read(1)[0]):
        client.sendall(b"\5\2")
        assert stream.read(1) == b"\1"
        given = [stream.read(stream.read(1)[0]).decode() for _part in ("user", "password")]
        client.sendall(b"\1\0")
    else:
        client.sendall(b"\5\0")
    assert stream.read(3) == b"\5\1\0"
    kind = stream.read(1)[0]
    name = socket.inet_ntoa(stream.read(4)) if kind == 1 else stream.read(stream.read(1)[0]).decode()
    return name, int.from_bytes(stream.read(2), "big"), given, b"\5\0\0\1" + bytes(6)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kubeconfig")
    subject = ("-subj", "/CN=ada", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "extendedKeyUsage=serverAuth,clientAuth")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        path / "k.pem",
        "-out",
        path / "c.pem",
        "-days",
        "2",
        *subject,
    ]
    subprocess.run(command, check=True, capture_output=True)
    (path / "token.txt").write_text("fr0m-file\n")
    pems = {name: (path / f"{name}.pem").read_text().replace("\n", "\\n") for name in ("c", "k")}
    for name, status in (("login", '"token": "made"'), ("card", f'"clientCertificateData": "{pems["c"]}", "clientKeyData": "{pems["k"]}"')):
        made = f'{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {{{status}}}}}'
        (path / name).write_text(f"#!/bin/sh\ncat <<'END'\n{made}\nEND\n")
        (path / name).chmod(0o700)
    return path


@pytest.fixture(scope="module")
def recorder(folder: Path) -> Iterator[Recorder]:
    with Recorder(folder) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def encoded(user: dict[str, Any], folder: Path) -> dict[str, Any]:
    return {
        key: base64.b64encode((folder / value).read_bytes()).decode() if key.endswith("-data") else value for key, value in user.items()
    }


def write(folder: Path, recorder: Recorder, name: str, **cluster: Any) -> Path:
    server = {"server": f"https://127.0.0.1:{recorder.server_port}/below", "certificate-authority": "c.pem", **cluster}
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


def both(recorder: Recorder, kubeconfig: str, context: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[list[Any], list[Any]]:
    """Return what was seen of kubectl's request, and of ours."""
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    found: list[list[Any]] = []
    for ours in (False, True):
        recorder.seen.clear()
        if ours:
            client = Client(auth.resolve({"context": context}))
            client.get("/probe", what="look")
            client.close()
        else:
            command = [str(LAB / "bin" / "kubectl"), "--context", context, "get", "--raw", "/probe"]
            environment = {**os.environ, "KUBECACHEDIR": str(folder / "cache")}
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environment, cwd=folder)
            assert done.returncode == 0, done.stderr
        found.append(list(recorder.seen))
    return found[0], found[1]


@pytest.mark.parametrize("user", USERS)
def test_our_request_is_kubectls(folder: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    theirs, ours = both(recorder, str(write(folder, recorder, "config")), user, monkeypatch, folder)
    assert theirs and ours == theirs


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
@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_a_proxy_is_asked_as_kubectl_asks_it(
    folder: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, scheme: str, credentials: str
) -> None:
    proxy = Proxy(recorder.seen)
    config = write(folder, recorder, "proxied", **{"proxy-url": f"{scheme}://{credentials}127.0.0.1:{proxy.port}"})
    theirs, ours = both(recorder, str(config), "deputy", monkeypatch, folder)
    proxy.close()
    assert len(theirs) == 2 and ours == theirs
