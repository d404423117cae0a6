# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection into pods: Ansible's own modules over it, bytes as they are, and what is unreachable rather than failed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import pytest
import yaml
from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFileNotFound
from ansible.playbook.play_context import PlayContext

from ansible_collections.corral.slurm.plugins.connection.pod import Connection

from ....ansible_plugins import configured
from ....pods import JAIL, Pods
from ....server import kubeconfig, serving

Connect = Callable[..., Any]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pods]:
    for name in ("KUBECONFIG", *(name for name in os.environ if name.startswith("K8S_AUTH_"))):
        monkeypatch.delenv(name, raising=False)
    with serving(Pods()) as started:
        started.environment = {"PATH": os.environ["PATH"]}
        yield started


@pytest.fixture
def connect(server: Pods, tmp_path: Path) -> Connect:
    def made(**options: Any) -> Any:
        connection = configured("connection", "corral.slurm.pod", Connection(PlayContext(), shell=mock.Mock()))
        connection.set_options(
            direct={
                "kubeconfig": str(kubeconfig(tmp_path / "config", server.url)),
                "remote_addr": "lab-cpu-0",
                "namespace": "slurm",
                **options,
            }
        )
        return connection

    return made


def test_output_is_bytes_as_they_are(connect: Connect) -> None:
    code, out, err = connect().exec_command("printf '\\377\\0x'; echo away >&2; exit 7")
    assert (code, out, err) == (7, b"\xff\0x", b"away\n")


def test_input_is_what_a_module_reads(connect: Connect) -> None:
    data = bytes(range(256)) * 1000
    assert connect().exec_command("cat", in_data=data) == (0, data, b"")


@pytest.mark.parametrize("name", ["plain", "with space; $(touch x) 'and quotes'\n"])
@pytest.mark.parametrize("size", [0, 1, 200_000])
def test_a_file_there_and_back(connect: Connect, tmp_path: Path, name: str, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "here").write_bytes(content)
    connection = connect()
    connection.put_file(str(tmp_path / "here"), str(tmp_path / name))
    assert (tmp_path / name).read_bytes() == content
    connection.fetch_file(str(tmp_path / name), str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == content and not (tmp_path / "x").exists()


@pytest.mark.parametrize("jail", [False, True])
def test_everything_goes_into_the_jail_or_nothing(connect: Connect, server: Pods, tmp_path: Path, jail: bool) -> None:
    (tmp_path / "here").write_text("x")
    connection = connect(jail=jail, container="other")
    connection.exec_command("true")
    connection.put_file(str(tmp_path / "here"), str(tmp_path / "there"))
    connection.fetch_file(str(tmp_path / "there"), str(tmp_path / "back"))
    assert len(server.commands) == 3
    assert all((command[: len(JAIL)] == JAIL) is jail for _pod, _container, command in server.commands)
    assert {(pod, container) for pod, container, _command in server.commands} == {("lab-cpu-0", "other")}


def test_a_file_that_is_not_here_or_there(connect: Connect, tmp_path: Path) -> None:
    with pytest.raises(AnsibleFileNotFound, match="does not exist here"):
        connect().put_file(str(tmp_path / "none"), "/x")
    (tmp_path / "here").write_text("x")
    with pytest.raises(AnsibleError, match=r"could not be written in pod slurm/lab-cpu-0: .*cannot create") as failed:
        connect().put_file(str(tmp_path / "here"), str(tmp_path / "none" / "x"))
    assert not isinstance(failed.value, AnsibleConnectionFailure)
    with pytest.raises(AnsibleError, match="could not be read in the jail of pod slurm/lab-cpu-0") as failed:
        connect(jail=True).fetch_file(str(tmp_path / "none"), str(tmp_path / "back"))
    assert not isinstance(failed.value, AnsibleConnectionFailure) and not (tmp_path / "back").exists()


def test_a_full_disk_is_told_as_such(connect: Connect, server: Pods, tmp_path: Path) -> None:
    """The command ends long before all is sent."""
    server.deaf = lambda _command: True
    (tmp_path / "here").write_bytes(bytes(20_000_000))
    with pytest.raises(AnsibleError, match="No space left on device"):
        connect().put_file(str(tmp_path / "here"), "/x")


def lose(server: Pods) -> None:
    server.gone.add("lab-cpu-0")


def stop(server: Pods) -> None:
    server.not_running.add("lab-cpu-0")


def forbid(server: Pods) -> None:
    server.forbidden.add("exec")


def expire(server: Pods) -> None:
    server.unauthorized = True


def close_jail(server: Pods) -> None:
    server.answers[tuple(JAIL)] = 125, b"", b"jail-exec: the jail /mnt/jail is not populated yet\n"


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (lose, 'pods "lab-cpu-0" not found; it is not there (any more), so refresh the inventory, or start its node.'),
        (stop, 'container not found ("slurmd"); does the container run?'),
        (forbid, "user ada may not create pods/exec in namespace slurm; ask an administrator for a Role with"),
        (expire, "does not accept the credentials (401 Unauthorized); log in again or renew the token."),
        (close_jail, "No command can be run in the jail of pod slurm/lab-cpu-0: the jail /mnt/jail is not populated yet."),
    ],
)
@pytest.mark.parametrize("way", ["exec_command", "put_file", "fetch_file"])
def test_what_prevents_a_command_is_unreachable(
    connect: Connect, server: Pods, tmp_path: Path, trouble: Callable[[Pods], None], message: str, way: str
) -> None:
    trouble(server)
    (tmp_path / "here").write_text("x")
    arguments = {"exec_command": ["true"], "put_file": [str(tmp_path / "here"), "/x"], "fetch_file": ["/x", str(tmp_path / "back")]}[way]
    with pytest.raises(AnsibleConnectionFailure) as failed:
        getattr(connect(jail=True), way)(*arguments)
    text = str(failed.value)
    assert message in text and text.count("\n") == 0


def test_a_kubeconfig_that_is_not_there_is_unreachable(connect: Connect) -> None:
    with pytest.raises(AnsibleConnectionFailure, match="The kubeconfig /nowhere does not exist"):
        connect(kubeconfig="/nowhere").exec_command("true")


def test_a_command_of_125_is_the_command_s_own(connect: Connect) -> None:
    assert connect(jail=True).exec_command("echo 'jail-exec: x' >&2; exit 3")[0] == 3
    assert connect(jail=True).exec_command("exit 125")[0] == 125
    assert connect().exec_command("echo 'jail-exec: x' >&2; exit 125")[0] == 125


@pytest.mark.parametrize(
    ("option", "name"), [("remote_addr", "../../secrets/x?y=z"), ("namespace", "a/b"), ("remote_addr", "x/exec?command=id&")]
)
def test_no_name_is_a_path(connect: Connect, server: Pods, option: str, name: str) -> None:
    connect(**{option: name}).exec_command("true")
    where = {"namespace": "slurm", "remote_addr": "lab-cpu-0", option: quote(name, safe="")}
    assert server.requests == [f"/api/v1/namespaces/{where['namespace']}/pods/{where['remote_addr']}/exec"]
    assert server.commands[0][1:] == ("slurmd", ["/bin/sh", "-c", "true"])


def test_a_command_that_does_not_end(connect: Connect) -> None:
    with pytest.raises(AnsibleConnectionFailure, match="it did not end within 1 s"):
        connect(command_timeout=1).exec_command("sleep 3")


PLAY = [
    {
        "hosts": "pods",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.ping": None, "register": "ping"},
            {"ansible.builtin.command": "echo '{{ inventory_hostname }}'", "register": "said", "changed_when": False},
            {"ansible.builtin.copy": {"content": "ü {{ inventory_hostname }}\n", "dest": "{{ folder }}/{{ inventory_hostname }}", "mode": "0640"}},
            {
                "ansible.builtin.copy": {
                    "content": "ü {{ inventory_hostname }}\n",
                    "dest": "{{ folder }}/{{ inventory_hostname }}",
                    "mode": "0640",
                },
                "register": "again",
            },
            {"ansible.builtin.fetch": {"src": "{{ folder }}/{{ inventory_hostname }}", "dest": "{{ folder }}/fetched/", "flat": True}},
            {"ansible.builtin.service_facts": None},
            {"ansible.builtin.command": "id -un", "become": True, "become_user": "nobody", "become_method": "su", "become_flags": "-s /bin/sh",
             "register": "who", "changed_when": False},
            {"ansible.builtin.command": "id -un", "become": True, "register": "root", "changed_when": False},
            {"ansible.builtin.assert": {"that": [
                "ping.ping == 'pong'", "said.stdout == inventory_hostname", "again is not changed", "who.stdout == 'nobody'", "root.stdout == 'root'",
            ]}},
        ],
    }
]  # fmt: skip


def ansible(program: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0"}
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL)


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_modules_of_ansible_s_own(server: Pods, tmp_path: Path) -> None:
    """In a pod and, by files instead of a pipe, in a jail; then one of the pods is gone."""
    tmp_path.chmod(0o755)
    server.environment["HOME"] = str(tmp_path)
    hosts = {
        f"lab-cpu-{number}": {
            "ansible_connection": "corral.slurm.pod",
            "ansible_pod_namespace": "slurm",
            "ansible_pod_jail": bool(number),
            "ansible_pipelining": not number,
            "ansible_user": "root",
            "ansible_pod_kubeconfig": str(kubeconfig(tmp_path / "config", server.url)),
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        for number in range(2)
    }
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"pods": {"hosts": hosts}}))
    (tmp_path / "play.yml").write_text(yaml.safe_dump(PLAY))
    arguments = ("-i", "hosts.yml", "-e", f"folder={tmp_path}", "play.yml")
    done = ansible("ansible-playbook", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for number in range(2):
        name = f"lab-cpu-{number}"
        assert (tmp_path / "fetched" / name).read_text() == f"ü {name}\n" and (tmp_path / name).stat().st_mode & 0o777 == 0o640
    assert {pod: command[0] for pod, _container, command in server.commands} == {"lab-cpu-0": "/bin/sh", "lab-cpu-1": JAIL[0]}
    server.gone.add("lab-cpu-0")
    lost = ansible("ansible", "-i", "hosts.yml", "-m", "ansible.builtin.ping", "pods", cwd=tmp_path)
    assert lost.returncode == 4, "a host is unreachable"
    assert "lab-cpu-0 | UNREACHABLE!" in lost.stdout and "lab-cpu-1 | SUCCESS" in lost.stdout
