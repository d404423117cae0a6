# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/extending.md does what it says: its differences apply, and what it promises comes of them. All of it in a copy."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .repository import ROOT, files, text

PAGE = Path("docs/extending.md")
COPIED = ("plugins/module_utils", "roles", "tools/crd.py", "images/slurm/entry", "examples", "operator/corral_operator", "meta")


def section(title: str) -> str:
    return text(PAGE).partition(f"\n## {title}")[2].partition("\n## ")[0]


def differences(title: str) -> list[str]:
    """One for each file. The page has no numbers of lines, which change all the time; of a first line git would demand that it is the file's."""
    blocks = "".join(re.findall(r"^```diff\n(.*?)^```$", section(title), re.MULTILINE | re.DOTALL))
    found = re.split(r"^(?=--- a/)", re.sub("^@@$", "@@ -2 +2 @@", blocks, flags=re.MULTILINE), flags=re.MULTILINE)[1:]
    assert found
    return found


def tree(folder: Path) -> Path:
    """A copy of what the examples change and need, where Python finds it as the collection."""
    root = folder / "ansible_collections" / "corral" / "slurm"
    for path in files():
        if str(path).startswith(COPIED):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, root / path)
    return root


def apply(root: Path, changes: list[str]) -> None:
    command = ["git", "apply", "--recount", "-"]
    outside = {**os.environ, "GIT_CEILING_DIRECTORIES": str(root.parent)}
    for change in changes:
        done = subprocess.run(command, cwd=root, env=outside, input=change, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{PAGE} does not fit to the files any more: {done.stderr}"


def run(root: Path, program: str) -> Any:
    """What a program prints as JSON that has the copy for the collection."""
    path = os.pathsep.join((str(root.parents[2]), str(root / "operator")))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


BEGIN = """
import json, pathlib, runpy, yaml
from ansible_collections.corral.slurm.plugins.module_utils._cluster import components, resolve, schema
from ansible_collections.corral.slurm.plugins.module_utils._kube.render import render
ROOT = pathlib.Path.cwd()
assert str(ROOT) in schema.__file__
document = yaml.safe_load((ROOT / "examples/minimal.yml").read_text())
def objects(role, name):
    folders = [ROOT / "roles" / one / "templates" for one in (role, "cluster_base")]
    api_server = {"within": __import__("collections").defaultdict(list), "record": ""}
    return render([folders[0] / name], {"corral": resolve.model(document).to_dict(), "api_server": api_server}, folders)[0]
"""
FIELD = """
text = 'Only for "members" of {{ the }} house.'
without = resolve.model(document).login.banner, objects("slurm_login", "stateful_set.yml.j2")
document["spec"]["login"] = {"banner": text}
(made,) = objects("slurm_login", "stateful_set.yml.j2")
crd = runpy.run_path("tools/crd.py", run_name="crd")
definition = yaml.safe_load(crd["text"](schema.crd()))["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
print(json.dumps({
    "without": [without[0], "CORRAL_BANNER" in json.dumps(without[1])],
    "model": resolve.model(document).login.banner == text,
    "pod": {"name": "CORRAL_BANNER", "value": text} in made["spec"]["template"]["spec"]["containers"][0]["env"],
    "definition": definition["properties"]["spec"]["properties"]["login"]["properties"]["banner"],
    "page": "| `spec.login.banner` | What sshd shows before" in crd["reference"](),
}))
"""
COMPONENT = """
from corral_operator.reconcile import children, conditions
model = resolve.model(document)
found = model.components["portal"]
document["spec"]["nodeSets"][0]["name"] = "portal"
try:
    resolve.model(document)
    refused = ""
except Exception as error:
    refused = str(error)
document["spec"]["nodeSets"][0]["name"] = "cpu"
policies = {one["metadata"]["name"]: one["spec"]["podSelector"] for one in objects("cluster_base", "network_policy.yml.j2")}
print(json.dumps({
    "labels": found.labels,
    "set": found.applyset.name,
    "accounts": [one["metadata"]["name"] for one in objects("cluster_base", "service_account.yml.j2")],
    "teardown": [one.name for one in model.teardown.applysets],
    "refused": refused,
    "policies": policies,
    "condition": conditions.COMPONENTS.get("portal"),
    "watched": sorted(kind.name for kind in children.KINDS),
    "kinds": sorted(components.KINDS),
}))
"""


def test_the_field_reaches_the_model_the_definition_and_the_pod(tmp_path: Path) -> None:
    root = tree(tmp_path)
    apply(root, differences("A field"))
    found = run(root, BEGIN + FIELD)
    assert found.pop("definition") == {
        "type": "string",
        "description": "What sshd shows before authentication. Without it, nothing.",
        "minLength": 1,
        "maxLength": 1024,
        "pattern": "^[^\\x00]*$",
    }
    assert found == {"without": ["", False], "model": True, "pod": True, "page": True}
    script = root / "images/slurm/entry/login.sh"
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


def test_from_the_entry_of_a_component_follows_what_is_promised(tmp_path: Path) -> None:
    root = tree(tmp_path)
    apply(root, differences("A component"))
    found = run(root, BEGIN + COMPONENT)
    assert found["labels"]["app.kubernetes.io/component"] == "portal"
    assert found["set"] == "lab-portal"
    assert "lab-portal" in found["accounts"]
    order = found["teardown"]
    assert order.index("lab-worker") < order.index("lab-portal") < order.index("lab-controller")
    assert "spec.nodeSets[0].name is portal, the name of one of corral's own components" in found["refused"]
    (expression,) = found["policies"]["lab-base-egress-controller"]["matchExpressions"]
    assert sorted(expression["values"]) == ["base", "controller", "portal"]
    assert found["condition"] == "PortalReady"
    assert found["watched"] == sorted([*found["kinds"], "Pod"])


NAMED = sorted(
    {
        name
        for name in re.findall(r"`([\w.-]+(?:/[\w.<>-]+)+/?)`", text(PAGE))
        # Of Slurm's image and of Kubernetes, not of the tree.
        if not name.startswith("spec.")
    }
)


@pytest.mark.parametrize("name", NAMED)
def test_the_files_that_the_page_names_are_there(name: str) -> None:
    """Of one that is yet to be made, its folder is."""
    path = ROOT / (name if "<" not in name else str(Path(name.rstrip("/")).parent))
    assert path.exists()


def test_the_page_names_files() -> None:
    assert len(NAMED) > 25
