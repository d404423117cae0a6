# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two clusters whose names and sets meet."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import names, resolve

from .documents import good

DIRECTORY = {"hostPath": "/srv/jail", "size": "1Gi"}


def named(namespace: str, name: str, sets: tuple[str, ...] = ("cpu",), **spec: Any) -> frozenset[names.Name]:
    document = good()
    document["metadata"] = {"name": name, "namespace": namespace}
    resources = document["spec"]["nodeSets"][0]["resources"]
    document["spec"].update({"nodeSets": [{"name": one, "resources": resources} for one in sets], "partitions": []})
    document["spec"].update(spec)
    return names.of(resolve.model(document))


JAIL = {"volume": DIRECTORY, "populate": {"image": "example/jail:1"}}
OTHER_JAIL = {"name": "jail", "volume": {"storageClassName": "a", "size": "1Gi"}, "populate": {"image": "example/jail:1"}}


@pytest.mark.parametrize(
    ("first", "second", "meets"),
    [
        (named("ns", "m", ("n-x",)), named("ns", "m-n", ("x",)), "m-n-x of a StatefulSet"),
        (named("ns", "m", ("n-x",)), named("other", "m-n", ("x",)), ""),
        (named("ns", "m", ("n-x",)), named("ns", "m-n", ("y",)), ""),
        (named("ns", "m", ("n-login",)), named("ns", "m-n"), "m-n-login of a StatefulSet"),
        (named("ns", "m", jails=[OTHER_JAIL]), named("ns", "m-jail", jail=JAIL), "m-jail-jail of a PersistentVolumeClaim"),
        (named("op1", "b-c", jail=JAIL), named("op1-b", "c", jail=JAIL), "op1-b-c-jail of a PersistentVolume"),
        (named("op1", "b-c"), named("op1-b", "c"), ""),
        (named("ns", "m"), named("ns", "m-login"), ""),
        (named("ns", "a"), named("ns", "b"), ""),
    ],
)
def test_the_second_of_two_is_refused_with_the_name_of_the_first(
    first: frozenset[names.Name], second: frozenset[names.Name], meets: str
) -> None:
    said = names.meeting(second, first, "ns/m")
    if not meets:
        assert said == ""
        return
    assert f"makes the name {meets}, which the cluster ns/m has already; nothing was changed" in said
