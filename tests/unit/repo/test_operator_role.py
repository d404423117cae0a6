# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role operator would apply: which rights, to whom, and pods that Pod Security's strictest level takes."""

from __future__ import annotations

import base64
import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.corral.slurm.plugins.module_utils._kube.render import render
from corral_operator.serving.metrics import Metrics
from corral_operator.settings import read

from .repository import ROOT, load, text

ROLE = ROOT / "roles" / "operator"
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
NO_KIND: dict[str, Any] = {"unknown_kinds": ["monitoring.coreos.com/v1/ServiceMonitor"]}


def objects(**given: Any) -> list[dict[str, Any]]:
    """The objects of the set, as a run with these variables would apply them."""
    loader = DataLoader()
    variables = {
        "role_path": str(ROLE),
        "operator_image": "registry.example/corral/operator:1",
        "operator_prometheus": NO_KIND,
        "operator_cert_manager": NO_KIND,
        **loader.load_from_file(str(ROLE / "defaults/main.yml"), trusted_as_template=True),
        **loader.load_from_file(str(ROLE / "vars/main.yml"), trusted_as_template=True),
        **given,
    }
    templar = Templar(loader, variables=variables)
    names = templar.template(variables["operator_templates"])
    rendered, _origins = render([ROLE / "templates" / name for name in names], templar.template(variables["operator_variables"]), [])
    return rendered


def rules(rendered: list[dict[str, Any]], *kinds: str) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """(group, resource, verb, names) of all roles of these kinds."""
    return [
        (group, resource, verb, tuple(rule.get("resourceNames", ())))
        for obj in rendered
        if obj["kind"] in kinds
        for rule in obj["rules"]
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    ]


def bound(rendered: list[dict[str, Any]], kind: str) -> set[str]:
    return {obj["roleRef"]["name"] for obj in rendered if obj["kind"] == kind}


def kinds(rendered: list[dict[str, Any]]) -> set[str]:
    return {obj["kind"] for obj in rendered}


def test_no_right_is_a_wildcard() -> None:
    rendered = objects(operator_namespaces=["a"], operator_host_paths=True)
    found = rules(rendered, "Role", "ClusterRole")
    assert found
    assert not [rule for rule in found if "*" in rule[:3] or rule[2] in {"escalate", "bind", "impersonate"}]


def test_in_the_whole_cluster_it_reads_documents_and_nothing_of_anybodys() -> None:
    rendered = objects(operator_namespaces=["a"])
    everywhere = [
        obj for obj in rendered if obj["kind"] == "ClusterRole" and obj["metadata"]["name"] in bound(rendered, "ClusterRoleBinding")
    ]
    assert {(group, resource) for group, resource, _verb, _names in rules(everywhere, "ClusterRole")} == {
        ("corral.hpc", "slurmclusters"),
        ("corral.hpc", "slurmclusters/status"),
        ("corral.hpc", "slurmtenants"),
        ("", "namespaces"),
        ("", "nodes"),
        ("scheduling.k8s.io", "priorityclasses"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
    }
    assert {rule[2] for rule in rules(everywhere, "ClusterRole") if rule[1].endswith("reviews")} == {"create"}
    assert [rule[2:] for rule in rules(everywhere, "ClusterRole") if rule[1] == "customresourcedefinitions"] == [
        ("get", ("slurmclusters.corral.hpc",))
    ]
    assert [rule[2] for rule in rules(everywhere, "ClusterRole") if rule[1] == "namespaces"] == ["get"]
    assert [rule[2] for rule in rules(everywhere, "ClusterRole") if rule[1] == "slurmtenants"] == ["list", "watch"]
    assert [rule[2] for rule in rules(everywhere, "ClusterRole") if rule[1] == "nodes"] == ["list", "watch"]
    assert [rule for rule in rules(everywhere, "ClusterRole") if rule[1] == "priorityclasses"] == [
        ("scheduling.k8s.io", "priorityclasses", "get", ("corral-control-plane", "corral-worker"))
    ]


def test_in_the_namespace_default_it_reads_where_the_api_server_is() -> None:
    rendered = [obj for obj in objects() if obj["metadata"].get("namespace") == "default"]
    assert [obj["kind"] for obj in rendered] == ["Role", "RoleBinding"]
    assert rules(rendered, "Role") == rules([load("examples/rights_api_server.yml")], "Role")
    assert rendered[1]["roleRef"]["name"] == rendered[0]["metadata"]["name"]


def test_host_paths_are_given_only_when_asked_for() -> None:
    assert "persistentvolumes" not in {rule[1] for rule in rules(objects(), "ClusterRole", "Role")}
    asked = objects(operator_host_paths=True)
    assert "persistentvolumes" in {rule[1] for rule in rules(asked, "ClusterRole")}
    assert "corral-operator:host-paths" in bound(asked, "ClusterRoleBinding")


def test_a_clusters_namespace_gets_the_rights_of_the_example_and_events() -> None:
    example = rules([load("examples/rights.yml")], "Role")
    rendered = objects(operator_namespaces=["a", "b"])
    [role] = [obj for obj in rendered if obj["metadata"]["name"] == "corral-operator:namespace" and obj["kind"] == "ClusterRole"]
    statuses = {("corral.hpc", f"{plural}/status", "patch", ()) for plural in ("slurmnodesets", "slurmtenants")}
    told = {("", "events", "create", ()), ("", "events", "patch", ()), *statuses}
    assert set(rules([role], "ClusterRole")) == {*example, *told}
    assert "corral-operator:namespace" not in bound(rendered, "ClusterRoleBinding")
    places = {
        obj["metadata"]["namespace"]
        for obj in rendered
        if obj["kind"] == "RoleBinding" and obj["roleRef"]["name"] == role["metadata"]["name"]
    }
    assert places == {"a", "b"}


def test_no_secret_can_be_listed() -> None:
    verbs = {rule[2] for rule in rules(objects(operator_namespaces=["a"]), "Role", "ClusterRole") if rule[1] == "secrets"}
    assert verbs == {"get", "create", "patch", "delete"}


@pytest.mark.parametrize("scope", ["Cluster", "Namespaced"])
def test_secrets_are_listed_and_watched_where_that_is_asked_for_and_only_in_its_namespaces(scope: str) -> None:
    asked = objects(operator_namespaces=["a"], operator_scope=scope, operator_watch_secrets=True)
    [role] = [obj for obj in asked if "secrets" in {rule[1] for rule in rules([obj], "Role", "ClusterRole")}]
    assert {rule[2] for rule in rules([role], "Role", "ClusterRole") if rule[1] == "secrets"} == {
        "get",
        "list",
        "watch",
        "create",
        "patch",
        "delete",
    }
    assert (role["metadata"].get("namespace"), role["metadata"]["name"]) == (
        None if scope == "Cluster" else "a",
        "corral-operator:namespace",
    )
    assert role["metadata"]["name"] not in bound(asked, "ClusterRoleBinding")


def test_a_namespaced_operator_makes_nothing_outside_its_namespaces() -> None:
    rendered = objects(operator_scope="Namespaced", operator_namespaces=["a", "b"], operator_cert_manager={})
    assert {obj["metadata"].get("namespace") for obj in rendered} == {"corral-operator", "a", "b"}
    assert not kinds(rendered) & {"ClusterRole", "ClusterRoleBinding", "ValidatingWebhookConfiguration"}
    [deployment] = [obj for obj in rendered if obj["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "CORRAL_NAMESPACES", "value": "a,b"} in container["env"]


@pytest.mark.parametrize("namespace", ["corral-operator", "other"])
def test_what_is_not_in_a_namespace_carries_the_operators_name(namespace: str) -> None:
    rendered = objects(operator_namespace=namespace, operator_namespaces=["a"])
    outside = {obj["metadata"]["name"] for obj in rendered if obj["metadata"].get("namespace") != namespace}
    prefix = "corral-operator" if namespace == "corral-operator" else "corral-operator-other"
    assert outside
    assert all(name.startswith(prefix) for name in outside)


@pytest.mark.parametrize("part", ["nodes", "namespace", "metrics", "host-paths", "api-server"])
def test_no_two_operators_want_the_same_object(part: str) -> None:
    def names(namespace: str) -> set[tuple[str, str, str | None]]:
        rendered = objects(operator_namespace=namespace, operator_namespaces=["a"], operator_host_paths=True, operator_webhook="Secret")
        return {(obj["kind"], obj["metadata"]["name"], obj["metadata"].get("namespace")) for obj in rendered if obj["kind"] != "Namespace"}

    assert not names("x") & names(f"x-{part}")


def test_objects_of_others_kinds_are_made_only_where_the_cluster_knows_them() -> None:
    assert not kinds(objects()) & {"ServiceMonitor", "PrometheusRule", "Certificate", "Issuer", "ValidatingWebhookConfiguration"}
    known = objects(operator_prometheus={}, operator_cert_manager={})
    assert {"ServiceMonitor", "PrometheusRule", "Certificate", "Issuer", "ValidatingWebhookConfiguration"} <= kinds(known)
    assert not kinds(objects(operator_service_monitor="absent", operator_prometheus={})) & {"ServiceMonitor", "PrometheusRule"}


@pytest.mark.parametrize("secure", [True, False])
def test_metrics_are_for_those_who_may_read_them(secure: bool) -> None:
    rendered = objects(operator_service_monitor="present", operator_environment={} if secure else {"CORRAL_METRICS_SECURE": False})
    [monitor] = [obj for obj in rendered if obj["kind"] == "ServiceMonitor"]
    [endpoint] = monitor["spec"]["endpoints"]
    assert (endpoint.get("scheme"), "bearerTokenFile" in endpoint) == (("https", True) if secure else (None, False))
    [reader] = [obj for obj in rendered if obj["metadata"]["name"] == "corral-operator:metrics-reader"]
    assert reader["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    assert reader["metadata"]["name"] not in bound(rendered, "ClusterRoleBinding"), "it is for Prometheus, and not for the operator"
    assert "corral-operator:metrics" in bound(rendered, "ClusterRoleBinding")


def test_alerts_are_about_metrics_that_there_are_with_labels_that_they_have() -> None:
    [rule] = [obj for obj in objects(operator_service_monitor="present", operator_namespace="other") if obj["kind"] == "PrometheusRule"]
    [group] = rule["spec"]["groups"]
    metrics = Metrics()
    known = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    known |= {f"{family.name}_total" for family in metrics.registry.collect() if family.type == "counter"}
    known |= {family.name for family in metrics.registry.collect()}
    assert len(group["rules"]) == len({one["alert"] for one in group["rules"]}) == 4
    for one in group["rules"]:
        asked = set(re.findall(r"corral_operator_\w+", one["expr"]))
        assert asked and asked <= known, one["expr"]
        labels = set(re.findall(r"\$labels\.(\w+)", str(one["annotations"])))
        grouped = re.search(r"by \(([\w, ]+)\)", one["expr"])
        assert labels <= set(grouped[1].split(", ") if grouped else ()), "an alert has no other labels"
    assert 'namespace="other"' in group["rules"][0]["expr"]


def test_a_webhook_that_nobody_serves_lets_documents_through() -> None:
    [configuration] = [
        obj
        for obj in objects(operator_webhook="Secret", operator_webhook_ca="-----BEGIN CERTIFICATE-----\n")
        if obj["kind"] == "ValidatingWebhookConfiguration"
    ]
    [webhook] = configuration["webhooks"]
    assert webhook["failurePolicy"] == "Ignore"
    assert webhook["clientConfig"]["caBundle"]


@pytest.mark.parametrize("namespaces", [[], ["a", "b"]])
def test_the_webhook_is_asked_about_documents_of_its_namespaces_alone(namespaces: list[str]) -> None:
    [configuration] = [
        obj for obj in objects(operator_webhook="Secret", operator_namespaces=namespaces) if obj["kind"] == "ValidatingWebhookConfiguration"
    ]
    [webhook] = configuration["webhooks"]
    wanted = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}]}
    assert webhook.get("namespaceSelector") == (wanted if namespaces else None)


def test_pods_are_restricted() -> None:
    [deployment] = [obj for obj in objects(operator_webhook="Secret") if obj["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    assert deployment["spec"]["replicas"] == 2
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"requests", "limits"} <= set(container["resources"])
    assert {next(iter(set(volume) - {"name"})) for volume in pod["volumes"]} == {"emptyDir", "secret"}


def test_definitions_are_brought_up_to_date_after_the_pods() -> None:
    """The API server gives documents the defaults of new fields at once, and pods of before would take them for mistakes: seen in the lab."""
    tasks = load("roles/operator/tasks/present.yml")
    calls = [(task["name"], task.get("corral.slurm.k8s_apply") or {}) for task in tasks]
    definitions = [call for _name, call in calls if call.get("objects") == "{{ operator_crds }}"]
    order = [name for name, call in calls if call.get("objects") == "{{ operator_crds }}" or call.get("applyset")]
    assert order == [
        "Create the CustomResourceDefinitions if they are missing",
        "Apply the operator's rights and pods",
        "Update the CustomResourceDefinitions",
    ]
    assert [bool(call.get("create_only")) for call in definitions] == [True, False]
    assert all(call["wait"] for _name, call in calls if call.get("objects") or call.get("applyset"))


def test_settings_may_be_numbers_booleans_and_mappings() -> None:
    """A variable of the environment is a text; the API server refuses anything else."""
    given = {"CORRAL_RESYNC": 3600, "CORRAL_METRICS_SECURE": False, "CORRAL_VARIABLES": {"a": [1, True]}, "CORRAL_SELECTOR": "team=physics"}
    deployment = next(obj for obj in objects(operator_environment=given) if obj["kind"] == "Deployment")
    found = {entry["name"]: entry["value"] for entry in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert all(isinstance(value, str) for value in found.values())
    settings = read({name: value for name, value in found.items() if value})
    assert (settings.resync, settings.metrics_secure, settings.variables, settings.selector) == (
        3600,
        False,
        {"a": [1, True]},
        "team=physics",
    )


def test_the_lease_may_have_another_name() -> None:
    rendered = objects(operator_environment={"CORRAL_LEASE_NAME": "ours"})
    assert ("coordination.k8s.io", "leases", "update", ("ours",)) in rules(rendered, "Role")


def test_the_document_prints_how_to_give_the_ca(tmp_path: Path) -> None:
    """Through a shell: a certificate has blanks, line ends and equals signs, at which Ansible ends a value."""
    (line,) = re.findall(
        r"^ansible-playbook corral\.slurm\.operator … (.*operator_webhook_ca.*)$", text(Path("docs/operator.md")), re.MULTILINE
    )
    body = base64.b64encode(bytes(range(256)) * 3).decode()
    certificate = "\n".join(["-----BEGIN CERTIFICATE-----", *textwrap.wrap(body, 64), "-----END CERTIFICATE-----", ""])
    (tmp_path / "ca.crt").write_text(certificate * 2)
    said = {"that": ["operator_webhook == 'Secret'", "operator_webhook_ca.strip() | b64encode == wanted"]}
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"ansible.builtin.assert": said}]}
    play["vars"] = {"wanted": base64.b64encode((certificate * 2).strip().encode()).decode()}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    done = subprocess.run(["bash", "-c", f"ansible-playbook play.yml {line}"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
