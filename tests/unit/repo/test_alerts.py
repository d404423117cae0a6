# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics and alerts of a cluster: their pages are those of the code, and Prometheus' own program has the rules fire and resolve."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._cluster import components, resolve
from ansible_collections.corral.slurm.plugins.module_utils._kube.render import render

from .repository import ROOT, load, text

sys.path.insert(0, str(ROOT / "images" / "slurm"))
from corral_exporter import metrics

Json = dict[str, Any]
LABELS = 'namespace="slurm",cluster="lab"'


def rules() -> list[Json]:
    document = load("examples/full.yml")
    document["metadata"] = {"name": "lab", "namespace": "slurm"}
    folders = [ROOT / "roles" / role / "templates" for role in ("monitoring", "cluster_base")]
    (item,), _origins = render([folders[0] / "prometheus_rule.yml.j2"], {"corral": resolve.model(document, sizes={}).to_dict()}, folders)
    (group,) = item["spec"]["groups"]
    found: list[Json] = group["rules"]
    return found


NAMES = [rule["alert"] for rule in rules()]


def test_the_page_of_the_metrics_has_the_exporters() -> None:
    rows = "".join(
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels) or '—'} | {one.help} |\n"
        for one in metrics.CATALOGUE
    )
    assert text(Path("docs/monitoring.md")).endswith(f"| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}")


def test_each_alert_leads_to_its_section_and_each_section_is_of_an_alert() -> None:
    assert re.findall(r"^## (\w+)$", text(Path("docs/alerts.md")), re.MULTILINE) == NAMES
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"https://wiki.example.com/slurm/alerts#{rule['alert'].lower()}"
        assert "lab" in rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_rules_use_the_exporters_metrics_and_labels_of_this_cluster_alone() -> None:
    known = {one.name: {*one.labels, "namespace", "cluster"} for one in metrics.CATALOGUE}
    for rule in rules():
        selectors = re.findall(r"(slurm_\w+)\{([^}]*)\}", rule["expr"])
        assert selectors and len(selectors) == len(re.findall(r"slurm_\w+", rule["expr"])), rule["expr"]
        for name, labels in selectors:
            assert labels.startswith(LABELS)
            assert set(re.findall(r"(\w+)=", labels)) <= known[name]


def test_the_probe_knows_the_exporters_port() -> None:
    assert f'listening {components.EXPORTER_PORT} "the exporter"' in text(Path("images/slurm/entry/probe.sh"))


# Of each alert: the series, minute by minute; when it fires, with which labels of its own; and when it does not.
FIRING: dict[str, tuple[dict[str, str], int, dict[str, str], int]] = {
    "SlurmExporterDown": ({'slurm_exporter_success{%s,source="jobs"}': "1x10 stale _x20 1x100"}, 20, {}, 3),
    "SlurmctldDown": ({'slurm_exporter_success{%s,source="scheduler"}': "1x5 0x20 1x100"}, 15, {"source": "scheduler"}, 40),
    "SlurmMetricsOld": ({'slurm_exporter_age_seconds{%s,source="jobs"}': "0x5 600x20 0x100"}, 15, {"source": "jobs"}, 40),
    "SlurmNodesNotResponding": ({'slurm_nodes_not_responding{%s,node_set="gpu"}': "0x5 2x20 0x100"}, 15, {"node_set": "gpu"}, 40),
    "SlurmNodesUnavailable": (
        {
            'slurm_cpus{%s,node_set="gpu",state="unavailable"}': "10x5 30x40 10x100",
            'slurm_cpus{%s,node_set="gpu",state="idle"}': "90x5 70x40 90x100",
        },
        30,
        {"node_set": "gpu"},
        60,
    ),
    "SlurmNodeOutForADay": (
        {'slurm_node_unavailable{%s,node="gpu-0",node_set="gpu",state="drained",reason="x"}': "1x1500 stale"},
        1460,
        {"node": "gpu-0", "node_set": "gpu"},
        1520,
    ),
    "SlurmJobsWaitForIdleNodes": ({'slurm_node_set_startable_jobs{%s,node_set="gpu"}': "0x5 3x50 0x100"}, 50, {"node_set": "gpu"}, 70),
    "SlurmQueueStuck": (
        {
            'slurm_node_set_pending_jobs{%s,node_set="gpu"}': "3x100",
            'slurm_scheduler_cycles_total{%s,scheduler="main"}': "0+1x30 30x40 31+1x60",
        },
        55,
        {},
        90,
    ),
    "SlurmctldBusy": ({"slurm_scheduler_threads{%s}": "3x5 250x20 3x100"}, 20, {}, 40),
    "SlurmdbdBacklog": ({"slurm_slurmdbd_queue{%s}": "0x5 5000x30 0x100"}, 30, {}, 50),
}


def promtool(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", name="folder")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("rules")
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "lab", "rules": rules()}]}), encoding="utf-8")
    return folder


def test_prometheus_accepts_the_rules(folder: Path) -> None:
    assert f"{len(NAMES)} rules found" in promtool(folder, "check", "rules", "rules.yml")


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_fires_and_resolves(folder: Path, name: str) -> None:
    series, fires, labels, silent = FIRING[name]
    (rule,) = [one for one in rules() if one["alert"] == name]
    minutes = [f"{fires}m", f"{silent}m"]
    # What is absent has the labels of the selector.
    own = {**rule["labels"], **labels}
    if not rule["expr"].startswith(("100 *", "max", "sum")):
        own |= {"namespace": "slurm", "cluster": "lab"}
    expected = {"exp_labels": own, "exp_annotations": {"runbook": rule["annotations"]["runbook"]}}
    # Summaries have values in them; what else they say is the template's.
    bare = {**rule, "annotations": expected["exp_annotations"]}
    (folder / f"{name}.yml").write_text(yaml.safe_dump({"groups": [{"name": "lab", "rules": [bare]}]}), encoding="utf-8")
    test = {
        "rule_files": [f"{name}.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": key % LABELS, "values": values} for key, values in series.items()],
                "alert_rule_test": [
                    {"eval_time": minutes[0], "alertname": name, "exp_alerts": [expected]},
                    {"eval_time": minutes[1], "alertname": name, "exp_alerts": []},
                ],
            }
        ],
    }
    (folder / f"{name}.test.yml").write_text(yaml.safe_dump(test), encoding="utf-8")
    promtool(folder, "test", "rules", f"{name}.test.yml")


def test_summaries_have_the_values_of_their_alert() -> None:
    (rule,) = [one for one in rules() if one["alert"] == "SlurmNodesUnavailable"]
    assert (
        rule["annotations"]["summary"]
        == '{{ printf "%.0f" $value }} % of the node set {{ $labels.node_set }} of the cluster lab take no new jobs.'
    )
