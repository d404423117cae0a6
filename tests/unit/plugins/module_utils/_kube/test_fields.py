# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""FieldsV1: who owns what, and what an object says in it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import fields


def entry(manager: str, tree: dict[str, Any], operation: str = "Apply", **more: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "fieldsV1": tree, **more}


def test_only_our_applied_fields_are_ours() -> None:
    obj = {
        "metadata": {
            "managedFields": [
                entry("corral", {"f:data": {"f:a": {}}}),
                entry("corral", {"f:data": {"f:b": {}}}, "Update"),
                entry("corral", {"f:status": {"f:c": {}}}, subresource="status"),
                entry("other", {"f:data": {"f:d": {}}}),
                entry("corral", {"f:data": {"f:e": {}}}, apiVersion="v2"),
            ]
        }
    }
    assert fields.owned(obj, "corral") == {"f:data": {"f:a": {}, "f:e": {}}}
    assert fields.owned({"metadata": {}}, "corral") == {}


VALUE: dict[str, Any] = {
    "spec": {
        "replicas": 1,
        "map": {"a": 1, "b": 2},
        "list": [{"name": "x", "image": "i", "port": 1}, {"name": "y", "image": "j"}],
        "ports": [{"port": 80, "protocol": "TCP", "name": "http"}, {"port": 80, "protocol": "UDP"}],
        "set": ["one", "two", 3],
        "atomic": [1, 2],
    }
}


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"f:spec": {"f:replicas": {}}}, {"spec": {"replicas": 1}}),
        ({"f:spec": {"f:missing": {}}}, {"spec": {}}),
        ({"f:spec": {"f:map": {}}}, {"spec": {"map": {"a": 1, "b": 2}}}),
        ({"f:spec": {"f:map": {".": {}}}}, {"spec": {"map": {}}}),
        ({"f:spec": {"f:map": {".": {}, "f:b": {}}}}, {"spec": {"map": {"b": 2}}}),
        ({"f:spec": {"f:list": {'k:{"name":"y"}': {".": {}, "f:image": {}}}}}, {"spec": {"list": [{"image": "j"}]}}),
        ({"f:spec": {"f:list": {'k:{"name":"z"}': {"f:image": {}}}}}, {"spec": {"list": []}}),
        ({"f:spec": {"f:ports": {'k:{"port":80,"protocol":"UDP"}': {"f:protocol": {}}}}}, {"spec": {"ports": [{"protocol": "UDP"}]}}),
        ({"f:spec": {"f:set": {'v:"two"': {}, "v:3": {}}}}, {"spec": {"set": ["two", 3]}}),
        ({"f:spec": {"f:list": {"i:1": {"f:name": {}}, "i:7": {}}}}, {"spec": {"list": [{"name": "y"}]}}),
        ({"f:spec": {"f:atomic": {}}}, {"spec": {"atomic": [1, 2]}}),
    ],
)
def test_projection(tree: dict[str, Any], expected: dict[str, Any]) -> None:
    assert fields.project(VALUE, tree) == expected


def test_union_keeps_the_wider_claim() -> None:
    assert fields.union({"f:a": {"f:b": {}}}, {"f:a": {"f:c": {}}, "f:d": {}}) == {"f:a": {"f:b": {}, "f:c": {}}, "f:d": {}}
    assert fields.union({"f:a": {}}, {"f:a": {"f:b": {}}}) == {"f:a": {}}, "the whole value is owned by the left already"


def state(tree: dict[str, Any], time: str = "t", **data: Any) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": time, "managedFields": [entry("corral", tree, time=time)]}, "data": data}


OWNS_A = {"f:data": {"f:a": {}}}


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (state(OWNS_A, "1", a=1), state(OWNS_A, "2", a=1), True),
        (state(OWNS_A, a=1), state(OWNS_A, a=2), False),
        (state(OWNS_A, a=1, b=1), state(OWNS_A, a=1, b=2), True),
        (state({}, a=1), state(OWNS_A, a=1), False),
        (state({"f:data": {"f:a": {}, "f:b": {}}}, a=1), state(OWNS_A, a=1), False),
        (state({}, a=1), state({}, a=2), True),
    ],
)
def test_same_compares_what_is_ours(before: dict[str, Any], after: dict[str, Any], same: bool) -> None:
    assert fields.same(before, after, "corral") is same
