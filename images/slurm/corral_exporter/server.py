# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Serves the metrics: GET /metrics and nothing else, to a bounded number of readers at once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_AT_ONCE = 16
_SECONDS = 10
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Server(ThreadingHTTPServer):
    """Closes connections beyond the first few, so that no client can take all memory."""

    daemon_threads = True
    address_family = socket.AF_INET6

    def __init__(self, port: int, text: Callable[[], bytes]) -> None:
        self.text = text
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__(("::", port), Handler)

    def server_bind(self) -> None:
        """Bind to all addresses of both families."""
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override] # sockets of streams only
        """Start a thread where there is room for one."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override] # as above
        """Handle one request in its thread."""
        timer = threading.Timer(_SECONDS, _cut, (request,))
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that close their connection, or were closed."""


def _cut(request: socket.socket) -> None:
    """End a connection of a client that reads or writes slowly, byte by byte."""
    try:
        request.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


class Handler(BaseHTTPRequestHandler):
    """One request, HTTP/1.0."""

    server: Server
    timeout = _SECONDS
    server_version = "corral-exporter"
    sys_version = ""

    def do_GET(self) -> None:
        """Respond with the metrics."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "The metrics are at /metrics")
            return
        body = self.server.text()
        self.send_response(200)
        self.send_header("Content-Type", _TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 # the base class' name
        """Log no requests."""
