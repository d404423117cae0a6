#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_revision_info
short_description: List the documents by which a cluster was made, and read one of them
version_added: 0.1.0
description:
  - Reads what M(corral.slurm.slurm_revision) has recorded.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.kubernetes.namespace
  - corral.slurm.kubernetes.info
options:
  cluster:
    description:
      - Name of the cluster.
    type: str
    required: true
  revision:
    description:
      - Number of the document that is to be returned. Without it, that to which M(corral.slurm.slurm_revision) goes back, where there is one.
    type: int
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_revision
"""

EXAMPLES = r"""
- name: List the revisions of the document
  corral.slurm.slurm_revision_info:
    namespace: demo
    cluster: demo
"""

RETURN = r"""
revisions:
  description: The recorded documents, the oldest first.
  returned: success
  type: list
  elements: dict
  contains:
    revision:
      description: Its number.
      type: int
    recorded:
      description: When its run came to its end.
      type: str
    image:
      description: Image of its Slurm.
      type: str
    node_sets:
      description: Number of nodes of each node set.
      type: dict
  sample: [{"revision": 3, "recorded": "2026-01-31T08:00:00Z", "image": "slurm:24.11", "node_sets": {"gpu": 8}}]
tried:
  description: Whether a run of yet another document is going on, or has failed.
  returned: success
  type: bool
revision:
  description: Number of the document that is returned.
  returned: where there is one
  type: int
document:
  description: The document, with all defaults.
  returned: where there is one
  type: dict
image_changes:
  description: Whether it has another image of Slurm than the last one that was tried.
  returned: where there is one
  type: bool
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 1
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options, run_module
from ansible_collections.corral.slurm.plugins.module_utils._revisions import revision_info as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **connection_options(),
        "namespace": {"type": "str"},
        "cluster": {"type": "str", "required": True},
        "revision": {"type": "int"},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
