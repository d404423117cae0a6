# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks documents in processes beside the operator's own, each with a limit on its time and memory.

A document is anybody's text, and the check is the collection's whole way from the spec to the model. What is made to take long must hold up neither the
lease, nor the probes, nor other clusters; so it is ended, and that is what is said of the document.
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

# Of the processor's time: a machine under load lets nobody's document fail. The largest documents take a tenth of it.
CPU = 4.0
# An answer that has not come by then is asked for again; the process may have been stopped with its machine.
_PATIENCE = 60.0
# A document of the largest size that is taken, 1.1 MB, needs less than 96 MiB of addresses; several checks run at once in a pod of 1 GiB.
_MEMORY = 384 << 20
# So many are checked at once; a document that takes long holds up one of these, and not the operator.
_MOST = 2
_LENGTH = struct.Struct("!I")


@dataclass(frozen=True)
class Checked:
    """What the collection says of a document's spec: what is wrong with it, or how it wants machines that go to be treated."""

    # Of a document that has not been checked yet; None would be one without a spec.
    spec: object = field(default=..., compare=False)
    # As the playbook would say it.
    mistakes: str = ""
    signs: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    eviction: str = ""
    # Of its objects, as far as those of another cluster could have the same.
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
            spec, f"The document can not be checked ({type(error).__name__}), so nothing is done; make it smaller, or nest less."
        )
    except Exception as error:  # noqa: BLE001  whatever it is, it is told of this document, and the next one is checked
        return Checked(spec, str(defect(error)))
    signs = (tuple(model.sync.taints), tuple(model.sync.conditions))
    return Checked(spec, signs=signs, eviction=model.sync.eviction, names=found)


class Checker:
    """Has documents checked by processes that are kept for the next one."""

    def __init__(self, cpu: float = CPU) -> None:
        self._cpu = cpu
        self._turns = asyncio.Semaphore(_MOST)
        self._idle: list[asyncio.subprocess.Process] = []

    async def __call__(self, document: Json) -> Checked:
        """Return what is to be said of a document. Raises CorralError when nothing can be."""
        payload = json.dumps(document).encode()
        async with self._turns:
            process = self._idle.pop() if self._idle else await self._start()
            whole = False
            try:
                async with asyncio.timeout(_PATIENCE):
                    answer = await self._ask(process, payload)
                whole = True
            except (asyncio.IncompleteReadError, OSError):
                code = await process.wait()
                if code != -signal.SIGXCPU:
                    raise CorralError(f"The process that checks documents has ended with status {code}; the check is repeated.") from None
                words = f"The check of the document did not end within {self._cpu:g} s of the processor's time, so nothing is done; "
                return Checked(document.get("spec"), f"{words}make its lists and ranges smaller.")
            except TimeoutError:
                raise CorralError(f"The check of the document did not end within {_PATIENCE:g} s; it is repeated.") from None
            finally:
                if whole:
                    self._idle.append(process)
                else:
                    await _end(process)
        taints, conditions = (tuple(one) for one in answer["signs"])
        found = frozenset((kind, namespace, name) for kind, namespace, name in answer["names"])
        return Checked(document.get("spec"), str(answer["mistakes"]), (taints, conditions), str(answer["eviction"]), found)

    async def close(self) -> None:
        """End the processes."""
        for process in self._idle:
            await _end(process)
        self._idle.clear()

    async def _start(self) -> asyncio.subprocess.Process:
        from corral_operator import zygote

        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-m", "corral_operator.checker", str(self._cpu)]
        return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=zygote.environment())

    @staticmethod
    async def _ask(process: asyncio.subprocess.Process, payload: bytes) -> Json:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(_LENGTH.pack(len(payload)) + payload)
        await process.stdin.drain()
        (length,) = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))
        answer: Json = json.loads(await process.stdout.readexactly(length))
        return answer


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def serve(asked: IO[bytes], answers: IO[bytes], cpu: float) -> None:
    """Check one document after the other, each within the limits; past that of the processor the kernel ends this process."""
    while len(head := asked.read(_LENGTH.size)) == _LENGTH.size:
        document = json.loads(asked.read(_LENGTH.unpack(head)[0]))
        used = resource.getrusage(resource.RUSAGE_SELF)
        _soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + cpu) + 1, hard))
        found = check(document)
        answer = {"mistakes": found.mistakes, "signs": found.signs, "eviction": found.eviction, "names": sorted(found.names)}
        data = json.dumps(answer).encode()
        answers.write(_LENGTH.pack(len(data)) + data)
        answers.flush()


def main() -> int:
    """Serve the process that started this one."""
    from corral_operator.processes import die_with_parent

    die_with_parent()
    os.nice(5)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what something prints is no answer
        serve(sys.stdin.buffer, answers, float(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
