# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a document must be beyond its structure: the rules that stand in the schema, and what these cannot say, such as names that clash, parts that do not
fit one another, and text that Slurm or sshd would misread.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import (
    accounting,
    apiserver,
    components,
    config,
    defaults,
    egress,
    health,
    quantity,
    rest,
    schema,
    shapes,
)
from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf, hostlist, keys

Json = dict[str, Any]

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
# In all lines of gres.conf together: a run that retains nodes reads each, a second for a million.
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
    "/run/sack",
    "/run/slurm",
    "/run/slurm-key",
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


def errors(metadata: Json, spec: Json, written: Json) -> Iterator[str]:
    """Yield a sentence for each error of a spec whose structure is right, and which has the schema's defaults; ``written`` is it without these."""
    # Without any of the document's, corral makes this partition.
    named = shapes.Document({**spec, "partitions": spec["partitions"] or [{"name": defaults.PARTITION}]})
    yield from _declared(spec, schema.spec(), "spec", named)
    yield from apiserver.errors(spec, written)
    yield from _login_limits(spec["login"])
    yield from _node_sets(metadata["name"], spec["nodeSets"])
    yield from _partitions(spec)
    yield from _draining(spec)
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
    yield from egress.errors(spec)
    yield from accounting.errors(spec)
    yield from rest.errors(spec)
    yield from health.errors(spec, {key.lower(): value for key, value in _extra_pairs(spec)})


def _declared(value: Any, rules: Json, path: str, document: shapes.Document) -> Iterator[str]:
    """The rules that stand in the schema."""
    yield from shapes.errors(rules.get(schema.RULES, ()), value, path, document)
    for key, child in rules.get("properties", {}).items():
        if key in value:
            yield from _declared(value[key], child, f"{path}.{key}", document)
    if "items" in rules:
        for index, item in enumerate(value):
            yield from _declared(item, rules["items"], f"{path}[{index}]", document)


def _login_limits(login: Json) -> Iterator[str]:
    """One user's part must be less than the whole, or it keeps nobody from anything."""
    limits, whole = login["limits"], login["resources"].get("limits", {})
    for field in ("cpu", "memory"):
        if field in limits and not quantity.parse(limits[field]):
            yield f"spec.login.limits.{field} is {limits[field]}, with which nobody could log in; take the field away for no limit."
        elif field in limits and field in whole and quantity.parse(limits[field]) > quantity.parse(whole[field]):
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
        total += max(node_set["replicas"], scale["maxReplicas"] if scale else 0)
        if name in components.RESERVED:
            yield f"{path}.name is {name}, the name of one of corral's own components; choose another."
        if len(f"{cluster}-{name}") > MAX_SET_NAME:
            yield f"{path}.name makes the name {cluster}-{name} of {len(cluster) + 1 + len(name)} characters; {MAX_SET_NAME} are the most, so shorten it."
        yield from _size(path, node_set)
        yield from _node_line(path, node_set)
        for place, setting in enumerate(node_set["sysctls"]):
            if setting["name"] not in SAFE_SYSCTLS:
                yield (
                    f"{path}.sysctls[{place}].name is {setting['name']}, which Kubernetes lets no pod set, as it belongs to the "
                    f"Kubernetes node or is not known to be safe; "
                    f"set it on the Kubernetes nodes (sysctl.d), or choose one of {', '.join(sorted(SAFE_SYSCTLS))}."
                )
        for place, variable in enumerate(node_set["environment"]):
            if variable["name"] in OWN_VARIABLES or variable["name"].startswith(("CORRAL_", "SLURM_")):
                yield f"{path}.environment[{place}].name is {variable['name']}, which corral sets or Slurm's daemons read; remove it."
    if total > schema.MAX_NODES:
        yield f"spec.nodeSets has {total} nodes together; Slurm takes {schema.MAX_NODES} at most, so lower replicas."


def _size(path: str, node_set: Json) -> Iterator[str]:
    limits, requests = node_set["resources"]["limits"], node_set["resources"].get("requests", {})
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
    extra: dict[str, str] = node_set["extraNodeParameters"]
    yield from _pairs(f"{path}.extraNodeParameters", extra.items(), keys.NODE, config.OWNED_NODE)
    numbers = {key.lower(): int(value) for key, value in extra.items() if value.isascii() and value.isdigit()}
    cpus, memory = config.size(node_set["resources"])
    cores, threads = numbers.get("corespersocket", 1), numbers.get("threadspercore", 1)
    sockets = numbers.get("sockets", numbers.get("socketsperboard", 0) * numbers.get("boards", 1))
    if sockets and cpus not in (sockets * cores, sockets * cores * threads):
        yield f"{path}.extraNodeParameters makes {sockets} × {cores} × {threads} sockets, cores and threads, but the node has {cpus} CPUs; make them agree."
    elif not sockets and cores * threads and cpus % (cores * threads):
        yield f"{path}.extraNodeParameters has {cores} cores a socket and {threads} threads a core, of which {cpus} CPUs are no multiple; make them agree."
    if "memspeclimit" in numbers and numbers["memspeclimit"] >= memory:
        yield f"{path}.extraNodeParameters sets MemSpecLimit to {numbers['memspeclimit']} MiB, but the node has {memory}; give less."


def _pairs(path: str, pairs: Iterable[tuple[str, str]], table: keys.Table, owned: dict[str, str]) -> Iterator[str]:
    """Pairs for a line of slurm.conf."""
    seen: set[str] = set()
    for key, value in pairs:
        wrong = table.problem(key, value)
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


def _partitions(spec: Json) -> Iterator[str]:
    for index, partition in enumerate(spec["partitions"]):
        path = f"spec.partitions[{index}]"
        if partition["name"].upper() == "DEFAULT":
            yield f"{path}.name is {partition['name']}, Slurm's own name for the defaults of partitions; choose another."
        yield from _limits(path, partition)
        yield from _who(path, partition, spec)


def _limits(path: str, partition: Json) -> Iterator[str]:
    yield from _pairs(f"{path}.extraParameters", partition["extraParameters"].items(), keys.PARTITION, config.OWNED_PARTITION)
    for field in sorted(config.PARTITION_MEMORY):
        if field in partition and quantity.mebibytes(partition[field]) < 1:
            yield f"{path}.{field} is {partition[field]}, less than 1Mi, which Slurm counts in; give more."


def _who(path: str, partition: Json, spec: Json) -> Iterator[str]:
    """Groups that nobody is in, and what needs more of the configuration."""
    settings = config.effective(spec["slurm"], _extra_pairs(spec))
    groups = {"root", *(group["name"] for group in spec["groups"]), *(user["name"] for user in spec["users"])}
    for place, name in enumerate(partition.get("allowGroups", [])):
        # A directory has groups of its own.
        if name not in groups and "sssd" not in spec:
            yield f"{path}.allowGroups[{place}] is {name}, which is not in spec.groups; add it there."
    if not _accounting(spec, settings):
        for field in ("qos", "allowQos", "denyQos", "allowAccounts", "denyAccounts"):
            if field in partition:
                yield f"{path}.{field} {_NO_ACCOUNTING}"
    mode = partition.get("preemptMode", "OFF")
    if mode not in ("OFF", "GANG") and settings.get("preempttype", "").lower() != "preempt/partition_prio":
        yield f"{path}.preemptMode is {mode}, which needs PreemptType=preempt/partition_prio; add the line to spec.slurm.extraConfig."


_NO_ACCOUNTING = "needs accounting, which this cluster has not; set spec.accounting, or remove it."


def _accounting(spec: Json, settings: dict[str, str]) -> bool:
    return "accounting" in spec or settings.get("accountingstoragetype", "").lower() not in ("", "accounting_storage/none")


def _draining(spec: Json) -> Iterator[str]:
    """QoS that have a policy of their own must be such as there can be."""
    places = [("spec.workers", spec["workers"])]
    places.extend((f"spec.nodeSets[{index}]", node_set) for index, node_set in enumerate(spec["nodeSets"]))
    accounted = _accounting(spec, config.effective(spec["slurm"], _extra_pairs(spec)))
    for place, pods in places:
        for path, part in ((f"{place}.drain", pods), (f"{place}.updateStrategy.drain", pods["updateStrategy"])):
            for index, rule in enumerate(part["drain"].get("jobs", [])):
                if rule["qos"] and not accounted:
                    yield f"{path}.jobs[{index}].qos {_NO_ACCOUNTING}"


def _jails(cluster: str, spec: Json) -> Iterator[str]:
    for index, jail in enumerate(spec["jails"]):
        path = f"spec.jails[{index}]"
        if jail["name"] in ("default", "populate", "users"):
            yield f"{path}.name is {jail['name']}, which has a meaning of its own; choose another."
        # With the longest ending that a Job of the jail has; a Job's name becomes a label of its pods.
        longest = f"{cluster}-jail-{jail['name']}-populate-12345678"
        if len(longest) > MAX_LABEL:
            yield f"{path}.name makes the name of a Job of {len(longest)} characters; {MAX_LABEL} are the most, so shorten it by {len(longest) - MAX_LABEL}."


def _sub_mounts(spec: Json) -> Iterator[str]:
    seen: list[str] = []
    for index, mount in enumerate(spec["jail"]["subMounts"]):
        path = f"spec.jail.subMounts[{index}]"
        target: str = mount["path"]
        if {".", ".."} & set(target.split("/")):
            yield f"{path}.path is {target}; write it without '.' and '..'."
        own = next((own for own in OWN_PATHS if _within(target, own) or _within(own, target)), None)
        if own:
            yield f"{path}.path is {target}, but {own} is the jail's own; choose a path beside it, such as /scratch."
        later = next((other for other in seen if _within(other, target) and other != target), None)
        if later:
            yield f"{path}.path is {target}, in which {later} lies, which stands before it and would be hidden; put {target} first."
        seen.append(target)


def _pod_volumes(spec: Json) -> Iterator[str]:
    places = [("spec.login", spec["login"])]
    places.extend((f"spec.nodeSets[{index}]", node_set) for index, node_set in enumerate(spec["nodeSets"]))
    for place, pods in places:
        for index, volume in enumerate(pods["volumes"]):
            path = f"{place}.volumes[{index}]"
            target: str = volume["mountPath"]
            if {".", ".."} & set(target.split("/")):
                yield f"{path}.mountPath is {target}; write it without '.' and '..'."
            own = (
                target if target in POD_FOLDERS else next((own for own in POD_PATHS if _within(target, own) or _within(own, target)), None)
            )
            if own:
                yield (
                    f"{path}.mountPath is {target}, but {own} is the pod's own; choose a path beside it, such as /mnt/{volume['name']}, or for what "
                    "users should see spec.jail.subMounts."
                )


def _topology(spec: Json) -> Iterator[str]:
    """Where nodes are: every set at one place, and places that fit together."""
    topology: Json | None = spec["slurm"].get("topology")
    sets = [(f"spec.nodeSets[{index}]", node_set) for index, node_set in enumerate(spec["nodeSets"])]
    if topology is None:
        for path, node_set in sets:
            if "topology" in node_set:
                yield f"{path}.topology goes with spec.slurm.topology, which is missing; choose the plugin there."
        return
    kind, other = ("switch", "block") if topology["plugin"] == "Tree" else ("block", "switch")
    for path, node_set in sets:
        place = node_set.get("topology", {})
        if other in place:
            yield f"{path}.topology.{other} does not go with plugin {topology['plugin']}; name the {kind} instead."
        elif kind not in place:
            yield f"{path}.topology.{kind} is missing: with spec.slurm.topology Slurm must know of every node where it is; name its {kind}."
    if any(key.lower() == "topologyplugin" for key, _value in _extra_pairs(spec)):
        yield "spec.slurm.extraConfig sets TopologyPlugin, which spec.slurm.topology sets too; remove the line."
    places: dict[str, int] = {}
    for _path, node_set in sets:
        name = node_set.get("topology", {}).get(kind)
        if name:
            places[name] = places.get(name, 0) + node_set["replicas"]
    if topology["plugin"] == "Tree":
        yield from _switches(topology["switches"], places)
    else:
        yield from _block_sizes(topology["blockSizes"], places)


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
    secrets = (*(f"{cluster}-base-{auth}-key" for auth in schema.AUTH), f"{cluster}-login-host-keys")
    if sssd["configSecret"] in secrets:
        yield f"spec.sssd.configSecret is {sssd['configSecret']}, one of corral's own Secrets; name the one that holds sssd.conf."
    homes: str = sssd["homes"]
    if {".", ".."} & set(homes.split("/")):
        yield f"spec.sssd.homes is {homes}; write it without '.' and '..'."
    own = next((own for own in OWN_PATHS if _within(homes, own) or _within(own, homes)), None)
    if own:
        yield f"spec.sssd.homes is {homes}, but {own} is the system's own; choose where homes lie, such as /home."
    for index, mount in enumerate(spec["jail"]["subMounts"]):
        if _within(SSSD_PATH, mount["path"]) or _within(mount["path"], SSSD_PATH):
            yield f"spec.jail.subMounts[{index}].path is {mount['path']}, but with spec.sssd {SSSD_PATH} is the jail's own; choose a path beside it."


def _no_jail_users(spec: Json) -> Iterator[str]:
    root = next((user["name"] for user in spec["users"] if user["sudo"]), None)
    if root and spec["jail"]["noJailUsers"] and not spec["jail"]["noJailDespiteSudo"]:
        yield (
            f"spec.jail.noJailUsers cannot be had beside {root}, who has sudo: as root of the jail {root} can take over a job that runs outside of it, and be "
            "root of the worker's pod; empty the list, take sudo away, or accept it with spec.jail.noJailDespiteSudo: true."
        )


def _no_new_privileges(spec: Json) -> Iterator[str]:
    root = next((user["name"] for user in spec["users"] if user["sudo"]), None)
    if root and spec["security"]["noNewPrivileges"]:
        yield f"spec.security.noNewPrivileges is true, but {root} has sudo, which is such a privilege; take sudo away, or set it to false."


def _extra(spec: Json) -> Iterator[str]:
    slurm = spec["slurm"]
    tracking = slurm["processTracking"]
    owned = dict(config.OWNED)
    if "accounting" in spec:
        owned |= accounting.OWNED_SLURM
        tokens = rest.OWNED if "rest" in spec else {}
        yield from _lines("spec.accounting.extraConfig", spec["accounting"]["extraConfig"], keys.SLURMDBD, {**accounting.OWNED, **tokens})
    if "rest" in spec:
        owned |= rest.OWNED
    yield from _lines("spec.slurm.extraConfig", slurm["extraConfig"], keys.SLURM, owned)
    yield from _lines("spec.slurm.extraCgroupConfig", slurm["extraCgroupConfig"], keys.CGROUP, config.OWNED_CGROUP)
    yield from _lines("spec.slurm.extraGresConfig", slurm["extraGresConfig"], keys.GRES, {}, several=True)
    yield from _lines("spec.slurm.extraMpiConfig", slurm["extraMpiConfig"], keys.MPI, {})
    for index, line in enumerate(slurm["extraPlugstackConfig"]):
        try:
            plugin = conf.parse_plugin(line).split()[1]
        except conf.ConfError as error:
            yield f"spec.slurm.extraPlugstackConfig[{index}]: {error}"
            continue
        if plugin.rpartition("/")[2] == config.JAIL_PLUGIN.rpartition("/")[2]:
            yield f"spec.slurm.extraPlugstackConfig[{index}] names the jail's own plugin, which corral sets itself; remove the line."
    if tracking == "cgroup" and slurm["isolation"]["pid"] == "Job":
        yield (
            "spec.slurm.isolation.pid is Job, but processTracking is cgroup, where Slurm ends all processes of a job by itself, and waits for a step's "
            "cgroup to be empty; remove it, or set processTracking: linuxproc."
        )
    settings = config.effective(slurm, _extra_pairs(spec))
    for sentence in keys.conflicts(settings):
        yield f"spec.slurm.extraConfig: {sentence}"
    flags = {flag.strip().lower() for flag in settings["prologflags"].split(",")}
    if spec["workers"]["ssh"] != "Never" and not flags & config.CONTAIN_FLAGS:
        yield "spec.slurm.extraConfig replaces PrologFlags but leaves out Contain, without which users cannot ssh into their jobs; add it to the list."
    for index, node_set in enumerate(spec["nodeSets"]):
        if any(key.lower() == "gres" for key in node_set["extraNodeParameters"]) and "grestypes" not in settings:
            yield f"spec.nodeSets[{index}].extraNodeParameters sets Gres, which needs GresTypes; add such a line to spec.slurm.extraConfig."


def _host_users(spec: Json) -> Iterator[str]:
    """What pods with a user namespace of their own cannot do."""
    sets = [(f"spec.nodeSets[{index}]", one) for index, one in enumerate(spec["nodeSets"])]
    own = [path for path, one in [("spec.login", spec["login"]), *sets] if one.get("hostUsers") is False]
    # slurmd confines jobs by cgroups, of which a part is for the Kubernetes node's own root alone.
    if spec["slurm"]["processTracking"] == "cgroup":
        for path in own:
            if path != "spec.login":
                yield (
                    f"{path}.hostUsers is false, but with processTracking: cgroup slurmd has to be root on the Kubernetes node: the kernel takes "
                    "no bpf from a user namespace, by which jobs are kept to their devices; remove it, or set processTracking: linuxproc."
                )
    for kind, key in (("users", "uid"), ("groups", "gid")):
        for index, one in enumerate(spec[kind] if own else []):
            if one[key] >= NAMESPACE_IDS:
                yield (
                    f"spec.{kind}[{index}].{key} is {one[key]}, but {own[0]}.hostUsers is false: the user namespace that Kubernetes gives a pod has the "
                    f"ids up to {NAMESPACE_IDS - 1}, and no process in it can have another; choose one of these, or remove hostUsers."
                )


def _gpus(spec: Json) -> Iterator[str]:
    """GPUs of node sets, and what else speaks of such."""
    slurm = spec["slurm"]
    sets = [(f"spec.nodeSets[{index}]", node_set) for index, node_set in enumerate(spec["nodeSets"]) if node_set.get("gpu")]
    if not sets:
        return
    for path, node_set in sets:
        yield from _gpu(path, node_set)
    kinds = dict(_extra_pairs(spec))
    for key, value in kinds.items():
        if key.lower() == "grestypes" and "gpu" not in value.lower().split(","):
            yield f"spec.slurm.extraConfig replaces GresTypes but leaves out gpu, which {sets[0][0]}.gpu needs; add it to the list."
    vendors = {node_set["gpu"]["vendor"]: path for path, node_set in sets}
    if slurm["processTracking"] == "cgroup" and "simulated" in vendors:
        real = next((path for vendor, path in vendors.items() if vendor != "simulated"), None)
        if real:
            yield (
                f"{vendors['simulated']}.gpu is simulated and {real}.gpu is not: with processTracking: cgroup one file for the whole cluster says whether jobs "
                "are kept from the GPUs of others, which simulated ones cannot be; give them a cluster of their own."
            )
        for line in _pairs_of(slurm["extraCgroupConfig"]):
            if any(key.lower() == "constraindevices" and value.lower() in ("yes", "true", "1", "up") for key, value in line):
                yield (
                    f"spec.slurm.extraCgroupConfig sets ConstrainDevices, but {vendors['simulated']}.gpu is simulated: its GPUs are one device file, which "
                    "jobs need; remove the line."
                )


def _gpu(path: str, node_set: Json) -> Iterator[str]:
    gpu = node_set["gpu"]
    if "mig-" in gpu.get("resourceName", "") and gpu["count"] > 1:
        yield (
            f"{path}.gpu.count is {gpu['count']} of {gpu['resourceName']}, parts of GPUs, which Slurm cannot tell apart by their files; give each node "
            "one of them and the set more nodes, or ask for whole GPUs."
        )
    yield from _cores(path, node_set)
    yield from _links(f"{path}.gpu.links", node_set["gpu"])
    if any(key.lower() == "gres" for key in node_set["extraNodeParameters"]):
        yield f"{path}.extraNodeParameters sets Gres, which {path}.gpu sets too; remove one of them."


def _cores(path: str, node_set: Json) -> Iterator[str]:
    """Which cores are near which GPUs."""
    near: list[str] = node_set["gpu"].get("cores", [])
    count = node_set["gpu"]["count"]
    if near and count % len(near):
        yield f"{path}.gpu.cores has {len(near)} entries, of which {count} GPUs are no multiple; give one for each GPU, or for each so many of them."
    threads = {key.lower(): value for key, value in node_set["extraNodeParameters"].items()}.get("threadspercore", "1")
    cores = config.size(node_set["resources"])[0] // (int(threads) if threads.isascii() and threads.isdigit() and int(threads) else 1)
    for index, text in enumerate(near):
        for first, _dash, last in (part.partition("-") for part in text.split(",")):
            low, high = int(first), int(last or first)
            if low > high:
                yield f"{path}.gpu.cores[{index}] goes from {low} to {high}; write the smaller number first."
            elif high >= cores:
                yield f"{path}.gpu.cores[{index}] names core {high}, but the node has {cores}, from 0 to {cores - 1}; correct it, or raise resources."


def _links(path: str, gpu: Json) -> Iterator[str]:
    """A square of numbers, the same seen from either end: Slurm would ignore another, or end."""
    count = gpu["count"]
    rows = [[int(number) for number in row.split(",")] for row in gpu.get("links", [])]
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
    lines = [{key.lower(): value for key, value in line} for line in _pairs_of(spec["slurm"]["extraGresConfig"])]
    sets = [(f"spec.nodeSets[{index}]", node_set) for index, node_set in enumerate(spec["nodeSets"]) if node_set.get("gpu")]
    if sum(pairs.get("nodename", "").count(",") + 1 for pairs in lines) * len(sets) > MAX_COMPARED:
        yield "spec.slurm.extraGresConfig names too many nodes one by one; write ranges such as gpu-[0-7], or fewer lines."
        return
    total = 0
    for index, pairs in enumerate(lines):
        yield from _gres_line(f"spec.slurm.extraGresConfig[{index}]", pairs, sets)
        with contextlib.suppress(hostlist.HostlistError):
            total += hostlist.count(pairs.get("nodename", ""))
    if total > MAX_GRES_NODES:
        yield (
            f"spec.slurm.extraGresConfig names {total} nodes in all its lines together; {MAX_GRES_NODES} are the most, so write fewer lines."
        )


def _gres_line(path: str, pairs: dict[str, str], sets: list[tuple[str, Json]]) -> Iterator[str]:
    try:
        for key, most in (("nodename", schema.MAX_NODES), ("file", MAX_FILES), ("files", MAX_FILES)):
            # Of files, white space is a part of their names.
            text = pairs.get(key, "") if key == "nodename" else pairs.get(key, "").replace(" ", "_")
            if hostlist.count(text) > most:
                yield f"{path} has more than {most} {'nodes' if key == 'nodename' else 'files'} in {key}, which Slurm does not take; check its ranges."
                return
        if not re.fullmatch("[0-9]+[KMGTPkmgtp]?", pairs.get("count", "0")):
            yield f"{path} has the Count {pairs['count']}; write a number, with K, M, G, T or P if wanted."
        if pairs.get("name", "").lower() != "gpu" and "autodetect" not in pairs:
            return
        prefixes = [f"{node_set['name']}-" for _place, node_set in sets]
        first = hostlist.first_named(pairs["nodename"], prefixes) if "nodename" in pairs else 0
        if sets and first is not None:
            yield f"{path} describes GPUs of nodes whose GPUs {sets[first][0]}.gpu describes; remove the line, or name other nodes by NodeName."
    except hostlist.HostlistError as error:
        yield f"{path}: {error}"


def _pairs_of(lines: list[str]) -> list[list[tuple[str, str]]]:
    """The pairs of each line, none of a line that is not well-formed."""
    found = []
    for line in lines:
        try:
            found.append(conf.parse_pairs(line))
        except conf.ConfError:
            found.append([])
    return found


def _extra_pairs(spec: Json) -> list[tuple[str, str]]:
    """The extra lines of slurm.conf that are well-formed."""
    pairs = []
    for line in spec["slurm"]["extraConfig"]:
        with contextlib.suppress(conf.ConfError):
            pairs.append(conf.parse_pair(line))
    return pairs


def _lines(path: str, lines: list[str], table: keys.Table, owned: dict[str, str], *, several: bool = False) -> Iterator[str]:
    """Lines for one of Slurm's files, of one pair each, or of ``several``."""
    seen: dict[str, int] = {}
    for index, line in enumerate(lines):
        where = f"{path}[{index}]"
        try:
            pairs = conf.parse_pairs(line) if several else [conf.parse_pair(line)]
        except conf.ConfError as error:
            yield f"{where}: {error}"
            continue
        for key, value in pairs:
            wrong = table.problem(key, value)
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
    groups, users = spec["groups"], spec["users"]
    names = {group["name"] for group in groups}
    for index, group in enumerate(groups):
        path = f"spec.groups[{index}]"
        yield from _account_name(path, group["name"])
        yield from _identity(f"{path}.gid", group["gid"])
    gids = {group["gid"] for group in groups}
    for index, user in enumerate(users):
        path = f"spec.users[{index}]"
        yield from _account_name(path, user["name"])
        yield from _identity(f"{path}.uid", user["uid"])
        if user["name"] in names:
            yield f"{path}.name is {user['name']}, also a group of spec.groups; each user gets a group of that name, so rename one."
        if "gid" not in user:
            if user["uid"] in gids:
                yield f"{path}.uid is {user['uid']}, which is the gid of a group in spec.groups; give the user a gid, or another uid."
        elif user["gid"] not in gids:
            yield f"{path}.gid is {user['gid']}, which no group of spec.groups has; add the group, or leave gid out for a group of the user's own."
        for place, key in enumerate(user["sshKeys"]):
            reason = _key_error(key)
            if reason:
                yield f"{path}.sshKeys[{place}] {reason}; give the one line of a public key file such as ~/.ssh/id_ed25519.pub."


def _account_name(path: str, name: str) -> Iterator[str]:
    if name in SYSTEM_ACCOUNTS:
        yield f"{path}.name is {name}, an account of the system itself; choose another."


def _identity(path: str, number: int) -> Iterator[str]:
    if schema.SYSTEM_IDS[0] <= number <= schema.SYSTEM_IDS[1]:
        yield f"{path} is {number}; 60001 to 65535 belong to the system (nobody, slurm, munge, systemd's dynamic users), so choose another."


def _key_error(key: str) -> str | None:
    """Return why a line is no public key, as the end of a sentence. The type stands in the blob too (RFC 4253 §6.6), so a cut or mixed line shows."""
    if "PRIVATE KEY" in key:
        return "is a private key, which must not be here and should be replaced"
    fields = key.split(" ")
    if fields[0] not in KEY_TYPES:
        return "does not begin with the type of a public key, such as ssh-ed25519"
    try:
        blob = base64.b64decode(fields[1], validate=True) if len(fields) > 1 else b""
    except ValueError:  # binascii's, and that of what is not ASCII
        return "has a second word that is not base64"
    parts = _parts(blob)
    if not parts or parts[0] != fields[0].encode() or not _complete(parts):
        return f"is cut off or mixed up: its second word is no key of type {fields[0]}"
    if fields[0] == "ssh-rsa" and int.from_bytes(parts[2], "big").bit_length() < MIN_RSA:
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
