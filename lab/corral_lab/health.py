# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking a daemon whether it is well. Every question has a short time limit and answers None, or why not."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .state import LabError

SECONDS = 5.0


def http_answer(url: str) -> str | None:
    """None when a daemon's own health page says 200. Its certificate is not verified: nothing is sent to it, and it is on this machine."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 0
    if parts.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    try:
        connection.request("GET", parts.path)
        response = connection.getresponse()
        text = response.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return f"{url} does not answer: {error}"
    finally:
        connection.close()
    return None if response.status == 200 else f"{url} says {response.status}: {text[-300:]}"


def socket_answer(path: Path) -> str | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(SECONDS)
        try:
            probe.connect(str(path))
        except OSError as error:
            return f"{path} does not answer: {error.strerror or error}"
    return None


class Api:
    """The lab's API server, as its administrator."""

    def __init__(self, address: str, port: int, pki: Path) -> None:
        self._address, self._port, self._pki = address, port, pki

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> tuple[int, Any]:
        """Status and document of one request. Raises OSError or HTTPException when the server does not answer."""
        context = ssl.create_default_context(cafile=str(self._pki / "ca.crt"))
        context.load_cert_chain(self._pki / "admin.crt", self._pki / "admin.key")
        connection = http.client.HTTPSConnection(self._address, self._port, timeout=SECONDS, context=context)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": content_type})
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
            try:
                return response.status, json.loads(text)
            except ValueError:
                return response.status, text
        finally:
            connection.close()

    def apply(self, path: str, document: dict[str, Any]) -> None:
        """Server-side apply of one object. Raises LabError."""
        try:
            status, answer = self.call("PATCH", f"{path}?fieldManager=corral-lab&force=true", document, "application/apply-patch+yaml")
        except (OSError, http.client.HTTPException) as error:
            raise LabError(f"The API server did not take {path}: {error}") from error
        if status not in (200, 201):
            raise LabError(f"The API server refused {path} ({status}): {answer}")

    def ready(self) -> str | None:
        try:
            status, answer = self.call("GET", "/readyz")
        except (OSError, http.client.HTTPException) as error:
            return f"https://{self._address}:{self._port}/readyz does not answer: {error}"
        return None if status == 200 else f"/readyz says {status}: {str(answer)[-300:]}"

    def node_ready(self, name: str) -> str | None:
        """None when the node's Ready condition is true."""
        try:
            status, node = self.call("GET", f"/api/v1/nodes/{name}")
        except (OSError, http.client.HTTPException) as error:
            return f"the API server does not answer: {error}"
        if status != 200:
            return f"node {name} has not registered"
        for condition in node["status"].get("conditions", []):
            if condition["type"] == "Ready":
                return (
                    None
                    if condition["status"] == "True"
                    else f"node {name} is not Ready: {condition.get('message') or condition.get('reason')}"
                )
        return f"node {name} tells no condition yet"

    def exists(self, path: str) -> str | None:
        try:
            status, _answer = self.call("GET", path)
        except (OSError, http.client.HTTPException) as error:
            return f"the API server does not answer: {error}"
        return None if status == 200 else f"{path} is not there yet"
