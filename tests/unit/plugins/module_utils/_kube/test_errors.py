# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals become sentences that name what, where, why and the next step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import errors
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Cause, Status, api_error, parse_status

FORBIDDEN = (
    'statefulsets.apps "demo-cpu" is forbidden: User "system:serviceaccount:ci:deployer" cannot patch resource "statefulsets" '
    'in API group "apps" in the namespace "demo"'
)


def status(code: int, message: str = "", reason: str = "", causes: list[dict[str, str]] | None = None, **details: str) -> Status:
    body = {"kind": "Status", "code": code, "message": message, "reason": reason, "details": {**details, "causes": causes or []}}
    return parse_status(code, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (status(401, "Unauthorized"), errors.Forbidden, "does not accept the credentials (401 Unauthorized); log in again"),
        (
            status(403, FORBIDDEN, "Forbidden"),
            errors.Forbidden,
            (
                "user system:serviceaccount:ci:deployer may not patch statefulsets.apps in namespace demo; ask an administrator for a Role "
                'with {apiGroups: ["apps"], resources: [statefulsets], verbs: [patch]}.'
            ),
        ),
        (
            status(
                403,
                'priorityclasses.scheduling.k8s.io "x" is forbidden: User "u" cannot get resource "priorityclasses" in API group "s" at the cluster scope',
            ),
            errors.Forbidden,
            "may not get priorityclasses.s in the whole cluster; ask an administrator for a ClusterRole",
        ),
        (
            status(403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged'),
            errors.Forbidden,
            'refused by policy: pods "x" is forbidden: violates PodSecurity',
        ),
        (
            status(404, 'namespaces "x" not found', "NotFound", kind="namespaces", name="x"),
            errors.NotFound,
            "namespace x does not exist; make it",
        ),
        (status(404, 'pods "x" not found', kind="pods"), errors.NotFound, 'Could not do: pods "x" not found.'),
        (
            status(
                422, "run-on", "Invalid", [{"field": "spec.replicas", "message": "Invalid value: -1"}, {"field": "", "message": "other"}]
            ),
            errors.Invalid,
            "refuses the object: spec.replicas: Invalid value: -1; other.",
        ),
        (
            status(500, "failed to create typed patch object (a/b; apps/v1, Kind=X): .spec.oops: field not declared in schema"),
            errors.Invalid,
            "refuses the object: .spec.oops: field not declared in schema.",
        ),
        (
            status(
                409,
                "x",
                "Conflict",
                [{"reason": "FieldManagerConflict", "message": 'conflict with "hpa" using apps/v1', "field": ".spec.replicas"}],
            ),
            errors.Conflict,
            "field .spec.replicas belongs to hpa; leave the field out to let its owner keep it, or set force: true",
        ),
        (status(409, "the object has been modified", "Conflict"), errors.Conflict, "the object has been modified."),
        (status(503, "not now"), errors.ApiError, "the API server https://s answered 503: not now; try again"),
    ],
)
def test_sentences(given: Status, kind: type[errors.ApiError], words: str) -> None:
    error = api_error(given, "do", server="https://s")
    assert error.__class__ is kind and words in str(error) and str(error).startswith("Could not do: ")
    assert error.status is given


@pytest.mark.parametrize(
    ("given", "race", "field_conflict", "exists", "uid"),
    [
        (status(409, "the object has been modified", "Conflict"), True, False, False, False),
        (status(409, "x", "Conflict", [{"reason": "FieldManagerConflict"}]), False, True, False, False),
        (status(409, "x exists", "AlreadyExists"), False, False, True, False),
        (status(409, "the UID in the precondition (a) does not match", "Conflict"), False, False, False, True),
        (status(422, "x"), False, False, False, False),
    ],
)
def test_the_kinds_of_409(given: Status, race: bool, field_conflict: bool, exists: bool, uid: bool) -> None:
    assert (given.is_race, given.is_field_conflict, given.already_exists, given.is_uid_mismatch) == (race, field_conflict, exists, uid)


@pytest.mark.parametrize(
    ("given", "another"),
    [
        (status(409, "uid mismatch: the provided object specified uid a, and no existing object was found", "Conflict"), True),
        (status(422, "x", "Invalid", [{"reason": "FieldValueInvalid", "message": "immutable", "field": "metadata.uid"}]), True),
        (status(403, "metadata.uid: field is immutable"), True),
        (status(409, "x", "Conflict", [{"reason": "FieldManagerConflict", "field": ".spec.replicas"}]), False),
        (status(422, "x", "Invalid", [{"reason": "FieldValueInvalid", "message": "immutable", "field": "spec.selector"}]), False),
        (status(403, "x is forbidden"), False),
    ],
)
def test_an_apply_with_a_uid_that_met_another_object(given: Status, another: bool) -> None:
    assert given.is_of_another_uid is another


def test_a_conflict_carries_its_rows() -> None:
    conflict = Status(409, causes=tuple(Cause("FieldManagerConflict", f'conflict with "m{number}"', f".f{number}") for number in range(7)))
    error = api_error(conflict, "do", server="s")
    assert error.data["conflicts"][6] == {"field": ".f6", "manager": "m6"} and "and 2 more" in str(error)


@pytest.mark.parametrize(
    ("body", "retry", "expected"),
    [
        (b"", None, Status(500)),
        (b"<html>\nno</html>", None, Status(500, message="<html>")),
        (b"[1]", "2", Status(500, message="[1]", retry_after=2.0)),
        (b'{"details": {"retryAfterSeconds": 3}}', None, Status(500, retry_after=3.0)),
        (b"{}", "Wed, 21 Oct 2026 07:28:00 GMT", Status(500)),
    ],
)
def test_bodies_that_are_no_status(body: bytes, retry: str | None, expected: Any) -> None:
    assert parse_status(500, body, retry) == expected
