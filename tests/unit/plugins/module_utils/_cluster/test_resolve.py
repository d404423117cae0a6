# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._cluster import defaults, resolve, schema

from .documents import accounts, edited, good

REPOSITORY = Path(__file__).resolve().parents[5]


def model(document: Any) -> dict[str, Any]:
    return resolve.model(document).to_dict()


def lines(document: Any, word: str) -> list[str]:
    text: str = model(document)["config"]["files"]["slurm.conf"]
    return [line for line in text.splitlines() if line.startswith(word)]


def test_the_lines_of_nodes_and_partitions() -> None:
    assert lines(good(), "NodeName") == [
        "NodeName=cpu-[0-1] NodeAddr=demo-cpu-[0-1].demo-worker.ns.svc.cluster.local CPUs=2 RealMemory=896 Feature=a,b Weight=1 State=UNKNOWN",
        "NodeName=big-0 NodeAddr=demo-big-0.demo-worker.ns.svc.cluster.local CPUs=4 RealMemory=1920 Weight=1 State=UNKNOWN",
    ]
    assert lines(good(), "PartitionName") == [
        "PartitionName=main Nodes=cpu-[0-1],big-0 Default=YES MaxTime=INFINITE State=UP",
        "PartitionName=big Nodes=big-0 Default=NO MaxTime=1-00:00:00 State=UP",
    ]


def test_a_set_without_replicas_has_no_line_and_its_partition_stays() -> None:
    document = edited("spec.nodeSets[1].replicas", 0)
    assert [line.split()[0] for line in lines(document, "NodeName")] == ["NodeName=cpu-[0-1]"]
    assert lines(document, "PartitionName=big") == ['PartitionName=big Nodes="" Default=NO MaxTime=1-00:00:00 State=UP']
    assert model(document)["node_names"] == "cpu-[0-1]"


@pytest.mark.parametrize(
    ("sizes", "replicas"), [(None, 2), ({}, 2), ({"cpu": 4}, 4), ({"cpu": 0}, 1), ({"cpu": 99}, 5), ({"big": 3}, 2), ({"gone": 3}, 2)]
)
def test_a_set_that_scales_has_the_size_that_is_asked_for_within_its_bounds(sizes: dict[str, int] | None, replicas: int) -> None:
    document = edited("spec.nodeSets[0].scale", {"minReplicas": 1, "maxReplicas": 5})
    found = resolve.model(document, sizes).to_dict()
    assert [one["replicas"] for one in found["workers"]["node_sets"]] == [replicas, 1], "the other set has no scale"
    assert found["node_count"] == replicas + 1
    assert [one["replicas"] for one in found["scaling"]["node_sets"]] == [replicas, 1]
    assert found["scaling"]["scalable"] is (sizes is not None)
    [scaled] = found["scaling"]["scaled"]
    assert (scaled["object"], scaled["replicas"]) == ("demo-cpu", replicas)
    assert scaled["selector"].endswith("corral.hpc/node-set=cpu")


def test_without_a_scale_nobody_is_asked() -> None:
    assert model(good())["scaling"]["scaled"] == []


def test_without_partitions_one_holds_all() -> None:
    assert lines(edited("spec.partitions", []), "PartitionName") == [
        "PartitionName=main Nodes=cpu-[0-1],big-0 Default=YES MaxTime=INFINITE State=UP"
    ]


def test_the_first_partition_that_does_not_refuse_is_the_default() -> None:
    document = edited("spec.partitions", [{"name": "a", "default": False}, {"name": "b"}, {"name": "c"}])
    assert ["Default=YES" in line for line in lines(document, "PartitionName")] == [False, True, False]


def test_an_extra_line_replaces_a_default_whatever_its_case() -> None:
    document = edited("spec.slurm.extraConfig", ["killwait=5", 'PriorityType="priority/multifactor"', 'Epilog="/a b"'])
    assert lines(document, "KillWait") == ["KillWait=5"]
    assert lines(document, "PriorityType") == ["PriorityType=priority/multifactor"]
    assert lines(document, "Epilog") == ['Epilog="/a b"']


def test_more_of_a_nodes_and_a_partitions_line() -> None:
    document = edited("spec.nodeSets[1].extraNodeParameters", {"TmpDisk": "100", "Gres": "tape:2"})
    document["spec"]["slurm"] = {"extraConfig": ["GresTypes=tape", "PreemptType=preempt/partition_prio", "PreemptMode=CANCEL"]}
    document["spec"]["partitions"][1].update(
        {"maxMemPerNode": "1.5Gi", "priorityTier": 2, "allowGroups": ["physics", "ada"], "rootOnly": False}
        | {"preemptMode": "SUSPEND,GANG", "extraParameters": {"LLN": "YES", "Topology": "a b"}}
    )
    assert lines(document, "NodeName=big") == [
        "NodeName=big-0 NodeAddr=demo-big-0.demo-worker.ns.svc.cluster.local CPUs=4 RealMemory=1920 Weight=1 TmpDisk=100 Gres=tape:2 State=UNKNOWN"
    ]
    line = "PartitionName=big Nodes=big-0 Default=NO MaxTime=1-00:00:00 State=UP MaxMemPerNode=1536 PriorityTier=2 PreemptMode=SUSPEND,GANG"
    assert lines(document, "PartitionName=big") == [f'{line} AllowGroups=physics,ada RootOnly=NO LLN=YES Topology="a b"']


def test_lines_of_the_other_files() -> None:
    files = model(
        edited(
            "spec.slurm",
            {
                "extraCgroupConfig": ["constraindevices=no", "AllowedRAMSpace=99.5"],
                "extraGresConfig": ['NodeName=big-0 Name=tape  File="/dev/a b"', "Name=tape Count=2"],
                "extraMpiConfig": ["PMIxTimeout=600"],
                "extraPlugstackConfig": ["optional  /mnt/tools/site.so level=2"],
            },
        )
    )["config"]["files"]
    assert files["cgroup.conf"].splitlines()[-2:] == ["ConstrainDevices=no", "AllowedRAMSpace=99.5"]
    assert "CgroupPlugin=cgroup/v2" in files["cgroup.conf"]
    assert files["gres.conf"].splitlines()[1:] == ['NodeName=big-0 Name=tape File="/dev/a b"', "Name=tape Count=2"]
    assert files["mpi.conf"].splitlines()[1:] == ["PMIxTimeout=600"]
    first, second = files["plugstack.conf"].splitlines()[1:]
    assert first.startswith("required /opt/corral/lib/corral/spank_corral_jail.so ") and second == "optional /mnt/tools/site.so level=2"


def test_without_lines_of_theirs_there_are_no_further_files() -> None:
    texts = sorted(model(good())["config"]["files"])
    assert texts == ["cgroup.conf", "config.hash", "epilog.sh", "plugstack.conf", "prolog.sh", "slurm.conf"]


def test_where_nothing_is_asked_pods_are_placed_as_before() -> None:
    for node_set in model(good())["workers"]["node_sets"]:
        assert [node_set[field] for field in ("affinity", "spread", "environment", "sysctls", "extra")] == [{}, [], [], [], {}]


def test_pods_of_a_set_keep_apart_beside_what_the_document_says() -> None:
    always = "requiredDuringSchedulingIgnoredDuringExecution"
    own = {"labelSelector": {}, "topologyKey": "rack"}
    wished = "preferredDuringSchedulingIgnoredDuringExecution"
    document = edited("spec.nodeSets[1].affinity", {"nodeAffinity": {wished: []}, "podAntiAffinity": {always: [own], wished: []}})
    document["spec"]["nodeSets"][1].update({"onePodPerNode": True, "topologySpread": [{"topologyKey": "zone"}]})
    node_set = model(document)["workers"]["node_sets"][1]
    selected = {"matchLabels": node_set["selector"]}
    assert node_set["selector"]["corral.hpc/node-set"] == "big"
    assert node_set["affinity"] == {
        "nodeAffinity": {wished: []},
        "podAntiAffinity": {always: [own, {"labelSelector": selected, "topologyKey": "kubernetes.io/hostname"}], wished: []},
    }
    assert node_set["spread"] == [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selected}]


@pytest.mark.parametrize(
    ("tracking", "expected"),
    [("cgroup", "ProctrackType=proctrack/cgroup"), ("linuxproc", "ProctrackType=proctrack/linuxproc")],
)
def test_process_tracking(tracking: str, expected: str) -> None:
    document = edited("spec.slurm.processTracking", tracking)
    assert lines(document, "ProctrackType") == [expected]
    assert ("CgroupPlugin=disabled" in model(document)["config"]["files"]["cgroup.conf"]) is (tracking == "linuxproc")


UNCONFINED = {"type": "Unconfined"}


def test_without_prepared_nodes_nothing_of_them_is_asked() -> None:
    cluster = model(good())
    assert [(node_set["seccomp"], node_set["app_armor"]) for node_set in cluster["workers"]["node_sets"]] == [(UNCONFINED, UNCONFINED)] * 2
    # The runtime's own profile is enough for sshd's chroot, and refuses pivot_root.
    assert (cluster["login"]["seccomp"], cluster["login"]["app_armor"]) == ({"type": "RuntimeDefault"}, UNCONFINED)
    assert model(edited("spec.login.entry", "Pivot"))["login"]["seccomp"] == UNCONFINED


@pytest.mark.parametrize("entry", ["Chroot", "Pivot"])
def test_prepared_nodes_confine_the_pods(entry: str) -> None:
    document = edited(
        "spec.security", {"seccomp": "Localhost", "appArmor": "Localhost", "profiles": {"seccomp": {"login": "other/login.json"}}}
    )
    document["spec"]["login"] = {"entry": entry}
    document["spec"]["nodeSets"][1]["security"] = {"appArmor": "Unconfined"}
    cluster = model(document)
    cpu, big = cluster["workers"]["node_sets"]
    worker = {"type": "Localhost", "localhostProfile": "corral/worker.json"}
    assert (cpu["seccomp"], cpu["app_armor"]) == (worker, {"type": "Localhost", "localhostProfile": "corral-worker"})
    assert (big["seccomp"], big["app_armor"]) == (worker, UNCONFINED)
    assert cluster["login"]["seccomp"] == {"type": "Localhost", "localhostProfile": "other/login.json"}
    assert cluster["login"]["app_armor"] == {"type": "Localhost", "localhostProfile": "corral-login"}


VOLUMES = [
    ({"claimName": "mine"}, ("mine", False, None, None, None)),
    ({"storageClassName": "fast", "size": "5Gi"}, ("demo-jail", True, None, "fast", "5Gi")),
    ({"hostPath": "/srv/jail", "size": "5Gi"}, ("demo-jail", True, "ns-demo-jail", "", "5Gi")),
]


@pytest.mark.parametrize(("volume", "expected"), VOLUMES)
def test_volumes(volume: dict[str, str], expected: tuple[Any, ...]) -> None:
    jail = model(edited("spec.jail.volume", volume))["jail"]["volume"]
    assert tuple(jail[key] for key in ("claim", "create", "persistent_volume", "storage_class", "size")) == expected


def test_destroy_names_data_that_goes_and_data_that_stays() -> None:
    teardown = model(good())["teardown"]
    assert [f"{item['kind']}/{item['metadata']['name']}" for item in teardown["data"]] == [
        "PersistentVolumeClaim/demo-controller-state",
        "Secret/demo-base-munge-key",
        "Secret/demo-login-host-keys",
        "Secret/demo-worker-host-keys",
        # From before a change of spec.slurm.auth, if there is one.
        "Secret/demo-base-slurm-key",
        "ConfigMap/demo-base-revisions",
    ]
    assert all(item["metadata"]["labels"]["app.kubernetes.io/instance"] == "demo" for item in teardown["data"])
    assert ["shared" in sentence for sentence in teardown["left_behind"]] == [True]
    assert [item["name"] for item in teardown["applysets"]][0::8] == ["demo-login", "demo-base"]


def test_what_a_job_does_is_in_its_name() -> None:
    before = model(good())["jail"]
    other_image = model(edited("spec.jail.populate.image", "example/jail:2"))["jail"]
    other_user = model(edited("spec.users[0].sudo", True))["jail"]
    assert before["populate"]["job"] != other_image["populate"]["job"]
    assert before["users"]["job"] == other_image["users"]["job"]
    assert before["populate"]["job"] == other_user["populate"]["job"]
    assert before["users"]["job"] != other_user["users"]["job"]


def test_a_change_of_anything_in_the_configuration_changes_its_hash() -> None:
    before = model(good())["config"]
    assert before["files"]["config.hash"] == before["hash"] + "\n"
    assert model(edited("spec.nodeSets[0].weight", 2))["config"]["hash"] != before["hash"]
    assert model(edited("spec.users[0].sudo", True))["config"]["hash"] == before["hash"]


def shuffled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(key, shuffled(item, chance)) for key, item in value.items()]
        chance.shuffle(items)
        return dict(items)
    return [shuffled(item, chance) for item in value] if isinstance(value, list) else value


def test_the_order_of_keys_does_not_matter_down_to_the_byte() -> None:
    expected = json.dumps(model(good()), sort_keys=True)
    for seed in range(20):
        assert json.dumps(model(shuffled(good(), random.Random(seed))), sort_keys=True) == expected


def test_defaults_applied_twice_change_nothing_and_the_document_is_left_alone() -> None:
    document = good()
    once = defaults.derived(defaults.static(document["spec"]))
    assert defaults.derived(defaults.static(once)) == once
    assert document == good()


def test_ten_thousand_nodes_stay_small() -> None:
    document = edited("spec.nodeSets", [{**good()["spec"]["nodeSets"][0], "name": f"set{n}", "replicas": 2500} for n in range(4)])
    document["spec"]["partitions"] = [{"name": "main"}]
    start = time.process_time()
    resolved = model(document)
    assert resolved["node_count"] == 10000
    assert len(resolved["config"]["files"]["slurm.conf"]) < 4096
    assert time.process_time() - start < 2, "names must never be made one by one"


@pytest.mark.parametrize("example", ["demo", "minimal", "full", "own"])
def test_examples_are_good(example: str) -> None:
    document = yaml.safe_load((REPOSITORY / "examples" / f"{example}.yml").read_text())
    assert model(document)["node_count"] > 0


def test_the_full_example_has_every_field() -> None:
    document = yaml.safe_load((REPOSITORY / "examples" / "full.yml").read_text())
    missing: list[str] = []

    def walk(rules: dict[str, Any], values: list[Any], path: str) -> None:
        for key, child in rules.get("properties", {}).items():
            found = [value[key] for value in values if isinstance(value, dict) and key in value]
            if not found:
                missing.append(f"{path}.{key}")
            nested = [item for value in found for item in (value if isinstance(value, list) else [value])]
            walk(child.get("items", child), nested, f"{path}.{key}")

    walk(schema.spec(), [document["spec"]], "spec")
    # One of three excludes the others; the rest of a toleration, an affinity or an amount is Kubernetes' own.
    others = (
        "Volume.",
        "volume.",
        "tolerations.",
        "Affinity.",
        "resources.",
        "nodePort",
        "login.volumes.",
        ".topology.block",
        "database.embedded",
        "database.mariadbOperator",
        "rest.tls.secret",
    )
    own = [path for path in missing if not any(part in path for part in others)]
    assert own == []


SHARED_STATE = {"storageClassName": "shared", "size": "1Gi", "accessMode": "ReadWriteMany"}


def test_one_controller_is_as_it_was() -> None:
    controller = model(good())["controller"]
    assert controller["hosts"] == [
        {
            "host": "demo-controller-0",
            "address": "demo-controller.ns.svc.cluster.local",
            "service": "demo-controller",
            "selector": model(good())["components"]["controller"]["selector"],
        }
    ]
    assert (controller["replicas"], controller["backup"], controller["affinity"]) == (1, None, {})
    assert controller["state"]["access_mode"] == "ReadWriteOnce"
    assert lines(good(), "Slurmctld") == [
        "SlurmctldHost=demo-controller-0(demo-controller.ns.svc.cluster.local)",
        "SlurmctldPort=6817",
        "SlurmctldPidFile=/var/spool/slurmctld/slurmctld.pid",
        "SlurmctldParameters=enable_configless",
        "SlurmctldTimeout=120",
        "SlurmctldDebug=info",
    ]


def test_two_controllers() -> None:
    document = edited("spec.controller", {"replicas": 2, "stateVolume": SHARED_STATE})
    controller = model(document)["controller"]
    assert (controller["pod"], controller["backup"], controller["state"]["access_mode"]) == (
        "demo-controller-0",
        "demo-controller-1",
        "ReadWriteMany",
    )
    assert controller["address"] == model(good())["controller"]["address"], "who knows the primary's address finds it after the change"
    assert [one["selector"]["statefulset.kubernetes.io/pod-name"] for one in controller["hosts"]] == [
        "demo-controller-0",
        "demo-controller-1",
    ]
    assert lines(document, "Slurmctld")[:2] == [
        "SlurmctldHost=demo-controller-0(demo-controller.ns.svc.cluster.local)",
        "SlurmctldHost=demo-controller-1(demo-controller-1.ns.svc.cluster.local)",
    ]
    assert lines(document, "SlurmctldTimeout") == ["SlurmctldTimeout=10"]
    # slurmctld sends SIGTERM to the process whose number is in it.
    assert lines(document, "SlurmctldPidFile") == ["SlurmctldPidFile=/tmp/slurmctld.pid"]
    terms = controller["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [term["podAffinityTerm"]["topologyKey"] for term in terms] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]


def test_the_timeout_of_two_controllers_can_be_another() -> None:
    document = edited("spec.controller", {"replicas": 2, "stateVolume": SHARED_STATE})
    document["spec"]["slurm"] = {"extraConfig": ["SlurmctldTimeout=25"]}
    assert lines(document, "SlurmctldTimeout") == ["SlurmctldTimeout=25"]
    assert len(lines(document, "SlurmctldHost")) == 2


def _mounts(found: dict[str, Any]) -> dict[str, str]:
    """Path → volume, in the order of the pod."""
    return {mount["mountPath"]: mount["name"] for mount in found["mounts"]}


def test_sub_mounts_go_where_they_are_wanted() -> None:
    document = good()
    document["spec"]["jail"]["subMounts"] = [
        {"path": "/home", "claimName": "homes"},
        {"path": "/data", "storageClassName": "fast", "size": "1Ti", "readOnly": True},
        {"path": "/scratch", "hostPath": "/mnt/nvme", "login": False, "nodeSets": ["big"]},
        {"path": "/fast", "memory": "64Mi", "login": False},
    ]
    resolved = model(document)
    login, (cpu, big) = resolved["login"]["jail"], (node_set["jail"] for node_set in resolved["workers"]["node_sets"])
    # Beside the jail: the runtime would follow links in it.
    assert list(_mounts(login)) == ["/mnt/jail", "/mnt/submounts/0", "/mnt/submounts/1"]
    assert list(_mounts(cpu)) == ["/mnt/jail", "/mnt/submounts/0", "/mnt/submounts/1", "/mnt/submounts/3", "/dev/shm"]
    assert list(_mounts(big)) == ["/mnt/jail", *(f"/mnt/submounts/{n}" for n in range(4)), "/dev/shm"]
    assert {item["name"]: item["value"] for item in big["env"]} == {
        "CORRAL_JAILS": "/mnt/jail",
        "CORRAL_SUBMOUNTS": "/mnt/submounts/0:/home /mnt/submounts/1:/data:ro /mnt/submounts/2:/scratch /mnt/submounts/3:/fast",
        "CORRAL_SCRATCH": "/mnt/submounts/3",
        "CORRAL_CLOSED": "/dev/mqueue",
    }
    for found in (login, cpu, big):
        assert set(_mounts(found).values()) == {volume["name"] for volume in found["volumes"]}
    sources = {volume["name"]: volume for volume in big["volumes"]}
    assert sources["submount-0"]["persistentVolumeClaim"] == {"claimName": "homes"}
    assert sources["submount-2"]["hostPath"] == {"path": "/mnt/nvme", "type": "Directory"}
    assert sources["submount-3"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "64Mi"}
    assert next(mount for mount in big["mounts"] if mount["mountPath"] == "/mnt/submounts/1")["readOnly"]
    (claim,) = resolved["sub_mount_volumes"]
    assert (claim["storage_class"], claim["size"], claim["access_mode"]) == ("fast", "1Ti", "ReadWriteMany")
    assert sources["submount-1"]["persistentVolumeClaim"] == {"claimName": claim["claim"]}
    # Data: destroy asks for it and keep_data keeps it.
    assert claim["claim"] in {item["metadata"]["name"] for item in resolved["teardown"]["data"]}
    # Homes are made on the volume that users will see.
    users = resolved["jail"]["users"]["volumes"]
    assert _mounts(users) == {"/mnt/jail": "jail", "/mnt/homes": "homes"}
    assert users["env"] == [{"name": "CORRAL_HOMES", "value": "/mnt/homes"}]
    assert {volume["name"]: volume for volume in users["volumes"]}["homes"]["persistentVolumeClaim"] == {"claimName": "homes"}
    assert accounts(resolved)["mountPoints"] == ["/home", "/data", "/scratch", "/fast"]


def test_the_claim_of_a_sub_mount_keeps_its_name_when_others_go() -> None:
    document = good()
    document["spec"]["jail"]["subMounts"] = [{"path": "/a", "memory": "1Mi"}, {"path": "/b", "storageClassName": "fast", "size": "1Gi"}]
    before = model(document)["sub_mount_volumes"]
    del document["spec"]["jail"]["subMounts"][0]
    assert model(document)["sub_mount_volumes"] == before


def test_further_jails() -> None:
    document = good()
    document["spec"]["jails"] = [
        {"name": "old", "volume": {"storageClassName": "fast", "size": "1Gi"}, "populate": {"image": "example/old:1"}}
    ]
    document["spec"]["partitions"][1]["jail"] = "old"
    document["spec"]["jail"]["subMounts"] = [{"path": "/home", "claimName": "homes"}]
    document["spec"]["jail"]["overlay"] = {"size": "1Gi"}
    document["spec"]["jail"]["noJailUsers"] = ["ada"]
    resolved = model(document)
    default, old = resolved["jails"]
    assert default == resolved["jail"]
    assert (old["name"], old["mount_path"], old["populate"]["image"]) == ("old", "/mnt/jails/old", "example/old:1")
    assert len({jail["populate"]["job"] for jail in resolved["jails"]} | {jail["users"]["job"] for jail in resolved["jails"]}) == 4
    assert resolved["config"]["files"]["plugstack.conf"].splitlines()[-1].split()[2:] == [
        "jail=/mnt/jail",
        "jail.old=/mnt/jails/old",
        "partition.big=old",
        "overlay=/var/spool/corral-overlay",
        "no-jail=10001",
    ]
    worker = resolved["workers"]["node_sets"][0]["jail"]
    assert _mounts(worker)["/mnt/jails/old"] == "jail-old"
    assert {"name": "CORRAL_JAILS", "value": "/mnt/jail /mnt/jails/old"} in worker["env"]
    assert "/mnt/jails/old" not in _mounts(resolved["login"]["jail"])
    assert old["claim"] in {item["metadata"]["name"] for item in resolved["teardown"]["data"]}


def test_what_jobs_have_of_their_own_and_what_they_may_not_gain() -> None:
    document = good()
    variable = {"name": "CORRAL_NO_NEW_PRIVILEGES", "value": "true"}
    resolved = model(document)
    assert not {"ipc=", "pid="} & {word[:4] for word in resolved["config"]["files"]["plugstack.conf"].split()}
    assert variable not in resolved["login"]["jail"]["env"] + resolved["workers"]["node_sets"][0]["environment"]
    document["spec"]["slurm"] = {"processTracking": "linuxproc", "isolation": {"ipc": "Node", "pid": "Job"}}
    document["spec"]["security"] = {"noNewPrivileges": True}
    resolved = model(document)
    assert resolved["config"]["files"]["plugstack.conf"].split()[-2:] == ["ipc=node", "pid=job"]
    assert variable in resolved["login"]["jail"]["env"]
    assert all(variable in node_set["environment"] for node_set in resolved["workers"]["node_sets"])


def test_shared_memory_is_half_of_the_memory() -> None:
    document = good()
    document["spec"]["nodeSets"][1]["sharedMemory"] = "100Mi"
    sizes = [
        volume["emptyDir"]["sizeLimit"]
        for node_set in model(document)["workers"]["node_sets"]
        for volume in node_set["jail"]["volumes"]
        if volume["name"] == "shm"
    ]
    assert sizes == ["512Mi", "100Mi"]


def test_workers_are_reached_by_the_names_of_their_slurm_nodes() -> None:
    document = accounts(model(good()))
    assert document["sshConfig"].splitlines()[1:4] == [
        "Host cpu-* big-* !*.*",
        "    HostName demo-%h.demo-worker.ns.svc.cluster.local",
        "    HostKeyAlias demo-worker",
    ]


def test_workers_without_sshd_need_no_host_keys() -> None:
    found = model(edited("spec.workers", {"ssh": "Never"}))
    assert found["workers"]["ssh"] == "Never"
    assert accounts(found)["sshConfig"] == ""
    assert "demo-worker-host-keys" not in [secret["name"] for secret in found["secrets"]]


def own(volume: dict[str, str], *sub_mounts: dict[str, Any]) -> dict[str, Any]:
    document = good()
    document["spec"]["jail"] |= {"shared": False, "volume": volume, "subMounts": list(sub_mounts)}
    return model(document)


def test_a_jail_of_each_pods_own() -> None:
    resolved = own({"size": "50Gi"})
    jail = resolved["jail"]
    # Nothing that is one for all: no claim, no job.
    assert (jail["shared"], jail["claim"], jail["volume"], jail["populate"]["job"], jail["users"]["job"]) == (False, None, None, None, None)
    assert jail["populate"]["limit"] == 50 * 1024
    assert jail["populate"]["requests"]["ephemeral-storage"] == "50Gi"
    worker = resolved["workers"]["node_sets"][0]
    for pod in (worker, resolved["login"]):
        assert pod["jail"]["volumes"][0] == {"name": "jail", "emptyDir": {"sizeLimit": "50Gi"}}
        assert pod["jail"]["mounts"][0] == {"name": "jail", "mountPath": "/mnt/jail", "subPath": "root"}
        assert _mounts(pod["accounts"]) == {"/mnt/jail": "jail"}
        assert pod["accounts"]["env"] == []
    # slurmctld wants the accounts and no more, so there is no root to be entered at root/.
    controller = resolved["controller"]
    assert controller["jail"]["mounts"] == [{"name": "jail", "mountPath": "/mnt/jail", "readOnly": True}]
    assert controller["accounts"]["env"] == [{"name": "CORRAL_ONLY", "value": "accounts"}]
    assert [item["metadata"]["name"] for item in resolved["teardown"]["data"] if item["kind"].startswith("Persistent")] == [
        "demo-controller-state"
    ]


def test_a_volume_goes_only_when_it_is_kept_for_the_clusters_own_claim() -> None:
    teardown = model(edited("spec.jail.volume", {"hostPath": "/srv/jail", "size": "1Gi"}))["teardown"]
    (volume,) = (item for item in teardown["data"] if item["kind"] == "PersistentVolume")
    assert volume["spec"] == {"claimRef": {"namespace": volume["metadata"]["name"].removesuffix("-demo-jail"), "name": "demo-jail"}}


def test_a_claim_for_the_jail_of_each_pod() -> None:
    resolved = own({"size": "50Gi", "storageClassName": "local"})
    (volume, *_others) = resolved["login"]["jail"]["volumes"]
    template = volume["ephemeral"]["volumeClaimTemplate"]
    assert template["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "resources": {"requests": {"storage": "50Gi"}},
    }
    assert "ephemeral-storage" not in resolved["jail"]["populate"]["requests"]


@pytest.mark.parametrize(
    ("mount", "made_by", "env"),
    [
        ({"claimName": "homes"}, "the job", [{"name": "CORRAL_HOMES", "value": "none"}]),
        ({"storageClassName": "a", "size": "1Gi"}, "the job", [{"name": "CORRAL_HOMES", "value": "none"}]),
        ({"claimName": "homes", "readOnly": True}, "nobody", [{"name": "CORRAL_HOMES", "value": "none"}]),
        ({"hostPath": "/srv/homes"}, "each pod", [{"name": "CORRAL_HOMES", "value": "/mnt/homes"}]),
        ({"scratch": "1Gi"}, "each pod", [{"name": "CORRAL_HOMES", "value": "/mnt/homes"}]),
    ],
)
def test_who_makes_the_homes_of_jails_of_each_pods_own(mount: dict[str, Any], made_by: str, env: list[Any]) -> None:
    resolved = own({"size": "1Gi"}, {"path": "/data", "claimName": "data"}, {"path": "/home", **mount})
    accounts = resolved["workers"]["node_sets"][0]["accounts"]
    assert accounts["env"] == env
    assert ("/mnt/homes" in _mounts(accounts)) == (made_by == "each pod")
    users = resolved["jail"]["users"]
    assert (users["job"] is not None) == (made_by == "the job")
    if users["job"]:
        assert {volume["name"]: volume for volume in users["volumes"]["volumes"]}["jail"] == {
            "name": "jail",
            "emptyDir": {"sizeLimit": "256Mi"},
        }


def test_a_shared_jail_has_nothing_of_the_pods_own() -> None:
    resolved = model(good())
    assert {
        resolved["login"]["accounts"],
        resolved["controller"]["accounts"],
        *(one["accounts"] for one in resolved["workers"]["node_sets"]),
    } == {None}
    assert resolved["controller"]["jail"]["mounts"] == [{"name": "jail", "mountPath": "/mnt/jail", "subPath": "root", "readOnly": True}]


def test_without_sssd_nothing_speaks_of_it() -> None:
    assert model(good())["sssd"] is None
    assert "sss" not in json.dumps({key: value for key, value in model(good()).items() if key != "sssd"})


def test_sssd_shows_its_public_sockets_to_every_pod_and_jail() -> None:
    document = edited("spec.sssd", {"image": "example/sssd:1", "configSecret": "ldap", "caConfigMap": "ca"})
    document["spec"]["jail"]["subMounts"] = [{"path": "/home", "claimName": "homes"}]
    resolved = model(document)
    sssd = resolved["sssd"]
    assert (sssd["homes"], sssd["debug_level"], sssd["config_secret"]) == ("/home", 0, "ldap")
    for found in (resolved["login"], resolved["controller"], *resolved["workers"]["node_sets"]):
        mounts = [mount for mount in found["jail"]["mounts"] if mount["name"].startswith("sssd")]
        assert mounts == [
            {"name": "sssd-pipes", "mountPath": "/var/lib/sss/pipes", "readOnly": True},
            {"name": "sssd-cache", "mountPath": "/var/lib/sss/mc", "readOnly": True},
        ]
    for found in (resolved["login"]["jail"], *(node_set["jail"] for node_set in resolved["workers"]["node_sets"])):
        env = {item["name"]: item["value"] for item in found["env"]}
        assert env["CORRAL_SUBMOUNTS"].split() == [
            "/mnt/submounts/0:/home",
            "/var/lib/sss/pipes:/var/lib/sss/pipes:ro",
            "/var/lib/sss/mc:/var/lib/sss/mc:ro",
        ]
    assert accounts(resolved)["mountPoints"] == ["/home", "/var/lib/sss/pipes", "/var/lib/sss/mc"]
    assert "The Secret ldap in namespace ns is yours and stays." in resolved["teardown"]["left_behind"]


def test_what_the_check_of_a_directory_tries_is_in_its_name() -> None:
    def job(**more: Any) -> str:
        name: str = model(edited("spec.sssd", {"image": "example/sssd:1", "configSecret": "ldap", **more}))["sssd"]["check_job"]
        return name

    assert job() == job(homes="/home")
    assert len({job(), job(caConfigMap="ca"), job(configSecret="other"), job(image="example/sssd:2")}) == 4
