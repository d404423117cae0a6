# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboards of a cluster: what Grafana gets, and that Prometheus' own program finds data for each query in recorded output of Slurm."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from ansible_collections.corral.slurm.plugins.module_utils._cluster import dashboards, resolve
from ansible_collections.corral.slurm.plugins.module_utils._kube.render import render

from .repository import ROOT, load

sys.path.insert(0, str(ROOT / "images" / "slurm"))
from corral_exporter import metrics
from corral_exporter.collector import Collector

from ..images.test_exporter import NOW, VERSIONS, Slurm, settings

Json = dict[str, Any]
SERIES = 'namespace="slurm",cluster="demo"'


def objects(**changes: Any) -> list[Json]:
    document = load("examples/full.yml")
    document["metadata"] = {"name": "demo", "namespace": "slurm"}
    document["spec"]["monitoring"]["dashboards"] |= changes
    folder = ROOT / "roles" / "monitoring" / "templates"
    found: list[Json] = render([folder / "dashboards.yml.j2"], {"corral": resolve.model(document, sizes={}).to_dict()}, [folder])[0]
    return found


def shown() -> dict[str, Json]:
    (item,) = objects()
    return {name: json.loads(text) for name, text in item["data"].items()}


QUERIES = [
    (f"{one.key}: {panel.title}, {legend or 'table'}", query.replace("@", SERIES))
    for one in dashboards.DASHBOARDS
    for panel in one.panels
    for legend, query in panel.queries.items()
]


def test_the_config_map_is_found_by_the_sidecar_and_stays_the_clusters_own() -> None:
    (item,) = objects(labels={"grafana_dashboard": "yes", "app.kubernetes.io/instance": "another"})
    assert item["kind"] == "ConfigMap" and item["metadata"]["name"] == "demo-monitoring-dashboards"
    assert item["metadata"]["labels"]["grafana_dashboard"] == "yes"
    assert item["metadata"]["labels"]["app.kubernetes.io/instance"] == "demo"
    assert item["metadata"]["annotations"] == {"grafana_folder": "Slurm"}
    assert len(json.dumps(item)) < 128 << 10
    assert objects(enabled=False) == []


def test_two_clusters_share_neither_files_nor_dashboards() -> None:
    found = [dashboards.files(name, namespace, SERIES) for name, namespace in (("a", "b"), ("b", "a"), ("a", "c"))]
    assert len({name for one in found for name in one}) == 3 * len(dashboards.DASHBOARDS)
    assert len({json.loads(text)["uid"] for one in found for text in one.values()}) == 3 * len(dashboards.DASHBOARDS)


def test_a_dashboard_is_what_grafana_reads() -> None:
    assert len(shown()) == len(dashboards.DASHBOARDS)
    for one in shown().values():
        assert re.fullmatch(r"[0-9a-f]{1,40}", one["uid"]) and one["title"].startswith("Slurm slurm/demo: ")
        assert [variable["name"] for variable in one["templating"]["list"]] == ["datasource"]
        places = [
            (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
            for panel in one["panels"]
            for x in range(panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["h"])
        ]
        assert len(places) == len(set(places)) and max(x for x, _y in places) < 24, "panels lie over one another"
        assert [panel["id"] for panel in one["panels"]] == [*range(1, len(one["panels"]) + 1)]
        for panel in one["panels"]:
            assert panel["type"] in ("timeseries", "table")
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
            for target in panel["targets"]:
                assert "@" not in target["expr"] and target["datasource"] == panel["datasource"] == {
                    "type": "prometheus",
                    "uid": "${datasource}",
                }


@pytest.mark.parametrize(("name", "query"), QUERIES, ids=[name for name, _query in QUERIES])
def test_a_query_uses_the_exporters_metrics_and_labels_of_this_cluster_alone(name: str, query: str) -> None:
    known = {one.name: {*one.labels, "namespace", "cluster"} for one in metrics.CATALOGUE}
    selectors = re.findall(r"(slurm_\w+)\{([^}]*)\}", query)
    assert selectors and len(selectors) == len(re.findall(r"slurm_\w+", query)), query
    grouped = {label for labels in re.findall(r"by \(([^)]*)\)", query) for label in labels.split(", ")}
    for metric, labels in selectors:
        assert labels.startswith(SERIES)
        assert {*re.findall(r"(\w+)=", labels), *grouped} <= known[metric]
    for label in re.findall(r"{{(\w+)}}", name):
        assert label in grouped, "a legend of a label that the series do not have"


# What queries have in them whose data no recording of this release has: no job of 26.05's runs.
WITHOUT_DATA: dict[str, set[str]] = {"24.11": set(), "26.05": {"slurm_account_cpus", "slurm_account_gpus", 'state="running"'}}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_query_has_data(tmp_path: Path, version: str) -> None:
    """promtool evaluates it on the exporter's text, which each scrape of an hour brings; counters grow by as much each minute."""
    collector = Collector(settings(), Slurm(version).records, now=lambda: NOW)
    collector.collect()
    series = []
    for family in text_string_to_metric_families(collector.text().decode()):
        for sample in family.samples:
            labels = ",".join(
                f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in {"namespace": "slurm", **sample.labels}.items()
            )
            value = repr(float(sample.value))
            series.append({"series": f"{sample.name}{{{labels}}}", "values": f"{value}+{value if family.type == 'counter' else 0}x60"})
    tested = [(name, query) for name, query in QUERIES if not any(part in query for part in WITHOUT_DATA[version])]
    assert len(tested) >= len(QUERIES) - 3
    tests = [
        # Without data there is nothing to count, and no sample.
        {
            "expr": f"count({query.replace(dashboards.RATE, '5m')}) > bool 0",
            "eval_time": "50m",
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for _name, query in tested
    ]
    (tmp_path / "test.yml").write_text(
        yaml.safe_dump({"evaluation_interval": "1m", "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": tests}]}),
        encoding="utf-8",
    )
    done = subprocess.run(["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_query_without_data_would_fail_the_test_above(tmp_path: Path) -> None:
    test = {"expr": "count(slurm_nodes{}) > bool 0", "eval_time": "50m", "exp_samples": [{"labels": "{}", "value": 1}]}
    given = {"tests": [{"interval": "1m", "input_series": [{"series": "other{}", "values": "1+0x60"}], "promql_expr_test": [test]}]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(given), encoding="utf-8")
    done = subprocess.run(["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0


def test_each_metric_is_in_a_dashboard_or_said_not_to_be() -> None:
    left_out = {
        # Of the exporter itself, of which the dashboards have the age, the durations and the failures.
        "slurm_exporter_success", "slurm_exporter_queries_total", "slurm_exporter_folded", "slurm_exporter_invalid_records",
        # What other metrics show over time, or by node set.
        "slurm_scheduler_cycle_mean_seconds", "slurm_node_set_pending_nodes", "slurm_partition_cpus", "slurm_partition_memory_bytes",
    }  # fmt: skip
    used = {metric for _name, query in QUERIES for metric in re.findall(r"slurm_\w+", query)}
    assert used | left_out == {one.name for one in metrics.CATALOGUE}
    assert not used & left_out
