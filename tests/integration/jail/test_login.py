# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people do over ssh works on a login node, whichever way a session comes into the jail."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..conftest import Cluster
from .conftest import Script, enter_by

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("entry")]


class Client:
    """The OpenSSH programs of a user's own machine."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.host = f"alice@{cluster.kubectl.node_address()}"
        options = ["BatchMode=yes", "StrictHostKeyChecking=no", f"UserKnownHostsFile={cluster.directory}/known_hosts", "LogLevel=ERROR"]
        self.options = ["-i", str(cluster.key), *(word for option in options for word in ("-o", option))]
        self.directory = directory

    def run(self, *command: str, stdin: str | None = None) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, input=stdin, cwd=self.directory)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def forwarding(self, *flags: str) -> Iterator[None]:
        """Hold a connection with forwardings, as editors do."""
        command = ["ssh", *self.options, "-o", "ExitOnForwardFailure=yes", "-p", str(self.cluster.port), *flags, self.host, "echo up; cat"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.directory) as process:
            assert process.stdin and process.stdout
            assert process.stdout.readline() == "up\n"
            try:
                yield
            finally:
                process.stdin.close()


@pytest.fixture(scope="module", params=["Chroot", "Pivot"])
def entry(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """Both ways in; the module's tests run with each."""
    enter_by(cluster, request.param)
    return str(request.param)


@pytest.fixture
def client(cluster: Cluster, tmp_path: Path) -> Client:
    return Client(cluster, tmp_path)


def test_a_session_is_in_the_jail_with_a_terminal(client: Client) -> None:
    said = client.run(
        "ssh",
        *client.options,
        "-tt",
        "-p",
        str(client.cluster.port),
        client.host,
        "tty; test -f /etc/corral-jail && id -un; pwd; stty size >/dev/null && echo $?",
    )
    assert said.replace("\r", "").splitlines()[1:] == ["alice", "/home/alice", "0"]
    assert said.startswith("/dev/pts/")


def test_slurm_works_from_a_session(script: Script) -> None:
    assert script("sinfo -h -o %P; srun hostname").splitlines()[:2] == ["main*", "past"]


def test_files_come_and_go(client: Client) -> None:
    port, host = str(client.cluster.port), client.host
    (client.directory / "up.txt").write_text("payload\n")
    client.run("scp", *client.options, "-P", port, "up.txt", f"{host}:a.txt")
    client.run("scp", *client.options, "-O", "-P", port, "up.txt", f"{host}:b.txt")
    client.run("sftp", *client.options, "-P", port, "-b", "-", host, stdin="put up.txt c.txt\nget a.txt down.txt\n")
    client.run("rsync", "-e", f"ssh {' '.join(client.options)} -p {port}", "up.txt", f"{host}:d.txt")
    said = client.run("ssh", *client.options, "-p", port, host, "cat a.txt b.txt c.txt d.txt; rm a.txt b.txt c.txt d.txt")
    assert said == "payload\n" * 4
    assert (client.directory / "down.txt").read_text() == "payload\n"


SERVER = "import socket,sys\ns = {listen}\ns.listen()\nc = s.accept()[0]\nc.sendall(b'through')\nc.close()\n"


def ask(family: str, address: str) -> str:
    return f"import socket; s = socket.socket(socket.{family}); s.connect({address}); print(s.recv(9).decode())"


def test_ports_and_sockets_are_forwarded_both_ways(client: Client) -> None:
    """VS Code and JetBrains: a server in the session's background, reached by a local port and by a unix socket; and the other way round."""
    port, host = str(client.cluster.port), client.host
    ssh = ["ssh", *client.options, "-p", port, host]
    local = SERVER.format(listen="socket.create_server(('127.0.0.1', 40123))")
    client.run(*ssh, "cat >s.py; (python3 s.py >/dev/null 2>&1 </dev/null &) ; sleep 0.5", stdin=local)
    with client.forwarding("-L", "40124:127.0.0.1:40123"):
        assert client.run("python3", "-c", ask("AF_INET", "('127.0.0.1', 40124)")) == "through\n"
    unix = (
        "import os, socket\np = os.path.expanduser('~/s.sock')\ns = socket.socket(socket.AF_UNIX)\ns.bind(p)\n"
        + SERVER.format(listen="s").split("\n", 1)[1]
    )
    client.run(*ssh, "rm -f s.sock; cat >s.py; (python3 s.py >/dev/null 2>&1 </dev/null &) ; sleep 0.5", stdin=unix)
    with client.forwarding("-L", f"{client.directory}/local.sock:/home/alice/s.sock"):
        assert client.run("python3", "-c", ask("AF_UNIX", f"'{client.directory}/local.sock'")) == "through\n"
    (client.directory / "s.py").write_text(SERVER.format(listen="socket.create_server(('127.0.0.1', 40125))"))
    with subprocess.Popen(["python3", str(client.directory / "s.py")]), client.forwarding("-R", "40126:127.0.0.1:40125"):
        assert (
            client.run(
                *ssh,
                f'python3 -c "{ask("AF_INET", "(chr(49)+chr(50)+chr(55)+chr(46)+chr(48)+chr(46)+chr(48)+chr(46)+chr(49), 40126)")}"',
            )
            == "through\n"
        )
    client.run(*ssh, "rm -f s.py s.sock")


def test_an_editors_server_can_live_in_the_home(client: Client) -> None:
    """What VS Code's remote asks for: a writable and executable home, file locks, inotify, a process that outlives the session."""
    said = client.run(
        "ssh", *client.options, "-p", str(client.cluster.port), client.host,
        "mkdir -p .vscode-server && cd .vscode-server && printf '#!/bin/sh\\necho runs\\n' >s && chmod +x s && ./s"
        " && flock lock true && python3 -c 'import ctypes; print(ctypes.CDLL(None).inotify_init() >= 0)'"
        " && (setsid sleep 5 >/dev/null 2>&1 </dev/null & echo $! >pid)",
    )  # fmt: skip
    assert said.splitlines() == ["runs", "True"]
    assert (
        client.run(
            "ssh",
            *client.options,
            "-p",
            str(client.cluster.port),
            client.host,
            "kill $(cat .vscode-server/pid) && echo lives; rm -r .vscode-server",
        )
        == "lives\n"
    )


def test_sudo_is_root_in_the_jail_and_nowhere_else(script: Script) -> None:
    said = script(
        "sudo id -u; sudo test -f /etc/corral-jail && echo jail; sudo ls /proc/1/root/ 2>&1 || true; sudo chroot / true 2>&1", check=False
    )
    assert said.splitlines()[:2] == ["0", "jail"]
    assert "Permission denied" in said
    assert "Operation not permitted" in said


def test_a_second_chroot_leads_nowhere(script: Script) -> None:
    """The way out of a chroot: another one, with a directory kept open outside of it."""
    said = script(
        "sudo python3 -c '\nimport os\nos.makedirs(\"/tmp/c\", exist_ok=True)\nd = os.open(\"/\", os.O_RDONLY)\nos.chroot(\"/tmp/c\")\nos.fchdir(d)\n"
        "[os.chdir(\"..\") for i in range(20)]\nos.chroot(\".\")\nprint(os.path.exists(\"/usr/sbin/sshd\"), os.listdir(\"/\"))' 2>&1", check=False,
    )  # fmt: skip
    assert "Operation not permitted" in said


def test_what_is_installed_in_one_session_is_everywhere_at_once(script: Script) -> None:
    said = script(
        "mkdir -p p/DEBIAN p/usr/bin && printf '#!/bin/sh\\necho installed\\n' >p/usr/bin/corral-test && chmod 755 p/usr/bin/corral-test\n"
        "printf 'Package: corral-test\\nVersion: 1\\nArchitecture: all\\nMaintainer: nobody <n@example.com>\\nDescription: test\\n' >p/DEBIAN/control\n"
        "dpkg-deb -b p p.deb >/dev/null 2>&1 && sudo dpkg -i p.deb >/dev/null && sudo useradd -u 10777 -m guest\n"
        "srun -N2 sh -c 'corral-test; id -un 10777; ls -d /home/guest'; sudo dpkg -P corral-test >/dev/null; sudo userdel -r guest 2>/dev/null; rm -r p p.deb"
    )
    assert sorted(said.splitlines()) == ["/home/guest"] * 2 + ["guest"] * 2 + ["installed"] * 2


def test_a_login_shell_that_the_pod_does_not_have(cluster: Cluster, script: Script) -> None:
    """The jail's programs count, not the pod's."""
    script("sudo cp /bin/sh /usr/local/bin/jailsh; sudo usermod -s /usr/local/bin/jailsh bob")
    try:
        assert cluster.ssh("echo $0", user="bob").stdout.strip().endswith("jailsh")
    finally:
        script("sudo usermod -s /bin/bash bob; sudo rm /usr/local/bin/jailsh")
