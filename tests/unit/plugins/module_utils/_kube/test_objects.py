# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a batch is made of: order, names, owners; and what of it may be shown."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import objects, prune
from ansible_collections.corral.slurm.plugins.module_utils._kube.diff import difference, shown
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Discovery, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, NotFound


class NoServer:
    """A client that must not be asked; the API server of these tests has no kinds but the built-in ones."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get(self, path: str, *, what: str, query: Any = None) -> Any:
        self.asked.append(path)
        raise NotFound("no", status=prune_status())


def prune_status() -> Any:
    from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Status

    return Status(404)


def discovery() -> Discovery:
    return Discovery(NoServer())  # type: ignore[arg-type]


def obj(kind: str = "ConfigMap", name: str = "x", api: str = "v1", **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **metadata}}


def prepare(*given: Any, **keywords: Any) -> list[objects.Item]:
    return objects.prepare(list(given), discovery(), namespace="home", **keywords)


def test_order_of_tiers() -> None:
    api = {"StatefulSet": "apps/v1", "RoleBinding": "rbac.authorization.k8s.io/v1", "Role": "rbac.authorization.k8s.io/v1"}
    api["CustomResourceDefinition"] = "apiextensions.k8s.io/v1"
    kinds = ["Namespace", "CustomResourceDefinition", "Role", "RoleBinding", "Service", "StatefulSet"]
    tiers = [prepare(obj(kind, api=api.get(kind, "v1")))[0].tier for kind in kinds]
    assert tiers == sorted(set(tiers))
    assert objects.tier("Job", builtin=False) > objects.tier("Job") == objects.tier("Pod") > objects.tier("Secret")
    named = {kind for tier in objects._TIERS for kind in tier}
    assert named <= {kind for _group, kind in BUILTIN}, "a tier names a kind that the table does not know"


def test_namespaces() -> None:
    cluster, given, default = prepare(obj("Namespace", "n", namespace="ignored"), obj(namespace="other"), obj(name="y"))
    assert (cluster.ref.namespace, given.ref.namespace, default.ref.namespace) == (None, "other", "home")
    assert "namespace" not in cluster.body["metadata"] and default.body["metadata"]["namespace"] == "home"
    assert (str(cluster.ref), str(default.ref)) == ("Namespace n", "ConfigMap home/y")
    assert (cluster.ref.path, default.ref.path) == ("/api/v1/namespaces/n", "/api/v1/namespaces/home/configmaps/y")


def test_what_the_server_keeps_is_left_out_and_the_input_is_left_alone() -> None:
    given = {
        **obj(uid="u", resourceVersion="1", managedFields=[], creationTimestamp=None, labels={"a": "b"}),
        "status": {"x": 1},
        "data": {},
    }
    item = prepare(given)[0]
    assert item.body["metadata"] == {"name": "x", "namespace": "home", "labels": {"a": "b"}} and "status" not in item.body
    objects.add_label(item, "c", "d")
    assert given["metadata"]["labels"] == {"a": "b"} and given["status"] == {"x": 1}


def test_lists_are_taken_apart() -> None:
    assert [item.ref.name for item in prepare({"apiVersion": "v1", "kind": "List", "items": [obj(), obj(name="y")]}, obj(name="z"))] == [
        "x",
        "y",
        "z",
    ]


def test_kinds_of_the_batch_need_no_request() -> None:
    definition = obj("CustomResourceDefinition", "gadgets.example.org", "apiextensions.k8s.io/v1")
    definition["spec"] = {
        "group": "example.org",
        "scope": "Cluster",
        "names": {"kind": "Gadget", "plural": "gadgets"},
        "versions": [{"name": "v1"}, {"name": "v2"}],
    }
    items = prepare(obj("Gadget", api="example.org/v2"), definition)
    assert items[0].ref.path == "/apis/example.org/v2/gadgets/x" and items[0].tier > items[1].tier


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("text", r"objects\[0\] is no mapping but str"),
        ({"kind": "ConfigMap"}, r"objects\[0\] has no apiVersion"),
        ({"apiVersion": "v1"}, r"objects\[0\] has no kind"),
        ({"apiVersion": "v1", "kind": "ConfigMap"}, r"ConfigMap in objects\[0\] has no metadata.name"),
        (obj(name=""), r"has no metadata.name"),
        (obj(name="../pods/x"), r"has the name '../pods/x', which no object may have"),
        (obj(namespace="a/b"), r"has the namespace 'a/b'"),
        ({"apiVersion": "v1", "kind": "List", "items": [obj(), 3]}, r"objects\[0\]\.items\[1\] is no mapping"),
    ],
)
def test_mistakes(given: Any, words: str) -> None:
    with pytest.raises(KubeError, match=words):
        prepare(given)


def test_twice_the_same_is_a_mistake_that_names_both_places() -> None:
    with pytest.raises(KubeError, match=r"ConfigMap home/x is there twice: in a\.j2, document 1 and in b\.j2, document 2; leave one out"):
        prepare(obj(), obj(namespace="home"), origins=["a.j2, document 1", "b.j2, document 2"])


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}


def test_owners() -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": "w"}
    mine, elsewhere, cluster = prepare(obj(ownerReferences=[other]), obj(namespace="b"), obj("Namespace"), owner=OWNER)
    assert mine.body["metadata"]["ownerReferences"] == [other, OWNER]
    assert "ownerReferences" not in elsewhere.body["metadata"] and "ownerReferences" not in cluster.body["metadata"]
    (there,) = prepare(obj(namespace="b"), owner={**OWNER, "namespace": "b"})
    assert there.body["metadata"]["ownerReferences"] == [OWNER]
    with pytest.raises(KubeError, match="owner has no uid"):
        prepare(obj(), owner={**OWNER, "uid": ""})


def test_secrets_texts_become_data() -> None:
    secret = {**obj("Secret"), "stringData": {"a": "x"}, "data": {"a": "old", "b": "eQ=="}}
    assert prepare(secret)[0].body["data"] == {"a": "eA==", "b": "eQ=="} and "stringData" not in prepare(secret)[0].body


@pytest.mark.parametrize("value", [None, {"a": 1}, ["x"], 7, True])
def test_what_is_no_text_does_not_become_one(value: Any) -> None:
    with pytest.raises(KubeError, match=r"has a stringData\.a that is no text but \w+; put it in quotes, or leave it out"):
        prepare({**obj("Secret"), "stringData": {"a": value}})


def test_kubectls_copy_of_an_object_is_not_shown() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "s3cr", "mine": "1"}
    live = {**obj("Secret"), "metadata": {"name": "x", "annotations": annotations}}
    seen = shown(live, "Secret")
    assert seen["metadata"]["annotations"] == {"mine": "1"} and "s3cr" not in str(seen)


def test_set_ids_are_kubectls() -> None:
    """The example of kubectl's own tests (pkg/cmd/apply, ApplySet V1 ids): configmap my-set in namespace test."""
    assert prune.set_id("my-set", "test", "Secret") == "applyset-0eFHV8ySqp7XoShsGvyWFQD3s96yqwHmzc4e0HR1dsY-v1"


def item(kind: str, result: str, before: dict[str, Any] | None, after: dict[str, Any] | None, **more: Any) -> objects.Item:
    return objects.Item(Ref(BUILTIN["", kind], "n", "x"), obj(kind), result=result, before=before, after=after, **more)


def owned(data: dict[str, Any], *keys: str) -> dict[str, Any]:
    entry = {"manager": "corral", "operation": "Apply", "fieldsV1": {"f:data": {f"f:{key}": {} for key in keys}}}
    return {"metadata": {"name": "x", "uid": "u", "managedFields": [entry]}, "data": data}


def test_differences() -> None:
    entry = difference(
        item("ConfigMap", "configured", owned({"a": "1", "b": "x"}, "a", "b"), owned({"a": "2\n3", "z": "y"}, "a")), "corral"
    )[0]
    assert entry == {
        "before_header": "ConfigMap n/x",
        "after_header": "ConfigMap n/x",
        "before": {"data": {"a": "1", "b": "x"}},
        "after": {"data": {"a": ["2", "3"]}},
    }
    created = difference(item("ConfigMap", "created", None, owned({"a": "1"}, "a")), "corral")[0]
    assert created["before"] == {} and created["after"] == {"data": {"a": "1"}}
    imagined = difference(item("ConfigMap", "created", None, None, imagined=True), "corral")[0]
    assert imagined["after"] == {"metadata": {"name": "x"}}
    absent = difference(item("ConfigMap", "absent", owned({"a": "1"}, "a"), None), "corral")[0]
    assert absent["before"] == {"data": {"a": "1"}} and absent["after"] == {}
    assert difference(item("ConfigMap", "unchanged", None, owned({}, "a")), "corral") == []


def test_a_secrets_values_are_never_shown() -> None:
    old, new = owned({"a": "c2VjcmV0", "b": "no base64!"}, "a", "b"), owned({"a": "bmV3"}, "a")
    text = str(difference(item("Secret", "configured", old, new), "corral"))
    for value in ("c2VjcmV0", "bmV3", "no base64!", "'secret'", "'new'"):
        assert value not in text
    assert text.count("sha256:") == 3
    imagined = objects.Item(
        Ref(BUILTIN["", "Secret"], "n", "x"), {**obj("Secret"), "stringData": {"a": "hidden"}}, result="created", imagined=True
    )
    assert "hidden" not in str(difference(imagined, "corral"))


@pytest.mark.parametrize("kind", ["List", "SecretList"])
def test_nor_are_those_of_secrets_in_lists(kind: str) -> None:
    secret = {**obj("Secret"), "data": {"a": "c2VjcmV0"}, "stringData": {"b": "hidden"}}
    within = {key: value for key, value in secret.items() if kind == "List" or key != "kind"}
    deep = {"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": kind, "items": [within, 3]}]}
    text = str(shown(deep, "List"))
    assert "c2VjcmV0" not in text and "hidden" not in text and text.count("sha256:") == 2


@pytest.mark.parametrize("data", ["hidden", ["hidden"]])
def test_nor_what_is_no_mapping(data: Any) -> None:
    assert "hidden" not in str(shown({**obj("Secret"), "data": data}, "Secret"))
