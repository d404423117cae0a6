# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a schema can not say of a document: names that clash, parts that do not fit one another, text that Slurm or sshd would misread."""

from __future__ import annotations

import base64
import contextlib
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import apiserver, config, egress, quantity, schema
from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf, hostlist, keys

Json = dict[str, Any]

# Names that a sentence offers.
_OFFERED = 10
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
# How many ids Kubernetes gives a pod that has a user namespace of its own, unless a kubelet is told otherwise (userNamespaces.idsPerPod).
NAMESPACE_IDS = 65536
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
# Bytes of a point of each curve, not compressed, and bits of the shortest RSA key (RequiredRSASize).
POINTS = {"nistp256": 65, "nistp384": 97, "nistp521": 133}
MIN_RSA = 1024
MAX_LABEL = 63
# A StatefulSet's pods carry the label controller-revision-hash, <name>-<10 characters>, of at most 63.
MAX_SET_NAME = 52
MIN_MEMORY = 256
# Slurm keeps them in 16 bits, of which the last two numbers mean something else.
MAX_CPUS = 65533
# Slurm's own most (MAX_GRES_BITMAP).
MAX_FILES = 1024
# Names of lines times sets of GPUs: seconds of a CPU. A document of the largest size that people write has some thousand.
MAX_COMPARED = 100_000
# In all lines of gres.conf together: a run that keeps nodes looks at each, a second for a million.
MAX_GRES_NODES = 1_000_000
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
# sssd's sockets are mounted in it.
SSSD_PATH = "/var/lib/sss"
# Of the containers that the document's variables go to.
# What a kubelet lets any pod set, since each pod has its own (kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster, Kubernetes 1.32).
SAFE_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
OWN_VARIABLES = frozenset({"POD_NAME", "POD_IP"})
# Of the pods: where the cluster's own files are, or what leads into the jail.
POD_PATHS = (
    "/dev",
    "/etc/corral",
    "/etc/slurm",
    "/home",
    "/mnt/homes",
    "/mnt/jail",
    "/mnt/jails",
    "/mnt/submounts",
    "/opt/corral",
    "/proc",
    "/run/munge",
    "/run/slurm",
    "/sys",
    "/tmp",
    "/usr/local/lib/corral",
    "/var/lib/extrausers",
    "/var/lib/sss",
    "/var/run",
    "/var/spool/corral-overlay",
    "/var/spool/slurmd",
)
# A volume over a whole one of these hides programs and libraries; a file in it may be replaced.
POD_FOLDERS = frozenset(
    {"/bin", "/lib", "/lib64", "/sbin", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/sbin", "/usr/share"}
)
SUB_MOUNT_SOURCES = ("claimName", "storageClassName", "hostPath", "memory", "scratch")


def mistakes(metadata: Json, spec: Json) -> Iterator[str]:
    """Yield a sentence for each mistake of a document whose structure is right."""
    yield from _volumes(spec)
    yield from apiserver.mistakes(spec)
    yield from _controller(spec["controller"])
    yield from _login(spec)
    yield from _node_sets(metadata["name"], spec.get("nodeSets") or [])
    yield from _partitions(spec)
    yield from _draining(spec)
    yield from _populate("spec.jail", spec["jail"])
    yield from _jails(metadata["name"], spec)
    yield from _sub_mounts(spec)
    yield from _no_jail_users(spec)
    yield from _no_new_privileges(spec)
    yield from _extra(spec)
    yield from _host_users(spec)
    yield from _gpus(spec)
    yield from _gres_lines(spec)
    yield from _topology(spec)
    yield from _pod_volumes(spec)
    yield from _accounts(spec)
    yield from _sssd(metadata["name"], spec)
    yield from egress.mistakes(spec)
    yield from _foreign_fields(spec.get("foreignFields") or [])


def _foreign_fields(entries: list[Json]) -> Iterator[str]:
    for index, entry in enumerate(entries):
        if not entry.get("field") and not entry.get("manager"):
            yield f"spec.foreignFields[{index}] has neither field nor manager, so it would allow everything; give one of them."


def _volumes(spec: Json) -> Iterator[str]:
    volumes = [("spec.controller.stateVolume", spec["controller"]["stateVolume"])]
    if spec["jail"].get("shared", True):
        volumes.append(("spec.jail.volume", spec["jail"]["volume"]))
    else:
        yield from _own_volume(spec["jail"])
    volumes.extend((f"spec.jails[{index}].volume", jail["volume"]) for index, jail in enumerate(spec.get("jails") or []))
    for path, volume in volumes:
        given = [key for key in ("claimName", "storageClassName", "hostPath") if volume.get(key) is not None]
        if len(given) != 1:
            yield f"{path} has {' and '.join(given) or 'no source'}; give exactly one of claimName, storageClassName and hostPath."
        elif given == ["claimName"] and "size" in volume:
            yield f"{path}.size goes with storageClassName and hostPath; a claim that exists has its size, so remove it."
        elif given != ["claimName"] and volume.get("size") is None:
            yield f"{path}.size is missing; say how big the claim shall be, such as 10Gi."


def _controller(controller: Json) -> Iterator[str]:
    """A second slurmctld is on another node, as a rule, and needs the same state."""
    volume = controller["stateVolume"]
    mode = volume.get("accessMode")
    if volume.get("claimName") is not None:
        if mode is not None:
            yield "spec.controller.stateVolume.accessMode goes with storageClassName and hostPath; a claim that exists has its own, so remove it."
    elif controller.get("replicas", 1) > 1 and mode != "ReadWriteMany":
        yield (
            f"spec.controller.replicas is {controller['replicas']}, but spec.controller.stateVolume.accessMode is {mode or 'ReadWriteOnce'}, a volume for "
            "one Kubernetes node; set it to ReadWriteMany, with a storage class or directory that all nodes share (docs/ha.md)."
        )


def _own_volume(jail: Json) -> Iterator[str]:
    """The volume that each pod has for itself."""
    volume = jail["volume"]
    given = [key for key in ("claimName", "hostPath") if volume.get(key) is not None]
    if given:
        yield (
            f"spec.jail.volume has {' and '.join(given)}, which is one for all pods, but spec.jail.shared is false: give size alone for a part of the "
            "nodes' own disks, or size and storageClassName for a claim of each pod."
        )
    elif volume.get("size") is None:
        yield "spec.jail.volume.size is missing; say how big the root of each pod may become, such as 50Gi."
    if (jail.get("populate") or {}).get("policy") == "Never":
        yield "spec.jail.populate.policy is Never, but with spec.jail.shared: false each pod's root begins empty: remove policy, and name an image."


def _login(spec: Json) -> Iterator[str]:
    service = (spec.get("login") or {}).get("service") or {}
    if service.get("nodePort") is not None and service.get("type") != "NodePort":
        yield f"spec.login.service.nodePort goes with type NodePort, but the type is {service.get('type', 'ClusterIP')}; change one of them."
    yield from _login_limits(spec.get("login") or {})
    yield from _init_scripts("spec.login", spec.get("login") or {})


def _login_limits(login: Json) -> Iterator[str]:
    """One user's part must be less than the whole, or it keeps nobody from anything."""
    limits = login.get("limits") or {}
    whole = ((login.get("resources") or {"limits": {"memory": schema.LOGIN_MEMORY}}).get("limits")) or {}
    for field in ("cpu", "memory"):
        if limits.get(field) is not None and not quantity.parse(limits[field]):
            yield f"spec.login.limits.{field} is {limits[field]}, with which nobody could log in; take the field away for no limit."
        elif (
            limits.get(field) is not None and whole.get(field) is not None and quantity.parse(limits[field]) > quantity.parse(whole[field])
        ):
            yield (
                f"spec.login.limits.{field} is {limits[field]} for each user, but the container has {whole[field]} for all of them "
                f"(spec.login.resources.limits.{field}); lower the first or raise the second."
            )


def _node_sets(cluster: str, node_sets: list[Json]) -> Iterator[str]:
    total = 0
    for index, node_set in enumerate(node_sets):
        path = f"spec.nodeSets[{index}]"
        name = node_set["name"]
        scale = node_set.get("scale")
        total += max(node_set.get("replicas", 1), scale["maxReplicas"] if scale else 0)
        if scale and scale.get("minReplicas", 0) > scale["maxReplicas"]:
            yield f"{path}.scale.minReplicas is {scale['minReplicas']}, more than maxReplicas, {scale['maxReplicas']}; lower the one or raise the other."
        if name in RESERVED_SETS:
            yield f"{path}.name is {name}, the name of one of corral's own components; choose another."
        if len(f"{cluster}-{name}") > MAX_SET_NAME:
            yield f"{path}.name makes the name {cluster}-{name} of {len(cluster) + 1 + len(name)} characters; {MAX_SET_NAME} are the most, so shorten it."
        yield from _size(path, node_set)
        yield from _node_line(path, node_set)
        yield from _init_scripts(path, node_set)
        for place, setting in enumerate(node_set.get("sysctls") or []):
            if setting["name"] not in SAFE_SYSCTLS:
                yield (
                    f"{path}.sysctls[{place}].name is {setting['name']}, which Kubernetes lets no pod set, as it is the machine's or not known to be safe; "
                    f"set it on the machines (sysctl.d), or choose one of {', '.join(sorted(SAFE_SYSCTLS))}."
                )
        for place, variable in enumerate(node_set.get("environment") or []):
            if variable["name"] in OWN_VARIABLES or variable["name"].startswith(("CORRAL_", "SLURM_")):
                yield f"{path}.environment[{place}].name is {variable['name']}, which corral sets or Slurm's daemons read; remove it."
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
    elif quantity.parse(cpu) >= MAX_CPUS + 1:
        yield f"{path}.resources.{where}.cpu is {cpu}; Slurm counts to {MAX_CPUS} on a node, so give less."


def _node_line(path: str, node_set: Json) -> Iterator[str]:
    """What is added to the line of a set must not make Slurm count its nodes otherwise than the pods are."""
    extra: dict[str, str] = node_set.get("extraNodeParameters") or {}
    yield from _pairs(f"{path}.extraNodeParameters", extra.items(), keys.NODE, config.OWNED_NODE)
    numbers = {key.lower(): int(value) for key, value in extra.items() if value.isascii() and value.isdigit()}
    cpus = _cpus(node_set)
    cores, threads = numbers.get("corespersocket", 1), numbers.get("threadspercore", 1)
    sockets = numbers.get("sockets", numbers.get("socketsperboard", 0) * numbers.get("boards", 1))
    if sockets and cpus not in (sockets * cores, sockets * cores * threads):
        yield f"{path}.extraNodeParameters makes {sockets} × {cores} × {threads} sockets, cores and threads, but the node has {cpus} CPUs; make them agree."
    elif not sockets and cores * threads and cpus % (cores * threads):
        yield f"{path}.extraNodeParameters has {cores} cores a socket and {threads} threads a core, of which {cpus} CPUs are no multiple; make them agree."
    memory = quantity.mebibytes(node_set["resources"]["limits"]["memory"]) - config.SLURMD_MEMORY
    if "memspeclimit" in numbers and numbers["memspeclimit"] >= memory:
        yield f"{path}.extraNodeParameters sets MemSpecLimit to {numbers['memspeclimit']} MiB, but the node has {memory}; give less."


def _cpus(node_set: Json) -> int:
    """Return the CPUs that Slurm counts on a node."""
    limits, requests = node_set["resources"]["limits"], node_set["resources"].get("requests") or {}
    return int(quantity.parse(limits.get("cpu") or requests.get("cpu") or 1))


def _pairs(path: str, pairs: Iterable[tuple[str, str]], table: keys.Table, owned: dict[str, str]) -> Iterator[str]:
    """Pairs for a line of slurm.conf."""
    seen: set[str] = set()
    for key, value in pairs:
        wrong = table.mistake(key, value)
        reason = conf.refusal(value)
        if key.lower() in owned:
            yield f"{path} sets {key}, which is corral's own: {owned[key.lower()]}; remove it."
        elif wrong:
            yield f"{path} sets {wrong}"
        elif reason:
            yield f"{path}.{key} {reason}; remove it."
        elif key.lower() in seen:
            yield f"{path} sets {key} a second time, since case does not count; remove one."
        seen.add(key.lower())


def _listed(names: set[str]) -> str:
    """The names that a sentence offers; it has room for a few."""
    shown = sorted(names)[:_OFFERED]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"{', '.join(shown)}{more}" if shown else "there are none"


def _partitions(spec: Json) -> Iterator[str]:
    known = {node_set["name"] for node_set in spec.get("nodeSets") or []}
    defaults: list[int] = []
    for index, partition in enumerate(spec.get("partitions") or []):
        path = f"spec.partitions[{index}]"
        if partition["name"].upper() == "DEFAULT":
            yield f"{path}.name is {partition['name']}, Slurm's own word for the defaults of partitions; choose another."
        for place, name in enumerate(partition.get("nodeSets") or []):
            if name not in known:
                yield f"{path}.nodeSets[{place}] is {name}, which is not in spec.nodeSets ({_listed(known)})."
        if partition.get("default"):
            defaults.append(index)
        yield from _limits(path, partition)
        yield from _who(path, partition, spec)
    if len(defaults) > 1:
        yield f"spec.partitions[{defaults[1]}].default is true, as spec.partitions[{defaults[0]}].default is; only one partition can be the default."


def _limits(path: str, partition: Json) -> Iterator[str]:
    yield from _pairs(f"{path}.extraParameters", (partition.get("extraParameters") or {}).items(), keys.PARTITION, config.OWNED_PARTITION)
    for one, other in schema.PARTITION_EXCLUSIVE:
        if one in partition and other in partition:
            yield f"{path} has {one} and {other}, which exclude one another; remove one."
    for less, more, amount in (
        ("minNodes", "maxNodes", int),
        ("defaultTime", "maxTime", _seconds),
        ("defMemPerCpu", "maxMemPerCpu", quantity.parse),
        ("defMemPerNode", "maxMemPerNode", quantity.parse),
    ):
        if less in partition and more in partition and amount(partition[less]) > amount(partition[more]):
            yield f"{path}.{less} is {partition[less]}, more than {more}, {partition[more]}; lower the one or raise the other."
    for field in sorted(config.PARTITION_MEMORY):
        if field in partition and quantity.mebibytes(partition[field]) < 1:
            yield f"{path}.{field} is {partition[field]}, less than 1Mi, which Slurm counts in; give more."


def _seconds(time: str) -> float:
    """A time of the schema's pattern."""
    if time == "INFINITE":
        return math.inf
    days, _dash, clock = time.rpartition("-")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _who(path: str, partition: Json, spec: Json) -> Iterator[str]:
    """Groups that nobody is in, and what needs more of the configuration."""
    settings = config.effective("cgroup", _extra_pairs(spec))
    groups = {"root", *(group["name"] for group in spec.get("groups") or []), *(user["name"] for user in spec.get("users") or [])}
    for place, name in enumerate(partition.get("allowGroups") or []):
        # A directory has groups of its own.
        if name not in groups and not spec.get("sssd"):
            yield f"{path}.allowGroups[{place}] is {name}, which is not in spec.groups; add it there."
    if not _accounting(settings):
        for field in ("qos", "allowQos", "denyQos", "allowAccounts", "denyAccounts"):
            if field in partition:
                yield f"{path}.{field} needs accounting, which this cluster has not; set AccountingStorageType in spec.slurm.extraConfig, or remove it."
    mode = partition.get("preemptMode", "OFF")
    if mode not in ("OFF", "GANG") and settings.get("preempttype", "").lower() != "preempt/partition_prio":
        yield f"{path}.preemptMode is {mode}, which needs PreemptType=preempt/partition_prio; add the line to spec.slurm.extraConfig."


def _accounting(settings: dict[str, str]) -> bool:
    return settings.get("accountingstoragetype", "").lower() not in ("", "accounting_storage/none")


def _draining(spec: Json) -> Iterator[str]:
    """Jobs that have a policy of their own must be such as there can be."""
    places = [("spec.workers", spec.get("workers") or {})]
    places.extend((f"spec.nodeSets[{index}]", node_set) for index, node_set in enumerate(spec.get("nodeSets") or []))
    # Without any of the document's, corral makes this one.
    known = {partition["name"] for partition in spec.get("partitions") or [{"name": "main"}]}
    accounting = _accounting(config.effective("cgroup", _extra_pairs(spec)))
    for place, pods in places:
        for path, part in ((f"{place}.drain", pods), (f"{place}.updateStrategy.drain", pods.get("updateStrategy") or {})):
            for index, rule in enumerate((part.get("drain") or {}).get("jobs") or []):
                where = f"{path}.jobs[{index}]"
                if not rule.get("partitions") and not rule.get("qos"):
                    yield f"{where} names neither partitions nor qos, so it would be for all jobs; name some, or set {path}.policy."
                for number, name in enumerate(rule.get("partitions") or []):
                    if name not in known:
                        yield f"{where}.partitions[{number}] is {name}, which is not in spec.partitions ({', '.join(sorted(known))}); correct the name."
                if rule.get("qos") and not accounting:
                    yield f"{where}.qos needs accounting, which this cluster has not; set AccountingStorageType in spec.slurm.extraConfig, or remove it."


def _populate(path: str, jail: Json) -> Iterator[str]:
    populate = jail.get("populate") or {}
    if populate.get("policy", "IfEmpty") != "Never" and not populate.get("image"):
        yield f"{path}.populate.image is missing; name the image whose root becomes the jail, or set policy: Never for a volume that is filled."


def _jails(cluster: str, spec: Json) -> Iterator[str]:
    names = {"default"}
    for index, jail in enumerate(spec.get("jails") or []):
        path = f"spec.jails[{index}]"
        yield from _populate(path, jail)
        if jail["name"] in ("default", "populate", "users"):
            yield f"{path}.name is {jail['name']}, which has a meaning of its own; choose another."
        # With the longest ending that a Job of the jail has; a Job's name becomes a label of its pods.
        longest = f"{cluster}-jail-{jail['name']}-populate-12345678"
        if len(longest) > MAX_LABEL:
            yield f"{path}.name makes the name of a Job of {len(longest)} characters; {MAX_LABEL} are the most, so shorten it by {len(longest) - MAX_LABEL}."
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
                yield f"{path}.nodeSets[{place}] is {name}, which is not in spec.nodeSets ({_listed(known)})."


def _pod_volumes(spec: Json) -> Iterator[str]:
    places = [("spec.login", spec.get("login") or {})]
    places.extend((f"spec.nodeSets[{index}]", node_set) for index, node_set in enumerate(spec.get("nodeSets") or []))
    for place, pods in places:
        seen: dict[str, str] = {}
        for index, volume in enumerate(pods.get("volumes") or []):
            path = f"{place}.volumes[{index}]"
            target: str = volume["mountPath"]
            given = [source for source in schema.POD_VOLUME_SOURCES if volume.get(source) is not None]
            if len(given) != 1:
                yield f"{path} has {' and '.join(given) or 'no source'}; give exactly one of {', '.join(schema.POD_VOLUME_SOURCES)}."
            if {".", ".."} & set(target.split("/")):
                yield f"{path}.mountPath is {target}; write it without '.' and '..'."
            own = (
                target if target in POD_FOLDERS else next((own for own in POD_PATHS if _within(target, own) or _within(own, target)), None)
            )
            if own:
                yield (
                    f"{path}.mountPath is {target}, but {own} is the pod's own; choose a path beside it, such as /mnt/{volume['name']}, or for what "
                    "users shall see spec.jail.subMounts."
                )
            if target in seen:
                yield f"{path}.mountPath is {target}, as that of {seen[target]} is; choose another."
            seen.setdefault(target, path)


def _init_scripts(path: str, pods: Json) -> Iterator[str]:
    for index, script in enumerate(pods.get("initScripts") or []):
        given = [source for source in ("script", "configMap") if script.get(source) is not None]
        if len(given) != 1:
            yield f"{path}.initScripts[{index}] has {' and '.join(given) or 'no text'}; give exactly one of script and configMap."


def _topology(spec: Json) -> Iterator[str]:
    """Where nodes are: every set at one place, and places that fit together."""
    topology: Json | None = (spec.get("slurm") or {}).get("topology")
    sets = [(f"spec.nodeSets[{index}]", node_set) for index, node_set in enumerate(spec.get("nodeSets") or [])]
    if topology is None:
        for path, node_set in sets:
            if "topology" in node_set:
                yield f"{path}.topology goes with spec.slurm.topology, which is missing; say there which plugin shall use it."
        return
    kind, other = ("switch", "block") if topology["plugin"] == "Tree" else ("block", "switch")
    for path, node_set in sets:
        place = node_set.get("topology") or {}
        if other in place:
            yield f"{path}.topology.{other} does not go with plugin {topology['plugin']}; name the {kind} instead."
        elif kind not in place:
            yield f"{path}.topology.{kind} is missing: with spec.slurm.topology Slurm must know of every node where it is; name its {kind}."
    if any(key.lower() == "topologyplugin" for key, _value in _extra_pairs(spec)):
        yield "spec.slurm.extraConfig sets TopologyPlugin, which spec.slurm.topology sets too; remove the line."
    places: dict[str, int] = {}
    for _path, node_set in sets:
        name = (node_set.get("topology") or {}).get(kind)
        if name:
            places[name] = places.get(name, 0) + node_set.get("replicas", 1)
    for field, plugin in (("switches", "Tree"), ("blockSizes", "Block")):
        if topology.get(field) and topology["plugin"] != plugin:
            yield f"spec.slurm.topology.{field} goes with plugin {plugin}, but it is {topology['plugin']}; remove it."
    if topology["plugin"] == "Tree":
        yield from _switches(topology.get("switches") or [], places)
    else:
        yield from _block_sizes(topology.get("blockSizes") or [], places)


def _switches(switches: list[Json], leaves: dict[str, int]) -> Iterator[str]:
    own = {switch["name"] for switch in switches}
    above: dict[str, str] = {}
    for index, switch in enumerate(switches):
        path = f"spec.slurm.topology.switches[{index}]"
        if switch["name"] in leaves:
            yield f"{path}.name is {switch['name']}, on which nodes of a node set hang; a switch has nodes or switches below it, so choose another name."
        for place, name in enumerate(switch["switches"]):
            if name not in own and name not in leaves:
                known = ", ".join(sorted({*own, *leaves} - {switch["name"]}))
                yield f"{path}.switches[{place}] is {name}, which is no switch of a node set nor of this list ({known})."
            elif name in above:
                yield f"{path}.switches[{place}] is {name}, which hangs below {above[name]} already; a switch hangs below one other."
            above.setdefault(name, switch["name"])
    if not switches:
        return
    for name in sorted(set(leaves) - set(above) - own):
        yield f"spec.slurm.topology.switches has nothing above {name}, on which nodes of a node set hang; name it below one of them."
    for switch in switches:
        name, seen = switch["name"], {switch["name"]}
        while name in above and above[name] not in seen:
            name = above[name]
            seen.add(name)
        if name in above and above[name] == switch["name"]:
            yield f"spec.slurm.topology.switches goes round in a circle at {switch['name']}, which hangs below itself; remove one of its lines."
            return


def _block_sizes(sizes: list[int], blocks: dict[str, int]) -> Iterator[str]:
    path = "spec.slurm.topology.blockSizes"
    for index, size in enumerate(sizes[1:], 1):
        factor = size // sizes[0]
        if size <= sizes[index - 1] or size % sizes[0] or factor & (factor - 1):
            yield f"{path}[{index}] is {size}; each is twice, four times, … the first, {sizes[0]}, and more than the one before it."
    for name, count in sorted(blocks.items()):
        if sizes and 0 < count < sizes[0]:
            yield f"{path}[0] is {sizes[0]}, but the block {name} has {count} nodes; give no more than the smallest block has."


def _within(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent}/")


def _sssd(cluster: str, spec: Json) -> Iterator[str]:
    sssd = spec.get("sssd")
    if not sssd:
        return
    secrets = (f"{cluster}-base-munge-key", f"{cluster}-login-host-keys")
    if sssd["configSecret"] in secrets:
        yield f"spec.sssd.configSecret is {sssd['configSecret']}, one of corral's own Secrets; name the one that holds sssd.conf."
    homes: str = sssd.get("homes", "/home")
    if {".", ".."} & set(homes.split("/")):
        yield f"spec.sssd.homes is {homes}; write it without '.' and '..'."
    own = next((own for own in OWN_PATHS if _within(homes, own) or _within(own, homes)), None)
    if own:
        yield f"spec.sssd.homes is {homes}, but {own} is the system's own; choose where homes lie, such as /home."
    for index, mount in enumerate(spec["jail"].get("subMounts") or []):
        if _within(SSSD_PATH, mount["path"]) or _within(mount["path"], SSSD_PATH):
            yield f"spec.jail.subMounts[{index}].path is {mount['path']}, but with spec.sssd {SSSD_PATH} is the jail's own; choose a path beside it."


def _no_jail_users(spec: Json) -> Iterator[str]:
    users = {user["name"] for user in spec.get("users") or []}
    for index, name in enumerate(spec["jail"].get("noJailUsers") or []):
        if name not in users:
            yield f"spec.jail.noJailUsers[{index}] is {name}, who is not in spec.users; add the user, or remove the name."
    root = next((user["name"] for user in spec.get("users") or [] if user.get("sudo")), None)
    if root and spec["jail"].get("noJailUsers") and not spec["jail"].get("noJailDespiteSudo"):
        yield (
            f"spec.jail.noJailUsers can not be had beside {root}, who has sudo: as root of the jail {root} can take over a job that runs outside of it, and be "
            "root of the worker's pod; empty the list, take sudo away, or say that you accept it by spec.jail.noJailDespiteSudo: true."
        )


def _no_new_privileges(spec: Json) -> Iterator[str]:
    root = next((user["name"] for user in spec.get("users") or [] if user.get("sudo")), None)
    if root and (spec.get("security") or {}).get("noNewPrivileges"):
        yield f"spec.security.noNewPrivileges is true, but {root} has sudo, which is such a privilege; take sudo away, or set it to false."


def _extra(spec: Json) -> Iterator[str]:
    slurm = spec.get("slurm") or {}
    tracking = slurm.get("processTracking", "cgroup")
    yield from _lines("spec.slurm.extraConfig", slurm.get("extraConfig"), keys.SLURM, config.OWNED)
    yield from _lines("spec.slurm.extraCgroupConfig", slurm.get("extraCgroupConfig"), keys.CGROUP, config.OWNED_CGROUP)
    yield from _lines("spec.slurm.extraGresConfig", slurm.get("extraGresConfig"), keys.GRES, {}, several=True)
    yield from _lines("spec.slurm.extraMpiConfig", slurm.get("extraMpiConfig"), keys.MPI, {})
    for index, line in enumerate(slurm.get("extraPlugstackConfig") or []):
        try:
            plugin = conf.parse_plugin(line).split()[1]
        except conf.ConfError as error:
            yield f"spec.slurm.extraPlugstackConfig[{index}]: {error}"
            continue
        if plugin.rpartition("/")[2] == config.JAIL_PLUGIN.rpartition("/")[2]:
            yield f"spec.slurm.extraPlugstackConfig[{index}] names the jail's own plugin, which corral sets itself; remove the line."
    if slurm.get("extraCgroupConfig") and tracking != "cgroup":
        yield f"spec.slurm.extraCgroupConfig goes with processTracking: cgroup, but it is {tracking}; remove the lines."
    if tracking == "cgroup" and (slurm.get("isolation") or {}).get("pid") == "Job":
        yield (
            "spec.slurm.isolation.pid is Job, but processTracking is cgroup, where Slurm ends all processes of a job by itself, and waits for a step's "
            "cgroup to be empty; remove it, or set processTracking: linuxproc."
        )
    settings = config.effective(tracking, _extra_pairs(spec))
    for sentence in keys.conflicts(settings):
        yield f"spec.slurm.extraConfig: {sentence}"
    flags = {flag.strip().lower() for flag in settings["prologflags"].split(",")}
    if (spec.get("workers") or {}).get("ssh", "WithJob") != "Never" and not flags & config.CONTAIN_FLAGS:
        yield "spec.slurm.extraConfig replaces PrologFlags but leaves out Contain, without which nobody gets into his job by ssh; add it to the list."
    for index, node_set in enumerate(spec.get("nodeSets") or []):
        if any(key.lower() == "gres" for key in node_set.get("extraNodeParameters") or {}) and "grestypes" not in settings:
            yield f"spec.nodeSets[{index}].extraNodeParameters sets Gres, which needs GresTypes; add such a line to spec.slurm.extraConfig."


def _host_users(spec: Json) -> Iterator[str]:
    """What pods with a user namespace of their own can not do."""
    sets = [(f"spec.nodeSets[{index}]", one) for index, one in enumerate(spec.get("nodeSets") or [])]
    own = [path for path, one in [("spec.login", spec.get("login") or {}), *sets] if one.get("hostUsers") is False]
    # slurmd confines jobs by cgroups, of which a part is for the machine's own root alone.
    if (spec.get("slurm") or {}).get("processTracking", "cgroup") == "cgroup":
        for path in own:
            if path != "spec.login":
                yield (
                    f"{path}.hostUsers is false, but with processTracking: cgroup slurmd has to be root on the Kubernetes node: the kernel takes "
                    "no bpf from a user namespace, by which jobs are kept to their devices; remove it, or set processTracking: linuxproc."
                )
    for kind, key in (("users", "uid"), ("groups", "gid")):
        for index, one in enumerate(spec.get(kind) or [] if own else []):
            if one[key] >= NAMESPACE_IDS:
                yield (
                    f"spec.{kind}[{index}].{key} is {one[key]}, but {own[0]}.hostUsers is false: the user namespace that Kubernetes gives a pod has the "
                    f"ids up to {NAMESPACE_IDS - 1}, and no process in it can have another; choose one of these, or remove hostUsers."
                )


def _gpus(spec: Json) -> Iterator[str]:
    """GPUs of node sets, and what else speaks of such."""
    slurm = spec.get("slurm") or {}
    sets = [(f"spec.nodeSets[{index}]", node_set) for index, node_set in enumerate(spec.get("nodeSets") or []) if node_set.get("gpu")]
    if not sets:
        return
    for path, node_set in sets:
        yield from _gpu(path, node_set)
    kinds = dict(_extra_pairs(spec))
    for key, value in kinds.items():
        if key.lower() == "grestypes" and "gpu" not in value.lower().split(","):
            yield f"spec.slurm.extraConfig replaces GresTypes but leaves out gpu, which {sets[0][0]}.gpu needs; add it to the list."
    vendors = {node_set["gpu"]["vendor"]: path for path, node_set in sets}
    if slurm.get("processTracking", "cgroup") == "cgroup" and "simulated" in vendors:
        real = next((path for vendor, path in vendors.items() if vendor != "simulated"), None)
        if real:
            yield (
                f"{vendors['simulated']}.gpu is simulated and {real}.gpu is not: with processTracking: cgroup one file for the whole cluster says whether jobs "
                "are kept from the GPUs of others, which simulated ones can not be; give them a cluster of their own."
            )
        for line in _pairs_of(slurm.get("extraCgroupConfig")):
            if any(key.lower() == "constraindevices" and value.lower() in ("yes", "true", "1", "up") for key, value in line):
                yield (
                    f"spec.slurm.extraCgroupConfig sets ConstrainDevices, but {vendors['simulated']}.gpu is simulated: its GPUs are one device file, which "
                    "jobs need; remove the line."
                )


def _gpu(path: str, node_set: Json) -> Iterator[str]:
    gpu = node_set["gpu"]
    for field in ("resourceName", "runtimeClassName"):
        if gpu["vendor"] == "simulated" and field in gpu:
            yield f"{path}.gpu.{field} goes with GPUs that are there, but vendor is simulated; remove it."
    if "mig-" in gpu.get("resourceName", "") and gpu.get("count", 1) > 1:
        yield (
            f"{path}.gpu.count is {gpu['count']} of {gpu['resourceName']}, parts of GPUs, which Slurm can not tell apart by their files; give each node "
            "one of them and the set more nodes, or ask for whole GPUs."
        )
    yield from _cores(path, node_set)
    yield from _links(f"{path}.gpu.links", node_set["gpu"])
    if any(key.lower() == "gres" for key in node_set.get("extraNodeParameters") or {}):
        yield f"{path}.extraNodeParameters sets Gres, which {path}.gpu sets too; remove one of them."


def _cores(path: str, node_set: Json) -> Iterator[str]:
    """Which cores are near which GPUs."""
    near: list[str] = node_set["gpu"].get("cores") or []
    count = node_set["gpu"].get("count", 1)
    if near and count % len(near):
        yield f"{path}.gpu.cores has {len(near)} entries, of which {count} GPUs are no multiple; give one for each GPU, or for each so many of them."
    threads = {key.lower(): value for key, value in (node_set.get("extraNodeParameters") or {}).items()}.get("threadspercore", "1")
    cores = _cpus(node_set) // (int(threads) if threads.isascii() and threads.isdigit() and int(threads) else 1)
    for index, text in enumerate(near):
        for first, _dash, last in (part.partition("-") for part in text.split(",")):
            low, high = int(first), int(last or first)
            if low > high:
                yield f"{path}.gpu.cores[{index}] goes from {low} to {high}; write the smaller number first."
            elif high >= cores:
                yield f"{path}.gpu.cores[{index}] names core {high}, but the node has {cores}, from 0 to {cores - 1}; correct it, or raise resources."


def _links(path: str, gpu: Json) -> Iterator[str]:
    """A square of numbers, the same seen from either end: Slurm would ignore another, or end."""
    count = gpu.get("count", 1)
    rows = [[int(number) for number in row.split(",")] for row in gpu.get("links") or []]
    if rows and len(rows) != count:
        yield f"{path} has {len(rows)} entries, but there are {count} GPUs; give one for each."
        return
    right: list[int] = []
    for index, row in enumerate(rows):
        if len(row) != count:
            yield f"{path}[{index}] has {len(row)} numbers, but there are {count} GPUs; give one for each, -1 for this one itself."
        elif [place for place, number in enumerate(row) if number < 0] != [index]:
            yield f"{path}[{index}] has -1 elsewhere than for GPU {index} itself, the entry's number {index + 1}; put it there, and 0 for no links."
        else:
            right.append(index)
            other = next((place for place in right if rows[place][index] != row[place]), None)
            if other is not None:
                yield f"{path}[{index}] has {row[other]} links to GPU {other}, which has {rows[other][index]} to GPU {index}; make them agree."


def _gres_lines(spec: Json) -> Iterator[str]:
    """Lines of gres.conf: hostlists that Slurm can take, and GPUs of a set that has its own. Never expanded: a line can name a thousand million nodes."""
    lines = [{key.lower(): value for key, value in line} for line in _pairs_of((spec.get("slurm") or {}).get("extraGresConfig"))]
    sets = [(f"spec.nodeSets[{index}]", node_set) for index, node_set in enumerate(spec.get("nodeSets") or []) if node_set.get("gpu")]
    if sum(words.get("nodename", "").count(",") + 1 for words in lines) * len(sets) > MAX_COMPARED:
        yield "spec.slurm.extraGresConfig names too many nodes one by one; write ranges such as gpu-[0-7], or fewer lines."
        return
    total = 0
    for index, words in enumerate(lines):
        yield from _gres_line(f"spec.slurm.extraGresConfig[{index}]", words, sets)
        with contextlib.suppress(hostlist.HostlistError):
            total += hostlist.count(words.get("nodename", ""))
    if total > MAX_GRES_NODES:
        yield (
            f"spec.slurm.extraGresConfig names {total} nodes in all its lines together; {MAX_GRES_NODES} are the most, so write fewer lines."
        )


def _gres_line(path: str, words: dict[str, str], sets: list[tuple[str, Json]]) -> Iterator[str]:
    try:
        for key, most in (("nodename", schema.MAX_NODES), ("file", MAX_FILES), ("files", MAX_FILES)):
            # Of files, white space is a part of their names.
            text = words.get(key, "") if key == "nodename" else words.get(key, "").replace(" ", "_")
            if hostlist.count(text) > most:
                yield f"{path} has more than {most} {'nodes' if key == 'nodename' else 'files'} in {key}, which Slurm does not take; check its ranges."
                return
        if not re.fullmatch("[0-9]+[KMGTPkmgtp]?", words.get("count", "0")):
            yield f"{path} has the Count {words['count']}; write a number, with K, M, G, T or P if wanted."
        if words.get("name", "").lower() != "gpu" and "autodetect" not in words:
            return
        prefixes = [f"{node_set['name']}-" for _place, node_set in sets]
        first = hostlist.first_named(words["nodename"], prefixes) if "nodename" in words else 0
        if sets and first is not None:
            yield f"{path} describes GPUs of nodes whose GPUs {sets[first][0]}.gpu describes; remove the line, or name other nodes by NodeName."
    except hostlist.HostlistError as error:
        yield f"{path}: {error}"


def _pairs_of(lines: list[str] | None) -> list[list[tuple[str, str]]]:
    """The pairs of each line, none of a line that is not well-formed."""
    found = []
    for line in lines or []:
        try:
            found.append(conf.parse_pairs(line))
        except conf.ConfError:
            found.append([])
    return found


def _extra_pairs(spec: Json) -> list[tuple[str, str]]:
    """The extra lines of slurm.conf that are well-formed."""
    pairs = []
    for line in (spec.get("slurm") or {}).get("extraConfig") or []:
        with contextlib.suppress(conf.ConfError):
            pairs.append(conf.parse_pair(line))
    return pairs


def _lines(path: str, lines: list[str] | None, table: keys.Table, owned: dict[str, str], *, several: bool = False) -> Iterator[str]:
    """Lines for one of Slurm's files, of one pair each, or of ``several``."""
    seen: dict[str, int] = {}
    for index, line in enumerate(lines or []):
        where = f"{path}[{index}]"
        try:
            pairs = conf.parse_pairs(line) if several else [conf.parse_pair(line)]
        except conf.ConfError as error:
            yield f"{where}: {error}"
            continue
        for key, value in pairs:
            wrong = table.mistake(key, value)
            if key.lower() in owned:
                yield f"{where} sets {key}, which corral sets itself: {owned[key.lower()]}; remove the line."
            elif wrong:
                yield f"{where} sets {wrong}"
            elif not several and key.lower() in seen:
                yield f"{where} sets {key}, as {path}[{seen[key.lower()]}] does; remove one."
            for item in config.NEEDED_ITEMS.get(key.lower(), ()):
                if item.lower() not in value.lower().split(","):
                    yield f"{where} replaces {key} but leaves out {item}, without which the cluster does not work; add it to the list."
            seen.setdefault(key.lower(), index)


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
    if schema.SYSTEM_IDS[0] <= number <= schema.SYSTEM_IDS[1]:
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
        return "does not begin with the type of a public key, such as ssh-ed25519"
    try:
        blob = base64.b64decode(words[1], validate=True) if len(words) > 1 else b""
    except ValueError:  # binascii's, and that of what is not ASCII
        return "has a second word that is not base64"
    parts = _parts(blob)
    if not parts or parts[0] != words[0].encode() or not _complete(parts):
        return f"is cut off or mixed up: its second word is no key of type {words[0]}"
    if words[0] == "ssh-rsa" and int.from_bytes(parts[2], "big").bit_length() < MIN_RSA:
        return f"is an RSA key of {int.from_bytes(parts[2], 'big').bit_length()} bits, which sshd refuses; it takes {MIN_RSA} at least"
    return None


def _parts(blob: bytes) -> list[bytes]:
    """The strings of a key (RFC 4251 §5), none where it does not end with one."""
    parts: list[bytes] = []
    while blob:
        size = int.from_bytes(blob[:4], "big")
        if len(blob) < 4 + size:
            return []
        parts.append(blob[4 : 4 + size])
        blob = blob[4 + size :]
    return parts


def _complete(parts: list[bytes]) -> bool:
    """Whether a key has all that its type has: RFC 4253 §6.6, RFC 5656 §3.1, RFC 8709 §4, and OpenSSH's PROTOCOL.u2f."""
    kind = parts[0].decode()
    if kind == "ssh-rsa":
        return len(parts) == 3 and all(parts)
    if kind.endswith("ssh-ed25519@openssh.com") or kind == "ssh-ed25519":
        return len(parts) == (3 if kind.startswith("sk-") else 2) and len(parts[1]) == 32
    curve = kind.removeprefix("sk-").partition("@")[0].removeprefix("ecdsa-sha2-")
    return len(parts) == (4 if kind.startswith("sk-") else 3) and parts[1] == curve.encode() and len(parts[2]) == POINTS[curve]
