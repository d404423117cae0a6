# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fault proxy, before an API server that answers when it is told to."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from ...faultproxy.proxy import Fault, FaultProxy, changed
from ...server import Handler, Server, kubeconfig, serving

OBJECT = {"kind": "ConfigMap", "metadata": {"name": "one", "resourceVersion": "1"}}


class Slow(Handler):
    """Answers each write at once, but those of /slow only when `go` is set; `asked` says that one has come."""

    asked = threading.Event()
    go = threading.Event()

    def do_GET(self) -> None:
        """As the API server responds to whoever accepts it, for large objects."""
        packed = gzip.compress(json.dumps(OBJECT).encode())
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(packed)))
        self.end_headers()
        self.wfile.write(packed)

    def do_POST(self) -> None:
        self.body()
        if self.path == "/slow":
            self.asked.set()
            self.go.wait(10)
        self.answer(201, OBJECT)


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[Path]:
    Slow.asked.clear()
    Slow.go.clear()
    with serving(Server(Slow)) as server:
        yield kubeconfig(tmp_path / "kubeconfig", server.url)
        Slow.go.set()


def test_what_a_killed_subject_left_under_way_takes_no_fault_from_the_next(upstream: Path) -> None:
    killed = []
    with FaultProxy(upstream, effects=changed) as proxy, urllib3.PoolManager(retries=False) as http:
        proxy.kill = lambda: killed.append(1)

        def write(path: str) -> None:
            with pytest.raises(urllib3.exceptions.HTTPError):
                http.request("POST", proxy.url + path, body=b"{}")

        proxy.plan(Fault("kill-committed", effect=1))
        late = threading.Thread(target=lambda: http.request("POST", proxy.url + "/slow", body=b"{}"))
        late.start()
        assert Slow.asked.wait(10)
        write("/quick")
        assert (killed, proxy.effects) == ([1], 1)
        proxy.plan(Fault("kill-committed", effect=1))
        Slow.go.set()
        late.join(10)
        assert (killed, proxy.effects) == ([1], 0)
        write("/quick")
        assert (killed, proxy.effects) == ([1, 1], 1)


def test_what_is_compressed_is_read_by_the_subject(upstream: Path) -> None:
    with FaultProxy(upstream) as proxy, urllib3.PoolManager(retries=False) as http:
        assert http.request("GET", f"{proxy.url}/large", headers={"Accept-Encoding": "gzip"}).json() == OBJECT
