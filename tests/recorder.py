# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server that notes who asks it for what, and proxies before it that note who goes through: to see what a client really sends."""

from __future__ import annotations

import base64
import hashlib
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from .server import Handler, Server

_RESOURCES = [{"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get"]}]
# What kubectl asks for before it runs a command in the container c of the pod p; by the end of the path.
_DOCUMENTS: dict[str, dict[str, Any]] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": _RESOURCES},
    "/apis": {"apiVersion": "v1", "kind": "APIGroupList", "groups": []},
    "": {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    },
}
# Output, outcome and the end of a command, as the protocol v5.channel.k8s.io has them: see _kube/exec.py.
_FRAMES = (b"\x82", b"\1said"), (b"\x82", b'\3{"metadata": {}, "status": "Success"}'), (b"\x88", b"\3\xe8")
_HEADERS = ("authorization", "impersonate-", "host", "proxy-")


def certificate(folder: Path) -> None:
    """Make c.pem and k.pem, for servers and proxies at 127.0.0.1, and for clients."""
    subject = ("-subj", "/CN=ada", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "extendedKeyUsage=serverAuth,clientAuth")
    new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    subprocess.run([*new, "-keyout", folder / "k.pem", "-out", folder / "c.pem", *subject], check=True, capture_output=True)


def _context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "c.pem", folder / "k.pem")
    context.load_verify_locations(folder / "c.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


class Recorder(Server):
    """Notes path, query, headers that say who asks, and whether there was a client's certificate."""

    def __init__(self, folder: Path, *, tls: bool = True) -> None:
        super().__init__(_Handler)
        self.seen: list[Any] = []
        self.moved = ""
        """Where commands in pods are sent on to, in place of an answer."""
        self.tls = tls
        if tls:
            self.socket = _context(folder).wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{super().url.replace('http', 'https' if self.tls else 'http')}/below"


class _Handler(Handler):
    # A connection for each request: a proxy leads one on after the other.
    protocol_version = "HTTP/1.0"
    server: Recorder

    def do_GET(self) -> None:  # http.server asks for this name
        path = self._note()
        if path.endswith("/exec"):
            self._run()
        else:
            self.answer(200, next(body for end, body in _DOCUMENTS.items() if path.endswith(end)))

    def do_POST(self) -> None:
        """SPDY, by which kubectl runs commands where it knows no websocket, is noted and refused."""
        self._note()
        self.answer(403, {"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "kubectl exec is refused", "code": 403})

    def _note(self) -> str:
        headers = sorted((name.lower(), value) for name, value in self.headers.items() if name.lower().startswith(_HEADERS))
        parts = urlsplit(self.path)
        certified = self.server.tls and bool(self.connection.getpeercert())  # type: ignore[attr-defined]  # TLS has it
        self.server.seen.append((parts.path, sorted(parse_qsl(parts.query)), headers, certified))
        return parts.path

    def _run(self) -> None:
        if self.server.moved:
            self.wfile.write(f"HTTP/1.1 302 Found\r\nLocation: {self.server.moved}\r\nContent-Length: 0\r\n\r\n".encode())
            return
        accepted = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        lines = (
            "HTTP/1.1 101 Switching Protocols",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {base64.b64encode(accepted).decode()}",
            "Sec-WebSocket-Protocol: v5.channel.k8s.io",
        )
        self.wfile.write("\r\n".join((*lines, "", "")).encode() + b"".join(sort + bytes([len(text)]) + text for sort, text in _FRAMES))
        self.rfile.read()  # until the client goes


class Proxy:
    """Of HTTP, with TLS or without, or of SOCKS (RFC 1928, 1929): notes where each connection goes and its credentials, and leads on. One after the other."""

    def __init__(self, seen: list[Any], folder: Path | None = None) -> None:
        """``folder``: where the certificate of a proxy with TLS is."""
        self._seen = seen
        self._context = None if folder is None else _context(folder)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
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
            with client:
                try:
                    self._lead(client if self._context is None else self._context.wrap_socket(client, server_side=True))
                except ssl.SSLError as error:
                    self._seen.append(f"no TLS: {error.reason}")

    def _lead(self, client: socket.socket) -> None:
        with client, client.makefile("rb", 0) as stream:
            first = stream.read(1)
            name, port, given, answer, onward = _socks(client, stream) if first == b"\5" else _http(first, stream)
            self._seen.append((name, port, given))
            with socket.create_connection((name, port)) as upstream:
                client.sendall(answer)
                upstream.sendall(onward)
                back = threading.Thread(target=_pump, args=(upstream, client), daemon=True)
                back.start()
                _pump(client, upstream)
                back.join()


def _http(first: bytes, stream: Any) -> tuple[str, int, list[str], bytes, bytes]:
    """Where an HTTP client wants to go, what credentials it shows, what it is answered once it is there, and what the server gets of it."""
    line, *lines = (first + b"".join(iter(stream.readline, b"\r\n"))).decode().split("\r\n")
    given = [line.partition(": ")[2] for line in lines if line.lower().startswith("proxy-authorization")]
    method, target, _version = line.split()
    if method == "CONNECT":
        name, _colon, port = target.rpartition(":")
        return name, int(port), given, b"HTTP/1.1 200 OK\r\n\r\n", b""
    rest = [line for line in lines if not line.lower().startswith("proxy-authorization")]
    server = urlsplit(target)
    return str(server.hostname), server.port or 80, given, b"", "\r\n".join((line, *rest, "")).encode()


def _socks(client: socket.socket, stream: Any) -> tuple[str, int, list[str], bytes, bytes]:
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
    return name, int.from_bytes(stream.read(2), "big"), given, b"\5\0\0\1" + bytes(6), b""


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return
