# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""spec.accounting: the configuration of slurmdbd, its database, slurm.conf and the network, and the documents that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import accounting, resolve
from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf

from .documents import edited, good
from .test_validate import mistakes

EXTERNAL = {"host": "db.example.com", "passwordSecret": "db"}


def with_accounting(**fields: Any) -> dict[str, Any]:
    document = edited("spec.accounting", fields)
    document["spec"]["images"]["mariadb"] = "example/mariadb:1"
    return document


def model(**fields: Any) -> dict[str, Any]:
    return resolve.model(with_accounting(**fields)).to_dict()


def settings(text: str) -> dict[str, str]:
    return dict(conf.parse_pair(line) for line in text.splitlines() if line and not line.startswith(("#", "NodeName", "PartitionName")))


def slurmdbd(found: dict[str, Any]) -> dict[str, str]:
    return settings(found["accounting"]["files"]["slurmdbd.conf"])


def deep(levels: int) -> dict[str, Any]:
    return {"a": deep(levels - 1)} if levels else {}


def test_without_it_there_is_nothing_of_it() -> None:
    found = resolve.model(good()).to_dict()
    assert found["accounting"] is None
    assert not {"accounting", "database"} & set(found["components"])
    assert "Accounting" not in found["config"]["files"]["slurm.conf"]
    assert [one["name"] for one in found["ingress"]] == [f"{found['name']}-base-ingress-monitoring"]
    assert found["open_pods"]["matchLabels"] == {"app.kubernetes.io/name": "slurm", "app.kubernetes.io/instance": found["name"]}
    assert f"{found['name']}-accounting" in [one["name"] for one in found["teardown"]["applysets"]], "a former document may have had it"


def test_by_default_the_database_is_the_clusters_own() -> None:
    found = model()
    name = found["name"]
    mine = found["accounting"]
    assert mine["database"]["volume"] == {
        "claim": f"{name}-database",
        "create": True,
        "persistent_volume": None,
        "storage_class": None,
        "size": "10Gi",
        "host_path": None,
        "access_mode": "ReadWriteOnce",
    }
    assert mine["database"]["owned_by_group"]
    assert mine["password_secret"] == f"{name}-database-password"
    assert {"password": {"password": 32}} in [one["data"] for one in found["secrets"]]
    wrote = slurmdbd(found)
    assert wrote["StorageHost"] == f"{name}-database.{found['namespace']}.svc.cluster.local"
    assert wrote["DbdHost"] == f"{name}-accounting-0"
    assert "StoragePass" not in wrote
    slurm = settings(found["config"]["files"]["slurm.conf"])
    assert slurm["AccountingStorageType"] == "accounting_storage/slurmdbd"
    assert slurm["AccountingStorageHost"] == mine["hosts"][0]["address"]
    assert "AccountingStorageEnforce" not in slurm
    assert ("PersistentVolumeClaim", f"{name}-database") in [(one["kind"], one["metadata"]["name"]) for one in found["teardown"]["data"]]


def test_a_database_of_somebody_elses() -> None:
    tls = {"caConfigMap": "ca", "certificateSecret": "client"}
    external = {**EXTERNAL, "port": 3307, "user": "acct", "name": "records", "tls": tls, "parameters": {"SSL_CIPHER": "X"}}
    found = model(database={"external": external})
    assert "database" not in found["components"]
    mine = found["accounting"]
    assert mine["database"] is None
    assert mine["password_secret"] == "db"
    assert not [one for one in found["secrets"] if "password" in one["data"]], "their Secret is not ours to make"
    wrote = slurmdbd(found)
    assert {key: wrote[key] for key in ("StorageHost", "StoragePort", "StorageUser", "StorageLoc", "StorageParameters")} == {
        "StorageHost": "db.example.com",
        "StoragePort": "3307",
        "StorageUser": "acct",
        "StorageLoc": "records",
        "StorageParameters": (
            "SSL_CA=/etc/corral/database-ca/ca.crt,SSL_CERT=/etc/corral/database-tls/tls.crt,SSL_KEY=/etc/corral/database-tls/tls.key,SSL_CIPHER=X"
        ),
    }


def test_a_database_of_mariadb_operator() -> None:
    wanted = {
        "size": "20Gi",
        "storageClassName": "fast",
        "resources": {"limits": {"memory": "2Gi"}},
        "myCnf": ["max_connections = 500"],
        "spec": {"storage": {"resizeInUseVolumes": False}, "nodeSelector": {"disk": "fast"}},
    }
    found = model(database={"mariadbOperator": wanted})
    name = found["name"]
    mine = found["accounting"]
    assert mine["database"] is None
    server = mine["mariadb"]
    assert server["name"] == server["service"] == f"{name}-mariadb"
    assert server["spec"] == {
        "database": "slurm_acct_db",
        "username": "slurm",
        "passwordSecretKeyRef": {"name": f"{name}-database-password", "key": "password", "generate": False},
        "rootPasswordSecretKeyRef": {"name": f"{name}-mariadb-root-password", "key": "password", "generate": False},
        "port": 3306,
        "replicas": 1,
        "resources": {"limits": {"memory": "2Gi"}},
        "storage": {"size": "20Gi", "storageClassName": "fast", "resizeInUseVolumes": False},
        "myCnf": (
            "[mariadb]\ninnodb_buffer_pool_size = 1073741824\ninnodb_log_file_size = 268435456\ninnodb_lock_wait_timeout = 900\n"
            "max_allowed_packet = 64M\ncharacter_set_server = utf8mb4\nmax_connections = 500\n"
        ),
        "priorityClassName": "corral-control-plane",
        "nodeSelector": {"disk": "fast"},
    }
    assert slurmdbd(found)["StorageHost"] == f"{name}-mariadb.{found['namespace']}.svc.cluster.local"
    secrets = {one["name"]: one["data"]["password"] for one in found["secrets"] if "password" in one["data"]}
    assert secrets == {secret: {"password": 32} for secret in (f"{name}-database-password", f"{name}-mariadb-root-password")}
    data = {(one["kind"], one["metadata"]["name"]) for one in found["teardown"]["data"]}
    assert {("PersistentVolumeClaim", f"storage-{name}-mariadb-0"), ("Secret", f"{name}-mariadb-root-password")} <= data


@pytest.mark.parametrize("way", ["galera", "replication"])
def test_slurmdbd_writes_to_the_primary(way: str) -> None:
    found = model(database={"mariadbOperator": {"replicas": 3, "spec": {way: {"enabled": True}}}})
    name, mine = found["name"], found["accounting"]
    assert mine["mariadb"]["service"] == f"{name}-mariadb-primary"
    assert slurmdbd(found)["StorageHost"].startswith(f"{name}-mariadb-primary.")
    assert mine["mariadb"]["claims"] == [f"storage-{name}-mariadb-{number}" for number in range(3)]


def test_who_reaches_the_pods_of_mariadb_operator() -> None:
    found = model(database={"mariadbOperator": {}})
    pods = {"app.kubernetes.io/name": "mariadb", "app.kubernetes.io/instance": f"{found['name']}-mariadb"}
    (policy,) = [one for one in found["ingress"] if one["selector"] == pods]
    others = [{"matchLabels": found["components"][name]["selector"]} for name in ("accounting", "backup")]
    operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "mariadb-operator"}}}
    assert policy["peers"] == [*({"podSelector": one} for one in (*others, {"matchLabels": pods})), operator]
    peer = {"to": [{"podSelector": {"matchLabels": pods}}]}
    reach = {one["name"].rpartition("-")[2]: peer in one["rules"] for one in found["egress"]["policies"]}
    assert [name for name, found_there in reach.items() if found_there] == ["controller"]
    assert not any("mariadb" in str(one["selector"]) for one in found["egress"]["policies"]), (
        "where they connect to is their operator's business"
    )


def test_what_the_document_says_of_records() -> None:
    found = model(
        enforce=["associations", "limits", "safe"],
        tres=["license/matlab"],
        purge={"jobs": "36months", "steps": "48hours"},
        privateData=["jobs", "usage"],
        extraConfig=["CommitDelay=1"],
    )
    slurm = settings(found["config"]["files"]["slurm.conf"])
    assert slurm["AccountingStorageEnforce"] == "associations,limits,safe"
    wanted = {"PurgeJobAfter": "36months", "PurgeStepAfter": "48hours", "PrivateData": "jobs,usage", "CommitDelay": "1"}
    assert wanted.items() <= slurmdbd(found).items()
    assert slurm["AccountingStorageTRES"].endswith("license/matlab")


def test_two_slurmdbd() -> None:
    found = model(replicas=2)
    name, domain = found["name"], f"{found['namespace']}.svc.cluster.local"
    wrote = slurmdbd(found)
    # Each compares these with the name of its pod; the address is where the backup finds the primary.
    assert (wrote["DbdHost"], wrote["DbdBackupHost"]) == (f"{name}-accounting-0", f"{name}-accounting-1")
    assert wrote["DbdAddr"] == f"{name}-accounting.{domain}"
    slurm = settings(found["config"]["files"]["slurm.conf"])
    assert slurm["AccountingStorageHost"] == wrote["DbdAddr"]
    assert slurm["AccountingStorageBackupHost"] == f"{name}-accounting-1.{domain}"
    mine = found["accounting"]
    assert [one["service"] for one in mine["hosts"]] == [f"{name}-accounting", f"{name}-accounting-1"]
    assert [one["selector"]["statefulset.kubernetes.io/pod-name"] for one in mine["hosts"]] == [
        f"{name}-accounting-0",
        f"{name}-accounting-1",
    ]
    assert mine["pods"] == 2 and "podAntiAffinity" in mine["affinity"]


def test_one_slurmdbd_has_the_same_address_and_no_backup() -> None:
    found, pair = model(), model(replicas=2)
    assert found["accounting"]["hosts"][0]["address"] == pair["accounting"]["hosts"][0]["address"]
    assert (found["accounting"]["pods"], found["accounting"]["affinity"]) == (1, {})
    assert not {"DbdAddr", "DbdBackupHost"} & set(slurmdbd(found))
    assert "AccountingStorageBackupHost" not in found["config"]["files"]["slurm.conf"]


def test_two_slurmdbd_archive_to_a_volume_that_both_mount() -> None:
    purge = {"jobs": "36months"}
    found = model(replicas=2, purge=purge, archive={"volume": {"storageClassName": "nfs", "size": "5Gi", "accessMode": "ReadWriteMany"}})
    assert found["accounting"]["archive"]["access_mode"] == "ReadWriteMany"
    assert model(replicas=2, purge=purge, archive={"volume": {"claimName": "mine"}})["accounting"]["pods"] == 2
    for volume in ({"storageClassName": "fast", "size": "5Gi"}, {"hostPath": "/a", "size": "5Gi", "accessMode": "ReadWriteOnce"}):
        (said,) = mistakes(with_accounting(replicas=2, purge=purge, archive={"volume": volume}))
        assert "spec.accounting.replicas is 2, but spec.accounting.archive.volume.accessMode is ReadWriteOnce, a volume for one" in said


def test_what_is_purged_is_archived() -> None:
    found = model(purge={"jobs": "36months", "usage": "60months"}, archive={"volume": {"storageClassName": "fast", "size": "5Gi"}})
    wrote = slurmdbd(found)
    assert {key: wrote.get(key) for key in accounting.ARCHIVE.values() if key in wrote} == {"ArchiveJobs": "yes", "ArchiveUsage": "yes"}
    assert wrote["ArchiveDir"] == found["accounting"]["archives"]
    assert found["accounting"]["archive"]["claim"] == f"{found['name']}-archive"
    assert "ArchiveDir" not in slurmdbd(model(purge={"jobs": "36months"}))


def test_dumps_of_either_database() -> None:
    backup = {"schedule": "30 2 * * *", "volume": {"hostPath": "/srv/dumps", "size": "1Gi"}}
    mine = model(database={"embedded": {}, "backup": backup})
    found = mine["accounting"]["backup"]
    assert (found["schedule"], found["keep"], found["owned_by_group"]) == ("30 2 * * *", 7, False)
    assert found["volume"]["claim"] == f"{mine['name']}-backup"
    assert ("PersistentVolumeClaim", f"{mine['name']}-backup") in [
        (one["kind"], one["metadata"]["name"]) for one in mine["teardown"]["data"]
    ]
    external = {**EXTERNAL, "port": 3307, "user": "acct", "name": "records"}
    env = {one["name"]: one["value"] for one in model(database={"external": external, "backup": backup})["accounting"]["backup"]["env"]}
    assert {key: env[f"CORRAL_{key}"] for key in ("DATABASE_HOST", "DATABASE_PORT", "DATABASE", "USER")} == {
        "DATABASE_HOST": "db.example.com",
        "DATABASE_PORT": "3307",
        "DATABASE": "records",
        "USER": "acct",
    }
    operated = model(database={"mariadbOperator": {}, "backup": backup})
    env = {one["name"]: one["value"] for one in operated["accounting"]["backup"]["env"]}
    assert env["CORRAL_DATABASE_HOST"] == operated["accounting"]["database_host"]
    without = model()["accounting"]["backup"]
    assert (without["schedule"], without["volume"]) == (None, None), "a run can dump all the same"


def test_another_configuration_restarts_slurmdbd_and_another_size_the_database() -> None:
    one, other = model(), model(extraConfig=["CommitDelay=1"])
    assert one["accounting"]["hash"] != other["accounting"]["hash"]
    assert one["accounting"]["database"]["hash"] == other["accounting"]["database"]["hash"]
    large = model(database={"embedded": {"resources": {"limits": {"memory": "8Gi"}}}})
    assert f"innodb_buffer_pool_size = {4 << 30}\n" in large["accounting"]["database"]["files"]["corral.cnf"]
    assert large["accounting"]["database"]["hash"] != one["accounting"]["database"]["hash"]


def test_who_reaches_whom() -> None:
    found = model()
    (rule,) = found["open_pods"]["matchExpressions"]
    assert (rule["operator"], rule["values"]) == ("NotIn", ["accounting", "database", "monitoring"])
    component = "app.kubernetes.io/component"
    reach = {
        one["selector"][component]: [peer["podSelector"]["matchLabels"][component] for peer in one["peers"]] for one in found["ingress"]
    }
    # The exporter's port is open to all.
    assert reach.pop("monitoring") == []
    assert reach == {"database": ["accounting", "backup"], "accounting": ["accounting", "controller", "worker", "login"]}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"database": {}}, "spec.accounting.database has no database; give exactly one of embedded, external and mariadbOperator."),
        ({"database": {"embedded": {}, "mariadbOperator": {}}}, "spec.accounting.database has embedded and mariadbOperator"),
        ({"database": {"embedded": {}, "external": EXTERNAL}}, "spec.accounting.database has embedded and external"),
        ({"database": {"external": {"host": "x"}}}, "spec.accounting.database.external.passwordSecret"),
        ({"database": {"embedded": {"resources": {"limits": {"memory": "128Mi"}}}}}, "less than 256Mi, with which MariaDB does not start"),
        ({"database": {"embedded": {"volume": {"claimName": "a", "hostPath": "/b"}}}}, "claimName and hostPath, which exclude one another"),
        ({"enforce": ["limits"]}, "limits without associations"),
        ({"extraConfig": ["StoragePass=x"]}, "sets StoragePass, which corral sets itself: set spec.accounting.database; remove the line."),
        ({"extraConfig": ["PurgeJobAfter=1month"]}, "set spec.accounting.purge.jobs"),
        ({"extraConfig": ["DbdBackupHost=other"]}, "set spec.accounting.replicas"),
        ({"replicas": 3}, "spec.accounting.replicas"),
        (
            {"extraConfig": ["Commitdelay=1", "CommitDelay=2"]},
            "spec.accounting.extraConfig[1] sets CommitDelay, as spec.accounting.extraConfig[0] does; remove one.",
        ),
        ({"extraConfig": ["CommitDelai=1"]}, "did you mean CommitDelay?"),
        ({"extraConfig": ["nothing"]}, "spec.accounting.extraConfig[0]"),
        ({"purge": {"jobs": "a year"}}, "spec.accounting.purge.jobs"),
        (
            {"archive": {"volume": {"claimName": "a"}}},
            "spec.accounting.archive keeps what purge removes, and spec.accounting.purge removes nothing",
        ),
        ({"extraConfig": ["ArchiveJobs=yes"]}, "set spec.accounting.archive"),
        ({"database": {"embedded": {}, "backup": {"schedule": "@daily"}}}, "spec.accounting.database.backup.volume"),
        (
            {"database": {"mariadbOperator": {"replicas": 3}}},
            "spec.accounting.database.mariadbOperator.replicas is 3, and nothing says how the servers get the same data; add spec: {replication:",
        ),
        (
            {"database": {"mariadbOperator": {"replicas": 3, "spec": {"galera": {"enabled": False}}}}},
            "nothing says how the servers get the same data",
        ),
        (
            {"database": {"mariadbOperator": {"spec": {"myCnf": "[mariadb]"}}}},
            "spec.myCnf is set, which corral sets itself: set spec.accounting.database.mariadbOperator.myCnf; remove it.",
        ),
        (
            {"database": {"mariadbOperator": {"spec": {"storage": {"ephemeral": True}}}}},
            "mariadbOperator.spec.storage.ephemeral is set, which corral sets itself: the records would be lost with the pod; remove it.",
        ),
        ({"database": {"mariadbOperator": {"spec": {"tls": {"required": True}}}}}, "mariadbOperator.spec.tls.required is set"),
        (
            {"database": {"mariadbOperator": {"spec": {"storage": "1Gi"}}}},
            "spec.accounting.database.mariadbOperator.spec.storage is no mapping",
        ),
        ({"database": {"mariadbOperator": {"spec": {"affinity": {1: "x"}}}}}, "mariadbOperator.spec.affinity has the key 1; keys are text"),
        (
            {"database": {"mariadbOperator": {"spec": deep(40)}}},
            "is more than 32 levels deep, which no object of Kubernetes is; remove it.",
        ),
        ({"database": {"mariadbOperator": {"spec": {"image": "\ud800"}}}}, "mariadbOperator.spec.image has half of a surrogate pair"),
        (
            {"database": {"mariadbOperator": {"spec": {"timeZone": float("nan")}}}},
            "mariadbOperator.spec.timeZone is nan, which Kubernetes cannot keep",
        ),
        (
            {"database": {"mariadbOperator": {"resources": {"limits": {"memory": "128Mi"}}}}},
            "spec.accounting.database.mariadbOperator.resources.limits.memory is less than 256Mi",
        ),
        (
            {"database": {"embedded": {}, "backup": {"schedule": "daily", "volume": {"claimName": "a"}}}},
            "spec.accounting.database.backup.schedule",
        ),
    ],
)
def test_what_is_refused(fields: dict[str, Any], words: str) -> None:
    found = mistakes(with_accounting(**fields))
    assert len(found) == 1, found
    assert words in found[0]


def test_the_image_of_the_database_is_missing() -> None:
    (found,) = mistakes(edited("spec.accounting", {}))
    assert found.startswith("spec.images.mariadb is missing")
    assert resolve.model(edited("spec.accounting", {"database": {"external": EXTERNAL}})).accounting is not None
    backup = {"schedule": "@daily", "volume": {"claimName": "dumps"}}
    assert resolve.model(edited("spec.accounting", {"database": {"mariadbOperator": {}}})).accounting is not None
    (found,) = mistakes(edited("spec.accounting", {"database": {"external": EXTERNAL, "backup": backup}}))
    assert found.startswith("spec.images.mariadb is missing, the image that dumps the database")


@pytest.mark.parametrize("key", sorted(accounting.OWNED_SLURM))
def test_a_line_of_slurm_conf_that_says_the_same_is_refused_with_accounting_and_allowed_without(key: str) -> None:
    line = f"{key}={'accounting_storage/slurmdbd' if key.endswith('type') else '1'}"
    document = with_accounting()
    document["spec"]["slurm"] = {**document["spec"].get("slurm", {}), "extraConfig": [line]}
    (found,) = mistakes(document)
    assert f"sets {key}" in found
    del document["spec"]["accounting"]
    resolve.model(document)


def test_partitions_may_name_accounts_and_qos() -> None:
    document = with_accounting()
    document["spec"]["partitions"][1].update({"allowAccounts": ["physics"], "qos": "normal"})
    resolve.model(document)
    del document["spec"]["accounting"]
    assert all("needs accounting, which this cluster has not; set spec.accounting" in one for one in mistakes(document))


def test_another_database_is_another_configuration_for_slurmctld() -> None:
    """slurmctld notices that a database is not its own when it reads its configuration, and at no other time."""
    one, other = model(), model(database={"external": EXTERNAL})
    assert one["config"]["hash"] != other["config"]["hash"]
    assert "# Accounting is in the database db.example.com:3306/slurm_acct_db.\n" in other["config"]["files"]["slurm.conf"]
