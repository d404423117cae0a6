# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs of a node set: the pod's, Slurm's, and that the two agree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve, schema, validate
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist

from .documents import edited, good
from .test_validate import mistakes

GPU = "spec.nodeSets[1].gpu"
TOY = {"vendor": "simulated", "count": 4, "type": "toy"}


def model(document: Any) -> dict[str, Any]:
    return resolve.model(document).to_dict()


def with_gpu(gpu: dict[str, Any], **more: Any) -> dict[str, Any]:
    document = edited(GPU, gpu)
    document["spec"]["nodeSets"][1].update({"replicas": 3, **more})
    return document


def files(document: Any) -> dict[str, str]:
    found: dict[str, str] = model(document)["config"]["files"]
    return found


@pytest.mark.parametrize(
    ("gpu", "resource", "gres", "line"),
    [
        (
            {"vendor": "nvidia", "count": 8, "type": "h100"},
            {"nvidia.com/gpu": "8"},
            "Gres=gpu:h100:8",
            "AutoDetect=off Name=gpu Type=h100 File=/dev/corral-gpu/[0-7] Flags=nvidia_gpu_env",
        ),
        (
            {"vendor": "amd"},
            {"amd.com/gpu": "1"},
            "Gres=gpu:1",
            "AutoDetect=off Name=gpu File=/dev/corral-gpu/0 Flags=amd_gpu_env",
        ),
        (
            {"vendor": "nvidia", "count": 2, "resourceName": "example.com/gpu"},
            {"example.com/gpu": "2"},
            "Gres=gpu:2",
            "AutoDetect=off Name=gpu File=/dev/corral-gpu/[0-1] Flags=nvidia_gpu_env",
        ),
        (
            {"vendor": "nvidia", "resourceName": "nvidia.com/mig-3g.40gb", "type": "h100-3g.40gb"},
            {"nvidia.com/mig-3g.40gb": "1"},
            "Gres=gpu:h100-3g.40gb:1",
            "AutoDetect=off Name=gpu Type=h100-3g.40gb File=/dev/corral-gpu/0 Flags=nvidia_gpu_env",
        ),
        (TOY, {}, "Gres=gpu:toy:4", "AutoDetect=off Name=gpu Type=toy File=/dev/corral-gpu/[0-3] Flags=nvidia_gpu_env"),
    ],
)
def test_the_pod_and_slurm_have_the_same(gpu: dict[str, Any], resource: dict[str, str], gres: str, line: str) -> None:
    found = model(with_gpu(gpu))
    node_set = found["workers"]["node_sets"][1]
    assert node_set["resources"] == {"limits": {"cpu": "4500m", "memory": "2Gi", **resource}}
    slurm = found["config"]["files"]["slurm.conf"].splitlines()
    assert [one for one in slurm if one.startswith("GresTypes")] == ["GresTypes=gpu"]
    assert f" Weight=1 {gres} State=UNKNOWN" in next(one for one in slurm if one.startswith("NodeName=big"))
    assert "Gres" not in next(one for one in slurm if one.startswith("NodeName=cpu"))
    assert found["config"]["files"]["gres.conf"].splitlines()[1:] == [f"NodeName=big-[0-2] {line}"]
    told = {variable["name"]: variable["value"] for variable in node_set["environment"]}
    assert (told["CORRAL_GPU_VENDOR"], told["CORRAL_GPU_COUNT"]) == (gpu["vendor"], str(gpu.get("count", 1)))


@given(
    count=st.integers(1, schema.MAX_GPUS),
    vendor=st.sampled_from(schema.GPU_VENDORS),
    kind=st.none() | st.from_regex("[a-z][a-z0-9_.-]{0,20}", fullmatch=True),
)
def test_every_count_is_the_same_in_all_places(count: int, vendor: str, kind: str | None) -> None:
    gpu = {"vendor": vendor, "count": count, **({"type": kind} if kind else {})}
    found = model(with_gpu(gpu))
    node_set = found["workers"]["node_sets"][1]
    pairs = dict(word.split("=", 1) for word in found["config"]["files"]["gres.conf"].splitlines()[1].split())
    assert hostlist.count(pairs["File"]) == count
    assert hostlist.expand(pairs["File"])[-1] == f"/dev/corral-gpu/{count - 1}"
    words = node_set["gpus"]["gres"].split(":")
    assert words == ["gpu", *([kind] if kind else []), str(count)]
    assert pairs.get("Type") == kind
    extended = {name: amount for name, amount in node_set["resources"]["limits"].items() if "/" in name}
    assert list(extended.values()) == ([] if vendor == "simulated" else [str(count)])
    assert {"name": "CORRAL_GPU_COUNT", "value": str(count)} in node_set["environment"]


def test_gpus_that_are_near_some_cores_have_a_line_for_each_share() -> None:
    found = files(with_gpu({**TOY, "cores": ["0-1", "2,3"]}))
    assert found["gres.conf"].splitlines()[1:] == [
        "NodeName=big-[0-2] AutoDetect=off Name=gpu Type=toy File=/dev/corral-gpu/[0-1] Cores=0-1 Flags=nvidia_gpu_env",
        "NodeName=big-[0-2] AutoDetect=off Name=gpu Type=toy File=/dev/corral-gpu/[2-3] Cores=2,3 Flags=nvidia_gpu_env",
    ]
    assert "Gres=gpu:toy:4" in found["slurm.conf"]
    threads = with_gpu({**TOY, "cores": ["0", "1-2"]}, extraNodeParameters={"ThreadsPerCore": "2"})
    assert mistakes(threads) == [
        "spec.nodeSets[1].gpu.cores[1] names core 2, but the node has 2, from 0 to 1; correct it, or raise resources.",
    ]


def test_gpus_that_are_near_one_another_have_a_line_each() -> None:
    links = ["-1,4,0,0", "4,-1,0,0", "0,0,-1,4", "0,0,4,-1"]
    line = "NodeName=big-[0-2] AutoDetect=off Name=gpu Type=toy File=/dev/corral-gpu/{} {}Links={} Flags=nvidia_gpu_env"
    found = files(with_gpu({**TOY, "links": links}))
    assert found["gres.conf"].splitlines()[1:] == [line.format(index, "", row) for index, row in enumerate(links)]
    found = files(with_gpu({**TOY, "links": links, "cores": ["0-1", "2,3"]}))
    near = ["Cores=0-1 ", "Cores=0-1 ", "Cores=2,3 ", "Cores=2,3 "]
    assert found["gres.conf"].splitlines()[1:] == [line.format(index, near[index], row) for index, row in enumerate(links)]


@pytest.mark.parametrize(
    ("links", "words"),
    [
        (["-1,1", "1,-1"], "links has 2 entries, but there are 4 GPUs"),
        (["-1,1,1,1", "1,-1,1", "1,1,-1,1", "1,1,1,-1"], "links[1] has 3 numbers, but there are 4 GPUs"),
        (["-1,1,1,1", "1,1,-1,1", "1,1,-1,1", "1,1,1,-1"], "links[1] has -1 elsewhere than for GPU 1 itself"),
        (["-1,1,1,1", "1,2,1,1", "1,1,-1,1", "1,1,1,-1"], "links[1] has -1 elsewhere than for GPU 1 itself"),
        (["-1,1,1,1", "1,-1,1,1", "1,7,-1,1", "1,1,1,-1"], "links[2] has 7 links to GPU 1, which has 1 to GPU 2"),
        (["-1,1,1,1", "1,-1,1,1", "1,1,-1,x", "1,1,1,-1"], "links[2]"),
    ],
)
def test_links_that_are_no_square_of_numbers(links: list[str], words: str) -> None:
    found = mistakes(with_gpu({**TOY, "links": links}))
    assert len(found) == 1 and words in found[0], found


def test_without_gpus_nothing_speaks_of_them() -> None:
    found = model(good())
    assert "gres.conf" not in found["config"]["files"]
    assert not any("GresTypes" in text or "corral-gpu" in text for text in found["config"]["files"].values())
    assert "ConstrainDevices=YES" in found["config"]["files"]["cgroup.conf"]
    for node_set in found["workers"]["node_sets"]:
        assert (node_set["gpus"], node_set["runtime_class"], node_set["environment"]) == (None, None, [])


def test_a_set_without_replicas_has_no_line() -> None:
    found = files(with_gpu(TOY, replicas=0))
    assert "gres.conf" not in found and "GresTypes=gpu" in found["slurm.conf"]


def test_the_jail_shows_their_folder_and_jobs_are_kept_from_those_of_others() -> None:
    real = files(with_gpu({"vendor": "nvidia", "count": 2}))
    assert real["plugstack.conf"].splitlines()[-1].endswith(" dev=corral-gpu")
    assert "ConstrainDevices=YES" in real["cgroup.conf"]
    # All of the simulated ones are /dev/null, which every job needs.
    assert "ConstrainDevices=NO" in files(with_gpu(TOY))["cgroup.conf"]


def test_the_runtime_brings_what_programs_need_unless_the_document_says_otherwise() -> None:
    name = "NVIDIA_DRIVER_CAPABILITIES"
    gpu = {"vendor": "nvidia", "runtimeClassName": "nvidia"}
    node_set = model(with_gpu(gpu))["workers"]["node_sets"][1]
    assert node_set["runtime_class"] == "nvidia"
    assert {"name": name, "value": "compute,utility"} in node_set["environment"]
    own = {"name": name, "value": "all"}
    environment = model(with_gpu(gpu, environment=[own]))["workers"]["node_sets"][1]["environment"]
    assert [variable for variable in environment if variable["name"] == name] == [own]


def test_lines_of_the_document_stand_behind_the_own_ones() -> None:
    document = with_gpu(TOY)
    document["spec"]["slurm"] = {"extraConfig": ["GresTypes=tape,gpu"], "extraGresConfig": ["NodeName=cpu-0 Name=tape Count=2"]}
    document["spec"]["nodeSets"][0]["extraNodeParameters"] = {"Gres": "tape:2"}
    found = files(document)
    assert [line.split()[0] for line in found["gres.conf"].splitlines()[1:]] == ["NodeName=big-[0-2]", "NodeName=cpu-0"]
    assert "GresTypes=tape,gpu" in found["slurm.conf"] and "GresTypes=gpu\n" not in found["slurm.conf"]


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        ({}, "spec.nodeSets[1].gpu.vendor is missing"),
        ({"vendor": "intel"}, "spec.nodeSets[1].gpu.vendor is 'intel'; it must be one of nvidia, amd, simulated."),
        ({"vendor": "nvidia", "count": 0}, "spec.nodeSets[1].gpu.count is 0; it must be between 1 and 64."),
        ({"vendor": "nvidia", "type": "H100:80"}, "spec.nodeSets[1].gpu.type is 'H100:80'; it must be lower-case letters"),
        ({"vendor": "nvidia", "resourceName": "gpu"}, "it must be the name of an extended resource such as nvidia.com/gpu."),
        (
            {"vendor": "nvidia", "count": 2, "resourceName": "nvidia.com/mig-1g.10gb"},
            "spec.nodeSets[1].gpu.count is 2 of nvidia.com/mig-1g.10gb, parts of GPUs",
        ),
        (
            {"vendor": "nvidia", "count": 3, "cores": ["0", "1"]},
            "spec.nodeSets[1].gpu.cores has 2 entries, of which 3 GPUs are no multiple",
        ),
        ({"vendor": "nvidia", "count": 2, "cores": ["0-1", "2-4"]}, "spec.nodeSets[1].gpu.cores[1] names core 4, but the node has 4"),
        ({"vendor": "nvidia", "cores": ["0,3-2"]}, "spec.nodeSets[1].gpu.cores[0] goes from 3 to 2"),
        ({"vendor": "nvidia", "cores": ["a"]}, "it must be numbers of cores such as 0-47 or 0-23,48-71."),
        (
            {"vendor": "simulated", "resourceName": "a.b/c"},
            "spec.nodeSets[1].gpu.resourceName goes with vendor: nvidia or amd, but it is simulated",
        ),
        (
            {"vendor": "simulated", "runtimeClassName": "nvidia"},
            "spec.nodeSets[1].gpu.runtimeClassName goes with vendor: nvidia or amd, but it is simulated",
        ),
    ],
)
def test_gpus_that_can_not_be(gpu: dict[str, Any], words: str) -> None:
    found = mistakes(edited(GPU, gpu))
    assert len(found) == 1 and words in found[0], found


def test_a_gres_of_the_users_own_beside_them() -> None:
    document = with_gpu(TOY, extraNodeParameters={"gres": "gpu:8"})
    assert "spec.nodeSets[1].extraNodeParameters sets Gres, which spec.nodeSets[1].gpu sets too; remove one of them." in mistakes(document)


@pytest.mark.parametrize(
    ("slurm", "words"),
    [
        ({"extraConfig": ["GresTypes=tape"]}, "replaces GresTypes but leaves out gpu, which spec.nodeSets[1].gpu needs"),
        (
            {"extraGresConfig": ["AutoDetect=nvidia"]},
            "spec.slurm.extraGresConfig[0] describes GPUs of nodes whose GPUs spec.nodeSets[1].gpu describes",
        ),
        ({"extraGresConfig": ["Name=tape Count=1", "Name=gpu Count=1"]}, "spec.slurm.extraGresConfig[1] describes GPUs of nodes"),
        (
            {"extraGresConfig": ["NodeName=cpu-0,big-[1-2] Name=gpu File=/dev/nvidia0"]},
            "spec.slurm.extraGresConfig[0] describes GPUs of nodes",
        ),
        ({"extraGresConfig": ["NodeName=big-[ Name=gpu"]}, "spec.slurm.extraGresConfig[0]: The hostlist"),
        (
            {"extraCgroupConfig": ["constrainDevices=yes"]},
            "spec.slurm.extraCgroupConfig sets ConstrainDevices, but spec.nodeSets[1].gpu is simulated",
        ),
    ],
)
def test_lines_that_contradict_them(slurm: dict[str, Any], words: str) -> None:
    document = with_gpu(TOY)
    document["spec"]["slurm"] = slurm
    found = mistakes(document)
    assert len(found) == 1 and words in found[0], found


def test_lines_about_other_nodes_do_not() -> None:
    document = with_gpu(TOY)
    document["spec"]["slurm"] = {
        "extraGresConfig": ["NodeName=cpu-[0-1] Name=gpu File=/dev/nvidia0"],
        "extraCgroupConfig": ["ConstrainDevices=no"],
    }
    validate.check(document)
    del document["spec"]["nodeSets"][1]["gpu"]
    document["spec"]["slurm"] = {"extraConfig": ["GresTypes=tape"], "extraGresConfig": ["AutoDetect=nvidia"]}
    validate.check(document)


def test_lines_of_gres_name_so_many_nodes_at_most() -> None:
    document = good()
    document["spec"]["slurm"] = {"extraGresConfig": ["NodeName=x0[0-49999] Name=tape Count=1"] * 20}
    validate.check(document)
    document["spec"]["slurm"]["extraGresConfig"].append("NodeName=y Name=tape Count=1")
    assert mistakes(document) == [
        "spec.slurm.extraGresConfig names 1000001 nodes in all its lines together; 1000000 are the most, so write fewer lines."
    ]


def test_simulated_ones_beside_real_ones() -> None:
    document = with_gpu(TOY)
    document["spec"]["nodeSets"][0]["gpu"] = {"vendor": "amd"}
    assert "spec.nodeSets[1].gpu is simulated and spec.nodeSets[0].gpu is not" in mistakes(document)[0]
    document["spec"]["slurm"] = {"processTracking": "linuxproc"}
    validate.check(document)
