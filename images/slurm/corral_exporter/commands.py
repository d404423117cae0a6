# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Runs Slurm's commands. Their output is read as it comes: that of 50 000 jobs takes half a gigabyte as JSON (9.9 KB a job with 24.11.5)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence

from corral_exporter import SourceError

# Seconds since the epoch, and lists of an array's tasks in full.
_ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
_PIECE = 1 << 16
# One record: a list of 50 000 tasks is shorter.
_LONGEST = 1 << 20


def records(command: Sequence[str], end: str, timeout: float) -> Iterator[str]:
    """Yield what a command prints, cut at ``end``. Raises SourceError where it fails or takes longer than ``timeout`` seconds."""
    environment = {**os.environ, **_ENVIRONMENT}
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True
        )
    except OSError as error:
        raise SourceError(f"{command[0]} cannot be run: {error.strerror}") from error
    late = threading.Event()

    def stop() -> None:
        late.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(timeout, stop)
    message: list[bytes] = []
    assert process.stdout is not None and process.stderr is not None
    errors = threading.Thread(target=_read_some, args=(process.stderr, message), daemon=True)
    timer.start()
    errors.start()
    try:
        rest, mark = b"", end.encode()
        while piece := process.stdout.read1(_PIECE):  # type: ignore[attr-defined] # a BufferedReader, which typeshed calls IO
            *whole, rest = (rest + piece).split(mark)
            if len(rest) > _LONGEST:
                raise SourceError(f"{command[0]} printed a record of more than {_LONGEST} bytes")
            for one in whole:
                yield one.decode(errors="replace")
        if rest.strip():
            yield rest.decode(errors="replace")
        status = process.wait()
        errors.join()
        if late.is_set():
            raise SourceError(f"{command[0]} did not end within {timeout:g} s")
        if status:
            text = b"".join(message).decode(errors="replace").strip().splitlines()
            raise SourceError(f"{command[0]} ended with status {status}: {text[-1] if text else 'it printed no message'}")
    finally:
        timer.cancel()
        if process.poll() is None:
            stop()
            process.wait()
        errors.join()
        process.stdout.close()
        process.stderr.close()


def _read_some(stream: object, found: list[bytes]) -> None:
    """Read all, and keep the first."""
    kept = 0
    while piece := stream.read1(_PIECE):  # type: ignore[attr-defined] # as above
        if kept < _PIECE:
            found.append(piece)
            kept += len(piece)
