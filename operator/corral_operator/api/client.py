# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An asynchronous client of the API server, for the controller itself. Runs have a client of their own.

Credentials and error messages are the collection's (``_kube.auth``, ``_kube.errors``).
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import errno
import json
import logging
import random
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

import aiohttp

from ansible_collections.corral.slurm.plugins.module_utils._kube.auth import Access
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ApiError, Unreachable, api_error, parse_object, parse_status

Json = dict[str, Any]

log = logging.getLogger(__name__)

MERGE = "application/merge-patch+json"
JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

# asyncio gives each TLS connection a buffer of 256 KiB and writes to all of it; a starting operator has dozens of connections.
asyncio.sslproto.SSLProtocol.max_size = 4 << 10
# An idle watch receives nothing for minutes, so only TCP keepalive notices that the peer is gone: after 35 s; the kernel's default is 2 h.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 20, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
_CONNECT = 5.0
# A watch that the server has not ended this long after its timeout is closed.
_SILENCE = 15.0

_NOT_NOW = frozenset((429, 500, 502, 503, 504))


class Api(Protocol):
    """What the controller needs of an API server; tests have a fake one. ``sent`` counts requests, and those of them that write."""

    sent: dict[str, int]

    async def request(
        self,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        patience: float | None = None,
    ) -> Json:
        """Send one request and return the object in the response. Raises ApiError, Unreachable."""

    def watch(self, path: str, *, what: str, query: Mapping[str, str], seconds: int, accept: str = JSON) -> AsyncIterator[Json]:
        """Yield the events of one watch until it ends. Raises ApiError for an error status."""


class Client:
    """A client of one API server. It retries requests that failed temporarily, for ``patience`` seconds at most."""

    def __init__(
        self,
        access: Access,
        *,
        before_write: Callable[[], None] | None = None,
        rate_limit: Callable[[], float] = lambda: 0.0,
        patience: float = 20.0,
        timeout: float = 10.0,
    ) -> None:
        self._access = access
        # Called before each attempt of a write; raises if it may not be sent.
        self._before_write = before_write
        # Called before each attempt of a request; returns for how many seconds it must wait.
        self._rate_limit = rate_limit
        self._patience = patience
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=_CONNECT)
        self._session: aiohttp.ClientSession | None = None
        self.sent = {"all": 0, "write": 0}

    async def __aenter__(self) -> Client:
        connector = aiohttp.TCPConnector(
            limit=0, ssl=self._access.ssl_context() or True, keepalive_timeout=60, socket_factory=_socket_with_keepalive
        )
        self._session = aiohttp.ClientSession(connector=connector, read_bufsize=16 << 10)
        return self

    async def __aexit__(self, *dummy: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        patience: float | None = None,
    ) -> Json:
        """Send one request and return the object in the response. Raises ApiError for an error status and Unreachable if no API server responded."""
        loop = asyncio.get_running_loop()
        until = loop.time() + (self._patience if patience is None else patience)
        pause = 0.1
        while True:
            wait = pause * random.uniform(0.5, 1.0)
            try:
                code, data, headers = await self._send(method, path, query, body, content_type, accept)
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                if loop.time() + wait > until:
                    reason = str(error) or type(error).__name__
                    raise Unreachable(
                        f"Could not {what}: the API server {self._access.server} does not respond: {reason}; it is tried again."
                    ) from error
            else:
                if code < 300:
                    server = f"{self._access.server} ({self._access.source})"
                    return parse_object(code, data, headers.get("Content-Type", ""), what, method=method, server=server)
                status = parse_status(code, data, headers.get("Retry-After"))
                if status.retry_after is not None:
                    wait = max(wait, status.retry_after)
                if code not in _NOT_NOW or status.is_schema_error or loop.time() + wait > until:
                    raise api_error(status, what, server=self._access.server)
            await asyncio.sleep(wait)
            pause = min(5.0, pause * 2)

    async def _send(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Json | None, content_type: str, accept: str
    ) -> tuple[int, bytes, Mapping[str, str]]:
        assert self._session is not None
        if wait := self._rate_limit():
            await asyncio.sleep(wait)
        if method != "GET" and self._before_write is not None:
            self._before_write()
        self.sent["all"] += 1
        self.sent["write"] += method != "GET"
        headers = [*self._access.headers(), ("Accept", accept)]
        payload = None
        if body is not None:
            payload = json.dumps(body).encode()
            headers.append(("Content-Type", content_type))
        async with self._session.request(
            method,
            self._access.server + path,
            params=query,
            data=payload,
            headers=headers,
            timeout=self._timeout,
            server_hostname=self._access.tls_server_name,
            allow_redirects=False,
        ) as response:
            return response.status, await response.read(), response.headers

    async def watch(self, path: str, *, what: str, query: Mapping[str, str], seconds: int, accept: str = JSON) -> AsyncIterator[Json]:
        """Yield the events of one watch until the server ends it or the connection breaks. Raises ApiError for an error status."""
        assert self._session is not None
        self.sent["all"] += 1
        wanted = {**query, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        headers = [*self._access.headers(), ("Accept", accept)]
        try:
            async with self._session.get(
                self._access.server + path,
                params=wanted,
                headers=headers,
                timeout=aiohttp.ClientTimeout(sock_connect=_CONNECT, sock_read=seconds + _SILENCE),
                server_hostname=self._access.tls_server_name,
                allow_redirects=False,
            ) as response:
                if response.status >= 300:
                    status = parse_status(response.status, await response.read(), response.headers.get("Retry-After"))
                    raise api_error(status, what, server=self._access.server)
                rest = b""
                async for piece in response.content.iter_any():
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        if line.strip():
                            yield json.loads(line)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                log.warning("a watch has no file descriptor left", extra={"watch": path, "error": str(error)})
            return  # the connection broke: the caller continues from the last version that it received


def _socket_with_keepalive(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, *_where = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock


async def list_all(api: Api, path: str, *, what: str, query: Mapping[str, str], accept: str = JSON) -> tuple[list[Json], str]:
    """Return all objects of a collection, which is read in pages, and the version of the list."""
    found: list[Json] = []
    page = {**query, "limit": "500"}
    while True:
        data = await api.request("GET", path, what=what, query=page, accept=accept)
        found += data.get("items") or ()
        metadata = data.get("metadata") or {}
        if not metadata.get("continue"):
            return found, str(metadata.get("resourceVersion", ""))
        page["continue"] = str(metadata["continue"])


def status_code(error: Exception) -> int:
    """Return the HTTP status of an API error, 0 for anything else."""
    return error.status.code if isinstance(error, ApiError) else 0
