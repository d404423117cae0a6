# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of drift of a real cluster: none at first; then each planted edit is listed, none more, and the report changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import MARIADB_IMAGE, VOLUMES, Cluster, Run, embedded_database, playbook

pytestmark = pytest.mark.lab

NAME, NAMESPACE = "drift", "test-drift"
JAIL = VOLUMES / f"{NAME}-jail" / "root"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster(NAME, 31420)
    del made.spec["nodeSets"][1]
    made.spec["nodeSets"][0]["replicas"] = 1
    made.spec["images"]["mariadb"] = MARIADB_IMAGE
    made.spec["accounting"] = {
        "database": embedded_database(NAME),
        "tenants": {"accounts": [{"name": "physics", "fairshare": 60}]},
    }
    run = made.site()
    assert run.rc == 0, run.output
    return made


def report(cluster: Cluster, tmp_path: Path) -> tuple[Run, list[dict[str, str]]]:
    """A run of the playbook, and the findings that it has written."""
    file = tmp_path / "drift.json"
    run = playbook("drift", cluster.write(), "-e", "format=json", "-e", f"file={file}")
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else pytest.fail(run.output)
    assert (found["cluster"], found["namespace"], found["not_compared"]) == (NAME, NAMESPACE, [])
    return run, found["findings"]


def test_a_cluster_that_was_just_made_has_none(cluster: Cluster, tmp_path: Path) -> None:
    before = cluster.objects()
    run, findings = report(cluster, tmp_path)
    assert (run.rc, findings) == (0, []), run.output
    assert cluster.objects() == before


def edited(path: Path, before: str, after: str) -> None:
    """Edit a file of the jail in its place."""
    text = path.read_text()
    assert before in text, text
    path.write_text(text.replace(before, after))


def plant(cluster: Cluster) -> dict[tuple[str, str], tuple[str | None, str | None]]:
    """Make the edits. Return what should be found: kind and place, and the two values, None for one whose form is not this test's affair."""
    there = ("-n", NAMESPACE)
    config = cluster.kubectl.json("get", "configmap", f"{NAME}-controller-config", *there)
    text = json.dumps({"data": {"slurm.conf": f"{config['data']['slurm.conf']}MessageTimeout=99\n"}})
    cluster.kubectl("patch", "configmap", f"{NAME}-controller-config", *there, "--type=merge", "-p", text)
    cluster.kubectl("label", "service", f"{NAME}-login", *there, "--overwrite", "app.kubernetes.io/managed-by=nobody")
    cluster.kubectl("set", "env", f"statefulset/{NAME}-cpu", *there, "-c", "slurmd", "SPY=1")
    cluster.kubectl("delete", "serviceaccount", f"{NAME}-login", *there)
    cluster.kubectl("patch", "serviceaccount", f"{NAME}-worker", *there, "-p", '{"automountServiceAccountToken": true}')
    cluster.kubectl(
        "patch", "networkpolicy", f"{NAME}-base", *there, "-p", '{"spec": {"podSelector": {"matchLabels": {"nobody": "here"}}}}'
    )
    cluster.slurm("scontrol", "setdebug", "debug")
    cluster.slurm("scontrol", "update", "nodename=cpu-0", "weight=7")
    cluster.slurm("scontrol", "update", "partitionname=main", "maxtime=5")
    cluster.slurm("scontrol", "create", "partitionname=stray", "nodes=cpu-0")
    cluster.slurm("sacctmgr", "-i", "modify", "account", "physics", "set", "fairshare=7")
    edited(JAIL / "etc/passwd", "/home/alice:/bin/bash", "/home/alice:/bin/sh")
    edited(JAIL / "etc/sudoers.d/corral", "alice ALL", "mallory ALL")
    edited(JAIL / "etc/corral-jail", "jail:trixie", "jail:bookworm")
    here = f"{NAMESPACE}/{NAME}"
    return {
        ("ConfigMap", f"{here}-controller-config .data.slurm.conf"): (None, "MessageTimeout=99"),
        ("Service", f"{here}-login .metadata.labels.app.kubernetes.io/managed-by"): ("corral", "nobody"),
        ("StatefulSet", f'{here}-cpu .spec.template.spec.containers[name="slurmd"].env[name="SPY"]'): ("absent", None),
        ("ServiceAccount", f"{here}-login"): ("present", "absent"),
        ("ServiceAccount", f"{here}-worker .automountServiceAccountToken"): ("false", "true"),
        ("NetworkPolicy", f"{here}-base .spec.podSelector.matchLabels.nobody"): ("absent", "here"),
        ("config", "SlurmctldDebug"): ("info", "debug"),
        ("node", "cpu-0 Weight"): ("1", "7"),
        ("partition", "main MaxTime"): (None, "00:05:00"),
        ("partition", "stray"): ("absent", "in slurmctld"),
        ("user", "/etc/passwd alice"): (None, "alice:x:10001:10001::/home/alice:/bin/sh"),
        ("user", "/etc/sudoers.d/corral"): (None, None),
        ("jail", "/etc/corral-jail image"): ("localhost/corral/jail:trixie", "localhost/corral/jail:bookworm"),
    }


def test_each_planted_edit_is_listed_and_none_more(cluster: Cluster, tmp_path: Path) -> None:
    expected = plant(cluster)
    before = cluster.objects()
    run, findings = report(cluster, tmp_path)
    assert run.rc == 2 and f"differs from its document in {len(expected) + 1} places" in run.output, run.output
    tenants = [one for one in findings if one["kind"] == "tenant"]
    assert len(tenants) == 1 and "physics" in json.dumps(tenants), tenants
    found = {(one["kind"], one["where"]): (one["document"], one["live"]) for one in findings if one["kind"] != "tenant"}
    assert found.keys() == expected.keys()
    for place, values in expected.items():
        for wanted, value in zip(values, found[place], strict=True):
            assert wanted in (None, value), (place, found[place])
    # Nothing of it was taken back.
    assert cluster.objects() == before
    assert "= debug\n" in cluster.slurm("scontrol", "show", "config")
    assert "MaxTime=00:05:00" in cluster.slurm("scontrol", "show", "partition", "main")
    assert "mallory" in (JAIL / "etc/sudoers.d/corral").read_text()
