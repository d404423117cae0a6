# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MariaDB object of spec.accounting.database.mariadbOperator before the API server, in order: without its kind, and with a stand-in of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ApiError, WaitTimeout

from .conftest import Engine
from .stand_in import CONDITIONS, TEXT, Json, StandIn, mapping

pytestmark = pytest.mark.lab

CRD = "mariadbs.k8s.mariadb.com"
SET = {"name": "set"}
FLAG: Json = {"type": "boolean"}
AMOUNT: Json = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
AMOUNTS: Json = {"type": "object", "additionalProperties": AMOUNT}
KEY = {**mapping(name=TEXT, key=TEXT, generate={**FLAG, "default": False}), "required": ["key"]}
SPEC = mapping(
    database=TEXT,
    username=TEXT,
    passwordSecretKeyRef=KEY,
    rootPasswordSecretKeyRef=KEY,
    port={"type": "integer", "format": "int32", "default": 3306},
    replicas={"type": "integer", "format": "int32", "default": 1},
    resources=mapping(limits=AMOUNTS, requests=AMOUNTS),
    storage=mapping(size=AMOUNT, storageClassName=TEXT, resizeInUseVolumes=FLAG, waitForVolumeResize=FLAG, ephemeral=FLAG),
    replication=mapping(enabled=FLAG),
    myCnf=TEXT,
    myCnfConfigMapKeyRef=mapping(name=TEXT, key=TEXT),
    priorityClassName=TEXT,
    image=TEXT,
)
MARIADB_OPERATOR = StandIn(
    CRD,
    "v1alpha1",
    {"kind": "MariaDB", "listKind": "MariaDBList", "plural": "mariadbs", "singular": "mariadb", "shortNames": ["mdb"]},
    {"spec": SPEC, "status": mapping(conditions=CONDITIONS, replicas={"type": "integer", "format": "int32"})},
    name="mdb",
)


def with_database(**fields: Any) -> Json:
    return {"accounting": {"database": {"mariadbOperator": fields}}}


def maria_db(engine: Engine, **fields: Any) -> Json:
    """The object that a run applies."""
    return MARIADB_OPERATOR.rendered(engine, "accounting/templates/mariadb.yml.j2", with_database(**fields))


def report(engine: Engine, status: str, reason: str, message: str) -> None:
    """Write the condition that mariadb-operator writes."""
    MARIADB_OPERATOR.report(engine, "mdb-mariadb", status, reason, message)


def test_without_mariadb_operator_a_run_ends_before_it_changes_the_cluster(engine: Engine, tmp_path: Path) -> None:
    message = "spec.accounting.database.mariadbOperator needs mariadb-operator, and the API server has no kind MariaDB"
    MARIADB_OPERATOR.is_missed(engine, tmp_path, with_database(), message)


@pytest.fixture(scope="module")
def kind() -> Iterator[None]:
    with MARIADB_OPERATOR.served():
        yield


@pytest.mark.usefixtures("kind")
def test_a_run_waits_for_its_condition_and_states_its_message(engine: Engine) -> None:
    wanted = maria_db(engine, replicas=3, spec={"replication": {"enabled": True}, "storage": {"resizeInUseVolumes": False}})

    def apply() -> dict[str, str]:
        return engine.results(wanted, applyset=SET, foreign_fields=[], wait=True, wait_timeout=2)

    with pytest.raises(WaitTimeout, match=r"MariaDB .*/mdb-mariadb: mariadb-operator has not reported on it"):
        apply()
    live = engine.get(CRD, "mdb-mariadb")
    assert live["spec"] == wanted["spec"]
    assert live["metadata"]["labels"]["app.kubernetes.io/component"] == "mariadb"
    report(engine, "False", "StatefulSetNotReady", "Not ready")
    with pytest.raises(WaitTimeout, match="mdb-mariadb: StatefulSetNotReady: Not ready"):
        apply()
    report(engine, "True", "StatefulSetReady", "Running")
    # It fills in defaults, as mariadb-operator does; they stay.
    more = {"spec": {"image": "mariadb:11.8", "myCnfConfigMapKeyRef": {"name": "mdb-mariadb-config", "key": "my.cnf"}}}
    where = ("-n", engine.namespace, "--type=merge", "--field-manager=mariadb-operator")
    engine.kubectl("patch", CRD, "mdb-mariadb", *where, "-p", json.dumps(more))
    assert apply() == {"mdb-mariadb": "unchanged"}
    assert engine.get(CRD, "mdb-mariadb")["spec"] == {**wanted["spec"], **more["spec"]}


@pytest.mark.usefixtures("kind")
def test_a_field_that_mariadb_operator_does_not_have_is_named(engine: Engine) -> None:
    with pytest.raises(ApiError, match="replicationn"):
        engine.apply(maria_db(engine, spec={"replicationn": {}}), check=True)


@pytest.mark.usefixtures("kind")
def test_it_goes_with_its_field_and_its_records_stay(engine: Engine) -> None:
    """What mariadb-operator has made goes after the object, never before it: that would have it drop the database."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "storage-mdb-mariadb-0", "namespace": engine.namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Mi"}}},
    }
    engine.kubectl("create", "-f", "-", stdin=json.dumps(claim))
    engine.apply(maria_db(engine), engine.config_map("other"), applyset=SET)
    pruned = engine.results(engine.config_map("other"), applyset=SET)
    assert pruned == {"other": "unchanged", "mdb-mariadb": "pruned"}

    engine.apply(maria_db(engine), engine.config_map("other"), applyset=SET)
    owner = engine.get(CRD, "mdb-mariadb")
    reference = {key: owner[key] for key in ("apiVersion", "kind")} | {"name": "mdb-mariadb", "uid": owner["metadata"]["uid"]}
    dependent = engine.config_map("database")
    dependent["metadata"] |= {"ownerReferences": [{**reference, "blockOwnerDeletion": True}], "finalizers": ["test.example.com/held"]}
    engine.kubectl("create", "-f", "-", stdin=json.dumps(dependent))
    try:
        engine.absent(applyset=SET, wait=True, wait_timeout=20)
        assert engine.kubectl.items(CRD, "-n", engine.namespace) == []
        assert engine.names() == {"database"}, "it is held, and the object has gone all the same"
    finally:
        patch = json.dumps({"metadata": {"finalizers": None}})
        engine.kubectl("patch", "configmap", "database", "-n", engine.namespace, "--type=merge", "-p", patch)
    assert engine.names("persistentvolumeclaims") == {"storage-mdb-mariadb-0"}
