# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is rotated, by which pods, and what a cluster does not have."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve, rotation
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

from .documents import good
from .test_accounting import EXTERNAL

EMBEDDED = {"database": {"embedded": {"volume": {"claimName": "records"}}}}


def rows(*names: str, **spec: Any) -> list[dict[str, Any]]:
    document = good()
    document["spec"].update(spec)
    return rotation.rows(resolve.model(document), names)


def test_each_has_its_recipe_its_pods_and_its_place() -> None:
    images = {**good()["spec"]["images"], "mariadb": "example/mariadb:1"}
    found = rows("jwt", " database", "host_keys", "munge", rest={"tls": {"secret": "certificate"}}, accounting=EMBEDDED, images=images)
    assert [(row["name"], row["secret"]["name"]) for row in found] == [
        ("munge", "demo-base-munge-key"),
        ("host_keys", "demo-login-host-keys"),
        ("database", "demo-database-password"),
        ("jwt", "demo-rest-jwt-key"),
    ]
    cluster = "app.kubernetes.io/name=slurm,app.kubernetes.io/instance=demo"
    assert found[0]["selector"] == cluster and found[0]["containers"] == ["munged"]
    assert found[1]["selector"] == f"{cluster},app.kubernetes.io/component=login" and found[1]["containers"] == ["sshd"]
    assert all(row["restart"] == [] and row["command"] == ["/usr/local/lib/corral/keys.sh", row["name"]] for row in found[:2])
    components = [[selector.rpartition("=")[2] for selector in row["restart"]] for row in found[2:]]
    assert components == [["database", "accounting"], ["accounting", "controller"]]
    assert all("selector" not in row for row in found[2:])


def test_workers_have_host_keys_of_their_own() -> None:
    (row,) = rows("worker_host_keys", workers={"ssh": "WithJob"})
    assert row["secret"]["name"] == "demo-worker-host-keys"
    assert row["selector"].endswith("app.kubernetes.io/component=worker") and row["containers"] == ["slurmd"]
    assert (row["command"], row["restart"]) == (["/usr/local/lib/corral/keys.sh", "host_keys"], [])


def test_slurms_own_key_has_another_beside_it_and_slurmctld_is_informed_last() -> None:
    (row,) = rows("slurm", slurm={"auth": "slurm"})
    assert row["secret"]["name"] == "demo-base-slurm-key" and row["selector"].endswith("app.kubernetes.io/instance=demo")
    assert row["containers"] == ["sack", "sackd", "slurmd", "slurmdbd", "slurmctld"]
    assert row["command"] == ["/usr/local/lib/corral/keys.sh", "slurm"] and row["restart"] == []
    assert row["overlap"] > 120, "a job's credential"


def test_without_accounting_tokens_are_slurmctlds_alone() -> None:
    (row,) = rows("jwt", rest={"tls": {"secret": "certificate"}})
    assert [selector.rpartition("=")[2] for selector in row["restart"]] == ["controller"]


@pytest.mark.parametrize(
    ("name", "spec", "words"),
    [
        ("mung", {}, "rotate names 'mung'; it can be munge, slurm, host_keys, worker_host_keys, database, jwt"),
        ("database", {}, r"the document has no spec\.accounting"),
        (
            "database",
            {"accounting": {"database": {"external": EXTERNAL}}},
            r"is not the cluster's own: change the password there and in the Secret",
        ),
        ("host_keys", {"slurm": {"auth": "slurm"}}, r"names munge, but spec\.slurm\.auth is slurm, so the cluster has no such key"),
        ("slurm", {}, r"names slurm, but spec\.slurm\.auth is munge, so the cluster has no such key"),
        ("jwt", {}, r"the document has no spec\.rest"),
        ("worker_host_keys", {"workers": {"ssh": "Never"}}, r"spec\.workers\.ssh is Never, so workers have none"),
    ],
)
def test_what_the_cluster_does_not_have_is_refused(name: str, spec: dict[str, Any], words: str) -> None:
    with pytest.raises(CorralError, match=f"{words}.*Nothing was changed"):
        rows("munge", name, **spec)
