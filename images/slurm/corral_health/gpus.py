# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Reads what nvidia-smi and amd-smi print about a node's GPUs. Pure. A value that a tool does not report is None, and then not checked."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# By which nvidia-smi (driver 450 to 580) says that it has lost a GPU; it prints no XML then, or one with GPUs missing.
_LOST = re.compile(
    r"Unable to determine the device handle for (?:gpu|GPU)\w* ?(\S+?):? .*|.*GPU is lost.*|.*has fallen off the bus.*|No devices were found.*"
)
_MISMATCH = re.compile(r"Driver/library version mismatch")


class Unreadable(Exception):
    """The output cannot be understood; the text is one sentence."""


class Lost(Exception):
    """The tool says that a GPU is lost; the text is its own line."""


class Mismatch(Exception):
    """The driver in the kernel and the libraries of the pod are of different versions."""


@dataclass(frozen=True)
class Gpu:
    """One GPU, whoever made it."""

    name: str
    address: str = ""
    recovery: str | None = None
    uncorrected_sram: int | None = None
    uncorrected_dram: int | None = None
    corrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    retire_pending: bool | None = None
    fabric: str | None = None
    throttled: tuple[str, ...] = ()
    temperature: int | None = None
    slowdown_temperature: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_generation: int | None = None
    utilisation: int | None = None
    memory_used: int | None = None
    processes: tuple[int, ...] = ()


def nvidia(text: str, errors: str = "") -> tuple[Gpu, ...]:
    """Return the GPUs of ``nvidia-smi -q -x``. Raises Unreadable, Lost, Mismatch."""
    said = f"{errors}\n{text if not text.lstrip().startswith('<') else ''}"
    if _MISMATCH.search(said):
        raise Mismatch("the driver in the kernel and the driver's libraries in the pod have different versions")
    lost = _LOST.search(said)
    if lost:
        raise Lost(lost[0].strip())
    if not text.strip():
        raise Unreadable(_short("nvidia-smi printed nothing", errors))
    try:
        root = ElementTree.fromstring(text[text.index("<") :] if "<" in text else text)
    except ElementTree.ParseError as error:
        raise Unreadable(f"nvidia-smi printed no complete XML ({error})") from None
    if root.tag != "nvidia_smi_log":
        raise Unreadable(f"nvidia-smi printed XML of another kind, <{root.tag}>")
    found = tuple(_nvidia(gpu) for gpu in root.iter("gpu"))
    attached = _number(root.findtext("attached_gpus"))
    if attached is not None and attached > len(found):
        raise Unreadable(f"nvidia-smi says that {attached} GPUs are attached and shows {len(found)}")
    return found


def _nvidia(gpu: ElementTree.Element) -> Gpu:
    volatile = gpu.find("ecc_errors/volatile")
    sram = _sum(volatile, "sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")
    dram = _sum(volatile, "dram_uncorrectable")
    if sram is None and dram is None:
        # Before the Ampere generation: bits, not memories.
        dram = _number(gpu.findtext("ecc_errors/volatile/double_bit/total"))
    reasons = gpu.find("clocks_event_reasons")
    if reasons is None:
        reasons = gpu.find("clocks_throttle_reasons")
    return Gpu(
        name=gpu.findtext("product_name") or "GPU",
        address=gpu.get("id", ""),
        recovery=_word(gpu.findtext("gpu_recovery_action")) or _reset(gpu),
        uncorrected_sram=sram,
        uncorrected_dram=dram,
        corrected=_sum(volatile, "sram_correctable", "dram_correctable"),
        remap_pending=_yes(gpu.findtext("remapped_rows/remapped_row_pending")),
        remap_failed=_yes(gpu.findtext("remapped_rows/remapped_row_failure")),
        retire_pending=_yes(gpu.findtext("retired_pages/pending_retirement") or gpu.findtext("retired_pages/pending_blacklist")),
        fabric=_fabric(gpu),
        throttled=_active(reasons),
        temperature=_number(gpu.findtext("temperature/gpu_temp")),
        slowdown_temperature=_number(gpu.findtext("temperature/gpu_temp_slow_threshold")),
        pcie_width=_number(gpu.findtext("pci/pci_gpu_link_info/link_widths/current_link_width")),
        pcie_width_max=_number(gpu.findtext("pci/pci_gpu_link_info/link_widths/max_link_width")),
        pcie_generation=_number(gpu.findtext("pci/pci_gpu_link_info/pcie_gen/current_link_gen")),
        utilisation=_number(gpu.findtext("utilization/gpu_util")),
        memory_used=_number(gpu.findtext("fb_memory_usage/used")),
        processes=tuple(
            pid
            for process in gpu.findall("processes/process_info")
            if "C" in (process.findtext("type") or "") and (pid := _number(process.findtext("pid"))) is not None
        ),
    )


def _reset(gpu: ElementTree.Element) -> str | None:
    """What drivers before 560 report instead of a recovery action."""
    if _yes(gpu.findtext("gpu_reset_status/reset_required")):
        return "GPU Reset"
    return "Drain and Reset" if _yes(gpu.findtext("gpu_reset_status/drain_and_reset_recommended")) else None


def _fabric(gpu: ElementTree.Element) -> str | None:
    state, status = _word(gpu.findtext("fabric/state")), _word(gpu.findtext("fabric/status"))
    if state is None:
        return None
    return state if status in (None, "Success") else f"{state}, {status}"


# The hardware's own slowdowns. Those of software (power cap, application clocks) are how a busy GPU works.
_SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")


def _active(reasons: ElementTree.Element | None) -> tuple[str, ...]:
    if reasons is None:
        return ()
    return tuple(
        name.replace("_", " ")
        for name in _SLOWDOWNS
        if "Active" in (reasons.findtext(f"clocks_event_reason_{name}"), reasons.findtext(f"clocks_throttle_reason_{name}"))
    )


def nvlinks(text: str) -> dict[int, tuple[int, int]]:
    """Return how many links are up and down, by GPU, from ``nvidia-smi nvlink -s``. GPUs without links are not there. Raises Unreadable."""
    found: dict[int, tuple[int, int]] = {}
    gpu = None
    for line in text.splitlines():
        if match := re.match(r"GPU (\d+):", line):
            gpu = int(match[1])
        elif (match := re.match(r"\s+Link (\d+): (.+)", line)) and gpu is not None:
            up, down = found.get(gpu, (0, 0))
            works = re.match(r"[\d.]+ GB/s", match[2]) is not None
            found[gpu] = (up + works, down + (not works))
    if gpu is None and text.strip():
        raise Unreadable(_short("nvidia-smi nvlink printed something else than links", text))
    return found


def amd(text: str, errors: str = "") -> tuple[Gpu, ...]:
    """Return the GPUs of ``amd-smi metric --json``. Raises Unreadable."""
    if not text.strip():
        raise Unreadable(_short("amd-smi printed nothing", errors))
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Unreadable(f"amd-smi printed no complete JSON ({error})") from None
    # ROCm 7 puts the list into an object.
    rows = found.get("gpu_data") if isinstance(found, Mapping) else found
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) and "gpu" in row for row in rows):
        raise Unreadable("amd-smi printed JSON of another kind than a list of GPUs")
    return tuple(_amd(row) for row in rows)


def _amd(row: Mapping[str, Any]) -> Gpu:
    temperature = _value(_at(row, "temperature", "hotspot"))
    return Gpu(
        name=f"GPU {row['gpu']}",
        address=str(row["gpu"]),
        uncorrected_dram=_value(_at(row, "ecc", "total_uncorrectable_count")),
        corrected=_value(_at(row, "ecc", "total_correctable_count")),
        temperature=temperature,
        pcie_width=_value(_at(row, "pcie", "width")),
        pcie_width_max=_value(_at(row, "pcie", "max_width")),
        utilisation=_value(_at(row, "usage", "gfx_activity")),
        memory_used=_value(_at(row, "mem_usage", "used_vram")),
    )


def _at(found: Any, *names: str) -> Any:
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _value(found: Any) -> int | None:
    if isinstance(found, Mapping):
        found = found.get("value")
    return (
        int(found) if isinstance(found, int | float) and not isinstance(found, bool) else _number(found) if isinstance(found, str) else None
    )


def _number(text: str | None) -> int | None:
    match = re.match(r"\s*(\d+)", text or "")
    return int(match[1]) if match else None


def _sum(parent: ElementTree.Element | None, *names: str) -> int | None:
    values = [_number(parent.findtext(name)) for name in names] if parent is not None else []
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _word(text: str | None) -> str | None:
    text = (text or "").strip()
    return None if text in ("", "N/A", "[N/A]") or "Unknown Error" in text else text


def _yes(text: str | None) -> bool | None:
    return {"Yes": True, "No": False}.get((text or "").strip())


def _short(what: str, text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"{what}: {line[:120]}" if line else what
