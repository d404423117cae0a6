# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the API server that go on for minutes and mostly say nothing: a hundred namespaces have a thousand watches.

Each has a connection of its own, for HTTP/1.1 has one answer at a time. By asyncio's own TLS and aiohttp a connection takes 54 to 67 KiB; a bare
socket of Python's ``ssl`` that the loop looks at takes what OpenSSL takes, 36 KiB, and h11, which does no I/O, reads HTTP from it.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import h11

T = TypeVar("T")

_CONNECT = 5.0
# A watch says nothing for minutes, so nobody else notices that the other side is gone without a word: after 35 s, where the kernel's own wish is 2 h.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 20, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
# What is read at once; and of an answer that is a refusal, what is read of it.
_PIECE, _REFUSAL = 16 << 10, 1 << 20


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
    server: str, where: str, headers: Iterable[tuple[str, str]], context: ssl.SSLContext | None, *, name: str | None, silence: float
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
        connection = h11.Connection(h11.CLIENT)
        request = h11.Request(method="GET", target=f"{parts.path}{where}", headers=[("Host", parts.netloc), *headers])
        await _send(sock, (connection.send(request) or b"") + (connection.send(h11.EndOfMessage()) or b""))
        head = await _head(sock, connection, silence)
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        yield Answer(head.status_code, found, _pieces(sock, connection, silence))
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
            for option, value in _KEEPALIVE.items():
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
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


def _event(connection: h11.Connection) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
    """Return what has come next. Raises ValueError for what is no HTTP, or breaks off in the middle."""
    try:
        return connection.next_event()
    except h11.RemoteProtocolError as error:
        raise ValueError(str(error)) from error


async def _head(sock: socket.socket, connection: h11.Connection, silence: float) -> h11.Response:
    while (event := _event(connection)) is h11.NEED_DATA:
        connection.receive_data(await _read(sock, silence))
    if not isinstance(event, h11.Response):
        raise ValueError("This is no answer of an API server.")
    return event


async def _pieces(sock: socket.socket, connection: h11.Connection, silence: float) -> AsyncIterator[bytes]:
    """Yield the body as it comes: all that was read at once, in however many chunks."""
    while True:
        found = []
        while isinstance(event := _event(connection), h11.Data):
            found.append(bytes(event.data))
        if found:
            yield b"".join(found)
        if event is not h11.NEED_DATA:
            return
        connection.receive_data(await _read(sock, silence))
