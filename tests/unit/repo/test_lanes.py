# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks under each ansible-core that the collection supports: what it deprecates today fails tomorrow, so it says nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import revisions

from ...server import kubeconfig
from .api import serving
from .repository import ROOT, load, names, text

PINNED = re.findall(r"^ansible-core==(\S+)", text(Path("requirements.txt")), re.MULTILINE)
OTHERS = subprocess.run([ROOT / "tools/lane"], capture_output=True, text=True, check=True).stdout.split()
DOCUMENT = ["-e", f"slurm_cluster_file={ROOT}/examples/full.yml"]
IMAGES = ["-e", "operator_image=localhost/corral/operator:0", "-e", "node_profiles_image=localhost/corral/slurm:0"]
# Which playbooks run in one command, whether they come to their end there, and their arguments. `upgrade` has `site` in it; the later ones ask a Slurm
# that is not there, or for what was, as late as they can.
RUNS: list[tuple[list[str], bool, list[str]]] = [
    (["upgrade", "tenants", "operator", "node_profiles", "backup_database", "destroy"], True, [*DOCUMENT, *IMAGES]),
    (["restore_database"], True, [*DOCUMENT, "-e", "dump=latest"]),
    (["rotate_secrets"], False, [*DOCUMENT, "-e", "rotate=munge,jwt"]),
    (["drain"], False, [*DOCUMENT, "-e", "node=cpu-0", "-e", "reason=new fans"]),
    (["sync"], False, DOCUMENT),
    (["why"], False, DOCUMENT),
    (["usage"], False, DOCUMENT),
    (["drift"], False, DOCUMENT),
    (["render"], True, [*DOCUMENT, "-e", "output=rendered"]),
    (["rollback"], False, ["-e", "slurm_namespace=demo", "-e", "slurm_name=demo"]),
]


def programs(version: str) -> Path:
    """The folder of ansible-playbook of a version."""
    if version in PINNED:
        return Path(sys.executable).parent
    made = subprocess.run([ROOT / "tools/lane", version], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode == 3:
        pytest.skip(f"ansible-core {version} runs on no Python of this machine")
    assert made.returncode == 0
    return Path(made.stdout.strip()) / "bin"


@pytest.mark.parametrize("version", [*PINNED, *OTHERS])
def test_no_playbook_does_what_is_deprecated(version: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "K8S_AUTH_", "PYTHON"))}
    environment.update(ANSIBLE_NOCOLOR="1", ANSIBLE_COLLECTIONS_PATH=os.environ["ANSIBLE_COLLECTIONS_PATH"], ANSIBLE_HOME=str(tmp_path))
    with serving() as server:
        environment["KUBECONFIG"] = str(kubeconfig(tmp_path / "kubeconfig", server.url))
        for playbooks, ends, arguments in RUNS:
            command = [programs(version) / "ansible-playbook", "-i", "localhost,", "--check", "--diff", *arguments]
            command += [f"corral.slurm.{name}" for name in playbooks]
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            out = done.stdout + done.stderr
            assert (done.returncode == 0) == ends, out
            assert [line for line in out.splitlines() if "DEPRECAT" in line] == [], playbooks
    assert server.written == []


def test_a_document_with_scale_from_a_pipe_where_nobody_has_defined_slurmnodesets(tmp_path: Path) -> None:
    """It is read once for all of the run, and its sets have the size that it begins them with."""
    with serving(lacks=["slurmnodesets"]) as server:
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig(tmp_path / "kubeconfig", server.url)), "ANSIBLE_NOCOLOR": "1"}
        script = 'exec ansible-playbook corral.slurm.upgrade --check --diff -e slurm_cluster_file=<(cat "$1")'
        command = ["bash", "-c", script, "bash", ROOT / "examples/full.yml"]
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NodeName=cpu-[0-31] " in done.stdout
    assert "SlurmNodeSet full-" not in done.stdout


def test_a_play_of_roles_does_all_that_the_site_does(tmp_path: Path) -> None:
    """The very play that the documents show: it rolls out, keeps the document, and asks for nothing that only the site has."""
    (shown,) = re.findall(r"```yaml\n(- hosts: localhost\n.*?)```", text(Path("docs/rollout.md")), re.DOTALL)
    (tmp_path / "my.yml").write_text(text(Path("examples/full.yml")))
    (tmp_path / "play.yml").write_text(shown)
    said = {}
    asked = {"apiVersion": "corral.hpc/v1alpha1", "kind": "SlurmNodeSet", "metadata": {"name": "full-cpu"}, "spec": {"replicas": 40}}
    before = load("examples/full.yml")
    before["spec"]["users"].append({"name": "zoe", "uid": 1999})
    kept = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": revisions.name("full")},
        "binaryData": revisions.parse({}).done(before, "2026-01-01T00:00:00Z").data(),
    }
    with serving(slurmnodesets=[asked], configmaps=[kept]) as server:
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig(tmp_path / "kubeconfig", server.url)), "ANSIBLE_NOCOLOR": "1"}
        runs = {"roles": ["play.yml"], "site": ["corral.slurm.site", "-e", "slurm_cluster_file=my.yml"]}
        for name, arguments in runs.items():
            command = ["ansible-playbook", "--check", "--diff", *arguments]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert "ServiceMonitor full-" not in done.stdout + done.stderr, "nobody has the kind, and nobody is warned"
            assert re.search(r"NodeName=cpu-\[0-39\] ", done.stdout), "the set has the size that is asked for, and not the document's"
            assert "It is not known which jobs are of zoe, whom the document no longer has: slurmctld in Pod" in " ".join(
                (done.stdout + done.stderr).split()
            )
            said[name] = set(re.findall(r"^TASK \[(?:corral\.slurm\.\w+ : )?(.*?)\]", done.stdout, re.MULTILINE))
            assert "changed: [localhost]" in done.stdout.partition("[corral.slurm.slurm_workers : Record the document as applied")[2]
    # The play reads the document by itself, and makes one pass.
    assert said["site"] - said["roles"] <= {"Read the document and the live cluster", "Run another pass"}
    assert "Resume new nodes, scale down drained ones and roll out templates" in said["roles"]


def test_every_playbook_is_run() -> None:
    assert sorted([*(name for playbooks, _ends, _arguments in RUNS for name in playbooks), "site"]) == names("playbooks", "*.yml")


def test_the_lanes_are_those_that_the_collection_promises() -> None:
    """Each release since the oldest, none twice."""
    oldest = re.findall(r">=(\d+\.\d+)", load("meta/runtime.yml")["requires_ansible"])[0]
    releases = [tuple(int(part) for part in version.split(".")[:2]) for version in (*PINNED, *OTHERS)]
    assert releases[0] == tuple(int(part) for part in oldest.split("."))
    assert releases == [(2, minor) for minor in range(releases[0][1], releases[-1][1] + 1)]
