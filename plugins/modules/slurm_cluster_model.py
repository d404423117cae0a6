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
    that the roles of this collection need, as the fact C(corral).
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
      - A YAML file that holds the document, on the host that runs the task.
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
"""

EXAMPLES = r"""
- name: Read the document
  corral.slurm.slurm_cluster_model:
    path: my.yml

- name: Show the nodes that Slurm will know
  ansible.builtin.debug:
    var: corral.node_names

- name: Keep nodes on which jobs are left
  corral.slurm.slurm_cluster_model:
    model: "{{ corral }}"
    held: "{{ scale.held }}"
"""

RETURN = r"""
corral:
  description: The model. Its fields are described in the dataclasses of C(plugins/module_utils/_cluster/model.py).
  returned: success
  type: dict
  sample: {"name": "demo", "namespace": "demo", "node_names": "cpu-[0-3]", "node_count": 4}
mistakes:
  description: One sentence for each mistake of the document.
  returned: when the document is wrong
  type: list
  elements: str
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

from ansible_collections.corral.slurm.plugins.module_utils._cluster import held, resolve
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
    }


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Return the model as the fact ``corral``. Raises CorralError for a file that can not be read and for a wrong document."""
    del check, diff  # it changes nothing, so there is nothing to predict and nothing to show
    if params.get("model"):
        return {"changed": False, "ansible_facts": {"corral": held.hold(params["model"], params["held"])}}
    if not params.get("path") and params.get("document") is None:
        raise CorralError(
            "There is no SlurmCluster document; give a file with -e slurm_cluster_file=my.yml, or the document itself in slurm_cluster "
            "(for the module: path or document)."
        )
    document = read(params["path"]) if params.get("path") else params["document"]
    model = resolve.model(document, params.get("sizes")).to_dict()
    return {"changed": False, "ansible_facts": {"corral": held.hold(model, params["held"]) if params.get("held") else model}}


def read(path: str) -> Any:
    """Return the one YAML document of a file. Raises CorralError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CorralError(
            f"The document {path} can not be read: {reason}; give the path of a SlurmCluster document in slurm_cluster_file."
        ) from error
    if yaml is None:
        raise CorralError(missing_required_lib("PyYAML"))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        documents = [document for document in yaml.load_all(text, Loader=loader) if document is not None]
    except yaml.YAMLError as error:
        raise CorralError(f"The document {path} is not YAML: {' '.join(str(error).split())}; correct it there.") from error
    if len(documents) != 1:
        raise CorralError(f"The file {path} holds {len(documents)} documents, not one; give each cluster a file and a run of its own.")
    return documents[0]


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True, **CONSTRAINTS)
    try:
        module.exit_json(**run(module.params, check=module.check_mode, diff=False))
    except CorralError as error:
        module.fail_json(msg=str(error), **error.data)


if __name__ == "__main__":
    main()
