# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A proxy before an API server that misbehaves to order, counts what goes through and writes it down.

It listens on plain loopback HTTP and speaks to the server with the credentials of a kubeconfig, so the subject needs none:

    with FaultProxy(kubeconfig) as proxy:
        proxy.plan(Fault("429", write=3, seconds=1))
        run(proxy.url)
        assert proxy.writes == 11

A write is a POST, PUT, PATCH or DELETE that is no dry run and no review of rights; that the server refuses it or a fault keeps it away does not matter.
An effect is a write after which the object is another one: to apply what is there already has none. It is known afterwards only, and looked for where
`effects` is given, which decides by the object as it was and as it is.
Websockets (exec) go through as they are. `python -m tests.faultproxy --help` starts it by hand.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import urllib3

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth

from ..server import Handler, Server, kubeconfig

Json = dict[str, Any]
Effects = Callable[[Json, Json], bool]
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
ACTIONS = (
    "409",
    "410",
    "410-event",
    "422",
    "429",
    "500",
    "502",
    "503",
    "504-committed",
    "reset",
    "reset-committed",
    "delay",
    "kill",
    "kill-committed",
)
# What the apply engine gets over by itself, with what else a Fault of it says.
TRANSIENT: dict[str, dict[str, Any]] = {
    "409": {},
    "429": {"seconds": 0.05},
    "500": {},
    "503": {},
    "504-committed": {},
    "reset": {},
    "reset-committed": {},
}
_REVIEWS = re.compile(r"/(tokenreviews|(self)?subject(access|rules)reviews|localsubjectaccessreviews)$")
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host"})
_REASONS = {
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    502: "",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass
class Fault:
    """What goes wrong, and when: at the `write`-th write, after the `effect`-th effect, or at the `match`-th request of this `verb` whose path
    the regular expression finds.

    `seconds` is the delay, or the Retry-After of a 429; `times` in a row it happens, counted in requests that qualify.
    `…-committed`: the server does the deed and the answer is lost. `410-event`: a watch begins, and tells at once that its version is too old.
    `kill` calls the proxy's `kill`, which ends the subject.
    """

    action: str
    write: int | None = None
    effect: int | None = None
    verb: str = ".*"
    path: str | None = None
    match: int = 1
    seconds: float = 0.0
    times: int = 1
    seen: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.action not in ACTIONS or sum(given is not None for given in (self.write, self.effect, self.path)) != 1:
            raise ValueError(f"a fault is one of {', '.join(ACTIONS)} at a write, an effect or a path: {self}")
        if self.effect is not None and not self.action.endswith("-committed"):
            raise ValueError(f"what has an effect is committed: {self}")

    def strikes(self, verb: str, path: str, write: int | None) -> bool:
        """Decide for one request; `write` is its number among the writes."""
        if self.write is not None:
            return write is not None and self.write <= write < self.write + self.times
        if self.path is None or not re.fullmatch(self.verb, verb) or not re.search(self.path, path):
            return False
        self.seen += 1
        return self.match <= self.seen < self.match + self.times


@dataclass(frozen=True)
class Seen:
    """One request that went through."""

    verb: str
    path: str
    code: int
    write: int | None
    dry_run: bool
    fault: str


class FaultProxy:
    """The proxy; a context manager."""

    def __init__(self, kubeconfig: str | Path, *, trace: Path | None = None, port: int = 0, effects: Effects | None = None) -> None:
        access = auth.resolve({"kubeconfig": str(kubeconfig)})
        self.upstream = access.server
        self.headers = dict(access.headers())
        self.context = access.ssl_context()
        self.pool = urllib3.PoolManager(ssl_context=self.context, maxsize=16, assert_hostname=None if access.verify else False)
        self._file = trace
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self.trace: list[Seen] = []
        self.plans = 0
        self.requests = 0
        self.writes = 0
        self.effects = 0
        self.has_effect = effects
        self.kill: Callable[[], object] = lambda: None
        self.away = False
        self.open: set[socket.socket] = set()
        self._server = _Server(_Handler, port)
        self._server.proxy = self
        self.url = self._server.url
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.pool.clear()

    def plan(self, *faults: Fault) -> None:
        """Forget what was seen, and have these faults happen from now on."""
        with self._lock:
            self.plans += 1
            self._faults = list(faults)
            self.trace = []
            self.requests = self.writes = self.effects = 0

    @contextmanager
    def gone(self) -> Iterator[None]:
        """As if the API server were restarted: all connections are reset, new ones too until the end of the block."""
        self.away = True
        with self._lock:
            streams = list(self.open)
        for stream in streams:
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
        try:
            yield
        finally:
            self.away = False

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that leads through the proxy."""
        return kubeconfig(path, self.url)

    def begin(self, verb: str, path: str, body: bytes) -> tuple[int | None, bool, Fault | None]:
        """Count a request; return its number among the writes, whether it is a dry run, and the fault that strikes it."""
        split = urlsplit(path)
        dry = "dryRun" in parse_qs(split.query) or (verb == "DELETE" and b'"dryRun"' in body)
        with self._lock:
            self.requests += 1
            number = None
            if verb in WRITES and not dry and not _REVIEWS.search(split.path):
                self.writes += 1
                number = self.writes
            fault = next((fault for fault in self._faults if fault.strikes(verb, path, number)), None)
        return number, dry, fault

    def read(self, path: str) -> Json:
        """Return the object that is about to be written, empty where there is none."""
        return _object(self.pool.request("GET", self.upstream + urlsplit(path).path, headers=self.headers).data)

    def effect(self, plan: int) -> Fault | None:
        """Count an effect of a request that began under a plan; return the fault that strikes after it.

        A subject that was killed leaves requests behind, whose effects come when the next one runs already: they are not that one's, and take no fault from it.
        """
        with self._lock:
            if plan != self.plans:
                return None
            self.effects += 1
            return next((fault for fault in self._faults if fault.effect == self.effects), None)

    def note(self, seen: Seen) -> None:
        """Write down a request that is about to be answered: whoever has the answer may read the trace."""
        with self._lock:
            self.trace.append(seen)
            if self._file is not None:
                with self._file.open("a") as file:
                    file.write(json.dumps({"time": time.time(), **seen.__dict__}) + "\n")


def _object(data: bytes) -> Json:
    try:
        found: Json = json.loads(data)
    except ValueError:
        return {}
    return {} if found.get("kind") == "Status" else found


def _status(code: int) -> Json:
    words = {"reason": _REASONS[code], "message": f"injected {code}"}
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, **words}


def changed(before: Json, after: Json) -> bool:
    """The usual `effects`: the object is another one, or gone."""
    versions = [one.get("metadata", {}).get("resourceVersion") for one in (before, after)]
    return not after or versions[0] != versions[1]


class _Server(Server):
    proxy: FaultProxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A subject that is cut off, or hangs up on a watch, is no news."""


class _Handler(Handler):
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.proxy.open.add(self.connection)

    def finish(self) -> None:
        self.server.proxy.open.discard(self.connection)
        super().finish()

    def _relay(self) -> None:
        if self.server.proxy.away:
            self.cut()
            return
        body = self.body()
        proxy = self.server.proxy
        plan = proxy.plans
        write, dry, fault = proxy.begin(self.command, self.path, body)
        action = fault.action if fault is not None else ""
        seconds = fault.seconds if fault is not None else 0.0

        def note(code: int, action: str = action) -> None:
            proxy.note(Seen(self.command, self.path, code, write, dry, action))

        if action == "delay":
            time.sleep(seconds)
        if action in ("reset", "kill"):
            note(0)
            if action == "kill":
                proxy.kill()
            self.cut()
        elif self.headers.get("Upgrade"):
            self._tunnel(note)
        elif action == "410-event":
            note(200)
            self._too_old()
        elif action.isdecimal():
            note(int(action))
            self.answer(int(action), _status(int(action)), {"Retry-After": f"{seconds:g}"} if action == "429" else None)
        else:
            self._forward(body, action, note, write, plan)

    def _forward(self, body: bytes, action: str, note: Callable[..., None], write: int | None, plan: int) -> None:
        proxy = self.server.proxy
        looks = proxy.has_effect if write is not None else None
        before = proxy.read(self.path) if looks and self.command in ("PATCH", "PUT") else {}
        headers = {key: value for key, value in self.headers.items() if key.lower() not in _HOP_BY_HOP} | proxy.headers
        stream = "watch=1" in self.path or "watch=true" in self.path
        try:
            answer = proxy.pool.request(
                self.command,
                proxy.upstream + self.path,
                body=body or None,
                headers=headers,
                preload_content=not stream,
                retries=False,
                redirect=False,
            )
        except urllib3.exceptions.HTTPError:
            note(0)
            raise
        if looks and answer.status < 300 and looks(before, {} if self.command == "DELETE" else _object(answer.data)):
            fault = proxy.effect(plan)
            action = fault.action if fault is not None else action
        note({"504-committed": 504, "reset-committed": 0, "kill-committed": 0}.get(action, answer.status), action)
        if action == "504-committed":
            self.answer(504, _status(504))
            return
        if action.endswith("-committed"):
            if action == "kill-committed":
                proxy.kill()
            self.cut()
            return
        self.send_response(answer.status)
        for key, value in answer.headers.items():
            if key.lower() not in _HOP_BY_HOP | {"date", "server", "content-encoding"}:  # the body is decoded
                self.send_header(key, value)
        if stream:
            self._stream(answer)
        else:
            self.send_header("Content-Length", str(len(answer.data)))
            self.end_headers()
            self.wfile.write(answer.data)

    def _tunnel(self, note: Callable[[int], None]) -> None:
        """Pass a websocket on, byte for byte, until either side has had enough."""
        proxy = self.server.proxy
        upstream = urlsplit(proxy.upstream)
        headers = {key: value for key, value in self.headers.items() if key.lower() != "host"} | proxy.headers | {"Host": upstream.netloc}
        plain = socket.create_connection((upstream.hostname, upstream.port or 443), timeout=10)
        context = proxy.context or ssl.create_default_context()
        with context.wrap_socket(plain, server_hostname=upstream.hostname) as theirs:
            head = [f"{self.command} {self.path} HTTP/1.1", *(f"{key}: {value}" for key, value in headers.items()), "", ""]
            theirs.sendall("\r\n".join(head).encode())
            note(101)
            ours = self.connection
            theirs.settimeout(None)
            with selectors.DefaultSelector() as selector, suppress(OSError):
                selector.register(ours, selectors.EVENT_READ, theirs)
                selector.register(theirs, selectors.EVENT_READ, ours)
                while True:
                    for key, _events in selector.select():
                        data = key.fileobj.recv(65536)  # type: ignore[union-attr]  # a selector may hold bare descriptors; this one holds sockets
                        while isinstance(key.fileobj, ssl.SSLSocket) and key.fileobj.pending():
                            data += key.fileobj.recv(65536)
                        if not data:
                            self.close_connection = True
                            return
                        key.data.sendall(data)
        self.close_connection = True

    def _stream(self, answer: urllib3.BaseHTTPResponse) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while chunk := answer.read1():
                self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:  # the subject has seen enough
            self.close_connection = True
        finally:
            answer.close()

    def _too_old(self) -> None:
        """As the API server ends a watch that it cannot go on with."""
        event = json.dumps({"type": "ERROR", "object": _status(410)}).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n0\r\n\r\n")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _relay
