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
  - It talks to no cluster and changes nothing.
  - The document is data; text in it that looks like a template stays text.
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
      - Give this, O(document) or O(model), exactly one of them.
    type: path
  document:
    description: The document itself.
    type: dict
  model:
    description:
      - A model that this module has returned, to be returned with O(held) instead of what it held before.
    type: dict
  held:
    description:
      - Nodes that the document no longer has and that stay for their jobs' sake, as M(corral.slurm.slurm_scale) returns them.
    type: dict
    default: {}
  sizes:
    description:
      - How many nodes are asked for of each node set that can be scaled, as M(corral.slurm.slurm_node_set) returns them. The bounds of the document hold.
      - Without it, these sets have the size that the document begins them with.
    type: dict
  teardown:
    description:
      - Whether the model is to take the cluster away by. A document with mistakes is no obstacle then; what it says of volumes counts as far as that is right.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Read the document
  corral.slurm.slurm_cluster_model:
    path: my.yml
  register: corral

- name: Show the nodes that Slurm will know
  ansible.builtin.debug:
    var: corral.node_names

- name: Keep nodes on which jobs are left
  corral.slurm.slurm_cluster_model:
    model: "{{ corral }}"
    held: "{{ scale.held }}"
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
  description: The nodes that Slurm will know, as a hostlist.
  returned: success
  type: str
  sample: cpu-[0-3]
node_count:
  description: How many they are.
  returned: success
  type: int
  sample: 4
errors:
  description: One sentence for each error of the document.
  returned: when the document is wrong
  type: list
  elements: str
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.corral.slurm.plugins.module_utils._cluster import held, reading, remains, resolve
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

CONSTRAINTS: dict[str, Any] = {"mutually_exclusive": [["path", "document", "model"]]}


def argument_spec() -> dict[str, Any]:
    """Options of the module and of its action plugin."""
    return {
        "path": {"type": "path"},
        "document": {"type": "dict"},
        "model": {"type": "dict"},
        "held": {"type": "dict", "default": {}},
        "sizes": {"type": "dict"},
        "teardown": {"type": "bool", "default": False},
    }


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Return the model. Raises CorralError for a file that can not be read and for a wrong document."""
    del check, diff  # it changes nothing, so there is nothing to predict and nothing to show
    if params.get("model"):
        return {**held.hold(params["model"], params["held"]), "changed": False}
    if not params.get("path") and params.get("document") is None:
        raise CorralError(
            "There is no SlurmCluster document; give a file with -e slurm_cluster_file=my.yml, or the document itself in slurm_cluster "
            "(for the module: path or document)."
        )
    document = read(params["path"]) if params.get("path") else params["document"]
    model = (remains.model(document) if params.get("teardown") else resolve.model(document, params.get("sizes"))).to_dict()
    return {**(held.hold(model, params["held"]) if params.get("held") else model), "changed": False}


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
    return CorralError(f"The document {path} can not be read: {why}; give the path of a SlurmCluster document in slurm_cluster_file.")


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True, **CONSTRAINTS)
    try:
        module.exit_json(**run(module.params, check=module.check_mode, diff=False))
    except CorralError as error:
        module.fail_json(msg=str(error), **error.data)


if __name__ == "__main__":
    main()
