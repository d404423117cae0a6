# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What others add to objects is found by the apply itself, told by check mode, and taken back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError

from .conftest import Engine

pytestmark = pytest.mark.lab


def batch(engine: Engine) -> list[dict[str, Any]]:
    labels = {"app": "x"}
    pod = {"containers": [{"name": "main", "image": "localhost/none:1", "env": [{"name": "A", "value": "1"}]}]}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "s"},
            "spec": {
                "replicas": 0,
                "serviceName": "s",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "svc"},
            "spec": {"selector": labels, "ports": [{"name": "a", "port": 80}]},
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "p"},
            "spec": {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"]},
        },
        engine.config_map("c", key="1"),
    ]


def patch(engine: Engine, kind: str, name: str, change: dict[str, Any], manager: str = "someone") -> None:
    engine.kubectl("patch", kind, name, "-n", engine.namespace, f"--field-manager={manager}", "-p", json.dumps(change))


def spoil(engine: Engine) -> None:
    containers = [
        {"name": "main", "securityContext": {"privileged": True}, "env": [{"name": "B", "value": "2"}]},
        {"name": "spy", "image": "localhost/none:2"},
    ]
    patch(engine, "statefulset", "s", {"spec": {"template": {"spec": {"containers": containers, "hostNetwork": True}}}})
    patch(engine, "service", "svc", {"spec": {"externalIPs": ["192.0.2.1"], "ports": [{"name": "b", "port": 81}]}})
    patch(engine, "networkpolicy", "p", {"spec": {"egress": [{}], "policyTypes": ["Ingress", "Egress"]}})
    patch(engine, "configmap", "c", {"data": {"more": "2"}}, "corral")


def specs(engine: Engine) -> dict[str, Any]:
    kinds = ("statefulset", "s"), ("service", "svc"), ("networkpolicy", "p"), ("configmap", "c")
    return {kind: {key: engine.get(kind, name).get(key) for key in ("spec", "data")} for kind, name in kinds}


def test_added_fields_are_told_and_taken_back_and_cost_nothing_where_there_are_none(engine: Engine) -> None:
    first = engine.apply(*batch(engine), foreign_fields=[])
    assert "foreign" not in first
    clean, before = specs(engine), engine.versions()
    again = engine.apply(*batch(engine), foreign_fields=[])
    assert (again["requests"], again["changed"]) == (5, False) and engine.versions() == before
    spoil(engine)
    dirty = specs(engine)
    seen = engine.apply(*batch(engine), check=True, diff=True, foreign_fields=[], force=True)
    assert specs(engine) == dirty, "check mode writes nothing"
    done = engine.apply(*batch(engine), diff=True, foreign_fields=[], force=True)
    wanted = {
        ('.spec.template.spec.containers[name="spy"]', "someone"),
        ('.spec.template.spec.containers[name="main"].securityContext', "someone"),
        ('.spec.template.spec.containers[name="main"].env[name="B"]', "someone"),
        (".spec.template.spec.hostNetwork", "someone"),
        (".spec.externalIPs", "someone"),
        (".spec.externalTrafficPolicy", "someone"),  # the default of such a Service
        ('.spec.ports[port=81,protocol="TCP"]', "someone"),
        (".spec.egress", "someone"),
        (".data.more", "corral"),
    }
    for result in (seen, done):
        assert {(row["field"], row["manager"]) for row in result["foreign"]} == wanted
        assert {row["result"] for row in result["objects"]} == {"configured"}
        text = json.dumps(result["diff"])
        assert "localhost/none:2" in text and ".spec.externalIPs of someone" in text
    assert specs(engine) == clean
    after = engine.apply(*batch(engine), foreign_fields=[])
    assert (after["requests"], after["changed"]) == (5, False) and "foreign" not in after


def test_what_may_be_foreign_stays_and_so_does_everything_when_nobody_asks(engine: Engine) -> None:
    engine.apply(*batch(engine), foreign_fields=[])
    spoil(engine)
    dirty = specs(engine)["service"]
    service = batch(engine)[1]
    for allowed in (None, [{"manager": "some*"}], [{"kind": "Service", "field": ".spec"}]):
        result = engine.apply(service, foreign_fields=allowed)
        assert result["changed"] is False and specs(engine)["service"] == dirty


def test_somebody_who_takes_the_owners_names_off_hides_nothing(engine: Engine) -> None:
    engine.apply(*batch(engine), foreign_fields=[])
    clean = specs(engine)
    spoil(engine)
    patch(engine, "statefulset", "s", {"metadata": {"managedFields": [{}]}})
    result = engine.apply(*batch(engine), foreign_fields=[], force=True)
    assert "before-first-apply" in {row["manager"] for row in result["foreign"]}
    assert specs(engine) == clean
    assert engine.apply(*batch(engine), foreign_fields=[])["changed"] is False


@pytest.mark.parametrize("hidden", ["as a status", "taken out"])
def test_somebody_who_hides_their_entry_hides_no_container_port_or_file(engine: Engine, hidden: str) -> None:
    engine.apply(*batch(engine), foreign_fields=[])
    containers = [{"name": "main", "env": [{"name": "B", "value": "2"}]}, {"name": "spy", "image": "localhost/none:2"}]
    clean = specs(engine)
    patch(engine, "statefulset", "s", {"spec": {"template": {"spec": {"containers": containers}}}})
    patch(engine, "service", "svc", {"spec": {"ports": [{"name": "b", "port": 81}]}})
    patch(engine, "configmap", "c", {"data": {"more": "2"}})
    for kind, name in (("statefulset", "s"), ("service", "svc"), ("configmap", "c")):
        entries = engine.get(kind, name)["metadata"]["managedFields"]
        ours = [entry for entry in entries if entry["manager"] == "corral"]
        theirs = [{**entry, "subresource": "status"} for entry in entries if entry["manager"] == "someone"]
        assert ours and theirs
        change = [{"op": "replace", "path": "/metadata/managedFields", "value": ours + (theirs if hidden == "as a status" else [])}]
        engine.kubectl("patch", kind, name, "-n", engine.namespace, "--type=json", "-p", json.dumps(change))
    result = engine.apply(*batch(engine), foreign_fields=[])
    assert {(row["field"], row["manager"]) for row in result["foreign"]} == {
        (field, "someone" if hidden == "as a status" else "unknown")
        for field in (
            '.spec.template.spec.containers[name="spy"]',
            '.spec.template.spec.containers[name="main"].env[name="B"]',
            '.spec.ports[port=81,protocol="TCP"]',
            ".data.more",
        )
    }
    assert specs(engine) == clean
    assert engine.apply(*batch(engine), foreign_fields=[])["changed"] is False


def test_a_service_that_somebody_made_anew_keeps_its_address(engine: Engine) -> None:
    service = batch(engine)[1]
    engine.apply(service, foreign_fields=[])
    engine.kubectl("delete", "service", "svc", "-n", engine.namespace)
    anew = {**service, "spec": {**service["spec"], "sessionAffinity": "ClientIP"}}
    engine.kubectl("create", "-n", engine.namespace, "-f", "-", stdin=json.dumps(anew))
    address = engine.get("service", "svc")["spec"]["clusterIP"]
    result = engine.apply(service, foreign_fields=[])
    assert ".spec.sessionAffinity" in {row["field"] for row in result["foreign"]}
    spec = engine.get("service", "svc")["spec"]
    assert (spec["clusterIP"], spec["sessionAffinity"]) == (address, "None")
    assert engine.apply(service, foreign_fields=[])["changed"] is False


def test_what_somebody_made_anew_with_other_fixed_fields_is_told_with_the_command(engine: Engine) -> None:
    wanted = batch(engine)[0]
    engine.apply(wanted, foreign_fields=[])
    engine.kubectl("delete", "statefulset", "s", "-n", engine.namespace)
    engine.kubectl(
        "create", "-n", engine.namespace, "-f", "-", stdin=json.dumps({**wanted, "spec": {**wanted["spec"], "serviceName": "other"}})
    )
    for check in (True, False):
        words = rf"spec.serviceName cannot be changed in an object that exists: 'kubectl -n {engine.namespace} delete statefulset s --cascade=orphan'"
        with pytest.raises(KubeError, match=words):
            engine.apply(wanted, foreign_fields=[], force=True, check=check)


@pytest.mark.parametrize(
    ("kind", "fixed", "other"),
    [
        ("scheduling.k8s.io/v1 PriorityClass", {"value": 1}, {"value": 2}),
        (
            "storage.k8s.io/v1 StorageClass",
            {"provisioner": "none", "parameters": {"a": "1"}},
            {"provisioner": "none", "parameters": {"a": "2"}},
        ),
        ("storage.k8s.io/v1 StorageClass", {"provisioner": "none"}, {"provisioner": "other"}),
        ("v1 Pod", {"spec": {"containers": [{"name": "a", "image": "none"}]}}, {"spec": {"containers": [{"name": "b", "image": "none"}]}}),
        ("v1 Pod", {"spec": {"containers": [{"name": "a", "image": "none"}]}}, {"spec": {"hostname": "b", "containers": []}}),
    ],
)
def test_each_wording_of_a_fixed_field_is_told_with_the_command(
    engine: Engine, kind: str, fixed: dict[str, Any], other: dict[str, Any]
) -> None:
    version, _space, kind = kind.partition(" ")
    wanted = {"apiVersion": version, "kind": kind, "metadata": {"name": engine.namespace}}
    engine.apply({**wanted, **fixed})
    try:
        for check in (True, False):
            with pytest.raises(
                KubeError, match=rf"cannot be changed in an object that exists: 'kubectl.* delete {kind.lower()} {engine.namespace}'"
            ):
                engine.apply({**wanted, **other}, force=True, check=check)
    finally:
        engine.kubectl("delete", kind, engine.namespace, "-n", engine.namespace, "--wait=false")
