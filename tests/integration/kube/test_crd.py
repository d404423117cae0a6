# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The definitions of the custom resources before the API server, which checks more than their own schemas: defaults against rules, the rules' cost.
And it takes what a playbook takes.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._cluster import reading, resolve
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

from ..conftest import eventually
from ..kubectl import Kubectl

pytestmark = pytest.mark.lab
REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("plural", ["slurmclusters", "slurmnodesets"])
def test_the_api_server_takes_the_definition(plural: str) -> None:
    file = REPOSITORY / "playbooks" / "files" / f"{plural}.corral.hpc.yml"
    # Tests of the operator may have installed it.
    said = Kubectl(REPOSITORY)("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", str(file))
    assert f"{plural}.corral.hpc serverside-applied" in said


@pytest.fixture(scope="module")
def group() -> Iterator[str]:
    """A group of the tests' own with the kind SlurmCluster, as operators of other tests may come and go with theirs."""
    name = f"t{uuid.uuid4().hex[:8]}.example.com"
    definition = yaml.safe_load((REPOSITORY / "playbooks/files/slurmclusters.corral.hpc.yml").read_text())
    definition["metadata"]["name"] = f"slurmclusters.{name}"
    definition["spec"]["group"] = name
    kubectl = Kubectl(REPOSITORY)
    kubectl("create", "-f", "-", stdin=yaml.safe_dump(definition))
    try:
        eventually(lambda: kubectl.serves(f"slurmclusters.{name}"), "the definition is served")
        yield name
    finally:
        kubectl("delete", f"crd/slurmclusters.{name}", "--wait=false")


@pytest.mark.parametrize(
    ("place", "lines", "taken"),
    [
        ("spec", "", True),
        ("spec", "partitions: [{name: a, maxTime: 10:00:00}]", True),
        ("spec", "partitions: [{name: a, maxTime: 1:40}]", False),
        ("spec", "partitions: [{name: a, priorityTier: 9223372036854775808}]", False),
        ("spec", "partitions: [{name: a, priorityTier: 2.0}]", True),
        ("spec", "partitions: [{name: a, priorityTier: 2.5}]", False),
        ("spec", "slurm: {topology: {}}", False),
        ("spec", "login: {replicas: }", True),
        ("spec", "login: {motd: 1:40}", True),
        ("spec", "login: {motd: yes}", False),
        ("spec", f"login: {{motd: {'9' * 41}}}", False),
        ("metadata", "generateName: lab-", False),
    ],
)
def test_a_file_means_the_same_to_kubectl_and_to_a_playbook(group: str, place: str, lines: str, taken: bool) -> None:
    text = (REPOSITORY / "examples/minimal.yml").read_text().replace("namespace: slurm", "namespace: default")
    text = text.replace(f"{place}:\n", f"{place}:\n  {lines}\n", 1)
    with nullcontext() if taken else pytest.raises(CorralError):
        resolve.model(reading.document(text, "the document"))
    file = text.replace("corral.hpc/v1alpha1", f"{group}/v1alpha1")
    command = [REPOSITORY / "lab/kubectl", "apply", "--server-side", "--dry-run=server", "-f", "-"]
    done = subprocess.run(command, input=file, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == taken, done.stdout + done.stderr
