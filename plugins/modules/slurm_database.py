#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_database
short_description: Dump the accounting database of a cluster, or restore it
version_added: 0.1.0
description:
  - Dumps the database to a file on the task's host or to the cluster's backup volume, in one snapshot, while slurmdbd and the cluster go on. A dump is
    compressed, gets its name when it is whole, and is readable by its owner alone.
  - Restores all of the database from a dump. Jobs run on; slurmctld keeps their records and sends them when slurmdbd is back.
  - While a restoration runs, and after one that was interrupted, the database has a version that no slurmdbd starts with. Run the same task again to
    complete it.
  - The playbooks C(corral.slurm.backup_database) and C(corral.slurm.restore_database) make the Job whose pod this module works in, and remove it.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.slurmctld
attributes:
  check_mode:
    support: full
    details:
      - With O(state=restored), the dump and the database are read, and what would be refused is refused. Without the client's pod only a dump at
        O(path) is read.
  diff_mode:
    support: none
options:
  state:
    description:
      - V(dumped) dumps the database.
      - V(restored) replaces it by a dump.
    type: str
    choices: [dumped, restored]
    required: true
  client:
    description:
      - Name of the Job whose pod has the database's client, C(<cluster>-backup-client). The pod's image is that of C(images/mariadb). The module waits
        until it runs.
    type: str
  path:
    description:
      - A file on the task's host. Without it, the dump is on the backup volume.
    type: path
  dump:
    description:
      - Name of the dump to restore from the backup volume. V(latest) is the newest.
    type: str
    default: latest
  keep:
    description:
      - How many dumps to keep on the backup volume.
    type: int
    default: 7
  force:
    description:
      - Whether to restore into a database that holds jobs or users, which are lost.
    type: bool
    default: false
  timeout:
    description:
      - Longest time in seconds for reading or writing the database.
    type: int
    default: 3600
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.slurm_tenants
"""

EXAMPLES = r"""
- name: Dump the database to a file
  corral.slurm.slurm_database:
    namespace: slurm
    cluster: demo
    state: dumped
    path: demo.sql.gz

- name: Restore the newest dump of the backup volume
  corral.slurm.slurm_database:
    namespace: slurm
    cluster: demo
    state: restored
    dump: latest
    force: true
"""

RETURN = r"""
dump:
  description: The path, or the name on the backup volume.
  returned: success
  type: str
  sample: demo-20260131T023000Z.sql.gz
sha256:
  description: Digest of the file.
  returned: O(state=dumped), not in check mode
  type: str
size:
  description: Size of the file in bytes.
  returned: O(state=dumped), not in check mode
  type: int
msg:
  description: What was done, in a sentence.
  returned: success
  type: str
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 3
"""

from ansible_collections.corral.slurm.plugins.module_utils._module import run_module, slurmctld_options
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.database import run as backend


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **slurmctld_options(),
        "state": {"type": "str", "choices": ["dumped", "restored"], "required": True},
        "client": {"type": "str"},
        "path": {"type": "path"},
        "dump": {"type": "str", "default": "latest"},
        "keep": {"type": "int", "default": 7},
        "force": {"type": "bool", "default": False},
        "timeout": {"type": "int", "default": 3600},
    }


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec)


if __name__ == "__main__":
    main()
