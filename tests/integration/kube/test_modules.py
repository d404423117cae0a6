# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules and their actions in real playbooks: both ways give the same result, and values stay data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN

from .conftest import Engine, playbook

pytestmark = pytest.mark.lab

TEMPLATE = """\
{% for name in names %}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ corral.prefix ~ "-" ~ name }}
  labels: {{ corral.labels }}
data: {text: {{ corral.text }}, "quoted": {{ extra }}}
{% endfor %}
{% include "shared.yml.j2" %}
"""
SHARED = "---\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: {{ corral.prefix }}}}\n"
# Jinja, quotes, a line break and more, as an untrusted document may hold them.
NASTY = "{{ lookup('pipe', 'touch /tmp/pwned') }} {% raw %} \"'\n- x: [y\t🙂"


def play(engine: Engine, tmp_path: Path, *tasks: dict[str, Any], **variables: Any) -> list[dict[str, Any]]:
    """Run the tasks; return their results."""
    (tmp_path / "templates").mkdir(exist_ok=True)
    (tmp_path / "more").mkdir(exist_ok=True)
    (tmp_path / "templates" / "map.yml.j2").write_text(TEMPLATE)
    (tmp_path / "more" / "shared.yml.j2").write_text(SHARED)
    steps: list[dict[str, Any]] = []
    for number, task in enumerate(tasks):
        steps += [{**task, "register": f"result_{number}"}]
    results = tmp_path / "results.json"
    content = "{{ [" + ", ".join(f"result_{number}" for number in range(len(tasks))) + "] | to_json }}"
    steps.append({"ansible.builtin.copy": {"dest": str(results), "content": content, "mode": "0600"}, "diff": False, "check_mode": False})
    site = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}", **variables},
            "module_defaults": {"group/corral.slurm.kubernetes": {"kubeconfig": engine.kubeconfig}},
            "tasks": steps,
        }
    ]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(site, sort_keys=False))
    done = playbook(tmp_path / "play.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    loaded: list[dict[str, Any]] = json.loads(results.read_text())
    return loaded


def both_ways(task: dict[str, Any]) -> list[dict[str, Any]]:
    """The task in the controller's process, and as a module (an asynchronous task always is one)."""
    return [task, {**task, "async": 120, "poll": 1}]


def stripped(result: dict[str, Any]) -> dict[str, Any]:
    """Leave out what Ansible adds to results of asynchronous tasks."""
    added = {
        "ansible_job_id",
        "finished",
        "started",
        "results_file",
        "stdout",
        "stderr",
        "stdout_lines",
        "stderr_lines",
        "invocation",
        "failed",
    }
    return {key: value for key, value in result.items() if key not in added}


def test_action_and_module_give_the_same_result(engine: Engine, tmp_path: Path) -> None:
    maps = [engine.config_map(f"m{number}", key="1") for number in range(3)]
    applyset = {"name": "set", "namespace": engine.namespace}
    secret = {"name": "keys", "namespace": engine.namespace, "data": {"k": {"random_bytes": 8}}}
    apply = {"corral.slurm.k8s_apply": {"objects": maps, "applyset": applyset, "wait": True}, "diff": True}
    absent = {"corral.slurm.k8s_apply": {"state": "absent", "applyset": applyset, "wait": True}}
    refused = {"corral.slurm.k8s_apply": {"objects": [{**maps[0], "data": {"k": {"no": "text"}}}]}, "ignore_errors": True}
    told = {"corral.slurm.slurm_reconfigure": {"namespace": engine.namespace, "pod": "none", "config_hash": "x"}, "ignore_errors": True}
    asked = {"corral.slurm.slurm_node_info": {"namespace": engine.namespace, "pod": "none"}, "ignore_errors": True}
    create, create_as_module = both_ways(apply)
    gone, gone_as_module = both_ways(absent)
    tasks = [create, create, gone, create_as_module, create_as_module, gone_as_module]
    for task in ({"corral.slurm.k8s_secret": {"secrets": [secret]}}, refused, told, asked):
        tasks += both_ways(task)
    results = [stripped(result) for result in play(engine, tmp_path, *tasks)]
    for removal in (results[2], results[5]):
        removal.pop("requests")  # it looks until the garbage collector is done
    assert results[0:3] == results[3:6]
    assert [result["changed"] for result in results[:3]] == [True, False, True] and results[0]["diff"] and results[1]["writes"] == 0
    assert results[6]["changed"] and results[6]["secrets"][0]["added"] == 1 and not results[7]["changed"]
    for here, there in (results[8:10], results[10:12], results[12:14]):
        assert here["msg"] == there["msg"] and here["msg"].startswith(("Could not", "Pod", "slurmctld"))


def test_values_are_data_wherever_they_come_from(engine: Engine, tmp_path: Path) -> None:
    model = {"prefix": "p", "labels": {"a": "b"}, "text": NASTY}
    document = tmp_path / "model.json"
    document.write_text(json.dumps({"changed": False, **model}))
    task: dict[str, Any] = {
        "corral.slurm.k8s_apply": {
            "templates": ["map.yml.j2"],
            "template_paths": [str(tmp_path / "more")],
            "variables": {"names": ["one", "two"], "extra": "{{ 1 + 1 }} times"},
            "namespace": engine.namespace,
        }
    }
    facts = {"ansible.builtin.set_fact": {"corral": "{{ lookup('file', '" + str(document) + "') | from_json }}"}}
    results = play(engine, tmp_path, facts, *both_ways(task), task)
    assert [row["result"] for row in results[1]["objects"]] == ["created"] * 3
    assert [stripped(result)["changed"] for result in results[2:]] == [False, False]
    live = engine.get("configmap", "p-two")
    assert live["data"] == {"text": NASTY, "quoted": "2 times"} and live["metadata"]["labels"] == {"a": "b"}
    assert engine.names("serviceaccounts") == {"default", "p"} and not Path("/tmp/pwned").exists()


def test_the_table_of_kinds_is_the_api_servers(engine: Engine) -> None:
    """kubectl's discovery says the same plural and scope for each kind of the table, in a version that is served."""
    lines = engine.kubectl("api-resources", "--no-headers").splitlines()
    served: dict[tuple[str, str], set[tuple[str, bool]]] = {}
    for line in lines:
        plural, api_version, namespaced, kind = (line.split()[0], *line.split()[-3:])
        served.setdefault((api_version, kind), set()).add((plural, namespaced == "true"))
    for resource in BUILTIN.values():
        assert (resource.plural, resource.namespaced) in served.get((resource.api_version, resource.kind), set()), resource


def test_the_environment_of_a_task_holds_for_the_action_too(engine: Engine, tmp_path: Path) -> None:
    task: dict[str, Any] = {
        "corral.slurm.k8s_apply": {"objects": [engine.config_map("m")], "kubeconfig": "{{ omit }}"},
        "environment": {"K8S_AUTH_KUBECONFIG": engine.kubeconfig},
    }
    assert play(engine, tmp_path, task)[0]["changed"]
