# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accounting: 5 000 users as one document, jobs with records and without, and records that wait for slurmdbd. With a real slurmdbd and MariaDB."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import tenants
from ansible_collections.corral.slurm.tests.bench import own
from ansible_collections.corral.slurm.tests.bench.clock import seconds

NAME = "many-users"
USERS = 5000
ACCOUNTS = 100
# Calls of sacctmgr that are measured; the rest would take as long each.
CALLS = 100
RECORDS = 10_000
# Jobs of one submission, of which none runs.
_AT_ONCE = 1000
_SRUNS = 40


def measure(repository: Path, document: Path, scratch: Path) -> dict[str, Any]:
    """Return seconds and counts. ``document`` is that of the demonstration's cluster, of which the images and the jail are taken."""
    cluster = _Cluster(repository, document, scratch)
    try:
        return cluster.measure()
    finally:
        cluster.remove()


def users(limit: int) -> dict[str, Any]:
    """A document of USERS with two associations each; ``limit`` is the last one's number of jobs."""
    return {
        "accounts": [{"name": f"a{number}", "fairshare": 1 + number % 7} for number in range(ACCOUNTS)],
        "users": [
            {
                "name": f"u{number}",
                "associations": [
                    {"account": f"a{number % ACCOUNTS}", "limits": {"MaxJobs": limit if number == USERS - 1 else 50}},
                    {"account": f"a{(number + 1) % ACCOUNTS}"},
                ],
            }
            for number in range(USERS)
        ],
    }


class _Cluster(own.Own):
    def __init__(self, repository: Path, document: Path, scratch: Path) -> None:
        super().__init__(NAME, repository, document, scratch, [f"MaxJobCount={3 * RECORDS}", "MinJobAge=2", "MaxArraySize=20000"])
        self.document["spec"]["accounting"] = {
            "database": {
                "embedded": {
                    "volume": {"hostPath": f"{self.volumes}/{NAME}-database", "size": "2Gi"},
                    "resources": {"requests": {"cpu": "10m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
                    "nodeSelector": {"kubernetes.io/hostname": "node1"},
                }
            }
        }

    def measure(self) -> dict[str, Any]:
        """Make the cluster, and measure one part after the other."""
        self.play("corral.slurm.site")
        found = {**self._site_at_rest(), **self._tenants(), **self._records()}
        return {**found, **self._sruns()}

    def _site_at_rest(self) -> dict[str, Any]:
        printed = self.play("corral.slurm.site", "-v")
        if "changed=0" not in printed:
            sys.exit(f"bench: the cluster is not at rest:\n{printed}")
        return dict(zip(("requests", "writes", "objects"), own.counts(printed), strict=True))

    def _tenants(self) -> dict[str, Any]:
        created = seconds(lambda: self._converge(50))
        unchanged, wrote = [], 0
        for _turn in range(3):
            began = time.perf_counter()
            wrote += self._converge(50)
            unchanged.append(time.perf_counter() - began)
        began = time.perf_counter()
        lines = self._converge(51)
        changed = time.perf_counter() - began
        script = f"for i in $(seq 0 {CALLS - 1}); do sacctmgr -n -P show user u$i withassoc >/dev/null; done"
        calls = seconds(lambda: self.inside("controller-0", "slurmctld", "bash", "-c", script, check=True)) / CALLS * USERS
        return {
            "created": created,
            "unchanged": statistics.median(unchanged),
            "unchanged writes": wrote,
            "changed": changed,
            "changed lines": lines,
            "calls": calls,
        }

    def _converge(self, limit: int) -> int:
        """Apply the document as the module does; return the number of lines that sacctmgr was given."""
        params: dict[str, Any] = {"namespace": NAME, "cluster": NAME, "container": "slurmctld", "tenants": users(limit)}
        params |= {"prune": False, "objects": False, "path": "", "wait_timeout": 60}
        return int(tenants.tenants(params, check=False, diff=False)["writes"])

    def _records(self) -> dict[str, Any]:
        """Records of RECORDS jobs that were submitted and cancelled while slurmdbd was away: from its return until sacct has them all."""
        self.kubectl("scale", "statefulset", f"{NAME}-accounting", "-n", NAME, "--replicas=0", check=True)
        self.kubectl("wait", "-n", NAME, "--for=delete", f"pod/{NAME}-accounting-0", "--timeout=120s", check=True)
        # An array's tasks share one record until something tells them apart: the update makes each a job of its own.
        script = (
            f"cd /tmp && for turn in $(seq {RECORDS // _AT_ONCE}); do "
            f"job=$(sbatch --parsable --hold --array=1-{_AT_ONCE} -o /dev/null --wrap true) && "
            f"scontrol update jobid=${{job}}_[2-{_AT_ONCE}] nice=7 || exit; done; scancel --ctld --user=slurm"
        )
        self.inside("controller-0", "slurmctld", "bash", "-c", script, check=True)
        self.kubectl("scale", "statefulset", f"{NAME}-accounting", "-n", NAME, "--replicas=1", check=True)
        self._until(lambda: self._accounted() >= 0, "slurmdbd responds")
        began = time.perf_counter()
        before = self._accounted()
        self._until(lambda: self._accounted() == RECORDS, "all records are there")
        return {"records": time.perf_counter() - began, "records before": before}

    def _accounted(self) -> int:
        counted = self.inside(
            "controller-0", "slurmctld", "bash", "-c", "set -o pipefail; sacct -a -n -X -s CA -S now-1hours -E now -o jobid | wc -l"
        )
        return int(counted or -1) if counted.strip().isdigit() else -1

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 600
        while not condition():
            if time.monotonic() > deadline:
                sys.exit(f"bench: not after 600 s: {what}; sacct has {self._accounted()} records")
            time.sleep(1)

    def _sruns(self) -> dict[str, Any]:
        """The same srun with accounting and without, which is switched off and on: in two turns each, since it is one cluster."""
        settings = self.document["spec"]["accounting"]
        took: dict[bool, list[float]] = {True: [], False: []}
        for on in (True, False, False, True):
            self.document["spec"].pop("accounting", None)
            if on:
                self.document["spec"]["accounting"] = settings
            self.play("corral.slurm.site")
            took[on] += self._timed_sruns()
        return {"with": statistics.median(took[True]), "without": statistics.median(took[False])}

    def _timed_sruns(self) -> list[float]:
        script = f"for i in $(seq {_SRUNS}); do s=$EPOCHREALTIME; srun -Q true && echo $s $EPOCHREALTIME; sleep 0.3; done"
        printed = self.inside("real-0", "slurmd", "bash", "-c", script)
        found = [float(end) - float(start) for start, end in (line.split() for line in printed.splitlines())]
        if len(found) != _SRUNS:
            sys.exit(f"bench: {len(found)} of {_SRUNS} sruns ended well")
        return found[3:]
