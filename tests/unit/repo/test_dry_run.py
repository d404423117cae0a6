# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Before a run of a new document writes anything, the API server has been asked about all of its objects."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import NotFound
from ansible_collections.corral.slurm.plugins.module_utils._kube.run import run

from ...server import kubeconfig
from .api import serving
from .repository import ROOT

NO_DRY_RUN = (400, 'admission webhook "strict.example.com" does not support dry run')


def test_what_the_api_server_refuses_of_the_last_role_is_known_before_the_first_writes(tmp_path: Path) -> None:
    with serving() as server:
        server.refused["Service", "full-login"] = (
            422,
            "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range",
        )
        command = ["ansible-playbook", "corral.slurm.site", "-e", f"slurm_cluster_file={ROOT}/examples/full.yml"]
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig(tmp_path / "kubeconfig", server.url)), "ANSIBLE_NOCOLOR": "1"}
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stdout + done.stderr
        assert "Apply all objects as a dry run" in done.stdout
        assert "not in the valid range" in done.stdout
        # The namespace and the priority classes are shared with others; the ConfigMap notes which document is tried.
        kinds = {path.rsplit("/", 2)[-2 if "/configmaps/" in path else -1] for path in server.written}
        assert kinds == {"namespaces", "priorityclasses", "configmaps"}, server.written
        assert len([path for path in server.written if "/configmaps/" in path]) == 1


def test_an_object_that_no_dry_run_can_try_is_told_and_stops_nothing(tmp_path: Path) -> None:
    with serving() as server:
        server.refused["ConfigMap", "strict"] = NO_DRY_RUN
        objects = [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "demo"}} for name in ("strict", "other")
        ]
        parameters = {"kubeconfig": str(kubeconfig(tmp_path / "kubeconfig", server.url)), "objects": objects}
        for create_only in (False, True):
            result = run({**parameters, "create_only": create_only}, check=True, diff=False)
            assert [row["result"] for row in result["objects"]] == ["created", "created"]
            assert result["warnings"] == [f"ConfigMap demo/strict is not checked, since {NO_DRY_RUN[1]}; a run asks it."]


@pytest.mark.parametrize("check", [True, False])
def test_objects_of_a_kind_that_nobody_has_defined_are_left_out_where_the_task_says_so(tmp_path: Path, check: bool) -> None:
    metadata = {"name": "lab", "namespace": "demo"}
    monitor = {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": metadata}
    with serving() as server:
        parameters = {"kubeconfig": str(kubeconfig(tmp_path / "kubeconfig", server.url))}
        parameters |= {"objects": [monitor, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}], "skip_unknown_kinds": True}
        result = run(parameters, check=check, diff=True)
        assert [(row["kind"], row["result"]) for row in result["objects"]] == [("ConfigMap", "created")]
        assert result["unknown_kinds"] == ["monitoring.coreos.com/v1/ServiceMonitor"]
        assert "warnings" not in result
        assert "ServiceMonitor" not in str(result["diff"])
        # As a cluster with the Prometheus operator has it.
        server.own.append({"name": "servicemonitors", "kind": "ServiceMonitor", "namespaced": True})
        result = run(parameters, check=check, diff=True)
        assert [(row["kind"], row["result"]) for row in result["objects"]] == [("ServiceMonitor", "created"), ("ConfigMap", "created")]
        assert "unknown_kinds" not in result
        parameters["skip_unknown_kinds"] = False
        server.own.pop()
        if not check:
            with pytest.raises(NotFound, match="no kind ServiceMonitor"):
                run(parameters, check=check, diff=True)


@pytest.mark.parametrize(
    ("part", "fields", "words"),
    [
        (
            "accounting",
            {"database": {"mariadbOperator": {}}},
            "needs mariadb-operator, and the API server has no kind MariaDB in k8s.mariadb.com/v1alpha1; install",
        ),
        (
            "rest",
            {"tls": {"issuerRef": {"name": "own"}}},
            "needs cert-manager, and the API server has no kind Certificate in cert-manager.io/v1; install",
        ),
    ],
)
def test_a_kind_of_another_operator_that_is_missing_ends_the_run(tmp_path: Path, part: str, fields: dict[str, Any], words: str) -> None:
    document = yaml.safe_load((ROOT / "examples" / "full.yml").read_text())
    document["spec"]["rest"]["tls"] = {"secret": "rest-certificate"}
    document["spec"][part] |= fields
    file = tmp_path / "full.yml"
    file.write_text(yaml.safe_dump(document))
    with serving() as server:
        command = ["ansible-playbook", "corral.slurm.site", "-e", f"slurm_cluster_file={file}"]
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig(tmp_path / "kubeconfig", server.url)), "ANSIBLE_NOCOLOR": "1"}
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stdout + done.stderr
        assert words in done.stdout
        assert len([path for path in server.written if "/configmaps/" in path]) == 1
