# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator as a process beside the lab: started, asked for its metrics, and ended in order; and the definition of its documents."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.run import run
from corral_operator.api.client import Client, status_code
from corral_operator.runs.processes import descendants

REPOSITORY = Path(__file__).resolve().parents[2]
_DEFINITIONS = REPOSITORY / "playbooks" / "files"


async def definition(client: Client) -> None:
    """Have the API server know SlurmClusters and SlurmNodeSets. What is there is left as it is, and all is left there: somebody may have begun to need it."""
    for file in sorted(_DEFINITIONS.glob("*.corral.hpc.yml")):
        body = yaml.safe_load(file.read_text())
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{body['metadata']['name']}"
        try:
            await client.request("GET", path, what="look for the definition")
        except CorralError as error:
            if status_code(error) != 404:
                raise
            await asyncio.to_thread(run, {"objects": [body], "wait": True}, check=False, diff=False)


class Metrics:
    """What an operator tells of itself."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"

    def get(self, name: str, **labels: str) -> float:
        """Return a metric's sum over all its labels but those given; 0 while nobody answers."""
        try:
            with urllib.request.urlopen(self._url, timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return 0.0
        words = [f'{key}="{value}"' for key, value in labels.items()]
        lines = re.findall(rf"^{name}(\{{.*\}})? (\S+)$", text, re.MULTILINE)
        return sum(float(value) for given, value in lines if all(word in given for word in words))


@contextlib.asynccontextmanager
async def operator(
    scratch: Path, *, namespaces: str, lease: str, elect: bool = False
) -> AsyncIterator[tuple[subprocess.Popen[bytes], Metrics]]:
    """Start it for these namespaces ("": all), with its Lease in another one if it is to be elected, and end it in order."""
    metrics, health = _port(), _port()
    settings = {
        "CORRAL_ELECT": str(elect).lower(),
        "CORRAL_LEASE_NAMESPACE": lease,
        "CORRAL_ADDRESS": "127.0.0.1",
        "CORRAL_METRICS_PORT": str(metrics),
        "CORRAL_METRICS_SECURE": "false",
        "CORRAL_HEALTH_PORT": str(health),
        "CORRAL_SCRATCH": str(scratch / f"operator-{metrics}" / "scratch"),
        "CORRAL_RUNS": str(scratch / f"operator-{metrics}" / "runs"),
        "CORRAL_NAMESPACES": namespaces,
    }
    with (scratch / "operator.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "corral_operator"], env={**os.environ, **settings}, stdout=log, stderr=log)
        try:
            yield process, Metrics(metrics)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def processor(pid: int) -> float:
    """Return the seconds of processor that a process and all below it have used."""
    ticks = 0
    for one in (pid, *descendants(pid)):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    """Return what a process and all below it take of the machine's memory in MiB: of pages that several processes have, each has its part."""
    kilobytes = 0
    for one in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):
            kilobytes += int(re.findall(r"^Pss: +(\d+) kB$", Path(f"/proc/{one}/smaps_rollup").read_text(), re.MULTILINE)[0])
    return kilobytes / 1024


async def until(condition: Any, seconds: float) -> None:
    """Wait until it is true. Ends the bench when it does not become so."""
    deadline = time.perf_counter() + seconds
    while not await asyncio.to_thread(condition):
        if time.perf_counter() > deadline:
            sys.exit(f"bench: the operator did not come to it within {seconds:g} s; its log is operator.log")
        await asyncio.sleep(0.05)
