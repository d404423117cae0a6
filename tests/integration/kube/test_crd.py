# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The definitions of the custom resources before the API server, which checks more than their own schemas: defaults against rules, the rules' cost.
And it takes what a playbook takes.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._cluster import apiserver, reading, resolve
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

from ..conftest import eventually
from ..kubectl import Kubectl

pytestmark = pytest.mark.lab
REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("plural", ["slurmclusters", "slurmnodesets", "slurmtenants"])
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


def test_the_largest_document_is_kept_whoever_else_has_written_it(group: str) -> None:
    """etcd takes 1.5 MiB, and the API server notes for each field who has written it."""
    kubectl, document = Kubectl(REPOSITORY), yaml.safe_load((REPOSITORY / "examples/minimal.yml").read_text())
    key = document["spec"]["users"][0]["sshKeys"][0]
    document["metadata"] = {"name": f"largest-{uuid.uuid4().hex[:8]}", "namespace": "default"}
    document["spec"]["users"] = [{"name": f"u{number:04d}", "uid": 20001 + number, "sshKeys": [key]} for number in range(1300)]
    more, rest = divmod(apiserver.MAX_DOCUMENT - len(resolve.model(document).document.encode()), 1300)
    for number, user in enumerate(document["spec"]["users"]):
        user["sshKeys"] = [f"{key}{'x' * (more + (number < rest))}"]
    assert len(resolve.model(document).document.encode()) == apiserver.MAX_DOCUMENT
    sent = json.dumps({**document, "apiVersion": f"{group}/v1alpha1"})
    for who in ("one", "another"):
        kubectl("apply", "--server-side", f"--field-manager={who}", "-f", "-", stdin=sent)
    kept = kubectl.json("get", f"slurmclusters.{group}", document["metadata"]["name"], "-n", "default", "--show-managed-fields")
    assert len(kept["metadata"]["managedFields"]) == 2
    again = resolve.model({**document, "spec": kept["spec"]})
    assert len(again.document.encode()) == apiserver.MAX_DOCUMENT, "what is run by the operator is as large"


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
        # One for each shape of the rules that both are made of.
        ("spec", "login: {initScripts: [{name: a}]}", False),
        ("spec", "jails: [{name: a, volume: {claimName: c, size: 1Gi}, populate: {image: i}}]", False),
        ("spec", "jails: [{name: a, volume: {storageClassName: s, size: 1Gi}, populate: {policy: Never}}]", True),
        ("spec", "jails: [{name: a, volume: {claimName: c}, populate: {}}]", False),
        ("spec", "foreignFields: [{kind: Service}]", False),
        ("spec", "network: {egress: {allow: [{}]}}", False),
        ("spec", "workers: {drain: {jobs: [{policy: Wait}]}}", False),
        ("spec", "login: {service: {nodePort: 30022}}", False),
        ("spec", "login: {service: {type: NodePort, nodePort: 30022}}", True),
        ("spec", "slurm: {processTracking: linuxproc, extraCgroupConfig: [ConstrainCores=no]}", False),
        ("spec", "partitions: [{name: a, defMemPerCpu: 1Gi, defMemPerNode: 1Gi}]", False),
        ("spec", "partitions: [{name: a, minNodes: 3, maxNodes: 2}]", False),
        ("spec", "partitions: [{name: a, default: true}, {name: b, default: true}]", False),
        ("spec", "partitions: [{name: a, default: true}, {name: b, default: false}, {name: c}]", True),
        ("spec", "login: {tolerations: [{}]}", False),
        ("spec", "login: {tolerations: [{operator: Exists}, {key: a, value: b, effect: NoExecute, tolerationSeconds: 3}]}", True),
        ("spec", "login: {tolerations: [{key: a, tolerationSeconds: 3}]}", False),
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
