# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply: what is created, configured and unchanged is told exactly, cheaply, and alike in check mode."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import run
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Conflict, Invalid, KubeError, NotFound

from .conftest import Engine

pytestmark = pytest.mark.lab

CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gadgets.kube.test.corral.hpc"},
    "spec": {
        "group": "kube.test.corral.hpc",
        "scope": "Namespaced",
        "names": {"kind": "Gadget", "plural": "gadgets", "singular": "gadget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                },
            }
        ],
    },
}


def gadget(namespace: str, size: int) -> dict[str, Any]:
    return {
        "apiVersion": "kube.test.corral.hpc/v1",
        "kind": "Gadget",
        "metadata": {"name": "g", "namespace": namespace},
        "spec": {"size": size},
    }


def test_three_runs_create_keep_and_configure(engine: Engine) -> None:
    maps = [engine.config_map(f"m{number}", key="1") for number in range(6)]
    first = engine.apply(*maps)
    assert [row["result"] for row in first["objects"]] == ["created"] * 6 and first["changed"] and first["writes"] == 6
    before = engine.versions()
    second = engine.apply(*maps)
    assert [row["result"] for row in second["objects"]] == ["unchanged"] * 6 and not second["changed"]
    assert second["writes"] == 0 and second["requests"] == 7, "one list for the revision, one PATCH an object"
    assert engine.versions() == before
    maps[3]["data"]["key"] = "2"
    third = engine.apply(*maps)
    assert [row["result"] for row in third["objects"]] == ["unchanged"] * 3 + ["configured"] + ["unchanged"] * 2
    assert third["writes"] == 1 and third["requests"] == 8, "the written one is compared with its past"
    assert engine.get("configmap", "m3")["data"] == {"key": "2"}


def test_rows_are_in_the_order_of_the_input_whatever_the_tiers_and_threads(engine: Engine) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}
    objects = [
        service,
        *(engine.config_map(f"m{number}") for number in range(12)),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}},
    ]
    names = [row["name"] for row in engine.apply(*objects)["objects"]]
    assert names == ["s", *(f"m{number}" for number in range(12)), "a"]


def test_somebody_elses_write_in_the_same_moment_is_not_ours(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object's resourceVersion is above R0 though this run changed nothing."""
    engine.apply(engine.config_map("m", key="1"))
    look = run.current_revision

    def look_then_meddle(*args: Any) -> Any:
        seen = look(*args)
        engine.kubectl("annotate", "configmap", "m", "-n", engine.namespace, "somebody=else", "--overwrite")
        return seen

    monkeypatch.setattr(run, "current_revision", look_then_meddle)
    result = engine.apply(engine.config_map("m", key="1"))
    assert result["objects"][0]["result"] == "unchanged" and result["writes"] == 0
    assert result["requests"] == 3
    changed = engine.apply(engine.config_map("m", key="2"))
    assert changed["objects"][0]["result"] == "configured"


def test_two_changes_within_one_second_are_both_seen(engine: Engine) -> None:
    """managedFields' time counts seconds; the answer must not depend on it."""
    seen = [engine.results(engine.config_map("m", key=value))["m"] for value in "112233"]
    assert seen == ["created", "unchanged", "configured", "unchanged", "configured", "unchanged"]


def test_beginning_to_own_a_field_is_a_write_without_a_time(engine: Engine) -> None:
    """The case that managedFields' time cannot tell: the value is there already, written by another manager."""
    engine.kubectl("create", "configmap", "m", "-n", engine.namespace, "--from-literal=key=1")
    wanted = engine.config_map("m", key="1")
    wanted["metadata"].pop("labels")
    assert engine.results(wanted) == {"m": "configured"}
    entries = engine.get("configmap", "m")["metadata"]["managedFields"]
    assert "time" not in next(entry for entry in entries if entry["manager"] == "corral")
    assert engine.results(wanted) == {"m": "unchanged"}


def test_an_object_of_a_name_alone_is_unchanged_the_second_time(engine: Engine) -> None:
    """The server writes such an object once more at its second apply; nothing of ours has changed."""
    bare = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bare"}}
    assert [engine.results(bare)["bare"] for dummy in range(3)] == ["created", "unchanged", "unchanged"]


def test_a_field_that_is_left_out_goes(engine: Engine) -> None:
    engine.apply(engine.config_map("m", one="1", two="2"))
    assert engine.results(engine.config_map("m", one="1"), check=True) == {"m": "configured"}
    assert engine.results(engine.config_map("m", one="1")) == {"m": "configured"}
    assert engine.get("configmap", "m")["data"] == {"one": "1"}


def test_every_character_arrives(engine: Engine) -> None:
    text = 'quote " back\\slash\ttab\nline {{ x }} \u0085\u2028\ufeff\x7f é 🙂 #:- [a] {b} & *c !d |'
    engine.apply(engine.config_map("m", key=text))
    with_kubectl = engine.get("configmap", "m")["data"]["key"]
    assert with_kubectl == text
    assert engine.results(engine.config_map("m", key=text)) == {"m": "unchanged"}


def test_a_conflict_names_object_field_manager_and_the_way_out(engine: Engine) -> None:
    engine.apply(engine.config_map("m", key="1"), field_manager="somebody")
    for check in (True, False):
        with pytest.raises(Conflict) as caught:
            engine.apply(engine.config_map("m", key="2"), engine.config_map("n"), check=check)
        assert f"ConfigMap {engine.namespace}/m: field .data.key belongs to somebody" in str(caught.value) and "force: true" in str(
            caught.value
        )
        row = {
            "kind": "ConfigMap",
            "namespace": engine.namespace,
            "name": "m",
            "result": "conflict",
            "field": ".data.key",
            "manager": "somebody",
        }
        assert caught.value.data["conflicts"] == [row]
        assert [one["result"] for one in caught.value.data["objects"]] == ["refused", "created"], "the rest of the tier was tried"
    assert engine.results(engine.config_map("m", key="2"), force=True) == {"m": "configured"}


def test_several_refusals_are_told_together(engine: Engine) -> None:
    bad = [{**engine.config_map(f"bad{number}"), "data": {"key": {"no": "text"}}} for number in range(2)]
    with pytest.raises(KubeError, match=r"2 objects were refused: \(1\) .*bad0.*\(2\) .*bad1") as caught:
        engine.apply(*bad, engine.config_map("good"))
    assert engine.names() == {"good"}
    assert "expected string" in str(caught.value)


def test_a_mistake_is_told_with_its_field_and_not_tried_again(engine: Engine) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 99999}]}}
    with pytest.raises(Invalid, match=r"spec\.ports\[0\]\.port: Invalid value"):
        engine.apply(service)
    service["spec"] = {"port": 1}
    began = time.monotonic()
    with pytest.raises(Invalid, match=r"\.spec\.port: field not declared in schema"):
        engine.apply(service)
    assert time.monotonic() - began < 1


def test_an_unknown_kind_is_told(engine: Engine) -> None:
    with pytest.raises(NotFound, match=r"no kind Gizmo in example\.org/v1"):
        engine.apply({"apiVersion": "example.org/v1", "kind": "Gizmo", "metadata": {"name": "x"}})
    with pytest.raises(NotFound, match=r"no kind StatefulSet in apps/v1beta1"):
        engine.apply({"apiVersion": "apps/v1beta1", "kind": "StatefulSet", "metadata": {"name": "x"}})
    with pytest.raises(NotFound, match=r"no kind StatefulSet in apps/v1beta1"):
        engine.apply({"apiVersion": "apps/v1beta1", "kind": "StatefulSet", "metadata": {"name": "x"}}, check=True)


def test_check_mode_foretells_an_object_whose_kind_an_earlier_task_would_have_brought(engine: Engine) -> None:
    gizmo = {"apiVersion": "example.org/v1", "kind": "Gizmo", "metadata": {"name": "x"}}
    given = [gizmo, engine.config_map("beside", key="value")]
    for applyset in (None, {"name": "gizmos"}):
        planned = engine.apply(*given, check=True, diff=True, applyset=applyset)
        assert [row["result"] for row in planned["objects"]] == ["created", "created"]
        assert ["no kind Gizmo in example.org/v1" in text for text in planned["warnings"]] == [True]
        assert planned["unknown_kinds"] == ["example.org/v1/Gizmo"]
        assert {entry["after_header"].split()[0] for entry in planned["diff"]} >= {"Gizmo", "ConfigMap"}
    assert engine.names() == set(), "check mode has written"


def test_a_new_kind_and_its_first_object_in_one_batch(engine: Engine) -> None:
    batch = [gadget(engine.namespace, 1), CRD]
    try:
        planned = engine.apply(*batch, check=True)
        assert [row["result"] for row in planned["objects"]] == ["created", "created"]
        made = engine.apply(*batch)
        assert [row["result"] for row in made["objects"]] == ["created", "created"]
        again = engine.apply(*batch)
        assert [row["result"] for row in again["objects"]] == ["unchanged", "unchanged"] and again["writes"] == 0
        assert engine.results(gadget(engine.namespace, 2), check=True) == {"g": "configured"}
        assert engine.results(gadget(engine.namespace, 2)) == {"g": "configured"}
        assert engine.results(gadget(engine.namespace, 2)) == {"g": "unchanged"}
    finally:
        engine.kubectl("delete", "crd", CRD["metadata"]["name"], "--ignore-not-found")


def test_check_mode_predicts_a_namespace_and_what_comes_into_it(engine: Engine) -> None:
    name = f"{engine.namespace}-x"
    batch = [
        engine.config_map("m", key="1") | {"metadata": {"name": "m", "namespace": name}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"test": "kube"}}},
    ]
    applyset = {"name": "set", "namespace": name}
    try:
        planned = engine.apply(*batch, applyset=applyset, check=True, diff=True)
        assert [row["result"] for row in planned["objects"]] == ["created", "created"] and planned["writes"] == 0
        assert engine.kubectl("get", "namespace", name, "--ignore-not-found") == ""
        # The namespace would have been made by an earlier task of the same check run.
        assert engine.apply(batch[0], applyset=applyset, check=True)["changed"]
        assert engine.apply(batch[0], create_only=True, check=True)["changed"]
        with pytest.raises(NotFound, match=f"namespace {name} does not exist"):
            engine.apply(batch[0])
        assert [row["result"] for row in engine.apply(*batch, applyset=applyset)["objects"]] == ["created", "created"]
        assert not engine.apply(*batch, applyset=applyset, check=True)["changed"]
    finally:
        engine.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=false")


def test_check_mode_says_what_the_run_then_does_and_writes_nothing(engine: Engine) -> None:
    applyset = {"name": "set", "namespace": engine.namespace}
    engine.kubectl("create", "configmap", "foreign", "-n", engine.namespace, "--from-literal=key=1")
    foreign = engine.config_map("foreign", key="1")
    history = [
        [engine.config_map("a", key="1"), engine.config_map("b", key="1")],
        [engine.config_map("a", key="1"), engine.config_map("b", key="1")],
        [engine.config_map("a", key="2"), engine.config_map("b", key="1"), foreign],
        [engine.config_map("a", key="2"), foreign, engine.config_map("c", key="1")],
        [engine.config_map("c")],
        [],
        [],
    ]
    for step, batch in enumerate(history):
        before = engine.versions()
        planned = engine.apply(*batch, applyset=applyset, check=True)
        assert engine.versions() == before, f"check mode wrote at step {step}"
        done = engine.apply(*batch, applyset=applyset)
        assert (planned["objects"], planned["changed"]) == (done["objects"], done["changed"]), f"step {step}"
    planned = engine.absent(applyset=applyset, check=True)
    before = engine.versions()
    assert engine.absent(applyset=applyset, check=True)["objects"] == planned["objects"] and engine.versions() == before
    assert engine.absent(applyset=applyset)["objects"] == planned["objects"]


def test_create_only_never_overwrites(engine: Engine) -> None:
    for check, result in ((True, "created"), (False, "created"), (False, "unchanged"), (True, "unchanged")):
        assert engine.results(engine.config_map("m", key="1"), create_only=True, check=check) == {"m": result}
    before = engine.versions()
    assert engine.results(engine.config_map("m", key="2"), create_only=True) == {"m": "unchanged"}
    assert engine.versions() == before


def test_an_owner_is_put_on_the_objects_of_its_namespace(engine: Engine) -> None:
    engine.apply(engine.config_map("owner"))
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": engine.get("configmap", "owner")["metadata"]["uid"]}
    engine.apply(engine.config_map("owned", key="1"), owner=owner)
    assert engine.get("configmap", "owned")["metadata"]["ownerReferences"] == [owner]
    assert engine.results(engine.config_map("owned", key="1"), owner=owner) == {"owned": "unchanged"}
    other = engine.config_map("elsewhere", key="1") | {"metadata": {"name": "elsewhere", "namespace": "default"}}
    try:
        engine.apply(other, owner=owner)
        assert "ownerReferences" not in engine.kubectl.json("get", "configmap", "elsewhere", "-n", "default")["metadata"]
    finally:
        engine.kubectl("delete", "configmap", "elsewhere", "-n", "default", "--ignore-not-found")


def test_an_object_that_is_being_deleted_makes_room(engine: Engine) -> None:
    held = engine.config_map("m", key="1")
    held["metadata"]["finalizers"] = ["test.corral.hpc/hold"]
    engine.apply(held)
    uid = engine.get("configmap", "m")["metadata"]["uid"]
    engine.kubectl("delete", "configmap", "m", "-n", engine.namespace, "--wait=false")
    release = threading.Timer(
        0.5, engine.kubectl, ("patch", "configmap", "m", "-n", engine.namespace, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    )
    release.start()
    wanted = engine.config_map("m", key="1")
    assert engine.results(wanted, force=True) == {"m": "created"}
    release.join()
    live = engine.get("configmap", "m")["metadata"]
    assert live["uid"] != uid and "deletionTimestamp" not in live


def test_secrets_are_told_by_hash_and_stringData_is_tracked(engine: Engine) -> None:
    def secret(**texts: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": texts}

    first = engine.apply(secret(one="swordfish", two="x"), diff=True)
    assert "swordfish" not in str(first) and "c3dvcmRmaXNo" not in str(first) and "sha256:" in str(first["diff"])
    second = engine.apply(secret(one="marlin"), diff=True)
    assert second["objects"][0]["result"] == "configured" and "marlin" not in str(second)
    before, after = second["diff"][0]["before"]["data"], second["diff"][0]["after"]["data"]
    assert set(before) == {"one", "two"} and set(after) == {"one"} and before["one"] != after["one"]
    assert set(engine.get("secret", "s")["data"]) == {"one"}, "a key that was left out is gone"


def test_diff_shows_only_what_is_ours(engine: Engine) -> None:
    engine.apply(engine.config_map("m", text="a\nb\n", other="1"))
    engine.kubectl("annotate", "configmap", "m", "-n", engine.namespace, "somebody=else")
    result = engine.apply(engine.config_map("m", text="a\nc\n", other="1"), engine.config_map("n"), diff=True)
    assert [entry["before_header"].partition("/")[2] for entry in result["diff"]] == ["m", "n"]
    entry = result["diff"][0]
    assert entry["before"]["data"] == {"text": ["a", "b"], "other": "1"} and entry["after"]["data"] == {"text": ["a", "c"], "other": "1"}
    assert "somebody" not in str(entry) and "managedFields" not in str(entry) and "uid" not in str(entry)
    assert result["diff"][1]["before"] == {}
    unchanged = engine.apply(engine.config_map("m", text="a\nc\n", other="1"), diff=True)
    assert unchanged["diff"] == [] and not unchanged["changed"]
