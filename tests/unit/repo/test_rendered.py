# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""corral.slurm.render writes what corral.slurm.site sends, without a cluster."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ...server import kubeconfig
from .api import serving
from .repository import ROOT, load

EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.yml") if yaml.safe_load(path.read_text()).get("kind") == "SlurmCluster")


def run(playbook: str, home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "K8S_AUTH_", "KUBE"))}
    environment.update(ANSIBLE_NOCOLOR="1", ANSIBLE_COLLECTIONS_PATH=os.environ["ANSIBLE_COLLECTIONS_PATH"], ANSIBLE_HOME=str(home), **more)
    command = ["ansible-playbook", "-i", "localhost,", f"corral.slurm.{playbook}", *arguments]
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def key(obj: dict[str, Any]) -> tuple[str, str]:
    return obj["kind"], obj["metadata"]["name"]


def test_there_are_documents() -> None:
    assert "full.yml" in EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES)
def test_it_writes_what_site_sends(example: str, tmp_path: Path) -> None:
    document = load(f"examples/{example}")
    # Elsewhere a run reads in the cluster where its API server is.
    document["spec"].setdefault("network", {}).setdefault("egress", {})["apiServer"] = ["192.0.2.1/32"]
    (tmp_path / "my.yml").write_text(yaml.safe_dump(document))
    arguments = ("-e", f"slurm_cluster_file={tmp_path}/my.yml")
    done = run("render", tmp_path, *arguments, "-e", f"output={tmp_path}/out.yml")
    assert done.returncode == 0 and "changed=1 " in done.stdout, done.stdout + done.stderr
    rendered = {key(one): one for one in yaml.safe_load_all((tmp_path / "out.yml").read_text())}
    namespace = document["metadata"]["namespace"]
    there = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "uid": "1", "resourceVersion": "1"}}
    with serving(namespaces=[there], certificates=[]) as server:
        # A run leaves these out where nobody has defined them; what is rendered is for any cluster.
        server.own += [{"name": f"{kind.lower()}s", "kind": kind, "namespaced": True} for kind in ("PrometheusRule", "ServiceMonitor")]
        config = str(kubeconfig(tmp_path / "kubeconfig", server.url))
        done = run("site", tmp_path, *arguments, "--check", "-e", "cluster_base_dry_run=false", KUBECONFIG=config)
        assert done.returncode == 0, done.stdout + done.stderr
    # Who is a member of a set is noted in an object of the set's, and the documents of a cluster in another one. Keys are not rendered.
    sent: dict[tuple[str, str], dict[str, Any]] = {}
    for one in server.tried:
        # A SlurmNodeSet is created with a size, and applied without one.
        former = sent.get(key(one), {}).get("spec", {}) if one["kind"] == "SlurmNodeSet" else {}
        sent[key(one)] = {**one, "spec": {**former, **one["spec"]}} if former else one
    sent = {name: one for name, one in sent.items() if name[0] != "Secret"}
    parents = {found for found, one in sent.items() if "applyset.kubernetes.io/id" in (one["metadata"].get("labels") or {})}
    # What is there already is not sent again.
    assert {name: one for name, one in rendered.items() if name != ("Namespace", namespace)} == {
        name: one for name, one in sent.items() if name not in parents and not name[1].endswith("-base-revisions")
    }
    assert len(rendered) > 10


def test_a_folder_is_kept_true(tmp_path: Path) -> None:
    document = load("examples/full.yml")
    document["spec"]["rest"] = document["spec"].pop("rest")
    (tmp_path / "my.yml").write_text(yaml.safe_dump(document))
    folder = tmp_path / "out"
    arguments = ("render", tmp_path, "-e", f"slurm_cluster_file={tmp_path}/my.yml", "-e", f"output={folder}")
    assert run(*arguments, "--check").returncode == 0 and not folder.exists()
    assert "changed=1 " in run(*arguments).stdout
    assert (folder / "config_maps/full-controller-config/slurm.conf").read_text().count("ClusterName=full") == 1
    assert "changed=0 " in run(*arguments).stdout
    (folder / "kustomization.yaml").write_text("resources: []\n")
    del document["spec"]["rest"]
    (tmp_path / "my.yml").write_text(yaml.safe_dump(document))
    assert "changed=1 " in run(*arguments).stdout
    left = [path.name for path in folder.rglob("*") if "-rest" in path.name]
    assert left == [] and (folder / "kustomization.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Say where to write the objects"),
        (("-e", "output=/proc/none/there"), "cannot be written to /proc/none/there: No such file or directory"),
    ],
)
def test_errors_say_what_to_do(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = run("render", tmp_path, "-e", f"slurm_cluster_file={ROOT}/examples/full.yml", *arguments)
    assert done.returncode == 2 and message in " ".join((done.stdout + done.stderr).split()), done.stdout + done.stderr
