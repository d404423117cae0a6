# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches over real connections: what comes in whatever pieces, refusals, silence, and connections that break; with TLS and without."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ansible_collections.corral.slurm.plugins.module_utils._kube.auth import Access, Pem
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ApiError, Unreachable
from corral_operator.api import client as client_module
from corral_operator.api.client import Client, list_all, status_code

Story = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
EVENTS = [{"type": "ADDED", "object": {"metadata": {"name": "ä" * size}}} for size in (1, 3000, 200_000)]
LINES = b"".join(json.dumps(event).encode() + b"\n" for event in EVENTS)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1 in one file, and the name of another."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "server")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("other.name")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(hours=1))
        .add_extension(names, False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


@contextlib.asynccontextmanager
async def serve(story: Story, certificate: Path | None, **more: Any) -> AsyncIterator[Access]:
    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)

    stories: list[asyncio.Task[Any]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stories.append(asyncio.ensure_future(story(reader, writer)))
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await stories[-1]
        writer.transport.abort() if writer.is_closing() else writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    scheme = "http" if certificate is None else "https"
    try:
        ca = Pem(path=str(certificate)) if certificate else Pem()
        yield Access(**{"server": f"{scheme}://127.0.0.1:{port}/root", "source": "a test", "ca": ca, **more})
    finally:
        server.close()
        for one in stories:
            one.cancel()
        await asyncio.sleep(0.1)


async def watched(access: Access, seconds: int = 5) -> list[Any]:
    async with Client(access) as client:
        return [event async for event in client.watch("/things", what="watch things", query={"labelSelector": "a=b,c"}, seconds=seconds)]


def chunked(data: bytes, size: int) -> bytes:
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return b"".join(f"{len(piece):x};x=y\r\n".encode() + piece + b"\r\n" for piece in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("size", [7, 5000, 1 << 20])
def test_events_come_whole_in_whatever_pieces(tls: bool, size: int, certificate: Path) -> None:
    heads: list[str] = []

    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(b"Encoding: chunked\r\n\r\n" + chunked(LINES, size))
        await writer.drain()

    async def go() -> None:
        async with serve(story, certificate if tls else None) as access:
            assert await watched(access) == EVENTS

    asyncio.run(go())
    assert heads[0].startswith(
        "GET /root/things?labelSelector=a%3Db,c&watch=1&allowWatchBookmarks=true&timeoutSeconds=5 HTTP/1.1\r\nHost: 127.0.0.1:"
    )


@pytest.mark.parametrize(
    "data",
    [
        *(json.dumps(one).encode() for one in ([1], "text", None, {}, {"error": "login"}, {"kind": "x"}, {"apiVersion": "v1"})),
        b"",
        b"<html>",
        b'{"apiVersion": "v1", "kind": "Status", "status": "Success"}',
    ],
)
def test_a_response_that_is_no_object_is_reported(data: bytes) -> None:
    """A login page of a proxy, which says 200 to all: taken for an answer it would be a list without documents, whose clusters are gone."""

    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: text/html; a=b\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
            await writer.drain()

    async def go() -> None:
        async with serve(story, None) as access, Client(access) as client:
            sentence = r"Could not list things: \S+ \(a test\) answered 200 with something \(text/html\) that is no Kubernetes object; is it an API"
            with pytest.raises(Unreachable, match=sentence):
                await list_all(client, "/things", what="list things", query={})
            with pytest.raises(Unreachable, match="answered 200"):
                await client.request("PATCH", "/things/a", what="write a thing", body={})

    asyncio.run(go())


@pytest.mark.parametrize("code", [403, 410, 500])
def test_a_refusal_is_reported_with_its_reason(code: int) -> None:
    body = json.dumps({"kind": "Status", "code": code, "message": "That is too old."}).encode()

    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {code} No\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        await asyncio.sleep(5)  # keepalive goes on, and yet the response has ended

    async def go() -> None:
        async with serve(story, None) as access:
            began = time.monotonic()
            with pytest.raises(ApiError, match="That is too old") as refused:
                await watched(access)
            assert status_code(refused.value) == code and time.monotonic() - began < 4

    asyncio.run(go())


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"x" * 70_000],
)
def test_a_connection_that_breaks_ends_the_events(said: bytes) -> None:
    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()

    async def go() -> None:
        async with serve(story, None) as access:
            assert await watched(access) == []
        assert await watched(access) == [], "the watch has ended"

    asyncio.run(go())


def test_what_came_before_the_break_counts(certificate: Path) -> None:
    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(LINES, 100)[:60000])
        await writer.drain()
        writer.transport.abort()

    async def go() -> None:
        async with serve(story, certificate) as access:
            assert await watched(access) == EVENTS[:2]

    asyncio.run(go())


def test_silence_ends_it_and_so_does_whoever_listened(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[bool] = []

    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await writer.drain()
        gone.append(await reader.read() == b"")

    async def go() -> None:
        async with serve(story, certificate) as access:
            with monkeypatch.context() as patched:
                patched.setattr(client_module, "_SILENCE", -0.8)
                began = time.monotonic()
                assert await watched(access, seconds=1) == []
                assert 0.2 <= time.monotonic() - began < 4
            listening = asyncio.create_task(watched(access))
            await asyncio.sleep(0.3)
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
            for _try in range(100):
                if len(gone) == 2:
                    break
                await asyncio.sleep(0.02)
            assert gone == [True, True], "both connections were closed"

    asyncio.run(go())


@pytest.mark.parametrize(
    ("more", "right"),
    [({}, True), ({"tls_server_name": "other.name"}, True), ({"tls_server_name": "wrong.name"}, False), ({"ca": Pem()}, False)],
)
def test_the_certificate_is_checked(more: dict[str, Any], right: bool, certificate: Path) -> None:
    data = b'{"kind": "Thing", "apiVersion": "v1", "type": "ADDED"}\n'

    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /root/thing"):
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
            await writer.drain()

    async def go() -> None:
        async with serve(story, certificate, **more) as access, Client(access) as client:
            asked = client.request("GET", "/thing", what="read a thing", patience=0.0)
            if right:
                assert (await asked)["type"] == "ADDED"
            else:
                with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
                    await asked
            events = [event["type"] async for event in client.watch("/things", what="watch things", query={}, seconds=5)]
            assert events == (["ADDED"] if right else [])

    asyncio.run(go())


def test_the_other_side_is_asked_whether_it_is_there() -> None:
    sock = client_module._socket_with_keepalive((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0)))
    with sock:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, count = (
            sock.getsockopt(socket.IPPROTO_TCP, option) for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + count * interval == 35
