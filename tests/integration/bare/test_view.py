# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurmstepd's own root, while root on another machine moves the jail's directories, as a user with sudo can from wherever the jail is; and what processes with
capabilities, or with a daemon's identity, touch in the jail at all: nothing that is not explained here."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..watch import ASK_IN_JAIL, ASKED, OF_STEPS, Explained, Watch, unexplained
from .hosts import JAIL, NODES, Cluster
from .images import REPOSITORY

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
# A library of root of the jail: whoever loads it says so, and with which capabilities.
EVIL = """
#define _GNU_SOURCE
#include <stdio.h>
__attribute__((constructor)) static void ran(void)
{
    char line[256];
    FILE *status = fopen("/proc/self/status", "re");
    FILE *log = fopen("/planted", "ae");
    while (status && log && fgets(line, sizeof(line), status))
        if (sscanf(line, "CapEff: %*x") == 0 && line[0] == 'C' && line[3] == 'E')
            fputs(line, log);
    if (log)
        fclose(log);
}
"""
# /usr and a directory of links to what it has change places, some hundred times a second.
EXCHANGE = f"""
import ctypes, os, sys, time
kernel = ctypes.CDLL(None, use_errno=True)
while os.path.exists("/run/exchange"):
    if kernel.syscall(316, -100, b"{JAIL}/planted-usr", -100, b"{JAIL}/usr", 2) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    print("exchanged", flush=True)
    time.sleep(0.003)
"""
STEPS = 6


@contextmanager
def exchanged(bare: Cluster, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "evil.c").write_text(EVIL)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(tmp_path / "evil.so"), str(tmp_path / "evil.c")], check=True)
    home = f"/proc/{bare.head.pid}/root"
    Path(f"{home}{JAIL}/evil.so").write_bytes((tmp_path / "evil.so").read_bytes())
    bare.head.write("/run/exchange", "")
    bare.head.sh(
        f"mkdir -p {JAIL}/planted-usr {JAIL}{LIBRARIES}/hwloc; cp {JAIL}/evil.so {JAIL}{LIBRARIES}/hwloc/hwloc_evil.so; : >{JAIL}/planted; "
        f"chmod 666 {JAIL}/planted; for name in {JAIL}/usr/*; do ln -s /planted-usr/$(basename $name) {JAIL}/planted-usr/; done; "
        f"mv {JAIL}/etc/localtime {JAIL}/etc/localtime.saved; mkfifo {JAIL}/etc/localtime"
    )
    exchange = subprocess.Popen(bare.head.enter("python3", "-c", EXCHANGE), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert exchange.stdout and exchange.stdout.readline() == "exchanged\n"
        yield exchange
    finally:
        bare.head.sh("rm -f /run/exchange")
        exchange.communicate(timeout=20)
        bare.head.sh(
            f"if test -L {JAIL}/usr/bin; then mv {JAIL}/usr {JAIL}/links; mv {JAIL}/planted-usr {JAIL}/usr; mv {JAIL}/links {JAIL}/planted-usr; fi; "
            f"rm -r {JAIL}/planted-usr {JAIL}{LIBRARIES}/hwloc/hwloc_evil.so {JAIL}/evil.so; mv {JAIL}/etc/localtime.saved {JAIL}/etc/localtime"
        )


def test_what_is_renamed_and_planted_meanwhile_reaches_no_slurmstepd(bare: Cluster, tmp_path: Path) -> None:
    with exchanged(bare, tmp_path) as exchange:
        # The client is on the machine, whose time zone is not the jail's.
        said = bare.head.sh(
            f"for i in $(seq {STEPS}); do timeout 30 srun -Q -N2 sh -c 'echo ran; test -e /etc/corral-jail' || echo failed; done",
            user="ada",
        )
        assert exchange.poll() is None
        assert said.split() == ["ran"] * STEPS * 2
        loaded = [int(line.split()[1], 16) for line in bare.head.read(f"{JAIL}/planted").splitlines()]
    bare.head.sh(f"rm {JAIL}/planted")
    assert [capabilities for capabilities in loaded if capabilities & 1 << 21] == []


EXPLAINED = (
    Explained(
        "slurmctld-wlm|slurmd-wlm|slurmd",
        "pod",
        "open",
        "/etc/(passwd|group)",
        "users' names, by nss_corral.c: a plain file, by descriptor, without waiting, and none with an id or a name of the pod's own",
    ),
    Explained(
        "jail-exec",
        "jail",
        "open|exec",
        "/usr/bin/true|/usr/lib/.*/ld-linux.*",
        "the command that the administrator names: the kernel opens it, and it gets no capability that leads out",
    ),
    Explained("setpriv", "pod", "open", "/etc/(passwd|group)", "this test's own way to be a user"),
)


def test_who_has_rights_touches_nothing_that_is_not_explained(bare: Cluster) -> None:
    with Watch(Path(f"/proc/{bare.head.pid}/root{JAIL}")) as watch:
        bare.head.sh(
            "srun -Q -N2 --task-epilog=/usr/bin/true true; srun -Q --mpi=pmi2 true; srun -Q --jail-ro true; srun -Q --jail=old true\n"
            "sbatch -Q --wait -D /home/ada -o t.txt --wrap 'srun -Q true'",
            user="ada",
        )
        # As a health check does.
        bare.machines["n1"].sh(f"/opt/corral/bin/jail-exec jail={JAIL} -- /bin/true")
        bare.machines["n1"].run("python3", "-c", ASK_IN_JAIL)
    assert [touch for touch in watch.touched if ASKED.covers(touch)], "it does not see connections"
    assert unexplained(watch.touched, (*OF_STEPS, *EXPLAINED, ASKED)) == []


def test_a_jobs_input_is_no_directory_and_no_file_of_the_machines(bare: Cluster) -> None:
    """slurmstepd opens it, and its task has it open: ".." leads out of any root, and who is root in the jail writes what was opened for reading."""
    kept = "/var/spool/slurmd/kept"
    for node in NODES:
        bare.machines[node].write(kept, "kept\n")
    wrong = dict.fromkeys(("/", "/tmp", "/home/ada", "/proc/self/root"), "a directory") | {kept: "a file outside of the jail"}
    for path in (*wrong, "/home/ada/in"):
        bare.head.write(f"{JAIL}/home/ada/in", "ran\n", 0o644)
        said = bare.head.sh(
            f"sbatch -Q --wait -D /home/ada -i {path} -o said --wrap 'cat; echo ended' || true; cat {JAIL}/home/ada/said; rm {JAIL}/home/ada/said",
            user="ada",
        )
        if path in wrong:
            assert f"standard input is {wrong[path]}" in said and "ended" not in said, said
        else:
            assert said == "ran\nended"
    assert set(bare.states()) == {"idle"}


def test_sbcast_gives_nobody_a_device_once_a_worker_has_closed_them(bare: Cluster) -> None:
    """By slurmd.sh's own lines, on one of the two machines. Terminals and other devices are there for steps as ever."""
    closes = re.search(r"(?ms)^close_devices\(\) \{.*?^\}", (REPOSITORY / "images" / "slurm" / "entry" / "slurmd.sh").read_text())
    assert closes
    for node in NODES:
        bare.machines[node].sh("mknod -m 0666 /dev/nothing c 1 3")
    closed = bare.machines[NODES[0]]
    closed.run("bash", "-euc", f"{closes[0]}\nclose_devices")
    try:
        bare.head.sh("salloc -Q -N2 sh -c 'sbcast -f /etc/passwd /dev/nothing || true'", user="ada")
        assert [bare.machines[node].sh("stat -c %a:%u /dev/nothing") for node in NODES] == ["666:0", "644:10001"]
        said = bare.head.sh(
            f"script -qec 'srun -w {closed.name} --pty sh -c \"tty; echo written >/dev/null && echo ended\"' /dev/null", user="ada"
        )
        # Somewhere in it is the end of script's own input, which the terminal shows as ^@.
        assert "/dev/pts/" in said and "ended" in said.replace("^@", "").splitlines(), said
    finally:
        closed.sh("mount -o remount,bind,rw /dev; umount /dev/pts/ptmx")
        for node in NODES:
            bare.machines[node].sh("rm /dev/nothing")


def test_no_step_has_the_kernels_keys(bare: Cluster) -> None:
    """They would be those of its uid on the whole machine."""
    add = "import ctypes; l = ctypes.CDLL(None, use_errno=True); print(l.syscall(248, b'user', b'corral-test', b'x', 1, -4), ctypes.get_errno())"
    for user in ("ada", None):
        assert bare.head.sh(f"srun -Q -w {NODES[0]} python3 -c {shlex.quote(add)}", user=user) == "-1 38"


def test_a_pipe_in_the_place_of_users_names_keeps_nobody_waiting(bare: Cluster) -> None:
    """As root in the jail would put it there: Slurm's daemons, whose look-ups these are, go on, and know nobody from there until it is gone."""
    names = ("passwd", "group")
    bare.head.sh("".join(f"mv {JAIL}/etc/{name} {JAIL}/etc/{name}.saved; mkfifo {JAIL}/etc/{name}; " for name in names))
    try:
        for machine in bare.machines.values():
            assert machine.run("timeout", "5", "getent", "passwd", "ada", check=False).returncode == 2
            assert machine.run("timeout", "5", "id", "ada", check=False).returncode == 1
        # Steps of root, who is in no file of the jail; slurmctld, slurmd and slurmstepd look users up for them, too.
        assert bare.head.sh("timeout 20 srun -Q -N2 echo ran; timeout 5 squeue -h; timeout 5 scontrol ping").startswith("ran\nran\n")
    finally:
        bare.head.sh("".join(f"rm {JAIL}/etc/{name}; mv {JAIL}/etc/{name}.saved {JAIL}/etc/{name}; " for name in names))
    assert bare.head.sh("srun -Q id -un", user="ada") == "ada"


def test_accounts_that_root_of_the_jail_adds_are_nobody(bare: Cluster) -> None:
    """Other names for root, for Slurm's account and for -1, which setresuid takes for "leave it"."""
    accounts = {"toor": 0, "slurms": 64030, "keys": 64032, "least": 4294967295, "slurm": 10001}
    lines = "".join(f"{name}:x:{uid}:{uid}::/home/ada:/bin/sh\\n" for name, uid in accounts.items())
    bare.head.sh(f"cp -a {JAIL}/etc/passwd {JAIL}/etc/passwd.saved; sed -i '1i {lines[:-2]}' {JAIL}/etc/passwd")
    try:
        assert [bare.head.run("getent", "passwd", name, check=False).stdout for name in accounts if name != "slurm"] == [""] * 4
        assert bare.head.sh("getent passwd slurm").split(":")[2] == "64030"
        assert "slurm" not in bare.head.sh("getent passwd 10001 || true")
    finally:
        bare.head.sh(f"mv {JAIL}/etc/passwd.saved {JAIL}/etc/passwd")
