# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of a SlurmCluster: the one source of the CRD, of the validator, of the static defaults and of the reference page.

It is an OpenAPI v3 structural schema as plain dictionaries, in the subset that Kubernetes allows. Blocks that occur more than once
(volume, resources, placement) are written once. What a pattern means in words stands beside it in PATTERNS, since no user should have to
read a regular expression. Patterns are valid for Python and for Go (RE2), begin with ``^`` and end with ``$``. What holds between fields stands beside
them, too, in the shapes of shapes.py, of which the definition's rules and a run's sentences are made.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import components, health, quantity
from ansible_collections.corral.slurm.plugins.module_utils._cluster.shapes import (
    Condition,
    Refers,
    Rule,
    Rules,
    Unique,
    any_of,
    at_most,
    cel,
    equals,
    excludes,
    filled,
    goes_with,
    has,
    needed_unless,
    one_of,
    only_with,
    unseen,
)

Schema = dict[str, Any]

# The key of a part's rules, which the definition has in the API server's words instead.
RULES = "x-corral-rules"

GROUP = "corral.hpc"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "SlurmCluster"
PLURAL = "slurmclusters"
NODE_SET_KIND = "SlurmNodeSet"
NODE_SET_PLURAL = "slurmnodesets"
TENANTS_KIND = "SlurmTenants"
TENANTS_PLURAL = "slurmtenants"

# Bounds. Slurm: 64 Ki nodes (MAX_SLURM_NODES). Kubernetes: names of 63 and 253 characters, node ports by its default range.
MAX_NODES = 65536
MAX_REPLICAS = 10000
MIN_ID, MAX_ID = 1000, 2_000_000_000
# Values of spec.slurm.auth, which are names of Slurm's plugins too.
AUTH = ("munge", "slurm")
SYSTEM_IDS = (60001, 65535)
# More than any machine has; each is a file and a bit of Slurm's.
MAX_GPUS = 64
GPU_VENDORS = ("nvidia", "amd", "simulated")

_LABEL = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_SUBDOMAIN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_QUALIFIED = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_LABEL_VALUE = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
_IMAGE = "^[A-Za-z0-9][-A-Za-z0-9._:/@]*$"
_CPU = "^([0-9]+|[0-9]+[.][0-9]{1,3}|[0-9]+m)$"
_BYTES = "^[0-9]+([.][0-9]+)?(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$"
_PATH = "^(/[-A-Za-z0-9_.+]+)+$"
_USER = "^[a-z_][a-z0-9_-]*$"
_PARTITION = "^[A-Za-z][-A-Za-z0-9_]*$"
_FEATURE = "^[A-Za-z0-9_][-A-Za-z0-9_.]*$"
_TIME = "^(INFINITE|([0-9]{1,4}-)?[0-9]{1,2}:[0-5][0-9]:[0-5][0-9])$"
# No part begins with a dot, so that none is "..".
_PROFILE_PATH = "^[A-Za-z0-9][-A-Za-z0-9_.]*(/[A-Za-z0-9][-A-Za-z0-9_.]*)*$"
_PROFILE = "^[A-Za-z0-9][-A-Za-z0-9_.]*$"
_SHARING = "^(NO|EXCLUSIVE|(YES|FORCE)(:[0-9]{1,4})?)$"
_SYSCTL = "^[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-_a-z0-9]*[a-z0-9])?)+$"
_VARIABLE = "^[A-Za-z_][A-Za-z0-9_]*$"
_LINE = "^[^\\x00-\\x1f\\x7f]+$"
_EXTENDED = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_SCRIPT = "^#!/[^\\x00]*$"
_TEXT = "^[^\\x00]*$"
_CORES = "^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$"
_LINKS = "^(-1|[0-9]{1,4})(,(-1|[0-9]{1,4}))*$"
_GPU_TYPE = "^[a-z][-a-z0-9_.]*$"
_CIDR = "^[0-9a-fA-F:.]+/[0-9]{1,3}$"
_KIND = "^[A-Z][A-Za-z0-9]*$"
_SHARE = "^([1-9][0-9]{0,4}|([1-9][0-9]?|100)%)$"
_DURATION = "^([0-9]{1,4}-)?[0-9]{1,9}(:[0-9]{2}){0,2}$"
_FAIRSHARE = "^([0-9]{1,10}|parent)$"
_TRES = "^[0-9]{1,15}([.][0-9]{1,3})?[KMGTP]?$"
# What is below such a field is nobody's here.
FREE = "x-kubernetes-preserve-unknown-fields"
# Those of quantities that are amounts.
AMOUNTS = (_CPU, _BYTES)

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
    _PROFILE_PATH: "a path such as corral/worker.json, without a '/' at its beginning and without '..'",
    _PROFILE: "letters, digits, '-', '_' and '.', beginning with a letter or digit",
    _SHARING: "NO, EXCLUSIVE, YES or FORCE, the last two with a number of jobs if wanted, as in FORCE:4",
    _VARIABLE: "letters, digits and '_', not beginning with a digit",
    _LINE: "one line of text without control characters",
    _CORES: "numbers of cores such as 0-47 or 0-23,48-71",
    _LINKS: "numbers of links such as -1,18,2,2",
    _EXTENDED: "the name of an extended resource such as nvidia.com/gpu",
    _TEXT: "a text without the character NUL",
    _SCRIPT: "a script, beginning with #! and a program's path",
    _CIDR: "a network such as 10.20.0.0/16 or 2001:db8::/32",
    _SHARE: "a number of nodes such as 2, or a share of the set such as 25%; at least 1",
    _GPU_TYPE: "lower-case letters, digits, '-', '_' and '.', beginning with a letter",
    _KIND: "a kind such as Service",
    _DURATION: "a number, or a time such as 1-12:00:00 (days-hours:minutes:seconds) in quotes",
    _FAIRSHARE: "a number of shares, or parent",
    _TRES: "a number, of memory with M, G or T if wanted, as in 256G",
}


def _object(
    description: str,
    properties: dict[str, Schema],
    *,
    required: tuple[str, ...] = (),
    default: Any = None,
    rules: Rules = (),
) -> Schema:
    schema: Schema = {"type": "object", "description": description}
    if required:
        schema["required"] = list(required)
    if default is not None:
        schema["default"] = default
    schema["properties"] = properties
    return {**schema, RULES: rules} if rules else schema


def _string(
    description: str,
    pattern: str | None = None,
    *,
    max_length: int = 253,
    min_length: int = 1,
    default: str | None = None,
    enum: tuple[str, ...] = (),
    rules: Rules = (),
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
    return {**schema, RULES: rules} if rules else schema


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
    rules: Rules = (),
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
    return {**schema, RULES: rules} if rules else schema


def _map(description: str, values: Schema, *, maximum: int, default: Any = None) -> Schema:
    schema: Schema = {"type": "object", "description": description, "maxProperties": maximum}
    if default is not None:
        schema["default"] = default
    schema["additionalProperties"] = values
    return schema


def _free(description: str) -> Schema:
    """A mapping that somebody else checks."""
    return {"type": "object", "description": description, "default": {}, FREE: True}


def _number(description: str, maximum: int) -> Schema:
    return {"type": "number", "description": description, "minimum": 0, "maximum": maximum}


def _lines(description: str, line: str) -> Schema:
    return _list(description, _string(line, _LINE, max_length=4096), maximum=256, default=[])


def _parameters(description: str) -> Schema:
    """More Key=Value pairs for a line of slurm.conf. Keys and values are rules.py's to check, for Slurm's keys have no case."""
    return _map(description, _string("The key's value.", _LINE, max_length=1024), maximum=32, default={})


_VOLUME_KINDS = ("claimName", "storageClassName", "hostPath")


_VOLUME_SIZE = "give the size of the claim, such as 10Gi"
_SAME_KIND = "a volume's kind cannot be changed, for its data would be lost"


def _same_kind(at: str = "") -> str:
    return " && ".join(f"has(self{at}.{kind}) == has(oldSelf{at}.{kind})" for kind in _VOLUME_KINDS)


def _volume_properties() -> dict[str, Schema]:
    return {
        "claimName": _string("A PersistentVolumeClaim that exists in the cluster's namespace. It is never changed or removed.", _SUBDOMAIN),
        "storageClassName": _string("A storage class; a claim of it is made, of the size given.", _SUBDOMAIN),
        "hostPath": _string(
            "A directory of the Kubernetes nodes; a volume and a claim are made for it. It must be the same files on "
            "all nodes that pods may land on, so a mounted shared filesystem, or a single node.",
            _PATH,
            max_length=200,
        ),
        "size": _quantity("Size of the claim that is made, such as 10Gi. Goes with storageClassName and hostPath.", _BYTES),
    }


def volume(description: str, more: dict[str, Schema] | None = None, *rules: Rule) -> Schema:
    """A volume: a claim that exists, a claim of a storage class, or a directory of the nodes; with ``more`` fields, and their rules."""
    kind = (one_of(*_VOLUME_KINDS), goes_with("size", *_VOLUME_KINDS[1:], needed=_VOLUME_SIZE), *rules)
    description = f"{description} Exactly one of claimName, storageClassName and hostPath."
    return _object(description, {**_volume_properties(), **(more or {})}, rules=(kind, unseen(_same_kind(), _SAME_KIND)))


def _paired_volume(description: str, second: str) -> Schema:
    """A volume which one pod mounts or two; ``second`` is what the second runs."""
    access = _string(
        f"How the claim that is made can be mounted: by one Kubernetes node, or by several at once, which a second {second} needs. A claim keeps it "
        "for life. Goes with storageClassName and hostPath.",
        enum=("ReadWriteOnce", "ReadWriteMany"),
    )
    return volume(description, {"accessMode": access}, goes_with("accessMode", *_VOLUME_KINDS[1:]))


def _mounted_by_both(name: str, second: str, page: str, otherwise: Condition | None = None) -> Rule:
    """A pair of pods is on two nodes, as a rule, and needs the same files."""
    alone = equals("replicas", 1) | otherwise if otherwise else equals("replicas", 1)

    def message(pair: Schema, path: str) -> str:
        found: Schema = functools.reduce(lambda outer, field: outer[field], name.split("."), pair)
        return (
            f"{path}.replicas is {pair['replicas']}, but {path}.{name}.accessMode is {found.get('accessMode', 'ReadWriteOnce')}, a volume for one Kubernetes "
            f"node; set it to ReadWriteMany, with a storage class or directory that all nodes share ({page})."
        )

    return Rule(
        alone | has(f"{name}.claimName") | (has(f"{name}.accessMode") & equals(f"{name}.accessMode", "ReadWriteMany")),
        f"two {second} need a volume {name} with accessMode: ReadWriteMany",
        message,
    )


def _jail() -> Schema:
    """The default jail. What its volume may say depends on ``shared``, so the volume's rules stand here."""
    shared = equals("shared", True)
    return _object(
        "The jail: the root filesystem that users see as /.",
        {
            "shared": _boolean(
                "true: one volume is the root of all nodes. false: each worker and login pod has a root of its own, filled from populate.image "
                "when the pod is made, and gone with it; homes and data then come by subMounts.",
                True,
            ),
            "volume": _object(
                "The jail's volume, ReadWriteMany: exactly one of claimName, storageClassName and hostPath. With shared: false a volume of each "
                "pod's own: size alone is a part of the Kubernetes node's disk, size with storageClassName a claim for each pod.",
                _volume_properties(),
            ),
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
                rules=(Refers("users", "who is not in", advice="add the user, or remove the name"),),
            ),
            "noJailDespiteSudo": _boolean(
                "Allows noJailUsers in a cluster whose users have sudo. Each of those can then become root of the workers' pods: as root of the jail they "
                "become a user whose job runs outside, and take that job's process over.",
                False,
            ),
        },
        required=("volume", "populate"),
        rules=(
            (
                one_of(*_VOLUME_KINDS, at="volume", when=shared),
                goes_with("size", *_VOLUME_KINDS[1:], needed=_VOLUME_SIZE, at="volume", when=shared),
            ),
            unseen(f"!self.shared || ({_same_kind('.volume')})", _SAME_KIND),
            (
                Rule(
                    shared | ~(has("volume.claimName") | has("volume.hostPath")),
                    "a jail of each pod's own has no volume that is one for all pods",
                    lambda jail, path: (
                        f"{path}.volume has {' and '.join(kind for kind in ('claimName', 'hostPath') if kind in jail['volume'])}, which is one for all "
                        f"pods, but {path}.shared is false: give size alone for a part of the nodes' own disks, or size and storageClassName for a claim "
                        "of each pod."
                    ),
                ),
                Rule(
                    shared | has("volume.size"),
                    "a jail of each pod's own has a volume of size, with storageClassName or without",
                    lambda _jail, path: f"{path}.volume.size is missing; give the largest size of each pod's root, such as 50Gi.",
                ),
            ),
            Rule(
                shared | ~equals("populate.policy", "Never"),
                "a jail of each pod's own is filled from populate.image, so its policy is IfEmpty",
                lambda _jail, path: (
                    f"{path}.populate.policy is Never, but with {path}.shared: false each pod's root begins empty: remove policy, and name an image."
                ),
            ),
            unseen("self.shared == oldSelf.shared", "shared cannot be changed: users would no longer see their files"),
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


def host_users() -> dict[str, Schema]:
    """A pod's user namespace, as a property."""
    return {
        "hostUsers": _boolean(
            "false: the pods have a user namespace of their own, so that their root is nobody on the Kubernetes node. Needs a container runtime and volumes "
            "that can do it, and ids of users below 65536 (docs/security.md). Without it, Kubernetes' default: the node's own users."
        )
    }


def placement() -> dict[str, Schema]:
    """nodeSelector and tolerations, as two properties."""
    exists = has("operator") & equals("operator", "Exists")
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
                rules=(
                    Rule(
                        has("key") | exists,
                        "a toleration without key has operator: Exists",
                        lambda _one, path: f"{path} has no key, which goes with operator: Exists alone; name the taint's key.",
                    ),
                    Rule(
                        ~exists | ~has("value") | equals("value", ""),
                        "value goes with operator: Equal",
                        lambda _one, path: f"{path}.value goes with operator: Equal, but it is Exists; remove one of them.",
                    ),
                    Rule(
                        ~has("tolerationSeconds") | (has("effect") & equals("effect", "NoExecute")),
                        "tolerationSeconds goes with effect: NoExecute",
                        lambda _one, path: f"{path}.tolerationSeconds goes with effect: NoExecute; set that, or remove it.",
                    ),
                ),
            ),
            maximum=32,
            default=[],
        ),
    }


def _expressions(description: str, operators: tuple[str, ...]) -> Schema:
    return _list(
        description,
        _object(
            "A key, an operator, and the values that it takes.",
            {
                "key": _string("A label's key.", _QUALIFIED, max_length=317),
                "operator": _string("How the label's value is compared.", enum=operators),
                "values": _list("Values to compare with.", _string("A value.", _LABEL_VALUE, max_length=63, min_length=0), maximum=256),
            },
            required=("key", "operator"),
        ),
        maximum=32,
    )


def _affinity() -> Schema:
    """As a pod has it, every field: what a schema does not know could be of any depth and size."""
    weight = _integer("How much it counts beside others.", 1, 100)
    node_term = {
        "matchExpressions": _expressions("Labels of the node.", ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")),
        "matchFields": _expressions("Fields of the node: metadata.name.", ("In", "NotIn")),
    }
    selector = _object(
        "Pods by their labels.",
        {
            "matchLabels": _map("Labels that they must have.", _string("A value.", _LABEL_VALUE, max_length=63, min_length=0), maximum=32),
            "matchExpressions": _expressions("Labels of the pods.", ("In", "NotIn", "Exists", "DoesNotExist")),
        },
    )
    keys = _list("Keys of labels of the pod itself.", _string("A label's key.", _QUALIFIED, max_length=317), maximum=32)
    pod_term = {
        "labelSelector": selector,
        "namespaces": _list("Namespaces of the pods.", _string("A namespace.", _SUBDOMAIN, max_length=63), maximum=64),
        "namespaceSelector": {**selector, "description": "Namespaces of the pods by their labels."},
        "topologyKey": _string(
            "Label of the Kubernetes nodes whose value is the same where pods are together.", _QUALIFIED, max_length=317
        ),
        "matchLabelKeys": keys,
        "mismatchLabelKeys": keys,
    }
    required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"

    def pods(description: str) -> Schema:
        term = _object("Which pods, and what together means.", pod_term, required=("topologyKey",))
        weighted = _object("A preference.", {"weight": weight, "podAffinityTerm": term}, required=("weight", "podAffinityTerm"))
        return _object(
            description,
            {required: _list("What must be.", term, maximum=16), preferred: _list("What is wanted.", weighted, maximum=16)},
        )

    term = _object("What a node must fulfil, all of it.", node_term)
    preference = _object("A preference.", {"weight": weight, "preference": term}, required=("weight", "preference"))
    terms = _list("One of these must fit.", term, maximum=16, minimum=1)
    return _object(
        "Affinity of the pods, as in a pod, for what nodeSelector cannot express.",
        {
            "nodeAffinity": _object(
                "Kubernetes nodes by their labels, as in a pod.",
                {
                    required: _object("What must be.", {"nodeSelectorTerms": terms}, required=("nodeSelectorTerms",)),
                    preferred: _list("What is wanted.", preference, maximum=16),
                },
            ),
            "podAffinity": pods("Near which pods, as in a pod."),
            "podAntiAffinity": pods("Away from which pods, as in a pod."),
        },
        default={},
    )


def confinement(default: str | None = None) -> dict[str, Schema]:
    """Seccomp and AppArmor, as two properties."""
    return {
        "seccomp": _string(
            "Which system calls the pods may make. Unconfined: all; works on every node. Localhost: those of corral's profile, a file that must be "
            "on the nodes (corral.slurm.node_profiles puts it there). The runtime's own profile is no choice: it refuses pivot_root.",
            enum=("Unconfined", "Localhost"),
            default=default,
        ),
        "appArmor": _string(
            "AppArmor's profile of the pods. Unconfined: none; works on every node. Localhost: corral's, which must be loaded on the nodes. The "
            "runtime's own is no choice: it refuses mounts.",
            enum=("Unconfined", "Localhost"),
            default=default,
        ),
    }


def draining(
    default: Any = None,
    *,
    policy: str | None = None,
    deadline: int | None = None,
    nodes: str = "nodes that leave the document. They are drained first and never taken away while a job is on them",
) -> Schema:
    """What becomes of the jobs on nodes that go."""

    def how(policy: str | None, deadline: int | None) -> dict[str, Schema]:
        return {
            "policy": _string(
                "Wait: until the jobs end by themselves. Requeue: after the deadline they are put back into the queue, and those that cannot be are "
                "waited for. Cancel: after the deadline they are cancelled.",
                enum=("Wait", "Requeue", "Cancel"),
                default=policy,
            ),
            "deadlineSeconds": _integer("Seconds from the drain to Requeue or Cancel.", 0, 2**31 - 1, deadline),
        }

    rule = _object(
        "Jobs of these partitions and QoS; with both, a job must be of both.",
        {
            "partitions": _list(
                "Names of partitions.",
                _string("A partition.", _PARTITION, max_length=64),
                maximum=32,
                unique=True,
                default=[],
                rules=(Refers("partitions", advice="correct the name"),),
            ),
            "qos": _list("Names of QoS.", _string("A QoS.", _PROFILE, max_length=64), maximum=32, unique=True, default=[]),
            **how(None, 3600),
        },
        required=("policy",),
        rules=(any_of("partitions", "qos", verb="names", then="so it would be for all jobs; name some, or set the policy of all"),),
    )
    jobs = _list(
        "Jobs with a policy of their own, by their partition or QoS. The first entry that fits a job counts.",
        rule,
        maximum=16,
        default=None if policy is None else [],
    )
    return _object(f"What becomes of jobs on {nodes}.", {**how(policy, deadline), "jobs": jobs}, default=default)


def updating(*, whole: bool = False) -> Schema:
    """How nodes get another image or pod template; ``whole`` for what holds where a node set says nothing else."""
    share = _quantity(
        "RollingUpdate: how many nodes of a set may be out of service at once, whatever the reason; nodes that others have drained, or that are down, count. "
        "Maintenance: how many pods are replaced at once. A share is rounded up.",
        _SHARE,
    )
    return _object(
        "How nodes get another image or pod template. A pod is never replaced while a job is on its node.",
        {
            "type": _string(
                "RollingUpdate: nodes are drained and replaced, some at a time. Maintenance: the same, while a Slurm reservation with the flag MAINT "
                "holds them. OnDelete: whoever deletes a pod replaces it.",
                enum=("RollingUpdate", "Maintenance", "OnDelete"),
                default="RollingUpdate" if whole else None,
            ),
            "maxUnavailable": {**share, **({"default": "25%"} if whole else {})},
            "drain": draining(
                default={},
                policy="Wait" if whole else None,
                deadline=3600 if whole else None,
                nodes="nodes whose pods are to be replaced. They are drained first",
            ),
        },
        default={},
    )


def syncing() -> Schema:
    """What Kubernetes nodes that go mean for Slurm, and Slurm's nodes for evictions."""
    return _object(
        "What the playbook sync or the operator exchanges between Slurm and Kubernetes about nodes.",
        {
            "taints": _list(
                "Keys of taints (NoSchedule or NoExecute) that announce the removal of a Kubernetes node; the Slurm nodes on it are drained. "
                "node.kubernetes.io/unschedulable stands for a cordon.",
                _string("A taint's key.", _QUALIFIED, max_length=317),
                maximum=64,
                unique=True,
                default=[
                    "node.kubernetes.io/unschedulable",
                    "ToBeDeletedByClusterAutoscaler",
                    "karpenter.sh/disrupted",
                    "node.kubernetes.io/out-of-service",
                ],
            ),
            "kubernetesNodeConditions": _list(
                "Types of conditions of Kubernetes nodes that are bad when they are True, such as KernelDeadlock of the node problem "
                "detector; the Slurm nodes there are drained.",
                _string("A condition's type.", _QUALIFIED, max_length=317),
                maximum=64,
                unique=True,
                default=[],
            ),
            "eviction": _string(
                "Which worker pods Kubernetes may evict. WhenDrained: those on Kubernetes nodes that are to be emptied, once "
                "Slurm has drained their node and no job is on it. "
                "WhenIdle: those without a job; one that comes in the moment of the eviction is lost. Always: all, with their jobs.",
                enum=("WhenDrained", "WhenIdle", "Always"),
                default="WhenDrained",
            ),
        },
        default={},
    )


def _pod_volumes(whose: str) -> Schema:
    return _list(
        f"More volumes of {whose}, for what the administrator's own scripts and daemons need there. Users do not see them; volumes for users "
        "are in spec.jail.subMounts.",
        _object(
            "A volume. Exactly one of configMap, secret, claimName, hostPath, memory and scratch.",
            {
                "name": _string("Its name.", _LABEL, max_length=40),
                "mountPath": _string(
                    "Where it is in the container. Paths on which the cluster depends are refused.", _PATH, max_length=200
                ),
                "subPath": _string("A file or directory of the volume, to be mounted instead of its root.", _PROFILE_PATH),
                "configMap": _string("A ConfigMap that exists in the cluster's namespace. Read-only.", _SUBDOMAIN),
                "secret": _string("A Secret that exists in the cluster's namespace. Read-only, and root's alone.", _SUBDOMAIN),
                "claimName": _string("A PersistentVolumeClaim that exists in the cluster's namespace.", _SUBDOMAIN),
                "hostPath": _string("A directory that exists on each Kubernetes node.", _PATH, max_length=200),
                "memory": _quantity("Size of a filesystem in the pod's memory, new with each pod; it counts as the pod's memory.", _BYTES),
                "scratch": _quantity("Size of a directory on the Kubernetes node's own disk, new with each pod.", _BYTES),
                "readOnly": _boolean("Whether it can only be read.", False),
            },
            required=("name", "mountPath"),
            rules=(one_of("configMap", "secret", "claimName", "hostPath", "memory", "scratch"),),
        ),
        maximum=32,
        keys=("name",),
        default=[],
        rules=(Unique("mountPath"),),
    )


def _init_scripts(daemon: str, failure: str) -> Schema:
    return _list(
        f"Scripts that are run one after the other as root in the pod, outside of the jail, each time before {daemon} starts. While one fails, {failure}.",
        _object(
            "A script: its text, or a key of a ConfigMap.",
            {
                "name": _string("Its name, for reasons and logs.", _LABEL, max_length=40),
                "script": _string("Its text, beginning with a line such as #!/bin/bash.", _SCRIPT, min_length=4, max_length=32768),
                "configMap": _object(
                    "A ConfigMap that exists in the cluster's namespace.",
                    {"name": _string("Its name.", _SUBDOMAIN), "key": _string("The key that holds the text.", _PROFILE, max_length=253)},
                    required=("name", "key"),
                ),
                "timeoutSeconds": _integer("How long it may take.", 1, 3600, 60),
            },
            required=("name",),
            rules=(one_of("script", "configMap", what="text"),),
        ),
        maximum=16,
        keys=("name",),
        default=[],
    )


def _probes(daemon: str, *, startup: str, failures: int, readiness: str, liveness: str) -> Schema:
    """Times of a daemon's probes; so many failures end a start.

    A probe costs a Kubernetes node 35 to 100 ms of a CPU, whatever it reads (`runc exec`, measured with 20 and with 350 containers): at a start it
    waits, so that many that start together do not keep each other from it. The container of a daemon that ends ends with it, unasked:
    liveness is for those that hang.
    """

    def probe(text: str, period: int, timeout: int, failures: int | None = None) -> Schema:
        properties = {
            "periodSeconds": _integer("Time from one probe to the next.", 1, 3600, period),
            "timeoutSeconds": _integer("How long a probe may take.", 1, 3600, timeout),
        }
        if failures is not None:
            properties["failureThreshold"] = _integer("After how many failures in a row.", 1, 3600, failures)
        return _object(text, properties, default={})

    return _object(
        f"How Kubernetes probes {daemon}, for Kubernetes nodes that are slower than others.",
        {
            "startup": probe(
                "Has it started? A probe waits for it, half of timeoutSeconds. After failureThreshold probes the container is restarted."
                + startup,
                1,
                20,
                failures,
            ),
            "readiness": probe(readiness, 30, 10),
            "liveness": probe(liveness, 120, 30, 3),
        },
        default={},
    )


def _health() -> Schema:
    return _object(
        "The health checks of nodes. A node that fails one is drained, with a reason that begins with corral: health:, and resumed when it is well again.",
        {
            "enabled": _boolean("false: no node is checked, so a node that cannot enter its jail stays in service.", True),
            "intervalSeconds": _integer("Time from one run of all checks on a node to the next.", 10, 86400, 60),
            "guardPercent": _integer(
                "The share of all nodes that one check may drain, one node at least. Further nodes stay in service, and their comments say so.",
                1,
                100,
                25,
            ),
            "disabledChecks": _list(
                "Checks of the catalogue that are not run, see docs/health.md.",
                _string("A check.", enum=health.CHECKS),
                maximum=64,
                unique=True,
                default=[],
            ),
            "thresholds": _object(
                "Limits of checks on all nodes.",
                {
                    "diskPercent": _integer("From what use on a file system is full.", 1, 100, 95),
                    "inodePercent": _integer("The same for its inodes.", 1, 100, 95),
                    "memoryPercent": _integer("How much of the memory in slurm.conf a node must have.", 1, 100, 97),
                    "clockOffsetMilliseconds": _integer("How far the clock may be off.", 1, 60000, 100),
                    "infinibandPorts": _integer("How many InfiniBand ports of a node must be up. Without it, those that were.", 1, 64),
                    "infinibandGbps": _integer("Their rate. Without it, the best that each had.", 1, 10000),
                },
                default={},
            ),
            "gpuThresholds": _list(
                "Limits of checks on nodes with GPUs of a type.",
                _object(
                    "The limits of one type.",
                    {
                        "type": _string("The type, as in gpu.type of a node set.", _GPU_TYPE, max_length=63),
                        "nvlinks": _integer("How many NVLinks of each GPU must be up. Without it, those there are.", 1, 64),
                        "pcieWidth": _integer("How many PCIe lanes each GPU must have. Without it, as many as it can have.", 1, 32),
                        "pcieGeneration": _integer("The generation of the PCIe link while the GPU is busy.", 1, 8),
                        "temperatureCelsius": _integer(
                            "From what temperature on it is too hot. Without it, where its hardware slows it down.", 1, 150
                        ),
                        "correctedErrors": _integer("How many corrected memory errors are too many. Without it, 20 million.", 1, 2**40),
                        "idleMemoryMebibytes": _integer("How much memory may be in use without a job. Without it, 1024.", 1, 2**20),
                    },
                    required=("type",),
                ),
                maximum=64,
                keys=("type",),
                default=[],
            ),
            "checks": _list(
                "Further checks. One ends with 0 if all is well; with 2 and a line on stdout, which becomes the reason, if not; with 1 and a line for a "
                "warning, which only the node's comment has. Anything else, such as a time-out, is a broken check and drains nothing.",
                _object(
                    "A check: a script, or a command.",
                    {
                        "name": _string("Its name, for reasons.", _LABEL, max_length=40),
                        "script": _string("Its text, beginning with a line such as #!/bin/bash.", _SCRIPT, min_length=4, max_length=8192),
                        "command": _list(
                            "A program with its arguments.", _string("A word.", _LINE, max_length=1024), minimum=1, maximum=64
                        ),
                        "in": _string(
                            "Where it runs, as root: in the pod, or in the jail, where whoever has root there decides about its result.",
                            enum=("Pod", "Jail"),
                            default="Pod",
                        ),
                        "contexts": _list(
                            "When it runs. Start: once, when slurmd starts. Interval: later. What failed runs until it is well again.",
                            _string("A context.", enum=("Start", "Interval")),
                            minimum=1,
                            maximum=8,
                            unique=True,
                            default=["Start", "Interval"],
                        ),
                        "timeoutSeconds": _integer("How long it may take. All checks of a run together may take 40.", 1, 30, 10),
                        "onFailure": _string(
                            "Drain: the node is drained until it is well again. Comment: the node's comment says so. Log: only the log and metrics do.",
                            enum=("Drain", "Comment", "Log"),
                            default="Drain",
                        ),
                    },
                    required=("name",),
                    rules=(one_of("script", "command"),),
                ),
                maximum=16,
                keys=("name",),
                default=[],
            ),
            "prolog": _object(
                "What slurmd runs as root in the pod before each job, on each of its nodes. Where it fails, the node is drained and the job requeued.",
                {
                    "checks": _hook_checks(
                        "Checks that are run anew before each job, which costs its start some tenths of a second. Without any, the last run counts."
                    ),
                    "scripts": _hook_scripts(
                        "Scripts that are run after the checks, in this order. The last line that one prints on stdout is the reason of its failure.",
                        "the job does not begin on this node",
                    ),
                },
                default={},
            ),
            "epilog": _object(
                "What slurmd runs as root in the pod after each job, on each of its nodes. The node takes no other job in the place of this one before.",
                {
                    "killLeftovers": _boolean(
                        "Kill the processes that the job's user left on the node outside of every job, if the user has no other job there.",
                        True,
                    ),
                    "scripts": _hook_scripts(
                        "Scripts that are run in this order, whatever becomes of one.", "nothing else becomes of the job"
                    ),
                    "checks": _hook_checks("Checks that are run after each job, and after the scripts."),
                },
                default={},
            ),
            "gpuJobMapping": _string(
                "A directory of the pods, mounted by volumes of the node sets, where dcgm-exporter finds the jobs: a file for each GPU.",
                _PATH,
                max_length=200,
            ),
        },
        default={},
    )


def _hook_checks(description: str) -> Schema:
    return _list(
        description,
        _string("The name of a check, of the catalogue (docs/health.md) or of checks.", _LABEL, max_length=40),
        maximum=64,
        unique=True,
        default=[],
    )


def _hook_scripts(description: str, besides: str) -> Schema:
    return _list(
        description,
        _object(
            "A script, a command, or a directory of the pod whose executable files are run in the order of their names.",
            {
                "name": _string("Its name, for reasons and logs.", _LABEL, max_length=40),
                "script": _string("Its text, beginning with a line such as #!/bin/bash.", _SCRIPT, min_length=4, max_length=32768),
                "command": _list("A program with its arguments.", _string("A word.", _LINE, max_length=1024), minimum=1, maximum=64),
                "directory": _string("A directory, such as one that a volume of the node set brings.", _PATH, max_length=200),
                "timeoutSeconds": _integer("How long it may take, or each file of a directory. Longer is a failure.", 1, 600, 10),
                "onFailure": _string(
                    f"Drain: the node is drained, and {besides}; except where scripts have drained guardPercent of all nodes. DrainAlways: the same without "
                    "the exception. Log: only the log says so.",
                    enum=("Drain", "DrainAlways", "Log"),
                    default="Drain",
                ),
            },
            required=("name",),
            rules=(one_of("script", "command", "directory"),),
        ),
        maximum=16,
        keys=("name",),
        default=[],
    )


# Of scripts that are run before a daemon starts.
_AND_SCRIPTS = " Time-outs of initScripts are added."


def _topology() -> Schema:
    return _object(
        "Which nodes are near one another, so that Slurm places jobs close together. Each node set has its place in it. Without it, all nodes are alike.",
        {
            "plugin": _string(
                "Tree: switches above nodes, jobs get as few switches as can be. Block: blocks of nodes that jobs do not cut up.",
                enum=("Tree", "Block"),
            ),
            "switches": _list(
                "With Tree: the switches above those of the node sets. Without any, one above all.",
                _object(
                    "A switch.",
                    {
                        "name": _string("Its name.", _LABEL, max_length=63),
                        "switches": _list(
                            "Names of what hangs below it: switches of node sets, or of this list.",
                            _string("A switch's name.", _LABEL, max_length=63),
                            minimum=1,
                            maximum=256,
                            unique=True,
                        ),
                    },
                    required=("name", "switches"),
                ),
                maximum=256,
                keys=("name",),
                default=[],
            ),
            "blockSizes": _list(
                "With Block: how many nodes Slurm plans with: first those of one block, then twice, four times, … as many. Without it, the smallest block's.",
                _integer("Number of nodes.", 1, MAX_NODES),
                maximum=16,
                default=[],
            ),
        },
        required=("plugin",),
        rules=(only_with("switches", "plugin", "Tree", test=filled), only_with("blockSizes", "plugin", "Block", test=filled)),
    )


def _gpu() -> Schema:
    return _object(
        "GPUs of each node of the set. The pod gets them from Kubernetes, and Slurm gives them to jobs (--gres=gpu:2, --gpus=2). Without it, none.",
        {
            "vendor": _string(
                "nvidia, amd: the devices that the vendor's device plugin gives the pod. simulated: none at all, but the same for Slurm and for "
                "jobs, to try a cluster without GPUs.",
                enum=GPU_VENDORS,
            ),
            "count": _integer("GPUs of a node.", 1, MAX_GPUS, 1),
            "type": _string("Their type, for --gres=gpu:<type>:2, such as h100.", _GPU_TYPE, max_length=63),
            "cores": _list(
                "Which of the node's cores are near which GPUs, by Slurm's numbers from 0: one entry for the first GPUs, one for the next, "
                "each for as many as the others. Without it, all are alike to Slurm.",
                _string("Cores such as 0-47 or 0-23,48-71.", _CORES, max_length=253),
                maximum=MAX_GPUS,
                minimum=1,
            ),
            "links": _list(
                "How near the GPUs are to one another, one entry for each in the order of the driver's numbers: how many links it has to each of them, and -1 "
                "to itself. Without it, all are alike to Slurm.",
                _string("Numbers such as -1,18,2,2.", _LINKS, max_length=400),
                maximum=MAX_GPUS,
                minimum=2,
            ),
            "resourceName": _string(
                "What the device plugin offers, such as nvidia.com/mig-3g.40gb. Without it, nvidia.com/gpu or amd.com/gpu.",
                _EXTENDED,
                max_length=253,
            ),
            "runtimeClassName": _string(
                "The RuntimeClass that brings driver and devices into a container, where the nodes' default runtime does not, such as nvidia.",
                _SUBDOMAIN,
            ),
        },
        required=("vendor",),
        rules=tuple(only_with(field, "vendor", "nvidia", "amd") for field in ("resourceName", "runtimeClassName")),
    )


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
            "replicas": _integer("Number of nodes; with scale, the number that the set begins with.", 0, MAX_REPLICAS, 1),
            "scale": _object(
                "The number of nodes is set by kubectl scale or an autoscaler, on the SlurmNodeSet <cluster>-<name>. The definition of SlurmNodeSets "
                "comes with the operator; without it, the number is replicas.",
                {
                    "minReplicas": _integer("Fewest nodes, whatever is asked for.", 0, MAX_REPLICAS, 0),
                    "maxReplicas": _integer("Most nodes, whatever is asked for.", 1, MAX_REPLICAS),
                },
                required=("maxReplicas",),
                rules=(at_most("minReplicas", "maxReplicas"),),
            ),
            "resources": resources(
                "Size of a node. Slurm's CPUs are the whole CPUs of limits.cpu (else of requests.cpu); RealMemory is "
                "limits.memory less 128 MiB for slurmd itself.",
                memory_limit=True,
            ),
            "gpu": _gpu(),
            "topology": _object(
                "Where the set's nodes are, by the names in spec.slurm.topology. Several sets can be at one place.",
                {
                    "switch": _string("Name of the switch that they hang on, with plugin Tree.", _LABEL, max_length=63),
                    "block": _string("Name of the block that they are in, with plugin Block.", _LABEL, max_length=63),
                },
                # Which of them, a run says by the plugin.
                rules=(replace(one_of("switch", "block"), says=None),),
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
            "drain": draining(default={}),
            "updateStrategy": updating(),
            "security": _object(
                "Where this set's nodes differ from spec.security, such as nodes that profiles cannot be put on.",
                confinement(),
                default={},
            ),
            "extraNodeParameters": _parameters(
                'More of the set\'s line in slurm.conf, as Key: value, such as {TmpDisk: "102400"}. Keys that other fields set are refused.'
            ),
            "environment": _list(
                "Variables of slurmd's container, seen by slurmd and by the scripts that it runs as root (Prolog, Epilog). Jobs have their own environment.",
                _object(
                    "One variable.",
                    {
                        "name": _string(
                            "Its name. POD_NAME, POD_IP and names that begin with CORRAL_ or SLURM_ are corral's own.", _VARIABLE
                        ),
                        "value": _string(
                            "Its value. Kubernetes replaces $(NAME) by a variable that stands before it.",
                            _TEXT,
                            max_length=4096,
                            min_length=0,
                        ),
                    },
                    required=("name", "value"),
                ),
                maximum=64,
                keys=("name",),
                default=[],
            ),
            "sysctls": _list(
                "Settings of the kernel for the set's pods, of those that Kubernetes calls safe: they are the pod's own and change nothing for its neighbours.",
                _object(
                    "One setting.",
                    {
                        "name": _string("Its name, such as net.ipv4.tcp_keepalive_time.", _SYSCTL),
                        "value": _string('Its value, as text: "600".', max_length=253),
                    },
                    required=("name", "value"),
                ),
                maximum=16,
                keys=("name",),
                default=[],
            ),
            "volumes": _pod_volumes("slurmd's container"),
            "initScripts": _init_scripts("slurmd", "the node is out of service, with the script's last line as the reason"),
            "probes": _probes(
                "slurmd",
                startup=_AND_SCRIPTS,
                failures=30,
                readiness="Does it work, with its configuration and the jail? Who waits for the node waits for that.",
                liveness="Does it run at all? If not, the container is started again, which ends the node's jobs.",
            ),
            **host_users(),
            **placement(),
            "affinity": _affinity(),
            "onePodPerNode": _boolean("Whether no two pods of this set may be on the same Kubernetes node.", False),
            "topologySpread": _list(
                "How the set's pods are spread over racks, zones and the like.",
                _object(
                    "One spread: pods are counted for each value of the label.",
                    {
                        "topologyKey": _string(
                            "Label of the Kubernetes nodes, such as topology.kubernetes.io/zone.", _QUALIFIED, max_length=317
                        ),
                        "maxSkew": _integer("By how many pods two values of the label may differ.", 1, MAX_REPLICAS, 1),
                        "whenUnsatisfiable": _string(
                            "ScheduleAnyway: as well as can be. DoNotSchedule: a pod waits until it fits.",
                            enum=("ScheduleAnyway", "DoNotSchedule"),
                            default="ScheduleAnyway",
                        ),
                    },
                    required=("topologyKey",),
                ),
                maximum=8,
                keys=("topologyKey",),
                default=[],
            ),
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
        rules=(
            needed_unless(
                "image", "policy", "Never", "name the image whose root becomes the jail, or set policy: Never for a volume that is filled"
            ),
        ),
    )


def _sub_mount() -> Schema:
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
                rules=(Refers("nodeSets"),),
            ),
        },
        required=("path",),
        rules=(
            (
                one_of("claimName", "storageClassName", "hostPath", "memory", "scratch"),
                goes_with("size", "storageClassName", needed=_VOLUME_SIZE),
            ),
        ),
    )


# Of ids.
_NUMBER = "each number can occur once"


def _user() -> Schema:
    return _object(
        "A user of the cluster: an account in the jail, with the same ids on all nodes.",
        {
            "name": _string("Login name.", _USER, max_length=31),
            "uid": _integer("Numeric user id. 60001–65535 are the system's own.", MIN_ID, MAX_ID),
            "gid": _integer(
                "Numeric id of the primary group: one of spec.groups. Without it the user gets a group of their own, with their name and uid.",
                MIN_ID,
                MAX_ID,
            ),
            "groups": _list(
                "Names of further groups, each one of spec.groups.",
                _string("A group's name.", _USER, max_length=31),
                maximum=256,
                unique=True,
                default=[],
                rules=(Refers("groups", advice="add it there"),),
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


def _sssd() -> Schema:
    return _object(
        "Users of an LDAP directory beside those of spec.users: sssd in every pod of Slurm. Without it there is none.",
        {
            "image": _string("Image of sssd, built from images/sssd.", _IMAGE, max_length=512),
            "configSecret": _string(
                "A Secret that exists in the cluster's namespace, with the key sssd.conf: how the directory is reached. Its other keys lie "
                "beside it in /etc/corral/sssd.",
                _SUBDOMAIN,
            ),
            "caConfigMap": _string(
                "A ConfigMap that exists in the cluster's namespace, with the certificates (PEM) of the authorities that may sign the directory's.",
                _SUBDOMAIN,
            ),
            "homes": _string(
                "Directory of the jail below which the home of a user is made at the first login, where it is missing. Others are not made.",
                _PATH,
                max_length=200,
                default="/home",
            ),
            "debugLevel": _integer("How much of sssd's own log is shown beside its sentences, by sssd's levels.", 0, 9, 0),
            "resources": resources(
                "Size of sssd's container in each pod; its cache lies in memory.",
                default={"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
            ),
        },
        required=("image", "configSecret"),
    )


def _partition() -> Schema:
    def names(description: str, item: str, pattern: str, length: int) -> Schema:
        return _list(description, _string(item, pattern, max_length=length), minimum=1, maximum=256, unique=True)

    return _object(
        "A Slurm partition. Where a field is left out, Slurm's own default holds.",
        {
            "name": _string("Name of the partition. DEFAULT is reserved by Slurm.", _PARTITION, max_length=64),
            "nodeSets": _list(
                "Names of node sets. Without it, all.",
                _string("A node set's name.", _LABEL, max_length=50),
                maximum=256,
                unique=True,
                rules=(Refers("nodeSets"),),
            ),
            "default": _boolean("Whether jobs without -p go here. If it is true for none, the first partition for which it is not false."),
            "jail": _string(
                "Jail of the jobs without --jail: one of spec.jails, or default.",
                _LABEL,
                max_length=20,
                default="default",
                rules=(Refers("jails", "which is no jail of", also=("default",)),),
            ),
            "maxTime": _string("Longest time of a job: INFINITE or D-HH:MM:SS.", _TIME, max_length=24, default="INFINITE"),
            "state": _string(
                "UP takes and runs jobs, DOWN takes them, DRAIN runs those it has, INACTIVE neither.",
                enum=("UP", "DOWN", "DRAIN", "INACTIVE"),
                default="UP",
            ),
            "defaultTime": _string("Time of a job that asks for none: INFINITE or D-HH:MM:SS. Without it, maxTime.", _TIME, max_length=24),
            "minNodes": _integer("Fewest nodes of a job.", 0, MAX_NODES),
            "maxNodes": _integer("Most nodes of a job.", 1, MAX_NODES),
            "maxCpusPerNode": _integer("Most CPUs of a node that all jobs of the partition together can have.", 1, 65533),
            "defMemPerCpu": _quantity("Memory for each CPU of a job that asks for none, such as 4Gi.", _BYTES),
            "defMemPerNode": _quantity("Memory on each node for a job that asks for none.", _BYTES),
            "maxMemPerCpu": _quantity("Most memory for each CPU of a job.", _BYTES),
            "maxMemPerNode": _quantity("Most memory of a job on each node.", _BYTES),
            "priorityTier": _integer("Jobs of a higher tier are scheduled first, and can preempt those of lower ones.", 0, 65533),
            "priorityJobFactor": _integer("The partition's part of a job's priority, weighed by PriorityWeightPartition.", 0, 65533),
            "preemptMode": _string(
                "What becomes of this partition's jobs when they are preempted. Needs PreemptType=preempt/partition_prio in spec.slurm.extraConfig.",
                enum=("OFF", "CANCEL", "REQUEUE", "GANG", "SUSPEND,GANG"),
            ),
            "graceTime": _integer("Seconds from a job's first warning to its preemption.", 0, 2**31 - 1),
            "overSubscribe": _string(
                "Whether jobs share CPUs: NO, EXCLUSIVE (whole nodes), YES:<jobs> (who asks for it), FORCE:<jobs>.", _SHARING, max_length=16
            ),
            "allowGroups": names("Groups whose users alone can use it. root always can.", "A group's name.", _USER, 31),
            "allowAccounts": names("Accounts whose jobs alone run here. Needs accounting.", "An account.", _PROFILE, 64),
            "denyAccounts": names("Accounts whose jobs do not run here. Needs accounting.", "An account.", _PROFILE, 64),
            "qos": _string("Quality of service whose limits the partition has. Needs accounting.", _PROFILE, max_length=64),
            "allowQos": names("QoS that jobs can have here. Needs accounting.", "A QoS.", _PROFILE, 64),
            "denyQos": names("QoS that jobs cannot have here. Needs accounting.", "A QoS.", _PROFILE, 64),
            "exclusiveUser": _boolean("Whether a node runs jobs of one user at a time."),
            "hidden": _boolean("Whether sinfo and squeue leave the partition out, unless asked for all."),
            "rootOnly": _boolean("Whether only root can give jobs to it."),
            "extraParameters": _parameters(
                'More of the partition\'s line in slurm.conf, as Key: value, such as {LLN: "YES"}. Keys that other fields set are refused.'
            ),
        },
        required=("name",),
        rules=(
            excludes("defMemPerCpu", "defMemPerNode"),
            excludes("maxMemPerCpu", "maxMemPerNode"),
            excludes("allowAccounts", "denyAccounts"),
            excludes("allowQos", "denyQos"),
            at_most("minNodes", "maxNodes"),
            at_most("defaultTime", "maxTime", quantity.seconds),
            at_most("defMemPerCpu", "maxMemPerCpu", quantity.parse),
            at_most("defMemPerNode", "maxMemPerNode", quantity.parse),
        ),
    )


def _egress() -> Schema:
    def networks(description: str, maximum: int) -> Schema:
        return _list(description, _string("A network.", _CIDR, max_length=49), maximum=maximum, unique=True, default=[])

    def reach(pods: str) -> Schema:
        return _string(
            f"Where {pods} connect to. Open: to everything but the clouds' metadata services, link-local addresses, the Kubernetes API server and what close "
            "names. Restricted: to the cluster's own pods, DNS and what allow names.",
            enum=("Open", "Restricted"),
            default="Open",
        )

    port = _object(
        "A port, or a range of ports.",
        {
            "protocol": _string("The protocol.", enum=("TCP", "UDP", "SCTP"), default="TCP"),
            "port": _integer("The port, or the first one of the range.", 1, 65535),
            "endPort": _integer("The last port of the range.", 1, 65535),
        },
        required=("port",),
        rules=(at_most("port", "endPort"),),
    )
    rule = _object(
        "Something that is allowed. Its networks and namespaces add up; without any of them it is everything but what is closed, on these ports.",
        {
            "cidrs": networks("Networks, such as those of a license server or of LDAP.", 64),
            "namespaces": _list(
                "Namespaces of this Kubernetes cluster: their pods.",
                _string("The namespace's name.", _SUBDOMAIN, max_length=63),
                maximum=64,
                unique=True,
                default=[],
            ),
            "ports": _list("Ports; without any, all.", port, maximum=64, default=[]),
        },
        rules=(
            any_of("cidrs", "namespaces", "ports", verb="names", then="so it would allow everything; list what is allowed, or remove it"),
        ),
    )
    return _object(
        "Where pods may connect to, by NetworkPolicies; the cluster's network plugin has to enforce them (docs/security.md).",
        {
            "workers": reach("workers, and so jobs,"),
            "login": reach("login nodes, and so users' sessions,"),
            "controller": reach("the controller's pods"),
            "allow": _list(
                "What is allowed besides, to all of them. Within a broader network, what is closed stays so; who names it, or a part of it, opens that.",
                rule,
                maximum=64,
                default=[],
            ),
            "close": networks(
                "Networks that are closed besides, such as that of the Kubernetes nodes' management consoles, and the address "
                "of a load balancer before the Kubernetes API "
                "server that the kubeconfig of no run names.",
                256,
            ),
            "apiServer": networks(
                "The Kubernetes API server's addresses, which are closed too. Without any, each run reads those of its Service, of the servers behind that "
                "and of its own connection; the first two take a right in the namespace default (docs/rights.md). With any, no others are looked for.",
                64,
            ),
        },
        default={},
    )


# Limits that are counts, times, and numbers by TRES.
_ASSOCIATION_LIMITS = (
    "GrpJobs GrpJobsAccrue GrpSubmit MaxJobs MaxJobsAccrue MaxSubmit MinPrioThresh Priority",
    "GrpWall MaxWall",
    "GrpTRES GrpTRESMins GrpTRESRunMins MaxTRES MaxTRESMins MaxTRESPerNode",
)
_QOS_LIMITS = (
    (
        "GrpJobs GrpJobsAccrue GrpSubmit MaxJobsAccruePerAccount MaxJobsAccruePerUser MaxJobsPerAccount MaxJobsPerUser MaxSubmitJobsPerAccount "
        "MaxSubmitJobsPerUser MinPrioThresh"
    ),
    "GrpWall MaxWall",
    (
        "GrpTRES GrpTRESMins GrpTRESRunMins MaxTRES MaxTRESMins MaxTRESPerAccount MaxTRESPerNode MaxTRESPerUser MaxTRESRunMinsPerAccount "
        "MaxTRESRunMinsPerUser MinTRES"
    ),
)


def _tenants() -> dict[str, Schema]:
    """Accounts, users, QoS and reservations. What they may say besides their types is slurm_tenants' to check, for it takes the same from elsewhere.

    The lists are atomic: the API server would note the writer of each entry of others, which takes more room than the entries.
    """

    def some(description: str, one: str, maximum: int = 64) -> Schema:
        return _list(description, _string(one), maximum=maximum)

    def limits(counts: str, times: str, tres: str) -> Schema:
        amounts = _map("Numbers by TRES, as in {cpu: 64, mem: 256G, gres/gpu: 4}.", _quantity("Its number.", _TRES), maximum=64)
        return _object(
            "Limits, by sacctmgr's names. Without one, that of the account holds, or none.",
            {
                **dict.fromkeys(counts.split(), _integer("A number.", 0, 2**31 - 1)),
                **dict.fromkeys(times.split(), _quantity("Minutes, or a time such as 1-12:00:00 in quotes.", _DURATION)),
                **dict.fromkeys(tres.split(), amounts),
            },
        )

    association = {
        "fairshare": _quantity('Its shares, or "parent".', _FAIRSHARE),
        "qos": some("QoS that jobs can have. Without them, those inherited.", "A QoS."),
        "defaultQos": _string("QoS of jobs that name none."),
        "limits": limits(*_ASSOCIATION_LIMITS),
    }
    seconds = "Seconds, or a time such as 00:05:00 in quotes."
    qos = {
        "name": _string("Its name."),
        "description": _string("One line about it."),
        "priority": _integer("Its priority.", 0, 2**31 - 1),
        "flags": some("Slurm's flags, such as DenyOnLimit.", "A flag."),
        "preempt": some("QoS whose jobs it preempts.", "A QoS."),
        "preemptMode": _string("What happens to its jobs when they are preempted.", enum=("cluster", "cancel", "requeue", "suspend")),
        "preemptExemptTime": _quantity(f"How long its jobs run before they can be preempted. {seconds}", _DURATION),
        "graceTime": _quantity(f"How long its jobs have when they are preempted. {seconds}", _DURATION),
        "usageFactor": _number("What its jobs' usage is multiplied by.", 10**9),
        "usageThreshold": _number("The lowest fairshare of an association with which jobs start.", 10**9),
        "limitFactor": _number("What the association's TRES limits are multiplied by.", 10**9),
        "limits": limits(*_QOS_LIMITS),
    }
    account = {
        "name": _string("Its name."),
        "parent": _string("The account above it. Without one, root."),
        "description": _string("One line about it."),
        "organization": _string("To whom it belongs."),
        "coordinators": some("Users who may manage it.", "A user.", 1000),
        **association,
    }
    time = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{4,15}(Z|[+-][0-9]{2}:?[0-9]{2})?$"
    reservation = {
        "name": _string("Its name."),
        "start": _string("When it begins, such as 2026-01-31T08:00:00Z. Without an offset, UTC.", time),
        "end": _string("When it ends. Exactly one of end and duration.", time),
        "duration": _quantity("How long it lasts, in minutes, or a time such as 1-00:00:00 in quotes.", _DURATION),
        "nodes": _string("Its nodes, such as gpu-[0-3], or ALL."),
        "nodeCount": _integer("How many nodes Slurm chooses for it.", 1, 2**31 - 1),
        "users": some("Users who may use it. It needs users or accounts.", "A user.", 1000),
        "accounts": some("Accounts whose users may use it.", "An account.", 1000),
        "partition": _string("The partition whose nodes it has."),
        "features": _string("What its nodes have."),
        "flags": some("Slurm's flags, such as WEEKLY or IGNORE_JOBS.", "A flag."),
    }
    one = {"account": _string("The account."), "partition": _string("The partition. Without one, all."), **association}
    user = {
        "name": _string("Their name."),
        "adminLevel": _string("What they may change in the database.", enum=("None", "Operator", "Administrator")),
        "defaultAccount": _string("The account of jobs that name none. Without it, that of the first association."),
        "associations": _list("The accounts that they have.", _object("One account.", one, required=("account",)), maximum=1000),
    }
    return {
        "qos": _list("Qualities of service.", _object("A QoS.", qos, required=("name",)), maximum=1000),
        "accounts": _list("Accounts. Their order does not matter.", _object("An account.", account, required=("name",)), maximum=20000),
        "users": _list("Users of accounts.", _object("A user.", user, required=("name",)), maximum=20000),
        "reservations": _list("Reservations of nodes.", _object("A reservation.", reservation, required=("name", "start")), maximum=1000),
    }


def _accounting() -> Schema:
    """slurmdbd and its database."""
    period = _string("A time such as 12months, 365days or 48hours.", r"^[1-9][0-9]{0,4}(hours|days|months)$", max_length=12)
    database = _object(
        "Where the records are. Exactly one of embedded, external and mariadbOperator.",
        {
            "embedded": _object(
                "A MariaDB server of the cluster's own, with a volume that outlives it.",
                {
                    "volume": _object(
                        "Its volume. With size alone, a claim of the default storage class.",
                        {**_volume_properties(), "size": {**_quantity("Size of the claim that is made.", _BYTES), "default": "10Gi"}},
                        default={},
                        rules=(
                            excludes("claimName", "storageClassName"),
                            excludes("claimName", "hostPath"),
                            excludes("storageClassName", "hostPath"),
                            unseen(_same_kind(), _SAME_KIND),
                        ),
                    ),
                    "resources": resources(
                        "Size of the server's container. Half of the memory limit is InnoDB's buffer pool.",
                        default={"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
                        memory_limit=True,
                    ),
                    "probes": _probes(
                        "the database",
                        startup="",
                        failures=30,
                        readiness="Does it answer?",
                        liveness="Does it answer at all? If not, the container is started again.",
                    ),
                    **placement(),
                },
            ),
            "external": _object(
                "A MariaDB or MySQL server outside of the cluster.",
                {
                    "host": _string("Its DNS name or address.", _SUBDOMAIN),
                    "port": _integer("Its port.", 1, 65535, 3306),
                    "name": _string("The database's name.", r"^[A-Za-z0-9_]+$", max_length=64, default="slurm_acct_db"),
                    "user": _string(
                        "The user, with all privileges on that database.", r"^[A-Za-z0-9_.-]+$", max_length=80, default="slurm"
                    ),
                    "passwordSecret": _string("Name of a Secret with the user's password under the key password.", _SUBDOMAIN),
                    "tls": _object(
                        "Encryption. Without it, the connection is not encrypted.",
                        {
                            "caConfigMap": _string("Name of a ConfigMap with the CA's certificate under ca.crt.", _SUBDOMAIN),
                            "certificateSecret": _string(
                                "Name of a Secret of type kubernetes.io/tls with the client's certificate.", _SUBDOMAIN
                            ),
                        },
                    ),
                    "parameters": _map(
                        "More of StorageParameters of slurmdbd.conf, such as SSL_CIPHER.",
                        _string("The parameter's value.", r"^[^\x00-\x20,#\"=]+$", max_length=256),
                        maximum=16,
                        default={},
                    ),
                },
                required=("host", "passwordSecret"),
            ),
            "mariadbOperator": _object(
                "A MariaDB object (k8s.mariadb.com/v1alpha1), of which mariadb-operator makes the server. It has to be installed.",
                {
                    "size": {**_quantity("Size of the claim of each server.", _BYTES), "default": "10Gi"},
                    "storageClassName": _string("Storage class of the claims. Without it, the default one.", _SUBDOMAIN),
                    "replicas": _integer("Number of servers. More than one needs replication or galera in spec.", 1, 9, 1),
                    "resources": resources(
                        "Size of each server's container. Half of the memory limit is InnoDB's buffer pool.",
                        default={"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
                        memory_limit=True,
                    ),
                    "myCnf": _lines("Lines for my.cnf, after those that slurmdbd asks for.", "A line such as max_connections = 500."),
                    "spec": _free(
                        "More of the object's spec, such as replication, galera, affinity or metrics; mariadb-operator checks it."
                    ),
                },
            ),
            "backup": _object(
                "Dumps of the database by a schedule. Needs images.mariadb, whoever runs the database.",
                {
                    "schedule": _string(
                        "When, as cron has it: minute, hour, day of the month, month, day of the week; in the time zone of Kubernetes' controllers, "
                        "which is UTC as a rule.",
                        r"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[0-9A-Za-z*/,?-]+( [0-9A-Za-z*/,?-]+){4})$",
                        max_length=128,
                    ),
                    "keep": _integer("How many dumps are kept. Older ones are removed after a dump that succeeded.", 1, 1000, 7),
                    "volume": volume("Where the dumps are."),
                    "resources": resources(
                        "Size of the container that dumps.",
                        default={"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
                    ),
                    **placement(),
                },
                required=("schedule", "volume"),
            ),
        },
        default={"embedded": {}},
        rules=(one_of("embedded", "external", "mariadbOperator", what="database"),),
    )
    return _object(
        "Accounting: slurmdbd and its database. Without it, the cluster keeps no record of jobs that have ended.",
        {
            "database": database,
            "enforce": _list(
                "AccountingStorageEnforce: why a job is refused. With associations, only users who have one can submit.",
                _string("One of them.", enum=("associations", "limits", "nojobs", "nosteps", "qos", "safe", "wckeys")),
                maximum=7,
                unique=True,
                default=[],
            ),
            "tres": _list(
                "Resources that are recorded besides CPUs, memory, nodes, energy and GPUs, such as license/matlab.",
                _string("A resource.", r"^[a-z]+/[A-Za-z0-9_.:-]+$", max_length=64),
                maximum=64,
                unique=True,
                default=[],
            ),
            "purge": _object(
                "How long records are kept; without a value, for ever.",
                {
                    name: {**period, "description": f"{text} {period['description']}"}
                    for name, text in (
                        ("events", "Nodes that went down and came back."),
                        ("jobs", "Jobs."),
                        ("reservations", "Reservations."),
                        ("steps", "Steps of jobs."),
                        ("suspensions", "Suspensions of jobs."),
                        ("transactions", "Changes of accounts, users and the like."),
                        ("usage", "Usage by hour, day and month."),
                    )
                },
                default={},
            ),
            "archive": _object(
                "Keeps what purge removes from the database: slurmdbd writes it into files first, which sacctmgr archive load reads.",
                {"volume": _paired_volume("Where the files are.", "slurmdbd")},
                required=("volume",),
            ),
            "privateData": _list(
                "What users see of themselves only.",
                _string("One of them.", enum=("accounts", "events", "jobs", "reservations", "usage", "users")),
                maximum=6,
                unique=True,
                default=[],
            ),
            "tenants": _object(
                "Accounts, users and QoS of the database, and reservations. Without it, nothing of them is changed.",
                {
                    **_tenants(),
                    "objects": _boolean("Whether the SlurmTenants of the namespace that name this cluster count too.", False),
                    "prune": _boolean(
                        "Whether to remove what corral has made and neither this list nor a SlurmTenants that counts names any more.", False
                    ),
                },
            ),
            "extraConfig": _lines("Lines for slurmdbd.conf, one Key=Value each.", "A line such as CommitDelay=1."),
            "replicas": _integer("1: one slurmdbd. 2: a primary, and a backup that takes over when the primary is away.", 1, 2, 1),
            "resources": resources(
                "Size of slurmdbd's container.",
                default={"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}},
            ),
            "probes": _probes(
                "slurmdbd",
                startup="",
                failures=30,
                readiness="Does it listen, once it has its database, or stand by for the primary?",
                liveness="Does it run?",
            ),
            **host_users(),
            **placement(),
        },
        rules=(_mounted_by_both("archive.volume", "slurmdbd", "docs/accounting.md", ~has("archive")),),
    )


def _service(description: str, port: int, more: dict[str, Schema] | None = None) -> Schema:
    """The Service of pods that users reach, with ``more`` fields."""
    return _object(
        description,
        {
            "type": _string(
                "ClusterIP: from inside the Kubernetes cluster; NodePort: on a port of every Kubernetes node; "
                "LoadBalancer: on an address of its own.",
                enum=("ClusterIP", "NodePort", "LoadBalancer"),
                default="ClusterIP",
            ),
            "port": _integer("Port of the service.", 1, 65535, port),
            "nodePort": _integer("Port of the Kubernetes nodes, for type NodePort. Without it Kubernetes chooses one.", 1, 65535),
            **(more or {}),
            "annotations": _map(
                "Annotations of the Service, for a cloud's load balancer.",
                _string("The annotation's value.", _TEXT, max_length=4096, min_length=0),
                maximum=64,
                default={},
            ),
        },
        default={},
        rules=(only_with("nodePort", "type", "NodePort"),),
    )


def _rest() -> Schema:
    """slurmrestd and its proxy."""
    plain = equals("plainHttp", True)
    return _object(
        "The REST API: slurmrestd behind a proxy. Each request has a token of its user. Without it, there is none.",
        {
            "replicas": _integer("Number of pods.", 1, 16, 1),
            "tls": _object(
                "Encryption, by the proxy. Needed unless plainHttp is true. Exactly one of secret and issuerRef. A renewed certificate is served within "
                "two minutes.",
                {
                    "secret": _string("Name of a Secret of type kubernetes.io/tls, which you keep.", _SUBDOMAIN),
                    "issuerRef": _object(
                        "Who issues the certificate, by a Certificate object (cert-manager.io/v1). cert-manager has to be installed.",
                        {
                            "name": _string("Name of the issuer.", _SUBDOMAIN),
                            "kind": _string(
                                "Its kind, such as ClusterIssuer, or that of an external issuer.",
                                r"^[A-Z][A-Za-z0-9]*$",
                                max_length=63,
                                default="Issuer",
                            ),
                            "group": _string("API group of its kind.", _SUBDOMAIN, default="cert-manager.io"),
                        },
                        required=("name",),
                    ),
                    "dnsNames": _list(
                        "Names by which users reach the REST API, besides those of its Service. Goes with issuerRef.",
                        _string(
                            "A name, such as slurm.example.com.",
                            r"^([*][.])?[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
                            max_length=253,
                        ),
                        maximum=64,
                        unique=True,
                    ),
                    "ipAddresses": _list(
                        "Addresses by which users reach the REST API. Goes with issuerRef.",
                        _string("An address, of IPv4 or IPv6.", r"^[0-9a-f.:]+$", max_length=45),
                        maximum=64,
                        unique=True,
                    ),
                },
                rules=(
                    one_of("secret", "issuerRef", what="certificate"),
                    goes_with("dnsNames", "issuerRef"),
                    goes_with("ipAddresses", "issuerRef"),
                ),
            ),
            "plainHttp": _boolean(
                "true: no encryption, for a gateway in the Kubernetes cluster that has it. Whoever reads the network then reads tokens.",
                False,
            ),
            "service": _service("How users reach the REST API.", 6820),
            "limits": _object(
                "What the proxy takes, in each pod.",
                {
                    "connections": _integer("Connections at once. Others wait to be accepted.", 1, 10_000, 256),
                    "connectionsPerSource": _integer(
                        "Connections at once of one address; others are closed. A Kubernetes node or a gateway may be the address of many users.",
                        1,
                        10_000,
                        64,
                    ),
                    "requestSize": {**_quantity("Largest body of a request, such as 8Mi.", _BYTES), "default": "8Mi"},
                },
                default={},
            ),
            "jwks": _object(
                "Public keys of an identity provider, whose tokens are then valid too. Needs accounting.enforce with associations.",
                {
                    "configMap": _string("Name of a ConfigMap with the keys under jwks.json: RS256, each with a kid.", _SUBDOMAIN),
                    "userClaimField": _string(
                        "The claim that has the user's name.", r"^[A-Za-z0-9_.:/-]+$", max_length=128, default="preferred_username"
                    ),
                },
                required=("configMap",),
            ),
            "resources": resources(
                "Size of slurmrestd's container.",
                default={"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}},
            ),
            "probes": _probes(
                "slurmrestd",
                startup="",
                failures=30,
                readiness="Does it listen? The proxy's own probe shows whether it responds.",
                liveness="Does it run?",
            ),
            **host_users(),
            **placement(),
        },
        rules=(
            (
                Rule(
                    has("tls") | plain,
                    "tls is needed unless plainHttp is true",
                    lambda _rest, path: (
                        f"{path}.tls is missing, and a token is as good as a password: name a Secret with a certificate in {path}.tls.secret, or set "
                        f"{path}.plainHttp: true where a gateway encrypts."
                    ),
                ),
                Rule(
                    ~has("tls") | ~plain,
                    "tls and plainHttp: true exclude one another",
                    lambda _rest, path: f"{path} has tls and plainHttp: true, which exclude one another; remove one of them.",
                ),
            ),
            Rule(
                ~plain | equals("service.type", "ClusterIP"),
                "plainHttp goes with a service of type ClusterIP",
                lambda rest, path: (
                    f"{path}.plainHttp is true, but {path}.service.type is {rest['service']['type']}, so tokens would leave the Kubernetes cluster "
                    f"unencrypted; set {path}.tls, or type: ClusterIP."
                ),
            ),
        ),
    )


def _monitoring() -> Schema:
    """The exporter of metrics, and objects for the Prometheus operator."""
    port = str(components.EXPORTER_PORT)
    return _object(
        "Metrics of Slurm for Prometheus. A pod queries slurmctld once per interval, however often it is scraped.",
        {
            "enabled": _boolean("false: no exporter, and none of its objects.", True),
            "intervalSeconds": _integer("Time from query to query. Each is five RPCs.", 10, 3600, 60),
            "limits": _object(
                "How many values of a label have series of their own. The others count together, as [other].",
                {
                    "accounts": _integer("Accounts: those with the most jobs.", 1, 10_000, 100),
                    "users": _integer("Users whose RPCs are counted: those with the most when the exporter starts.", 1, 1000, 20),
                    "unavailableNodes": _integer("Nodes that take no new jobs, each with its reason.", 0, 10_000, 1000),
                },
                default={},
            ),
            "annotations": _map(
                "Annotations of the Service, by which a Prometheus without the Prometheus operator finds it.",
                _string("The annotation's value.", _TEXT, max_length=4096, min_length=0),
                maximum=64,
                default={"prometheus.io/scrape": "true", "prometheus.io/port": port},
            ),
            "namespaces": _list(
                "Namespaces whose pods may read the metrics. Without any, all pods may, if they know the address.",
                _string("A namespace's name.", _LABEL, max_length=63),
                maximum=32,
                unique=True,
                default=[],
            ),
            "dashboards": _object(
                "A ConfigMap with dashboards for Grafana.",
                {
                    "enabled": _boolean("false: it is not made.", True),
                    "labels": _map(
                        "Labels by which Grafana's sidecar finds it.",
                        _string("The label's value.", _LABEL_VALUE, max_length=63, min_length=0),
                        maximum=32,
                        default={"grafana_dashboard": "1"},
                    ),
                    "annotations": _map(
                        "Annotations, such as the folder that the sidecar is to put them into, {grafana_folder: Slurm}.",
                        _string("The annotation's value.", _TEXT, max_length=4096, min_length=0),
                        maximum=64,
                        default={},
                    ),
                },
                default={},
            ),
            "prometheusOperator": _object(
                "A ServiceMonitor, and a PrometheusRule with alerts. They are made where the API server has these kinds.",
                {
                    "enabled": _boolean("false: neither is made.", True),
                    "labels": _map(
                        "Labels of both, by which a Prometheus selects them, such as {release: kube-prometheus-stack}.",
                        _string("The label's value.", _LABEL_VALUE, max_length=63, min_length=0),
                        maximum=32,
                        default={},
                    ),
                    "runbooks": _string(
                        "Address of your copy of docs/alerts.md, to which the alerts lead.",
                        _TEXT,
                        max_length=1024,
                        default="docs/alerts.md",
                    ),
                },
                default={},
            ),
            "resources": resources(
                "Size of the exporter's container, with Slurm's commands.",
                default={"requests": {"cpu": "10m", "memory": "48Mi"}, "limits": {"memory": "256Mi"}},
            ),
            "probes": _probes("the exporter", startup="", failures=30, readiness="Does it listen?", liveness="Does it listen?"),
            **host_users(),
            **placement(),
        },
        default={},
    )


@functools.cache
def spec() -> Schema:
    """The schema of ``spec``. It is shared, so nobody may change it."""
    return _object(
        "The wanted state of the cluster.",
        {
            "images": _object(
                "Container images.",
                {
                    "slurm": _string("Image of all Slurm daemons, built from images/slurm.", _IMAGE, max_length=512),
                    "mariadb": _string(
                        "Image of the embedded database of accounting, and of the client that dumps one, built from images/mariadb.",
                        _IMAGE,
                        max_length=512,
                    ),
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
            "security": _object(
                "How worker pods, and login pods, are confined beyond their capabilities.",
                {
                    **confinement("Unconfined"),
                    "noNewPrivileges": _boolean(
                        "Whether jobs, and sessions on login nodes and workers, can gain no rights by a program: neither by set-uid nor by a file's "
                        "capabilities, so no sudo either, and no container of users that needs newuidmap.",
                        False,
                    ),
                    "profiles": _object(
                        "Where the profiles are that Localhost takes, for nodes that hold them under other names.",
                        {
                            "seccomp": _object(
                                "Files below the kubelet's folder for seccomp profiles.",
                                {
                                    "worker": _string("The workers'.", _PROFILE_PATH, default="corral/worker.json"),
                                    "login": _string("The login nodes'.", _PROFILE_PATH, default="corral/login.json"),
                                },
                                default={},
                            ),
                            "appArmor": _object(
                                "Names of loaded AppArmor profiles.",
                                {
                                    "worker": _string("The workers'.", _PROFILE, default="corral-worker"),
                                    "login": _string("The login nodes'.", _PROFILE, default="corral-login"),
                                },
                                default={},
                            ),
                        },
                        default={},
                    ),
                },
                default={},
            ),
            "slurm": _object(
                "Slurm's own configuration.",
                {
                    "auth": _string(
                        "By what Slurm's daemons and commands trust each other. munge: by munged beside each. slurm: by Slurm itself, with a key of its own "
                        "and without munged. It can be changed while no pod of workers and login nodes runs, as with maintenance: WorkersAndLogin.",
                        enum=AUTH,
                        default="munge",
                    ),
                    "processTracking": _string(
                        "How Slurm follows and confines the processes of jobs. cgroup needs cgroup v2 on the Kubernetes "
                        "nodes; linuxproc works everywhere and confines nothing beyond the pod's own limits.",
                        enum=("cgroup", "linuxproc"),
                        default="cgroup",
                    ),
                    "isolation": _object(
                        "What each job has of its own on a node, beyond its /tmp and /dev/shm.",
                        {
                            "ipc": _string(
                                "Whose System V shared memory, semaphores and message queues, and POSIX message queues, a job sees. Job: its own, shared by "
                                "its steps and gone with it. Node: those of all jobs on the node, which stay until somebody removes them.",
                                enum=("Job", "Node"),
                                default="Job",
                            ),
                            "pid": _string(
                                "Whose processes a job sees. Node: its user's, and root of the jail everybody's. Job: its own, which end with it, whatever "
                                "session they are in; with processTracking: linuxproc, for cgroup ends them without.",
                                enum=("Job", "Node"),
                                default="Node",
                            ),
                        },
                        default={},
                    ),
                    "extraConfig": _lines(
                        "Lines for slurm.conf, one Key=Value each. They replace corral's defaults; keys that the other fields of "
                        "this document set are refused.",
                        "A line such as SchedulerParameters=bf_continue.",
                    ),
                    "extraCgroupConfig": _lines(
                        "Lines for cgroup.conf, one Key=Value each, for processTracking: cgroup. They replace corral's defaults.",
                        "A line such as ConstrainSwapSpace=yes.",
                    ),
                    "extraGresConfig": _lines(
                        "Lines for gres.conf, as Slurm reads them: several Key=Value each.",
                        "A line such as Name=tape Count=2.",
                    ),
                    "extraMpiConfig": _lines("Lines for mpi.conf, one Key=Value each.", "A line such as PMIxTimeout=600."),
                    "extraPlugstackConfig": _lines(
                        "Lines for plugstack.conf: further SPANK plugins, behind the one that brings jobs into the jail.",
                        "A line such as optional /mnt/tools/site.so level=2.",
                    ),
                    "topology": _topology(),
                },
                default={},
                rules=(only_with("extraCgroupConfig", "processTracking", "cgroup", test=filled),),
            ),
            "controller": _object(
                "The controller: slurmctld.",
                {
                    "resources": resources(
                        "Size of the controller's container.",
                        default={"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "2Gi"}},
                    ),
                    "replicas": _integer(
                        "1: one slurmctld. 2: a primary, and a backup that takes over when the primary is away; both mount the state volume.",
                        1,
                        2,
                        1,
                    ),
                    "stateVolume": _paired_volume("Where slurmctld keeps its state.", "controller"),
                    "probes": _probes(
                        "slurmctld",
                        startup="",
                        failures=12,
                        readiness="Does it respond? If so, clients and other daemons are sent to it.",
                        liveness="Does it respond at all? If not, the container is restarted; jobs run on.",
                    ),
                    **host_users(),
                    **placement(),
                },
                required=("stateVolume",),
                rules=(_mounted_by_both("stateVolume", "controllers", "docs/ha.md"),),
            ),
            "login": _object(
                "Login nodes: sshd.",
                {
                    "replicas": _integer("Number of login nodes.", 0, 100, 1),
                    "service": _service(
                        "How users reach the login nodes.",
                        22,
                        {
                            "sessionAffinity": _string(
                                "None: connections are spread over the login nodes. ClientIP: those from one address meet on one login node, so that a second "
                                "window finds the tmux of the first; all users behind one gateway meet there too.",
                                enum=("None", "ClientIP"),
                                default="None",
                            ),
                        },
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
                    "limits": _object(
                        "What one user can have of a login node, in all their sessions together, so that nobody takes it from "
                        "the others. Needs cgroup v2 on the "
                        "Kubernetes node; docs/jail.md explains what holds without it. Without a field, no limit but the container's.",
                        {
                            "memory": _quantity(
                                "Memory. A user who needs more has one of their own processes ended, and nobody else's.", _BYTES
                            ),
                            "cpu": _quantity("CPUs, such as 2 or 500m.", _CPU),
                            "processes": _integer("Processes and threads.", 16, 1000000),
                        },
                        default={},
                    ),
                    "motd": _string(
                        "What users read when they log in with a terminal: the jail's /etc/motd. Without it, the file is left alone.",
                        _TEXT,
                        max_length=8192,
                    ),
                    "volumes": _pod_volumes("sshd's container"),
                    "initScripts": _init_scripts("sshd", "the pod takes no sessions, and the log of the container sshd says why"),
                    "drain": _object(
                        "How a login pod ends, whatever ends it: another template, fewer replicas, a drain of its Kubernetes node. It accepts no new "
                        "sessions, users get a message on their terminals, and it ends when no user has a process in it.",
                        {
                            "deadlineSeconds": _integer(
                                "Seconds after which it ends in any case. With updateStrategy RollingUpdate a run waits for each pod.",
                                0,
                                86400,
                                60,
                            ),
                        },
                        default={},
                    ),
                    "updateStrategy": _object(
                        "How login pods get another image or pod template. Users' sessions end with their pod.",
                        {
                            "type": _string(
                                "WhenIdle: a run replaces pods in which no user has a process, one after the other, and names the others. RollingUpdate: all "
                                "are drained and replaced, one after the other. OnDelete: whoever deletes a pod replaces it.",
                                enum=("WhenIdle", "RollingUpdate", "OnDelete"),
                                default="WhenIdle",
                            ),
                        },
                        default={},
                    ),
                    "probes": _probes(
                        "sshd",
                        startup=_AND_SCRIPTS,
                        failures=12,
                        readiness="Does it work, with the jail? The Service sends users there then.",
                        liveness="Does it run at all? If not, the container is started again, which ends its sessions.",
                    ),
                    **host_users(),
                    **placement(),
                },
                default={},
            ),
            "maintenance": _string(
                "What is away during work on storage or on Kubernetes nodes. Workers: their nodes are drained, and their pods go when no job is left, by the "
                "policies of drain; the nodes stay in Slurm's configuration, and its queue waits. WorkersAndLogin: the login pods go too, after the last "
                "worker. None: all are there.",
                enum=("None", "Workers", "WorkersAndLogin"),
                default="None",
            ),
            "health": _health(),
            "foreignFields": _list(
                "Fields of the objects that may be somebody else's. What others add to pod templates, Services, NetworkPolicies, ConfigMaps, roles and "
                "bindings is taken back otherwise.",
                _object(
                    "Each names a field, or who owns it, or both.",
                    {
                        "field": _string(
                            "The field as the API server names it in conflicts, with all that is below it; * stands for anything. "
                            'Such as .spec.template.spec.containers[name="istio-proxy"].',
                            _LINE,
                            max_length=1024,
                        ),
                        "manager": _string("The field manager that owns it; * stands for anything.", _LINE, max_length=128),
                        "kind": _string("Only objects of this kind.", _KIND, max_length=63),
                        "labels": _map(
                            "Only objects with these labels.",
                            _string("A label's value.", _LABEL_VALUE, max_length=63, min_length=0),
                            maximum=16,
                        ),
                    },
                    rules=(any_of("field", "manager", then="so it would allow everything; give one of them", test=has),),
                ),
                maximum=64,
                default=[],
            ),
            "workers": _object(
                "What holds for all worker nodes.",
                {
                    "ssh": _string(
                        "WithJob: who has a job on a worker can ssh to it, by the name of its Slurm node, and is put into that job. Never: no sshd there.",
                        enum=("WithJob", "Never"),
                        default="WithJob",
                    ),
                    "drain": draining(default={}, policy="Wait", deadline=3600),
                    "updateStrategy": updating(whole=True),
                    "sync": syncing(),
                },
                default={},
            ),
            "nodeSets": _list("The worker nodes.", _node_set(), maximum=256, keys=("name",), default=[]),
            "partitions": _list(
                "Slurm partitions. Without any, one partition main holds all nodes.",
                _partition(),
                maximum=128,
                keys=("name",),
                default=[],
                rules=(Unique("default", "only one partition can be the default", only=True),),
            ),
            "jail": _jail(),
            "jails": _list(
                "Further jails, on workers: jobs choose one by --jail=NAME, or by their partition. They have the same users, and are shared by "
                "all nodes, whatever the jail of spec.jail is.",
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
                rules=(Unique("gid", _NUMBER),),
            ),
            "users": _list("Users of the cluster.", _user(), maximum=2000, keys=("name",), default=[], rules=(Unique("uid", _NUMBER),)),
            "sssd": _sssd(),
            "accounting": _accounting(),
            "rest": _rest(),
            "monitoring": _monitoring(),
            "network": _object("The network of the pods.", {"egress": _egress()}, default={}),
            "deletion": _object(
                "What becomes of the cluster when its document is deleted. The operator's only; the playbook corral.slurm.destroy asks instead.",
                {
                    "data": _string(
                        "Keep leaves claims, volumes and keys, so that a document of the same name finds them again. Delete takes them away.",
                        enum=("Keep", "Delete"),
                        default="Keep",
                    )
                },
                default={},
            ),
        },
        required=("images", "controller", "jail"),
    )


def _conditions() -> Schema:
    return _list(
        "What holds now.",
        _object(
            "One condition.",
            {
                "type": {"type": "string", "description": "What the condition is about."},
                "status": {"type": "string", "description": "True, False or Unknown.", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string", "description": "The reason, in CamelCase, for programs."},
                "message": {"type": "string", "description": "One sentence for people."},
                "observedGeneration": {"type": "integer", "format": "int64", "description": "Generation that the condition speaks of."},
                "lastTransitionTime": {"type": "string", "format": "date-time", "description": "When status changed last."},
            },
            required=("type", "status"),
        ),
        maximum=32,
        keys=("type",),
    )


@functools.cache
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
                "What was seen last. Written by the operator only. No times but those of conditions and of the last repair: a quiet cluster is not written.",
                {
                    "observedGeneration": {
                        "type": "integer",
                        "format": "int64",
                        "description": "Generation of the spec that was applied last, or that was refused (the condition Stalled tells them apart).",
                    },
                    "observedHash": {
                        "type": "string",
                        "description": "Hash of the document, the playbooks and the objects for which a run found nothing to "
                        "do. While it is the same, no run is made.",
                    },
                    "syncedHash": {
                        "type": "string",
                        "description": "Hash of the workers' pods and their Kubernetes nodes at the last corral.slurm.sync. "
                        "While it is the same, no such run is made.",
                    },
                    "tenantsHash": {
                        "type": "string",
                        "description": "Hash of the accounts, users and QoS at the last corral.slurm.tenants. While it is the same, no such run is made.",
                    },
                    "revision": {"type": "string", "description": "Version of the collection that made it, and a digest of its files."},
                    "login": {"type": "string", "description": "Where ssh reaches the login nodes, as far as Kubernetes knows."},
                    "waitingFor": {"type": "string", "description": "What is waited for now."},
                    "lastFailure": {"type": "string", "description": "Why the last run failed; gone after the next good one."},
                    "lastDrift": _object(
                        "The last run that repaired what somebody else had changed.",
                        {
                            "repairedAt": {"type": "string", "format": "date-time", "description": "When it ended."},
                            "changes": {
                                "type": "array",
                                "maxItems": 11,
                                "description": "The objects and what was done with each, and the fields of other managers that were removed.",
                                "items": {"type": "string"},
                            },
                        },
                    ),
                    "nodes": _object(
                        "Slurm's nodes when the last run asked slurmctld.",
                        {
                            name: {"type": "integer", "format": "int32", "description": text}
                            for name, text in (
                                ("total", "Nodes of the document."),
                                ("inService", "Those that take jobs, or are busy with them."),
                                ("drained", "Those that somebody has taken out of service."),
                                ("down", "Those that do not respond."),
                            )
                        },
                    ),
                    "conditions": _conditions(),
                },
            ),
        },
        required=("spec",),
        rules=(unseen("!has(self.metadata.generateName)", "give the cluster a name of its own: metadata.name instead of generateName"),),
    )


def node_set_document() -> Schema:
    """What an autoscaler sees of a node set. Runs make it, kubectl scale and autoscalers set ``replicas``, the operator tells ``status.replicas``."""
    return {
        "type": "object",
        "description": "A view of one node set of a SlurmCluster that kubectl scale and autoscalers can set the size of. Made by corral.slurm.site.",
        "properties": {
            "spec": _object(
                "What is asked for.",
                {
                    "replicas": _integer("Number of nodes; the bounds of spec.nodeSets[].scale hold.", 0, MAX_REPLICAS),
                    "selector": _string("Label selector of the set's pods, for autoscalers.", max_length=1024),
                },
            ),
            "status": _object("What is there.", {"replicas": _integer("Nodes that the set has.", 0, MAX_REPLICAS)}),
        },
        "required": ["spec"],
    }


def tenants_document() -> Schema:
    """Accounts, users and QoS as an object of their own: more than fit beside a cluster, and written by others than the cluster."""
    cluster = _string("Name of the SlurmCluster of the same namespace. It needs spec.accounting.tenants.objects.", _LABEL, max_length=20)
    return {
        "type": "object",
        "description": "Accounts, users and QoS of a Slurm cluster. Several of one cluster are applied as one.",
        "properties": {
            "spec": _object("What the database has to have.", {"cluster": cluster, **_tenants()}, required=("cluster",)),
            "status": _object(
                "Whether the database has it. Written by the operator only.",
                {
                    "observedGeneration": {
                        "type": "integer",
                        "format": "int64",
                        "description": "Generation that was last applied or refused.",
                    },
                    "conditions": _conditions(),
                },
            ),
        },
        "required": ["spec"],
    }


def tenants_crd() -> Schema:
    """The definition of SlurmTenants."""
    applied = ".status.conditions[?(@.type=='Applied')]"
    return _definition(
        TENANTS_KIND,
        TENANTS_PLURAL,
        ["slt"],
        tenants_document(),
        {"status": {}},
        [
            {"name": "Cluster", "type": "string", "jsonPath": ".spec.cluster"},
            {"name": "Applied", "type": "string", "jsonPath": f"{applied}.status"},
            {"name": "Status", "type": "string", "jsonPath": f"{applied}.reason"},
            {"name": "Message", "type": "string", "jsonPath": f"{applied}.message", "priority": 1},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    )


def node_set_crd() -> Schema:
    """The definition of SlurmNodeSets: a CustomResourceDefinition has one scale subresource, and a SlurmCluster has many node sets."""
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".spec.selector"}
    return _definition(
        NODE_SET_KIND,
        NODE_SET_PLURAL,
        ["sns"],
        node_set_document(),
        {"status": {}, "scale": scale},
        [
            {"name": "Cluster", "type": "string", "jsonPath": ".metadata.labels.app\\.kubernetes\\.io/instance"},
            {"name": "Wanted", "type": "integer", "jsonPath": ".spec.replicas"},
            {"name": "Nodes", "type": "integer", "jsonPath": ".status.replicas"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    )


def crd() -> Schema:
    """The CustomResourceDefinition of SlurmClusters."""
    return _definition(
        KIND,
        PLURAL,
        ["slc"],
        document(),
        {"status": {}},
        [
            {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"},
            {"name": "Status", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].reason"},
            {"name": "Nodes", "type": "integer", "jsonPath": ".status.nodes.total"},
            {"name": "In service", "type": "integer", "jsonPath": ".status.nodes.inService"},
            {"name": "Login", "type": "string", "jsonPath": ".status.login"},
            {"name": "Waiting for", "type": "string", "jsonPath": ".status.waitingFor", "priority": 1},
            {"name": "Revision", "type": "string", "jsonPath": ".status.revision", "priority": 1},
            {"name": "Message", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].message", "priority": 1},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    )


def _published(part: Any) -> Any:
    """Return a copy of a part of a schema with the API server's words for its rules."""
    if isinstance(part, list):
        return [_published(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {key: _published(value) for key, value in part.items() if key != RULES}
    told = cel(part.get(RULES, ()))
    return {**found, "x-kubernetes-validations": told} if told else found


def _definition(kind: str, plural: str, short: list[str], schema: Schema, subresources: Schema, columns: list[Schema]) -> Schema:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "labels": {"app.kubernetes.io/part-of": "corral", "app.kubernetes.io/managed-by": "corral"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": short,
                "categories": ["corral", "all"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": subresources,
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": _published(schema)},
                }
            ],
        },
    }
