# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every mistake a table row: where it is, what it is, and the words that the user must read."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import validate

from .documents import KEY, REMOVE, edited, good


def mistakes(document: Any) -> list[str]:
    with pytest.raises(validate.InvalidDocument) as caught:
        validate.check(document)
    found: list[str] = caught.value.data["mistakes"]
    return found


def test_a_good_document_passes() -> None:
    validate.check(good())


STRUCTURE = [
    ("spec.nodeSetz", [], "spec.nodeSetz is not known; did you mean nodeSets?"),
    ("spec.images.slurm", REMOVE, "spec.images.slurm is missing"),
    ("spec.jail", REMOVE, "spec.jail is missing"),
    ("spec.nodeSets", {"a": 1}, "spec.nodeSets must be a list, not a mapping"),
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
    ("spec.partitions[1].maxTime", 86400, "spec.partitions[1].maxTime must be text, not 86400; put it in quotes"),
    ("spec.partitions[1].maxTime", "tomorrow", "spec.partitions[1].maxTime is 'tomorrow'; it must be INFINITE or days"),
    ("spec.partitions[1].name", "main", "spec.partitions[1].name is 'main' a second time"),
    ("spec.jail.subMounts", [{"path": "/scratch"}], "spec.jail.subMounts[0] has no source; give exactly one of claimName"),
    ("spec.jail.subMounts", [{"path": "/s", "memory": "1Gi", "scratch": "1Gi"}], "spec.jail.subMounts[0] has memory and scratch"),
    (
        "spec.jail.subMounts",
        [{"path": "/s", "storageClassName": "a"}],
        "spec.jail.subMounts[0].size goes with storageClassName, and only with it; add",
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
    ("spec.partitions[1].name", "default", "spec.partitions[1].name is default, Slurm's own word"),
    ("spec.jail.volume", {}, "spec.jail.volume has no source; give exactly one"),
    ("spec.jail.volume", {"claimName": "a", "hostPath": "/b", "size": "1Gi"}, "spec.jail.volume has claimName and hostPath"),
    ("spec.jail.volume", {"hostPath": "/b"}, "spec.jail.volume.size is missing"),
    ("spec.jail.volume", {"claimName": "a", "size": "1Gi"}, "spec.jail.volume.size goes with"),
    ("spec.jail.populate", REMOVE, "spec.jail.populate is missing; it is needed: The image that fills an empty volume, or policy Never."),
    ("spec.jail.populate.image", REMOVE, "spec.jail.populate.image is missing"),
    ("spec.login.service", {"nodePort": 30022}, "spec.login.service.nodePort goes with type NodePort, but the type is ClusterIP"),
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
    ("spec.users[0].sshKeys", ["my key"], "spec.users[0].sshKeys[0] begins with 'my'"),
    ("spec.users[0].sshKeys", [KEY.replace("ssh-ed25519 ", "ssh-rsa ")], "is no key of type ssh-rsa"),
    ("spec.users[0].sshKeys", ["-----BEGIN OPENSSH PRIVATE KEY-----"], "is a private key"),
]


@pytest.mark.parametrize(("path", "value", "words"), STRUCTURE + MEANING)
def test_a_mistake_is_one_sentence_that_says_where(path: str, value: Any, words: str) -> None:
    found = mistakes(edited(path, value))
    assert len(found) == 1, found
    assert words in found[0]
    assert found[0].endswith((".", "?"))
    assert "\n" not in found[0]


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
