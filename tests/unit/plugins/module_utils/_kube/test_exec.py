# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A command in a pod goes the way that requests go, as the same user; tests/integration/kube/test_kubeconfig.py has kubectl beside it."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube.auth import Access, Pem
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client, Retry
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ConfigError, ExecError, Unreachable
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import run_in_pod

from .....recorder import Proxy, Recorder, certificate
from .....server import serving

BEARER = ("authorization", "Bearer t0k")
DEPUTY = (("Impersonate-User", "somebody"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
BASIC = "Basic dXNlcjpwQHc="


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exec")
    certificate(path)
    return path


@pytest.fixture
def server(folder: Path) -> Iterator[Recorder]:
    with serving(Recorder(folder)) as started:
        yield started


def access(server: Recorder, folder: Path, **more: Any) -> Access:
    given: dict[str, Any] = {"ca": Pem(path=str(folder / "c.pem")), "authorization": lambda: {"Authorization": "Bearer t0k"}, **more}
    return Access(server=server.url, source="a test", impersonation=DEPUTY, **given)


def run(client: Client, timeout: float = 20.0) -> Any:
    return run_in_pod(client, namespace="default", pod="p", container="c", command=["echo", "said"], timeout=timeout)


def asked(given: Access, server: Recorder) -> tuple[list[Any], list[Any]]:
    """What was seen of a request, and of a command."""
    client = Client(given, retry=Retry(attempts=1))
    seen: list[list[Any]] = []
    for ask in (lambda: client.get("/probe", what="look"), lambda: run(client)):
        server.seen.clear()
        ask()
        seen.append(list(server.seen))
    client.close()
    return seen[0], seen[1]


@pytest.mark.parametrize("credentials", ["", "user:p%40w@"])
@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("scheme", ["http", "https", "socks5"])
def test_a_command_goes_by_the_proxy_that_requests_go_by(folder: Path, scheme: str, tls: bool, credentials: str) -> None:
    with serving(Recorder(folder, tls=tls)) as server:
        proxy = Proxy(server.seen, folder if scheme == "https" else None)
        given = access(server, folder, proxy=f"{scheme}://{credentials}127.0.0.1:{proxy.port}")
        shown = (["user", "p@w"] if scheme == "socks5" else [BASIC]) if credentials else []
        through = ("127.0.0.1", server.server_port, shown)
        try:
            if scheme == "https" and not tls:
                with pytest.raises(ConfigError, match="No command in a pod can be run by the https proxy of a test"):
                    asked(given, server)
                assert server.seen == []
                return
            request, command = asked(given, server)
        finally:
            proxy.close()
    assert request[0] == command[0] == through and len(request) == len(command) == 2, "and nothing without TLS"
    assert request[1][2:] == command[1][2:] and BEARER in command[1][2] and ("impersonate-group", "b") in command[1][2]
    assert (request[1][0], command[1][0]) == ("/below/probe", "/below/api/v1/namespaces/default/pods/p/exec")


def test_output_and_outcome(server: Recorder, folder: Path) -> None:
    client = Client(access(server, folder))
    done = run(client)
    assert (done.code, done.stdout, done.stderr) == (0, "said", "")


def test_output_goes_to_a_sink(server: Recorder, folder: Path) -> None:
    pieces: list[bytes] = []
    done = run_in_pod(
        Client(access(server, folder)),
        namespace="default",
        pod="p",
        container="c",
        command=["dump"],
        sink=pieces.append,
        stdin=io.BytesIO(b"x"),
    )
    assert (b"".join(pieces), done.stdout, done.code) == (b"said", "", 0)


@pytest.mark.parametrize("scheme", ["", "http", "socks5"])
def test_a_command_that_is_quiet_keeps_its_connection(server: Recorder, folder: Path, scheme: str) -> None:
    proxy = Proxy(server.seen)
    client = Client(access(server, folder, proxy=f"{scheme}://127.0.0.1:{proxy.port}" if scheme else None))
    with client.open_socket(5.0) as found:
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) and found.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
    proxy.close()


@pytest.mark.parametrize("name", ["127.0.0.1", "other"])
def test_a_command_checks_the_certificate_as_requests_do(server: Recorder, folder: Path, name: str) -> None:
    """Also after a request, which has the TLS settings for itself where another name is to be in the certificate."""
    client = Client(access(server, folder, tls_server_name=name), retry=Retry(attempts=1))
    if name == "127.0.0.1":
        client.get("/probe", what="look")
        assert run(client).stdout == "said"
        return
    with pytest.raises(Unreachable):
        client.get("/probe", what="look")
    with pytest.raises(ExecError, match="does not answer"):
        run(client, timeout=1.0)
    assert server.seen == []


def test_a_client_certificate_is_shown_by_a_command_too(server: Recorder, folder: Path) -> None:
    request, command = asked(
        access(server, folder, certificate=Pem(path=str(folder / "c.pem")), key=Pem(path=str(folder / "k.pem"))), server
    )
    assert request[0][3] is command[0][3] is True


def test_credentials_are_not_sent_where_an_answer_leads(server: Recorder, folder: Path) -> None:
    with serving(Recorder(folder, tls=False)) as other:
        server.moved = f"{other.url.replace('http', 'ws')}/api/v1/namespaces/default/pods/p/exec"
        with pytest.raises(ExecError):
            run(Client(access(server, folder)), timeout=1.0)
        assert server.seen and other.seen == []
