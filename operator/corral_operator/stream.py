# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the API server that go on for minutes and mostly say nothing: a hundred namespaces have a thousand watches.

Each has a connection of its own, for HTTP/1.1 has one answer at a time. By asyncio's own TLS and an HTTP library a connection takes 54 to 67 KiB; a bare
socket of Python's ``ssl`` that the loop looks at takes what OpenSSL takes, 36 KiB.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")

_CONNECT = 5.0
# What is read at once; the longest head of an answer; and of an answer that is a refusal, what is read of it.
_PIECE, _HEAD, _REFUSAL = 16 << 10, 64 << 10, 1 << 20


@dataclass
class Answer:
    """The head of an answer, and its body piece by piece."""

    status: int
    headers: dict[str, str]
    pieces: AsyncIterator[bytes]

    async def read(self) -> bytes:
        """Return the body of one that ends soon."""
        data = b""
        async for piece in self.pieces:
            data += piece
            if len(data) > _REFUSAL:
                break
        return data


@asynccontextmanager
async def get(
    server: str, where: str, headers: Mapping[str, str], context: ssl.SSLContext | None, *, name: str | None, silence: float
) -> AsyncIterator[Answer]:
    """Send a GET and give its answer. Raises OSError (TimeoutError after ``silence`` seconds without a byte) and ValueError for what is no HTTP.

    ``name`` is that of the server's certificate, where it is not the host's.
    """
    parts = urlsplit(server)
    host, port = parts.hostname or "", parts.port or (80 if context is None else 443)
    async with asyncio.timeout(_CONNECT):
        plain = await _connected(host, port)
    sock: socket.socket = plain
    try:
        if context is not None:
            sock = secure = context.wrap_socket(plain, server_hostname=name or host, do_handshake_on_connect=False)
            await _when_ready(secure, secure.do_handshake, _CONNECT)
        lines = [
            f"GET {parts.path}{where} HTTP/1.1",
            f"Host: {parts.netloc}",
            *(f"{key}: {value}" for key, value in headers.items()),
            "",
            "",
        ]
        await _send(sock, "\r\n".join(lines).encode("latin-1"))
        data = b""
        while b"\r\n\r\n" not in data:
            piece = await _read(sock, silence)
            data += piece
            if not piece or len(data) > _HEAD:
                raise ValueError("This is no answer of an API server.")
        head, _blank, rest = data.partition(b"\r\n\r\n")
        first, *others = head.decode("latin-1").split("\r\n")
        found = {key.strip().lower(): value.strip() for key, _colon, value in (line.partition(":") for line in others)}
        yield Answer(int(first.partition(" ")[2][:3]), found, _pieces(sock, rest, Body.of(found), silence))
    finally:
        sock.close()


async def _connected(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    error: OSError = ConnectionError(f"{host} has no address.")
    for family, kind, protocol, _name, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await loop.sock_connect(sock, address)
        except OSError as failure:
            sock.close()
            error = failure
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise error


async def _when_ready(sock: socket.socket, act: Callable[[], T], seconds: float, *, writes: bool = False) -> T:
    """Do something with a socket as soon as it can be done."""
    while True:
        try:
            return act()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError) as wish:
            writes_now = isinstance(wish, ssl.SSLWantWriteError) or (writes and not isinstance(wish, ssl.SSLError))
        await _ready(sock.fileno(), seconds, writes=writes_now)


async def _ready(number: int, seconds: float, *, writes: bool) -> None:
    loop = asyncio.get_running_loop()
    add, remove = (loop.add_writer, loop.remove_writer) if writes else (loop.add_reader, loop.remove_reader)
    ready: asyncio.Future[None] = loop.create_future()

    def note() -> None:
        if not ready.done():
            ready.set_result(None)

    add(number, note)
    try:
        async with asyncio.timeout(seconds):
            await ready
    finally:
        remove(number)


async def _send(sock: socket.socket, data: bytes) -> None:
    while data:
        sent = await _when_ready(sock, functools.partial(sock.send, data), _CONNECT, writes=True)
        data = data[sent:]


async def _read(sock: socket.socket, silence: float) -> bytes:
    """Return some bytes; none when the other side has ended."""
    return await _when_ready(sock, functools.partial(sock.recv, _PIECE), silence)


async def _pieces(sock: socket.socket, data: bytes, body: Body, silence: float) -> AsyncIterator[bytes]:
    while True:
        content = body.feed(data)
        if content:
            yield content
        if body.ended:
            return
        data = await _read(sock, silence)
        if not data:
            return


@dataclass
class Body:
    """Takes the framing off a body. ``left``: bytes that are still to come; None: chunks, or until the end."""

    chunked: bool
    left: int | None = None
    ended: bool = False
    _rest: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Body:
        """Return that of an answer with these headers, whose names are in small letters."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return cls(True)
        return cls(False, int(headers["content-length"])) if "content-length" in headers else cls(False)

    def feed(self, data: bytes) -> bytes:
        """Return the content of what has come. Raises ValueError for what is no chunk."""
        if not self.chunked:
            if self.left is not None:
                data = data[: self.left]
                self.left -= len(data)
                self.ended = self.left == 0
            return data
        content = []
        self._rest += data
        while not self.ended:
            line, end, rest = self._rest.partition(b"\r\n")
            if not end:
                break
            size = int(line.partition(b";")[0], 16)
            if size and len(rest) < size + 2:
                break
            content.append(rest[:size])
            self._rest = rest[size + 2 :]
            self.ended = size == 0
        return b"".join(content)
