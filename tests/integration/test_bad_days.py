# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user reads when something is wrong, and that a failed run can simply be run again."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import VOLUMES, Cluster, playbook
from .kubectl import Kubectl

pytestmark = pytest.mark.lab


@pytest.fixture
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    return make_cluster("bad", 30123)


def said(run_output: str) -> str:
    """What the user reads, with the terminal's line breaks taken out."""
    return " ".join(run_output.split())


def test_a_wrong_document_touches_nothing(cluster: Cluster) -> None:
    cluster.spec["nodeSets"][1]["replicas"] = -1
    cluster.spec["nodeSetz"] = []
    run = cluster.site()
    assert run.rc != 0
    assert "spec.nodeSets[1].replicas" in run.output
    assert "spec.nodeSetz" in run.output
    assert "Traceback" not in run.output
    assert cluster.kubectl("get", "namespace", cluster.namespace, "--ignore-not-found") == ""


def test_a_value_with_jinja_in_it_stays_text(cluster: Cluster, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    cluster.spec["nodeSets"][0]["features"] = ["{{ lookup('ansible.builtin.pipe', 'touch " + str(witness) + "') }}"]
    run = cluster.site("--check")
    assert run.rc != 0
    assert "spec.nodeSets[0].features[0]" in run.output
    assert not witness.exists()


def test_no_file(tmp_path: Path) -> None:
    run = playbook("site", tmp_path / "missing.yml")
    assert run.rc != 0
    assert "missing.yml" in run.output
    assert "Traceback" not in run.output


def test_an_unreachable_api_server_is_named(cluster: Cluster, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(re.sub(r'https://[^"\s]+', "https://127.0.0.1:1", Path(os.environ["KUBECONFIG"]).read_text()))
    run = cluster.site(env={"KUBECONFIG": str(config)})
    assert run.rc != 0
    assert "127.0.0.1:1" in run.output
    assert "Traceback" not in run.output


def test_missing_rights_are_named(cluster: Cluster, kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create", "namespace", cluster.namespace)
    kubectl("create", "serviceaccount", "nobody", "-n", cluster.namespace)
    token = kubectl("create", "token", "nobody", "-n", cluster.namespace).strip()
    run = cluster.site(env={"K8S_AUTH_API_KEY": token, **connection(kubectl, tmp_path)})
    assert run.rc != 0
    assert "system:serviceaccount:test-bad:nobody" in said(run.output)
    assert "namespace" in said(run.output)


def connection(kubectl: Kubectl, tmp_path: Path) -> dict[str, str]:
    """Server and CA of the lab without its administrator's certificate."""
    import base64

    view = kubectl.json("config", "view", "--raw", "--minify")["clusters"][0]["cluster"]
    ca = tmp_path / "ca.crt"
    ca.write_bytes(
        base64.b64decode(view["certificate-authority-data"])
        if "certificate-authority-data" in view
        else Path(view["certificate-authority"]).read_bytes()
    )
    return {"KUBECONFIG": "/dev/null", "K8S_AUTH_HOST": view["server"], "K8S_AUTH_SSL_CA_CERT": str(ca)}


def test_an_image_that_can_not_be_pulled_is_named_and_healed_by_a_second_run(cluster: Cluster) -> None:
    good = cluster.spec["jail"]["populate"]["image"]
    cluster.spec["images"]["pullPolicy"] = "Never"
    cluster.spec["jail"]["populate"]["image"] = "localhost/corral/jail:absent"
    run = cluster.site()
    assert run.rc != 0
    assert "localhost/corral/jail:absent" in said(run.output)
    cluster.spec["jail"]["populate"]["image"] = good
    assert cluster.site().rc == 0


@pytest.mark.long
def test_a_cluster_domain_of_another_cluster_is_told_and_healed_by_a_second_run(cluster: Cluster) -> None:
    cluster.spec["clusterDomain"] = "cluster.invalid"
    run = cluster.site()
    ended = datetime.datetime.now(datetime.UTC)
    assert run.rc != 0
    assert "spec.clusterDomain is cluster.invalid, but the names of this Kubernetes cluster end with cluster.local" in said(run.output)
    pod = cluster.kubectl.json("get", "pod", f"{cluster.name}-controller-0", "-n", cluster.namespace)
    seconds = (ended - datetime.datetime.fromisoformat(pod["metadata"]["creationTimestamp"])).total_seconds()
    print(f"MEASURED pod of slurmctld with a wrong clusterDomain → the run says so: {seconds:.0f} s")
    assert seconds < 60, "and does not wait for its time-out"
    cluster.spec.pop("clusterDomain")
    run = cluster.site()
    assert run.rc == 0, run.output


@pytest.mark.long
def test_a_volume_with_somebody_elses_files_is_refused_and_left_alone(cluster: Cluster) -> None:
    volume = VOLUMES / "bad-jail"
    volume.mkdir(parents=True)
    (volume / "thesis.txt").write_text("years of work")
    run = cluster.site()
    assert run.rc != 0
    assert "thesis.txt" in said(run.output)
    assert (volume / "thesis.txt").read_text() == "years of work"
    (volume / "thesis.txt").unlink()
    run = cluster.site()
    assert run.rc == 0, run.output


@pytest.mark.long
def test_a_claim_that_never_binds_is_named(cluster: Cluster) -> None:
    cluster.spec["controller"]["stateVolume"] = {"storageClassName": "no-such-class", "size": "1Gi"}
    run = cluster.site("-e", "slurm_controller_wait_timeout=20")
    assert run.rc != 0
    assert "bad-controller-state" in said(run.output)
    assert "no-such-class" in said(run.output)
