# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a valid document to the model: names, sizes, hostlists, config texts. Pure; the same document gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import (
    accounting,
    accounts,
    apiserver,
    components,
    config,
    dashboards,
    defaults,
    egress,
    health,
    job_hooks,
    monitoring,
    quantity,
    rest,
    revisions,
    schema,
    validate,
)
from ansible_collections.corral.slurm.plugins.module_utils._cluster.model import (
    Accounting,
    ApplySet,
    Auth,
    Backup,
    Certificate,
    Component,
    Config,
    Controller,
    DaemonHost,
    Dashboards,
    DatabaseServer,
    Gpus,
    Images,
    Ingress,
    Jail,
    Json,
    Labels,
    Login,
    Maintenance,
    MariaDB,
    Model,
    Monitoring,
    NodeSet,
    Partition,
    PodVolumes,
    Populate,
    Priority,
    Rest,
    Rollout,
    Scaling,
    Sssd,
    Sync,
    Teardown,
    Tenants,
    Users,
    UsersJob,
    Volume,
    Workers,
)
from ansible_collections.corral.slurm.plugins.module_utils._cluster.version import COLLECTION_VERSION
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError, defect
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hardware, hostlist

NODE_SET_LABEL = "corral.hpc/node-set"
JAIL = "/mnt/jail"
JAILS = "/mnt/jails"
SHM = "/dev/shm"
MESSAGE_QUEUES = "/dev/mqueue"
INIT_SCRIPTS = "/etc/corral/init"
OVERLAYS = "/var/spool/corral-overlay"
SUB_MOUNTS = "/mnt/submounts"
HOMES = "/mnt/homes"
# Accounts and nothing else: some hundred bytes a user.
ACCOUNTS_SIZE = "16Mi"
# Room for the /etc of an image, from which the homes of jails of each pod's own are made.
ETC_SIZE = "256Mi"
# Where the C library's module sss asks for users: sockets, and a cache that it reads itself. In pods and in the jail alike.
SSSD_SHOWN = {"sssd-pipes": "/var/lib/sss/pipes", "sssd-cache": "/var/lib/sss/mc"}
# Where a worker's entry puts its GPUs under numbers from 0, whatever the driver's files are called.
GPU_FOLDER = "corral-gpu"
GPU_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
# What tells a program its GPUs. The simulated ones are told as the first vendor's.
GPU_FLAGS = {"nvidia": "nvidia_gpu_env", "amd": "amd_gpu_env", "simulated": "nvidia_gpu_env"}
NVIDIA_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
SLURMCTLD_PORT = 6817
SLURMD_PORT = 6818

# What the container of slurmd may do, and that of sshd; docs/security.md tells what breaks without each. Tasks and sessions lose those that lead out
# of the jail. Limits come from the container runtime and are handed on (PropagateResourceLimits=NONE), so SYS_RESOURCE and IPC_LOCK are not needed.
WORKER_CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_ADMIN",
    "SYS_CHROOT",
    "SYS_NICE",
    "SYS_PTRACE",
)
# Without the two that slurmd needs for the processes of its steps.
LOGIN_CAPABILITIES = tuple(name for name in WORKER_CAPABILITIES if name not in ("SYS_NICE", "SYS_PTRACE"))

# Whether a user has a process in a login pod, a session or what one has left (tmux, nohup). For any image of sshd: it runs in the pod that is to go.
_SCRIPT = """
found=$(for one in /proc/[0-9]*; do stat -c '%u %U' "$one" 2>/dev/null; done |
  awk '$1 >= FROM && ($1 < SYSTEM || $1 > LAST) {print $2}' | sort | uniq -c |
  awk '{printf "%s%d processes of %s", comma, $1, $2; comma = ", "}')
[ -z "$found" ] || { echo "$found"; exit 1; }
"""
_IDS = {"FROM": schema.MIN_ID, "SYSTEM": schema.SYSTEM_IDS[0], "LAST": schema.SYSTEM_IDS[1]}
LOGIN_IDLE = ["sh", "-c", re.sub("|".join(_IDS), lambda match: str(_IDS[match[0]]), _SCRIPT)]

LOGIN_STOP = "/usr/local/lib/corral/login_stop.sh"
# Seconds beyond the deadline of a drain, for what ends with the pod.
LOGIN_GRACE = 30


def model(document: Any, sizes: dict[str, int] | None = None) -> Model:
    """Return the model of a SlurmCluster document. Raises InvalidDocument, which lists every error, before anything is computed, and CorralError.

    ``sizes`` are the numbers of nodes that were asked for of the SlurmNodeSets, by node set; None where there are no SlurmNodeSets.
    """
    try:
        return _model(document, sizes)
    except (CorralError, RecursionError, MemoryError):
        raise
    except Exception as error:
        raise defect(error) from error


def _model(document: Any, sizes: dict[str, int] | None) -> Model:
    written = validate.check(document)
    name: str = document["metadata"]["name"]
    namespace: str = document["metadata"].get("namespace") or "default"
    spec = defaults.derived(written)
    for node_set in spec["nodeSets"]:
        if "scale" in node_set:
            asked = (sizes or {}).get(node_set["name"], node_set["replicas"])
            node_set["replicas"] = min(max(asked, node_set["scale"]["minReplicas"]), node_set["scale"]["maxReplicas"])
    resolver = _Resolver(name, namespace, spec, written, scalable=sizes is not None)
    _refuse(apiserver.too_large(resolver.document()))
    found = resolver.model()
    _refuse(apiserver.oversized(found.config.name, found.config.files))
    return found


def _tenants(spec: Json) -> Tenants:
    document = {key: value for key, value in spec.items() if key not in ("objects", "prune")}
    return Tenants(document=document, objects=spec["objects"], prune=spec["prune"])


def _refuse(error: str) -> None:
    if error:
        raise validate.InvalidDocument([error])


class _Resolver:
    def __init__(self, name: str, namespace: str, spec: Json, written: Json, *, scalable: bool) -> None:
        self.name = name
        self.scalable = scalable
        self.namespace = namespace
        self.spec = spec
        self.written = written
        self.labels: Labels = {
            "app.kubernetes.io/name": "slurm",
            "app.kubernetes.io/instance": name,
            "app.kubernetes.io/part-of": "corral",
            "app.kubernetes.io/managed-by": "corral",
        }
        self.shared: bool = spec["jail"]["shared"]
        self.parts = [part for part in components.COMPONENTS if components.present(part, spec)]
        self.components = {part.name: self.component(part) for part in self.parts}
        self.sssd_shown = SSSD_SHOWN if "sssd" in spec else {}
        self.config_map = f"{name}-controller-config"
        self.maintenance = Maintenance(workers=spec["maintenance"] != "None", login=spec["maintenance"] == "WorkersAndLogin")

    def model(self) -> Model:
        controller = self.controller()
        node_sets = [self.node_set(node_set) for node_set in self.spec["nodeSets"]]
        partitions = self.partitions(node_sets)
        found = self.jail_accounts()
        users = self.users(self.components["jail"].labels, found)
        jails = [self.jail(name, spec, found) for name, spec in self.jail_specs()]
        sub_mount_volumes = [self.sub_mount_volume(mount) for mount in self.spec["jail"]["subMounts"] if "storageClassName" in mount]
        login = self.login()
        workers = self.workers(node_sets)
        auth = Auth(type=self.spec["slurm"]["auth"], secret=f"{self.name}-base-{self.spec['slurm']['auth']}-key")
        slurmdbd = self.accounting()
        texts, fingerprint = config.files(
            cluster=self.name,
            controllers=[(one.host, one.address) for one in controller.hosts],
            port=SLURMCTLD_PORT,
            slurmd_port=SLURMD_PORT,
            worker_domain=self.domain(f"{self.name}-worker"),
            slurm=self.spec["slurm"],
            node_sets=node_sets,
            partitions=partitions,
            jail=self.plugin_arguments(jails),
            # Simulated GPUs are one and the same device file, which every job needs for other things.
            constrain_devices=not any(node_set.get("gpu", {}).get("vendor") == "simulated" for node_set in self.spec["nodeSets"]),
            more={
                **rest.auth_settings(self.spec),
                **health.slurm_conf(self.spec["health"]),
                **job_hooks.slurm_conf(self.spec["health"]),
                **(
                    accounting.slurm_settings(
                        self.spec["accounting"], slurmdbd.hosts, gpus=any("gpu" in one for one in self.spec["nodeSets"])
                    )
                    if slurmdbd
                    else {}
                ),
            },
            items=job_hooks.items(self.spec["health"]),
            programs=job_hooks.programs(self.spec["health"]),
            # slurmctld compares the database's ClusterID with its own when it reads its configuration, and at no other time: another database must be
            # another configuration.
            notes=[f"Accounting is in the database {slurmdbd.database_host}:{slurmdbd.database_port}/{slurmdbd.database_name}."]
            if slurmdbd
            else [],
        )
        slurmrestd = self.rest(texts["slurm.conf"])
        secrets = self.secrets(auth, login, workers, slurmdbd, slurmrestd)
        return Model(
            name=self.name,
            namespace=self.namespace,
            content_hash=_hash({"name": self.name, "namespace": self.namespace, "spec": self.spec, "version": COLLECTION_VERSION}),
            document=self.document(),
            labels=self.labels,
            components=self.components,
            images=Images(
                slurm=self.spec["images"]["slurm"],
                jail=self.spec["jail"]["populate"].get("image"),
                pull_policy=self.spec["images"]["pullPolicy"],
                pull_secrets=[{"name": secret} for secret in self.spec["images"]["pullSecrets"]],
            ),
            priority=Priority(
                create=self.spec["priorityClasses"]["create"],
                control_plane=self.spec["priorityClasses"]["controlPlane"],
                worker=self.spec["priorityClasses"]["worker"],
            ),
            controller=controller,
            login=login,
            workers=workers,
            maintenance=self.maintenance,
            foreign_fields=self.spec["foreignFields"],
            scaling=self.scaling(self.components["worker"]),
            rollout=self.rollout(node_sets),
            sync=self.sync(),
            partitions=partitions,
            node_names=",".join(node_set.node_names for node_set in node_sets if node_set.replicas),
            node_count=sum(node_set.replicas for node_set in node_sets),
            config=Config(name=self.config_map, hash=fingerprint, files=texts),
            auth=auth,
            egress=egress.resolve(self.name, self.spec, self.cluster_selector(), self.components),
            open_pods=self.open_pods(),
            ingress=self.ingress(),
            accounting=slurmdbd,
            rest=slurmrestd,
            monitoring=self.monitoring(texts["slurm.conf"]),
            sssd=self.sssd(),
            secrets=secrets,
            users=users,
            jail=jails[0],
            jails=jails,
            sub_mount_volumes=sub_mount_volumes,
            teardown=self.teardown(
                jails, [*sub_mount_volumes, *_record_volumes(slurmdbd)], controller, secrets, slurmdbd.mariadb if slurmdbd else None
            ),
            live=None,
        )

    def document(self) -> str:
        """As text, so that nobody on the way takes it for a structure with templates in it. What follows from other fields is left to follow from them."""
        metadata = {"name": self.name, "namespace": self.namespace}
        return revisions.text({"apiVersion": schema.API_VERSION, "kind": schema.KIND, "metadata": metadata, "spec": self.written})

    def domain(self, service: str) -> str:
        return f"{service}.{self.namespace}.svc.{self.spec['clusterDomain']}"

    def cluster_selector(self) -> Labels:
        """Of all pods of the cluster."""
        return {key: self.labels[key] for key in ("app.kubernetes.io/name", "app.kubernetes.io/instance")}

    def component(self, part: components.Part) -> Component:
        labels = {**self.labels, components.LABEL: part.name}
        selector = {key: labels[f"app.kubernetes.io/{key}"] for key in ("name", "instance", "component")}
        if part.app:
            selector = {"name": part.app, "instance": f"{self.name}-{part.name}"}
        return Component(
            labels=labels,
            selector={f"app.kubernetes.io/{key}": value for key, value in selector.items()},
            applyset=self.applyset(part.within or part.name, {**self.labels, components.LABEL: part.within or part.name}),
            account=f"{self.name}-{part.name}" if part.account else None,
            daemon=part.daemon,
        )

    def applyset(self, what: str, labels: Labels) -> ApplySet:
        return ApplySet(name=f"{self.name}-{what}", namespace=self.namespace, labels=labels)

    def volume(self, what: str, spec: Json, access_mode: str) -> Volume:
        ours = "claimName" not in spec
        return Volume(
            claim=f"{self.name}-{what}" if ours else spec["claimName"],
            create=ours,
            # Volumes have no namespace, so their names carry it.
            persistent_volume=f"{self.namespace}-{self.name}-{what}" if "hostPath" in spec else None,
            storage_class="" if "hostPath" in spec else spec.get("storageClassName"),
            size=str(spec["size"]) if ours else None,
            host_path=spec.get("hostPath"),
            access_mode=access_mode,
        )

    def controller(self) -> Controller:
        spec = self.spec["controller"]
        name = f"{self.name}-controller"
        hosts = self.hosts("controller", spec["replicas"])
        return Controller(
            name=name,
            service=name,
            replicas=spec["replicas"],
            hosts=hosts,
            pod=hosts[0].host,
            backup=hosts[1].host if len(hosts) > 1 else None,
            host=hosts[0].host,
            address=hosts[0].address,
            port=SLURMCTLD_PORT,
            dns_searches=[self.domain(f"{self.name}-worker"), self.domain(f"{self.name}-login-pods")],
            state=self.volume("controller-state", spec["stateVolume"], spec["stateVolume"].get("accessMode", "ReadWriteOnce")),
            **self.pods(name, self.components["controller"], spec),
            pods=spec["replicas"],
            affinity=_apart(self.components["controller"].selector) if len(hosts) > 1 else {},
            jail=self.controller_jail(),
            accounts=self.daemon_accounts(),
        )

    def pods(self, stateful_set: str, of: Component, spec: Json) -> Json:
        """What pods of all components take from their part of the document, as fields of Pods."""
        return {
            "stateful_set": stateful_set,
            "labels": of.labels,
            "selector": of.selector,
            "resources": _resources(spec),
            "node_selector": spec["nodeSelector"],
            "tolerations": spec["tolerations"],
            "probes": _probes(spec),
            "host_users": spec.get("hostUsers"),
        }

    def hosts(self, component: str, replicas: int) -> list[DaemonHost]:
        """The primary's address is the same with and without a backup, so that whoever has it finds it after either change."""
        name = f"{self.name}-{component}"
        selector = self.components[component].selector
        if replicas == 1:
            return [DaemonHost(host=f"{name}-0", address=self.domain(name), service=name, selector=selector)]
        return [
            DaemonHost(
                host=f"{name}-{index}",
                address=self.domain(service),
                service=service,
                selector={**selector, "statefulset.kubernetes.io/pod-name": f"{name}-{index}"},
            )
            for index, service in enumerate((name, f"{name}-1"))
        ]

    def controller_jail(self) -> PodVolumes:
        """Where slurmctld finds the accounts, which is all that it wants of a jail."""
        mount = {"name": "jail", "mountPath": JAIL, **({"subPath": "root"} if self.shared else {}), "readOnly": True}
        own = {"name": "jail", "emptyDir": {"medium": "Memory", "sizeLimit": ACCOUNTS_SIZE}}
        source = self.jail_source("jail", "default", self.spec["jail"]) if self.shared else own
        return PodVolumes([source], [mount, *self.sssd_mounts()], [])

    def sssd_mounts(self) -> list[Json]:
        """Where the clients of sssd find it."""
        return [{"name": name, "mountPath": path, "readOnly": True} for name, path in self.sssd_shown.items()]

    def accounting(self) -> Accounting | None:
        if "accounting" not in self.spec:
            return None
        spec = self.spec["accounting"]
        name = f"{self.name}-accounting"
        server = self.database_server(spec["database"])
        external = spec["database"].get("external", {})
        mariadb = self.mariadb(spec["database"])
        archive = spec.get("archive", {}).get("volume")
        own = server or mariadb
        host = self.domain(own.service) if own else external["host"]
        hosts = self.hosts("accounting", spec["replicas"])
        auth = {**config.auth_settings(self.spec["slurm"]["auth"]), **rest.auth_settings(self.spec)}
        files = {"slurmdbd.conf": accounting.slurmdbd_conf(spec, hosts=hosts, database_host=host, auth=auth)}
        tls = external.get("tls", {})
        return Accounting(
            name=name,
            service=name,
            hosts=hosts,
            port=accounting.SLURMDBD_PORT,
            config_map=f"{name}-config",
            files=files,
            hash=_hash(files)[:16],
            password_secret=external["passwordSecret"] if external else self.database_password(),
            database_host=host,
            database_port=external.get("port", accounting.DATABASE_PORT),
            database_name=external.get("name", accounting.DATABASE),
            ca_config_map=tls.get("caConfigMap"),
            certificate_secret=tls.get("certificateSecret"),
            database=server,
            mariadb=mariadb,
            tenants=_tenants(spec["tenants"]) if "tenants" in spec else None,
            backup=self.backup(spec, host),
            archive=self.volume("archive", archive, archive.get("accessMode", "ReadWriteOnce")) if archive else None,
            archives=accounting.ARCHIVES,
            **self.pods(name, self.components["accounting"], spec),
            pods=spec["replicas"],
            affinity=_apart(self.components["accounting"].selector) if len(hosts) > 1 else {},
            jail=self.controller_jail(),
            accounts=self.daemon_accounts(),
        )

    def database_password(self) -> str:
        """Return the name of the Secret with the password of slurmdbd's user, where the database is the cluster's own."""
        return f"{self.name}-database-password"

    def mariadb(self, database: Json) -> MariaDB | None:
        if "mariadbOperator" not in database:
            return None
        spec = database["mariadbOperator"]
        of = self.components["mariadb"]
        # As its pods have it in their labels. Another name than that of the embedded server: while one takes the other's place, both are there.
        name = of.selector["app.kubernetes.io/instance"]
        root = f"{name}-root-password"
        priority = self.spec["priorityClasses"]["controlPlane"]
        return MariaDB(
            name=name,
            service=f"{name}-primary" if accounting.is_replicated(spec["spec"]) else name,
            labels=of.labels,
            root_secret=root,
            claims=[f"storage-{name}-{number}" for number in range(spec["replicas"])],
            spec=accounting.mariadb_spec(spec, password_secret=self.database_password(), root_secret=root, priority=priority),
        )

    def database_server(self, database: Json) -> DatabaseServer | None:
        if "embedded" not in database:
            return None
        spec = database["embedded"]
        name = f"{self.name}-database"
        files = {"corral.cnf": accounting.server_conf(spec["resources"])}
        of = self.components["database"]
        return DatabaseServer(
            stateful_set=name,
            service=name,
            labels=of.labels,
            selector=of.selector,
            image=self.spec["images"]["mariadb"],
            resources=_resources(spec),
            node_selector=spec["nodeSelector"],
            tolerations=spec["tolerations"],
            probes=_probes(spec),
            volume=self.volume("database", spec["volume"], "ReadWriteOnce"),
            owned_by_group="hostPath" not in spec["volume"],
            config_map=f"{name}-config",
            files=files,
            hash=_hash(files)[:16],
            name=accounting.DATABASE,
            user=accounting.USER,
        )

    def backup(self, spec: Json, host: str) -> Backup:
        """Return the client that dumps the database at ``host``; ``spec`` is spec.accounting."""
        external = spec["database"].get("external", {})
        wanted = spec["database"].get("backup", {})
        of = self.components["backup"]
        name = f"{self.name}-backup"
        env = {
            "CORRAL_CLUSTER": self.name,
            "CORRAL_DATABASE_HOST": host,
            "CORRAL_DATABASE_PORT": str(external.get("port", accounting.DATABASE_PORT)),
            "CORRAL_DATABASE": external.get("name", accounting.DATABASE),
            "CORRAL_USER": external.get("user", accounting.USER),
        }
        return Backup(
            name=name,
            client=f"{name}-client",
            image=self.spec["images"].get("mariadb"),
            selector=of.selector,
            labels=of.labels,
            schedule=wanted.get("schedule"),
            keep=wanted.get("keep", 0),
            volume=self.volume("backup", wanted["volume"], "ReadWriteOnce") if wanted else None,
            owned_by_group="hostPath" not in wanted.get("volume", {}),
            env=[{"name": key, "value": value} for key, value in env.items()],
            resources=_resources(wanted or spec),
            node_selector=(wanted or spec)["nodeSelector"],
            tolerations=(wanted or spec)["tolerations"],
        )

    def rest(self, slurm_conf: str) -> Rest | None:
        if "rest" not in self.spec:
            return None
        spec = self.spec["rest"]
        name = f"{self.name}-rest"
        read_once = {"slurm.conf": rest.slurm_conf(slurm_conf), "haproxy.cfg": rest.proxy_conf(spec)}
        of = self.components["rest"]
        certificate = self.certificate(spec)
        return Rest(
            name=name,
            replicas=spec["replicas"],
            config_map=f"{name}-config",
            files={**read_once, **rest.accounts(self.spec)},
            hash=_hash(read_once)[:16],
            openapi="slurmctld,slurmdbd" if "accounting" in self.spec else "slurmctld",
            tls_secret=certificate.spec["secretName"] if certificate else spec.get("tls", {}).get("secret"),
            certificate=certificate,
            scheme="HTTPS" if "tls" in spec else "HTTP",
            jwt_secret=f"{name}-jwt-key",
            jwks_config_map=spec["jwks"]["configMap"] if "jwks" in spec else None,
            port=rest.PORT,
            service=name,
            service_type=spec["service"]["type"],
            service_port=spec["service"]["port"],
            node_port=spec["service"].get("nodePort"),
            service_annotations=spec["service"]["annotations"],
            **self.pods(name, of, spec),
            pods=spec["replicas"],
            affinity=_apart(of.selector) if spec["replicas"] > 1 else {},
            jail=PodVolumes([], [], []),
            accounts=None,
        )

    def certificate(self, spec: Json) -> Certificate | None:
        """Return the object; None where another keeps the certificate. ``spec`` is spec.rest."""
        tls = spec.get("tls", {})
        if "issuerRef" not in tls:
            return None
        name = f"{self.name}-rest"
        own = [f"{name}.{self.namespace}.svc", self.domain(name), f"{name}.{self.namespace}", name]
        addresses = {"ipAddresses": tls["ipAddresses"]} if tls.get("ipAddresses") else {}
        return Certificate(
            name=name,
            labels=self.components["certificate"].labels,
            spec={
                "secretName": f"{name}-tls",
                "dnsNames": list(dict.fromkeys([*tls.get("dnsNames", []), *own])),
                **addresses,
                "issuerRef": tls["issuerRef"],
                "privateKey": {"rotationPolicy": "Always"},
                "usages": ["digital signature", "key encipherment", "server auth"],
            },
        )

    def monitoring(self, slurm_conf: str) -> Monitoring | None:
        spec = self.spec["monitoring"]
        if not spec["enabled"]:
            return None
        name = f"{self.name}-monitoring"
        read_once = {"slurm.conf": monitoring.slurm_conf(slurm_conf)}
        operator = spec["prometheusOperator"]
        series = f'namespace="{self.namespace}",cluster="{self.name}"'
        return Monitoring(
            name=name,
            service=name,
            port=monitoring.PORT,
            annotations=spec["annotations"],
            config_map=f"{name}-config",
            files={**read_once, "passwd": rest.accounts(self.spec)["passwd"]},
            hash=_hash(read_once)[:16],
            user=monitoring.user(slurm_conf),
            arguments=monitoring.arguments(self.name, spec),
            interval=spec["intervalSeconds"],
            prometheus={**operator["labels"], **self.components["prometheus"].labels} if operator["enabled"] else None,
            runbooks=operator["runbooks"],
            series=series,
            dashboards=self.dashboards(spec["dashboards"], series),
            **self.pods(name, self.components["monitoring"], spec),
            pods=1,
            affinity={},
            jail=PodVolumes([], [], []),
            accounts=None,
        )

    def dashboards(self, spec: Json, series: str) -> Dashboards | None:
        if not spec["enabled"]:
            return None
        return Dashboards(
            config_map=f"{self.name}-monitoring-dashboards",
            labels={**spec["labels"], **self.components["monitoring"].labels},
            annotations=spec["annotations"],
            files=dashboards.files(self.name, self.namespace, series),
        )

    def daemon_accounts(self) -> PodVolumes | None:
        """For daemons that want the users' names and nothing else of a jail."""
        if self.shared:
            return None
        return PodVolumes([], [{"name": "jail", "mountPath": JAIL}], [{"name": "CORRAL_ONLY", "value": "accounts"}])

    def open_pods(self) -> Json:
        """Those that all pods of the cluster may reach."""
        closed = [part.name for part in self.parts if part.ingress or part.port]
        if not closed:
            return {"matchLabels": self.cluster_selector()}
        return {
            "matchLabels": self.cluster_selector(),
            "matchExpressions": [{"key": components.LABEL, "operator": "NotIn", "values": sorted(closed)}],
        }

    def ingress(self) -> list[Ingress]:
        return [
            Ingress(
                name=f"{self.name}-base-ingress-{part.name}",
                selector=self.components[part.name].selector,
                peers=[*self.peers(part), *self.operated(part), *self.readers(part)],
                ports=[{"protocol": "TCP", "port": part.port}] if part.port else [],
            )
            for part in self.parts
            if part.ingress or part.port
        ]

    def peers(self, part: components.Part) -> list[Json]:
        """The components of this cluster that may connect to one, of those that the document has."""
        return [{"podSelector": {"matchLabels": self.components[name].selector}} for name in part.ingress if name in self.components]

    def readers(self, part: components.Part) -> list[Json]:
        """Who alone reads the metrics: pods of the namespaces that the document names, if it names any."""
        names = self.spec["monitoring"]["namespaces"] if part.name == "monitoring" else []
        return [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}} for name in names]

    def operated(self, part: components.Part) -> list[Json]:
        """Who else reaches the pods of an operator's object: they one another, and the operator, wherever it runs."""
        if not part.app:
            return []
        operator = {"app.kubernetes.io/name": f"{part.app}-operator"}
        return [
            {"podSelector": {"matchLabels": self.components[part.name].selector}},
            {"namespaceSelector": {}, "podSelector": {"matchLabels": operator}},
        ]

    def login(self) -> Login:
        spec = self.spec["login"]
        name = f"{self.name}-login"
        return Login(
            name=name,
            replicas=spec["replicas"],
            update_strategy="RollingUpdate" if spec["updateStrategy"]["type"] == "RollingUpdate" else "OnDelete",
            in_use={"container": "sshd", "command": LOGIN_IDLE, "wait": self.maintenance.login},
            replace_idle=spec["updateStrategy"]["type"] == "WhenIdle",
            stop=[LOGIN_STOP, str(spec["drain"]["deadlineSeconds"]), *LOGIN_IDLE],
            grace=spec["drain"]["deadlineSeconds"] + LOGIN_GRACE,
            pods_service=f"{name}-pods",
            service=name,
            service_type=spec["service"]["type"],
            service_port=spec["service"]["port"],
            node_port=spec["service"].get("nodePort"),
            session_affinity=spec["service"]["sessionAffinity"],
            service_annotations=spec["service"]["annotations"],
            host_keys_secret=f"{name}-host-keys",
            capabilities=list(LOGIN_CAPABILITIES),
            seccomp=self.login_seccomp(),
            app_armor=self.app_armor("login", self.spec["security"]),
            entry=spec["entry"],
            user_limits=_user_limits(spec["limits"]),
            init_config_map=self.init_config_map("login"),
            init_scripts=_init_texts(spec),
            **self.pods(name, self.components["login"], spec),
            pods=0 if self.maintenance.login else spec["replicas"],
            affinity={},
            jail=self.login_volumes(),
            accounts=self.accounts("login"),
        )

    def login_volumes(self) -> PodVolumes:
        found = self.jail_volumes(self.sub_mounts("login"), named=False)
        _add_volumes(found, self.spec["login"]["volumes"])
        self.add_init_scripts(found, "login", self.spec["login"])
        found.env.extend(self.no_new_privileges())
        return found

    def workers(self, node_sets: list[NodeSet]) -> Workers:
        name = f"{self.name}-worker"
        return Workers(
            service=name,
            port=SLURMD_PORT,
            process_tracking=self.spec["slurm"]["processTracking"],
            ssh=self.spec["workers"]["ssh"],
            host_keys_secret=f"{name}-host-keys",
            capabilities=list(WORKER_CAPABILITIES),
            health_config_map=f"{name}-health",
            health_files=health.files(self.spec),
            node_sets=node_sets,
        )

    def scaling(self, worker: Component) -> Scaling:
        whole = self.spec["workers"]["drain"]
        return Scaling(
            selector=",".join(f"{key}={value}" for key, value in worker.selector.items()),
            config_map=self.config_map,
            **_draining(whole),
            node_sets=[
                {
                    "name": node_set["name"],
                    "replicas": 0 if self.maintenance.workers else node_set["replicas"],
                    **_draining({**whole, **node_set["drain"]}),
                }
                for node_set in self.spec["nodeSets"]
            ],
            partitions=[partition["name"] for partition in self.spec["partitions"]],
            scaled=[
                {
                    "name": node_set["name"],
                    "object": f"{self.name}-{node_set['name']}",
                    "replicas": node_set["replicas"],
                    "labels": {**worker.labels, NODE_SET_LABEL: node_set["name"]},
                    "selector": ",".join(f"{key}={value}" for key, value in {**worker.selector, NODE_SET_LABEL: node_set["name"]}.items()),
                }
                for node_set in self.spec["nodeSets"]
                if "scale" in node_set
            ],
            scalable=self.scalable,
        )

    def rollout(self, node_sets: list[NodeSet]) -> Rollout:
        whole = self.spec["workers"]["updateStrategy"]
        found: list[Json] = []
        for spec, node_set in zip(self.spec["nodeSets"], node_sets, strict=True):
            strategy = {**whole, **spec["updateStrategy"]}
            drain = {**whole["drain"], **spec["updateStrategy"]["drain"]}
            found.append(
                {
                    "name": node_set.name,
                    "replicas": node_set.replicas,
                    "type": strategy["type"],
                    "max_unavailable": quantity.share(strategy["maxUnavailable"], node_set.replicas),
                    **_draining(drain),
                    "place": node_set.place or "",
                }
            )
        rolls = [node_set.stateful_set for node_set, one in zip(node_sets, found, strict=True) if one["type"] != "OnDelete"]
        return Rollout(node_sets=found, stateful_sets=rolls)

    def sync(self) -> Sync:
        spec = self.spec["workers"]["sync"]
        eviction = spec["eviction"]
        return Sync(taints=spec["taints"], conditions=spec["kubernetesNodeConditions"], eviction=eviction, protects=eviction != "Always")

    def login_seccomp(self) -> Json:
        # The runtime's default profile refuses pivot_root, which only Pivot needs.
        if self.spec["security"]["seccomp"] == "Unconfined" and self.spec["login"]["entry"] == "Chroot":
            return {"type": "RuntimeDefault"}
        return self.seccomp("login", self.spec["security"])

    def seccomp(self, pods: str, security: Json) -> Json:
        if security["seccomp"] == "Unconfined":
            return {"type": "Unconfined"}
        return {"type": "Localhost", "localhostProfile": self.spec["security"]["profiles"]["seccomp"][pods]}

    def app_armor(self, pods: str, security: Json) -> Json:
        if security["appArmor"] == "Unconfined":
            return {"type": "Unconfined"}
        return {"type": "Localhost", "localhostProfile": self.spec["security"]["profiles"]["appArmor"][pods]}

    def sssd(self) -> Sssd | None:
        spec = self.spec.get("sssd")
        if spec is None:
            return None
        return Sssd(
            image=spec["image"],
            config_secret=spec["configSecret"],
            ca_config_map=spec.get("caConfigMap"),
            homes=spec["homes"],
            debug_level=spec["debugLevel"],
            resources=spec["resources"],
            check_job=f"{self.name}-base-sssd-check-{_short([spec, self.spec['images']])}",
        )

    def node_set(self, spec: Json) -> NodeSet:
        worker = self.components["worker"]
        mark = {NODE_SET_LABEL: spec["name"]}
        security = {**self.spec["security"], **spec["security"]}
        selector = {**worker.selector, **mark}
        cpus, real_memory = config.size(spec["resources"])
        gpus = _gpus(spec["gpu"]) if "gpu" in spec else None
        line = [("CPUs", cpus), ("RealMemory", real_memory), ("Gres", gpus.gres if gpus else None), *spec["extraNodeParameters"].items()]
        return NodeSet(
            name=spec["name"],
            replicas=spec["replicas"],
            node_names=hostlist.ranged(f"{spec['name']}-", spec["replicas"]),
            cpus=cpus,
            real_memory=real_memory,
            features=spec["features"],
            weight=spec["weight"],
            gpus=gpus,
            extra=spec["extraNodeParameters"],
            hardware=hardware.text(line),
            environment=[*_gpu_environment(spec), *self.no_new_privileges(), *spec["environment"]],
            sysctls=spec["sysctls"],
            spread=[{**spread, "labelSelector": {"matchLabels": selector}} for spread in spec["topologySpread"]],
            runtime_class=spec.get("gpu", {}).get("runtimeClassName"),
            place=spec["topology"].get("switch", spec["topology"].get("block")) if "topology" in spec else None,
            init_config_map=self.init_config_map(spec["name"]),
            init_scripts=_init_texts(spec),
            seccomp=self.seccomp("worker", security),
            app_armor=self.app_armor("worker", security),
            **self.pods(f"{self.name}-{spec['name']}", replace(worker, labels={**worker.labels, **mark}, selector=selector), spec),
            pods=0 if self.maintenance.workers else spec["replicas"],
            affinity=_affinity(spec, selector),
            jail=self.worker_volumes(spec),
            accounts=self.accounts(spec["name"]),
        )

    def worker_volumes(self, node_set: Json) -> PodVolumes:
        """The jails with their submounts, a /dev/shm that is larger than a container's 64 MiB, and the room for overlays."""
        found = self.jail_volumes(self.sub_mounts(node_set["name"]), named=True)
        shared = node_set.get("sharedMemory") or f"{quantity.mebibytes(node_set['resources']['limits']['memory']) // 2}Mi"
        found.volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(shared)}})
        found.mounts.append({"name": "shm", "mountPath": SHM})
        if "overlay" in self.spec["jail"]:
            found.volumes.append({"name": "overlay", "emptyDir": {"sizeLimit": str(self.spec["jail"]["overlay"]["size"])}})
            found.mounts.append({"name": "overlay", "mountPath": OVERLAYS})
        _add_volumes(found, node_set["volumes"])
        # slurmd writes in its container for users (sbcast).
        closed = [one["mountPath"] for one in node_set["volumes"] if ("scratch" in one or "memory" in one) and not one["readOnly"]]
        closed += [MESSAGE_QUEUES] if self.spec["slurm"]["isolation"]["ipc"] == "Job" else []
        found.env.extend([{"name": "CORRAL_CLOSED", "value": " ".join(closed)}] if closed else [])
        self.add_init_scripts(found, node_set["name"], node_set)
        return found

    def init_config_map(self, pods: str) -> str:
        return f"{self.name}-{pods}-init"

    def no_new_privileges(self) -> list[Json]:
        """Read by the entries of slurmd and sshd, of which all processes of users come."""
        return [{"name": "CORRAL_NO_NEW_PRIVILEGES", "value": "true"}] if self.spec["security"]["noNewPrivileges"] else []

    def add_init_scripts(self, found: PodVolumes, pods: str, spec: Json) -> None:
        """Each script as a file of its name, from the ConfigMap made of the document, or from one of the user's. ``pods``: login, or a node set."""
        if not spec["initScripts"]:
            return
        sources: list[Json] = []
        for script in spec["initScripts"]:
            given = script.get("configMap") or {"name": self.init_config_map(pods), "key": script["name"]}
            items = [{"key": given["key"], "path": script["name"], "mode": 0o555}]
            sources.append({"configMap": {"name": given["name"], "items": items}})
        found.volumes.append({"name": "init-scripts", "projected": {"sources": sources}})
        found.mounts.append({"name": "init-scripts", "mountPath": INIT_SCRIPTS, "readOnly": True})
        scripts = " ".join(f"{script['name']}:{script['timeoutSeconds']}" for script in spec["initScripts"])
        found.env.append({"name": "CORRAL_INIT_SCRIPTS", "value": scripts})

    def sub_mounts(self, pods: str) -> list[tuple[int, Json]]:
        """The submounts of the login nodes, or of a node set, with their places in the document."""
        return [
            (index, mount)
            for index, mount in enumerate(self.spec["jail"]["subMounts"])
            if (mount["login"] if pods == "login" else pods in mount.get("nodeSets", [pods]))
        ]

    def jail_volumes(self, sub_mounts: list[tuple[int, Json]], *, named: bool) -> PodVolumes:
        """Volumes and mounts of the default jail, and with ``named`` of the others, and what should be a submount in each of them.

        Never mounted in the jail by Kubernetes: the container runtime follows links, and who is root in the jail could lead the volume over the
        pod's own programs. The pod attaches them itself (``jail-exec --attach``), by the variables given here.
        """
        volumes: list[Json] = []
        mounts = self.sssd_mounts()
        for name, spec in self.jail_specs():
            if name != "default" and not named:
                continue
            volume = "jail" if name == "default" else f"jail-{name}"
            volumes.append(self.jail_source(volume, name, spec))
            mounts.append({"name": volume, "mountPath": _root(name), "subPath": "root"})
        for index, mount in sub_mounts:
            read_only = {"readOnly": True} if mount["readOnly"] else {}
            volumes.append({"name": f"submount-{index}", **self.sub_mount_source(mount)})
            mounts.append({"name": f"submount-{index}", "mountPath": f"{SUB_MOUNTS}/{index}", **read_only})
        variables = {
            "CORRAL_JAILS": " ".join(_root(name) for name, spec in self.jail_specs() if named or name == "default"),
            "CORRAL_SUBMOUNTS": " ".join(
                [
                    *(f"{SUB_MOUNTS}/{index}:{mount['path']}{':ro' if mount['readOnly'] else ''}" for index, mount in sub_mounts),
                    *(f"{path}:{path}:ro" for path in self.sssd_shown.values()),
                ]
            ),
            "CORRAL_SCRATCH": " ".join(f"{SUB_MOUNTS}/{index}" for index, mount in sub_mounts if "scratch" in mount or "memory" in mount),
        }
        return PodVolumes(
            volumes=volumes, mounts=mounts, env=[{"name": name, "value": value} for name, value in variables.items() if value]
        )

    def jail_source(self, volume: str, name: str, spec: Json) -> Json:
        """A jail as a volume of a pod: the claim of a shared one; else a part of the node's disk, or a claim that goes with the pod."""
        if name != "default" or self.shared:
            return {"name": volume, "persistentVolumeClaim": {"claimName": self.jail_volume(name, spec).claim}}
        size = str(spec["volume"]["size"])
        if "storageClassName" not in spec["volume"]:
            return {"name": volume, "emptyDir": {"sizeLimit": size}}
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": spec["volume"]["storageClassName"],
            "resources": {"requests": {"storage": size}},
        }
        return {
            "name": volume,
            "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": self.components["jail"].labels}, "spec": claim}},
        }

    def accounts(self, pods: str) -> PodVolumes | None:
        """For the container that writes users into the pod's own jail; homes too, unless they are on a volume that pods share."""
        if self.shared:
            return None
        mounts: list[Json] = [{"name": "jail", "mountPath": JAIL, "subPath": "root"}]
        env: list[Json] = []
        for index, mount in self.sub_mounts(pods):
            if mount["path"] == "/home" and (mount["readOnly"] or "claimName" in mount or "storageClassName" in mount):
                env = [{"name": "CORRAL_HOMES", "value": "none"}]
            elif mount["path"] == "/home":
                mounts.append({"name": f"submount-{index}", "mountPath": HOMES})
                env = [{"name": "CORRAL_HOMES", "value": HOMES}]
        return PodVolumes(volumes=[], mounts=mounts, env=env)

    def sub_mount_source(self, mount: Json) -> Json:
        return _volume_source({"claimName": self.sub_mount_volume(mount).claim} if "storageClassName" in mount else mount)

    def sub_mount_volume(self, mount: Json) -> Volume:
        # Named by its path, since its place in the list may change.
        return self.volume(f"jail-mount-{_short(mount['path'])}", mount, "ReadWriteMany")

    def plugin_arguments(self, jails: list[Jail]) -> list[tuple[str, str]]:
        """The arguments of the plugin in plugstack.conf, which files/spank/README.md describes."""
        spec = self.spec["jail"]
        uids = {user["name"]: user["uid"] for user in self.spec["users"]}
        arguments = [("jail" if jail.name == "default" else f"jail.{jail.name}", jail.mount_path) for jail in jails]
        arguments.extend(
            (f"partition.{partition['name']}", partition["jail"]) for partition in self.spec["partitions"] if partition["jail"] != "default"
        )
        if "overlay" in spec:
            arguments.append(("overlay", OVERLAYS))
        if any("gpu" in node_set for node_set in self.spec["nodeSets"]):
            arguments.append(("dev", GPU_FOLDER))
        if self.spec["slurm"]["isolation"]["ipc"] == "Node":
            arguments.append(("ipc", "node"))
        if self.spec["slurm"]["isolation"]["pid"] == "Job":
            arguments.append(("pid", "job"))
        if spec["noJailUsers"]:
            arguments.append(("no-jail", ",".join(str(uids[name]) for name in spec["noJailUsers"])))
        return arguments

    def partitions(self, node_sets: list[NodeSet]) -> list[Partition]:
        nodes = {node_set.name: node_set.node_names for node_set in node_sets}
        return [
            Partition(
                name=spec["name"],
                nodes=",".join(nodes[name] for name in spec["nodeSets"] if nodes[name]),
                default=spec["default"],
                max_time=spec["maxTime"],
                state=spec["state"],
                extra={
                    **{
                        key: quantity.mebibytes(spec[field]) if field in config.PARTITION_MEMORY else spec[field]
                        for field, key in config.PARTITION_FIELDS.items()
                        if field in spec
                    },
                    **spec["extraParameters"],
                },
            )
            for spec in self.spec["partitions"]
        ]

    def jail_specs(self) -> list[tuple[str, Json]]:
        """Name and specification of each jail, the default one first."""
        return [("default", self.spec["jail"]), *((jail["name"], jail) for jail in self.spec["jails"])]

    def jail_volume(self, name: str, spec: Json) -> Volume:
        return self.volume("jail" if name == "default" else f"jail-{name}", spec["volume"], "ReadWriteMany")

    def jail_accounts(self) -> Json:
        """What is to be in all jails."""
        found = {
            "groups": self.spec["groups"],
            "users": [
                {key: user[key] for key in ("name", "uid", "gid", "groups", "sshKeys", "sudo", "shell")} for user in self.spec["users"]
            ],
            "mountPoints": [
                *(mount["path"] for mount in self.spec["jail"]["subMounts"]),
                *self.sssd_shown.values(),
            ],
            "sshConfig": self.ssh_config(),
        }
        if "motd" in self.spec["login"]:
            found["motd"] = self.spec["login"]["motd"].rstrip("\n") + "\n"
        return found

    def users(self, labels: Labels, found: Json) -> Users:
        maps = accounts.maps(self.name, json.dumps(found, sort_keys=True, ensure_ascii=False, indent=1) + "\n")
        return Users(
            maps=maps,
            names=accounts.names(self.name),
            volume=accounts.volume(self.name),
            hash=hashlib.sha256(maps[0]["data"][accounts.FILE].encode()).hexdigest()[:16],
            selector=f"app.kubernetes.io/instance={self.name},{components.LABEL} in ({','.join(sorted(components.WITH_USERS))})",
            applyset=self.applyset("jail-accounts", labels),
        )

    def ssh_config(self) -> str:
        """How ssh inside the jail reaches workers by their Slurm nodes' names; empty where they have no sshd."""
        if self.spec["workers"]["ssh"] == "Never" or not self.spec["nodeSets"]:
            return ""
        names = " ".join(f"{node_set['name']}-*" for node_set in self.spec["nodeSets"])
        return (
            "# Written by corral.slurm from a SlurmCluster document; the next run replaces every edit.\n"
            f"Host {names} !*.*\n"
            f"    HostName {self.name}-%h.{self.domain(f'{self.name}-worker')}\n"
            # All workers have the same host keys, whatever becomes of their pods.
            f"    HostKeyAlias {self.name}-worker\n"
            "    StrictHostKeyChecking accept-new\n"
            "    IdentityFile ~/.ssh/corral\n"
        )

    def jail(self, name: str, spec: Json, users: Json) -> Jail:
        shared = name != "default" or self.shared
        volume = self.jail_volume(name, spec) if shared else None
        prefix = f"{self.name}-jail" if name == "default" else f"{self.name}-jail-{name}"
        return Jail(
            name=name,
            shared=shared,
            kind=f"{self.name}-jail-kind",
            claim=volume.claim if volume else None,
            mount_path=_root(name),
            sub_path="root",
            volume=volume,
            populate=self.populate(prefix, spec, volume),
            users=self.users_job(prefix, spec, volume, users),
        )

    def populate(self, prefix: str, spec: Json, volume: Volume | None) -> Populate:
        populate = spec["populate"]
        requests = {"cpu": "100m", "memory": "64Mi"}
        if volume is None and "storageClassName" not in spec["volume"]:
            # Said in advance, so that no pod is put where the disk has not that much left.
            requests["ephemeral-storage"] = str(spec["volume"]["size"])
        return Populate(
            # What a job does is in its name, since a job's template cannot be changed: another image, or other users, is another job.
            job=f"{prefix}-populate-{_short([populate.get('image'), populate['policy'], self.spec['images'], volume.claim])}"
            if volume
            else None,
            config_map=f"{self.name}-jail-populate",
            # With policy Never nothing is copied; the job then only looks whether the volume is a jail.
            image=populate.get("image") or self.spec["images"]["slurm"],
            policy=populate["policy"],
            limit=None if volume else quantity.mebibytes(spec["volume"]["size"]),
            requests=requests,
        )

    def users_job(self, prefix: str, spec: Json, volume: Volume | None, users: Json) -> UsersJob:
        volumes = self.users_volumes(volume)
        what = [users, self.spec["images"], volume.claim if volume else spec["populate"], volumes.mounts]
        return UsersJob(job=f"{prefix}-users-{_short(what)}" if volume or volumes.env else None, volumes=volumes)

    def users_volumes(self, jail: Volume | None) -> PodVolumes:
        """The jail, and the volume of /home where that is one: beside the jail, for the reason that ``jail_volumes`` gives.

        Without a shared jail the pod makes itself one of the image's /etc, for the homes are made of its /etc/skel.
        """
        source: Json = {"persistentVolumeClaim": {"claimName": jail.claim}} if jail else {"emptyDir": {"sizeLimit": ETC_SIZE}}
        volumes: list[Json] = [{"name": "jail", **source}]
        mounts: list[Json] = [{"name": "jail", "mountPath": JAIL, "subPath": "root"}]
        env: list[Json] = []
        for mount in self.spec["jail"]["subMounts"]:
            if mount["path"] == "/home" and not mount["readOnly"] and ("claimName" in mount or "storageClassName" in mount):
                volumes.append({"name": "homes", **self.sub_mount_source(mount)})
                mounts.append({"name": "homes", "mountPath": HOMES})
                env.append({"name": "CORRAL_HOMES", "value": HOMES})
        return PodVolumes(volumes=volumes, mounts=mounts, env=env)

    def secrets(self, auth: Auth, login: Login, workers: Workers, slurmdbd: Accounting | None, slurmrestd: Rest | None) -> list[Json]:
        """Return the Secrets that are made once. The password of a database is one where the cluster has a database of its own."""
        tokens = [slurmrestd.jwt_secret] if slurmrestd else []
        passwords: list[tuple[str, Labels]] = []
        if slurmdbd and slurmdbd.database:
            passwords = [(slurmdbd.password_secret, slurmdbd.database.labels)]
        elif slurmdbd and slurmdbd.mariadb:
            # With the label mariadb-operator gives a new password to the server at once.
            watched = {**slurmdbd.mariadb.labels, "k8s.mariadb.com/watch": ""}
            passwords = [(slurmdbd.password_secret, watched), (slurmdbd.mariadb.root_secret, watched)]
        host_keys = [(login.host_keys_secret, self.components["login"].labels)]
        if workers.ssh != "Never":
            # Not the login nodes': who breaks out on a worker does not get those.
            host_keys.append((workers.host_keys_secret, self.components["worker"].labels))
        return [
            {
                "name": auth.secret,
                "namespace": self.namespace,
                "labels": self.components["base"].labels,
                "data": {f"{auth.type}.key": {"random_bytes": 1024}},
            },
            *(
                {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": labels,
                    "data": {f"ssh_host_{kind}_key": {"ssh_host_key": kind} for kind in ("ed25519", "ecdsa", "rsa")},
                }
                for name, labels in host_keys
            ),
            *(
                {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": labels,
                    "data": {"password": {"password": 32}},
                }
                for name, labels in passwords
            ),
            *(
                {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": self.components["rest"].labels,
                    "data": {rest.KEY: {"random_bytes": 32}},
                }
                for name in tokens
            ),
        ]

    def owned(self, kind: str, name: str, claim: str = "") -> Json:
        """Return what to delete by its name, with whose it is: the volumes of ``a/b-c`` and ``a-b/c`` have one name. ``claim``: the volume's."""
        where = {} if claim else {"namespace": self.namespace}
        kept_for = {"spec": {"claimRef": {"namespace": self.namespace, "name": claim}}} if claim else {}
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **where, "labels": self.labels}, **kept_for}

    def teardown(
        self, jails: list[Jail], volumes: list[Volume], controller: Controller, secrets: list[Json], mariadb: MariaDB | None
    ) -> Teardown:
        data: list[Json] = []
        left: list[str] = []
        for volume in (*(jail.volume for jail in jails if jail.volume), *volumes, controller.state):
            if volume.create:
                data.append(self.owned("PersistentVolumeClaim", volume.claim))
            if volume.persistent_volume:
                data.append(self.owned("PersistentVolume", volume.persistent_volume, claim=volume.claim))
                left.append(
                    f"The files in {volume.host_path} on the Kubernetes nodes stay; remove them there if they are not wanted any more."
                )
            if not volume.create:
                left.append(f"The claim {volume.claim} in namespace {self.namespace} is yours and stays, with its files.")
        if mariadb:
            data.extend(self.owned("PersistentVolumeClaim", claim) for claim in mariadb.claims)
            left.append(f"Other claims of the MariaDB object {mariadb.name} stay, such as those of replicas that it had before.")
        # The key of the other kind is there where spec.slurm.auth was changed.
        keys = {f"{self.name}-base-{auth}-key" for auth in schema.AUTH} - {str(secret["name"]) for secret in secrets}
        data.extend(self.owned("Secret", name) for name in (*(str(secret["name"]) for secret in secrets), *sorted(keys)))
        data.append(self.owned("ConfigMap", revisions.name(self.name)))
        theirs = [self.spec["sssd"]["configSecret"]] if "sssd" in self.spec else []
        tls = self.spec.get("rest", {}).get("tls", {})
        theirs += [tls["secret"]] if "secret" in tls else []
        left.extend(f"The Secret {name} in namespace {self.namespace} is yours and stays." for name in theirs)
        if "issuerRef" in tls:
            left.append(
                f"The Secret {self.name}-rest-tls in namespace {self.namespace} is cert-manager's and stays, unless cert-manager removes it."
            )
        return Teardown(
            applysets=[
                self.applyset(one, {**self.labels, components.LABEL: part.name})
                # Of all components: what this document no longer has may be there still.
                for part in reversed(components.COMPONENTS)
                if not part.within
                for one in reversed(part.sets or (part.name,))
            ],
            data=data,
            left_behind=left,
        )


def _record_volumes(slurmdbd: Accounting | None) -> list[Volume]:
    """Return those that hold records: the database's own, its dumps', and the archive's."""
    if slurmdbd is None:
        return []
    found = (slurmdbd.database.volume if slurmdbd.database else None, slurmdbd.backup.volume, slurmdbd.archive)
    return [volume for volume in found if volume]


def _draining(spec: Json) -> Json:
    """What becomes of jobs on nodes that should be free, as the modules have it."""
    jobs = [{**{key: rule[key] for key in ("partitions", "qos", "policy")}, "deadline": rule["deadlineSeconds"]} for rule in spec["jobs"]]
    return {"policy": spec["policy"], "deadline": spec["deadlineSeconds"], "jobs": jobs}


def _affinity(node_set: Json, selector: Labels) -> Json:
    """The document's own, and beside it that pods of the set keep away from one another."""
    if not node_set["onePodPerNode"]:
        return dict(node_set["affinity"])
    always = "requiredDuringSchedulingIgnoredDuringExecution"
    apart = node_set["affinity"].get("podAntiAffinity", {})
    term = {"labelSelector": {"matchLabels": selector}, "topologyKey": "kubernetes.io/hostname"}
    return {**node_set["affinity"], "podAntiAffinity": {**apart, always: [*apart.get(always, []), term]}}


def _apart(selector: Labels) -> Json:
    """On another node where there is one, and best in another zone; a cluster of one node has both there."""
    terms = [(100, "kubernetes.io/hostname"), (50, "topology.kubernetes.io/zone")]
    return {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": weight, "podAffinityTerm": {"labelSelector": {"matchLabels": selector}, "topologyKey": key}}
                for weight, key in terms
            ]
        }
    }


def _gpus(spec: Json) -> Gpus:
    """What Slurm knows of a set's GPUs. No autodetection: it counts what the Kubernetes node has, where a pod may have a part of it."""
    kind = {"Type": spec["type"]} if "type" in spec else {}
    links: list[str] = spec.get("links", [])
    cores: list[str] = spec.get("cores", [])
    # Links are those of one device; cores may be of several.
    near = [cores[number * len(cores) // len(links)] if cores else None for number in range(len(links))] or cores or [None]
    share = spec["count"] // len(near)
    lines = [
        {
            # Slurm's default is to look by itself, in a build that can.
            "AutoDetect": "off",
            "Name": "gpu",
            **kind,
            "File": f"/dev/{hostlist.compress(f'{GPU_FOLDER}/{number}' for number in range(index * share, (index + 1) * share))}",
            **({"Cores": those} if those else {}),
            **({"Links": links[index]} if links else {}),
            "Flags": GPU_FLAGS[spec["vendor"]],
        }
        for index, those in enumerate(near)
    ]
    return Gpus(gres=":".join(["gpu", *kind.values(), str(spec["count"])]), lines=lines)


def _gpu_environment(node_set: Json) -> list[Json]:
    """What the worker's entry must know of the GPUs, and nvidia's runtime of what to bring."""
    if "gpu" not in node_set:
        return []
    spec = node_set["gpu"]
    variables = {"CORRAL_GPU_VENDOR": spec["vendor"], "CORRAL_GPU_COUNT": str(spec["count"])}
    if spec["vendor"] == "nvidia" and all(variable["name"] != NVIDIA_CAPABILITIES for variable in node_set["environment"]):
        variables[NVIDIA_CAPABILITIES] = "compute,utility"
    return [{"name": name, "value": value} for name, value in variables.items()]


def _user_limits(limits: Json) -> str:
    """As a cgroup has them: bytes, microseconds in each tenth of a second, a number."""
    files = {"memory": ("memory.max", 1), "cpu": ("cpu.max", 100_000), "processes": ("pids.max", 1)}
    return " ".join(f"{name}={int(quantity.parse(limits[field]) * unit)}" for field, (name, unit) in files.items() if field in limits)


def _resources(pods: Json) -> Json:
    """Those of the document, and of a node set's real GPUs as many as Slurm counts. Kubernetes sets aside what the limit of an extended resource says."""
    spec = pods.get("gpu")
    if not spec or spec["vendor"] == "simulated":
        return dict(pods["resources"])
    name = spec.get("resourceName") or GPU_RESOURCES[spec["vendor"]]
    return {**pods["resources"], "limits": {**pods["resources"]["limits"], name: str(spec["count"])}}


def _add_volumes(found: PodVolumes, volumes: list[Json]) -> None:
    """Add the document's own volumes of a container."""
    for spec in volumes:
        name = f"own-{spec['name']}"
        read_only = spec["readOnly"] or "configMap" in spec or "secret" in spec
        mount = {"name": name, "mountPath": spec["mountPath"], **({"subPath": spec["subPath"]} if "subPath" in spec else {})}
        found.volumes.append({"name": name, **_volume_source(spec)})
        found.mounts.append({**mount, "readOnly": True} if read_only else mount)


def _volume_source(spec: Json) -> Json:
    if "configMap" in spec:
        return {"configMap": {"name": spec["configMap"]}}
    if "secret" in spec:
        return {"secret": {"secretName": spec["secret"], "defaultMode": 0o400}}
    if "memory" in spec:
        return {"emptyDir": {"medium": "Memory", "sizeLimit": str(spec["memory"])}}
    if "scratch" in spec:
        return {"emptyDir": {"sizeLimit": str(spec["scratch"])}}
    if "hostPath" in spec:
        # Never made: a disk that is not mounted would be taken for an empty one.
        return {"hostPath": {"path": spec["hostPath"], "type": "Directory"}}
    return {"persistentVolumeClaim": {"claimName": spec["claimName"]}}


def _probes(pods: Json) -> Json:
    """The times of the document; a start takes as long as its scripts may, besides. ``wait_seconds`` is how long a look waits for a start."""
    probes: Json = pods["probes"]
    startup = probes["startup"]
    wait = startup["timeoutSeconds"] // 2
    scripts = -(-_init_seconds(pods) // max(startup["periodSeconds"], wait))
    return {**probes, "startup": {**startup, "failureThreshold": startup["failureThreshold"] + scripts, "wait_seconds": wait}}


def _init_seconds(pods: Json) -> int:
    """How long the scripts before the daemon may take."""
    return sum(script["timeoutSeconds"] for script in pods.get("initScripts", ()))


def _init_texts(pods: Json) -> dict[str, str]:
    """The scripts whose text the document has, by their names."""
    return {script["name"]: script["script"] for script in pods["initScripts"] if "script" in script}


def _root(jail: str) -> str:
    """Where pods mount a jail."""
    return JAIL if jail == "default" else f"{JAILS}/{jail}"


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _short(value: Any) -> str:
    return _hash(value)[:8]
