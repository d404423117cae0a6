# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the API server would refuse of a document's pods, services and volumes, when half of the cluster is made: told before anything is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import quantity

Json = dict[str, Any]

# apimachinery's, of a label's or annotation's key.
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
MAX_ANNOTATIONS = 256 * 1024
# A ConfigMap's most is 1 MiB with its names; the rest is room for labels and managed fields.
MAX_CONFIG_MAP = 1_000_000
# As the API server keeps it, in bytes of JSON with the schema's defaults. etcd takes 1.5 MiB, and of a SlurmCluster it takes the API server's notes on who
# owns which field too, some 150 bytes a user and manager; a push run has the same limit, so that a document can go to the operator at any time.
MAX_DOCUMENT = 1_100_000
# With what node sets and partitions add to lines of the user's own.
MAX_FILES = 500_000
_NAMESPACE = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# Below it are ports of the Kubernetes node's own services, ssh's among them, which no range of node ports is meant for.
MIN_NODE_PORT = 1024
SYSTEM_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})


def errors(spec: Json, written: Json) -> Iterator[str]:
    """Yield a sentence for each error of a spec whose structure is right, and which has the schema's defaults; ``written`` is it without these."""
    for path, part in _parts(spec):
        yield from _resources(f"{path}.resources", part["resources"])
        yield from _placement(path, part)
    yield from _affinities(spec)
    yield from _resource_names(spec)
    yield from _service(spec["login"]["service"])
    for index, rule in enumerate(spec["network"]["egress"]["allow"]):
        yield from _namespaces(f"spec.network.egress.allow[{index}].namespaces", rule)
    yield from _directories(spec)
    yield from _sizes(spec)
    yield from _classes(spec["priorityClasses"])
    yield from _config_maps(written)


def qualified(path: str, key: str) -> Iterator[str]:
    """Yield a sentence where ``key`` is no key of a label, an annotation or a taint."""
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and (len(prefix) > 253 or not _PREFIX.fullmatch(prefix))):
        yield (
            f"{path} has the key {_shown(key)}; a key is 63 letters, digits, '-', '_' and '.' at most, with a DNS name and '/' before them if wanted, "
            "such as example.com/zone."
        )


def _parts(spec: Json) -> Iterator[tuple[str, Json]]:
    """What becomes containers, of a spec with defaults or without."""
    yield from ((f"spec.{name}", spec[name]) for name in ("controller", "login", "sssd") if name in spec)
    for index, node_set in enumerate(spec.get("nodeSets", [])):
        yield f"spec.nodeSets[{index}]", node_set


def _resources(path: str, resources: Json) -> Iterator[str]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for what, amount in requests.items():
        if what in limits and quantity.parse(amount) > quantity.parse(limits[what]):
            yield f"{path}.requests.{what} is {amount}, more than the limit of {limits[what]}; lower the one or raise the other."
    for what, amount in limits.items():
        # Of a node set, what its size must be has a sentence of its own.
        if not quantity.parse(amount) and not (path.startswith("spec.nodeSets") and what in ("cpu", "memory")):
            yield f"{path}.limits.{what} is {amount}, with which nothing runs; give more, or take the field away."


def _placement(path: str, part: Json) -> Iterator[str]:
    for key in part.get("nodeSelector", {}):
        yield from qualified(f"{path}.nodeSelector", key)
    for index, one in enumerate(part.get("tolerations", [])):
        if "key" in one:
            yield from qualified(f"{path}.tolerations[{index}]", one["key"])
    for index, one in enumerate(part.get("topologySpread", [])):
        yield from qualified(f"{path}.topologySpread[{index}]", one["topologyKey"])


def _affinities(spec: Json) -> Iterator[str]:
    """The expressions of affinities: their keys, and the values that each operator takes."""
    for place, node_set in enumerate(spec["nodeSets"]):
        # As a stack, from the last to the first.
        open_: list[tuple[str, Any]] = [(f"spec.nodeSets[{place}].affinity", node_set["affinity"])]
        while open_:
            path, value = open_.pop()
            if isinstance(value, list):
                open_.extend((f"{path}[{index}]", value[index]) for index in reversed(range(len(value))))
            elif isinstance(value, dict) and path.endswith(".matchLabels"):
                # Its keys are the user's, whatever fields elsewhere are called.
                for key in value:
                    yield from qualified(path, key)
            elif isinstance(value, dict) and "operator" in value:
                yield from _expression(path, value)
            elif isinstance(value, dict):
                if "topologyKey" in value:
                    yield from _term(path, value)
                open_.extend((f"{path}.{key}", item) for key, item in reversed(value.items()))


def _term(path: str, term: Json) -> Iterator[str]:
    """Which pods are meant."""
    yield from qualified(path, term["topologyKey"])
    yield from _namespaces(f"{path}.namespaces", term)
    keys = term.get("matchLabelKeys", [])
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        if term.get(field) and "labelSelector" not in term:
            yield f"{path}.{field} goes with labelSelector, which is missing; add it, {{}} for all pods."
    for index, key in enumerate(term.get("mismatchLabelKeys", [])):
        if key in keys:
            yield f"{path}.mismatchLabelKeys[{index}] is {_shown(key)}, which matchLabelKeys has too; remove one of them."


def _namespaces(path: str, one: Json) -> Iterator[str]:
    for index, name in enumerate(one.get("namespaces", [])):
        if not _NAMESPACE.fullmatch(name):
            yield f"{path}[{index}] is {_shown(name)}, which no namespace is called; write its name: lower-case letters, digits and '-'."


def _expression(path: str, one: Json) -> Iterator[str]:
    operator, values = one["operator"], one.get("values", [])
    if ".matchFields[" in path:
        if one["key"] != "metadata.name":
            yield f"{path}.key is {_shown(one['key'])}; metadata.name is the only field that can be asked for, so use matchExpressions for labels."
        if len(values) > 1:
            yield f"{path}.values has {len(values)} names; give one, and a term of nodeSelectorTerms for each."
        if values and not _PREFIX.fullmatch(values[0]):
            yield f"{path}.values[0] is {_shown(values[0])}; write the name of a Kubernetes node."
    yield from qualified(path, one["key"])
    if operator in ("In", "NotIn") and not values:
        yield f"{path}.values is missing, which operator: {operator} needs; give one at least."
    elif operator in ("Exists", "DoesNotExist") and values:
        yield f"{path}.values goes not with operator: {operator}; remove one of them."
    elif operator in ("Gt", "Lt") and (len(values) != 1 or not re.fullmatch("-?[0-9]{1,18}", values[0])):
        yield f"{path}.values must be one whole number, as text, with operator: {operator}."


def _resource_names(spec: Json) -> Iterator[str]:
    """Of GPUs: a key with a prefix that has room for requests., by which quotas call it, and that is not Kubernetes' own."""
    for index, node_set in enumerate(spec["nodeSets"]):
        name = node_set.get("gpu", {}).get("resourceName", "")
        own = name.startswith("requests.") or "kubernetes.io/" in name
        if name and (own or any(qualified("", f"requests.{name}"))):
            yield (
                f"spec.nodeSets[{index}].gpu.resourceName is {_shown(name)}; write the name that the device plugin offers, a DNS name, '/' and 63 letters, "
                "digits, '-', '_' and '.' at most, such as nvidia.com/gpu."
            )


def _service(service: Json) -> Iterator[str]:
    if service.get("nodePort", MIN_NODE_PORT) < MIN_NODE_PORT:
        yield (
            f"spec.login.service.nodePort is {service['nodePort']}, a port of the Kubernetes node's own services; give one of the API server's range for node "
            "ports, 30000 to 32767 as a rule."
        )
    path, annotations = "spec.login.service.annotations", service["annotations"]
    for key in annotations:
        # Unlike a label's, an annotation's key may have capital letters before the '/'.
        yield from qualified(path, key.lower())
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > MAX_ANNOTATIONS:
        yield f"{path} has {size} bytes; {MAX_ANNOTATIONS} are the most that Kubernetes keeps."


def _volumes(spec: Json) -> Iterator[tuple[str, Json]]:
    yield "spec.controller.stateVolume", spec["controller"]["stateVolume"]
    yield "spec.jail.volume", spec["jail"]["volume"]
    yield "spec.jail.overlay", spec["jail"].get("overlay", {})
    for index, jail in enumerate(spec["jails"]):
        yield f"spec.jails[{index}].volume", jail["volume"]
    for index, mount in enumerate(spec["jail"]["subMounts"]):
        yield f"spec.jail.subMounts[{index}]", mount
    for path, part in _parts(spec):
        for index, volume in enumerate(part.get("volumes", [])):
            yield f"{path}.volumes[{index}]", volume


def _directories(spec: Json) -> Iterator[str]:
    for path, volume in _volumes(spec):
        if ".." in volume.get("hostPath", "").split("/"):
            yield f"{path}.hostPath is {volume['hostPath']}; write it without '..'."


def _sizes(spec: Json) -> Iterator[str]:
    places = [
        (f"{path}.{field}", volume[field]) for path, volume in _volumes(spec) for field in ("size", "memory", "scratch") if field in volume
    ]
    places.extend(
        (f"spec.nodeSets[{index}].sharedMemory", node_set["sharedMemory"])
        for index, node_set in enumerate(spec["nodeSets"])
        if "sharedMemory" in node_set
    )
    for path, size in places:
        if quantity.parse(size) < 1:
            yield f"{path} is {size}; nothing fits in that, so give more."


def _classes(classes: Json) -> Iterator[str]:
    path = "spec.priorityClasses"
    control, worker = classes["controlPlane"], classes["worker"]
    if control == worker:
        yield f"{path}.worker is {worker}, as controlPlane is, but workers stand below the control plane; name another class."
    if classes["create"]:
        for field, name in (("controlPlane", control), ("worker", worker)):
            if name.startswith("system-") and name not in SYSTEM_CLASSES:
                yield f"{path}.{field} is {name}, but names that begin with system- are Kubernetes' own and cannot be made; choose another."


def _config_maps(spec: Json) -> Iterator[str]:
    """What is kept in one object: Slurm's files, and the scripts of each kind of pods."""
    for path, part in _parts(spec):
        size = sum(len(script.get("script", "").encode()) for script in part.get("initScripts") or [])
        if size > MAX_CONFIG_MAP:
            yield f"{path}.initScripts has {size} bytes of text, more than the {MAX_CONFIG_MAP} of a ConfigMap; put some into ConfigMaps of your own."
    slurm = spec.get("slurm") or {}
    lines = [line for field in slurm if field.startswith("extra") for line in slurm[field]]
    parameters = [node_set.get("extraNodeParameters") or {} for node_set in spec.get("nodeSets") or []]
    parameters.extend(partition.get("extraParameters") or {} for partition in spec.get("partitions") or [])
    size = sum(len(line.encode()) for line in lines) + sum(
        len(f"{key}={value} ".encode()) for pairs in parameters for key, value in pairs.items()
    )
    if size > MAX_FILES:
        yield f"spec.slurm, with the extra parameters of node sets and partitions, has {size} bytes of lines; {MAX_FILES} are the most, so write fewer."


def too_large(document: str) -> str:
    """Return a sentence where a document, as JSON with its defaults, is larger than what keeps it; "" where it has room."""
    size = len(document.encode())
    if size <= MAX_DOCUMENT:
        return ""
    return (
        f"The document has {size} bytes as JSON with its defaults; {MAX_DOCUMENT} are the most that Kubernetes has room for, so write less: give users fewer "
        "or shorter keys (ssh-ed25519 has 80 characters), or put them into a directory (spec.sssd)."
    )


def oversized(config: str, files: Mapping[str, str]) -> str:
    """Return a sentence where Slurm's files are more than the ConfigMap ``config`` holds; "" where they have room. What follows from few words can be long."""
    size = sum(len(name.encode()) + len(text.encode()) for name, text in files.items())
    if size <= MAX_CONFIG_MAP:
        return ""
    return (
        f"The document makes {size} bytes of Slurm's files, more than the {MAX_CONFIG_MAP} that fit into the ConfigMap {config}; make names of node sets "
        "shorter, or name in each of spec.partitions the nodeSets that are meant."
    )


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:77] + "...")
