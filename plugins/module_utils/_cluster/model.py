# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The resolved model of a cluster: what roles see as the fact ``corral``. Typed and complete; field names are an interface."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

Labels = dict[str, str]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ApplySet:
    """A set of objects that is pruned together. ``name`` is its parent ConfigMap."""

    name: str
    namespace: str
    labels: Labels


@dataclass(frozen=True, slots=True)
class Component:
    """What the objects of one component have in common. ``selector`` is the part of ``labels`` that never changes."""

    labels: Labels
    selector: Labels
    applyset: ApplySet


@dataclass(frozen=True, slots=True)
class Components:
    """All components of this release."""

    base: Component
    controller: Component
    login: Component
    worker: Component
    jail: Component


@dataclass(frozen=True, slots=True)
class Images:
    """``pull_secrets`` are references ``{"name": …}``, as a pod has them. ``jail`` is None where nothing is populated."""

    slurm: str
    jail: str | None
    pull_policy: str
    pull_secrets: list[Labels]


@dataclass(frozen=True, slots=True)
class Priority:
    """Names of the priority classes, and whether missing ones are made."""

    create: bool
    control_plane: str
    worker: str


@dataclass(frozen=True, slots=True)
class Volume:
    """A claim. ``create``: the claim is ours; ``persistent_volume``: so is the volume behind it, for the directory ``host_path``."""

    claim: str
    create: bool
    persistent_volume: str | None
    storage_class: str | None
    size: str | None
    host_path: str | None
    access_mode: str


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """Volumes of a pod, and their mounts and variables in its main container, as Kubernetes writes them."""

    volumes: list[Json]
    mounts: list[Json]
    env: list[Json]


@dataclass(frozen=True, slots=True)
class Controller:
    """slurmctld. ``host`` is its Slurm host name (the pod's), ``address`` the DNS name that reaches it.

    ``dns_searches`` are the domains in which it finds worker and login pods by their host names, as jobs' clients give them.
    """

    name: str
    service: str
    pod: str
    host: str
    address: str
    port: int
    dns_searches: list[str]
    resources: Json
    node_selector: Labels
    tolerations: list[Json]
    state: Volume


@dataclass(frozen=True, slots=True)
class Login:
    """sshd. ``node_port`` is None where Kubernetes chooses or none is used; ``pods_service`` gives each pod a DNS name;
    ``entry`` is ``Chroot`` or ``Pivot``."""

    name: str
    replicas: int
    pods_service: str
    service: str
    service_type: str
    service_port: int
    node_port: int | None
    service_annotations: Labels
    resources: Json
    node_selector: Labels
    tolerations: list[Json]
    host_keys_secret: str
    capabilities: list[str]
    seccomp: Json
    entry: str
    jail: PodVolumes


@dataclass(frozen=True, slots=True)
class NodeSet:
    """One StatefulSet of workers. ``node_names`` is a hostlist, ``""`` without replicas; ``real_memory`` is in MiB."""

    name: str
    stateful_set: str
    replicas: int
    node_names: str
    cpus: int
    real_memory: int
    features: list[str]
    weight: int
    resources: Json
    node_selector: Labels
    tolerations: list[Json]
    labels: Labels
    selector: Labels
    jail: PodVolumes


@dataclass(frozen=True, slots=True)
class Workers:
    """All node sets, behind one headless service. ``process_tracking`` is ``cgroup`` or ``linuxproc``."""

    service: str
    port: int
    process_tracking: str
    capabilities: list[str]
    node_sets: list[NodeSet]


@dataclass(frozen=True, slots=True)
class Partition:
    """A Slurm partition. ``nodes`` is a hostlist, ``""`` where its sets have no replicas."""

    name: str
    nodes: str
    default: bool
    max_time: str
    state: str


@dataclass(frozen=True, slots=True)
class Config:
    """Slurm's configuration: the ConfigMap ``name``, its ``files`` by name, and their ``hash`` (also the file config.hash)."""

    name: str
    hash: str
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Munge:
    """The Secret with the munge key."""

    secret: str


@dataclass(frozen=True, slots=True)
class Populate:
    """The job that fills the jail, or with policy Never only looks at it; it runs ``image``."""

    job: str
    config_map: str
    image: str
    policy: str


@dataclass(frozen=True, slots=True)
class Users:
    """The job that writes users and groups into the jail at ``/mnt/jail`` of its pod, and homes; ``document`` is its input, JSON text."""

    volumes: PodVolumes
    config_map: str
    job: str
    document: str
    applyset: ApplySet


@dataclass(frozen=True, slots=True)
class Jail:
    """A shared root. Pods mount ``sub_path`` of the claim at ``mount_path``; ``name`` is ``default`` for the one of ``spec.jail``."""

    name: str
    claim: str
    mount_path: str
    sub_path: str
    volume: Volume
    populate: Populate
    users: Users


@dataclass(frozen=True, slots=True)
class Teardown:
    """For destroy: sets in the order in which they go, objects that hold data, and sentences on what stays."""

    applysets: list[ApplySet]
    data: list[Json]
    left_behind: list[str]


@dataclass(frozen=True, slots=True)
class Model:
    """A whole cluster. ``jail`` is the default one and the first of ``jails``; ``sub_mount_volumes`` are the claims made for its submounts."""

    name: str
    namespace: str
    cluster_domain: str
    content_hash: str
    labels: Labels
    components: Components
    images: Images
    priority: Priority
    controller: Controller
    login: Login
    workers: Workers
    partitions: list[Partition]
    node_names: str
    node_count: int
    config: Config
    munge: Munge
    secrets: list[Json]
    jail: Jail
    jails: list[Jail]
    sub_mount_volumes: list[Volume]
    teardown: Teardown
    objects_owner: Json | None

    def to_dict(self) -> Json:
        """Return plain dictionaries, lists and scalars, keys in the order of the fields."""
        result = _plain(self)
        return dict(result)


def _plain(value: Any) -> Any:
    """Copy, so that whoever changes a fact does not change the model; dataclasses become dictionaries."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
