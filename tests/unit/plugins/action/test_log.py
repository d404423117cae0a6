# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module leaves on the host that it runs on, and what it shows of its parameters: never a secret."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

# Stands for the host's syslog: Python loads a module of this name at its start.
SYSLOG = """\
import os, syslog
def note(*said):
    with open(os.environ["CORRAL_SYSLOG"], "a") as file:
        print(*said, file=file)
syslog.syslog = note
"""
SECRET: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "found"}, "stringData": {"a": 's3cr\n"et'}}


def as_module(module: str, **parameters: Any) -> dict[str, Any]:
    """A task that runs as a module, as on another host: an asynchronous one always does."""
    return {module: parameters, "async": 60, "poll": 1, "ignore_errors": True}


def test_secrets_are_neither_logged_by_a_module_nor_shown_of_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SYSLOG)
    nowhere = {"host": "http://127.0.0.1:1"}
    listed = {"apiVersion": "v1", "kind": "List", "items": [SECRET]}
    tasks = [
        as_module("ansible.builtin.command", argv=["echo", "logged"]),
        as_module("corral.slurm.k8s_apply", **nowhere, objects=[SECRET, listed]),
        as_module("corral.slurm.k8s_secret", **nowhere, secrets=[{"name": "found", "data": {"a": {"value": 's3cr\n"et'}}}]),
    ]
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    log = tmp_path / "log"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "CORRAL_SYSLOG": str(log), "ANSIBLE_NOCOLOR": "1"}
    command = [
        "ansible-playbook",
        "-i",
        "localhost,",
        "-c",
        "local",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
        str(tmp_path / "play.yml"),
        "-vvv",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL)
    output = done.stdout + done.stderr
    assert "echo" in log.read_text(), output
    assert "s3cr" not in log.read_text()
    assert output.count("does not answer") >= 2 and "sha256:" in output, output
    assert "s3cr" not in output
