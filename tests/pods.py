# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server that lists pods and runs commands in them, which are processes of this machine: for what goes over exec from end to end."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
from collections.abc import Callable
from typing import Any, BinaryIO
from urllib.parse import parse_qs, urlsplit

from .server import Handler, Server

JAIL = ["/opt/corral/bin/jail-exec", "plugstack=/run/slurm/conf/plugstack.conf", "--"]
_PATH = re.compile(r"/api/v1(?:/namespaces/([^/]+))?/pods(?:/([^/]+)/exec)?")


def pod(
    name: str, component: str, container: str, *, cluster: str = "lab", namespace: str = "slurm", uid: int = 0, ready: bool = True
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/name": "slurm",
                "app.kubernetes.io/part-of": "corral",
                "app.kubernetes.io/instance": cluster,
                "app.kubernetes.io/component": component,
            },
            "annotations": {"kubectl.kubernetes.io/default-container": container},
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "other"}, {"name": container, "securityContext": {"runAsUser": uid}}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


class Pods(Server):
    """``pods`` are listed; commands run in these, or anywhere where none are, but not in those that are ``gone``.

    ``answers`` stand in for commands, by their beginning: code, stdout, stderr.
    """

    def __init__(self, pods: list[dict[str, Any]] | None = None) -> None:
        super().__init__(_Handler)
        self.pods = pods or []
        self.gone: set[str] = set()
        self.not_running: set[str] = set()
        self.forbidden: set[str] = set()
        """Verbs: list, list everywhere, exec."""
        self.unauthorized = False
        self.requests: list[str] = []
        self.commands: list[tuple[str, str, list[str]]] = []
        """Pod, container, command."""
        self.answers: dict[tuple[str, ...], tuple[int, bytes, bytes]] = {}
        self.environment: dict[str, str] = {}
        self.deaf: Callable[[list[str]], bool] = lambda _command: False
        """Commands that end before they have read anything."""


class _Handler(Handler):
    server: Pods

    def do_GET(self) -> None:  # http.server asks for this name
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        match = _PATH.fullmatch(parts.path)
        self.server.requests.append(parts.path)
        if self.server.unauthorized:
            self._refuse(401, "Unauthorized", "Unauthorized")
        elif match is None:
            self._refuse(404, "NotFound", f"{parts.path} is not known")
        elif match[2]:
            self._exec(match[1], match[2], query)
        else:
            self._list(match[1], query["labelSelector"][0])

    def _refuse(self, code: int, reason: str, message: str) -> None:
        self.close_connection = True
        self.answer(code, {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message})

    def _forbid(self, verb: str, resource: str, namespace: str | None) -> None:
        where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
        text = f'pods is forbidden: User "ada" cannot {verb} resource "{resource}" in API group ""{where}'
        self._refuse(403, "Forbidden", text)

    def _list(self, namespace: str | None, selector: str) -> None:
        if "list" in self.server.forbidden or (namespace is None and "list everywhere" in self.server.forbidden):
            self._forbid("list", "pods", namespace)
            return
        found = [one for one in self.server.pods if namespace in (None, one["metadata"]["namespace"]) and _selected(one, selector)]
        self.answer(200, {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": found})

    def _exec(self, namespace: str, name: str, query: dict[str, list[str]]) -> None:
        container, command = query["container"][0], query["command"]
        if "exec" in self.server.forbidden:
            self._forbid("create", "pods/exec", namespace)
        elif name in self.server.gone or (self.server.pods and not any(one["metadata"]["name"] == name for one in self.server.pods)):
            self._refuse(404, "NotFound", f'pods "{name}" not found')
        elif name in self.server.not_running:
            self._refuse(500, "InternalError", f'unable to upgrade connection: container not found ("{container}")')
        else:
            self.server.commands.append((name, container, command))
            self.close_connection = True
            self._upgrade()
            self._run(command, reads="stdin" in query)

    def _upgrade(self) -> None:
        accepted = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        self.send_response_only(101)
        for header, value in {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": base64.b64encode(accepted).decode(),
            "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
        }.items():
            self.send_header(header, value)
        self.end_headers()

    def _run(self, command: list[str], *, reads: bool) -> None:
        stated = [answer for beginning, answer in self.server.answers.items() if tuple(command[: len(beginning)]) == beginning]
        if stated:
            code, out, err = stated[0]
        elif self.server.deaf(command):
            code, out, err = 1, b"", b"cat: write error: No space left on device\n"
        else:
            stdin = _input(self.rfile) if reads else b""
            inside = command[len(JAIL) :] if command[: len(JAIL)] == JAIL else command
            done = subprocess.run(inside, input=stdin, capture_output=True, env=self.server.environment, check=False)
            code, out, err = done.returncode, done.stdout, done.stderr
        for channel, text in ((1, out), (2, err)):
            for begin in range(0, len(text), 30000):
                self._send(channel, text[begin : begin + 30000])
        causes = {"causes": [{"reason": "ExitCode", "message": str(code)}]}
        outcome = {"status": "Failure", "reason": "NonZeroExitCode", "details": causes} if code else {"status": "Success"}
        self._send(3, json.dumps({"metadata": {}, **outcome}).encode())
        self.wfile.write(b"\x88\x02\x03\xe8")

    def _send(self, channel: int, text: bytes) -> None:
        size = len(text) + 1
        length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
        self.wfile.write(b"\x82" + length + bytes([channel]) + text)


def _input(stream: BinaryIO) -> bytes:
    """Return what a client sends to a command's standard input, until it closes that."""
    found = bytearray()
    while True:
        _opcode, length = stream.read(2)
        size = length & 0x7F
        if size >= 126:
            size = int.from_bytes(stream.read(2 if size == 126 else 8), "big")
        mask = stream.read(4)
        data = stream.read(size)
        data = (int.from_bytes(data, "big") ^ int.from_bytes((mask * (size // 4 + 1))[:size], "big")).to_bytes(size, "big")
        if data[:1] == b"\xff":
            return bytes(found)
        assert data[:1] == b"\x00"
        found += data[1:]


def _selected(pod: dict[str, Any], selector: str) -> bool:
    """True where a pod has the labels: ``key=value`` and ``key in (value,…)``."""
    labels = pod["metadata"]["labels"]
    terms = re.findall(r"([^,=\s]+)(?:=([^,]*)| in \(([^)]*)\))", selector)
    return all(labels.get(key) in (several.split(",") if several else [value]) for key, value, several in terms)
