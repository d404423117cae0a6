# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's configuration files of a cluster: which keys, and why. How they are written is _slurm.conf's business.

The files are served by slurmctld to all others (configless), so the same text holds in every pod and in the jail.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import quantity
from ansible_collections.corral.slurm.plugins.module_utils._cluster.model import NodeSet, Partition
from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf, hostlist

PLUGIN_DIR = "/opt/corral/lib/slurm"
JAIL_PLUGIN = "/opt/corral/lib/corral/spank_corral_jail.so"
HEALTH_CHECK = "/usr/local/lib/corral/health.sh"
STATE_DIR = "/var/spool/slurmctld"
SPOOL_DIR = "/var/spool/slurmd"
MUNGE_SOCKET = "/run/munge/munge.socket.2"
HASH_FILE = "config.hash"
# What slurmd and its step daemons need of a pod's memory, in MiB; the rest is Slurm's to give to jobs.
SLURMD_MEMORY = 128
# Seconds. Measured: the next command is answered 12 to 17 s after the primary's death, of 30 that users may wait (docs/ha.md).
BACKUP_TIMEOUT = 10
# Above the switches of all node sets, where the document names none. No name of the document's can be this one.
TOP_SWITCH = "corral_top"

HEADER = ("Written by corral.slurm from a SlurmCluster document; the next run replaces every edit.",)

# Keys that an extra line cannot set, lower case, with what to do instead.
OWNED: dict[str, str] = {
    "clustername": "it is metadata.name",
    "slurmctldhost": "the controller's pod has it",
    "controlmachine": "the controller's pod has it",
    "controladdr": "the controller's pod has it",
    "backupcontroller": "set spec.controller.replicas",
    "backupaddr": "set spec.controller.replicas",
    "cryptotype": "set spec.slurm.auth",
    "slurmctldport": "the controller's service has it",
    "slurmdport": "the workers' service has it",
    "authtype": "set spec.slurm.auth",
    "authinfo": "set spec.slurm.auth",
    "credtype": "set spec.slurm.auth",
    "plugindir": "the plugins of the slurm image are there, in pods and in the jail",
    "plugstackconfig": "it brings jobs into the jail",
    "slurmuser": "the slurm image has one user for it",
    "slurmduser": "slurmd starts steps as their users",
    "statesavelocation": "spec.controller.stateVolume is mounted there",
    "slurmdspooldir": "the jail knows it by this path",
    "jobcontainertype": "each job has a /tmp and a /dev/shm of its own in the jail",
    "namespacetype": "each job has a /tmp and a /dev/shm of its own in the jail",
    "proctracktype": "set spec.slurm.processTracking",
    "taskplugin": "set spec.slurm.processTracking",
    "nodename": "set spec.nodeSets",
    "nodeset": "set spec.nodeSets",
    "partitionname": "set spec.partitions",
    "frontendname": "set spec.nodeSets",
    "downnodes": "ask Slurm: scontrol update",
    "include": "give the lines themselves",
}

# The same for the line of a node set, for that of a partition, and for the other files.
OWNED_NODE: dict[str, str] = {
    "nodename": "it is name and replicas",
    "nodeaddr": "the workers' service has it",
    "nodehostname": "the pods have it",
    "bcastaddr": "the workers' service has it",
    "port": "the workers' service has it",
    "cpus": "set resources",
    "procs": "set resources",
    "realmemory": "set resources",
    "feature": "set features",
    "features": "set features",
    "weight": "set weight",
    "state": "ask Slurm: scontrol update",
    "reason": "ask Slurm: scontrol update",
}
# Fields of a partition that are keys of its line as they stand. Of amounts of memory Slurm wants MiB.
PARTITION_FIELDS: dict[str, str] = {
    "defaultTime": "DefaultTime",
    "minNodes": "MinNodes",
    "maxNodes": "MaxNodes",
    "maxCpusPerNode": "MaxCPUsPerNode",
    "defMemPerCpu": "DefMemPerCPU",
    "defMemPerNode": "DefMemPerNode",
    "maxMemPerCpu": "MaxMemPerCPU",
    "maxMemPerNode": "MaxMemPerNode",
    "priorityTier": "PriorityTier",
    "priorityJobFactor": "PriorityJobFactor",
    "preemptMode": "PreemptMode",
    "graceTime": "GraceTime",
    "overSubscribe": "OverSubscribe",
    "allowGroups": "AllowGroups",
    "allowAccounts": "AllowAccounts",
    "denyAccounts": "DenyAccounts",
    "qos": "QOS",
    "allowQos": "AllowQos",
    "denyQos": "DenyQos",
    "exclusiveUser": "ExclusiveUser",
    "hidden": "Hidden",
    "rootOnly": "RootOnly",
}
PARTITION_MEMORY = frozenset({"defMemPerCpu", "defMemPerNode", "maxMemPerCpu", "maxMemPerNode"})
OWNED_PARTITION: dict[str, str] = {
    "partitionname": "it is name",
    "nodes": "set nodeSets",
    "default": "set default",
    "maxtime": "set maxTime",
    "state": "set state",
    "shared": "set overSubscribe",
    "priority": "set priorityTier and priorityJobFactor",
    **{key.lower(): f"set {field}" for field, key in PARTITION_FIELDS.items()},
}
OWNED_CGROUP: dict[str, str] = {
    "cgroupplugin": "set spec.slurm.processTracking",
    "cgroupmountpoint": "the container runtime mounts it",
    "ignoresystemd": "there is no systemd in a pod",
    "ignoresystemdonfailure": "there is no systemd in a pod",
    "enablecontrollers": "there is no systemd in a pod that would do it",
}

# Any of these makes the step on each node of a job that takes in who comes by ssh.
CONTAIN_FLAGS = frozenset({"contain", "runinjob", "x11"})

# Keys that hold lists on which the cluster depends: an extra line must repeat these items.
NEEDED_ITEMS: dict[str, tuple[str, ...]] = {
    "slurmctldparameters": ("enable_configless",),
}


def for_clients(text: str, left_out: Collection[str]) -> list[str]:
    """Return the lines of slurm.conf's ``text`` for clients that need neither nodes nor partitions, without the settings ``left_out``, in lower case."""
    nodes = {"nodename", "nodeset", "partitionname"}
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return [line for line in lines if line.partition("=")[0].lower() not in nodes | set(left_out)]


def files(
    *,
    cluster: str,
    controllers: Sequence[tuple[str, str]],
    port: int,
    slurmd_port: int,
    worker_domain: str,
    slurm: dict[str, Any],
    node_sets: Sequence[NodeSet],
    partitions: Sequence[Partition],
    jail: Sequence[tuple[str, str]],
    constrain_devices: bool,
    more: Mapping[str, conf.Value],
    items: Mapping[str, str],
    programs: Mapping[str, str],
    notes: Sequence[str] = (),
) -> tuple[dict[str, str], str]:
    """Return the files by name, with config.hash among them, and the hash (16 hexadecimal digits).

    ``controllers`` are host name and address of the primary and of its backup; ``slurm`` is spec.slurm with its defaults; ``jail`` are
    the arguments of the jail's plugin; ``more`` are the settings of slurm.conf that follow from other parts of the spec; ``constrain_devices``
    is whether a job can open no other device files than its own, with cgroup tracking. ``items`` are added to lists of slurm.conf, whoever wrote these;
    ``programs`` are files that slurmctld sends to slurmd with the configuration. ``notes`` are comments at the top of slurm.conf.
    Raises ConfError.
    """
    process_tracking: str = slurm["processTracking"]
    settings = {**_settings(cluster, controllers, port, slurmd_port, process_tracking, slurm["auth"]), **more}
    gpus = [node_set for node_set in node_sets if node_set.gpus]
    if gpus:
        settings["GresTypes"] = "gpu"
    topology = slurm.get("topology")
    if topology:
        settings["TopologyPlugin"] = f"topology/{topology['plugin'].lower()}"
    texts = {
        "slurm.conf": conf.text(
            (*HEADER, *notes),
            [
                *_overridden(settings, slurm["extraConfig"], {"SlurmctldHost": [_host(*one) for one in controllers[1:]]}, items),
                "",
                *_node_lines(cluster, worker_domain, node_sets),
                *_partition_lines(partitions),
            ],
        ),
        "cgroup.conf": conf.text(HEADER, _overridden(_cgroup(process_tracking, constrain_devices), slurm["extraCgroupConfig"])),
        # required and first: with `optional` a failing plugin would let the job run in the pod.
        "plugstack.conf": conf.text(
            HEADER, [conf.plugin_line(True, JAIL_PLUGIN, jail), *map(conf.parse_plugin, slurm["extraPlugstackConfig"])]
        ),
    }
    gres = [*_gpu_lines(gpus), *(conf.line(conf.parse_pairs(line)) for line in slurm["extraGresConfig"])]
    if gres:
        texts["gres.conf"] = conf.text(HEADER, gres)
    if topology:
        write = _switch_lines if topology["plugin"] == "Tree" else _block_lines
        texts["topology.conf"] = conf.text(HEADER, write(topology, _places(node_sets)))
    if slurm["extraMpiConfig"]:
        texts["mpi.conf"] = conf.text(HEADER, _overridden({}, slurm["extraMpiConfig"]))
    texts.update(programs)
    return with_hash(texts)


def auth_settings(auth: str) -> dict[str, conf.Value]:
    """Return the settings of slurm.conf and slurmdbd.conf for spec.slurm.auth."""
    # A daemon's own socket would give root of the jail, who reaches it, credentials of Slurm's root; sackd's is another (images/slurm/entry/sack.sh).
    info = f"socket={MUNGE_SOCKET}" if auth == "munge" else "disable_sack"
    return {"AuthType": f"auth/{auth}", "AuthInfo": info}


def size(resources: dict[str, Any]) -> tuple[int, int]:
    """Return the CPUs that Slurm counts on a node of these, and its memory in MiB."""
    limits = resources["limits"]
    cpu = limits.get("cpu") or resources.get("requests", {}).get("cpu") or 1
    return int(quantity.parse(cpu)), quantity.mebibytes(limits["memory"]) - SLURMD_MEMORY


def with_hash(texts: dict[str, str]) -> tuple[dict[str, str], str]:
    """Return the files with config.hash of all the others among them, and that hash."""
    texts = {name: text for name, text in texts.items() if name != HASH_FILE}
    digest = hashlib.sha256()
    for name in sorted(texts):
        digest.update(f"{name}\0{texts[name]}\0".encode())
    fingerprint = digest.hexdigest()[:16]
    return {**texts, HASH_FILE: fingerprint + "\n"}, fingerprint


def effective(slurm: dict[str, Any], extra: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return what Slurm will find in slurm.conf, keys in lower case: corral's defaults, and the extra pairs instead of them."""
    defaults = _settings("", [("", "")], 0, 0, slurm["processTracking"], slurm["auth"])
    found = {key.lower(): conf.value(value) for key, value in defaults.items()}
    found.update((key.lower(), value) for key, value in extra)
    return found


def _host(host: str, address: str) -> str:
    return f"{host}({address})"


def _overridden(
    defaults: dict[str, conf.Value],
    extra: Iterable[str],
    further: Mapping[str, Sequence[conf.Value]] | None = None,
    items: Mapping[str, str] | None = None,
) -> list[str]:
    """The lines of a file: the defaults, where an extra line has the same key that instead, and the other extra lines after them.

    ``further`` are more values of keys that have a line for each; ``items`` are added to the lists that these keys have.
    """
    settings = dict(defaults)
    names = {key.lower(): key for key in settings}
    for line in extra:
        key, value = conf.parse_pair(line)
        settings[names.setdefault(key.lower(), key)] = value
    for key, item in (items or {}).items():
        key = names.setdefault(key.lower(), key)
        given = [one.strip() for one in str(settings.get(key, "")).split(",") if one.strip()]
        settings[key] = given if item.lower() in (one.lower() for one in given) else [*given, item]
    more = further or {}
    return [conf.line([(key, one)]) for key, value in settings.items() for one in (value, *more.get(key, ()))]


def _settings(
    cluster: str, controllers: Sequence[tuple[str, str]], port: int, slurmd_port: int, process_tracking: str, auth: str
) -> dict[str, conf.Value]:
    confined = process_tracking == "cgroup"
    backed = len(controllers) > 1
    return {
        "ClusterName": cluster,
        "SlurmctldHost": _host(*controllers[0]),
        "SlurmctldPort": port,
        "SlurmdPort": slurmd_port,
        "SlurmUser": "slurm",
        "SlurmdUser": "root",
        **auth_settings(auth),
        "CredType": f"cred/{auth}",
        "PluginDir": PLUGIN_DIR,
        "StateSaveLocation": STATE_DIR,
        "SlurmdSpoolDir": SPOOL_DIR,
        # slurmctld is not root and /run is not its own. It ends the process whose number it finds there, so two must never share the file.
        "SlurmctldPidFile": "/tmp/slurmctld.pid" if backed else f"{STATE_DIR}/slurmctld.pid",
        "SlurmdPidFile": f"{SPOOL_DIR}/slurmd.pid",
        "SlurmctldParameters": "enable_configless",
        "ProctrackType": "proctrack/cgroup" if confined else "proctrack/linuxproc",
        "TaskPlugin": "task/cgroup,task/affinity" if confined else "task/none",
        "JobAcctGatherType": "jobacct_gather/cgroup" if confined else "jobacct_gather/linux",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "SchedulerType": "sched/backfill",
        # A node that comes back by itself (its pod was replaced) goes back into service.
        "ReturnToService": 2,
        "JobRequeue": 1,
        # An MPI program that srun starts finds the others; without it each task is a world of its own, and nobody says so.
        "MpiDefault": "pmix",
        "LaunchParameters": "use_interactive_step",
        # An extern step on each node of a job, which takes in who comes by ssh; and for srun --x11, which slurmctld refuses with linuxproc.
        "PrologFlags": "Contain,X11" if confined else "Contain",
        # The limits of the login pod are not those of a worker.
        "PropagateResourceLimits": "NONE",
        # With a backup: how long the primary is silent before that takes over; clients wait for it one and a half times as long (docs/ha.md).
        "SlurmctldTimeout": BACKUP_TIMEOUT if backed else 120,
        "SlurmdTimeout": 120,
        "KillWait": 30,
        "UnkillableStepTimeout": 180,
        # Takes a node out of service that cannot enter the jail, and back.
        "HealthCheckProgram": HEALTH_CHECK,
        "HealthCheckInterval": 60,
        "HealthCheckNodeState": "ANY,CYCLE",
        "MailProg": "/bin/true",
        "SlurmctldDebug": "info",
        "SlurmdDebug": "info",
    }


def _node_lines(cluster: str, domain: str, node_sets: Iterable[NodeSet]) -> list[str]:
    """One line a set, whatever its size: 10 000 nodes are some hundred bytes, and slurmctld reads them in a tenth of a second."""
    return [
        conf.line(
            [
                ("NodeName", node_set.node_names),
                ("NodeAddr", hostlist.ranged(f"{cluster}-{node_set.name}-", node_set.replicas, f".{domain}")),
                ("CPUs", node_set.cpus),
                ("RealMemory", node_set.real_memory),
                ("Feature", node_set.features or None),
                ("Weight", node_set.weight),
                ("Gres", node_set.gpus.gres if node_set.gpus else None),
                *node_set.extra.items(),
                ("State", "UNKNOWN"),
            ]
        )
        for node_set in node_sets
        if node_set.replicas
    ]


def _gpu_lines(node_sets: Iterable[NodeSet]) -> list[str]:
    return [
        conf.line([("NodeName", node_set.node_names), *pairs.items()])
        for node_set in node_sets
        if node_set.gpus and node_set.replicas
        for pairs in node_set.gpus.lines
    ]


def _places(node_sets: Iterable[NodeSet]) -> dict[str, str]:
    """The nodes of each switch or block that has some, as hostlists."""
    places: dict[str, list[str]] = {}
    for node_set in node_sets:
        if node_set.place and node_set.replicas:
            places.setdefault(node_set.place, []).append(node_set.node_names)
    return {place: ",".join(names) for place, names in places.items()}


def _switch_lines(topology: dict[str, Any], places: dict[str, str]) -> list[str]:
    """Leaves first. Switches without nodes are left out, for slurmctld refuses a line that has none."""
    lines = [conf.line([("SwitchName", name), ("Nodes", nodes)]) for name, nodes in places.items()]
    switches = {switch["name"]: switch["switches"] for switch in topology["switches"]}
    if not switches and len(places) > 1:
        switches = {TOP_SWITCH: list(places)}
    written = set(places)
    while True:
        ready = [
            name for name, below in switches.items() if name not in written and all(one in written or one not in switches for one in below)
        ]
        if not ready:
            return lines
        for name in ready:
            below = [one for one in switches[name] if one in places]
            written.add(name)
            if below:
                places = {**places, name: ""}
                lines.append(conf.line([("SwitchName", name), ("Switches", below)]))


def _block_lines(topology: dict[str, Any], places: dict[str, str]) -> list[str]:
    """Without sizes of the document the smallest block's: Slurm's own default can be more than that, and slurmctld then ends (seen with 24.11.5)."""
    lines = [conf.line([("BlockName", name), ("Nodes", nodes)]) for name, nodes in places.items()]
    sizes = topology["blockSizes"] or [min(map(hostlist.count, places.values()))] if places else []
    return [*lines, *([conf.line([("BlockSizes", [str(size) for size in sizes])])] if sizes else [])]


def _partition_lines(partitions: Iterable[Partition]) -> list[str]:
    """A partition without nodes stays, so that its waiting jobs are not lost."""
    return [
        conf.line(
            [
                ("PartitionName", partition.name),
                ("Nodes", partition.nodes),
                ("Default", partition.default),
                ("MaxTime", partition.max_time),
                ("State", partition.state),
                *partition.extra.items(),
            ]
        )
        for partition in partitions
    ]


def _cgroup(process_tracking: str, constrain_devices: bool) -> dict[str, conf.Value]:
    if process_tracking != "cgroup":
        return {"CgroupPlugin": "disabled"}
    return {
        "CgroupPlugin": "cgroup/v2",
        # There is no systemd in a pod to ask for a scope.
        "IgnoreSystemd": True,
        "EnableControllers": True,
        "ConstrainCores": True,
        "ConstrainRAMSpace": True,
        "ConstrainDevices": constrain_devices,
    }
