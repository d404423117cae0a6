# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a login node does before and around its users' sessions, and what an administrator does in one of them for all nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ..conftest import Cluster, eventually
from .conftest import Script, submit

pytestmark = pytest.mark.lab


def in_pod(cluster: Cluster, command: str) -> str:
    return cluster.kubectl("exec", "-n", cluster.namespace, f"{cluster.name}-login-0", "-c", "sshd", "--", "bash", "-c", command)


def test_who_comes_with_a_terminal_is_told_the_jails_words(cluster: Cluster) -> None:
    assert "Welcome to the jail." in cluster.ssh("", "-tt", stdin="exit\n", check=False).stdout.replace("\r", "").splitlines()
    assert cluster.ssh("cat /etc/motd").stdout == "Welcome to the jail.\n", "and a command's output has none of it"


def test_what_one_user_can_have(cluster: Cluster) -> None:
    """In a cgroup where the machine has version 2, by limits of processes elsewhere; either way it holds, and the others are not hit."""
    if in_pod(cluster, "stat -f -c %T /sys/fs/cgroup").strip() == "cgroup2fs":
        said = cluster.ssh("cat /proc/self/cgroup; cd /sys/fs/cgroup/user-$(id -u); cat memory.max cpu.max pids.max", user="bob")
        assert said.stdout.splitlines() == ["0::/user-10002", str(1 << 30), "200000 100000", "500"]
    else:
        assert cluster.ssh("ulimit -Hd; ulimit -Hu; ulimit -Sd; ulimit -Su", user="bob").stdout.split() == [str(1 << 20), "500"] * 2
    memory = (
        "import mmap; x = mmap.mmap(-1, 1200 << 20, flags=mmap.MAP_PRIVATE)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('had it')"
    )
    assert "had it" not in cluster.ssh("python3 -", user="bob", stdin=memory, check=False).stdout
    processes = """
import os, signal
made = []
try:
    while len(made) < 700:
        child = os.fork()
        if child == 0:
            signal.pause()
        made.append(child)
except OSError as error:
    print(len(made), error.errno)
for child in made:
    os.kill(child, signal.SIGKILL)
"""
    made, error = cluster.ssh("python3 -", user="bob", stdin=processes).stdout.split()
    assert int(made) < 500 and error == "11"
    assert cluster.ssh("echo welcome").stdout == "welcome\n"


def test_who_came_by_useradd_goes_on_to_a_worker(script: Script, cluster: Cluster) -> None:
    script(
        "sudo useradd -m -u 10778 -s /bin/bash visitor; home=$(getent passwd visitor | cut -d: -f6)\n"
        "sudo install -d -o visitor -g visitor -m 700 $home/.ssh; sudo install -o visitor -m 600 .ssh/authorized_keys $home/.ssh/"
    )
    try:
        assert cluster.ssh("stat -c '%U %a %n' .ssh/corral*", user="visitor").stdout.splitlines() == [
            "visitor 600 .ssh/corral",
            "visitor 644 .ssh/corral.pub",
        ]
        before = cluster.ssh("cat .ssh/corral.pub", user="visitor").stdout
        submit(script, "-w one-0", user="visitor")
        assert "jail-one-0" in script("ssh one-0 hostname", user="visitor")
        assert "no active jobs" in script("ssh two-0 true", user="visitor", check=False)
        assert cluster.ssh("cat .ssh/corral.pub", user="visitor").stdout == before, "made once"
        log = cluster.kubectl("logs", "-n", cluster.namespace, f"{cluster.name}-login-0", "-c", "sshd")
        assert log.count("first_login: made /home/visitor/.ssh/corral for visitor") == 1, log
    finally:
        script("scancel -u visitor || true; sudo pkill -u visitor || true; sudo userdel -rf visitor 2>/dev/null || true")


def test_a_packages_library_is_found_on_all_nodes_at_once(script: Script) -> None:
    """The cache of libraries is the jail's, so one ldconfig is enough for all; a step that runs already finds it too."""
    script(
        "mkdir -p l/DEBIAN l/opt/corral-test/lib l/etc/ld.so.conf.d && echo 'int answer(void) { return 42; }' >l.c\n"
        "echo 'import ctypes; print(ctypes.CDLL(\"libcorral-test.so.1\").answer())' >look.py\n"
        "gcc -shared -Wl,-soname,libcorral-test.so.1 -o l/opt/corral-test/lib/libcorral-test.so.1 l.c\n"
        "echo /opt/corral-test/lib >l/etc/ld.so.conf.d/corral-test.conf\n"
        "printf '#!/bin/sh\\nldconfig\\n' >l/DEBIAN/postinst; cp l/DEBIAN/postinst l/DEBIAN/postrm; chmod 755 l/DEBIAN/post*\n"
        "printf 'Package: corral-test-lib\\nVersion: 1\\nArchitecture: amd64\\nMaintainer: nobody <n@example.com>\\nDescription: test\\n' >l/DEBIAN/control\n"
        "dpkg-deb -b l l.deb >/dev/null 2>&1"
    )
    try:
        waiting = submit(script, "-w two-0 --mem=64 -o waited.txt", command="until test -e go; do sleep 0.2; done; python3 look.py")
        assert "42" not in script("srun -N2 --mem=64 python3 look.py", check=False)
        script("sudo dpkg -i l.deb >/dev/null")
        assert script("srun -N2 --mem=64 python3 look.py").split() == ["42", "42"]
        script("touch go")
        eventually(lambda: script(f"squeue -h -j {waiting} -o %T || true") == "", "the job that waited to end")
        assert script("cat waited.txt") == "42"
    finally:
        script("touch go; sudo dpkg -P corral-test-lib >/dev/null 2>&1 || true; rm -rf l l.c l.deb go waited.txt")
    assert "42" not in script("srun -N2 python3 look.py; rm look.py", check=False)


def test_scripts_have_run_before_sshd(cluster: Cluster) -> None:
    assert '"version": 1' in in_pod(cluster, "cat /run/marked")


@pytest.fixture
def failing(cluster: Cluster) -> Iterator[None]:
    """A script that fails, until the test ends."""
    before = cluster.spec["login"]["initScripts"]
    cluster.spec["login"]["initScripts"] = [*before, {"name": "disk", "script": "#!/bin/sh\necho the disk is gone\nexit 7\n"}]
    yield
    cluster.spec["login"]["initScripts"] = before
    run = cluster.site("--tags", "slurm_login")
    assert run.rc == 0, run.output
    eventually(lambda: cluster.ssh("true", check=False).returncode == 0, "sessions again")


@pytest.mark.usefixtures("failing")
def test_a_script_that_fails_keeps_sshd_from_starting_and_is_the_runs_reason(cluster: Cluster) -> None:
    run = cluster.site("--tags", "slurm_login")
    assert run.rc != 0
    assert re.search(r"login\.sh: init script disk ended with status 7: the disk is gone", run.output), run.output
    assert cluster.ssh("true", check=False).returncode == 255
