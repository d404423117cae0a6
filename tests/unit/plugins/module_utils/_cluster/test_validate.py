# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every mistake a table row: where it is, what it is, and the words that the user must read."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve, schema, validate
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist

from .documents import KEY, REMOVE, edited, good


def mistakes(document: Any) -> list[str]:
    with pytest.raises(validate.InvalidDocument) as caught:
        validate.check(document)
    found: list[str] = caught.value.data["errors"]
    return found


def test_a_good_document_passes() -> None:
    validate.check(good())


STRUCTURE = [
    ("spec.nodeSetz", [], "spec.nodeSetz is not known; did you mean nodeSets?"),
    ("spec.images.slurm", REMOVE, "spec.images.slurm is missing"),
    ("spec.jail", REMOVE, "spec.jail is missing"),
    ("spec.nodeSets", {"a": 1}, "spec.nodeSets must be a list, not a mapping"),
    ("spec.controller.replicas", 3, "spec.controller.replicas is 3; it must be between 1 and 2."),
    (
        "spec.controller.stateVolume.accessMode",
        "ReadOnlyMany",
        "spec.controller.stateVolume.accessMode is 'ReadOnlyMany'; it must be one of",
    ),
    ("spec.nodeSets[1].replicas", -1, "spec.nodeSets[1].replicas is -1; it must be between 0 and 10000."),
    ("spec.nodeSets[1].replicas", 10**9, "spec.nodeSets[1].replicas is 1000000000"),
    ("spec.nodeSets[1].replicas", "2", "spec.nodeSets[1].replicas must be a whole number, not '2'"),
    ("spec.nodeSets[1].replicas", True, "spec.nodeSets[1].replicas must be a whole number, not true"),
    ("spec.nodeSets[0].features[0]", True, "spec.nodeSets[0].features[0] must be text, not true; put it in quotes"),
    ("spec.nodeSets[0].features[0]", "a\nNodeName=x", "spec.nodeSets[0].features[0] is 'a\\nNodeName=x'; it must be letters"),
    ("spec.nodeSets[0].features[0]", "a\n", "spec.nodeSets[0].features[0] is 'a\\n'"),
    ("spec.nodeSets[0].features[0]", "{{ 7 * 7 }}", "spec.nodeSets[0].features[0] is '{{ 7 * 7 }}'"),
    ("spec.nodeSets[0].features[1]", "a", "spec.nodeSets[0].features[1] is 'a' a second time"),
    ("spec.nodeSets[1].name", "cpu", "spec.nodeSets[1].name is 'cpu' a second time, after spec.nodeSets[0]"),
    ("spec.nodeSets[1].name", "Big", "spec.nodeSets[1].name is 'Big'; it must be lower-case letters"),
    ("spec.nodeSets[1].name", "big_1", "spec.nodeSets[1].name is 'big_1'"),
    ("spec.nodeSets[1].name", "1big", "spec.nodeSets[1].name is '1big'"),
    ("spec.nodeSets[1].name", "", "spec.nodeSets[1].name is empty"),
    (
        "spec.nodeSets[1].resources.limits.memory",
        "2 GB",
        "spec.nodeSets[1].resources.limits.memory is '2 GB'; it must be an amount of bytes",
    ),
    ("spec.nodeSets[1].resources.limits.memory", REMOVE, "spec.nodeSets[1].resources.limits.memory is missing"),
    ("spec.nodeSets[1].resources.limits.cpu", 1.5, "spec.nodeSets[1].resources.limits.cpu must be a number of CPUs"),
    ("spec.partitions[0].state", "BROKEN", "spec.partitions[0].state is 'BROKEN'; it must be one of UP, DOWN, DRAIN, INACTIVE."),
    ("spec.maintenance", True, "spec.maintenance must be text, not true; it must be one of None, Workers, WorkersAndLogin, in quotes"),
    ("spec.partitions[1].maxTime", 86400, "spec.partitions[1].maxTime must be text, not 86400; put it in quotes"),
    ("spec.partitions[1].maxTime", "tomorrow", "spec.partitions[1].maxTime is 'tomorrow'; it must be INFINITE or days"),
    ("spec.partitions[1].name", "main", "spec.partitions[1].name is 'main' a second time"),
    ("spec.security.seccomp", "RuntimeDefault", "spec.security.seccomp is 'RuntimeDefault'; it must be one of Unconfined, Localhost."),
    ("spec.nodeSets[1].security.appArmor", "off", "spec.nodeSets[1].security.appArmor is 'off'; it must be one of Unconfined, Localhost."),
    (
        "spec.security.profiles.seccomp.worker",
        "/a/b",
        "spec.security.profiles.seccomp.worker is '/a/b'; it must be a path such as corral/worker.json",
    ),
    ("spec.security.profiles.seccomp.login", "a/../b", "spec.security.profiles.seccomp.login is 'a/../b'; it must be a path"),
    ("spec.security.profiles.appArmor.worker", "a/b", "spec.security.profiles.appArmor.worker is 'a/b'; it must be letters, digits"),
    ("spec.foreignFields", [{"kind": "Service"}], "spec.foreignFields[0] has neither field nor manager, so it would allow everything"),
    ("spec.jail.subMounts", [{"path": "/scratch"}], "spec.jail.subMounts[0] has no source; give exactly one of claimName"),
    ("spec.jail.subMounts", [{"path": "/s", "memory": "1Gi", "scratch": "1Gi"}], "spec.jail.subMounts[0] has memory and scratch"),
    (
        "spec.jail.subMounts",
        [{"path": "/s", "storageClassName": "a"}],
        "spec.jail.subMounts[0].size is missing; give the size of the claim, such as 10Gi.",
    ),
    (
        "spec.jail.subMounts",
        [{"path": "/s", "memory": "1Gi", "size": "1Gi"}],
        "spec.jail.subMounts[0].size goes with storageClassName, and only with it; remove",
    ),
    (
        "spec.jail.subMounts",
        [{"path": "/usr/local", "memory": "1Gi"}],
        "spec.jail.subMounts[0].path is /usr/local, but /usr is the jail's own",
    ),
    ("spec.jail.subMounts", [{"path": "/var", "memory": "1Gi"}], "spec.jail.subMounts[0].path is /var, but /var/run is the jail's own"),
    ("spec.jail.subMounts", [{"path": "/a/../etc", "memory": "1Gi"}], "write it without '.' and '..'"),
    ("spec.jail.subMounts", [{"path": "/", "memory": "1Gi"}], "spec.jail.subMounts[0].path is '/'"),
    (
        "spec.jail.subMounts",
        [{"path": "/a/b", "memory": "1Gi"}, {"path": "/a", "memory": "1Gi"}],
        "spec.jail.subMounts[1].path is /a, in which /a/b lies, which stands before it and would be hidden; put /a first.",
    ),
    (
        "spec.jail.subMounts",
        [{"path": "/a", "memory": "1Gi"}, {"path": "/a", "memory": "1Gi"}],
        "spec.jail.subMounts[1].path is '/a' a second time",
    ),
    (
        "spec.jail.subMounts",
        [{"path": "/a", "memory": "1Gi", "nodeSets": ["x"]}],
        "spec.jail.subMounts[0].nodeSets[0] is x, which is not in spec.nodeSets",
    ),
    ("spec.jail.noJailUsers", ["eve"], "spec.jail.noJailUsers[0] is eve, who is not in spec.users"),
    (
        "spec.jails",
        [{"name": "default", "volume": {"claimName": "c"}, "populate": {"image": "i"}}],
        "spec.jails[0].name is default, which has a meaning",
    ),
    ("spec.jails", [{"name": "old", "volume": {"claimName": "c"}}], "spec.jails[0].populate is missing"),
    ("spec.jails", [{"name": "old", "volume": {}, "populate": {"image": "i"}}], "spec.jails[0].volume has no source"),
    ("spec.partitions[1].jail", "old", "spec.partitions[1].jail is old, which is no jail of spec.jails (default)."),
    (
        "spec.nodeSets[0].sharedMemory",
        "1Gi",
        "spec.nodeSets[0].sharedMemory is 1Gi, but it counts as the node's memory, whose limit is 1Gi",
    ),
    ("spec.login.entry", "chroot", "spec.login.entry is 'chroot'; it must be one of Chroot, Pivot."),
    ("spec.users[0].sshKeys", [], "spec.users[0].sshKeys is empty; give at least 1"),
    ("spec.users[0].sshKeys", REMOVE, "spec.users[0].sshKeys is missing"),
    ("spec.users[0].name", "Ada Lovelace", "spec.users[0].name is 'Ada Lovelace'"),
    ("spec.users[0].uid", 0, "spec.users[0].uid is 0; it must be between 1000 and"),
    ("spec.users[0].shell", "/bin/sh\nroot::0", "spec.users[0].shell is '/bin/sh\\nroot::0'"),
    ("spec.users[1]", {"name": "ada", "uid": 10002, "sshKeys": [KEY]}, "spec.users[1].name is 'ada' a second time"),
    ("spec.slurm.extraConfig", ["A=1\nB=2"], "spec.slurm.extraConfig[0] is 'A=1\\nB=2'; it must be one line of text"),
    ("spec.jail.volume.hostPath", "relative/path", "spec.jail.volume.hostPath is 'relative/path'; it must be an absolute path"),
    ("spec.login.service.nodePort", 0, "spec.login.service.nodePort is 0"),
    ("spec.images.pullPolicy", "Sometimes", "spec.images.pullPolicy is 'Sometimes'"),
    ("metadata.name", "Demo", "metadata.name is 'Demo'"),
    ("metadata.name", "a" * 21, "metadata.name has 21 characters; 20 are the most."),
    ("metadata.name", REMOVE, "metadata.name is missing"),
    ("metadata.namespace", "a b", "metadata.namespace is 'a b'"),
    ("kind", "Deployment", "kind is 'Deployment'; write kind: SlurmCluster"),
    ("apiVersion", "v1", "apiVersion is 'v1'; write apiVersion: corral.hpc/v1alpha1"),
    ("spec", REMOVE, "spec is missing"),
]

MEANING = [
    ("spec.nodeSets[0].name", "controller", "spec.nodeSets[0].name is controller, the name of one of corral's own components"),
    ("spec.nodeSets[0].name", "b" * 50, "52 are the most, so shorten it"),
    ("spec.nodeSets[1].resources.limits.memory", "100Mi", "spec.nodeSets[1].resources.limits.memory is 100Mi, 100 MiB"),
    ("spec.nodeSets[1].resources.limits.cpu", "500m", "spec.nodeSets[1].resources.limits.cpu is 500m; a Slurm node has whole CPUs"),
    ("spec.nodeSets[1].resources.limits.cpu", REMOVE, "spec.nodeSets[1].resources.limits.cpu is missing"),
    (
        "spec.nodeSets[1].resources.requests",
        {"memory": "4Gi"},
        "spec.nodeSets[1].resources.requests.memory is 4Gi, more than the limit of 2Gi",
    ),
    ("spec.partitions[1].nodeSets", ["gpu"], "spec.partitions[1].nodeSets[0] is gpu, which is not in spec.nodeSets (big, cpu)."),
    ("spec.partitions[1].default", True, "spec.partitions[1].default is true, as spec.partitions[0].default is"),
    ("spec.partitions[1].name", "default", "spec.partitions[1].name is default, Slurm's own name"),
    ("spec.jail.volume", {}, "spec.jail.volume has no source; give exactly one"),
    ("spec.jail.volume", {"claimName": "a", "hostPath": "/b", "size": "1Gi"}, "spec.jail.volume has claimName and hostPath"),
    ("spec.jail.volume", {"hostPath": "/b"}, "spec.jail.volume.size is missing"),
    ("spec.jail.volume", {"claimName": "a", "size": "1Gi"}, "spec.jail.volume.size goes with"),
    ("spec.jail.shared", False, "spec.jail.volume has claimName, which is one for all pods, but spec.jail.shared is false"),
    (
        "spec.jail",
        {"shared": False, "volume": {"hostPath": "/b", "size": "1Gi"}, "populate": {"image": "i"}},
        "spec.jail.volume has hostPath, which is one for all pods",
    ),
    (
        "spec.jail",
        {"shared": False, "volume": {}, "populate": {"image": "i"}},
        "spec.jail.volume.size is missing; give the largest size of each pod's root",
    ),
    (
        "spec.jail",
        {"shared": False, "volume": {"size": "1Gi"}, "populate": {"policy": "Never"}},
        "spec.jail.populate.policy is Never, but with spec.jail.shared: false each pod's root begins empty",
    ),
    ("spec.jail", {"shared": False, "volume": {"size": "1Gi"}, "populate": {}}, "spec.jail.populate.image is missing"),
    ("spec.jail.volume", {"size": "1Gi"}, "spec.jail.volume has no source; give exactly one"),
    ("spec.jail.populate", REMOVE, "spec.jail.populate is missing; it is needed: The image that fills an empty volume, or policy Never."),
    ("spec.jail.populate.image", REMOVE, "spec.jail.populate.image is missing"),
    ("spec.login.service", {"nodePort": 30022}, "spec.login.service.nodePort goes with type: NodePort, but it is ClusterIP"),
    ("spec.slurm.extraConfig", ["NodeName=x"], "spec.slurm.extraConfig[0] sets NodeName, which corral sets itself: set spec.nodeSets"),
    ("spec.slurm.extraConfig", ["nodename=x"], "spec.slurm.extraConfig[0] sets nodename"),
    (
        "spec.slurm.extraConfig",
        ["Include /etc/passwd"],
        "spec.slurm.extraConfig[0]: 'Include /etc/passwd' is no line of the form Key=Value.",
    ),
    ("spec.slurm.extraConfig", ["A=1 B=2"], "has white space in its value"),
    ("spec.slurm.extraConfig", ["A=1#B"], "begins a comment"),
    ("spec.slurm.extraConfig", ["A=1\\"], "backslash"),
    ("spec.slurm.extraConfig", ["SlurmctldParameters=defer"], "leaves out enable_configless"),
    ("spec.users[0].name", "root", "spec.users[0].name is root, an account of the system itself"),
    ("spec.users[0].uid", 64030, "60001 to 65535 belong to the system"),
    ("spec.users[1]", {"name": "bob", "uid": 10001, "sshKeys": [KEY]}, "spec.users[1].uid is 10001, as spec.users[0].uid is"),
    ("spec.users[0].groups", ["chemistry"], "spec.users[0].groups[0] is chemistry, which is not in spec.groups"),
    ("spec.users[0].gid", 30000, "spec.users[0].gid is 30000, which no group of spec.groups has"),
    ("spec.users[0].uid", 20001, "spec.users[0].uid is 20001, which is the gid of a group"),
    ("spec.groups[1]", {"name": "more", "gid": 20001}, "spec.groups[1].gid is 20001, as spec.groups[0].gid is"),
    ("spec.users[0].sshKeys", ["ssh-ed25519 AAAA"], "spec.users[0].sshKeys[0] is cut off or mixed up"),
    ("spec.users[0].sshKeys", ["my key"], "spec.users[0].sshKeys[0] does not begin with the type of a public key"),
    ("spec.users[0].sshKeys", [KEY.replace("ssh-ed25519 ", "ssh-rsa ")], "is no key of type ssh-rsa"),
    ("spec.users[0].sshKeys", ["-----BEGIN OPENSSH PRIVATE KEY-----"], "is a private key"),
]


LDAP = {"image": "i", "configSecret": "ldap"}
SSSD = [
    ("spec.sssd", {"image": "i"}, "spec.sssd.configSecret is missing"),
    ("spec.sssd", {"configSecret": "ldap"}, "spec.sssd.image is missing"),
    ("spec.sssd", {**LDAP, "debugLevel": 10}, "spec.sssd.debugLevel is 10; it must be between 0 and 9."),
    ("spec.sssd", {**LDAP, "homes": "home"}, "spec.sssd.homes is 'home'; it must be an absolute path"),
    ("spec.sssd", {**LDAP, "homes": "/home/.."}, "spec.sssd.homes is /home/..; write it without '.' and '..'."),
    ("spec.sssd", {**LDAP, "homes": "/etc"}, "spec.sssd.homes is /etc, but /etc is the system's own"),
    ("spec.sssd", {**LDAP, "homes": "/var"}, "spec.sssd.homes is /var, but /var/run is the system's own"),
    (
        "spec.sssd",
        {**LDAP, "configSecret": "demo-base-munge-key"},
        "spec.sssd.configSecret is demo-base-munge-key, one of corral's own Secrets",
    ),
]


NODE, PARTITION = "spec.nodeSets[1]", "spec.partitions[1]"
SETS = [
    (f"{NODE}.extraNodeParameters", {"CPUs": "8"}, "sets CPUs, which is corral's own: set resources; remove it."),
    (f"{NODE}.extraNodeParameters", {"nodeaddr": "x"}, "sets nodeaddr, which is corral's own: the workers' service has it"),
    (f"{NODE}.extraNodeParameters", {"TmpDsk": "1"}, "sets TmpDsk, which is no key of a line NodeName; did you mean TmpDisk?"),
    (f"{NODE}.extraNodeParameters", {"TmpDisk": "1G"}, "sets TmpDisk to '1G'; it must be a whole number."),
    (f"{NODE}.extraNodeParameters", {"TmpDisk": 1}, f"{NODE}.extraNodeParameters.TmpDisk must be text, not 1; put it in quotes"),
    (f"{NODE}.extraNodeParameters", {"TmpDisk": "1", "tmpdisk": "2"}, "sets tmpdisk a second time, since case does not count"),
    (f"{NODE}.extraNodeParameters", {"TRESWeights": "a#b"}, f"{NODE}.extraNodeParameters.TRESWeights has a '#', which begins a comment"),
    (f"{NODE}.extraNodeParameters", {"Gres": "tape:2"}, "sets Gres, which needs GresTypes; add such a line to spec.slurm.extraConfig."),
    (
        f"{NODE}.extraNodeParameters",
        {"Sockets": "2", "CoresPerSocket": "4"},
        "makes 2 × 4 × 1 sockets, cores and threads, but the node has 4",
    ),
    (f"{NODE}.extraNodeParameters", {"ThreadsPerCore": "8"}, "has 1 cores a socket and 8 threads a core, of which 4 CPUs are no multiple"),
    (f"{NODE}.extraNodeParameters", {"MemSpecLimit": "1920"}, "sets MemSpecLimit to 1920 MiB, but the node has 1920; give less."),
    (
        f"{NODE}.sysctls",
        [{"name": "vm.max_map_count", "value": "262144"}],
        f"{NODE}.sysctls[0].name is vm.max_map_count, which Kubernetes lets no pod set",
    ),
    (f"{NODE}.sysctls", [{"name": "net.ipv4.tcp_rmem", "value": 3}], f"{NODE}.sysctls[0].value"),
    (f"{NODE}.environment", [{"name": "A"}], f"{NODE}.environment[0].value is missing"),
    (f"{NODE}.environment", [{"name": "a-b", "value": ""}], f"{NODE}.environment[0].name is 'a-b'; it must be letters, digits and '_'"),
    (f"{NODE}.environment", [{"name": "CORRAL_SSH", "value": "x"}], f"{NODE}.environment[0].name is CORRAL_SSH, which corral sets"),
    (f"{NODE}.environment", [{"name": "POD_IP", "value": "x"}], f"{NODE}.environment[0].name is POD_IP, which corral sets"),
    (f"{NODE}.environment", [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], f"{NODE}.environment[1].name is 'A' a second time"),
    (f"{NODE}.affinity", {"podAffinities": {}}, f"{NODE}.affinity.podAffinities is not known; did you mean podAffinity?"),
    (f"{NODE}.affinity", {"podAffinity": []}, f"{NODE}.affinity.podAffinity must be a mapping"),
    (f"{NODE}.topologySpread", [{"maxSkew": 2}], f"{NODE}.topologySpread[0].topologyKey is missing"),
    (f"{PARTITION}.extraParameters", {"MaxTime": "1"}, "sets MaxTime, which is corral's own: set maxTime; remove it."),
    (f"{PARTITION}.extraParameters", {"graceTime": "1"}, "sets graceTime, which is corral's own: set graceTime; remove it."),
    (f"{PARTITION}.extraParameters", {"LNN": "YES"}, "sets LNN, which is no key of a line PartitionName; remove it."),
    (f"{PARTITION}.extraParameters", {"ReqRes": "YES"}, "sets ReqRes, which is no key of a line PartitionName; did you mean ReqResv?"),
    (f"{PARTITION}.extraParameters", {"LLN": "maybe"}, "sets LLN to 'maybe'; it must be YES or NO."),
    (f"{PARTITION}.maxCpusPerNode", 0, f"{PARTITION}.maxCpusPerNode is 0; it must be between 1 and"),
    (f"{PARTITION}.overSubscribe", "FORCE:x", f"{PARTITION}.overSubscribe is 'FORCE:x'; it must be NO, EXCLUSIVE, YES or FORCE"),
    (f"{PARTITION}.preemptMode", "SUSPEND", f"{PARTITION}.preemptMode is 'SUSPEND'; it must be one of"),
    (f"{PARTITION}.preemptMode", "REQUEUE", f"{PARTITION}.preemptMode is REQUEUE, which needs PreemptType=preempt/partition_prio"),
    (f"{PARTITION}.defaultTime", "2-00:00:00", f"{PARTITION}.defaultTime is 2-00:00:00, more than maxTime, 1-00:00:00"),
    (f"{PARTITION}.defaultTime", "INFINITE", f"{PARTITION}.defaultTime is INFINITE, more than maxTime"),
    (f"{PARTITION}.maxMemPerNode", "1Ki", f"{PARTITION}.maxMemPerNode is 1Ki, less than 1Mi"),
    (f"{PARTITION}.allowGroups", ["chemistry"], f"{PARTITION}.allowGroups[0] is chemistry, which is not in spec.groups"),
    (f"{PARTITION}.qos", "high", f"{PARTITION}.qos needs accounting, which this cluster has not"),
    (f"{PARTITION}.denyAccounts", ["x"], f"{PARTITION}.denyAccounts needs accounting"),
]
FILES = [
    (
        "spec.slurm.extraConfig",
        ["SchedularParameters=defer"],
        "sets SchedularParameters, which is no key of slurm.conf; did you mean SchedulerPara",
    ),
    ("spec.slurm.extraConfig", ["Xyzzy=1"], "spec.slurm.extraConfig[0] sets Xyzzy, which is no key of slurm.conf; remove it."),
    ("spec.slurm.extraConfig", ["KillWait=soon"], "spec.slurm.extraConfig[0] sets KillWait to 'soon'; it must be a whole number."),
    ("spec.slurm.extraConfig", ["KillWait=70000"], "sets KillWait to '70000'; 65535 is the most."),
    ("spec.slurm.extraConfig", ["KillWait=0x20000"], "65535 is the most."),
    ("spec.slurm.extraConfig", ["KillWait=1", "killwait=2"], "spec.slurm.extraConfig[1] sets killwait, as spec.slurm.extraConfig[0] does"),
    (
        "spec.slurm",
        {"processTracking": "linuxproc", "extraConfig": ["PrologFlags=Contain,x11"]},
        "PrologFlags has X11, which Slurm refuses",
    ),
    (
        "spec.slurm.extraConfig",
        ["JobContainerType=job_container/tmpfs"],
        "sets JobContainerType, which corral sets itself: each job has a /tmp",
    ),
    ("spec.slurm.extraConfig", ["PrologFlags=NoHold,Contain"], "PrologFlags has NoHold, which Slurm refuses together with Contain"),
    (
        "spec.slurm.extraConfig",
        ["PrologFlags=Alloc"],
        "replaces PrologFlags but leaves out Contain, without which users cannot ssh into their jobs",
    ),
    ("spec.slurm.extraConfig", ["PrologFlags=Serial,RunInJob"], "PrologFlags has Serial and RunInJob"),
    ("spec.slurm.extraConfig", ["JobAcctGatherParams=UsePss,NoShared"], "UsePss and NoShared"),
    ("spec.slurm.extraConfig", ["LaunchParameters=enable_nss_slurm,disable_send_gids"], "enable_nss_slurm and disable_send_gids"),
    (
        "spec.slurm",
        {"processTracking": "linuxproc", "extraConfig": ["JobAcctGatherType=jobacct_gather/cgroup"]},
        "JobAcctGatherType is jobacct_gather/cgroup, which needs processTracking: cgroup.",
    ),
    ("spec.slurm.extraConfig", ["SlurmSchedLogLevel=1"], "SlurmSchedLogLevel needs SlurmSchedLogFile"),
    ("spec.slurm.extraConfig", ["DefMemPerCPU=1", "DefMemPerNode=1"], "DefMemPerCPU and DefMemPerNode exclude one another"),
    ("spec.slurm.extraConfig", ["PreemptType=preempt/qos", "PreemptMode=SUSPEND"], "PreemptMode is SUSPEND, which needs GANG too"),
    ("spec.slurm.extraConfig", ["PreemptMode=REQUEUE"], "PreemptMode is REQUEUE, which needs a PreemptType"),
    ("spec.slurm.extraConfig", ["PreemptType=preempt/qos"], "PreemptType is preempt/qos, which needs a PreemptMode"),
    (
        "spec.slurm.extraCgroupConfig",
        ["CgroupPlugin=cgroup/v1"],
        "sets CgroupPlugin, which corral sets itself: set spec.slurm.processTracking",
    ),
    (
        "spec.slurm.extraCgroupConfig",
        ["ConstrainSwap=yes"],
        "ConstrainSwap, which is no key of cgroup.conf; did you mean ConstrainSwapSpace?",
    ),
    (
        "spec.slurm",
        {"processTracking": "linuxproc", "extraCgroupConfig": ["ConstrainCores=no"]},
        "spec.slurm.extraCgroupConfig goes with processTracking: cgroup, but it is linuxproc",
    ),
    ("spec.slurm.extraGresConfig", ["Name=gpu Fil=/dev/a"], "spec.slurm.extraGresConfig[0] sets Fil, which is no key of gres.conf"),
    (
        "spec.slurm.extraGresConfig",
        ["Name=gpu File"],
        "spec.slurm.extraGresConfig[0]: 'Name=gpu File' is no line of the form Key=Value Key=Value.",
    ),
    ("spec.slurm.extraMpiConfig", ["PMIxTimout=6"], "sets PMIxTimout, which is no key of mpi.conf; did you mean PMIxTimeout?"),
    ("spec.slurm.extraPlugstackConfig", ["include /etc/x"], "[0]: 'include /etc/x' is no line of the form 'optional PLUGIN.so ARGUMENTS'"),
    ("spec.slurm.extraPlugstackConfig", ["optional x.so a#b"], "'a#b' cannot be written into plugstack.conf"),
    ("spec.slurm.extraPlugstackConfig", ["optional /a/spank_corral_jail.so"], "names the jail's own plugin"),
]


CONTROLLER = "spec.controller.resources"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
EXPRESSIONS = f"{NODE}.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
GRES = "spec.slurm.extraGresConfig"
# What the API server would refuse of the objects, or Slurm of its files, when half of the cluster is made.
REFUSED_LATER = [
    (f"{NODE}.nodeSelector", {"a b": "x"}, f"{NODE}.nodeSelector has the key 'a b'; a key is 63 letters"),
    ("spec.controller.nodeSelector", {"Example.com/zone": "x"}, "spec.controller.nodeSelector has the key 'Example.com/zone'"),
    ("spec.login.nodeSelector", {"x" * 64: "x"}, "spec.login.nodeSelector has the key"),
    (f"{NODE}.nodeSelector", {f"{'a' * 254}/x": "x"}, f"{NODE}.nodeSelector has the key"),
    ("spec.login.service.annotations", {"a/b/c": "x"}, "spec.login.service.annotations has the key 'a/b/c'"),
    ("spec.login.service.annotations", {f"a{i}": "x" * 4096 for i in range(64)}, "are the most that Kubernetes keeps."),
    (
        "spec.login.service.annotations",
        {"a": "x\0"},
        "spec.login.service.annotations.a is 'x\\x00'; it must be a text without the character NUL",
    ),
    (f"{NODE}.environment", [{"name": "A", "value": "\0"}], "it must be a text without the character NUL"),
    (f"{NODE}.tolerations", [{}], f"{NODE}.tolerations[0] has no key, which goes with operator: Exists alone"),
    (f"{NODE}.tolerations", [{"key": "a", "operator": "Exists", "value": "x"}], "tolerations[0].value goes with operator: Equal"),
    (f"{NODE}.tolerations", [{"key": "a", "tolerationSeconds": 3}], "tolerations[0].tolerationSeconds goes with effect: NoExecute"),
    (f"{NODE}.tolerations", [{"key": "x" * 64}], f"{NODE}.tolerations[0].key is"),
    ("spec.workers.sync.taints", ["a..b/c"], "spec.workers.sync.taints[0] is 'a..b/c'; it must be a Kubernetes label key"),
    (f"{NODE}.topologySpread", [{"topologyKey": "-x"}], f"{NODE}.topologySpread[0].topologyKey is '-x'"),
    (
        f"{EXPRESSIONS}",
        [{"matchExpressions": [{"key": "a", "operator": "In"}]}],
        "matchExpressions[0].values is missing, which operator: In",
    ),
    (f"{EXPRESSIONS}", [{"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}], "goes not with operator: Exists"),
    (f"{EXPRESSIONS}", [{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]}], "must be one whole number, as text"),
    (f"{EXPRESSIONS}", [{"matchExpressions": [{"key": "a", "operator": "Is"}]}], "operator is 'Is'; it must be one of In, NotIn"),
    (
        CONTROLLER,
        {"requests": {"cpu": "3"}, "limits": {"cpu": "2"}},
        "spec.controller.resources.requests.cpu is 3, more than the limit of 2",
    ),
    (
        "spec.login.resources",
        {"requests": {"memory": "3Gi"}, "limits": {"memory": "2Gi"}},
        "spec.login.resources.requests.memory is 3Gi, more",
    ),
    (CONTROLLER, {"limits": {"memory": "0"}}, "spec.controller.resources.limits.memory is 0, with which nothing runs"),
    ("spec.controller.stateVolume", {"storageClassName": "a", "size": "0"}, "spec.controller.stateVolume.size is 0; nothing fits"),
    ("spec.jail.subMounts", [{"path": "/s", "scratch": "0Gi"}], "spec.jail.subMounts[0].scratch is 0Gi; nothing fits"),
    ("spec.jail.overlay", {"size": 0}, "spec.jail.overlay.size is 0; nothing fits"),
    ("spec.jail.volume", {"hostPath": "/srv/../etc", "size": "1Gi"}, "spec.jail.volume.hostPath is /srv/../etc; write it without '..'."),
    (
        f"{NODE}.volumes",
        [{"name": "a", "mountPath": "/mnt/a", "hostPath": "/a/.."}],
        f"{NODE}.volumes[0].hostPath is /a/..; write it without",
    ),
    ("spec.priorityClasses", {"controlPlane": "same", "worker": "same"}, "spec.priorityClasses.worker is same, as controlPlane is"),
    ("spec.priorityClasses", {"worker": "system-mine"}, "spec.priorityClasses.worker is system-mine, but names that begin with system-"),
    (f"{NODE}.resources.limits.cpu", "70000", f"{NODE}.resources.limits.cpu is 70000; Slurm counts to 65533 on a node"),
    (
        f"{NODE}.resources.limits.memory",
        "99999999999999999P",
        f"{NODE}.resources.limits.memory is '99999999999999999P'; 9223372036854775807 is",
    ),
    (f"{NODE}.resources.limits.memory", 2**63, f"{NODE}.resources.limits.memory is 9223372036854775808; 9223372036854775807 is the most"),
    (f"{NODE}.resources.limits.ephemeral-storage", "0", f"{NODE}.resources.limits.ephemeral-storage is 0, with which nothing runs"),
    (f"{NODE}.gpu", {"vendor": "nvidia", "resourceName": f"nvidia.com/{'x' * 100}"}, f"{NODE}.gpu.resourceName is 'nvidia.com/xxx"),
    (
        f"{NODE}.gpu",
        {"vendor": "nvidia", "resourceName": "requests.foo/bar"},
        f"{NODE}.gpu.resourceName is 'requests.foo/bar'; write the name",
    ),
    (f"{NODE}.gpu", {"vendor": "nvidia", "resourceName": "a..b/x"}, f"{NODE}.gpu.resourceName is 'a..b/x'; write the name"),
    (f"{NODE}.gpu", {"vendor": "nvidia", "resourceName": f"{'a' * 245}/x"}, f"{NODE}.gpu.resourceName is 'aaa"),
    (
        f"{NODE}.gpu",
        {"vendor": "amd", "resourceName": "gpu.kubernetes.io/x"},
        f"{NODE}.gpu.resourceName is 'gpu.kubernetes.io/x'; write the name",
    ),
    (
        EXPRESSIONS,
        [{"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["x"]}]}],
        f"{EXPRESSIONS}[0].matchFields[0].key is 'metadata.uid'; metadata.name is the only field",
    ),
    (
        EXPRESSIONS,
        [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x", "y"]}]}],
        "matchFields[0].values has 2 names; give one",
    ),
    (
        EXPRESSIONS,
        [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["X"]}]}],
        "matchFields[0].values[0] is 'X'; write the name",
    ),
    (
        f"{NODE}.affinity.podAffinity.{REQUIRED}",
        [{"topologyKey": "a", "labelSelector": {}, "matchLabelKeys": ["a", "b"], "mismatchLabelKeys": ["b"]}],
        f"{NODE}.affinity.podAffinity.{REQUIRED}[0].mismatchLabelKeys[0] is 'b', which matchLabelKeys has too; remove one of them.",
    ),
    (
        f"{NODE}.affinity.podAntiAffinity.{REQUIRED}",
        [{"topologyKey": "a", "matchLabelKeys": ["b"]}],
        f"{REQUIRED}[0].matchLabelKeys goes with labelSelector, which is missing; add it, {{}} for all pods.",
    ),
    (
        f"{NODE}.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution",
        [{"weight": 1, "podAffinityTerm": {"topologyKey": "a", "namespaces": ["a.b"]}}],
        "[0].podAffinityTerm.namespaces[0] is 'a.b', which no namespace is called",
    ),
    (
        "spec.network.egress.allow",
        [{"namespaces": ["ok", "a.b"]}],
        "spec.network.egress.allow[0].namespaces[1] is 'a.b', which no namespace is called",
    ),
    (
        "spec.login.service",
        {"type": "NodePort", "nodePort": 80},
        "spec.login.service.nodePort is 80, a port of the Kubernetes node's own services",
    ),
    (f"{NODE}.topology", {}, f"{NODE}.topology goes with spec.slurm.topology, which is missing"),
    ("spec.slurm.topology", {}, "spec.slurm.topology.plugin is missing"),
    ("spec.slurm.extraConfig", ["SelectType=select/linear"], "SelectType is select/linear, which takes no CR_Core_Memory"),
    ("spec.slurm.extraConfig", ["SelectType=select/cons_res"], "SelectType is select/cons_res, which is no plugin of Slurm any more"),
    ("spec.slurm.extraConfig", ["SchedulerType=backfill"], "SchedulerType to 'backfill'; it must be a plugin such as sched/"),
    (
        "spec.slurm.extraConfig",
        ["JobSubmitPlugins=all_partitions,lua"],
        "JobSubmitPlugins has lua, whose script job_submit.lua slurmctld would",
    ),
    ("spec.slurm.extraConfig", ["BackupController=x"], "sets BackupController, which corral sets itself: set spec.controller.replicas"),
    ("spec.slurm.extraConfig", ["CryptoType=crypto/munge"], "sets CryptoType, which corral sets itself"),
    (GRES, ["Name=tape NodeName=x0[0-999][0-999]"], f"{GRES}[0] has more than 65536 nodes in nodename"),
    (GRES, ["Name=tape File=/dev/x[0-999999]"], f"{GRES}[0] has more than 1024 files in file"),
    (GRES, ["Name=tape Count=abc"], f"{GRES}[0] has the Count abc; write a number, with K, M, G, T or P if wanted."),
    (GRES, ["Name=tape NodeName=x[0-"], f"{GRES}[0]: The hostlist 'x[0-' has brackets that do not pair"),
]


@pytest.mark.parametrize(("path", "value", "words"), REFUSED_LATER)
def test_what_would_be_refused_in_the_middle_of_a_run(path: str, value: Any, words: str) -> None:
    test_a_mistake_is_one_sentence_that_says_where(path, value, words)


def field_names(rules: dict[str, Any]) -> set[str]:
    """The names of all fields of a schema."""
    parts = [*rules.get("properties", {}).items(), *((None, rules[key]) for key in ("items", "additionalProperties") if key in rules)]
    return {name for name, _part in parts if name} | {name for _name, part in parts for name in field_names(part)}


def keyed(name: str, value: str) -> dict[str, Any]:
    """The good document with this key wherever keys are the user's: labels, annotations, taints."""
    pairs, selector = {name: value}, {"matchLabels": {name: value}, "matchExpressions": [{"key": name, "operator": "Exists"}]}
    term = {"topologyKey": name, "labelSelector": selector, "namespaceSelector": selector, "matchLabelKeys": [name]}
    must, wanted = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
    pods = {must: [term], wanted: [{"weight": 1, "podAffinityTerm": term}]}
    nodes = {"matchExpressions": [{"key": name, "operator": "In", "values": [value]}]}
    document = edited("spec.login", {"service": {"annotations": pairs}, "nodeSelector": pairs})
    document["spec"]["workers"] = {"sync": {"taints": [name]}}
    document["spec"]["nodeSets"][0].update(
        nodeSelector=pairs,
        tolerations=[{"key": name, "value": value}],
        topologySpread=[{"topologyKey": name}],
        affinity={
            "podAffinity": pods,
            "podAntiAffinity": pods,
            "nodeAffinity": {must: {"nodeSelectorTerms": [nodes]}, wanted: [{"weight": 1, "preference": nodes}]},
        },
    )
    return document


@pytest.mark.parametrize("value", ["", "operator"])
def test_a_key_of_the_users_is_never_taken_for_a_field(value: str) -> None:
    names = sorted(field_names(schema.document()))
    assert {"operator", "key", "values", "topologyKey", "matchLabels"} <= set(names)
    for name in names:
        validate.check(keyed(name, value))
    resolve.model(keyed("operator", value))


def test_what_is_like_it_is_right() -> None:
    node = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1.example.com"]}]}
    pods = {"topologyKey": "a", "labelSelector": {}, "matchLabelKeys": ["a"], "mismatchLabelKeys": ["b"], "namespaces": ["1a"]}
    document = edited(f"{NODE}.affinity", {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [node]}}, "podAffinity": {REQUIRED: [pods]}})
    document["spec"]["nodeSets"][1]["gpu"] = {"vendor": "nvidia", "resourceName": f"{'a' * 244}/x"}
    document["spec"]["login"] = {"service": {"type": "NodePort", "nodePort": 1024}}
    validate.check(document)


def test_names_of_jobs_are_labels() -> None:
    document = edited("spec.jails", [{"name": "j" * 20, "volume": {"claimName": "x"}, "populate": {"image": "example/jail:2"}}])
    validate.check(document)
    document["metadata"]["name"] = "c" * 20
    assert mistakes(document) == ["spec.jails[0].name makes the name of a Job of 64 characters; 63 are the most, so shorten it by 1."]


def test_what_does_not_fit_into_a_config_map() -> None:
    document = edited("spec.slurm.extraConfig", [f"SchedulerParameters={'x' * 3900}" for _line in range(130)])
    assert any("has 509600 bytes of lines; 500000 are the most" in one for one in mistakes(document))
    scripts = [{"name": f"s{number}", "script": "#!/bin/sh\n" + "é" * 32000} for number in range(16)]
    assert any("spec.login.initScripts has 1024160 bytes of text" in one for one in mistakes(edited("spec.login.initScripts", scripts)))


def refused(document: dict[str, Any]) -> list[str]:
    """What is said of a document that is right but for what becomes of it."""
    validate.check(document)
    with pytest.raises(validate.InvalidDocument) as caught:
        resolve.model(document)
    found: list[str] = caught.value.data["errors"]
    return found


def test_what_becomes_of_a_small_document_fits_into_config_maps() -> None:
    document = good()
    small = document["spec"]["nodeSets"][0]["resources"]
    document["spec"]["nodeSets"] = [{"name": f"n{'x' * 43}{number}", "resources": small} for number in range(256)]
    document["spec"]["partitions"] = [{"name": f"p{number}"} for number in range(128)]
    assert re.fullmatch(
        r"The document makes [0-9]{7} bytes of Slurm's files, more than the 1000000 that fit into the ConfigMap demo-controller-config; make names of node "
        r"sets shorter, or name in each of spec.partitions the nodeSets that are meant\.",
        *refused(document),
    )
    document["spec"]["partitions"] = [
        {"name": f"p{number}", "nodeSets": [document["spec"]["nodeSets"][0]["name"]]} for number in range(128)
    ]
    resolve.model(document)


def test_a_document_fits_with_its_defaults() -> None:
    document = good()
    user, small = document["spec"]["users"][0], document["spec"]["nodeSets"][0]["resources"]
    document["spec"]["nodeSets"] = [{"name": f"n{number}", "resources": small} for number in range(256)]
    document["spec"]["partitions"] = []
    document["spec"]["users"] = [
        {**user, "name": f"u{number}", "uid": 10001 + number, "sshKeys": [KEY + "x" * 333]} for number in range(2000)
    ]
    assert len(json.dumps(document["spec"])) < 1_000_000
    (words,) = refused(document)
    assert re.match(
        r"The document has 11[0-9]{5} bytes as JSON with its defaults; 1100000 are the most that Kubernetes has room for,", words
    )


def test_hostlists_are_never_expanded_to_check_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 such lines took 66 seconds, of everybody's operator."""
    monkeypatch.setattr(hostlist, "expand", lambda _text: pytest.fail("expanded"))
    gpus = [{"name": name, "resources": good()["spec"]["nodeSets"][0]["resources"], "gpu": {"vendor": "nvidia"}} for name in ("x1", "x0")]
    document = edited("spec.slurm.extraGresConfig", ["Name=gpu NodeName=x0[0-999][0-999] File=/dev/a"] * 256)
    document["spec"].update({"nodeSets": gpus, "partitions": []})
    assert len(mistakes(document)) == 21
    document["spec"]["slurm"]["extraGresConfig"] = [
        "Name=gpu NodeName=x[0-99]-[0-9] File=/dev/a",
        "Name=gpu NodeName=x[2-99]-[0-9] File=/dev/b",
    ]
    assert mistakes(document) == [
        f"{GRES}[0] describes GPUs of nodes whose GPUs spec.nodeSets[0].gpu describes; remove the line, or name other nodes by NodeName."
    ]
    document["spec"]["slurm"]["extraGresConfig"] = [f"Name=gpu NodeName={','.join(['y[0-9]z'] * 380)} File=/dev/a"] * 140
    assert mistakes(document) == [
        "spec.slurm.extraGresConfig names too many nodes one by one; write ranges such as gpu-[0-7], or fewer lines."
    ]


def blob(*parts: bytes) -> str:
    return base64.b64encode(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).decode()


ED, RSA, EC = b"ssh-ed25519", b"ssh-rsa", b"ecdsa-sha2-nistp256"


@pytest.mark.parametrize(
    ("kind", "parts", "said"),
    [
        (ED, (ED, b"k" * 32), ""),
        (ED, (ED, b"k" * 31), "is cut off or mixed up"),
        (ED, (ED, b"k" * 32, b"more"), "is cut off or mixed up"),
        (ED, (RSA, b"k" * 32), "is cut off or mixed up"),
        (RSA, (RSA, b"\1\0\1", b"\0" + b"\xff" * 256), ""),
        (RSA, (RSA, b"\1\0\1"), "is cut off or mixed up"),
        (RSA, (RSA, b"\1\0\1", b"\0" + b"\xff" * 64), "is an RSA key of 512 bits, which sshd refuses"),
        (EC, (EC, b"nistp256", b"\4" * 65), ""),
        (EC, (EC, b"nistp256", b"\4" * 33), "is cut off or mixed up"),
        (EC, (EC, b"nistp521", b"\4" * 65), "is cut off or mixed up"),
        (b"sk-ssh-ed25519@openssh.com", (b"sk-ssh-ed25519@openssh.com", b"k" * 32, b"ssh:"), ""),
        (b"sk-ssh-ed25519@openssh.com", (b"sk-ssh-ed25519@openssh.com", b"k" * 32), "is cut off or mixed up"),
        (b"sk-ecdsa-sha2-nistp256@openssh.com", (b"sk-ecdsa-sha2-nistp256@openssh.com", b"nistp256", b"\4" * 65, b"ssh:"), ""),
    ],
)
def test_public_keys_are_whole(kind: bytes, parts: tuple[bytes, ...], said: str) -> None:
    document = edited("spec.users[0].sshKeys", [f"{kind.decode()} {blob(*parts)} Zoë 🔑"])
    if said:
        assert said in mistakes(document)[0]
    else:
        validate.check(document)


def test_a_key_that_lost_some_letters_on_its_way() -> None:
    for key in (KEY[:40] + "…", KEY[:-9], KEY[:40], "ssh-ed25519 … ada", "ssh-ed25519"):
        assert "sshKeys[0]" in mistakes(edited("spec.users[0].sshKeys", [key]))[0]


SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.mark.parametrize("keys", [[SECRET], SECRET, [SECRET.replace("\n", " ")], [SECRET.splitlines()[1]], [SECRET, SECRET]])
def test_a_private_key_is_not_shown(keys: Any) -> None:
    for field in ("spec.users[0].sshKeys", "spec.users[0].name", "spec.clusterDomain"):
        assert "b3Blbn" not in " ".join(mistakes(edited(field, keys)))


def test_terminals_are_not_written_to_by_keys() -> None:
    for key in ("\x1b[2Jnode", "a\u202eb", "x" * 5000, "a\nb"):
        for path in ("spec", "spec.nodeSets[1].extraNodeParameters", "spec.nodeSets[1].nodeSelector"):
            document = good()
            document["spec"]["nodeSets"][1].update({"extraNodeParameters": {}, "nodeSelector": {}})
            place = document["spec"] if path == "spec" else document["spec"]["nodeSets"][1][path.rpartition(".")[2]]
            place[key] = "1"
            (said,) = mistakes(document)
            assert said.isprintable()
            assert said.isascii()
            assert len(said) < 800


def test_twenty_mistakes_are_shown_and_the_others_counted() -> None:
    document = good()
    document["spec"].update({f"field{number}": 1 for number in range(5000)})
    with pytest.raises(validate.InvalidDocument) as caught:
        validate.check(document)
    assert len(caught.value.data["errors"]) == 21
    assert caught.value.data["errors"][-1] == "4980 more errors of spec are not shown; correct these first and run again."
    assert str(caught.value).startswith("The document has 5000 errors; nothing was changed. ")
    assert len(str(caught.value)) < 20_000


def test_blank_fields_are_fields_that_are_not_there() -> None:
    """As the API server takes them."""
    document = good()
    for path in ("replicas", "gpu", "features", "nodeSelector", "extraNodeParameters", "affinity", "initScripts", "topology", "scale"):
        document["spec"]["nodeSets"][0][path] = None
    document["spec"]["nodeSets"][1]["resources"]["requests"] = {"cpu": None, "memory": None}
    document["spec"]["nodeSets"][1]["nodeSelector"] = {"zone": None}
    document["spec"]["controller"]["stateVolume"]["claimName"] = None
    document["spec"].update(
        {"partitions": None, "users": None, "slurm": {"extraConfig": None, "topology": None}, "login": None, "sssd": None}
    )
    found = resolve.model(document).to_dict()
    assert [one["replicas"] for one in found["workers"]["node_sets"]] == [1, 1]
    assert found["workers"]["node_sets"][1]["node_selector"] == {}
    document["spec"]["controller"]["stateVolume"]["size"] = None
    assert mistakes(document) == ["spec.controller.stateVolume.size is missing; give the size of the claim, such as 10Gi."]


def test_a_whole_number_is_one_however_it_is_written() -> None:
    document = edited("spec.nodeSets[1].replicas", 2.0)
    document["spec"]["nodeSets"][1]["resources"]["limits"]["cpu"] = 2.0
    found = resolve.model(document).to_dict()["workers"]["node_sets"][1]
    assert (found["replicas"], found["resources"]["limits"]["cpu"]) == (2, 2)


def test_numbers_of_any_size_are_refused_by_a_sentence() -> None:
    for number in (10**5000, -(10**5000), 2**63, float("inf"), float("nan"), 1e300):
        for path in ("spec.nodeSets[1].replicas", "spec.nodeSets[1].resources.limits.memory", "spec.clusterDomain"):
            (said,) = mistakes(edited(path, number))
            assert path in said
            assert len(said) < 400


def test_a_name_that_the_api_server_makes_up() -> None:
    document = good()
    document["metadata"]["generateName"] = "demo-"
    assert "metadata.generateName" in mistakes(document)[0]


@pytest.mark.parametrize(("one", "other"), [("defMemPerCpu", "defMemPerNode"), ("maxMemPerCpu", "maxMemPerNode"), ("allowQos", "denyQos")])
def test_limits_that_exclude_one_another(one: str, other: str) -> None:
    value: Any = ["x"] if one == "allowQos" else "1Gi"
    document = edited("spec.slurm.extraConfig", ["AccountingStorageType=accounting_storage/slurmdbd"])
    document["spec"]["partitions"][1].update({one: value, other: value})
    assert mistakes(document) == [f"spec.partitions[1] has {one} and {other}, which exclude one another; remove one."]


def test_a_limit_that_is_below_another() -> None:
    document = good()
    document["spec"]["partitions"][1].update({"minNodes": 3, "maxNodes": 2})
    assert mistakes(document) == ["spec.partitions[1].minNodes is 3, more than maxNodes, 2; lower the one or raise the other."]


def test_groups_of_a_directory_are_not_known_here() -> None:
    document = edited("spec.partitions[1].allowGroups", ["chemistry", "physics", "ada"])
    document["spec"]["sssd"] = LDAP
    validate.check(document)


def test_cpus_that_agree() -> None:
    for extra in (
        {"Sockets": "1", "CoresPerSocket": "2", "ThreadsPerCore": "2"},
        {"Sockets": "2", "CoresPerSocket": "2"},
        {"ThreadsPerCore": "2"},
    ):
        validate.check(edited(f"{NODE}.extraNodeParameters", extra))


@pytest.mark.parametrize(("path", "value", "words"), STRUCTURE + MEANING + SSSD + SETS + FILES)
def test_a_mistake_is_one_sentence_that_says_where(path: str, value: Any, words: str) -> None:
    found = mistakes(edited(path, value))
    assert len(found) == 1, found
    assert words in found[0]
    assert found[0].endswith((".", "?"))
    assert "\n" not in found[0]


def test_a_volume_in_the_way_of_sssds_sockets() -> None:
    document = edited("spec.jail.subMounts", [{"path": "/var/lib", "memory": "1Gi"}])
    validate.check(document)
    document["spec"]["sssd"] = LDAP
    assert "with spec.sssd /var/lib/sss is the jail's own" in mistakes(document)[0]


def test_who_may_leave_the_jail_beside_sudo() -> None:
    document = edited("spec.jail.noJailUsers", ["ada"])
    validate.check(document)
    document["spec"]["users"].append(document["spec"]["users"][0] | {"name": "root-to-be", "uid": 10009, "sudo": True})
    (said,) = mistakes(document)
    assert said.startswith("spec.jail.noJailUsers cannot be had beside root-to-be, who has sudo") and "noJailDespiteSudo: true" in said
    document["spec"]["jail"]["noJailDespiteSudo"] = True
    validate.check(document)


def test_cgroup_ends_processes_by_itself() -> None:
    document = edited("spec.slurm", {"processTracking": "linuxproc", "isolation": {"pid": "Job"}})
    validate.check(document)
    document["spec"]["slurm"]["processTracking"] = "cgroup"
    assert mistakes(document)[0].startswith("spec.slurm.isolation.pid is Job, but processTracking is cgroup")
    document["spec"]["slurm"]["isolation"]["pid"] = "Node"
    validate.check(document)


def test_sudo_is_a_new_privilege() -> None:
    document = edited("spec.security.noNewPrivileges", True)
    validate.check(document)
    document["spec"]["users"].append(document["spec"]["users"][0] | {"name": "root-to-be", "uid": 10009, "sudo": True})
    assert mistakes(document)[0].startswith("spec.security.noNewPrivileges is true, but root-to-be has sudo")


@pytest.mark.parametrize("document", [None, "", "text", [], {}, 3])
def test_what_is_no_document(document: Any) -> None:
    assert "SlurmCluster" in mistakes(document)[0]


def test_all_mistakes_are_told_at_once() -> None:
    document = edited("spec.nodeSets[1].replicas", -1)
    document["spec"]["more"] = 1
    document["spec"]["users"][0]["uid"] = "x"
    assert len(mistakes(document)) == 3


def test_what_the_api_server_adds_is_no_mistake() -> None:
    document = good()
    document["metadata"].update({"uid": "1", "generation": 2, "managedFields": []})
    document["status"] = {"anything": 1}
    validate.check(document)


def test_an_empty_cluster_is_fine() -> None:
    document = good()
    for key in ("nodeSets", "partitions", "users", "groups"):
        del document["spec"][key]
    validate.check(document)


STATE = {"storageClassName": "standard", "size": "1Gi"}


@pytest.mark.parametrize(
    ("controller", "said"),
    [
        (
            {"replicas": 2, "stateVolume": STATE},
            "spec.controller.replicas is 2, but spec.controller.stateVolume.accessMode is ReadWriteOnce",
        ),
        (
            {"replicas": 2, "stateVolume": {**STATE, "accessMode": "ReadWriteOnce"}},
            "a volume for one Kubernetes node; set it to ReadWriteMany, with a storage class or directory that all nodes share",
        ),
        (
            {"stateVolume": {"claimName": "mine", "accessMode": "ReadWriteMany"}},
            "spec.controller.stateVolume.accessMode goes with storageClassName and hostPath",
        ),
    ],
)
def test_a_second_controller_needs_the_same_state(controller: dict[str, Any], said: str) -> None:
    found = mistakes(edited("spec.controller", controller))
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    "controller",
    [
        {"replicas": 2, "stateVolume": {**STATE, "accessMode": "ReadWriteMany"}},
        {"replicas": 2, "stateVolume": {"hostPath": "/srv/state", "size": "1Gi", "accessMode": "ReadWriteMany"}},
        # What it is can only be seen in the cluster: k8s_claim_check.
        {"replicas": 2, "stateVolume": {"claimName": "mine"}},
        {"replicas": 1, "stateVolume": {**STATE, "accessMode": "ReadWriteMany"}},
        {"replicas": 1, "stateVolume": STATE},
    ],
)
def test_state_volumes_that_will_do(controller: dict[str, Any]) -> None:
    validate.check(edited("spec.controller", controller))
