# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the CustomResourceDefinitions and the reference page from the schema, the one source of what a SlurmCluster may say: `make crd`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.corral.slurm.plugins.module_utils._cluster import schema

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference" / "slurmcluster.md"
FILES = {
    ROOT / "playbooks" / "files" / f"{plural}.{schema.GROUP}.yml": definition
    for plural, definition in (
        (schema.PLURAL, schema.crd),
        (schema.NODE_SET_PLURAL, schema.node_set_crd),
        (schema.TENANTS_PLURAL, schema.tenants_crd),
    )
}
HEAD = "---\n# Generated from plugins/module_utils/_cluster/schema.py by `make crd`; change it there.\n"

REFERENCE_HEAD = """# Every field of a SlurmCluster

Generated from the schema by `make crd`. Examples: [minimal](../../examples/minimal.yml), [full](../../examples/full.yml).

`metadata.name` is lower-case letters, digits and `-`, 20 characters at most; all objects of the cluster begin with it.
`metadata.namespace` is where they live; without it, `default`.

"""


class _Dumper(yaml.SafeDumper):
    """Writes shared blocks of the schema out each time: Kubernetes' readers and people's want no YAML aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def text(definition: dict[str, Any]) -> str:
    return HEAD + yaml.dump(definition, Dumper=_Dumper, sort_keys=False, width=160, allow_unicode=True)


def reference() -> str:
    """The page docs/reference/slurmcluster.md: one row a field, in the schema's order."""
    rows = ["| field | what | type | default |", "|---|---|---|---|", *_rows(schema.spec(), "spec")]
    return REFERENCE_HEAD + "\n".join(rows) + "\n"


def _rows(rules: dict[str, Any], path: str) -> Iterator[str]:
    for key, child in rules.get("properties", {}).items():
        where = f"{path}.{key}"
        needed = " **Needed.**" if key in rules.get("required", ()) else ""
        default = f"`{json.dumps(child['default'])}`" if "default" in child else ""
        yield f"| `{where}` | {child.get('description', '')}{needed} | {_kind(child)} | {default} |"
        if child.get("type") == "array":
            yield from _rows(child["items"], f"{where}[]")
        else:
            yield from _rows(child, where)


def _kind(rules: dict[str, Any]) -> str:
    """Type and bounds in words."""
    if rules.get("x-kubernetes-int-or-string"):
        return schema.PATTERNS[rules["pattern"]]
    if "enum" in rules:
        return " \\| ".join(rules["enum"])
    if rules["type"] in ("integer", "number"):
        return f"{rules['minimum']} to {rules['maximum']}"
    if rules["type"] == "string":
        return schema.PATTERNS.get(rules.get("pattern", ""), "text")
    return {"array": "list", "object": "mapping", "boolean": "true or false"}[rules["type"]]


def main() -> int:
    for file, wanted in (*((file, text(definition())) for file, definition in FILES.items()), (REFERENCE, reference())):
        file.parent.mkdir(parents=True, exist_ok=True)
        before = file.read_text() if file.exists() else ""
        file.write_text(wanted)
        print(f"{file.relative_to(ROOT)}: {'unchanged' if before == wanted else 'written'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
