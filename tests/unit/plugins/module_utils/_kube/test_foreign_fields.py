# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as added by others; what the API server makes of its taking back is in tests/integration/kube/test_foreign.py."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import fields, foreign_fields
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Invalid
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import Item

Json = dict[str, Any]
SET = "StatefulSet.apps"
SLURMD = 'k:{"name":"slurmd"}'
OURS: Json = {"f:spec": {"f:template": {"f:spec": {"f:containers": {SLURMD: {".": {}, "f:name": {}, "f:image": {}, "f:emptyDir": {}}}}}}}


def template(below: Json) -> Json:
    return {"f:spec": {"f:template": {"f:spec": {"f:containers": below}}}}


def live(*entries: tuple[str, Json], ours: Json | None = None, **more: Any) -> Json:
    others = [{"manager": who, "operation": "Update", "fieldsV1": tree} for who, tree in entries]
    return {
        "metadata": {
            "managedFields": [{"manager": "corral", "operation": "Apply", "fieldsV1": OURS if ours is None else ours}, *others],
            **more,
        }
    }


def names(obj: Json, kind: str = SET, *may: Json) -> list[tuple[str, str]]:
    return [
        (who, name)
        for who, _tree, below in foreign_fields.added(obj, kind, "corral", foreign_fields.permitted(list(may)))
        for name in below
    ]


CONTAINERS = ".spec.template.spec.containers"
SIDECAR = template({'k:{"name":"spy"}': {".": {}, "f:name": {}, "f:image": {}}})


@pytest.mark.parametrize(
    ("theirs", "found"),
    [
        (SIDECAR, f'{CONTAINERS}[name="spy"]'),
        (template({SLURMD: {"f:securityContext": {".": {}, "f:privileged": {}}}}), f'{CONTAINERS}[name="slurmd"].securityContext'),
        (template({SLURMD: {"f:emptyDir": {"f:sizeLimit": {}}}}), f'{CONTAINERS}[name="slurmd"].emptyDir.sizeLimit'),
        (template({SLURMD: {".": {}, "f:name": {}, "f:image": {}}}), None),
        ({"f:metadata": {"f:annotations": {"f:a": {}}}, "f:spec": {"f:replicas": {}}}, None),
        ({"f:spec": {"f:template": {"f:metadata": {"f:annotations": {"f:kubectl.kubernetes.io/restartedAt": {}}}}}}, None),
        (
            {"f:spec": {"f:template": {"f:metadata": {"f:annotations": {"f:kubectl.kubernetes.io/restartedAt": {}, "f:x": {}}}}}},
            ".spec.template.metadata.annotations.x",
        ),
    ],
)
def test_what_somebody_added_is_named_as_the_api_server_would(theirs: Json, found: str | None) -> None:
    assert names(live(("kubectl-edit", theirs))) == ([] if found is None else [("kubectl-edit", found)])


def test_a_job_that_somebody_has_suspended_goes_on() -> None:
    ours = {"f:spec": {"f:template": {"f:spec": {}}}}
    assert names(live(("kubectl-patch", {"f:spec": {"f:suspend": {}}}), ours=ours), "Job.batch") == [("kubectl-patch", ".spec.suspend")]


@pytest.mark.parametrize(
    ("may", "stays"),
    [
        ({"field": f'{CONTAINERS}[name="spy"]'}, True),
        ({"field": f'{CONTAINERS}[name="s*"]'}, True),
        ({"field": f'{CONTAINERS}[name="spy"]', "manager": "injector"}, False),
        ({"manager": "kubectl-*"}, True),
        ({"manager": "kubectl-*", "kind": "Service"}, False),
        ({"manager": "kubectl-*", "labels": {"inject": "yes"}}, True),
        ({"manager": "kubectl-*", "labels": {"inject": "no"}}, False),
        ({"field": f"{CONTAINERS}[name=.spy.]"}, False),
    ],
)
def test_what_may_be_foreign_stays(may: Json, stays: bool) -> None:
    assert (names(live(("kubectl-edit", SIDECAR), labels={"inject": "yes"}), SET, may) == []) is stays


def test_an_update_in_our_name_is_not_ours_and_a_status_is_nobodys_business() -> None:
    assert names(live(("corral", SIDECAR))) == [("corral", f'{CONTAINERS}[name="spy"]')]
    obj = live(("kube-controller-manager", {"f:status": {"f:replicas": {}}}), ("hpa", {"f:spec": {"f:replicas": {}}}))
    for entry, subresource in zip(obj["metadata"]["managedFields"][1:], ("status", "scale"), strict=True):
        entry["subresource"] = subresource
    assert names(obj) == []


@pytest.mark.parametrize(("who", "operation"), [("kubelet", "Update"), ("corral", "Apply")])
def test_an_owner_that_says_it_wrote_the_status_hides_nothing(who: str, operation: str) -> None:
    obj = live((who, SIDECAR))
    obj["metadata"]["managedFields"][1] |= {"operation": operation, "subresource": "status"}
    assert names(obj) == [(who, f'{CONTAINERS}[name="spy"]')]
    ours = foreign_fields.handed_over(obj, "corral", foreign_fields.added(obj, SET, "corral", [])[0][1])
    assert [entry["manager"] for entry in ours] == ["corral"], "the fields would be kept for the other owner"


def pods_of(*containers: Json, **more: Any) -> Json:
    return {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"dnsPolicy": "ClusterFirst", "containers": list(containers), **more}}}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (pods_of({"name": "slurmd", "image": "i", "imagePullPolicy": "Always", "emptyDir": {}}), None),
        (pods_of({"name": "slurmd"}, {"name": "spy", "env": [{"name": "A"}]}), f'{CONTAINERS}[name="spy"]'),
        (pods_of({"name": "slurmd", "env": [{"name": "LD_PRELOAD"}]}), f'{CONTAINERS}[name="slurmd"].env'),
        (pods_of({"name": "slurmd", "ports": []}, initContainers=[{"name": "spy"}]), ".spec.template.spec.initContainers"),
        (pods_of({"name": "slurmd"}, volumes=[{"name": "spy", "hostPath": {"path": "/"}}]), ".spec.template.spec.volumes"),
    ],
)
def test_what_nobody_owns_and_kubernetes_does_not_default_is_somebodys(spec: Json, found: str | None) -> None:
    """As it is when somebody has taken their own entry out of managedFields."""
    wanted = [] if found is None else [("unknown", found)]
    assert names(live() | {"spec": spec}) == wanted
    assert names(live() | {"spec": spec}, SET, {"field": f"{CONTAINERS}*"}, {"field": "*initContainers"}, {"field": "*volumes"}) == []
    injected = live(("injector", SIDECAR)) | {"spec": pods_of({"name": "slurmd"}, {"name": "spy"})}
    assert names(injected, SET, {"manager": "injector"}) == [], "what has an owner who may is nobody else's"


@pytest.mark.parametrize(
    ("kind", "ours", "obj", "found"),
    [
        (
            "Service",
            {"f:spec": {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}}},
            {"spec": {"type": "ClusterIP", "ports": [{"port": port, "protocol": "TCP", "targetPort": port} for port in (80, 81)]}},
            '.spec.ports[port=81,protocol="TCP"]',
        ),
        ("ConfigMap", {"f:data": {"f:a": {}}}, {"data": {"a": "1", "b": "2"}}, ".data.b"),
        ("ConfigMap", {"f:data": {"f:a": {}}}, {"data": {"a": "1"}, "binaryData": {"b": "Mg=="}}, ".binaryData"),
        ("ConfigMap", {"f:data": {"f:a": {}}}, {"data": {"a": "1"}}, None),
    ],
)
def test_ports_and_files_that_nobody_owns(kind: str, ours: Json, obj: Json, found: str | None) -> None:
    seen = live(ours=ours) | obj
    assert names(seen, kind) == ([] if found is None else [("unknown", found)])
    for _who, tree, _names in foreign_fields.added(seen, kind, "corral", []):
        left = fields.without(obj, tree)
        assert left == fields.without(left, tree) != obj


def test_an_owner_of_a_whole_list_owns_no_element_of_it() -> None:
    obj = live(("x", template({}))) | {"spec": pods_of({"name": "slurmd"}, {"name": "spy"})}
    assert names(obj) == [("unknown", f'{CONTAINERS}[name="spy"]')]


def test_they_become_ours_so_that_the_next_apply_takes_them_away() -> None:
    obj = live() | {"spec": pods_of({"name": "slurmd"}, {"name": "spy"})}
    (ours,) = foreign_fields.handed_over(obj, "corral", foreign_fields.added(obj, SET, "corral", [])[0][1])
    assert set(ours["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]) == {SLURMD, 'k:{"name":"spy"}'}


def test_an_unknown_owner_is_told_as_one() -> None:
    item = Item(Ref(BUILTIN["", "ConfigMap"], "ns", "c"), {}, foreign=[{"field": ".data.b", "manager": "unknown"}])
    assert "were taken back: .data.b of an unknown manager." in foreign_fields.warnings([item], check=False)[0]


@pytest.mark.parametrize(
    ("kind", "theirs", "found"),
    [
        ("NetworkPolicy.networking.k8s.io", {"f:spec": {"f:egress": {}}}, ".spec.egress"),
        ("Service", {"f:spec": {"f:externalIPs": {}}}, ".spec.externalIPs"),
        ("ConfigMap", {"f:data": {"f:more": {}}}, ".data"),
        ("RoleBinding.rbac.authorization.k8s.io", {"f:subjects": {}}, ".subjects"),
        ("Secret", {"f:data": {"f:more": {}}}, None),
        ("Pod", {"f:spec": {"f:containers": {}}}, None),
    ],
)
def test_the_kinds_that_are_looked_at(kind: str, theirs: Json, found: str | None) -> None:
    assert names(live(("x", theirs), ours={"f:spec": {"f:x": {}}}), kind) == ([] if found is None else [("x", found)])


def test_the_rules_of_an_aggregated_role_are_kubernetes_own() -> None:
    theirs = {"f:rules": {}}
    obj = live(("clusterrole-aggregation-controller", theirs), ours={"f:aggregationRule": {"f:x": {}}}) | {"aggregationRule": {"x": 1}}
    assert names(obj, "ClusterRole.rbac.authorization.k8s.io") == []


def test_the_fields_become_ours_alone() -> None:
    obj = live(("kubectl-edit", {**SIDECAR, "f:metadata": {"f:labels": {"f:a": {}}}}), ("other", SIDECAR))
    taken = foreign_fields.joined({}, foreign_fields.added(obj, SET, "corral", [])[0][1])
    ours, edit = foreign_fields.handed_over(obj, "corral", taken)
    assert edit["manager"] == "kubectl-edit" and edit["fieldsV1"] == {"f:metadata": {"f:labels": {"f:a": {}}}}
    assert set(ours["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]) == {SLURMD, 'k:{"name":"spy"}'}


def test_a_node_with_owned_nodes_below_it_holds_a_dot() -> None:
    assert foreign_fields.joined({"f:a": {}}, {"f:a": {"f:b": {}}}) == {"f:a": {".": {}, "f:b": {}}}


def test_check_mode_shows_the_object_without_them() -> None:
    containers = [{"name": "slurmd", "image": "i", "securityContext": {"privileged": True}}, {"name": "spy", "image": "j"}]
    taken = template({'k:{"name":"spy"}': {".": {}}, SLURMD: {"f:securityContext": {".": {}, "f:privileged": {}}}})
    obj = {"spec": {"template": {"spec": {"containers": containers}}}}
    assert fields.without(obj, taken) == {"spec": {"template": {"spec": {"containers": [{"name": "slurmd", "image": "i"}]}}}}


@pytest.mark.parametrize("entry", [{}, {"kind": "Service"}, {"field": ".a", "why": "x"}])
def test_an_entry_that_says_nothing_is_refused(entry: Json) -> None:
    with pytest.raises(Invalid, match=r"foreign_fields\[0\] needs a field or a manager"):
        foreign_fields.permitted([entry])
