# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's configuration files of a cluster: which keys, and why. How they are written is _slurm.conf's business.

The files are served by slurmctld to all others (configless), so the same text holds in every pod and in the jail.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from ansible_collections.corral.slurm.plugins.module_utils._cluster.model import NodeSet, Partition
from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf, hostlist

PLUGIN_DIR = "/opt/corral/lib/slurm"
JAIL_PLUGIN = "/opt/corral/lib/corral/spank_corral_jail.so"
HEALTH_CHECK = "/usr/local/lib/corral/health.sh"
STATE_DIR = "/var/spool/slurmctld"
SPOOL_DIR = "/var/spool/slurmd"
MUNGE_SOCKET = "/run/munge/munge.socket.2"
HASH_FILE = "config.hash"

_HEADER = ("Written by corral.slurm from a SlurmCluster document; the next run replaces every edit.",)

# Keys that an extra line can not set, lower case, with what to do instead.
OWNED: dict[str, str] = {
    "clustername": "it is metadata.name",
    "slurmctldhost": "the controller's pod has it",
    "controlmachine": "the controller's pod has it",
    "controladdr": "the controller's pod has it",
    "slurmctldport": "the controller's service has it",
    "slurmdport": "the workers' service has it",
    "authtype": "all daemons share one munge key",
    "authinfo": "all daemons share one munge socket",
    "credtype": "all daemons share one munge key",
    "plugindir": "the plugins of the slurm image are there, in pods and in the jail",
    "plugstackconfig": "it brings jobs into the jail",
    "slurmuser": "the slurm image has one user for it",
    "slurmduser": "slurmd starts steps as their users",
    "statesavelocation": "spec.controller.stateVolume is mounted there",
    "slurmdspooldir": "the jail knows it by this path",
    "proctracktype": "set spec.slurm.processTracking",
    "taskplugin": "set spec.slurm.processTracking",
    "nodename": "set spec.nodeSets",
    "nodeset": "set spec.nodeSets",
    "partitionname": "set spec.partitions",
    "frontendname": "set spec.nodeSets",
    "downnodes": "ask Slurm: scontrol update",
    "include": "give the lines themselves",
}

# Keys that hold lists on which the cluster depends: an extra line must repeat these items.
NEEDED_ITEMS: dict[str, tuple[str, ...]] = {
    "slurmctldparameters": ("enable_configless",),
}


def files(
    *,
    cluster: str,
    host: str,
    address: str,
    port: int,
    slurmd_port: int,
    worker_domain: str,
    process_tracking: str,
    extra: Sequence[str],
    node_sets: Sequence[NodeSet],
    partitions: Sequence[Partition],
    jail: Sequence[tuple[str, str]],
) -> tuple[dict[str, str], str]:
    """Return the files by name, with config.hash among them, and the hash (16 hexadecimal digits).

    ``jail`` are the arguments of the jail's plugin. Raises ConfError.
    """
    texts = {
        "slurm.conf": conf.text(
            _HEADER,
            [
                *_settings(cluster, host, address, port, slurmd_port, process_tracking, extra),
                "",
                *_node_lines(cluster, worker_domain, node_sets),
                *_partition_lines(partitions),
            ],
        ),
        "cgroup.conf": conf.text(_HEADER, _cgroup(process_tracking)),
        # required and first: with `optional` a failing plugin would let the job run in the pod.
        "plugstack.conf": conf.text(_HEADER, [conf.plugin_line(True, JAIL_PLUGIN, jail)]),
    }
    digest = hashlib.sha256()
    for name in sorted(texts):
        digest.update(f"{name}\0{texts[name]}\0".encode())
    fingerprint = digest.hexdigest()[:16]
    return {**texts, HASH_FILE: fingerprint + "\n"}, fingerprint


def _settings(cluster: str, host: str, address: str, port: int, slurmd_port: int, process_tracking: str, extra: Sequence[str]) -> list[str]:
    confined = process_tracking == "cgroup"
    settings: dict[str, conf.Value] = {
        "ClusterName": cluster,
        "SlurmctldHost": f"{host}({address})",
        "SlurmctldPort": port,
        "SlurmdPort": slurmd_port,
        "SlurmUser": "slurm",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={MUNGE_SOCKET}",
        "CredType": "cred/munge",
        "PluginDir": PLUGIN_DIR,
        "StateSaveLocation": STATE_DIR,
        "SlurmdSpoolDir": SPOOL_DIR,
        # slurmctld is not root and /run is not its own.
        "SlurmctldPidFile": f"{STATE_DIR}/slurmctld.pid",
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
        "MpiDefault": "none",
        "LaunchParameters": "use_interactive_step",
        # The limits of the login pod are not those of a worker.
        "PropagateResourceLimits": "NONE",
        "SlurmctldTimeout": 120,
        "SlurmdTimeout": 120,
        "KillWait": 30,
        "UnkillableStepTimeout": 180,
        # Takes a node out of service that can not enter the jail, and back.
        "HealthCheckProgram": HEALTH_CHECK,
        "HealthCheckInterval": 60,
        "HealthCheckNodeState": "ANY,CYCLE",
        "MailProg": "/bin/true",
        "SlurmctldDebug": "info",
        "SlurmdDebug": "info",
    }
    if confined:
        settings["PrologFlags"] = "Contain"
    names = {key.lower(): key for key in settings}
    for line in extra:
        key, value = conf.parse_pair(line)
        settings[names.setdefault(key.lower(), key)] = value
    return [conf.line([(key, value)]) for key, value in settings.items()]


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
                ("State", "UNKNOWN"),
            ]
        )
        for node_set in node_sets
        if node_set.replicas
    ]


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
            ]
        )
        for partition in partitions
    ]


def _cgroup(process_tracking: str) -> list[str]:
    if process_tracking != "cgroup":
        return [conf.line([("CgroupPlugin", "disabled")])]
    return [
        conf.line([(key, value)])
        for key, value in (
            ("CgroupPlugin", "cgroup/v2"),
            # There is no systemd in a pod to ask for a scope.
            ("IgnoreSystemd", True),
            ("EnableControllers", True),
            ("ConstrainCores", True),
            ("ConstrainRAMSpace", True),
            ("ConstrainDevices", True),
        )
    ]
