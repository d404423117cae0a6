# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Storage that fails on one node: nothing runs there, its user reads one sentence, the node goes out with it as its reason and comes back when the storage
does. The other node works on.

The faults are mounts of n1 over the jail, as that machine alone would see them: a file server is FUSE on a descriptor of this process.
"""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from .hosts import CONTROLLER, ENVIRONMENT, JAIL, NODES, PLUGIN, Cluster, Machine, cluster, eventually

HEALTH = "/usr/local/lib/corral/health.sh"
FUSE_INIT, FUSE_FORGET = 26, 2


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    with cluster(dict.fromkeys((CONTROLLER, *NODES), f"{PLUGIN} timeout=2")) as made:
        yield made


@pytest.fixture(autouse=True)
def at_rest(site: Cluster) -> Iterator[None]:
    eventually(lambda: site.states() == ["idle"] and not site.head.sh("squeue -h"), "all nodes idle and no job left before the test")
    yield
    site.head.sh("scancel -u ada")


def answer(server: int, error: int) -> None:
    """Answers each request with the error; the greeting alone as it should be."""
    while True:
        try:
            request = os.read(server, 1 << 17)
        except OSError:
            return  # unmounted
        _length, kind, unique = struct.unpack_from("<IIQ", request)
        greeting = struct.pack("<IIIIHHII", 7, 31, 0, 0, 0, 0, 4096, 0).ljust(64, b"\0") if kind == FUSE_INIT else b""
        if kind != FUSE_FORGET:
            os.write(server, struct.pack("<IiQ", 16 + len(greeting), 0 if greeting else -error, unique) + greeting)


@contextmanager
def file_server(node: Machine, error: int | None) -> Iterator[None]:
    """Mounted over the node's jail. It answers everything with this error, or nothing at all."""
    if not Path("/dev/fuse").exists():
        pytest.skip("no /dev/fuse to be a file server by")
    server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        options = f"fd={server},rootmode=40000,user_id=0,group_id=0"
        subprocess.run(
            node.enter("mount", "-i", "-t", "fuse", "-o", options, "server", JAIL), env=ENVIRONMENT, pass_fds=[server], check=True
        )
        thread = threading.Thread(target=answer, args=(server, error or 0))
        if error:
            thread.start()
        try:
            yield
        finally:
            node.sh(f"umount -l {JAIL}")
    finally:
        # Whoever still waits for an answer gets an error then.
        os.close(server)
        if error:
            thread.join()


@contextmanager
def mounted(node: Machine, options: str, place: str = JAIL, fill: str = ":") -> Iterator[None]:
    node.sh(f"mount -t tmpfs -o {options} storage {place}")
    try:
        node.sh(f"cd {place}; {fill}")
        yield
    finally:
        node.sh(f"umount -l {place}")


@dataclass(frozen=True)
class Fault:
    """What is told of it, and what makes it on a node."""

    words: str
    on: Callable[[Machine], object]
    # The health check, which is no job, sees it too.
    checked: bool = True


FILL = "chown 10001:10001 .; i=0; while touch $i; do i=$((i + 1)); done 2>/dev/null || true; cat /dev/zero >0 2>/dev/null || true"
FAULTS = {
    "not mounted": Fault("has no marker file etc/corral-jail", lambda node: mounted(node, "mode=0755")),
    "wrong permissions": Fault("is writable by others than root (mode 0777)", lambda node: mounted(node, "mode=0777")),
    "stale handle": Fault("cannot be read (Stale file handle)", lambda node: file_server(node, errno.ESTALE)),
    "disk error": Fault("cannot be read (Input/output error)", lambda node: file_server(node, errno.EIO)),
    "hung": Fault("s: its volume hangs", lambda node: file_server(node, None)),
    "full disk of the node": Fault(
        "No space left on device",
        lambda node: mounted(node, "size=64k,nr_inodes=4,mode=0700", "/var/spool/slurmd/corral/tmp", FILL),
        checked=False,
    ),
}


def out(site: Cluster) -> str:
    return site.head.sh("sinfo -h -R -N -o '%N %E' | sort -u")


def goes_out_and_comes_back(site: Cluster, words: str, mend: Callable[[], object]) -> None:
    """By the health check, which alone is started by hand here. One node's fault is no outage: nothing else is held."""
    node = site.machines["n1"]
    node.sh(HEALTH)
    assert out(site).startswith("n1 corral: jail: ") and words in out(site), out(site)
    site.machines["n2"].sh(HEALTH)
    assert "No reservations" in site.head.sh("scontrol show reservation")
    assert site.head.sh("srun -Q hostname", user="ada") == "n2"
    mend()
    node.sh(HEALTH)
    eventually(lambda: site.states() == ["idle"] and not out(site), "n1 in service again")
    assert site.head.sh("srun -Q -w n1 hostname", user="ada") == "n1"


@pytest.mark.parametrize("kind", FAULTS)
def test_nothing_runs_and_its_user_reads_why(site: Cluster, kind: str) -> None:
    fault = FAULTS[kind]
    told = "corral: jail: node n1 cannot run this, tell the administrator: "
    with ExitStack() as stack:
        stack.enter_context(fault.on(site.machines["n1"]))
        begun = time.monotonic()
        refused = site.head.run("srun", "-w", "n1", "sh", "-c", "echo ran; touch /tmp/ran", user="ada", check=False)
        assert time.monotonic() - begun < 45
        assert refused.returncode and "ran" not in refused.stdout
        assert site.machines["n1"].run("test", "-e", "/tmp/ran", check=False).returncode == 1
        lines = [line for line in refused.stderr.splitlines() if fault.words in line]
        assert len(lines) == 1 and lines[0].startswith(f"srun: {told}"), refused.stderr
        assert site.head.sh("srun -Q -w n2 hostname", user="ada") == "n2"
        # A batch job has no output yet. It waits, and its record says why.
        job = site.head.sh("sbatch --parsable -w n1 -D /tmp -o /dev/null --wrap hostname", user="ada")
        eventually(lambda: "Restarts=1" in site.head.sh(f"scontrol show job {job}"), "the job is queued again")
        shown = site.head.sh(f"scontrol show job {job} | grep Comment", user="ada")
        assert shown.startswith(f"AdminComment={told}") and fault.words in shown, shown
        site.head.sh(f"scancel {job}", user="ada")
        if fault.checked:
            goes_out_and_comes_back(site, fault.words, stack.close)
    site.head.sh("scontrol update nodename=n1 state=resume", check=False)


def test_where_users_can_not_write_new_jobs_do_not_begin(site: Cluster) -> None:
    """A step still gets in: it may write elsewhere, or make room."""
    node = site.machines["n1"]
    with ExitStack() as stack:
        stack.enter_context(mounted(node, "size=1m,nr_inodes=64", f"{JAIL}/home", f"mkdir -m 0755 ada; cd ada; {FILL}"))
        said = site.head.sh("srun -Q -w n1 -D /tmp sh -c 'echo more >/home/ada/more'", user="ada", check=False)
        assert "No space left on device" in said
        job = site.head.sh("sbatch --parsable -w n1 -D /tmp -o /home/ada/out --wrap hostname", user="ada")
        eventually(lambda: "JobState=FAILED" in site.head.sh(f"scontrol show job {job}"), "the job without its output has ended")
        # Slurm takes it for the job's own fault, so all that wait would end so.
        assert "ExitCode=0:53" in site.head.sh(f"scontrol show job {job}") and not out(site)
        assert site.head.sh("srun -Q -w n1 -D /tmp sh -c 'echo elsewhere >/tmp/mine; cat /tmp/mine'", user="ada") == "elsewhere"
        goes_out_and_comes_back(site, f"the volume of {JAIL}/home is full", lambda: node.sh(f"rm -f {JAIL}/home/ada/*"))


def test_an_administrators_own_comment_stays(site: Cluster) -> None:
    with mounted(site.machines["n1"], "mode=0755"):
        job = site.head.sh("sbatch --parsable -H -w n1 -D /tmp -o /dev/null --wrap hostname", user="ada")
        site.head.sh(f"scontrol update jobid={job} admincomment='of mine'; scontrol release {job}")
        eventually(lambda: "Restarts=1" in site.head.sh(f"scontrol show job {job}"), "the job is queued again")
        assert "AdminComment=of mine" in site.head.sh(f"scontrol show job {job}", user="ada")
        site.head.sh(f"scancel {job}")
    site.head.sh("scontrol update nodename=n1 state=resume")


def test_a_batch_script_and_salloc_are_told_of_a_step(site: Cluster) -> None:
    """With the step's srun beside it, which says only that something has failed: the plugin's start (24.11), or an unspecified error (26.05)."""
    node = site.machines["n1"]
    waits = "touch up; until test -e go; do sleep 0.2; done; srun -w n1 hostname || echo refused"
    site.head.sh(f"install -d -o 10001 -g 10001 {JAIL}/srv/steps")
    site.head.sh(f"sbatch -w n1 -D /srv/steps -o out.txt --wrap '{waits}'", user="ada")
    eventually(lambda: site.head.run("test", "-e", f"{JAIL}/srv/steps/up", check=False).returncode == 0, "the batch script runs")
    with mounted(node, "mode=0755"):
        site.head.sh(f"touch {JAIL}/srv/steps/go")
        eventually(lambda: not site.head.sh("squeue -h"), "the batch script has ended")
        said = site.head.run("salloc", "-w", "n1", "srun", "hostname", user="ada", check=False).stderr
    for text in (site.head.read(f"{JAIL}/srv/steps/out.txt"), said):
        assert text.count("node n1 cannot run this, tell the administrator:") == 1 and "has no marker file" in text, text
        assert "srun: error: task 0 launch failed: " in text
