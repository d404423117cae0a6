# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Volumes of containers, scripts before slurmd starts, times of probes."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve, validate

from .documents import edited, good
from .test_validate import mistakes

SET = "spec.nodeSets[1]"


def node_set(document: Any) -> dict[str, Any]:
    found: dict[str, Any] = resolve.model(document).to_dict()["workers"]["node_sets"][1]
    return found


def volume(**fields: Any) -> dict[str, Any]:
    return {"name": "tools", "mountPath": "/mnt/tools", **fields}


@pytest.mark.parametrize(
    ("fields", "source", "mount"),
    [
        ({"configMap": "tools"}, {"configMap": {"name": "tools"}}, {"readOnly": True}),
        ({"secret": "tools"}, {"secret": {"secretName": "tools", "defaultMode": 0o400}}, {"readOnly": True}),
        ({"claimName": "tools"}, {"persistentVolumeClaim": {"claimName": "tools"}}, {}),
        ({"claimName": "tools", "readOnly": True}, {"persistentVolumeClaim": {"claimName": "tools"}}, {"readOnly": True}),
        ({"hostPath": "/srv/tools", "subPath": "a/b"}, {"hostPath": {"path": "/srv/tools", "type": "Directory"}}, {"subPath": "a/b"}),
        ({"memory": "1Gi"}, {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}, {}),
        ({"scratch": "1Gi"}, {"emptyDir": {"sizeLimit": "1Gi"}}, {}),
    ],
)
@pytest.mark.parametrize("place", [SET, "spec.login"])
def test_a_volume_is_in_the_container(place: str, fields: dict[str, Any], source: dict[str, Any], mount: dict[str, Any]) -> None:
    cluster = resolve.model(edited(f"{place}.volumes", [volume(**fields)])).to_dict()
    pods = cluster["login"] if place == "spec.login" else cluster["workers"]["node_sets"][1]
    other = cluster["workers"]["node_sets"][0] if place == "spec.login" else cluster["login"]
    assert {"name": "own-tools", **source} in pods["jail"]["volumes"]
    assert {"name": "own-tools", "mountPath": "/mnt/tools", **mount} in pods["jail"]["mounts"]
    assert not any(one["name"] == "own-tools" for one in other["jail"]["volumes"])


@pytest.mark.parametrize(
    ("ipc", "fields", "closed"),
    [
        ("Job", {"claimName": "tools"}, "/dev/mqueue"),
        ("Job", {"scratch": "1Gi"}, "/mnt/tools /dev/mqueue"),
        ("Node", {"memory": "1Gi"}, "/mnt/tools"),
        ("Node", {"memory": "1Gi", "readOnly": True}, None),
        ("Node", {"hostPath": "/srv/tools"}, None),
    ],
)
def test_a_worker_is_told_what_to_close_to_users(ipc: str, fields: dict[str, Any], closed: str | None) -> None:
    """slurmd writes there for them (sbcast): what the kubelet makes writable for all, and the pod's message queues where no job has these."""
    document = edited(f"{SET}.volumes", [volume(**fields)])
    document["spec"]["slurm"] = {"isolation": {"ipc": ipc}}
    pods = resolve.model(document).to_dict()["workers"]["node_sets"][1]
    assert {item["name"]: item["value"] for item in pods["jail"]["env"]}.get("CORRAL_CLOSED") == closed


@pytest.mark.parametrize(
    ("volumes", "words"),
    [
        ([volume()], "spec.nodeSets[1].volumes[0] has no source; give exactly one of configMap, secret"),
        ([volume(secret="a", claimName="b")], "spec.nodeSets[1].volumes[0] has secret and claimName"),
        ([volume(secret="a", mountPath="/etc/slurm/x")], "mountPath is /etc/slurm/x, but /etc/slurm is the pod's own"),
        ([volume(secret="a", mountPath="/etc")], "mountPath is /etc, but /etc/corral is the pod's own"),
        ([volume(secret="a", mountPath="/mnt/jail/data")], "but /mnt/jail is the pod's own"),
        ([volume(secret="a", mountPath="/usr/bin")], "mountPath is /usr/bin, but /usr/bin is the pod's own"),
        ([volume(secret="a", mountPath="/mnt/../etc")], "write it without '.' and '..'"),
        ([volume(secret="a", subPath="../x")], "it must be a path such as"),
        ([volume(secret="a", mountPath="tools")], "it must be an absolute path"),
        ([volume(secret="a"), volume(secret="b", name="b")], "mountPath is /mnt/tools, as spec.nodeSets[1].volumes[0].mountPath is"),
        ([volume(secret="a"), volume(secret="b", mountPath="/b")], "spec.nodeSets[1].volumes[1].name is 'tools' a second time"),
    ],
)
def test_volumes_that_can_not_be(volumes: list[Any], words: str) -> None:
    found = mistakes(edited(f"{SET}.volumes", volumes))
    assert len(found) == 1 and words in found[0], found


def test_a_file_of_a_volume_may_lie_among_the_pods_own() -> None:
    validate.check(edited(f"{SET}.volumes", [volume(secret="a", mountPath="/usr/bin/tool", subPath="tool")]))


SCRIPTS = [
    {"name": "disks", "script": "#!/bin/sh\necho 'x: {{ y }}'\n", "timeoutSeconds": 90},
    {"name": "site", "configMap": {"name": "site-scripts", "key": "start.sh"}},
]


def test_scripts_are_files_of_their_names_and_run_in_their_order() -> None:
    found = node_set(edited(f"{SET}.initScripts", SCRIPTS))
    assert (found["init_config_map"], found["init_scripts"]) == ("demo-big-init", {"disks": SCRIPTS[0]["script"]})
    sources = [
        {"configMap": {"name": "demo-big-init", "items": [{"key": "disks", "path": "disks", "mode": 0o555}]}},
        {"configMap": {"name": "site-scripts", "items": [{"key": "start.sh", "path": "site", "mode": 0o555}]}},
    ]
    assert {"name": "init-scripts", "projected": {"sources": sources}} in found["jail"]["volumes"]
    assert {"name": "init-scripts", "mountPath": "/etc/corral/init", "readOnly": True} in found["jail"]["mounts"]
    assert {"name": "CORRAL_INIT_SCRIPTS", "value": "disks:90 site:60"} in found["jail"]["env"]


def test_login_nodes_have_scripts_too() -> None:
    found = resolve.model(edited("spec.login.initScripts", SCRIPTS)).to_dict()["login"]
    assert (found["init_config_map"], found["init_scripts"]) == ("demo-login-init", {"disks": SCRIPTS[0]["script"]})
    assert found["probes"]["startup"]["failureThreshold"] == 12 + 15
    names = [
        source["configMap"]["name"]
        for volume in found["jail"]["volumes"]
        if volume["name"] == "init-scripts"
        for source in volume["projected"]["sources"]
    ]
    assert names == ["demo-login-init", "site-scripts"]
    assert {"name": "init-scripts", "mountPath": "/etc/corral/init", "readOnly": True} in found["jail"]["mounts"]
    assert {"name": "CORRAL_INIT_SCRIPTS", "value": "disks:90 site:60"} in found["jail"]["env"]


def test_login_scripts_that_can_not_be() -> None:
    found = mistakes(edited("spec.login.initScripts", [{"name": "a"}]))
    assert found == ["spec.login.initScripts[0] has no text; give exactly one of script and configMap."]


def test_a_start_may_take_as_long_as_its_scripts() -> None:
    """90 and 60 seconds, by looks of 10 seconds or by what is between them if that is longer."""
    assert node_set(good())["probes"]["startup"]["failureThreshold"] == 30
    assert node_set(edited(f"{SET}.initScripts", SCRIPTS))["probes"]["startup"]["failureThreshold"] == 30 + 15
    document = edited(f"{SET}.initScripts", SCRIPTS)
    document["spec"]["nodeSets"][1]["probes"] = {"startup": {"periodSeconds": 40}}
    assert node_set(document)["probes"]["startup"] == {
        "periodSeconds": 40,
        "timeoutSeconds": 20,
        "failureThreshold": 30 + 4,
        "wait_seconds": 10,
    }


@pytest.mark.parametrize(("timeout", "wait"), [(1, 0), (2, 1), (5, 2), (60, 30)])
def test_a_look_at_a_start_waits_for_half_of_its_time(timeout: int, wait: int) -> None:
    assert node_set(edited(f"{SET}.probes", {"startup": {"timeoutSeconds": timeout}}))["probes"]["startup"]["wait_seconds"] == wait


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ({"name": "a"}, "spec.nodeSets[1].initScripts[0] has no text; give exactly one of script and configMap."),
        ({"name": "a", "script": "#!/bin/sh\n", "configMap": {"name": "b", "key": "c"}}, "has script and configMap"),
        ({"name": "a", "script": "echo hello"}, "it must be a script, beginning with #! and a program's path"),
        ({"name": "a b", "script": "#!/bin/sh\n"}, "spec.nodeSets[1].initScripts[0].name is 'a b'"),
        ({"name": "a", "script": "#!/bin/sh\n", "timeoutSeconds": 0}, "it must be between 1 and 3600"),
        ({"name": "a", "configMap": {"name": "b"}}, "spec.nodeSets[1].initScripts[0].configMap.key is missing"),
    ],
)
def test_scripts_that_can_not_be(script: dict[str, Any], words: str) -> None:
    found = mistakes(edited(f"{SET}.initScripts", [script]))
    assert len(found) == 1 and words in found[0], found


def test_times_of_probes() -> None:
    assert node_set(good())["probes"] == {
        "startup": {"periodSeconds": 1, "timeoutSeconds": 20, "failureThreshold": 30, "wait_seconds": 10},
        "readiness": {"periodSeconds": 30, "timeoutSeconds": 10},
        "liveness": {"periodSeconds": 120, "timeoutSeconds": 30, "failureThreshold": 3},
    }
    found = node_set(edited(f"{SET}.probes", {"liveness": {"timeoutSeconds": 60}}))["probes"]
    assert found["liveness"] == {"periodSeconds": 120, "timeoutSeconds": 60, "failureThreshold": 3}


@pytest.mark.parametrize("part", ["login", "controller"])
def test_times_of_the_other_daemons_probes(part: str) -> None:
    usual = {
        "startup": {"periodSeconds": 1, "timeoutSeconds": 20, "failureThreshold": 12, "wait_seconds": 10},
        "readiness": {"periodSeconds": 30, "timeoutSeconds": 10},
        "liveness": {"periodSeconds": 120, "timeoutSeconds": 30, "failureThreshold": 3},
    }
    assert resolve.model(good()).to_dict()[part]["probes"] == usual
    found = resolve.model(edited(f"spec.{part}.probes", {"startup": {"failureThreshold": 600}})).to_dict()[part]["probes"]
    assert found == {**usual, "startup": {**usual["startup"], "failureThreshold": 600}}


@pytest.mark.parametrize("value", [None, False, True])
def test_a_user_namespace_is_as_the_document_has_it(value: bool | None) -> None:
    document = edited("spec.slurm.processTracking", "linuxproc")
    for part in (document["spec"]["controller"], document["spec"].setdefault("login", {}), document["spec"]["nodeSets"][1]):
        part.update({} if value is None else {"hostUsers": value})
    found = resolve.model(document).to_dict()
    assert [one["host_users"] for one in (found["controller"], found["login"], found["workers"]["node_sets"][1])] == [value] * 3
    assert found["workers"]["node_sets"][0]["host_users"] is None


def test_slurmd_in_a_user_namespace_confines_nothing() -> None:
    validate.check(edited(f"{SET}.hostUsers", True))
    found = mistakes(edited(f"{SET}.hostUsers", False))
    assert len(found) == 1 and found[0].startswith(f"{SET}.hostUsers is false, but with processTracking: cgroup"), found


@pytest.mark.parametrize("part", ["spec.login.hostUsers", f"{SET}.hostUsers"])
@pytest.mark.parametrize(
    ("accounts", "number"), [("spec.users[0].uid", 65536), ("spec.users[0].uid", 200000), ("spec.groups[0].gid", 70000)]
)
def test_a_user_namespace_has_ids_of_its_own(part: str, accounts: str, number: int) -> None:
    """Nobody in such a pod can be a user, or of a group, whose number Kubernetes does not give it."""
    document = edited(accounts, number)
    spec = document["spec"]
    spec["slurm"] = {"processTracking": "linuxproc"}
    # slurmctld becomes nobody.
    spec["controller"]["hostUsers"] = False
    pods = spec.setdefault("login", {}) if part.startswith("spec.login") else spec["nodeSets"][1]
    for value in (True, None):
        pods.update({} if value is None else {"hostUsers": value})
        validate.check(document)
        pods.pop("hostUsers", None)
    pods["hostUsers"] = False
    found = mistakes(document)
    assert len(found) == 1 and found[0].startswith(f"{accounts} is {number}, but {part} is false: the user namespace"), found
