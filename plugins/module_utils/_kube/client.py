# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to one API server over kept-alive connections, counted, with deadlines and retries.

What is retried: answers that say "not now" (429, 500, 502, 503, 504), a lost resourceVersion race (409 without field causes), and
lost connections. Every write of this package can be sent twice: server-side apply says what should be, a delete names the UID, a
create that meets the object of its own first try is told by its caller. What is never retried: 403, 404, 422, field conflicts.
"""

from __future__ import annotations

import email.utils
import importlib
import json
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from ansible_collections.corral.slurm.plugins.module_utils._kube.auth import Access
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import (
    ConfigError,
    Conflict,
    KubeError,
    Status,
    Unreachable,
    api_error,
    parse_object,
    parse_status,
)
from ansible_collections.corral.slurm.plugins.module_utils._kube.text import as_json

try:
    import urllib3
    from urllib3.exceptions import ConnectTimeoutError, HTTPError, NameResolutionError, NewConnectionError, ProxyError, SSLError
except ImportError as error:  # reported when a Client is made
    _MISSING: ImportError | None = error
else:
    _MISSING = None

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

# A command may say nothing for long, and what is between forgets connections that are quiet.
_KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)  # macOS has other names
    ),
)
# How often an object is judged again that somebody writes meanwhile.
_SEEN_TRIES = 5
_NOT_NOW = frozenset((429, 500, 502, 503, 504))


@dataclass(frozen=True)
class Retry:
    """How often and how long a request is repeated. Times are seconds; a pause is doubled from ``base`` to ``cap`` and then cut by a random half."""

    attempts: int = 10
    first_contact_attempts: int = 3
    """Tries to connect while this server has never responded: a wrong address should not cost a minute."""
    server_errors: float = 10.0
    """After this time of nothing but answers 500 a request is not tried again: a webhook or a converter that is broken stays so; most others pass."""
    base: float = 0.1
    cap: float = 5.0
    total: float = 60.0
    """After this time since the request began nothing is tried again."""


@dataclass(frozen=True)
class Response:
    """A success."""

    code: int
    data: dict[str, Any]


class Client:
    """One API server and one set of credentials. Threads may share it; each request borrows a connection of the pool."""

    def __init__(
        self,
        access: Access,
        *,
        retry: Retry = Retry(),
        connections: int = 4,
        timeout: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if _MISSING is not None:
            raise ConfigError(f"The Python package urllib3 is missing ({_MISSING}); install it for the Python that runs this task.")
        self.access = access
        self.requests = 0
        self._retry = retry
        self._timeout = timeout
        self._sleep = sleep
        self._lock = threading.Lock()
        self.clock: str | None = None
        """The API server's time when it first answered, as objects carry it (2026-01-02T03:04:05Z)."""
        self._responded = False
        self._headers = access.headers()
        self._shares = _shares
        self._pool = _shared_pool(access, connections) if self._shares else _pool(access, access.ssl_context(), connections)
        server = urlsplit(access.server)
        # Where a proxy makes no tunnel, each request tells it the server.
        self._prefix = access.server if server.scheme == "http" and self._pool.proxy is not None else server.path

    def close(self) -> None:
        """Close the idle connections, unless this process keeps them."""
        if not self._shares:
            self._pool.close()

    def count(self, *, writes: bool) -> None:
        """Count one request that is about to be sent. Whoever is asked before requests is asked first, with whether it may change something. For exec, too."""
        if _before_request is not None:
            _before_request(writes)
        with self._lock:
            self.requests += 1

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers that say who sends a request, and for whom."""
        return list(self._headers)

    def _with_headers(self, **more: str) -> Any:
        """Return all headers of a request; one name may be there several times."""
        headers = urllib3.HTTPHeaderDict()
        for name, value in (*self._headers, *((name.replace("_", "-"), value) for name, value in more.items())):
            headers.add(name, value)
        return headers

    def open_socket(self, timeout: float) -> Any:
        """Return a new connection to the API server for what is no request (exec), by the same proxy and with the same TLS as requests.

        Raises OSError. Whoever asks for it closes it.
        """
        server = urlsplit(self.access.server)
        connection: Any = self._pool._new_conn()  # urllib3 has no public way to a connection alone
        connection.timeout = timeout
        connection.socket_options = [*(connection.socket_options or ()), *_KEEP_ALIVE]
        if self._pool.proxy is not None:
            if server.scheme == "http" and self._pool.proxy.scheme == "https":
                raise ConfigError(
                    f"No command in a pod can be run by the https proxy of {self.access.source}, for its server is http; use https."
                )
            port = server.port or (443 if server.scheme == "https" else 80)
            connection.set_tunnel(server.hostname, port, self._pool.proxy_headers, scheme=self._pool.proxy.scheme)
        try:
            connection.connect()
        except (HTTPError, HTTPException, OSError, ValueError) as error:  # a name that is not in the certificate is a ValueError
            connection.close()
            raise ConnectionError(_reason(error)) from error
        return connection.sock

    def get(self, path: str, *, what: str, query: Mapping[str, str] | None = None) -> Response:
        """Send a GET; see ``request``."""
        return self.request("GET", path, what=what, query=query)

    def items(self, path: str, *, what: str, query: Mapping[str, str], accept: str = JSON) -> list[dict[str, Any]]:
        """Return all objects of a collection, asked for in pages."""
        found: list[dict[str, Any]] = []
        page = {**query, "limit": "500"}
        while True:
            data = self.request("GET", path, what=what, query=page, accept=accept).data
            found.extend(data.get("items") or ())
            token = (data.get("metadata") or {}).get("continue")
            if not token:
                return found
            page["continue"] = str(token)

    def request(
        self,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
        retry_conflict: bool = True,
    ) -> Response:
        """Send one request, repeated as the module's text says, and return the success.

        ``what`` names the action for error sentences ("apply ConfigMap demo/x"). ``body`` is sent as JSON, which is also YAML.
        Raises ApiError (see errors.api_error) for a refusal and Unreachable when no response came.
        """
        response = self._response(
            method, path, what=what, query=query, body=body, content_type=content_type, accept=accept, retry_conflict=retry_conflict
        )
        sort, server = str(response.headers.get("Content-Type") or ""), f"{self.access.server} ({self.access.source})"
        return Response(response.status, parse_object(response.status, response.data, sort, what, method=method, server=server))

    def text(self, path: str, *, what: str, query: Mapping[str, str]) -> str:
        """Return a path's body as text (a container's log)."""
        response = self._response("GET", path, what=what, query=query, accept="*/*")
        return response.data.decode(errors="replace")

    def _response(
        self,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
        retry_conflict: bool = True,
    ) -> urllib3.BaseHTTPResponse:
        """Return the successful response."""
        url = self._url(path, query)
        payload = None if body is None else _payload(body, what)
        began = time.monotonic()
        attempt = 0
        renewed = False
        broken: float | None = None  # since when it answers 500
        while True:
            attempt += 1
            try:
                response = self._send(method, url, payload, content_type, accept)
            except (HTTPError, OSError) as error:
                lost: Exception | None = error
                status = None
            else:
                if response.status < 300:
                    return response
                lost = None
                status = parse_status(response.status, response.data, response.headers.get("Retry-After"))
                if status.code == 401 and not renewed:  # a token that ran out during a long wait
                    renewed = True
                    fresh = self.access.headers()
                    if fresh != self._headers:
                        self._headers = fresh
                        continue
            until = began + self._retry.total
            if status is not None and status.code == 500:
                broken = time.monotonic() if broken is None else broken
                until = min(until, broken + self._retry.server_errors)
            else:
                broken = None
            again = self._may_repeat(lost, status, attempt, until, retry_conflict)
            if again is None:
                if status is not None:
                    raise api_error(status, what, server=self.access.server)
                raise self._unreachable(lost, what) from lost
            self._sleep(again)

    def watch(self, path: str, *, what: str, query: Mapping[str, str], seconds: int, stop: Stop) -> Iterator[dict[str, Any]]:
        """Yield the events of one watch until the server ends it (after ``seconds``), the connection breaks, or ``stop`` is set.

        A broken connection just ends the events: the caller watches on from the last resourceVersion. Raises ApiError for a refusal.
        """
        url = self._url(path, {**query, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)})
        try:
            self.count(writes=False)
            response = self._pool.request(
                "GET",
                url,
                headers=self._with_headers(Accept=JSON),
                retries=False,
                redirect=False,
                assert_same_host=False,
                preload_content=False,
                timeout=urllib3.Timeout(connect=10.0, read=seconds + 15.0),
            )
        except (HTTPError, OSError):
            return
        try:
            if response.status >= 300:
                raise api_error(parse_status(response.status, response.read()), what, server=self.access.server)
            stop.attach(response)
            yield from _lines(response)
        except (HTTPError, OSError, ValueError, AttributeError):
            return  # cut off; urllib3 meets a socket that another thread has closed in several ways
        finally:
            stop.detach(response)
            response.close()

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        return self._prefix + path + (f"?{urlencode(query, quote_via=quote)}" if query else "")

    def _send(self, method: str, url: str, payload: bytes | None, content_type: str, accept: str) -> urllib3.BaseHTTPResponse:
        self.count(writes=method != "GET")
        headers = self._with_headers(Accept=accept, **({} if payload is None else {"Content_Type": content_type}))
        response = self._pool.request(
            method,
            url,
            body=payload,
            headers=headers,
            retries=False,
            redirect=False,
            assert_same_host=False,
            timeout=urllib3.Timeout(connect=10.0, read=self._timeout),
        )
        self._responded = True
        if self.clock is None and "Date" in response.headers:
            self.clock = email.utils.parsedate_to_datetime(response.headers["Date"]).strftime("%Y-%m-%dT%H:%M:%SZ")
        return response

    def _may_repeat(self, lost: Exception | None, status: Status | None, attempt: int, until: float, retry_conflict: bool) -> float | None:
        """Return the pause before the next try in seconds, or None when there should be none."""
        policy = self._retry
        if isinstance(lost, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(lost):
            return None
        unreached = isinstance(lost, (NewConnectionError, ConnectTimeoutError, NameResolutionError, ProxyError))
        if attempt >= (policy.attempts if self._responded or not unreached else policy.first_contact_attempts):
            return None
        refused = status is not None and (status.code not in _NOT_NOW or status.is_schema_error)
        if refused and not (status is not None and status.is_race and retry_conflict):
            return None
        pause = min(policy.cap, policy.base * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)
        if status is not None and status.retry_after is not None:
            pause = status.retry_after + pause * 0.1
        elif lost is not None and attempt == 1 and not unreached:
            pause = 0.0  # a kept-alive connection that the server had closed
        return pause if time.monotonic() + pause <= until else None

    def _unreachable(self, error: Exception | None, what: str) -> Unreachable:
        reason = _reason(error)
        return Unreachable(
            f"Could not {what}: the API server {self.access.server} ({self.access.source}) does not answer: {reason}; "
            "is it running, and is this the right cluster?"
        )


def patch_as_seen(
    client: Client,
    path: str,
    seen: dict[str, Any],
    change: Callable[[dict[str, Any]], dict[str, Any] | None],
    *,
    what: str,
    query: Mapping[str, str] | None = None,
) -> dict[str, Any] | None:
    """Change an object as it was when it was judged: whoever writes it in between is not overwritten, and ``change`` judges again.

    ``change`` is given the object and returns a merge patch, or None where there is nothing to do; ``seen`` is the object as it was read.
    Returns the object after the change, None where there was none to make. Raises Conflict when somebody came first each time, NotFound.
    """
    tried = 0
    while True:
        body = change(seen)
        if body is None:
            return None
        body = {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": seen["metadata"]["resourceVersion"]}}
        try:
            return client.request("PATCH", path, what=what, query=query, body=body, content_type=MERGE, retry_conflict=False).data
        except Conflict:
            tried += 1
            if tried == _SEEN_TRIES:
                raise
            time.sleep(0.05 * 2**tried)
            seen = client.get(path, what=what).data


class Stop:
    """Ends watches from another thread: a flag, and the sockets on which their threads sleep."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._responses: set[urllib3.BaseHTTPResponse] = set()

    def is_set(self) -> bool:
        """True after ``set``."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep, but no longer than until ``set``; return ``is_set()``."""
        return self._event.wait(seconds)

    def attach(self, response: urllib3.BaseHTTPResponse) -> None:
        """Register a stream that ``set`` should cut."""
        with self._lock:
            self._responses.add(response)
        if self._event.is_set():
            _shutdown(response)

    def detach(self, response: urllib3.BaseHTTPResponse) -> None:
        """Forget a stream."""
        with self._lock:
            self._responses.discard(response)

    def set(self) -> None:
        """Raise the flag and wake the sleepers."""
        self._event.set()
        with self._lock:
            responses = list(self._responses)
        for response in responses:
            _shutdown(response)


def _shutdown(response: urllib3.BaseHTTPResponse) -> None:
    connection = getattr(response, "connection", None)
    sock = getattr(connection, "sock", None)
    if sock is not None:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # closed already


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield the JSON documents of a stream of lines, as soon as each is complete."""
    buffer = b""
    while True:
        chunk = response.read1()
        if not chunk:
            return
        *complete, buffer = (buffer + chunk).split(b"\n")
        for line in complete:
            if line.strip():
                yield json.loads(line)


def _payload(body: Any, what: str) -> bytes:
    try:
        return as_json(body).encode()
    except (TypeError, ValueError) as error:
        raise KubeError(f"Could not {what}: the object cannot be sent as JSON ({error}); correct that value.") from error


# Asked before each request of this process; None: nobody is.
_before_request: Callable[[bool], None] | None = None


def ask_before_requests(ask: Callable[[bool], None]) -> None:
    """Have the clients of this process, and of those that it forks, call this before each try of a request, with whether it writes: it may wait, and a
    request for which it raises a CorralError is not sent."""
    global _before_request
    _before_request = ask


# Whether clients leave their connections to later ones of the same process, and those that were left.
_shares = False
_shared: dict[tuple[object, ...], urllib3.HTTPConnectionPool] = {}
_contexts: dict[tuple[object, ...], ssl.SSLContext | None] = {}


def keep_connections() -> None:
    """Have the clients of this process, and of those that it forks, leave their connections open for the next one: for a process that runs many tasks."""
    global _shares
    _shares = True


def _shared_pool(access: Access, connections: int) -> urllib3.HTTPConnectionPool:
    """Return the connections of this process by the same certificates; a token is sent with each request and may be another one. No fork uses its parent's."""
    server = (access.server, access.ca, access.verify, access.tls_server_name, access.proxy)
    key = (os.getpid(), *server, access.certificate, access.key)
    if key not in _shared:
        _shared[key] = _pool(access, shared_context(access), connections)
    return _shared[key]


def shared_context(access: Access) -> ssl.SSLContext | None:
    """Return the TLS settings of a process that keeps its connections: made once, also for its forks, until one of the files is another one."""
    pems = (access.ca, access.certificate, access.key)
    try:
        files = tuple(Path(pem.path).stat().st_mtime_ns for pem in pems if pem.path)
    except OSError:
        return access.ssl_context()
    key = (access.server, access.proxy, access.verify, *pems, files)
    if key not in _contexts:
        _contexts.clear()
        _contexts[key] = access.ssl_context()
    return _contexts[key]


def _pool(access: Access, context: ssl.SSLContext | None, connections: int) -> urllib3.HTTPConnectionPool:
    parts = urlsplit(access.server)
    if parts.hostname is None:
        raise ConfigError(f"{access.server!r} is no address of an API server; write https://name:port.")
    options: dict[str, Any] = {"maxsize": connections}
    if context is not None:
        options.update(
            ssl_context=context,
            cert_reqs="CERT_REQUIRED" if access.verify else "CERT_NONE",
            server_hostname=access.tls_server_name,
            assert_hostname=access.tls_server_name if access.verify else False,
        )
    if access.proxy:
        return _proxied(access, context, options).connection_from_host(parts.hostname, parts.port, parts.scheme)
    pool = urllib3.HTTPConnectionPool if context is None else urllib3.HTTPSConnectionPool
    return pool(parts.hostname, parts.port, **options)


def _proxied(access: Access, context: ssl.SSLContext | None, options: dict[str, Any]) -> urllib3.PoolManager:
    proxy = urlsplit(str(access.proxy))
    user, password = (None if proxy.username is None else unquote(part or "") for part in (proxy.username, proxy.password))
    address = f"{proxy.scheme}://{proxy.netloc.rpartition('@')[2]}"
    if proxy.scheme.startswith("socks5"):
        try:
            socks: Any = importlib.import_module("urllib3.contrib.socks")
        except ImportError as error:
            raise ConfigError(f"The socks5 proxy of {access.source} needs the Python package PySocks ({error}); install it.") from error
        # Names are the proxy's to resolve.
        manager: urllib3.PoolManager = socks.SOCKSProxyManager(
            address.replace("socks5:", "socks5h:"), username=user, password=password, **options
        )
        return manager
    headers = None if user is None else urllib3.make_headers(proxy_basic_auth=f"{user}:{password}")
    # A proxy with TLS is checked by the cluster's CA, as kubectl does.
    return urllib3.ProxyManager(address, proxy_headers=headers, proxy_ssl_context=context, **options)


def _reason(error: Exception | None) -> str:
    """Return a connection's failure in a few words."""
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"its certificate is not trusted ({text.rsplit('CERTIFICATE_VERIFY_FAILED]', maxsplit=1)[-1].strip(' :)(')}); check the CA of the kubeconfig"
    for mark, words in (
        ("Connection refused", "connection refused"),
        ("Name or service not known", "its name is not known"),
        ("Temporary failure in name resolution", "its name cannot be resolved"),
        ("timed out", "no answer in time"),
        ("Connection reset", "the connection was reset"),
        ("RemoteDisconnected", "the connection was closed"),
    ):
        if mark in text:
            return words
    return text.splitlines()[0][:200] if text else type(error).__name__
