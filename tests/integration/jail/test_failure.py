# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A jail that is not there: nothing runs, the node says why, no job is lost, and all is well again without a hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import Cluster, eventually
from .conftest import Script

pytestmark = pytest.mark.lab


def reasons(cluster: Cluster) -> list[str]:
    """Why nodes are out of service, one entry a node."""
    lines = cluster.slurm("sinfo", "-h", "-R", "-N", "-o", "%N %E").splitlines()
    return sorted({line.strip() for line in lines if line.strip()})


@pytest.fixture
def at_rest(cluster: Cluster) -> None:
    eventually(lambda: not reasons(cluster) and not held(cluster), "all nodes in service before the test")


def broken(root: Path, kind: str) -> tuple[str, Callable[[], object]]:
    """Break the jail as storage or a careless hand would; return the words of the reason and what mends it."""
    marker = root / "etc" / "corral-jail"
    if kind == "marker":
        away = marker.rename(marker.with_name("corral-jail.away"))
        return "has no marker file", lambda: away.rename(marker)
    if kind == "mode":
        root.chmod(0o777)
        return "writable by others than root (mode 0777)", lambda: root.chmod(0o755)
    away = (root / "proc").rename(root / "proc.away")
    return "/proc can not be shown in the jail", lambda: away.rename(root / "proc")


def held(cluster: Cluster) -> bool:
    """Whether new jobs are held by the breaker."""
    return "ReservationName=corral-jail-outage" in cluster.slurm("scontrol", "show", "reservation", "--oneliner")


@pytest.mark.usefixtures("at_rest")
@pytest.mark.parametrize("kind", ["marker", "mode", "mount point"])
def test_a_jail_that_is_gone_for_a_while(cluster: Cluster, script: Script, root: Path, kind: str) -> None:
    """One of two nodes is drained; then it is the volume: jobs wait, the other stays in service, and all is well again without a hand."""
    words, mend = broken(root, kind)
    try:
        eventually(lambda: held(cluster) and len(reasons(cluster)) == 1, "new jobs are held, and one node is out")
        (out,) = reasons(cluster)
        assert "corral: jail:" in out and words in out, out
        # From a pod, as root may for a user: login sessions have no jail either.
        submit = "sbatch --parsable --uid=10001 --gid=10001 -N2 -D /home/alice -o /home/alice/gone.txt --wrap 'srun hostname'"
        job = cluster.kubectl("exec", "-n", cluster.namespace, "jail-one-0", "-c", "slurmd", "--", "sh", "-c", submit).strip()
        cluster.slurm("sleep", "12")
        assert len(reasons(cluster)) == 1 and held(cluster)
        assert "JobState=PENDING" in cluster.slurm("scontrol", "show", "job", job)
    finally:
        mend()
    eventually(lambda: not reasons(cluster) and not held(cluster), "all nodes in service again", timeout=90)
    eventually(lambda: "COMPLETED" in cluster.slurm("scontrol", "show", "job", job), "the job that waited has run", timeout=90)
    shown = cluster.slurm("scontrol", "show", "job", job)
    assert "Restarts=0" in shown, shown
    assert script("sort gone.txt; rm gone.txt").splitlines() == ["jail-one-0", "jail-two-0"]


@pytest.mark.usefixtures("at_rest")
def test_an_outage_of_seconds_is_only_a_delay(script: Script, root: Path) -> None:
    """Shorter than a step waits: nothing fails and nobody is told."""
    marker = root / "etc" / "corral-jail"
    step = "touch waits; until test -e go; do sleep 0.2; done; srun echo went on"
    held = script(f"salloc -Q -w one-0 bash -c '{step}' >held.txt 2>&1 & until test -e waits; do sleep 0.2; done")
    assert held == ""
    away = marker.rename(marker.with_name("corral-jail.away"))
    script("touch go; sleep 3")
    away.rename(marker)
    eventually(lambda: "went on" in script("cat held.txt"), "the step that waited has run")
    script("rm -f held.txt waits go")


@pytest.mark.usefixtures("at_rest")
def test_reasons_of_others_stay(cluster: Cluster) -> None:
    cluster.slurm("scontrol", "update", "nodename=one-0", "state=drain", "reason=broken fan")
    try:
        cluster.slurm("sleep", "8")
        assert reasons(cluster) == ["one-0 broken fan"]
    finally:
        cluster.slurm("scontrol", "update", "nodename=one-0", "state=resume")
