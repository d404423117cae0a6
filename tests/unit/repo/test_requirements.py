# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""requirements.txt is complete: every package, and every one that those need, at one version; and nothing that nobody needs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from .repository import load, text

PYTHONS = ("3.11", "3.12", "3.13")
DIRECT, BROUGHT = text(Path("requirements.txt")).split("# What those bring with them.")


def pins(part: str) -> dict[str, str]:
    found = {}
    for line in part.splitlines():
        if line and not line.startswith("#"):
            match = re.fullmatch(r"([A-Za-z0-9._-]+)==([^\s;]+)(?: +#.*)?", line)
            assert match, f"requirements.txt: {line!r} is not name==version"
            found[canonicalize_name(match[1])] = match[2]
    return found


ALL = pins(DIRECT) | pins(BROUGHT)


def requirements(path: str) -> list[str]:
    return [line for line in text(Path(path)).splitlines() if line and not line.startswith("#")]


def needed(name: str, extras: frozenset[str], pythons: tuple[str, ...]) -> Iterator[tuple[str, frozenset[str]]]:
    """What a package needs on any of the Pythons."""
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        environments = [
            {"python_version": python, "python_full_version": f"{python}.1", "extra": extra}
            for python in pythons
            for extra in {"", *extras}
        ]
        if requirement.marker is None or any(requirement.marker.evaluate(environment) for environment in environments):
            yield canonicalize_name(requirement.name), frozenset(requirement.extras)


def closure(names: Iterable[str], pythons: tuple[str, ...]) -> set[str]:
    """The packages, and all that they need."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting: list[tuple[str, frozenset[str]]] = [(canonicalize_name(name), frozenset()) for name in names]
    while waiting:
        item = waiting.pop()
        if item not in seen:
            seen.add(item)
            waiting += needed(*item, pythons)
    return {name for name, _extras in seen}


def test_everything_needed_is_pinned_and_everything_pinned_is_needed() -> None:
    assert closure(pins(DIRECT), PYTHONS) == set(ALL)


@pytest.mark.parametrize("name", sorted(ALL))
def test_the_installed_version_is_the_pinned_one(name: str) -> None:
    assert distribution(name).version == ALL[name]


@pytest.mark.parametrize("part", [DIRECT, BROUGHT], ids=["direct", "brought"])
def test_names_are_sorted(part: str) -> None:
    names = [name.lower() for name in re.findall(r"^([A-Za-z0-9._-]+)==", part, re.MULTILINE)]
    assert [canonicalize_name(name) for name in names] == sorted(canonicalize_name(name) for name in names)


def test_the_operators_image_has_what_it_needs_at_these_versions_and_nothing_else() -> None:
    image = pins(text(Path("images/operator/requirements.txt")))
    assert {name: version for name, version in image.items() if name in ALL} == {name: ALL[name] for name in image if name in ALL}
    project = tomllib.loads(text(Path("operator/pyproject.toml")))
    own = [Requirement(line).name for line in project["project"]["dependencies"]]
    # kubernetes is for kubeconfigs, of which a pod has none.
    collections = [Requirement(line).name for line in requirements("meta/ee-requirements.txt") if not line.startswith("kubernetes")]
    wanted = closure([*own, *collections, "websocket-client"], ("3.13",))
    assert set(image) == wanted | {"setuptools"}


def test_the_execution_environment_of_awx_is_the_operators() -> None:
    image = pins(text(Path("images/operator/requirements.txt")))
    definition = load("images/operator/execution-environment.yml")
    wanted = definition["dependencies"]
    assert wanted["python"] == "requirements.txt"
    assert [wanted[name]["package_pip"] for name in ("ansible_core", "ansible_runner")] == [
        f"{name}=={image[name]}" for name in ("ansible-core", "ansible-runner")
    ]
    archive = f"corral-slurm-{load('galaxy.yml')['version']}.tar.gz"
    assert wanted["galaxy"]["collections"] == [{"type": "file", "name": f"archives/{archive}"}]
    assert definition["additional_build_files"] == [{"src": f"../../build/{archive}", "dest": "archives"}]


def test_an_execution_environment_gets_versions_that_were_tested() -> None:
    for line in requirements("meta/ee-requirements.txt"):
        requirement = Requirement(line)
        assert canonicalize_name(requirement.name) in pins(DIRECT), f"{requirement.name} is not among the direct requirements"
        assert Version(ALL[canonicalize_name(requirement.name)]) in requirement.specifier
