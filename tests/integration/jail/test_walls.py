# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to get out of the jail, as a user and as root of the jail, from a job and from a login session. Each must be refused; and where it can be
shown without harm, it must succeed in the worker's own container, where the wall is not: an attempt that never succeeds proves nothing.

docs/walls.md is what was seen; the test fails when the page says something else, and CORRAL_WRITE_DOCS=1 writes it.
No attempt harms the machine should it succeed: values are written back as they are, files are opened and not written, devices are opened for reading.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..conftest import REPOSITORY, Cluster, eventually
from . import test_network
from .conftest import Script, submit
from .test_failure import in_service
from .test_network import Places

pytestmark = pytest.mark.lab
places = test_network.places  # a fixture
PAGE = REPOSITORY / "docs" / "walls.md"
WORKER = ("jail-one-0", "slurmd")
# The column of the containers beside the jail.
CONTROL = "the worker's pod"


@dataclass(frozen=True)
class Attempt:
    """What is tried, and a bash command that succeeds only when it works.

    ``shown``: the container of the worker's pod in which it must succeed, as root and in a mount namespace of its own. None: that would do harm,
    or the container has no more right to it than the jail. ``roots_own``: root of the jail may, since it is the jail's own or says names only.
    """

    what: str
    command: str
    shown: str | None = "slurmd"
    roots_own: bool = False


# $DAEMONS: numbers of root's processes beside the jail: the container's first, slurmd and slurmstepd, or sshd. $OTHER: a process of another user.
# $JAIL: where the jail's root is. $WRITABLE: directories of the pod. again: writes a file as it is. task INPUT COMMAND: a job with that input, whose files
# slurmstepd opens. Root in the jail sends it as alice, whose task is root by sudo; beside the jail it is one of carol's, who may leave it.
SHELL = """
export PATH=$PATH:/opt/corral/bin SHELL=/bin/bash
again() { local value; value=$(cat "$1") && [ -n "$value" ] && printf '%s\\n' "$value" >"$1"; }
any() { local found=1; for file; do cat "$file" && found=0; done; return $found; }
task() {
    local as="" me=/home/alice who=() out=()
    if [ "$JAIL" ]; then me=/home/carol who=(10003) out=(--no-jail); elif [ "$(id -u)" = 0 ]; then as="sudo -n" who=(10001); fi
    [ ${#who[@]} = 0 ] || who=(setpriv --reuid=$who --regid=$who --clear-groups)
    cd / && "${who[@]}" sbatch -Q --wait --mem=64M -w one-0 -o /dev/null "${out[@]}" -i "${1/#HOME/$me}" --wrap "$as $2"
}
"""


def python(code: str) -> str:
    return f"python3 -c {shlex.quote(code)}"


SYSCALL = "import ctypes, os, sys; l = ctypes.CDLL(None, use_errno=True); "
# The kernel asks for the right before it looks at what is asked for, so what is wrong otherwise was not refused.
REFUSED = "sys.exit(ctypes.get_errno() in (1, 38))"
DAEMONS = "os.environ['DAEMONS'].split()"

SECOND_CHROOT = """
import os
here = os.open(".", 0)
os.makedirs("wall", exist_ok=True)
try:
    os.chroot("wall")
    os.fchdir(here)
finally:
    os.rmdir("wall")
"""
MEMORY = f"""
import os, sys
def read(process):
    with open(f"/proc/{{process}}/maps") as maps, open(f"/proc/{{process}}/mem", "rb") as memory:
        memory.seek(int(maps.readline().split("-")[0], 16))
        return memory.read(1)
for process in {DAEMONS}:
    try:
        sys.exit(not read(process))
    except OSError:
        pass
sys.exit(1)
"""
# Written back as they are; compared with what they were.
SYSCTLS = ("vm/swappiness", "kernel/panic", "fs/suid_dumpable", "user/max_user_namespaces")
KNOBS = ("kernel/mm/transparent_hugepage/enabled", "kernel/profiling", "kernel/uevent_helper")

# Their files are the pod's root's, whose uid root of the jail has in any user namespace, mapped or not. Opened, not written.
CGROUPS = (
    SYSCALL
    + """
if l.unshare(0x12020000) < 0 and l.unshare(0x10020000) < 0:
    sys.exit(1)
for kind, options, file in (b"cgroup2", None, "cgroup.procs"), (b"cgroup", b"memory", "memory.limit_in_bytes"), (b"cgroup", b"pids", "cgroup.procs"):
    if l.mount(b"none", b"/mnt", kind, 0, options) == 0:
        os.close(os.open("/mnt/" + file, os.O_WRONLY))
        sys.exit()
sys.exit(1)
"""
)
# By it slurmstepd does for root what it is asked, whoever's the step is.
STEPS = """
import os, socket, stat
places = [f"/var/spool/slurmd/{name}" for name in os.listdir("/var/spool/slurmd")]
[step, *_] = [place for place in places if stat.S_ISSOCK(os.stat(place).st_mode)]
socket.socket(socket.AF_UNIX).connect(step)
"""
# What anybody in the pod's own IPC namespace finds.
MEMORY_KEY = 0x77616C6C
# What whoever has that uid on the machine finds, in any container: root of the pod, and alice.
SEARCH_KEY = "l.syscall(250, 10, -4, b'user', b'wall', 0)"
ADD_KEY = "l.syscall(248, b'user', b'wall', b'x', 1, -4)"
# Whoever becomes the account of a daemon's helper looks into it: sshd's, while somebody logs in, has one that is nobody's, and reads what comes from outside.
HELPERS = """
import ctypes, os, socket, sys, time
l = ctypes.CDLL(None)
def account(process):
    with open(f"/proc/{process}/status") as status:
        return next(int(line.split()[2]) for line in status if line.startswith("Uid:"))
def helpers():
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/comm") as name:
                if name.read().startswith("sshd") and 0 < account(process) < 1000:
                    yield int(process), account(process)
        except OSError:
            pass
def works(act):
    try:
        return act()
    except OSError:
        return False
ACT
with socket.create_connection(("127.0.0.1", 22)) as asks:
    asks.send(b"SSH-2.0-wall\\r\\n")
    for _ in range(50):
        found = list(helpers())
        if found:
            break
        time.sleep(0.1)
    if any(look(process) for process, _uid in found):
        sys.exit(0)
    for process, uid in found:
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        sys.exit(not look(process))
sys.exit(1)
"""
LOOK = """
def look(process):
    return (works(lambda: os.listdir(f"/proc/{process}/root/")) or works(lambda: os.readlink(f"/proc/{process}/fd/0")) or
        works(lambda: open(f"/proc/{process}/mem", "rb")) or l.ptrace(0x4206, process, 0, 0) == 0)
"""
SIGNAL = "look = lambda process: works(lambda: os.kill(process, 0) is None)"
# Every directory of a pod that its users could write, and those that they once could.
SBCAST = "salloc -I60 --mem=64M -w one-0 sh -c 'for d in $WRITABLE; do sbcast -f /etc/passwd $d/wall && made=1; done; test -n \"$made\"'"
TAKEN_AWAY = "{ for d in $WRITABLE; do rm -f $d/wall; done; exit $made; }"
# A job of his own, beside the one that runs: slurmd writes with the rights of the job's user.
WRITE = "salloc -I60 --mem=64M -w one-0 sbcast -f /etc/passwd /run/wall; made=$?; rm -f /run/wall; exit $made"
# As root slurmd gives what it has written the mode and the owner that sbcast says. Nothing needs this device.
TAKE = """
look() { srun -Q stat -c %a:%u /dev/zero; }
before=$(look); sbcast -f /etc/passwd /dev/zero; after=$(look)
test "$after" -a "$after" != "$before"
"""
# "/.." of a root is that root.
OUT = "test -e /proc/self/fd/0/../../../../../usr/sbin/slurmd"
KEPT_CONFIGURATION = "/var/spool/slurmd/conf-cache/plugstack.conf"
# A file that everybody may read is opened anew, and not written. The pod's root needs no job for it.
REOPEN = f"""if [ "$JAIL" ]; then : >>{KEPT_CONFIGURATION}; else task {KEPT_CONFIGURATION} "sh -c ': >>/proc/self/fd/0'"; fi"""
ATTEMPTS = (
    Attempt("read the pod's root through `/proc/1/root`", "ls /proc/1/root/"),
    Attempt("read it through `/proc/<pid>/root` of slurmd, slurmstepd or sshd", "for p in $DAEMONS; do ls /proc/$p/root/usr/sbin/slurmd && exit; done; exit 1"),
    Attempt("join the pod's mount namespace (`nsenter`)", "for p in $DAEMONS; do nsenter -t $p -m true && exit; done; exit 1"),
    Attempt("a second chroot, out over an open directory", f"cd /tmp; {python(SECOND_CHROOT)}"),
    Attempt("`pivot_root` back", python(SYSCALL + "l.syscall(155, b'/nowhere', b'/nowhere'); " + REFUSED)),
    Attempt("mount something", "mount -t tmpfs none /mnt && umount /mnt"),
    Attempt("unmount the mask of `/proc/sys`", "umount /proc/sys"),
    Attempt("make `/sys` writable", "mount -o remount,bind,rw /sys"),
    Attempt("a user namespace, and in it the pod's root", "unshare -Ur ls /proc/1/root/", shown=None),
    Attempt("a user namespace, and in it the mask of `/proc/sys` away", "unshare -Urm umount /proc/sys", shown=None),
    Attempt("a user namespace, and in it a `/proc` without masks", "unshare -Urmpf mount -t proc none /proc", shown=None),
    Attempt("a user namespace, and in it a cgroup file system, to write limits", python(CGROUPS)),
    Attempt("move a mount point away", "for d in run opt/corral tmp proc; do mv -T /$d /$d.away && mv -T /$d.away /$d && exit; done; exit 1", shown=None),
    Attempt("make a device node of the first disk", "mknod /tmp/wall b 8 0; made=$?; rm -f /tmp/wall; exit $made", shown=None),
    Attempt("find a disk, `/dev/mem` or `/dev/kmsg`", "ls /dev | grep -E '^(sd|vd|xvd|nvme|loop|dm-|mem$|kmem$|port$|kmsg$)'", shown=None),
    Attempt("write `/proc/sys/kernel/core_pattern`", "again /proc/sys/kernel/core_pattern", shown=None),
    Attempt("write any other of `/proc/sys`", f"for f in {' '.join(SYSCTLS)}; do again /proc/sys/$f && exit; done; exit 1", shown=None),
    Attempt("open `/proc/sysrq-trigger` for writing", ": >>/proc/sysrq-trigger", shown=None),
    Attempt("read the kernel's memory (`/proc/kcore`)", '[ "$(head -c 1 /proc/kcore | wc -c)" = 1 ]', shown=None),
    Attempt("write `/sys`", f"for f in {' '.join(KNOBS)}; do : >>/sys/$f && exit; done; exit 1", shown=None),
    Attempt("make a cgroup", "mkdir /sys/fs/cgroup/wall && rmdir /sys/fs/cgroup/wall", shown=None),
    Attempt("load a kernel module", python(SYSCALL + "l.syscall(175, None, 0, None); " + REFUSED), shown=None),
    Attempt("open a file by handle (`open_by_handle_at`)", python(
        SYSCALL + "import struct; l.syscall(304, os.open('/', 0), struct.pack('Iiq', 8, 1, 0), 0); " + REFUSED
    ), shown=None),
    Attempt("change the network's interfaces", "ip link add wall type dummy && ip link del wall", shown=None),
    # PTRACE_SEIZE, which stops nothing.
    Attempt("trace slurmd, slurmstepd or sshd", python(SYSCALL + f"sys.exit(all(l.ptrace(0x4206, int(p), 0, 0) < 0 for p in {DAEMONS}))")),
    Attempt("read their memory", python(MEMORY)),
    Attempt("read their environment", "for p in $DAEMONS; do grep -q . /proc/$p/environ && exit; done; exit 1"),
    Attempt("read their mounts (`/proc/<pid>/mountinfo`)", "for p in $DAEMONS; do grep -q . /proc/$p/mountinfo && exit; done; exit 1", roots_own=True),
    Attempt("see another user's process in `/proc`", "cat /proc/$OTHER/cmdline", roots_own=True),
    Attempt("read its environment", "grep -q . /proc/$OTHER/environ"),
    Attempt("a service account's token", "any {,/var}/run/secrets/kubernetes.io/serviceaccount/token", shown=None),
    Attempt("munge's key", "any /etc/munge/munge.key /run/munge-key/munge.key /etc/corral/munge/munge.key", shown="munged"),
    Attempt("the ssh host keys", "any /etc/ssh/host-keys/* /etc/corral/host-keys/* /etc/ssh/ssh_host_*_key"),
    Attempt("replace munge's socket", "touch /run/munge/wall && rm /run/munge/wall"),
    Attempt("write Slurm's configuration", ": >>/run/slurm/conf/plugstack.conf"),
    Attempt("read the pod's root by a job with `--input=/`", f"task / '{OUT}'"),
    Attempt("read it by one with `--input=/tmp`", f"task /tmp '{OUT}'"),
    Attempt("read it by one with its user's home for `--input`", f"task HOME '{OUT}'"),
    Attempt("read it by one with `--input=/proc/self/root`", f"task /proc/self/root '{OUT}'"),
    Attempt("write Slurm's configuration by one that has it for `--input`", REOPEN),
    Attempt("write slurmd's spool", "mountpoint -q /var/spool/slurmd && touch /var/spool/slurmd/wall && rm /var/spool/slurmd/wall"),
    Attempt("write Slurm's programs", "touch /opt/corral/bin/wall && rm /opt/corral/bin/wall"),
    Attempt("have slurmd write a file into its pod (`sbcast`)", WRITE),
    Attempt("have slurmd write a file into any other directory of its pod (`sbcast`)", f"{SBCAST}; made=$?; {TAKEN_AWAY}"),
    Attempt("have slurmd give a device of its pod to a user (`sbcast`)", f"salloc -I60 --mem=64M -w one-0 sh -c {shlex.quote(TAKE)}", shown=None),
    Attempt("as its account, look into the helper of sshd that listens to who is not known yet", python(HELPERS.replace("ACT", LOOK))),
    Attempt("signal that helper", python(HELPERS.replace("ACT", SIGNAL)), roots_own=True),
    Attempt("see what other jobs have in their `/tmp`", "ls /var/spool/slurmd/corral/tmp | grep ."),
    Attempt("use a device node that lies on the shared root", 'head -c 1 "$JAIL"/wall-zero'),
    Attempt("reach the socket of a step, by which it is ended or traced", python(STEPS)),
    Attempt("find System V shared memory that is not the job's", python(SYSCALL + f"sys.exit(l.shmget({MEMORY_KEY}, 0, 0) < 0)")),
    Attempt("read a key that others with the same uid keep on the machine (`keyctl`)", python(SYSCALL + f"sys.exit({SEARCH_KEY} < 0)")),
    Attempt("read another user's file", "cat /home/bob/private", roots_own=True),
    Attempt("become root of the jail without sudo", "su -c true root", roots_own=True),
)  # fmt: skip


def tell(attempts: list[Attempt], **words: str) -> str:
    """A script that tries them all and says of each what came of it."""
    lines = [SHELL, *(f"export {name}={shlex.quote(value)}" for name, value in words.items())]
    for attempt in attempts:
        index = ATTEMPTS.index(attempt)
        lines.append(f"( {attempt.command} ) >/dev/null 2>&1 </dev/null && echo {index} worked || echo {index} refused")
    return "\n".join(lines)


def heard(said: str, attempts: list[Attempt]) -> dict[str, bool]:
    results = dict(line.split() for line in said.splitlines() if line.endswith((" worked", " refused")))
    assert len(results) == len(attempts), said
    return {attempt.what: results[str(ATTEMPTS.index(attempt))] == "worked" for attempt in attempts}


def inside(cluster: Cluster, pod: str, container: str, script: str) -> str:
    """What a script prints that runs in a container."""
    return cluster.kubectl("exec", "-n", cluster.namespace, pod, "-c", container, "--", "bash", "-c", script)


def login(cluster: Cluster) -> tuple[str, str]:
    return cluster.kubectl("get", "pods", "-n", cluster.namespace, "-l", "app.kubernetes.io/component=login", "-o", "name").strip(), "sshd"


def daemons(cluster: Cluster, place: tuple[str, str], *names: str) -> str:
    """Numbers of the container's first process and of root's of these names, each of which must be there."""
    found = [line.split() for line in inside(cluster, *place, f"pgrep -l -u 0 -x '{'|'.join(names)}'").splitlines()]
    assert {name for _pid, name in found} == set(names), found
    return " ".join(["1", *(pid for pid, _name in found)])


@contextmanager
def a_process_of_bob(cluster: Cluster) -> Iterator[str]:
    """On the worker; its number."""
    start = "setsid setpriv --reuid=10002 --regid=10002 --clear-groups sleep 600 >/dev/null 2>&1 </dev/null & echo $!"
    process = inside(cluster, *WORKER, start).strip()
    try:
        eventually(lambda: inside(cluster, *WORKER, f"stat -c %u /proc/{process}").strip() == "10002", "bob's process")
        yield process
    finally:
        inside(cluster, *WORKER, f"kill {process}")


# What everybody may write by its mode, on all mounts of the pod that are neither the jail's nor its volumes', nor the kernel's own. Devices on a mount that can
# only be read are written, and keep their modes.
OPEN_TO_ALL = """
import os, stat
points = [line.split() for line in open("/proc/self/mountinfo")]
points = [(fields[4], fields[fields.index("-") + 1]) for fields in points if not fields[4].startswith(("/mnt/jail", "/mnt/submounts", "/run/corral-jail"))]
def every(point):
    yield point
    if os.path.isdir(point):
        device = os.stat(point).st_dev
        for parent, directories, files in os.walk(point):
            directories[:] = [name for name in directories if os.lstat(os.path.join(parent, name)).st_dev == device]
            yield from (os.path.join(parent, name) for name in directories + files)
for point, kind in points:
    if kind in ("proc", "sysfs", "cgroup", "cgroup2"):
        continue
    for path in every(point):
        try:
            mode, read_only = os.lstat(path).st_mode, os.statvfs(path).f_flag & os.ST_RDONLY
        except OSError:
            continue
        if mode & 0o002 and not read_only and not stat.S_ISLNK(mode) and not stat.S_ISSOCK(mode):
            print("directory" if stat.S_ISDIR(mode) else "file", path)
"""


def open_to_all(cluster: Cluster) -> dict[str, set[str]]:
    """Directories and files of the worker's pod where slurmd may write for a user by their modes (sbcast)."""
    found: dict[str, set[str]] = {"directory": set(), "file": set()}
    for line in inside(cluster, *WORKER, python(OPEN_TO_ALL)).splitlines():
        kind, path = line.split(" ", 1)
        found[kind].add(path)
    return found


def writable(cluster: Cluster) -> str:
    """Such directories, and those that images, runtimes and the kubelet make so."""
    made = {
        "/tmp",
        "/var/tmp",
        "/dev/shm",
        "/dev/mqueue",
        "/run/lock",
        "/run/munge",
        "/run/slurm",
        "/var/spool/slurmd",
        "/mnt/own-disk",
        "/srv/own",
    }
    return " ".join(sorted(open_to_all(cluster)["directory"] | made))


def test_slurmd_writes_nothing_of_its_pod_for_users(cluster: Cluster) -> None:
    assert open_to_all(cluster) == {"directory": set(), "file": set()}


@contextmanager
def shared_memory(cluster: Cluster, place: tuple[str, str]) -> Iterator[None]:
    """In the pod, for everybody."""
    make = python(SYSCALL + f"print(l.shmget({MEMORY_KEY}, 4096, 0o1666))")
    number = inside(cluster, *place, make).strip()
    try:
        yield
    finally:
        inside(cluster, *place, f"ipcrm -m {number}")


@contextmanager
def keys(cluster: Cluster) -> Iterator[None]:
    """Of root and of alice, put into their keyrings by a container beside the jail."""
    whose = ("", "setpriv --reuid=10001 --regid=10001 --clear-groups ")
    for who in whose:
        inside(cluster, *WORKER, who + python(SYSCALL + f"sys.exit({ADD_KEY} < 0)"))
    try:
        yield
    finally:
        for who in whose:
            inside(cluster, *WORKER, who + python(SYSCALL + f"sys.exit(l.syscall(250, 9, {SEARCH_KEY}, -4) < 0)"))


@contextmanager
def a_session(script: Script, user: str = "alice", worker: str = "") -> Iterator[None]:
    """Somebody's session on the login node, and from there on a worker if told, for as long as the context lasts."""
    script("rm -f up down", user=user)
    waits = "touch up; until test -e down; do sleep 0.2; done"
    with ThreadPoolExecutor(1) as pool:
        session = pool.submit(script, f"ssh {worker} '{waits}'" if worker else waits, user)
        try:
            script("for i in $(seq 300); do test -e up && exit; sleep 0.2; done; exit 1", user=user)
            yield
        finally:
            script("touch down", user=user)
            session.result()
            script("rm -f up down", user=user)


def in_jobs(cluster: Cluster, script: Script) -> dict[str, dict[str, bool]]:
    every = list(ATTEMPTS)
    found = {}
    job = submit(script, "-w one-0 --mem=128M", command="sleep 600")
    try:
        with a_process_of_bob(cluster) as other, shared_memory(cluster, WORKER):
            words = {"DAEMONS": daemons(cluster, WORKER, "slurmd", "slurmstepd", "sshd"), "OTHER": other, "WRITABLE": writable(cluster)}
            for place, runner in (("user in a job", ""), ("root in a job", "sudo")):
                text = tell(every, JAIL="", **words)
                said = script(
                    f"cat >/disk/walls.sh <<'END'\n{text}\nEND\nsrun --overlap --jobid={job} {runner} bash /disk/walls.sh", check=False
                )
                found[place] = heard(said, every)
            for container in ("slurmd", "munged"):
                shown = [attempt for attempt in ATTEMPTS if attempt.shown == container]
                # munged is not root and could make none.
                own = "unshare -m" if container == "slurmd" else ""
                text = f"{own} bash -c {shlex.quote(tell(shown, JAIL='/mnt/jail', **words))}"
                found.setdefault(CONTROL, {}).update(heard(inside(cluster, WORKER[0], container, text), shown))
    finally:
        script(f"scancel {job}; rm -f /disk/walls.sh")
    return found


def in_sessions(cluster: Cluster, script: Script) -> dict[str, dict[str, bool]]:
    every = list(ATTEMPTS)
    found = {}
    pod = login(cluster)
    with a_session(script, user="bob"):
        words = {
            "DAEMONS": daemons(cluster, pod, "sshd", "sshd-session"),
            "OTHER": inside(cluster, *pod, "pgrep -u 10002 -x -o bash").strip(),
            "WRITABLE": writable(cluster),
            "JAIL": "",
        }
        for place, runner in (("user in a session", ""), ("root in a session", "sudo")):
            said = script(
                f"cat >/disk/walls.sh <<'END'\n{tell(every, **words)}\nEND\n{runner} bash /disk/walls.sh; rm /disk/walls.sh", check=False
            )
            found[place] = heard(said, every)
    return found


def state(cluster: Cluster, root: Path) -> dict[str, str]:
    """What attempts would change: the kernel's knobs, the pods' mounts and interfaces, and files of theirs."""
    paths = [Path("/proc/sys") / name for name in ("kernel/core_pattern", *SYSCTLS)] + [Path("/sys") / name for name in KNOBS]
    knobs = {str(path): path.read_text() for path in paths if path.exists()}
    files = "ls -d {,/run,/tmp,/var/tmp,/dev/shm,/run/lock,/run/slurm,/var/spool/slurmd,/opt/corral/bin,/run/munge,/sys/fs/cgroup}/wall 2>/dev/null"
    # Without the dressed jails that are kept for the next entry: another name in the jail's root, such as wall-zero, makes another.
    look = f"grep -v ' /run/corral-jail/' /proc/self/mountinfo; ls /sys/class/net; {files} || true"
    pods = {name: inside(cluster, name, container, look) for name, container in (WORKER, login(cluster))}
    return knobs | pods | {"jail": "\n".join(sorted(os.listdir(root)) + sorted(os.listdir(root / "tmp")))}


@pytest.fixture(scope="module")
def found(cluster: Cluster, script: Script, root: Path) -> dict[str, dict[str, bool]]:
    """Place → what → whether it worked."""
    script("echo private >private; chmod 600 private", user="bob")
    # The first job on a node has its jail dressed anew, since there is something of others to hide then; and the mounts are compared.
    script("srun -w one-0 true")
    before = state(cluster, root)
    # As an administrator of the volume could; in the jail nobody can make one.
    os.mknod(root / "wall-zero", 0o20666, os.makedev(1, 5))
    os.chmod(root / "wall-zero", 0o666)
    try:
        with keys(cluster):
            seen = in_jobs(cluster, script) | in_sessions(cluster, script)
        beside = seen.pop(CONTROL)
        return {**seen, CONTROL: beside}
    finally:
        (root / "wall-zero").unlink()
        assert state(cluster, root) == before


def test_nothing_leads_out(found: dict[str, dict[str, bool]]) -> None:
    own = {attempt.what for attempt in ATTEMPTS if attempt.roots_own}
    out = [
        f"{what} ({place})"
        for place, results in found.items()
        for what, worked in results.items()
        if worked and place != CONTROL and not (what in own and "root" in place)
    ]
    assert out == []


def test_without_the_walls_the_attempts_succeed(found: dict[str, dict[str, bool]]) -> None:
    assert [what for what, worked in found[CONTROL].items() if not worked] == []


LIBRARIES = "/usr/lib/x86_64-linux-gnu"
# Root of the jail's own library: whoever loads it says so, and with which capabilities.
EVIL = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
__attribute__((constructor)) static void ran(void)
{
    Dl_info me;
    char line[256];
    unsigned long long may = 0;
    FILE *status = fopen("/proc/self/status", "re");
    FILE *log = fopen("/planted", "ae");
    while (status && fgets(line, sizeof(line), status))
        sscanf(line, "CapEff: %llx", &may);
    if (log && dladdr(ran, &me))
        fprintf(log, "%s %llx\\n", me.dli_fname, may);
    if (log)
        fclose(log);
}
"""


@dataclass(frozen=True)
class Plant:
    """A library of root of the jail, where it lies, and a command of a user that loads it."""

    what: str
    path: str
    command: str
    made: str = ""
    gone: str = ""


HWLOC = "import ctypes; l = ctypes.CDLL('libhwloc.so.15'); t = ctypes.c_void_p(); l.hwloc_topology_init(ctypes.byref(t)); l.hwloc_topology_load(t)"
# A job's, set for it by its user: slurmstepd is started without.
ENVIRONMENT = "LD_PRELOAD=/srv/evil-environment.so,LD_LIBRARY_PATH=/srv/evil"
PLANTS = (
    Plant(
        "a module of the name services, by `/etc/nsswitch.conf`",
        f"{LIBRARIES}/libnss_evil.so.2",
        "getent passwd no-such-user",
        "cp -a /etc/nsswitch.conf /etc/nsswitch.conf.saved; sed -i 's/^passwd:.*/passwd: evil files/' /etc/nsswitch.conf",
        "mv /etc/nsswitch.conf.saved /etc/nsswitch.conf",
    ),
    Plant("a plugin of hwloc", f"{LIBRARIES}/hwloc/hwloc_evil.so", python(HWLOC)),
    Plant("a component of PMIx", f"{LIBRARIES}/pmix2/lib/pmix/pmix_mca_pcompress_evil.so", "mpirun -n 1 true"),
    Plant(
        "any library, by `/etc/ld.so.preload`",
        "/srv/evil-preload.so",
        "true",
        "echo /srv/evil-preload.so >/etc/ld.so.preload",
        "rm -f /etc/ld.so.preload",
    ),
    Plant("any library, by a job's `LD_PRELOAD`", "/srv/evil-environment.so", "LD_PRELOAD=/srv/evil-environment.so sleep 0"),
    Plant(
        "a library that Slurm loads by its name, by a job's `LD_LIBRARY_PATH`",
        "/srv/evil/libhwloc.so.15",
        "LD_LIBRARY_PATH=/srv/evil python3 -c \"import ctypes; ctypes.CDLL('libhwloc.so.15')\"",
    ),
)
USERS = "users' programs"
SYS_ADMIN = 1 << 21


@pytest.fixture(scope="module")
def planted(cluster: Cluster, script: Script, mpi: str) -> Iterator[dict[str, dict[str, bool]]]:
    """Who → what was planted → whether it was loaded. A job over both nodes runs meanwhile, with a session of its user on one of them."""
    root = [line for plant in PLANTS for line in (f"mkdir -p $(dirname {plant.path}); cp evil.so {plant.path}", plant.made) if line]
    gone = [line for plant in PLANTS for line in (plant.gone, f"rm -f {plant.path}") if line]
    script(f"cat >evil.c <<'END'{EVIL}END\ngcc -shared -fPIC -o evil.so evil.c; sudo sh -c 'umask 0; : >/planted'")
    script("cat >plant.sh <<'END'\n" + "\n".join(root) + "\nEND\ncat >gone.sh <<'END'\n" + "\n".join([*gone, "rmdir /srv/evil"]) + "\nEND")
    try:
        script("sudo sh -e plant.sh")
        job = script(f"sbatch --parsable -N2 -o /dev/null --export=ALL,{ENVIRONMENT} --wrap 'srun --mpi={mpi} sleep 120'")
        eventually(lambda: f"{job}.0" in script(f"squeue -h -s -j {job} -o %i").split(), "the step")
        script(f"srun -w one-0 --overlap --jobid={job} id nobody")
        look = "for p in $(pgrep -u 0 -x '{}'); do cat /proc/$p/maps; done"
        # Debian's image of Slurm 26.05 has no plugins of hwloc and no PMIx: there it is hwloc itself, which would look for them.
        plugins = inside(cluster, *WORKER, f"ls {LIBRARIES}/hwloc 2>/dev/null || true")
        own = ["/hwloc/hwloc_" if plugins else "/libhwloc.so", *(["/pmix_mca_"] if mpi == "pmix" else [])]
        eventually(
            lambda: all(name in inside(cluster, *WORKER, look.format("slurmstepd")) for name in own),
            "slurmstepd loads such plugins of its own",
        )
        with a_session(script, worker="one-0"):
            maps = {
                "slurmstepd": inside(cluster, *WORKER, look.format("slurmstepd")),
                "sshd of a worker": inside(cluster, *WORKER, look.format("sshd|sshd-session")),
                "sshd of a login node": inside(cluster, *login(cluster), look.format("sshd|sshd-session")),
            }
        script(f"scancel {job}")
        for who, text in maps.items():
            assert ("libslurmfull" if who == "slurmstepd" else "libnss_corral") in text, f"the test did not look at {who}"
        for plant in PLANTS:
            script(f"{plant.command} || true")
        # Who loaded it for a moment only, or is the user's. /lib, where the loader looks too, is a link to /usr/lib.
        said = [line.replace("/usr/lib", "/lib").split() for line in script("cat /planted").splitlines()]
        loaded = {plant.what: [int(may, 16) for path, may in said if path == plant.path.replace("/usr/lib", "/lib")] for plant in PLANTS}
        found = {USERS: {what: bool(programs) for what, programs in loaded.items()}}
        for who, text in maps.items():
            found[who] = {plant.what: plant.path in text for plant in PLANTS}
        found["with a capability that leads out"] = {what: any(may & SYS_ADMIN for may in programs) for what, programs in loaded.items()}
        yield found
    finally:
        script("sudo sh gone.sh; rm -f evil.c evil.so plant.sh gone.sh; sudo rm -f /planted", check=False)


def test_daemons_load_nothing_of_the_jail(planted: dict[str, dict[str, bool]]) -> None:
    """Root of the jail plants libraries where root's daemons look for them, and where every program does."""
    assert [(who, what) for who, results in planted.items() if who != USERS for what, loaded in results.items() if loaded] == []


def test_programs_of_users_load_what_was_planted(planted: dict[str, dict[str, bool]]) -> None:
    assert [what for what, loaded in planted[USERS].items() if not loaded] == []


@pytest.fixture(scope="module")
def linked(cluster: Cluster, script: Script) -> dict[str, bool]:
    """What root of the jail did to a mount point where nothing is mounted over it → whether a step ran."""
    spool = "/var/spool/slurmd"
    eventually(lambda: in_service(cluster), "all nodes in service")
    before = script("srun -w one-0 stat -f -c %i:%T /etc")
    # Steps of a job that runs go on where the health check has seen it too, and lets no new job begin.
    job = submit(script, "-w one-0")
    script(f"sudo mv {spool} {spool}.away; sudo ln -s /etc {spool}")
    try:
        said = script(f"srun --overlap --jobid={job} echo it ran", check=False)
        assert "launch failed" in said or "it ran" in said, said
    finally:
        script(f"sudo rm {spool}; sudo mv {spool}.away {spool}; scancel {job}")
    eventually(lambda: in_service(cluster), "all nodes in service again", timeout=90)
    assert script("srun -w one-0 stat -f -c %i:%T /etc") == before
    return {f"a link to `/etc` in the place of `{spool}`": "it ran" in said}


def test_a_link_in_the_place_of_a_mount_point_leads_nowhere(cluster: Cluster, linked: dict[str, bool]) -> None:
    assert not any(linked.values())
    said = cluster.kubectl("logs", "-n", cluster.namespace, WORKER[0], "-c", WORKER[1], "--tail=100")
    assert "/var/spool/slurmd can not be shown in the jail: the jail has no such mount point" in said


# A file of a pod that its root alone reads and writes.
KEPT = "/run/wall-kept"
RECORDS = ("/var/log/wtmp", "/var/log/lastlog", "/var/log/btmp", "/var/lib/wtmpdb/wtmp.db")


def by_key(cluster: Cluster, key: Path) -> bool:
    """Whether that key opens bob's account on the login node."""
    known, cluster.key = cluster.key, key
    try:
        return cluster.ssh("true", user="bob", check=False).returncode == 0
    finally:
        cluster.key = known


# A name that root of the pod alone knows, and who is asked for it.
NAMES = {"passwd": "eve:x:10666:10666::/:/bin/sh", "group": "eves:x:10666:"}


@pytest.fixture(scope="module")
def led(cluster: Cluster, script: Script, root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bool]]:
    """Who → which link of root of the jail → whether it led to a file of the pod."""
    pods = {"a worker's sshd": WORKER, "a login node's sshd": login(cluster)}
    row = "a link to a file of the pod in the place of `{}`".format
    found: dict[str, dict[str, bool]] = {who: {} for who in pods} | {CONTROL: {}}
    for place in pods.values():
        inside(cluster, *place, f"umask 077; echo kept >{KEPT}")
    saved = "".join(
        f"mkdir -p $(dirname {name}); [ ! -e {name} ] || mv {name} {name}.saved; ln -s /proc/1/root{KEPT} {name}; " for name in RECORDS
    )
    back = "".join(f"rm -f {name}; [ ! -e {name}.saved ] || mv {name}.saved {name}; " for name in RECORDS)
    job = submit(script, "-w one-0")
    try:
        script(f"sudo sh -c {shlex.quote(saved)}")
        # With a terminal, which is what gets a record.
        assert "in" in script("ssh -tt one-0 echo in")
        script("ssh -tt one-0 false", check=False)
        for who, place in pods.items():
            touched = inside(cluster, *place, f"cat {KEPT}") != "kept\n"
            found[who] |= {row(name): touched for name in RECORDS}
        for name in RECORDS:
            said = inside(cluster, *WORKER, f"echo more >>/mnt/jail{name}; cat {KEPT}; echo kept >{KEPT}")
            found[CONTROL][row(name)] = said == "kept\nmore\n"
    finally:
        script(f"sudo sh -c {shlex.quote(back)}; scancel {job}")

    key = tmp_path_factory.mktemp("planted") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = Path(f"{key}.pub").read_text()
    words = f"umask 077; cat >{KEPT} <<'END'\n{public}END\n"
    for place in pods.values():
        inside(cluster, *place, words)
    keys = root / "home" / "bob" / ".ssh" / "authorized_keys"
    keys.rename(keys.with_suffix(".saved"))
    try:
        keys.symlink_to(f"/proc/1/root{KEPT}")
        found["a login node's sshd"][row("~/.ssh/authorized_keys")] = by_key(cluster, key)
        keys.unlink()
        keys.write_text(public)
        os.chown(keys, 10002, 10002)
        found[CONTROL][row("~/.ssh/authorized_keys")] = by_key(cluster, key)
    finally:
        keys.unlink()
        keys.with_suffix(".saved").rename(keys)

    for name, line in NAMES.items():
        names = root / "etc" / name
        for place in pods.values():
            inside(cluster, *place, f"echo {line} >{KEPT}")
        names.rename(names.with_suffix(".saved"))
        try:
            names.symlink_to(f"/proc/1/root{KEPT}")
            for who, place in pods.items():
                found[who][row(f"/etc/{name}")] = "10666" in inside(cluster, *place, f"getent {name} {line.partition(':')[0]} || true")
            found[CONTROL][row(f"/etc/{name}")] = "10666" in inside(cluster, *WORKER, f"cat /mnt/jail/etc/{name}")
        finally:
            names.unlink()
            names.with_suffix(".saved").rename(names)
    for place in pods.values():
        inside(cluster, *place, f"rm -f {KEPT}")
    return found


def test_links_lead_no_daemon_to_a_file_of_the_pod(led: dict[str, dict[str, bool]]) -> None:
    assert [(who, what) for who, results in led.items() if who != CONTROL for what, worked in results.items() if worked] == []
    assert [what for what, worked in led[CONTROL].items() if not worked] == []


EXCHANGE = "import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(316, -100, b'/usr', -100, b'/usr-of-ours', 2))"


@pytest.fixture(scope="module")
def moved(cluster: Cluster, script: Script, mpi: str) -> dict[str, dict[str, bool]]:
    """What root of the jail does to a step that runs → who sees or does it."""
    found: dict[str, dict[str, bool]] = {USERS: {}, "the pod's root": {}}
    # A copy of /usr by links, with one thing more in it, has its name while the step runs.
    rename = "rename `/usr` of the jail, with an exchange"
    job = submit(script, "-w one-0", command="srun sleep 120")
    script(
        "sudo mkdir /usr-of-ours; sudo sh -c 'for n in /usr/*; do ln -s /usr-of-ours/$(basename $n) /usr-of-ours/; done; : >/usr-of-ours/wall'"
    )
    step = inside(cluster, *WORKER, "pgrep -u 0 -x slurmstepd").split()
    task = inside(cluster, *WORKER, "pgrep -u 10001 -x sleep").split()[0]
    try:
        for process in (*step, task):
            inside(cluster, *WORKER, f"ls /proc/{process}/root/usr/bin")
        script(f"sudo python3 -c {shlex.quote(EXCHANGE)}")
        look = "ls /proc/{}/root/usr/wall >/dev/null 2>&1 && echo seen || :"
        found[USERS][rename] = "seen" in inside(cluster, *WORKER, look.format(task))
        found["the pod's root"][rename] = "seen" in "".join(inside(cluster, *WORKER, look.format(process)) for process in step)
    finally:
        # Where the jail's programs are lies in its /usr.
        back = shlex.quote(EXCHANGE.replace("/usr", "/mnt/jail/usr"))
        inside(cluster, *WORKER, f"! test -e /mnt/jail/usr/wall || python3 -c {back}")
        script(f"sudo rm -r /usr-of-ours; scancel {job}")

    program = "a program in the place of `/usr/bin/true`, which ends with a failure"
    script("sudo sh -c 'umask 0; : >/ran; mv /usr/bin/true /usr/bin/true.saved'")
    try:
        says = "#!/bin/sh\necho $(id -u) ${SLURM_JOB_ID:-none} >>/ran\nexit 1"
        script(f"cat >true.sh <<'END'\n{says}\nEND\nsudo install -m 755 true.sh /usr/bin/true; rm true.sh; /usr/bin/true || :")
        time.sleep(12)  # two health checks, which are made each five seconds here
        ran = [line.split() for line in script("cat /ran").splitlines()]
        found[USERS][program] = ["10001", "none"] in ran
        found["the pod's root"][program] = ["0", "none"] in ran or not in_service(cluster)
    finally:
        script("sudo mv /usr/bin/true.saved /usr/bin/true; sudo rm -f /ran")

    if mpi == "pmix":
        place = "a job's `SLURM_PMIX_TMPDIR=/proc/1/root/etc/ssh`"
        job = submit(script, "-w one-0", command="SLURM_PMIX_TMPDIR=/proc/1/root/etc/ssh srun --mpi=pmix sleep 120")
        try:
            eventually(lambda: f"{job}.0" in script(f"squeue -h -s -j {job} -o %i").split(), "the step")
            time.sleep(1)
            # PMIx works, and its directory is where the job's own files are.
            found[USERS][place] = "pmix" in script(f"srun -Q --overlap --jobid={job} ls -A /tmp")
            found["the pod's root"][place] = bool(inside(cluster, *WORKER, "find /etc -uid 10001"))
        finally:
            script(f"scancel {job}")
    return found


def test_what_is_done_to_a_step_that_runs_reaches_its_user_alone(moved: dict[str, dict[str, bool]]) -> None:
    assert [what for what, worked in moved["the pod's root"].items() if worked] == []
    assert [what for what, worked in moved[USERS].items() if not worked] == []


def table(first: str, found: dict[str, dict[str, bool]], rows: list[str], words: tuple[str, str]) -> list[str]:
    """Columns are places, rows what was done there. ``words``: for what was refused, and for what was not."""
    head = [f"| {first} | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    cells = {row: [words[seen[row]] if row in seen else "–" for seen in found.values()] for row in rows}
    return head + [f"| {row} | {' | '.join(cells[row])} |" for row in rows]


# Pods with another cluster's labels stand for its workers: what its users and its root of the jail reach, these reach.
OTHERS = {"another cluster's pod, same namespace": "neighbour", "another cluster's pod, another namespace": "namesake", CONTROL: "worker"}


@pytest.fixture(scope="module")
def beyond(places: Places) -> dict[str, dict[str, bool]]:
    """Whose pod → what it reaches of this cluster."""
    found: dict[str, dict[str, bool]] = {}
    for who, name in OTHERS.items():
        reached = places.reached(name, ["slurmctld", "slurmd", "sshd of a worker", "sshd"])
        found[who] = {f"connect to {what}": is_reached for what, is_reached in reached.items() if what != "sshd"}
        found[who]["connect to sshd of a login node, which is open to everybody"] = reached["sshd"]
        namespace, pod, container = places.who[name]
        look = "for path in /mnt/jail/etc/corral-jail /run/munge/munge.socket.2; do test -e $path && echo $path; done; true"
        said = places.cluster.kubectl("exec", "-n", namespace, pod, "-c", container, "--", "sh", "-c", look)
        found[who] |= {"see the jail's volume": "corral-jail" in said, "see munge's socket": "munge" in said}
    return found


def test_another_cluster_reaches_the_login_node_alone(beyond: dict[str, dict[str, bool]]) -> None:
    assert [what for what, worked in beyond[CONTROL].items() if not worked] == []
    out = {what for who, results in beyond.items() if who != CONTROL for what, worked in results.items() if worked}
    assert out == {"connect to sshd of a login node, which is open to everybody"}


Table = dict[str, dict[str, bool]]


def page(found: Table, planted: Table, linked: dict[str, bool], led: Table, moved: Table, beyond: Table) -> str:
    return "\n".join(
        [
            "# The walls of the jail",
            "",
            "Written by `tests/integration/jail/test_walls.py`, which tries all of it on a cluster. Root is a user with `sudo: true`: root of the jail, so",
            "everybody's files there are his, he sees everybody's processes, and the names of the pod's mounts; and nothing beyond.",
            "",
            "The last column is no jail: the same command in the worker's own containers, where it has to succeed, so that it is known to be one that can. A",
            "dash: not tried there, since it would do harm or since the container may not do it either.",
            "",
            *table("attempt", found, [attempt.what for attempt in ATTEMPTS], ("refused", "possible")),
            "",
            "## What root of the jail plants",
            "",
            "Libraries of his own, which are loaded by programs of users, and by no daemon of root's; whatever loads them has no capability that leads out.",
            "",
            *table("planted", planted, [plant.what for plant in PLANTS], ("no", "loaded")),
            "",
            *table("planted", {"a step that needs it": linked}, list(linked), ("refused", "runs")),
            "",
            "Links to a file of the pod that its root alone may use. The last column is the pod's own root, who follows them by the jail's path.",
            "",
            *table("planted", led, list(led[CONTROL]), ("leads nowhere", "followed")),
            "",
            "Beside a step that runs, or a health check:",
            "",
            *table("done", moved, list(moved[USERS]), ("no effect", "takes effect")),
            "",
            "## What another cluster reaches",
            "",
            "By root of its pods, which is more than its users and its root of the jail are. Kubernetes and the network's policies keep it out.",
            "",
            *table("attempt", beyond, list(beyond[CONTROL]), ("refused", "possible")),
            "",
        ]
    )


def test_the_page_tells_what_was_seen(
    found: Table, planted: Table, linked: dict[str, bool], led: Table, moved: Table, beyond: Table
) -> None:
    seen = page(found, planted, linked, led, moved, beyond)
    if os.environ.get("CORRAL_WRITE_DOCS"):
        PAGE.write_text(seen)
    assert PAGE.read_text() == seen, "docs/walls.md is stale: run the test with CORRAL_WRITE_DOCS=1"
