# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration files of slurmdbd and its database, and the settings of slurm.conf for them. Pure.

None of these texts has a password: the entry points of the pods add it from a Secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import config, quantity
from ansible_collections.corral.slurm.plugins.module_utils._cluster.model import DaemonHost
from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf

Json = dict[str, Any]

SLURMDBD_PORT = 6819
DATABASE_PORT = 3306
# As in Slurm's documentation (slurm.schedmd.com/accounting.html).
DATABASE, USER = "slurm_acct_db", "slurm"
TLS = "/etc/corral/database-tls"
_CA = "/etc/corral/database-ca/ca.crt"
# The share of the memory limit for InnoDB's buffer pool. The rest is for connections, sorting, and the server itself.
_BUFFER_POOL = 0.5
_LEAST_BUFFER_POOL = 5 << 20
# Fields of spec.accounting.purge, and their keys of slurmdbd.conf.
PURGE = {
    "events": "PurgeEventAfter",
    "jobs": "PurgeJobAfter",
    "reservations": "PurgeResvAfter",
    "steps": "PurgeStepAfter",
    "suspensions": "PurgeSuspendAfter",
    "transactions": "PurgeTXNAfter",
    "usage": "PurgeUsageAfter",
}
# The same records in files, and the folder of those.
ARCHIVE = {
    "events": "ArchiveEvents",
    "jobs": "ArchiveJobs",
    "reservations": "ArchiveResvs",
    "steps": "ArchiveSteps",
    "suspensions": "ArchiveSuspend",
    "transactions": "ArchiveTXN",
    "usage": "ArchiveUsage",
}
ARCHIVES = "/var/spool/slurmdbd"
# How mariadb-operator runs more than one server.
_REPLICATED_BY = ("galera", "replication")
# Fields of a MariaDB object's spec that the document cannot set, with what to do instead.
OWNED_MARIADB: dict[str, str] = {
    "database": "slurmdbd's database has the name that dumps have",
    "username": "slurmdbd has a user of its own",
    "passwordSecretKeyRef": "the password is made once",
    "passwordHashSecretKeyRef": "the password is made once",
    "passwordPlugin": "the password is made once",
    "rootPasswordSecretKeyRef": "the password is made once",
    "rootEmptyPassword": "the password is made once",
    "myCnf": "set spec.accounting.database.mariadbOperator.myCnf",
    "myCnfConfigMapKeyRef": "set spec.accounting.database.mariadbOperator.myCnf",
    "port": "slurmdbd connects to the usual one",
    "replicas": "set spec.accounting.database.mariadbOperator.replicas",
    "resources": "set spec.accounting.database.mariadbOperator.resources",
    "storage.size": "set spec.accounting.database.mariadbOperator.size",
    "storage.storageClassName": "set spec.accounting.database.mariadbOperator.storageClassName",
    "storage.ephemeral": "the records would be lost with the pod",
    "storage.pvcRetentionPolicy": "the claims stay when the object goes",
    "tls.required": "slurmdbd and the pods that dump do not encrypt the connection",
}
# Keys that an extra line cannot set, in lower case, with what to do instead.
OWNED: dict[str, str] = {
    "authtype": "set spec.slurm.auth",
    "authinfo": "set spec.slurm.auth",
    "dbdaddr": "the accounting Service has it",
    "dbdbackuphost": "set spec.accounting.replicas",
    "dbdhost": "the pod has it",
    "dbdport": "the accounting Service has it",
    "logfile": "the log is the container's",
    "pidfile": "the pod has it",
    "plugindir": "the plugins are the slurm image's",
    "slurmuser": "the slurm image has one user for it",
    "storagehost": "set spec.accounting.database",
    "storageloc": "set spec.accounting.database",
    "storagepass": "set spec.accounting.database",
    "storagepassscript": "set spec.accounting.database",
    "storageport": "set spec.accounting.database",
    "storageparameters": "set spec.accounting.database",
    "storagetype": "Slurm keeps accounting in MariaDB or MySQL alone",
    "storageuser": "set spec.accounting.database",
    "privatedata": "set spec.accounting.privateData",
    **{key.lower(): f"set spec.accounting.purge.{field}" for field, key in PURGE.items()},
    **{key.lower(): "set spec.accounting.archive" for key in ("ArchiveDir", *ARCHIVE.values())},
}
# The same for slurm.conf, with spec.accounting.
OWNED_SLURM: dict[str, str] = {
    "accountingstoragetype": "spec.accounting sets it",
    "accountingstoragebackuphost": "set spec.accounting.replicas",
    "accountingstoragehost": "spec.accounting sets it",
    "accountingstorageport": "spec.accounting sets it",
    "accountingstorageenforce": "set spec.accounting.enforce",
    "accountingstoragetres": "set spec.accounting.tres",
}


def slurmdbd_conf(spec: Json, *, hosts: Sequence[DaemonHost], database_host: str, auth: Mapping[str, conf.Value]) -> str:
    """Return slurmdbd.conf without the database's password. ``spec`` is spec.accounting, ``hosts`` are the primary and its backup, if there is one, and
    ``auth`` the settings for authentication. Raises ConfError."""
    # Each slurmdbd compares its host name with these. The backup connects to the address, since the name of a pod does not resolve.
    backup: dict[str, conf.Value] = {"DbdAddr": hosts[0].address, "DbdBackupHost": hosts[1].host} if len(hosts) > 1 else {}
    external = spec["database"].get("external", {})
    settings: dict[str, conf.Value] = {
        **auth,
        "DbdHost": hosts[0].host,
        **backup,
        "DbdPort": SLURMDBD_PORT,
        "SlurmUser": "slurm",
        "PidFile": "/run/slurm/slurmdbd.pid",
        "DebugLevel": "info",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": database_host,
        "StoragePort": external.get("port", DATABASE_PORT),
        "StorageLoc": external.get("name", DATABASE),
        "StorageUser": external.get("user", USER),
    }
    parameters = _parameters(external)
    if parameters:
        settings["StorageParameters"] = ",".join(parameters)
    if spec["privateData"]:
        settings["PrivateData"] = ",".join(spec["privateData"])
    settings |= {key: spec["purge"][field] for field, key in PURGE.items() if field in spec["purge"]}
    if "archive" in spec:
        settings |= {"ArchiveDir": ARCHIVES, **{key: "yes" for field, key in ARCHIVE.items() if field in spec["purge"]}}
    lines = [conf.line([pair]) for pair in settings.items()]
    return conf.text(config.HEADER, [*lines, *(conf.line([conf.parse_pair(line)]) for line in spec["extraConfig"])])


def _parameters(external: Json) -> list[str]:
    tls = external.get("tls", {})
    found = [f"SSL_CA={_CA}"] if "caConfigMap" in tls else []
    if "certificateSecret" in tls:
        found += [f"SSL_CERT={TLS}/tls.crt", f"SSL_KEY={TLS}/tls.key"]
    return [*found, *(f"{key}={value}" for key, value in external.get("parameters", {}).items())]


def server_conf(resources: Json) -> str:
    """Return the configuration of the embedded MariaDB server."""
    lines = [
        *(f"# {line}" for line in config.HEADER),
        "[mariadbd]",
        "datadir = /var/lib/mysql/data",
        "socket = /run/mysqld/mysqld.sock",
        "pid_file = /run/mysqld/mariadbd.pid",
        "bind_address = *",
        # A reverse lookup for each client would be a request to the name server.
        "skip_name_resolve = ON",
        *_tuning(resources),
        "performance_schema = OFF",
        "skip_log_bin",
    ]
    return "\n".join(lines) + "\n"


def mariadb_spec(spec: Json, *, password_secret: str, root_secret: str, priority: str) -> Json:
    """Return the spec of the MariaDB object. ``spec`` is spec.accounting.database.mariadbOperator; the Secrets have their password under ``password``."""

    def key(secret: str) -> Json:
        return {"name": secret, "key": "password", "generate": False}

    storage_class = {"storageClassName": spec["storageClassName"]} if "storageClassName" in spec else {}
    return {
        "priorityClassName": priority,
        **spec["spec"],
        "database": DATABASE,
        "username": USER,
        "passwordSecretKeyRef": key(password_secret),
        "rootPasswordSecretKeyRef": key(root_secret),
        "port": DATABASE_PORT,
        "replicas": spec["replicas"],
        "resources": spec["resources"],
        "storage": {**spec["spec"].get("storage", {}), "size": str(spec["size"]), **storage_class},
        "myCnf": "\n".join(["[mariadb]", *_tuning(spec["resources"]), *spec["myCnf"]]) + "\n",
    }


def is_replicated(spec: Json) -> bool:
    """Return whether mariadb-operator has a primary, whose Service has a name of its own, by the spec of a MariaDB object."""
    return any(isinstance(spec.get(way), dict) and spec[way].get("enabled") is True for way in _REPLICATED_BY)


def _tuning(resources: Json) -> list[str]:
    """Return what slurmdbd asks for (slurm.schedmd.com/accounting.html#mysql-configuration); the buffer pool is half of the memory limit."""
    pool = max(_LEAST_BUFFER_POOL, int(quantity.parse(resources["limits"]["memory"]) * _BUFFER_POOL))
    return [
        f"innodb_buffer_pool_size = {pool}",
        f"innodb_log_file_size = {max(64 << 20, pool // 4)}",
        "innodb_lock_wait_timeout = 900",
        "max_allowed_packet = 64M",
        "character_set_server = utf8mb4",
    ]


def slurm_settings(spec: Json, hosts: Sequence[DaemonHost], *, gpus: bool) -> dict[str, conf.Value]:
    """Return the settings of slurm.conf. ``hosts`` are slurmdbd's primary and its backup, if there is one; ``gpus``: a node set has GPUs."""
    settings: dict[str, conf.Value] = {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": hosts[0].address,
        **({"AccountingStorageBackupHost": hosts[1].address} if len(hosts) > 1 else {}),
        "AccountingStoragePort": SLURMDBD_PORT,
    }
    if spec["enforce"]:
        settings["AccountingStorageEnforce"] = ",".join(spec["enforce"])
    tres = [*(["gres/gpu"] if gpus else []), *spec["tres"]]
    if tres:
        settings["AccountingStorageTRES"] = ",".join(dict.fromkeys(tres))
    return settings


def errors(spec: Json) -> Iterator[str]:
    """Yield a sentence for each error in ``spec.accounting`` but those in its lines for slurmdbd.conf. Its structure is right."""
    if "accounting" not in spec:
        return
    found = spec["accounting"]
    embedded = found["database"].get("embedded")
    if embedded is not None and "mariadb" not in spec["images"]:
        yield (
            "spec.images.mariadb is missing, the image of the embedded database of spec.accounting; name the one built from images/mariadb, or give "
            "spec.accounting.database.external or mariadbOperator."
        )
    if embedded is None and "backup" in found["database"] and "mariadb" not in spec["images"]:
        yield (
            "spec.images.mariadb is missing, the image that dumps the database for spec.accounting.database.backup; name the one built from images/mariadb, "
            "or remove backup."
        )
    if "archive" in found and not found["purge"]:
        yield (
            "spec.accounting.archive keeps what purge removes, and spec.accounting.purge removes nothing; give purge a time for what should leave the "
            "database, such as jobs: 36months, or remove archive."
        )
    for kind in ("embedded", "mariadbOperator"):
        server = found["database"].get(kind)
        if server is not None and quantity.parse(server["resources"]["limits"]["memory"]) < 256 << 20:
            yield f"spec.accounting.database.{kind}.resources.limits.memory is less than 256Mi, with which MariaDB does not start; raise it."
    yield from _mariadb_errors(found["database"].get("mariadbOperator"))
    if "limits" in found["enforce"] and "associations" not in found["enforce"]:
        yield "spec.accounting.enforce has limits without associations, on which limits stand; add associations."


def _mariadb_errors(wanted: Json | None) -> Iterator[str]:
    """Yield a sentence for each error in ``spec.accounting.database.mariadbOperator``."""
    if wanted is None:
        return
    path = "spec.accounting.database.mariadbOperator"
    more = wanted["spec"]
    for field in ("storage", "tls", *_REPLICATED_BY):
        if field in more and not isinstance(more[field], dict):
            yield f"{path}.spec.{field} is no mapping, which a MariaDB object has there; write its fields below it."
            return
    for name, way in OWNED_MARIADB.items():
        outer, _dot, inner = name.partition(".")
        if outer in more and (not inner or inner in more[outer]):
            yield f"{path}.spec.{name} is set, which corral sets itself: {way}; remove it."
    if wanted["replicas"] > 1 and not is_replicated(more):
        yield (
            f"{path}.replicas is {wanted['replicas']}, and nothing says how the servers get the same data; add spec: {{replication: {{enabled: true}}}} or "
            "spec: {galera: {enabled: true}}, as mariadb-operator has them, or set replicas to 1."
        )
