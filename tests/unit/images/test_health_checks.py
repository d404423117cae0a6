# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Each row of the health checks' catalogue, on what trips it and on what does not; and tools that print nonsense."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from corral_health import gpus, kernel, system
from corral_health.catalogue import CHECKS
from corral_health.checks import FAILED, OK, SKIPPED, Broken, Facts, Output, Result
from corral_health.scheduler import Node
from corral_health.settings import DEFAULTS, Settings

RECORDED = pathlib.Path(__file__).parent / "recorded_health"
XML = (RECORDED / "nvidia-smi.xml").read_text()
NVLINK = (RECORDED / "nvlink.txt").read_text()
AMD = (RECORDED / "amd-smi.json").read_text()
BY_NAME = {check.name: check for check in CHECKS}
KMSG = "6,1,10,-;booted\n"
IDLE = Node("n1", "IDLE", memory=1000)
MOUNTS = "30 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n31 30 0:30 / /mnt/jail rw,relatime - nfs4 server:/jail rw\n"
STAT = "State:\tS (sleeping)\n"


@dataclass(frozen=True)
class Case:
    """What a check is given: texts of commands or of files, and edits of them."""

    outputs: Mapping[str, Output] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    vendor: str = "nvidia"
    node: Node = IDLE


def smi(*edits: tuple[str, str], **more: Any) -> Case:
    text = XML
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    return Case({"nvidia-smi": Output(0, text)}, **more)


def amd(*edits: tuple[str, str], **more: Any) -> Case:
    text = AMD
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    return Case({"amd-smi": Output(0, text)}, vendor="amd", **more)


def prints(name: str, status: int = 0, stdout: str = "", stderr: str = "") -> Case:
    return Case({name: Output(status, stdout, stderr)})


def files(**texts: str) -> Case:
    return Case(files={name.replace("__", "/"): text for name, text in texts.items()})


def port(state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)", errors: str = "0") -> dict[str, str]:
    folder = "sys/class/infiniband/mlx5_0/ports/1"
    return {
        f"{folder}/state": state,
        f"{folder}/rate": rate,
        f"{folder}/link_layer": "InfiniBand",
        f"{folder}/counters/symbol_error": errors,
    }


def nic(state: str = "up", speed: str = "100000") -> dict[str, str]:
    return {"sys/class/net/eth0/device/vendor": "", "sys/class/net/eth0/operstate": state, "sys/class/net/eth0/speed": speed}


def process(uid: int, parent: int, name: str) -> str:
    return f"Name:\t{name}\n{STAT}PPid:\t{parent}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"


STEP = {"proc/10/status": process(0, 1, "slurmstepd"), "proc/11/status": process(1000, 10, "python")}
NOT_ALL = Output(15, "Unable to determine the device handle for GPU0000:19:00.0: Unknown Error\n")
MISMATCH = Output(18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.90\n")
BUSY = ("<processes>\n", "<processes>\n<process_info><pid>4711</pid><type>C</type></process_info>\n")

# (check, what it is given, words of what it finds). The first list trips, the second is well.
TRIPS: list[tuple[str, Case, str]] = [
    ("jail", prints("jail-exec", 125, stderr="jail-exec: /mnt/jail has no marker file"), "/mnt/jail has no marker file"),
    (
        "mounts",
        Case(files={"proc/self/mountinfo": MOUNTS}, counters={"mounts": ["/mnt/jail", "/mnt/jails/a"]}),
        "no longer mounted: /mnt/jails/a",
    ),
    ("read-only", files(proc__self__mountinfo=MOUNTS.replace("/jail rw\n", "/jail ro\n")), "read-only by an error: /mnt/jail"),
    ("disk-full", Case(thresholds={"diskPercent": 0}), "% full"),
    ("memory-size", files(proc__meminfo="MemTotal:       512000 kB\n"), "500 MiB of memory, and slurm.conf promises 1000"),
    ("memory-errors", files(sys__devices__system__edac__mc__mc0__ue_count="2\n"), "2 uncorrectable errors of memory controller mc0"),
    ("raid", files(proc__mdstat="md0 : active raid1 sdb1[1]\n      976 blocks super 1.2 [2/1] [_U]\n"), "md0 has 1 of 2 disks"),
    ("raid", files(proc__mdstat="md1 : inactive sdb1[1](S)\n      976 blocks\n"), "md1 is inactive"),
    ("gpu-driver", Case({"nvidia-smi": MISMATCH}), "different versions"),
    ("gpu-count", Case({"nvidia-smi": NOT_ALL}), "Unable to determine the device handle"),
    ("gpu-count", Case({"nvidia-smi": Output(6, "No devices were found\n")}), "No devices were found"),
    (
        "gpu-count",
        smi(("<attached_gpus>2", "<attached_gpus>1"), (XML[XML.rindex("\t<gpu id") : XML.rindex("</nvidia_smi_log>")], "")),
        "1 of 2 GPUs",
    ),
    ("gpu-count", amd((AMD, "[]")), "0 of 2 GPUs"),
    (
        "gpu-xid",
        Case(
            files={"dev/kmsg": KMSG + "3,2,11,-;NVRM: Xid (PCI:0000:19:00): 79, pid=1, GPU has fallen off the bus.\n"}, counters={"kmsg": 1}
        ),
        "Xid 79 of 0000:19:00 (reboot the Kubernetes node",
    ),
    (
        "gpu-xid",
        Case(
            files={"dev/kmsg": KMSG + "3,2,11,-;nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"},
            counters={"kmsg": 1},
        ),
        "SXid 20034 of 0000:05:00.0",
    ),
    ("gpu-recovery", smi(("<gpu_recovery_action>None", "<gpu_recovery_action>Reboot")), "GPU 0 needs: Reboot"),
    (
        "gpu-recovery",
        smi(("\t\t<gpu_recovery_action>None</gpu_recovery_action>\n", ""), ("<reset_required>No", "<reset_required>Yes")),
        "GPU 0 needs: GPU Reset",
    ),
    ("gpu-ecc", smi(("<dram_uncorrectable>0", "<dram_uncorrectable>3")), "GPU 0 has uncorrectable memory errors: 3 of DRAM"),
    ("gpu-ecc", smi(("<sram_uncorrectable_secded>0", "<sram_uncorrectable_secded>1")), "1 of SRAM"),
    ("gpu-ecc", amd(('"total_uncorrectable_count": 0', '"total_uncorrectable_count": 2')), "2 of DRAM"),
    ("gpu-remap", smi(("<remapped_row_pending>No", "<remapped_row_pending>Yes")), "to be remapped by a reset"),
    ("gpu-remap", smi(("<remapped_row_failure>No", "<remapped_row_failure>Yes")), "has to be replaced"),
    ("gpu-retired-pages", smi(("<pending_retirement>N/A", "<pending_retirement>Yes")), "to be retired"),
    ("gpu-fabric", smi(("<state>Completed", "<state>In Progress")), "has not joined the NVLink fabric: In Progress"),
    ("gpu-nvlink", prints("nvidia-smi-nvlink", stdout=NVLINK.replace("Link 3: 26.562 GB/s", "Link 3: <inactive>", 1)), "GPU 0 has 1 of 18"),
    (
        "gpu-nvlink",
        replace(prints("nvidia-smi-nvlink", stdout=NVLINK[: NVLINK.index("\t Link 17")]), thresholds={"gpuNvlinks": 18}),
        "GPU 0 has 17 of 18 NVLinks; GPU 1 has 0 of 18",
    ),
    ("gpu-pcie", smi(("<current_link_width>16x", "<current_link_width>8x")), "8 PCIe lanes, not 16"),
    ("gpu-pcie", amd(('"width": 16', '"width": 4'), thresholds={"gpuPcieWidth": 16}), "4 PCIe lanes, not 16"),
    (
        "gpu-pcie",
        smi(("<current_link_gen>5", "<current_link_gen>1"), ("<gpu_util>0", "<gpu_util>99"), thresholds={"gpuPcieGeneration": 5}),
        "generation 1 while it is busy",
    ),
    ("gpu-throttle", smi(("hw_thermal_slowdown>Not Active", "hw_thermal_slowdown>Active")), "hw thermal slowdown"),
    ("gpu-busy", smi(BUSY), "process 4711"),
    ("gpu-memory", smi(("<used>1 MiB", "<used>30000 MiB")), "30000 MiB of memory in use"),
    ("gpu-memory", amd(('"value": 283', '"value": 9000')), "9000 MiB"),
    ("gpu-ecc-corrected", smi(("<dram_correctable>0", "<dram_correctable>30000000")), "30000000 corrected memory errors"),
    ("gpu-temperature", smi(("<gpu_temp>32 C", "<gpu_temp>90 C")), "has 90 °C, the limit is 89"),
    ("gpu-temperature", amd(('"value": 41', '"value": 105'), thresholds={"gpuTemperatureCelsius": 100}), "has 105 °C"),
    (
        "infiniband",
        Case(files=port(state="1: DOWN", rate="10 Gb/sec"), counters={"best": {"mlx5_0/1": 400}}),
        "InfiniBand port mlx5_0/1 is down",
    ),
    ("infiniband", Case(files=port(rate="200 Gb/sec (2X NDR)"), counters={"best": {"mlx5_0/1": 400}}), "has 200 Gb/s, not 400"),
    ("infiniband", Case(files=port(rate="200 Gb/sec"), thresholds={"infinibandGbps": 400}), "has 200 Gb/s, not 400"),
    ("infiniband", Case(counters={"best": {"mlx5_0/1": 400}}), "mlx5_0/1 is gone"),
    ("infiniband", Case(files=port(), thresholds={"infinibandPorts": 8}), "1 of 8 InfiniBand ports are up"),
    (
        "infiniband-errors",
        Case(files=port(errors="7"), counters={"errors": {"mlx5_0/1 symbol_error": 2}}),
        "5 new errors of mlx5_0/1 symbol_error",
    ),
    ("ethernet", Case(files=nic(state="down", speed="-1"), counters={"best": {"eth0": 100000}}), "network interface eth0 is down"),
    ("ethernet", Case(files=nic(speed="10000"), counters={"best": {"eth0": 100000}}), "has 10000 Mb/s, not 100000"),
    ("munge", prints("munge", 1, stderr='munge: Error: Failed to access "/run/munge/munge.socket.2"'), "Failed to access"),
    ("munge", Case({"munge": Output(problem="it took longer than 5 s")}), "longer than 5 s"),
    ("clocksource", files(sys__devices__system__clocksource__clocksource0__current_clocksource="hpet\n"), "hpet"),
    ("leftovers", Case(files={**STEP, "proc/12/status": process(1001, 1, "miner")}), "1 process of user 1001"),
    ("leftovers", Case(files={"proc/10/status": process(1000, 1, "slurmstepd")}), "1 process of user 1000"),
]
WELL: list[tuple[str, Case, str]] = [
    ("jail", prints("jail-exec"), OK),
    ("mounts", Case(files={"proc/self/mountinfo": MOUNTS}, counters={"mounts": ["/mnt/jail"]}), OK),
    ("read-only", files(proc__self__mountinfo=MOUNTS.replace("/jail rw,", "/jail ro,").replace("/jail rw\n", "/jail ro\n")), OK),
    ("disk-full", Case(thresholds={"diskPercent": 101, "inodePercent": 101}), OK),
    ("memory-size", files(proc__meminfo="MemTotal:       1024000 kB\n"), OK),
    ("memory-errors", files(sys__devices__system__edac__mc__mc0__ue_count="0\n"), OK),
    ("memory-errors", Case(), SKIPPED),
    ("raid", files(proc__mdstat="md0 : active raid1 sda1[0] sdb1[1]\n      976 blocks super 1.2 [2/2] [UU]\n"), OK),
    ("raid", files(proc__mdstat="Personalities :\nunused devices: <none>\n"), SKIPPED),
    ("gpu-xid", Case(files={"dev/kmsg": KMSG + "3,2,11,-;NVRM: Xid (PCI:0000:19:00): 79, lost\n"}), OK),
    (
        "gpu-xid",
        Case(files={"dev/kmsg": KMSG + "3,2,11,-;NVRM: Xid (PCI:0000:19:00): 13, pid=1, Graphics Exception\n"}, counters={"kmsg": 1}),
        OK,
    ),
    ("gpu-xid", Case(), SKIPPED),
    ("gpu-count", Case({"nvidia-smi": Output(14, XML, "WARNING: infoROM is corrupted at gpu 0000:19:00.0")}), OK),
    ("gpu-nvlink", prints("nvidia-smi-nvlink", stdout=NVLINK), OK),
    ("gpu-nvlink", prints("nvidia-smi-nvlink"), SKIPPED),
    ("gpu-pcie", smi(("<current_link_gen>5", "<current_link_gen>1"), thresholds={"gpuPcieGeneration": 5}), OK),
    ("infiniband", Case(files=port(), counters={"best": {"mlx5_0/1": 400}}), OK),
    ("infiniband", Case(files=port(state="1: DOWN")), OK),
    ("infiniband", Case(), SKIPPED),
    ("infiniband-errors", Case(files=port(errors="7"), counters={"errors": {"mlx5_0/1 symbol_error": 7}}), OK),
    ("infiniband-errors", Case(files=port(errors="0"), counters={"errors": {"mlx5_0/1 symbol_error": 7}}), OK),
    ("ethernet", Case(files=nic(), counters={"best": {"eth0": 100000}}), OK),
    ("ethernet", Case(files=nic(state="down", speed="-1")), OK),
    ("munge", prints("munge", stdout="MUNGE:abc:"), OK),
    ("munge", Case({"munge": Output(problem="munge is not there")}), SKIPPED),
    ("clocksource", files(sys__devices__system__clocksource__clocksource0__current_clocksource="tsc\n"), OK),
    ("leftovers", Case(files={**STEP, "proc/12/status": process(64031, 1, "munged"), "proc/13/status": process(1000, 1, "tmux")}), OK),
    *((name, smi(), OK) for name, check in BY_NAME.items() if "gpus" in check.needs),
    *((name, amd(), OK) for name, check in BY_NAME.items() if "gpus" in check.needs and "amd" in check.platforms),
]


def look(name: str, case: Case, root: pathlib.Path) -> Result:
    for path, text in case.files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    settings = Settings(vendor=case.vendor, gpus=2, thresholds={**DEFAULTS, **case.thresholds})
    return BY_NAME[name].function(Facts(settings, root, case.outputs, case.node, case.counters))


@pytest.mark.parametrize(("name", "case", "words"), TRIPS, ids=[f"{name}-{index}" for index, (name, _case, _words) in enumerate(TRIPS)])
def test_what_trips_a_check(name: str, case: Case, words: str, tmp_path: pathlib.Path) -> None:
    found = look(name, case, tmp_path)
    assert found.status == FAILED and words in found.detail and not found.warning


@pytest.mark.parametrize(("name", "case", "status"), WELL, ids=[f"{name}-{index}" for index, (name, _case, _status) in enumerate(WELL)])
def test_what_does_not(name: str, case: Case, status: str, tmp_path: pathlib.Path) -> None:
    assert look(name, case, tmp_path).status == status


def test_every_row_is_tried_both_ways() -> None:
    # The kernel's own state of the clock is judged below.
    assert {name for name, _case, _words in TRIPS} == {name for name, _case, _status in WELL} == set(BY_NAME) - {"clock"}


@pytest.mark.parametrize(
    ("synchronised", "offset", "before", "status", "words"),
    [
        (True, 5, False, OK, ""),
        (True, -250, False, FAILED, "-250 ms off"),
        (False, 0, True, FAILED, "nothing sets the clock any more"),
        (False, 0, False, SKIPPED, "nothing sets"),
    ],
)
def test_the_clock(synchronised: bool, offset: float, before: bool, status: str, words: str) -> None:
    found = system.judge_clock(synchronised, offset, 100, {"synchronised": before})
    assert found.status == status and words in found.detail


def test_the_kernel_tells_its_clock() -> None:
    assert system.clock(Facts(Settings())).status in (OK, FAILED, SKIPPED)


NONSENSE: list[tuple[str, Output]] = [
    ("empty", Output(0, "")),
    ("truncated", Output(0, XML[:4000])),
    ("no gpu", Output(0, XML.replace("<attached_gpus>2", "<attached_gpus>8"))),
    ("another kind", Output(0, "<html><body/></html>")),
    ("text", Output(0, "Mon Nov 23 10:00:00 2026\n+-----+\n")),
    ("localised", Output(9, "", "nvidia-smi: Die Datei wurde nicht gefunden\n")),
    ("no driver", Output(9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n")),
    ("status", Output(255, XML)),
    ("late", Output(problem="it took longer than 20 s")),
    ("missing", Output(problem="nvidia-smi is not there")),
]


@pytest.mark.parametrize("output", [one for _name, one in NONSENSE], ids=[name for name, _one in NONSENSE])
@pytest.mark.parametrize("name", [name for name, check in BY_NAME.items() if check.needs[:1] == ("gpus",)])
def test_nonsense_of_nvidia_smi_is_a_broken_check(name: str, output: Output, tmp_path: pathlib.Path) -> None:
    with pytest.raises(Broken, match=r"\S"):
        look(name, Case({"nvidia-smi": output}), tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '"gpu"', "null"])
def test_nonsense_of_amd_smi(text: str) -> None:
    with pytest.raises(gpus.Unreadable):
        gpus.amd(text)


def test_other_versions_of_the_tools() -> None:
    old = XML.replace("clocks_event_reason", "clocks_throttle_reason").replace("hw_slowdown>Not Active", "hw_slowdown>Active", 1)
    assert gpus.nvidia(old)[0].throttled == ("hw slowdown",)
    bare = "<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id='1'><product_name>T4</product_name></gpu></nvidia_smi_log>"
    (one,) = gpus.nvidia(bare)
    assert (one.name, one.temperature, one.fabric, one.remap_pending) == ("T4", None, None, None)
    settings = Settings(vendor="nvidia", gpus=1)
    facts = Facts(settings, outputs={"nvidia-smi": Output(0, bare)}, node=IDLE)
    judged: list[Callable[[Facts], Result]] = [check.function for check in CHECKS if check.needs[:1] == ("gpus",)]
    assert {function(facts).status for function in judged} == {OK}
    assert len(gpus.amd('{"gpu_data": [{"gpu": 0}]}')) == 1


def test_a_gpu_that_is_lost_is_told_once() -> None:
    facts = Facts(Settings(vendor="nvidia", gpus=2), outputs={"nvidia-smi": NOT_ALL}, node=IDLE)
    found = {check.name: check.function(facts).status for check in CHECKS if check.needs[:1] == ("gpus",)}
    assert [name for name, status in found.items() if status == FAILED] == ["gpu-count"]


@pytest.mark.parametrize(
    ("code", "weight"),
    [(13, 0), (31, 0), (43, 0), (45, 1), (48, 2), (63, 1), (74, 1), (79, 2), (94, 1), (95, 2), (119, 2), (145, 1), (999, 0)],
)
def test_classes_of_xids(code: int, weight: int) -> None:
    (event,) = kernel.events([f"NVRM: Xid (PCI:0000:19:00): {code}, pid='<unknown>', name=<unknown>, text"])
    assert event.weight == weight


def test_a_kernel_log_is_read_from_where_the_last_run_stopped(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("6,1,10,-;one\n SUBSYSTEM=pci\n6,2,11,-;two\n")
    assert kernel.since(path, None) == ([], 2)
    assert kernel.since(path, 1) == (["two"], 2)
    # A pod that starts on a Kubernetes node with an empty log.
    path.write_text("")
    assert kernel.since(path, None) == ([], -1)
