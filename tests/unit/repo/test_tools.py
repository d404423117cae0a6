# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Makefile and the programs behind it: what they promise, and how they do on a machine that is not the author's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from .repository import ROOT, files, program, text

MAKEFILE = text(Path("Makefile"))
TARGETS = set(MAKEFILE.split(".PHONY:")[1].split())
PROMISED = {
    *(
        "demo",
        "test",
        "lab-up",
        "lab-down",
        "lab-status",
        "images",
        "lint",
        "unit",
        "integration",
        "bench",
        "collection",
        "crd",
        "clean",
        "help",
    ),
}


def bash(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", script], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def make(*words: str, **environment: str) -> str:
    clean = {
        name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "KUBECONFIG", "LAB_READY"}
    }
    done = subprocess.run(["make", *words], cwd=ROOT, env={**clean, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_make_alone_says_what_every_target_does() -> None:
    said = make()
    assert said == make("help")
    assert set(re.findall(r"^  make ([a-z-]+) +\S", said, re.MULTILINE)) == TARGETS
    assert PROMISED <= TARGETS


def test_documents_name_only_targets_that_are_there() -> None:
    spoken = {
        (str(path), target)
        for path in files()
        if path.suffix == ".md"
        for target in re.findall(r"(?:^|`)make ([a-z][a-z-]*)", text(path), re.MULTILINE)
    }
    assert spoken
    assert [f"{path}: make {target}" for path, target in sorted(spoken) if target not in TARGETS] == []


def test_demo_brings_up_the_lab() -> None:
    plan = make("--dry-run", "demo")
    for step in ("tools/prerequisites", "images/build slurm jail", "lab/lab up", "lab/lab load", "tools/run --lab tools/demo"):
        assert step in plan
    assert plan.index("lab/lab up") < plan.index("lab/lab load") < plan.index("tools/demo")


def test_the_operators_image_is_brought_in_where_it_is_needed() -> None:
    assert "operator" not in make("--dry-run", "demo")
    plan = make("--dry-run", "demo", "MODE=operator")
    assert "images/build slurm jail mariadb operator | tools/run xargs -d '\\n' lab/lab load" in plan
    assert "images/build slurm jail mariadb operator" in make("--dry-run", "integration")


def test_demo_in_the_users_cluster_leaves_the_lab_alone() -> None:
    plan = make("--dry-run", "demo", KUBECONFIG="/somewhere/config")
    assert "tools/demo" in plan
    assert "lab" not in plan


@pytest.mark.parametrize(("mode", "lab"), [("push", True), ("push", False), ("operator", True)])
def test_the_last_command_of_the_demo_works_in_the_shell_that_reads_it(mode: str, lab: bool, tmp_path: Path) -> None:
    """That shell is outside the environment in which the demonstration runs, and has no more than a PATH."""
    kubectl = ROOT / "lab" / "kubectl" if lab else tmp_path / "kubectl"
    shown = text(Path("tools/demo")).rsplit('where="KUBECONFIG', 1)[1]
    done = bash(f'work=w port=22 address=a kubectl={kubectl}; where="KUBECONFIG{shown}', MODE=mode, KUBECONFIG="/own/config")
    assert done.returncode == 0, done.stderr
    command = done.stdout.strip().splitlines()[-1].strip()
    assert command.startswith("KUBECONFIG=/own/config ") is not lab
    program = command.removeprefix("KUBECONFIG=/own/config ").split()[0]
    assert (ROOT / program).is_file(), command
    assert os.access(ROOT / program, os.X_OK)
    if mode == "push":
        path = ":".join(folder for folder in os.environ["PATH"].split(":") if not (Path(folder) / "ansible-playbook").exists())
        tried = bash(f"env -i HOME=$HOME PATH={path} {command} --syntax-check")
        assert "corral/slurm/playbooks/destroy.yml" in tried.stdout, tried.stdout + tried.stderr


def test_readme_and_the_labs_page_say_the_same_of_the_machine() -> None:
    for page in ("README.md", "docs/lab.md"):
        for words in ("4 GiB of memory", "15 GiB of free disk", "Go ≥ 1.24", "20 "):
            assert words in text(Path(page)), f"{page}: {words}"
    needs = text(Path("lab/corral_lab/prerequisites.py"))
    assert "MEMORY_BYTES = 4 * GIB" in needs
    assert "DISK_BYTES = 15 * GIB" in needs


def test_tests_never_reach_the_users_cluster() -> None:
    done = bash("tools/run --lab env", KUBECONFIG="/not-the-labs", K8S_AUTH_HOST="https://not-the-labs", CORRAL_LAB_DIR="/lab")
    assert "KUBECONFIG=/lab/kubeconfig\n" in done.stdout
    assert "not-the-labs" not in done.stdout
    assert "K8S_AUTH" not in done.stdout


def test_a_shim_that_stands_for_no_python_is_passed_over(tmp_path: Path) -> None:
    shim = tmp_path / "python3"
    shim.write_text("#!/bin/sh\necho 'pyenv: python3: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    done = bash('. tools/lib.sh; find_python "3.11 3.12 3.13"', PATH=f"{tmp_path}:{os.environ['PATH']}", CORRAL_PYTHON="")
    assert done.returncode == 0, done.stderr
    found = Path(done.stdout.strip())
    assert found.is_absolute()
    assert found.exists()
    assert found.parent != tmp_path


def test_an_unfit_python_is_not_taken(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = bash('. tools/lib.sh; find_python "9.9"', CORRAL_PYTHON=str(old))
    assert done.returncode == 1
    assert done.stdout == ""


def test_the_tree_is_this_checkout_and_is_made_once(tmp_path: Path) -> None:
    first = bash("tools/tree", CORRAL_CACHE=str(tmp_path)).stdout.strip()
    link = Path(first, "ansible_collections/corral/slurm")
    assert link.resolve() == ROOT
    made = link.lstat().st_mtime_ns
    assert bash("tools/tree", CORRAL_CACHE=str(tmp_path)).stdout.strip() == first
    assert link.lstat().st_mtime_ns == made


PLUGINS = "ansible_collections.corral.slurm.plugins"
UTILS = f"{PLUGINS}.module_utils"
WRONG = [
    ("plugins/module_utils/_kube/client.py", f"from {UTILS}._slurm import hostlist", f"{UTILS}._slurm.hostlist"),
    ("plugins/module_utils/_kube/client.py", f"from {UTILS} import _cluster", f"{UTILS}._cluster"),
    ("plugins/module_utils/_kube/client.py", f"import {UTILS}._cluster.model", f"{UTILS}._cluster.model"),
    ("plugins/module_utils/_kube/apply.py", "from .._slurm import hostlist", f"{UTILS}._slurm.hostlist"),
    ("plugins/module_utils/_kube/client.py", f"def f():\n    from {UTILS}._slurm.conf import text", f"{UTILS}._slurm.conf"),
    ("plugins/module_utils/_slurm/nodes.py", f"from {UTILS}._kube.client import Client", f"{UTILS}._kube.client"),
    ("plugins/module_utils/_cluster/model.py", f"from {UTILS}._slurm.nodes import parse", f"{UTILS}._slurm.nodes"),
    ("plugins/module_utils/_slurm/nodes.py", "from ansible.errors import AnsibleError", "ansible"),
    ("plugins/module_utils/_errors.py", f"from {UTILS}._slurm import hostlist", f"{UTILS}._slurm.hostlist"),
    ("plugins/module_utils/_kube/client.py", f"from {PLUGINS}.plugin_utils._action import plain", f"{PLUGINS}.plugin_utils._action"),
    ("plugins/module_utils/_converge.py", f"from {UTILS}._module import run_module", f"{UTILS}._module"),
    ("plugins/modules/k8s_apply.py", f"from {PLUGINS}.plugin_utils._action import plain", f"{PLUGINS}.plugin_utils._action"),
    ("operator/corral_operator/reconcile/queue.py", "import ansible_runner", "ansible_runner"),
    ("operator/corral_operator/reconcile/queue.py", f"from {UTILS}._slurm import hostlist", f"{UTILS}._slurm.hostlist"),
    ("operator/corral_operator/api/watch.py", "from corral_operator.runs import report", "corral_operator.runs.report"),
    ("operator/corral_operator/reconcile/queue.py", "from corral_operator.reconcile import status", "corral_operator.reconcile.status"),
]
RIGHT = [
    ("plugins/module_utils/_kube/client.py", "import urllib3"),
    ("plugins/module_utils/_kube/client.py", f"from {UTILS}._errors import CorralError"),
    ("plugins/module_utils/_kube/apply.py", "from .client import Client"),
    ("plugins/module_utils/_cluster/config.py", f"from {UTILS}._slurm.hostlist import compress"),
    ("plugins/module_utils/_cluster/config.py", f"from {UTILS}._slurm import conf, hostlist"),
]


def imports(folder: Path, added: Iterable[tuple[str, str]]) -> subprocess.CompletedProcess[str]:
    """Check the imports of this checkout with some more."""
    tree = folder / "ansible_collections/corral/slurm"
    for part in ("plugins", "operator"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file, line in added:
        (tree / file).parent.mkdir(exist_ok=True)
        with (tree / file).open("a") as opened:
            opened.write(f"\n{line}\n")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as command; command()", "--no-cache"]
    path = f"{folder}:{tree / 'operator'}"
    return subprocess.run(
        [*command, str(ROOT / "pyproject.toml")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    done = imports(tmp_path_factory.mktemp("wrong"), [(file, line) for file, line, _imported in WRONG])
    assert done.returncode == 1, done.stdout + done.stderr
    return " ".join(done.stdout.split())


@pytest.mark.parametrize(("file", "imported"), [(file, imported) for file, _line, imported in WRONG])
def test_an_import_that_goes_the_wrong_way_is_found(told: str, file: str, imported: str) -> None:
    module = file.removeprefix("operator/").removesuffix(".py").replace("/", ".")
    importer = module if module.startswith("corral_operator") else f"ansible_collections.corral.slurm.{module}"
    assert f"{importer} -> {imported} (l." in told


def test_no_folder_below_a_package_is_passed_over() -> None:
    """The checker of imports sees one without an __init__.py only where the folder above it has none either."""
    packages = {file.parent for file in files() if file.suffix == ".py" and file.parts[0] in ("plugins", "operator")}
    assert [
        str(one) for one in packages if (ROOT / one.parent / "__init__.py").exists() and not (ROOT / one / "__init__.py").exists()
    ] == []


def test_the_right_imports_pass(tmp_path: Path) -> None:
    done = imports(tmp_path, RIGHT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_to_what_the_archive_leaves_out_lead_to_the_repository(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "README.md").write_text("[up](../nowhere.md)\n")
    (tmp_path / "galaxy.yml").write_text("repository: https://git.example/x\nbuild_ignore: [images]\n")
    page = tmp_path / "docs" / "page.md"
    links = "[a](../images/README.md#x) [b](other.md) [c](https://example.org/images/y) [d](#here) `[e]` (f.md)"
    page.write_text(links)
    (tmp_path / "docs" / "other.md").write_text("[back](page.md)\n")
    said: list[str] = []
    assert program("tools/links.py").main(tmp_path, said.append) == 0
    assert page.read_text() == links.replace("../images/README.md", "https://git.example/x/blob/main/images/README.md")
    page.write_text("[a](../images/none.md)")
    assert program("tools/links.py").main(tmp_path, said.append) == 1
    assert said == ["docs/page.md: ../images/none.md leads nowhere; correct it there."]
