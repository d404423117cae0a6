# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection into pods: commands and files go by the client that the collection's modules have."""

from __future__ import annotations

DOCUMENTATION = r"""
name: pod
short_description: Run tasks in the pods of a Slurm cluster, or in the jail of its workers
version_added: 0.1.0
description:
  - Runs commands and transfers files as C(kubectl exec) does, without C(kubectl). What it connects to needs C(/bin/sh), and modules need a Python there.
  - The inventory P(corral.slurm.slurm#inventory) sets the variables of all options, but for O(api_key).
  - With O(jail=true), commands run in the jail of a worker, as root without the capabilities that lead out of it. The programs that they run are then those
    of the jail, so trust their output as much as the users who are root there.
author:
  - The corral authors (@corral-hpc)
extends_documentation_fragment:
  - corral.slurm.kubernetes.plugin
notes:
  - C(become) works to users who need no password. In a jail, root can become any user. In a pod, there are no users but those of daemons, and C(su)
    leads into the jail.
  - A command is a part of the request, so an audit log of the API server has it. With O(pipelining=true), modules and their arguments are not in it.
    What C(environment) sets is.
  - A connection that breaks does not end the command in the pod.
requirements:
  - websocket-client
options:
  remote_addr:
    description:
      - Name of the pod.
    type: str
    default: inventory_hostname
    vars:
      - name: inventory_hostname
      - name: ansible_host
  namespace:
    description:
      - Namespace of the pod. The kubeconfig's context decides when it is not set.
    type: str
    vars:
      - name: ansible_pod_namespace
  container:
    description:
      - Name of the container.
    type: str
    default: slurmd
    vars:
      - name: ansible_pod_container
  jail:
    description:
      - Whether commands run in the jail that the container's jobs have. Only workers can enter it.
    type: bool
    default: false
    vars:
      - name: ansible_pod_jail
  command_timeout:
    description:
      - Longest time in seconds for one command or one file.
    type: int
    default: 86400
    vars:
      - name: ansible_pod_command_timeout
  remote_user:
    description:
      - The user that the container runs as. It chooses nobody; a task with C(become) to the same user runs as it is.
    type: str
    vars:
      - name: ansible_user
  pipelining:
    description:
      - Whether modules are run without files.
    type: bool
    default: true
    env:
      - name: ANSIBLE_PIPELINING
    ini:
      - section: defaults
        key: pipelining
      - section: connection
        key: pipelining
    vars:
      - name: ansible_pipelining
  kubeconfig:
    env: [{name: K8S_AUTH_KUBECONFIG}]
    vars: [{name: ansible_pod_kubeconfig}]
  context:
    env: [{name: K8S_AUTH_CONTEXT}]
    vars: [{name: ansible_pod_context}]
  host:
    env: [{name: K8S_AUTH_HOST}]
    vars: [{name: ansible_pod_host}]
  api_key:
    env: [{name: K8S_AUTH_API_KEY}]
    vars: [{name: ansible_pod_api_key}]
  ca_cert:
    env: [{name: K8S_AUTH_SSL_CA_CERT}]
    vars: [{name: ansible_pod_ca_cert}]
  client_cert:
    env: [{name: K8S_AUTH_CERT_FILE}]
    vars: [{name: ansible_pod_client_cert}]
  client_key:
    env: [{name: K8S_AUTH_KEY_FILE}]
    vars: [{name: ansible_pod_client_key}]
  validate_certs:
    env: [{name: K8S_AUTH_VERIFY_SSL}]
    vars: [{name: ansible_pod_validate_certs}]
"""

import typing as t
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFileNotFound
from ansible.plugins.connection import ConnectionBase

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.auth import resolve
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import NotFound
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Input, Output, Sink, run_in_pod
from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options
from ansible_collections.corral.slurm.plugins.plugin_utils._action import plain

# With the plugin's own arguments, so the view is that of a job's steps.
_JAIL = ("/opt/corral/bin/jail-exec", "plugstack=/run/slurm/conf/plugstack.conf", "--")
# What it ends with where there is no entry, and how it begins to say so.
_NO_ENTRY = 125
_SAYS = "jail-exec: "
# More is no number of milliseconds that poll(2) takes.
_LONGEST = 2_000_000


class Connection(ConnectionBase):
    """Runs commands in one container."""

    transport = "corral.slurm.pod"
    has_pipelining = True

    def __init__(self, *args: t.Any, **kwargs: t.Any) -> None:
        super().__init__(*args, **kwargs)
        self._client: Client | None = None

    def _connect(self) -> Connection:
        """Make the client; it connects with the first command."""
        self._open()
        return self

    def _open(self) -> Client:
        if self._client is None:
            with _unreachable():
                self._client = Client(resolve({name: plain(self.get_option(name)) for name in connection_options()}))
        self._connected = True
        return self._client

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Run a command line of Ansible's."""
        printed = bytearray()
        done = self._run(["/bin/sh", "-c", plain(cmd)], in_data, printed.extend)
        return done.code, bytes(printed), done.stderr.encode()

    def put_file(self, in_path: str, out_path: str) -> None:
        """Write a file there; it is not held in memory."""
        if not Path(in_path).exists():
            raise AnsibleFileNotFound(f"The file {in_path} does not exist here, so it cannot be written in a pod; correct the path.")
        # The shell keeps its standard output: where that is closed, the container's runtime gives a command no more of its input.
        with Path(in_path).open("rb") as file:
            done = self._run(["/bin/sh", "-c", 'cat >"$1"; exit "$?"', "sh", plain(out_path)], file)
        if done.code != 0:
            raise AnsibleError(f"{out_path} could not be written in {self._place}: {done.summary.rstrip('.')}.")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Write a file of there here, as it comes."""
        with Path(out_path).open("wb") as file:
            done = self._run(["/bin/sh", "-c", 'exec cat <"$1"', "sh", plain(in_path)], None, file.write)
        if done.code != 0:
            Path(out_path).unlink()
            raise AnsibleError(f"{in_path} could not be read in {self._place}: {done.summary.rstrip('.')}.")

    def close(self) -> None:
        """Close the client."""
        if self._client is not None:
            self._client.close()
        self._client, self._connected = None, False

    def reset(self) -> None:
        """Each command has a connection of its own, so there is nothing to reset but the credentials."""
        self.close()

    @property
    def _place(self) -> str:
        pod = f"pod {self._namespace()}/{self.get_option('remote_addr')}"
        return f"the jail of {pod}" if self.get_option("jail") else pod

    def _namespace(self) -> str:
        return str(plain(self.get_option("namespace")) or self._open().access.namespace)

    def _run(self, command: list[str], stdin: Input | None, sink: Sink | None = None) -> Output:
        """Run a command where the options say. Raises AnsibleConnectionFailure where that cannot be."""
        client = self._open()
        jail = bool(self.get_option("jail"))
        with _unreachable():
            done = run_in_pod(
                client,
                namespace=self._namespace(),
                pod=plain(self.get_option("remote_addr")),
                container=plain(self.get_option("container")),
                command=[*_JAIL, *command] if jail else command,
                stdin=stdin,
                sink=sink,
                timeout=float(min(self.get_option("command_timeout"), _LONGEST)),
            )
        if jail and done.code == _NO_ENTRY and done.stderr.startswith(_SAYS):
            raise AnsibleConnectionFailure(f"No command can be run in {self._place}: {done.summary.removeprefix(_SAYS).rstrip('.')}.")
        return done


@contextmanager
def _unreachable() -> Iterator[None]:
    """Have Ansible take what prevents a command for an unreachable host, and not for a failed task."""
    try:
        yield
    except NotFound as error:
        message = f"{str(error).rstrip('.')}; it is not there (any more), so refresh the inventory, or start its node."
    except CorralError as error:
        message = str(error)
    else:
        return
    raise AnsibleConnectionFailure(message)  # without its cause, which Ansible would print behind it
