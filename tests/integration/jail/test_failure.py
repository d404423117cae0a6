# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A jail that is not there: nothing runs, the node says why, no job is lost, and all is well again without a hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import Cluster, eventually
from .conftest import Script, submit

pytestmark = pytest.mark.lab


def reasons(cluster: Cluster) -> list[str]:
    """Why nodes are out of service, one entry a node."""
    lines = cluster.slurm("sinfo", "-h", "-R", "-N", "-o", "%N %E").splitlines()
    return sorted({line.strip() for line in lines if line.strip()})


@pytest.fixture
def at_rest(cluster: Cluster) -> None:
    eventually(lambda: in_service(cluster), "all nodes in service before the test")


def broken(root: Path, kind: str) -> tuple[str, Callable[[], object]]:
    """Break the jail as storage or a careless hand would; return the words of the reason and what mends it."""
    marker = root / "etc" / "corral-jail"
    if kind == "marker":
        away = marker.rename(marker.with_name("corral-jail.away"))
        return "has no marker file", lambda: away.rename(marker)
    if kind == "mode":
        root.chmod(0o777)
        return "writable by others than root (mode 0777)", lambda: root.chmod(0o755)
    if kind == "removed mount point":
        (root / "opt" / "corral").rmdir()
        return "/opt/corral cannot be shown in the jail", (root / "opt" / "corral").mkdir
    away = (root / "proc").rename(root / "proc.away")
    return "/proc cannot be shown in the jail", lambda: away.rename(root / "proc")


def held(cluster: Cluster) -> bool:
    """Whether new jobs are held by the breaker."""
    return "ReservationName=corral-jail-outage" in cluster.slurm("scontrol", "show", "reservation", "--oneliner")


def in_service(cluster: Cluster) -> bool:
    """Whether all nodes begin new jobs. A node that was taken back has to answer a ping of slurmctld first, some tenths of a second (``mix*``); srun says
    in this while that the node is not available, and waits for it."""
    return not reasons(cluster) and not held(cluster) and "*" not in cluster.slurm("sinfo", "-h", "-N", "-o", "%t")


@pytest.mark.usefixtures("at_rest")
@pytest.mark.parametrize(
    "kind", ["marker", *(pytest.param(one, marks=pytest.mark.long) for one in ("mode", "mount point", "removed mount point"))]
)
def test_a_jail_that_is_gone_for_a_while(cluster: Cluster, script: Script, root: Path, kind: str) -> None:
    """On both nodes at once. One of them is drained; then it is the volume: jobs wait, the other stays in service, the job that runs on both goes
    on, and all is well again without a hand."""
    through = submit(script, "-N2 -o through.txt", command="touch begun; until test -e go; do sleep 0.5; done; echo went on; srun hostname")
    # Slurm says RUNNING before slurmd has begun, and what finds no jail when it begins is queued again.
    eventually(lambda: script("test -e begun && rm begun && echo yes", check=False) == "yes", "the job that should continue has begun")
    words, mend = broken(root, kind)
    try:
        eventually(lambda: held(cluster) and len(reasons(cluster)) == 1, "new jobs are held, and one node is out")
        (out,) = reasons(cluster)
        assert "corral: jail:" in out and words in out, out
        if kind == "marker":  # login sessions (Chroot) do not look for it
            assert words in script("ssh two-0 true", check=False), "who comes by ssh reads why"
        # From a pod, as root may for a user: login sessions have no jail either.
        waits = "sbatch --parsable --uid=10001 --gid=10001 -N2 -D /home/alice -o /home/alice/gone.txt --wrap 'srun hostname'"
        job = cluster.kubectl("exec", "-n", cluster.namespace, "jail-one-0", "-c", "slurmd", "--", "sh", "-c", waits).strip()
        cluster.slurm("sleep", "12")
        assert len(reasons(cluster)) == 1 and held(cluster)
        assert "JobState=PENDING" in cluster.slurm("scontrol", "show", "job", job)
        assert "JobState=RUNNING" in cluster.slurm("scontrol", "show", "job", through)
    finally:
        mend()
    eventually(lambda: in_service(cluster), "all nodes in service again", timeout=90)
    # A login pod's own mounts went with the directory too; it brings them back with its next probe.
    eventually(lambda: "Slurm" in script("sinfo --version", check=False).title(), "login sessions have Slurm's commands")
    ended = "FAILED" if kind == "removed mount point" else "COMPLETED"
    script("touch go")
    eventually(lambda: f"JobState={ended}" in cluster.slurm("scontrol", "show", "job", through), "the job that ran on has ended")
    # A directory that is made anew is another one: a step that ran before does not see what was mounted on the old one.
    said = script("cat through.txt; rm through.txt go").splitlines()
    assert said[0] == "went on" and (sorted(said[1:]) == ["jail-one-0", "jail-two-0"]) == (ended == "COMPLETED"), said
    eventually(lambda: "COMPLETED" in cluster.slurm("scontrol", "show", "job", job), "the job that waited has run", timeout=90)
    shown = cluster.slurm("scontrol", "show", "job", job)
    assert "Restarts=0" in shown, shown
    assert script("sort gone.txt; rm gone.txt").splitlines() == ["jail-one-0", "jail-two-0"]


@pytest.mark.usefixtures("at_rest")
def test_a_volume_whose_directory_was_removed_on_another_node(cluster: Cluster, script: Script) -> None:
    """/fast is a volume on node two, and on node one a directory that root can remove. What is open stays so; nothing new runs on two without it, while
    one is in service; and it is back with what was in it when the directory is."""
    body = "echo kept >/fast/kept; exec 4</fast/kept; touch open; until test -e go; do sleep 0.5; done; cat <&4"
    job = submit(script, "-w two-0 -o volume.txt", command=body)
    eventually(lambda: script("test -e open && echo yes", check=False) == "yes", "the job has its file")
    script("srun -w one-0 sudo rmdir /fast")
    try:
        eventually(lambda: bool(reasons(cluster)), "node two is out of service")
        (out,) = reasons(cluster)
        assert out.startswith("two-0 corral: jail: the volume at /fast is lost, since its directory in the jail /mnt/jail was removed"), out
        assert script("srun -w one-0 echo in service") == "in service"
        assert "JobState=RUNNING" in cluster.slurm("scontrol", "show", "job", job)
    finally:
        script("srun -w one-0 sudo mkdir /fast")
    # A node that was only too busy for its look, beside the one that is out, has new jobs held.
    eventually(lambda: in_service(cluster), "node two is in service again, and new jobs begin")
    assert script("touch go; srun -w two-0 sh -c 'stat -f -c %T /fast; cat /fast/kept'").splitlines() == ["tmpfs", "kept"]
    eventually(lambda: "JobState=COMPLETED" in cluster.slurm("scontrol", "show", "job", job), "the job that ran has ended well")
    assert script("cat volume.txt; rm volume.txt go open; srun -w two-0 rm /fast/kept") == "kept"


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


@pytest.mark.usefixtures("at_rest")
def test_a_job_begins_anew_where_its_container_was_killed(cluster: Cluster, script: Script) -> None:
    """The spool outlives the container, and in it lies the job's script, whose number comes again."""
    worker = ("exec", "-n", cluster.namespace, "jail-one-0", "-c", "slurmd", "--", "bash", "-c")
    job = submit(
        script, "-w one-0 --requeue -o anew.txt --open-mode=append", command="echo begun; until test -e go; do sleep 0.5; done; echo ended"
    )
    eventually(lambda: script("cat anew.txt", check=False) == "begun", "the job has begun")
    assert cluster.kubectl(*worker, f"ls /var/spool/slurmd/job{int(job):05d}").split() == ["slurm_script"]
    # The container ends with it, and the call with the container.
    cluster.kubectl(*worker, "pkill -KILL -x slurmd", check=False)
    eventually(lambda: "Restarts=1" in cluster.slurm("scontrol", "show", "job", job), "the job is queued again", timeout=90)
    eventually(lambda: in_service(cluster), "all nodes in service again", timeout=90)
    cluster.slurm("scontrol", "update", f"jobid={job}", "starttime=now", check=False)
    eventually(lambda: script("cat anew.txt").split() == ["begun", "begun"], "the job has begun anew", timeout=90)
    script("touch go")
    eventually(lambda: "JobState=COMPLETED" in cluster.slurm("scontrol", "show", "job", job), "the job has ended well")
    assert script("cat anew.txt; rm anew.txt go").split() == ["begun", "begun", "ended"]
    assert "NodeList=one-0" in cluster.slurm("scontrol", "show", "job", job)
