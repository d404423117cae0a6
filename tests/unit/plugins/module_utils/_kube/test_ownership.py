# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose an object is; that nothing of it is written is shown in tests/integration/kube/test_prune.py."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import ownership, run
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Response
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import (
    Conflict,
    Invalid,
    KubeError,
    NotFound,
    Status,
    Unreachable,
    api_error,
)
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import Item

LABEL = "applyset.kubernetes.io/part-of"


def item(**labels: str) -> Item:
    return Item(Ref(BUILTIN["apps", "StatefulSet"], "slurm", "m-n-x"), {"metadata": {"labels": labels}})


def of(cluster: str) -> dict[str, str]:
    return {ownership.INSTANCE: cluster, ownership.MANAGED_BY: "corral"}


@pytest.mark.parametrize(
    ("live", "wanted", "words"),
    [
        (of("m"), of("m-n"), "StatefulSet slurm/m-n-x belongs to the cluster m "),
        (of("m"), of("m"), None),
        ({}, of("m"), None),
        ({ownership.INSTANCE: "m", ownership.MANAGED_BY: "Helm"}, of("m-n"), None),
        ({LABEL: "other"}, {}, "is a member of another set"),
        ({LABEL: "mine"}, {}, None),
        ({**of("m"), LABEL: "other"}, of("m"), None),  # an object that went from one part of the cluster to another
    ],
)
def test_what_is_somebody_elses_is_refused(live: dict[str, str], wanted: dict[str, str], words: str | None) -> None:
    if words is None:
        ownership.check(item(**wanted), live, set_label=LABEL, set_id="mine")
        return
    refused = item(**wanted)
    with pytest.raises(Conflict, match=words):
        ownership.check(refused, live, set_label=LABEL, set_id="mine")
    assert refused.result == "refused"


def volume(labels: dict[str, str], claim: str | None = None) -> dict[str, Any]:
    namespace, _slash, name = (claim or "").partition("/")
    return {
        "metadata": {"name": "op1-b-c-jail", "labels": labels},
        **({"spec": {"claimRef": {"namespace": namespace, "name": name}}} if claim else {}),
    }


@pytest.mark.parametrize(
    ("live", "wanted", "words"),
    [
        (volume(of("b-c"), "op1/b-c-jail"), volume(of("c"), "op1-b/c-jail"), "belongs to the cluster b-c "),
        (volume(of("c"), "op1-b/c-jail"), volume(of("c"), "op1-b/c-jail"), ""),
        (volume({}, "op1-b/c-jail"), volume(of("c"), "op1-b/c-jail"), ""),  # somebody took the labels off
        (volume({}, "op1/other"), volume(of("c"), "op1-b/c-jail"), "reserved for the claim op1/other, not for op1-b/c-jail"),
        (volume(of("c"), "op1/c-jail"), volume(of("c"), "op1-b/c-jail"), "reserved for the claim op1/c-jail"),  # a namesake elsewhere
        (volume({}), volume(of("c"), "op1-b/c-jail"), "reserved for no claim"),
        (volume(of("c")), volume({}), ""),
    ],
)
def test_whose_a_volume_is(live: dict[str, Any], wanted: dict[str, Any], words: str) -> None:
    said = ownership.another_owner(wanted, live)
    assert words in said and bool(said) == bool(words)


class Server:
    """Volumes by name; it notes what is deleted."""

    requests = 0

    def __init__(self, **volumes: dict[str, Any]) -> None:
        self.volumes = volumes
        self.deleted: list[str] = []
        self.access = SimpleNamespace(namespace="n")

    def get(self, path: str, *, what: str) -> Response:
        return Response(200, self.volumes[path.rpartition("/")[2]])

    def request(self, verb: str, path: str, **_options: Any) -> Response:
        assert verb == "DELETE"
        self.deleted.append(path.rpartition("/")[2])
        return Response(200, {})

    def close(self) -> None:
        pass


def test_a_volume_of_another_cluster_is_not_deleted_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def live(name: str, cluster: str, claim: str) -> dict[str, Any]:
        found = volume(of(cluster), claim)
        return {**found, "metadata": {**found["metadata"], "name": name, "uid": "1"}}

    server = Server(ours=live("ours", "c", "op1-b/c-state"), theirs=live("theirs", "b-c", "op1/b-c-jail"))
    monkeypatch.setattr(run, "Client", lambda _access: server)
    monkeypatch.setattr(run.auth, "resolve", lambda _params: None)
    wanted = [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": of("c")}, "spec": {"claimRef": claim}}
        for name, claim in (("ours", {"namespace": "op1-b", "name": "c-state"}), ("theirs", {"namespace": "op1-b", "name": "c-jail"}))
    ]
    result = run.run({"state": "absent", "objects": wanted}, check=False, diff=False)
    assert server.deleted == ["ours"]
    assert result["warnings"] == [
        "PersistentVolume theirs stays: it belongs to the cluster b-c (its label app.kubernetes.io/instance). Delete it by hand if nobody wants it."
    ]


@pytest.mark.parametrize(
    ("error", "result"), [(api_error(Status(403, message="no"), "delete", server="s"), "refused"), (Unreachable("No answer."), "skipped")]
)
@pytest.mark.parametrize("verb", ["get", "request"])
def test_a_delete_that_is_refused_is_told_so(monkeypatch: pytest.MonkeyPatch, verb: str, error: KubeError, result: str) -> None:
    server = Server(ours={"metadata": {"name": "ours", "uid": "1"}}, first={"metadata": {"name": "first", "uid": "2"}})
    usual = getattr(server, verb)

    def answer(*words: str, **options: Any) -> Response:
        if words[-1].endswith("/ours"):
            raise error
        return usual(*words, **options)  # type: ignore[no-any-return]

    monkeypatch.setattr(server, verb, answer)
    monkeypatch.setattr(run, "Client", lambda _access: server)
    monkeypatch.setattr(run.auth, "resolve", lambda _params: None)
    wanted = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in ("first", "ours", "never")]
    with pytest.raises(KubeError) as caught:
        run.run({"state": "absent", "objects": wanted}, check=False, diff=False)
    assert [row["result"] for row in caught.value.data["objects"]] == ["absent", result, "skipped"]
    assert caught.value.data["writes"] == 1


class Api:
    """An API server with one namespace: objects by path; an apply with a uid is for that object only, as the real one has it."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests = self.version = 0
        self.clock = None
        self.access = SimpleNamespace(namespace="n")

    def close(self) -> None:
        pass

    def put(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Write an object: anew, with a uid of its own, where there is none."""
        before = self.objects.get(path)
        kept = {} if before is None else before["metadata"]
        found = copy.deepcopy(body)
        found["metadata"] |= {"uid": kept.get("uid") or f"uid-{self.version + 1}", "resourceVersion": kept.get("resourceVersion")}
        if found != before:
            self.version += 1
            found["metadata"]["resourceVersion"] = str(self.version)
            self.objects[path] = found
        return self.objects[path]

    def get(self, path: str, **options: Any) -> Response:
        self.requests += 1
        name = (options.get("query") or {}).get("fieldSelector", "").removeprefix("metadata.name=")
        if name:
            found = [self.objects[f"{path}/{name}"]] if f"{path}/{name}" in self.objects else []
            return Response(200, {"metadata": {"resourceVersion": str(self.version)}, "items": copy.deepcopy(found)})
        if path not in self.objects:
            raise NotFound(f"there is no {path}.", Status(404))
        return Response(200, copy.deepcopy(self.objects[path]))

    def items(self, path: str, **_options: Any) -> list[dict[str, Any]]:
        self.requests += 1
        return [copy.deepcopy(obj) for where, obj in self.objects.items() if where.rpartition("/")[0] == path]

    def request(self, method: str, path: str, **options: Any) -> Response:
        if method == "GET":
            return self.get(path)
        self.requests += 1
        assert method == "PATCH"
        live, wanted = self.objects.get(path), options["body"]["metadata"].get("uid")
        if wanted and live is None:
            raise Conflict("uid mismatch: no existing object was found.", Status(409, "Conflict"))
        if live is not None and wanted not in (None, live["metadata"]["uid"]):
            raise Invalid(
                "metadata.uid: field is immutable.", Status(422, "Invalid", 'metadata.uid: Invalid value: "new": field is immutable')
            )
        if "dryRun" in options["query"]:
            return Response(201 if live is None else 200, copy.deepcopy(live or options["body"]))
        return Response(201 if live is None else 200, copy.deepcopy(self.put(path, options["body"])))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    server = Api()
    monkeypatch.setattr(run, "Client", lambda _access: server)
    monkeypatch.setattr(run.auth, "resolve", lambda _params: None)
    return server


def owned_by(cluster: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "m-n-x", "labels": of(cluster)}, **more}


def applied(api: Api, *objects: dict[str, Any], check: bool = False, **params: Any) -> tuple[list[str], int]:
    """Return what became of the objects, and how many requests it took."""
    before = api.requests
    given = {"objects": copy.deepcopy(list(objects)), "applyset": {"name": "one"}, "force": True, **params}
    result = run.run(given, check=check, diff=False)
    return [row["result"] for row in result["objects"]], api.requests - before


@pytest.mark.parametrize(("kind", "plural"), [("ConfigMap", "configmaps"), ("Secret", "secrets")])
@pytest.mark.parametrize("options", [{}, {"check": True}, {"create_only": True}])
def test_an_object_that_another_cluster_has_made_anew_is_not_written(api: Api, kind: str, plural: str, options: dict[str, Any]) -> None:
    mine, theirs, path = owned_by("m", kind, data={"a": "1"}), owned_by("m-n", kind), f"/api/v1/namespaces/n/{plural}/m-n-x"
    assert applied(api, mine)[0] == ["created"]
    assert applied(api, mine) == (["unchanged"], 2), "an unchanged set costs one request more than its objects"
    del api.objects[path]
    made = copy.deepcopy(api.put(path, theirs))
    with pytest.raises(Conflict, match=f"{kind} n/m-n-x belongs to the cluster m-n "):
        applied(api, mine, **options)
    assert api.objects[path] == made


def test_an_object_that_was_deleted_or_made_anew_by_hand_is_made_as_it_was(api: Api) -> None:
    mine, path = owned_by("m", "ConfigMap", data={"a": "1"}), "/api/v1/namespaces/n/configmaps/m-n-x"
    applied(api, mine)
    for byhand in (None, {"metadata": {"name": "m-n-x"}}, owned_by("m", "ConfigMap")):
        del api.objects[path]
        if byhand is not None:
            api.put(path, byhand)
        applied(api, mine)
        assert api.objects[path]["data"] == {"a": "1"}
        assert applied(api, mine) == (["unchanged"], 2), "the new one is noted"


VOLUME = "/api/v1/persistentvolumes/m-n-x"


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ({"namespace": "m", "name": "n-x"}, "is reserved for the claim m/n-x, not for m-n/x"),
        ({"namespace": "m-n", "name": "x", "uid": "1"}, ""),
        (None, ""),  # somebody has given it free by hand
    ],
)
def test_a_volume_that_is_kept_for_another_claim_is_not_written(api: Api, claim: dict[str, str] | None, words: str) -> None:
    """Clusters of one name in two namespaces have the same label."""
    live = copy.deepcopy(api.put(VOLUME, owned_by("x", "PersistentVolume", spec={"claimRef": claim} if claim else {})))
    wanted = owned_by("x", "PersistentVolume", spec={"claimRef": {"namespace": "m-n", "name": "x"}})
    if not words:
        applied(api, wanted)
        assert api.objects[VOLUME]["spec"] == wanted["spec"]
        return
    for check in (False, True):
        with pytest.raises(Conflict, match=words):
            applied(api, wanted, check=check)
    assert api.objects[VOLUME] == live


def test_so_is_one_whose_labels_somebody_took_off(api: Api) -> None:
    api.put(VOLUME, {"metadata": {"name": "m-n-x"}, "spec": {"claimRef": {"namespace": "m", "name": "n-x"}}})
    with pytest.raises(Conflict, match="is reserved for the claim m/n-x"):
        applied(api, owned_by("x", "PersistentVolume", spec={"claimRef": {"namespace": "m-n", "name": "x"}}))


def test_a_volume_that_was_deleted_and_made_for_another_claim_is_not_written(api: Api) -> None:
    wanted = owned_by("x", "PersistentVolume", spec={"claimRef": {"namespace": "m-n", "name": "x"}})
    applied(api, wanted)
    del api.objects[VOLUME]
    live = copy.deepcopy(api.put(VOLUME, owned_by("x", "PersistentVolume", spec={"claimRef": {"namespace": "m", "name": "n-x"}})))
    with pytest.raises(Conflict, match="is reserved for the claim m/n-x"):
        applied(api, wanted)
    assert api.objects[VOLUME] == live
