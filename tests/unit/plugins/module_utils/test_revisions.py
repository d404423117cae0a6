# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_revision and slurm_revision_info: what they ask and tell the API server; tests/integration/test_rollback.py asks a real one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils import _revisions
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Forbidden, NotFound, Status

MAP = "/api/v1/namespaces/ns/configmaps/demo-base-revisions"
OBJECT = "/apis/corral.hpc/v1alpha1/namespaces/ns/slurmclusters/demo"


class Api:
    """A client that knows some objects by their paths, and applies and patches them."""

    clock = "2026-01-31T08:00:00Z"

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.hidden = False
        self.requests = 0
        self.writes: list[str] = []

    def get(self, path: str, **_more: Any) -> Any:
        self.requests += 1
        if self.hidden and path == OBJECT:
            raise Forbidden("not yours", Status(403))
        if path not in self.objects:
            raise NotFound("there is none", Status(404))
        return type("Response", (), {"data": self.objects[path]})()

    def request(self, _method: str, path: str, *, body: Any, **_more: Any) -> None:
        self.requests += 1
        self.writes.append(path)
        if isinstance(body, list):
            self.objects[path]["spec"] = body[0]["value"]
        else:
            self.objects[path] = body

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api()
    monkeypatch.setattr(_revisions, "Client", lambda _access: made)
    monkeypatch.setattr(auth, "resolve", dict)
    return made


def note(state: str, image: str, *, check: bool = False, diff: bool = False) -> dict[str, Any]:
    document = {"metadata": {"name": "demo", "namespace": "ns"}, "spec": {"images": {"slurm": image}}}
    params = {"namespace": "ns", "cluster": "demo", "state": state, "document": json.dumps(document), "labels": {"a": "b"}}
    return _revisions.revision(params, check=check, diff=diff)


def look(api: Api, image: str, **labels: str) -> dict[str, Any]:
    """What a pass has to know when it begins."""
    client: Any = api
    document = {"metadata": {"name": "demo", "namespace": "ns"}, "spec": {"images": {"slurm": image}}}
    return _revisions.state(client, "ns", "demo", document, labels or {"a": "b"})


def record(api: Api, image: str, *, check: bool = False) -> list[bool]:
    """A run that comes to its end; whether something changed at its beginning and at its end."""
    seen = look(api, image)
    tried = [note("tried", image, check=check)["changed"]] if seen["note"] else [False]
    return [*tried, *([note("recorded", image, check=check)["changed"]] if seen["pending"] else [])]


def restore(number: int | None = None, *, check: bool = False) -> dict[str, Any]:
    return _revisions.revision(
        {"namespace": "ns", "cluster": "demo", "state": "restored", "revision": number, "labels": {}}, check=check, diff=False
    )


def info(number: int | None = None) -> dict[str, Any]:
    return _revisions.revision_info({"namespace": "ns", "cluster": "demo", "revision": number}, check=False, diff=False)


def test_an_unchanged_document_costs_one_request_and_no_write(api: Api) -> None:
    assert look(api, "one") == {"note": True, "pending": True, "removed_users": []}
    first = note("tried", "one", diff=True)
    assert first["changed"] and look(api, "one") == {"note": False, "pending": True, "removed_users": []}
    assert first["diff"][0]["after"] == {"documents": [], "tried": True, "labels": {"a": "b"}}
    last = note("recorded", "one", diff=True)
    assert last["diff"][0]["before"] == {"documents": [], "tried": True, "labels": {"a": "b"}} and last["diff"][0]["after"] == {
        "documents": [1],
        "tried": False,
        "labels": {"a": "b"},
    }
    assert api.objects[MAP]["metadata"]["labels"] == {"a": "b"}
    api.requests = 0
    assert look(api, "one") == {"note": False, "pending": False, "removed_users": []}
    assert (api.requests, api.writes) == (1, [MAP, MAP])


def test_check_mode_writes_nothing_and_foretells_it(api: Api) -> None:
    assert record(api, "one", check=True) == [True, True]
    assert api.writes == []
    assert record(api, "one") == [True, True]
    assert record(api, "one", check=True) == [False]


def test_a_document_that_failed_is_gone_back_from(api: Api) -> None:
    record(api, "one")
    note("tried", "two")
    assert (info()["tried"], info()["revision"], info()["image_changes"]) == (True, 1, True)
    assert restore()["revision"] == 1
    assert record(api, "one") == [False, True], "what was tried is forgotten at the end"
    assert info()["tried"] is False


@pytest.mark.usefixtures("api")
def test_the_list_and_the_one_before(api: Api) -> None:
    assert info()["revisions"] == [] and "document" not in info()
    record(api, "one")
    assert "document" not in info(), "there is none before"
    record(api, "two")
    found = info()
    assert [one["revision"] for one in found["revisions"]] == [1, 2]
    assert (found["revision"], found["document"]["spec"]["images"]["slurm"], found["image_changes"]) == (1, "one", True)
    with pytest.raises(CorralError, match="number 7"):
        info(7)


def test_without_an_operator_the_document_is_for_whoever_asked(api: Api) -> None:
    record(api, "one")
    record(api, "two")
    writes = list(api.writes)
    found = restore()
    assert (found["changed"], found["operator"], found["document"]["spec"]["images"]["slurm"]) == (False, False, "one")
    api.hidden = True
    assert restore()["operator"] is False, "who has a namespace's rights alone may not see the kind"
    assert api.writes == writes


def test_an_operators_document_is_replaced_as_a_whole(api: Api) -> None:
    record(api, "one")
    record(api, "two")
    api.objects[OBJECT] = {"spec": {"images": {"slurm": "two"}, "more": 1}}
    assert restore(check=True)["changed"] is True
    assert api.objects[OBJECT]["spec"]["more"] == 1
    found = restore(1)
    assert (found["changed"], found["operator"]) == (True, True)
    assert api.objects[OBJECT]["spec"] == {"images": {"slurm": "one"}}
    assert restore(1)["changed"] is False


@pytest.mark.parametrize("labels", [{}, {"a": "drifted"}])
def test_labels_that_somebody_has_taken_away_are_set_right_and_those_of_others_stay(api: Api, labels: dict[str, str]) -> None:
    record(api, "one")
    api.objects[MAP]["metadata"]["labels"] = {**labels, "other": "label"}
    kept = api.objects[MAP]["binaryData"]
    shown = note("tried", "one", check=True, diff=True)
    assert shown["changed"] and shown["diff"][0]["before"]["labels"] != shown["diff"][0]["after"]["labels"]
    assert note("tried", "one")["changed"]
    assert api.objects[MAP]["metadata"]["labels"] == {"a": "b"}, "what is applied; the API server keeps what is others'"
    assert api.objects[MAP]["binaryData"] == kept
    api.objects[MAP]["metadata"]["labels"] = {"a": "b", "other": "label"}
    assert not note("tried", "one")["changed"]
