# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The resolved model of a cluster: what roles see as the variable ``corral``. Typed and complete; field names are an interface."""

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
    """What the objects of one component have in common. ``selector`` is the part of ``labels`` that never changes; ``account`` is the ServiceAccount of its
    pods, None without one of their own; ``daemon`` the container that does their work, "" where they are Jobs'."""

    labels: Labels
    selector: Labels
    applyset: ApplySet
    account: str | None
    daemon: str


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
class DaemonHost:
    """One slurmctld or slurmdbd. ``host`` is its Slurm host name (the pod's), ``address`` the DNS name that reaches it, by ``service`` and its ``selector``."""

    host: str
    address: str
    service: str
    selector: Labels


@dataclass(frozen=True, slots=True)
class Pods:
    """What all pods with a daemon of Slurm's have, as their StatefulSet says it. ``pods`` is how many there should be now. ``resources``, ``node_selector``,
    ``tolerations``, ``affinity`` and ``host_users`` are as a pod or container has them; an affinity is empty, and ``host_users`` None, where nothing is asked.
    ``probes`` are startup, readiness and liveness, as a container has their times, and ``startup.wait_seconds``, how long a look waits for a start.
    ``jail`` is what the daemon has of the jails, with the sockets of sssd where there is one; ``accounts`` is for the container that writes users into
    the pod's own jail, None where the jail is shared."""

    stateful_set: str
    labels: Labels
    selector: Labels
    pods: int
    resources: Json
    node_selector: Labels
    tolerations: list[Json]
    affinity: Json
    probes: Json
    host_users: bool | None
    jail: PodVolumes
    accounts: PodVolumes | None


@dataclass(frozen=True, slots=True)
class Controller(Pods):
    """slurmctld. ``hosts`` are the primary and, with two ``replicas``, the backup; ``pod``, ``host`` and ``address`` are the primary's.

    ``backup`` is the backup's pod or None. ``dns_searches`` are the domains in which it finds worker and login pods by their host names, as jobs' clients
    give them. In its ``jail`` are the accounts, and no more.
    """

    name: str
    service: str
    replicas: int
    hosts: list[DaemonHost]
    pod: str
    backup: str | None
    host: str
    address: str
    port: int
    dns_searches: list[str]
    state: Volume


@dataclass(frozen=True, slots=True)
class Login(Pods):
    """sshd. ``node_port`` is None where Kubernetes chooses or none is used; ``pods_service`` gives each pod a DNS name; ``entry`` is ``Chroot`` or ``Pivot``;
    ``seccomp`` and ``app_armor`` are profiles as a container has them. ``update_strategy`` is the type of the StatefulSet's; ``in_use`` says how to find out
    who uses a pod and ``replace_idle`` whether those of an older template go that nobody uses, as k8s_apply has them; ``stop`` is the command before a
    pod's end, and ``grace`` the seconds for all of the end. ``user_limits`` are words for login.sh, "" without limits; ``init_scripts`` and
    ``init_config_map`` are as a node set's."""

    name: str
    replicas: int
    update_strategy: str
    in_use: Json
    replace_idle: bool
    stop: list[str]
    grace: int
    pods_service: str
    service: str
    service_type: str
    service_port: int
    node_port: int | None
    session_affinity: str
    service_annotations: Labels
    host_keys_secret: str
    capabilities: list[str]
    seccomp: Json
    app_armor: Json
    entry: str
    user_limits: str
    init_config_map: str
    init_scripts: dict[str, str]


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs of a node: ``gres`` is what its line in slurm.conf says, ``lines`` are the pairs of theirs in gres.conf."""

    gres: str
    lines: list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class NodeSet(Pods):
    """One StatefulSet of workers. Its ``replicas`` are Slurm's nodes. ``node_names`` is a hostlist, ``""`` without replicas; ``real_memory`` is in MiB;
    ``extra`` are further pairs of its line in slurm.conf, ``gpus`` what Slurm has of GPUs, and ``hardware`` the words of the line that its pods are made
    for. ``environment``, ``sysctls``, ``spread``, ``seccomp`` and ``app_armor`` are as a pod or container has them, empty where nothing is asked;
    ``runtime_class`` is None where the nodes' own is.

    ``init_scripts`` are the texts that the document itself has, by name, for the ConfigMap ``init_config_map``; ``place`` is the switch or block of
    spec.slurm.topology, None without one."""

    name: str
    replicas: int
    node_names: str
    cpus: int
    real_memory: int
    features: list[str]
    weight: int
    gpus: Gpus | None
    extra: dict[str, str]
    hardware: str
    environment: list[Json]
    sysctls: list[Json]
    spread: list[Json]
    runtime_class: str | None
    place: str | None
    init_config_map: str
    init_scripts: dict[str, str]
    seccomp: Json
    app_armor: Json


@dataclass(frozen=True, slots=True)
class Workers:
    """All node sets, behind one headless service. ``process_tracking`` is ``cgroup`` or ``linuxproc``, ``ssh`` is ``WithJob`` or ``Never``.
    ``health_files`` are those of the health check, by name, for the ConfigMap ``health_config_map``."""

    service: str
    port: int
    process_tracking: str
    ssh: str
    host_keys_secret: str
    capabilities: list[str]
    health_config_map: str
    health_files: dict[str, str]
    node_sets: list[NodeSet]


@dataclass(frozen=True, slots=True)
class Scaling:
    """What scale.decide has to know: the sizes that the document wants, what becomes of jobs on nodes that go, and where the live sizes are found.

    ``node_sets`` are ``{"name", "replicas", "policy", "deadline", "jobs"}``, the pods that there should be, the deadline in seconds since the drain, and
    ``jobs`` those with a policy of their own, ``{"partitions", "qos", "policy", "deadline"}``; ``policy``, ``deadline`` and ``jobs`` hold for sets that the
    document no longer has. ``partitions`` are the names of its partitions. ``selector`` finds the StatefulSets, ``config_map`` holds the slurm.conf of the
    run before.

    ``scaled`` are the sets whose size is asked of a SlurmNodeSet, ``{"name", "object", "replicas", "labels", "selector"}``, the replicas within the
    document's bounds; ``scalable``: the cluster knows SlurmNodeSets, and has been asked.
    """

    selector: str
    config_map: str
    policy: str
    deadline: int
    jobs: list[Json]
    node_sets: list[Json]
    partitions: list[str]
    scaled: list[Json]
    scalable: bool


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Whose pods are away by the document."""

    workers: bool
    login: bool


@dataclass(frozen=True, slots=True)
class Sync:
    """What slurm_sync has to know. ``protects``: no worker pod is evicted but those that it marks."""

    taints: list[str]
    conditions: list[str]
    eviction: str
    protects: bool


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """The embedded MariaDB server, with fields of its pods as ``Pods`` has them. ``hash`` is that of its ``files``, which the ConfigMap ``config_map`` holds.
    ``owned_by_group``: the volume is made writable by ``fsGroup``; the directory of a node is made so by an init container instead."""

    stateful_set: str
    service: str
    labels: Labels
    selector: Labels
    image: str
    resources: Json
    node_selector: Labels
    tolerations: list[Json]
    probes: Json
    volume: Volume
    owned_by_group: bool
    config_map: str
    files: dict[str, str]
    hash: str
    name: str
    user: str


@dataclass(frozen=True, slots=True)
class MariaDB:
    """The object of which mariadb-operator makes the database's server. ``service`` is the one that leads to the server that can write, ``claims`` are those
    of the records, and ``root_secret`` has root's password under the key ``password``."""

    name: str
    service: str
    labels: Labels
    root_secret: str
    claims: list[str]
    spec: Json


@dataclass(frozen=True, slots=True)
class Tenants:
    """Accounts, users and QoS as the document has them: ``document`` is what slurm_tenants checks; the others are options of it."""

    document: Json
    objects: bool
    prune: bool


@dataclass(frozen=True, slots=True)
class Backup:
    """The client of the database that dumps and restores it. ``name`` is that of the CronJob, ``client`` of a Job that a run makes; ``image`` is None where
    the document has none. Without ``schedule`` there is no CronJob, ``volume`` is None and ``keep`` is 0. ``owned_by_group`` is that of ``DatabaseServer``."""

    name: str
    client: str
    image: str | None
    selector: Labels
    labels: Labels
    schedule: str | None
    keep: int
    volume: Volume | None
    owned_by_group: bool
    env: list[Json]
    resources: Json
    node_selector: Labels
    tolerations: list[Json]


@dataclass(frozen=True, slots=True)
class Accounting(Pods):
    """slurmdbd. ``hosts`` are the primary and its backup, if there is one, ``files`` are those of the ConfigMap ``config_map``, and ``hash`` is theirs.

    ``password_secret`` holds the database's password under the key ``password``; ``database_host``, ``database_port`` and ``database_name`` are where it is.
    ``ca_config_map`` and ``certificate_secret`` are for a connection with TLS, None without. ``database`` is the embedded server and ``mariadb`` the object of
    one, None where the document has another kind of database; ``tenants`` is None where the document has none. ``archive`` is the volume of purged records,
    mounted at ``archives``; None without one.
    """

    name: str
    service: str
    hosts: list[DaemonHost]
    port: int
    config_map: str
    files: dict[str, str]
    hash: str
    password_secret: str
    database_host: str
    database_port: int
    database_name: str
    ca_config_map: str | None
    certificate_secret: str | None
    database: DatabaseServer | None
    mariadb: MariaDB | None
    tenants: Tenants | None
    backup: Backup
    archive: Volume | None
    archives: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """The object of which cert-manager makes the Secret of the REST API's certificate."""

    name: str
    labels: Labels
    spec: Json


@dataclass(frozen=True, slots=True)
class Rest(Pods):
    """slurmrestd and its TLS proxy. ``files`` are those of the ConfigMap ``config_map``; ``hash`` is that of what is read only at a start.
    ``openapi`` are the parts of the API, ``scheme`` is the proxy's as a probe has it.

    ``tls_secret`` is None where the proxy serves plain HTTP, and ``certificate`` where its Secret is not made by cert-manager. ``jwt_secret`` and
    ``jwks_config_map`` are mounted where tokens are verified, and by none of these pods; the latter is None without keys of an identity provider. The rest
    is the Service's.
    """

    name: str
    replicas: int
    config_map: str
    files: dict[str, str]
    hash: str
    openapi: str
    tls_secret: str | None
    certificate: Certificate | None
    scheme: str
    jwt_secret: str
    jwks_config_map: str | None
    port: int
    service: str
    service_type: str
    service_port: int
    node_port: int | None
    service_annotations: Labels


@dataclass(frozen=True, slots=True)
class Dashboards:
    """The ConfigMap with Grafana's dashboards."""

    config_map: str
    labels: Labels
    annotations: Labels
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Monitoring(Pods):
    """The exporter of metrics. ``files`` are those of the ConfigMap ``config_map``; ``hash`` is that of what is read only at a start; ``user`` runs it, with
    ``arguments``. ``prometheus`` are labels of the objects for the Prometheus operator, and None where there are to be none; ``runbooks`` is the address of the
    alerts' page; ``series`` selects this cluster's series in them; ``dashboards`` is None where there are to be none."""

    name: str
    service: str
    port: int
    annotations: Labels
    config_map: str
    files: dict[str, str]
    hash: str
    user: int
    arguments: list[str]
    interval: int
    prometheus: Labels | None
    runbooks: str
    series: str
    dashboards: Dashboards | None


@dataclass(frozen=True, slots=True)
class Ingress:
    """Pods that not all of the cluster may reach: a NetworkPolicy's name, their ``selector``, what selects the pods that may, ``peers``, and the ``ports``
    that everybody may reach, where there are no peers."""

    name: str
    selector: Labels
    peers: list[Json]
    ports: list[Json]


@dataclass(frozen=True, slots=True)
class Rollout:
    """What the roll-out has to know: how each node set gets another pod template.

    ``node_sets`` are ``{"name", "replicas", "type", "max_unavailable", "policy", "deadline", "jobs", "place"}``, ``max_unavailable`` a number of nodes.
    ``stateful_sets`` are the names of those whose pods are replaced by runs.
    """

    node_sets: list[Json]
    stateful_sets: list[str]


@dataclass(frozen=True, slots=True)
class Partition:
    """A Slurm partition. ``nodes`` is a hostlist, ``""`` where its sets have no replicas; ``extra`` are further pairs of its line, memory in MiB."""

    name: str
    nodes: str
    default: bool
    max_time: str
    state: str
    extra: Json


@dataclass(frozen=True, slots=True)
class Config:
    """Slurm's configuration: the ConfigMap ``name``, its ``files`` by name, and their ``hash`` (also the file config.hash)."""

    name: str
    hash: str
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Auth:
    """By what the cluster's daemons and commands trust each other: ``type``, as spec.slurm.auth has it, and the Secret with its key."""

    type: str
    secret: str


@dataclass(frozen=True, slots=True)
class Sssd:
    """sssd beside each of Slurm's daemons. ``check_job`` looks whether the directory answers."""

    image: str
    config_secret: str
    ca_config_map: str | None
    homes: str
    debug_level: int
    resources: Json
    check_job: str


@dataclass(frozen=True, slots=True)
class Populate:
    """What fills the jail, or with policy Never only checks it: it runs ``image``. ``job`` is None where each pod does it for itself;
    ``limit`` is then the most that fits, in MiB, and ``requests`` what is set aside for it; else they are None and the job's."""

    job: str | None
    config_map: str
    image: str
    policy: str
    limit: int | None
    requests: Json


@dataclass(frozen=True, slots=True)
class UsersJob:
    """What writes users and groups into the jail at ``/mnt/jail`` of its pod, and homes.

    Where each pod has a jail of its own, its pods write the users too, and the job makes the homes of all of them: ``job`` is None without a volume
    for these.
    """

    job: str | None
    volumes: PodVolumes


@dataclass(frozen=True, slots=True)
class Users:
    """The accounts of all jails: ``maps``, each a ConfigMap's name and data, which pods mount as ``volume``; ``names`` are those of all that there can be.

    ``hash`` is that of the first one's users.json; pods tell by it what they have written. ``applyset`` is that of the jobs.
    """

    maps: list[Json]
    names: list[str]
    volume: Json
    hash: str
    selector: str
    applyset: ApplySet


@dataclass(frozen=True, slots=True)
class Jail:
    """A root. With ``shared`` it is on the volume ``claim``, else on one of each pod. Pods mount ``sub_path`` of it at ``mount_path``; ``name`` is
    ``default`` for the one of ``spec.jail``. ``kind`` is the object that keeps a cluster from changing ``shared``."""

    name: str
    shared: bool
    kind: str
    claim: str | None
    mount_path: str
    sub_path: str
    volume: Volume | None
    populate: Populate
    users: UsersJob


@dataclass(frozen=True, slots=True)
class Teardown:
    """For destroy: sets in the order in which they go, objects that hold data, and sentences on what stays."""

    applysets: list[ApplySet]
    data: list[Json]
    left_behind: list[str]


@dataclass(frozen=True, slots=True)
class EgressBlock:
    """A network, but for ``closed``, what the document closes in it."""

    cidr: str
    closed: list[str]


@dataclass(frozen=True, slots=True)
class Allowance:
    """A rule for these peers and networks, on these ports, or on all where there are none."""

    peers: list[Json]
    blocks: list[EgressBlock]
    ports: list[Json]


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """A NetworkPolicy for what pods connect to: ``rules`` as they are, whatever is closed, and ``allowances``, from which what is closed is excepted."""

    name: str
    selector: Json
    rules: list[Json]
    allowances: list[Allowance]


@dataclass(frozen=True, slots=True)
class Egress:
    """Where pods may connect to. ``networks`` are those of all allowances, from which the API server's addresses are to be excepted too: ``api_server``, or
    those that a run finds where the document names none."""

    networks: list[str]
    api_server: list[str]
    policies: list[EgressPolicy]


@dataclass(frozen=True, slots=True)
class Model:
    """A whole cluster. ``components`` are in the order in which they are made; ``document`` is what it was made of, as JSON, with the schema's defaults;
    ``accounting``, ``rest`` and ``monitoring`` are None without their part of the spec; ``open_pods`` selects the pods that all of the cluster may reach,
    and ``ingress`` are the others; ``jail`` is the default one and the first of ``jails``; ``sub_mount_volumes`` are the claims made for its submounts;
    ``sssd`` is None where all users are the document's; ``live`` is what a pass has to know of the cluster as it is (see _live.model), None where nobody
    has looked."""

    name: str
    namespace: str
    content_hash: str
    document: str
    labels: Labels
    components: dict[str, Component]
    images: Images
    priority: Priority
    controller: Controller
    login: Login
    workers: Workers
    maintenance: Maintenance
    foreign_fields: list[Json]
    scaling: Scaling
    rollout: Rollout
    sync: Sync
    partitions: list[Partition]
    node_names: str
    node_count: int
    config: Config
    auth: Auth
    egress: Egress
    open_pods: Json
    ingress: list[Ingress]
    accounting: Accounting | None
    rest: Rest | None
    monitoring: Monitoring | None
    sssd: Sssd | None
    secrets: list[Json]
    users: Users
    jail: Jail
    jails: list[Jail]
    sub_mount_volumes: list[Volume]
    teardown: Teardown
    live: Json | None

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
