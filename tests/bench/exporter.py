# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exporter of metrics with generated output of Slurm's commands: 10 000 nodes and 50 000 jobs. Needs no lab."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

NODES, JOBS, ACCOUNTS = 10_000, 50_000, 2_000
_INTERVAL, _SCRAPES = 60, 20
_MARK = "\x1f@@"
_NODE = (
    "NodeName={set}-{number} Arch=x86_64 CoresPerSocket=1  CPUAlloc={used} CPUEfctv=128 CPUTot=128 CPULoad=10.50 AvailableFeatures=big ActiveFeatures=big "
    "Gres=gpu:h100:8 GresDrain=N/A GresUsed=gpu:h100:4(IDX:0-3) NodeAddr={set}-{number}.demo-worker.demo.svc.cluster.local NodeHostName={set}-{number} "
    "Port=6818 Version=24.11.5 OS=Linux 6.12.48 #1 SMP PREEMPT_DYNAMIC  RealMemory=2000000 AllocMem=400 FreeMem=14895 Sockets=128 Boards=1 State={state} "
    "ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=main,{set}  BootTime=1795658900 SlurmdStartTime=1795658900 "
    "LastBusyTime=1795658900 ResumeAfterTime=None CfgTRES=cpu=128,mem=2000000M,billing=128,gres/gpu=8 AllocTRES=cpu=64 CurrentWatts=0 AveWatts=0 {reason}\n"
)
_STATES = ("ALLOCATED", "MIXED", "MIXED", "IDLE", "IDLE+DRAIN")


def measure(repository: Path, scratch: Path) -> dict[str, float]:
    """Return seconds of a scrape and of a query, mebibytes, the share of one CPU, and the number of series."""
    _write_commands(repository, scratch)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    limits = ["--accounts=100", "--users=20", "--nodes=1000"]
    command = [
        sys.executable,
        str(repository / "images/slurm/exporter.py"),
        "--cluster=demo",
        f"--port={port}",
        f"--interval={_INTERVAL}",
        *limits,
    ]
    process = subprocess.Popen(command, env={**os.environ, "PATH": f"{scratch}:{os.environ['PATH']}"})
    try:
        text = _text_of_all(port)
        used = _cpu(process.pid)
        took = []
        for _turn in range(_SCRAPES):
            began = time.monotonic()
            _scrape(port)
            took.append(time.monotonic() - began)
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        values = dict(line.rsplit(" ", 1) for line in lines)
        query = sum(float(value) for key, value in values.items() if key.startswith("slurm_exporter_duration_seconds"))
        return {
            "scrape": max(took),
            "size": len(text) / (1 << 20),
            "memory": _peak(process.pid),
            # Its own, and that of the programs that stand in for Slurm's.
            "cpu": used / _INTERVAL,
            "query": query,
            "series": len(lines),
        }
    finally:
        process.terminate()
        process.wait()


def _write_commands(repository: Path, scratch: Path) -> None:
    with open(scratch / "nodes", "w", encoding="utf-8") as file:
        for number in range(NODES):
            state = _STATES[number % len(_STATES)]
            reason = "Reason=corral: health: gpu [root@1795658900]" if "DRAIN" in state else ""
            used = 128 if state == "ALLOCATED" else 64 if state == "MIXED" else 0
            file.write(_NODE.format(set=f"set{number % 20}", number=number // 20, state=state, reason=reason, used=used))
    with open(scratch / "jobs", "w", encoding="utf-8") as file:
        for number in range(JOBS):
            pending = number % 2
            state, reason = (
                ("PENDING", ("Resources", "Priority", "Dependency", "QOSMaxJobsPerUserLimit")[number % 4])
                if pending
                else ("RUNNING", "None")
            )
            account, name = f"a{number % ACCOUNTS}", f"set{number % 20}"
            tres = f"cpu={1 + number % 128},mem={1 + number % 512}G,node=1,billing=1,gres/gpu={number % 8}"
            fields = (state, f"main,{name}", "normal", reason, "1", "1", tres, "N/A", "gres/gpu:4", "1795658900", "N/A", "big", account)
            file.write(_MARK.join((*fields, "\n")))
    programs = {
        "scontrol": f"cat {shlex.quote(str(scratch / 'nodes'))}",
        "squeue": f'mark=${{4%%,*}}; mark=${{mark#*:}}; sed "s/{_MARK}/$mark/g" {shlex.quote(str(scratch / "jobs"))}',
        "sdiag": f"cat {shlex.quote(str(repository / 'tests/unit/images/recorded/24.11/sdiag.json'))}",
    }
    for name, text in programs.items():
        (scratch / name).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        (scratch / name).chmod(0o755)


def _text_of_all(port: int) -> str:
    """Return the metrics as soon as each source was queried."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        time.sleep(0.2)
        try:
            text = _scrape(port)
        except urllib.error.URLError:
            continue
        if 'slurm_exporter_success{cluster="demo",source="scheduler"} 1\n' in text:
            assert 'slurm_exporter_invalid_records{cluster="demo",source="jobs"} 0\n' in text
            assert f"{JOBS // 2}\n" in text
            return text
    raise AssertionError("the exporter has no values after 300 s")


def _scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        return str(response.read().decode())


def _cpu(pid: int) -> float:
    """Return the CPU seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(one) for one in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def _peak(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
