# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A command in a pod, as ``kubectl exec`` does it: one websocket, a byte in front of each frame says which stream it is.

Protocols: ``v5.channel.k8s.io`` (Kubernetes 1.30 and later), else ``v4``; only v5 can end the command's standard input.
Streams: 0 stdin, 1 stdout, 2 stderr, 3 the outcome as a Status object, 255 (v5) closes the stream that follows.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ExecError, KubeError, NotStarted, api_error, parse_status

try:
    import websocket
except ImportError as error:  # reported when a command is to be run
    _MISSING: ImportError | None = error
else:
    _MISSING = None

_STDIN, _STDOUT, _STDERR, _OUTCOME, _CLOSE = 0, 1, 2, 3, 255
_CONNECT_TRIES = 4

Input: TypeAlias = "bytes | IO[bytes]"
Sink: TypeAlias = Callable[[bytes], object]


@dataclass(frozen=True)
class Output:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def summary(self) -> str:
        """What the command said, in one line, for error sentences."""
        text = " ".join((self.stderr.strip() or self.stdout.strip()).split())
        return text[-500:] or "it printed nothing"


def run_in_pod(
    client: Client,
    *,
    namespace: str,
    pod: str,
    container: str,
    command: list[str],
    stdin: Input | None = None,
    sink: Sink | None = None,
    timeout: float = 30.0,
) -> Output:
    """Run ``command`` in a container and return its output, whatever its exit code.

    What does not fit into memory comes from a file, ``stdin``, and goes piece by piece to ``sink``; then ``Output.stdout`` is empty.
    A command that reads ``stdin`` has to keep its standard output open until it has read all: containerd passes on no more input then
    (observed with 2.1: ``exec cat >FILE`` got from none to six pieces of 32 KiB).

    Raises ApiError when the API server refuses (no such pod, no right to exec), ExecError when the command cannot be
    started (then NotStarted), does not end in ``timeout`` seconds, or the connection breaks. A connection that fails before the command
    begins is tried again.
    """
    if _MISSING is not None:
        raise ExecError(f"The Python package websocket-client is missing ({_MISSING}); install it for the Python that runs this task.")
    deadline = time.monotonic() + timeout
    what = f"run {command[0]} in pod {namespace}/{pod}, container {container}"
    connection = _connect(client, _url(client, namespace, pod, container, command, stdin is not None), what, deadline)
    stream = connection.sock
    try:
        if stdin is not None:
            _send(connection, io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin, what)
        return _follow(connection, what, deadline, timeout, sink)
    except (websocket.WebSocketException, OSError) as error:
        raise ExecError(f"Could not {what}: the connection broke ({error}); try again.") from error
    finally:
        connection.close(timeout=0)
        stream.close()  # websocket-client leaves one that is TLS within TLS


def _url(client: Client, namespace: str, pod: str, container: str, command: list[str], stdin: bool) -> str:
    query = [("container", container), ("stdout", "true"), ("stderr", "true"), *(("command", argument) for argument in command)]
    if stdin:
        query.append(("stdin", "true"))
    server = urlsplit(client.access.server)
    path = Ref(BUILTIN["", "Pod"], quote(namespace, safe=""), quote(pod, safe="")).path  # of an inventory, they may be anything
    return f"{'wss' if server.scheme == 'https' else 'ws'}://{server.netloc}{server.path}{path}/exec?{urlencode(query, quote_via=quote)}"


def _connect(client: Client, url: str, what: str, deadline: float) -> Any:
    options: dict[str, Any] = {
        "header": [f"{name}: {value}" for name, value in client.headers],
        "subprotocols": ["v5.channel.k8s.io", "v4.channel.k8s.io"],
        "suppress_origin": True,
        "skip_utf8_validation": True,
        "redirect_limit": 0,  # whoever it is that an answer names, the credentials are not theirs
    }
    for attempt in range(1, _CONNECT_TRIES + 1):
        left = deadline - time.monotonic()
        patience = max(0.1, min(left, 10.0))
        client.count(writes=True)  # whatever the command is: nobody can see what it does
        try:
            return websocket.create_connection(url, timeout=patience, socket=client.open_socket(patience), **options)
        except websocket.WebSocketBadStatusException as error:
            status = parse_status(int(error.status_code), bytes(error.resp_body or b""))
            if status.code not in (429, 502, 503, 504) or attempt == _CONNECT_TRIES or left <= 0:
                raise _refusal(status, what, client) from error
        except (websocket.WebSocketException, OSError) as error:
            if attempt == _CONNECT_TRIES or left <= 0:
                raise NotStarted(
                    f"Could not {what}: the API server {client.access.server} does not answer ({error}); is it running?"
                ) from error
        time.sleep(min(0.2 * 2**attempt, max(0.0, left)))
    raise NotStarted(f"Could not {what}.")


def _refusal(status: Any, what: str, client: Client) -> KubeError:
    """500 and 400 speak of the container here, not of the API server."""
    if status.code in (400, 500) and status.message:
        return NotStarted(f"Could not {what}: {status.message.rstrip('.')}; does the container run?")
    return api_error(status, what, server=client.access.server)


def _send(connection: Any, stdin: IO[bytes], what: str) -> None:
    if connection.getsubprotocol() != "v5.channel.k8s.io":
        raise ExecError(f"Could not {what}: this Kubernetes is too old to end a command's input over a websocket; 1.30 or later can.")
    while True:
        piece = stdin.read(1 << 16)
        try:
            connection.send_binary(bytes([_STDIN]) + piece if piece else bytes([_CLOSE, _STDIN]))
        except (websocket.WebSocketException, OSError):
            return  # a command that ended before it read all: what it said comes next, or an error of the connection
        if not piece:
            return


def _follow(connection: Any, what: str, deadline: float, timeout: float, sink: Sink | None) -> Output:
    """Collect the streams until the outcome comes."""
    streams: dict[int, bytearray] = {_STDOUT: bytearray(), _STDERR: bytearray(), _OUTCOME: bytearray()}
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise _slow(what, timeout, streams)
        connection.settimeout(left)
        try:
            opcode, data = connection.recv_data()
        except websocket.WebSocketTimeoutException as error:
            raise _slow(what, timeout, streams) from error
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            break
        frame = bytes(data) if isinstance(data, (bytes, bytearray)) else str(data).encode()
        if sink is not None and frame and frame[0] == _STDOUT:
            sink(frame[1:])
        elif frame and frame[0] in streams:
            streams[frame[0]] += frame[1:]
        if streams[_OUTCOME]:
            break
    if not streams[_OUTCOME]:
        raise ExecError(f"Could not {what}: the connection was closed before the command ended; try again.")
    text = {number: bytes(data).decode(errors="replace") for number, data in streams.items()}
    return Output(_exit_code(text[_OUTCOME], what), text[_STDOUT], text[_STDERR])


def _slow(what: str, timeout: float, streams: dict[int, bytearray]) -> ExecError:
    printed = " ".join(bytes(streams[_STDERR] or streams[_STDOUT]).decode(errors="replace").split())[-300:]
    return ExecError(
        f"Could not {what}: it did not end within {timeout:g} s" + (f"; its output so far: {printed}" if printed else "") + "."
    )


def _exit_code(outcome: str, what: str) -> int:
    status = json.loads(outcome)
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise ExecError(f"Could not {what}: {str(status.get('message', 'no reason given')).rstrip('.')}.")
