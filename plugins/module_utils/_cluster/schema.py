# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of a SlurmCluster: the one source of the CRD, of the validator, of the static defaults and of the reference page.

It is an OpenAPI v3 structural schema as plain dictionaries, in the subset that Kubernetes allows. Blocks that occur more than once
(volume, resources, placement) are written once. What a pattern means in words stands beside it in PATTERNS, since no user should have to
read a regular expression. Patterns are valid for Python and for Go (RE2), begin with ``^`` and end with ``$``.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

GROUP = "corral.hpc"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "SlurmCluster"
PLURAL = "slurmclusters"

# Bounds. Slurm: 64 Ki nodes (MAX_SLURM_NODES). Kubernetes: names of 63 and 253 characters, node ports by its default range.
MAX_NODES = 65536
MAX_REPLICAS = 10000
MIN_ID, MAX_ID = 1000, 2_000_000_000

_LABEL = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_SUBDOMAIN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_QUALIFIED = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_LABEL_VALUE = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
_IMAGE = "^[A-Za-z0-9][-A-Za-z0-9._:/@]*$"
_CPU = "^([0-9]+|[0-9]+[.][0-9]{1,3}|[0-9]+m)$"
_BYTES = "^[0-9]+([.][0-9]+)?(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$"
_PATH = "^(/[-A-Za-z0-9_.+]+)+$"
_USER = "^[a-z_][a-z0-9_-]*$"
_PARTITION = "^[A-Za-z][-A-Za-z0-9_]*$"
_FEATURE = "^[A-Za-z0-9_][-A-Za-z0-9_.]*$"
_TIME = "^(INFINITE|([0-9]{1,4}-)?[0-9]{1,2}:[0-5][0-9]:[0-5][0-9])$"
_LINE = "^[^\\x00-\\x1f\\x7f]+$"

PATTERNS: dict[str, str] = {
    _LABEL: "lower-case letters, digits and '-', beginning with a letter and not ending in '-'",
    _SUBDOMAIN: "lower-case letters, digits, '-' and '.', each part beginning and ending with a letter or digit",
    _QUALIFIED: "a Kubernetes label key such as zone or example.com/zone",
    _LABEL_VALUE: "letters, digits, '-', '_' and '.', beginning and ending with a letter or digit",
    _IMAGE: "an image reference such as registry.example.com/slurm:24.11",
    _CPU: "a number of CPUs such as 4, 0.5 or 500m",
    _BYTES: "an amount of bytes such as 512Mi, 16Gi or 1.5Gi",
    _PATH: "an absolute path of letters, digits and -_.+ without a '/' at its end",
    _USER: "lower-case letters, digits, '-' and '_', beginning with a letter or '_'",
    _PARTITION: "letters, digits, '-' and '_', beginning with a letter",
    _FEATURE: "letters, digits, '-', '_' and '.'",
    _TIME: "INFINITE or days, hours, minutes and seconds as in 7-00:00:00",
    _LINE: "one line of text without control characters",
}


def _object(
    description: str,
    properties: dict[str, Schema],
    *,
    required: tuple[str, ...] = (),
    default: Any = None,
    rules: tuple[tuple[str, str], ...] = (),
) -> Schema:
    schema: Schema = {"type": "object", "description": description}
    if required:
        schema["required"] = list(required)
    if default is not None:
        schema["default"] = default
    schema["properties"] = properties
    return _with_rules(schema, rules)


def _with_rules(schema: Schema, rules: tuple[tuple[str, str], ...]) -> Schema:
    """Add CEL rules as (rule, message)."""
    if rules:
        schema["x-kubernetes-validations"] = [{"rule": rule, "message": message} for rule, message in rules]
    return schema


def _string(
    description: str,
    pattern: str | None = None,
    *,
    max_length: int = 253,
    min_length: int = 1,
    default: str | None = None,
    enum: tuple[str, ...] = (),
) -> Schema:
    schema: Schema = {"type": "string", "description": description}
    if enum:
        schema["enum"] = list(enum)
    else:
        schema["minLength"] = min_length
        schema["maxLength"] = max_length
        schema["pattern"] = pattern or _LINE
    if default is not None:
        schema["default"] = default
    return schema


def _integer(description: str, minimum: int, maximum: int, default: int | None = None) -> Schema:
    schema: Schema = {"type": "integer", "format": "int64", "description": description, "minimum": minimum, "maximum": maximum}
    if default is not None:
        schema["default"] = default
    return schema


def _boolean(description: str, default: bool | None = None) -> Schema:
    schema: Schema = {"type": "boolean", "description": description}
    if default is not None:
        schema["default"] = default
    return schema


def _quantity(description: str, pattern: str) -> Schema:
    return {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "description": description,
        "pattern": pattern,
        "maxLength": 32,
    }


def _list(
    description: str,
    items: Schema,
    *,
    maximum: int,
    minimum: int = 0,
    keys: tuple[str, ...] = (),
    default: Any = None,
    unique: bool = False,
) -> Schema:
    schema: Schema = {"type": "array", "description": description, "maxItems": maximum}
    if minimum:
        schema["minItems"] = minimum
    if default is not None:
        schema["default"] = default
    if keys:
        schema["x-kubernetes-list-type"] = "map"
        schema["x-kubernetes-list-map-keys"] = list(keys)
    elif unique:
        schema["x-kubernetes-list-type"] = "set"
    else:
        schema["x-kubernetes-list-type"] = "atomic"
    schema["items"] = items
    return schema


def _map(description: str, values: Schema, *, maximum: int, default: Any = None) -> Schema:
    schema: Schema = {"type": "object", "description": description, "maxProperties": maximum}
    if default is not None:
        schema["default"] = default
    schema["additionalProperties"] = values
    return schema


def volume(description: str) -> Schema:
    """A volume: a claim that exists, a claim of a storage class, or a directory of the nodes."""
    return _object(
        f"{description} Exactly one of claimName, storageClassName and hostPath.",
        {
            "claimName": _string(
                "A PersistentVolumeClaim that exists in the cluster's namespace. It is never changed or removed.", _SUBDOMAIN
            ),
            "storageClassName": _string("A storage class; a claim of it is made, of the size given.", _SUBDOMAIN),
            "hostPath": _string(
                "A directory of the Kubernetes nodes; a volume and a claim are made for it. It must be the same files on "
                "all nodes that pods may land on, so a mounted shared filesystem, or a single node.",
                _PATH,
                max_length=200,
            ),
            "size": _quantity("Size of the claim that is made, such as 10Gi. Goes with storageClassName and hostPath.", _BYTES),
        },
        rules=(
            (
                "[has(self.claimName), has(self.storageClassName), has(self.hostPath)].filter(x, x).size() == 1",
                "give exactly one of claimName, storageClassName and hostPath",
            ),
            ("has(self.claimName) != has(self.size)", "size goes with storageClassName and hostPath, and only with these"),
            (
                (
                    "has(self.claimName) == has(oldSelf.claimName) && has(self.storageClassName) == has(oldSelf.storageClassName) && "
                    "has(self.hostPath) == has(oldSelf.hostPath)"
                ),
                "a volume's kind can not be changed, for its data would be lost",
            ),
        ),
    )


def resources(description: str, *, default: Any = None, memory_limit: bool = False) -> Schema:
    """Requests and limits of the main container. With ``memory_limit``, limits.memory must be given."""

    def amounts(text: str, required: tuple[str, ...] = ()) -> Schema:
        return _object(
            text,
            {
                "cpu": _quantity("CPUs, such as 4 or 500m.", _CPU),
                "memory": _quantity("Memory, such as 16Gi.", _BYTES),
                "ephemeral-storage": _quantity("Disk space of the node, such as 20Gi.", _BYTES),
            },
            required=required,
        )

    return _object(
        description,
        {
            "requests": amounts("What is set aside on a Kubernetes node. Where an amount is missing, Kubernetes takes the limit's."),
            "limits": amounts("What can be used at most.", ("memory",) if memory_limit else ()),
        },
        default=default,
        required=("limits",) if memory_limit else (),
    )


def placement() -> dict[str, Schema]:
    """nodeSelector and tolerations, as two properties."""
    return {
        "nodeSelector": _map(
            "Labels that a Kubernetes node must have, such as {kubernetes.io/arch: amd64}.",
            _string("The label's value.", _LABEL_VALUE, max_length=63, min_length=0),
            maximum=32,
            default={},
        ),
        "tolerations": _list(
            "Taints of Kubernetes nodes that do not keep the pods away.",
            _object(
                "One toleration, as in a pod.",
                {
                    "key": _string("The taint's key. Without it, operator must be Exists.", _QUALIFIED, max_length=317),
                    "operator": _string("Equal compares the value, Exists does not.", enum=("Equal", "Exists")),
                    "value": _string("The taint's value.", _LABEL_VALUE, max_length=63, min_length=0),
                    "effect": _string(
                        "The taint's effect. Without it, all effects are tolerated.", enum=("NoSchedule", "PreferNoSchedule", "NoExecute")
                    ),
                    "tolerationSeconds": _integer("How long a NoExecute taint is tolerated, in seconds.", 0, 2**31 - 1),
                },
            ),
            maximum=32,
            default=[],
        ),
    }


def _node_set() -> Schema:
    return _object(
        "A set of equal worker nodes: one StatefulSet, one range of Slurm nodes <name>-0 … <name>-<replicas - 1>.",
        {
            "name": _string(
                "Name of the set, and the beginning of its Slurm nodes' names. Names of corral's own components "
                "(controller, login, worker, …) are reserved.",
                _LABEL,
                max_length=50,
            ),
            "replicas": _integer("Number of nodes.", 0, MAX_REPLICAS, 1),
            "resources": resources(
                "Size of a node. Slurm's CPUs are the whole CPUs of limits.cpu (else of requests.cpu); RealMemory is "
                "limits.memory less 128 MiB for slurmd itself.",
                memory_limit=True,
            ),
            "features": _list(
                "Slurm features of the nodes, for sbatch --constraint.",
                _string("A feature.", _FEATURE, max_length=64),
                maximum=64,
                unique=True,
                default=[],
            ),
            "weight": _integer("Slurm weight: nodes of less weight are taken first.", 1, 65533, 1),
            "sharedMemory": _quantity(
                "Size of /dev/shm, all jobs of a node together; it counts as the node's memory. Without it, half of limits.memory.", _BYTES
            ),
            **placement(),
        },
        required=("name", "resources"),
    )


def _populate() -> Schema:
    return _object(
        "The image that fills an empty volume, or policy Never.",
        {
            "image": _string("Image whose root filesystem becomes the jail. Any distribution with sh and tar.", _IMAGE, max_length=512),
            "policy": _string(
                "IfEmpty: fill an empty volume, touch no other. Never: the volume is filled by somebody else.",
                enum=("IfEmpty", "Never"),
                default="IfEmpty",
            ),
        },
        rules=(("self.policy == 'Never' || has(self.image)", "image is needed unless policy is Never"),),
    )


def _sub_mount() -> Schema:
    sources = ("claimName", "storageClassName", "hostPath", "memory", "scratch")
    return _object(
        "A volume that users see at a path of the jail. Exactly one of claimName, storageClassName, hostPath, memory and scratch.",
        {
            "path": _string("Where users see it, such as /home or /scratch. The directory is made in the jail.", _PATH, max_length=200),
            "claimName": _string(
                "A PersistentVolumeClaim that exists in the cluster's namespace, ReadWriteMany where several pods mount it.", _SUBDOMAIN
            ),
            "storageClassName": _string("A storage class; a ReadWriteMany claim of it is made, of the size given.", _SUBDOMAIN),
            "size": _quantity("Size of the claim that is made, such as 10Gi. Goes with storageClassName.", _BYTES),
            "hostPath": _string(
                "A directory that exists on each Kubernetes node, such as the mount of its own disk.", _PATH, max_length=200
            ),
            "memory": _quantity("Size of a filesystem in the pod's memory, new with each pod; it counts as the pod's memory.", _BYTES),
            "scratch": _quantity("Size of a directory on the Kubernetes node's own disk, new with each pod.", _BYTES),
            "readOnly": _boolean("Whether it can only be read.", False),
            "login": _boolean("Whether login nodes have it.", True),
            "nodeSets": _list(
                "Names of the node sets that have it. Without it, all.",
                _string("A node set's name.", _LABEL, max_length=50),
                maximum=256,
                unique=True,
            ),
        },
        required=("path",),
        rules=(
            (
                f"[{', '.join(f'has(self.{source})' for source in sources)}].filter(x, x).size() == 1",
                f"give exactly one of {', '.join(sources[:-1])} and {sources[-1]}",
            ),
            ("has(self.storageClassName) == has(self.size)", "size goes with storageClassName, and only with it"),
        ),
    )


def _user() -> Schema:
    return _object(
        "A user of the machine: account in the jail, same ids on all nodes.",
        {
            "name": _string("Login name.", _USER, max_length=31),
            "uid": _integer("Numeric user id. 60001–65535 are the system's own.", MIN_ID, MAX_ID),
            "gid": _integer(
                "Numeric id of the primary group: one of spec.groups. Without it the user gets a group of his own, with his name and uid.",
                MIN_ID,
                MAX_ID,
            ),
            "groups": _list(
                "Names of further groups, each one of spec.groups.",
                _string("A group's name.", _USER, max_length=31),
                maximum=256,
                unique=True,
                default=[],
            ),
            "sshKeys": _list(
                "Public ssh keys, as in authorized_keys: type, base64 and an optional comment on one line.",
                _string("A public key.", _LINE, max_length=4096),
                minimum=1,
                maximum=64,
            ),
            "sudo": _boolean("Whether the user can become root inside the jail.", False),
            "shell": _string("Login shell, a path inside the jail.", _PATH, max_length=200, default="/bin/bash"),
        },
        required=("name", "uid", "sshKeys"),
    )


def spec() -> Schema:
    """The schema of ``spec``."""
    return _object(
        "What the cluster shall be.",
        {
            "images": _object(
                "Container images.",
                {
                    "slurm": _string("Image of all Slurm daemons, built from images/slurm.", _IMAGE, max_length=512),
                    "pullPolicy": _string("When nodes pull images.", enum=("Always", "IfNotPresent", "Never"), default="IfNotPresent"),
                    "pullSecrets": _list(
                        "Names of Secrets with registry credentials.",
                        _string("A Secret's name.", _SUBDOMAIN),
                        maximum=16,
                        unique=True,
                        default=[],
                    ),
                },
                required=("slurm",),
            ),
            "clusterDomain": _string("DNS domain of the Kubernetes cluster.", _SUBDOMAIN, max_length=128, default="cluster.local"),
            "priorityClasses": _object(
                "Priority of the pods: Slurm's control plane and login above its workers.",
                {
                    "create": _boolean("Whether classes of these names are made where they are missing.", True),
                    "controlPlane": _string("Class of controller, login and jail pods.", _SUBDOMAIN, default="corral-control-plane"),
                    "worker": _string("Class of worker pods.", _SUBDOMAIN, default="corral-worker"),
                },
                default={},
            ),
            "slurm": _object(
                "Slurm's own configuration.",
                {
                    "processTracking": _string(
                        "How Slurm follows and confines the processes of jobs. cgroup needs cgroup v2 on the Kubernetes "
                        "nodes; linuxproc works everywhere and confines nothing beyond the pod's own limits.",
                        enum=("cgroup", "linuxproc"),
                        default="cgroup",
                    ),
                    "extraConfig": _list(
                        "Lines for slurm.conf, one Key=Value each. They replace corral's defaults; keys that the other fields of "
                        "this document set are refused.",
                        _string("A line such as SchedulerParameters=bf_continue.", _LINE, max_length=4096),
                        maximum=256,
                        default=[],
                    ),
                },
                default={},
            ),
            "controller": _object(
                "The controller: slurmctld.",
                {
                    "resources": resources(
                        "Size of the controller's container.",
                        default={"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "2Gi"}},
                    ),
                    "stateVolume": volume("Where slurmctld keeps its state."),
                    **placement(),
                },
                required=("stateVolume",),
            ),
            "login": _object(
                "Login nodes: sshd.",
                {
                    "replicas": _integer("Number of login nodes.", 0, 100, 1),
                    "service": _object(
                        "How users reach the login nodes.",
                        {
                            "type": _string(
                                "ClusterIP: from inside the Kubernetes cluster; NodePort: on a port of every Kubernetes node; "
                                "LoadBalancer: on an address of its own.",
                                enum=("ClusterIP", "NodePort", "LoadBalancer"),
                                default="ClusterIP",
                            ),
                            "port": _integer("Port of the service.", 1, 65535, 22),
                            "nodePort": _integer(
                                "Port of the Kubernetes nodes, for type NodePort. Without it Kubernetes chooses one.", 1, 65535
                            ),
                            "annotations": _map(
                                "Annotations of the Service, for a cloud's load balancer.",
                                {"type": "string", "description": "The annotation's value.", "maxLength": 4096},
                                maximum=64,
                                default={},
                            ),
                        },
                        default={},
                        rules=(("!has(self.nodePort) || self.type == 'NodePort'", "nodePort goes with type NodePort only"),),
                    ),
                    "entry": _string(
                        "How sessions come into the jail. Chroot: sshd's ChrootDirectory. Pivot: a mount namespace of the session's own, which "
                        "has no other root behind it; the login pods then need what workers need, CAP_SYS_ADMIN and a seccomp profile with pivot_root.",
                        enum=("Chroot", "Pivot"),
                        default="Chroot",
                    ),
                    "resources": resources(
                        "Size of a login node's container, all its users together.",
                        default={"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "4Gi"}},
                    ),
                    **placement(),
                },
                default={},
            ),
            "nodeSets": _list("The worker nodes.", _node_set(), maximum=256, keys=("name",), default=[]),
            "partitions": _list(
                "Slurm partitions. Without any, one partition main holds all nodes.",
                _object(
                    "A Slurm partition.",
                    {
                        "name": _string("Name of the partition. DEFAULT is Slurm's own word.", _PARTITION, max_length=64),
                        "nodeSets": _list(
                            "Names of node sets. Without it, all.",
                            _string("A node set's name.", _LABEL, max_length=50),
                            maximum=256,
                            unique=True,
                        ),
                        "default": _boolean(
                            "Whether jobs without -p go here. Where no partition says true, the first that does not say false."
                        ),
                        "jail": _string(
                            "Jail of the jobs that do not say --jail: one of spec.jails, or default.",
                            _LABEL,
                            max_length=20,
                            default="default",
                        ),
                        "maxTime": _string("Longest time of a job: INFINITE or D-HH:MM:SS.", _TIME, max_length=24, default="INFINITE"),
                        "state": _string(
                            "UP takes and runs jobs, DOWN takes them, DRAIN runs those it has, INACTIVE neither.",
                            enum=("UP", "DOWN", "DRAIN", "INACTIVE"),
                            default="UP",
                        ),
                    },
                    required=("name",),
                ),
                maximum=128,
                keys=("name",),
                default=[],
            ),
            "jail": _object(
                "The jail: the shared root filesystem that users see as /.",
                {
                    "volume": volume("The jail's volume, ReadWriteMany."),
                    "populate": _populate(),
                    "subMounts": _list(
                        "Volumes that users see at paths of the jail, in the jails of spec.jails too. Inside of them no set-uid program "
                        "and no device file works.",
                        _sub_mount(),
                        maximum=32,
                        keys=("path",),
                        default=[],
                    ),
                    "overlay": _object(
                        "Room for --jail-overlay: a job's own writable layer over the jail, on the node's disk. Without it the option is refused.",
                        {"size": _quantity("How much all jobs of a node together can write there.", _BYTES)},
                        required=("size",),
                    ),
                    "noJailUsers": _list(
                        "Names of users, each one of spec.users, whose jobs may run outside of the jail with --no-jail. It is logged.",
                        _string("A user's name.", _USER, max_length=31),
                        maximum=64,
                        unique=True,
                        default=[],
                    ),
                },
                required=("volume", "populate"),
            ),
            "jails": _list(
                "Further jails, on workers: jobs choose one by --jail=NAME, or by their partition. They have the same users.",
                _object(
                    "A further jail.",
                    {
                        "name": _string("Its name, for --jail. 'default' is the jail of spec.jail.", _LABEL, max_length=20),
                        "volume": volume("The jail's volume, ReadWriteMany."),
                        "populate": _populate(),
                    },
                    required=("name", "volume", "populate"),
                ),
                maximum=8,
                keys=("name",),
                default=[],
            ),
            "groups": _list(
                "Groups of users.",
                _object(
                    "A group.",
                    {
                        "name": _string("Name of the group.", _USER, max_length=31),
                        "gid": _integer("Numeric group id. 60001–65535 are the system's own.", MIN_ID, MAX_ID),
                    },
                    required=("name", "gid"),
                ),
                maximum=1000,
                keys=("name",),
                default=[],
            ),
            "users": _list("Users of the machine.", _user(), maximum=2000, keys=("name",), default=[]),
        },
        required=("images", "controller", "jail"),
        rules=(
            # That partitions name node sets that are there is meaning.py's alone: as a rule its cost is beyond what the API server allows.
            ("self.partitions.filter(p, has(p.default) && p.default).size() <= 1", "only one partition can be the default"),
        ),
    )


def document() -> Schema:
    """The schema of a whole SlurmCluster, as the CRD holds it."""
    return _object(
        "A Slurm cluster on Kubernetes.",
        {
            "apiVersion": {"type": "string", "description": f"Always {API_VERSION}."},
            "kind": {"type": "string", "description": f"Always {KIND}."},
            # Kubernetes lets a schema restrict only the name here.
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 20, "pattern": _LABEL}}},
            "spec": spec(),
            "status": _object(
                "What was seen last. Written by the operator only.",
                {
                    "observedGeneration": {
                        "type": "integer",
                        "format": "int64",
                        "description": "Generation of the spec that was made real last.",
                    },
                    "conditions": _list(
                        "What holds now.",
                        _object(
                            "One condition.",
                            {
                                "type": {"type": "string", "description": "What the condition is about."},
                                "status": {
                                    "type": "string",
                                    "description": "True, False or Unknown.",
                                    "enum": ["True", "False", "Unknown"],
                                },
                                "reason": {"type": "string", "description": "One word for machines."},
                                "message": {"type": "string", "description": "One sentence for people."},
                                "observedGeneration": {
                                    "type": "integer",
                                    "format": "int64",
                                    "description": "Generation that the condition speaks of.",
                                },
                                "lastTransitionTime": {"type": "string", "format": "date-time", "description": "When status changed last."},
                            },
                            required=("type", "status"),
                        ),
                        maximum=32,
                        keys=("type",),
                    ),
                },
            ),
        },
        required=("spec",),
    )


def crd() -> Schema:
    """The CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{PLURAL}.{GROUP}",
            "labels": {"app.kubernetes.io/part-of": "corral", "app.kubernetes.io/managed-by": "corral"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["slc"],
                "categories": ["corral", "all"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"},
                        {"name": "Login", "type": "string", "jsonPath": ".spec.login.service.type"},
                        {"name": "Message", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].message", "priority": 1},
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                    "schema": {"openAPIV3Schema": document()},
                }
            ],
        },
    }
