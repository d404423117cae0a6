# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook drift writes nothing, on nothing and on a cluster with drift; and it hands all that a pass would change to the report."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from ...server import kubeconfig
from .api import serving
from .repository import ROOT, files, load, text


def test_a_report_writes_nothing_even_where_everything_differs(tmp_path: Path) -> None:
    with serving() as server:
        server.refused["Service", "full-login"] = (
            422,
            "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range",
        )
        command = ["ansible-playbook", "corral.slurm.drift", "-e", f"slurm_cluster_file={ROOT}/examples/full.yml"]
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig(tmp_path / "kubeconfig", server.url)), "ANSIBLE_NOCOLOR": "1"}
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert server.written == [], server.written
    # The refused object stops none of the tasks behind it, and this API server has no slurmctld to ask.
    assert "not in the valid range" in done.stdout
    assert "Apply the workers' objects and wait for slurmd" in done.stdout
    assert "undefined" not in done.stdout, done.stdout
    assert done.returncode == 2 and re.search(r"Compare slurmctld and the jail.*cannot be (asked|run)", done.stdout, re.DOTALL), done.stdout


def test_the_report_has_the_result_of_each_task_that_applies_something() -> None:
    changes = ("k8s_apply", "k8s_secret", "k8s_refresh", "slurm_reconfigure", "slurm_tenants")
    pass_roles = {
        task["ansible.builtin.import_role"]["name"].rpartition(".")[2]
        for task in load("playbooks/tasks/pass.yml")
        if "ansible.builtin.import_role" in task
    }
    paths = [
        path
        for path in files()
        if path.parts[0] == "roles" and path.parts[1] in pass_roles and path.parts[2] == "tasks" and path.stem in ("main", "tenants")
    ]
    tasks = [task for path in paths for one in load(str(path)) for task in (one, *one.get("block", ()))]
    applied = [task for task in tasks for word in changes if f"corral.slurm.{word}" in task]
    assert len(applied) > 14
    report = text(Path("playbooks/drift.yml"))
    missing = [task["name"] for task in applied if not re.search(rf"\b{task.get('register', '-')}\b", report)]
    assert not missing, f"playbooks/drift.yml has no result of {', '.join(missing)}"
