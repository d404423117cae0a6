# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Holds the layers of docs/design.md: which part of the collection may import which. Prints each import that goes the wrong way.

An own reading of the syntax tree rather than import-linter: that one sees only folders with an `__init__.py`, and would pass over a new one without.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

COLLECTION = "ansible_collections.corral.slurm"
UTILS = f"{COLLECTION}.plugins.module_utils"

# What a module under the first prefix may import of this collection; the longest prefix that fits counts.
ALLOWED = {
    f"{UTILS}": (UTILS,),
    f"{UTILS}._errors": (),
    f"{UTILS}._slurm": (f"{UTILS}._slurm", f"{UTILS}._errors"),
    f"{UTILS}._kube": (f"{UTILS}._kube", f"{UTILS}._errors"),
    f"{UTILS}._scheduler": (f"{UTILS}._scheduler", f"{UTILS}._kube", f"{UTILS}._slurm", f"{UTILS}._errors"),
    f"{UTILS}._cluster": (
        f"{UTILS}._cluster",
        f"{UTILS}._slurm.hardware",
        f"{UTILS}._slurm.hostlist",
        f"{UTILS}._slurm.conf",
        f"{UTILS}._slurm.keys",
        f"{UTILS}._errors",
    ),
}
# Nothing under module_utils knows Ansible, or the operator: backends can be tested, and run by an operator, without it. What the modules share of
# Ansible is one file, which is for modules alone.
MODULES_OWN = f"{UTILS}._module"
FORBIDDEN = ("ansible", "ansible_test", "corral_operator", MODULES_OWN)
# The operator takes documents and the way to the API server from the collection, and nothing else; Ansible is known to what runs a playbook only.
OPERATOR = (f"{UTILS}._cluster", f"{UTILS}._kube", f"{UTILS}._errors")
OPERATOR_RUNS = ("guard", "in_process", "playbook", "preload", "zygote")


def within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(f"{prefix}.")


def imports(path: Path, module: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a file imports, inside functions and under TYPE_CHECKING too."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package[: len(package) - node.level + 1], node.module or ""]).strip(".") if node.level else node.module or ""
            # `from package import x` may name a module or a thing in it: with x it is right for both.
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def violations(root: Path) -> Iterator[str]:
    for path in sorted((root / "plugins" / "module_utils").rglob("*.py")):
        relative = path.relative_to(root)
        module = ".".join((COLLECTION, *relative.with_suffix("").parts)).removesuffix(".__init__")
        layer = max((prefix for prefix in ALLOWED if within(module, prefix)), key=len)
        for line, name in imports(path, module):
            if any(within(name, other) for other in FORBIDDEN) and module != MODULES_OWN:
                yield f"{relative}:{line}: imports {name}, but nothing under module_utils may know Ansible; move what needs it to plugins/plugin_utils."
            elif within(name, COLLECTION) and not any(within(name, allowed) for allowed in ALLOWED[layer]):
                yield f"{relative}:{line}: imports {name}, which {layer.removeprefix(COLLECTION + '.')} may not know; see the layers in docs/design.md."


def operator_violations(root: Path) -> Iterator[str]:
    for path in sorted((root / "operator").rglob("*.py")):
        relative = path.relative_to(root)
        for line, name in imports(path, f"corral_operator.{path.stem}"):
            if within(name, COLLECTION) and not any(within(name, allowed) for allowed in OPERATOR):
                yield f"{relative}:{line}: imports {name}, but the operator runs playbooks and imports only _cluster, _kube and _errors."
            elif any(within(name, other) for other in ("ansible", "ansible_runner")) and path.stem not in OPERATOR_RUNS:
                yield f"{relative}:{line}: imports {name}, which costs the controller 40 MiB; only {', '.join(OPERATOR_RUNS)} may."


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = [*violations(root), *operator_violations(root)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
