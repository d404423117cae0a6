# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every role has the same shape, and its interface is written twice in the same words: argument_specs for Ansible and readers, defaults for real."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import components, resolve
from ansible_collections.corral.slurm.plugins.module_utils._kube.render import render

from .repository import ROOT, files, load, text

ROLES = sorted({path.parts[1] for path in files() if path.parts[0] == "roles"})
SHAPE = ("README.md", "defaults/main.yml", "meta/argument_specs.yml", "meta/main.yml", "tasks/main.yml")


def options(role: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    return found


def test_there_are_roles() -> None:
    assert "slurm_controller" in ROLES


@pytest.mark.parametrize("role", ROLES)
def test_has_the_shape_of_a_role(role: str) -> None:
    missing = [name for name in SHAPE if not (ROOT / "roles" / role / name).is_file()]
    assert not missing, f"roles/{role} lacks {', '.join(missing)}"


@pytest.mark.parametrize("role", ROLES)
def test_defaults_are_those_of_the_argument_specs(role: str) -> None:
    documented = {name: option["default"] for name, option in options(role).items() if "default" in option}
    assert (load(f"roles/{role}/defaults/main.yml") or {}) == documented


@pytest.mark.parametrize("role", ROLES)
def test_options_are_documented_and_carry_the_roles_name(role: str) -> None:
    for name, option in options(role).items():
        # `corral` is the model that all roles share; everything else belongs to one role.
        assert name == "corral" or name.startswith(f"{role}_"), f"{role}: the option {name} does not begin with {role}_"
        assert option.get("description"), f"{role}: the option {name} has no description"
        assert option.get("type"), f"{role}: the option {name} has no type"
        assert option.get("required") is True or "default" in option, f"{role}: the option {name} is neither required nor has it a default"


def named_templates(role: str) -> set[str]:
    tasks = [task for path in files() if path.is_relative_to(f"roles/{role}/tasks") for task in load(str(path)) or []]
    tasks += [inner for task in tasks for inner in task.get("block", [])]
    lists = [(task.get("corral.slurm.k8s_apply") or {}).get("templates", []) for task in tasks]
    return {name for names in lists if isinstance(names, list) for name in names}  # an expression names its files by itself


@pytest.mark.parametrize("role", ROLES)
def test_templates_are_used_and_exist(role: str) -> None:
    """A template nobody renders is dead, one that is not there fails only in a user's run."""
    there = {path.name for path in files() if path.is_relative_to(f"roles/{role}/templates")}
    spoken = "\n".join(text(path) for path in files() if path.parts[0] in {"roles", "playbooks"} and path.suffix in {".yml", ".j2"})
    unused = [name for name in there if name not in spoken]
    assert not unused, f"roles/{role}: no task and no other template names {', '.join(unused)}"
    absent = named_templates(role) - there
    assert not absent, f"roles/{role}: tasks name templates that are not there: {', '.join(sorted(absent))}"


CLUSTER = sorted({part.role for part in components.COMPONENTS})
# Of one task alone, and not the model's.
OWN = {"populate_script": "#!/bin/sh\n", "api_server": {"within": defaultdict(list), "record": ""}, "new_node_sets": []}
APPLIED = {name for role in CLUSTER for name in named_templates(role)} - {
    "upgrade_check.yml.j2",
    "users_job.yml.j2",
    "database_client.yml.j2",
}


def test_the_dry_run_has_each_template_that_the_roles_apply() -> None:
    """What it lacks would be refused in the middle of a run."""
    (task,) = load("roles/cluster_base/tasks/dry_run.yml")
    tried = task["vars"]["cluster_base_templates"]
    wanted = {f"{role}/{name}" for role in CLUSTER for name in named_templates(role)}
    # Shared objects are made before, where they are missing; the upgrade's Job and the client of dumps are none of the cluster's.
    left_out = {f"cluster_base/{name}.yml.j2" for name in ("namespace", "priority_class")} | {
        "slurm_controller/upgrade_check.yml.j2",
        "accounting/database_client.yml.j2",
        "slurm_workers/node_set_size.yml.j2",
    }
    named = [
        name.removeprefix("{{ cluster_base_roles }}/").replace("/templates/", "/") if "/" in name else f"cluster_base/{name}"
        for name in tried
    ]
    assert sorted(named) == sorted(wanted - left_out)


def applied(tasks: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name and the arguments of each k8s_apply, in blocks too."""
    for task in tasks:
        if "corral.slurm.k8s_apply" in task:
            yield task["name"], task["corral.slurm.k8s_apply"]
        for part in ("block", "rescue", "always"):
            yield from applied(task.get(part) or [])


@pytest.mark.parametrize("role", CLUSTER)
def test_what_others_add_to_a_clusters_objects_is_taken_back(role: str) -> None:
    """Without foreign_fields a set's objects keep what others have added to them."""
    found = [one for path in files() if path.is_relative_to(f"roles/{role}/tasks") for one in applied(load(path) or [])]
    sets = {name: arguments for name, arguments in found if "applyset" in arguments and arguments.get("state") != "absent"}
    assert sets, f"roles/{role} applies no set"
    left = [name for name, arguments in sets.items() if arguments.get("foreign_fields") != "{{ corral.foreign_fields }}"]
    assert not left, f"roles/{role}: foreign_fields is missing in {', '.join(left)}"


def doubled(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One object after another is what a template's separators have to keep apart."""
    return [{**item, "name": item["name"] + end} for item in items for end in ("", "-b")]


@pytest.mark.parametrize("role", CLUSTER)
def test_templates_make_the_objects_of_a_document_that_has_everything_twice(role: str) -> None:
    document = load("examples/full.yml")
    spec = document["spec"]
    spec["nodeSets"] = doubled(spec["nodeSets"])
    model = resolve.model(document, sizes={}).to_dict()
    roles = [ROOT / "roles" / name / "templates" for name in (role, "cluster_base")]
    own = {path.name for path in roles[0].glob("*.j2")} & APPLIED
    assert own
    for name in sorted(own):
        objects, _origins = render([roles[0] / name], {"corral": model, **OWN, "new_node_sets": model["scaling"]["scaled"]}, roles)
        names = [(item["kind"], item["metadata"]["name"]) for item in objects]
        assert len(set(names)) == len(names), name
        if name == "init_scripts.yml.j2":
            pods = model["workers"]["node_sets"] if role == "slurm_workers" else [model["login"]]
            assert [name for _kind, name in names] == [one["init_config_map"] for one in pods if one["init_scripts"]]
            assert names


def test_workers_have_their_names_before_slurmctld_reads_its_configuration() -> None:
    """It looks up where its nodes are then, and at no other time."""
    model = resolve.model(load("examples/full.yml"), sizes={}).to_dict()
    tasks = load("roles/slurm_controller/tasks/main.yml")
    begun = next(index for index, task in enumerate(tasks) if "corral.slurm.slurm_reconfigure" in task)
    (apply,) = (task["corral.slurm.k8s_apply"] for task in tasks[:begun] if "corral.slurm.k8s_apply" in task)
    roles = [ROOT / "roles" / name / "templates" for name in ("slurm_controller", "cluster_base")]
    objects, _origins = render([roles[0] / name for name in apply["templates"]], {"corral": model, **OWN}, roles)
    assert model["workers"]["service"] in {item["metadata"]["name"] for item in objects if item["kind"] == "Service"}
