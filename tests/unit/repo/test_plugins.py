# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module is documented, has its spec for everybody to call, and an action plugin of the same name; groups of actions are complete."""

from __future__ import annotations

import functools
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .repository import load, names

MODULES = names("plugins/modules")
COLLECTION = "corral.slurm"


@functools.cache
def documentation() -> dict[str, Any]:
    """What ansible-doc makes of the modules: fragments merged in, defaults filled."""
    command = [
        str(Path(sys.executable).with_name("ansible-doc")),
        "--type",
        "module",
        "--json",
        *(f"{COLLECTION}.{name}" for name in MODULES),
    ]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {name.removeprefix(f"{COLLECTION}."): page for name, page in found.items()}


def spec(name: str) -> dict[str, Any]:
    module = importlib.import_module(f"ansible_collections.{COLLECTION}.plugins.modules.{name}")
    found: dict[str, Any] = module.argument_spec()
    return found


def test_there_are_modules() -> None:
    assert "k8s_apply" in MODULES


@pytest.mark.parametrize("name", MODULES)
def test_module_is_documented(name: str) -> None:
    page = documentation()[name]
    assert page.get("examples"), f"{name} has no EXAMPLES"
    assert page.get("return"), f"{name} has no RETURN"
    assert f"{COLLECTION}.{name}:" in page["examples"], f"the examples of {name} do not call it by its full name"
    assert {"check_mode", "diff_mode"} <= set(page["doc"].get("attributes", {})), (
        f"{name} does not say whether it supports check and diff mode"
    )


@pytest.mark.parametrize("name", MODULES)
def test_documented_options_are_those_of_the_spec(name: str) -> None:
    """validate-modules compares them in the module; this holds for whoever calls argument_spec(), the action plugin above all."""
    documented = {option: page.get("default") for option, page in documentation()[name]["doc"].get("options", {}).items()}
    assert documented == {option: page.get("default") for option, page in spec(name).items()}


@pytest.mark.parametrize("name", MODULES)
def test_module_has_an_action_with_the_same_spec(name: str) -> None:
    action = importlib.import_module(f"ansible_collections.{COLLECTION}.plugins.action.{name}").ActionModule
    assert action.argument_spec() == spec(name)


def test_every_action_is_a_module() -> None:
    assert names("plugins/action") == MODULES


def test_the_action_group_holds_all_that_speak_to_kubernetes() -> None:
    groups = load("meta/runtime.yml")["action_groups"]
    assert groups["kubernetes"] == [name for name in MODULES if "kubeconfig" in spec(name)]


@pytest.mark.parametrize("name", MODULES)
def test_module_says_its_action_group(name: str) -> None:
    grouped = "kubeconfig" in spec(name)
    attribute = documentation()[name]["doc"].get("attributes", {}).get("action_group", {})
    assert (f"{COLLECTION}.kubernetes" in attribute.get("membership", [])) == grouped
