# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the CustomResourceDefinition from the schema, the one source of what a SlurmCluster may say: `make crd`."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from ansible_collections.corral.slurm.plugins.module_utils._cluster import schema

FILE = Path(__file__).resolve().parents[1] / "playbooks" / "files" / f"{schema.PLURAL}.{schema.GROUP}.yml"
HEAD = "---\n# Generated from plugins/module_utils/_cluster/schema.py by `make crd`; change it there.\n"


class _Dumper(yaml.SafeDumper):
    """Writes shared blocks of the schema out each time: Kubernetes' readers and people's want no YAML aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def text() -> str:
    return HEAD + yaml.dump(schema.crd(), Dumper=_Dumper, sort_keys=False, width=160, allow_unicode=True)


def main() -> int:
    FILE.parent.mkdir(parents=True, exist_ok=True)
    before = FILE.read_text() if FILE.exists() else ""
    FILE.write_text(text())
    print(f"{FILE.relative_to(Path.cwd()) if FILE.is_relative_to(Path.cwd()) else FILE}: {'unchanged' if before == text() else 'written'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
