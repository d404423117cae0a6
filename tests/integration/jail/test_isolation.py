# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to get out of the jail, as a user and as root of the jail, from a job and from a login session. Each must be refused; and where it can be
shown without harm, it must succeed in the worker's own container, which has no jail: an attempt that never succeeds proves nothing.

docs/isolation.md is what was seen; the test fails when the page says something else, and CORRAL_WRITE_DOCS=1 writes it.
No attempt harms the machine should it succeed: values are written back as they are, files are opened and not written, devices are opened for reading.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..conftest import REPOSITORY, Cluster, eventually
from . import planted, test_network
from .conftest import Script, enter_by, submit
from .planted import ROLES, SUDO, USERS, WORKER, Reach, World, a_session, inside, login, python, together
from .test_network import Places

pytestmark = pytest.mark.lab
places = test_network.places  # a fixture
PAGE = REPOSITORY / "docs" / "isolation.md"
# The column of the containers beside the jail.
CONTROL = "the worker's pod"


Table = dict[str, dict[str, bool]]


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
    local as="" me=/home/alice who=() out=() job state
    if [ "$JAIL" ]; then me=/home/carol who=(10003) out=(--no-jail); elif [ "$(id -u)" = 0 ]; then as="sudo -n" who=(10001); fi
    [ ${#who[@]} = 0 ] || who=(setpriv --reuid=$who --regid=$who --clear-groups)
    # Without --wait: the epilog kills what the user has on a node outside of every job, and the pod's own root submits there.
    cd / && job=$("${who[@]}" sbatch --parsable --mem=64M -w one-0 -o /dev/null "${out[@]}" -i "${1/#HOME/$me}" --wrap "$as $2") && [ "$job" ] || return
    until state=$(scontrol -o show job "$job" | grep -o ' JobState=[A-Z_]* ') && [[ $state != *=@(PENDING|CONFIGURING|RUNNING|COMPLETING)* ]]; do
        sleep 0.2
    done
    [ "$state" = " JobState=COMPLETED " ]
}
"""


SYSCALL = "import ctypes, os, sys; l = ctypes.CDLL(None, use_errno=True); "
# The kernel asks for the right before it checks what is asked for, so what is wrong otherwise was not refused.
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
# A job of their own, beside the one that runs: slurmd writes with the rights of the job's user.
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


@pytest.fixture(scope="module")
def world(cluster: Cluster, script: Script, root: Path, mpi: str, places: Places, tmp_path_factory: pytest.TempPathFactory) -> World:
    key = tmp_path_factory.mktemp("planted") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    return World(cluster, script, root, mpi, places, key)


def test_another_clusters_user_tries_what_works_where_it_is_open(world: World) -> None:
    """In a pod that has the jail, and with a key that is a user's. First of all, while sshd has nothing against that pod's address."""
    text = "echo came"
    assert planted.other_cluster(world.places, "worker")(text).split() == ["came"]
    with planted.with_a_key(world.places, world.cluster.key):
        assert planted.other_cluster(world.places)(text).split() == ["came"]
    assert planted.other_cluster(world.places)(text) == ""


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
                    f"cat >/disk/attempts.sh <<'END'\n{text}\nEND\nsrun --overlap --jobid={job} {runner} bash /disk/attempts.sh",
                    check=False,
                )
                found[place] = heard(said, every)
            for container in ("slurmd", "munged"):
                shown = [attempt for attempt in ATTEMPTS if attempt.shown == container]
                # munged is not root and could make none.
                own = "unshare -m" if container == "slurmd" else ""
                text = f"{own} bash -c {shlex.quote(tell(shown, JAIL='/mnt/jail', **words))}"
                found.setdefault(CONTROL, {}).update(heard(inside(cluster, WORKER[0], container, text), shown))
    finally:
        script(f"scancel {job}; rm -f /disk/attempts.sh")
    return found


def in_sessions(cluster: Cluster, script: Script, entry: str) -> dict[str, dict[str, bool]]:
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
        for place, runner in ((f"user in a session (`{entry}`)", ""), (f"root in a session (`{entry}`)", "sudo")):
            said = script(
                f"cat >/disk/attempts.sh <<'END'\n{tell(every, **words)}\nEND\n{runner} bash /disk/attempts.sh; rm /disk/attempts.sh",
                check=False,
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


@contextmanager
def unchanged(cluster: Cluster, script: Script, root: Path) -> Iterator[None]:
    """With what attempts look for; and nothing is otherwise than before, after them."""
    script("echo private >private; chmod 600 private", user="bob")
    # The first job on a node has its jail dressed anew, since there is something of others to hide then; and the mounts are compared.
    script("srun -w one-0 true")
    before = state(cluster, root)
    # As an administrator of the volume could; in the jail nobody can make one.
    os.mknod(root / "wall-zero", 0o20666, os.makedev(1, 5))
    os.chmod(root / "wall-zero", 0o666)
    try:
        with keys(cluster):
            yield
    finally:
        (root / "wall-zero").unlink()
        assert state(cluster, root) == before


@pytest.fixture(scope="module")
def tried(cluster: Cluster, script: Script, root: Path) -> Table:
    """Place → what → whether it worked."""
    enter_by(cluster, "Chroot")
    with unchanged(cluster, script, root):
        return in_jobs(cluster, script) | in_sessions(cluster, script, "Chroot")


@pytest.fixture(scope="module")
def found(tried: Table, pivot: World) -> Table:
    """By either way into sessions."""
    with unchanged(pivot.cluster, pivot.script, pivot.root):
        seen = tried | in_sessions(pivot.cluster, pivot.script, "Pivot")
    return {**{place: results for place, results in seen.items() if place != CONTROL}, CONTROL: seen[CONTROL]}


def test_nothing_leads_out(found: dict[str, dict[str, bool]]) -> None:
    own = {attempt.what for attempt in ATTEMPTS if attempt.roots_own}
    out = [
        f"{what} ({place})"
        for place, results in found.items()
        for what, worked in results.items()
        if worked and place != CONTROL and not (what in own and "root" in place)
    ]
    assert out == []


def test_without_the_jail_the_attempts_succeed(found: dict[str, dict[str, bool]]) -> None:
    assert [what for what, worked in found[CONTROL].items() if not worked] == []


@dataclass
class Seen:
    """Of what is planted. ``controls``: what the pod's own root does by it."""

    libraries: Reach
    links: Reach
    pipes: Reach
    controls: dict[str, bool]


@pytest.fixture(scope="module")
def by_chroot(cluster: Cluster, world: World) -> Seen:
    """And on a worker, where that is the same for both."""
    enter_by(cluster, "Chroot")
    links, by_links = planted.links(world)
    libraries = planted.libraries(world)
    pipes, by_pipes = planted.pipes(world)
    return Seen(libraries, links, pipes, by_links | by_pipes)


@pytest.fixture(scope="module")
def moved(world: World) -> Reach:
    return planted.beside_steps(world)


@pytest.fixture(scope="module")
def pivot(world: World, tried: Table, by_chroot: Seen) -> World:
    """Sessions come by it, after all that is tried before."""
    assert tried and by_chroot.libraries
    enter_by(world.cluster, "Pivot")
    return world


@pytest.fixture(scope="module")
def seen(by_chroot: Seen, pivot: World) -> Seen:
    links = planted.links(pivot, worker=False)[0]
    libraries = planted.libraries_at_login(pivot)
    return Seen(together(by_chroot.libraries, libraries), together(by_chroot.links, links), by_chroot.pipes, by_chroot.controls)


def test_daemons_load_nothing_of_the_jail(seen: Seen) -> None:
    assert planted.too_far(seen.libraries) == []
    assert planted.refusals(seen.libraries) == planted.refused_to(planted.LIBRARIES_PLANTED)
    # Those for whom it is meant do.
    assert [(what, role) for what, by in seen.libraries.items() for role, who in by.items() if who is not None and USERS not in who] == []


def test_links_lead_no_daemon_to_a_file_of_the_pod(seen: Seen) -> None:
    assert planted.too_far(seen.links) == []
    assert planted.refusals(seen.links) == planted.refused_to((*planted.LINKS, *planted.LINKS_OF_KEYS, *planted.LINKS_OF_NAMES))


def test_pipes_hold_up_no_daemon(seen: Seen) -> None:
    assert planted.too_far(seen.pipes) == []
    assert planted.refusals(seen.pipes) == planted.refused_to(planted.PIPES)
    assert seen.pipes[planted.PIPES_OF_STEPS[-1].what][SUDO] == frozenset({USERS})


def test_the_pods_own_root_follows_links_and_waits_for_pipes(seen: Seen) -> None:
    assert set(seen.controls) == set(seen.links) | set(seen.pipes)
    assert [what for what, worked in seen.controls.items() if not worked] == []


def test_what_is_done_beside_a_step_reaches_its_user_alone(moved: Reach, mpi: str) -> None:
    assert planted.too_far(moved) == []
    assert planted.refusals(moved) == planted.refused_to(planted.DONE if mpi == "pmix" else planted.DONE[:-1])
    assert {what for what, by in moved.items() if not by[SUDO]} == {planted.POINT.what}


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


def reach(first: str, found: Reach, controls: dict[str, bool] | None = None, word: str = "") -> list[str]:
    """Columns are those who plant, cells whom it reaches. ``word``: for what the pod's own root does by it, in a column of its own."""
    head = [first, *ROLES, *([CONTROL] if controls else [])]
    cells = {what: ["refused" if who is None else ", ".join(sorted(who)) or "nobody" for who in by.values()] for what, by in found.items()}
    if controls:
        cells = {what: [*row, word if controls[what] else "–"] for what, row in cells.items()}
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {what} | {' | '.join(row)} |" for what, row in cells.items())]


def page(found: Table, seen: Seen, moved: Reach, beyond: Table) -> str:
    return "\n".join(
        [
            "# Isolation of the jail",
            "",
            "`tests/integration/jail/test_isolation.py` tries all of this on a cluster and writes this page. Root",
            "is a user with `sudo: true`. As root of the jail they own all files there, and see all processes and",
            "the names of the pod's mounts, but nothing beyond.",
            "",
            "The last column has no jail: the same command must succeed in the worker's own containers, which",
            "proves that the attempt can work at all. A dash means that it was not tried there, because it would",
            "do harm or because the container has no right to it either.",
            "",
            *table("attempt", found, [attempt.what for attempt in ATTEMPTS], ("refused", "possible")),
            "",
            "## Files planted in the jail",
            "",
            "Each file is planted by a user, by a user with `sudo`, who is root of the jail, and by another",
            "cluster's user, who has the rights of root in that cluster's pods and can connect to the login",
            "node. `refused` means that it cannot be put there. Other cells name who was affected: nobody, users'",
            "programs, or programs of root in the jail, but no daemon.",
            "",
            "Libraries, by who loaded them. No program that loaded one had a capability that leads out of the",
            "jail. Sessions used `entry: Chroot` and `Pivot`.",
            "",
            *reach("planted", seen.libraries),
            "",
            "Links to a file of the pod that only its root can use, by who read or wrote it, knows a name from",
            "it, or accepts a key from it. Sessions used both entries. The last column is the pod's own root, who",
            "follows the links by the jail's path.",
            "",
            *reach("planted", seen.links, seen.controls, "followed"),
            "",
            "Pipes that nobody writes to, by who waits for them while sessions and a step start, names are looked",
            "up, and a health check runs.",
            "",
            *reach("planted", seen.pipes, seen.controls, "waits"),
            "",
            "Files planted during a step or a health check, by who sees or runs them:",
            "",
            *reach("done", moved),
            "",
            "## Attempts from another cluster",
            "",
            "By root of its pods, who has more rights than its users and root of its jail. Kubernetes and the",
            "NetworkPolicies keep it out.",
            "",
            *table("attempt", beyond, list(beyond[CONTROL]), ("refused", "possible")),
            "",
        ]
    )


def test_the_page_has_what_was_observed(found: Table, seen: Seen, moved: Reach, beyond: Table) -> None:
    said = page(found, seen, moved, beyond)
    if os.environ.get("CORRAL_WRITE_DOCS"):
        PAGE.write_text(said)
    assert PAGE.read_text() == said, "docs/isolation.md is stale: run the test with CORRAL_WRITE_DOCS=1"
