# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accounts and users as objects of their own, under the operator: applied, refused with the place of the error, repaired, and removed with their records
kept. Each test continues where the last one ended."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ..conftest import MARIADB_IMAGE, embedded_database, eventually, make_spec
from .conftest import NAME, PORT, Operator, Served

pytestmark = pytest.mark.lab
ACCOUNTING = {
    "database": embedded_database(NAME),
    "tenants": {"objects": True, "prune": True, "accounts": [{"name": "science"}]},
}
PHYSICS = {
    "accounts": [{"name": "physics", "parent": "science", "limits": {"MaxJobs": 50}}],
    "users": [{"name": "alice", "associations": [{"account": "physics"}]}],
}
JOB: list[str] = []


@pytest.fixture(scope="module")
def cluster(operator: Operator, cluster: Served) -> Served:
    """The folder's, whatever other tests have made of its document, with accounting."""
    assert operator.led()
    cluster.spec = make_spec(NAME, Path(f"{cluster.key}.pub").read_text().strip(), PORT)
    cluster.spec["nodeSets"] = [{**cluster.spec["nodeSets"][0], "replicas": 1}]
    cluster.spec["images"]["mariadb"] = MARIADB_IMAGE
    cluster.spec["accounting"] = ACCOUNTING
    cluster.apply()
    cluster.wait_ready()
    return cluster


def put(cluster: Served, name: str, spec: dict[str, Any]) -> None:
    """Apply an object as its users do."""
    metadata = {"name": name, "namespace": cluster.namespace}
    document = {"apiVersion": "corral.hpc/v1alpha1", "kind": "SlurmTenants", "metadata": metadata, "spec": {"cluster": NAME, **spec}}
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(document))


def applied(cluster: Served, name: str) -> dict[str, str]:
    """The condition of an object's present generation; empty while there is none."""
    found = cluster.kubectl.json("get", "slurmtenants", name, "-n", cluster.namespace)
    conditions = found.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["observedGeneration"] == found["metadata"]["generation"]), {})


def associations(cluster: Served) -> set[str]:
    """Account, user and the most jobs of each association that the tests have made."""
    found = cluster.slurm("sacctmgr", "-nP", "show", "assoc", "WOPLimits", "format=account,user,maxjobs").split()
    return {one for one in found if not one.startswith("root|")}


def test_the_documents_accounts_are_applied(cluster: Served) -> None:
    eventually(lambda: cluster.is_("TenantsApplied", "True"), "the accounts of the document are in the database")
    assert associations(cluster) == {"science||"}


def test_an_object_is_applied_by_a_run_of_its_own(operator: Operator, cluster: Served) -> None:
    eventually(lambda: cluster.settled, "the cluster is at rest")
    sites = operator.runs()
    began = time.monotonic()
    put(cluster, "physics", PHYSICS)
    eventually(lambda: "physics|alice|" in associations(cluster), "the association is live", 30)
    print(f"MEASURED kubectl apply → association live: {time.monotonic() - began:.1f} s")
    eventually(lambda: applied(cluster, "physics").get("status") == "True", "the object says so")
    assert associations(cluster) == {"science||", "physics||50", "physics|alice|"}
    assert operator.runs() == sites
    JOB.append(cluster.ssh("sbatch --parsable --wait -A physics -o /dev/null --wrap true").stdout.strip())


def test_an_error_is_on_its_object_and_nothing_is_applied(cluster: Served) -> None:
    wrong = {"accounts": [{"name": "music", "parent": "art"}]}
    put(cluster, "art", wrong)
    eventually(lambda: applied(cluster, "art").get("status") == "False", "the object has the error", 30)
    message = applied(cluster, "art")["message"]
    assert message.startswith("SlurmTenants art spec.accounts[0].parent is art, and there is no account of that name"), message
    put(cluster, "art", {"accounts": [{"name": "physics"}]})
    eventually(lambda: "spec.accounts[0].name" in applied(cluster, "physics").get("message", ""), "both objects have the error", 30)
    assert "as SlurmTenants art spec.accounts[0].name is" in applied(cluster, "physics")["message"]
    assert associations(cluster) == {"science||", "physics||50", "physics|alice|"}
    assert cluster.is_("Ready", "True")
    cluster.kubectl("delete", "slurmtenants", "art", "-n", cluster.namespace)
    eventually(lambda: applied(cluster, "physics").get("status") == "True", "the other one is well again", 30)


def test_what_is_changed_by_hand_comes_back(cluster: Served) -> None:
    cluster.slurm("sacctmgr", "-i", "modify", "account", "where", "name=physics", "set", "MaxJobs=7")
    cluster.slurm("sacctmgr", "-i", "delete", "user", "where", "name=alice", "account=physics")
    assert associations(cluster) == {"science||", "physics||7"}
    cluster.annotate(f"corral.hpc/requested-at={time.time()}")
    eventually(lambda: associations(cluster) == {"science||", "physics||50", "physics|alice|"}, "the run that was asked for repairs it")


def test_a_deleted_object_takes_its_associations_along_and_leaves_the_records(cluster: Served) -> None:
    cluster.kubectl("delete", "slurmtenants", "physics", "-n", cluster.namespace)
    eventually(lambda: associations(cluster) == {"science||"}, "they are removed", 30)
    records = cluster.slurm("sacct", "-a", "-X", "-n", "-P", "-j", JOB[0], "-o", "JobID,Account,State").split()
    assert records == [f"{JOB[0]}|physics|COMPLETED"]
