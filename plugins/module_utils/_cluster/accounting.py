# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration files of slurmdbd and its database, and the settings of slurm.conf for them. Pure.

None of these texts has a password: the entry points of the pods add it from a Secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import config, quantity
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
# Keys that an extra line cannot set, in lower case, with what to do instead.
OWNED: dict[str, str] = {
    "authtype": "all daemons share one munge key",
    "authinfo": "all daemons share one munge socket",
    "dbdaddr": "the accounting Service has it",
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
    "accountingstoragehost": "spec.accounting sets it",
    "accountingstorageport": "spec.accounting sets it",
    "accountingstorageenforce": "set spec.accounting.enforce",
    "accountingstoragetres": "set spec.accounting.tres",
}


def slurmdbd_conf(spec: Json, *, host: str, database_host: str, auth: Mapping[str, conf.Value]) -> str:
    """Return slurmdbd.conf without the database's password. ``spec`` is spec.accounting, ``host`` the name of slurmdbd's pod, ``auth`` are the settings for
    tokens. Raises ConfError."""
    external = spec["database"].get("external", {})
    settings: dict[str, conf.Value] = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={config.MUNGE_SOCKET}",
        **auth,
        "DbdHost": host,
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
    """Return the configuration of the embedded MariaDB server.

    The settings are those that slurmdbd asks for (slurm.schedmd.com/accounting.html#mysql-configuration); the buffer pool is half of the memory limit.
    """
    pool = max(_LEAST_BUFFER_POOL, int(quantity.parse(resources["limits"]["memory"]) * _BUFFER_POOL))
    lines = [
        *(f"# {line}" for line in config.HEADER),
        "[mariadbd]",
        "datadir = /var/lib/mysql/data",
        "socket = /run/mysqld/mysqld.sock",
        "pid_file = /run/mysqld/mariadbd.pid",
        "bind_address = *",
        # A reverse lookup for each client would be a request to the name server.
        "skip_name_resolve = ON",
        f"innodb_buffer_pool_size = {pool}",
        f"innodb_log_file_size = {max(64 << 20, pool // 4)}",
        "innodb_lock_wait_timeout = 900",
        "max_allowed_packet = 64M",
        "character_set_server = utf8mb4",
        "performance_schema = OFF",
        "skip_log_bin",
    ]
    return "\n".join(lines) + "\n"


def slurm_settings(spec: Json, address: str, *, gpus: bool) -> dict[str, conf.Value]:
    """Return the settings of slurm.conf. ``address`` is that of slurmdbd's Service; ``gpus``: a node set has GPUs."""
    settings: dict[str, conf.Value] = {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": address,
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
            "spec.accounting.database.external."
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
    if embedded is not None and quantity.parse(embedded["resources"]["limits"]["memory"]) < 256 << 20:
        yield "spec.accounting.database.embedded.resources.limits.memory is less than 256Mi, with which MariaDB does not start; raise it."
    if "limits" in found["enforce"] and "associations" not in found["enforce"]:
        yield "spec.accounting.enforce has limits without associations, on which limits stand; add associations."
