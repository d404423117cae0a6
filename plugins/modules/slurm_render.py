#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_render
short_description: Write rendered objects to files
version_added: 0.1.0
description:
  - Writes objects as YAML, to a folder or into one stream, and removes files that an earlier run has written and this one has not.
    C(corral.slurm.render) gives it the objects that C(corral.slurm.site) would apply. C(docs/render.md) has an example.
  - In a folder each object is a file. Its name begins with a number, and whoever applies the files in the order of their names applies
    what others need first. The texts of ConfigMaps, such as C(slurm.conf), are also files, C(config_maps/CONFIGMAP/KEY).
attributes:
  check_mode:
    description: Can run in check mode and return what it would return otherwise.
    support: full
    details:
      - Reports which files would be written.
  diff_mode:
    description: Returns details on what has changed when in diff mode.
    support: full
    details:
      - Shows the files before and after.
options:
  output:
    description:
      - Path of a folder, which is created if it is missing, or of a file that ends in C(.yml) or C(.yaml), for one stream.
      - A file of the folder that this module has not written is neither changed nor removed, and fails the task where it is in the way.
    type: path
    required: true
  objects:
    description:
      - The objects.
    type: list
    elements: dict
    required: true
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.k8s_apply
"""

EXAMPLES = r"""
- name: Write the objects
  corral.slurm.slurm_render:
    output: rendered
    objects: "{{ objects }}"
"""

RETURN = r"""
files:
  description: Paths of all files, below the folder.
  type: list
  elements: str
  returned: success
  sample: [0-namespace-demo.yml, 3-configmap-demo-controller-config.yml, config_maps/demo-controller-config/slurm.conf]
removed:
  description: Paths of the files that were removed.
  type: list
  elements: str
  returned: success
"""

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.rendered import write
from ansible_collections.corral.slurm.plugins.module_utils._module import run_module


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        "output": {"type": "path", "required": True},
        "objects": {"type": "list", "elements": "dict", "required": True},
    }


def backend(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Write the files. Raises CorralError."""
    return write(params, check=check, diff=diff)


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
