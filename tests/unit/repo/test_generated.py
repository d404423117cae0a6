# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is written twice says the same: the CRD and its schema, versions, changelog, the files that leave the repository."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve
from ansible_collections.corral.slurm.plugins.module_utils._cluster.version import COLLECTION_VERSION

from .repository import ROOT, files, load, program, text

GALAXY = load("galaxy.yml")
# What a collection's archive may hold at its top: what runs, and what people read.
SHIPPED = {
    *("meta", "plugins", "roles", "playbooks"),
    *("docs", "examples", "changelogs", "README.md", "LICENSE", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md", "galaxy.yml"),
}


def test_the_crds_are_the_schemas() -> None:
    crd = program("tools/crd.py")
    for file, definition in crd.FILES.items():
        assert file.read_text(encoding="utf-8") == crd.text(definition()), "run `make crd`"
    assert crd.REFERENCE.read_text(encoding="utf-8") == crd.reference(), "run `make crd`"


def named(groups: dict[str, str]) -> list[str]:
    return [name for names in groups.values() for name in names.split()]


@pytest.mark.parametrize("kind", ["worker", "login"])
def test_the_seccomp_profiles_are_their_lists(kind: str) -> None:
    tool = program("tools/seccomp.py")
    assert (tool.FOLDER / f"{kind}.json").read_text(encoding="utf-8") == tool.text(kind), "run `make profiles`"


def test_every_system_call_is_allowed_or_refused_once() -> None:
    tool = program("tools/seccomp.py")
    judged = [
        *(named(tool.COMMON) + named(tool.WORKER) + named(tool.FORBIDDEN) + named(tool.LEFT_OUT)),
        *(name for _comment, name, _cases in (*tool.ARGUMENTS, *tool.WORKER_ARGUMENTS)),
    ]
    assert len(judged) == len(set(judged)), sorted(name for name in set(judged) if judged.count(name) > 1)
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if header.exists():
        kernel = set(re.findall(r"^#define __NR_(\w+) ", header.read_text(encoding="utf-8"), re.MULTILINE))
        assert kernel <= set(judged), f"judge them in tools/seccomp.py: {', '.join(sorted(kernel - set(judged)))}"


def test_every_capability_has_its_reason() -> None:
    rows = re.findall(r"^\| (`[A-Z_`, ]+`) \| (yes|) *\| (yes|) *\|", text(Path("docs/security.md")), re.MULTILINE)
    told = [(capability, *row[1:]) for row in rows for capability in re.findall("[A-Z_]+", row[0])]
    assert sorted(name for name, worker, _login in told if worker) == list(resolve.WORKER_CAPABILITIES)
    assert sorted(name for name, _worker, login in told if login) == list(resolve.LOGIN_CAPABILITIES)


def test_login_pods_may_do_nothing_that_workers_may_not() -> None:
    tool = program("tools/seccomp.py")
    worker, login = ({json.dumps(rule) for rule in tool.profile(kind)["syscalls"]} for kind in ("worker", "login"))
    assert login < worker


def test_the_version_is_the_same_everywhere() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(-[0-9a-z.]+)?", GALAXY["version"])
    assert GALAXY["version"] == COLLECTION_VERSION
    assert set(re.findall(r"corral-slurm-([0-9][^ ]*)\.tar\.gz", text(Path("README.md")))) == {GALAXY["version"]}


def test_changes_are_written_down() -> None:
    fragments = [path for path in files() if path.parent == Path("changelogs/fragments")]
    released = load("changelogs/changelog.yaml")["releases"]
    assert fragments or GALAXY["version"] in released, "neither a changelog fragment nor a release of this version is there"
    for path in fragments:
        assert re.fullmatch(r"\d+-[a-z0-9-]+\.yml", path.name), f"{path}: name fragments <number>-<slug>.yml"


def test_the_archive_holds_what_runs_and_what_is_read() -> None:
    top = {path.parts[0] for path in files()}
    kept = top - set(GALAXY["build_ignore"])
    assert kept <= SHIPPED, f"add to build_ignore of galaxy.yml: {', '.join(sorted(kept - SHIPPED))}"
    assert not set(GALAXY["build_ignore"]) & SHIPPED


def test_the_licence_is_the_whole_gpl() -> None:
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "GNU GENERAL PUBLIC LICENSE" in licence
    assert "Version 3, 29 June 2007" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_no_runtime_file_lies_outside_what_is_installed() -> None:
    """Roles and playbooks must work from an archive that holds no more than meta, plugins, roles and playbooks."""
    outside = re.compile(r"(?:\.\./)+(?:files|images|lab|tools|tests|examples)/")
    found = [
        str(path)
        for path in files()
        if path.parts[0] in {"plugins", "roles", "playbooks"}
        and path.suffix in {".py", ".yml", ".j2", ".sh"}
        and outside.search(text(path))
    ]
    assert found == []


def test_the_operators_image_is_of_the_collections_version() -> None:
    images = text(Path("images/build"))
    tag = f"operator:{GALAXY['version']}"
    assert f'"{tag}": Image("{tag}"' in images
    assert set(
        re.findall(
            r"corral/operator:([0-9][0-9a-z.-]*)", text(Path("README.md")) + text(Path("images/README.md")) + text(Path("docs/operator.md"))
        )
    ) == {GALAXY["version"]}
    project = tomllib.loads(text(Path("operator/pyproject.toml")))
    assert project["project"]["version"] == GALAXY["version"]
