# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A key that is gone while pods run with it is not made anew; that it is so in a cluster is in tests/integration/kube/test_secret.py."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import lost_keys
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Conflict

Json = dict[str, Any]
SECRET = Ref(BUILTIN["", "Secret"], "slurm", "lab-munge")


class Pods:
    """Stands for the client."""

    def __init__(self, *pods: Json) -> None:
        self.pods = list(pods)

    def items(self, _path: str, **_more: Any) -> list[Json]:
        return self.pods


def pod(name: str = "lab-cpu-0", volume: Json | None = None, phase: str = "Running", **metadata: Any) -> Json:
    containers = [{"name": "slurmd"}, {"name": "munged", "volumeMounts": [{"name": "key", "mountPath": "/etc/munge/"}]}]
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"volumes": [{"name": "key", **(volume or {"secret": {"secretName": "lab-munge"}})}], "initContainers": containers},
        "status": {"phase": phase, "initContainerStatuses": [{"name": one["name"], "state": {"running": {}}} for one in containers]},
    }


def test_the_way_out_is_a_command_for_a_pod_that_has_the_key() -> None:
    with pytest.raises(Conflict) as caught:
        lost_keys.refuse(Pods(pod(), pod("lab-cpu-1")), SECRET, ["munge.key"])  # type: ignore[arg-type]  # as far as it is used
    text = str(caught.value)
    assert text.startswith("Secret slurm/lab-munge is gone, while pods run with it (lab-cpu-0, lab-cpu-1); ")
    assert "'kubectl -n slurm exec lab-cpu-0 -c munged -- cat /etc/munge/munge.key > munge.key'" in text
    assert "'kubectl -n slurm create secret generic lab-munge --from-file=munge.key', and run again" in text


@pytest.mark.parametrize(
    "other",
    [
        pod(phase="Pending"),  # it never had the key
        pod(phase="Succeeded"),
        pod(deletionTimestamp="2026-01-01T00:00:00Z"),
        pod(volume={"secret": {"secretName": "another"}}),
        pod(volume={"emptyDir": {}}),
    ],
)
def test_pods_that_do_not_run_with_it_do_not_count(other: Json) -> None:
    lost_keys.refuse(Pods(other), SECRET, ["munge.key"])  # type: ignore[arg-type]  # as far as it is used


def test_a_projected_volume_and_another_name_of_the_file() -> None:
    source = {"name": "lab-munge", "items": [{"key": "munge.key", "path": "k"}]}
    assert lost_keys.places(pod(volume={"projected": {"sources": [{"secret": source}]}}), "lab-munge", ["munge.key"]) == [
        "lab-cpu-0 -c munged -- cat /etc/munge/k"
    ]
