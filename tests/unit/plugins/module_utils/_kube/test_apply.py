# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which volumes k8s_apply gives back to their claim's name; what the API server makes of it is in tests/integration/kube/test_wait.py."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube.apply import keeps_gone_claim

Json = dict[str, Any]
CLAIM = {"namespace": "slurm", "name": "jail"}
WANTED = {"spec": {"claimRef": CLAIM}}
RELEASED: Json = {
    "metadata": {"name": "v", "resourceVersion": "7"},
    "spec": {"claimRef": {**CLAIM, "uid": "gone", "resourceVersion": "3"}, "persistentVolumeReclaimPolicy": "Retain"},
    "status": {"phase": "Released"},
}


def test_a_volume_whose_claim_is_gone_and_whose_data_stay() -> None:
    assert keeps_gone_claim(RELEASED, WANTED)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("status.phase", "Bound"),
        ("status.phase", "Available"),
        ("spec.persistentVolumeReclaimPolicy", "Delete"),
        ("spec.claimRef.uid", ""),
        ("spec.claimRef.namespace", "another"),
        ("spec.claimRef.name", "another"),
        ("metadata.deletionTimestamp", "2026-01-01T00:00:00Z"),
    ],
)
def test_other_volumes_are_left_alone(path: str, value: str) -> None:
    volume = copy.deepcopy(RELEASED)
    *above, last = path.split(".")
    place = volume
    for key in above:
        place = place[key]
    place[last] = value
    assert not keeps_gone_claim(volume, WANTED)


@pytest.mark.parametrize("wanted", [{}, {"spec": {}}, {"spec": {"claimRef": {**CLAIM, "uid": "gone"}}}])
def test_so_are_those_whose_object_names_no_claim_or_just_one(wanted: Json) -> None:
    assert not keeps_gone_claim(RELEASED, wanted)
