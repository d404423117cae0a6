# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Checks of GPUs. Pure: what the tools of their makers print goes in, and a result comes out."""

from __future__ import annotations

from collections.abc import Callable

from corral_health.checks import Broken, Facts, Result, failed, ok, skipped
from corral_health.gpus import Gpu, Lost, Mismatch, Unreadable, amd, nvidia, nvlinks

# The command that lists the GPUs of each maker.
TOOLS = {"nvidia": "nvidia-smi", "amd": "amd-smi"}
# nvidia-smi's status for a warning, that a GPU's infoROM is corrupted; what it prints is complete.
_WARNED = 14


def read(facts: Facts) -> tuple[Gpu, ...]:
    """Return the node's GPUs. Raises Broken when the tool cannot be understood, Lost and Mismatch for what is a finding."""
    output = facts.output(TOOLS[facts.settings.vendor])
    try:
        found = (nvidia if facts.settings.vendor == "nvidia" else amd)(output.stdout, output.stderr)
    except Unreadable as error:
        raise Broken(str(error)) from None
    if output.status not in (0, _WARNED):
        raise Broken(f"{TOOLS[facts.settings.vendor]} ended with status {output.status}")
    return found


def count(facts: Facts) -> Result:
    """All GPUs are there, and the driver knows them."""
    try:
        found = read(facts)
    except Lost as error:
        return failed(str(error))
    except Mismatch:
        return skipped("gpu-driver says more")
    if len(found) < facts.settings.gpus:
        return failed(f"{len(found)} of {facts.settings.gpus} GPUs are there")
    return ok(f"{len(found)} GPUs")


def driver(facts: Facts) -> Result:
    """The kernel's driver and the pod's libraries are of one version."""
    try:
        read(facts)
    except Mismatch as error:
        return failed(str(error))
    except Lost:
        pass
    return ok()


def _each(test: Callable[[Facts, Gpu], str | None], *, warning: bool = False) -> Callable[[Facts], Result]:
    """A check of every GPU by itself; ``test`` returns what is wrong with one."""

    def check(facts: Facts) -> Result:
        try:
            found = read(facts)
        except (Lost, Mismatch):
            return skipped("gpu-count and gpu-driver say more")
        wrong = [f"GPU {index} {text}" for index, gpu in enumerate(found) if (text := test(facts, gpu))]
        return failed("; ".join(wrong), warning=warning) if wrong else ok()

    return check


def _recovery(_facts: Facts, gpu: Gpu) -> str | None:
    return f"needs: {gpu.recovery}" if gpu.recovery not in (None, "None") else None


def _uncorrected(_facts: Facts, gpu: Gpu) -> str | None:
    counts = {"SRAM": gpu.uncorrected_sram, "DRAM": gpu.uncorrected_dram}
    wrong = [f"{number} of {where}" for where, number in counts.items() if number]
    return f"has uncorrectable memory errors: {', '.join(wrong)}" if wrong else None


def _corrected(facts: Facts, gpu: Gpu) -> str | None:
    limit = facts.settings.threshold("gpuCorrectedErrors")
    return f"has {gpu.corrected} corrected memory errors, more than {limit:.0f}" if limit and (gpu.corrected or 0) > limit else None


def _remap(_facts: Facts, gpu: Gpu) -> str | None:
    if gpu.remap_failed:
        return "could not remap a row of its memory and has to be replaced"
    return "has a row of its memory to be remapped by a reset" if gpu.remap_pending else None


def _retired(_facts: Facts, gpu: Gpu) -> str | None:
    return "has a page of its memory to be retired by a reset" if gpu.retire_pending else None


def _fabric(_facts: Facts, gpu: Gpu) -> str | None:
    return f"has not joined the NVLink fabric: {gpu.fabric}" if gpu.fabric not in (None, "Completed") else None


def _throttled(_facts: Facts, gpu: Gpu) -> str | None:
    return f"is slowed down by its hardware: {', '.join(gpu.throttled)}" if gpu.throttled else None


def _temperature(facts: Facts, gpu: Gpu) -> str | None:
    limit = facts.settings.threshold("gpuTemperatureCelsius") or gpu.slowdown_temperature
    return (
        f"has {gpu.temperature} °C, the limit is {limit:.0f}"
        if limit and gpu.temperature is not None and gpu.temperature >= limit
        else None
    )


def _pcie(facts: Facts, gpu: Gpu) -> str | None:
    width = facts.settings.threshold("gpuPcieWidth") or gpu.pcie_width_max
    if width and gpu.pcie_width and gpu.pcie_width < width:
        return f"has {gpu.pcie_width} PCIe lanes, not {width:.0f}"
    # An idle link runs slower to save power.
    generation = facts.settings.threshold("gpuPcieGeneration")
    if generation and gpu.pcie_generation and (gpu.utilisation or 0) > 50 and gpu.pcie_generation < generation:
        return f"has a PCIe link of generation {gpu.pcie_generation} while it is busy, not {generation:.0f}"
    return None


def _busy(_facts: Facts, gpu: Gpu) -> str | None:
    return f"is used by process {', '.join(map(str, gpu.processes))}, and the node has no job" if gpu.processes else None


def _memory(facts: Facts, gpu: Gpu) -> str | None:
    limit = facts.settings.threshold("gpuIdleMemoryMiB")
    if limit is None or gpu.processes or (gpu.memory_used or 0) <= limit:
        return None
    return f"has {gpu.memory_used} MiB of memory in use, and the node has no job"


recovery = _each(_recovery)
uncorrected = _each(_uncorrected)
corrected = _each(_corrected)
remap = _each(_remap)
retired = _each(_retired)
fabric = _each(_fabric)
throttled = _each(_throttled)
temperature = _each(_temperature)
pcie = _each(_pcie)
busy = _each(_busy)
memory = _each(_memory)


def nvlink(facts: Facts) -> Result:
    """All NVLinks are up: as many as the document says, or none of those there are is down."""
    output = facts.output("nvidia-smi-nvlink")
    if output.status:
        raise Broken(f"nvidia-smi nvlink -s ended with status {output.status}")
    try:
        links = nvlinks(output.stdout)
    except Unreadable as error:
        raise Broken(str(error)) from None
    wanted = facts.settings.threshold("gpuNvlinks")
    if not links and not wanted:
        return skipped("these GPUs have no NVLinks")
    expected = range(facts.settings.gpus) if wanted else links
    wrong = []
    for gpu in expected:
        up, down = links.get(gpu, (0, 0))
        if wanted and up < wanted:
            wrong.append(f"GPU {gpu} has {up} of {wanted:.0f} NVLinks")
        elif not wanted and down:
            wrong.append(f"GPU {gpu} has {down} of {up + down} NVLinks down")
    return failed("; ".join(wrong)) if wrong else ok()
