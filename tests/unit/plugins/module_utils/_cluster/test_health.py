# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""spec.health: the file that a node's health check reads, and what a document may not say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import health, resolve

from .documents import edited, good
from .test_validate import mistakes

CHECK = {"name": "lamp", "script": "#!/bin/sh\nexit 0\n"}


def workers(document: Any) -> dict[str, Any]:
    found: dict[str, Any] = resolve.model(document).to_dict()["workers"]
    return found


def slurm_conf(document: Any) -> str:
    text: str = resolve.model(document).to_dict()["config"]["files"]["slurm.conf"]
    return text


def test_without_a_word_nodes_are_checked() -> None:
    found = workers(good())
    assert found["health_config_map"] == "demo-worker-health" and list(found["health_files"]) == [health.FILE, "prolog.conf", "epilog.conf"]
    settings = json.loads(found["health_files"][health.FILE])
    assert settings["guardPercent"] == 25 and settings["off"] == [] and settings["checks"] == []
    assert settings["thresholds"] == {"diskPercent": 95, "inodePercent": 95, "memoryPercent": 97, "clockOffsetMilliseconds": 100}
    assert "HealthCheckInterval=60" in slurm_conf(good())


def test_the_interval_and_the_switch() -> None:
    assert "HealthCheckInterval=30\n" in slurm_conf(edited("spec.health", {"intervalSeconds": 30}))
    assert "HealthCheckInterval=0\n" in slurm_conf(edited("spec.health", {"enabled": False}))
    document = edited("spec.slurm.extraConfig", ["HealthCheckInterval=5"])
    assert "HealthCheckInterval=5\n" in slurm_conf(document)


def test_thresholds_by_type_and_checks_of_the_site() -> None:
    gpu = {"vendor": "nvidia", "count": 8, "type": "h100"}
    document = edited("spec.nodeSets[1].gpu", gpu)
    document["spec"]["nodeSets"][0]["gpu"] = {"vendor": "amd", "count": 4, "type": "mi300x"}
    name, other = (document["spec"]["nodeSets"][index]["name"] for index in (1, 0))
    command = {
        "name": "licences",
        "command": ["/bin/lic", "-c"],
        "in": "Jail",
        "contexts": ["Start"],
        "timeoutSeconds": 3,
        "onFailure": "Log",
    }
    document["spec"]["health"] = {
        "gpuThresholds": [{"type": "h100", "nvlinks": 18}],
        "checks": [CHECK, command],
        "disabledChecks": ["raid"],
    }
    files = workers(document)["health_files"]
    settings = json.loads(files[health.FILE])
    assert settings["nodeSets"] == {
        name: {"vendor": "nvidia", "gpus": 8, "thresholds": {"gpuNvlinks": 18}},
        other: {"vendor": "amd", "gpus": 4, "thresholds": {}},
    }
    assert settings["off"] == ["raid"] and files["lamp"] == CHECK["script"]
    common = {"in": "pod", "contexts": ["start", "interval"], "timeout": 10, "onFailure": "drain"}
    assert settings["checks"] == [
        {"name": "lamp", "command": ["/etc/corral/health/lamp"], **common},
        {"name": "licences", "command": ["/bin/lic", "-c"], "in": "jail", "contexts": ["start"], "timeout": 3, "onFailure": "log"},
    ]


def test_simulated_gpus_are_not_checked() -> None:
    document = edited("spec.nodeSets[1].gpu", {"vendor": "simulated", "count": 2, "type": "h100"})
    assert json.loads(workers(document)["health_files"][health.FILE])["nodeSets"] == {}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"checks": [{**CHECK, "contexts": ["Midnight"]}]}, "spec.health.checks[0].contexts[0] is 'Midnight'"),
        ({"checks": [{**CHECK, "timeoutSeconds": 20}], "intervalSeconds": 10}, "spec.health.checks[0].timeoutSeconds is 20, longer than"),
        ({"checks": [{**CHECK, "in": "Jail"}]}, "spec.health.checks[0].in is Jail, where the script of a ConfigMap is not"),
        ({"checks": [{"name": "lamp"}]}, "spec.health.checks[0] has no"),
        ({"checks": [{**CHECK, "name": "raid"}]}, "spec.health.checks[0].name is raid, as a check of the catalogue is"),
        ({"checks": [{**CHECK, "script": "exit 0"}]}, "spec.health.checks[0].script"),
        ({"gpuThresholds": [{"nvlinks": 18}]}, "spec.health.gpuThresholds[0].type is missing"),
        ({"gpuThresholds": [{"type": "h200", "nvlinks": 18}]}, "spec.health.gpuThresholds[0].type is h200, but no node set"),
        ({"disabledChecks": ["warmth"]}, "spec.health.disabledChecks[0] is 'warmth'"),
        ({"guardPercent": 0}, "spec.health.guardPercent"),
    ],
)
def test_what_a_document_may_not_say(wanted: dict[str, Any], words: str) -> None:
    found = mistakes(edited("spec.health", wanted))
    assert len(found) == 1 and words in found[0]
