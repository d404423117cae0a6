# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a schema can not say of a document: names that clash, parts that do not fit one another, text that Slurm or sshd would misread."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import config, quantity, schema
from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf

Json = dict[str, Any]

# Components of this release and of those to come: a node set of such a name would take the name of their objects.
RESERVED_SETS = frozenset(
    {"accounting", "base", "controller", "database", "exporter", "health", "jail", "login", "monitoring", "rest", "worker"}
)
# Accounts of a Debian base system; others are found by the job that writes the users, in the jail itself.
SYSTEM_ACCOUNTS = frozenset(
    {
        "backup",
        "bin",
        "daemon",
        "games",
        "irc",
        "list",
        "lp",
        "mail",
        "man",
        "munge",
        "news",
        "nobody",
        "nogroup",
        "proxy",
        "root",
        "slurm",
        "sshd",
        "sudo",
        "sync",
        "sys",
        "uucp",
        "www-data",
        "shadow",
        "staff",
        "users",
        "wheel",
        "adm",
        "tty",
        "disk",
        "utmp",
        "kmem",
        "dialout",
    }
)
KEY_TYPES = frozenset(
    {
        "ssh-ed25519",
        "ssh-rsa",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
    }
)
# A StatefulSet's pods carry the label controller-revision-hash, <name>-<10 characters>, of at most 63.
MAX_SET_NAME = 52
MIN_MEMORY = 256
# The jail's own, and what pods lay over it: a volume there would hide it from all jobs.
OWN_PATHS = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt/corral",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/tmp",
    "/usr",
    "/var/run",
    "/var/spool/slurmd",
)
SUB_MOUNT_SOURCES = ("claimName", "storageClassName", "hostPath", "memory", "scratch")


def mistakes(metadata: Json, spec: Json) -> Iterator[str]:
    """Yield a sentence for each mistake of a document whose structure is right."""
    yield from _volumes(spec)
    yield from _login(spec)
    yield from _node_sets(metadata["name"], spec.get("nodeSets") or [])
    yield from _partitions(spec)
    yield from _populate("spec.jail", spec["jail"])
    yield from _jails(spec)
    yield from _sub_mounts(spec)
    yield from _no_jail_users(spec)
    yield from _extra(spec)
    yield from _accounts(spec)


def _volumes(spec: Json) -> Iterator[str]:
    volumes = [("spec.controller.stateVolume", spec["controller"]["stateVolume"]), ("spec.jail.volume", spec["jail"]["volume"])]
    volumes.extend((f"spec.jails[{index}].volume", jail["volume"]) for index, jail in enumerate(spec.get("jails") or []))
    for path, volume in volumes:
        given = [key for key in ("claimName", "storageClassName", "hostPath") if volume.get(key) is not None]
        if len(given) != 1:
            yield f"{path} has {' and '.join(given) or 'no source'}; give exactly one of claimName, storageClassName and hostPath."
        elif given == ["claimName"] and "size" in volume:
            yield f"{path}.size goes with storageClassName and hostPath; a claim that exists has its size, so remove it."
        elif given != ["claimName"] and volume.get("size") is None:
            yield f"{path}.size is missing; say how big the claim shall be, such as 10Gi."


def _login(spec: Json) -> Iterator[str]:
    service = (spec.get("login") or {}).get("service") or {}
    if service.get("nodePort") is not None and service.get("type") != "NodePort":
        yield f"spec.login.service.nodePort goes with type NodePort, but the type is {service.get('type', 'ClusterIP')}; change one of them."


def _node_sets(cluster: str, node_sets: list[Json]) -> Iterator[str]:
    total = 0
    for index, node_set in enumerate(node_sets):
        path = f"spec.nodeSets[{index}]"
        name = node_set["name"]
        total += node_set.get("replicas", 1)
        if name in RESERVED_SETS:
            yield f"{path}.name is {name}, the name of one of corral's own components; choose another."
        if len(f"{cluster}-{name}") > MAX_SET_NAME:
            yield f"{path}.name makes the name {cluster}-{name} of {len(cluster) + 1 + len(name)} characters; {MAX_SET_NAME} are the most, so shorten it."
        yield from _size(path, node_set)
    if total > schema.MAX_NODES:
        yield f"spec.nodeSets has {total} nodes together; Slurm takes {schema.MAX_NODES} at most, so lower replicas."


def _size(path: str, node_set: Json) -> Iterator[str]:
    limits, requests = node_set["resources"]["limits"], node_set["resources"].get("requests") or {}
    memory = quantity.mebibytes(limits["memory"])
    if memory < MIN_MEMORY:
        yield f"{path}.resources.limits.memory is {limits['memory']}, {memory} MiB; a node needs {MIN_MEMORY}Mi at least, 128 of them for slurmd itself."
    shared = node_set.get("sharedMemory")
    if shared is not None and quantity.parse(shared) >= quantity.parse(limits["memory"]):
        yield f"{path}.sharedMemory is {shared}, but it counts as the node's memory, whose limit is {limits['memory']}; give less."
    where, cpu = ("limits", limits["cpu"]) if "cpu" in limits else ("requests", requests.get("cpu"))
    if cpu is None:
        yield f"{path}.resources.limits.cpu is missing; Slurm's CPUs are counted from it."
    elif quantity.parse(cpu) < 1:
        yield f"{path}.resources.{where}.cpu is {cpu}; a Slurm node has whole CPUs, so give limits.cpu of 1 or more (requests may be less)."
    for what, amount in requests.items():
        if what in limits and quantity.parse(amount) > quantity.parse(limits[what]):
            yield f"{path}.resources.requests.{what} is {amount}, more than the limit of {limits[what]}; lower the one or raise the other."


def _partitions(spec: Json) -> Iterator[str]:
    known = {node_set["name"] for node_set in spec.get("nodeSets") or []}
    defaults: list[int] = []
    for index, partition in enumerate(spec.get("partitions") or []):
        path = f"spec.partitions[{index}]"
        if partition["name"].upper() == "DEFAULT":
            yield f"{path}.name is {partition['name']}, Slurm's own word for the defaults of partitions; choose another."
        for place, name in enumerate(partition.get("nodeSets") or []):
            if name not in known:
                yield f"{path}.nodeSets[{place}] is {name}, which is not in spec.nodeSets ({', '.join(sorted(known)) or 'there are none'})."
        if partition.get("default"):
            defaults.append(index)
    if len(defaults) > 1:
        yield f"spec.partitions[{defaults[1]}].default is true, as spec.partitions[{defaults[0]}].default is; only one partition can be the default."


def _populate(path: str, jail: Json) -> Iterator[str]:
    populate = jail.get("populate") or {}
    if populate.get("policy", "IfEmpty") != "Never" and not populate.get("image"):
        yield f"{path}.populate.image is missing; name the image whose root becomes the jail, or set policy: Never for a volume that is filled."


def _jails(spec: Json) -> Iterator[str]:
    names = {"default"}
    for index, jail in enumerate(spec.get("jails") or []):
        path = f"spec.jails[{index}]"
        yield from _populate(path, jail)
        if jail["name"] in ("default", "populate", "users"):
            yield f"{path}.name is {jail['name']}, which has a meaning of its own; choose another."
        names.add(jail["name"])
    for index, partition in enumerate(spec.get("partitions") or []):
        if partition.get("jail", "default") not in names:
            yield f"spec.partitions[{index}].jail is {partition['jail']}, which is no jail of spec.jails ({', '.join(sorted(names))})."


def _sub_mounts(spec: Json) -> Iterator[str]:
    known = {node_set["name"] for node_set in spec.get("nodeSets") or []}
    seen: list[str] = []
    for index, mount in enumerate(spec["jail"].get("subMounts") or []):
        path = f"spec.jail.subMounts[{index}]"
        target: str = mount["path"]
        given = [key for key in SUB_MOUNT_SOURCES if mount.get(key) is not None]
        if len(given) != 1:
            yield f"{path} has {' and '.join(given) or 'no source'}; give exactly one of {', '.join(SUB_MOUNT_SOURCES)}."
        elif (given == ["storageClassName"]) != (mount.get("size") is not None):
            yield f"{path}.size goes with storageClassName, and only with it; {'add' if given == ['storageClassName'] else 'remove'} it."
        if {".", ".."} & set(target.split("/")):
            yield f"{path}.path is {target}; write it without '.' and '..'."
        own = next((own for own in OWN_PATHS if _within(target, own) or _within(own, target)), None)
        if own:
            yield f"{path}.path is {target}, but {own} is the jail's own; choose a path beside it, such as /scratch."
        later = next((other for other in seen if _within(other, target) and other != target), None)
        if later:
            yield f"{path}.path is {target}, in which {later} lies, which stands before it and would be hidden; put {target} first."
        seen.append(target)
        for place, name in enumerate(mount.get("nodeSets") or []):
            if name not in known:
                yield f"{path}.nodeSets[{place}] is {name}, which is not in spec.nodeSets ({', '.join(sorted(known)) or 'there are none'})."


def _within(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent}/")


def _no_jail_users(spec: Json) -> Iterator[str]:
    users = {user["name"] for user in spec.get("users") or []}
    for index, name in enumerate(spec["jail"].get("noJailUsers") or []):
        if name not in users:
            yield f"spec.jail.noJailUsers[{index}] is {name}, who is not in spec.users; add the user, or remove the name."


def _extra(spec: Json) -> Iterator[str]:
    for index, line in enumerate((spec.get("slurm") or {}).get("extraConfig") or []):
        path = f"spec.slurm.extraConfig[{index}]"
        try:
            key, value = conf.parse_pair(line)
        except conf.ConfError as error:
            yield f"{path}: {error}"
            continue
        if key.lower() in config.OWNED:
            yield f"{path} sets {key}, which corral sets itself: {config.OWNED[key.lower()]}; remove the line."
        for item in config.NEEDED_ITEMS.get(key.lower(), ()):
            if item.lower() not in value.lower().split(","):
                yield f"{path} replaces {key} but leaves out {item}, without which the cluster does not work; add it to the list."


def _accounts(spec: Json) -> Iterator[str]:
    groups, users = spec.get("groups") or [], spec.get("users") or []
    taken: dict[int, str] = {}
    names = {group["name"] for group in groups}
    for index, group in enumerate(groups):
        path = f"spec.groups[{index}]"
        yield from _account_name(path, group["name"])
        yield from _identity(f"{path}.gid", group["gid"], taken)
    uids: dict[int, str] = {}
    gids = {group["gid"] for group in groups}
    for index, user in enumerate(users):
        path = f"spec.users[{index}]"
        yield from _account_name(path, user["name"])
        yield from _identity(f"{path}.uid", user["uid"], uids)
        if user["name"] in names:
            yield f"{path}.name is {user['name']}, also a group of spec.groups; each user gets a group of that name, so rename one."
        if "gid" not in user:
            if user["uid"] in gids:
                yield f"{path}.uid is {user['uid']}, which is the gid of a group in spec.groups; give the user a gid, or another uid."
        elif user["gid"] not in gids:
            yield f"{path}.gid is {user['gid']}, which no group of spec.groups has; add the group, or leave gid out for a group of the user's own."
        for place, group_name in enumerate(user.get("groups") or []):
            if group_name not in names:
                yield f"{path}.groups[{place}] is {group_name}, which is not in spec.groups; add it there."
        for place, key in enumerate(user["sshKeys"]):
            reason = _key_mistake(key)
            if reason:
                yield f"{path}.sshKeys[{place}] {reason}; give the one line of a public key file such as ~/.ssh/id_ed25519.pub."


def _account_name(path: str, name: str) -> Iterator[str]:
    if name in SYSTEM_ACCOUNTS:
        yield f"{path}.name is {name}, an account of the system itself; choose another."


def _identity(path: str, number: int, taken: dict[int, str]) -> Iterator[str]:
    if 60001 <= number <= 65535:
        yield f"{path} is {number}; 60001 to 65535 belong to the system (nobody, slurm, munge, systemd's dynamic users), so choose another."
    if number in taken:
        yield f"{path} is {number}, as {taken[number]} is; each number can occur once."
    taken.setdefault(number, path)


def _key_mistake(key: str) -> str | None:
    """Return why a line is no public key, as the end of a sentence. The type stands in the blob too (RFC 4253 §6.6), so a cut or mixed line shows."""
    if "PRIVATE KEY" in key:
        return "is a private key, which must not be here and should be replaced"
    words = key.split(" ")
    if words[0] not in KEY_TYPES:
        return f"begins with {words[0][:40]!a}, not with the type of a public key"
    try:
        blob = base64.b64decode(words[1], validate=True) if len(words) > 1 else b""
    except binascii.Error:
        return "has a second word that is not base64"
    size = int.from_bytes(blob[:4], "big")
    if blob[4 : 4 + size] != words[0].encode() or len(blob) < 4 + size + 8:
        return f"is cut off or mixed up: its second word is no key of type {words[0]}"
    return None
