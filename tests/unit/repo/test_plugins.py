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

from ansible_collections.corral.slurm.plugins.inventory.slurm import source_options
from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options

from ... import ansible_plugins
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


def test_plugins_have_the_connection_options_of_modules() -> None:
    """With the same words, and from the same environment: one fragment, and what each type of plugin adds."""
    inventory, pod = (plugin_page(kind, name)["doc"]["options"] for kind, name in (("inventory", "slurm"), ("connection", "pod")))
    modules = documentation()["slurm_node_info"]["doc"]["options"]
    for name, option in connection_options().items():
        said = {key: modules[name].get(key) for key in ("description", "type")}
        assert {key: inventory[name].get(key) for key in said} == {key: pod[name].get(key) for key in said} == said
        assert [one["name"] for one in pod[name]["env"]] == option["fallback"][1]
        assert [one["name"] for one in pod[name]["vars"]] == [f"ansible_pod_{name}"]
    assert {name for name, option in source_options().items() if inventory[name].get("default") == option.get("default")} == set(
        source_options()
    )


def plugin_page(kind: str, name: str) -> dict[str, Any]:
    return ansible_plugins.documentation(kind, f"{COLLECTION}.{name}")


@pytest.mark.parametrize(("kind", "name"), [("inventory", "slurm"), ("connection", "pod")])
def test_other_plugins_state_nothing_of_modules(kind: str, name: str) -> None:
    assert "attributes" not in plugin_page(kind, name)["doc"], "an action group and check mode are modules' affairs"
