# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an administrator runs by jail-exec has a terminal of its own: it can neither type on theirs nor read from it."""

from __future__ import annotations

import os
import pathlib
import pty
import shutil
import subprocess

import pytest

SPANK = pathlib.Path(__file__).resolve().parents[3] / "files" / "spank"
MAIN = """
#include <unistd.h>
#include "terminal.h"
int main(int count, char **argument)
{
    return count < 2 || terminal_apart() != TERMINAL_HERE || execvp(argument[1], argument + 1) < 0 ? 99 : 0;
}
"""
pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("terminal")
    (directory / "main.c").write_text(MAIN)
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", f"-I{SPANK}"]
    subprocess.run(["gcc", *flags, "-o", directory / "apart", directory / "main.c", SPANK / "terminal.c"], check=True)
    return str(directory / "apart")


def on_a_terminal(*command: str) -> tuple[str, int]:
    """What a command shows on a terminal that it is the session leader of, and its status."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    shown = b""
    while True:
        try:
            text = os.read(terminal, 4096)
        except OSError:
            break
        shown += text
    os.close(terminal)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_terminal_is_another_and_the_status_the_commands(apart: str) -> None:
    script = f"tty; {apart} sh -c 'tty; exit 7'; echo status $?"
    shown, code = on_a_terminal("sh", "-c", script)
    outer, inner, status = shown.split("\r\n")[:3]
    assert code == 0 and status == "status 7", shown
    assert outer.startswith("/dev/pts/") and inner.startswith("/dev/pts/") and outer != inner, shown


def test_all_that_is_shown_comes_through(apart: str) -> None:
    shown, _code = on_a_terminal(apart, "seq", "20000")
    assert shown.split() == [str(number) for number in range(1, 20001)]


def test_a_controlling_terminal_is_no_way_either(apart: str) -> None:
    """None of the three is a terminal, and still /dev/tty would be the caller's."""
    look = "(exec 3</dev/tty) 2>/dev/null && echo reached || echo not reached"
    shown, _code = on_a_terminal("sh", "-c", f"{look}; {apart} sh -c '{look}' </dev/null 2>&1 | cat")
    assert shown.split("\r\n")[:2] == ["reached", "not reached"]


# Types on its standard input, as a program that wants its caller to run something would, and says which terminal that is.
TYPES = """
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>
int main(void)
{
    for (const char *key = "#typed\\n"; *key; key++)
        ioctl(0, TIOCSTI, key);
    return printf("%s\\n", ttyname(0)) < 0;
}
"""
# A pod with a jail that has this program alone.
POD = """
mount --make-rprivate /
mount -t tmpfs -o mode=0755 none /run; mkdir /run/munge /run/slurm
mount -t tmpfs -o mode=0755 none /opt; mkdir /opt/corral
mount -t tmpfs -o mode=0755 none /mnt
for name in proc sys dev run tmp usr etc opt/corral; do mkdir -p /mnt/jail/$name; done
echo {} >/mnt/jail/etc/corral-jail
cp $TYPES /mnt/jail/types
tty
exec $JAIL_EXEC jail=/mnt/jail spool=none tmp=jail shm=pod wait=0 -- /types
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts, so it needs root")
def test_what_jail_exec_runs_types_on_a_terminal_of_its_own(tmp_path: pathlib.Path) -> None:
    """The program as it is built, not terminal.c alone."""
    (tmp_path / "types.c").write_text(TYPES)
    subprocess.run(["gcc", "-static", "-o", tmp_path / "types", tmp_path / "types.c"], check=True)
    subprocess.run(["make", "-C", SPANK, f"BUILD={tmp_path}", tmp_path / "jail-exec"], check=True, capture_output=True)
    words = {"TYPES": str(tmp_path / "types"), "JAIL_EXEC": str(tmp_path / "jail-exec")}
    # What was typed on the outer terminal, this shell would read.
    script = 'unshare -m sh -ec "$POD"; read -t 0.5 typed; echo read: $typed'
    shown, _code = on_a_terminal("env", f"POD={POD}", *(f"{name}={value}" for name, value in words.items()), "bash", "-c", script)
    lines = [line for line in shown.split("\r\n") if not line.startswith("#")]
    assert len(lines) == 4 and lines[2:] == ["read:", ""], shown
    assert all(line.startswith("/dev/pts/") for line in lines[:2]) and lines[0] != lines[1], shown


def test_without_a_terminal_nothing_stands_between(apart: str) -> None:
    done = subprocess.run(
        [apart, "sh", "-c", "echo $PPID; kill -TERM $$"], capture_output=True, text=True, start_new_session=True, check=False
    )
    assert done.returncode == -15 and done.stdout.strip() == str(os.getpid())
