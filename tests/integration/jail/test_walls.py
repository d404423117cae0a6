# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to get out of the jail, as a user and as root of the jail, from a job and from a login session. Each must be refused.

docs/walls.md is the table of what was seen; the test fails when the page says something else, and CORRAL_WRITE_DOCS=1 writes it.
No attempt harms the machine should it succeed: values are written back as they are, devices are opened for reading.
"""

from __future__ import annotations

import os
import shlex
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..conftest import REPOSITORY, Cluster
from .conftest import Script

pytestmark = pytest.mark.lab
PAGE = REPOSITORY / "docs" / "walls.md"


@dataclass(frozen=True)
class Attempt:
    """What is tried, and a bash command that succeeds only when it works. ``roots_own``: root of the jail may, since it is the jail's own."""

    what: str
    command: str
    roots_own: bool = False


def python(code: str) -> str:
    return f"python3 -c {shlex.quote(code)}"


SYSCALL = "import ctypes, sys; l = ctypes.CDLL(None, use_errno=True); "

SECOND_CHROOT = "import os; d = os.open('/', 0); os.makedirs('/tmp/c', exist_ok=True); os.chroot('/tmp/c'); os.fchdir(d)"

ATTEMPTS = (
    Attempt("read the pod's root through `/proc/1/root`", "ls /proc/1/root/"),
    Attempt("read it through the step daemon's or sshd's `/proc/<pid>/root`", "ls /proc/$PPID/root/usr/sbin/slurmd /proc/$PPID/root/usr/sbin/sshd"),
    Attempt("join the pod's mount namespace (`nsenter`)", "nsenter -t 1 -m true"),
    Attempt("a second chroot, out over an open directory", python(SECOND_CHROOT)),
    Attempt("`pivot_root` back", python(SYSCALL + "sys.exit(l.syscall(155, b'/tmp', b'/tmp') and 1)")),
    Attempt("mount something", "mount -t tmpfs none /mnt"),
    Attempt("unmount the mask of `/proc/sys`", "umount /proc/sys"),
    Attempt("make `/sys` writable", "mount -o remount,bind,rw /sys"),
    Attempt("a user namespace, and in it the pod's root", "unshare -Ur ls /proc/1/root/"),
    Attempt("a user namespace, and in it the mask of `/proc/sys` away", "unshare -Urm umount /proc/sys"),
    Attempt("make a device node of the first disk", "mknod /tmp/wall b 8 0"),
    Attempt("find a disk, `/dev/mem` or `/dev/kmsg`", "ls /dev | grep -E '^(sd|vd|xvd|nvme|loop|dm-|mem$|kmem$|port$|kmsg$)'"),
    Attempt("write `/proc/sys/kernel/core_pattern`", "cat /proc/sys/kernel/core_pattern >/tmp/wall; cat /tmp/wall >/proc/sys/kernel/core_pattern"),
    Attempt("write any other of `/proc/sys`", "cat /proc/sys/vm/swappiness >/tmp/wall; cat /tmp/wall >/proc/sys/vm/swappiness"),
    Attempt("open `/proc/sysrq-trigger` for writing", ": >>/proc/sysrq-trigger"),
    Attempt("read the kernel's memory (`/proc/kcore`)", "head -c 1 /proc/kcore | grep -q ."),
    Attempt("write `/sys`", ": >>/sys/kernel/profiling || : >>/sys/kernel/mm/transparent_hugepage/enabled"),
    Attempt("make a cgroup", "mkdir /sys/fs/cgroup/wall"),
    Attempt("load a kernel module", python(SYSCALL + "l.syscall(175, None, 0, None); sys.exit(ctypes.get_errno() in (1, 38))")),
    Attempt("open a file by handle (`open_by_handle_at`)", python(
        SYSCALL + "import os, struct; h = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + b'\\0' * 128); m = ctypes.c_int(); "
        "l.syscall(303, -100, b'/etc', h, ctypes.byref(m), 0) and sys.exit(1); sys.exit(1 if l.syscall(304, os.open('/', 0), h, 0) < 0 else 0)"
    )),
    Attempt("change the network's interfaces", "ip link add wall type dummy"),
    Attempt("trace the pod's first process", python(SYSCALL + "sys.exit(1 if l.ptrace(16, 1, 0, 0) else 0)")),
    Attempt("read its memory", "head -c 1 /proc/1/mem"),
    Attempt("a service account's token", "cat /run/secrets/kubernetes.io/serviceaccount/token /var/run/secrets/kubernetes.io/serviceaccount/token"),
    Attempt("munge's key", "cat /etc/munge/munge.key || cat /run/munge-key/munge.key || cat /etc/corral/munge/munge.key"),
    Attempt("the ssh host keys", "cat /etc/ssh/host-keys/* /etc/corral/host-keys/* /etc/ssh/ssh_host_*_key"),
    Attempt("replace munge's socket", "rm /run/munge/munge.socket.2"),
    Attempt("write Slurm's configuration", "touch /run/slurm/conf/plugstack.conf"),
    Attempt("write slurmd's spool", "mountpoint -q /var/spool/slurmd && touch /var/spool/slurmd/wall"),
    Attempt("write Slurm's programs", "touch /opt/corral/bin/srun"),
    Attempt("see what other jobs have in their `/tmp`", "ls /var/spool/slurmd/corral/tmp | grep ."),
    Attempt("use a device node that lies on the shared root", "head -c 1 /wall-zero"),
    Attempt("read another user's file", "cat /home/bob/private", roots_own=True),
    Attempt("become root of the jail without sudo", "su -c true root </dev/null", roots_own=True),
)  # fmt: skip


EVIL = "sudo cp -a /etc/nsswitch.conf /etc/nsswitch.conf.saved; sudo sed -i 's/^passwd:.*/passwd: evil files/' /etc/nsswitch.conf"


def tried(places: dict[str, str], script: Script) -> dict[str, dict[str, bool]]:
    """Place → what → whether it worked. All attempts of a place go in one script."""
    body = "\n".join(
        f"( {attempt.command} ) >/dev/null 2>&1 </dev/null && echo {index} worked || echo {index} refused"
        for index, attempt in enumerate(ATTEMPTS)
    )
    found: dict[str, dict[str, bool]] = {}
    for place, runner in places.items():
        said = script(f"cat >/disk/walls.sh <<'END'\n{body}\nEND\n{runner} bash /disk/walls.sh; rm /disk/walls.sh", check=False)
        results = dict(line.split() for line in said.splitlines() if line.endswith((" worked", " refused")))
        assert len(results) == len(ATTEMPTS), said
        found[place] = {attempt.what: results[str(index)] == "worked" for index, attempt in enumerate(ATTEMPTS)}
    return found


def page(found: dict[str, dict[str, bool]]) -> str:
    rows = []
    for attempt in ATTEMPTS:
        cells = " | ".join("possible" if found[place][attempt.what] else "refused" for place in found)
        rows.append(f"| {attempt.what} | {cells} |")
    return "\n".join(
        [
            "# The walls of the jail",
            "",
            "Written by `tests/integration/jail/test_walls.py`, which tries all of it on a cluster. Root is a user with `sudo: true`: root of the jail, so",
            "everybody's files there are his, and nothing beyond.",
            "",
            f"| attempt | {' | '.join(found)} |",
            f"|---|{'---|' * len(found)}",
            *rows,
            "",
        ]
    )


@pytest.fixture(scope="module")
def found(script: Script, root: Path) -> dict[str, dict[str, bool]]:
    script("echo private >private; chmod 600 private", user="bob")
    # As an administrator of the volume could; in the jail nobody can make one.
    os.mknod(root / "wall-zero", 0o20666, os.makedev(1, 5))
    os.chmod(root / "wall-zero", 0o666)
    kernel = Path("/proc/sys/kernel/core_pattern").read_text()
    try:
        return tried(
            {"user in a job": "srun -w one-0", "root in a job": "srun -w one-0 sudo", "user in a session": "", "root in a session": "sudo"},
            script,
        )
    finally:
        (root / "wall-zero").unlink()
        assert Path("/proc/sys/kernel/core_pattern").read_text() == kernel


def test_nothing_leads_out(found: dict[str, dict[str, bool]]) -> None:
    own = {attempt.what for attempt in ATTEMPTS if attempt.roots_own}
    out = [
        f"{what} ({place})"
        for place, results in found.items()
        for what, worked in results.items()
        if worked and not (what in own and "root" in place)
    ]
    assert out == []


def test_the_page_tells_what_was_seen(found: dict[str, dict[str, bool]]) -> None:
    if os.environ.get("CORRAL_WRITE_DOCS"):
        PAGE.write_text(page(found))
    assert PAGE.read_text() == page(found), "docs/walls.md is stale: run the test with CORRAL_WRITE_DOCS=1"


def test_slurmstepd_loads_nothing_of_the_jail(cluster: Cluster, script: Script, mpi: str) -> None:
    """Root of the jail plants libraries where root's daemons look for them: name services, hwloc's plugins, PMIx', a preload."""
    libraries = "usr/lib/x86_64-linux-gnu"
    planted = [
        f"{libraries}/libnss_evil.so.2",
        f"{libraries}/hwloc/hwloc_evil.so",
        f"{libraries}/pmix2/lib/pmix/pmix_mca_pcompress_evil.so",
    ]
    script(
        f"cd /; for f in {' '.join(planted)}; do sudo mkdir -p $(dirname $f); sudo cp /{libraries}/libm.so.6 $f; done\n"
        f"{EVIL}; sudo ldconfig"
    )
    try:
        job = script(f"sbatch --parsable -N2 -o /dev/null --wrap 'srun --mpi={mpi} sleep 30'")
        script(f"for i in $(seq 50); do squeue -h -s -j {job} | grep -q '{job}.0' && break; sleep 0.2; done; sleep 1")
        script(f"srun -w one-0 --overlap --jobid={job} id nobody")
        maps = cluster.kubectl(
            "exec", "-n", cluster.namespace, "jail-one-0", "-c", "slurmd", "--",
            "sh", "-c", "for p in $(pgrep slurmstepd); do cat /proc/$p/maps; done",
        )  # fmt: skip
        script(f"scancel {job}")
        assert "libslurmfull" in maps, "the test looked at nothing"
        assert "evil" not in maps
    finally:
        script(f"cd /; sudo rm -f {' '.join(planted)}; sudo mv /etc/nsswitch.conf.saved /etc/nsswitch.conf; sudo ldconfig")


def test_the_daemons_of_a_session_load_nothing_of_the_jail(cluster: Cluster, script: Script) -> None:
    """sshd is root and, with Pivot, in the jail."""
    library = "/usr/lib/x86_64-linux-gnu/libnss_evil.so.2"
    script(f"sudo cp /usr/lib/x86_64-linux-gnu/libm.so.6 {library}; {EVIL}")
    try:
        pod = cluster.kubectl("get", "pods", "-n", cluster.namespace, "-l", "app.kubernetes.io/component=login", "-o", "name").strip()
        with ThreadPoolExecutor(1) as pool:
            session = pool.submit(script, "touch up; sleep 6; rm up")
            script("until test -e up; do sleep 0.2; done")
            look = "for p in $(pgrep -u root sshd); do cat /proc/$p/maps; done"
            maps = cluster.kubectl("exec", "-n", cluster.namespace, pod, "-c", "sshd", "--", "sh", "-c", look)
            session.result()
        assert "libnss_extrausers" in maps
        assert "evil" not in maps
    finally:
        script(f"sudo rm -f {library}; sudo mv /etc/nsswitch.conf.saved /etc/nsswitch.conf")


def test_planted_links_and_moved_mount_points_lead_nowhere(script: Script) -> None:
    """Root of the jail replaces a mount point by a link: the step is refused, and nothing is mounted elsewhere."""
    said = script(
        "sudo mv /opt/corral /opt/corral.away || true; sudo mv /tmp /tmp.away || true; ls -d /opt/corral /tmp\n"
        "srun -w one-0 sh -c 'sudo mv /run /run.away; sudo umount /run; sudo rmdir /proc; ls -d /run /proc'"
    )
    assert "corral.away" not in script("ls /opt")
    assert said.splitlines()[-2:] == ["/proc", "/run"]
    assert script("srun -w one-0 echo still") == "still"
