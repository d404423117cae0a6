# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines of a classic Slurm cluster, without Kubernetes and without containers: each is a root directory in namespaces of its own.

All of them live in one network, mount and process namespace, whose first process reads a pipe of ours: when this process ends, however it
does, the kernel ends all others and takes the mounts away with them. What the machines write is kept in memory.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import images

ADDRESS = "192.0.2.1"
JAIL = "/mnt/jail"
OLD_JAIL = "/mnt/old"
SPANK = "/opt/corral/lib/corral/spank_corral_jail.so"
PLUGIN = f"required {SPANK} jail={JAIL} jail.old={OLD_JAIL} no-jail=10002 wait=2"
CONTROLLER = "head"
# Nodes with the plugin, and one of the same kind without, to compare with.
NODES = ("n1", "n2")
PLAIN = "plain"
USERS = {"ada": 10001, "bob": 10002}

SLURM_CONF = f"""\
ClusterName=bare
SlurmctldHost={CONTROLLER}({ADDRESS})
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
PluginDir=/opt/corral/lib/slurm
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/var/spool/slurmctld/slurmctld.pid
SlurmdPidFile=/var/spool/slurmd/slurmd.pid
SlurmctldLogFile=/var/spool/slurmctld/slurmctld.log
SlurmdLogFile=/var/spool/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
PropagateResourceLimits=NONE
MailProg=/bin/true
"""

# A machine's first process: finds its root, forgets the one that it came from, and waits for the end of its input. What it starts with is
# the caller's /proc, so the number that it tells is the one by which the caller knows it.
BOOT = """
set -eu
read -r pid rest </proc/self/stat
mkdir -p "$scratch/$name/upper" "$scratch/$name/work" "$scratch/$name/root"
root=$scratch/$name/root
mount -t overlay "$name" -o "lowerdir=$lower,upperdir=$scratch/$name/upper,workdir=$scratch/$name/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=0755 dev "$root/dev"
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm" "$root/mnt/old" "$root/run/before"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount --bind "$scratch/jail" "$root/mnt/jail"
mount --bind "$scratch/old" "$root/mnt/old"
hostname "$name"
cd "$root"
pivot_root . run/before
cd /
umount -l /run/before
rmdir /run/before
printf '%s\\n' "$pid"
exec /usr/bin/tini -s -- cat
"""

# The two jails are the same directory for all machines, as a file server's would be.
WORLD = """
set -eu
read -r pid rest </proc/self/stat
ip link set lo up
# Slurm asks for addresses as AI_ADDRCONFIG gives them: 127.0.0.1 alone counts for none.
ip address add "$address/32" dev lo
mount -t tmpfs -o mode=0755 bare "$scratch"
for jail in jail old; do
    eval "lower=\\$lower_$jail"
    mkdir -p "$scratch/$jail" "$scratch/$jail.upper" "$scratch/$jail.work"
    mount -t overlay "$jail" -o "lowerdir=$lower,upperdir=$scratch/$jail.upper,workdir=$scratch/$jail.work,redirect_dir=on" "$scratch/$jail"
done
printf '%s\\n' "$pid"
exec cat
"""


class MachineError(Exception):
    """Something that the machines need does not come to be; the text says what was seen."""


@dataclass
class Machine:
    """One machine, by the number of its first process."""

    name: str
    pid: int

    def enter(self, *command: str, user: str | None = None, directory: str = "/") -> list[str]:
        """The command line that runs a command on this machine, as root unless told."""
        identity = [] if user is None else ["setpriv", f"--reuid={USERS[user]}", f"--regid={USERS[user]}", "--clear-groups", "--"]
        namespaces = ["nsenter", f"--target={self.pid}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        return [*namespaces, "--", "env", f"--chdir={directory}", *identity, *command]

    def run(
        self, *command: str, user: str | None = None, directory: str = "/", check: bool = True, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.enter(*command, user=user, directory=directory), env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise MachineError(f"{self.name}: '{shlex.join(command)}' ended {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def sh(self, script: str, *, user: str | None = None, check: bool = True) -> str:
        """What a script prints, of both streams."""
        return self.run("sh", "-ec", f"exec 2>&1\n{script}", user=user, check=check).stdout.strip()

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        script = f'mkdir -p "$(dirname {path})"; cat >{path}; chmod {mode:o} {path}'
        subprocess.run(self.enter("sh", "-ec", script), env=ENVIRONMENT, input=text, text=True, check=True)

    def read(self, path: str) -> str:
        return self.run("cat", path).stdout


ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/"}


def eventually(condition: Callable[[], bool], what: str, timeout: float = 60, seen: Callable[[], str] = str) -> None:
    """Wait for a condition. ``seen``: what to show where it does not come."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise MachineError(f"not within {timeout:.0f} s: {what}; {seen()}")
        time.sleep(0.1)


def _first_process(command: Sequence[str], script: str, words: Mapping[str, str]) -> tuple[subprocess.Popen[str], int]:
    """Start a namespace's first process; return what holds it and its number, once it says that it is ready."""
    process = subprocess.Popen(
        [*command, "sh", "-c", script], env={**ENVIRONMENT, **words}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    said = process.stdout.readline().strip()
    if not said.isdigit():
        process.wait()
        raise MachineError("a machine cannot be made: its reason stands above; root is needed, and a kernel with overlayfs")
    return process, int(said)


class Cluster:
    """A controller, two nodes whose jobs run in the jail, and one whose jobs do not."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.machines: dict[str, Machine] = {}
        self._processes: list[subprocess.Popen[str]] = []

    @property
    def head(self) -> Machine:
        return self.machines[CONTROLLER]

    def boot(self, jail: Path, old: Path) -> None:
        namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--propagation=private"]
        words = {"scratch": str(self.scratch), "address": ADDRESS, "lower_jail": str(jail), "lower_old": str(old)}
        world, pid = _first_process(["unshare", *namespaces, "--net"], WORLD, words)
        self._processes.append(world)
        inside = ["nsenter", f"--target={pid}", "--mount", "--net", "--pid", "--", "unshare", *namespaces, "--uts", "--ipc"]
        words["lower"] = str(images.machine_root())
        for name in (CONTROLLER, *NODES, PLAIN):
            process, pid = _first_process(inside, BOOT, {**words, "name": name})
            self._processes.append(process)
            self.machines[name] = Machine(name, pid)

    def stop(self) -> None:
        for process in reversed(self._processes):
            assert process.stdin and process.stdout
            process.stdin.close()
            process.wait()
            process.stdout.close()

    def add_users(self) -> None:
        """To both jails; the machines look users up there (nss_corral.c)."""
        lines = "".join(f"{name}:x:{uid}:{uid}::/home/{name}:/bin/bash\\n" for name, uid in USERS.items())
        groups = "".join(f"{name}:x:{uid}:\\n" for name, uid in USERS.items())
        shadow = "".join(f"{name}:*:20000:0:99999:7:::\\n" for name in USERS)
        homes = "".join(f"install -d -o {uid} -g {uid} $jail/home/{name}; " for name, uid in USERS.items())
        self.head.sh(
            f"for jail in {JAIL} {OLD_JAIL}; do printf '{lines}' >>$jail/etc/passwd; printf '{groups}' >>$jail/etc/group; "
            f"printf '{shadow}' >>$jail/etc/shadow; {homes} done; "
            f"""printf '{{"version": 1, "image": "old:1"}}\\n' >{OLD_JAIL}/etc/corral-jail"""
        )

    def configure(self, plugins: Mapping[str, str], lines: str = "", files: Mapping[str, str] | None = None) -> None:
        """Write the files of Slurm to each machine. ``plugins``: plugstack.conf of those that have one; ``lines``: more of slurm.conf."""
        ports = {name: 17000 + number for number, name in enumerate((*NODES, PLAIN))}
        nodes = "".join(f"NodeName={name} NodeAddr={ADDRESS} Port={port} CPUs=64 State=UNKNOWN\n" for name, port in ports.items())
        partitions = f"PartitionName=main Nodes={','.join(NODES)} Default=YES\nPartitionName=plain Nodes={PLAIN}\n"
        for machine in self.machines.values():
            machine.write("/etc/slurm/slurm.conf", SLURM_CONF + lines + nodes + partitions)
            for name, text in (files or {}).items():
                machine.write(f"/etc/slurm/{name}", text)
            machine.write("/etc/slurm/cgroup.conf", "CgroupPlugin=disabled\n")
            machine.write("/etc/slurm/plugstack.conf", plugins.get(machine.name, "") + "\n")
            machine.write("/etc/hosts", f"127.0.0.1 localhost\n{ADDRESS} {' '.join(self.machines)}\n")
            # Clients in the jail read what is here, by the link that populate.sh makes of the jail's /etc/slurm.
            machine.sh(f"mkdir -p /run/slurm && cp -r /etc/slurm /run/slurm/conf; echo {machine.name} >/run/corral-node")

    def start(self) -> None:
        """The daemons, as a machine's service manager would start them."""
        for machine in self.machines.values():
            machine.sh(
                "install -d -o munge -g munge -m 0700 /etc/munge /var/lib/munge /var/log/munge; install -d -o munge -g munge /run/munge; "
                "printf %040d 1 >/etc/munge/munge.key; chown munge: /etc/munge/munge.key; chmod 0400 /etc/munge/munge.key; "
                "setpriv --reuid=munge --regid=munge --clear-groups munged"
            )
        self.head.sh("setpriv --reuid=slurm --regid=slurm --clear-groups slurmctld")
        for name in (*NODES, PLAIN):
            self.machines[name].sh(f"slurmd -N {name} -d /opt/corral/sbin/slurmstepd")
        eventually(lambda: self.states() == ["idle"], "all nodes idle")

    def states(self) -> list[str]:
        return sorted({line.strip() for line in self.head.sh("sinfo -h -N -o %t", check=False).splitlines()})


@contextmanager
def cluster(
    plugins: Mapping[str, str], lines: str = "", files: Mapping[str, str] | None = None, roots: tuple[Path, Path] | None = None
) -> Iterator[Cluster]:
    """A cluster that runs, for as long as the context lasts. ``lines`` and ``files``: more of Slurm's configuration; ``roots``: those of its two
    jails, where they are not both the jail image's."""
    scratch = Path(tempfile.mkdtemp(prefix="corral-bare-"))
    made = Cluster(scratch)
    try:
        made.boot(*(roots or (images.jail_root(),) * 2))
        made.add_users()
        made.configure(plugins, lines, files)
        made.start()
        yield made
    finally:
        made.stop()
        scratch.rmdir()
