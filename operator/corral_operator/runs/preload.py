# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of ``ansible-playbook`` that the zygote does once, and the rest, which each run does.

This is ``ansible.cli.playbook.PlaybookCLI.run`` in two parts: the zygote does the first one (plugin loader, inventory, the parsed files of the
collection), the fork the second one (variables, playbook, tasks). Only this module and ``in_process`` use internals of ansible-core.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from ansible import constants
from ansible.cli.playbook import PlaybookCLI
from ansible.errors import AnsibleError
from ansible.executor.playbook_executor import PlaybookExecutor
from ansible.playbook import Playbook
from ansible.plugins.loader import action_loader, init_plugin_loader
from ansible.utils.collection_loader._collection_finder import _get_collection_playbook_path
from ansible.utils.display import Display
from ansible.vars.manager import VariableManager

from corral_operator.runs import in_process
from corral_operator.runs.processes import INTERRUPTED

PLAYBOOKS = ("corral.slurm.site", "corral.slurm.destroy", "corral.slurm.sync", "corral.slurm.tenants")
# Any document will do: it only makes the code run, and nothing of it is retained.
_DOCUMENT = {
    "apiVersion": "corral.hpc/v1alpha1",
    "kind": "SlurmCluster",
    "metadata": {"name": "warm-up", "namespace": "warm-up"},
    "spec": {
        "images": {"slurm": "warm-up"},
        "controller": {"stateVolume": {"hostPath": "/warm-up", "size": "1Gi"}},
        "nodeSets": [{"name": "cpu", "replicas": 1, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
        "partitions": [{"name": "main", "default": True}],
        "jail": {"volume": {"hostPath": "/warm-up", "size": "1Gi"}, "populate": {"image": "warm-up"}},
    },
}
# What a pass reads when there is nothing to do.
_LIVE: dict[str, Any] = {
    "note": False,
    "pending": False,
    "removed_users": [],
    "api_server": {"ipv4": [], "ipv6": [], "within": {"0.0.0.0/0": [], "::/0": []}, "record": ""},
    "new_node_sets": [],
    "shrinks": False,
    "retired": [],
    "retained_lines": [],
    "files": None,
}
# The values that a module returns when there is nothing to do, by type.
_NOTHING: dict[str, Any] = {"bool": False, "int": 0, "str": "", "list": [], "dict": {}}

_made: dict[str, Any] = {}


def load() -> None:
    """Load what all runs share, and warm up the site playbook: all runs inherit the caches of Ansible and Jinja."""
    Path(constants.config.get_config_value("ANSIBLE_HOME")).expanduser().mkdir(mode=0o700, parents=True, exist_ok=True)
    cli = PlaybookCLI(["ansible-playbook", "-i", "localhost,", *PLAYBOOKS])
    cli.parse()
    init_plugin_loader()
    in_process.install()
    loader, inventory, variables = cli._play_prereqs()
    collection = importlib.import_module("ansible_collections.corral.slurm")
    names = [path.stem for path in sorted(Path(collection.__path__[0], "plugins", "action").glob("*.py"))]
    actions = [action_loader.get(f"corral.slurm.{name}", class_only=True) for name in names]
    _made.update(loader=loader, inventory=inventory, variables=variables, playbooks={}, warmed_up={}, tasks={}, actions=actions)
    warm_up(PLAYBOOKS[0])


def warm_up(playbook: str) -> None:
    """Run a playbook with stubbed actions, and load it again for the runs. Until then a run loads it itself."""
    loader, inventory, variables = _made["loader"], _made["inventory"], _made["variables"]
    variables.extra_vars.update(slurm_cluster=_DOCUMENT, confirm="warm-up", keep_data=True)
    before = in_process.begun
    with _stub_backends(_made["actions"]):
        _made["warmed_up"][playbook] = int(PlaybookExecutor([playbook], inventory, variables, loader, {}).run())
    _made["tasks"][playbook] = in_process.begun - before
    variables.extra_vars.clear()  # shared by all variable managers of a process
    # This one has not been run: each fork finds it as it was loaded.
    variables = _made["variables"] = VariableManager(
        loader=loader, inventory=inventory, version_info=PlaybookCLI.version_info(gitinfo=False)
    )
    path = _get_collection_playbook_path(playbook)[1]
    _made["playbooks"][path] = Playbook.load(path, variables, loader)


@contextlib.contextmanager
def _stub_backends(actions: list[Any]) -> Iterator[None]:
    """Stub the backends of the collection's actions, so that they send no requests. The model is really computed, from the document alone."""
    backends = {action: action.backend for action in actions}
    for action, backend in backends.items():
        name = action.__module__.rpartition(".")[2]
        stub = functools.partial(_model, backend) if name == "slurm_cluster_model" else functools.partial(_nothing_to_do, name)
        action.backend = staticmethod(stub)
    try:
        yield
    finally:
        for action, backend in backends.items():
            action.backend = staticmethod(backend)


def _model(backend: Any, params: dict[str, Any], **modes: bool) -> dict[str, Any]:
    return {**backend({**params, "live": False}, **modes), "live": _LIVE}


def _nothing_to_do(name: str, _params: dict[str, Any], **_modes: bool) -> dict[str, Any]:
    """Return what a module returns, by its documentation, when there is nothing to do."""
    return {"changed": False, **{key: copy.copy(_NOTHING[kind]) for key, kind in _returned(name).items()}}


@functools.cache
def _returned(name: str) -> dict[str, str]:
    """Return the values that a module always returns, with their types."""
    documented = yaml.safe_load(importlib.import_module(f"ansible_collections.corral.slurm.plugins.modules.{name}").RETURN)
    return {key: one["type"] for key, one in documented.items() if one["returned"].startswith(("always", "success", "with "))}


def plan(playbook: str) -> dict[str, Any] | None:
    """Return the line that is reported when a run starts: its number of tasks when there is nothing to do."""
    tasks = _made["tasks"].get(playbook)
    return None if tasks is None else {"kind": "plan", "tasks": tasks}


def run(playbook: str, extravars: Path) -> int:
    """Do what ``ansible-playbook -i localhost, -e @extravars playbook`` does; return its exit status."""
    loader, inventory, variables = _made["loader"], _made["inventory"], _made["variables"]
    load_playbook: Any = Playbook.load
    in_process.replace(
        Playbook, "load", staticmethod(lambda path, *rest, **named: _made["playbooks"].get(path) or load_playbook(path, *rest, **named))
    )
    try:
        variables.extra_vars.update(loader.load_from_file(str(extravars), cache="none", trusted_as_template=True))
        return int(PlaybookExecutor([playbook], inventory, variables, loader, {}).run())
    except KeyboardInterrupt:
        return INTERRUPTED
    except AnsibleError as error:
        Display().error(error)
        return int(error._exit_code)
