# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks documents in child processes, with limits on time and memory.

A document is untrusted, and the check computes the complete model from the spec. A document that takes too long must delay neither the lease, nor
the health probes, nor other clusters; so its check is ended, and the document counts as invalid.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import struct
import sys
from dataclasses import dataclass, field
from typing import IO, Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import names
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError, defect

Json = dict[str, Any]

# CPU time, so that no check fails because the host is busy. The largest documents take a tenth of it.
CPU = 4.0
# A check without a result by then is repeated; the process may have been suspended with its host.
_TIMEOUT = 60.0
# A document of the maximum size, 1.1 MB, needs less than 96 MiB of address space; several checks run at once in a pod of 1 GiB.
_MEMORY = 384 << 20
# Checks at the same time.
_MOST = 2
_LENGTH = struct.Struct("!I")


@dataclass(frozen=True)
class Checked:
    """The result of a check of a document's spec: the errors, or what the operator needs of the model."""

    # The spec that was checked; ``...``: nothing was checked yet. None is a document without a spec.
    spec: object = field(default=..., compare=False)
    # The message that the playbook would fail with.
    errors: str = ""
    drain_causes: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    eviction: str = ""
    # Names of its objects that objects of another cluster could have too.
    names: frozenset[names.Name] = frozenset()


def check(document: Json) -> Checked:
    """Check a document, however long that takes."""
    from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve

    spec = document.get("spec")
    try:
        model = resolve.model({key: document.get(key) for key in ("apiVersion", "kind", "metadata", "spec")})
        found = names.of(model)
    except CorralError as error:
        return Checked(spec, str(error))
    except (RecursionError, MemoryError) as error:
        return Checked(
            spec,
            f"The document cannot be checked ({type(error).__name__}), so the cluster is not changed; make the document smaller or less nested.",
        )
    except Exception as error:  # noqa: BLE001  any defect is reported for this document only, and the next one is checked
        return Checked(spec, str(defect(error)))
    drain_causes = (tuple(model.sync.taints), tuple(model.sync.conditions))
    return Checked(spec, drain_causes=drain_causes, eviction=model.sync.eviction, names=found)


class Checker:
    """Checks documents in processes that are reused."""

    def __init__(self, cpu: float = CPU) -> None:
        self._cpu = cpu
        self._slots = asyncio.Semaphore(_MOST)
        self._idle: list[asyncio.subprocess.Process] = []

    async def __call__(self, document: Json) -> Checked:
        """Return the result of the check. Raises CorralError if there is none."""
        payload = json.dumps(document).encode()
        async with self._slots:
            process = self._idle.pop() if self._idle else await self._start()
            complete = False
            try:
                async with asyncio.timeout(_TIMEOUT):
                    response = await self._ask(process, payload)
                complete = True
            except (asyncio.IncompleteReadError, OSError):
                code = await process.wait()
                if code != -signal.SIGXCPU:
                    raise CorralError(f"The process that checks documents has ended with status {code}; the check is repeated.") from None
                message = f"The check of the document did not end within {self._cpu:g} s of CPU time, so the cluster is not changed; "
                return Checked(document.get("spec"), f"{message}make its lists and ranges smaller.")
            except TimeoutError:
                raise CorralError(f"The check of the document did not end within {_TIMEOUT:g} s; it is repeated.") from None
            finally:
                if complete:
                    self._idle.append(process)
                else:
                    await _end(process)
        taints, conditions = (tuple(one) for one in response["drain_causes"])
        found = frozenset((kind, namespace, name) for kind, namespace, name in response["names"])
        return Checked(document.get("spec"), str(response["errors"]), (taints, conditions), str(response["eviction"]), found)

    async def close(self) -> None:
        """End the processes."""
        for process in self._idle:
            await _end(process)
        self._idle.clear()

    async def _start(self) -> asyncio.subprocess.Process:
        from corral_operator.runs import zygote

        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-m", "corral_operator.runs.checker", str(self._cpu)]
        return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=zygote.environment())

    @staticmethod
    async def _ask(process: asyncio.subprocess.Process, payload: bytes) -> Json:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(_LENGTH.pack(len(payload)) + payload)
        await process.stdin.drain()
        (length,) = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))
        response: Json = json.loads(await process.stdout.readexactly(length))
        return response


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def serve(requests: IO[bytes], responses: IO[bytes], cpu: float) -> None:
    """Check one document after the other, each within the limits; the kernel kills this process at the limit of CPU time."""
    while len(head := requests.read(_LENGTH.size)) == _LENGTH.size:
        document = json.loads(requests.read(_LENGTH.unpack(head)[0]))
        used = resource.getrusage(resource.RUSAGE_SELF)
        _soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + cpu) + 1, hard))
        found = check(document)
        response = {"errors": found.errors, "drain_causes": found.drain_causes, "eviction": found.eviction, "names": sorted(found.names)}
        data = json.dumps(response).encode()
        responses.write(_LENGTH.pack(len(data)) + data)
        responses.flush()


def main() -> int:
    """Serve the process that started this one."""
    from corral_operator.runs.processes import die_with_parent

    die_with_parent()
    os.nice(5)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as responses:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of libraries must not end up in the protocol
        serve(sys.stdin.buffer, responses, float(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
