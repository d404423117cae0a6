# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""ApplySets: what falls out of a batch goes, nothing else ever does, and an unchanged set costs one request more than its objects."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import prune, run
from ansible_collections.corral.slurm.plugins.module_utils._kube.delete import delete
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Discovery, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Forbidden, KubeError
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import prepare

from .conftest import Engine

pytestmark = pytest.mark.lab


def applyset(engine: Engine, name: str = "set") -> dict[str, Any]:
    return {"name": name, "namespace": engine.namespace, "labels": {"test": "kube"}}


def maps(engine: Engine, *names: str) -> list[dict[str, Any]]:
    return [engine.config_map(name, key="1") for name in names]


def service(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}


def test_members_come_and_go(engine: Engine) -> None:
    first = engine.apply(*maps(engine, "a", "b", "c"), service("s"), applyset=applyset(engine))
    assert first["writes"] == 6, "four members, and the parent twice"
    parent = engine.get("configmap", "set")["metadata"]
    assert parent["labels"] == {"applyset.kubernetes.io/id": prune.set_id("set", engine.namespace), "test": "kube"}
    assert parent["annotations"]["applyset.kubernetes.io/contains-group-kinds"] == "ConfigMap,Service"
    assert parent["annotations"]["applyset.kubernetes.io/tooling"] == "corral/v1"
    second = engine.apply(*maps(engine, "a", "d"), applyset=applyset(engine))
    assert {row["name"]: row["result"] for row in second["objects"]} == {
        "a": "unchanged",
        "d": "created",
        "b": "pruned",
        "c": "pruned",
        "s": "pruned",
    }
    assert engine.names() == {"a", "d", "set"} and engine.names("services") == set()
    assert engine.get("configmap", "set")["metadata"]["annotations"]["applyset.kubernetes.io/contains-group-kinds"] == "ConfigMap"


def test_an_unchanged_set_costs_one_request_more_than_its_objects(engine: Engine) -> None:
    batch = [*maps(engine, *(f"m{number}" for number in range(20))), service("s")]
    engine.apply(*batch, applyset=applyset(engine))
    before = engine.versions()
    for _dummy in range(3):
        again = engine.apply(*batch, applyset=applyset(engine))
        assert (again["requests"], again["writes"], again["changed"]) == (22, 0, False)
    assert engine.versions() == before


def test_other_sets_and_unlabelled_objects_are_left_alone(engine: Engine) -> None:
    engine.apply(*maps(engine, "mine"), applyset=applyset(engine, "one"))
    engine.apply(*maps(engine, "theirs"), applyset=applyset(engine, "two"))
    engine.kubectl("create", "configmap", "nobodys", "-n", engine.namespace)
    engine.apply(applyset=applyset(engine, "one"))
    assert engine.names() == {"theirs", "nobodys", "one", "two"}


def test_what_holds_data_is_never_pruned(engine: Engine) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Mi"}}},
    }
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"a": "b"}}
    engine.apply(claim, secret, *maps(engine, "m"), applyset=applyset(engine))
    result = engine.apply(applyset=applyset(engine))
    assert [row["name"] for row in result["objects"]] == ["m"]
    engine.absent(applyset=applyset(engine))
    assert engine.names("persistentvolumeclaims") == {"data"} and engine.names("secrets") == {"key"}


def test_a_set_over_two_namespaces(engine: Engine) -> None:
    other = f"{engine.namespace}-o"
    engine.kubectl("create", "namespace", other)
    try:
        away = engine.config_map("away") | {"metadata": {"name": "away", "namespace": other}}
        engine.apply(away, *maps(engine, "home"), applyset=applyset(engine))
        assert engine.get("configmap", "set")["metadata"]["annotations"]["applyset.kubernetes.io/additional-namespaces"] == other
        result = engine.apply(*maps(engine, "home"), applyset=applyset(engine))
        assert {row["name"]: row["result"] for row in result["objects"]} == {"home": "unchanged", "away": "pruned"}
        assert "applyset.kubernetes.io/additional-namespaces" not in engine.get("configmap", "set")["metadata"]["annotations"]
    finally:
        engine.kubectl("delete", "namespace", other, "--wait=false")


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({}, "is no parent of an ApplySet"),
        (
            {"labels": {"applyset.kubernetes.io/id": "ID"}, "annotations": {"applyset.kubernetes.io/tooling": "kubectl/v1.34"}},
            "belongs to another tool",
        ),
        ({"labels": {"applyset.kubernetes.io/id": "ID"}}, "belongs to another tool"),
        (
            {"labels": {"applyset.kubernetes.io/id": "other"}, "annotations": {"applyset.kubernetes.io/tooling": "corral/v1"}},
            "carries the id of another set",
        ),
    ],
)
def test_a_foreign_parent_is_refused_and_nothing_is_applied(engine: Engine, metadata: dict[str, Any], words: str) -> None:
    text = json.dumps(metadata).replace("ID", prune.set_id("set", engine.namespace))
    parent = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**json.loads(text), "name": "set", "namespace": engine.namespace}}
    engine.kubectl("create", "-f", "-", stdin=json.dumps(parent))
    before = engine.versions()
    for call in (lambda: engine.apply(*maps(engine, "a"), applyset=applyset(engine)), lambda: engine.absent(applyset=applyset(engine))):
        with pytest.raises(KubeError, match=words):
            call()
    assert engine.versions() == before


def test_kubectl_knows_our_set_and_keeps_its_hands_off(engine: Engine) -> None:
    """The labels are the KEP's: kubectl finds the parent, computes the same id, and refuses for the tooling's sake."""
    engine.apply(*maps(engine, "a"), applyset=applyset(engine))
    environment = {**os.environ, "KUBECTL_APPLYSET": "true"}
    command = ["lab/kubectl", "apply", "-n", engine.namespace, "--prune", "--applyset=configmap/set", "-f", "-"]
    manifest = json.dumps(engine.config_map("b"))
    done = subprocess.run(command, env=environment, input=manifest, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0 and "tooling" in done.stderr, done.stderr
    assert engine.names() == {"a", "set"}


def test_a_kind_that_can_not_be_listed_stops_the_whole_prune(engine: Engine) -> None:
    """A user who may do everything but list Services: the ConfigMap that fell out of the batch stays too."""
    engine.apply(*maps(engine, "a", "b"), service("s"), applyset=applyset(engine))
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "patch", "create", "delete"]},
    ]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "some"}, "rules": rules}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "some"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "some"},
        "subjects": [{"kind": "ServiceAccount", "name": "some", "namespace": engine.namespace}],
    }
    engine.apply(role, binding, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "some"}})
    token = engine.kubectl("create", "token", "some", "-n", engine.namespace).strip()
    with pytest.raises(Forbidden, match=r"may not list services in namespace .*verbs: \[list\]") as caught:
        engine.apply(*maps(engine, "a"), applyset=applyset(engine), api_key=token)
    assert "nothing was pruned" in str(caught.value)
    assert engine.names() == {"a", "b", "set"} and engine.names("services") == {"s"}
    # The next run, with the right, goes on where this one had to stop.
    rows = engine.apply(*maps(engine, "a"), applyset=applyset(engine))["objects"]
    assert {row["name"]: row["result"] for row in rows} == {"a": "unchanged", "b": "pruned", "s": "pruned"}


def test_a_delete_hits_only_the_object_that_was_seen(engine: Engine) -> None:
    engine.apply(*maps(engine, "a"))
    client = engine.client()
    ref = Ref(BUILTIN["", "ConfigMap"], engine.namespace, "a")
    assert not delete(client, ref, uid="00000000-0000-0000-0000-000000000000", propagation="Background")
    assert delete(client, ref, uid=engine.get("configmap", "a")["metadata"]["uid"], propagation="Background", check=True)
    assert engine.names() == {"a"}, "neither a stale UID nor check mode deletes"
    assert delete(client, ref, uid=engine.get("configmap", "a")["metadata"]["uid"], propagation="Background")
    assert not delete(client, ref, uid="gone", propagation="Background")
    client.close()


def test_absent_takes_the_set_or_the_named_objects_and_is_quiet_the_second_time(engine: Engine) -> None:
    engine.apply(*maps(engine, "a", "b"), service("s"), applyset=applyset(engine))
    engine.apply(*maps(engine, "c", "d"))
    rows = engine.absent(applyset=applyset(engine), wait=True)["objects"]
    assert [(row["name"], row["result"]) for row in rows] == [("s", "absent"), ("a", "absent"), ("b", "absent"), ("set", "absent")]
    assert engine.names() == {"c", "d"}
    assert engine.absent(applyset=applyset(engine), wait=True)["changed"] is False
    gone = engine.apply(*maps(engine, "c", "never"), state="absent", wait=True, diff=True)
    assert {row["name"]: row["result"] for row in gone["objects"]} == {"c": "absent", "never": "unchanged"}
    assert gone["diff"][0]["before"]["data"] == {"key": "1"} and gone["diff"][0]["after"] == {}
    assert engine.names() == {"d"}


def test_what_a_run_before_began_to_delete_is_waited_for_too(engine: Engine) -> None:
    held, after = maps(engine, "a", "b")
    held["metadata"]["finalizers"] = ["test.corral.hpc/hold"]
    engine.apply(held, after, applyset=applyset(engine))
    engine.kubectl("delete", "configmap", "a", "-n", engine.namespace, "--wait=false")
    go = ("patch", "configmap", "a", "-n", engine.namespace, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    release = threading.Timer(1.0, engine.kubectl, go)
    release.start()
    rows = engine.absent(applyset=applyset(engine), wait=True)["objects"]
    assert engine.names() == set(), "the run has ended before it was gone"
    assert [row["name"] for row in rows] == ["b", "set"], "the one that was going already is no change of this run"
    release.join()


def test_two_runs_at_once_do_not_leave_an_orphan(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one run is between its read of the parent and its write, another one changes the set: the slower one reports it."""
    engine.apply(*maps(engine, "a"), applyset=applyset(engine))
    prepared = run.ApplySet.adopt

    def interrupted(self: prune.ApplySet, items: list[Any]) -> None:
        prepared(self, items)
        monkeypatch.setattr(run.ApplySet, "adopt", prepared)
        engine.apply(*maps(engine, "b"), applyset=applyset(engine))

    for batch in (("a", "c"), ("a", "c"), ("a",)):  # a changed set, an unchanged one, a shrunken one
        monkeypatch.setattr(run.ApplySet, "adopt", interrupted)
        with pytest.raises(KubeError, match=r"Another run changes the set of .*; run again"):
            engine.apply(*maps(engine, *batch), applyset=applyset(engine))
        engine.apply(*maps(engine, *batch), applyset=applyset(engine))
        assert engine.names() == {*batch, "set"}
    # The other one comes when the slower one has applied, and only closes: what the slower one made must not stay for good.
    closed = run.ApplySet.close

    def overtaken(self: prune.ApplySet, items: list[Any]) -> None:
        monkeypatch.setattr(run.ApplySet, "close", closed)
        engine.apply(*maps(engine, "b"), applyset=applyset(engine))
        engine.apply(engine.config_map("late") | {"metadata": {"name": "late", "labels": {prune.MEMBER_LABEL: self.id}}})
        closed(self, items)

    monkeypatch.setattr(run.ApplySet, "close", overtaken)
    with pytest.raises(KubeError, match="Another run changes the set"):
        engine.apply(*maps(engine, "a", "d", "late"), applyset=applyset(engine))
    assert "late" in engine.names()
    engine.apply(*maps(engine, "b"), applyset=applyset(engine))
    assert engine.names() == {"b", "set"}


def test_of_two_runs_at_once_one_comes_to_its_end(engine: Engine) -> None:
    client = engine.client()
    discovery = Discovery(client)
    items = prepare(maps(engine, "a"), discovery, namespace=engine.namespace)

    def begun() -> prune.ApplySet:
        one = prune.ApplySet(client, discovery, name="set", namespace=engine.namespace, labels={}, manager="corral", check=False)
        one.read()
        one.adopt(items)
        one.open()
        return one

    first, second = begun(), begun()
    with pytest.raises(KubeError, match="Another run changes the set"):
        first.close(items)
    second.close(items)
    client.close()
    annotations = engine.get("configmap", "set")["metadata"]["annotations"]
    assert prune.HASH not in annotations, "what the two have made is read by the next run"
    engine.apply(*maps(engine, "a"), applyset=applyset(engine))
    assert prune.HASH in engine.get("configmap", "set")["metadata"]["annotations"]


def test_absent_of_a_kind_that_nobody_knows_is_absent(engine: Engine) -> None:
    unknown = {"apiVersion": "example.org/v1", "kind": "Gizmo", "metadata": {"name": "x", "namespace": engine.namespace}}
    result = engine.apply(unknown, state="absent", wait=True, diff=True)
    assert result["objects"] == [{"kind": "Gizmo", "namespace": engine.namespace, "name": "x", "result": "unchanged"}]
    assert (result["changed"], result["unknown_kinds"]) == (False, ["example.org/v1/Gizmo"])


def relabelled(engine: Engine, name: str, new: str) -> dict[str, Any]:
    """A copy of a member as `kubectl get -o yaml | sed | kubectl create -f -` makes it."""
    live = engine.get("configmap", name)
    metadata = {"name": new, "namespace": engine.namespace, "labels": live["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": live["data"]}


def test_a_copy_of_a_member_is_none(engine: Engine) -> None:
    selected = {**service("s"), "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}}
    slices = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "own"},
        "addressType": "IPv4",
        "endpoints": [],
    }
    engine.apply(*maps(engine, "a", "b"), selected, slices, applyset=applyset(engine))
    engine.kubectl("create", "-f", "-", stdin=json.dumps(relabelled(engine, "a", "copy")))
    rows = engine.apply(*maps(engine, "a"), selected, applyset=applyset(engine))["objects"]
    assert {row["name"] for row in rows if row["result"] == "pruned"} == {"b", "own"}
    assert engine.names() == {"a", "copy", "set"}
    assert any(name.startswith("s-") for name in engine.names("endpointslices")), "Kubernetes' own of the Service"
    engine.absent(applyset=applyset(engine), wait=True)
    assert engine.names() == {"copy"}


def test_a_parent_is_no_member_of_its_own_set(engine: Engine) -> None:
    with pytest.raises(KubeError, match="is the parent of the set and one of its objects; give the set another name"):
        engine.apply(*maps(engine, "a", "set"), applyset=applyset(engine))
    assert engine.names() == set()


def test_a_set_of_the_former_keys_goes_on_without_losing_or_leaving_anything(engine: Engine) -> None:
    """As it was written before: the parent without data, its members under the former label; one falls out of the batch, one is somebody's copy."""
    ident = prune.set_id("set", engine.namespace)
    old = "applyset.k8s.io"
    for name in ("a", "b"):
        member = engine.config_map(name, key="1")
        member["metadata"]["labels"][f"{old}/part-of"] = ident
        engine.apply(member)
    engine.kubectl("create", "-f", "-", stdin=json.dumps(relabelled(engine, "a", "copy")))
    parent = {
        "name": "set",
        "labels": {f"{old}/id": ident, "test": "kube"},
        "annotations": {f"{old}/tooling": "corral/v1", f"{old}/contains-group-kinds": "ConfigMap", "corral.hpc/applyset-hash": "x"},
    }
    engine.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": parent})
    uid = engine.get("configmap", "a")["metadata"]["uid"]
    rows = engine.apply(*maps(engine, "a", "c"), applyset=applyset(engine))["objects"]
    assert {row["name"]: row["result"] for row in rows} == {"a": "configured", "c": "created", "b": "pruned"}
    assert engine.names() == {"a", "c", "copy", "set"} and engine.get("configmap", "a")["metadata"]["uid"] == uid
    assert old not in json.dumps(engine.get("configmap", "set")["metadata"]["labels"]), (
        "the former keys are gone when the run has come to its end"
    )
    again = engine.apply(*maps(engine, "a", "c"), applyset=applyset(engine))
    assert (again["requests"], again["changed"]) == (3, False)


def test_an_object_of_another_cluster_or_set_is_refused_before_anything_is_written(engine: Engine) -> None:
    def cluster(name: str, *names: str) -> list[dict[str, Any]]:
        batch = maps(engine, *names)
        for one in batch:
            one["metadata"]["labels"] |= {"app.kubernetes.io/instance": name, "app.kubernetes.io/managed-by": "corral"}
        return batch

    engine.apply(*cluster("m", "a", "both"), applyset=applyset(engine, "one"))
    engine.apply(*maps(engine, "shared"), applyset=applyset(engine, "three"))
    before = engine.versions()
    for check in (False, True):
        with pytest.raises(KubeError, match=r"ConfigMap .*/both belongs to the cluster m "):
            engine.apply(*cluster("m-n", "both", "c"), applyset=applyset(engine, "two"), check=check, force=True)
        with pytest.raises(KubeError, match=r"ConfigMap .*/shared is a member of another set"):
            engine.apply(*maps(engine, "shared", "d"), applyset=applyset(engine, "two"), check=check, force=True)
    assert engine.versions() == before
    engine.apply(*cluster("m", "both"), applyset=applyset(engine, "four"))  # from one part of a cluster to another
    rows = engine.apply(*cluster("m", "a"), applyset=applyset(engine, "one"))["objects"]
    assert [row["result"] for row in rows] == ["unchanged"], "what went to another set is not pruned"


def test_an_object_that_another_cluster_has_made_anew_is_refused_before_it_is_written(engine: Engine) -> None:
    def both(name: str) -> list[dict[str, Any]]:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "k", "labels": {}}, "stringData": {"a": "b"}}
        batch = [*maps(engine, "a"), secret]
        for one in batch:
            one["metadata"]["labels"] |= {"app.kubernetes.io/instance": name, "app.kubernetes.io/managed-by": "corral"}
        return batch

    engine.apply(*both("m"), applyset=applyset(engine, "one"))
    unchanged = engine.apply(*both("m"), applyset=applyset(engine, "one"))
    assert (unchanged["requests"], unchanged["writes"]) == (3, 0)
    for kind, name, index in (("configmap", "a", 0), ("secret", "k", 1)):
        engine.kubectl("delete", kind, name, "-n", engine.namespace)
        engine.apply(both("m-n")[index])
        before = engine.versions()
        for options in ({}, {"check": True}):
            with pytest.raises(KubeError, match=rf"/{name} belongs to the cluster m-n "):
                engine.apply(*both("m"), applyset=applyset(engine, "one"), force=True, **options)
        assert engine.versions() == before
        engine.kubectl("delete", kind, name, "-n", engine.namespace)
        made = engine.results(*both("m"), applyset=applyset(engine, "one"))
        assert made[name] == "created"
    again = engine.apply(*both("m"), applyset=applyset(engine, "one"))
    assert (again["requests"], again["writes"]) == (3, 0)
