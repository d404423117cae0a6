# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make demo` in its mode operator ends with the same job as in its mode push, which everybody sees who tries it. With an operator for the whole cluster,
as it is installed there, so no other test runs meanwhile."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from ..conftest import REPOSITORY, VOLUMES, Cluster
from ..kubectl import Kubectl
from .conftest import DOCUMENTS, IMAGE, Operator, let_go

pytestmark = [pytest.mark.lab, pytest.mark.alone]
NAME = "shown"
PORT = 31404


@pytest.fixture
def document(kubectl: Kubectl, make_cluster: Callable[[str, int], Cluster], tmp_path: Path) -> Iterator[Path]:
    """The demonstration's, under another name; afterwards neither it nor its operator is there."""
    let_go(kubectl, f"test-{NAME}")
    made = make_cluster(NAME, PORT)
    example = yaml.safe_load((REPOSITORY / "examples" / "demo.yml").read_text())
    example["metadata"] = {"name": NAME, "namespace": made.namespace}
    example["spec"] |= {
        "login": {"service": {"type": "NodePort", "nodePort": PORT}},
        "images": example["spec"]["images"] | made.spec["images"],
    }
    example["spec"]["accounting"]["database"]["embedded"]["volume"]["hostPath"] = f"{VOLUMES}/{NAME}-database"
    for part in ("controller", "jail"):
        example["spec"][part] |= made.spec[part]
    had = kubectl("get", "crd", DOCUMENTS, "--ignore-not-found", "-o", "name")
    path = tmp_path / "document.yml"
    path.write_text(yaml.safe_dump(example, width=1000))
    yield path
    kubectl("delete", DOCUMENTS, NAME, "-n", made.namespace, "--ignore-not-found", "--timeout=120s", check=False)
    let_go(kubectl, made.namespace)
    run = Operator(kubectl, "corral-operator").install("-e", "confirm=slurmclusters", state="absent", remove_documents=not had)
    assert run.rc == 0, run.output
    kubectl("delete", "namespace", "corral-operator", "--ignore-not-found", "--timeout=120s")


def test_the_demonstration_with_the_operator_ends_with_the_job_of_the_one_without(document: Path, tmp_path: Path) -> None:
    given = {
        "MODE": "operator",
        "DEMO_DOCUMENT": str(document),
        "DEMO_WORK": str(tmp_path),
        "DEMO_PORT": str(PORT),
        "DEMO_OPERATOR_IMAGE": IMAGE,
    }
    done = subprocess.run(
        [str(REPOSITORY / "tools" / "demo")],
        env={**os.environ, **given},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    # Which of the two nodes is the first is Slurm's business.
    assert re.search(r"^batch script on (small|large)-0 as demo, / is the jail: ", done.stdout, re.MULTILINE), done.stdout
    tasks = re.findall(r"^task ([01]) on node (\S+), kernel host (\S+), ", done.stdout, re.MULTILINE)
    assert sorted(number for number, _node, _host in tasks) == ["0", "1"], done.stdout
    assert {(node, host) for _number, node, host in tasks} == {(f"{name}-0", f"{NAME}-{name}-0") for name in ("small", "large")}, (
        done.stdout
    )
    assert f"kubectl delete -f {tmp_path}/cluster.yml" in done.stdout
