# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a valid document to the model: names, sizes, hostlists, config texts. Pure; the same document gives the same bytes."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import config, defaults, quantity, validate
from ansible_collections.corral.slurm.plugins.module_utils._cluster.model import (
    ApplySet,
    Component,
    Components,
    Config,
    Controller,
    Images,
    Jail,
    Json,
    Labels,
    Login,
    Model,
    Munge,
    NodeSet,
    Partition,
    PodVolumes,
    Populate,
    Priority,
    Teardown,
    Users,
    Volume,
    Workers,
)
from ansible_collections.corral.slurm.plugins.module_utils._cluster.version import COLLECTION_VERSION
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist

JAIL = "/mnt/jail"
JAILS = "/mnt/jails"
SHM = "/dev/shm"
OVERLAYS = "/var/spool/corral-overlay"
SUB_MOUNTS = "/mnt/submounts"
HOMES = "/mnt/homes"
SLURMCTLD_PORT = 6817
SLURMD_PORT = 6818
# What slurmd and its step daemons need of a pod's memory; the rest is Slurm's to give to jobs.
SLURMD_MEMORY = 128

# What the container of slurmd may do: start steps as their users (SETUID, SETGID, CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETPCAP), enter the
# jail (SYS_ADMIN, SYS_CHROOT, SYS_PTRACE for /proc/<pid>/root), priorities and locked memory of jobs (SYS_NICE, IPC_LOCK), sudo in jobs (AUDIT_WRITE).
# Limits come from the container runtime and are handed on (PropagateResourceLimits=NONE), so SYS_RESOURCE is not among them.
WORKER_CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
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
# sshd: sessions as their users in a chroot; SYS_ADMIN for the chroot's mounts, given up before sshd starts.
LOGIN_CAPABILITIES = (
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
)


def model(document: Any) -> Model:
    """Return the model of a SlurmCluster document. Raises InvalidDocument, which lists every mistake, before anything is computed."""
    validate.check(document)
    name: str = document["metadata"]["name"]
    namespace: str = document["metadata"].get("namespace") or "default"
    spec = defaults.with_defaults(document["spec"])
    return _Resolver(name, namespace, spec).model()


class _Resolver:
    def __init__(self, name: str, namespace: str, spec: Json) -> None:
        self.name = name
        self.namespace = namespace
        self.spec = spec
        self.labels: Labels = {
            "app.kubernetes.io/name": "slurm",
            "app.kubernetes.io/instance": name,
            "app.kubernetes.io/part-of": "corral",
            "app.kubernetes.io/managed-by": "corral",
        }

    def model(self) -> Model:
        components = Components(**{part: self.component(part) for part in ("base", "controller", "login", "worker", "jail")})
        controller = self.controller()
        node_sets = [self.node_set(node_set) for node_set in self.spec["nodeSets"]]
        partitions = self.partitions(node_sets)
        jails = self.jails(components.jail.labels)
        sub_mount_volumes = [self.sub_mount_volume(mount) for mount in self.spec["jail"]["subMounts"] if "storageClassName" in mount]
        login = self.login()
        munge = Munge(secret=f"{self.name}-base-munge-key")
        texts, fingerprint = config.files(
            cluster=self.name,
            host=controller.host,
            address=controller.address,
            port=SLURMCTLD_PORT,
            slurmd_port=SLURMD_PORT,
            worker_domain=self.domain(f"{self.name}-worker"),
            process_tracking=self.spec["slurm"]["processTracking"],
            extra=self.spec["slurm"]["extraConfig"],
            node_sets=node_sets,
            partitions=partitions,
            jail=self.plugin_arguments(jails),
        )
        secrets = self.secrets(munge, login, components)
        return Model(
            name=self.name,
            namespace=self.namespace,
            cluster_domain=self.spec["clusterDomain"],
            content_hash=_hash({"name": self.name, "namespace": self.namespace, "spec": self.spec, "version": COLLECTION_VERSION}),
            labels=self.labels,
            components=components,
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
            workers=Workers(
                service=f"{self.name}-worker",
                port=SLURMD_PORT,
                process_tracking=self.spec["slurm"]["processTracking"],
                capabilities=list(WORKER_CAPABILITIES),
                node_sets=node_sets,
            ),
            partitions=partitions,
            node_names=",".join(node_set.node_names for node_set in node_sets if node_set.replicas),
            node_count=sum(node_set.replicas for node_set in node_sets),
            config=Config(name=f"{self.name}-controller-config", hash=fingerprint, files=texts),
            munge=munge,
            secrets=secrets,
            jail=jails[0],
            jails=jails,
            sub_mount_volumes=sub_mount_volumes,
            teardown=self.teardown(components, jails, sub_mount_volumes, controller, secrets),
            objects_owner=None,
        )

    def domain(self, service: str) -> str:
        return f"{service}.{self.namespace}.svc.{self.spec['clusterDomain']}"

    def component(self, part: str) -> Component:
        labels = {**self.labels, "app.kubernetes.io/component": part}
        selector = {key: labels[f"app.kubernetes.io/{key}"] for key in ("name", "instance", "component")}
        return Component(
            labels=labels,
            selector={f"app.kubernetes.io/{key}": value for key, value in selector.items()},
            applyset=ApplySet(name=f"{self.name}-{part}", namespace=self.namespace, labels=labels),
        )

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
        return Controller(
            name=name,
            service=name,
            pod=f"{name}-0",
            host=f"{name}-0",
            address=self.domain(name),
            port=SLURMCTLD_PORT,
            dns_searches=[self.domain(f"{self.name}-worker"), self.domain(f"{self.name}-login-pods")],
            resources=spec["resources"],
            node_selector=spec["nodeSelector"],
            tolerations=spec["tolerations"],
            state=self.volume("controller-state", spec["stateVolume"], "ReadWriteOnce"),
        )

    def login(self) -> Login:
        spec = self.spec["login"]
        name = f"{self.name}-login"
        return Login(
            name=name,
            replicas=spec["replicas"],
            pods_service=f"{name}-pods",
            service=name,
            service_type=spec["service"]["type"],
            service_port=spec["service"]["port"],
            node_port=spec["service"].get("nodePort"),
            service_annotations=spec["service"]["annotations"],
            resources=spec["resources"],
            node_selector=spec["nodeSelector"],
            tolerations=spec["tolerations"],
            host_keys_secret=f"{name}-host-keys",
            capabilities=list(LOGIN_CAPABILITIES),
            # The runtime's default seccomp profile refuses pivot_root.
            seccomp={"type": "Unconfined" if spec["entry"] == "Pivot" else "RuntimeDefault"},
            entry=spec["entry"],
            jail=self.jail_volumes(self.sub_mounts("login"), named=False),
        )

    def node_set(self, spec: Json) -> NodeSet:
        limits: Json = spec["resources"]["limits"]
        requests: Json = spec["resources"].get("requests", {})
        worker = self.component("worker")
        mark = {"corral.hpc/node-set": spec["name"]}
        return NodeSet(
            name=spec["name"],
            stateful_set=f"{self.name}-{spec['name']}",
            replicas=spec["replicas"],
            node_names=hostlist.ranged(f"{spec['name']}-", spec["replicas"]),
            cpus=int(quantity.parse(limits.get("cpu") or requests.get("cpu") or 1)),
            real_memory=quantity.mebibytes(limits["memory"]) - SLURMD_MEMORY,
            features=spec["features"],
            weight=spec["weight"],
            resources=spec["resources"],
            node_selector=spec["nodeSelector"],
            tolerations=spec["tolerations"],
            labels={**worker.labels, **mark},
            selector={**worker.selector, **mark},
            jail=self.worker_volumes(spec),
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
        return found

    def sub_mounts(self, pods: str) -> list[tuple[int, Json]]:
        """The submounts of the login nodes, or of a node set, with their places in the document."""
        return [
            (index, mount)
            for index, mount in enumerate(self.spec["jail"]["subMounts"])
            if (mount["login"] if pods == "login" else pods in mount.get("nodeSets", [pods]))
        ]

    def jail_volumes(self, sub_mounts: list[tuple[int, Json]], *, named: bool) -> PodVolumes:
        """Volumes and mounts of the default jail, and with ``named`` of the others, and what shall be a submount in each of them.

        Never mounted in the jail by Kubernetes: the container runtime follows links, and who is root in the jail could lead the volume over the
        pod's own programs. The pod attaches them itself (``jail-exec --attach``), by the variables given here.
        """
        volumes: list[Json] = []
        mounts: list[Json] = []
        for name, spec in self.jail_specs():
            if name != "default" and not named:
                continue
            volume = "jail" if name == "default" else f"jail-{name}"
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": self.jail_volume(name, spec).claim}})
            mounts.append({"name": volume, "mountPath": _root(name), "subPath": "root"})
        for index, mount in sub_mounts:
            read_only = {"readOnly": True} if mount["readOnly"] else {}
            volumes.append({"name": f"submount-{index}", **self.sub_mount_source(mount)})
            mounts.append({"name": f"submount-{index}", "mountPath": f"{SUB_MOUNTS}/{index}", **read_only})
        variables = {
            "CORRAL_JAILS": " ".join(_root(name) for name, spec in self.jail_specs() if named or name == "default"),
            "CORRAL_SUBMOUNTS": " ".join(
                f"{SUB_MOUNTS}/{index}:{mount['path']}{':ro' if mount['readOnly'] else ''}" for index, mount in sub_mounts
            ),
            "CORRAL_SCRATCH": " ".join(f"{SUB_MOUNTS}/{index}" for index, mount in sub_mounts if "scratch" in mount or "memory" in mount),
        }
        return PodVolumes(
            volumes=volumes, mounts=mounts, env=[{"name": name, "value": value} for name, value in variables.items() if value]
        )

    def sub_mount_source(self, mount: Json) -> Json:
        if "memory" in mount:
            return {"emptyDir": {"medium": "Memory", "sizeLimit": str(mount["memory"])}}
        if "scratch" in mount:
            return {"emptyDir": {"sizeLimit": str(mount["scratch"])}}
        if "hostPath" in mount:
            # Never made: a disk that is not mounted would be taken for an empty one.
            return {"hostPath": {"path": mount["hostPath"], "type": "Directory"}}
        claim = mount.get("claimName") or self.sub_mount_volume(mount).claim
        return {"persistentVolumeClaim": {"claimName": claim}}

    def sub_mount_volume(self, mount: Json) -> Volume:
        # Named by its path, since its place in the list may change.
        return self.volume(f"jail-mount-{_short(mount['path'])}", mount, "ReadWriteMany")

    def plugin_arguments(self, jails: list[Jail]) -> list[tuple[str, str]]:
        """The words of plugstack.conf, which files/spank/README.md describes."""
        spec = self.spec["jail"]
        uids = {user["name"]: user["uid"] for user in self.spec["users"]}
        words = [("jail" if jail.name == "default" else f"jail.{jail.name}", jail.mount_path) for jail in jails]
        words.extend(
            (f"partition.{partition['name']}", partition["jail"]) for partition in self.spec["partitions"] if partition["jail"] != "default"
        )
        if "overlay" in spec:
            words.append(("overlay", OVERLAYS))
        if spec["noJailUsers"]:
            words.append(("no-jail", ",".join(str(uids[name]) for name in spec["noJailUsers"])))
        return words

    def partitions(self, node_sets: list[NodeSet]) -> list[Partition]:
        nodes = {node_set.name: node_set.node_names for node_set in node_sets}
        return [
            Partition(
                name=spec["name"],
                nodes=",".join(nodes[name] for name in spec["nodeSets"] if nodes[name]),
                default=spec["default"],
                max_time=spec["maxTime"],
                state=spec["state"],
            )
            for spec in self.spec["partitions"]
        ]

    def jail_specs(self) -> list[tuple[str, Json]]:
        """Name and specification of each jail, the default one first."""
        return [("default", self.spec["jail"]), *((jail["name"], jail) for jail in self.spec["jails"])]

    def jail_volume(self, name: str, spec: Json) -> Volume:
        return self.volume("jail" if name == "default" else f"jail-{name}", spec["volume"], "ReadWriteMany")

    def jails(self, labels: Labels) -> list[Jail]:
        accounts = {
            "groups": self.spec["groups"],
            "users": [
                {key: user[key] for key in ("name", "uid", "gid", "groups", "sshKeys", "sudo", "shell")} for user in self.spec["users"]
            ],
            "mountPoints": [mount["path"] for mount in self.spec["jail"]["subMounts"]],
        }
        document = json.dumps(accounts, sort_keys=True, ensure_ascii=False, indent=1) + "\n"
        return [self.jail(name, spec, labels, accounts, document) for name, spec in self.jail_specs()]

    def jail(self, name: str, spec: Json, labels: Labels, accounts: Json, document: str) -> Jail:
        populate = spec["populate"]
        volume = self.jail_volume(name, spec)
        volumes = self.users_volumes(volume)
        prefix = f"{self.name}-jail" if name == "default" else f"{self.name}-jail-{name}"
        # What a job does is in its name, since a job's template can not be changed: another image, or other users, is another job.
        return Jail(
            name=name,
            claim=volume.claim,
            mount_path=_root(name),
            sub_path="root",
            volume=volume,
            populate=Populate(
                job=f"{prefix}-populate-{_short([populate.get('image'), populate['policy'], self.spec['images'], volume.claim])}",
                config_map=f"{self.name}-jail-populate",
                # With policy Never nothing is copied; the job then only looks whether the volume is a jail.
                image=populate.get("image") or self.spec["images"]["slurm"],
                policy=populate["policy"],
            ),
            users=Users(
                volumes=volumes,
                config_map=f"{self.name}-jail-users",
                job=f"{prefix}-users-{_short([accounts, self.spec['images'], volume.claim, volumes.mounts])}",
                document=document,
                applyset=ApplySet(name=f"{self.name}-jail-accounts", namespace=self.namespace, labels=labels),
            ),
        )

    def users_volumes(self, jail: Volume) -> PodVolumes:
        """The jail, and the volume of /home where that is one: beside the jail, for the reason that ``jail_volumes`` gives."""
        volumes: list[Json] = [{"name": "jail", "persistentVolumeClaim": {"claimName": jail.claim}}]
        mounts: list[Json] = [{"name": "jail", "mountPath": JAIL, "subPath": "root"}]
        env: list[Json] = []
        for mount in self.spec["jail"]["subMounts"]:
            if mount["path"] == "/home" and not mount["readOnly"] and ("claimName" in mount or "storageClassName" in mount):
                volumes.append({"name": "homes", **self.sub_mount_source(mount)})
                mounts.append({"name": "homes", "mountPath": HOMES})
                env.append({"name": "CORRAL_HOMES", "value": HOMES})
        return PodVolumes(volumes=volumes, mounts=mounts, env=env)

    def secrets(self, munge: Munge, login: Login, components: Components) -> list[Json]:
        return [
            {
                "name": munge.secret,
                "namespace": self.namespace,
                "labels": components.base.labels,
                "data": {"munge.key": {"random_bytes": 1024}},
            },
            {
                "name": login.host_keys_secret,
                "namespace": self.namespace,
                "labels": components.login.labels,
                "data": {f"ssh_host_{kind}_key": {"ssh_host_key": kind} for kind in ("ed25519", "ecdsa", "rsa")},
            },
        ]

    def teardown(
        self, components: Components, jails: list[Jail], sub_mounts: list[Volume], controller: Controller, secrets: list[Json]
    ) -> Teardown:
        data: list[Json] = []
        left: list[str] = []
        for volume in (*(jail.volume for jail in jails), *sub_mounts, controller.state):
            if volume.create:
                data.append(_reference("PersistentVolumeClaim", volume.claim, self.namespace))
            if volume.persistent_volume:
                data.append(_reference("PersistentVolume", volume.persistent_volume))
                left.append(
                    f"The files in {volume.host_path} on the Kubernetes nodes stay; remove them there if they are not wanted any more."
                )
            if not volume.create:
                left.append(f"The claim {volume.claim} in namespace {self.namespace} is yours and stays, with its files.")
        data.extend(_reference("Secret", secret["name"], self.namespace) for secret in secrets)
        return Teardown(
            applysets=[
                components.login.applyset,
                components.worker.applyset,
                components.controller.applyset,
                jails[0].users.applyset,
                components.jail.applyset,
                components.base.applyset,
            ],
            data=data,
            left_behind=left,
        )


def _root(jail: str) -> str:
    """Where pods mount a jail."""
    return JAIL if jail == "default" else f"{JAILS}/{jail}"


def _reference(kind: str, name: str, namespace: str | None = None) -> Json:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _short(value: Any) -> str:
    return _hash(value)[:8]
