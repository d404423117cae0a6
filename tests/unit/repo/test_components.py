# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry of components against what is made of it, and against what cannot be: the templates' objects, and the rights that YAML gives."""

from __future__ import annotations

import functools
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import components, names, resolve
from ansible_collections.corral.slurm.plugins.module_utils._kube.render import render
from corral_operator.reconcile.children import KINDS

from .repository import ROOT, load, text
from .test_roles import APPLIED, OWN

Json = dict[str, Any]
PARTS = {part.name: part for part in components.COMPONENTS}
ALL = {"get", "list", "watch", "create", "patch", "delete"}


def documents() -> list[Json]:
    """What the examples have, and what they do not: volumes of directories, a second controller, a directory of users, and databases of its own."""
    full = load("examples/full.yml")
    more = {**full, "spec": {**full["spec"]}}
    directory = {"hostPath": "/srv/a", "size": "1Gi", "accessMode": "ReadWriteMany"}
    more["spec"]["controller"] = {**full["spec"]["controller"], "replicas": 2, "stateVolume": directory}
    more["spec"]["jail"] = {**full["spec"]["jail"], "volume": {"hostPath": "/srv/b", "size": "1Gi"}}
    more["spec"]["sssd"] = {"image": "example/sssd:1", "configSecret": "ldap", "caConfigMap": "ca"}
    kept = {"schedule": "30 2 * * *", "volume": {"hostPath": "/srv/d", "size": "1Gi"}}
    more["spec"]["accounting"] = {
        "database": {"embedded": {"volume": {"hostPath": "/srv/c", "size": "1Gi"}}, "backup": kept},
        "enforce": ["associations"],
        "purge": {"jobs": "12months"},
        "archive": {"volume": {"hostPath": "/srv/e", "size": "1Gi"}},
    }
    more["spec"]["rest"] = {**full["spec"]["rest"], "tls": {"secret": "rest-certificate"}}
    operated = {
        **full,
        "spec": {**full["spec"], "accounting": {**more["spec"]["accounting"], "database": {"mariadbOperator": {}, "backup": kept}}},
    }
    return [full, more, operated, *(load(f"examples/{name}.yml") for name in ("minimal", "own"))]


@functools.cache
def made() -> tuple[tuple[resolve.Model, tuple[Json, ...]], ...]:
    """The models, and all objects of each but those that are shared with others."""
    found = []
    for document in documents():
        model = resolve.model(document, sizes={})
        objects: list[Json] = []
        for role in sorted({part.role for part in components.COMPONENTS}):
            folders = [ROOT / "roles" / name / "templates" for name in (role, "cluster_base")]
            templates = [path for path in sorted(folders[0].glob("*.j2")) if path.name in APPLIED | {"users_job.yml.j2"}]
            objects.extend(render(templates, {"corral": model.to_dict(), **OWN}, folders)[0])
        secrets = [{"kind": "Secret", "metadata": {key: one[key] for key in ("name", "namespace", "labels")}} for one in model.secrets]
        found.append((model, (*objects, *secrets)))
    return tuple(found)


def kinds() -> dict[str, set[str]]:
    """The kinds of each component's objects, by their label. Namespaces and classes are of nobody's, whatever label they have."""
    found = defaultdict(set)
    for _model, objects in made():
        for item in objects:
            if item["kind"] not in ("Namespace", "PriorityClass"):
                found[item["metadata"]["labels"][components.LABEL]].add(item["kind"])
    return found


def test_the_objects_of_each_component_are_of_its_kinds() -> None:
    assert {name: sorted(found) for name, found in kinds().items()} == {name: sorted(part.kinds) for name, part in PARTS.items()}


def test_all_kinds_are_watched() -> None:
    wanted = {kind for part in PARTS.values() for kind in part.kinds} - {"PersistentVolume"}
    assert set(components.KINDS) == wanted
    assert {kind.name for kind in KINDS} == wanted | {"Pod"}


@pytest.mark.parametrize("kind", sorted(components.KINDS))
def test_a_run_has_the_rights_that_it_needs(kind: str) -> None:
    """Those of the operator are the same, see test_operator_role.py."""
    version, plural = components.KINDS[kind]
    rules = load("examples/rights.yml")["rules"]
    given = [
        set(rule["verbs"])
        for rule in rules
        if version.rpartition("/")[0] in rule["apiGroups"] and plural in rule["resources"] and "resourceNames" not in rule
    ]
    assert given == [ALL - {"list", "watch"} if kind == "Secret" else ALL]


def test_names_that_clusters_could_share_are_all_known() -> None:
    for model, objects in made():
        known = {(kind, name) for kind, _namespace, name in names.of(model)}
        there = {(item["kind"], item["metadata"]["name"]) for item in objects if item["kind"] in {kind for kind, _name in known}}
        # The probe of the directory, whose name has a hash of it.
        assert {one for one in there - known if "-base-sssd-check-" not in one[1]} == set()


def test_components_go_in_the_other_order_than_they_come() -> None:
    model = made()[0][0]
    assert [one.name.removeprefix(f"{model.name}-") for one in model.teardown.applysets] == [
        "login",
        "worker",
        "monitoring",
        "rest",
        "controller",
        "accounting",
        "jail-accounts",
        "jail",
        "base",
    ]
    found = [list(model.components) for model, _objects in made()]
    assert found[0] == [name for name in PARTS if name not in ("database", "mariadb")], "somebody else's database"
    assert found[1] == [name for name in PARTS if name not in ("mariadb", "certificate")], "the cluster's own"
    assert found[2] == [name for name in PARTS if name != "database"], "one that another operator makes"
    assert found[3] == [name for name, part in PARTS.items() if not part.field or name in ("monitoring", "prometheus")], (
        "which all have by default"
    )


def test_the_site_has_the_role_of_each() -> None:
    site = text(Path("playbooks/tasks/pass.yml"))
    assert [part.role for part in components.COMPONENTS if f"name: corral.slurm.{part.role}\n" not in site] == []


@pytest.mark.parametrize("name", [part.name for part in components.COMPONENTS if part.daemon])
def test_the_daemon_of_each_is_looked_at(name: str) -> None:
    daemon = PARTS[name].daemon
    image = "mariadb" if name == "database" else "slurm"
    usage = text(Path(f"images/{image}/entry/probe.sh")).partition("probe.sh ")[2].split()[0]
    assert daemon in usage.split("|")
    for model, objects in made():
        if name not in model.components:
            continue
        pods = [
            item["spec"]["template"]["spec"]
            for item in objects
            if item["kind"] == "StatefulSet" and item["metadata"]["labels"][components.LABEL] == name
        ]
        assert pods
        for pod in pods:
            assert pod["serviceAccountName"] == model.components[name].account
            (container,) = pod["containers"]
            assert container["name"] == daemon
            assert all(container[probe]["exec"]["command"][1] == daemon for probe in ("startupProbe", "readinessProbe", "livenessProbe"))


def test_what_the_clients_of_sssd_see_is_neither_its_configuration_nor_its_private_socket() -> None:
    # But the database's, which knows no users, and those of the REST API and of monitoring, which run nothing for users.
    pods = [
        item["spec"]["template"]["spec"]
        for item in made()[1][1]
        if item["kind"] == "StatefulSet" and item["metadata"]["labels"][components.LABEL] not in {"database", "monitoring", "rest"}
    ]
    assert len(pods) >= 5
    for pod in pods:
        (sssd,) = [container for container in pod["initContainers"] if container["name"] == "sssd"]
        own = {mount["mountPath"]: mount["name"] for mount in sssd["volumeMounts"]}
        assert own["/etc/corral/ldap-ca"] == "sssd-ca"
        private = {own[path] for path in ("/etc/sssd", "/etc/corral/sssd", "/var/lib/sss", "/var/lib/sss/pipes/private")}
        others = [container for container in (*pod["initContainers"], *pod["containers"]) if container is not sssd]
        assert not private & {mount["name"] for container in others for mount in container["volumeMounts"]}
        assert {volume["name"] for volume in pod["volumes"]} >= set(own.values())


def test_the_keys_are_where_tokens_are_verified_and_the_rest_api_has_none() -> None:
    model, objects = made()[0]
    assert model.rest
    secrets: dict[str, set[str]] = {}
    for item in objects:
        if item["kind"] == "StatefulSet":
            spec = item["spec"]["template"]["spec"]
            names = {volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
            secrets.setdefault(item["metadata"]["labels"][components.LABEL], set()).update(names)
    assert secrets["rest"] == {model.rest.tls_secret}
    assert {name for name, found in secrets.items() if model.rest.jwt_secret in found} == {"accounting", "controller"}


def test_pods_have_an_account_of_their_component() -> None:
    for model, objects in made():
        wanted = {f"{model.name}-{name}" for name, part in PARTS.items() if part.account and name in model.components}
        assert {item["metadata"]["name"] for item in objects if item["kind"] == "ServiceAccount"} == wanted
