#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_cluster_model
short_description: Checks a SlurmCluster document and returns the model of the cluster
version_added: 0.1.0
description:
  - Reads a C(SlurmCluster) document, checks it by the schema of its custom resource and for sense, fills in the defaults, and computes everything
    that the roles of this collection need, as its result. Register it as C(corral), the
    variable by which they have it.
  - With O(live) it also reads the current state of the cluster, for a pass that changes it. A node with jobs then stays in the model when the document no
    longer has it, with its line in C(slurm.conf) and its partitions, and keeps the CPUs, the memory and the GPUs of its pod. Slurm's own parsers check the
    new configuration. Without it, it connects to no cluster.
  - It changes nothing.
  - The document is data; text in it that looks like a template stays text.
extends_documentation_fragment:
  - corral.slurm.kubernetes
author:
  - The corral authors (@corral-hpc)
attributes:
  check_mode:
    description: Can run in check mode and return what it would return otherwise.
    support: full
  diff_mode:
    description: Returns details on what has changed when in diff mode.
    support: N/A
    details: It changes nothing.
options:
  path:
    description:
      - A YAML file that holds the document, on the host that runs the task. It is read once, so it may be a pipe
        (C(<(sops -d my.yml\)) of a shell).
      - Give this or O(document).
    type: path
  document:
    description: The document itself.
    type: dict
  live:
    description:
      - Whether to read the cluster too. The roles that change a cluster need it.
    type: bool
    default: false
  teardown:
    description:
      - Whether the model is for removing the cluster. A document with errors is no obstacle then; its valid fields about volumes count.
    type: bool
    default: false
  rotate:
    description:
      - Secrets that are to be rotated, any of V(munge), V(host_keys), V(worker_host_keys), V(database) and V(jwt). The result then
        has RV(rotations).
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Read the document
  corral.slurm.slurm_cluster_model:
    path: my.yml
  register: corral

- name: Print the names of the Slurm nodes
  ansible.builtin.debug:
    var: corral.node_names

- name: Read the document and the live cluster
  corral.slurm.slurm_cluster_model:
    path: my.yml
    live: true
  register: corral
"""

RETURN = r"""
name:
  description: The cluster's name. This and all that follows is the model; its fields are those of C(plugins/module_utils/_cluster/model.py).
  returned: success
  type: str
  sample: demo
namespace:
  description: The namespace.
  returned: success
  type: str
  sample: demo
node_names:
  description: The Slurm nodes, as a hostlist.
  returned: success
  type: str
  sample: cpu-[0-3]
node_count:
  description: How many they are.
  returned: success
  type: int
  sample: 4
rotations:
  description: A row for each Secret of O(rotate), in the order in which they are rotated, with its name and options of M(corral.slurm.k8s_rotate).
  returned: with O(rotate)
  type: list
  elements: dict
live:
  description: The state of the cluster that a pass needs.
  returned: success
  type: dict
requests:
  description: Number of requests to the API server.
  returned: with O(live)
  type: int
  sample: 5
errors:
  description: One sentence for each error of the document.
  returned: when the document is wrong
  type: list
  elements: str
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils import _live
from ansible_collections.corral.slurm.plugins.module_utils._cluster import reading, resolve, rotation, teardown
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options, run_module

CONSTRAINTS: dict[str, Any] = {"mutually_exclusive": [["path", "document"]]}


def argument_spec() -> dict[str, Any]:
    """Options of the module and of its action plugin."""
    return {
        **connection_options(),
        "path": {"type": "path"},
        "document": {"type": "dict"},
        "live": {"type": "bool", "default": False},
        "teardown": {"type": "bool", "default": False},
        "rotate": {"type": "list", "elements": "str", "default": []},
    }


def backend(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Return the model. Raises CorralError for a file that cannot be read, for a wrong document, and with ``live`` for a cluster that cannot be read."""
    del diff  # it changes nothing, so there is nothing to show
    document = given(params)
    if params.get("live"):
        own = {"path", "document", "live", "teardown", "rotate"}
        connection = {name: value for name, value in params.items() if name not in own}
        return {**_live.model(document, connection, check=check), "changed": False}
    model = teardown.model(document) if params.get("teardown") else resolve.model(document)
    rotations = {"rotations": rotation.rows(model, params["rotate"])} if params.get("rotate") else {}
    return {**model.to_dict(), **rotations, "changed": False}


def given(params: dict[str, Any]) -> Any:
    """Return the document of a task. Raises CorralError."""
    if not params.get("path") and params.get("document") is None:
        raise CorralError(
            "There is no SlurmCluster document; give a file with -e slurm_cluster_file=my.yml, or the document itself in slurm_cluster "
            "(for the module: path or document)."
        )
    return read(params["path"]) if params.get("path") else params["document"]


def read(path: str) -> Any:
    """Return the one YAML document of a file. Raises CorralError."""
    try:
        with Path(path).open("rb") as file:
            # One byte more than is allowed tells that it is too many, of /dev/zero too.
            data = file.read(reading.MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(path, (error.strerror if isinstance(error, OSError) else "") or "it is no file") from error
    return parse(data, path)


def parse(data: bytes, path: str, decrypt: Callable[[str], str] | None = None) -> Any:
    """Return the one YAML document of a file's bytes; ``path`` names it in sentences, ``decrypt`` opens vaulted values. Raises CorralError."""
    try:
        text = data[: reading.MAX_BYTES + 1].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A character may be cut in two there.
        cut = error.end > reading.MAX_BYTES - 3
        raise _unreadable(path, f"it has more than {reading.MAX_BYTES} bytes" if cut else "it is not UTF-8 text") from error
    return reading.document(text, path, decrypt)


def _unreadable(path: str, why: str) -> CorralError:
    return CorralError(f"The document {path} cannot be read: {why}; give the path of a SlurmCluster document in slurm_cluster_file.")


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec, CONSTRAINTS)


if __name__ == "__main__":
    main()
