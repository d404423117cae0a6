# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""The catalogue: each check once, in the order in which their failures give a node its reason. docs/health.md is made from it."""

from __future__ import annotations

from corral_health import gpu_checks, kernel, others, system
from corral_health.checks import Check
from corral_health.settings import Own

GPUS = ("nvidia", "amd")
NVIDIA = ("nvidia",)
# Holds new jobs when too many nodes cannot enter their jail: it is the volume then, and not they. The name is known to the collection's _slurm, too.
JAIL_OUTAGE = "corral-jail-outage"

CHECKS: tuple[Check, ...] = (
    Check(
        "jail",
        "a step cannot enter the jail, or users cannot write there",
        others.jail,
        needs=("jail-exec",),
        owner="jail",
        reservation=JAIL_OUTAGE,
    ),
    Check("mounts", "a volume of the pod that was mounted when slurmd started is not mounted any more", system.mounts, files=True),
    Check("read-only", "a file system became read-only by an error", system.read_only, files=True),
    Check("disk-full", "a file system of the pod is full, of bytes or of inodes (`diskPercent`, `inodePercent`)", system.disks, files=True),
    # slurmctld drains such a node itself, when it registers.
    Check(
        "memory-size",
        "the node has less memory than slurm.conf promises (`memoryPercent` of it)",
        system.memory_size,
        needs=("node",),
        on_failure="comment",
    ),
    Check("memory-errors", "the memory has uncorrectable errors (EDAC)", system.memory_errors, files=True),
    Check("raid", "a RAID array of the kernel's lacks a disk or has stopped", system.raid, files=True),
    Check(
        "gpu-driver",
        "the kernel's driver and the libraries in the pod have different versions",
        gpu_checks.driver,
        needs=("gpus",),
        platforms=NVIDIA,
    ),
    Check("gpu-count", "a GPU is lost", gpu_checks.count, needs=("gpus",), platforms=GPUS),
    Check(
        "gpu-xid",
        "the kernel's log has an Xid or SXid that asks for a reset, a reboot or a repair; others that matter are a warning",
        kernel.xid,
        files=True,
        platforms=NVIDIA,
        latched=True,
    ),
    Check(
        "gpu-recovery",
        "the driver asks for a recovery: a reset, a reboot or a drain",
        gpu_checks.recovery,
        needs=("gpus",),
        platforms=NVIDIA,
    ),
    Check(
        "gpu-ecc",
        "a GPU has had uncorrectable memory errors since its driver was loaded",
        gpu_checks.uncorrected,
        needs=("gpus",),
        platforms=GPUS,
    ),
    Check(
        "gpu-remap", "a row of a GPU's memory waits to be remapped, or could not be", gpu_checks.remap, needs=("gpus",), platforms=NVIDIA
    ),
    Check("gpu-retired-pages", "a page of a GPU's memory waits to be retired", gpu_checks.retired, needs=("gpus",), platforms=NVIDIA),
    Check(
        "gpu-fabric", "a GPU has not joined the NVLink fabric", gpu_checks.fabric, needs=("gpus",), platforms=NVIDIA, failures=2, window=2
    ),
    Check(
        "gpu-nvlink",
        "an NVLink is down (`nvlinks`)",
        gpu_checks.nvlink,
        needs=("nvidia-smi-nvlink",),
        platforms=NVIDIA,
        failures=2,
        window=2,
    ),
    Check(
        "gpu-pcie",
        "a GPU has too few PCIe lanes, or too slow ones while it is busy (`pcieWidth`, `pcieGeneration`)",
        gpu_checks.pcie,
        needs=("gpus",),
        platforms=GPUS,
        failures=2,
        window=3,
    ),
    Check(
        "gpu-throttle",
        "a GPU is slowed down by its hardware, for heat or for lack of power",
        gpu_checks.throttled,
        needs=("gpus",),
        platforms=NVIDIA,
        failures=6,
        window=10,
    ),
    Check(
        "gpu-busy",
        "a GPU has a process, and the node has no job",
        gpu_checks.busy,
        needs=("gpus", "node"),
        platforms=NVIDIA,
        states="idle",
        failures=2,
        window=2,
    ),
    Check(
        "infiniband",
        "an InfiniBand port is down, gone or slower (`infinibandPorts`, `infinibandGbps`)",
        system.infiniband,
        files=True,
        failures=2,
        window=2,
    ),
    Check(
        "gpu-memory",
        "a GPU has memory in use, and the node has no job (`idleMemoryMebibytes`)",
        gpu_checks.memory,
        needs=("gpus", "node"),
        platforms=GPUS,
        states="idle",
        failures=3,
        window=3,
        on_failure="comment",
    ),
    Check(
        "gpu-ecc-corrected",
        "a GPU has had many corrected memory errors (`correctedErrors`)",
        gpu_checks.corrected,
        needs=("gpus",),
        platforms=GPUS,
        on_failure="comment",
    ),
    Check(
        "gpu-temperature",
        "a GPU is as hot as where its hardware slows it down (`temperatureCelsius`)",
        gpu_checks.temperature,
        needs=("gpus",),
        platforms=GPUS,
        failures=3,
        window=5,
        on_failure="comment",
    ),
    Check(
        "infiniband-errors",
        "an InfiniBand port counts errors",
        system.infiniband_errors,
        files=True,
        failures=2,
        window=3,
        on_failure="comment",
    ),
    Check(
        "ethernet",
        "a network interface of hardware is down, gone or slower",
        system.ethernet,
        files=True,
        failures=2,
        window=2,
        on_failure="comment",
    ),
    Check("munge", "munged makes no credentials", others.munge, needs=("munge",), failures=3, window=3, on_failure="comment"),
    Check(
        "clock",
        "nothing sets the clock any more, or it is off (`clockOffsetMilliseconds`)",
        system.clock,
        files=True,
        failures=3,
        window=3,
        on_failure="comment",
    ),
    Check("clocksource", "the kernel fell back to a slow clock", system.clocksource, files=True, contexts=("start",), on_failure="comment"),
    Check(
        "leftovers",
        "users have processes on the node and no job there",
        system.leftovers,
        files=True,
        failures=3,
        window=3,
        on_failure="comment",
    ),
)


def of_site(own: Own) -> Check:
    """Return the row of a check that the document has."""
    return Check(
        own.name,
        "of the site's own",
        others.own(own.name),
        needs=(f"own {own.name}",),
        contexts=own.contexts,
        timeout=own.timeout,
        on_failure=own.on_failure,
        inside=own.inside,
    )
