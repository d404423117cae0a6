# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""What the document says about health checks, resolved for one node. The file is a ConfigMap's, made from spec.health; without one all defaults hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What ``thresholds`` may have; those without a value are not checked unless the document has one.
DEFAULTS: dict[str, float | None] = {
    "diskPercent": 95,
    "inodePercent": 95,
    "memoryPercent": 97,
    "clockOffsetMilliseconds": 100,
    "gpuCorrectedErrors": 20_000_000,
    "gpuIdleMemoryMiB": 1024,
    "gpuNvlinks": None,
    "gpuPcieWidth": None,
    "gpuPcieGeneration": None,
    "gpuTemperatureCelsius": None,
    "infinibandPorts": None,
    "infinibandGbps": None,
}
ACTIONS = ("drain", "comment", "log")


class SettingsError(Exception):
    """The file cannot be used; the text is one sentence."""


@dataclass(frozen=True)
class Own:
    """A check of the site: a command, in the pod or in the jail."""

    name: str
    command: tuple[str, ...]
    inside: bool = False
    timeout: int = 10
    on_failure: str = "drain"
    contexts: tuple[str, ...] = ("start", "interval")


@dataclass(frozen=True)
class Settings:
    """The settings of one node. ``vendor`` is nvidia, amd, or "" without GPUs that can be checked; ``gpus`` is how many it should have."""

    vendor: str = ""
    gpus: int = 0
    guard_percent: int = 25
    off: frozenset[str] = frozenset()
    thresholds: Mapping[str, float | None] = field(default_factory=lambda: dict(DEFAULTS))
    own: tuple[Own, ...] = ()

    @property
    def platform(self) -> str:
        """Return cpu, nvidia or amd."""
        return self.vendor or "cpu"

    def threshold(self, name: str) -> float | None:
        """Return a limit; None where nothing is to be checked."""
        return self.thresholds[name]


def read(path: Path, node: str) -> Settings:
    """Return the settings of a node. Raises SettingsError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    try:
        found = json.loads(text)
        node_set = {**found.get("nodeSets", {}).get(node.rpartition("-")[0], {})}
        if node_set.get("vendor", "") not in ("", "nvidia", "amd"):
            raise SettingsError(f"{path} has the unknown vendor {node_set['vendor']}; known are nvidia and amd")
        given = {**found.get("thresholds", {}), **node_set.get("thresholds", {})}
        unknown = sorted(set(given) - set(DEFAULTS))
        if unknown:
            raise SettingsError(f"{path} has the unknown threshold {unknown[0]}; known are {', '.join(DEFAULTS)}")
        return Settings(
            vendor=node_set.get("vendor", ""),
            gpus=int(node_set.get("gpus", 0)),
            guard_percent=int(found.get("guardPercent", 25)),
            off=frozenset(found.get("off", ())),
            thresholds={**DEFAULTS, **given},
            own=tuple(_own(one) for one in found.get("checks", ())),
        )
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise SettingsError(
            f"{path} is not what this version of the image reads ({error}); give workers the image of the collection's release"
        ) from None


def _own(given: Mapping[str, Any]) -> Own:
    own = Own(
        name=str(given["name"]),
        command=tuple(str(word) for word in given["command"]),
        inside=given.get("in", "pod") == "jail",
        timeout=int(given.get("timeout", 10)),
        on_failure=str(given.get("onFailure", "drain")),
        contexts=tuple(given.get("contexts", ("start", "interval"))),
    )
    if own.on_failure not in ACTIONS:
        raise ValueError(f"check {own.name} has onFailure {own.on_failure}, which is none of {', '.join(ACTIONS)}")
    if not own.command:
        raise ValueError(f"check {own.name} has no command")
    return own
