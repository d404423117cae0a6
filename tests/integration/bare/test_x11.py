# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""srun --x11: a program in the jail is welcomed by the display of who started it, with the cookie that Slurm gave it.

proctrack/pgid stands for proctrack/cgroup, which not every machine that runs these tests has; slurmctld refuses X11 with linuxproc alone.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from .hosts import CONTROLLER, ENVIRONMENT, NODES, PLUGIN, Cluster, cluster, eventually

LINES = "ProctrackType=proctrack/pgid\nPrologFlags=Contain,X11\n"
DISPLAY = 77
COOKIE = "0123456789abcdef0123456789abcdef"

# The first words of an X server: it takes a client that brings the cookie, and says so by the version that it speaks.
SERVER = f"""
import socket, struct
door = socket.create_server(("127.0.0.1", {6000 + DISPLAY}))
print("open", flush=True)
while True:
    client, _ = door.accept()
    asked = client.recv(12, socket.MSG_WAITALL)
    if len(asked) == 12:
        name, data = struct.unpack("<HH", asked[6:10])
        words = client.recv(-name % 4 + name + -data % 4 + data, socket.MSG_WAITALL)
        welcome = words[:name] == b"MIT-MAGIC-COOKIE-1" and words[-data:].hex() == "{COOKIE}"
        client.sendall(struct.pack("<BBHHH", welcome, 0, 11, 0, 0))
        client.recv(1)  # as a display does it, the client ends it: Slurm's tunnel may lose what comes with the end
    client.close()
"""

CLIENT = """
import os, socket, struct, subprocess
host, number = os.environ["DISPLAY"].split(".")[0].split(":")
cookie = bytes.fromhex(subprocess.run(["xauth", "list", os.environ["DISPLAY"]], capture_output=True, text=True, check=True).stdout.split()[2])
name = b"MIT-MAGIC-COOKIE-1"
server = socket.create_connection((host, 6000 + int(number)))
server.sendall(struct.pack("<2sHHHHH", b"l", 11, 0, len(name), len(cookie), 0) + name + b"\\0\\0" + cookie)
print({b"\\1": "welcome", b"\\0": "refused"}.get(server.recv(1), "cut off"), os.path.exists("/etc/corral-jail"), os.environ["SLURMD_NODENAME"])
"""


@pytest.fixture(scope="module")
def desk() -> Iterator[Cluster]:
    """A cluster, and a display at its head with a cookie of ada's."""
    with cluster(dict.fromkeys((CONTROLLER, *NODES), PLUGIN), LINES) as made:
        made.head.write("/mnt/jail/srv/client.py", CLIENT)
        made.head.sh(f"touch /tmp/cookies; xauth -f /tmp/cookies add localhost:{DISPLAY} MIT-MAGIC-COOKIE-1 {COOKIE}", user="ada")
        command = made.head.enter("python3", "-c", SERVER)
        with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout and server.stdout.readline() == "open\n"
            yield made
            server.kill()


def ask(desk: Cluster, options: str, cookies: str = "/tmp/cookies") -> str:
    script = f"export DISPLAY=localhost:{DISPLAY} XAUTHORITY={cookies}; srun -Q {options} python3 /srv/client.py"
    return desk.head.sh(script, user="ada", check=False)


def test_a_program_in_the_jail_reaches_the_display(desk: Cluster) -> None:
    assert ask(desk, "--x11 -w n1") == "welcome True n1"


def test_on_all_nodes(desk: Cluster) -> None:
    assert sorted(ask(desk, "--x11=all -N2").splitlines()) == ["welcome True n1", "welcome True n2"]


def test_a_wrong_cookie_is_refused_by_the_display(desk: Cluster) -> None:
    """Else the tests above would not tell that the cookie was brought."""
    wrong = COOKIE[::-1]
    desk.head.sh(f"touch /tmp/wrong; xauth -f /tmp/wrong add localhost:{DISPLAY} MIT-MAGIC-COOKIE-1 {wrong}", user="ada")
    assert ask(desk, "--x11 -w n1", "/tmp/wrong") == "refused True n1"


def test_nothing_is_left(desk: Cluster) -> None:
    eventually(lambda: desk.states() == ["idle"], "the nodes are idle")
    for node in NODES:
        assert "Xauthority" not in desk.machines[node].sh("ls -A /tmp /mnt/jail/tmp /mnt/jail/home/ada")
